"""What a forest is: rows of trees, each with its share of a collective's data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from ...model.arrays import Int64
from ...model.topology import Topology
from ...schedule.trees import Trees


def aligned(*columns: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """Cut lists of (amount, item) wherever an item of some list ends: the amount of each stretch, and its items.

    The amounts of each list add up to the same total.
    """
    ends = [list(accumulate(amount for amount, _ in column)) for column in columns]
    low = 0
    for high in sorted(set().union(*ends)):
        yield high - low, [column[bisect_right(end, low)][1] for column, end in zip(columns, ends, strict=True)]
        low = high


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees for all data of a collective."""

    up: Trees  # the in-trees along which data is summed, nothing but roots where it is not
    down: Trees  # the out-trees along which data is copied, of the same roots, nothing but roots where it is not
    share: list[Fraction]  # what each pair of trees carries of all data

    @classmethod
    def one_way(cls, trees: Trees, sums: bool, share: list[Fraction]) -> Forest:
        """Trees for sums alone, or for copies alone."""
        bare = replace(trees, toward=np.full_like(trees.toward, -1))
        return cls(trees, bare, share) if sums else cls(bare, trees, share)

    @classmethod
    def concatenate(cls, forests: Sequence[Forest]) -> Forest:
        """The trees of the first forest, then those of the next, and so on; their shares add up to more than 1."""
        up, down = (Trees.concatenate([getattr(f, way) for f in forests]) for way in ("up", "down"))
        return cls(up, down, [share for forest in forests for share in forest.share])

    def take(self, rows: Int64) -> Forest:
        """The trees at ``rows``, with their shares."""
        return Forest(self.up.take(rows), self.down.take(rows), [self.share[k] for k in rows])

    def divided(self, amounts: Sequence[Fraction | int], root_share: dict[int, Fraction] | None = None) -> Forest:
        """The trees that carry anything, root by root, with shares in proportion to these amounts.

        Args:
            root_share: of each root; None if it is in proportion to the amounts of its trees.
        """
        root = self.up.root.tolist()
        total: dict[int, Fraction] = {}
        rows = [k for k, amount in enumerate(amounts) if amount]
        for k in rows:
            total[root[k]] = total.get(root[k], Fraction(0)) + amounts[k]
        place = {v: k for k, v in enumerate(total)}
        rows.sort(key=lambda k: place[root[k]])
        if root_share is None:
            whole = sum(total.values())
            root_share = {v: amount / whole for v, amount in total.items()}
        share = [root_share[root[k]] * amounts[k] / total[root[k]] for k in rows]
        kept = np.array(rows, dtype=np.int64)
        return Forest(self.up.take(kept), self.down.take(kept), share)

    @cached_property
    def root_share(self) -> dict[int, Fraction]:
        """For each root what it has of all data."""
        total: dict[int, Fraction] = {}
        for root, share in zip(self.up.root.tolist(), self.share, strict=True):
            total[root] = total.get(root, Fraction(0)) + share
        return total

    @property
    def links(self) -> int:
        """How many links the routes of all edges have."""
        return sum(len(way.routes.take(way.hop[way.toward >= 0]).values) for way in (self.up, self.down))

    def transfer_count(self, topology: Topology) -> int:
        """Transfers for one chunk of each tree: one for each edge, but what meets at a switch goes on as one."""
        stores = ~topology.is_switch
        below = sum(int(stores[way.toward[way.toward >= 0]].sum()) for way in (self.up, self.down))
        return below + int((~stores[self.up.root]).sum())

    def meets_at_switches(self, topology: Topology) -> bool:
        """Whether switches are nodes of some tree."""
        return any(
            bool(topology.is_switch[np.concatenate((way.root, way.toward[way.toward >= 0]))].any())
            for way in (self.up, self.down)
        )

    @property
    def uses(self) -> tuple[Int64, Int64]:
        """The row and the link of each use of a link by a tree."""
        (up, into), (down, out) = self.up.uses, self.down.uses
        return np.concatenate((up, down)), np.concatenate((into, out))

    def seconds_per_byte(self, topology: Topology) -> float:
        """How long the busiest link is busy for a byte of the whole, seconds."""
        tree, link = self.uses
        load = np.bincount(link, np.array(self.share, dtype=np.float64)[tree], topology.link_count)
        return float((load / topology.bandwidth).max())
