"""What a forest is: for each root the segments of its data, and the trees that each segment follows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np

from ...model.topology import Topology

Route = tuple[int, ...]
"""Links in the order in which bytes take them."""


def aligned(*columns: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, list[Any]]]:
    """Cut lists of (amount, item) wherever an item of some list ends: the amount of each stretch, and its items.

    The amounts of each list add up to the same total.
    """
    ends = [list(accumulate(amount for amount, _ in column)) for column in columns]
    low = 0
    for high in sorted(set().union(*ends)):
        yield high - low, [column[bisect_right(end, low)][1] for column, end in zip(columns, ends, strict=True)]
        low = high


@dataclass(frozen=True)
class RoutedTree:
    """A tree: for each node but the root its parent, and the route between the two."""

    parent: dict[int, int]
    links: dict[int, Route]

    def with_routes(self, change: Callable[[Route], Route]) -> RoutedTree:
        """The same tree with each route changed."""
        return RoutedTree(self.parent, {v: change(route) for v, route in self.links.items()})


@dataclass(frozen=True)
class Segment:
    """A share of a root's data and the trees that it follows.

    Attributes:
        share: of the root's data.
        up: the in-tree along which the segment is summed; None where nothing is summed.
        down: the out-tree along which it is copied; None where nothing is copied.
        twin: where both trees are one tree whose middle is inside an edge at the root, the other end of that edge;
            else -1.
    """

    share: Fraction
    up: RoutedTree | None
    down: RoutedTree | None
    twin: int = -1

    @property
    def trees(self) -> list[RoutedTree]:
        """Its in-tree and its out-tree, as far as it has them."""
        return [tree for tree in (self.up, self.down) if tree is not None]

    @property
    def links(self) -> list[int]:
        """The links of its trees; a link that both use comes twice."""
        return list(chain.from_iterable(route for tree in self.trees for route in tree.links.values()))


@dataclass(frozen=True)
class Forest:
    """Trees for all data of a collective.

    Attributes:
        segments: for each root its segments; their shares add up to 1.
        share: for each root its data, in proportion to that of the other roots.
    """

    segments: dict[int, list[Segment]]
    share: dict[int, Fraction]

    @classmethod
    def of(cls, rooted: Iterable[tuple[int, Segment]], share: dict[int, Fraction] | None = None) -> Forest:
        """The forest of segments, given with their roots, whose shares are in proportion to their data.

        Args:
            share: of each root; None if it is the data of the root's segments.
        """
        segments: dict[int, list[Segment]] = {}
        for root, segment in rooted:
            if segment.share:
                segments.setdefault(root, []).append(segment)
        total = {root: sum((s.share for s in of_root), Fraction(0)) for root, of_root in segments.items()}
        whole = sum(total.values(), Fraction(0))
        return cls(
            {v: [replace(s, share=s.share / total[v]) for s in of_v] for v, of_v in segments.items()},
            {v: amount / whole for v, amount in total.items()} if share is None else share,
        )

    def __iter__(self) -> Iterator[tuple[int, Segment]]:
        """Each segment with its root."""
        for root, segments in self.segments.items():
            for segment in segments:
                yield root, segment

    @property
    def segment_count(self) -> int:
        return sum(map(len, self.segments.values()))

    @property
    def sums_and_copies(self) -> bool:
        """Whether sums are copied to all again, so that roots may have any share."""
        return any(len(segment.trees) == 2 for _, segment in self)

    @property
    def edge_count(self) -> int:
        """Edges of all trees."""
        return sum(len(tree.parent) for _, segment in self for tree in segment.trees)

    @cached_property
    def weight(self) -> dict[int, list[float]]:
        """For each segment its data over the mean data of a segment."""
        whole = sum(self.share.values())
        return {
            root: [float(self.share[root] * s.share / whole) * self.segment_count for s in segments]
            for root, segments in self.segments.items()
        }

    def seconds_per_byte(self, topology: Topology) -> float:
        """How long the busiest link is busy for a byte of the whole, seconds."""
        load = np.zeros(topology.link_count)
        for root, segment in self:
            share = float(self.share[root] * segment.share)
            for tree in segment.trees:
                for route in tree.links.values():
                    load[list(route)] += share
        return float((load / topology.bandwidth).max()) / float(sum(self.share.values()))
