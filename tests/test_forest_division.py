"""At most so many trees a rank: how many there are, what they carry, and how fast they are."""

from __future__ import annotations

import numpy as np
import pytest

from networks import random_network
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.planners import run_planner
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.division import keep_largest
from stretto.simulate import simulate
from stretto.verify import verify


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
def test_sixteen_trees_a_rank_keep_the_rate(kind):
    # capacities of 31, 43, 67, 97 and 101: their least common measure is 1
    for seed in range(30):
        net = random_network(seed)
        c = make_collective(kind, net, 10**9)
        (*_, forest) = forests_of(net, c, 150_000)
        kept = keep_largest(net, c, forest, 16)
        assert forest.seconds_per_byte(net) >= 0.98 * kept.seconds_per_byte(net), net.name


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_no_more_trees_are_left_than_asked_for_and_carry_everything(kind, most):
    for seed in range(10):
        net = random_network(seed)
        c = make_collective(kind, net, 10**9)
        (*_, forest) = forests_of(net, c, 150_000)
        kept = keep_largest(net, c, forest, most)
        assert len(kept.share) <= most * len(c.ranks)
        assert sum(kept.share) == sum(forest.share) == 1
        if kind == "allgather":
            assert kept.root_share == forest.root_share
            assert np.bincount(kept.up.root).max() <= most


def test_the_number_of_trees_is_an_option():
    net = random_network(4)
    work = Workload((make_collective("allgather", net, 10**9),))
    few, many = (run_planner("forest", net, work, options={"trees": k, "parts": 40}) for k in (1, 16))
    assert verify(few).ok
    assert few.meta["trees"] <= len(net.accelerators) < many.meta["trees"]
    assert simulate(many).completion_s < simulate(few).completion_s
    with pytest.raises(InputError, match="trees=0"):
        run_planner("forest", net, work, options={"trees": 0})
