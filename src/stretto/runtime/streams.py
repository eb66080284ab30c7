"""Send over several connections at once, and see at what rate the bytes arrive.

The receiver of a connection starts and stops it: it sends ``GO``, reads for the time that is to be measured and a
little longer, and sends ``STOP``; the sender then ends its bytes with ``END``, which no byte before it is, and the
receiver answers ``DONE``. So every stream still runs when the rate of another one is read. A sender also ends by itself
after a number of bytes.

TCP hands bytes over in order, so a lost packet holds those behind it back until all of them come at once. What has
arrived by a moment is therefore counted in packets, in order or not, where the kernel says how many (Linux).

On a busy machine packets wait behind the narrowest link until the kernel has a core for them, then many arrive at once.
Such a wait takes arrivals below the line at which the link delivers; what comes at once only brings them back to that
line. :func:`rate` is therefore the slope of the lowest line that no arrival is above (Moon, Skelly and Towsley, INFOCOM
1999, remove queueing from delays this way): a slope between two moments would be too large where packets waited at the
first one.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64
from ..model.errors import PeerFailed
from .channel import Channel, Wire

GO, STOP, DONE, END = b"g", b"s", b"d", 1
PIECE_BYTES = 1 << 18
"""Bytes that are received at once, at most."""
UNSENT_BYTES, LEAST_UNSENT = 1 << 16, 1 << 14
"""Bytes that may wait in the kernel for their first transmission, over all connections of a sender where nobody says
otherwise, and at least on each of them: what it must still send after ``STOP``."""
SAMPLE_S, SAMPLE_AGAIN_S = 0.5e-3, 2e-3
"""Seconds between two samples of what has arrived, at least and, on an idle core, at most: behind a lost packet bytes
arrive without waking the process."""
WARM_SHARE = 0.4
"""Share of a stream in which TCP finds its rate; it does not count."""
LONGER_S, LONGER_SHARE = 0.02, 0.1
"""By this much a stream is longer than what is measured of it, so that streams that began a little later are not
alone in their last moments."""
STEPS = 120
"""Equal parts of a stream between which slopes are taken."""
DATA_PACKETS = slice(152, 156)
"""Where Linux's ``struct tcp_info`` has ``tcpi_data_segs_in``."""

_NOISE = os.urandom(PIECE_BYTES).replace(bytes([END]), b"\0")
"""What is sent: nothing on the way can compress it."""


End = tuple[int, int]
"""A connection: the peer, and a number."""
Ends = Mapping[End, Wire]


@dataclass
class Arrival:
    """What has arrived over one connection.

    Attributes:
        asked_at: when this process said ``GO``, by the monotonic clock.
        ended_at: when the last byte came.
        samples: moments, and how much had arrived by then: packets, or bytes where packets are not counted.
        total, total_bytes: how much has arrived in all, in the unit of ``samples`` and in bytes.
        first_at: when the first byte came; infinite before.
    """

    asked_at: float
    ended_at: float = 0.0
    samples: list[tuple[float, int]] = field(default_factory=list)
    total: int = 0
    total_bytes: int = 0
    first_at: float = math.inf


def stream(
    outgoing: Ends,
    incoming: Ends,
    *,
    seconds: float,
    most_bytes: int,
    timeout_s: float,
    names: Mapping[End, str],
    unsent_bytes: int = UNSENT_BYTES,
) -> dict[End, Arrival]:
    """Send over the outgoing connections and receive from the incoming ones, all at once; no socket is in both.

    Args:
        seconds: how long each connection is measured, from its first byte on.
        most_bytes: the most bytes that each connection sends.
        timeout_s: seconds for which all peers may be silent.
        names: the peer of each connection, for messages.
        unsent_bytes: how many may wait in the kernel for their first transmission, over all outgoing connections.
    Returns:
        What arrived over each incoming connection.
    Raises:
        PeerFailed: a peer was silent, or is gone.
    """
    buffer = memoryview(bytearray(PIECE_BYTES))
    ends: dict[End, _Sender | _Receiver] = {}
    with selectors.DefaultSelector() as selector:
        for key, sock in outgoing.items():
            ends[key] = _Sender(sock, most_bytes, max(LEAST_UNSENT, unsent_bytes // len(outgoing)))
        for key, sock in incoming.items():
            try:
                ends[key] = _Receiver(sock, seconds, buffer)
            except OSError as error:
                raise PeerFailed(names[key], f"it went silent while the network was measured ({error})") from None
        for key, end in ends.items():
            selector.register(
                end.sock, selectors.EVENT_READ | selectors.EVENT_WRITE if end.pending else end.events, key
            )
        receivers = [end for end in ends.values() if isinstance(end, _Receiver)]
        sampled_at, heard_at = 0.0, time.monotonic()
        while selector.get_map():
            ready = selector.select(SAMPLE_AGAIN_S if any(r.runs for r in receivers) else timeout_s)
            now = time.monotonic()
            if ready:
                heard_at = now
            elif now - heard_at >= timeout_s:
                silent = next(iter(selector.get_map().values())).data
                reason = f"it was silent for the timeout of {timeout_s:g} s while the network was measured"
                raise PeerFailed(names[silent], reason)
            for entry, _ in ready:
                end = ends[entry.data]
                try:
                    end.act()
                    while end.pending:
                        end.act()
                except OSError as error:
                    reason = f"it went silent while the network was measured ({error})"
                    raise PeerFailed(names[entry.data], reason) from None
                if end.ended:
                    selector.unregister(end.sock)
                elif entry.events != end.events:
                    selector.modify(end.sock, end.events, entry.data)
            if now - sampled_at >= SAMPLE_S:
                sampled_at = now
                for receiver in receivers:
                    receiver.sample()
    return {key: end.arrival for key, end in ends.items() if isinstance(end, _Receiver)}


class _Connection:
    """One end of a connection.

    Attributes:
        ended: whether it has sent and received all.
    """

    sock: Wire
    ended: bool

    @property
    def pending(self) -> bool:
        """Whether there is something to receive of which the selector knows nothing."""
        return not self.ended and isinstance(self.sock, Channel) and self.sock.pending


class _Sender(_Connection):
    """The sending end: it waits for ``GO``, sends until ``STOP``, and has ended with ``DONE``."""

    def __init__(self, sock: Wire, most_bytes: int, most_unsent: int) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, most_unsent)
        self.sock, self.left_bytes, self.piece_bytes = sock, most_bytes, _whole_packets(sock, most_unsent)
        self.unsent = memoryview(b"")
        self.started = self.stopped = self.said_end = self.ended = False

    @property
    def events(self) -> int:
        sends = self.started and not (self.said_end and not len(self.unsent))
        return selectors.EVENT_READ | selectors.EVENT_WRITE if sends else selectors.EVENT_READ

    def act(self) -> None:
        """Look for a word of the receiver, then send at most one piece."""
        with contextlib.suppress(BlockingIOError):
            word = self.sock.recv(1)
            if not word:
                raise ConnectionError("it closed the connection")
            self.started, self.stopped, self.ended = True, word != GO, word == DONE
        if not self.started or self.ended:
            return
        if not len(self.unsent) and not self.said_end:
            more = 0 if self.stopped else min(self.left_bytes, self.piece_bytes)
            self.unsent = memoryview(_NOISE)[:more] if more else memoryview(bytes([END]))
            self.left_bytes, self.said_end = self.left_bytes - more, not more
        if len(self.unsent):
            with contextlib.suppress(BlockingIOError):
                self.unsent = self.unsent[self.sock.send(self.unsent) :]


class _Receiver(_Connection):
    """The receiving end: it says ``GO`` at once, ``STOP`` when it has seen enough, and ``DONE``."""

    def __init__(self, sock: Wire, seconds: float, buffer: memoryview) -> None:
        sock.setblocking(False)
        self.sock, self.buffer, self.ended = sock, buffer, False
        self.events = selectors.EVENT_READ
        self.until_s = seconds * (1 + LONGER_SHARE) + LONGER_S
        self.arrival, self.stopped = Arrival(time.monotonic()), False
        self.before = _packets(sock)
        sock.send(GO)

    @property
    def runs(self) -> bool:
        """Whether bytes have come, and more are to come."""
        return self.arrival.first_at < math.inf and not self.ended

    def act(self) -> None:
        """Receive what is there."""
        try:
            count = self.sock.recv_into(self.buffer)
        except BlockingIOError:  # not yet a whole record
            return
        if not count:
            raise ConnectionError("it closed the connection")
        now, arrival = time.monotonic(), self.arrival
        self.ended = self.buffer[count - 1] == END
        arrival.total_bytes += count - self.ended
        arrival.first_at = min(arrival.first_at, now)
        if self.ended:
            arrival.ended_at, arrival.total = now, self._count()
            self.sock.send(DONE)
        elif not self.stopped and now - arrival.first_at > self.until_s:
            self.stopped = True
            self.sock.send(STOP)

    def sample(self) -> None:
        """Note what has arrived by now. The clock is read last: a moment may be late for its count, never early."""
        if self.runs:
            count = self._count()
            self.arrival.samples.append((time.monotonic(), count))

    def _count(self) -> int:
        packets = None if self.before is None else _packets(self.sock)
        return self.arrival.total_bytes if packets is None or self.before is None else packets - self.before


def _whole_packets(sock: Wire, most_bytes: int) -> int:
    """Bytes of a piece, about ``most_bytes``, that fills all of its packets: as packets are counted, none may be
    smaller than the others."""
    packet = 1 if sock.family == socket.AF_UNIX else sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    return max(packet, most_bytes // packet * packet)


def _packets(sock: Wire) -> int | None:
    """How many packets with data have arrived, in order or not; None where the kernel does not say."""
    if sock.family == socket.AF_UNIX or not sys.platform.startswith("linux"):
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_PACKETS.stop)
    return int.from_bytes(info[DATA_PACKETS], sys.byteorder) if len(info) >= DATA_PACKETS.stop else None


class Received(NamedTuple):
    """What one process has received over its connections of a call of :func:`stream`.

    Attributes:
        curve: the bytes that had arrived at ``STEPS`` + 1 equally distant moments from the beginning to the end of the
            time that was measured; empty if some connection ended before, or nothing was received.
        took_s: seconds from the first byte that was sent to the last one that arrived, above 0 where bytes came.
    """

    curve: list[float]
    total_bytes: int
    took_s: float


def received(arrivals: Iterable[Arrival], seconds: float, latency_s: float) -> Received:
    """What arrived over several connections together.

    Args:
        seconds: as given to :func:`stream`.
        latency_s: seconds that a byte takes from the sender.
    """
    streams = list(arrivals)
    if not streams:
        return Received([], 0, 0.0)
    began = min(a.asked_at for a in streams)
    ended, first = max(a.ended_at for a in streams), min(a.first_at for a in streams)
    # a busy machine answers echoes late: bytes that were here sooner did not take less than from the first to the last
    # of them, or, where all came at once, no more than all of the time
    took_s = max(ended - began - 2 * latency_s, ended - first) or ended - began
    total_bytes = sum(a.total_bytes for a in streams)
    if any(len(a.samples) < 2 or a.samples[-1][0] < began + seconds for a in streams):
        return Received([], total_bytes, took_s)
    curve = np.zeros(STEPS + 1)
    for a in streams:
        moments, counts = np.array(a.samples).T
        grid = began + seconds * np.arange(STEPS + 1) / STEPS
        # what had certainly arrived: between two samples the connections of a link share it unevenly
        before = np.searchsorted(moments, grid, side="right")
        curve += np.concatenate(([0.0], counts))[before] * a.total_bytes / a.total
    return Received(curve.tolist(), total_bytes, took_s)


def rate(parts: Iterable[Received], seconds: float) -> tuple[float, float, float]:
    """At how many bytes/s all these processes, which began at the same time, received: the rate, and the range that it
    is in."""
    senders = [part for part in parts if part.total_bytes]
    if not senders:
        return 0.0, 0.0, 0.0
    if not all(part.curve for part in senders):
        whole = sum(part.total_bytes for part in senders) / max(part.took_s for part in senders)
        return whole, whole, whole
    curve = np.sum([part.curve for part in senders], axis=0)
    first = round(STEPS * WARM_SHARE)
    value = _slope_above(curve[first:]) * STEPS / seconds
    third = round(STEPS * (1 - WARM_SHARE) / 3)
    early, late = np.arange(first, first + third), np.arange(STEPS + 1 - third, STEPS + 1)
    slopes = (curve[late][:, None] - curve[early]) / (late[:, None] - early) * (STEPS / seconds)
    low, high = np.quantile(slopes, [0.25, 0.75]).tolist()
    return value, min(low, value), max(high, value)


def _slope_above(curve: Float64) -> float:
    """The slope, a step, of the line that no point is above and that is the least above them in sum: the edge of their
    upper hull over the middle."""
    steps = np.arange(len(curve))
    middle = len(curve) // 2 - 0.5
    before, after = steps[steps < middle], steps[steps > middle]
    slopes = (curve[after][:, None] - curve[before]) / (after[:, None] - before)
    heights = curve[before] + slopes * (middle - before)
    return float(slopes.flat[heights.argmax()])
