"""Forests where latency or messages count beside bandwidth: few deep trees at a high rate, or shallow ones at a lower.

A plan that cuts data into parts takes about the sum of two times: a part's way through the deepest tree, and the
busiest link's work for all parts. Trees to choose from are grown several times, each time with a higher price of length
(:mod:`.priced`). Then several limits of depth are tried. For each limit deeper trees are left out, and a linear program
divides the data among the others so that the busiest link has the least work (:mod:`.division`). The limit with the
smallest sum is taken.

Where messages cost, links and trees are measured for parts of the given size: the cost of a message makes a link slower
and a tree deeper. Larger parts lose less of a link's bandwidth to messages, smaller parts pass sooner through a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Collective
from ...model.topology import Topology
from ...model.variants import seen_by
from ...schedule.cutting import powers_up_to
from ...schedule.effort import Budget
from .division import SHARE_UNITS, divide_data, fastest_rates, largest
from .forest import Forest
from .priced import PRICING_STEPS, priced_trees, pricing_work, trees_at
from .windows import LinkUses, Shares, counts_by_windows

LENGTH_PRICES = (3.0, 100.0, 1e5)
"""Prices of length, one for each time that trees are grown: what the mean length of a link costs, as a multiple of what
the cheapest link costs."""

MOST_USES = 50_000
"""Largest number of uses of a link by a tree, added up over all trees that are grown, about."""

SHALLOWEST, DEEPER, LIMITS = 1.02, 1.17, 9
"""Limits of depth. ``SHALLOWEST``: the first limit, as a multiple of the least depth with which every root has a tree.
``DEEPER``: the ratio of each limit to the one before. ``LIMITS``: how many there are."""


LENGTHS = 0.03, 0.3, 3.0
"""What length costs where trees are grown by the prices of a linear program. The prices of all links together are 1;
length costs each of these for the time in which the quickest tree would carry all data."""

PROGRAM_TIMES = 3.0
"""Times what a use of a link by a tree takes in a program of rates that it takes in one of windows."""

MOST_PROGRAMS = 12
"""Linear programs that are solved, at most, until a pool has the trees that it needs."""

SHARES_OF_TIME = 1.0, 0.9, 0.75, 0.6
"""Of the time that a linear program says, how long a part may travel through a tree."""

SOONER = 1.01
"""Times by which a linear program must end sooner for what is changed to count."""


class Choice(NamedTuple):
    """A forest for a number of parts.

    Attributes:
        end_s: about when its plan ends, seconds.
        parts: into how many parts to cut all data.
        limit: number of the limit of depth.
    """

    end_s: float
    parts: float
    limit: int
    forest: Forest


@dataclass(frozen=True)
class Pool:
    """Packed and priced trees of a collective, to choose from.

    Attributes:
        root_share: what each root has of all data; None where roots may have any share.
        most: trees that a forest may have: of an AllReduce in all, of other collectives of each root.
    """

    topology: Topology
    collective: Collective
    trees: Forest
    root_share: dict[int, Fraction] | None
    most: int

    @classmethod
    def grown(
        cls, topology: Topology, c: Collective, packed: list[Forest], part_bytes: float, most: int
    ) -> Pool | None:
        """Trees of least price for parts of a size, and packed ones; None where that would be too much work."""
        free, root_share = c.traits.reduces_to_all, packed[0].root_share
        known = Forest.concatenate(packed)
        count = len(known.share)
        affordable = int((MOST_USES * count / len(known.uses[0]) - count) / len(LENGTH_PRICES))
        if affordable < (1 if free else len(root_share)):
            return None
        more, seen = min(most if free else most * len(root_share), affordable), seen_by(topology, part_bytes)
        priced = [priced_trees(seen, c, packed[0], part_bytes, more, price) for price in LENGTH_PRICES]
        trees = Forest.concatenate([known, *(forest for forest in priced if forest is not None)])
        return cls(topology, c, trees, None if free else root_share, most)

    def by_depth(self, parts: float, budget: Budget, near: int | None = None) -> list[Choice]:
        """Forests for a number of parts in all, one for each limit of depth that was tried; the best one first.

        Args:
            budget: with a cost for "rates", of a use of a link by a tree.
            near: the limit to begin with, one of the middle by default.
        """
        part_bytes = self.collective.size_bytes / parts
        net = seen_by(self.topology, part_bytes)
        uses = LinkUses.of(net, self.trees, part_bytes)
        depth_s = uses.through_s
        limits_s = self._least_depth_s(depth_s) * np.cumprod([SHALLOWEST] + [DEEPER] * (LIMITS - 1))
        choices: dict[int, Choice] = {}

        def add(k: int) -> None:
            if 0 <= k < LIMITS and k not in choices:
                seconds, forest = self._fastest(net, np.flatnonzero(depth_s <= limits_s[k]), parts, budget)
                choices[k] = Choice(float(limits_s[k]) + seconds, parts, k, forest)

        # the sum falls and then rises with the limit, more or less
        best = LIMITS // 2 if near is None else near
        for step in (2, 1) if near is None else (1,):
            last = -1
            while best != last:
                for k in (best, best - step, best + step):
                    add(k)
                last, best = best, min(choices, key=lambda k: choices[k].end_s)
        return sorted(choices.values(), key=lambda choice: choice.end_s)

    def by_windows(self, parts: float, end_s: float, budget: Budget) -> list[Forest]:
        """Forests for a number of parts by when trees can use each link, the soonest by a linear program first; none
        where the program's numbers would differ too much in size.

        A row of the program holds though shares leave its window empty. So trees that take longer than all is known to
        take are left out, and those that carry nothing and make it late. Trees are added that are cheap by the prices
        of links in the program, while that gains. What takes nearly all the time on its way is late as soon as it has
        to wait for a link. So there are also forests of trees that take at most shares of that time.

        Args:
            end_s: when a plan can end, about, seconds.
            budget: with a cost for "rates", of a use of a link by a tree.
        """
        part_bytes = self.collective.size_bytes / parts
        net, pool, least_s = seen_by(self.topology, part_bytes), self, inf
        roots = self.collective.ranks.tolist() if self.root_share is None else [*self.root_share]
        for _ in range(MOST_PROGRAMS):
            asked = pool._within(net, part_bytes, end_s, budget)
            if asked is None:
                break
            trees, found = asked
            end_s = min(end_s, found.end_s)
            if len(found.idle):
                trees = trees.take(np.setdiff1d(np.arange(len(trees.share)), found.idle))
                if self.root_share is not None and len(np.unique(trees.up.root)) < len(roots):
                    break
            elif found.end_s > least_s / SOONER:
                break
            else:
                least_s = found.end_s
                price = np.where(net.latency_s > end_s, inf, found.price)
                lengths = [each / found.unit_s for each in LENGTHS]
                budget.charge(PRICING_STEPS * pricing_work(net, self.collective, len(roots) * len(lengths)))
                grown = trees_at(net, self.collective, roots, part_bytes, price, lengths)
                trees = trees if grown is None else Forest.concatenate([trees, grown])
            pool = replace(pool, trees=trees)
            if budget.exhausted:
                break
        forests, last_s = list[Forest](), 0.0
        for share in SHARES_OF_TIME:
            asked = pool._within(net, part_bytes, share * end_s, budget)
            if asked is None:
                break
            trees, found = asked
            group = trees.up.root.tolist() if self.root_share is not None else [0] * len(trees.share)
            kept = np.array(sorted(largest(found.counts, group, self._most_of(parts))))
            if found.end_s <= SOONER * last_s:
                forests.pop()  # these end as soon and take less long
            forests.append(trees.take(kept).divided(np.array(found.counts)[kept].tolist(), self.root_share))
            last_s = found.end_s
            if budget.exhausted:
                break
        return forests

    def _within(self, net: Topology, part_bytes: float, most_s: float, budget: Budget) -> tuple[Forest, Shares] | None:
        """The trees through which a part takes at most some time, and their shares by windows; None where a root has no
        such tree, no shares are found, or the net has fired."""
        if budget.stop.fired:
            return None
        uses = LinkUses.of(net, self.trees, part_bytes)
        through_s = uses.through_s
        rows = np.flatnonzero(through_s <= most_s)
        if not len(rows) or most_s < self._least_depth_s(through_s):
            return None
        trees = self.trees.take(rows)
        root, amounts = np.zeros(len(rows), dtype=np.int64), np.ones(1)
        if self.root_share is not None:
            distinct, root = np.unique(trees.up.root, return_inverse=True)
            amounts = np.array([float(self.root_share[v]) for v in distinct.tolist()])
        uses = uses.among(rows)
        budget.spend(rates=PROGRAM_TIMES * len(uses.tree))
        found = counts_by_windows(uses, self.collective.size_bytes / net.bandwidth, root, amounts)
        return None if found is None else (trees, found)

    def of_whole_parts(self, forest: Forest, parts: float) -> Forest | None:
        """The forest without the trees that carry less than a part, whose data the others get; None if there is none.

        The linear program counts a message in proportion to its bytes, but what is less than a part takes a whole one.
        The largest tree of each root stays.
        """
        share, free = np.array(forest.share, dtype=np.float64), self.root_share is None
        kept = share * parts >= 1.0
        kept[largest(forest.share, [0] * len(share) if free else forest.up.root.tolist(), 1)] = True
        if kept.all():
            return None
        net = seen_by(self.topology, self.collective.size_bytes / parts)
        return divide_data(net, forest.take(np.flatnonzero(kept)), self.root_share)

    def _least_depth_s(self, depth_s: Float64) -> float:
        """The least depth with which every root has a tree, seconds."""
        if self.root_share is None:
            return float(depth_s.min())
        return max(float(depth_s[self.trees.up.root == root].min()) for root in self.root_share)

    def _fastest(self, net: Topology, rows: Int64, parts: float, budget: Budget) -> tuple[float, Forest]:
        """Seconds of the busiest link, and the forest: the fastest one of the trees ``rows`` with no more trees than
        parts."""
        most = self._most_of(parts)
        while True:
            trees = self.trees.take(rows)
            tree, link = trees.uses
            budget.spend(rates=len(tree))
            groups = [(np.flatnonzero(trees.up.root == v), float(s)) for v, s in (self.root_share or {}).items()]
            rates = fastest_rates(len(rows), tree, link, net.bandwidth, groups)
            group = [0] * len(rows) if self.root_share is None else trees.up.root.tolist()
            carries = rates > 0.5 / SHARE_UNITS
            carries[largest(rates.tolist(), group, 1)] = True  # roots with little data have a tree, too
            kept = np.array([k for k in sorted(largest(rates.tolist(), group, most)) if carries[k]])
            if len(kept) == carries.sum():
                break
            rows = rows[kept]
        forest = self._forest(rows[kept], np.ceil(np.maximum(rates[kept] * SHARE_UNITS, 1.0)).astype(np.int64))
        return forest.seconds_per_byte(net) * self.collective.size_bytes, forest

    def _most_of(self, parts: float) -> int:
        """Trees of a root, of an AllReduce in all, of which each can have a part."""
        return int(min(self.most, max(1.0, parts / len(self.root_share or [0]))))

    def _forest(self, rows: Int64, amounts: Int64) -> Forest:
        return self.trees.take(rows).divided(amounts.tolist(), self.root_share)


def promising_part_count(topology: Topology, c: Collective, forest: Forest, most: float) -> float:
    """The power of two of parts, about ``most`` at most, with which a forest's plan ends first where messages cost.

    A plan takes as long as the busiest link, with a message for each part, and as a part takes through the trees.
    """
    tree, link = forest.uses
    carried = np.bincount(link, np.array(forest.share, dtype=np.float64)[tree], topology.link_count)
    fluid, whole = (LinkUses.of(topology, forest, size) for size in (0.0, float(c.size_bytes)))
    through_s = max(float((whole.opens_s + whole.closes_s).max() - (fluid.opens_s + fluid.closes_s).max()), 0.0)

    def ends_s(parts: float) -> float:
        busy_s = carried * (c.size_bytes / topology.bandwidth + parts * topology.message_s)
        return float(busy_s.max()) + through_s / parts

    return min(powers_up_to(2 * most), key=ends_s)
