"""What do switches that sum gain? AllReduce by the default planner with and without them.

    python benchmarks/sums.py [-t NETWORK,...] [-s SIZE,...] [--message 1us] [-o FILE.json]

Prints for each network and size the completion without sums in switches, with sums in the switches inside servers, and
with sums in all switches, and how near the bound each is.
"""

from __future__ import annotations

import argparse
import json

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.units import format_time, parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

SHARP = ("false", "sites", "true")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", default="star:8?bandwidth=450GB/s,h100:2,h100:4")
    parser.add_argument("-s", "--sizes", default="1KB,1MB,1GB")
    parser.add_argument("--message", default="1us", help="what a message costs")
    parser.add_argument("-o", "--output")
    asked = parser.parse_args()
    rows = []
    print("| network | size | no switch sums | those in servers | all |\n|---|---|---|---|---|")
    for spec in asked.topologies.split(","):
        for size in asked.sizes.split(","):
            cells = []
            for sharp in SHARP:
                if sharp == "sites" and not any(load_topology(spec).sites):
                    cells.append("")
                    continue
                joint = "&" if "?" in spec else "?"
                net = load_topology(f"{spec}{joint}sharp={sharp}&message={asked.message}")
                workload = Workload((make_collective("allreduce", net, parse_size(size)),))
                plan = run_planner("auto", net, workload, effort="normal")
                assert verify(plan).ok
                completion_s, bound_s = simulate(plan).completion_s, bounds(net, workload)[0].seconds
                cells.append(f"{format_time(completion_s)} ({completion_s / bound_s:.3f})")
                facts = {"completion_s": completion_s, "bound_s": bound_s, "chosen": plan.meta["chosen"]}
                rows.append({"network": spec, "size": size, "sharp": sharp} | facts)
            print(f"| {spec} | {size} | {' | '.join(cells)} |", flush=True)
    if asked.output:
        with open(asked.output, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
