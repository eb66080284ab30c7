"""Ways through switches: which of the equally quick ones pairs of ranks take."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.schedule.routes import routes_from
from stretto.schedule.ways import MOST_LANES, Ways
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

SPINES = (2.0, 1.0, 1.0)
"""GB/s from a leaf to each spine."""


def fabric(leaves: int = 2, ranks: int = 4, message_s: float = 0.0, widths=SPINES):
    """Leaves of ranks of 1 GB/s, under three spines of which one is twice as wide."""
    count = leaves * ranks
    rows = [(v, count + v // ranks, 1e9, 1e-6) for v in range(count)]
    rows += [(count + leaf, count + leaves + s, widths[s] * 1e9, 1e-6) for leaf in range(leaves) for s in range(3)]
    kinds = [ACCELERATOR] * count + [SWITCH] * (leaves + 3)
    both = [*rows, *((b, a, *rest) for a, b, *rest in rows)]
    return make_topology("fabric", kinds, both, message_s=[message_s] * len(both))


def spines(net, routes):
    """How many routes pass each spine."""
    return Counter(net.names[net.dst[route[1]]] for route in routes)


def test_ranks_that_send_at_a_time_take_spines_by_their_widths():
    net = fabric()
    routes = Ways(net).between(np.array([(v, v + 4) for v in range(4)]))
    assert sorted(spines(net, routes).values()) == [1, 1, 2]
    busiest_s = np.bincount(np.concatenate(routes), minlength=net.link_count) / net.bandwidth
    assert busiest_s.max() == pytest.approx(1e-9)  # no more than a rank's own link


def test_lanes_divide_what_one_pair_sends_by_widths():
    net = fabric(ranks=1)
    lanes = Ways(net).lanes(np.array([(0, 1)]))
    assert len(lanes) == MOST_LANES
    assert sorted(spines(net, [lane[0] for lane in lanes]).values()) == [
        MOST_LANES // 4,
        MOST_LANES // 4,
        MOST_LANES // 2,
    ]


def test_lanes_of_a_pair_are_not_all_alike_where_others_send_too():
    lanes = Ways(fabric()).lanes(np.array([(v, v + 4) for v in range(4)]))
    assert all(len({tuple(lane[pair]) for lane in lanes}) > 1 for pair in range(4))


@pytest.mark.parametrize("distance", range(8, 64, 8))
def test_two_lanes_fill_spines_of_half_the_width_of_a_rank(distance):
    """Two servers a pod have four links of half a NIC's width upward, and each pair its own half of them."""
    net = load_topology("h100:8?pod=2&spines=4")
    nodes = net.accelerators
    lanes = Ways(net).lanes(np.stack((nodes, np.roll(nodes, -distance)), axis=1))
    for two in (lanes[:2], lanes[2:]):
        carried = np.bincount(np.concatenate([lane.values for lane in two]), minlength=net.link_count) / 2
        assert (carried / net.bandwidth).max() == pytest.approx(1 / 50e9)


def test_ways_are_chosen_alike_at_both_speeds(monkeypatch):
    net = load_topology("h100:8?pod=2&spines=4")
    rail = net.accelerators[::8].tolist()
    pairs, found = np.array([pair for pair in product(rail, rail) if pair[0] != pair[1]]), []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        found.append([lane.values.tolist() for lane in Ways(net).lanes(pairs)])
    assert len(found[0]) == MOST_LANES
    assert found[0] == found[1]


@pytest.mark.parametrize("spec", ["star:6", "ring:5", "h100:2"])
def test_there_is_one_lane_where_there_is_one_way(spec):
    net = load_topology(spec)
    ways = Ways(net)
    pairs = np.array([(0, 1), (1, 2), (1, 0)])
    assert len(ways.lanes(pairs)) == 1 and not ways.are_several(pairs)


@pytest.mark.parametrize("spec", ["fattree:4", "h100:4?pod=2&spines=2", "amd:2", "dgx2:2"])
def test_every_way_is_a_quickest_one(spec):
    net = load_topology(spec)
    ways, ranks = Ways(net), net.accelerators.tolist()
    for a in ranks[::3]:
        quickest = routes_from(net, a, metric="latency")
        for b, lane in product(ranks, (0, 3)):
            if a == b:
                continue
            way = ways.one(a, b, lane)
            assert ways.join(a, b) == bool(way) == (b in quickest.length)
            if not way:
                continue
            assert net.src[way[0]] == a and net.dst[way[-1]] == b and (net.dst[way[:-1]] == net.src[way[1:]]).all()
            assert net.latency_s[way].sum() == pytest.approx(quickest.length[b])
            assert len(way) == len(quickest.links_to(b))


def test_ways_are_the_same_in_whatever_order_pairs_are_asked_for():
    net = load_topology("fattree:4")
    pairs = np.array([(a, b) for a in range(16) for b in range(16) if a != b])
    ways, turned = Ways(net), Ways(net)
    assert ways.between(pairs) == turned.between(pairs[::-1])[::-1]


def mesh_fabric():
    """Two servers of four ranks, all joined inside, and each under a leaf of its server below two spines."""
    inside = [(4 * s + i, 4 * s + j, 5e9, 1e-6) for s in range(2) for i in range(4) for j in range(i)]
    above = [(v, 8 + v // 4, 1e9, 1e-6) for v in range(8)]
    above += [(8 + leaf, 10 + spine, 1e9, 1e-6) for leaf in range(2) for spine in range(2)]
    rows = [*inside, *above]
    both = [*rows, *((b, a, *rest) for a, b, *rest in rows)]
    return make_topology("mesh", [ACCELERATOR] * 8 + [SWITCH] * 4, both, message_s=[2e-6] * len(both))


def test_a_plan_does_not_depend_on_what_was_planned_before():
    """Ranks 0 and 1 are joined; 3 and 4, at the same distance, have two ways."""
    fresh, used = mesh_fabric(), mesh_fabric()
    ways = Ways(used)
    assert ways.are_several(np.array([(3, 4)])) and not ways.are_several(np.array([(0, 1)]))
    run_planner("hierarchical", used, Workload((make_collective("allreduce", used, 4_000_000),)))
    plans = [
        run_planner("hierarchical", net, Workload((make_collective("allreduce", net, 4_000_000, ranks=[0, 1, 2, 3]),)))
        for net in (fresh, used)
    ]
    assert plans[0].digest() == plans[1].digest()


@pytest.mark.parametrize("asked", [[(0, 1), (3, 4)], [(3, 4), (0, 1)]])
def test_lanes_are_the_same_whichever_pair_was_asked_for_first(asked):
    ways, others = Ways(mesh_fabric()), Ways(mesh_fabric())
    for pair in asked:
        ways.lanes(np.array([pair]))
    pairs = np.array([(a, b) for a in range(8) for b in range(8) if a != b])
    assert [lane.values.tolist() for lane in ways.lanes(pairs)] == [
        lane.values.tolist() for lane in others.lanes(pairs)
    ]


@pytest.mark.parametrize("longer", [{"links": 2, "latency_s": 1.5e-6}, {"links": 3, "latency_s": 2e-6 / 3}])
def test_a_way_of_more_time_or_more_links_is_none_of_the_quickest(longer):
    """From leaf to leaf over a switch in 2 us, or over others in 3 us or by 3 links in as much time."""
    last = 6 if longer["links"] == 3 else 5
    rows = [(0, 2, 1e9, 1e-6), (1, 3, 1e9, 1e-6), (2, 4, 1e9, 1e-6), (4, 3, 1e9, 1e-6)]
    path = [2, *range(5, last + 1), 3]
    rows += [(a, b, 9e9, longer["latency_s"]) for a, b in pairwise(path)]
    both = [*rows, *((b, a, *rest) for a, b, *rest in rows)]
    net = make_topology("ways", [ACCELERATOR] * 2 + [SWITCH] * (last - 1), both)
    ways = Ways(net)
    assert net.dst[ways.one(0, 1)].tolist() == [2, 4, 3, 1] and not ways.are_several(np.array([(0, 1), (1, 0)]))


def test_slices_of_a_ring_of_all_ranks_go_several_ways():
    """Steps of two ranks of each leaf, all of which cross, take 92 ms and more; a ring has one that does."""
    net = fabric(leaves=4, ranks=2, message_s=1e-5, widths=(0.4, 0.4, 0.4))
    plan = run_planner("hierarchical", net, Workload((make_collective("allgather", net, 64_000_000),)))
    assert "ring" in plan.meta["algorithm"] and simulate(plan).completion_s < 0.08


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
def test_slices_take_several_spines_where_none_is_as_wide_as_a_rank(kind):
    net = fabric(leaves=4, ranks=1, message_s=1e-5, widths=(0.33, 0.33, 0.33))
    work = Workload((make_collective(kind, net, 64_000_000),))
    plan = run_planner("hierarchical", net, work)
    assert verify(plan).ok
    routes = (plan.route[k].tolist() for k in range(plan.transfer_count))
    assert len(spines(net, [route for route in routes if len(route) == 4])) == 3
    assert simulate(plan).completion_s < 1.1 * bounds(net, work)[0].seconds


@pytest.mark.parametrize("kind", ["allgather", "allreduce", "alltoall"])
def test_a_fat_tree_is_as_good_as_one_switch_of_its_width(kind):
    """All pairs over the first of equally quick routes took 1.7 to 3.2 times the bound."""
    net = load_topology("fattree:4?message=2us")
    work = Workload((make_collective(kind, net, 64_000_000),))
    plan = run_planner("hierarchical", net, work)
    assert simulate(plan).completion_s < 1.02 * bounds(net, work)[0].seconds


@pytest.mark.parametrize(("replicates", "ways"), [(False, [[0], [0, 2]]), (True, [[0, 2]])])
def test_a_way_goes_on_from_a_receiver_only_if_that_replicates(replicates, ways):
    net = load_topology("line:3")
    middle = np.arange(3) == 1
    net = replace(net, transit=middle, replicates=middle & replicates)
    assert Ways(net).to_all(0, (1, 2)) == ways  # links 0 and 2 lead to ranks 1 and 2
