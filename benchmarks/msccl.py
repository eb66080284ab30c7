"""Can MSCCL XML say what every planner plans, and does it compute its collective?

Every planner, and every refiner after ``ring`` or ``pairwise``, on three networks and for four
collectives: the program runs on NumPy buffers in three random legal orders (tests/msccl_executor.py,
which shares nothing with the exporter). Where MSCCL_VERIFIER names the folder with the programs of
dromniscience/MSCCL-XML-Verifier, these judge the AllGathers and AllToAlls too. Prints a line a
planner, what was refused, and the totals; writes benchmarks/out/msccl.json after every planner.

Planners that solve programs use their quick options; ``--seconds`` limits each of their plans. Every plan
is asked for in a process of its own that ends at ``--gigabytes`` of memory or ten times those seconds of CPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from msccl_executor import check
from stretto.formats import exporters
from stretto.formats.steps import parts_of
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError, Unsupported
from stretto.model.targets import TARGETS
from stretto.planners import Entry, registered, run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

NETWORKS = ("dgx1", "ndv2:2", "torus:4x4")
KINDS = ("allgather", "reducescatter", "allreduce", "alltoall")
VERIFIED = ("allgather", "alltoall")
"""The kinds that the public verifier knows."""


OUTCOMES = {
    "computed": "in each of three orders what the collective means",
    "refused": "by the exporter, which says why",
    "not served": "by the planner, which says why",
    "no plan in time": "within the limit of seconds",
    "ended": "its process met the limit of memory or CPU time",
}


def row(entry: Entry, net: str, kind: str, folder: str, seconds: float) -> dict[str, str]:
    """What became of one plan: refused with the reason, or computed, and what the public verifier said."""
    spec = f"{'pairwise' if kind == 'alltoall' else 'ring'}+{entry.name}" if entry.refines else entry.name
    facts = {"planner": entry.name, "topology": net, "collective": kind}
    topology = load_topology(net)
    n = len(topology.accelerators)
    workload = Workload((make_collective(kind, topology, 64 * n),))
    limit = seconds if entry.quick is not None else None
    try:
        plan = run_planner(spec, topology, workload, time_limit_s=limit, options=entry.quick)
    except Unsupported as refusal:
        return facts | {"outcome": "not served", "reason": str(refusal)}
    except StrettoError as failure:
        return facts | {"outcome": "no plan in time", "reason": str(failure)}
    path = os.path.join(folder, "plan.xml")
    try:
        exporters()["msccl"].write(simulate(plan), path)
    except Unsupported as refusal:
        return facts | {"outcome": "refused", "reason": str(refusal)}
    text = Path(path).read_text()
    for seed in range(3):
        check(text, kind, n, parts_of(plan.workload.collectives[0], TARGETS["msccl"]).number, seed)
    return facts | {"outcome": "computed", "public verifier": judged(text, kind, folder)}


def within_limits(entry: Entry, net: str, kind: str, folder: str, seconds: float, most_bytes: int) -> dict[str, str]:
    """The row, found by a process of its own; one that ends at a limit is a row that says so."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (int(10 * seconds), int(10 * seconds)))
        sending.send(row(entry, net, kind, folder, seconds))

    child = context.Process(target=limited)
    child.start()
    sending.close()
    try:
        found: dict[str, str] = receiving.recv()
    except EOFError:
        child.join()
        reason = f"its process ended with {child.exitcode} at {most_bytes / 1e9:g} GB or {10 * seconds:g} s"
        found = {"planner": entry.name, "topology": net, "collective": kind, "outcome": "ended", "reason": reason}
    child.join()
    return found


def judged(text: str, kind: str, folder: str) -> str:
    """What the public verifier says of a program; its alltoall-verifier wants the kind to say allreduce."""
    programs = os.environ.get("MSCCL_VERIFIER")
    if not programs or kind not in VERIFIED:
        return "not asked"
    path = os.path.join(folder, "judged.xml")
    Path(path).write_text(text.replace('coll="alltoall"', 'coll="allreduce"'))
    done = subprocess.run([f"{programs}/{kind}-verifier", path, "2"], capture_output=True, text=True, timeout=300)
    return (
        "accepted" if done.returncode == 0 and "All tests passed" in done.stdout else f"refused: {done.stderr[-200:]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planner", action="append", help="only these")
    parser.add_argument("--seconds", type=float, default=5.0, help="limit of each plan that is solved for")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="limit of the memory of a plan")
    asked = parser.parse_args()
    entries = [e for e in registered().values() if not asked.planner or e.name in asked.planner]
    rows: list[dict[str, str]] = []
    out = Path(__file__).parent / "out" / "msccl.json"
    out.parent.mkdir(exist_ok=True)
    limits = asked.seconds, int(asked.gigabytes * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries:
            own = [within_limits(entry, net, kind, folder, *limits) for net in NETWORKS for kind in KINDS]
            counts = Counter(r["outcome"] for r in own) + Counter(
                f"public verifier: {r['public verifier']}"
                for r in own
                if r.get("public verifier", "not asked") != "not asked"
            )
            print(f"{entry.name:20} {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}", flush=True)
            for reason in sorted({r["reason"] for r in own if r["outcome"] in ("refused", "no plan in time", "ended")}):
                print(f"{'':20}   {reason}", flush=True)
            rows += own
            out.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n| outcome | what it means | plans |\n|---|---|---|")
    counts = Counter(r["outcome"] for r in rows)
    for outcome, meaning in OUTCOMES.items():
        print(f"| {outcome} | {meaning} | {counts[outcome]} |")
    counts = Counter(r.get("public verifier", "not asked") for r in rows)
    print(f"\npublic verifier: {', '.join(f'{n} {word}' for word, n in sorted(counts.items()))}")
    why = Counter(r["reason"] for r in rows if r["outcome"] == "refused")
    for reason, number in why.most_common():
        print(f"refused {number}: {reason}")


if __name__ == "__main__":
    main()
