"""What a run sends: transfers whose time has come are queued, and go in frames when their connection has room."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..lower import Send
from .buffers import as_bytes
from .mesh import Connection
from .pacing import AHEAD_S, Outgoing, Together
from .wire import MOST_CHUNKS, SEGMENT_BYTES, Kind, encode

if TYPE_CHECKING:
    from .loop import Run

BATCH_BYTES = 1 << 18
"""Frames are collected up to this number of bytes, then sent by one system call. What is to be sent first is decided
when a frame is collected."""
BATCHES_AT_ONCE = 4
"""Batches to send on one connection before others have their turn."""


class Sending:
    """What one run sends.

    Attributes:
        unsent: the rows that the kernel has not taken whole, each with its receiver.
        active: the connections that may have something to send now.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.steps, self.buffers = run, run.steps, run.buffers
        self.unsent = {(row, peer) for row, send in run.steps.sends.items() for peer in send.to}
        self.active = set(run.connections)

    def begin(self, row: int, send: Send) -> None:
        """Send a transfer, or the message of which it is the first."""
        rows = self.steps.messages.get(row)
        if rows is None:
            self._send_row(row, send, send.to)
            return
        alone = [peer for peer in send.to if self._takes_messages(self.run.connection(peer, send.subflow))]
        apart = [peer for peer in send.to if peer not in alone]
        for each in rows if apart else ():
            self._send_row(each, self.steps.sends[each], apart)
        for together in self._frames(rows) if alone else ():
            self._send_together(together, alone, send)

    def _takes_messages(self, c: Connection) -> bool:
        """Whether the chunks of a message go in one frame. Paced ones have rates of their own, and lanes share each."""
        return self.run.pace is None and len(c.lanes) == 1

    def _frames(self, rows: Sequence[int]) -> Iterable[list[tuple[int, memoryview]]]:
        """The rows of a message with their bytes, as many at a time as may go in one frame."""
        together: list[tuple[int, memoryview]] = []
        size = 0
        for row in rows:
            send = self.steps.sends[row]
            piece = as_bytes(self.buffers.content(send.chunk, send.version))
            size += len(piece)
            if together and (size > SEGMENT_BYTES or len(together) == MOST_CHUNKS):
                yield together
                together, size = [], len(piece)
            together.append((row, piece))
        yield together

    def _send_together(self, together: Sequence[tuple[int, memoryview]], to: Sequence[int], first: Send) -> None:
        """Send transfers, each with its bytes, in one frame; one alone may go in several."""
        if len(together) == 1:
            row = together[0][0]
            self._send_row(row, self.steps.sends[row], to)
            return
        rows, pieces = zip(*together, strict=True)
        for peer in to:
            c = self.run.connection(peer, first.subflow)
            c.outgoing.add(Together(rows, pieces, first.priority))
            self.active.add(c)

    def _send_row(self, row: int, send: Send, to: Sequence[int]) -> None:
        """Send a transfer to some of its receivers."""
        run, content = self.run, as_bytes(self.buffers.content(send.chunk, send.version))
        rate, start = math.inf, 0.0
        if run.pace is not None:
            rate = send.rate / run.pace
            # where the plan gives starts, the bucket is full then, and what is late catches up
            start = run.start + send.start_s * run.pace - AHEAD_S if run.timed else time.monotonic()
        for peer in to:
            c = run.connection(peer, send.subflow)
            c.outgoing.add(Outgoing(row, content, rate, send.priority, start, len(c.lanes)))
            self.active.update(c.lanes)

    def write(self, now: float) -> None:
        """Send what may be sent now on the connections that have something to send."""
        for c in list(self.active):
            if not self._send(c, now):
                self.active.discard(c)
            self.run.watch(c)

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
                    self.run.later(c.outgoing.wake_at, self.active.add, c)
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
        """Queue a frame of the transfer or the message whose turn it is; False if none may go now."""
        segment = c.outgoing.next(now)
        if segment is None:
            return False
        (out, piece), run = segment, self.run
        for row in out.rows:
            run.trace.sent_s.setdefault(row, now - run.start)
        if isinstance(out, Together):
            further = len(out.rows) - 1
            c.queue(encode(Kind.DATA, run.number, out.row, out.total, run.call, out.total, 0, further), *out.pieces)
        else:
            if len(c.lead.lanes) > 1:
                c.hold_back(out.size)
            offset = out.offset - len(piece)
            c.queue(encode(Kind.DATA, run.number, out.row, len(piece), run.call, out.total, offset), piece)
        c.under_way.append((out, c.sent_bytes + c.unsent_bytes))
        return True

    def _gone(self, out: Outgoing, c: Connection) -> None:
        """The kernel has taken the last byte of a transfer, or of several in one frame."""
        gone_s = time.monotonic() - self.run.start
        for row in out.rows:
            send = self.steps.sends[row]
            self.run.trace.gone_s[row] = gone_s
            self.buffers.slots[send.chunk].release(send.version)
            self.unsent.discard((row, c.peer))
