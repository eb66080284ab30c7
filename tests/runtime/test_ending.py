"""Several threads that end a mesh at the same time, since each has learnt of a failure."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from meshes import meshes
from stretto.lower import lower
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import PeerFailed
from stretto.planners import run_planner
from stretto.runtime import content
from stretto.runtime.mesh import Connection, Mesh
from stretto.runtime.native import engine, kernel_engine
from stretto.runtime.native.records import Wires
from stretto.runtime.wire import HEADER, Kind, decode
from stretto.topologies import load_topology

A_MOMENT_S = 0.1
"""Seconds that another thread gets to do what it must not do now."""


class Interrupted(socket.socket):
    """A socket whose first call to send lets another thread run before it returns."""

    other: threading.Thread | None = None

    def sendmsg(self, parts, *more):
        sent, other, self.other = super().sendmsg(parts, *more), self.other, None
        if other is not None:
            other.start()
            other.join(A_MOMENT_S)
        return sent


def test_two_threads_may_send_over_one_connection():
    ours, theirs = socket.socketpair()
    c = Connection(Interrupted(fileno=ours.detach()), 1)
    c.queue(b"some", b" words")
    other = c.sock.other = threading.Thread(target=lambda: (c.queue(b", and more"), c.flush()))
    c.flush()
    other.join()
    c.sock.close()
    assert theirs.makefile("rb").read() == b"some words, and more"
    assert (c.unsent_bytes, c.sent_bytes) == (0, 20)


class Slow:
    """A server that lets another thread run before it has given a mesh's connections back."""

    def __init__(self, other: threading.Thread) -> None:
        self.other = other

    def drain(self) -> None:
        pass

    def release(self, failure, gives_back=True):
        self.other.start()
        self.other.join(A_MOMENT_S)
        return ()


@pytest.mark.parametrize("late", [lambda mesh: mesh.close(), lambda mesh: mesh.abort(PeerFailed("rank 7", "no"), 7)])
def test_the_first_failure_is_told_before_another_thread_ends_the_mesh(late):
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "rank 0", 1: "rank 1"}, [Connection(ours, 1)])
    other = threading.Thread(target=late, args=[mesh])
    mesh.server = Slow(other)
    mesh.abort(PeerFailed("rank 1", "it computes nonsense"), 1)
    other.join()
    mesh.close()
    said = theirs.makefile("rb").read()
    frame = decode(said[: HEADER.size])
    assert (frame.kind, frame.row, said[HEADER.size :]) == (Kind.ABORT, 1, b"it computes nonsense")


@pytest.fixture
def loop(monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    loop = engine.Engine(kernel_engine.serve)
    yield loop
    loop.stop()


def begun(loop, mesh):
    """A run of node 0 that waits for node 1."""
    net = load_topology("fullmesh:2")
    plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 100),)))
    how = {"sizes": None, "dtype": np.uint8, "reduce": np.add, "timeout_s": 20, "call": bytes(24)}
    return loop.begin(mesh, lower(plan)[0], content.inputs(plan, [0], 0), content.outputs(plan, [0, 1]), **how)


@pytest.mark.parametrize(
    "ends", [lambda made: made[1].leave(), lambda made: made[0].abort(PeerFailed("node 1", "no"), 1),
             lambda made: made[0].close(), lambda made: made[0].take_back()],
    ids=["the loop sees it", "abort", "close", "take back"],
)  # fmt: skip
def test_who_listens_to_a_run_that_fails_may_wait_for_a_thread_that_ends_the_mesh(loop, ends):
    made, waited, heard = meshes([0, 1]), [], threading.Event()
    other = threading.Thread(target=lambda: (made[0].abort(PeerFailed("node 1", "it says no"), 1), made[0].take_back()))

    def listener():
        other.start()
        other.join(5)
        waited.append(other.is_alive())
        heard.set()

    begun(loop, made[0]).listen(listener)
    ends(made)
    assert heard.wait(20)
    for mesh in made.values():
        mesh.close()
    assert waited == [False]


def test_connections_come_back_from_the_loop_once(loop, monkeypatch):
    made, told, gave, give_back = meshes([0, 1]), threading.Event(), [], Wires.give_back
    monkeypatch.setattr(Wires, "give_back", lambda wires: (gave.append(wires), give_back(wires))[1])
    made[0].told = lambda failure: told.set()
    run = begun(loop, made[0])
    made[1].leave()
    assert run.wait(20) and isinstance(run.failure, PeerFailed)
    assert told.wait(20)
    for mesh in made.values():
        mesh.close()
    assert len(gave) == 1


class Lingering(Connection):
    """A connection by which another thread runs while its mesh waits for what it has sent."""

    other: threading.Thread | None = None

    def lingers(self) -> bool:
        other, self.other = self.other, None
        if other is not None:
            other.start()
            other.join(A_MOMENT_S)
        return super().lingers()


def test_two_threads_may_close_one_mesh():
    ours, theirs = socket.socketpair()
    mesh = Mesh(0, {0: "rank 0", 1: "rank 1"}, [c := Lingering(ours, 1)])
    other = c.other = threading.Thread(target=mesh.close)
    mesh.close()
    other.join()
    mesh.close()
    assert decode(theirs.makefile("rb").read()).kind == Kind.BYE
