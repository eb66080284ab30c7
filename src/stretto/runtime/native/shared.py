"""Connections for collectives that several groups of a process share: each group is a stream on each of them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from ...model.errors import PeerFailed
from ..mesh import GRACE_S, LINGER_S, LOOK_S, Connection, Mesh
from ..sockets import await_room
from ..wire import TEXT_BYTES
from . import kernel_layout as at
from .engine import Engine
from .kernel_engine import DROP_WIRES
from .kernel_queue import STREAM_BYTES
from .records import NOTHING_SAID, Ends, Last, Wires

AGAIN_S = 0.05
"""Seconds between two looks at whether all has been sent, at most."""


class Roads:
    """The connections of one group to all of its ranks, which later groups of some of these ranks use, too.

    Args:
        connections: by the number of the rank in the world.
        measured: whether the group has found that there is nothing to measure.
    Attributes:
        closed: called when the last group has left.
    """

    def __init__(self, engine: Engine, connections: Mapping[int, Connection], measured: bool = False) -> None:
        self.engine, self.measured, self.owner = engine, measured, os.getpid()
        self.connections = dict(connections)
        self.wires = Wires([*self.connections.values()], STREAM_BYTES)
        self.closed: Callable[[], None] = _nothing
        self._users, self._lock = 1, threading.RLock()
        self._ends: list[Ends] = []

    def hold(self) -> bool:
        """Keep the connections for another group; False if they are closed."""
        with self._lock:
            if self._users == 0 or self.engine.broken is not None:
                return False
            self._users += 1
            return True

    def enter(self, ends: Ends) -> None:
        """Keep the records of a group's streams until the loop has left them."""
        with self._lock:
            self._ends = [*(e for e in self._ends if not e.gone), ends]

    def release(self, lingers: bool) -> None:
        """One group uses the connections no more. The last one closes them, when all that was sent has come if it
        ``lingers``."""
        with self._lock:
            self._users -= 1
            if self._users or self.owner != os.getpid():
                return
        self.closed()
        self._leave(LINGER_S if lingers else GRACE_S)
        connections = self.connections.values()
        for c in connections:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + LINGER_S
        while lingers and sum(c.lingers() for c in connections) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        for c in connections:
            c.sock.close()

    def _leave(self, within_s: float) -> None:
        """Let the loop leave the connections when all has been sent that waits, or after a time."""
        until = time.monotonic() + within_s
        while True:
            now = time.monotonic() >= until
            asked = self.engine.ask(DROP_WIRES, [len(self.wires.rows), now, 0, *self.wires.place.values()])
            if now or not asked[3]:
                return
            await_room((c.sock for c in self.wires.connections), min(AGAIN_S, until - time.monotonic()))


class SharedMesh(Mesh):
    """A group's mesh over connections that groups share; it holds them until it is left.

    Args:
        ranks: by the group's node the number of each other rank in the world.
        numbers: as of :class:`.Ends`.
    """

    def __init__(
        self, node: int, names: Mapping[int, str], roads: Roads, ranks: Mapping[int, int],
        numbers: tuple[int, Mapping[int, int]],
    ) -> None:  # fmt: skip
        over = {v: roads.connections[rank] for v, rank in ranks.items()}
        same = {Connection(c.sock, v): roads.wires.place[c] for v, c in over.items()}
        super().__init__(node, names, [*same])
        self._roads, self._holds = roads, threading.Lock()
        self._ends = roads.engine.adopt(self, same, numbers)
        roads.enter(self._ends)

    def take_back(self) -> None:
        """Let the loop serve the group no more."""
        self._end(NOTHING_SAID)

    def finish(self) -> None:
        """Python's loop cannot serve one group of several."""
        raise self.failure or PeerFailed(self.name(self.node), "the compiled loop has ended")

    def abort(self, failure: PeerFailed, culprit: int) -> None:
        if self._roads.engine.defer(self.abort, failure, culprit):
            return
        listeners: Sequence[Callable[[], None]] = ()
        with self.ending:
            if self.failure is None:
                self.failure = failure
                text = failure.reason + (f", in {failure.transfer}" if failure.transfer else "")
                listeners = self._say_last(Last(at.SAY_ABORT | at.SAY_LEAVE, culprit, text.encode()[:TEXT_BYTES]))
        for call in listeners:
            call()

    def leave(self) -> None:
        self.failure = self.failure or PeerFailed(self.name(self.node), "it left")
        if not self._roads.engine.defer(self.leave):
            for call in self._say_last(NOTHING_SAID):  # without waiting for a thread that ends the mesh
                call()
            self._release(lingers=False)

    def close(self) -> None:
        if self._roads.engine.defer(self.close):
            return
        self._end(Last(at.SAY_BYE | at.SAY_LEAVE))
        self._release(lingers=True)

    def _end(self, last: Last) -> None:
        """Leave the loop; the streams say ``last`` if nothing has failed."""
        with self.ending:
            listeners = self._say_last(last if self.failure is None else NOTHING_SAID)
        for call in listeners:
            call()

    def _say_last(self, last: Last) -> Sequence[Callable[[], None]]:
        """Let the loop serve the group no more; returns the listeners of runs that fail."""
        server, self.server = self.server, None
        return () if server is None else self._roads.engine.release(self._ends, self.failure, last)

    def _release(self, lingers: bool) -> None:
        if self._holds.acquire(blocking=False):  # once, and for ever
            self._roads.release(lingers)


def _nothing() -> None:
    pass
