"""How does ASTRA-sim's time of our Chakra traces stand beside our simulator's?

Needs the program that tests/test_astra_sim.py runs (ASTRA_SIM or the PATH), and tries its plans of
8 MB. Prints a row a plan in us: the plan; its trace read back, on the star with switches that store;
ASTRA-sim's time of the trace; and the ratio of the last two. Then how many are within 5 %. ``--without`` has the first
two times only, and needs no program.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import test_astra_sim
from test_astra_sim import COLLECTIVES, NETWORKS, cases, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="only the plan and its trace")
    parser.add_argument("-t", "--topologies", nargs="+", default=NETWORKS, choices=NETWORKS)
    given = parser.parse_args()
    if given.without:
        test_astra_sim.run_astra_sim = lambda *arguments: math.nan
    ratios: dict[str, list[float]] = {net: [] for net in given.topologies}
    columns = ["topology", "collective", "planner", "chunks", "plan", "trace", "trace / plan"]
    columns += [] if given.without else ["ASTRA-sim", "ASTRA-sim / trace"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for net, kind, planner, chunks in ((n, k, *case) for n in ratios for k in COLLECTIVES for case in cases(n, k)):
        with tempfile.TemporaryDirectory() as folder:
            found = times(Path(folder), (net, kind, planner, chunks))
        ratios[net].append(found.astra_sim / found.trace)
        row = [net, kind, planner, str(chunks), f"{found.plan * 1e6:.1f}", f"{found.trace * 1e6:.1f}"]
        row += [f"{found.trace / found.plan:.3f}", f"{found.astra_sim * 1e6:.1f}", f"{ratios[net][-1]:.3f}"]
        print(f"| {' | '.join(row[: len(columns)])} |", flush=True)
    if not given.without:
        print()
        for net, values in ratios.items():
            print(f"{net}: {sum(abs(r - 1) <= 0.05 for r in values)} of {len(values)} within 5 %")


if __name__ == "__main__":
    main()
