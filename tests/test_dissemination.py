"""Exchanges at distances that are powers of a radix, and of whole sums in groups."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.planners.fixed.hops import Hop
from stretto.schedule.algorithms import DISSEMINATION, dissemination, exchange
from stretto.schedule.dissemination import factorisations, messages_in_steps, radices
from stretto.schedule.ways import Ways
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

NUMBERS = (2, 3, 5, 7, 12, 16, 25)


@pytest.mark.parametrize("radix", [2, 3, 4, 5, 32])
@pytest.mark.parametrize("n", NUMBERS)
def test_a_gather_of_any_radix_brings_each_block_once(n, radix):
    steps = dissemination(radix).steps("allgather", n)
    has = np.eye(n, dtype=bool)
    for step in steps:
        assert has[step.src, step.block].all()
        assert not has[step.dst, step.block].any()
        has[step.dst, step.block] = True
    assert has.all() and sum(len(step.block) for step in steps) == n * (n - 1)
    partners = [len(np.unique(step.dst[step.src == 0])) for step in steps]
    assert partners == messages_in_steps(radix, n)[::-1]


@pytest.mark.parametrize("radix", [2, 3, 4, 5, 32])
@pytest.mark.parametrize("n", NUMBERS)
def test_an_alltoall_of_any_radix_brings_each_block_to_its_goal(n, radix):
    at = np.repeat(np.arange(n), n)
    for step in dissemination(radix).steps("alltoall", n):
        assert (at[step.block] == step.src).all() and len(np.unique(step.block)) == len(step.block)
        at[step.block] = step.dst
    assert (at == np.tile(np.arange(n), n)).all()


@pytest.mark.parametrize("groups", [(2,), (2, 2), (3, 4), (2, 3, 5), (16,)])
def test_an_exchange_in_groups_sums_each_contribution_once(groups):
    n = int(np.prod(groups))
    sums = np.eye(n, dtype=np.int64)
    for step in exchange(groups).steps("allreduce", n):
        before = sums.copy()
        np.add.at(sums, step.dst, before[step.src])
    assert (sums == 1).all()


def test_groups_and_radices_of_numbers():
    assert list(factorisations(12)) == [(12,), (2, 6), (2, 2, 3), (3, 4)]
    assert list(factorisations(37)) == []  # a prime that is too large for a group
    assert list(radices(16)) == [2, 3, 4, 16] and list(radices(2)) == [2]


def hop(spec: str, ranks: list[int]) -> Hop:
    net = load_topology(spec)
    return Hop.of(net.accelerators[ranks], net, Ways(net))


def test_the_radix_is_larger_where_messages_are_long_on_their_way():
    """Across servers of h100 a message is under way for 2.6 us; it occupies links for 1 us, or for 20."""
    first_of_servers = list(range(0, 128, 8))
    assert hop("h100:16?message=1us", first_of_servers).radix(16, 0.0) == 4
    assert hop("h100:16?message=20us", first_of_servers).radix(16, 0.0) == 2
    assert hop("h100:16?message=1us", first_of_servers).groups(16, 8.0) == (4, 4)
    assert hop("h100:16?message=1us", first_of_servers).groups(16, 1e6) == (2, 2, 2, 2)
    assert hop("h100:16?message=20us", first_of_servers).groups(13, 8.0) == ()  # 12 messages, or 5 when it is folded


@pytest.mark.parametrize("n", [13, 37, 41])
def test_numbers_of_ranks_that_are_no_product_of_groups_are_served(n):
    net = load_topology(f"star:{n}?message=1us")
    plan = run_planner("hierarchical", net, Workload((make_collective("allreduce", net, 1000),)))
    assert verify(plan).ok


@pytest.mark.parametrize(
    ("kind", "most"),
    [("allgather", 16.4e-6), ("reducescatter", 16.4e-6), ("alltoall", 16.4e-6), ("allreduce", 16.5e-6)],
)
def test_few_steps_of_several_messages_end_sooner_among_many_servers(kind, most):
    """In steps of one message each: 19.5 us, and 19.6 us for an AllReduce."""
    net = load_topology("h100:16?message=1us")
    plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, 1000),)))
    assert verify(plan).ok and simulate(plan).completion_s <= most


def test_radix_2_is_what_it_was():
    for n in NUMBERS:
        for step in DISSEMINATION.steps("allgather", n):
            assert len(np.unique((step.src - step.dst) % n)) == 1
