"""What part of a link a plan gives to each pair of nodes that sends over it."""

from __future__ import annotations

import pytest

from stretto.lower.shares import share_of
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan, make_plan
from stretto.topologies import load_topology

NET = load_topology(
    "sites:2,2?bandwidth=20MB/s&router_bandwidth=20MB/s&latency=0s&wan_bandwidth=4MB/s&wan_latency=50ms"
)
"""Ranks 0 and 1 at router 2, ranks 3 and 4 at router 5."""


def crossing(pairs: list[tuple[int, int, int]], starts: list[float], ends: list[float]) -> Plan:
    """A plan in which nodes send bytes to nodes of the other site, at these times."""
    link = {ends_: i for i, ends_ in enumerate(zip(NET.src.tolist(), NET.dst.tolist(), strict=True))}
    ranks = NET.accelerators.tolist()
    sizes = [[0] * 4 for _ in ranks]
    for a, b, size in pairs:
        sizes[ranks.index(a)][ranks.index(b)] += size
    work = Workload((alltoallv(NET, sizes),))
    routes = [
        [link[a, 2], link[2, 5], link[5, b]] if a < 2 else [link[a, 5], link[5, 2], link[2, b]] for a, b, _ in pairs
    ]
    timed = {"start_s": starts, "finish_s": ends} if starts else {}
    return make_plan(
        NET, work, "timed" if starts else "ready-order", chunk=range(len(pairs)), src=[a for a, _, _ in pairs],
        op=[0] * len(pairs), dst=Ragged.single([b for _, b, _ in pairs]), route=Ragged.of(routes),
        depends=Ragged.of([[] for _ in pairs]), **timed,
    )  # fmt: skip


TWO = [(0, 3, 6_000_000), (1, 4, 2_000_000)]


def test_pairs_that_send_at_once_have_the_link_by_their_bytes():
    plan = crossing(TWO, [0.0, 0.0], [2.0, 2.0])
    assert share_of(plan, 0, 3) == pytest.approx(0.75) and share_of(plan, 1, 4) == pytest.approx(0.25)


def test_pairs_that_send_one_after_the_other_have_all_of_it():
    plan = crossing(TWO, [0.0, 1.5], [1.5, 2.0])
    assert share_of(plan, 0, 3) == share_of(plan, 1, 4) == 1.0


def test_without_times_all_pairs_of_a_link_share_it():
    assert share_of(crossing(TWO, [], []), 0, 3) == pytest.approx(0.75)


def test_what_goes_the_other_way_takes_nothing():
    plan = crossing([(0, 3, 4_000_000), (4, 1, 4_000_000)], [0.0, 0.0], [1.0, 1.0])
    assert share_of(plan, 0, 3) == share_of(plan, 4, 1) == 1.0


def test_a_pair_that_sends_nothing_has_no_part():
    assert share_of(crossing(TWO, [], []), 3, 0) == 0.0
