"""The bound for AllToAll by messages of each pair's own, or data that is stored on the way."""

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.bounds.direct import direct_bound
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from test_bound_gathering import SERVERS, Search, network, with_random_costs


def work(net, size, kind="alltoall", **more):
    return Workload((make_collective(kind, net, size, **more),))


@pytest.mark.parametrize("size", [10_000_000, 64_000_000])
@pytest.mark.parametrize("spec", ["star:8", "star:8?latency=5us", "fattree:4"])
def test_messages_straight_to_their_goals_are_proven_best_where_a_piece_takes_longer_than_a_message(spec, size):
    net = load_topology(spec + ("&" if "?" in spec else "?") + "bandwidth=25GB/s&message=20us")
    each_s = size / len(net.accelerators) / 25e9
    assert each_s > 20e-6
    plan = run_planner("pairwise", net, work(net, size))
    best = bounds(net, work(net, size))[0]
    assert simulate(plan).completion_s == pytest.approx(best.seconds, rel=0.01)
    assert best.kind == "messages"


def test_where_pieces_are_small_each_byte_counts_twice():
    """It is dearer to send 10 ns of bytes in a message of 20 us than to let another rank send them on."""
    net = load_topology("star:8?bandwidth=25GB/s&latency=0&message=20us")
    found = direct_bound(net, work(net, 8 * 250), 0.0)
    assert found.seconds == pytest.approx(7 * 2 * 250 / 25e9)


def test_the_narrower_of_two_links_into_a_rank_makes_its_message_count_less():
    net = replace(load_topology("line:3?bandwidth=1GB/s&latency=0"), message_s=np.full(4, 1e-3))
    width = np.where(net.dst == 1, np.where(net.src == 0, 1e9, 3e9), 1e9)
    net = replace(net, bandwidth=width)
    s = 8_000_000
    found = direct_bound(net, work(net, 3 * s), 0.0)
    # into the ends come a direct piece and one that the middle stores; into the middle two direct pieces and, stored
    # for the ends, two more: each node has a weight of 1
    ends_s, middle_s = 2 * (s / 1e9 + 1e-3) + 2 * (s / 1e9 + s / 4e9), 2 * (s / 4e9 + 1e-3 / 4)
    alike_s = (ends_s + middle_s) / 3
    # or each byte has: 6 GB/s in all
    every_s = (2 * (s + 1e6) + 2 * 2 * s + 2 * (s + 1e6)) / 6e9
    assert found.seconds == pytest.approx(max(alike_s, every_s))


@pytest.mark.parametrize("spec", ["line:3", "star:3"])
@pytest.mark.parametrize("share", [0.3, 3.0])
def test_no_schedule_of_a_small_case_beats_it(spec, share):
    net = network(f"{spec}?bandwidth=1GB/s&latency=2us&message=20us")
    piece = round(share * 20e-6 * 1e9)
    assert direct_bound(net, work(net, 3 * piece), 0.0).seconds <= Search(net, "alltoall", piece).run() * (1 + 1e-9)


@pytest.mark.parametrize("name", [*SERVERS][:2])
@pytest.mark.parametrize("share", [0.3, 3.0])
def test_no_schedule_among_small_servers_beats_it(name, share):
    piece = round(share * 20e-6 * 1e9)
    optimum_s = Search(SERVERS[name], "alltoall", piece).run()
    assert direct_bound(SERVERS[name], work(SERVERS[name], 3 * piece), 0.0).seconds <= optimum_s * (1 + 1e-9)


@pytest.mark.parametrize(("seed", "copies"), one_in(2, range(8), [False, True]))
def test_no_plan_of_a_random_network_beats_it(seed, copies):
    specs = ["ring:5", "star:6", "fullmesh:4", "torus:2x3", "hypercube:3", "line:4", "sites:2,3", "h100:2"]
    net = with_random_costs(specs[seed], seed, copies)
    for size in (2_000, 200_000, 2_000_000):
        for ranks in (None, net.accelerators[: len(net.accelerators) // 2 + 1].tolist()):
            request = work(net, size, ranks=ranks)
            completion_s = simulate(run_planner("auto", net, request, effort="0.05")).completion_s
            assert direct_bound(net, request, 0.0).seconds <= completion_s * (1 + 1e-9)


def test_nothing_is_said_where_several_hold_or_want_a_piece():
    """As of what is left of an AllToAll on the way."""
    net = load_topology("star:4?message=20us")
    (c,) = work(net, 1000).collectives
    for name in ("holders", "wanted"):
        both = Ragged.of([sorted({*each.tolist(), 0}) for each in (getattr(c, name)[k] for k in range(16))])
        assert direct_bound(net, Workload((replace(c, **{name: both}),)), 0.0) is None


def test_nothing_is_said_of_other_collectives_and_where_messages_are_free():
    costly, free = load_topology("star:4?message=20us"), load_topology("star:4")
    assert direct_bound(costly, work(costly, 1000, "allgather"), 0.0) is None
    assert direct_bound(free, work(free, 1000), 0.0) is None
