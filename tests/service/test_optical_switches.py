"""Planes turned by drivers: SONiC's over gNMI and the simulated one; what waits for light, and what a dead port leads to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from gnmi_target import Refused
from meshes import meshes
from ocs_device import OcsDevice, check
from stretto.lower import lower
from stretto.model.circuits import Change, change
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible, InputError, PeerFailed, Unsupported
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.circuits import Circuits
from stretto.runtime.execute import execute
from stretto.runtime.local import run_local
from stretto.runtime.switches import CommandSwitch, SwitchFailed, TimedSwitch
from stretto.schedule.joining import on_planes
from stretto.schedule.successive import one_after_another
from stretto.service.gnmi import Target
from stretto.service.optical.driver import A_SIDE, B_SIDE, End, PortFailed
from stretto.service.optical.fabric import Driven, Fabric, fabric_of
from stretto.service.optical.failing import RemainingSwitch, dead_ports, plan_without, without
from stretto.service.optical.simulated import SimulatedDriver
from stretto.service.optical.sonic import SonicDriver
from stretto.service.together import job_part, plan_beside
from stretto.topologies import load_topology
from stretto.verify import verify

SPEC = "optical:4,2?reconfiguration=1ms"
NAMES = [(f"{i}A", f"{i}B") for i in range(1, 5)]


def workload(topology, size=4096):
    return Workload((make_collective("allreduce", topology, size),))


@pytest.fixture
def device():
    with OcsDevice(8) as device:
        yield device


@pytest.fixture
def driver(device):
    driver = SonicDriver(Target("127.0.0.1", device.target.port, insecure=True), NAMES)
    yield driver
    driver.close()


def fabric(driver, failures=None, within_s=20.0):
    return Fabric({0: Driven(driver, NAMES, within_s)}, None if failures is None else failures.append)


def test_a_sonic_switch_is_asked_once_and_says_when_its_circuits_are_tuned(device, driver):
    device.held.clear()
    driver.connect([[0, 1], [1, 0]])
    assert device.sets == [([], ["1A-2B", "2A-1B"])]
    assert driver.status() == ({(0, 1): "tuning", (1, 0): "tuning"}, frozenset())
    device.held.set()
    while "tuning" in driver.status().circuits.values():
        pass
    assert driver.status().circuits == {(0, 1): "tuned", (1, 0): "tuned"}


def test_what_is_replaced_or_in_the_way_goes_in_the_same_transaction_and_other_planes_circuits_stay(device, driver):
    keys = ["1A-2B", "2A-1B", "3A-8B", "7A-6B"]  # the last two are not this plane's, and one holds an end of it
    device.change([], [(f"sonic-db:/CONFIG_DB/localhost/OCS_CROSS_CONNECT/{k}", row(k)) for k in keys])
    driver.connect([[0, 2], [2, 0]], instead_of=[[0, 1]])
    assert device.sets[-1] == (["1A-2B", "2A-1B", "3A-8B"], ["1A-3B", "3A-1B"])
    assert sorted(device.circuits) == ["1A-3B", "3A-1B", "7A-6B"]


def row(key):
    return dict(zip(("a_side", "b_side"), key.split("-"), strict=True))


def test_what_is_there_already_is_not_asked_for_again(device, driver):
    driver.connect([[0, 1]])
    driver.connect([[0, 1]])
    assert len(device.sets) == 1
    driver.disconnect([[0, 1], [2, 3]])
    assert device.circuits == {}
    assert driver.status().circuits == {}


def test_a_switch_that_refuses_has_the_circuits_that_it_had(device):
    driver = SonicDriver(Target("127.0.0.1", device.target.port, insecure=True), [*NAMES, ("99A", "99B")])
    driver.connect([[0, 1]])
    with pytest.raises(SwitchFailed, match="1A-99B is no circuit of this switch"):
        driver.connect([[0, 4]], instead_of=[[0, 1]])
    assert driver.status().circuits.keys() == {(0, 1)}
    driver.close()


def test_a_turn_ends_when_all_that_it_makes_is_tuned(device, driver):
    device.held.clear()
    ended = threading.Event()
    turned = threading.Thread(
        target=lambda: (fabric(driver).turn(0, Change([], [[0, 1], [1, 0]], []), 0.0), ended.set())
    )
    turned.start()
    assert not ended.wait(0.05)
    assert device.tuned == []
    device.held.set()
    turned.join(20)
    assert device.tuned == ["1A-2B", "2A-1B"]


def test_an_end_that_fails_is_named_and_told(device, driver):
    device.dead.add("2B")
    failures = []
    with pytest.raises(PortFailed, match="2B of plane 0 failed"):
        fabric(driver, failures).turn(0, Change([], [[0, 1], [1, 0]], []), 0.0)
    (failure,) = failures
    assert failure.ends == {End(1, B_SIDE)}
    assert dead_ports(failures) == {0: {1}}


def test_a_switch_with_the_names_of_newer_images_is_understood():
    with OcsDevice(4, newer=True) as device:
        driver = SonicDriver(Target("127.0.0.1", device.target.port, insecure=True), NAMES)
        driver.connect([[0, 1], [1, 0]])
        assert set(driver.status().circuits.values()) == {"tuning"}
        fabric(driver).turn(0, Change([], [[0, 1], [1, 0]], []), 0.0)
        assert driver.status() == ({(0, 1): "tuned", (1, 0): "tuned"}, frozenset())
        device.dead.add("2B")
        with pytest.raises(PortFailed, match="2B of plane 0 failed"):
            fabric(driver).turn(0, Change([[0, 1]], [[2, 1]], []), 0.0)
        driver.close()


@pytest.mark.parametrize(
    ("database", "tables", "is_newer"),
    [
        ("CONFIG_DB", {"OCS_CROSS_CONNECT": {"1A-2B": {"a_side": "1A", "c_side": "2B"}}}, False),
        ("CONFIG_DB", {"OCS_CROSS_CONNECT": {"1A-2B": {"a_side": 1, "b_side": "2B"}}}, False),
        ("CONFIG_DB", {"OCS_CROSS_CONNECT": {"1A-2B": {"a_side": "1A", "status": "enabled"}}}, True),
        ("STATE_DB", {"OCS_PORT": {"1A": {"status": "connected"}}}, False),
        ("STATE_DB", {"OCS_PORT": {"1A": {"oper_status": "tuned"}}}, True),
        ("STATE_DB", {"OCS_PORT": {}, "OCS_CROSS_CONNECT": {"1A-2B": {"a_side": "1A"}}}, False),  # no such port
    ],
)
def test_rows_that_break_the_models_are_refused(database, tables, is_newer):
    with pytest.raises(Refused, match=f"{database} breaks the model"):
        check(database, tables, is_newer)


def test_circuits_that_stay_dark_end_the_turn(device, driver):
    device.held.clear()
    with pytest.raises(SwitchFailed, match=r"its circuits are not tuned after 0.05 s"):
        fabric(driver, within_s=0.05).turn(0, Change([], [[0, 1]], []), 0.0)


def test_a_switch_that_refuses_or_is_gone_says_so(device):
    foreign = SonicDriver(Target("127.0.0.1", device.target.port, insecure=True), [("90A", "90B"), ("91A", "91B")])
    with pytest.raises(SwitchFailed, match="90A-91B is no circuit of this switch"):
        foreign.connect([[0, 1]])
    device.target.server.stop(grace=None).wait()
    with pytest.raises(SwitchFailed, match=r"127.0.0.1:\d+"):
        foreign.connect([[0, 1]])
    foreign.close()


def test_the_simulated_switch_takes_its_time_and_fails_ends_on_demand():
    driver = SimulatedDriver(TimedSwitch(), 0, 0.02)
    turns = fabric(driver)
    driver.connect([[0, 1], [1, 0]])
    assert set(driver.status().circuits.values()) == {"tuning"}
    turns.turn(0, Change([], [[0, 1], [1, 0]], []), 0.0)
    assert set(driver.status().circuits.values()) == {"tuned"}
    driver.broken.add(End(2, A_SIDE))
    with pytest.raises(PortFailed, match="3A of plane 0 failed"):
        turns.turn(0, Change([[0, 1], [1, 0]], [[0, 2], [2, 0]], []), 0.0)
    driver.disconnect([[0, 2], [2, 0]])
    assert driver.status() == ({}, {End(2, A_SIDE)})
    turns.close()


def test_a_turn_ends_when_its_fabric_is_closed():
    turns = fabric(SimulatedDriver(TimedSwitch(), 0, 600.0))
    with ThreadPoolExecutor(1) as pool:
        turning = pool.submit(turns.turn, 0, Change([], [[0, 1]], []), 0.0)
        turns.close()
        with pytest.raises(SwitchFailed):
            turning.result(20)


def test_a_plane_that_nobody_drives_cannot_turn():
    with pytest.raises(SwitchFailed, match="nobody drives it"):
        Fabric({}).turn(3, Change([], [[0, 1]], []), 0.0)


def on_one_device(device):
    """The fabric of two planes of four ports each, on the eight ports of one switch."""
    switches = [
        {"plane": p, "driver": "sonic", "target": f"127.0.0.1:{device.target.port}", "insecure": True,
         "ports": {f"gpu{v}": [f"{4 * p + v + 1}A", f"{4 * p + v + 1}B"] for v in range(4)}}
        for p in range(2)
    ]  # fmt: skip
    return {"switches": switches}


def run(plan, switch):
    """Run a plan in threads; the failures by node, and the chunks that came out wrong."""
    programs = lower(plan)
    made = meshes(sorted(programs), timeout_s=20.0)
    failures, wrong = {}, []

    def one(v):
        mesh, steps = made[v], programs[v].steps
        mesh.names = {w: programs[v].name(w) for w in programs}
        own = Circuits(plan.topology.planes, switch) if programs[v].turns else None
        given, results = content.inputs(plan, steps.held, v), content.outputs(plan, steps.wanted)
        try:
            execute(mesh, programs[v], given, results, timeout_s=60.0, circuits=own)
            wrong.extend(content.wrong_chunks(plan, results))
        except PeerFailed as failure:
            failures[v] = failure
        finally:
            if own is not None:
                own.close()

    with ThreadPoolExecutor(len(programs)) as pool:
        list(pool.map(one, programs))
    for mesh in made.values():
        mesh.close()
    return failures, wrong


def test_bytes_of_a_swot_plan_are_on_circuits_alone_that_a_sonic_switch_tunes_slowly(tmp_path):
    spec = "optical:4,1?reconfiguration=1ms"
    plan = run_planner("rabenseifner+swot", load_topology(spec), workload(load_topology(spec), 1 << 16))
    assert plan.turns.count >= 2
    with OcsDevice(4, looks=6) as device:
        switch = {"plane": 0, "driver": "sonic", "target": f"127.0.0.1:{device.target.port}", "insecure": True}
        (tmp_path / "fabric.json").write_text(json.dumps({"switches": [switch]}))
        program = f"{sys.executable} -m stretto.service.optical '{spec}' {tmp_path}/fabric.json"
        outcome = run_local(plan, switch=partial(CommandSwitch, program), timeout_s=600.0)
        assert (outcome.wrong, outcome.off_circuits) == ([], [])
        assert [turn.number for turn in outcome.turns] == list(range(plan.turns.count))
        last = plan.turns.matching[plan.turns.count - 1]
        assert device.tuned == sorted(f"{a + 1}A-{int(b) + 1}B" for a, b in enumerate(last))
        kept = [set(adds) for _, adds in device.sets]
        assert [set(deletes) for deletes, _ in device.sets] == [set(), *kept[:-1]]  # a turn ends all circuits before


def test_collectives_one_after_another_have_right_bytes_on_planes_that_turn_between_them(device):
    topology = load_topology(SPEC)
    work = Workload(tuple(make_collective(kind, topology, 4096) for kind in ("allreduce", "alltoall")))
    alone = [run_planner("swot", topology, Workload((c,))) for c in work.collectives]
    plan = one_after_another(topology, work, alone)
    assert verify(plan).ok and plan.turns.count
    assert run(plan, fabric_of(on_one_device(device), topology, "fabric.json")) == ({}, [])


def test_two_jobs_run_at_once_on_planes_of_their_own_on_one_switch(device):
    topology, kinds = load_topology(SPEC), {"a": "allreduce", "b": "alltoall"}
    alone = [
        run_planner("swot", part, Workload((make_collective(kind, part, 4096),)))
        for p, kind in enumerate(kinds.values())
        for part in [on_planes(topology, np.array([p], dtype=np.int32))]
    ]
    collectives = [plan.workload.collectives[0] for plan in alone]
    planes = {"a": (0,), "b": (1,)}
    whole = plan_beside(topology, collectives, alone, "quick", {"a": [0], "b": [1]}, planes)
    parts = [job_part(whole, [number]) for number in range(2)]
    fabrics = [fabric_of(on_one_device(device), topology, "fabric.json") for _ in parts]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, parts, fabrics)) == [({}, [])] * 2
    own = [{f"{4 * p + i}{side}" for i in range(1, 5) for side in "AB"} for p in range(2)]
    touched = [{end for key in (*deletes, *adds) for end in key.split("-")} for deletes, adds in device.sets]
    assert all(
        any(ends <= each for each in own) for ends in touched
    )  # a turn of one job touches no circuit of the other
    assert all(any(ends <= each for ends in touched) for each in own)


def test_a_port_that_fails_ends_the_run_by_its_name_and_leads_to_a_plan_without_it(device):
    topology = load_topology(SPEC)
    plan = run_planner("swot", topology, workload(topology))
    device.dead.add("3A")
    failures = []
    turns = fabric_of(on_one_device(device), topology, "fabric.json")
    turns.failed = failures.append
    told, _ = run(plan, turns)
    assert {str(f).count("3A of plane 0 failed") for f in told.values()} == {1}
    assert [(f.plane, f.ends) for f in failures] == [(0, {End(2, A_SIDE)})]

    again, remaining = plan_without(topology, dead_ports(failures), workload(topology))
    assert remaining.planes == (0, 1)
    assert set(again.plane.tolist()) == {1}
    assert verify(again).ok
    turns = fabric_of(on_one_device(device), topology, "fabric.json")
    before = len(device.sets)
    assert run(again, RemainingSwitch(turns, remaining)) == ({}, [])
    assert len(device.sets) > before
    used = {end for _, adds in device.sets[before:] for key in adds for end in key.split("-")}
    assert used == {f"{i}{side}" for i in range(5, 9) for side in "AB"}


def test_a_collective_that_does_not_need_the_dead_port_keeps_its_plane():
    topology = load_topology("optical:6,2?initial=shift1")
    few = Workload((make_collective("allreduce", topology, 4096, ranks=[0, 1, 4, 5]),))
    plan, remaining = plan_without(topology, {0: {2}}, few)
    assert verify(plan).ok
    assert remaining.planes == (0, 1)
    assert [p.tolist() for p in remaining.ports] == [[0, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5]]
    asked = []

    class Recorded:
        def turn(self, plane, turn, seconds):
            asked.append((plane, turn))

        def close(self):
            pass

    switch = RemainingSwitch(Recorded(), remaining)
    nothing = np.full(5, -1, dtype=np.int32)
    switch.turn(0, change(nothing, np.array([2, -1, 0, -1, -1], dtype=np.int32)), 0.0)
    assert asked == [(0, Change([], [[0, 3], [3, 0]], []))]


def test_without_any_plane_that_joins_all_ranks_there_is_no_plan():
    topology = load_topology("optical:4,2")
    with pytest.raises(Unsupported, match="gpu1 has no port on plane 0"):
        plan_without(topology, {0: {1}, 1: {3}}, workload(topology))
    with pytest.raises(
        Infeasible, match="without port 0 of plane 0, port 1 of plane 0, port 2 of plane 0 nothing joins"
    ):
        without(load_topology("optical:4,1"), {0: {0, 1, 2}})


def test_the_program_that_turns_a_plane_says_what_is_wrong_instead_of_up(tmp_path):
    (tmp_path / "fabric.json").write_text('{"switches": [{"plane": 7, "driver": "simulated"}]}')
    words = [sys.executable, "-m", "stretto.service.optical", SPEC, str(tmp_path / "fabric.json"), "0"]
    done = subprocess.run(words, input="", capture_output=True, text=True)
    assert done.returncode == 2
    assert "switch 0: 'plane' must be a whole number from 0 to 1, not 7" in done.stdout


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"driver": "mems"}, "fabric.json, switch 0: driver 'mems' is none of sonic, simulated"),
        ({"plane": 2}, "'plane' must be a whole number from 0 to 1"),
        ({"target": "ocs0"}, "'target' must be HOST:PORT"),
        ({"ports": {"gpu9": ["1A", "1B"]}}, "'gpu9' has no port on plane 0"),
        ({"ports": {"gpu0": ["1A", "1B"]}}, "'gpu1' needs the names of two ends"),
        ({"ports": {f"gpu{v}": ["1A", f"{v}B"] for v in range(4)}}, "an end is named twice"),
        ({"within_s": 0}, "'within_s' must be a finite number, above zero"),
        ({"light": 1}, "'light' is not known"),
    ],
)
def test_a_wrong_fabric_is_named_with_its_place(said, words):
    data = {"plane": 0, "driver": "sonic", "target": "ocs0:8080", "insecure": True} | said
    with pytest.raises(InputError) as error:
        fabric_of({"switches": [data]}, load_topology(SPEC), "fabric.json")
    assert words in str(error.value)


def test_two_switches_for_one_plane_are_refused():
    one = {"plane": 0, "driver": "simulated"}
    with pytest.raises(InputError, match="plane 0 has a switch already"):
        fabric_of({"switches": [one, one]}, load_topology(SPEC), "fabric.json")
