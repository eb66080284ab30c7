"""Which transfer sends its next segment on a connection, and when.

Unpaced transfers go one after another, the highest priority first; where links are shared fairly they take turns. A
paced transfer has a token bucket that fills at its rate from the moment at which the plan starts it: one that is late
may send at once all that it should have sent by now, and the network decides how fast that goes. Of several transfers
the one that is most behind goes first. Where a plan gives starts, buckets begin to fill ``AHEAD_S`` before, so that a
link does not fall idle while a busy machine lets the process wait for a core.

The kernel keeps each connection to little more than the plan ever asks of it (``SO_MAX_PACING_RATE``). What is sent
ahead then waits at the sender and not in the queues of the network, where it would delay acknowledgements.
"""

from __future__ import annotations

import heapq
import math
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..lower import Program, Send
from .channel import Wire
from .wire import SEGMENT_BYTES

if TYPE_CHECKING:
    from .mesh import Connection, Mesh

SEGMENT_S = 0.01
"""Seconds of its rate that a paced transfer sends at once."""
AHEAD_S = 2 * SEGMENT_S
"""Seconds of its rate that a transfer with a planned start may have sent before their time."""
LEAST_SEGMENT = 1 << 12
WHOLE_BYTES = 64
"""Segments end at multiples of this number of bytes, so that they cut no element."""

LANE_PARTS = 32
"""Segments of a large transfer on each of several connections. The transfer ends when the slowest connection has sent
its last one, up to a segment after the others: 1/32 of its time (benchmarks/torch_wan.py)."""
LEAST_LANE_SEGMENT, MOST_LANE_SEGMENT = 1 << 14, 1 << 18
"""Bytes of such a segment, at least and at most."""

CATCH_UP = 1.25
"""Times the largest rate of the plan that the kernel lets a connection send at, so that what is late catches up,"""
HEADERS = 1.02
"""but at most this many times what the links carry: packets have headers (benchmarks/wire.py)."""
REACHED, REACHED_S = 0.93, 1.0
"""Lanes that send at this share of their limit for these seconds, at least, are held back by it. At the rate that was
measured they send at 0.8 of it; in less time what the kernel keeps would count for too much."""
_MAX_PACING_RATE = 47  # Python's socket module does not name the option


def limit_rate(sock: Wire, rate: float) -> None:
    """Let the kernel send no faster than ``rate`` bytes/s on a TCP connection; infinite for no limit."""
    if sock.family != socket.AF_UNIX:
        number = min(int(rate), (1 << 64) - 1) if math.isfinite(rate) else (1 << 64) - 1
        sock.setsockopt(socket.SOL_SOCKET, _MAX_PACING_RATE, struct.pack("Q", number))


def keep_to(c: Connection, rate: float) -> None:
    """Let the kernel send no faster than ``rate`` bytes/s on a connection; infinite for no limit."""
    if rate != c.limit:
        limit_rate(c.sock, rate)
        c.limit = rate


def lane_rate(rate: float, connections: int) -> float:
    """Bytes/s that each of several connections may send at which together carried ``rate``.

    Each is kept to little more than its share. Otherwise all of them fill the queues of the network until packets are
    lost, and who loses the last packets of a transfer waits for them several round trips.
    """
    return CATCH_UP * rate / connections


def raised(most_rate: float, sent_bytes: int, seconds: float) -> float:
    """The rate to which connections are kept from now on, after they sent these bytes in these seconds.

    What reaches ``REACHED`` of the limit shows that less was measured than the network gives: the limit goes up.
    """
    reached = seconds >= REACHED_S and sent_bytes >= REACHED * most_rate * seconds
    return CATCH_UP * most_rate if reached else most_rate


def planned_rates(mesh: Mesh, program: Program, pace: float) -> dict[Connection, float]:
    """The rate, bytes/s, to which the kernel keeps each connection in a paced run, of those on which something is sent.

    Of lanes it is that of the one that leads.
    """
    sends: dict[Connection, list[Send]] = {}
    for send in program.steps.sends.values():
        for node in send.to:
            sends.setdefault(mesh.connection(node, send.subflow), []).append(send)
    timed = program.plan.sharing == "timed"
    return {c: largest_rate(of, timed) / pace for c, of in sends.items()}


def largest_rate(sends: Sequence[Send], timed: bool) -> float:
    """The largest rate, bytes/s, of the sends on one connection in a paced run; infinite where the network decides.

    Args:
        timed: whether the plan says when each begins.
    """
    rate = np.array([send.rate for send in sends])
    if not len(rate) or not np.isfinite(rate).all():
        return math.inf
    widest = max(send.bandwidth for send in sends)
    together = float(rate.sum())
    if timed:
        start_s = np.array([send.start_s for send in sends])
        # where one transfer ends as the next begins, rounding must not let them overlap
        end_s = start_s + (1 - 1e-6) * np.array([send.size_bytes for send in sends]) / rate
        change = np.concatenate((rate, -rate))[np.argsort(np.concatenate((start_s, end_s)), kind="stable")]
        together = float(np.cumsum(change).max())
    return float(min(CATCH_UP * together, HEADERS * widest))


def lane_segment(size: int, connections: int) -> int:
    """Bytes that a connection takes at once of a transfer that goes over several."""
    return (
        max(LEAST_LANE_SEGMENT, min(MOST_LANE_SEGMENT, size // (LANE_PARTS * connections))) // WHOLE_BYTES * WHOLE_BYTES
    )


def segment_bytes(rate: float) -> int:
    """Bytes that a transfer of one connection sends at once, whose rate is in bytes/s; infinite if it is not paced."""
    if not math.isfinite(rate):
        return SEGMENT_BYTES
    return min(SEGMENT_BYTES, max(LEAST_SEGMENT, int(rate * SEGMENT_S) // WHOLE_BYTES * WHOLE_BYTES))


class Outgoing:
    """One transfer to one peer: the bytes that are left, and when the next ones may go.

    Args:
        rate: bytes/s; infinite if the network decides.
        start: from when on the bucket of a paced transfer fills; its first segment may go then.
        connections: over how many its segments go.
    Attributes:
        rows: the transfer, or all of those that go in one frame.
        under_way: the segments that the kernel has not taken yet.
    """

    __slots__ = ("left", "next_at", "priority", "rate", "row", "rows", "size", "total", "turns", "under_way")

    def __init__(
        self, row: int, content: memoryview, rate: float, priority: float, start: float, connections: int = 1
    ) -> None:
        self.row, self.left, self.rate, self.priority, self.next_at = row, content, rate, priority, start
        self.rows: Sequence[int] = (row,)
        self.turns, self.total, self.under_way = 0, len(content), 0
        self.size = segment_bytes(rate)
        if connections > 1:
            self.size = min(self.size, lane_segment(self.total, connections))

    @property
    def finished(self) -> bool:
        return not len(self.left)

    @property
    def gone(self) -> bool:
        """Whether the kernel has taken every byte."""
        return not len(self.left) and not self.under_way

    @property
    def offset(self) -> int:
        """Where the next piece begins."""
        return self.total - len(self.left)

    def segment(self) -> memoryview:
        """The next piece to send."""
        piece, self.left = self.left[: self.size], self.left[self.size :]
        self.turns += 1
        self.under_way += 1
        if self.rate != math.inf:
            self.next_at += len(piece) / self.rate
        return piece


class Together(Outgoing):
    """Transfers to one peer that go in one frame: chunks of a message. ``pieces`` has the bytes of each."""

    __slots__ = ("pieces",)

    def __init__(self, rows: Sequence[int], pieces: Sequence[memoryview], priority: float) -> None:
        super().__init__(rows[0], memoryview(b""), math.inf, priority, 0.0)
        self.rows, self.pieces, self.total = rows, pieces, sum(map(len, pieces))


class Queue:
    """The transfers that wait for one connection.

    Args:
        take_turns: whether transfers of equal priority take turns.
    """

    def __init__(self, take_turns: bool) -> None:
        self.take_turns = take_turns
        # (-priority, order among equal priorities, number, transfer), and (when it may go on, number, transfer)
        self.ready: list[tuple[float, float, int, Outgoing]] = []
        self.waiting: list[tuple[float, int, Outgoing]] = []
        self.count = 0

    def add(self, out: Outgoing) -> None:
        self.count += 1
        self._put(out, self.count)

    @property
    def wake_at(self) -> float:
        """When the next paced transfer may go on; infinite if no transfer waits for its time."""
        return self.waiting[0][0] if self.waiting else math.inf

    def next(self, now: float) -> tuple[Outgoing, memoryview] | None:
        """The next transfer to send and its piece; None if no transfer may go yet."""
        while self.waiting and self.waiting[0][0] <= now:
            _, number, out = heapq.heappop(self.waiting)
            heapq.heappush(self.ready, (-out.priority, out.next_at, number, out))
        if not self.ready:
            return None
        _, _, number, out = heapq.heappop(self.ready)
        piece = out.segment()
        if not out.finished:
            self._put(out, number)
        return out, piece

    def _put(self, out: Outgoing, number: int) -> None:
        if out.rate != math.inf:
            heapq.heappush(self.waiting, (out.next_at, number, out))
        else:
            order = out.turns if self.take_turns else 0
            heapq.heappush(self.ready, (-out.priority, order, number, out))
