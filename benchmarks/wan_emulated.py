"""Do the WAN paper's schemes rank on an emulated network as they do in the simulator? Its figure 8 with real bytes.

Wang, Craps, Li, section IV-F: rings of 10 to 40 nodes, 4 AllReduces, seven schemes, five repeats; each plan runs
between network namespaces (root). Sizes are divided by ``--shrink``, and bandwidths, plan by plan, by what makes a
plan take 5 s, or ``--transfer-ms`` for each of its transfers: two cores handle some thousand a second, and a scheme
that is 25 times slower than another must not take 25 times as long. Prints mean completions (eq. 13) in seconds of the
network itself, and measured over simulated; writes benchmarks/out/wan_emulated.json after every instance. The short
form is one ring of 10 and two repeats; ``--full`` is the paper's grid.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import combinations
from pathlib import Path

import numpy as np

from stretto.emulator import WIDEST, Emulated, Scaling, emulate, refusal
from stretto.model.plan import Plan
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.studies.wan import SCHEMES
from stretto.topologies import load_topology

SEVEN = SCHEMES[:7]
COLLECTIVES = 4
LEAST_S = 5.0


def mean_completion_s(plan: Plan, run: Emulated) -> float:
    """When each collective had all its bytes where they must be, on average, seconds of this machine."""
    last = np.zeros(len(plan.workload.collectives))
    for k, _, _, measured_s in run.arrivals:
        collective = plan.workload.chunk_collective[plan.chunk[k]]
        last[collective] = max(last[collective], measured_s)
    return float(last.mean())


def cell(nodes: int, repeat: int, shrink: float, transfer_s: float) -> list[dict]:
    """Every scheme on one instance."""
    network, work = wan_workload(load_topology(f"ring:{nodes}"), COLLECTIVES, None, seed=repeat, scale=1 / shrink)
    rows = []
    for label, name, options in SEVEN:
        inside = {"inside": "downstream"} if name == "multiring" and nodes > 12 else {}
        plan = run_planner(name, network, work, options={**options, **inside})
        timeline = simulate(plan)
        takes_s = max(LEAST_S, transfer_s * plan.transfer_count)
        scale = max(takes_s / timeline.completion_s, float(network.bandwidth.max()) / WIDEST)
        run = emulate(plan, Scaling(scale))
        if run.outcome.wrong:
            raise SystemExit(f"{label} on ring:{nodes}: wrong bytes at {run.outcome.wrong[:5]}")
        simulated, measured = timeline.mean_completion_s, mean_completion_s(plan, run) / scale
        rows.append({"scheme": label, "nodes": nodes, "repeat": repeat, "scale": scale, "shrink": shrink,
                     "simulated_s": simulated, "measured_s": measured})  # fmt: skip
        print(f"| {label} | {nodes} | {repeat} | {scale:.4g} | {simulated:.4g} | {measured:.4g} | "
              f"{measured / simulated:.3f} |", flush=True)  # fmt: skip
    return rows


def figure(rows: list[dict], nodes: int) -> None:
    """Each scheme's mean over the repeats, and whether any two schemes change places when measured."""
    of = {label: [r for r in rows if r["scheme"] == label and r["nodes"] == nodes] for label, _, _ in SEVEN}
    means = {label: [statistics.mean(r[which] for r in own) for which in ("simulated_s", "measured_s")]
             for label, own in of.items()}  # fmt: skip
    print(f"\n| ring of {nodes} | simulated s | measured s | measured / simulated |\n|---|---|---|---|")
    for label, (simulated, measured) in sorted(means.items(), key=lambda item: -item[1][0]):
        print(f"| {label} | {simulated:.4g} | {measured:.4g} | {measured / simulated:.3f} |")
    swapped = [f"{a} and {b}" for a, b in combinations(means, 2)
               if (means[a][0] - means[b][0]) * (means[a][1] - means[b][1]) < 0]  # fmt: skip
    print(f"\nchange places when measured: {', '.join(swapped) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="rings of 10, 20, 30 and 40 nodes, five repeats")
    parser.add_argument("--nodes", type=int, nargs="+", help="rings of so many nodes instead")
    parser.add_argument("--repeats", type=int, help="so many repeats instead")
    parser.add_argument("--shrink", type=float, default=400.0, help="divide sizes by this")
    parser.add_argument("--transfer-ms", type=float, default=3.0, help="let a plan take so long for each transfer")
    arguments = parser.parse_args()
    if (reason := refusal()) is not None:
        raise SystemExit(reason)
    sizes = arguments.nodes or ((10, 20, 30, 40) if arguments.full else (10,))
    repeats = arguments.repeats or (5 if arguments.full else 2)
    out = Path(__file__).parent / "out" / "wan_emulated.json"
    out.parent.mkdir(exist_ok=True)
    print("| scheme | nodes | repeat | scale | simulated s | measured s | measured / simulated |\n" + "|---" * 7 + "|")
    rows: list[dict] = []
    for nodes in sizes:
        for repeat in range(repeats):
            rows += cell(nodes, repeat, arguments.shrink, arguments.transfer_ms / 1e3)
            out.write_text(json.dumps(rows, indent=1) + "\n")
    for nodes in sizes:
        figure(rows, nodes)
    over = [row["measured_s"] / row["simulated_s"] for row in rows]
    print(f"\nmeasured / simulated: median {statistics.median(over):.3f}, {min(over):.3f} to {max(over):.3f}")


if __name__ == "__main__":
    main()
