"""How does ASTRA-sim's time of our Chakra traces stand beside our simulator's?

Needs the program that tests/test_astra_sim.py runs (ASTRA_SIM or the PATH). Prints a row a plan of
8 MB, within 5 % or not, and how many are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_astra_sim import times

CASES = (
    ("allgather", "mtegcca", 1), ("allgather", "mtegcca", 4), ("allgather", "ring", 1), ("allgather", "ring", 8),
    ("allreduce", "ring", 1), ("allreduce", "ring", 32), ("allreduce", "scale-ccl", 4),
    ("reducescatter", "shortest-path", 4), ("alltoall", "scale-ccl", 4), ("alltoall", "shortest-path", 1),
    ("alltoall", "shortest-path", 8),
)  # fmt: skip
DIRECT = (
    ("alltoall", "pairwise", 1), ("alltoall", "pairwise", 8), ("alltoall", "bruck", 1),
    ("allreduce", "rabenseifner", 1), ("allreduce", "recursive-doubling", 16),
)  # fmt: skip
"""Where no rank is between two others."""


def main() -> None:
    for net, cases in (("ring:8", CASES), ("fullmesh:8", CASES + DIRECT), ("star:8", CASES + DIRECT)):
        near = 0
        for kind, planner, chunks in cases:
            with tempfile.TemporaryDirectory() as folder:
                ours, theirs = times(Path(folder), (net, kind, planner, chunks))
            near += abs(theirs / ours - 1) <= 0.05
            row = f"| {net} | {kind} | {planner} | {chunks} | {ours * 1e6:.1f} | {theirs * 1e6:.1f} |"
            print(f"{row} {theirs / ours:.3f} |", flush=True)
        print(f"{net}: {near} of {len(cases)} within 5 %", flush=True)


if __name__ == "__main__":
    main()
