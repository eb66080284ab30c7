"""Where all samples of a network come in, from whatever source: wrong ones are refused and counted, the others kept.

A sample is refused if its link is unknown, if it is late (older than the newest of its link and kind, or than
:data:`OLDEST_S`), doubled (of the same moment), from the future, or absurd (negative, more than :data:`ABSURD_FACTOR`
times the bandwidth of the link in the topology, or a latency of more than :data:`LONGEST_S`), or if its link is none of
whoever reports it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...model.topology import Topology
from .samples import LATENCY, UP, Link, Sample

OLDEST_S = 300.0
"""Seconds after which a sample says nothing of the network as it is now. Prometheus looks back as far by default."""
AHEAD_S = 30.0
"""Seconds by which the clock of a source may be ahead. A sample from the future would make all later ones late."""
ABSURD_FACTOR = 10.0
"""A rate above this multiple of the link's bandwidth in the topology is a mistake: 8 for bits taken as bytes is none,
a counter that was read wrong is 1e6 and more. A link that was really made ten times as fast needs a new topology."""

LONGEST_S = 60.0
"""A latency above this, in seconds, is a mistake: milliseconds taken as seconds, for example."""

UNKNOWN, LATE, DOUBLED, FUTURE, ABSURD, FOREIGN = REASONS = (
    "unknown link", "late", "doubled", "from the future", "absurd", "not the reporter's"
)  # fmt: skip


class Receipt(NamedTuple):
    """What became of samples: how many were kept, and how many were refused for each reason."""

    kept: int
    refused: dict[str, int]


def links_of(topology: Topology) -> dict[Link, float]:
    """The bandwidth of each link of a topology by the names of its nodes, bytes/s."""
    names = topology.names
    ends = zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist(), strict=True)
    return {(names[a], names[b]): bandwidth for a, b, bandwidth in ends}


class Intake:
    """The door for samples of one network. Sources may call it from several threads.

    Args:
        links: bandwidth of each link, bytes/s (:func:`links_of`).
        keep: gets the samples that are sound, in the order of their times.
        latest: the newest moment of each link and kind that is kept already, seconds since 1970.
        now: the clock, seconds since 1970.

    Attributes:
        refused: how many samples were refused so far, by reason.
    """

    def __init__(
        self,
        links: Mapping[Link, float],
        keep: Callable[[Sequence[Sample]], None],
        latest: Mapping[tuple[Link, str], float] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.links = dict(links)
        self.refused: Counter[str] = Counter()
        self._keep, self._now = keep, now
        self._latest = dict(latest or {})
        self._lock = threading.Lock()

    def take(self, samples: Iterable[Sample], own: Collection[str] | None = None) -> Receipt:
        """Keep the samples that are sound, and refuse the others.

        Args:
            own: the nodes of whoever reports, at one of which each link must begin or end; None for any.
        """
        with self._lock:
            sound, refused = [], Counter[str]()
            now = self._now()
            latest = dict(self._latest)
            for sample in sorted(samples, key=lambda s: s.at_s):
                if reason := self._refusal(sample, latest, now, own):
                    refused[reason] += 1
                else:
                    sound.append(sample)
                    latest[sample.link, sample.kind] = sample.at_s
            if sound:
                self._keep(sound)  # if it fails nothing was taken, and the source may send them again
            self._latest = latest
            self.refused += refused
            return Receipt(len(sound), dict(refused))

    def _refusal(
        self, sample: Sample, latest: Mapping[tuple[Link, str], float], now: float, own: Collection[str] | None
    ) -> str | None:
        bandwidth = self.links.get(sample.link)
        if bandwidth is None:
            return UNKNOWN
        if own is not None and sample.src not in own and sample.dst not in own:
            return FOREIGN
        most = {LATENCY: LONGEST_S, UP: 1.0}.get(sample.kind, ABSURD_FACTOR * bandwidth)
        if not (math.isfinite(sample.rate) and 0.0 <= sample.rate <= most):
            return ABSURD
        if not sample.at_s <= now + AHEAD_S:
            return FUTURE
        newest = latest.get((sample.link, sample.kind), -math.inf)
        if sample.at_s == newest:
            return DOUBLED
        return LATE if sample.at_s < max(newest, now - OLDEST_S) else None
