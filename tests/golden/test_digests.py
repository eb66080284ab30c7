"""Digests of plans: a change here changes what users get, so a commit that makes one says why.

Run as a program it prints the digests that there are now.
"""

from __future__ import annotations

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.topologies import load_topology

DIGESTS = {
    "mtegcca dgx1 allgather 1": "c931e3c6c8d75057",
    "mtegcca ndv2:4 allgather 2": "54e506a8e6152dc5",
    "mtegcca dgx2:2 broadcast 4": "16e31edeff8e419c",
    "mtegcca zoo:Abilene allgather 1": "939f782b6ca58c1b",
    "mtegcca sites:2,3 allgather 2": "992d41d6362b8010",
    "nccl-ring dgx1 allgather 1": "77bfb45a10a3c94e",
    "nccl-ring sites:2,3 allreduce 2": "123f69ae439ac113",
    "nccl-tree ndv2:4 allreduce 1": "0a6ee91333d89f4a",
    "nccl dgx2:2 allreduce 1": "99cac00d96a66a57",
    "shortest-path dgx2:2 allreduce 1": "0a7d645824d45ba6",
    "shortest-path zoo:Abilene alltoall 2": "59feb94d247a8a44",
    "scale-ccl sites:3,4 allgather 4": "bcf5a642daaeae45",
    "scale-ccl sites:2,3 allreduce 6": "153bc87f41f7e29d",
    "scale-ccl ndv2:2 alltoall 1": "46d058e76d72941d",
}


def digest(case: str) -> str:
    planner, spec, kind, chunks = case.split()
    net = load_topology(spec)
    return run_planner(
        planner, net, Workload((make_collective(kind, net, shard_bytes=10**6, chunks=int(chunks)),))
    ).digest()[:16]


CASES = [
    "mtegcca dgx1 allgather 1",
    "mtegcca ndv2:4 allgather 2",
    "mtegcca dgx2:2 broadcast 4",
    "mtegcca zoo:Abilene allgather 1",
    "mtegcca sites:2,3 allgather 2",
    "nccl-ring dgx1 allgather 1",
    "nccl-ring sites:2,3 allreduce 2",
    "nccl-tree ndv2:4 allreduce 1",
    "nccl dgx2:2 allreduce 1",
    "shortest-path dgx2:2 allreduce 1",
    "shortest-path zoo:Abilene alltoall 2",
    "scale-ccl sites:3,4 allgather 4",
    "scale-ccl sites:2,3 allreduce 6",
    "scale-ccl ndv2:2 alltoall 1",
]


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_what_it_was(case):
    assert digest(case) == DIGESTS[case]


if __name__ == "__main__":
    for case in CASES:
        print(f'    "{case}": "{digest(case)}",')
