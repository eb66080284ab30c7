"""The loop that runs one program in Python: it begins what is ready, handles what arrives, and watches the peers."""

from __future__ import annotations

import heapq
import math
import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..lower import Program
from ..model.errors import PeerFailed
from .buffers import Buffers
from .circuits import Circuits
from .congestion import look_again
from .gate import Gate
from .incoming import PATIENCE_S, Incoming
from .mesh import Connection, Mesh
from .pacing import Queue, keep_to, planned_rates, raised
from .recorded import Trace
from .sending import Sending
from .watch import Watch
from .wire import NO_CALL, Kind, encode


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
        rates = {} if self.pace is None else planned_rates(self.mesh, program, self.pace)
        for c in self.connections:
            c.begin(Queue(program.plan.sharing == "fair") if c.lead is c else c.lead.outgoing)
            if self.pace is not None:
                keep_to(c, rates.get(c.lead, math.inf))
            elif c.most_rate == math.inf:
                keep_to(c, math.inf)
            elif c.lead is c:
                self._limit_lanes(c, program.shares.get(c.peer, 0.0))
        self.sent_before = {c: sum(lane.sent_bytes for lane in c.lanes) for c in self.connections}
        self.pending_reads: set[Connection] = set()
        self.waits = dict(steps.waits)
        self.signals = {key for key in steps.wakes if key[1] != program.node}
        self.events = set(steps.events)
        self.timers: list[tuple[float, int, Callable[[Any], None], Any]] = []  # when, number, what to call, with what
        self.timer_count = 0
        self.selector = selectors.DefaultSelector()
        self.said_done = False
        self.incoming, self.sending = Incoming(self), Sending(self)

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
            self.sending.write(now)
            if self._finished():
                break
            wake = min(watch.at, self.timers[0][0]) if self.timers else watch.at
            wait_s = 0.0 if self.sending.active or self.pending_reads else max(0.0, wake - time.monotonic())
            awake = self.selector.select(min(wait_s, PATIENCE_S) if self.incoming.parked else wait_s)
            for key, mask in awake:
                c = key.data
                if not isinstance(c, Connection):
                    self._end_turns() if c is self.circuits else self._release(c.released())
                    continue
                if mask & selectors.EVENT_WRITE:
                    self.sending.active.add(c)
                if mask & selectors.EVENT_READ:
                    self.incoming.read(c)
            more, self.pending_reads = self.pending_reads, set()
            for c in more:
                self.incoming.read(c)
            if not awake and not self.sending.active and not more:
                self.incoming.unpark()
        self._raise_limits()

    def _limit_lanes(self, lead: Connection, share: float) -> None:
        """Keep lanes to their part of what the network gives them, where this run sends over them.

        Args:
            share: the pair's part by the plan; 0 where this run sends nothing.
        """
        for c in lead.lanes if share else ():
            c.now_rate = share * c.most_rate
            keep_to(c, c.now_rate)
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
        return bool(self.incoming.missing or self.sending.unsent or self.signals or self.events)

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
        self.sending.active.add(c)

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
        self.sending.begin(row, send)

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

    # --- events ----------------------------------------------------------------------------------

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
            any(self.connection(to, self.steps.sends[row].subflow) is c.lead for row, to in self.sending.unsent)
            or any(self.connection(source, 0) is c for _, source in self.signals)
            or any(not self.incoming.is_complete(row) for row in self.incoming.missing_on(c))
        )

    def fail(self, peer: int, reason: str, row: int | None = None) -> NoReturn:
        """Give up because of a peer, naming a transfer that cannot complete."""
        self.culprit = peer
        coming = [row for c in self.peers.get(peer, ()) if c.lead is c for row in self.incoming.missing_on(c)]
        of_peer = [*coming, *sorted(r for r, to in self.sending.unsent if to == peer)]
        others = [*sorted(self.incoming.missing), *sorted(r for r, _ in self.sending.unsent), *sorted(self.waits)]
        rows = [row] if row is not None else [*of_peer, *others]
        raise PeerFailed(self.mesh.name(peer), reason, self.program.describe(rows[0]) if rows else None)
