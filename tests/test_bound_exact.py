"""Bounds found exactly: the bottleneck by max-flows, the rates of trees, and lengths."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import (
    best_lengths,
    bottleneck,
    check_cut,
    check_lengths,
    tree_rates,
    tree_rates_within,
)
from stretto.model.collective import make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.solvers.highs import Growing
from stretto.topologies import load_topology

EXACT = ("allgather", "reducescatter", "broadcast", "reduce", "allreduce")


def worst_cut(net: Topology, collective) -> Fraction:
    """Of all sets of nodes the one that takes longest, one after the other."""
    worst = Fraction(0)
    for chosen in itertools.product((False, True), repeat=net.node_count):
        inside = {v for v in range(net.node_count) if chosen[v]}
        ranks = inside & set(map(int, net.accelerators))
        if 0 < len(ranks) < len(net.accelerators):
            worst = max(worst, check_cut(net, collective, inside))
    return worst


@pytest.mark.parametrize("kind", EXACT)
@given(seed=st.integers(0, 100_000), root=st.integers(0, 2))
def test_the_bottleneck_is_the_worst_of_all_cuts(kind, seed, root):
    net = random_network(seed)
    if net.node_count > 7:  # else the plain count takes too long
        net = random_network(seed, switches=False, routers=False)
    collective = make_collective(kind, net, len(net.accelerators) * 10**9, root=root)
    found = bottleneck(net, collective)
    assert found is not None
    assert found.seconds == worst_cut(net, collective)
    assert check_cut(net, collective, set(np.flatnonzero(found.inside).tolist())) == found.seconds


@given(seed=st.integers(0, 100_000))
def test_shards_of_any_size_have_the_worst_of_all_cuts(seed):
    net = random_network(seed, switches=False, routers=False)
    c = make_collective("allgather", net, len(net.accelerators) * 1000)
    sizes = np.array([1000 * (1 + (seed * (i + 3)) % 7) for i in range(len(net.accelerators))])
    uneven = replace(c, piece_bytes=sizes, chunk_bytes=sizes, size_bytes=int(sizes.sum()))
    found = bottleneck(net, uneven)
    assert found is not None
    assert found.seconds == worst_cut(net, uneven)


@given(seed=st.integers(0, 100_000))
def test_ranks_that_are_some_of_the_accelerators_are_bounded_too(seed):
    net = random_network(seed, switches=False, routers=False)
    ranks = net.accelerators[: max(2, len(net.accelerators) - 2)]
    c = make_collective("allgather", net, len(ranks) * 1000, ranks=ranks)
    found = bottleneck(net, c)
    assert found is not None
    worst = Fraction(0)
    for chosen in itertools.product((False, True), repeat=net.node_count):
        inside = {v for v in range(net.node_count) if chosen[v]}
        if 0 < len(inside & set(map(int, ranks))) < len(ranks):
            worst = max(worst, check_cut(net, c, inside))
    assert found.seconds == worst


@given(seed=st.integers(0, 100), steps=st.floats(0, 2_000))
def test_rates_are_the_best_within_the_steps_or_none(seed, steps):
    net = random_network(seed)
    found = tree_rates_within(steps, net)
    assert found is None or found.rate == pytest.approx(tree_rates(net).rate, rel=1e-9)
    assert tree_rates_within(0, net) is None


@given(seed=st.integers(0, 100_000))
def test_trees_of_unequal_roots_are_between_the_composition_and_the_cut(seed):
    net = random_network(seed, switches=False, routers=False)
    ranks = len(net.accelerators)
    both = [bottleneck(net, make_collective(k, net, ranks * 10**9)) for k in ("allgather", "reducescatter")]
    cut = bottleneck(net, make_collective("allreduce", net, 10**9))
    rate = tree_rates(net).rate
    assert rate >= ranks * 1e9 / float(sum(b.seconds for b in both)) * (1 - 1e-6)
    assert rate <= 1e9 / float(cut.seconds) * (1 + 1e-6)


def test_trees_of_unequal_roots_are_found_in_few_rounds_where_many_ranks_are_alike(monkeypatch):
    # six servers of eight with one or two NICs; by the last solution alone, which jumps between alike ranks: 47 rounds
    kinds, pairs = [SWITCH], []
    for nics in ([25, 12.5], [12.5], [25, 25], [12.5, 12.5], [25], [25]):
        first = len(kinds)
        kinds += [ACCELERATOR] * 8 + [SWITCH]
        pairs += [(first + k, first + 8, 150) for k in range(8)] + [(first + k, 0, nic) for k, nic in enumerate(nics)]
    net = make_topology("servers", kinds, [(*e, w * 1e9, 1e-6) for a, b, w in pairs for e in ((a, b), (b, a))])
    rounds = []
    monkeypatch.setattr(Growing, "solve", lambda self, most, solve=Growing.solve: rounds.append(1) or solve(self, most))
    assert tree_rates(net).rate == pytest.approx(12.5e9)
    assert len(rounds) <= 20


@given(seed=st.integers(0, 100_000))
def test_an_alltoall_is_bounded_by_lengths_at_least_as_well_as_by_cuts(seed):
    # the best lengths give the concurrent flow, which no cut can be above
    net = random_network(seed)
    c = make_collective("alltoall", net, len(net.accelerators) ** 2 * 10**6)
    found, cut = best_lengths(net, c), bottleneck(net, c)
    assert check_lengths(net, c, found.length.tolist()) == found.seconds
    assert found.seconds >= cut.seconds * (1 - Fraction(1, 10**4))


def test_few_cuts_are_looked_for_where_each_costs_much(monkeypatch):
    # 24 ranks on a line: the worst cut is in its middle, the flow's; of single ranks those in the middle send most
    net = load_topology("line:24")
    c = make_collective("alltoall", net, 24 * 24_000)
    whole = bottleneck(net, c)
    monkeypatch.setattr("stretto.bounds.exact.MOST_STEPS", 1)
    cheap = bottleneck(net, c)
    assert whole is not None
    assert cheap is not None
    assert 0 < cheap.seconds <= whole.seconds
    assert cheap.seconds == check_cut(net, c, set(np.flatnonzero(cheap.inside).tolist()))
