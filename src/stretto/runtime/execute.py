"""The loop that runs one program: sends what is ready, receives what comes, adds it up, and watches the peers.

It never blocks on one peer: all sockets are non-blocking and one selector waits for all of them. A process whose
peers are ahead of it stops reading their next run until it begins that itself. Every process says now and then
that it is alive; the one that has been silent for ``timeout_s``, and has not finished, is at fault, however
many wait for each other because of it.
"""

from __future__ import annotations

import heapq
import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PeerFailed
from ..lower import Program, Send
from ..topology import printable
from .buffers import Array, Buffers, as_bytes
from .landing import Landing
from .mesh import Connection, Mesh
from .pacing import Outgoing, Queue, paces
from .wire import HEADER, Frame, Kind, Malformed, decode, encode

READ_AT_ONCE = 16
"""Frames that are read from one connection before others have their turn."""
PARKED_BYTES = 1 << 16
"""A transfer that comes before its turn to be added is left with the kernel, if it is not smaller than this ..."""
PATIENCE_S = 0.005
"""... until it is its turn, or nothing else has happened for so long."""


@dataclass
class Trace:
    """When rows were under way at this node, seconds from the start of the run.

    Attributes:
        sent_s, gone_s: when the first and the last byte were given to the network.
        coming_s, arrived_s: when the first byte came, and when the row had arrived.
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
        timeout_s: for how long a peer that has not finished may be silent.
        pace: seconds of real time for one of the plan's: starts and rates are kept, scaled by it. None runs as
            fast as dependencies and the network allow.
        started_at: the moment of time.monotonic() that is the plan's time 0; now, if not given.
        delays: for some rows how many seconds after its last byte an arrival counts, where the network has no delay.
    Raises:
        PeerFailed: someone died, stalled or sent what it should not; names whom, and the transfer. The mesh
            serves no more.
    """
    if mesh.failure is not None:
        raise mesh.failure
    chunk_bytes = program.plan.workload.chunk_bytes if sizes is None else sizes
    mesh.runs += 1
    buffers = Buffers(program, inputs, outputs, chunk_bytes, dtype, reduce, mesh.pool)
    run = Run(mesh, program, buffers, timeout_s, pace, started_at, delays or {})
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
    run.buffers.finish()
    return run.trace


class Run:
    """The state of one program that is under way."""

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
        self.landings: dict[int, Landing] = {}
        self.parked: dict[int, Frame] = {}
        self.missing = set(program.receives)
        self.unsent = {(row, peer) for row, send in program.sends.items() for peer in send.to}
        self.signals = {key for key in program.wakes if key[1] != program.node}
        self.events = set(program.events)
        self.timers: list[tuple[float, int, Callable[[int], None]]] = []
        self.payload: dict[int, tuple[Frame, memoryview, int]] = {}
        self.selector = selectors.DefaultSelector()
        self.said_done = False

    # --- the loop ---------------------------------------------------------------------------------

    def loop(self) -> None:
        """Until all is received, sent and told."""
        now = time.monotonic()
        if self.mesh.condemned is not None:
            self._fail(*self.mesh.condemned)
        for peer, c in self.peers.items():
            c.heard_at = now
            if c.closed is not None and c.done < self.number:
                self._fail(peer, c.closed)
            self._watch(c)
        self.buffers.begin()
        for row, count in self.waits.items():
            if count == 0:
                self._ready(row)
        # after that: an empty transfer is whole as soon as its header is taken, and others may wait for it
        for peer, frame in list(self.mesh.waiting.items()):
            if peer in self.peers and frame.run == self.number:
                del self.mesh.waiting[peer]
                self._take(self.peers[peer], frame)
            elif peer in self.peers:
                self._watch(self.peers[peer])
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
            happened = self.selector.select(min(wait_s, PATIENCE_S) if self.parked else wait_s)
            for key, mask in happened:
                c = self.peers[key.data]
                if mask & selectors.EVENT_WRITE:
                    self.blocked.discard(c.peer)
                if mask & selectors.EVENT_READ:
                    self._read(c)
            if self.parked and not happened:
                self._unpark(next(iter(self.parked)))

    def _pending(self) -> bool:
        return bool(self.missing or self.unsent or self.signals or self.events)

    def _finished(self) -> bool:
        if self._pending():
            return False
        if not self.said_done:
            self.said_done = True
            for c in self.peers.values():
                c.queue(encode(Kind.DONE, self.number))
                c.flush()
        return not any(c.unsent and c.closed is None for c in self.peers.values())

    def _fire(self, now: float) -> None:
        """Begin what was waiting for its moment."""
        while self.timers and self.timers[0][0] <= now:
            _, row, what = heapq.heappop(self.timers)
            what(row)

    def _watch_peers(self, now: float) -> None:
        """Say that this process is alive, and look who has not."""
        for c in self.peers.values():
            if c.closed is None and not c.unsent:
                c.queue(encode(Kind.PING, self.number))
            if c.done < self.number and now - c.heard_at > self.timeout_s:
                self._fail(c.peer, f"it has said nothing for {self.timeout_s:g} s")

    # --- what happens ----------------------------------------------------------------------------

    def _ready(self, row: int) -> None:
        """All that a row waits for has happened; a paced one may have to wait for its time."""
        now = time.monotonic()
        asked = self.program.sends[row].start_s if row in self.program.sends else self.program.events[row].start_s
        at = self.start + asked * self.pace if self.pace is not None else now
        if at > now:
            heapq.heappush(self.timers, (at, row, self._begin))
        else:
            self._begin(row)

    def _begin(self, row: int) -> None:
        now = time.monotonic()
        if row in self.program.events:
            seconds = self.program.events[row].seconds * (1.0 if self.pace is None else self.pace)
            self.trace.sent_s[row] = now - self.start
            heapq.heappush(self.timers, (now + seconds, row, self._turned))
            return
        send: Send = self.program.sends[row]
        content = self.buffers.content(send.chunk, send.version)
        rate = np.inf if self.pace is None else send.rate / self.pace
        for peer in send.to:
            self.queues[peer].put(Outgoing(row, as_bytes(content), rate, send.priority, now))

    def _turned(self, row: int) -> None:
        self.events.discard(row)
        self._happened(row, self.program.node)

    def _arrived(self, row: int) -> None:
        self.missing.discard(row)
        landing = self.landings.pop(row)
        landing.finish()
        self._happened(row, self.program.node)
        for peer, frame in list(self.parked.items()):
            slot = self.buffers.slots[self.program.receives[frame.row].chunk]
            if slot is landing.slot and not slot.comes_early(frame.row):
                self._unpark(peer)

    def _happened(self, row: int, place: int) -> None:
        """Release what waits for this, and tell those that wait elsewhere."""
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
        """Send what may go; the moments at which paced transfers may go on."""
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
            if c.closed is not None and c.done < self.number and self._pending():
                self._fail(peer, c.closed)
            self._watch(c)
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

    def _watch(self, c: Connection) -> None:
        """Ask the selector for what this connection now waits for."""
        if c.closed is not None:
            return
        stopped = c.peer in self.mesh.waiting or c.peer in self.parked
        events = (0 if stopped else selectors.EVENT_READ) | (selectors.EVENT_WRITE if c.unsent else 0)
        known, self.watched[c.peer] = self.watched[c.peer], events
        if not known and events:
            self.selector.register(c.sock, events, c.peer)
        elif known and not events:
            self.selector.unregister(c.sock)
        elif known != events:
            self.selector.modify(c.sock, events, c.peer)

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, c: Connection) -> None:
        for _ in range(READ_AT_ONCE):
            if c.closed is not None or c.peer in self.mesh.waiting or c.peer in self.parked:
                return
            under_way = self.payload.get(c.peer)
            target = memoryview(c.header)[c.got :] if under_way is None else under_way[1]
            try:
                count = c.sock.recv_into(target)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._closed(c, f"the connection broke ({error.strerror or error})")
                return
            if count == 0:
                self._closed(c, "it closed the connection" if c.said_bye else "it died")
                return
            c.heard_at = time.monotonic()
            if under_way is None:
                c.got += count
                if c.got == HEADER.size:
                    c.got = 0
                    try:
                        frame = decode(c.header)
                    except Malformed as error:
                        self._fail(c.peer, str(error))
                    self._take(c, frame)
            elif count < len(target):
                self.payload[c.peer] = under_way[0], target[count:], under_way[2]
            else:
                self._filled(c, under_way[0])

    def _take(self, c: Connection, frame: Frame) -> None:
        """A header has come."""
        if frame.kind is Kind.ABORT:
            self.abort_text = bytearray(frame.length)
            self._expect(c, frame, memoryview(self.abort_text))
        elif frame.kind is Kind.BYE:
            c.said_bye = True
        elif frame.kind is Kind.PING:
            pass
        elif frame.run > self.number:
            self.mesh.waiting[c.peer] = frame
            c.done = max(c.done, self.number)
            self._watch(c)
        elif frame.kind is Kind.DONE:
            c.done = max(c.done, frame.run)
        elif frame.run < self.number:
            self._fail(c.peer, f"it sent {frame.kind.name} of run {frame.run} in run {self.number}")
        elif frame.kind is Kind.SIGNAL:
            if (frame.row, c.peer) not in self.signals:
                self._fail(c.peer, f"it signalled row {frame.row}, which nothing here waits for")
            self.signals.discard((frame.row, c.peer))
            self._happened(frame.row, c.peer)
        else:
            self._take_data(c, frame, may_park=self.pace is None)

    def _take_data(self, c: Connection, frame: Frame, may_park: bool = True) -> None:
        row = frame.row
        receive = self.program.receives.get(row)
        if receive is None or receive.source != c.peer or row not in self.missing:
            self._fail(c.peer, f"it sent data of row {row}, which does not come from it (or came before)")
        assert receive is not None
        slot = self.buffers.slots[receive.chunk]
        landing = self.landings.get(row)
        so_far = landing.got if landing is not None else 0
        if so_far + frame.length > slot.size or (frame.length == 0 and (slot.size or landing is not None)):
            self._fail(c.peer, f"it sent {so_far + frame.length} bytes where {slot.size} were due", row)
        if frame.length % slot.itemsize:
            self._fail(c.peer, f"it sent {frame.length} bytes at once, which ends within an element", row)
        if landing is None and may_park and frame.length >= PARKED_BYTES and slot.comes_early(row):
            self.parked[c.peer] = frame
            self._watch(c)
            return
        if landing is None:
            landing = self.landings[row] = Landing(slot, row, receive.copies)
            self.trace.coming_s[row] = time.monotonic() - self.start
        landing.ahead = frame.length
        self._expect(c, frame, landing.target())

    def _unpark(self, peer: int) -> None:
        """Go on reading what a peer sends, its turn or not."""
        c, frame = self.peers[peer], self.parked.pop(peer)
        self._take_data(c, frame, may_park=False)
        self._watch(c)

    def _expect(self, c: Connection, frame: Frame, piece: memoryview) -> None:
        if len(piece):
            self.payload[c.peer] = frame, piece, len(piece)
        else:
            self._payload_done(c, frame)

    def _filled(self, c: Connection, frame: Frame) -> None:
        """All that was expected has come."""
        _, _, count = self.payload.pop(c.peer)
        if frame.kind is Kind.DATA:
            landing = self.landings[frame.row]
            landing.filled(count)
            if landing.ahead:
                self._expect(c, frame, landing.target())
                return
        self._payload_done(c, frame)

    def _payload_done(self, c: Connection, frame: Frame) -> None:
        if frame.kind is Kind.ABORT:
            reason = printable(self.abort_text.decode(errors="replace"))
            self.mesh.condemned = frame.row, f"{reason} (as {self.mesh.name(c.peer)} says)"
            if self._pending():
                self._fail(*self.mesh.condemned)
            return
        row = frame.row
        slot = self.buffers.slots[self.program.receives[row].chunk]
        if self.landings[row].got < slot.size:
            return
        delay = self.delays.get(row, 0.0)
        if delay:
            heapq.heappush(self.timers, (time.monotonic() + delay, row, self._arrived))
        else:
            self._arrived(row)

    # --- failing ---------------------------------------------------------------------------------

    def _closed(self, c: Connection, why: str) -> None:
        c.closed = why
        if self.watched[c.peer]:
            self.selector.unregister(c.sock)
            self.watched[c.peer] = 0
        if self._pending() and (c.done < self.number or self._needs(c.peer)):
            self._fail(c.peer, why)

    def _needs(self, peer: int) -> bool:
        """Whether something is still to come from a peer, or to go to it, whatever it says."""
        return (
            any(to == peer for _, to in self.unsent)
            or any(source == peer for _, source in self.signals)
            or any(self.program.receives[row].source == peer and not self._came(row) for row in self.missing)
        )

    def _came(self, row: int) -> bool:
        """Whether all bytes of a row are here, though its arrival may yet be delayed."""
        landing = self.landings.get(row)
        return landing is not None and landing.got >= landing.slot.size

    def _fail(self, peer: int, reason: str, row: int | None = None) -> None:
        """Give up because of a peer, naming the transfer that suffers."""
        self.culprit = peer
        from_it = [r for r in sorted(self.missing) if self.program.receives[r].source == peer]
        to_it = sorted(r for r, to in self.unsent if to == peer)
        others = [*sorted(self.missing), *sorted(r for r, _ in self.unsent), *sorted(self.waits)]
        rows = [row] if row is not None else [*from_it, *to_it, *others]
        raise PeerFailed(self.mesh.name(peer), reason, self.program.describe(rows[0]) if rows else None)
