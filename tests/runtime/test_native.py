"""The compiled loop: it does what the Python loop does, without Python's lock, in one thread for all groups."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import threading
import weakref

import numpy as np
import pytest
from test_back_to_back import (  # noqa: F401  they run by the compiled loop here
    test_a_frame_of_other_chunks_than_are_due_is_refused,
    test_a_peer_that_dies_amid_a_frame_of_several_chunks_is_named,
)
from test_failures import (  # noqa: F401  they run by the compiled loop here
    test_a_peer_fails_if_one_of_its_subflows_does,
    test_a_row_comes_on_its_own_subflow,
    test_a_subflow_may_end_before_another_one_does,
    test_messages_say_what_was_wrong_with_a_frame,
    test_whatever_a_peer_sends_it_is_at_fault_and_nothing_is_complete,
)

from meshes import meshes
from stretto import kernels
from stretto.lower import lower
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import PeerFailed
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.execute import execute
from stretto.runtime.gate import Gate
from stretto.runtime.mesh import Connection, Mesh
from stretto.runtime.native import engine, kernel_engine
from stretto.runtime.native import kernel_layout as at
from stretto.runtime.native.machine import BFLOAT16, NUMBERS
from stretto.runtime.native.records import WORD
from stretto.runtime.wire import Frame, Kind
from stretto.schedule.collecting import collected
from stretto.topologies import load_topology

RANKS = 3


@pytest.fixture(scope="module", autouse=True)
def loop():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRETTO_KERNELS", "compiled")
        held = engine.hold()
    yield held
    engine.let_go()


@pytest.fixture
def connected():
    made = meshes(list(range(RANKS)))
    yield made
    for mesh in made.values():
        mesh.close()


def test_every_byte_of_messages_of_several_chunks_is_right(loop, connected):
    net = load_topology(f"fullmesh:{RANKS}?message=20us")
    plan = collected(run_planner("shortest-path", net, Workload((make_collective("alltoall", net, 3000, chunks=4),))))
    assert plan is not None and plan.message is not None
    runs, outputs = begin(loop, connected, plan)
    assert all(run.wait(20) and run.failure is None for run in runs)
    assert [content.wrong_chunks(plan, outputs[v]) for v in outputs] == [[]] * RANKS


def test_a_frame_of_several_rows_that_came_before_its_run_goes_from_loop_to_loop(loop):
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "gpu0", 1: "gpu1"}, [Connection(ours, 1)])
    came = Frame(Kind.DATA, 1, 5, 300, bytes(range(24)), 300, 0, 2)
    mesh.connections[0].ahead = came
    loop.adopt(mesh)
    mesh.take_back()
    assert mesh.connections[0].ahead == came
    mesh.close()
    theirs.close()


def plan_of(kind: str, size: int, planner: str = "shortest-path"):
    net = load_topology(f"fullmesh:{RANKS}")
    return run_planner(planner, net, Workload((make_collective(kind, net, size),)))


def begin(loop, made, plan, dtype=np.uint8, reduce=np.add, data=None):
    """A run at each rank, and what each ends with."""
    programs, outputs, runs = lower(plan), {}, []
    for v, mesh in made.items():
        steps = programs[v].steps
        inputs = content.inputs(plan, steps.held, v) if data is None else data[v]
        outputs[v] = content.outputs(plan, steps.wanted) if data is None else {c: data[v][c] for c in steps.wanted}
        how = {"sizes": None, "dtype": dtype, "reduce": reduce, "timeout_s": 20, "call": bytes(24)}
        runs.append(loop.begin(mesh, programs[v], inputs, outputs[v], **how))
    return runs, outputs


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reducescatter", "alltoall", "broadcast"])
@pytest.mark.parametrize("size", [3, 3000, 3_000_000])
def test_every_byte_is_right(kind, size, loop, connected):
    plan = plan_of(kind, size)
    runs, outputs = begin(loop, connected, plan)
    assert all(run.wait(20) and run.failure is None for run in runs)
    assert [content.wrong_chunks(plan, outputs[v]) for v in outputs] == [[]] * RANKS


def test_runs_end_while_a_thread_keeps_pythons_lock(loop, connected):
    plan = plan_of("allreduce", 3000)
    for run in begin(loop, connected, plan)[0]:  # its words are made
        run.wait()
    runs, _ = begin(loop, connected, plan)
    for run in runs:
        assert ctypes.PyDLL(None).poll(run._slot.poll, 1, 20_000) == 1  # waits for the end with the lock
        assert run.ended and run.failure is None


@pytest.mark.parametrize("kind", [*NUMBERS, np.uint8, np.uint64, np.float16, np.complex64])
def test_sums_are_those_of_numpy_in_a_fixed_order(kind, loop, connected):
    plan = plan_of("allreduce", 3 * 800, "ring")
    chunks = range(plan.workload.chunk_count)
    size = {c: int(plan.workload.chunk_bytes[c]) // np.dtype(kind).itemsize for c in chunks}
    given = {
        v: {c: np.random.default_rng((v, c)).integers(0, 90, size[c]).astype(kind) for c in chunks}
        for v in range(RANKS)
    }
    due = {c: sum(given[v][c] for v in range(RANKS)) for c in chunks}
    runs, outputs = begin(loop, connected, plan, kind, data=given)
    assert all(run.wait(20) and run.failure is None for run in runs)
    for v in range(RANKS):
        assert all(np.array_equal(outputs[v][c], due[c].astype(kind)) for c in chunks)


def test_a_sum_that_raises_an_exception_fails_the_run_and_the_groups(loop, connected, monkeypatch):
    def reduce(a, b, out):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(loop.sums, "error", None)  # and None again afterwards
    runs, _ = begin(loop, connected, plan_of("allreduce", 3 * 800, "ring"), np.complex64, reduce)
    for run in runs:
        with pytest.raises(PeerFailed, match="a sum failed \\(ZeroDivisionError: a bug\\)"):
            run.result()
    for thread in loop._helpers:
        thread.join(20)
    assert all(mesh.failure is not None for mesh in connected.values())


def test_bfloat16_is_rounded_as_pytorch_rounds():
    torch = pytest.importorskip("torch")
    from stretto.torch.tensors import OPS, reducer

    reduce = reducer(OPS.SUM, torch.bfloat16)
    assert reduce.compiled == BFLOAT16
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16)
    a, b = every, every.flip(0).roll(12345)
    made = torch.empty(len(a), dtype=torch.int16)
    plan = plan_of("reduce", 2 * len(a))
    pair = {0: a, 1: b, 2: torch.zeros_like(a)}
    data = {v: {0: t.view(torch.int16).numpy().copy()} for v, t in pair.items()}
    made_at = meshes(list(range(RANKS)))
    with_loop = engine.running()
    assert with_loop is not None
    runs, outputs = begin(with_loop, made_at, plan, np.int16, reduce, data)
    assert all(run.wait(20) and run.failure is None for run in runs)
    for mesh in made_at.values():
        mesh.close()
    made = torch.from_numpy(outputs[0][0]).view(torch.bfloat16)
    assert torch.equal(made.nan_to_num(7.0), (a + b + 0.0).nan_to_num(7.0))


def test_python_and_compiled_code_take_turns_on_one_mesh(loop, connected):
    plan = plan_of("allreduce", 3000)
    programs = lower(plan)

    def one(v: int, gate: Gate | None) -> list[int]:
        outputs = content.outputs(plan, programs[v].steps.wanted)
        execute(connected[v], programs[v], content.inputs(plan, programs[v].steps.held, v), outputs, gate=gate)
        return content.wrong_chunks(plan, outputs)

    for in_python in (False, True, False, False, True):
        found: list[list[int]] = []
        gates = [Gate() if in_python else None for _ in range(RANKS)]
        threads = [threading.Thread(target=lambda v=v: found.append(one(v, gates[v]))) for v in range(RANKS)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[]] * RANKS


def test_a_run_of_a_group_that_has_failed_fails_at_once(loop, connected):
    plan = plan_of("allgather", 3000)
    runs, _ = begin(loop, connected, plan)
    for run in runs:
        run.wait()
    connected[0].leave()
    program = lower(plan)[0]
    with pytest.raises(PeerFailed, match="it left"):
        execute(connected[0], program, content.inputs(plan, [0], 0), content.outputs(plan, [0, 1, 2]))
    runs[0].block[at.STATUS // WORD] = 0  # the words of a run that was begun again
    loop.submit(runs[0], 3, 0, 1, 20.0, bytes(24))
    assert runs[0].wait(20) and isinstance(runs[0].failure, PeerFailed)


def test_one_thread_serves_the_collectives_of_all_groups(loop, monkeypatch):
    torch = pytest.importorskip("torch")
    from datetime import timedelta

    from stretto.torch import pending
    from stretto.torch.group import StrettoGroup

    monkeypatch.setattr(pending, "IDLE_S", 0.01)
    before = set(threading.enumerate())
    groups = []
    for _ in range(4):
        store = torch.distributed.HashStore()
        groups += [StrettoGroup(store, r, RANKS, list(range(RANKS)), timedelta(seconds=20)) for r in range(RANKS)]
    for work in [g.barrier() for g in groups]:
        work.wait()
    orders = [t for t in threading.enumerate() if t.name in {f"stretto-{r}" for r in range(RANKS)}]
    for thread in orders:
        thread.join(10)
    names = [t.name for t in set(threading.enumerate()) - before if not t.name.startswith("plans")]
    for group in groups:
        group.abort()
    assert names == ["stretto-messages"], names
    assert sum(t.name == "stretto" for t in before) == 1


def test_nobody_waits_for_a_loop_that_was_never_compiled(monkeypatch):
    started = []
    monkeypatch.setattr(engine, "_ENGINE", None)
    monkeypatch.setattr(engine.machine_code, "load", lambda: None)
    monkeypatch.setattr(engine.compiling, "ready", lambda *_: False)
    monkeypatch.setattr(engine.compiling, "keeps", lambda kernel: kept)
    monkeypatch.setattr(engine.compiling.subprocess, "Popen", lambda command, **_: started.append(command))
    monkeypatch.setattr(engine.compiling, "_STARTED", [])
    monkeypatch.delenv("STRETTO_KERNELS", raising=False)
    kept = False
    assert engine.hold() is None and not started  # the next process would have to compile it again
    kept = True
    assert engine.hold() is None and engine.hold() is None
    assert [command[-1] for command in started] == [engine.compiling.__name__]
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    assert engine.hold() is None and len(started) == 1


def test_code_is_kept_where_its_folder_can_be_written(tmp_path, monkeypatch):
    folder = kernels._inner(kernel_engine.__name__).serve._cache
    assert kernels.keeps(kernel_engine.serve)
    monkeypatch.setattr(type(folder), "cache_path", property(lambda _: str(tmp_path / "missing")))
    assert not kernels.keeps(kernel_engine.serve)


def test_a_group_may_be_collected_in_the_thread_of_the_loop(loop, connected):
    other = meshes(list(range(RANKS)))
    for mesh in other.values():
        loop.ends_of(mesh)

    def sums(a, b, out):
        while other:
            other.popitem()[1].leave()  # waits for the loop, were it another thread
        np.add(a, b, out=out)

    plan = plan_of("allreduce", 3 * 800, "ring")
    runs, _ = begin(loop, connected, plan, np.float64, sums)
    assert all(run.wait(30) for run in runs)
    assert not other


def test_nobody_loads_the_loop_for_protected_frames(monkeypatch):
    torch = pytest.importorskip("torch")
    from datetime import timedelta

    from stretto.runtime import connect
    from stretto.torch import links
    from stretto.torch.group import StrettoGroup

    held = []
    monkeypatch.setenv("STRETTO_TOPOLOGY", "fullmesh:2")
    monkeypatch.setenv("STRETTO_FRAMES", "authenticated")
    monkeypatch.setattr(connect, "machine", lambda: None)  # TCP
    monkeypatch.setattr(links, "hold", lambda: held.append(1))
    store = torch.distributed.HashStore()
    groups = [StrettoGroup(store, r, 2, [0, 1], timedelta(seconds=20)) for r in range(2)]
    for work in [g.barrier() for g in groups]:
        work.wait()
    for group in groups:
        group.abort()
    assert not held


def test_one_process_compiles_the_loop_and_others_end(monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "hold", lambda: asked.append(1))
    monkeypatch.setattr(engine.compiling.os, "nice", lambda _: 0)
    with open(engine.compiling.__file__) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        engine.compiling.main()
        assert not asked
    engine.compiling.main()
    assert asked


def test_a_compressed_sum_has_what_collectives_before_it_gave(loop, monkeypatch):
    torch = pytest.importorskip("torch")
    from datetime import timedelta

    from stretto.torch.group import StrettoGroup
    from stretto.torch.pending import Started

    store, groups = torch.distributed.HashStore(), []
    for r in range(2):
        monkeypatch.setenv("STRETTO_SITE", f"site {r}")
        groups.append(StrettoGroup(store, r, 2, [0, 1], timedelta(seconds=20)))
    for work in [g.allreduce([torch.ones(500)]) for g in groups]:
        work.wait()
    for work in [g.compressed.allreduce([torch.ones(500)], "int8") for g in groups]:
        work.wait()
    tensors, works = [torch.full((500,), 3.0) for _ in groups], []
    for g, t in zip(groups, tensors):
        works += [g.allreduce([t]), g.compressed.allreduce([t], "int8")]
        threading.Event().wait(0.1)  # the first rank is early: what it gives at once is not summed yet
    assert isinstance(works[0], Started) and groups[0].compressed._sites() == [[0], [1]]
    for work in works:
        work.wait()
    assert all(torch.allclose(t, torch.tensor(12.0), rtol=0.02) for t in tensors)
    for group in groups:
        group.abort()


@pytest.fixture
def interpreted(monkeypatch):
    """The same loop, interpreted, so that its functions can be watched; and what begins a run at each of two ranks."""
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    own, net, made = engine.Engine(kernel_engine.serve), load_topology("fullmesh:2"), meshes([0, 1])
    plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 100),)))
    yield own, lambda: begin(own, made, plan)[0]
    for mesh in made.values():
        mesh.close()
    own.stop()


def test_a_run_lives_until_the_loop_has_told_of_its_end(interpreted, monkeypatch):
    _, begin_all = interpreted
    wake, ended, go_on = kernel_engine.wake, threading.Event(), threading.Event()

    def late(loop: int, descriptor: int) -> None:
        ended.set()
        assert go_on.wait(20)
        wake(loop, descriptor)

    monkeypatch.setattr(kernel_engine, "wake", late)
    runs = begin_all()
    assert ended.wait(20)
    (which,) = [i for i, run in enumerate(runs) if run.ended]  # the loop is about to tell of this one
    first = weakref.ref(runs.pop(which))
    more = begin_all()
    alive = first() is not None
    go_on.set()
    assert alive and all(run.wait(20) for run in [*runs, *more])


def test_commands_are_obeyed_after_what_has_come_was_read(interpreted, monkeypatch):
    # a command may drop the group whose sockets have events, too
    own, begin_all = interpreted
    for run in begin_all():
        assert run.wait(20)
    calls: list[str] = []
    waiting, go_on, obeyed = threading.Event(), threading.Event(), threading.Event()
    originals = {name: getattr(kernel_engine, name) for name in ("wait", "obey", "read")}

    def noted(name: str):
        def call(*arguments):
            if name == "wait" and not go_on.is_set():
                waiting.set()
                assert go_on.wait(20)
            calls.append(name)
            if name == "obey" and go_on.is_set():
                obeyed.set()
            return originals[name](*arguments)

        return call

    for name in originals:
        monkeypatch.setattr(kernel_engine, name, noted(name))
    mesh = next(iter(own._ends.values())).mesh
    no_group = np.array([-1, own.events.take()], dtype=np.int64)
    own._say(kernel_engine.DROP_GROUP, no_group.ctypes.data)
    assert waiting.wait(20)
    calls.clear()
    own._say(kernel_engine.DROP_GROUP, no_group.ctypes.data)
    mesh.connections[0].sock.send(bytes(8))  # the beginning of a header
    go_on.set()
    assert obeyed.wait(20)
    before = calls[: calls.index("obey")]
    assert before[0] == "wait" and {*before[1:]} == {"read"}  # the other rank may send frames, too


def test_a_forked_process_leaves_the_loop_alone(loop, connected):
    plan = plan_of("allgather", 3000)
    runs, _ = begin(loop, connected, plan)
    for run in runs:
        run.wait()
    event, ends = loop.events.take(), runs[0].ends
    os.eventfd_write(event, 1)
    child = os.fork()
    if child == 0:
        try:
            loop.events.give(event)
            loop.release(ends, None)
            loop._say(kernel_engine.STOP, 0)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    poll = select.poll()
    poll.register(event, select.POLLIN)
    assert poll.poll(0), "the event has been taken"
    loop.events.give(event)
    runs, outputs = begin(loop, connected, plan)
    assert all(run.wait(20) and run.failure is None for run in runs)
    assert [content.wrong_chunks(plan, outputs[v]) for v in outputs] == [[]] * RANKS
