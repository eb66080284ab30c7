"""The network as rank 0 knows it now: slow links are planned for as they are, until they recover.

A link has recovered when ten collectives in a row got clearly more over it than is planned for (:mod:`.slowness`). A
plan may send little or nothing over a slow link, and then nobody sees that the link has recovered. Therefore a slow
link is also tried again after ``TRY_AFTER`` calls, by plans for the network as it was before. If it is still slow, ten
collectives show that, and the next trial comes after twice as many calls.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ..choose.expected import narrowest_link, pair_count
from ..choose.library import Library
from ..model.plan import Plan
from ..model.topology import Topology
from .slowness import Suspects

STILL_SLOW = 0.9
"""A link that gives this share of what is known of it, or more, is planned for already."""
TRY_AFTER = 200
"""Calls after which a slow link is tried again for the first time. If it is still slow, some 15 calls are made by the
plan for a fast link: 8 % of the calls, and half as many after each further trial."""


class Adapted:
    """Rank 0's knowledge of the network of its group.

    Attributes:
        network: the network with its slow links; None while it is as the library has it.
    """

    def __init__(self, library: Library) -> None:
        self._library, self._suspects = library, Suspects()
        self.network: Topology | None = None
        self._calls, self._wait, self._try_at = 0, TRY_AFTER, 0

    def suspect(self, shape: Hashable, source: int, sink: int, begun: int) -> None:
        """A rank says that what it gets from another one has been slow for a while."""
        self._suspects.note(shape, source, sink, begun)

    def slow(self, shape: Hashable, plan: Plan, source: int, sink: int, ratio: float, begun: int) -> str | None:
        """A node got ``ratio`` of what was planned from another one; returns words for what will be planned for now,
        None if that stays the same.

        Args:
            begun: the calls of the shape that have begun.
        """
        self._suspects.note(shape, source, sink, begun)
        link = narrowest_link(plan, source, sink)
        if link is None or not self._suspects.stand_out(shape, pair_count(plan), begun):
            return None
        gave = float(plan.topology.bandwidth[link]) * ratio
        return self._learn(link, gave) if gave < self._now.bandwidth[link] * STILL_SLOW else None

    def fast(self, plan: Plan, source: int, sink: int, ratio: float) -> str | None:
        """The same where a node got more than was planned: that counts for links that were slow."""
        link = narrowest_link(plan, source, sink)
        if link is None or self.network is None:
            return None
        gave, before = float(plan.topology.bandwidth[link]) * ratio, float(self._library.topology.bandwidth[link])
        if gave * STILL_SLOW <= self.network.bandwidth[link] or self.network.bandwidth[link] >= before:
            return None
        return self._learn(link, before if gave >= STILL_SLOW * before else gave)

    def tick(self) -> bool:
        """A call begins; whether it is time to try slow links again."""
        self._calls += 1
        return self.network is not None and self._calls >= self._try_at

    def forgive(self) -> str | None:
        """Plan again for the network as it was; returns words for that, None if no link is known to be slow."""
        if self.network is None:
            return None
        self.network, self._wait = None, 2 * self._wait
        return "plans are made for links that were slow as they were before, to see if they have recovered"

    @property
    def _now(self) -> Topology:
        return self.network or self._library.topology

    def _learn(self, link: int, bandwidth: float) -> str:
        """Plan from now on for what a link gives."""
        before = self._library.topology
        widths = self._now.bandwidth.copy()
        widths[link] = bandwidth
        same = bool((widths == before.bandwidth).all())
        self.network = None if same else replace(before, bandwidth=widths)
        self._try_at = self._calls + self._wait
        percent = 100 * bandwidth / float(before.bandwidth[link])
        return f"{before.link_name(link)} gives {percent:.0f} % of what was planned: making new plans"
