"""How does ASTRA-sim's time of our Chakra traces stand beside our simulator's?

Needs the program that tests/test_astra_sim.py runs (ASTRA_SIM or the PATH), and tries its plans of
8 MB. Prints a row a plan in us: as planned; its trace read back, on the star with switches that store;
ASTRA-sim's time of the trace; and the ratio of the last two. Then how many are within 5 %.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_astra_sim import COLLECTIVES, NETWORKS, cases, times


def main() -> None:
    for net in NETWORKS:
        ratios = []
        for kind, planner, chunks in ((k, *case) for k in COLLECTIVES for case in cases(net, k)):
            with tempfile.TemporaryDirectory() as folder:
                found = times(Path(folder), (net, kind, planner, chunks))
            ratios.append(found.astra_sim / found.trace)
            row = f"| {net} | {kind} | {planner} | {chunks} | {found.plan * 1e6:.1f} | {found.trace * 1e6:.1f} |"
            print(f"{row} {found.astra_sim * 1e6:.1f} | {ratios[-1]:.3f} |", flush=True)
        print(f"{net}: {sum(abs(r - 1) <= 0.05 for r in ratios)} of {len(ratios)} within 5 %", flush=True)


if __name__ == "__main__":
    main()
