"""The receiving side of a run: reads frames, puts their payload into place, and adds sums in their order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..model.topology import printable
from .buffers import Array, Slot, as_bytes
from .mesh import READ_BYTES, Connection
from .wire import FURTHER, HEADER, MAGIC, Frame, Kind, Malformed, decode

if TYPE_CHECKING:
    from .loop import Run

DIED = "it died (Connection closed by peer)"
"""Why a peer whose connection has ended has failed. These words in brackets, and ``Read error``, are gloo's: programs
look for them."""
READS_AT_ONCE = 8
"""Times to read from one connection before others have their turn."""
_DATA = int(Kind.DATA)
PARKED_BYTES = 1 << 16
"""A transfer of at least this size that arrives before its turn to be added is left in the kernel's buffers. Nothing
more is read from its connection until its turn comes, or nothing else has happened for ``PATIENCE_S``."""
PATIENCE_S = 0.005
"""Seconds without any event after which a parked transfer is read although its turn has not come."""
PIECE_BYTES = 1 << 18
"""Bytes of a sum to receive before adding them: few enough to be still in a core's cache."""


class Incoming:
    """The receiving side of a run.

    Attributes:
        origin: for each row the connection on which it comes.
        missing: the rows that have not arrived.
        landings: the rows of which some bytes have arrived.
        fresh: for each connection the rows of which nothing has come, and their chunks.
        parked: the connections whose next row has come before its turn.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.mesh, self.steps, self.buffers = run, run.mesh, run.steps, run.buffers
        self.origin = {row: run.connection(r.source, r.subflow) for row, r in run.steps.receives.items()}
        self.missing = set(self.origin)
        self.landings: dict[int, Landing] = {}
        self.fresh: dict[Connection, dict[int, Slot]] = {}
        for row, c in self.origin.items():
            slot = self.buffers.slots[run.steps.receives[row].chunk]
            if not slot.size % slot.dtype.itemsize:
                self.fresh.setdefault(c, {})[row] = slot
        self.parked: list[Connection] = []

    def missing_on(self, c: Connection) -> list[int]:
        """The rows that have not arrived on a connection."""
        return [row for row in sorted(self.missing) if self.origin[row] is c.lead]

    def is_complete(self, row: int) -> bool:
        """Whether all bytes of a row are here, though its arrival may yet be delayed."""
        landing = self.landings.get(row)
        return landing is not None and landing.received >= landing.slot.size

    def read(self, c: Connection) -> None:
        """Read what a peer has sent, ``READS_AT_ONCE`` times at most."""
        self._read(c)
        if c.pending and c.closed is None and not c.stopped:
            self.run.pending_reads.add(c)
        c.doze()

    def _read(self, c: Connection) -> None:
        for _ in range(READS_AT_ONCE):
            if c.closed is not None or c.stopped:
                return
            try:
                count = c.receive()
            except (BlockingIOError, InterruptedError):
                self._note_dry(c)
                return
            except OSError as error:
                c.closed_by = error.errno or 0
                why = f"Read error: {error.strerror}" if error.strerror else str(error)
                self.run.closed(c, f"the connection broke ({why})")
                return
            if count == 0:
                self.run.closed(c, "it closed the connection" if c.said_bye else DIED)
                return
            c.heard_at = c.main.heard_at = time.monotonic()
            self.look(c)
            if count < READ_BYTES:  # the kernel had no more
                self._note_dry(c)
                return

    def _note_dry(self, c: Connection) -> None:
        """Note when all that had come of a row was first read, and how much that was."""
        frame, dry = c.frame, self.run.trace.dry
        if frame is not None and frame.kind is Kind.DATA and frame.row not in dry:
            landing = self.landings[frame.row]
            dry[frame.row] = time.monotonic() - self.run.start, landing.received + landing.whole(c) - len(c.target)

    def look(self, c: Connection) -> None:
        """Handle what has been received from a peer, until the rest must wait."""
        while not c.stopped:
            if c.frame is not None:
                if len(c.target) and c.at < c.end:
                    piece = c.read[c.at : min(c.end, c.at + len(c.target))]
                    c.target[: len(piece)] = piece
                    c.target = c.target[len(piece) :]
                    c.at += len(piece)
                if len(c.target):
                    return
                frame, c.frame = c.frame, None
                self._end_piece(c, frame)
            elif c.end - c.at >= HEADER.size:
                if self._take_whole(c):
                    continue
                try:
                    frame = decode(c.read, c.at)
                except Malformed as error:
                    self.run.fail(c.peer, str(error))
                c.at += HEADER.size
                self.take(c, frame)
            else:
                return

    def _take_whole(self, c: Connection) -> bool:
        """Take a frame of whole rows, all of which has been read; False if it must go the long way.

        The long way also serves rows of which parts are still to come, rows whose arrival is delayed, and whatever
        should not have come.
        """
        magic, kind, number, row, length, call, total, offset = HEADER.unpack_from(c.read, c.at)
        run, at = self.run, c.at + HEADER.size
        if (
            kind != _DATA or magic != MAGIC or number != run.number or call != run.call or not 0 < length == total
            or offset or at + length > c.end or c.main.begun < number or self.parked or run.delays
        ):  # fmt: skip
            return False
        rows = range(row, row + 1 + c.read[c.at + FURTHER])
        slots = self._due(c, rows)
        if slots is None or sum([slot.size for slot in slots]) != length:
            return False
        read, receives, fresh = c.read, self.steps.receives, self.fresh[c.lead]
        run.trace.coming_s.update(dict.fromkeys(rows, time.monotonic() - run.start))
        for row, slot in zip(rows, slots, strict=True):
            slot.take(row, receives[row].copies, read[at : at + slot.size])
            at += slot.size
            del fresh[row]
        c.at = at
        self.missing.difference_update(rows)
        run.happened_here(rows)
        return True

    def _due(self, c: Connection, rows: range) -> list[Slot] | None:
        """The chunks of rows; None if not all of them come whole on this connection, or something of them has come."""
        fresh = self.fresh.get(c.lead, {})
        slots = [fresh[row] for row in rows if row in fresh]
        return slots if len(slots) == len(rows) else None

    def take(self, c: Connection, frame: Frame) -> None:
        """Handle a frame whose header has been read."""
        if frame.kind is Kind.ABORT:
            c.text = bytearray(frame.length)
            self._expect(c, frame, memoryview(c.text))
            return
        if frame.kind is Kind.BYE:
            c.said_bye = True
            return
        self._check_call(c, frame)
        if frame.kind is Kind.PING:
            pass
        elif frame.run > self.run.number:
            c.ahead = frame
            # what came before it on another lane may still be under way
            if all(lane.ahead is not None for lane in c.lead.lanes) and self.run.needs(c):
                self.run.fail(c.peer, f"it sent {frame.kind.name} of run {frame.run} in run {self.run.number}")
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

    def _check_call(self, c: Connection, frame: Frame) -> None:
        """Fail if a peer calls something else than this process, or did in an earlier run."""
        main, number = c.main, self.run.number
        if frame.run > main.begun:
            main.begun = frame.run
            main.done = max(main.done, frame.run - 1)
        own = self.run.call if frame.run == number else self.mesh.call_of(frame.run)
        if own is not None and own != frame.call:
            self.run.culprit = c.peer
            raise self.mesh.differs(c.peer, frame.run, frame.call)

    def _take_data(self, c: Connection, frame: Frame, may_park: bool = True) -> None:
        row = frame.row
        if frame.further:
            frame, may_park = self._first_of(c, frame), False
        if self.origin.get(row) is not c.lead or row not in self.missing:
            self.run.fail(c.peer, f"it sent data of row {row}, which does not come from it (or came before)")
        receive = self.steps.receives[row]
        slot = self.buffers.slots[receive.chunk]
        if frame.total and frame.total != slot.size:
            self.run.fail(c.peer, f"it sends {frame.total} bytes where {slot.size} are due", row)
        landing = self.landings.get(row)
        claimed = (landing.claimed if landing is not None else 0) + frame.length
        if claimed > slot.size or (frame.length == 0 and (slot.size or landing is not None)):
            self.run.fail(c.peer, f"it sent {claimed} bytes where {slot.size} were due", row)
        end = frame.offset + frame.length
        if end > slot.size or (len(c.lead.lanes) == 1 and end != claimed):
            self.run.fail(c.peer, f"it sent {frame.length} bytes for place {frame.offset}, which are not due", row)
        if frame.length % slot.dtype.itemsize or frame.offset % slot.dtype.itemsize:
            self.run.fail(c.peer, f"it sent {frame.length} bytes at once, which ends within an element", row)
        if landing is None and may_park and frame.length >= PARKED_BYTES and slot.comes_early(row):
            c.parked = frame
            self.parked.append(c)
            self.run.watch(c)
            return
        if landing is None:
            landing = self.landings[row] = Landing(slot, row, receive.copies)
            self.fresh.get(c.lead, {}).pop(row, None)
            self.run.trace.coming_s[row] = time.monotonic() - self.run.start
        landing.claimed = claimed
        c.place, c.due = frame.offset, frame.length
        self._expect(c, frame, landing.target(c))

    def _first_of(self, c: Connection, frame: Frame) -> Frame:
        """A frame of several rows as if it had the first one alone; the others follow."""
        rows = range(frame.row, frame.row + 1 + frame.further)
        slots = self._due(c, rows)
        if slots is None:
            which = f"rows {frame.row} to {rows[-1]}, which do not come from it (or came before)"
            self.run.fail(c.peer, f"it sent data of {which}")
        due = sum(slot.size for slot in slots)
        if due != frame.length or due != frame.total or frame.offset:
            self.run.fail(c.peer, f"it sent {frame.length} bytes where {due} were due", frame.row)
        c.further = frame.further
        return frame._replace(length=slots[0].size, total=slots[0].size, further=0)

    def unpark(self) -> None:
        """Go on reading a parked peer although its turn has not come, since nothing else happens."""
        rows = [c.parked.row for c in self.parked if c.parked is not None]
        for c in list(self.parked):  # all lanes that have parts of the same transfer
            if c.parked is not None and c.parked.row == rows[0]:
                self._unpark(c, c.parked)

    def _unpark(self, c: Connection, frame: Frame) -> None:
        c.parked = None
        self.parked.remove(c)
        self._take_data(c, frame, may_park=False)
        self.look(c)
        self.run.watch(c)

    def _expect(self, c: Connection, frame: Frame, piece: memoryview) -> None:
        """Read the payload of a frame, or a piece of it, into memory."""
        if len(piece):
            c.frame, c.target = frame, piece
        else:
            self._end_payload(c, frame)

    def _end_piece(self, c: Connection, frame: Frame) -> None:
        """Handle a piece of a payload that has been read."""
        if frame.kind is Kind.DATA:
            landing = self.landings[frame.row]
            landing.fill(c)
            if c.due:
                self._expect(c, frame, landing.target(c))
                return
        self._end_payload(c, frame)

    def _end_payload(self, c: Connection, frame: Frame) -> None:
        if frame.kind is Kind.ABORT:
            reason = printable(c.text.decode(errors="replace"))
            self.mesh.condemned = frame.row, f"{reason} (as {self.mesh.name(c.peer)} says)"
            if self.run.pending():
                self.run.fail(*self.mesh.condemned)
            return
        row = frame.row
        if not self.is_complete(row):
            return
        further, c.further = c.further, 0
        delay = self.run.delays.get(row, 0.0)
        if delay:
            self.run.later(time.monotonic() + delay, self._arrived, row)
        else:
            self._arrived(row)
        if further:
            size, c.further = self.buffers.slots[self.steps.receives[row + 1].chunk].size, further - 1
            self._take_data(c, frame._replace(row=row + 1, length=size, total=size), may_park=False)

    def _arrived(self, row: int) -> None:
        self.missing.discard(row)
        landing = self.landings.pop(row)
        landing.finish()
        self.run.happened(row, self.run.program.node)
        for c in list(self.parked):
            if c.parked is not None and self.steps.receives[c.parked.row].chunk == self.steps.receives[row].chunk:
                if not landing.slot.comes_early(c.parked.row):
                    self._unpark(c, c.parked)


class Landing:
    """A transfer that is arriving: it is stored, or added piece by piece to the sum in which it is next. Its parts may
    come over several connections at once, in any order.

    Attributes:
        received: bytes received, counted in whole pieces.
        claimed: bytes of the frames that have begun to come.
    """

    def __init__(self, slot: Slot, row: int, copies: bool) -> None:
        self.slot, self.row = slot, row
        self.version = slot.next_on(row)
        self.memory: memoryview | None = None
        self.pieces: dict[Connection, Array] = {}
        if self.version is None:
            self.array = slot.memory(row, copies)
            self.memory = as_bytes(self.array)
        self.received = self.claimed = 0

    def target(self, c: Connection) -> memoryview:
        """Where the next bytes of the frame on a connection go."""
        if self.memory is not None:
            return self.memory[c.place : c.place + c.due]
        if c not in self.pieces:
            self.pieces[c] = self.slot.pool.take(min(self.slot.size, PIECE_BYTES), self.slot.dtype)
        return as_bytes(self.pieces[c])[: c.due]

    def whole(self, c: Connection) -> int:
        """The bytes of the piece that is being received on a connection."""
        return c.due if self.memory is not None else min(c.due, self.pieces[c].nbytes)

    def fill(self, c: Connection) -> None:
        """Take note that the target of a connection is full."""
        size, itemsize = c.due, self.slot.dtype.itemsize
        if self.version is not None:
            piece = self.pieces[c]
            size = min(size, piece.nbytes)
            self.slot.add(self.version, c.place // itemsize, piece[: size // itemsize])
        self.received += size
        c.place += size
        c.due -= size

    def finish(self) -> None:
        """Hand over the row, which has arrived whole."""
        if self.version is None:
            self.slot.arrive(self.row, self.array)
            return
        for piece in self.pieces.values():
            self.slot.pool.give(piece)
        self.slot.finish_row(self.row)
