"""What processes have measured of the network between their hosts, as data: pairs, and what pairs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """A measured quantity and the range that it is in; ``high`` is None if it is only known to be at least ``low``."""

    value: float
    low: float
    high: float | None

    def overlaps(self, other: Measured) -> bool:
        """Whether both may be the same quantity."""
        below = other.high is None or self.low <= other.high
        return below and (self.high is None or other.low <= self.high)

    @property
    def spread(self) -> float:
        """The larger distance of an end of the range from the value, relative to the value."""
        ends = [self.low, self.value if self.high is None else self.high]
        return max(abs(end - self.value) for end in ends) / self.value if self.value else 0.0


def best(trials: Iterable[Sequence[float]]) -> Measured:
    """Several measurements ``(value, low, high)`` of one rate as one. Other load only makes a rate smaller, so the
    largest one counts; the range also has the middle one, or of two the smaller."""
    rows = sorted(trials, key=lambda row: row[0])
    value, low, high = rows[-1]
    return Measured(value, min(low, rows[(len(rows) - 1) // 2][0]), high)


def middle(trials: Iterable[Sequence[float]]) -> Measured:
    """Several measurements ``(value, low, high)`` of what several processes received together as one. They do not begin
    at one moment, which makes a sum too large as often as too small, so the middle one counts; the range has all."""
    rows = sorted(trials, key=lambda row: row[0])
    return Measured(rows[len(rows) // 2][0], min(row[1] for row in rows), max(row[2] for row in rows))


SAME = 1.1
"""Rates that differ by less than this factor may be the same: trials on one link differ as much."""


class Lanes(NamedTuple):
    """The connections of a pair.

    Attributes:
        connections: how many.
        congestion: the congestion control by Linux's name; "" for the kernel's default.
        rate: bytes/s that they carried, of the two directions the more.
    """

    connections: int = 1
    congestion: str = ""
    rate: float = 0.0


@dataclass(frozen=True)
class Pair:
    """What was measured from one rank to another.

    Attributes:
        latency_s: half of a round trip of a small message.
        message_s: seconds from one small message to the next, of several sent back to back; None if not measured.
        bandwidth: bytes/s by the number of connections that sent at once.
    """

    latency_s: Measured
    message_s: Measured | None
    bandwidth: Mapping[int, Measured]

    @property
    def rate(self) -> Measured:
        """Bytes/s by the first number of connections that was asked for."""
        return next(iter(self.bandwidth.values()))

    def to_json(self) -> dict[str, Any]:
        return {
            "latency_s": list(self.latency_s),
            "message_s": None if self.message_s is None else list(self.message_s),
            "bandwidth_Bps": {str(count): list(rate) for count, rate in self.bandwidth.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pair:
        message_s = data["message_s"]
        rates = {int(count): Measured(*rate) for count, rate in data["bandwidth_Bps"].items()}
        return cls(Measured(*data["latency_s"]), None if message_s is None else Measured(*message_s), rates)


@dataclass(frozen=True)
class Survey:
    """What all ranks have measured together; every rank knows the same.

    Attributes:
        ranks: the number of ranks.
        pairs: by the sending and the receiving rank. Pairs of a round are measured at the same time.
        sites: the ranks of each site.
        to_all, from_all: for a rank, bytes/s from it to all others at once, and from all others to it.
        between: for two sites, bytes/s from the first to the second when all their ranks send or receive.
        alone: the same of a single pair of ranks, by the number of connections.
        leaving, entering: for a site, bytes/s to all other sites at once, and from them.
        inside: for a site, bytes/s when each rank sends to the next one at once.
        lanes: for two sites, the lower first, or a site and itself, the connections of each pair of their ranks.
        moved_bytes: what was sent to measure all this.
    """

    ranks: int
    pairs: Mapping[tuple[int, int], Pair]
    sites: Sequence[Sequence[int]]
    to_all: Mapping[int, Measured] = field(default_factory=dict)
    from_all: Mapping[int, Measured] = field(default_factory=dict)
    between: Mapping[tuple[int, int], Measured] = field(default_factory=dict)
    alone: Mapping[tuple[int, int], Mapping[int, Measured]] = field(default_factory=dict)
    leaving: Mapping[int, Measured] = field(default_factory=dict)
    entering: Mapping[int, Measured] = field(default_factory=dict)
    inside: Mapping[int, Measured] = field(default_factory=dict)
    lanes: Mapping[tuple[int, int], Lanes] = field(default_factory=dict)
    moved_bytes: int = 0
