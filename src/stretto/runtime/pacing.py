"""Which transfer sends its next segment on a connection, and when.

Unpaced transfers go one after the other, the highest priority first; where links are shared fairly they take turns.
A paced one has a token bucket: its next segment may go when the last one should have left at its rate. While it is
alone on its connection the kernel paces it instead, packet by packet, where it does that (``SO_MAX_PACING_RATE``).
"""

from __future__ import annotations

import math
import socket
import struct
from dataclasses import dataclass

from .wire import SEGMENT_BYTES

SEGMENT_S = 0.004
"""How much a paced transfer sends at once, seconds of its rate."""
LEAST_SEGMENT = 1 << 12
WHOLE_BYTES = 64
"""Segments are cut at multiples of this, which no element crosses."""
KERNEL_SEGMENT_S = 0.02
"""How much of a transfer that the kernel paces waits in the kernel: what comes after it must not wait long."""
WORTH_BYTES = 1 << 18
"""What a transfer has left at least to be paced by the kernel: a connection keeps its rate for two packets more than it
should, which a short transfer would notice."""
MOST_PACED = 9000
"""The largest TCP segment that the kernel is left to pace, bytes. Linux lets the first ten of a connection go at once:
of loopback's, which are 64 KiB, too much."""
_PACING_RATE, _UNLIMITED = 47, 0xFFFFFFFF  # Python's socket module does not name the option


def paces(sock: socket.socket) -> bool:
    """Whether the kernel keeps a TCP connection to a rate: it must know the option, and cut packets small."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _PACING_RATE, struct.pack("I", _UNLIMITED))
        segment = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    except OSError:
        return False
    return segment <= MOST_PACED


@dataclass
class Outgoing:
    """One transfer to one peer: what is left of it, and when that may go on."""

    row: int
    left: memoryview
    rate: float
    priority: float
    next_at: float
    turns: int = 0
    finished: bool = False

    def segment(self, now: float, by_kernel: bool = False) -> memoryview:
        """The next piece to send; ``by_kernel``: at once, since the kernel keeps the rate."""
        size = SEGMENT_BYTES
        if math.isfinite(self.rate):
            piece_s = KERNEL_SEGMENT_S if by_kernel else SEGMENT_S
            size = min(size, max(LEAST_SEGMENT, int(self.rate * piece_s) // WHOLE_BYTES * WHOLE_BYTES))
        piece, self.left = self.left[:size], self.left[size:]
        self.finished = not len(self.left)
        if math.isfinite(self.rate) and not by_kernel:
            # what comes late does not make up for more than one segment
            self.next_at = max(self.next_at, now - SEGMENT_S) + len(piece) / self.rate
        self.turns += 1
        return piece


class Queue:
    """The transfers that wait for one connection.

    Args:
        take_turns: whether those of equal priority do.
        sock: the connection, if the kernel may pace it; see :func:`paces`.

    Attributes:
        wake_at: when the next paced transfer may go on, infinite if none waits for time.
        under_way: the transfer whose segment is being written.
    """

    def __init__(self, take_turns: bool, sock: socket.socket | None = None) -> None:
        self.take_turns, self.sock = take_turns, sock
        self.limit = math.inf
        self.waiting: list[Outgoing] = []
        self.wake_at = math.inf
        self.under_way: Outgoing | None = None

    def put(self, out: Outgoing) -> None:
        self.waiting.append(out)

    def next(self, now: float) -> tuple[Outgoing, memoryview] | None:
        """The transfer that goes next and its piece, None if none may go yet."""
        may = [o for o in self.waiting if o.next_at <= now]
        self.wake_at = min((o.next_at for o in self.waiting if o.next_at > now), default=math.inf)
        if not may:
            if not self.waiting:
                self._limit(math.inf)
            return None
        chosen = min(may, key=lambda o: (-o.priority, o.turns if self.take_turns else 0))
        alone = self.sock is not None and len(self.waiting) == 1 and math.isfinite(chosen.rate)
        by_kernel = alone and (len(chosen.left) >= WORTH_BYTES or self.limit == chosen.rate)
        self._limit(chosen.rate if by_kernel else math.inf)
        piece = chosen.segment(now, by_kernel)
        if chosen.finished:
            self.waiting.remove(chosen)
        return chosen, piece

    def _limit(self, rate: float) -> None:
        """Let the kernel keep the connection to a rate, bytes/s."""
        if self.sock is not None and rate != self.limit:
            self.limit = rate
            number = _UNLIMITED if rate >= _UNLIMITED else max(1, round(rate))
            self.sock.setsockopt(socket.SOL_SOCKET, _PACING_RATE, struct.pack("I", number))
            waiting = 0 if number == _UNLIMITED else max(LEAST_SEGMENT, int(rate * KERNEL_SEGMENT_S))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, waiting)
