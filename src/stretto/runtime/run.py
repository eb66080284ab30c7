"""The loop that runs one program: sends what is ready, receives what comes, and watches the peers.

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
from typing import NoReturn

import numpy as np

from ..lower import Program
from ..model.errors import PeerFailed
from .buffers import Buffers, as_bytes
from .incoming import PATIENCE_S, Incoming
from .mesh import Connection, Mesh
from .pacing import Outgoing, Queue, paces
from .trace import Trace
from .wire import Kind, encode


class Run:
    """The state of a program that is running."""

    def __init__(
        self,
        mesh: Mesh,
        program: Program,
        buffers: Buffers,
        timeout_s: float,
        pace: float | None,
        at: float | None,
        delays: Mapping[int, float],
    ) -> None:
        self.mesh, self.program, self.buffers = mesh, program, buffers
        self.timeout_s, self.pace, self.delays = timeout_s, pace, delays
        self.number = mesh.runs
        self.start = time.monotonic() if at is None else at
        self.trace = Trace()
        self.culprit = mesh.node
        self.waits = dict(program.waits)
        self.peers = {p: mesh.connections[p] for p in program.peers}
        by_kernel = {p: c.sock for p, c in self.peers.items() if pace is not None and paces(c.sock)}
        self.queues = {p: Queue(program.plan.sharing == "fair", by_kernel.get(p)) for p in self.peers}
        self.trace.by_kernel = bool(by_kernel)
        self.blocked: set[int] = set()
        self.watched = dict.fromkeys(self.peers, 0)
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
            c.heard_at = now
            if c.closed is not None and c.done < self.number:
                self.fail(peer, c.closed)
            self.watch(c)
        self.buffers.begin()
        for row, count in self.waits.items():
            if count == 0:
                self._ready(row)
        # only now: an empty transfer has arrived with its header, which may release transfers that wait for it
        for peer, frame in list(self.mesh.waiting.items()):
            if peer in self.peers and frame.run == self.number:
                del self.mesh.waiting[peer]
                self.incoming.take(self.peers[peer], frame)
            elif peer in self.peers:
                self.watch(self.peers[peer])
        next_ping = now + self.timeout_s / 4
        while not self._finished():
            now = time.monotonic()
            self._fire(now)
            if now >= next_ping:
                next_ping = now + self.timeout_s / 4
                self._watch_peers(now)
            wake = min((next_ping, *(t[0] for t in self.timers[:1]), *self._write_all(now)))
            if self._finished():
                break
            wait_s = max(0.0, wake - time.monotonic())
            awake = self.selector.select(min(wait_s, PATIENCE_S) if self.incoming.parked else wait_s)
            for key, mask in awake:
                c = self.peers[key.data]
                if mask & selectors.EVENT_WRITE:
                    self.blocked.discard(c.peer)
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

    def later(self, at: float, row: int, what: Callable[[int], None]) -> None:
        """Call ``what(row)`` at a moment of the monotonic clock."""
        heapq.heappush(self.timers, (at, row, what))

    def _fire(self, now: float) -> None:
        """Make the calls whose moment has come."""
        while self.timers and self.timers[0][0] <= now:
            _, row, what = heapq.heappop(self.timers)
            what(row)

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
        asked = self.program.sends[row].start_s if row in self.program.sends else self.program.events[row].start_s
        at = self.start + asked * self.pace if self.pace is not None else now
        if at > now:
            self.later(at, row, self._begin)
        else:
            self._begin(row)

    def _begin(self, row: int) -> None:
        now = time.monotonic()
        if row in self.program.events:
            seconds = self.program.events[row].seconds * (1.0 if self.pace is None else self.pace)
            self.trace.sent_s[row] = now - self.start
            self.later(now + seconds, row, self._turned)
            return
        send = self.program.sends[row]
        content = self.buffers.content(send.chunk, send.version)
        rate = np.inf if self.pace is None else send.rate / self.pace
        for peer in send.to:
            self.queues[peer].put(Outgoing(row, as_bytes(content), rate, send.priority, now))

    def _turned(self, row: int) -> None:
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
            queue = self.queues[peer]
            while c.closed is None and not c.broken and peer not in self.blocked:
                if not c.unsent:
                    segment = queue.next(now)
                    if segment is None:
                        break
                    out, piece = segment
                    self.trace.sent_s.setdefault(out.row, now - self.start)
                    c.unsent.append(memoryview(encode(Kind.DATA, self.number, out.row, len(piece))))
                    if len(piece):
                        c.unsent.append(piece)
                    queue.under_way = out
                c.flush()
                if c.broken:
                    break
                if c.unsent:
                    self.blocked.add(peer)
                    break
                self._segment_sent(queue, peer)
            if c.closed is not None and c.done < self.number and self.pending():
                self.fail(peer, c.closed)
            self.watch(c)
            if not c.unsent and queue.wake_at < np.inf:
                later.append(queue.wake_at)
        return later

    def _segment_sent(self, queue: Queue, peer: int) -> None:
        out, queue.under_way = queue.under_way, None
        if out is not None and out.finished:
            send = self.program.sends[out.row]
            self.trace.gone_s[out.row] = time.monotonic() - self.start
            self.buffers.slots[send.chunk].used(send.version)
            self.unsent.discard((out.row, peer))

    def watch(self, c: Connection) -> None:
        """Register with the selector the events that this connection now waits for."""
        if c.closed is not None:
            return
        stopped = c.peer in self.mesh.waiting or c.peer in self.incoming.parked
        events = (0 if stopped else selectors.EVENT_READ) | (selectors.EVENT_WRITE if c.unsent else 0)
        known, self.watched[c.peer] = self.watched[c.peer], events
        if not known and events:
            self.selector.register(c.sock, events, c.peer)
        elif known and not events:
            self.selector.unregister(c.sock)
        elif known != events:
            self.selector.modify(c.sock, events, c.peer)

    # --- failing ---------------------------------------------------------------------------------

    def closed(self, c: Connection, why: str) -> None:
        """Handle a closed connection: a failure if something is still expected from that peer."""
        c.closed = why
        if self.watched[c.peer]:
            self.selector.unregister(c.sock)
            self.watched[c.peer] = 0
        if self.pending() and (c.done < self.number or self._needs(c.peer)):
            self.fail(c.peer, why)

    def _needs(self, peer: int) -> bool:
        """Whether something is still to be received from a peer, or to be sent to it."""
        return (
            any(to == peer for _, to in self.unsent)
            or any(source == peer for _, source in self.signals)
            or any(not self.incoming.came(row) for row in self.incoming.missing_from(peer))
        )

    def fail(self, peer: int, reason: str, row: int | None = None) -> NoReturn:
        """Give up because of a peer, naming a transfer that cannot complete."""
        self.culprit = peer
        with_it = [*self.incoming.missing_from(peer), *sorted(r for r, to in self.unsent if to == peer)]
        others = [*sorted(self.incoming.missing), *sorted(r for r, _ in self.unsent), *sorted(self.waits)]
        rows = [row] if row is not None else [*with_it, *others]
        raise PeerFailed(self.mesh.name(peer), reason, self.program.describe(rows[0]) if rows else None)
