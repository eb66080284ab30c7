"""How many connections a pair needs, and by which congestion control, found by measuring a few numbers of them.

Clouds cap single flows, and TCP's usual congestion control (cubic) takes each lost packet for a full queue, so on a
long link that loses packets a connection carries little. One pair of ranks stands for all pairs of its two sites. It
measures one connection, and one with BBR, if the kernels have it: BBR is used if it carries ``LOSSY_GAIN`` times as
much as the default. Where packets are lost, one stream of either says little: the default begins with the window that
it had before it lost any, and carries in 10 round trips what it cannot keep up; so it is measured again, and the later
stream counts. BBR has a second attempt. Then the pair measures 16 connections, and once more if these carry clearly
less than one does, since a stream says too little where a process waits for a core. If they carry less than ``GAIN``
times as much as one, one is enough.

Else the pair gets the fewest connections which at the rate of one would carry ``ROOM`` times the most that was seen:
where flows are capped, no connection then has to reach its cap all the time. Pairs that send at once share that room.
These connections are measured longer, since their rate is kept. If that shows more than was seen before, so that there
is no such room any more, or clearly less, twice as many are tried. Only the direction that seemed slower decides, which
halves the time; the other one is measured with all pairs of the two sites together, or at the end if there is but one.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..model.measurements import Lanes, Pair
from ..runtime.channel import Wire
from ..runtime.congestion import BBR, congestion_of, use_congestion
from ..runtime.probe import MOST_ROUNDS, Effort, together
from ..runtime.streams import LEAST_UNSENT, UNSENT_BYTES, Received, rate

LADDER = (1, 2, 4, 8, 16)
"""Numbers of connections that a pair may get."""
GAIN = 1.05
"""More connections must carry this many times as much to be worth it (benchmarks/torch_wan.py)."""
LOSSY_GAIN = 1.25
"""BBR must carry this many times as much as the default. Where packets are lost it carries 2 to 40 times as much; where
flows are capped, streams of either differ by up to 9 %, and the default is kept (benchmarks/torch_wan.py)."""
ROOM = 4 / 3
"""Several connections are enough if this many times the most would go over them, had each the rate of one alone. 8
connections whose caps add up to exactly the link take 4.8 s for what 16 carry in 4.3 s (benchmarks/streams.py)."""
LOSSY = BBR
"""The congestion control that is tried besides the default: it does not take a lost packet for a full queue."""
STREAM_S, STREAM_BYTES = 0.2, 1 << 26
"""Seconds that a stream lasts, if ``FEW_TRIPS`` round trips do not take longer, and the most bytes of all its
connections."""
FEW_TRIPS, TRIPS = 10, 16
"""Round trips that a stream lasts which only decides what to measure next, and one whose rate is kept. TCP doubles its
rate with each of the first, from 10 packets a connection."""
RESENT_PACKETS = slice(100, 104)
"""Where Linux's ``struct tcp_info`` has ``tcpi_total_retrans``."""
UNSENT_S = 0.02
"""Seconds of a pair's rate that may wait in the kernel: they make each stream as much longer."""

Ways = Sequence[tuple[int, int]]
Rates = tuple[float, float]
"""Bytes/s from the lower rank of a pair to the higher one, and back; 0 where that was not measured."""


class Widening(NamedTuple):
    """How a rank gives pairs more connections.

    Attributes:
        open: opens connections; given for some other ranks how many their pairs are to have at least. All ranks call it
            at once, with a name.
        sockets: the connections to another rank.
        keep: closes those to another rank that are not needed, and keeps the others together to little more than the
            rate. Both ranks of the pair call it.
        fixed: what all pairs over a network get; None to measure what they need.
    """

    open: Callable[[str, Mapping[int, int]], None]
    sockets: Callable[[int], Sequence[Wire]]
    keep: Callable[[int, Lanes], None]
    fixed: Lanes | None = None


class Climbed(NamedTuple):
    """What a pair chose, and what that carried."""

    lanes: Lanes
    rates: Rates


@dataclass
class _Climb:
    """One pair on the ladder.

    Attributes:
        usable: whether both ends can use ``LOSSY``.
        flows: how many pairs of its two sites send at once.
        falls: the direction that decides: False from the lower rank to the higher one, True back.
        unsent_bytes: see :class:`.Effort`.
        connections, congestion: what is measured next.
        kept: whether that is what seems to be enough, whose rate is kept.
        last: whether it is enough, and only its other direction is to be measured.
        least: the fewest connections that seemed to be enough.
        again: congestion controls of which one connection is measured once more, as packets were lost.
        doubted: whether most connections carried clearly less than one, and are measured once more.
        found: what was carried, by connections and congestion control.
    """

    usable: bool
    flows: int = 1
    falls: bool = False
    unsent_bytes: int = UNSENT_BYTES
    connections: int = 1
    congestion: str = ""
    kept: bool = False
    last: bool = False
    least: int = 1
    ended: bool = False
    again: set[str] = field(default_factory=set)
    doubted: bool = False
    found: dict[tuple[int, str], Rates] = field(default_factory=dict)

    @property
    def direction(self) -> bool:
        """The direction that is measured next, as ``falls``."""
        return self.falls != self.last

    @property
    def effort(self) -> Effort:
        """How long the next step lasts."""
        trips, size = TRIPS if self.kept else FEW_TRIPS, STREAM_BYTES // self.connections
        return Effort(seconds=STREAM_S, most_bytes=size, trials=1, round_trips=trips, unsent_bytes=self.unsent_bytes)

    def took(self, there: float, back: float, lost: bool = False) -> None:
        """Take note of the rates of the last step, bytes/s, and whether packets were lost; decide on the next one."""
        now = self.connections, self.congestion
        if now == (1, "") and self.usable and not self.kept:
            if lost and not self.found:
                self.found[now], self.again = (there, back), {"", LOSSY}
                return
            if "" in self.again:
                self.again.discard("")
                del self.found[now]  # it had the window of a link that loses nothing
        before = self.found.get(now, (0.0, 0.0))
        self.found[now] = max(there, before[0]), max(back, before[1])
        if self.last:
            self.ended = True
            return
        if self.kept:
            if self._chosen(now):
                way = self.found[self.connections, self.congestion]
                self.last = self.flows == 1 and not way[not self.falls]  # else all pairs together show it
                self.ended = not self.last
            return
        if now == (1, "") and self.usable:
            self.congestion = LOSSY
        elif self.connections == 1:
            if self._carried(now) < LOSSY_GAIN * self._carried((1, "")):
                if now[1] in self.again:
                    self.again.discard(now[1])
                    return
                self.congestion = ""
            self.connections = LADDER[-1]
        elif not self.doubted and GAIN * self._carried(now) < self._carried((1, self.congestion)):
            self.doubted = True
        else:
            self.connections = self.least = self._enough()
            self.kept = True

    def _chosen(self, now: tuple[int, str]) -> bool:
        """Whether what was just measured is enough, or half as many are; else twice as many are next."""
        half = self.connections // 2, self.congestion
        if self.connections > self.least and self._carried(now) < GAIN * self._carried(half):
            self.connections //= 2
            return True
        enough = self._enough() <= self.connections and GAIN * self._carried(now) >= self._most
        if enough or self.connections == LADDER[-1]:
            return True
        self.connections *= 2
        return False

    def _enough(self) -> int:
        """The fewest connections that should carry the most that was seen."""
        each = self.flows * self._carried((1, self.congestion))
        if GAIN * self._carried((1, self.congestion)) >= self._most:
            return 1
        return next((count for count in LADDER[1:] if count * each >= ROOM * self._most), LADDER[-1])

    def _carried(self, way: tuple[int, str]) -> float:
        """What a number of connections carried in the direction that decides."""
        return self.found[way][self.falls]

    @property
    def _most(self) -> float:
        return max(self._carried(way) for way in self.found)

    @property
    def chosen(self) -> Climbed:
        way = self.connections, self.congestion
        return Climbed(Lanes(*way, max(self.found[way])), self.found[way])


def climbed(
    rank: int, ways: Mapping[tuple[int, int], int], pairs: Mapping[tuple[int, int], Pair], widening: Widening,
    share: Callable[[str, Any], list[Any]], timeout_s: float,
) -> dict[tuple[int, int], Climbed]:  # fmt: skip
    """The connections that each way over a network needs; every rank of the group calls this.

    Args:
        ways: pairs of ranks, the lower one first, and how many pairs send at once between the same sites. Those without
            a common rank are measured at once.
        pairs: what one connection shows from one rank to another, at least for these pairs and both directions.
        share: publishes this rank's value under a name, and returns the values of all ranks.
        timeout_s: seconds for which a peer may be silent.
    """
    peers = [peer for way in ways if rank in way for peer in way if peer != rank]
    mine = {str(peer): _over_network(widening.sockets(peer)[0]) for peer in peers}
    kinds = share("ways", mine)
    over_network = [(a, b) for a, b in ways if kinds[a][str(b)] is not None]
    chosen: dict[tuple[int, int], Climbed] = {}
    latency_s = {way: pairs[way].latency_s.value for way in ways}
    for number, together_now in enumerate(_apart(over_network)[:MOST_ROUNDS]):
        climbs = {
            (a, b): _Climb(
                usable=bool(kinds[a][str(b)] and kinds[b][str(a)]),
                flows=ways[a, b],
                falls=pairs[b, a].rate.value < pairs[a, b].rate.value,
                unsent_bytes=max(LEAST_UNSENT, min(UNSENT_BYTES, int(UNSENT_S * pairs[a, b].rate.value))),
            )
            for a, b in together_now
        }
        step = 0
        while not all(climb.ended for climb in climbs.values()):
            going = {way: climb for way, climb in climbs.items() if not climb.ended}
            rates = _measured(rank, going, f"ladder {number}, {step}", latency_s, widening, share, timeout_s)
            for way, climb in going.items():
                climb.took(*rates[way])
            step += 1
        chosen |= {way: climb.chosen for way, climb in climbs.items()}
    return chosen


def _over_network(sock: Wire) -> bool | None:
    """Whether a connection can use ``LOSSY`` and does not yet; None if it stays within its machine."""
    if sock.family == socket.AF_UNIX:
        return None
    now = congestion_of(sock)
    if now == LOSSY:
        return False
    with contextlib.suppress(OSError):
        use_congestion([sock], LOSSY)
        use_congestion([sock], now)
        return True
    return False


def _apart(ways: Ways) -> list[list[tuple[int, int]]]:
    """The ways in rounds, in which no rank is twice."""
    rounds: list[list[tuple[int, int]]] = []
    for way in ways:
        for pairs in rounds:
            if not any({*way} & {*pair} for pair in pairs):
                pairs.append(way)
                break
        else:
            rounds.append([way])
    return rounds


def _measured(
    rank: int, going: Mapping[tuple[int, int], _Climb], name: str, latency_s: Mapping[tuple[int, int], float],
    widening: Widening, share: Callable[[str, Any], list[Any]], timeout_s: float,
) -> dict[tuple[int, int], tuple[float, float, bool]]:  # fmt: skip
    """Bytes/s of each pair with as many connections as are next, from the lower rank to the higher one and back, 0 in
    the direction that it does not measure now; and whether packets were lost."""
    mine = {(a if b == rank else b): climb for (a, b), climb in going.items() if rank in (a, b)}
    widening.open(name, {peer: climb.connections for peer, climb in mine.items()})
    came: list[list[tuple[Received, int]]] = []
    for falls in (False, True):
        if all(climb.direction != falls for climb in going.values()):
            came.append([])
            continue
        share(f"begin {name}, {falls}", None)
        part, resent = Received([], 0, 0.0), 0
        for peer, climb in mine.items():
            if climb.direction != falls:
                continue
            sockets = widening.sockets(peer)[: climb.connections]
            if (1, LOSSY) in climb.found and not climb.congestion:  # it gained nothing: as new connections are
                use_congestion(sockets[:1], congestion_of(widening.sockets(peer)[-1]))
            else:
                use_congestion(sockets, climb.congestion)
            ends = {(peer, i): sock for i, sock in enumerate(sockets)}
            sends = (rank > peer) is falls
            late_s = latency_s[min(rank, peer), max(rank, peer)]
            before = _resent(sockets)
            part = together(ends if sends else {}, {} if sends else ends, climb.effort, late_s, timeout_s)
            resent = _resent(sockets) - before
        came.append([(Received(*row), count) for row, count in share(f"{name}, {falls}", [part, resent])])
    rates = {}
    for (a, b), climb in going.items():
        seconds = climb.effort.stream_s(latency_s[a, b])
        sender, receiver = (b, a) if climb.direction else (a, b)
        carried = rate([came[climb.direction][receiver][0]], seconds)[0]
        lost = came[climb.direction][sender][1] > 0
        rates[a, b] = (0.0, carried, lost) if climb.direction else (carried, 0.0, lost)
    return rates


def _resent(sockets: Iterable[Wire]) -> int:
    """How many packets TCP has sent again over these connections; 0 where the kernel does not say."""
    if not sys.platform.startswith("linux"):
        return 0
    infos = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RESENT_PACKETS.stop) for sock in sockets]
    return sum(int.from_bytes(info[RESENT_PACKETS], sys.byteorder) for info in infos)
