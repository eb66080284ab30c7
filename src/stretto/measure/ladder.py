"""How many connections a pair needs, and by which congestion control, found by measuring more and more of them.

Clouds cap single flows, and TCP's usual congestion control (cubic) takes each lost packet for a full queue, so on a
long link that loses packets a connection carries little. One pair of ranks stands for all pairs of its two sites. It
measures 1, 2, 4, 8 and 16 connections, and stops when the next number carries less than ``GAIN`` times as much;
before that it tries BBR on one connection, if the kernels have it. Where both directions are about alike, only the one
that seemed slower is measured, which halves the time; what is chosen is then measured once more, both ways, since its
rate is kept, and one trial may be too low on a busy machine. The fewest connections that are ``NEAR`` the best are
taken; if these are several, the fewest which at the rate of one would carry ``ROOM`` times the best: where flows are
capped, no connection then has to reach its cap all the time. Pairs that send at once share that room.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..model.measurements import Lanes, Pair
from ..runtime.channel import Wire
from ..runtime.probe import MOST_ROUNDS, Effort, together
from ..runtime.streams import Received, rate

LADDER = (1, 2, 4, 8, 16)
"""Numbers of connections that are tried."""
GAIN = 1.05
"""More connections, or BBR, must carry this many times as much to be tried further (benchmarks/torch_wan.py)."""
NEAR = 0.97
"""As many as carry this share of the most are enough."""
ROOM = 4 / 3
"""Several connections are enough if this many times the most would go over them, had each the rate of one alone. 8
connections whose caps add up to exactly the link take 4.8 s for what 16 carry in 4.3 s (benchmarks/streams.py)."""
ALIKE = 1.5
"""Two directions are alike if one connection carries less than this many times as much in one as in the other."""
LOSSY = "bbr"
"""The congestion control that is tried besides the default: it does not take a lost packet for a full queue."""
STREAM_S, STREAM_BYTES = 0.3, 1 << 26
"""Seconds that a stream lasts, if 20 round trips do not take longer, and the most bytes of all its connections."""

Ways = Sequence[tuple[int, int]]


class Widening(NamedTuple):
    """How a rank gives pairs more connections.

    Attributes:
        open: opens connections; given for some other ranks how many their pairs are to have. All ranks call it at once,
            with a name.
        sockets: the connections to another rank.
        keep: keeps the connections to another rank together to little more than these bytes/s.
    """

    open: Callable[[str, Mapping[int, int]], None]
    sockets: Callable[[int], Sequence[Wire]]
    keep: Callable[[int, float], None]


@dataclass
class _Climb:
    """One pair on the ladder.

    Attributes:
        usable: whether both ends can use ``LOSSY``.
        flows: how many pairs of its two sites send at once.
        falls: the directions that are measured: False from the lower rank to the higher one, True back.
        connections, congestion: what is measured next.
        found: what was carried, both ways together and the more of them, by connections and congestion control.
        again: whether what is measured next is what was chosen.
    """

    usable: bool
    flows: int = 1
    falls: tuple[bool, ...] = (False, True)
    connections: int = 1
    congestion: str = ""
    found: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)
    again: bool = False
    ended: bool = False

    def took(self, there: float, back: float) -> None:
        """Take note of the rates of the last step, bytes/s, and decide on the next one."""
        if self.again:
            both, most = self.found[self.connections, self.congestion]
            self.found[self.connections, self.congestion] = both, max(most, there, back)
            self.ended = True
            return
        before = max((both for both, _ in self.found.values()), default=0.0)
        both = there + back
        self.found[self.connections, self.congestion] = both, max(there, back)
        gains = both >= GAIN * before
        if self.connections == 1 and not self.congestion and self.usable:
            self.congestion = LOSSY
            return
        if self.connections == 1 and self.congestion and not gains:
            self.congestion, gains = "", True
        later = [count for count in LADDER if count > self.connections]
        if later and gains:
            self.connections = later[0]
            return
        self.again = len(self.falls) == 1 and self.lanes.connections > 1
        self.ended = not self.again
        if self.again:
            self.connections, self.congestion, _ = self.lanes
            self.falls = (False, True)

    @property
    def lanes(self) -> Lanes:
        most = max(both for both, _ in self.found.values())
        near = [(*way, *rates) for way, rates in self.found.items() if rates[0] >= NEAR * most]
        roomy = (
            (count, congestion, one)
            for count, congestion, _, one in near
            if count == 1 or count * self.flows * self.found[1, congestion][0] >= ROOM * most
        )
        return Lanes(*next(roomy, (near[-1][0], near[-1][1], near[-1][3])))


def climbed(
    rank: int, ways: Mapping[tuple[int, int], int], pairs: Mapping[tuple[int, int], Pair], widening: Widening,
    share: Callable[[str, Any], list[Any]], timeout_s: float,
) -> dict[tuple[int, int], Lanes]:  # fmt: skip
    """The connections that each way needs; every rank of the group calls this.

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
    chosen: dict[tuple[int, int], Lanes] = dict.fromkeys(ways, Lanes())
    latency_s = {way: pairs[way].latency_s.value for way in ways}
    for number, together_now in enumerate(_apart(over_network)[:MOST_ROUNDS]):
        climbs = {
            (a, b): _Climb(bool(kinds[a][str(b)] and kinds[b][str(a)]), ways[a, b], _directions(pairs, a, b))
            for a, b in together_now
        }
        step = 0
        while not all(climb.ended for climb in climbs.values()):
            going = {way: climb for way, climb in climbs.items() if not climb.ended}
            rates = _measured(rank, going, f"ladder {number}, {step}", latency_s, widening, share, timeout_s)
            for way, climb in going.items():
                climb.took(*rates[way])
            step += 1
        chosen |= {way: climb.lanes for way, climb in climbs.items()}
    return chosen


def use_congestion(sockets: Iterable[Wire], name: str) -> None:
    """Let connections over the network use a congestion control; "" for the one that they have."""
    for sock in sockets:
        if name and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def _congestion(sock: Wire) -> str:
    return bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)).rstrip(b"\0").decode()


def _over_network(sock: Wire) -> bool | None:
    """Whether a connection can use ``LOSSY`` and does not yet; None if it stays within its machine."""
    if sock.family == socket.AF_UNIX:
        return None
    now = _congestion(sock)
    if now == LOSSY:
        return False
    with contextlib.suppress(OSError):
        use_congestion([sock], LOSSY)
        use_congestion([sock], now)
        return True
    return False


def _directions(pairs: Mapping[tuple[int, int], Pair], low: int, high: int) -> tuple[bool, ...]:
    """The directions in which a pair climbs: the slower one, or both if they differ."""
    there, back = pairs[low, high].rate.value, pairs[high, low].rate.value
    return (back < there,) if max(there, back) < ALIKE * min(there, back) else (False, True)


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
) -> dict[tuple[int, int], tuple[float, float]]:  # fmt: skip
    """Bytes/s of each pair with as many connections as are next, from the lower rank to the higher one and back; 0 in a
    direction in which it does not climb."""
    mine = {(a if b == rank else b): climb for (a, b), climb in going.items() if rank in (a, b)}
    widening.open(name, {peer: climb.connections for peer, climb in mine.items()})
    came: list[list[Received]] = []
    effort = Effort(seconds=STREAM_S, trials=1)
    for falls in (False, True):
        if not any(falls in climb.falls for climb in going.values()):
            came.append([])
            continue
        share(f"begin {name}, {falls}", None)
        part = Received([], 0, 0.0)
        for peer, climb in mine.items():
            if falls not in climb.falls:
                continue
            sockets = widening.sockets(peer)[: climb.connections]
            if (1, LOSSY) in climb.found and not climb.congestion:  # it gained nothing: as new connections are
                use_congestion(sockets[:1], _congestion(sockets[-1]))
            else:
                use_congestion(sockets, climb.congestion)
            ends = {(peer, i): sock for i, sock in enumerate(sockets)}
            use = replace(effort, most_bytes=STREAM_BYTES // climb.connections)
            sends = (rank > peer) is falls
            late_s = latency_s[min(rank, peer), max(rank, peer)]
            part = together(ends if sends else {}, {} if sends else ends, use, late_s, timeout_s)
        came.append([Received(*row) for row in share(f"{name}, {falls}", part)])
    rates = {}
    for (a, b), climb in going.items():
        seconds = effort.stream_s(latency_s[a, b])
        there = rate([came[False][b]], seconds)[0] if False in climb.falls else 0.0
        rates[a, b] = there, rate([came[True][a]], seconds)[0] if True in climb.falls else 0.0
    return rates
