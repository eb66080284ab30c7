"""Trees that fill the network: rates that are reached, and trees that exist."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bottleneck, bounds, tree_rates
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.model.workloads import wan_workload
from stretto.planners import Request, run_planner
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.pack import pack, rank_edges
from stretto.planners.forest.rates import _even_out, spreading
from stretto.planners.forest.refinement import TRANSFER_COUNTS
from stretto.planners.forest.relays import find_relays, through_relays
from stretto.planners.forest.split import without_switches
from stretto.planners.run import plan_by
from stretto.schedule.effort import EFFORTS, Budget
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


@pytest.mark.parametrize("spec", ["dgx1", "dgx2:2", "ndv2:4", "amd:1", "sites:2,8", "zoo:Abilene"])
def test_large_allgathers_come_near_the_bound(spec):
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, shard_bytes=10**9),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.06 * bounds(net, work)[0].seconds


def test_allreduce_on_abilene_beats_reducescatter_and_allgather():
    net = load_topology("zoo:Abilene")
    work = Workload((make_collective("allreduce", net, 11 * 10**9),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    halves = (bottleneck(net, make_collective(k, net, 11 * 10**9)) for k in ("allgather", "reducescatter"))
    composed = float(sum(half.seconds for half in halves))
    assert simulate(plan).completion_s < 0.9 * composed
    assert simulate(plan).completion_s <= 1.06 * 11e9 / tree_rates(net).rate


def allreduce(net, size):
    return Workload((make_collective("allreduce", net, size),))


@given(seed=st.integers(0, 100_000))
def test_packed_trees_reach_every_rank_and_fit(seed):
    net = random_network(seed)
    ranks = net.accelerators.tolist()
    trees = spreading(net, net.accelerators, np.ones(len(ranks)))
    direct = without_switches(net, net.accelerators, trees)
    ends = np.array(sorted(direct.paths))
    capacity = np.array([direct.capacity((u, t)) for u, t in ends.tolist()])
    edges = rank_edges(len(ranks), *np.searchsorted(ranks, ends).T, capacity)
    told = []
    packed, _ = pack(edges, trees.roots, np.ones(len(ends)), lambda *of: told.append(of))
    done, total, _ = zip(*told, strict=True)
    assert done[0] == 0 and sorted(done) == [*done] and done[-1] < {*total}.pop() == trees.roots.sum()
    used, sent = np.zeros_like(capacity), np.zeros_like(trees.roots)
    for via, copies in zip(packed.via, packed.copies.tolist(), strict=True):
        (root,) = np.flatnonzero(via < 0)
        reached = [root]
        for _ in ranks:
            reached += [v for v in range(len(ranks)) if v not in reached and edges.tail[via[v]] in reached]
        assert sorted(reached) == list(range(len(ranks)))
        assert np.array_equal(edges.head[np.delete(via, root)], np.delete(np.arange(len(ranks)), root))
        sent[root] += copies
        used[np.delete(via, root)] += copies
    assert np.array_equal(sent, trees.roots)
    assert (used <= capacity).all()


def test_rates_of_allreduce_are_never_below_reducescatter_then_allgather():
    size = 1 << 40
    for seed in range(200):
        net = random_network(seed)
        halves = [bottleneck(net, make_collective(k, net, size)) for k in ("allgather", "reducescatter")]
        composed = float(sum(half.seconds for half in halves))
        assert size / tree_rates(net).rate <= composed * (1 + 1e-9), net.name


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_allreduce_is_never_slower_than_the_best_reducescatter_then_the_best_allgather(first):
    # 100 graphs, packed, verified and simulated; coarse parts are enough where much is gained
    size = 4 * 10**9
    for seed in range(first, first + 20):
        net = random_network(seed)
        halves = (bottleneck(net, make_collective(kind, net, size)) for kind in ("reducescatter", "allgather"))
        composed, completion = float(sum(half.seconds for half in halves)), np.inf
        for parts in (20, 200, 2000):
            if completion > composed:
                plan = run_planner("forest", net, allreduce(net, size), options={"parts": parts})
                assert verify(plan).ok
                completion = simulate(plan).completion_s
        assert completion <= 1.002 * composed, net.name


@pytest.mark.parametrize("spec", ["dgx1", "amd:1", "torus:4x4", "ring:8"])
def test_at_most_sixteen_trees_a_root_reach_the_bound(spec):
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, shard_bytes=16 * 10**6),))
    plan = run_planner("forest", net, work)
    assert plan.meta["trees"] <= 16 * len(net.accelerators)
    assert simulate(plan).completion_s <= 1.02 * bounds(net, work)[0].seconds


def test_transfers_through_a_switch_share_their_links():
    net = load_topology("dgx2:1")
    work = Workload((make_collective("allgather", net, shard_bytes=16 * 10**6),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.005 * bounds(net, work)[0].seconds


def test_an_allreduce_of_many_chunks_is_cut_no_finer_than_its_plan_stays_small():
    plan = run_planner("forest", *wan_workload(load_topology("zoo:Abilene"), 4, None, seed=0))
    assert verify(plan).ok
    # its 44 chunks are cut along each of about 20 trees a collective
    assert plan.transfer_count <= 1.2 * TRANSFER_COUNTS[-1]


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
def test_relays_serve_ranks_that_have_no_links_to_each_other(kind):
    # a grid's corners and middle: every way between two of them passes others, which store and send on
    net, ranks, size = load_topology("mesh:3x3"), [0, 2, 4, 6, 8], 5 * 10**9
    work = Workload((make_collective(kind, net, size, ranks=ranks),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    trees = size / tree_rates(net, np.array(ranks, dtype=np.int32)).rate
    best = trees if kind == "allreduce" else bounds(net, work)[0].seconds
    assert simulate(plan).completion_s <= 1.01 * best


def test_a_relay_on_several_paths_of_a_tree_gets_the_data_once():
    # accelerator 3 is not a rank; paths 0-3-1 and 0-3-2 have its first link in common
    net = load_topology("star:3")
    hub = replace(net, kind=np.zeros_like(net.kind), replicates=np.zeros_like(net.replicates), transit=net.kind == 9)
    link = {(int(a), int(b)): k for k, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}
    relays = find_relays(hub, np.array([0, 1, 2], dtype=np.int32))
    assert relays.tolist() == [False, False, False, True]
    ways = [(link[0, 3], link[3, 1]), (link[0, 3], link[3, 2])]
    found = through_relays(0, ways, hub, relays)
    assert found == {3: (0, (link[0, 3],)), 1: (3, (link[3, 1],)), 2: (3, (link[3, 2],))}


def test_routers_that_store_pass_copies_on_and_are_refused_for_sums():
    net = load_topology("star:6?switches=store")
    copies, sums = (Workload((make_collective(k, net, shard_bytes=10**8),)) for k in ("allgather", "reducescatter"))
    plan = run_planner("forest", net, copies)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.01 * bounds(net, copies)[0].seconds
    with pytest.raises(Unsupported, match="cannot sum"):
        run_planner("forest", net, sums)


def test_a_net_that_fires_at_once_leaves_a_coarser_plan_and_a_wide_net_changes_nothing():
    net = load_topology("torus:4x4")
    work = Workload((make_collective("allreduce", net, shard_bytes=16 * 10**6),))
    short, long, free = (run_planner("forest", net, work, time_limit_s=s) for s in (0.0, 1e6, None))
    assert verify(short).ok
    assert short.meta["stopped"]
    assert short.transfer_count <= TRANSFER_COUNTS[1] < free.transfer_count
    assert long.digest() == free.digest()


@pytest.mark.parametrize("effort", ["quick", "normal"])
@pytest.mark.parametrize(("spec", "kind"), [("dgx2:2", "allreduce"), ("torus:4x4", "allgather")])
def test_an_effort_gives_the_same_plan_every_time(spec, kind, effort):
    net = load_topology(spec)
    work = Workload((make_collective(kind, net, shard_bytes=16 * 10**6),))
    first, second = (run_planner("forest", net, work, effort=effort) for _ in range(2))
    assert verify(first).ok
    assert first.digest() == second.digest()


def test_less_effort_makes_fewer_transfers():
    net = load_topology("torus:8x8")
    work = Workload((make_collective("allgather", net, shard_bytes=16 * 10**6),))
    quick, normal = (run_planner("forest", net, work, effort=effort) for effort in ("quick", "normal"))
    assert quick.transfer_count < normal.transfer_count
    assert simulate(normal).completion_s < simulate(quick).completion_s


def test_an_effort_gives_the_same_plan_interpreted_and_compiled(monkeypatch):
    net = load_topology("ring:4")
    work = Workload((make_collective("allreduce", net, shard_bytes=10**5),))
    digests = set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        digests.add(run_planner("forest", net, work, effort="quick").digest())
    assert len(digests) == 1


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "broadcast"])
def test_chunks_that_are_asked_for_make_plans_no_larger(kind):
    net = load_topology("torus:4x4")
    plan = run_planner("forest", net, Workload((make_collective(kind, net, 16 * 10**8, chunks=8),)))
    assert plan.transfer_count <= 1.2 * TRANSFER_COUNTS[-1]


def test_when_a_collective_begins_does_not_count_as_late():
    net = load_topology("torus:4x4")
    plans = [
        run_planner("forest", net, Workload((make_collective("allgather", net, 16 * 10**6, start_s=start_s),)))
        for start_s in (0.0, 1.0)
    ]
    assert plans[0].transfer_count == plans[1].transfer_count
    assert simulate(plans[1]).completion_s == pytest.approx(1 + simulate(plans[0]).completion_s, rel=1e-9)


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_links_may_be_a_million_times_wider_than_others(kind):
    links = [(v, 6 + v // 3, 450.3e9, 1e-6) for v in range(6)]
    links += [(b, a, w, s) for a, b, w, s in links]
    links += [(0, 3, 0.33e6, 0.01), (3, 0, 0.37e6, 0.01), (1, 4, 0.41e6, 0.01), (4, 1, 0.23e6, 0.01)]
    net = make_topology("far", [ACCELERATOR] * 6 + [SWITCH] * 2, links)
    work = Workload((make_collective(kind, net, 6 * 10**6),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.01 * bounds(net, work)[0].seconds


def test_what_passes_a_node_is_evened_out_on_paths_from_and_to_ranks():
    # the first link into 1 comes from 2, and 2's from 1: taken back there, one too much would go round until both have none
    links = [(2, 1), (1, 2), (0, 1), (2, 3), (1, 3), (3, 2)]
    net = make_topology("round", [ACCELERATOR, SWITCH, SWITCH, ACCELERATOR], [(a, b, 1e9, 0.0) for a, b in links])
    capacity = np.array([7, 10, 10, 6, 6, 3])
    _even_out(net, net.accelerators, capacity)
    assert capacity.tolist() == [7, 10, 9, 6, 6, 3]


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_deep_trees_are_cut_until_they_fill_whatever_packing_took(kind):
    net = load_topology("mesh:12x12?message=1us")
    work = Workload((make_collective(kind, net, 10**9),))
    plan = plan_by("forest", Request(net, work, budget=Budget(EFFORTS["quick"])))
    assert simulate(plan).completion_s < 1.15 * bounds(net, work)[0].seconds


def test_roots_have_equal_rates_where_better_ones_take_too_long():
    net = random_network(3, switches=False, routers=False)
    c = make_collective("allreduce", net, 10**9)
    best, equal = (min(f.seconds_per_byte(net) for f in forests_of(net, c, 60_000, steps)) for steps in (np.inf, 10.0))
    assert 1.2 * best < equal < 2 * best


def test_a_network_is_refused_whose_rates_take_too_long():
    kinds, ends = [ACCELERATOR, ACCELERATOR, SWITCH], [(0, 2, 3e9), (1, 2, 3e9), (2, 0, 1e9), (2, 1, 2e9)]
    net = make_topology("uneven", kinds, [(*end, 1e-6) for end in ends])
    with pytest.raises(Unsupported, match="uneven at this effort: the rates of its trees take too long"):
        spreading(net, net.accelerators, np.ones(2), 0.0)


def test_trees_that_take_too_long_to_pack_are_refused_before_the_work():
    net = load_topology("torus:4x4")
    with pytest.raises(
        Unsupported, match="allgather on torus:4x4 at this effort: packing its trees takes about 0 s of CPU"
    ):
        forests_of(net, make_collective("allgather", net, 10**9), 60_000, 1.0)


def test_a_plan_that_ends_with_its_busiest_link_is_cut_no_finer():
    # by rounding it ends a little before that link is done
    links = [(0, 1, 2e9, 0.0), (1, 0, 2e9, 0.0), (1, 2, 3e9, 0.0), (2, 1, 3e9, 0.0)]
    net = make_topology("line", [ACCELERATOR] * 3, links, message_s=np.full(4, 2e-6))
    work = Workload((make_collective("allgather", net, 1_000_003),))
    assert verify(run_planner("forest", net, work, effort="quick")).ok


@pytest.mark.parametrize("kind", ["broadcast", "allreduce"])
def test_a_relay_without_links_is_left_out(kind, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")  # where a compiled kernel reads beyond an array nobody is told
    ring = load_topology("ring:4?bandwidth=10GB/s")
    net = ring.with_links((ring.src != 3) & (ring.dst != 3))
    plan = run_planner("forest", net, Workload((make_collective(kind, net, 1_000_000, ranks=[0, 1, 2]),)))
    assert verify(plan).ok
    assert 3 not in {*plan.src.tolist(), *plan.dst.values.tolist()}
