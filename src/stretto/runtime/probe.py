"""What two processes measure over their connections: latency, the cost of a message, and bandwidth both ways.

Pairs meet in the rounds of a tournament (circle method): every rank is in one pair at a time, and a round shows what
many pairs get at once. The lower rank of a pair begins, the other one answers.
"""

from __future__ import annotations

import math
import statistics
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..model.errors import PeerFailed
from ..model.measurements import Measured, Pair, best
from .channel import Wire
from .streams import UNSENT_BYTES, Ends, Received, rate, received, stream
from .wire import HEADER, Kind, decode, encode, receive

MOST_ROUNDS = 32
"""The most rounds: among more ranks than this only some pairs are measured."""
BATCH = 8
"""Small messages that are sent back to back. TCP sends the first ten packets without waiting for an answer."""
ROUND_TRIPS = 20
"""Round trips that a stream lasts, unless the effort says otherwise."""

ECHO, ENOUGH, AGAIN = b"?", b".", b"+"
CONFIRMED, NEAR, NEAR_S, MOST_ECHOES = 4, 0.02, 10e-6, 10
"""The shortest round trip is believed when this number of them is as short, up to this share and these seconds; at most
this many times as many as asked for are tried."""

Sockets = Mapping[int, Sequence[Wire]]
"""The connections to each other rank, used for nothing else while the network is measured."""

_TIMES = struct.Struct("!3d")


@dataclass(frozen=True)
class Effort:
    """How much to measure.

    Attributes:
        echoes: round trips of a pair, at least.
        batches: how often small messages are sent back to back, ``BATCH`` at a time; 0 to leave that out.
        seconds, most_bytes: how long each stream lasts, and the most bytes that it sends over each connection.
        trials: how often each stream is repeated; the best counts.
        enough_s: seconds from which on a stream of a pair is not repeated: the moments for which a busy machine holds
            it up count little in it.
        round_trips: how many a stream lasts at least, whatever ``seconds``, so that TCP can fill the link.
        unsent_bytes: how many a sender lets the kernel have before they can be sent: these end a stream late.
        connections: the numbers of connections with which the bandwidth of a pair is measured.
        shared: whether to measure what pairs share as well: all flows of a rank at once, and of a site.
    """

    echoes: int = 5
    batches: int = 0
    seconds: float = 0.2
    most_bytes: int = 1 << 18
    trials: int = 2
    enough_s: float = math.inf
    round_trips: int = ROUND_TRIPS
    unsent_bytes: int = UNSENT_BYTES
    connections: tuple[int, ...] = (1,)
    shared: bool = False

    @property
    def pair_s(self) -> float:
        """How long the streams of a pair last, where its latency does not make them longer."""
        return 2 * self.trials * len(self.connections) * self.seconds

    def stream_s(self, latency_s: float) -> float:
        """How long a stream over links of this latency lasts."""
        return max(self.seconds, 2 * self.round_trips * latency_s)


QUICK = Effort(enough_s=0.1)
"""What a process group measures when it starts."""


def rounds(ranks: int, most: int = MOST_ROUNDS) -> list[list[tuple[int, int]]]:
    """The pairs of each round, the lower rank first: everyone meets everyone, at most once a round."""
    n = ranks + ranks % 2
    schedule = []
    for r in range(n - 1):
        ring = [0, *((i + r) % (n - 1) + 1 for i in range(n - 1))]
        pairs = [(min(a, b), max(a, b)) for a, b in zip(ring[: n // 2], reversed(ring[n // 2 :]), strict=True)]
        schedule.append([pair for pair in pairs if pair[1] < ranks])
    return schedule[:most]


def probe(rank: int, peer: int, socks: Sequence[Wire], effort: Effort, timeout_s: float) -> tuple[Pair, int]:
    """Measure a pair, together with the peer; returns what was measured from the peer to this rank, and the bytes.

    Raises:
        PeerFailed: the peer was silent for ``timeout_s``, or is gone.
    """
    begins = rank < peer
    with talk(peer, socks, timeout_s):
        latency_s = _echo(socks[0], effort.echoes) if begins else _answer(socks[0])
        message_s = None
        for sends in (begins, not begins) if effort.batches else ():
            if sends:
                _send_messages(socks[0], effort.batches)
            else:
                message_s = _receive_messages(socks[0], effort.batches)
    rates: dict[int, Measured] = {}
    moved = 0
    for count in effort.connections:
        trials: list[tuple[float, float, float]] = []
        used = {(peer, i): sock for i, sock in enumerate(socks[:count])}
        while len(trials) < effort.trials:
            for sends in (begins, not begins):
                came = together(used if sends else {}, {} if sends else used, effort, latency_s.value, timeout_s)
                if not sends:
                    trials.append(rate([came], effort.stream_s(latency_s.value)))
                    moved += came.total_bytes
                    enough = came.took_s >= effort.enough_s
            if len(trials) < effort.trials and effort.enough_s < math.inf:
                with talk(peer, socks, timeout_s):
                    if begins:
                        socks[0].sendall(ENOUGH if enough else AGAIN)
                    elif receive(socks[0], 1) == ENOUGH:
                        break
                if begins and enough:
                    break
        rates[count] = best(trials)
    return Pair(latency_s, message_s, rates), moved


def together(outgoing: Ends, incoming: Ends, effort: Effort, latency_s: float, timeout_s: float) -> Received:
    """Send and receive over many connections at once; returns what came to this rank."""
    seconds = effort.stream_s(latency_s)
    names = {key: f"rank {key[0]}" for key in (*outgoing, *incoming)}
    arrivals = stream(
        outgoing, incoming, seconds=seconds, most_bytes=effort.most_bytes, timeout_s=timeout_s, names=names,
        unsent_bytes=effort.unsent_bytes,
    )  # fmt: skip
    return received(arrivals.values(), seconds, latency_s)


@contextmanager
def talk(peer: int, socks: Sequence[Wire], timeout_s: float) -> Iterator[None]:
    """Use connections to a peer, which is blamed for whatever breaks them."""
    for sock in socks:
        sock.settimeout(timeout_s)
    try:
        yield
    except TimeoutError:
        silent = f"it has said nothing for the timeout of {timeout_s:g} s while the network was measured"
        raise PeerFailed(f"rank {peer}", silent) from None
    except OSError as error:
        raise PeerFailed(f"rank {peer}", f"it went silent while the network was measured ({error})") from None


def _echo(sock: Wire, count: int) -> Measured:
    """Half of the shortest round trip, and of the median one. Where processes wait for a core only a few are short, so
    there are more of them until several are about as short as the shortest."""
    halves: list[float] = []
    while len(halves) < count or (len(halves) < MOST_ECHOES * count and not _confirmed(halves)):
        began = time.perf_counter()
        sock.sendall(ECHO)
        receive(sock, 1)
        halves.append((time.perf_counter() - began) / 2)
    latency_s = Measured(min(halves), min(halves), statistics.median(halves))
    sock.sendall(ENOUGH + _TIMES.pack(*latency_s))
    return latency_s


def _confirmed(halves: Sequence[float]) -> bool:
    least = min(halves)
    return sum(half <= least * (1 + NEAR) + NEAR_S for half in halves) >= CONFIRMED


def _answer(sock: Wire) -> Measured:
    while receive(sock, 1) == ECHO:
        sock.sendall(ECHO)
    return Measured(*_TIMES.unpack(receive(sock, _TIMES.size)))


def _send_messages(sock: Wire, batches: int) -> None:
    """Send small messages back to back, as the executor frames them; each batch when the receiver is ready for it."""
    for _ in range(batches):
        receive(sock, 1)
        for row in range(BATCH):
            sock.sendall(encode(Kind.DATA, 0, row, 1) + b"x")


def _receive_messages(sock: Wire, batches: int) -> Measured:
    gaps = []
    for _ in range(batches):
        sock.sendall(b"!")
        moments = []
        for _ in range(BATCH):
            receive(sock, decode(receive(sock, HEADER.size)).length)
            moments.append(time.perf_counter())
        gaps.append((moments[-1] - moments[0]) / (BATCH - 1))
    gaps.sort()
    return Measured(statistics.median(gaps), gaps[len(gaps) // 4], gaps[-1 - len(gaps) // 4])
