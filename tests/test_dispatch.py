"""List schedules of transfers that wait for links and for each other."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.schedule import kernel_dispatch
from stretto.schedule.dispatch import route_numbers


@pytest.mark.parametrize("seed", range(5))
def test_transfers_of_one_link_each_start_as_if_their_links_were_routes(seed):
    rng = np.random.default_rng(seed)
    n, links = 60, 4
    link, seconds = rng.integers(0, links, n), rng.integers(1, 9, n).astype(float)
    latency, release = np.full(n, 2.0), rng.integers(0, 30, n).astype(float)
    # each waits for at most one before it
    after = [int(rng.integers(-1, k)) if k else -1 for k in range(n)]
    successors = Ragged.of([[k for k in range(n) if after[k] == d] for d in range(n)])
    waits = np.array([int(d >= 0) for d in after])
    jobs = kernel_dispatch.Jobs(
        seconds, latency, release, successors.offsets, successors.values.astype(np.int64), waits
    )
    rank = rng.permutation(n)
    routes = kernel_dispatch.Routes(np.arange(n + 1), link, np.zeros(n))
    expected = kernel_dispatch.schedule(rank, jobs, routes, links)
    assert kernel_dispatch.schedule_single_links(rank, jobs, link, links).tolist() == expected.tolist()


def test_routes_have_the_same_number_only_where_all_links_agree():
    big = (1 << 31) - 2
    routes = [[big, 5, 7], [5, 7], [big, 5, 7], [big, 5], [7, 5], [5, 7]]
    assert route_numbers(Ragged.of(routes)).tolist() == [3, 0, 3, 2, 1, 0]


def test_reserved_intervals_that_touch_become_one_and_gaps_between_them_are_used():
    kernel, rng = kernel_dispatch, np.random.default_rng(0)
    first, after = np.full(1, -1), np.full(60, -1)
    begin, end = np.zeros(60), np.zeros(60)
    busy = np.zeros(400, dtype=bool)
    for i in range(60):
        wanted, length = int(rng.integers(0, 60)), int(rng.integers(1, 6))
        at = next(t for t in range(wanted, 400) if not busy[t : t + length].any())
        assert kernel._fit(float(wanted), float(length), 0.0, first[0], after, begin, end) == at
        begin[i], end[i] = at, at + length
        kernel._reserve(i, 0, first, after, begin, end)
        busy[at : at + length] = True
        kept = [int(first[0])]
        while after[kept[-1]] >= 0:
            kept.append(int(after[kept[-1]]))
        edges = np.flatnonzero(np.diff(np.concatenate(([False], busy, [False]))))
        assert [(begin[k], end[k]) for k in kept] == [tuple(e) for e in edges.reshape(-1, 2)]
