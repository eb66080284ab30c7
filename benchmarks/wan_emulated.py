"""Do the WAN paper's schemes rank on an emulated network as they do in the simulator? Its figure 8 with real bytes.

Wang, Craps, Li, section IV-F: rings of 10 to 40 nodes, 4 AllReduces, seven schemes, five repeats; each plan runs
between network namespaces (root), bandwidths divided by a factor that fits this machine and sizes by ``--shrink``.
Prints mean completions (eq. 13), measured over simulated, and writes benchmarks/out/wan_emulated.json. The short form
is one ring of 10 and two repeats; ``--full`` is the paper's grid.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np

from stretto.emulator import Emulated, Scaling, emulate, fitting_scale, refusal
from stretto.plan import Plan
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.studies.wan import SCHEMES
from stretto.topologies import load_topology
from stretto.workloads import wan_workload

SEVEN = SCHEMES[:7]
COLLECTIVES = 4


def mean_completion_s(plan: Plan, run: Emulated) -> float:
    """When each collective had all its bytes where they must be, on average, seconds of this machine."""
    last = np.zeros(len(plan.workload.collectives))
    for k, _, _, measured_s in run.arrivals:
        collective = plan.workload.chunk_collective[plan.chunk[k]]
        last[collective] = max(last[collective], measured_s)
    return float(last.mean())


def cell(nodes: int, repeat: int, shrink: float) -> list[dict]:
    """Every scheme on one instance."""
    network, work = wan_workload(load_topology(f"ring:{nodes}"), COLLECTIVES, None, seed=repeat, scale=1 / shrink)
    scale, rows = fitting_scale(network), []
    for label, name, options in SEVEN:
        inside = {"inside": "downstream"} if name == "multiring" and nodes > 12 else {}
        plan = run_planner(name, network, work, options={**options, **inside})
        run = emulate(plan, Scaling(scale))
        if run.outcome.wrong:
            raise SystemExit(f"{label} on ring:{nodes}: wrong bytes at {run.outcome.wrong[:5]}")
        simulated, measured = simulate(plan).mean_completion_s * scale, mean_completion_s(plan, run)
        rows.append({"scheme": label, "nodes": nodes, "repeat": repeat, "scale": scale, "shrink": shrink,
                     "simulated_s": simulated, "measured_s": measured})  # fmt: skip
        print(f"| {label} | {nodes} | {repeat} | {simulated:.2f} | {measured:.2f} | {measured / simulated:.3f} |",
              flush=True)  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="rings of 10, 20, 30 and 40 nodes, five repeats")
    parser.add_argument("--nodes", type=int, nargs="+", help="rings of so many nodes instead")
    parser.add_argument("--repeats", type=int, help="so many repeats instead")
    parser.add_argument("--shrink", type=float, default=400.0, help="divide sizes by this")
    arguments = parser.parse_args()
    if (reason := refusal()) is not None:
        raise SystemExit(reason)
    sizes = arguments.nodes or ((10, 20, 30, 40) if arguments.full else (10,))
    repeats = arguments.repeats or (5 if arguments.full else 2)
    print("| scheme | nodes | repeat | simulated s | measured s | measured / simulated |\n|---|---|---|---|---|---|")
    rows = [row for nodes in sizes for repeat in range(repeats) for row in cell(nodes, repeat, arguments.shrink)]
    over = [row["measured_s"] / row["simulated_s"] for row in rows]
    print(f"\nmeasured / simulated: median {statistics.median(over):.3f}, {min(over):.3f} to {max(over):.3f}")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "wan_emulated.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
