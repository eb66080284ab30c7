"""Links that telemetry has changed, and of which nothing is reported any more: they are tried again.

Where plans use a slow link little or not at all, nobody sees that it is well again. So after a while without a report
jobs are planned for it as an operator gave it. If it is still slow, that is reported within seconds, and the next trial
comes after twice the time. What a link carried, and that it is up, says nothing of what it can carry, and is no such
report. Of a link that is down somebody has to say that it is up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .networks import NetworkVersion
from .telemetry.samples import CAPACITY, LATENCY, Link, Sample

SILENT_S = 300.0
"""Seconds without a report before the first trial. A trial of a slow link costs two new plans."""

MOST_NAMED = 4
"""Links that a reason names."""


class Trial(NamedTuple):
    """What is to be tried now.

    Attributes:
        links: that are to be planned for as they were given.
        why: the reason for people.
        again_at: when the next link is due; infinite if none is.
    """

    links: frozenset[Link]
    why: str
    again_at: float


class Trials:
    """How often links have been tried."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Link]] = Counter()

    def due(self, current: NetworkVersion, reported: Iterable[Sample], now: float) -> Trial:
        """The links of a network that are to be tried.

        Args:
            reported: with the last report of each link.
            now: seconds since 1970.
        """
        last: dict[Link, float] = {}
        for sample in reported:
            if sample.kind in (CAPACITY, LATENCY):
                last[sample.link] = max(last.get(sample.link, 0.0), sample.at_s)
        slow = {(said["src"], said["dst"]) for said in current.overlay if said.get("bandwidth_Bps") != 0}
        for name, link in [*self._counts]:
            if name == current.name and link not in slow and last.get(link, now) > current.at + SILENT_S:
                del self._counts[name, link]  # it is well
        silent = {link: last.get(link, current.at) for link in slow}
        at = {link: since + SILENT_S * 2 ** self._counts[current.name, link] for link, since in silent.items()}
        links = frozenset(link for link, moment in at.items() if moment <= now)
        shown = sorted(f"{src}→{dst}" for src, dst in links)
        more = f" and {len(links) - MOST_NAMED} more" if len(links) > MOST_NAMED else ""
        for_s = min((now - silent[link] for link in links), default=0.0)
        why = f"nothing was reported of {', '.join(shown[:MOST_NAMED])}{more} for {for_s:.0f} s: tried again"
        return Trial(links, why, min((moment for moment in at.values() if moment > now), default=float("inf")))

    def note(self, name: str, links: Iterable[Link]) -> None:
        """Some links of a network are tried now."""
        self._counts.update((name, link) for link in links)
