"""Digests of plans: a change here changes what users get, so a commit that makes one says why.

Run as a program it prints the digests that there are now.
"""

from __future__ import annotations

import pytest

from stretto.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.topologies import load_topology

DIGESTS = {
    "dgx1 allgather 1": "c931e3c6c8d75057",
    "ndv2:4 allgather 2": "54e506a8e6152dc5",
    "dgx2:2 broadcast 4": "16e31edeff8e419c",
    "zoo:Abilene allgather 1": "939f782b6ca58c1b",
    "sites:2,3 allgather 2": "992d41d6362b8010",
}


def digest(case: str) -> str:
    spec, kind, chunks = case.split()
    net = load_topology(spec)
    return run_planner(
        "mtegcca", net, Workload((make_collective(kind, net, shard_bytes=10**6, chunks=int(chunks)),))
    ).digest()[:16]


CASES = [
    "dgx1 allgather 1",
    "ndv2:4 allgather 2",
    "dgx2:2 broadcast 4",
    "zoo:Abilene allgather 1",
    "sites:2,3 allgather 2",
]


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_what_it_was(case):
    assert digest(case) == DIGESTS[case]


if __name__ == "__main__":
    for case in CASES:
        print(f'    "{case}": "{digest(case)}",')
