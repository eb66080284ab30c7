"""The controller of optical planes: what may turn when, what the switch is asked to do, and what happens if someone dies."""

from __future__ import annotations

import os
import select
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from meshes import Threads, meshes, wrong
from stretto.lower import FIRST_CIRCUIT, circuit_subflow, circuit_to, lower, subflows
from stretto.model.circuits import change
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, PeerFailed
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.circuits import Circuits
from stretto.runtime.execute import execute
from stretto.runtime.local import run_local
from stretto.runtime.recorded import off_circuits, timeline_of, waits_of
from stretto.runtime.switches import CommandSwitch, SwitchFailed, TimedSwitch, switch_of
from stretto.topologies import load_topology

SPEC = "optical:4,2?initial=xor1&reconfiguration=1us"


def plan_on(spec: str, planner: str = "rabenseifner+strawman-icr", size: int = 4096) -> Plan:
    net = load_topology(spec)
    return run_planner(planner, net, Workload((make_collective("allreduce", net, size),)))


class Recorded:
    """A switch that turns at once, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list, list, list, float]] = []

    def turn(self, plane, turn, seconds):
        self.asked.append((plane, *turn, seconds))

    def close(self) -> None:
        pass


class Held(Recorded):
    """A switch that turns when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def turn(self, plane, turn, seconds):
        super().turn(plane, turn, seconds)
        if not self.let.wait(20):
            raise SwitchFailed("it was not let")


def ended(circuits: Circuits) -> list[int]:
    """The turns that end next."""
    assert select.select([circuits], [], [], 20)[0]
    return circuits.ends()


@pytest.fixture
def circuits():
    made = Circuits(load_topology(SPEC).planes, Recorded())
    yield made
    made.close()


def test_a_plane_does_not_turn_while_a_transfer_is_on_it(circuits):
    plan = plan_on(SPEC)
    circuits.begin(plan, 1.0)
    first = int(np.flatnonzero(plan.turns.plane == 0)[0])
    carried = [k for k in np.flatnonzero(plan.plane == 0).tolist() if k < plan.turns.before[first]]
    for row in carried[1:]:
        circuits.report(row)
    with pytest.raises(PeerFailed, match=rf"plane 0 would turn while its circuit is in use.*transfer {carried[0]} "):
        circuits.turn(first)
    assert circuits.switch.asked == []
    circuits.report(carried[0])
    circuits.turn(first)
    assert ended(circuits) == [first]
    assert [asked[0] for asked in circuits.switch.asked] == [0]


def test_a_plane_that_turns_does_not_begin_another_turn_or_plan():
    circuits = Circuits(load_topology("optical:4,1?initial=xor1").planes, Held())
    plan = plan_on("optical:4,1?initial=xor1")
    circuits.begin(plan, 1.0)
    for row in range(plan.transfer_count):
        circuits.report(row)
    circuits.turn(0)
    with pytest.raises(PeerFailed, match="plane 0 would turn while it turns"):
        circuits.turn(1)
    with pytest.raises(PeerFailed, match="plane 0 still turns as the next plan begins"):
        circuits.begin(plan, 1.0)
    circuits.switch.let.set()
    assert ended(circuits) == [0]
    circuits.close()


def test_the_switch_is_asked_for_what_changes_and_how_long_it_takes(circuits):
    plan = plan_on(SPEC)
    circuits.begin(plan, 1000.0)
    for row in range(plan.transfer_count):
        circuits.report(row)
    before = [plane.matching for plane in plan.topology.planes]
    for number, p in enumerate(plan.turns.plane.tolist()):
        circuits.turn(number)
        assert ended(circuits) == [number]
        asked = change(before[p], plan.turns.matching[number])
        assert circuits.switch.asked[-1] == (p, *asked, pytest.approx(1e-3))
        assert asked.breaks
        assert not asked.keeps
        before[p] = plan.turns.matching[number]
    assert [turn.number for turn in circuits.turns] == list(range(plan.turns.count))


def test_what_planes_join_stays_and_a_plane_that_has_its_matching_does_not_turn():
    spec = "optical:4,2?reconfiguration=1us"
    plan, switch = plan_on(spec, "swot"), Recorded()
    circuits = Circuits(load_topology(spec).planes, switch)
    asked = []
    for _ in range(2):
        circuits.begin(plan, 1.0)
        for row in range(plan.transfer_count):
            circuits.report(row)
        for number in range(plan.turns.count):
            circuits.turn(number)
            assert ended(circuits) == [number]
        asked.append(list(switch.asked))
        assert len(circuits.turns) == len(switch.asked)
        switch.asked.clear()
    # a plane that joins nothing yet takes its first matching in no time; in the second plan that is a turn
    planes = plan.turns.plane.tolist()
    assert [one[4] == 0 for one in asked[0]] == [p not in planes[:i] for i, p in enumerate(planes)]
    assert all(one[4] > 0 for one in asked[1])
    held = [np.flatnonzero(plan.turns.plane == p)[[0, -1]] for p in range(2)]
    same = sum(np.array_equal(plan.turns.matching[a], plan.turns.matching[b]) for a, b in held)
    assert len(asked[1]) == plan.turns.count - same
    circuits.close()


def test_a_plan_that_begins_with_other_circuits_is_refused(circuits):
    plan = plan_on(SPEC)
    circuits.matching[1] = np.array([2, 3, 0, 1], dtype=np.int32)
    with pytest.raises(PeerFailed, match="plane 1 joins other ports than the plan begins with"):
        circuits.begin(plan, 1.0)
    with pytest.raises(InputError, match="finds others when it runs again"):
        run_local(plan, runs=2)


def test_a_switch_that_fails_ends_the_run_of_every_rank():
    class Broken(Recorded):
        def turn(self, plane, turn, seconds):
            raise SwitchFailed("a mirror is stuck")

    plan = plan_on(SPEC)
    failures = run_once(plan, Broken())
    assert sorted(failures) == [0, 1, 2, 3, 4]
    assert failures[4].peer.startswith("the switch of plane ")
    assert all(failures[v].peer == "controller" for v in range(4))
    assert all("a mirror is stuck, in turn " in str(f) for f in failures.values())


def test_a_rank_that_dies_frees_no_circuit_and_is_named():
    plan, switch = plan_on(SPEC), Recorded()
    failures = run_once(plan, switch, dead=2)
    assert switch.asked == []
    assert sorted(failures) == [0, 1, 3, 4]
    assert all(f.peer == plan.topology.names[2] for f in failures.values())


def test_a_controller_that_dies_is_named():
    plan = plan_on(SPEC)
    failures = run_once(plan, Recorded(), dead=4)
    assert sorted(failures) == [0, 1, 2, 3]
    assert all(f.peer == "controller" for f in failures.values())


def run_once(plan: Plan, switch, dead: int | None = None, timeout_s: float = 20.0) -> dict[int, PeerFailed]:
    """Run a plan whose planes a switch turns, without one node; how each of the others failed."""
    programs = lower(plan)
    made = meshes(sorted(programs))
    failures: dict[int, PeerFailed] = {}

    def one(v: int) -> None:
        mesh, steps = made[v], programs[v].steps
        mesh.names = {w: programs[v].name(w) for w in programs}
        if v == dead:
            mesh.leave()
            return
        own = Circuits(plan.topology.planes, switch) if programs[v].turns else None
        try:
            given = content.inputs(plan, steps.held, v)
            execute(mesh, programs[v], given, content.outputs(plan, steps.wanted), timeout_s=timeout_s, circuits=own)
        except PeerFailed as failure:
            failures[v] = failure
        finally:
            if own is not None:
                own.close()

    with ThreadPoolExecutor(len(programs)) as pool:
        list(pool.map(one, programs))
    for mesh in made.values():
        mesh.close()
    return failures


def test_planes_turn_in_the_order_of_the_plan_in_every_run():
    plan, orders = plan_on(SPEC), []
    for _ in range(3):
        switch = Recorded()
        assert run_once(plan, switch) == {}
        orders.append([[asked[2] for asked in switch.asked if asked[0] == p] for p in range(2)])
    own = [np.flatnonzero(plan.turns.plane == p) for p in range(2)]
    ports = [[[[a, int(b)] for a, b in enumerate(plan.turns.matching[i])] for i in turns] for turns in own]
    assert orders == [ports] * 3


def test_a_run_says_what_turned_and_who_waited():
    plan = plan_on("optical:4,1?initial=xor1&reconfiguration=100ms&latency=0us")
    outcome = run_local(plan)
    assert outcome.wrong == []
    assert outcome.off_circuits == []
    assert [turn.number for turn in outcome.turns] == list(range(plan.turns.count))
    assert all(turn.up_at - turn.began_at >= 0.1 for turn in outcome.turns)
    assert outcome.completion_s >= 0.1 * plan.turns.count
    # the step after a turn has all but its circuit; the next one in the same matching waits for its data alone
    steps = plan.group[plan.turns.before]
    assert sorted(wait.row for wait in outcome.waits) == np.flatnonzero(np.isin(plan.group, steps)).tolist()
    first = plan.turns.before[0]
    timeline = timeline_of(plan, outcome.traces, outcome.completion_s)
    assert (timeline.turn_end_s - timeline.turn_start_s >= 0.1).all()
    assert (timeline.start_s[first:] >= timeline.turn_end_s[0]).all()


def test_bytes_that_were_on_a_plane_as_it_turned_are_found():
    threads = Threads(5, subflows=1)
    plan = plan_on(SPEC)
    assert wrong(plan, threads.run(plan, started_at=time.monotonic())) == []
    threads.close()
    traces = threads.traces
    assert off_circuits(plan, traces) == []
    programs = lower(plan)
    waits = [wait for v in range(4) for wait in waits_of(programs[v], traces[v], None)]
    assert waits and all(wait.since_s < wait.until_s for wait in waits)
    # in a paced run nobody waits for a circuit before the time at which the plan sends
    late = [wait for v in range(4) for wait in waits_of(programs[v], traces[v], 1e9)]
    assert all(programs[int(plan.src[wait.row])].steps.sends[wait.row].start_s == 0.0 for wait in late)
    timeline = timeline_of(plan, traces, 1.0)
    latency_s = np.array([p.latency_s for p in plan.topology.planes])[plan.plane]
    assert latency_s.min() > 0
    assert timeline.finish_s == pytest.approx(np.maximum(timeline.arrival_s - latency_s, timeline.start_s), abs=1e-12)
    last, controller = plan.transfer_count - 1, traces[4]
    turns = np.flatnonzero(plan.turns.plane == plan.plane[last])
    traces[int(plan.src[last])].sent_s[last] = controller.arrived_s[plan.transfer_count + int(turns[-1])] - 1e-6
    assert off_circuits(plan, traces) == [last]
    traces[int(plan.dst[0][0])].arrived_s[0] = controller.sent_s[plan.transfer_count + int(turns[-1])] + 1.0
    assert off_circuits(plan, traces) == [0, last]


def test_each_circuit_of_a_pair_is_a_subflow_that_both_ends_number_alike():
    plan = plan_on("optical:4,3", "swot", 40_000)
    numbers = subflows(plan)
    assert (numbers == circuit_subflow(plan.plane, plan.src, plan.dst.values)).all()
    assert numbers.min() >= FIRST_CIRCUIT
    for number, a, b, p in zip(numbers.tolist(), plan.src.tolist(), plan.dst.values.tolist(), plan.plane.tolist()):
        assert circuit_to(number, a, b) == p
        assert circuit_to(number, b, a) is None
    assert circuit_to(0, 0, 1) is None


PROGRAM = textwrap.dedent("""
    import json, sys
    plane, joined = int(sys.argv[-1]), {(0, 1), (1, 0), (2, 3), (3, 2)}
    with open(sys.argv[1] + sys.argv[-1], "w") as log:
        for line in sys.stdin:
            asked = json.loads(line)
            assert asked["switch"] == plane
            joined -= {tuple(c) for c in asked["break"]}
            joined |= {tuple(c) for c in asked["make"]}
            log.write(json.dumps(sorted(joined)) + "\\n")
            log.flush()
            print("up" if len(sys.argv) < 4 else "port 3 is dark", flush=True)
""")


def command(folder, *more: str) -> str:
    (folder / "switch.py").write_text(PROGRAM)
    return " ".join([sys.executable, str(folder / "switch.py"), str(folder / "log"), *more])


def test_a_program_turns_the_planes(tmp_path):
    plan = plan_on(SPEC)
    circuits = CommandSwitch(command(tmp_path))
    assert run_once(plan, circuits) == {}
    for p in range(2):
        joined = [eval(line) for line in (tmp_path / f"log{p}").read_text().splitlines()]
        own = np.flatnonzero(plan.turns.plane == p)
        assert joined == [[[a, int(b)] for a, b in enumerate(plan.turns.matching[i])] for i in own]


def test_a_program_that_does_not_answer_is_given_up_and_ended(tmp_path):
    said = tmp_path / "pids"
    script = f"import os, time; open({str(said)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    line = f'{sys.executable} -c "{script}"'
    failures = run_once(plan_on(SPEC), CommandSwitch(line), timeout_s=3.0)
    assert {str(f).count("the switch has not turned for 3 s") for f in failures.values()} == {1}
    for pid in said.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def shell(path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", "read line", *lines]))
    path.chmod(0o755)
    return str(path)


def gone(pid: str, within_s: float = 5.0) -> bool:
    """Whether a process ends soon, since one that is killed still takes a moment; one that nobody has waited for has
    ended, too."""
    stat, until = Path(f"/proc/{pid}/stat"), time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_what_a_program_that_hangs_has_started_ends_with_it(tmp_path):
    os.mkfifo(tmp_path / "pid")
    # the child has the program's output, from which the switch still reads
    switch = CommandSwitch(shell(tmp_path / "hangs", "sleep 600 &", f"echo $! > {tmp_path}/pid", "wait"))
    circuits = Circuits(load_topology(SPEC).planes, switch)
    plan = plan_on(SPEC)
    circuits.begin(plan, 1.0)
    for row in range(plan.transfer_count):
        circuits.report(row)
    circuits.turn(0)
    child = (tmp_path / "pid").read_text().strip()
    switch.close()
    with pytest.raises(PeerFailed, match="hangs ended without an answer"):
        ended(circuits)
    circuits.close()
    assert gone(child)


def test_a_switch_that_is_closed_starts_no_program(tmp_path):
    switch = CommandSwitch(shell(tmp_path / "turns", f"touch {tmp_path}/started", "echo up"))
    switch.close()
    with pytest.raises(SwitchFailed, match="it was closed before it turned"):
        switch.turn(0, change(np.array([-1, -1]), np.array([1, 0])), 0.0)
    assert not (tmp_path / "started").exists()


def test_a_controller_that_is_ended_while_it_lets_its_switch_go_still_does(tmp_path):
    # the program does not end when it is asked to, and then asks the controller to end
    line = shell(tmp_path / "stays", "trap 'kill -TERM $PPID' TERM", f"echo $$ >> {tmp_path}/pids",
                 "while :; do sleep 600; done")  # fmt: skip
    with pytest.raises(PeerFailed, match="the switch has not turned for 5 s"):
        run_local(plan_on(SPEC), timeout_s=5.0, switch=partial(CommandSwitch, line))
    pids = (tmp_path / "pids").read_text().split()
    assert pids and all(gone(pid) for pid in pids)


def test_a_program_that_cannot_turn_them_is_named(tmp_path):
    failures = run_once(plan_on(SPEC), CommandSwitch(command(tmp_path, "dark")))
    assert {str(f).count("port 3 is dark") for f in failures.values()} == {1}
    failures = run_once(plan_on(SPEC), CommandSwitch("/no/such/program"))
    assert {str(f).count("/no/such/program could not be started") for f in failures.values()} == {1}
    with pytest.raises(InputError, match="is no command"):
        CommandSwitch('"')
    assert isinstance(switch_of(None), TimedSwitch)
