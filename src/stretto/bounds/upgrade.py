"""Which link is worth widening: the bandwidth bound when a link and the one opposite have twice their bandwidth.

Only a link into the bottleneck cut can help, or, where nothing is copied, one that has a length in the certificate.
Where several cuts are equally narrow, no single link helps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..model.collective import Collective
from ..model.progress import Progress, silent
from ..model.topology import Topology
from .exact import bottleneck
from .lengths import best_lengths

MOST_TRIED = 32
"""How many links are tried; the others of a wide cut are mostly like one of these."""

MOST_STEPS = 1_000_000
"""Pieces and links that all tries together may look at: 32 tries among up to 150 ranks of an AllToAll, 3 among 512."""

FACTOR = 2.0


@dataclass(frozen=True)
class Upgrade:
    """A link, and the bandwidth bound when it and the opposite one have twice their bandwidth."""

    link: int
    before_s: Fraction
    after_s: Fraction

    @property
    def gain(self) -> float:
        """How many times more throughput the bound then allows."""
        return float(self.before_s / self.after_s)


def best_upgrade(topology: Topology, collective: Collective, progress: Progress = silent) -> Upgrade | None:
    """The one link that helps most when doubled, None where no single one does.

    Args:
        progress: told how many links have been tried.
    """
    before, links = _bandwidth_bound(topology, collective)
    best: Upgrade | None = None
    tries = max(1, min(MOST_TRIED, MOST_STEPS // (len(collective.piece_bytes) + topology.link_count)))
    tried = _varied(topology, links, tries)
    for number, link in enumerate(tried):
        progress(number, len(tried), "trying links to widen")
        a, b = topology.src[link], topology.dst[link]
        cable = ((topology.src == a) & (topology.dst == b)) | ((topology.src == b) & (topology.dst == a))
        bandwidth = np.where(cable, topology.bandwidth * FACTOR, topology.bandwidth)
        after, _ = _bandwidth_bound(replace(topology, bandwidth=bandwidth), collective)
        if after < before and (best is None or after < best.after_s):
            best = Upgrade(link, before, after)
    return best


def _bandwidth_bound(topology: Topology, collective: Collective) -> tuple[Fraction, list[int]]:
    """The bound that bandwidth alone gives, and the links that it rests on, those that matter most first."""
    cut, lengths = bottleneck(topology, collective), best_lengths(topology, collective)
    if lengths is not None and (cut is None or lengths.seconds > cut.seconds):
        used = np.flatnonzero(lengths.length)
        return lengths.seconds, used[np.argsort(-lengths.length[used], kind="stable")].tolist()
    if cut is None:
        return Fraction(0), []
    return cut.seconds, np.flatnonzero(~cut.inside[topology.src] & cut.inside[topology.dst]).tolist()


def _varied(topology: Topology, links: list[int], count: int) -> list[int]:
    """Up to ``count`` of the links, of bandwidths as different as there are."""
    if len(links) <= count:
        return links
    step = len(links) / count
    by_width = sorted(links, key=lambda i: float(topology.bandwidth[i]))
    return [by_width[int(i * step)] for i in range(count)]
