"""AllReduce over relays, and shares by latency: never slower, right, and best where the best is known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from networks import random_network, ring, star
from stretto.bounds import bottleneck, bounds, tree_rates
from stretto.model.arrays import Ragged
from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.stop import Stop
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.division import divide_data, fastest_rates
from stretto.planners.forest.forest import Forest
from stretto.planners.forest.latency import Pool
from stretto.planners.forest.lowering import pipeline
from stretto.planners.forest.parts import choices_by_parts
from stretto.planners.forest.priced import priced_trees
from stretto.planners.forest.windows import LinkUses, counts_by_windows
from stretto.schedule.effort import Budget
from stretto.simulate import simulate
from stretto.solvers import INFINITY, Model, solve
from stretto.topologies import load_topology
from stretto.verify import verify


def some_of(net: Topology, seed: int) -> list[int]:
    """At least two of the accelerators, and not all."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, len(net.accelerators)))
    return sorted(rng.choice(net.accelerators, count, replace=False).tolist())


def out_trees(net: Topology, root: int, ranks: set[int]):
    """Each set of links by which every rank, and possibly others, hang on a root."""
    others = [v for v in range(net.node_count) if v != root]
    into = [[None, *np.flatnonzero(net.dst == v).tolist()] for v in others]
    for choice in product(*into):
        links = {v: e for v, e in zip(others, choice, strict=True) if e is not None}
        if ranks - {root} <= links.keys() and all(hangs(net, links, v, root) for v in links):
            yield list(links.values())


def hangs(net: Topology, links: dict[int, int], v: int, root: int) -> bool:
    for _ in links:
        v = v if v == root else int(net.src[links[v]]) if v in links else -1
    return v == root


def best_rate(net: Topology, ranks: list[int]) -> float:
    """Of all in-trees and out-trees together, by a linear program that lists every one."""
    back = replace(net, src=net.dst, dst=net.src)
    model, load, roots = Model(), [], []
    for root in range(net.node_count):
        for sums, links in (
            (way, t) for way, some in enumerate((net, back)) for t in out_trees(some, root, set(ranks))
        ):
            (column,) = model.columns(1, 0.0, INFINITY, 0.0 if sums else -1.0)
            load.append((np.array(links), column, 1.0))
            roots.append((root, column, 1.0 if sums else -1.0))
    model.rows(net.link_count, -INFINITY, net.bandwidth / net.bandwidth.max(), *load)
    model.rows(net.node_count, 0.0, INFINITY, *roots)
    found = solve(model)
    return -float(found.objective) * float(net.bandwidth.max())


def small_network(seed: int) -> Topology:
    """Four accelerators in a ring of unlike links, both ways, and a chord."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), tuple(sorted(rng.choice(4, 2, replace=False).tolist()))]
    links = {way: float(rng.integers(1, 5)) * 1e9 for a, b in pairs for way in ((a, b), (b, a))}
    return make_topology(f"small{seed}", [ACCELERATOR] * 4, [(a, b, w, 1e-6) for (a, b), w in sorted(links.items())])


@pytest.mark.parametrize("seed", range(8))
def test_priced_trees_reach_the_best_rate_of_all_trees(seed):
    net = small_network(seed)
    ranks = some_of(net, seed)
    c = make_collective("allreduce", net, 10**9, ranks=ranks)
    known = forests_of(net, c, 150_000)[0]
    forest = divide_data(net, Forest.concatenate([known, priced_trees(net, c, known, 1000.0, 128, 0.3, 0.1)]), None)
    best = best_rate(net, ranks)
    assert best >= tree_rates(net, np.array(ranks, dtype=np.int32)).rate * (1 - 1e-6)
    assert 0.99 * best <= 1 / forest.seconds_per_byte(net) <= (1 + 1e-3) * best


@settings(max_examples=12)
@given(seed=st.integers(0, 100_000))
def test_plans_among_some_accelerators_are_right_and_no_slower_than_trees_of_ranks_alone(seed):
    net = random_network(seed)
    if (net.forwarding != net.kind).any():
        return
    c = make_collective("allreduce", net, 10**9, ranks=some_of(net, seed))
    work = Workload((c,))
    plan = run_planner("forest", net, work, options={"parts": 50})
    assert verify(plan).ok
    alone = 10**9 * forests_of(net, c, 150_000)[0].seconds_per_byte(net)
    assert bounds(net, work)[0].seconds <= simulate(plan).completion_s * (1 + 1e-9)
    assert simulate(plan).completion_s <= 1.15 * alone


def test_a_sum_may_be_whole_at_a_node_that_is_not_a_rank():
    # three ranks around an accelerator that is none: as much over each link as a rank has, where ranks alone send more
    hub = star(3)
    net = make_topology(
        "hub", [ACCELERATOR] * 4, list(zip(hub.src, hub.dst, hub.bandwidth, hub.latency_s, strict=True))
    )
    work = Workload((make_collective("allreduce", net, 10**8, ranks=[0, 1, 2]),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    best = float(bottleneck(net, work.collectives[0]).seconds)
    assert simulate(plan).completion_s <= 1.01 * best
    assert 10**8 / tree_rates(net, np.array([0, 1, 2], dtype=np.int32)).rate >= 1.3 * best


def test_where_latency_counts_shares_are_those_that_end_soonest():
    # two trees over links of their own, of 1 s for the whole each; the second has 0.5 s less for it
    uses = LinkUses(np.array([0, 1]), np.array([0, 1]), np.array([0.1, 0.3]), np.array([0.1, 0.4]))
    first, second = counts_by_windows(uses, np.ones(2)).counts
    # ends: 0.2 + x = 0.7 + (1 - x), but the mean time through falls by 0.5 as x grows
    assert first / (first + second) == pytest.approx(0.75, abs=1e-3)


def test_a_tree_that_takes_too_long_makes_nothing_late_once_it_is_left_out():
    """The third tree carries nothing, but its link's window opens and closes late, so that the program ends late."""
    opens_s, closes_s = np.array([0.1, 0.3, 2.0]), np.array([0.1, 0.4, 1.0])
    uses = LinkUses(np.arange(3), np.arange(3), opens_s, closes_s)
    found = counts_by_windows(uses, np.ones(3))
    assert found.end_s == pytest.approx(3.0)
    assert found.idle.tolist() == [2]
    again = counts_by_windows(uses.among(np.array([0, 1])), np.ones(2))
    assert again.end_s == pytest.approx(0.95, abs=1e-3)
    assert again.idle.tolist() == []


def test_forests_by_windows_use_far_links_as_long_as_these_can_carry_something():
    """Three ranks, each two joined by 1 GB/s at once and 10 GB/s in 10 ms: of 60 MB two thirds come to each rank in
    11.4 ms, in 20 ms by the near links alone."""
    kinds, links = [ACCELERATOR] * 3, list[tuple[int, int, float, float]]()
    for a, b in permutations(range(3), 2):
        links += [(a, b, 10e9, 0.01), (a, len(kinds), 1e9, 0.0), (len(kinds), b, 1e9, 0.0)]
        kinds.append(SWITCH)
    net = make_topology("near and far", kinds, links)
    work = Workload((make_collective("allgather", net, 60_000_000),))
    bound_s = bounds(net, work)[0].seconds
    assert bound_s == pytest.approx(0.04 / 22 + 20 / 22 * 0.01, rel=1e-3)
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.1 * bound_s


def test_forests_by_windows_have_trees_by_prices_and_none_that_makes_them_late():
    """Eight ranks joined by links that are narrow and near or wide and far. Without trees by prices this takes 8 %
    longer, with trees that carry nothing and make the linear program late 26 %."""
    near = {(1e9, 1e-5): [(2, 3), (6, 7)], (1e9, 1e-4): [(0, 1), (1, 2), (1, 6), (3, 5), (4, 6), (5, 6)]}
    near |= {(2e9, 1e-5): [(0, 5), (4, 5)], (2e9, 1e-4): [(2, 4), (3, 4)]}
    far = {2e-3: [(0, 2), (1, 3), (1, 7), (3, 7)], 5e-3: [(2, 6)], 1e-2: [(0, 3), (3, 6), (4, 7)]}
    joined = [*near.items(), *(((10e9, latency_s), pairs) for latency_s, pairs in far.items())]
    links = sorted((*ends, *link) for link, pairs in joined for a, b in pairs for ends in ((a, b), (b, a)))
    net = make_topology("near and far", [ACCELERATOR] * 8, links)
    work = Workload((make_collective("allgather", net, 30_000_000),))
    plan = run_planner("forest", net, work, effort="quick")
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.05 * bounds(net, work)[0].seconds


def test_a_forest_has_the_shares_of_the_pieces():
    (forest, *_) = forests_of(star(4), unlike_pieces([9_000, 3_000, 6_000, 2_000]), 1000)
    assert forest.root_share == {0: Fraction(9, 20), 1: Fraction(3, 20), 2: Fraction(6, 20), 3: Fraction(2, 20)}


def test_trees_refuse_a_rank_that_has_too_little_of_the_data():
    with pytest.raises(Unsupported, match="some ranks have too little of the data"):
        run_planner("forest", star(4), Workload((unlike_pieces([10**13, 1, 10**9, 5]),)))


def unlike_pieces(sizes: list[int]) -> Collective:
    """An AllGather of pieces of these sizes, of ranks that have a piece."""
    holders, size = np.flatnonzero(sizes), np.array([size for size in sizes if size], dtype=np.int64)
    ranks, count = np.arange(len(sizes), dtype=np.int32), len(size)
    every = Ragged.from_lengths(np.full(count, len(ranks)), np.tile(ranks, count))
    return Collective.uncut("remainder", ranks, int(size.sum()), size, Ragged.single(holders), every)


@pytest.mark.parametrize("sizes", [[9, 3, 6, 2], [1_000_000, 0, 3_000_000, 500_000]])
def test_trees_carry_pieces_of_unlike_sizes_at_the_rate_of_the_bottleneck(sizes):
    """As of sites with unlike numbers of ranks. Ranks of a star receive what they lack at 1 byte/ns."""
    net, c = star(4), unlike_pieces(sizes)
    plan = run_planner("forest", net, Workload((c,)))
    assert verify(plan).ok
    if sum(sizes) > 1000:
        assert simulate(plan).completion_s <= 1.02 * bounds(net, Workload((c,)))[0].seconds


@pytest.mark.parametrize("message_s", [0.0, 1e-5])
@pytest.mark.parametrize("small", [20, 100])
def test_a_rank_with_little_of_the_data_has_a_tree_where_latency_counts(small, message_s):
    """Of 4,096 units of the data it has less than one."""
    net = replace(ring(4, latency_s=1e-3), message_s=np.full(8, message_s))
    work = Workload((unlike_pieces([1_000_000, small, 2 * small, small]),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.1 * bounds(net, work)[0].seconds


@pytest.mark.parametrize(("holders", "wanted"), [([0], [1]), ([0, 1], [0, 1, 2])])
def test_trees_refuse_pieces_that_not_all_ranks_want_or_several_hold(holders, wanted):
    c = Collective.uncut(
        "remainder", np.arange(3, dtype=np.int32), 90, np.array([90]), Ragged.of([holders]), Ragged.of([wanted])
    )
    with pytest.raises(Unsupported, match="its trees reach all ranks"):
        run_planner("forest", star(3), Workload((c,)))


def test_pieces_of_no_bytes_are_refused():
    sizes, each = np.array([5, 0, 5]), Ragged.of([[0], [1], [2]])
    c = Collective.uncut("allgather", np.arange(3, dtype=np.int32), 10, sizes, each, Ragged.of([[0, 1, 2]] * 3))
    for planner in ("auto", "forest", "greedy"):
        with pytest.raises(InputError, match="collective 0: piece 1 has no bytes; leave it out"):
            run_planner(planner, star(3), Workload((c,)))


def test_shallow_trees_are_chosen_where_latency_counts():
    net = ring(6, latency_s=1e-3)
    c = make_collective("allreduce", net, 600_000, ranks=[0, 2, 3])
    known = forests_of(net, c, 150_000)
    for choice in Pool.grown(net, c, known, 1000.0, 64, 32).by_filling(
        600, Budget().with_costs({"rates": 1.0, "pricing": 0.3, "transfer": 3.0})
    ):
        assert sum(choice.forest.share) == 1
    plan = run_planner("forest", net, Workload((c,)))
    assert verify(plan).ok
    # 3 hops in and out from the middle at least
    assert simulate(plan).completion_s <= 1.3 * bounds(net, Workload((c,)))[0].seconds


def test_trees_are_no_more_than_parts_and_shallow_enough_for_them():
    # trees as fast as without messages take 2.24 times the bound
    net = load_topology("dgx1?message=20us")
    c = make_collective("allreduce", net, 16_000_000)
    budget = Budget().with_costs({"rates": 1.0, "pricing": 0.3, "transfer": 3.0})
    choices, few = (
        choices_by_parts(net, c, forests_of(net.delayed, c, 150_000)[:1], 128, 32, budget, others_s)
        for others_s in (inf, 1e-6)
    )
    assert len(choices[0].forest.share) <= choices[0].parts
    assert len({choice.parts for choice in few}) == 1 < len({choice.parts for choice in choices})
    plan = run_planner("forest", net, Workload((c,)), effort="normal")
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 2.1 * bounds(net, Workload((c,)))[0].seconds


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter"])
def test_trees_that_carry_less_than_a_part_are_left_out_of_one_forest(kind):
    left_out = 0
    for seed in range(6):
        net = random_network(seed)
        net = replace(net, message_s=np.full(net.link_count, 2e-3))
        c = make_collective(kind, net, 1_000_000)
        packed = forests_of(net.delayed, c, 150_000)
        most = 16 * len(c.ranks) if kind == "allreduce" else 16
        first, *others = choices_by_parts(
            net, c, packed, most, 32, Budget().with_costs({"rates": 1.0, "pricing": 0.3, "transfer": 3.0})
        )
        pool = Pool.grown(net, c, packed, c.size_bytes / first.parts, most, 32)
        whole = pool.of_whole_parts(first.forest, first.parts)
        if whole is None:
            continue
        left_out += 1
        assert sum(whole.share) == 1 and len(whole.share) < len(first.forest.share)
        if kind == "allreduce":
            assert len(whole.share) <= first.parts
        else:
            assert whole.root_share == first.forest.root_share
        assert any(other.forest.share == whole.share for other in others)
    assert left_out


def test_no_linear_program_is_solved_once_the_net_has_fired():
    net = ring(6, latency_s=1e-3)
    c = make_collective("allgather", net, 600_000)
    pool = Pool.grown(net, c, forests_of(net, c, 150_000), 1000.0, 16, 32)
    budgets = [Budget(stop=stop).with_costs({"rates": 1.0, "pricing": 0.3}) for stop in (Stop(), Stop(0.0))]
    assert [len(pool.by_windows(600, 1.0, budget)) > 0 for budget in budgets] == [True, False]


def test_once_the_effort_is_spent_one_linear_program_is_solved(monkeypatch):
    net = ring(6, latency_s=1e-3)
    c, solved = make_collective("allgather", net, 600_000), []
    monkeypatch.setattr(
        "stretto.planners.forest.latency.fastest_rates", lambda *a: solved.append(1) or fastest_rates(*a)
    )
    pool = Pool.grown(net, c, forests_of(net, c, 150_000), 1000.0, 16, 32)
    for steps in (1e9, 1.0):
        pool.by_filling(600, Budget(steps).with_costs({"rates": 1.0, "pricing": 0.3}))
        assert len(solved) == 1 or steps > 1
        solved.clear()


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
def test_small_collectives_among_some_accelerators_are_near_the_bound(kind):
    # trees that only fill links take 1.2 times the bound and more
    net, ranks = load_topology("mesh:3x3"), [0, 2, 4, 6, 8]
    c = make_collective(kind, net, shard_bytes=64_000, ranks=ranks)
    known = forests_of(net, c, 150_000)
    for choice in Pool.grown(net, c, known, 1000.0, 16, 32).by_filling(
        c.size_bytes / 1000, Budget().with_costs({"rates": 1.0, "pricing": 0.3, "transfer": 3.0})
    ):
        assert choice.forest.root_share == known[0].root_share
        assert np.bincount(choice.forest.up.root).max() <= 16
    plan = run_planner("forest", net, Workload((c,)))
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.1 * bounds(net, Workload((c,)))[0].seconds


def joined(accelerators: int, switches: int, pairs: list[tuple[int, int, float]], latency_s: float) -> Topology:
    links = [(x, y, width, latency_s) for a, b, width in pairs for x, y in ((a, b), (b, a))]
    return make_topology("joined", [ACCELERATOR] * accelerators + [SWITCH] * switches, links)


@pytest.mark.parametrize("speed", ["python", "compiled"])
@pytest.mark.parametrize("width", [1e8, 1e10, 1e12])
def test_a_narrow_link_is_a_way_whatever_the_widest_is(width, speed, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", speed)
    wide = [(3, 0), (3, 1), (4, 1), (6, 3)]
    net = joined(7, 0, [*((a, b, 1e5 * width) for a, b in wide), (2, 0, 1e5), (5, 4, 1e5)], 1e-6)
    work = Workload((make_collective("allgather", net, 60 * 1024, ranks=[2, 5]),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    # parts of 1 KB in a row over two narrow links
    assert simulate(plan).completion_s <= 1.05 * bounds(net, work)[0].seconds


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "allgather", "allreduce"])
@pytest.mark.parametrize(("ranks", "ratio", "latency_s"), [(2, 1.0, 0.0), (3, 1e12, 1e-6), (3, 1e9, 0.0)])
@pytest.mark.filterwarnings("error")
def test_links_may_have_no_latency_or_be_of_any_widths(kind, ranks, ratio, latency_s):
    pairs = [(v, ranks + k, w) for v in range(ranks) for k, w in enumerate((25e3, 25e3 * ratio))]
    net = joined(ranks, 2, pairs, latency_s)
    work = Workload((make_collective(kind, net, 192),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "allreduce"])
@pytest.mark.parametrize("size", [1, 7])
def test_a_part_has_a_byte_however_late_links_are(kind, size, monkeypatch):
    asked = []

    def counted(topology, workload, forests, each, budget, **how):
        asked.append(each * len(forests[0].share))
        assert len(asked) < 20
        return pipeline(topology, workload, forests, each, budget, **how)

    monkeypatch.setattr("stretto.planners.forest.parts.pipeline", counted)
    net = joined(3, 0, [(0, 1, 1e6), (1, 2, 1e6)], 1e-3)
    net = replace(net, message_s=np.full(net.link_count, 1e-6))
    plan = run_planner("forest", net, Workload((make_collective(kind, net, size),)), effort="normal")
    assert verify(plan).ok
    assert asked and max(asked) <= 2 * max(size, 4)
