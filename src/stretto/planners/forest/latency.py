"""Forests of the trees with which plans end first: few deep trees at a high rate, or shallow ones at a lower.

A plan that cuts data into parts takes about the sum of two times: a part's way through the trees, and the busiest
link's work for all parts. Trees to choose from are packed, and grown in several ways (:mod:`.priced`). Linear programs
divide the data among them so that both times together are short (:mod:`.division`, :mod:`.windows`).

Where messages cost, links and trees are measured for parts of the given size: the cost of a message makes a link slower
and a tree deeper. Larger parts lose less of a link's bandwidth to messages, smaller parts pass sooner through a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Collective
from ...model.topology import Topology
from ...model.variants import seen_by
from ...schedule.cutting import powers_up_to
from ...schedule.effort import Budget
from .division import SHARE_UNITS, divide_data, fastest_rates, largest
from .filling import Filling
from .forest import Forest
from .priced import priced_trees, pricing_work, trees_at
from .windows import LinkUses, Shares, counts_by_windows

GROWN = (0.03, 3.0), (0.1, 3.0), (0.1, 100.0), (0.1, 1e5)
"""How trees are grown: how prices rise (:func:`.priced.priced_trees`), and what the mean length of a link costs, as a
multiple of what the cheapest link costs."""

GROWN_EACH, GROWN_SHARE = (32, 128), 0.05
"""``GROWN_EACH``: fewest and most trees that are grown in each way for an AllReduce; for other collectives the fewest,
or one for each root. ``GROWN_SHARE``: share of the effort which more than the fewest may take."""

MOST_USES = 200_000
"""Largest number of uses of a link by a tree, added up over all trees that are grown, about."""

DEEPER, LEAST_WORTH = 1.17, 1e-3
"""``DEEPER``: times by which the slowest trees that stay take less than the slowest before. ``LEAST_WORTH``: what the
rate of a late tree counts, at least."""

LENGTHS = 0.03, 0.3, 3.0
"""What length costs where trees are grown by the prices of a linear program. The prices of all links together are 1;
length costs each of these for the time in which the quickest tree would carry all data."""

PROGRAM_TIMES = 2.0
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
        end_s: about when its plan ends if a part takes links alone, as where parts are few, seconds.
        shared_s: about when it ends if routes share their links.
        parts: into how many parts to cut all data.
    """

    end_s: float
    shared_s: float
    parts: float
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
        cls, topology: Topology, c: Collective, packed: list[Forest], part_bytes: float, most: int, each: int
    ) -> Pool:
        """Priced trees for parts of a size, and packed ones.

        Args:
            each: trees that are grown in each way.
        """
        seen = seen_by(topology, part_bytes)
        priced = [priced_trees(seen, c, packed[0], part_bytes, each, price, steepness) for steepness, price in GROWN]
        trees = Forest.concatenate([*packed, *(forest for forest in priced if forest is not None)])
        return cls(topology, c, trees, None if c.traits.reduces_to_all else packed[0].root_share, most)

    @staticmethod
    def grown_each(topology: Topology, c: Collective, packed: list[Forest], most: int, budget: Budget) -> int:
        """Trees that are grown in each way; 0 where they would use links too often.

        Args:
            most: how many for an AllReduce, at most.
            budget: with a cost for "pricing", of a tree and link.
        """
        free, roots = c.traits.reduces_to_all, len(packed[0].root_share)
        count, uses = sum(len(forest.share) for forest in packed), sum(len(forest.uses[0]) for forest in packed)
        affordable = int((MOST_USES * count / uses - count) / len(GROWN))
        if affordable < (1 if free else roots):
            return 0
        if not free:
            return min(max(GROWN_EACH[0], roots), affordable)
        worth = GROWN_SHARE * budget.steps / budget.cost(pricing=len(GROWN) * pricing_work(topology, c, 1))
        return min(int(max(min(worth, most), GROWN_EACH[0])), affordable)

    def by_filling(self, parts: float, budget: Budget) -> list[Choice]:
        """The forests for a number of parts in all whose plans end first, about: where a part takes each link alone,
        and where routes have shares of their links.

        A linear program weighs the busiest link against how long trees take. While that gains, the trees that take
        longest are left out.

        Args:
            budget: with a cost for "rates", of a use of a link by a tree.
        """
        c, part_bytes = self.collective, self.collective.size_bytes / parts
        net = seen_by(self.topology, part_bytes)
        through_s = LinkUses.of(net, self.trees, part_bytes).through_s
        every, choices = np.arange(len(self.trees.share)), list[tuple[Choice, Float64]]()

        def solve(rows: Int64, within_s: float) -> float:
            share = self._soonest(net, through_s / within_s, rows, parts, budget)
            amounts = np.where(share > 0, np.ceil(share * SHARE_UNITS), 0).astype(np.int64)
            forest = self.trees.divided(amounts.tolist(), self.root_share)
            busy_s = forest.seconds_per_byte(net) * c.size_bytes
            alone_s = busy_s + float(through_s[share > 0].max())
            shared_s = Filling.of(self.topology, forest).cut_s(c, max(parts / len(forest.share), 1.0))
            choices.append((Choice(alone_s, shared_s, parts, forest), share))
            return float(busy_s + through_s @ share)

        within_s, rows, last_s = solve(every, inf), every, inf
        while choices[-1][0].end_s < last_s and not budget.exhausted:
            last_s = choices[-1][0].end_s
            limit_s = max(float(through_s[choices[-1][1] > 0].max()) / DEEPER, self._least_depth_s(through_s))
            fewer = np.flatnonzero(through_s <= limit_s)
            if len(fewer) == len(rows):
                break
            rows = fewer
            within_s = min(within_s, solve(rows, within_s))
        found = [choice for choice, _ in choices]
        alone, shared = (min(found, key=key) for key in (attrgetter("end_s"), attrgetter("shared_s")))
        return [alone] if shared is alone else [alone, shared]

    def by_windows(self, parts: float, end_s: float, budget: Budget) -> list[Forest]:
        """Forests for a number of parts by when trees can use each link, the soonest by a linear program first; none
        where the program's numbers would differ too much in size.

        A row of the program holds though shares leave its window empty. So trees that take longer than all is known to
        take are left out, and those that carry nothing and make it late. Trees are added that are cheap by the prices
        of links in the program, while that gains. What takes nearly all the time on its way is late as soon as it has
        to wait for a link. So there are also forests of trees that take at most shares of that time.

        Args:
            end_s: when a plan can end, about, seconds.
            budget: with costs for "rates", of a use of a link by a tree, and "pricing", of a tree and link.
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
                budget.spend(pricing=pricing_work(net, self.collective, len(roots) * len(lengths)))
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

    def _soonest(self, net: Topology, late: Float64, rows: Int64, parts: float, budget: Budget) -> Float64:
        """float64[trees], the shares with which some trees, no more than there are parts, end soonest, about.

        Args:
            late: float64[trees], what each is late as a share of all time. What takes all of it is worth nothing.
        """
        most = self._most_of(parts)
        root = self.trees.up.root if self.root_share is not None else np.zeros(len(self.trees.share), dtype=np.int64)
        amounts = self.root_share or {0: Fraction(1)}
        while True:
            trees = self.trees.take(rows)
            budget.spend(rates=len(trees.uses[0]))
            groups = [(np.flatnonzero(root[rows] == v), float(amount)) for v, amount in amounts.items()]
            share = fastest_rates(
                len(rows), *trees.uses, net.bandwidth, groups, np.maximum(1 - late[rows], LEAST_WORTH)
            )
            carries = share > 0.5 / SHARE_UNITS
            carries[largest(share.tolist(), root[rows].tolist(), 1)] = True  # roots with little data have a tree, too
            kept = np.array([k for k in sorted(largest(share.tolist(), root[rows].tolist(), most)) if carries[k]])
            if len(kept) == carries.sum():
                of_all = np.zeros(len(self.trees.share))
                of_all[rows[kept]] = np.maximum(share[kept], 1 / SHARE_UNITS)
                return of_all
            rows = rows[kept]

    def _most_of(self, parts: float) -> int:
        """Trees of a root, of an AllReduce in all, of which each can have a part."""
        return int(min(self.most, max(1.0, parts / len(self.root_share or [0]))))


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
