"""Run one program over a mesh: send what is ready, receive what arrives, and watch the peers.

The loop never blocks on one peer: all sockets are non-blocking and one selector waits for all of them. If a peer is
a run ahead, nothing more is read from it until this process begins that run too. Every process regularly says that it
is alive. A process that has been silent for ``timeout_s`` and has not finished is at fault, however many others wait
for each other because of it.
"""

from __future__ import annotations

import heapq
import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..lower import Program
from ..model.errors import PeerFailed
from .buffers import Array, Buffers, as_bytes
from .incoming import PATIENCE_S, Incoming
from .mesh import Connection, Mesh
from .pacing import Outgoing, Queue, paces
from .wire import Kind, encode

PINGS = 4
"""Pings in the time for which a peer may be silent."""


@dataclass
class Trace:
    """When each row was sent or received at this node, seconds from the start of the run.

    Attributes:
        sent_s, gone_s: when the first and the last byte were given to the network.
        coming_s, arrived_s: when the first byte arrived, and when the whole row had.
        by_kernel: whether the kernel paced connections.
    """

    sent_s: dict[int, float] = field(default_factory=dict)
    gone_s: dict[int, float] = field(default_factory=dict)
    coming_s: dict[int, float] = field(default_factory=dict)
    arrived_s: dict[int, float] = field(default_factory=dict)
    by_kernel: bool = False


def execute(
    mesh: Mesh,
    program: Program,
    inputs: Mapping[int, Array],
    outputs: Mapping[int, Array],
    *,
    sizes: NDArray[np.int64] | None = None,
    dtype: Any = np.uint8,
    reduce: Callable[..., Any] = np.add,
    timeout_s: float = 60.0,
    pace: float | None = None,
    started_at: float | None = None,
    delays: Mapping[int, float] | None = None,
) -> Trace:
    """Run a program to its end: when this returns, every output is complete.

    Args:
        inputs, outputs: for each chunk that the node holds or wants a contiguous one-dimensional array; an
            input that is not also the output is never written.
        sizes: bytes of each chunk, the workload's by default; every node must give the same.
        timeout_s: seconds for which a peer that has not finished may be silent.
        pace: seconds of real time for one second of the plan: starts and rates are kept, scaled by it. None runs
            as fast as dependencies and the network allow.
        started_at: the value of time.monotonic() at the plan's time 0; now by default.
        delays: for some rows the seconds between their last byte and their arrival, on a network without delay.
    Raises:
        PeerFailed: a peer died, stalled or broke the protocol; names the peer and the transfer. The mesh
            cannot be used again.
    """
    if mesh.failure is not None:
        raise mesh.failure
    chunk_bytes = program.plan.workload.chunk_bytes if sizes is None else sizes
    mesh.runs += 1
    buffers = Buffers(program, inputs, outputs, chunk_bytes, dtype, reduce, mesh.pool)
    start = time.monotonic() if started_at is None else started_at
    run = Run(mesh, program, buffers, timeout_s, pace, start, delays or {})
    try:
        run.loop()
    except PeerFailed as failure:
        mesh.abort(failure, run.culprit)
        raise
    except BaseException:
        mesh.abort(PeerFailed(mesh.name(mesh.node), "it was interrupted"), mesh.node)
        raise
    finally:
        run.selector.close()
    buffers.finish()
    return run.trace


@dataclass
class Run:
    """The state of a program that is running."""

    mesh: Mesh
    program: Program
    buffers: Buffers
    timeout_s: float
    pace: float | None
    start: float
    delays: Mapping[int, float]

    def __post_init__(self) -> None:
        program = self.program
        self.number, self.culprit = self.mesh.runs, self.mesh.node
        self.peers = {p: self.mesh.connections[p] for p in program.peers}
        self.trace = Trace()
        for c in self.peers.values():
            by_kernel = self.pace is not None and paces(c.sock)
            self.trace.by_kernel |= by_kernel
            c.begin(Queue(program.plan.sharing == "fair", c.sock if by_kernel else None))
        self.waits = dict(program.waits)
        self.unsent = {(row, peer) for row, send in program.sends.items() for peer in send.to}
        self.signals = {key for key in program.wakes if key[1] != program.node}
        self.events = set(program.events)
        self.timers: list[tuple[float, int, Callable[[int], None]]] = []
        self.selector = selectors.DefaultSelector()
        self.said_done = False
        self.incoming = Incoming(self)

    # --- the loop ---------------------------------------------------------------------------------

    def loop(self) -> None:
        """Run until everything is received and sent, and every peer knows it."""
        now = time.monotonic()
        if self.mesh.condemned is not None:
            self.fail(*self.mesh.condemned)
        for peer, c in self.peers.items():
            if c.closed is not None and c.done < self.number:
                self.fail(peer, c.closed)
            self.watch(c)
        self.buffers.begin()
        for row, count in self.waits.items():
            if count == 0:
                self._ready(row)
        # only now: an empty transfer has arrived with its header, which may release transfers that wait for it
        for c in self.peers.values():
            if c.ahead is not None and c.ahead.run == self.number:
                frame, c.ahead = c.ahead, None
                self.incoming.take(c, frame)
        next_ping = now + self.timeout_s / PINGS
        while not self._finished():
            now = time.monotonic()
            self._fire(now)
            if now >= next_ping:
                next_ping = now + self.timeout_s / PINGS
                self._watch_peers(now)
            wake = min((next_ping, *(t[0] for t in self.timers[:1]), *self._write_all(now)))
            if self._finished():
                break
            wait_s = max(0.0, wake - time.monotonic())
            parked = any(c.parked is not None for c in self.peers.values())
            awake = self.selector.select(min(wait_s, PATIENCE_S) if parked else wait_s)
            for key, mask in awake:
                c = self.peers[key.data]
                if mask & selectors.EVENT_WRITE:
                    c.blocked = False
                if mask & selectors.EVENT_READ:
                    self.incoming.read(c)
            if not awake:
                self.incoming.unpark()

    def pending(self) -> bool:
        """Whether a row is still to be received, sent or executed, or a signal is missing."""
        return bool(self.incoming.missing or self.unsent or self.signals or self.events)

    def _finished(self) -> bool:
        if self.pending():
            return False
        if not self.said_done:
            self.said_done = True
            for c in self.peers.values():
                c.queue(encode(Kind.DONE, self.number))
                c.flush()
        return not any(c.unsent and c.closed is None for c in self.peers.values())

    def later(self, at: float, row: int, call: Callable[[int], None]) -> None:
        """Call ``call(row)`` at a moment of the monotonic clock."""
        heapq.heappush(self.timers, (at, row, call))

    def _fire(self, now: float) -> None:
        """Make the calls whose moment has come."""
        while self.timers and self.timers[0][0] <= now:
            _, row, call = heapq.heappop(self.timers)
            call(row)

    def _watch_peers(self, now: float) -> None:
        """Tell the peers that this process is alive, and fail if one of them has been silent for too long."""
        for c in self.peers.values():
            if c.closed is None and not c.unsent:
                c.queue(encode(Kind.PING, self.number))
            if c.done < self.number and now - c.heard_at > self.timeout_s:
                self.fail(c.peer, f"it has said nothing for {self.timeout_s:g} s")

    # --- what happens ----------------------------------------------------------------------------

    def _ready(self, row: int) -> None:
        """Begin a row whose dependencies have all happened; a paced row waits for its start time."""
        now = time.monotonic()
        step = self.program.sends.get(row) or self.program.events[row]
        at = self.start + step.start_s * self.pace if self.pace is not None else now
        if at > now:
            self.later(at, row, self._begin)
        else:
            self._begin(row)

    def _begin(self, row: int) -> None:
        now = time.monotonic()
        if row in self.program.events:
            seconds = self.program.events[row].seconds * (1.0 if self.pace is None else self.pace)
            self.trace.sent_s[row] = now - self.start
            self.later(now + seconds, row, self._end_event)
            return
        send = self.program.sends[row]
        content = self.buffers.content(send.chunk, send.version)
        rate = np.inf if self.pace is None else send.rate / self.pace
        for peer in send.to:
            self.peers[peer].outgoing.waiting.append(Outgoing(row, as_bytes(content), rate, send.priority, now))

    def _end_event(self, row: int) -> None:
        self.events.discard(row)
        self.happened(row, self.program.node)

    def happened(self, row: int, place: int) -> None:
        """Release the rows that wait for this row, and signal the nodes where others wait."""
        self.trace.arrived_s.setdefault(row, time.monotonic() - self.start)
        if place == self.program.node:
            for peer in self.program.signals.get(row, ()):
                self.peers[peer].queue(encode(Kind.SIGNAL, self.number, row))
        for waiting in self.program.wakes.get((row, place), ()):
            self.waits[waiting] -= 1
            if self.waits[waiting] == 0:
                self._ready(waiting)

    # --- writing ---------------------------------------------------------------------------------

    def _write_all(self, now: float) -> list[float]:
        """Send what may be sent now; returns the moments at which paced transfers may go on."""
        later = []
        for peer, c in self.peers.items():
            while c.closed is None and not c.broken and not c.blocked:
                if not c.unsent and not self._next_segment(c, now):
                    break
                c.flush()
                c.blocked = bool(c.unsent)
                if not c.blocked and not c.broken:
                    self._segment_sent(c)
            if c.closed is not None and c.done < self.number and self.pending():
                self.fail(peer, c.closed)
            self.watch(c)
            if not c.unsent and c.outgoing.wake_at < np.inf:
                later.append(c.outgoing.wake_at)
        return later

    def _next_segment(self, c: Connection, now: float) -> bool:
        """Put a segment of the transfer whose turn it is on its way; False if none may go now."""
        segment = c.outgoing.next(now)
        if segment is None:
            return False
        out, piece = segment
        self.trace.sent_s.setdefault(out.row, now - self.start)
        c.queue(encode(Kind.DATA, self.number, out.row, len(piece)))
        if len(piece):
            c.unsent.append(piece)
        c.outgoing.under_way = out
        return True

    def _segment_sent(self, c: Connection) -> None:
        out, c.outgoing.under_way = c.outgoing.under_way, None
        if out is not None and out.finished:
            send = self.program.sends[out.row]
            self.trace.gone_s[out.row] = time.monotonic() - self.start
            self.buffers.slots[send.chunk].release(send.version)
            self.unsent.discard((out.row, c.peer))

    def watch(self, c: Connection) -> None:
        """Register with the selector the events that this connection now waits for."""
        if c.closed is not None:
            return
        events = (0 if c.stopped else selectors.EVENT_READ) | (selectors.EVENT_WRITE if c.unsent else 0)
        before, c.events = c.events, events
        if not before and events:
            self.selector.register(c.sock, events, c.peer)
        elif before and not events:
            self.selector.unregister(c.sock)
        elif before != events:
            self.selector.modify(c.sock, events, c.peer)

    # --- failing ---------------------------------------------------------------------------------

    def closed(self, c: Connection, why: str) -> None:
        """Handle a closed connection: a failure if something is still expected from that peer."""
        c.closed = why
        if c.events:
            self.selector.unregister(c.sock)
            c.events = 0
        if self.pending() and (c.done < self.number or self._needs(c.peer)):
            self.fail(c.peer, why)

    def _needs(self, peer: int) -> bool:
        """Whether something is still to be received from a peer, or to be sent to it."""
        return (
            any(to == peer for _, to in self.unsent)
            or any(source == peer for _, source in self.signals)
            or any(not self.incoming.is_complete(row) for row in self.incoming.missing_from(peer))
        )

    def fail(self, peer: int, reason: str, row: int | None = None) -> NoReturn:
        """Give up because of a peer, naming a transfer that cannot complete."""
        self.culprit = peer
        of_peer = [*self.incoming.missing_from(peer), *sorted(r for r, to in self.unsent if to == peer)]
        others = [*sorted(self.incoming.missing), *sorted(r for r, _ in self.unsent), *sorted(self.waits)]
        rows = [row] if row is not None else [*of_peer, *others]
        raise PeerFailed(self.mesh.name(peer), reason, self.program.describe(rows[0]) if rows else None)
