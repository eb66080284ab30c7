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

    def release(self, failure, gives_back=True) -> None:
        self.other.start()
        self.other.join(A_MOMENT_S)


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


def test_connections_come_back_from_the_loop_once(monkeypatch):
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    loop, made, told, gave = engine.Engine(kernel_engine.serve), meshes([0, 1]), threading.Event(), []
    net, give_back = load_topology("fullmesh:2"), Wires.give_back
    plan = run_planner("shortest-path", net, Workload((make_collective("allgather", net, 100),)))
    monkeypatch.setattr(Wires, "give_back", lambda wires: (gave.append(wires), give_back(wires))[1])
    made[0].told = lambda failure: told.set()
    how = {"sizes": None, "dtype": np.uint8, "reduce": np.add, "timeout_s": 20, "call": bytes(24)}
    run = loop.begin(made[0], lower(plan)[0], content.inputs(plan, [0], 0), content.outputs(plan, [0, 1]), **how)
    made[1].leave()
    assert run.wait(20) and isinstance(run.failure, PeerFailed)
    assert told.wait(20)
    for mesh in made.values():
        mesh.close()
    loop.stop()
    assert len(gave) == 1
