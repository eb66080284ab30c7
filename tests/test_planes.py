"""Planes: what the verifier refuses on them, and what the simulator does with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.plan import Plan, Turns, make_plan
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

NET = load_topology("optical:8,2?initial=xor1&latency=1us")


@pytest.fixture
def plan() -> Plan:
    return run_planner("rabenseifner+swot", NET, Workload((make_collective("allreduce", NET, 40_000_000),)))


def code(plan: Plan) -> str:
    finding = verify(plan).finding
    return finding.code if finding else "ok"


def turned(plan: Plan, **columns) -> Plan:
    return replace(plan, turns=replace(plan.turns, **columns))


def moved(plan: Plan, rows: np.ndarray, by_s: float) -> Plan:
    shift = np.where(rows, by_s, 0.0)
    return replace(plan, start_s=plan.start_s + shift, finish_s=plan.finish_s + shift)


def test_the_plan_to_be_damaged_is_right(plan):
    assert code(plan) == "ok"


def test_a_circuit_that_the_plane_does_not_hold_is_named(plan):
    other = plan.plane.copy()
    other[-1] = 1 - other[-1]
    wrong = replace(
        plan, plane=other, turns=replace(plan.turns, before=np.full_like(plan.turns.before, plan.transfer_count))
    )
    finding = verify(wrong).finding
    assert finding.code == "no-circuit"
    assert "does not join these two after 0 turns" in finding.message


def test_a_turn_left_out_breaks_the_circuits_after_it(plan):
    rows = np.arange(1, plan.turns.count)
    turns = Turns(
        *(getattr(plan.turns, n)[rows] for n in ("plane", "before", "start_s")), plan.turns.matching.take(rows)
    )
    assert code(replace(plan, turns=turns)) == "no-circuit"


def test_a_matching_that_joins_two_ports_to_one_is_refused(plan):
    values = plan.turns.matching.values.copy()
    values[0] = values[1]
    assert code(turned(plan, matching=Ragged(plan.turns.matching.offsets, values))) == "matching"


def test_a_turn_while_the_plane_carries_is_refused(plan):
    assert code(turned(plan, start_s=plan.turns.start_s - 1e-6)) == "turn"


def test_a_transfer_while_its_plane_turns_is_refused(plan):
    # the turn is late, and what follows it is not
    start = plan.turns.start_s.copy()
    start[0] += 1e-6
    assert code(turned(plan, start_s=start)) == "turn"


def test_bytes_in_flight_are_still_on_the_plane(plan):
    # a microsecond of latency: the plane may turn only when they have arrived
    assert code(turned(plan, start_s=plan.turns.start_s - 0.5e-6)) == "turn"


def test_a_step_that_begins_before_the_last_one_ended_is_refused():
    net = load_topology("optical:4,3")
    plan = run_planner("pairwise+one-shot", net, Workload((make_collective("alltoall", net, 40_000_000),)))
    early = moved(plan, plan.group == 1, -10e-6)
    assert code(early) == "barrier"
    assert code(replace(early, barriers=False)) == "ok"


def test_a_port_that_sends_too_much_at_once_is_refused(plan):
    first = np.flatnonzero((plan.group == 0) & (plan.plane == 1) & (plan.src == 0))
    assert len(first) > 1
    start, finish = plan.start_s.copy(), plan.finish_s.copy()
    start[first[1]], finish[first[1]] = start[first[0]], start[first[0]] + (finish - start)[first[1]]
    assert code(replace(plan, start_s=start, finish_s=finish)) == "capacity"


def test_a_transfer_faster_than_its_port_is_refused(plan):
    finish = plan.start_s + (plan.finish_s - plan.start_s) * 0.99
    assert code(replace(plan, finish_s=finish)) == "speed"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((2, 0, 0.0, [1, 0]), "there is no plane 2"),
        ((0, 9, 0.0, [1, 0]), "out of order"),
        ((0, 0, 0.0, [1]), "needs a port from 0 to 1"),
        ((0, 0, 0.0, [1, 2]), "needs a port from 0 to 1"),
        ((0, 0, np.inf, [1, 0]), "not finite"),
    ],
)
def test_a_turn_of_the_wrong_form_is_refused(row, message):
    net = load_topology("optical:2,1")
    work = Workload((make_collective("broadcast", net, 8),))
    with pytest.raises(InputError, match=message):
        make_plan(
            net, work, "ready-order", chunk=[0], src=[0], dst=Ragged.of([[1]]), route=Ragged.of([[]]),
            depends=Ragged.of([[]]), plane=[0], turns=Turns.of([row]),
        )  # fmt: skip


def one_hop(turns: Turns, initial: str = "free") -> Plan:
    """A broadcast over a plane in which 0 sends to 1 and then, after a turn, 1 to 2."""
    net = load_topology(f"optical:3,1?initial={initial}&latency=1us&reconfiguration=5us&bandwidth=1GB/s")
    work = Workload((make_collective("broadcast", net, 1000),))
    return make_plan(
        net, work, "ready-order", chunk=[0, 0], src=[0, 1], dst=Ragged.of([[1], [2]]), route=Ragged.of([[], []]),
        depends=Ragged.of([[], [0]]), plane=[0, 0], turns=turns,
    )  # fmt: skip


def test_a_turn_waits_for_what_its_plane_carries_and_delays_what_comes_after():
    turns = Turns.of([(0, 0, 0.0, [1, -1, -1]), (0, 1, 0.0, [-1, 2, -1])])
    timeline = simulate(one_hop(turns))
    # 1 us to send, 1 us on the way, 5 us to turn, and again 1 + 1
    np.testing.assert_allclose(timeline.turn_start_s, [0.0, 2e-6])
    np.testing.assert_allclose(timeline.start_s, [0.0, 7e-6])
    assert timeline.completion_s == pytest.approx(9e-6)


def test_a_plane_that_joins_nothing_takes_its_first_matching_for_nothing():
    turns = Turns.of([(0, 0, 0.0, [1, 2, 0])])
    assert simulate(one_hop(turns)).completion_s == pytest.approx(4e-6)
    assert simulate(one_hop(Turns.of([(0, 0, 0.0, [1, 2, 0])]), "shift2")).completion_s == pytest.approx(9e-6)


def test_a_turn_needs_no_reconfiguration_where_the_first_matching_serves():
    assert simulate(one_hop(Turns.of([]), "shift1")).completion_s == pytest.approx(4e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("optical:4", "at least two nodes, and the planes"),
        ("optical:4,2?initial=ring", "none of free, shiftD"),
        ("optical:6,2?initial=xor4", "does not join 6 ports"),
        ("optical:4,2?shares=1,0", "list of positive numbers"),
        ("optical:4,3?latency=1us,2us", "one for each of the 3 planes"),
        ("optical:100000,20", "more than the 1000000"),
    ],
)
def test_an_optical_spec_that_makes_no_sense_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        load_topology(spec)


def test_planes_divide_a_nodes_bandwidth():
    assert [p.bandwidth for p in load_topology("optical:4,4?bandwidth=800Gbps").planes] == [25e9] * 4
    assert [p.bandwidth for p in load_topology("optical:4,3?bandwidth=4GB/s&shares=2,1,1").planes] == [2e9, 1e9, 1e9]


def test_both_speeds_of_the_kernels_agree_on_planes(plan, monkeypatch):
    times = []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        assert code(plan) == "ok"
        times.append(simulate(plan).completion_s)
    assert times[0] == times[1]
