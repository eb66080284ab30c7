"""The compiled loop keeps the starts and rates of plans, and delays arrivals, as the loop in Python does."""

from __future__ import annotations

import heapq
import math
import random
import socket
import struct
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from test_execute import random_plan

from examples import examples
from meshes import Threads, wrong
from networks import ring
from stretto.lower import lower
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import PeerFailed
from stretto.model.plan import Plan, make_plan
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime import execute as running
from stretto.runtime.execute import execute
from stretto.runtime.local import Place, run_local
from stretto.runtime.loop import Run
from stretto.runtime.native import compiling, engine, kernel_pacing
from stretto.runtime.native import kernel_layout as at
from stretto.runtime.native import runs as native_runs
from stretto.runtime.native.paced import pacing_of
from stretto.runtime.native.records import WORD, address
from stretto.runtime.pacing import AHEAD_S
from stretto.runtime.recorded import Trace
from stretto.simulate import simulate
from stretto.topologies import load_topology

LATE_S = 0.5
"""Seconds that a busy machine may be late."""
MAX_PACING_RATE, UNLIMITED = 47, (1 << 64) - 1


@pytest.fixture(scope="module")
def threads():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRETTO_KERNELS", "compiled")
        compiling.compile_here()
        assert engine.hold() is not None
        patch.setattr(Run, "loop", not_here)
        made = Threads(12, subflows=2)
        yield made
        made.close()
        engine.let_go()


def not_here(run: Run) -> None:
    raise AssertionError("the loop in Python runs it")


def two_of(size: int, starts: list[float], ends: list[float], bandwidth: float = 1e6) -> Plan:
    """Chunks that one node sends to the other one, at the times given."""
    net = ring(2, bandwidth=bandwidth, latency_s=0.0)
    n = len(starts)
    work = Workload((alltoallv(net, [[0, n * size], [0, 0]], chunks=n),))
    return make_plan(
        net, work, "timed", chunk=[*range(n)], src=[0] * n, op=[0] * n, dst=Ragged.single([1] * n),
        route=Ragged.of([[0]] * n), depends=Ragged.of([[]] * n), start_s=starts, finish_s=ends,
    )  # fmt: skip


@pytest.mark.parametrize("started_at", [None, 0.05])
def test_nothing_is_sent_before_its_start(started_at, threads):
    plan = two_of(1000, [0.2, 0.0, 0.1], [0.3, 0.001, 0.2])
    origin = None if started_at is None else time.monotonic() + started_at
    outputs = threads.run(plan, pace=1.0, started_at=origin)
    assert wrong(plan, outputs) == []
    sent_s = threads.traces[0].sent_s
    assert all(start <= sent_s[k] < start + LATE_S for k, start in enumerate(plan.start_s.tolist()))
    assert sent_s[1] < sent_s[2] < sent_s[0]


def test_a_pace_stretches_starts_and_rates(threads):
    plan = two_of(300_000, [0.0, 0.01], [0.01, 0.02], bandwidth=3e7)
    threads.run(plan, pace=10.0)
    assert threads.traces[0].sent_s[1] >= 0.1
    assert 0.2 - 2 * AHEAD_S <= threads.traces[1].arrived_s[1] < 0.2 + LATE_S


@pytest.mark.parametrize("sharing", ["timed", "rates"])
def test_a_transfer_keeps_its_rate(sharing, threads):
    plan = two_of(300_000, [0.0], [0.3])
    if sharing == "rates":
        plan = replace(plan, sharing="rates", rate=np.array([1e6]), start_s=None, finish_s=None)
    threads.run(plan, pace=1.0)
    ahead_s = AHEAD_S if sharing == "timed" else 0.0
    arrived_s, gone_s = threads.traces[1].arrived_s[0], threads.traces[0].gone_s[0]
    assert arrived_s < 0.3 + LATE_S
    assert gone_s >= 0.3 - ahead_s - 0.02  # the last segment goes 10 ms of its rate before the end


def test_of_several_that_may_go_the_one_that_is_most_behind_does(threads):
    plan = two_of(400_000, [0.0, 0.1], [0.4, 0.5], bandwidth=2e6)
    threads.run(plan, pace=1.0)
    gone_s = threads.traces[0].gone_s
    assert gone_s[0] < gone_s[1]
    assert threads.traces[0].sent_s[1] < gone_s[0]  # they take turns


def test_the_kernel_keeps_a_connection_to_the_plan_until_the_next_run(threads):
    plan = two_of(400_000, [0.0], [0.1], bandwidth=4e6)
    c, back = threads.meshes[0].connection(1, 0), threads.meshes[1].connection(0, 0)
    threads.run(plan, pace=1.0, started_at=time.monotonic() - 1.0)  # so late that all is sent at once
    assert limit_of(c.sock) == pytest.approx(1.02 * 4e6)
    assert limit_of(back.sock) == UNLIMITED
    assert threads.traces[1].arrived_s[0] - threads.traces[0].sent_s[0] >= 0.08  # also what the kernel had taken
    threads.run(plan)
    assert limit_of(c.sock) == UNLIMITED


@pytest.mark.parametrize("pace", [None, 1.0])
def test_transfers_that_share_a_link_fairly_take_turns(pace, threads):
    plan = replace(two_of(30_000_000, [0.0, 0.0], [0.0, 0.0]), sharing="fair", start_s=None, finish_s=None)
    threads.run(plan, pace=pace)
    trace = threads.traces[0]
    assert trace.sent_s[1] < trace.gone_s[0] and trace.sent_s[0] < trace.gone_s[1]


def test_one_that_is_interrupted_tells_its_peers(threads, monkeypatch):
    made = Threads(2, subflows=1)
    plan = two_of(1000, [60.0], [60.001])
    programs, failures = lower(plan), []

    def one(v: int) -> None:
        try:
            how = {"pace": 1.0, "timeout_s": 20.0, "trace": Trace()}
            execute(made.meshes[v], programs[v], content.inputs(plan, [0], v), content.outputs(plan, [0]), **how)
        except (PeerFailed, KeyboardInterrupt) as failure:
            failures.append(failure)

    def interrupted(run: native_runs.Run) -> dict[int, float]:
        if run.ends.mesh is made.meshes[0]:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(native_runs.Run, "arrived_s", interrupted)
    one_of_two = threading.Thread(target=one, args=(1,))
    one_of_two.start()
    one(0)
    one_of_two.join(10)
    made.close()
    assert not one_of_two.is_alive()
    told = [str(failure) for failure in failures if isinstance(failure, PeerFailed)]
    assert len(told) == 1 and len(failures) == 2 and "it was interrupted" in told[0]


def test_arrivals_are_told_while_a_program_runs(threads, monkeypatch):
    monkeypatch.setattr(running, "LOOK_S", 0.02)
    plan, trace, seen = two_of(1000, [0.0, 0.5], [0.001, 0.501]), Trace(), []
    program, made = lower(plan), Threads(2, subflows=1)

    def look() -> None:
        while len(seen) < 2:
            if len(trace.arrived_s) > len(seen):
                seen.append(time.monotonic())
            time.sleep(0.01)

    def one(v: int) -> Trace:
        outputs = content.outputs(plan, program[v].steps.wanted)
        inputs = content.inputs(plan, program[v].steps.held, v)
        return execute(made.meshes[v], program[v], inputs, outputs, pace=1.0, trace=trace if v else Trace())

    looking, first = threading.Thread(target=look, daemon=True), threading.Thread(target=one, args=(0,))
    looking.start()
    first.start()
    assert one(1) is trace and sorted(trace.arrived_s) == [0, 1] and trace.gone_s == {}
    first.join()
    looking.join(10)
    made.close()
    assert seen[1] - seen[0] > 0.2


def test_processes_run_plans_by_the_compiled_loop(threads, monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "auto")
    plan = two_of(1000, [0.0], [0.001])
    for pace in (1.0, None):
        places = {v: Place(enter=refuse_python, argument=None) for v in range(2)}
        assert run_local(plan, pace=pace, places=places, delays={0: 0.01}).wrong == []


def refuse_python(_: None) -> None:
    Run.loop = not_here


def limit_of(sock) -> int:
    """Bytes/s that the kernel lets a connection send."""
    return struct.unpack("Q", sock.getsockopt(socket.SOL_SOCKET, MAX_PACING_RATE, 8))[0]


@pytest.mark.parametrize("paced", [False, True])
def test_what_is_delayed_arrives_later_and_releases_what_waits_for_it(paced, threads):
    net = ring(4, bandwidth=1e8, latency_s=0.0)
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 4000),)))
    delays = {k: 0.01 + 0.001 * (k % 7) for k in range(plan.transfer_count)}
    if paced:
        plan = replace(plan, sharing="rates", rate=np.full(plan.transfer_count, 1e8))
    outputs = threads.run(plan, delays=delays, pace=1.0 if paced else None, started_at=time.monotonic() + 0.1)
    assert wrong(plan, outputs) == []
    for k in range(plan.transfer_count):
        sent_s = threads.traces[int(plan.src[k])].sent_s[k]
        arrived_s = threads.traces[int(plan.dst[k][0])].arrived_s[k]
        assert arrived_s >= sent_s + delays[k]
        assert all(threads.traces[int(plan.src[k])].arrived_s[d] <= sent_s for d in plan.depends[k].tolist())


@pytest.mark.parametrize("batch", range(4))
def test_random_plans_end_and_end_right_at_their_pace(batch, threads):
    rng = random.Random(f"paced {batch}")
    for number in range(examples(5)):
        plan = None
        while plan is None or plan.turns.count or plan.topology.planes:
            plan = random_plan(rng)
        delays = {k: rng.uniform(0, 0.01) for k in range(plan.transfer_count) if rng.random() < 0.3}
        pace = rng.choice([None, 0.05 / simulate(plan).completion_s])
        assert wrong(plan, threads.run(plan, number, pace=pace, delays=delays), number) == [], plan.meta


def test_late_arrivals_come_in_their_order():
    net = load_topology("fullmesh:8")
    program = lower(run_planner("shortest-path", net, Workload((make_collective("alltoall", net, 8000),))))[0]
    pacing = pacing_of(program, None, None, {})
    place, count = address(pacing), len(program.receives)
    rng, ours = random.Random(0), []
    for _ in range(300):
        if len(ours) < count and (not ours or rng.random() < 0.6):
            item = rng.randrange(20), rng.randrange(count)
            heapq.heappush(ours, item)
            kernel_pacing.push_late(place, *item)
        else:
            when = ours[0][0]
            assert pacing[pacing[at.T_LATE_AT // WORD] // WORD] == when
            item = when, kernel_pacing.pop_late(place)
            assert item in ours
            ours.remove(item)
            heapq.heapify(ours)
    assert pacing[at.LATE_COUNT // WORD] == len(ours)


def test_rates_that_the_network_decides_are_none():
    plan = run_planner("ring", net := ring(3), Workload((make_collective("allgather", net, 3000),)))
    assert plan.sharing == "ready-order"
    program = lower(plan)[0]
    assert np.isinf(program.sends.rate).all()
    pacing = pacing_of(program, 1.0, None, {})
    rates = pacing[pacing[at.T_RATE // WORD] // WORD :][: len(program.sends)]
    assert pacing[at.KEEPS_TIMES // WORD] == 1 and not rates.any() and math.isinf(program.sends.rate[0])


def test_what_is_later_than_any_run_never_arrives():
    plan = run_planner("ring", net := ring(3), Workload((make_collective("allgather", net, 3000),)))
    program = lower(plan)[0]
    pacing = pacing_of(program, None, None, dict.fromkeys(program.receives.row.tolist(), math.inf))
    assert (pacing[pacing[at.T_DELAY // WORD] // WORD :][: len(program.receives)] > 1e18).all()
