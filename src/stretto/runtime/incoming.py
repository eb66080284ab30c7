"""The receiving side of a run: reads frames, puts their payload into place, and adds sums in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

from ..lower import Program
from ..model.topology import printable
from .buffers import Buffers
from .landing import Landing
from .mesh import Connection, Mesh
from .trace import Trace
from .wire import HEADER, Frame, Kind, Malformed, decode

READ_AT_ONCE = 16
"""Frames to read from one connection before others have their turn."""
PARKED_BYTES = 1 << 16
"""A transfer of at least this size that arrives before its turn to be added is left in the kernel's buffers. Nothing
more is read from its connection until its turn comes, or nothing else has happened for ``PATIENCE_S``."""
PATIENCE_S = 0.005
"""Seconds without any event after which a parked transfer is read although its turn has not come."""


class Host(Protocol):
    """The parts of :class:`.run.Run` that the receiving side uses."""

    mesh: Mesh
    program: Program
    buffers: Buffers
    number: int
    start: float
    pace: float | None
    delays: Mapping[int, float]
    peers: dict[int, Connection]
    signals: set[tuple[int, int]]
    trace: Trace

    def pending(self) -> bool: ...
    def later(self, at: float, row: int, what: Callable[[int], None]) -> None: ...
    def happened(self, row: int, place: int) -> None: ...
    def watch(self, c: Connection) -> None: ...
    def closed(self, c: Connection, why: str) -> None: ...
    def fail(self, peer: int, reason: str, row: int | None = None) -> NoReturn: ...


class Incoming:
    """The receiving side of a run.

    Attributes:
        missing: the rows that have not arrived.
        landings: the rows of which some bytes have arrived.
        parked: for each peer that is not read, since it sends a row before its turn: the first frame of that row.
        payload: for each connection the frame whose payload is being read, the rest of its target, and the
            target's size.
    """

    def __init__(self, run: Host) -> None:
        self.run, self.mesh, self.program, self.buffers = run, run.mesh, run.program, run.buffers
        self.missing = set(run.program.receives)
        self.landings: dict[int, Landing] = {}
        self.parked: dict[int, Frame] = {}
        self.payload: dict[int, tuple[Frame, memoryview, int]] = {}

    def missing_from(self, peer: int) -> list[int]:
        """The rows that have not arrived from a peer."""
        return [row for row in sorted(self.missing) if self.program.receives[row].source == peer]

    def came(self, row: int) -> bool:
        """Whether all bytes of a row are here, though its arrival may yet be delayed."""
        landing = self.landings.get(row)
        return landing is not None and landing.got >= landing.slot.size

    def read(self, c: Connection) -> None:
        """Read what a peer has sent, at most ``READ_AT_ONCE`` frames."""
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
                self.run.closed(c, f"the connection broke ({error.strerror or error})")
                return
            if count == 0:
                self.run.closed(c, "it closed the connection" if c.said_bye else "it died")
                return
            c.heard_at = time.monotonic()
            if under_way is None:
                c.got += count
                if c.got == HEADER.size:
                    c.got = 0
                    try:
                        frame = decode(c.header)
                    except Malformed as error:
                        self.run.fail(c.peer, str(error))
                    self.take(c, frame)
            elif count < len(target):
                self.payload[c.peer] = under_way[0], target[count:], under_way[2]
            else:
                self._filled(c, under_way[0])

    def take(self, c: Connection, frame: Frame) -> None:
        """Handle a frame whose header has been read."""
        if frame.kind is Kind.ABORT:
            self.abort_text = bytearray(frame.length)
            self._expect(c, frame, memoryview(self.abort_text))
        elif frame.kind is Kind.BYE:
            c.said_bye = True
        elif frame.kind is Kind.PING:
            pass
        elif frame.run > self.run.number:
            self.mesh.waiting[c.peer] = frame
            c.done = max(c.done, self.run.number)
            self.run.watch(c)
        elif frame.kind is Kind.DONE:
            c.done = max(c.done, frame.run)
        elif frame.run < self.run.number:
            self.run.fail(c.peer, f"it sent {frame.kind.name} of run {frame.run} in run {self.run.number}")
        elif frame.kind is Kind.SIGNAL:
            if (frame.row, c.peer) not in self.run.signals:
                self.run.fail(c.peer, f"it signalled row {frame.row}, which nothing here waits for")
            self.run.signals.discard((frame.row, c.peer))
            self.run.happened(frame.row, c.peer)
        else:
            self._take_data(c, frame, may_park=self.run.pace is None)

    def _take_data(self, c: Connection, frame: Frame, may_park: bool = True) -> None:
        row = frame.row
        receive = self.program.receives.get(row)
        if receive is None or receive.source != c.peer or row not in self.missing:
            self.run.fail(c.peer, f"it sent data of row {row}, which does not come from it (or came before)")
        slot = self.buffers.slots[receive.chunk]
        landing = self.landings.get(row)
        so_far = landing.got if landing is not None else 0
        if so_far + frame.length > slot.size or (frame.length == 0 and (slot.size or landing is not None)):
            self.run.fail(c.peer, f"it sent {so_far + frame.length} bytes where {slot.size} were due", row)
        if frame.length % slot.itemsize:
            self.run.fail(c.peer, f"it sent {frame.length} bytes at once, which ends within an element", row)
        if landing is None and may_park and frame.length >= PARKED_BYTES and slot.comes_early(row):
            self.parked[c.peer] = frame
            self.run.watch(c)
            return
        if landing is None:
            landing = self.landings[row] = Landing(slot, row, receive.copies)
            self.run.trace.coming_s[row] = time.monotonic() - self.run.start
        landing.ahead = frame.length
        self._expect(c, frame, landing.target())

    def unpark(self) -> None:
        """Go on reading a parked peer although its turn has not come, since nothing else happens."""
        if self.parked:
            self._unpark(next(iter(self.parked)))

    def _unpark(self, peer: int) -> None:
        c, frame = self.run.peers[peer], self.parked.pop(peer)
        self._take_data(c, frame, may_park=False)
        self.run.watch(c)

    def _expect(self, c: Connection, frame: Frame, piece: memoryview) -> None:
        if len(piece):
            self.payload[c.peer] = frame, piece, len(piece)
        else:
            self._payload_done(c, frame)

    def _filled(self, c: Connection, frame: Frame) -> None:
        """Handle a target that is full."""
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
            if self.run.pending():
                self.run.fail(*self.mesh.condemned)
            return
        row = frame.row
        slot = self.buffers.slots[self.program.receives[row].chunk]
        if self.landings[row].got < slot.size:
            return
        delay = self.run.delays.get(row, 0.0)
        if delay:
            self.run.later(time.monotonic() + delay, row, self._arrived)
        else:
            self._arrived(row)

    def _arrived(self, row: int) -> None:
        self.missing.discard(row)
        landing = self.landings.pop(row)
        landing.finish()
        self.run.happened(row, self.program.node)
        for peer, frame in list(self.parked.items()):
            slot = self.buffers.slots[self.program.receives[frame.row].chunk]
            if slot is landing.slot and not slot.comes_early(frame.row):
                self._unpark(peer)
