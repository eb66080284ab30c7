"""What links give, as one rank tells it to rank 0 for the controller: at once where a link begins to be slow, fast or
as planned again, else every few seconds.

What a rank gets from another one is compared with the plan (:mod:`.slowness`). That share of the bandwidth of the
narrowest link on the way is what this link gives. Shares between ``SLOW`` and ``FAST`` count as what was planned,
unless the plan takes the link for a slow one: on a busy machine they waver by that much, and a controller would make
plans for noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..choose.expected import narrowest_link
from ..choose.library import Library, Recipe
from .slowness import FAST, SLOW, slow_sources

CHANGED_AFTER = 2
"""Collectives in a row after which a link counts as slow, fast, or as planned again. The controller waits, too, before
it plans for what it hears."""

EVERY_S = 5.0
"""Seconds after which a link that has not changed is told of again."""


@dataclass
class _Source:
    """What has come from one node.

    Attributes:
        told: what was told last: -1 slow, 0 as planned, 1 fast.
        told_at: when, seconds of any steady clock.
        row: shares in the last collectives that were alike, ``state``.
    """

    told_at: float
    told: int = 0
    state: int = 0
    row: list[float] = field(default_factory=list)


class LinkRates:
    """What one rank has to tell.

    Args:
        library: it has the network as it is when no link is slow.
    """

    def __init__(self, library: Library) -> None:
        self._library, self._digest = library, 0
        self._sources: dict[int, _Source] = {}

    def note(self, recipe: Recipe, ratios: Mapping[int, float], now: float) -> list[tuple[int, int, float]]:
        """Take note of a collective.

        Args:
            ratios: by node, how fast its bytes came over what was planned.
            now: seconds of any steady clock.
        Returns:
            for each link to be told of its ends and its bytes/s.
        """
        if recipe.digest != self._digest:
            self._digest = recipe.digest
            self._sources.clear()
        slow, told = slow_sources(ratios), []
        own, normal = self._library.nodes[self._library.rank], self._library.topology
        for node, ratio in ratios.items():
            if ratio < SLOW and node not in slow:
                continue  # all came slowly: this rank is slow, not a link
            source = self._sources.setdefault(node, _Source(now))
            state = -1 if ratio < SLOW else 1 if ratio > FAST else 0
            if state != source.state:
                source.state = state
                source.row.clear()
            source.row.append(ratio)
            changed = state != source.told and len(source.row) >= CHANGED_AFTER
            if not changed and (now - source.told_at < EVERY_S or len(source.row) < CHANGED_AFTER):
                continue
            plan = recipe.program.plan
            link = narrowest_link(plan, node, own)
            if link is not None:
                ends = int(plan.topology.src[link]), int(plan.topology.dst[link])
                planned = float(plan.topology.bandwidth[link])
                same = plan.topology.link_count == normal.link_count  # else some link is down, and their numbers differ
                as_planned = not state and same and planned >= float(normal.bandwidth[link])
                told.append((*ends, planned if as_planned else planned * statistics.median(source.row)))
            source.told, source.told_at = state, now
            source.row.clear()
        return told
