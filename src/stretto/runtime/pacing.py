"""Which transfer sends its next segment on a connection, and when.

Unpaced transfers go one after another, the highest priority first; where links are shared fairly they take turns.
A paced transfer has a token bucket: its next segment may go once the last one should have left at its rate. While
a paced transfer is alone on its connection the kernel paces it instead, packet by packet (``SO_MAX_PACING_RATE``).
"""

from __future__ import annotations

import math
import socket
import struct
from dataclasses import dataclass

from .wire import SEGMENT_BYTES

SEGMENT_S = 0.004
"""Seconds of its rate that a paced transfer sends at once."""
LEAST_SEGMENT = 1 << 12
WHOLE_BYTES = 64
"""Segments end at multiples of this number of bytes, so that they cut no element."""
KERNEL_SEGMENT_S = 0.02
"""Seconds of its rate that a transfer paced by the kernel may have in the kernel's buffer, where later frames wait
behind it."""
WORTH_BYTES = 1 << 18
"""The kernel paces only transfers with at least this many bytes left: a connection keeps its old rate for two packets
too long, which distorts a short transfer."""
MOST_PACED = 9000
"""The largest TCP segment, bytes, for which the kernel may pace. Linux sends the first ten segments of a connection at
once, which is too much with the 64 KiB segments of loopback."""
_PACING_RATE, _UNLIMITED = 47, 0xFFFFFFFF  # Python's socket module does not name the option


def paces(sock: socket.socket) -> bool:
    """Whether the kernel can pace a TCP connection: it must know the option, and cut small packets."""
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
    """One transfer to one peer: the bytes that are left, and when the next ones may go."""

    row: int
    left: memoryview
    rate: float
    priority: float
    next_at: float
    turns: int = 0
    finished: bool = False

    def segment(self, now: float, by_kernel: bool = False) -> memoryview:
        """The next piece to send; a larger one if the kernel paces (``by_kernel``)."""
        size = SEGMENT_BYTES
        if math.isfinite(self.rate):
            piece_s = KERNEL_SEGMENT_S if by_kernel else SEGMENT_S
            size = min(size, max(LEAST_SEGMENT, int(self.rate * piece_s) // WHOLE_BYTES * WHOLE_BYTES))
        piece, self.left = self.left[:size], self.left[size:]
        self.finished = not len(self.left)
        if math.isfinite(self.rate) and not by_kernel:
            # a transfer that is late catches up by one segment at most
            self.next_at = max(self.next_at, now - SEGMENT_S) + len(piece) / self.rate
        self.turns += 1
        return piece


class Queue:
    """The transfers that wait for one connection.

    Args:
        take_turns: whether transfers of equal priority take turns.
        sock: the connection, if the kernel may pace it; see :func:`paces`.

    Attributes:
        wake_at: when the next paced transfer may go on; infinite if no transfer waits for its time.
        under_way: the transfer whose segment is being written.
    """

    def __init__(self, take_turns: bool, sock: socket.socket | None = None) -> None:
        self.take_turns, self.sock = take_turns, sock
        self.limit = math.inf
        self.waiting: list[Outgoing] = []
        self.wake_at = math.inf
        self.under_way: Outgoing | None = None

    def next(self, now: float) -> tuple[Outgoing, memoryview] | None:
        """The next transfer to send and its piece; None if no transfer may go yet."""
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
        """Set the rate to which the kernel paces the connection, bytes/s."""
        if self.sock is not None and rate != self.limit:
            self.limit = rate
            number = _UNLIMITED if rate >= _UNLIMITED else max(1, round(rate))
            self.sock.setsockopt(socket.SOL_SOCKET, _PACING_RATE, struct.pack("I", number))
            waiting = 0 if number == _UNLIMITED else max(LEAST_SEGMENT, int(rate * KERNEL_SEGMENT_S))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, waiting)
