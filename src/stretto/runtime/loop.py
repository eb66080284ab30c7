"""The loop that runs one program in Python: it sends what is ready, receives what arrives, and watches the peers."""

from __future__ import annotations

import heapq
import math
import selectors
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ..lower import Program, Send
from ..model.errors import PeerFailed
from .buffers import Buffers, as_bytes
from .circuits import Circuits
from .congestion import look_again
from .gate import Gate
from .incoming import PATIENCE_S, Incoming
from .mesh import Connection, Mesh
from .pacing import AHEAD_S, Outgoing, Queue, Together, largest_rate, limit_rate, raised
from .recorded import Trace
from .watch import Watch
from .wire import MOST_CHUNKS, NO_CALL, SEGMENT_BYTES, Kind, encode

BATCH_BYTES = 1 << 18
"""Frames are collected up to this number of bytes, then sent by one system call. What is to be sent first is decided
when a frame is collected."""
BATCHES_AT_ONCE = 4
"""Batches to send on one connection before others have their turn."""


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
    circuits: Circuits | None
    gate: Gate | None = None
    call: bytes = NO_CALL

    def __post_init__(self) -> None:
        program, steps = self.program, self.program.steps
        self.steps = steps
        self.sources = [source for source in (self.circuits, self.gate) if source is not None]
        self.number, self.culprit, self.connection = self.mesh.runs, self.mesh.node, self.mesh.connection
        # two ranks whose link is dead have no connection, and their programs need none
        self.peers = {p: self.mesh.peers[p] for p in program.peers.tolist() if p in self.mesh.peers}
        self.connections = [c for connections in self.peers.values() for c in connections]
        self.trace = Trace()
        self.timed = program.plan.sharing == "timed"
        for c in self.connections:
            c.begin(Queue(program.plan.sharing == "fair") if c.lead is c else c.lead.outgoing)
            if self.pace is not None:
                to_peer = (send for send in steps.sends.values() if c.peer in send.to)
                sends = (s for s in to_peer if self.connection(c.peer, s.subflow) is c.lead)
                limit_rate(c.sock, largest_rate([*sends], self.timed) / self.pace)
            elif c.most_rate == math.inf:
                limit_rate(c.sock, math.inf)
            elif c.lead is c:
                self._limit_lanes(c, program.shares.get(c.peer, 0.0))
        self.sent_before = {c: sum(lane.sent_bytes for lane in c.lanes) for c in self.connections}
        self.active = set(self.connections)
        self.pending_reads: set[Connection] = set()
        self.waits = dict(steps.waits)
        self.unsent = {(row, peer) for row, send in steps.sends.items() for peer in send.to}
        self.signals = {key for key in steps.wakes if key[1] != program.node}
        self.events = set(steps.events)
        self.timers: list[tuple[float, int, Callable[[Any], None], Any]] = []  # when, number, what to call, with what
        self.timer_count = 0
        self.selector = selectors.DefaultSelector()
        self.said_done = False
        self.incoming = Incoming(self)

    # --- the loop ---------------------------------------------------------------------------------

    def loop(self) -> None:
        """Run until everything is received and sent, and every peer knows it."""
        self._start()
        watch = Watch(self)
        while not self._finished():
            now = time.monotonic()
            self._fire(now)
            if now >= watch.at:
                watch.look(now)
            self._write(now)
            if self._finished():
                break
            wake = min(watch.at, self.timers[0][0]) if self.timers else watch.at
            wait_s = 0.0 if self.active or self.pending_reads else max(0.0, wake - time.monotonic())
            awake = self.selector.select(min(wait_s, PATIENCE_S) if self.incoming.parked else wait_s)
            for key, mask in awake:
                c = key.data
                if not isinstance(c, Connection):
                    self._end_turns() if c is self.circuits else self._release(c.released())
                    continue
                if mask & selectors.EVENT_WRITE:
                    self.active.add(c)
                if mask & selectors.EVENT_READ:
                    self.incoming.read(c)
            more, self.pending_reads = self.pending_reads, set()
            for c in more:
                self.incoming.read(c)
            if not awake and not self.active and not more:
                self.incoming.unpark()
        self._raise_limits()

    def _limit_lanes(self, lead: Connection, share: float) -> None:
        """Keep lanes to their part of what the network gives them, where this run sends over them.

        Args:
            share: the pair's part by the plan; 0 where this run sends nothing.
        """
        for c in lead.lanes if share else ():
            c.now_rate = share * c.most_rate
            limit_rate(c.sock, c.now_rate)
            look_again(c.sock, c.now_rate)

    def _raise_limits(self) -> None:
        """Let lanes send faster from the next run on if their limit held them back in this one."""
        for lead in (c for c in self.connections if c.lead is c and c.now_rate < math.inf):
            to_peer = [row for row, send in self.steps.sends.items() if lead.peer in send.to]
            if to_peer and self.pace is None:
                began = min(self.trace.sent_s[row] for row in to_peer)
                ended = max(self.trace.gone_s[row] for row in to_peer)
                sent = sum(c.sent_bytes for c in lead.lanes) - self.sent_before[lead]
                limit = lead.now_rate * len(lead.lanes)
                factor = raised(limit, sent, ended - began) / limit
                for c in lead.lanes:
                    c.most_rate *= factor

    def _start(self) -> None:
        """Begin all rows that wait for nothing, and take what peers have sent that are ahead."""
        if self.mesh.condemned is not None:
            self.fail(*self.mesh.condemned)
        if self.circuits is not None:
            self.circuits.begin(self.program.plan, 1.0 if self.pace is None else self.pace)
        for source in self.sources:
            self.selector.register(source, selectors.EVENT_READ, source)
        for c in self.connections:
            if c.closed is not None and c.main.done < self.number:
                self.fail(c.peer, c.closed)
            self.watch(c)
        self.buffers.begin()
        for row, count in self.waits.items():
            if count == 0:
                self._ready(row)
        # only now: an empty transfer has arrived with its header, which may release transfers that wait for it
        for c in self.connections:
            if c.ahead is not None and c.ahead.run <= self.number:
                frame, c.ahead = c.ahead, None
                self.incoming.take(c, frame)
                self.incoming.look(c)
                self.watch(c)

    def pending(self) -> bool:
        """Whether a row is still to be received, sent or executed, or a signal is missing."""
        return bool(self.incoming.missing or self.unsent or self.signals or self.events)

    def _finished(self) -> bool:
        if self.pending():
            return False
        if not self.said_done:
            self.said_done = True
            for c in self.mains():
                self.say(c, Kind.DONE)
                c.flush()
        return not any(c.unsent and c.closed is None for c in self.connections)

    def mains(self) -> list[Connection]:
        """The connections that carry more than data."""
        return [c for c in self.connections if c.main is c]

    def say(self, c: Connection, kind: Kind, row: int = 0) -> None:
        """Queue a frame without payload."""
        c.queue(encode(kind, self.number, row, 0, self.call))
        self.active.add(c)

    def later(self, at: float, call: Callable[[Any], None], argument: Any) -> None:
        """Call ``call(argument)`` at a moment of the monotonic clock."""
        self.timer_count += 1
        heapq.heappush(self.timers, (at, self.timer_count, call, argument))

    def _fire(self, now: float) -> None:
        """Make the calls whose moment has come."""
        while self.timers and self.timers[0][0] <= now:
            _, _, call, argument = heapq.heappop(self.timers)
            call(argument)

    # --- what happens ----------------------------------------------------------------------------

    def _ready(self, row: int) -> None:
        """Begin a row whose dependencies have all happened; a paced row waits for its start time."""
        if self.pace is None:
            self._begin(row)
            return
        step = self.steps.sends.get(row) or self.steps.events[row]
        at = self.start + step.start_s * self.pace
        if at > time.monotonic():
            self.later(at, self._begin, row)
        else:
            self._begin(row)

    def _begin(self, row: int) -> None:
        send = self.steps.sends.get(row)
        if send is None:
            now = time.monotonic()
            self.trace.sent_s[row] = now - self.start
            turn = row - self.program.plan.transfer_count
            if turn >= self.program.turns or self.circuits is None:
                self.later(now, self._end_event, row)  # a barrier
                return
            self.circuits.turn(turn)
            at_most_s = self.steps.events[row].seconds * (1.0 if self.pace is None else self.pace) + self.timeout_s
            self.later(now + at_most_s, self._give_up_turn, row)
            return
        rows = self.steps.messages.get(row)
        if rows is None:
            self._send_row(row, send, send.to)
        else:
            self._send_message(rows, send)

    def _send_message(self, rows: Sequence[int], first: Send) -> None:
        """Send the chunks of a message, as many as may in one frame."""
        alone = (
            [] if self.pace is not None else [p for p in first.to if len(self.connection(p, first.subflow).lanes) == 1]
        )
        apart = [peer for peer in first.to if peer not in alone]
        if apart:
            for row in rows:
                self._send_row(row, self.steps.sends[row], apart)
        together: list[tuple[int, memoryview]] = []
        size = 0
        for row in rows if alone else ():
            send = self.steps.sends[row]
            piece = as_bytes(self.buffers.content(send.chunk, send.version))
            size += len(piece)
            if size > SEGMENT_BYTES or len(together) == MOST_CHUNKS:
                self._send_together(together, alone, first)
                together, size = [], len(piece)
            together.append((row, piece))
        self._send_together(together, alone, first)

    def _send_together(self, those: Sequence[tuple[int, memoryview]], to: Sequence[int], send: Send) -> None:
        """Send transfers, each with its bytes, in one frame."""
        if len(those) == 1:
            self._send_row(those[0][0], self.steps.sends[those[0][0]], to)
        elif those:
            rows, pieces = zip(*those, strict=True)
            for peer in to:
                c = self.connection(peer, send.subflow)
                c.outgoing.add(Together(rows, pieces, send.priority))
                self.active.add(c)

    def _send_row(self, row: int, send: Send, to: Sequence[int]) -> None:
        """Send a transfer, or what may go of it."""
        content = as_bytes(self.buffers.content(send.chunk, send.version))
        rate, start = math.inf, 0.0
        if self.pace is not None:
            rate = send.rate / self.pace
            # where the plan gives starts, the bucket is full then, and what is late catches up
            start = self.start + send.start_s * self.pace - AHEAD_S if self.timed else time.monotonic()
        for peer in to:
            c = self.connection(peer, send.subflow)
            c.outgoing.add(Outgoing(row, content, rate, send.priority, start, len(c.lanes)))
            self.active.update(c.lanes)

    def _end_turns(self) -> None:
        """Tell the ranks that wait for circuits which of them are up."""
        assert self.circuits is not None
        for turn in self.circuits.ends():
            self._end_event(self.program.plan.transfer_count + turn)

    def _give_up_turn(self, row: int) -> None:
        if row in self.events:
            self.fail(self.mesh.node, f"the switch has not turned for {self.timeout_s:g} s", row)

    def _end_event(self, row: int) -> None:
        self.events.discard(row)
        self.happened(row, self.program.node)

    def happened(self, row: int, place: int) -> None:
        """Release the rows that wait for this row, and signal the nodes where others wait."""
        self.trace.arrived_s.setdefault(row, time.monotonic() - self.start)
        for source in self.sources:
            source.report(row)
        if place == self.program.node:
            for peer in self.steps.signals.get(row, ()):
                self.say(self.connection(peer, 0), Kind.SIGNAL, row)
        self._release(self.steps.wakes.get((row, place), ()))

    def happened_here(self, rows: Iterable[int]) -> None:
        """The same of rows that have arrived together."""
        if self.sources or self.steps.signals:
            for row in rows:
                self.happened(row, self.program.node)
            return
        now_s, node, wakes = time.monotonic() - self.start, self.program.node, self.steps.wakes
        for row in rows:
            self.trace.arrived_s[row] = now_s
            if (row, node) in wakes:
                self._release(wakes[row, node])

    def _release(self, rows: Iterable[int]) -> None:
        """Take note that something has happened for which rows wait."""
        for row in rows:
            self.waits[row] -= 1
            if self.waits[row] == 0:
                self._ready(row)

    # --- writing ---------------------------------------------------------------------------------

    def _write(self, now: float) -> None:
        """Send what may be sent now on the connections that have something to send."""
        for c in list(self.active):
            if not self._send(c, now):
                self.active.discard(c)
            self.watch(c)

    def _send(self, c: Connection, now: float) -> bool:
        """Send up to ``BATCHES_AT_ONCE`` batches; returns whether there is more to send now.

        Of several lanes each takes one segment, and leaves the next one to whichever has room for it.
        """
        alone = len(c.lead.lanes) == 1
        for _ in range(BATCHES_AT_ONCE if alone else 1):
            if c.broken or c.closed is not None:
                return False
            while c.unsent_bytes < (BATCH_BYTES if alone else 1) and self._collect(c, now):
                pass
            if not c.unsent:
                if c.outgoing.wake_at < math.inf:
                    self.later(c.outgoing.wake_at, self.active.add, c)
                return False
            c.flush()
            while c.under_way and c.under_way[0][1] <= c.sent_bytes:
                out = c.under_way.popleft()[0]
                out.under_way -= 1
                if out.gone:
                    self._gone(out, c)
            if c.unsent:
                return False  # the selector tells when the kernel takes more
        return True

    def _collect(self, c: Connection, now: float) -> bool:
        """Queue a segment of the transfer whose turn it is; False if none may go now."""
        segment = c.outgoing.next(now)
        if segment is None:
            return False
        out, piece = segment
        if isinstance(out, Together):
            for row in out.rows:
                self.trace.sent_s.setdefault(row, now - self.start)
            further = len(out.rows) - 1
            c.queue(encode(Kind.DATA, self.number, out.row, out.total, self.call, out.total, 0, further), *out.pieces)
            c.under_way.append((out, c.sent_bytes + c.unsent_bytes))
            return True
        self.trace.sent_s.setdefault(out.row, now - self.start)
        offset = out.offset - len(piece)
        if len(c.lead.lanes) > 1:
            c.hold_back(out.size)
        c.queue(encode(Kind.DATA, self.number, out.row, len(piece), self.call, out.total, offset), piece)
        c.under_way.append((out, c.sent_bytes + c.unsent_bytes))
        return True

    def _gone(self, out: Outgoing, c: Connection) -> None:
        """The kernel has taken the last byte of a transfer."""
        gone_s = time.monotonic() - self.start
        for row in out.rows if isinstance(out, Together) else (out.row,):
            send = self.steps.sends[row]
            self.trace.gone_s[row] = gone_s
            self.buffers.slots[send.chunk].release(send.version)
            self.unsent.discard((row, c.peer))

    def watch(self, c: Connection) -> None:
        """Register with the selector the events that this connection now waits for."""
        if c.closed is not None:
            return
        events = (0 if c.stopped else selectors.EVENT_READ) | (selectors.EVENT_WRITE if c.unsent else 0)
        if c.pending and not c.stopped:
            self.pending_reads.add(c)
        before, c.events = c.events, events
        if not before and events:
            self.selector.register(c.sock, events, c)
        elif before and not events:
            self.selector.unregister(c.sock)
        elif before != events:
            self.selector.modify(c.sock, events, c)

    # --- failing ---------------------------------------------------------------------------------

    def closed(self, c: Connection, why: str) -> None:
        """Handle a closed connection: its peer has failed if something is still expected on it."""
        c.closed = why
        if c.events:
            self.selector.unregister(c.sock)
            c.events = 0
        of_peer = [x for x in self.connections if x.peer == c.peer]
        if c.said_bye and any(x.closed is None and not x.stopped for x in of_peer):
            return  # the peer has left; what it sent before on another connection may still be under way
        if c.peer in self.peers and self.pending() and (c.main.done < self.number or any(map(self.needs, of_peer))):
            self.fail(c.peer, why)

    def needs(self, c: Connection) -> bool:
        """Whether something is still to be received or sent on a connection."""
        return (
            any(self.connection(to, self.steps.sends[row].subflow) is c.lead for row, to in self.unsent)
            or any(self.connection(source, 0) is c for _, source in self.signals)
            or any(not self.incoming.is_complete(row) for row in self.incoming.missing_on(c))
        )

    def fail(self, peer: int, reason: str, row: int | None = None) -> NoReturn:
        """Give up because of a peer, naming a transfer that cannot complete."""
        self.culprit = peer
        coming = [row for c in self.peers.get(peer, ()) if c.lead is c for row in self.incoming.missing_on(c)]
        of_peer = [*coming, *sorted(r for r, to in self.unsent if to == peer)]
        others = [*sorted(self.incoming.missing), *sorted(r for r, _ in self.unsent), *sorted(self.waits)]
        rows = [row] if row is not None else [*of_peer, *others]
        raise PeerFailed(self.mesh.name(peer), reason, self.program.describe(rows[0]) if rows else None)
