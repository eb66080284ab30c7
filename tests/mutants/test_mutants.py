"""Ways of damaging a right plan: each must be rejected, and for the right reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.plan import REDUCE, Plan, make_plan
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.schedule.moments import ends
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def base(seed: int) -> Plan:
    net = random_network(seed)
    return run_planner("mtegcca", net, Workload((make_collective("allgather", net, shard_bytes=1000),)))


def lists(r: Ragged) -> list[list[int]]:
    return [r[i].tolist() for i in range(r.rows)]


def code(plan: Plan) -> str:
    finding = verify(plan).finding
    return finding.code if finding else "ok"


def drop_a_transfer(plan: Plan, k: int) -> Plan:
    keep = [i for i in range(plan.transfer_count) if i != k]
    new = {old: i for i, old in enumerate(keep)}
    return make_plan(
        plan.topology, plan.workload, "timed", chunk=plan.chunk[keep], src=plan.src[keep],
        dst=plan.dst.take(np.array(keep)), route=plan.route.take(np.array(keep)),
        depends=Ragged.of([[new[d] for d in plan.depends[i] if d in new] for i in keep]),
        start_s=plan.start_s[keep], finish_s=plan.finish_s[keep],
    )  # fmt: skip


def drop_dependencies(plan: Plan, k: int) -> Plan:
    rows = lists(plan.depends)
    rows[k] = []
    return replace(plan, depends=Ragged.of(rows))


def start_early(plan: Plan, k: int) -> Plan:
    start, finish = plan.start_s.copy(), plan.finish_s.copy()
    shift = (finish[k] - start[k]) * 0.01
    start[k] -= shift
    finish[k] -= shift
    return replace(plan, start_s=start, finish_s=finish)


def hurry(plan: Plan, k: int) -> Plan:
    finish = plan.finish_s.copy()
    finish[k] -= (finish[k] - plan.start_s[k]) * 0.01
    return replace(plan, finish_s=finish)


def change_chunk(plan: Plan, k: int) -> Plan:
    chunk = plan.chunk.copy()
    chunk[k] = (chunk[k] + 1) % plan.workload.chunk_count
    return replace(plan, chunk=chunk)


def change_source(plan: Plan, k: int) -> Plan:
    src = plan.src.copy()
    src[k] = next(int(v) for v in plan.topology.accelerators if v != src[k])
    return replace(plan, src=src)


def reroute(plan: Plan, k: int) -> Plan:
    rows = lists(plan.route)
    rows[k] = rows[k][:-1] + [(rows[k][-1] + 1) % plan.topology.link_count]
    return replace(plan, route=Ragged.of(rows))


def cut_the_route(plan: Plan, k: int) -> Plan:
    rows = lists(plan.route)
    rows[k] = rows[k][:-1]
    return replace(plan, route=Ragged.of(rows))


def change_receiver(plan: Plan, k: int) -> Plan:
    rows = lists(plan.dst)
    rows[k] = [int(plan.src[k])]
    return replace(plan, dst=Ragged.of(rows))


def add_up(plan: Plan, k: int) -> Plan:
    op = plan.op.copy()
    op[k] = REDUCE
    return replace(plan, op=op)


def slow_the_link(plan: Plan, k: int) -> Plan:
    bandwidth = plan.topology.bandwidth.copy()
    bandwidth[plan.route[k][0]] *= 0.99
    return replace(plan, topology=replace(plan.topology, bandwidth=bandwidth))


MUTANTS = {
    drop_a_transfer: {"incomplete", "not-held", "missing-dependency"},
    drop_dependencies: {"missing-dependency", "not-held"},
    start_early: {"before-dependency", "before-start", "capacity"},
    hurry: {"speed"},
    change_chunk: {"not-held", "missing-dependency", "unordered-writes", "incomplete", "speed"},
    change_source: {"route", "route-loop", "route-misses-receiver", "receiver", "no-transit"},
    reroute: {"route", "route-misses-receiver", "route-loop", "no-transit", "route-loose-end", "no-replication"},
    cut_the_route: {"route-misses-receiver"},
    change_receiver: {"route-misses-receiver", "receiver"},
    add_up: {"reduce-of-copy"},
    slow_the_link: {"speed"},
}


@pytest.mark.parametrize("damage", MUTANTS, ids=lambda f: f.__name__)
@given(seed=st.integers(0, 500), pick=st.integers(0, 10_000))
def test_a_damaged_plan_is_rejected_for_the_right_reason(damage, seed, pick):
    plan = base(seed)
    k = pick % plan.transfer_count
    if damage is start_early and not len(plan.depends[k]) and plan.start_s[k] > 0:
        # a wait that nothing but another transfer on the link explains: shared or idle before it
        return
    if damage is drop_dependencies and not len(plan.depends[k]):
        return
    if damage is slow_the_link and len(plan.route[k]) > 1:
        return  # another link of the pipe may be slower still
    assert code(plan) == "ok"
    assert code(damage(plan, k)) in MUTANTS[damage]


def test_two_transfers_at_once_on_a_full_link_are_found():
    net = load_topology("line:3")
    plan = run_planner("mtegcca", net, Workload((make_collective("broadcast", net, 1000, chunks=2),)))
    assert code(replace(plan, start_s=plan.start_s * 0 + plan.start_s.max(), finish_s=plan.finish_s)) != "ok"
    first = np.flatnonzero(plan.src == 0)
    start, finish = plan.start_s.copy(), plan.finish_s.copy()
    start[first[1]], finish[first[1]] = start[first[0]], finish[first[0]]
    assert code(replace(plan, start_s=start, finish_s=finish)) == "capacity"


def train(count: int, seconds: float, first_s: float, step_s: float) -> Plan:
    """A plan in which node 0 sends ``count`` bytes to its neighbour, one by one, each ``step_s`` after the last began.

    Args:
        seconds: how long the link takes for a byte.
        first_s: when the first begins; the collective starts at 0.
    """
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 1 / seconds, 0.0), (1, 0, 1 / seconds, 0.0)])
    workload = Workload((make_collective("broadcast", net, count, chunks=count),))
    start = first_s + step_s * np.arange(count)
    return make_plan(
        net, workload, "timed", chunk=np.arange(count), src=np.zeros(count), dst=Ragged.single(np.ones(count)),
        route=Ragged.single(np.zeros(count)), depends=Ragged.empty(count), start_s=start,
        finish_s=np.maximum(ends(start, np.full(count, seconds)), np.nextafter(start, np.inf)),
    )  # fmt: skip


@pytest.mark.parametrize("count", [50, 5000])
@pytest.mark.parametrize("first_s", [0.0, 1.0, 1e3, 1e6])
def test_many_tiny_transfers_at_one_late_moment_are_found(count, first_s):
    assert code(train(count, 1e-9, first_s, 0.0)) == "capacity"


@given(
    count=st.integers(2, 3000), seconds=st.floats(1e-9, 1e-3), late=st.floats(1.0, 1e9),
    overlap=st.sampled_from([0.0, 1e-12, 1e-9, 1e-8, 1e-7, 1e-6, 1e-3, 0.5, 1.0]),
)  # fmt: skip
def test_no_number_of_transfers_hides_behind_a_late_moment(count, seconds, late, overlap):
    """What verifies carries no more than its link can in that time: docs/contributors/physics.md, "What rounding may hide"."""
    plan = train(count, seconds, late * seconds, seconds * (1 - overlap))
    end_s = plan.finish_s.max()
    short_s = count * seconds - (end_s - plan.start_s.min())
    if verify(plan).ok:
        assert short_s <= count * seconds * 2e-8 + 80 * np.spacing(end_s)
    else:
        assert code(plan) == "capacity"
        assert short_s > 10 * np.spacing(end_s)


@given(hops=st.integers(2, 300), late=st.floats(1.0, 1e9), early=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1.0]))
def test_no_number_of_hops_hides_behind_a_late_moment(hops, late, early):
    """The same of a chain of dependencies: each hop gains no more than a rounding of the clock."""
    seconds = 1e-9
    net = load_topology(f"line:{hops + 1}?bandwidth=1GB/s&latency=0s")
    workload = Workload((make_collective("broadcast", net, 1),))
    start = (late + np.arange(hops) * (1 - early)) * seconds
    links = [int(np.flatnonzero((net.src == v) & (net.dst == v + 1))[0]) for v in range(hops)]
    plan = make_plan(
        net, workload, "timed", chunk=np.zeros(hops), src=np.arange(hops), dst=Ragged.single(np.arange(hops) + 1),
        route=Ragged.single(np.array(links)), depends=Ragged.of([[], *([k] for k in range(hops - 1))]),
        start_s=start, finish_s=ends(start, np.full(hops, seconds)),
    )  # fmt: skip
    short_s = hops * seconds - (plan.finish_s[-1] - plan.start_s[0])
    if verify(plan).ok:
        assert short_s <= hops * (2e-9 * seconds + 80 * np.spacing(plan.finish_s[-1]))
    else:
        assert code(plan) == "before-dependency"
        assert short_s > 0


def over(link: int, net: Topology, start: list[float], finish: list[float], ranks=(0, 1), size: int = 1000) -> Plan:
    """A plan that broadcasts chunks from the source of a link to its end, each at its time."""
    count, (a, b) = len(start), (int(net.src[link]), int(net.dst[link]))
    workload = Workload((make_collective("broadcast", net, size * count, chunks=count, ranks=list(ranks)),))
    return make_plan(
        net, workload, "timed", chunk=np.arange(count), src=np.full(count, a), dst=Ragged.single(np.full(count, b)),
        route=Ragged.single(np.full(count, link)), depends=Ragged.empty(count), start_s=np.array(start),
        finish_s=np.array(finish),
    )  # fmt: skip


def test_an_absurdly_fast_transfer_hides_no_others():
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)])
    plan = over(0, net, [0.0] * 11, [1e-30, *[3e7] * 10])
    assert code(plan) in {"speed", "capacity"}
    many = over(0, net, [0.0] * 11, [1e-30, *[1e-6] * 10], size=1)
    assert code(many) in {"speed", "capacity"}


def test_a_transfer_that_takes_no_time_far_away_hides_no_others():
    year = 3e7
    net = make_topology("far", [ACCELERATOR, SWITCH, ACCELERATOR], [(0, 1, 1e10, year), (1, 2, 1e10, 0.0)])
    workload = Workload((make_collective("broadcast", net, 3 * 10**12, chunks=3, ranks=[0, 2]),))
    start, seconds = np.array([0.0, 1.0, 1.5]), np.array([100.0, 1e-9, 100.0])
    plan = make_plan(
        net, workload, "timed", chunk=np.arange(3), src=np.zeros(3), dst=Ragged.single(np.full(3, 2)),
        route=Ragged.of([[0, 1]] * 3), depends=Ragged.empty(3), start_s=start, finish_s=start + seconds,
    )  # fmt: skip
    assert code(plan) in {"speed", "capacity"}
    behind = replace(plan, finish_s=start + 100.0)
    assert code(behind) == "capacity"


def test_what_a_fast_link_carries_hides_nothing_on_a_slow_one():
    fast, slow = 1e18, 1.0
    net = make_topology("odd", [ACCELERATOR] * 3, [(0, 1, fast, 0.0), (1, 2, slow, 0.0), (2, 0, 1.0, 0.0)])
    workload = Workload((make_collective("broadcast", net, 26, chunks=26, root=0),))
    chunk = np.concatenate((np.arange(26), np.arange(26)))
    start = np.concatenate((np.arange(26) * 1e-18, np.full(26, 1.0)))
    plan = make_plan(
        net, workload, "timed", chunk=chunk, src=np.repeat([0, 1], 26), dst=Ragged.single(np.repeat([1, 2], 26)),
        route=Ragged.single(np.repeat([0, 1], 26)), depends=Ragged.of([[]] * 26 + [[k] for k in range(26)]),
        start_s=start, finish_s=start + np.repeat([1e-18, 1.0], 26),
    )  # fmt: skip
    assert code(plan) == "capacity"


def test_a_late_transfer_that_nobody_wants_makes_no_room():
    net = make_topology("three", [ACCELERATOR] * 3, [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0), (1, 2, 1e9, 0.0)])
    count = 1000
    workload = Workload((make_collective("broadcast", net, 1000 * count, chunks=count, ranks=[0, 1]),))
    start = np.append(np.arange(count) * 0.75e-6, 1e12)
    plan = make_plan(
        net, workload, "timed", chunk=np.append(np.arange(count), 0), src=np.append(np.zeros(count), 1),
        dst=Ragged.single(np.append(np.ones(count), 2)), route=Ragged.single(np.append(np.zeros(count), 2)),
        depends=Ragged.of([[]] * count + [[0]]), start_s=start, finish_s=start + np.append(np.full(count, 1e-6), 1.0),
    )  # fmt: skip
    assert code(plan) == "capacity"


def test_a_dependency_on_itself_cannot_be_written():
    plan = base(1)
    rows = lists(plan.depends)
    rows[0] = [0]
    with pytest.raises(InputError, match="depends on"):
        make_plan(plan.topology, plan.workload, "ready-order", chunk=plan.chunk, src=plan.src, dst=plan.dst,
                  route=plan.route, depends=Ragged.of(rows))  # fmt: skip


@given(
    count=st.integers(2, 300), late=st.floats(0.0, 1e9), early=st.sampled_from([0.0, 1e-13, 1e-12, 1e-9, 1e-6, 1e-3, 0.5]),
    steps=st.dictionaries(st.floats(0.0, 400.0), st.sampled_from([0.0, 1.0, 1e3, 1e9, 4e9]), max_size=20),
)  # fmt: skip
def test_no_number_of_transfers_hides_on_a_link_that_changes(count, late, early, steps):
    """What verifies carries in no interval more than its link can: docs/contributors/physics.md, "Links that change"."""
    seconds = 1e-9
    rows = [((late + at) * seconds, 0, width) for at, width in steps.items()]
    rows = list({at: (at, link, width) for at, link, width in [*rows, ((late + 400) * seconds, 0, 1e9)]}.values())
    net = make_topology("pair", [0, 0], [(0, 1, 1e9, 0.0), (1, 0, 1e9, 0.0)], changes=rows)
    workload = Workload((make_collective("broadcast", net, count, chunks=count, start_s=late * seconds),))
    plan = make_plan(
        net, workload, "ready-order", chunk=np.arange(count), src=np.zeros(count), dst=Ragged.single([1] * count),
        route=Ragged.single([0] * count), depends=Ragged.empty(count),
    )  # fmt: skip
    right = simulate(plan)
    timed = replace(plan, sharing="timed", start_s=right.start_s, finish_s=right.finish_s)
    assert verify(timed).ok
    lead_s = np.arange(count) * early * seconds
    hurried = replace(timed, start_s=timed.start_s - lead_s, finish_s=timed.finish_s - lead_s)
    if not verify(replace(hurried, workload=Workload((replace(workload.collectives[0], start_s=0.0),)))).ok:
        return
    best = float(net.changes.best(net.bandwidth)[0])
    end_s, begin_s = float(hurried.finish_s.max()), float(hurried.start_s.min())
    room = net.changes.carried_bytes(net.bandwidth, end_s)[0] - net.changes.carried_bytes(net.bandwidth, begin_s)[0]
    drift = (1e-12 * (end_s - begin_s) + 80 * np.spacing(end_s)) * best
    assert count <= room * (1 + 2e-8) + drift
