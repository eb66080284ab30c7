"""How fast are collectives by stretto beside gloo? On loopback, and between two emulated sites.

Both backends are in the same processes, and take turns repeat by repeat. Loopback is given no topology; the
sites are half of the ranks each, joined by one link ten times narrower than those inside, of network namespaces (root).
Ranks are numbered site after site (``sites``), site by site in turn (``turns``), or as they happen to arrive at a
rendezvous, which is how torchrun numbers nodes (``arrival``: a shuffle for each of ``--seeds``). ``--busy`` lets a
Python thread of each process count beside. Prints how often a ring in the order of ranks crosses from one site to the
other, seconds of one call, stretto's time over gloo's, the median of the repeats, the same of CPU seconds over all
ranks, and the CPU seconds of the thread that calls, in the mean over ranks; of several collectives also
a table with a column for each. Writes benchmarks/out/torch_backend.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from pathlib import Path

SITES = 2
INSIDE_GBPS, BETWEEN_GBPS = 0.05, 0.005
NETWORKS = ("loopback", "sites", "arrival", "turns")
BACKENDS = ("gloo", "stretto")
OUT = Path(__file__).parent / "out"
MOST_CALLS, BYTES = 50, 4e6
"""Calls of one repeat: as many as move ``BYTES``, at least one."""


def calls_of(rank: int, ranks: int, size: int) -> dict:
    """For each collective how to call it for a buffer of ``size`` bytes, the larger of input and output, in a group."""
    import torch
    import torch.distributed as dist

    each = max(1, size // 4 // ranks)
    whole, part, other = torch.zeros(max(1, size // 4)), torch.zeros(each), torch.zeros(each * ranks)
    many = torch.zeros(each * ranks)
    pieces = list(many.split(each))
    at_root = pieces if rank == 0 else None
    return {
        "allreduce": lambda group: dist.all_reduce(whole, group=group),
        "reduce": lambda group: dist.reduce(whole, 0, group=group),
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "allgather": lambda group: dist.all_gather_into_tensor(many, part, group=group),
        "reducescatter": lambda group: dist.reduce_scatter_tensor(part, other, group=group),
        "alltoall": lambda group: dist.all_to_all_single(many, other, group=group),
        "gather": lambda group: dist.gather(part, at_root, 0, group=group),
        "scatter": lambda group: dist.scatter(part, at_root, 0, group=group),
        "barrier": lambda group: dist.barrier(group=group),
    }


COLLECTIVES = (
    "allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "gather", "scatter", "barrier",
)  # fmt: skip


def count() -> None:
    """What a busy Python thread does."""
    number = 0
    while True:
        number += 1


def worker(rank: int, ranks: int, folder: str, work: list[list], repeats: int, busy: bool) -> None:
    """One rank: seconds and CPU seconds of a call in every repeat, into a file.

    Args:
        work: collectives and sizes.
    """
    import torch
    import torch.distributed as dist

    import stretto.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    groups = {"gloo": None, "stretto": dist.new_group(list(range(ranks)), backend="stretto")}
    if busy:
        threading.Thread(target=count, daemon=True).start()
    rows = []
    for kind, size in work:
        call = calls_of(rank, ranks, size)[kind]
        most = MOST_CALLS if kind == "barrier" else int(BYTES / max(size, 1))
        calls = max(1, min(MOST_CALLS, most)) // (5 if busy else 1) or 1
        for repeat in range(-1, repeats):  # the first connects and plans
            for name in BACKENDS if repeat % 2 else BACKENDS[::-1]:
                dist.barrier()
                wall, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
                for _ in range(calls):
                    call(groups[name])
                thread = (time.thread_time() - thread) / calls
                dist.barrier()
                spent = (time.perf_counter() - wall) / calls, (time.process_time() - cpu) / calls
                if repeat >= 0:
                    cell = {"collective": kind, "ranks": ranks, "busy": busy, "size_bytes": size, "calls": calls}
                    spent_s = {"wall_s": spent[0], "cpu_s": spent[1], "thread_s": thread}
                    rows.append({"backend": name, **cell, **spent_s})
    Path(folder, f"rows{rank}").write_text(json.dumps(rows))
    dist.destroy_process_group()
    os._exit(0)  # a busy thread never ends


def order(network: str, seed: int, ranks: int) -> list[int]:
    """The site of each rank, none on loopback."""
    by_site = [r * SITES // ranks for r in range(ranks)]
    arrived = random.Random(seed).sample(by_site, ranks)
    return {"loopback": [], "sites": by_site, "arrival": arrived, "turns": [r % SITES for r in range(ranks)]}[network]


def crossings(site: list[int]) -> int:
    """How often a ring in the order of ranks goes from one site to the other, in each direction."""
    return sum(a < b for a, b in pairwise([*site, *site[:1]]))


def sites(site: list[int]) -> dict:
    """Ranks linked inside their site, and by its router to the other, as a topology file."""
    ranks = [{"id": r, "kind": "gpu", "site": f"s{s}"} for r, s in enumerate(site)]
    routers = [{"id": len(site) + s, "kind": "router", "site": f"s{s}"} for s in range(SITES)]
    pairs = [
        (a["id"], b["id"], INSIDE_GBPS if a["site"] == b["site"] else BETWEEN_GBPS)
        for a, b in permutations([*ranks, *routers], 2)
        if a["site"] == b["site"] or a["kind"] == b["kind"] == "router"
    ]
    links = [{"src": a, "dst": b, "bandwidth_GBps": wide, "latency_us": 0.0} for a, b, wide in pairs]
    return {"name": "two sites", "nodes": [*ranks, *routers], "links": links}


@contextlib.contextmanager
def prefixes(site: list[int], ranks: int, folder: str) -> Iterator[list[list[str]]]:
    """For each rank what its command begins with."""
    if not site:
        yield [[]] * ranks
        return
    from stretto import emulator
    from stretto.topologies import load_topology

    file = Path(folder, "sites.json")
    file.write_text(json.dumps(sites(site)))
    topology = load_topology(str(file))
    with emulator.built(topology) as places:
        there = [places[int(v)] for v in topology.accelerators]
        env = ["env", f"STRETTO_TOPOLOGY={file}", "STRETTO_FRAMES=plain"]  # gloo protects nothing either
        yield [["ip", "netns", "exec", p.argument, *env, f"STRETTO_HOST={p.host}"] for p in there]


def measured(network: str, seed: int, ranks: int, work: list[list], repeats: int, busy: bool) -> list[dict]:
    """Rows of one network: the slowest rank's seconds, the sum of the CPU seconds."""
    environment, site = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, order(network, seed, ranks)
    with tempfile.TemporaryDirectory() as folder, prefixes(site, ranks, folder) as before:
        tail = json.dumps([ranks, folder, work, repeats, busy])
        commands = [[*before[r], sys.executable, __file__, "--worker", str(r), tail] for r in range(ranks)]
        running = [subprocess.Popen(command, env=environment) for command in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit(f"a rank failed: {codes}")
        by_rank = [json.loads(Path(folder, f"rows{r}").read_text()) for r in range(ranks)]
    return [
        {
            **same[0],
            "network": f"{network} {seed}" if network == "arrival" else network,
            "crossings": crossings(site),
            "wall_s": max(r["wall_s"] for r in same),
            "cpu_s": sum(r["cpu_s"] for r in same),
            "thread_s": statistics.mean(r["thread_s"] for r in same),
        }
        for same in zip(*by_rank, strict=True)
    ]


CELL = ("network", "ranks", "busy", "collective", "size_bytes")


def table(rows: list[dict]) -> None:
    """Medians, and stretto's time over gloo's repeat by repeat."""
    print("| network | crossings | ranks | thread | collective | bytes | gloo s | stretto s | stretto / gloo | spread "
          "| of CPU | thread, gloo CPU s | stretto |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for cell in dict.fromkeys(tuple(r[key] for key in CELL) for r in rows):
        here = [r for r in rows if tuple(r[key] for key in CELL) == cell]
        gloo, ours = ([r for r in here if r["backend"] == b] for b in BACKENDS)
        ratios = [b["wall_s"] / a["wall_s"] for a, b in zip(gloo, ours, strict=True)]
        wall = [statistics.median(r["wall_s"] for r in side) for side in (gloo, ours)]
        cpu = [statistics.median(r["cpu_s"] for r in side) for side in (gloo, ours)]
        thread = [statistics.median(r["thread_s"] for r in side) for side in (gloo, ours)]
        network, ranks, busy, kind, size = cell
        spread = f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {network} | {here[0]['crossings']} | {ranks} | {'busy' if busy else 'none'} | {kind} | {size} | "
              f"{wall[0]:.3g} | {wall[1]:.3g} | {spread} | {cpu[1] / max(cpu[0], 1e-9):.2f} | "
              f"{thread[0]:.3g} | {thread[1]:.3g} |", flush=True)  # fmt: skip


def by_collective(rows: list[dict], kinds: Sequence[str]) -> None:
    """Stretto's time over gloo's, the median, with a column for each collective."""
    print(f"\n| stretto / gloo | {' | '.join(kinds)} |\n|---{'|---' * len(kinds)}|")
    places = [(r["network"], r["ranks"], r["busy"], r["size_bytes"]) for r in rows]
    for network, ranks, busy, size in dict.fromkeys(places):
        cells = []
        for kind in kinds:
            here = [r for r in rows if tuple(r[key] for key in CELL) == (network, ranks, busy, kind, size)]
            gloo, ours = ([r["wall_s"] for r in here if r["backend"] == b] for b in BACKENDS)
            cells.append(f"{statistics.median(b / a for a, b in zip(gloo, ours, strict=True)):.2f}")
        where = "" if network == "loopback" else f"{network}, "
        print(f"| {where}{ranks} ranks, {shown(size)} | {' | '.join(cells)} |")


def shown(size: int) -> str:
    """A size in binary units where it is whole there."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >> shift << shift == size and size >> shift:
            return f"{size >> shift} {unit}"
    return f"{size / 1e6:g} MB" if size >= 1e6 else f"{size} B"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of arrivals")
    parser.add_argument("--sizes", default="16e6,64e6", help="bytes of the larger of input and output, by comma")
    parser.add_argument("--collectives", default="allreduce", help=f"by comma, or all: {', '.join(COLLECTIVES)}")
    parser.add_argument("--ranks", default="8", help="by comma")
    parser.add_argument("--busy", action="store_true", help="a thread of each process counts beside")
    parser.add_argument("--out", type=Path, default=OUT / "torch_backend.json")
    arguments = parser.parse_args()
    sizes = [int(float(s)) for s in arguments.sizes.split(",")]
    kinds = COLLECTIVES if arguments.collectives == "all" else arguments.collectives.split(",")
    work = [[kind, size] for kind in kinds for size in sizes]
    rows = [
        row
        for network in ([arguments.only] if arguments.only else NETWORKS)
        for seed in (arguments.seeds if network == "arrival" else [0])
        for ranks in map(int, arguments.ranks.split(","))
        for row in measured(network, seed, ranks, work, arguments.repeats, arguments.busy)
    ]
    table(rows)
    if len(kinds) > 1:
        by_collective(rows, kinds)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        rank, (ranks, folder, work, repeats, busy) = int(sys.argv[2]), json.loads(sys.argv[3])
        worker(rank, ranks, folder, work, repeats, busy)
    else:
        main()
