"""A budget of trees: how many there are, what they carry, and how fast they are."""

from __future__ import annotations

import numpy as np
import pytest

from networks import random_network
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.forest.budget import limited
from stretto.planners.forest.trees import Forest, forests_of
from stretto.simulate import simulate
from stretto.verify import verify


def seconds(net: Topology, forest: Forest) -> float:
    """Of the busiest link, for a byte of the whole."""
    load = np.zeros(net.link_count)
    for root, some in forest.segments.items():
        for segment in some:
            for tree in (segment.up, segment.down):
                for way in tree.links.values() if tree is not None else ():
                    np.add.at(load, list(way), float(forest.share[root] * segment.share))
    return float((load / net.bandwidth).max() / sum(forest.share.values()))


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
def test_sixteen_trees_a_rank_keep_the_rate(kind):
    # capacities of 31, 43, 67, 97 and 101: their least common measure is 1
    for seed in range(30):
        net = random_network(seed)
        (*_, forest) = forests_of(net, make_collective(kind, net, 10**9), 150_000)
        kept = limited(net, forest, 16, len(net.accelerators))
        assert seconds(net, forest) >= 0.98 * seconds(net, kept), net.name


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_no_more_trees_are_left_than_asked_for_and_carry_everything(kind, most):
    for seed in range(10):
        net = random_network(seed)
        ranks = len(net.accelerators)
        (*_, forest) = forests_of(net, make_collective(kind, net, 10**9), 150_000)
        kept = limited(net, forest, most, ranks)
        assert sum(map(len, kept.segments.values())) <= most * ranks
        assert all(sum(s.share for s in some) == 1 for some in kept.segments.values())
        assert sum(kept.share.values()) == sum(forest.share.values())
        if kind == "allgather":
            assert kept.share == forest.share
            assert all(len(some) <= most for some in kept.segments.values())


def test_the_budget_is_an_option():
    net = random_network(4)
    work = Workload((make_collective("allgather", net, 10**9),))
    few, many = (run_planner("forest", net, work, options={"trees": k, "parts": 40}) for k in (1, 16))
    assert verify(few).ok
    assert few.meta["trees"] <= len(net.accelerators) < many.meta["trees"]
    assert simulate(many).completion_s < simulate(few).completion_s
    with pytest.raises(InputError, match="trees=0"):
        run_planner("forest", net, work, options={"trees": 0})
