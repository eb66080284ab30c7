"""Collectives among servers of any sizes, by way of gateways."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.messages import message_count
from stretto.model.targets import TARGETS
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.model.variants import with_messages
from stretto.planners import run_planner
from stretto.planners.fixed import hierarchical
from stretto.planners.fixed.hierarchical import BETWEEN_SERVERS, FROM_ROOT, ROOTED, SPREAD_AT_ONCE
from stretto.planners.fixed.planner import plan_algorithm
from stretto.planners.registry import Request
from stretto.schedule.branching import branching
from stretto.schedule.by_servers import AT_ONCE, Gateways
from stretto.schedule.pipes import build_network
from stretto.schedule.servers import gateways, server_labels, sites_apart
from stretto.schedule.ways import Ways
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

MESSAGE_S = 20e-6
INSIDE, OUTSIDE = (100e9, 0.5e-6), (10e9, 1e-6)
INSIDE_SERVERS = ("dissemination", "all-pairs", AT_ONCE)
RAILED = [[4, [0, 1, 2, 3]], [3, [0, 1, 2]], [4, [0, 1, 2, 3]]]


def cluster(servers, rails=1, copies=False):
    """Servers of so many GPUs, of which some have NICs: number k at the switch of rail k. Switches may copy."""
    kinds, links = [SWITCH] * rails, []
    for size, nics in servers:
        inside = len(kinds)
        kinds += [SWITCH] + [ACCELERATOR] * size
        pairs = [(inside, inside + 1 + v, INSIDE) for v in range(size)]
        pairs += [(k % rails, inside + 1 + v, OUTSIDE) for k, v in enumerate(nics)]
        links += [(*ends, *link) for a, b, link in pairs for ends in ((a, b), (b, a))]
    net = with_messages(make_topology("cluster", kinds, links), MESSAGE_S)
    return net if copies else replace(net, replicates=np.zeros(net.node_count, dtype=bool))


def random_cluster(seed):
    """What draws it, the network, and two thirds of its accelerators. Switches copy if the seed is even."""
    rng = np.random.default_rng(seed)
    rails = int(rng.integers(1, 4))
    sizes = rng.integers(rails, 6, int(rng.integers(2, 6)))
    servers = [[int(n), rng.permutation(n)[: rng.integers(rails, n + 1)].tolist()] for n in sizes]
    net = cluster(servers, rails, copies=seed % 2 == 0)
    return rng, net, np.sort(rng.permutation(net.accelerators)[: max(3, len(net.accelerators) * 2 // 3)])


def planned(net, kind, size=64_000, planner="hierarchical", **how):
    plan = run_planner(planner, net, Workload((make_collective(kind, net, size, **how),)), effort="normal")
    assert verify(plan).ok, verify(plan)
    assert bounds(net, plan.workload)[0].seconds <= simulate(plan).completion_s * (1 + 1e-9)
    return plan


def found(net, ranks=None, cells=False):
    c = make_collective("allgather", net, 64_000, ranks=ranks)
    network = build_network(net.delayed, 64_000.0, True, 0.0)
    return c, list(gateways(net, network, c.ranks, server_labels(net, network, c.ranks), cells))


@pytest.mark.parametrize("kind", BETWEEN_SERVERS)
def test_small_data_takes_one_message_a_step_where_servers_share_a_nic(kind):
    """Servers of 3, 4 and 2 GPUs with one NIC: two steps inside, two across, two inside.

    In an AllReduce one server need not wait for the first of the steps across."""
    net = cluster([[3, [0]], [4, [1]], [2, [0]]])
    plan = planned(net, kind, 900)
    assert plan.meta["algorithm"].startswith("by 1 gateway of each server")
    steps = 5 if kind == "allreduce" else 6
    assert steps * MESSAGE_S <= simulate(plan).completion_s < 1.1 * steps * MESSAGE_S


@pytest.mark.parametrize("kind", BETWEEN_SERVERS)
def test_gateways_copy_to_all_of_their_server_at_once_where_switches_copy(kind):
    """Two steps inside, two across, one inside."""
    plan = planned(cluster([[4, [0]]] * 4, copies=True), kind, 900)
    assert plan.meta["algorithm"].endswith("at once inside") and plan.dst.lengths.max() == 3
    assert 5 * MESSAGE_S <= simulate(plan).completion_s < 1.1 * 5 * MESSAGE_S


def test_what_meets_again_or_cannot_branch_goes_by_messages_of_its_own():
    """GPUs 0 to 2 at a switch; GPUs 0 and 2 are joined, too."""
    links = [(3, 0), (3, 1), (3, 2), (0, 2)]
    net = make_topology(
        "joined", [ACCELERATOR] * 3 + [SWITCH], [(*e, *INSIDE) for a, b in links for e in ((a, b), (b, a))]
    )
    at = {(int(a), int(b)): k for k, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}
    up, down = at[0, 3], [at[3, v] for v in range(3)]
    assert branching(net, [[up, down[1]], [up, down[2]]]) == [up, down[1], down[2]]
    assert branching(net, [[up, down[1]], [at[0, 2]]]) is None
    assert branching(replace(net, replicates=np.zeros(4, dtype=bool)), [[up, down[1]], [up, down[2]]]) is None
    assert branching(net, [[up, down[2]], [up, down[1], at[1, 3], down[2]]]) is None


def test_one_message_a_chunk_takes_much_longer():
    net = cluster([[8, [0]], [8, [3, 4]], [8, [0]], [6, [2]]])
    plan, alone = planned(net, "allgather"), planned(net, "allgather", planner="shortest-path")
    assert 3 * simulate(plan).completion_s < simulate(alone).completion_s
    assert planned(net, "allgather", planner="auto").meta["chosen"] == "hierarchical"


@pytest.mark.parametrize("kind", BETWEEN_SERVERS)
def test_accelerators_outside_the_collective_carry_on_what_their_rail_brings(kind):
    """Of two servers of four GPUs on four rails other GPUs are ranks in each: no rail joins two ranks."""
    net = cluster([[4, [0, 1, 2, 3]]] * 2, rails=4)
    first, second = net.accelerators[:4], net.accelerators[4:]
    ranks = [*first[:2].tolist(), *second[2:].tolist()]
    plan = planned(net, kind, 4_000, ranks=ranks)
    relays = np.setdiff1d(net.accelerators, ranks)
    assert np.isin(plan.dst.values, relays).any()
    sent = plan.chunk[np.isin(plan.src, relays)]
    got = plan.chunk[np.isin(plan.dst.values, relays)]
    assert set(got.tolist()) <= set(sent.tolist()), "what comes to a relay is sent on"


@pytest.mark.parametrize("kind", BETWEEN_SERVERS)
@pytest.mark.parametrize("seed", range(6))
def test_all_layouts_of_random_clusters_make_right_plans(kind, seed):
    _, net, ranks = random_cluster(seed)
    tried = 0
    for some in (None, ranks.tolist()):
        _, layouts = found(net, some)
        for layout in layouts:
            for between in BETWEEN_SERVERS[kind]:
                request = Request(net, Workload((make_collective(kind, net, 6_000, ranks=some),)))
                for at_once in (False, True) if kind in SPREAD_AT_ONCE else (False,):
                    algorithm = layout.algorithm(kind, between, at_once)
                    assert verify(plan_algorithm(algorithm, request)).ok, (layout, algorithm)
                    tried += 1
    assert tried


@pytest.mark.parametrize("kind", ROOTED)
@pytest.mark.parametrize("seed", range(4))
def test_all_layouts_of_random_clusters_make_right_plans_from_and_to_any_root(kind, seed):
    rng, net, ranks = random_cluster(seed)
    for some in (None, ranks.tolist()):
        root = int(rng.integers(len(net.accelerators) if some is None else len(some)))
        work = Workload((make_collective(kind, net, 6_000, ranks=some, root=root),))
        layouts = found(net, some, cells=True)[1]
        assert layouts
        for layout, across, inside in product(layouts, FROM_ROOT, INSIDE_SERVERS[: 3 if kind == "broadcast" else 2]):
            algorithm = layout.rooted(kind, root, across, inside)
            assert verify(plan_algorithm(algorithm, Request(net, work))).ok, (layout, algorithm)


def test_small_data_goes_to_each_server_over_lanes_of_its_own():
    """Four GPUs at each of three sites. In one message each, half of the data goes to a GPU of its own for each lane,
    from there to one at the other site, and from there to three others."""
    plan = run_planner("hierarchical", *broadcast("sites:3,4", 1_000_000), effort="normal")
    assert plan.meta["algorithm"].startswith("by 4 gateways of each server, apart between them, all-pairs")
    messages_s = 3 * 50e-6 + 0.5e6 / 50e9 + 0.5e6 / 12.5e9 + 0.5e6 / 50e9
    assert simulate(plan).completion_s == pytest.approx(messages_s + 502.8e-6)


def test_large_data_crosses_at_full_speed_though_messages_cost_senders():
    case = broadcast("sites:2,8", 16_000_000)
    names = ("hierarchical", "greedy", "auto")
    plan, alone, best = (run_planner(name, *case, effort="normal", target=TARGETS["torch"]) for name in names)
    assert verify(plan).ok and verify(best).ok
    assert simulate(plan).completion_s < 0.97 * simulate(alone).completion_s
    assert simulate(best).completion_s <= simulate(plan).completion_s


@pytest.mark.parametrize(("most", "lanes"), [(30, 3), (64, 8), (1_000, 8)])
@pytest.mark.parametrize("root", [0, 6])
def test_among_many_ranks_data_is_cut_into_fewer_blocks(most, lanes, root, monkeypatch):
    monkeypatch.setattr(hierarchical, "MOST_COPIES", most)
    net = with_messages(load_topology("star:8"), MESSAGE_S)
    c = make_collective("broadcast", net, 16_000_000, root=root)
    every = list(hierarchical._algorithms(net, c, Ways(net)))
    assert max(algorithm.blocks(c.kind, 8, 16_000_000) for algorithm in every) == lanes
    for algorithm in every:
        assert verify(plan_algorithm(algorithm, Request(net, Workload((c,))))).ok, algorithm


def test_a_switch_of_many_ranks_copies_no_blocks_of_each_at_once(monkeypatch):
    monkeypatch.setattr(hierarchical, "MOST_DIRECT", 7)
    net = with_messages(load_topology("star:8"), MESSAGE_S)
    (algorithm,) = hierarchical._algorithms(net, make_collective("broadcast", net, 16_000_000), Ways(net))
    assert algorithm.summary == "by 8 gateways of each server, dissemination inside"


def test_lanes_may_lead_one_way():
    """In dgx2 half of the GPUs send to the other server, and half of them receive."""
    net, work = broadcast("dgx2:2", 16_000_000)
    plan = run_planner("hierarchical", net, work, effort="normal")
    assert verify(plan).ok and plan.meta["algorithm"].startswith("by 8 gateways of each server")


def broadcast(spec, size):
    """One of processes, for which no switch copies."""
    net = with_messages(load_topology(spec), 50e-6)
    net = replace(net, replicates=np.zeros(net.node_count, dtype=bool))
    return net, Workload((make_collective("broadcast", net, size),))


def test_lanes_follow_rails():
    """Where one server lacks a rail, the other rails are lanes; ranks on it are collected at gateways."""
    net = cluster(RAILED, rails=4)
    c, layouts = found(net)
    assert {len(each.gateway) for each in layouts} == {3}
    for each in layouts:
        rails = [[int(net.dst[e]) for e in net.out_links[v] if net.dst[e] < 4] for v in c.ranks[each.gateway].ravel()]
        assert rails == [[lane] for lane in range(3) for _ in range(3)]


def test_equal_servers_all_of_whose_ranks_reach_others_are_a_grid():
    assert not [each for each in found(cluster([[4, [0, 1, 2, 3]]] * 3, rails=4))[1] if len(each.gateway) == 4]


def test_a_rank_may_be_the_gateway_of_several_lanes():
    servers = [np.arange(3), np.array([3])]
    algorithm = Gateways(servers, np.array([[0, 3], [1, 3]]), 4).algorithm("allgather", "dissemination")
    holds = np.eye(4, dtype=bool)
    for step in algorithm.steps("allgather", 4):
        assert holds[step.src, step.block].all() and not holds[step.dst, step.block].any()
        holds[step.dst, step.block] = True
    assert holds.all()


def test_small_sums_are_exchanged_whole_and_large_ones_in_parts():
    net = cluster([[4, [0, 1]], [3, [0, 2]], [4, [2, 3]]], rails=2)
    small, large = planned(net, "allreduce", 1_000), planned(net, "allreduce", 4_000_000)
    assert "exchanges in groups of 3 between" in small.meta["algorithm"]
    assert "ring between" in large.meta["algorithm"] or "dissemination between" in large.meta["algorithm"]
    assert message_count(small) < message_count(large)


def test_parts_of_the_network_that_lack_a_server_have_no_lanes():
    """GPUs without a NIC are such parts."""
    _, layouts = found(cluster([[8, [0]], [5, [2]], [6, [1]]]))
    assert [each.gateway.tolist() for each in layouts] == [[[0, 10, 14]]]
    assert [each.tolist() for each in layouts[0].servers] == [[*range(8)], [*range(8, 13)], [*range(13, 19)]]


def far_groups(*sizes, far_s, near_s=1e-6):
    """Groups of GPUs that are all joined; one GPU of each group is joined to one of each other group, far away."""
    first = np.cumsum([0, *sizes[:-1]])
    links = [
        (a, b, 25e9, near_s) for f, n in zip(first, sizes, strict=True) for a in range(f, f + n) for b in range(f, a)
    ]
    links += [(int(a), int(b), 25e9, far_s) for a in first for b in first[first < a]]
    return make_topology(
        "groups", [ACCELERATOR] * sum(sizes), [w for a, b, *how in links for w in ((a, b, *how), (b, a, *how))]
    )


def test_what_is_near_is_a_site_though_its_links_are_no_faster():
    net = far_groups(3, 4, 3, far_s=1e-3)
    (found,) = sites_apart(net, make_collective("allgather", net, 1_000_000))
    label, apart = found
    assert [len(np.unique(label[part])) for part in (slice(0, 3), slice(3, 7), slice(7, 10))] == [1, 1, 1]
    assert len(np.unique(label)) == 3
    assert apart == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize(("near_s", "far_s"), [(1e-6, 4e-6), (1e-6, 9e-6), (5e-6, 20e-6), (0.0, 1e-9)])
def test_what_is_a_little_nearer_or_in_the_same_room_is_no_site(near_s, far_s):
    net = far_groups(3, 4, 3, far_s=far_s, near_s=near_s)
    assert not sites_apart(net, make_collective("allgather", net, 1_000_000))


def test_ranks_of_which_most_are_alone_are_in_no_sites():
    net = far_groups(2, 1, 1, 1, far_s=1e-3)
    assert not sites_apart(net, make_collective("allgather", net, 1_000_000))
