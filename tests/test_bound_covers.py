"""Prices of an AllReduce's crossings from one server to another: found, rechecked, and beaten by no plan."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations

import numpy as np
import pytest

from stretto.bounds import Covers, bounds, check_covers, covers_bound
from stretto.bounds.covers import FINEST, _Covering
from stretto.cli.bounding import certificates
from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def recheck(net: Topology, c: Collective, found: Covers) -> float:
    return check_covers(net, c, (set(found.first), set(found.last)), *found.certificate)


def two_servers(seed: int) -> Topology:
    """Two trees with a chord, joined by a switch or by a few links, all slower than those inside."""
    rng = np.random.default_rng(seed)
    size, links = int(rng.integers(3, 6)), {}

    def join(a: int, b: int, width: float, late: float) -> None:
        for pair in ((a, b), (b, a)):
            links[pair] = width * rng.choice((0.5, 1.0)) * 1e9, late * 1e-6

    for base in (0, size):
        for v in range(1, size):
            join(base + v, base + int(rng.integers(v)), rng.choice((25, 50)), rng.choice((0.5, 0.7)))
        join(base, base + size - 1, 50, 0.7)
    kinds = [ACCELERATOR] * 2 * size
    if rng.random() < 0.5:
        kinds.append(SWITCH)
        for v in rng.permutation(2 * size)[: size + 2].tolist() + [0, size]:
            join(v, 2 * size, 10, rng.choice((0.5, 1.3)))
    else:
        for _ in range(3):
            join(int(rng.integers(size)), size + int(rng.integers(size)), 5, 1.3)
    ends = [(a, b, *link) for (a, b), link in links.items()]
    return make_topology(
        f"servers{seed}", kinds, ends, sites=["a"] * size + ["b"] * size + [""] * (len(kinds) - 2 * size)
    )


@pytest.fixture(scope="module")
def chassis() -> tuple[Topology, Collective, Covers]:
    net = load_topology("amd:2")
    c = make_collective("allreduce", net, shard_bytes=64_000)
    found = covers_bound(net, c)
    assert found is not None
    return net, c, found


def test_what_crosses_before_one_rank_has_all_crosses_from_several(chassis):
    # one in four dies is the first to have all, 2.1 us after the start, and links across lead from each pair
    net, c, found = chassis
    assert found.seconds > 1.026 * bounds(net, Workload((c,)))[0].seconds
    assert recheck(net, c, found) == pytest.approx(found.seconds, rel=1e-9)


@pytest.mark.parametrize(("seed", "size"), [(0, 2_000), (1, 2_000), (2, 100_000), (3, 20_000), (5, 20_000), (7, 2_000)])
def test_no_plan_beats_covers(seed, size):
    net = two_servers(seed)
    c = make_collective("allreduce", net, shard_bytes=size)
    found = covers_bound(net, c)
    if found is None:
        return
    assert recheck(net, c, found) == pytest.approx(found.seconds, rel=1e-9)
    for planner in ("greedy", "forest", "nccl-tree"):
        with suppress(Unsupported):
            plan = run_planner(planner, net, Workload((c,)))
            assert simulate(plan).completion_s >= found.seconds * (1 - 1e-9)


def test_other_prices_prove_no_more(chassis):
    # what all covers cost grows with the prices, but so does what all links cost
    net, c, found = chassis
    (at_s, early, holders), late = found.certificate
    dear = {link: [2 * FINEST] * len(prices) for link, prices in early.items()}
    sides = set(found.first), set(found.last)
    assert check_covers(net, c, sides, (at_s, dear, holders), late) < found.seconds
    free = {link: [0] * len(prices) for link, prices in early.items()}
    assert check_covers(net, c, sides, (at_s, free, holders), late) < found.seconds


def test_the_cheapest_covers_are_those_of_all_combinations():
    rng = np.random.default_rng(1)
    for _ in range(20):
        sets = rng.integers(1, 32, (3, 2, 2))
        covering = _Covering.of(sets, 5)
        price = rng.random(6)
        least, _ = covering.cheapest(price)
        every = [
            sum(price[covering.owner[k]] for k in some)
            for count in range(1, 6)
            for some in combinations(range(len(covering.sets)), count)
            if np.bitwise_or.reduce(covering.sets[list(some)]) == 31
        ]
        assert least[-1] == pytest.approx(min(every, default=np.inf))


def test_nothing_is_said_of_one_server_or_of_copies():
    for spec, kind in (("dgx1", "allreduce"), ("amd:2", "allgather")):
        net = load_topology(spec)
        assert covers_bound(net, make_collective(kind, net, shard_bytes=1_000)) is None


def test_the_command_says_what_prices_prove_beyond_the_bound(chassis):
    net, c, found = chassis
    said = certificates(net, c, bounds(net, Workload((c,)))[0].seconds, alone=True)["crossings"]
    assert said["checked"]
    assert said["seconds"] == pytest.approx(found.seconds)
    assert "crossings" not in certificates(net, c, found.seconds, alone=True)
