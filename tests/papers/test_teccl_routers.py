"""TE-CCL's program where routers cut through and store: small cases by hand, an exhaustive search, and the paper's 90 ms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, ROUTER, make_topology
from stretto.planners import run_planner
from stretto.planners.teccl import copies, routers
from stretto.planners.teccl.copies import CopyModel
from stretto.planners.teccl.epochs import epoch_seconds, in_epochs, initial_state
from stretto.planners.teccl.flows import FlowModel, without_windows
from stretto.planners.teccl.horizon import fewest_epochs
from stretto.simulate import simulate
from stretto.solvers import solve
from stretto.topologies import load_topology
from stretto.verify import verify

WIDTH, CHUNK = 1e9, 10**6
EPOCH_S = CHUNK / WIDTH
FEWEST = {"epochs": "from-heuristic"}


def both_ways(rows):
    return [(a, b, width, late) for u, v, width, late in rows for a, b in ((u, v), (v, u))]


def chain(*widths, latency_s=0.0):
    """Accelerator, routers, accelerator; links of these shares of the bandwidth."""
    n = len(widths)
    rows = [(v, v + 1, WIDTH * share, latency_s) for v, share in enumerate(widths)]
    return make_topology("chain", [ACCELERATOR, *[ROUTER] * (n - 1), ACCELERATOR], both_ways(rows))


def sent(net, kind="broadcast", size=CHUNK, **options):
    work = Workload((make_collective(kind, net, size),))
    plan = run_planner("teccl", net, work, options=FEWEST | {k: str(v) for k, v in options.items()})
    assert verify(plan).ok
    return plan


# epochs of the fastest link by hand; w epochs for a link of share 1/w
@pytest.mark.parametrize(
    ("widths", "cut", "store", "switch"),
    [
        ((1, 1, 1), 1, 3, 2),  # one epoch and not one for each hop
        ((1, 1, 1, 1, 1), 1, 5, 4),
        ((1 / 4, 1), 4, 5, 4),  # the last byte leaves the router no earlier than it comes, which is in epoch 3
        ((1, 1 / 4), 4, 5, 1),  # begins at once; TE-CCL does not charge what leaves a switch
        ((1 / 2, 1, 1 / 3), 4, 6, 3),  # in epoch 1 over the fast link, and at once over the slow one: 1 + 3
    ],
)
def test_a_chain_of_routers_is_filled_once(widths, cut, store, switch):
    net = chain(*widths)
    plans = {how: sent(net, routers=how) for how in routers.HOW}
    assert {how: plan.meta["epochs"] for how, plan in plans.items()} == dict(
        zip(routers.HOW, (cut, store, switch), strict=True)
    )
    assert all(plan.meta["proven"] for plan in plans.values())
    # what it reports is what happens: no latency, and epochs of the fastest link
    assert simulate(plans["cut-through"]).completion_s == pytest.approx(cut * EPOCH_S)
    assert simulate(plans["store"]).completion_s == pytest.approx(store * EPOCH_S)


def test_latency_counts_once_for_each_link():
    plan = sent(chain(1, 1, 1, latency_s=EPOCH_S))
    assert plan.meta["epochs"] == 4
    assert simulate(plan).completion_s == pytest.approx(4 * EPOCH_S)


def test_a_router_keeps_a_chunk_for_later_and_copies_it():
    # 0 and 1 each send a chunk by router 2 to 3 and 4; the links behind it carry one at a time. Without memory the
    # router would need two sends of each chunk over the links before it
    net = make_topology(
        "star", [0, 0, ROUTER, 0, 0],
        [(0, 2, WIDTH, 0.0), (1, 2, WIDTH, 0.0), (2, 3, WIDTH, 0.0), (2, 4, WIDTH, 0.0)],
    )  # fmt: skip
    work = Workload(
        tuple(make_collective("multicast", net, CHUNK, root=r, receivers=[2, 3], ranks=[0, 1, 3, 4]) for r in (0, 1))
    )
    plan = run_planner("teccl", net, work, options=FEWEST)
    assert verify(plan).ok
    assert (plan.meta["epochs"], plan.meta["proven"]) == (2, True)
    assert plan.transfer_count == 6
    assert simulate(plan).completion_s == pytest.approx(2 * EPOCH_S)


def ring_of_routers(n):
    """Accelerator 0 at a router, 1 and 2 at that one and at the next; n routers in a ring, in one direction."""
    ring = [(3 + k, 3 + (k + 1) % n, WIDTH, 0.0) for k in range(n)]
    return make_topology(
        "ring", [0] * 3 + [ROUTER] * n, [(0, 3, WIDTH, 0.0), (3, 1, WIDTH, 0.0), (4, 2, WIDTH, 0.0), *ring]
    )


def program(net, work, horizon, state=None):
    grid = in_epochs(net, float(CHUNK), EPOCH_S)
    state = state or initial_state(net, work, EPOCH_S)
    wanted = np.zeros_like(state.held)
    wanted[work.chunk_wanted.owners, work.chunk_wanted.values] = True
    return CopyModel(grid, horizon, state, wanted & ~state.held)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_chunk_comes_out_of_a_cycle_of_routers(size, monkeypatch):
    # the first link carries one chunk an epoch; in the first, the other one could only come out of the ring
    net = ring_of_routers(size)
    work = Workload(tuple(make_collective("multicast", net, CHUNK, root=0, receivers=[v]) for v in (1, 2)))
    assert solve(program(net, work, 1).model, first=True).status == "infeasible"
    plan = run_planner("teccl", net, work, options=FEWEST | {"copy": "true"})
    assert verify(plan).ok
    assert (plan.meta["epochs"], plan.meta["proven"]) == (2, True)
    nothing = routers.Depths(routers.cycles_of(in_epochs(net, float(CHUNK), EPOCH_S)), np.zeros(0))
    monkeypatch.setattr(copies, "forbid_cycles", lambda *_: nothing)
    assert solve(program(net, work, 1).model, first=True).status == "optimal"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_chunk_crosses_routers_that_are_joined_both_ways(count):
    net = chain(*[1] * (count + 1))
    model = program(net, Workload((make_collective("broadcast", net, CHUNK),)), 1)
    built = model.model.built()
    row = np.repeat(np.arange(len(built.row_upper)), np.diff(built.starts))
    ahead = np.flatnonzero(net.dst > net.src).tolist()
    x = model.start_from([copies.Send(0, model.epochs.delay[i], 0, i) for i in ahead])
    for point in (x, solve(model.model, first=True).x):
        assert point is not None
        value = np.bincount(row, weights=built.value * point[built.index], minlength=len(built.row_upper))
        assert ((built.row_lower - 1e-6 <= value) & (value <= built.row_upper + 1e-6)).all()
        assert ((built.lower <= point) & (point <= built.upper)).all()


def exhaustive(net, grid, sources, wanted, most):
    """The fewest epochs, by trying everything that may be sent, one send after the other, epoch by epoch.

    Written from the physics: a router may start with a chunk when its first byte is there, and so that its last
    byte has come; any other node when all of it is there. A send is only made of what a node has by an earlier one.
    """
    routes = net.is_router
    whole = grid.delay.tolist()
    late = (grid.delay - grid.window).tolist()

    def may(have, v, q, k, w):
        if (q, v) not in have:
            return False
        first, last = have[q, v]
        return k >= max(first, last - w) if routes[v] else k >= last

    states = {(frozenset(((q, v), (0, 0)) for q, v in enumerate(sources)), frozenset())}
    for k in range(most):
        stack, seen = list(states), set(states)
        while stack:
            facts, busy = stack.pop()
            have = dict(facts)
            for i in range(net.link_count):
                a, b, w = int(net.src[i]), int(net.dst[i]), int(grid.window[i])
                if any(j == i and k < until for j, until in busy):
                    continue
                for q in range(len(sources)):
                    if (q, b) in have or not may(have, a, q, k, w):
                        continue
                    fresh = (facts | {((q, b), (k + late[i], k + whole[i]))}, busy | {(i, k + w)})
                    if fresh not in seen:
                        seen.add(fresh)
                        stack.append(fresh)
        for facts, _ in seen:
            have = dict(facts)
            if all(place in have and have[place][1] <= k + 1 for place in wanted):
                return k + 1
        states = {(facts, frozenset(x for x in busy if x[1] > k + 1)) for facts, busy in seen}
    return None


@pytest.mark.parametrize("seed", range(9))
def test_the_fewest_epochs_are_those_of_an_exhaustive_search(seed):
    rng = np.random.default_rng(seed)
    relays = 2 + seed % 2
    nodes = 2 + relays
    pairs = [(u, v) for u in range(nodes) for v in range(u) if (u, v) != (1, 0)]
    picked = [pairs[i] for i in rng.permutation(len(pairs))[: nodes + 1]]
    # one link of full width, so that it makes the epoch; the ends are joined to routers for sure
    rows = [(0, 2, WIDTH, 0.0)] + [
        (u, v, WIDTH / rng.integers(1, 3), EPOCH_S * rng.integers(0, 2)) for u, v in {*picked, (3, 1)} - {(2, 0)}
    ]
    if relays == 3:
        rows.append((4, 2, WIDTH, 0.0)) if not {(4, 2)} & set(picked) else None
    net = make_topology("drawn", [0, 0] + [ROUTER] * relays, both_ways(rows))
    work = Workload((make_collective("allgather", net, 2 * CHUNK),))
    grid = in_epochs(net, float(CHUNK), EPOCH_S)
    fewest = exhaustive(net, grid, [0, 1], [(0, 1), (1, 0)], 7)
    plan = run_planner("teccl", net, work, options=FEWEST)
    assert verify(plan).ok
    assert (plan.meta["epochs"], plan.meta["proven"]) == (fewest, True)
    # epochs round up where a latency or a link does not fill them; nothing else differs
    assert simulate(plan).completion_s <= fewest * EPOCH_S * (1 + 1e-9)


# by hand, all links alike: both chunks come to the site's router in epoch 0, which passes one to each accelerator; they
# exchange them in epoch 1. What the links into the site carry, and those into each accelerator, would do in 1
@pytest.mark.parametrize("seed", [None, 1, 2, 3, 5])
def test_what_enters_a_site_last_has_to_come_straight(seed):
    rng = np.random.default_rng(seed)
    joined = [(0, 4), (1, 4), (4, 2), (4, 3), (2, 3)]
    slower = [1] * 5 if seed is None else rng.integers(1, 3, 5).tolist()
    late = [0] * 5 if seed is None else rng.integers(0, 2, 5).tolist()
    rows = [(u, v, WIDTH / w, EPOCH_S * a) for (u, v), w, a in zip(joined, slower, late, strict=True)]
    net = make_topology("site", [0, 0, 0, 0, ROUTER], both_ways(rows), sites=["a", "b", "c", "c", "c"])
    sends = [make_collective("multicast", net, CHUNK, root=root, receivers=[2, 3]) for root in (0, 1)]
    work = Workload(tuple(sends))
    grid = in_epochs(net, float(CHUNK), EPOCH_S)
    wanted = np.zeros((2, 5), dtype=np.bool_)
    wanted[:, 2:4] = True
    least = fewest_epochs(grid, initial_state(net, work, EPOCH_S), wanted)
    fewest = exhaustive(net, grid, [0, 1], [(q, v) for q in (0, 1) for v in (2, 3)], 8)
    assert least <= fewest
    if seed is None:
        assert (least, fewest) == (2, 2)


@pytest.mark.parametrize(("column", "by"), [("start_s", -0.1), ("finish_s", -0.1)])
def test_a_router_that_sends_what_it_does_not_have_yet_is_rejected(column, by):
    plan = sent(chain(1, 1 / 2, 1))
    onward = np.flatnonzero(plan.topology.is_router[plan.src])
    times = getattr(plan, column).copy()
    times[onward[0]] += by * EPOCH_S
    assert not verify(replace(plan, **{column: times})).ok


def test_rounds_send_on_what_an_earlier_round_left_in_a_router():
    # rounds of 17 epochs: the second chunk is on its way to the first router from epoch 16 to 32, and leaves it in 31
    net = chain(1 / 16, 1, 1 / 16)
    work = Workload((make_collective("broadcast", net, 2 * CHUNK, chunks=2),))
    plan = run_planner("teccl", net, work, options={"astar": True})
    assert verify(plan).ok
    assert plan.meta["rounds"] == 2
    assert simulate(plan).completion_s == pytest.approx(47 * EPOCH_S)
    one = Workload((make_collective("broadcast", net, CHUNK),))
    state = initial_state(net, one, EPOCH_S)
    state = state.after([copies.Send(0, 16, 0, 0)], in_epochs(net, float(CHUNK), EPOCH_S), 15)
    assert state.coming == [(0, 1, -15, 1)]
    rest = program(net, one, 16, state)  # on the last link from 0 to 16
    assert rest.possible and solve(rest.model, first=True).status == "optimal"
    assert not program(net, one, 15, state).possible


def test_fractions_pass_routers_in_the_epoch_in_which_they_come():
    plans = {how: sent(chain(1, 1, 1), "alltoall", 2 * CHUNK, routers=how) for how in routers.HOW}
    assert {how: plan.meta["epochs"] for how, plan in plans.items()} == {"cut-through": 1, "store": 3, "switch": 2}
    assert simulate(plans["cut-through"]).completion_s == pytest.approx(EPOCH_S)


def test_a_cycle_within_an_epoch_is_taken_out_of_a_flow():
    net = ring_of_routers(4)
    grid = without_windows(in_epochs(net, float(CHUNK), EPOCH_S))
    sources, demand = np.array([0]), np.zeros((1, net.node_count))
    demand[0, 2] = 1.0
    model = FlowModel(grid, sources, grid.between[sources], demand, 1, early=False)
    x = solve(model.model).x
    ring = np.flatnonzero(net.is_router[net.src] & net.is_router[net.dst])
    x[model.flow[model.sent.at(0, ring, 0)]] += 1.0  # as much again as the flow itself
    paths = model.paths(x)
    assert sum(path.amount for path in paths) == pytest.approx(1.0)
    assert all(len({net.src[i] for i, _ in path.hops}) == len(path.hops) for path in paths)


def test_250_mb_over_50_km_take_no_longer_than_the_papers_90_ms():
    # section 5.2: 90,002.1 us. 16 epochs of 5 ms are what the links between sites need, and one more hop
    net = load_topology("sites:3,4?connectivity=0.5&km=50")
    work = Workload((make_collective("allgather", net, shard_bytes=250_000_000),))
    assert epoch_seconds(net, 250e6, "fast") == pytest.approx(5e-3)
    plan = run_planner("teccl", net, work, options=FEWEST)
    assert verify(plan).ok
    assert (plan.meta["epochs"], plan.meta["proven"]) == (17, True)
    assert 85e-3 <= simulate(plan).completion_s <= 85.3e-3
    assert simulate(plan).completion_s <= 1.063 * bounds(net, work)[0].seconds
