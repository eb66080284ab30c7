"""Forests where latency counts beside bandwidth: shallow and deep trees, with shares by their windows.

Trees of least price are grown several times, with a higher price of length each time (:mod:`.priced`). Of these and the
trees that there were before, a linear program takes those that together end soonest when links far from the middle, or
from the root, carry less (:mod:`.windows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...model.collective import Collective
from ...model.topology import Topology
from .division import forest_by_counts, largest
from .priced import priced_trees
from .segments import Forest, Route, RoutedTree, Segment
from .windows import LinkUses, counts_by_windows

LENGTH_PRICES = (0.3, 1.0, 3.0, 10.0)
"""What the mean length of a link costs, relative to the cheapest link. One forest is without the trees of the last
price, the other without those of the first."""

MOST_USES = 50_000
"""Uses of links by trees, in all, about, up to which trees are grown and given shares."""


def latency_forests(
    topology: Topology, c: Collective, packed: list[Forest], part_bytes: float, most: int
) -> list[Forest]:
    """Forests to choose from, of priced and packed trees; none where that would be too much work.

    Args:
        part_bytes: what a tree carries at a time.
        most: how many trees there may be: of an AllReduce in all, of other collectives of each root.
    """
    free, share = c.traits.reduces_to_all, packed[0].share
    trees = [tree for forest in packed for tree in forest]
    price_of = [0.0] * len(trees)
    uses_each = sum(len(segment.links) for _, segment in trees) / len(trees)
    affordable = int((MOST_USES / uses_each - len(trees)) / len(LENGTH_PRICES))
    if affordable < (1 if free else len(packed[0].segments)):
        return []
    count = min(most if free else most * len(packed[0].segments), affordable)
    for price in LENGTH_PRICES:
        trees += priced_trees(topology, c, packed[0], part_bytes, count, price) or []
        price_of += [price] * (len(trees) - len(price_of))
    latency_s, bandwidth = topology.latency_s.tolist(), topology.bandwidth.tolist()

    @cache
    def route_s(route: Route) -> float:
        """Seconds that a part is on its way over a route."""
        return float(sum(latency_s[link] for link in route) + part_bytes / min(bandwidth[link] for link in route))

    rows = [(k, *use) for k, (_, segment) in enumerate(trees) for use in _uses(latency_s, route_s, segment)]
    tree, link, opens_s, closes_s = (np.array(column) for column in zip(*rows, strict=True))
    distinct_roots, root = np.unique(np.array([root for root, _ in trees]), return_inverse=True)
    amounts = np.array([float(share.get(v, 0)) for v in distinct_roots.tolist()])
    seconds = c.size_bytes / topology.bandwidth
    forests = []
    for left_out in (LENGTH_PRICES[-1], LENGTH_PRICES[0]):
        chosen = np.flatnonzero(np.array(price_of) != left_out)
        used = np.isin(tree, chosen)
        uses = LinkUses(np.searchsorted(chosen, tree[used]), link[used], opens_s[used], closes_s[used])
        roots = np.zeros_like(root[chosen]) if free else root[chosen]
        counts = counts_by_windows(uses, seconds, *(() if free else (roots, amounts / amounts.sum())))
        if counts is not None:
            kept = sorted(largest(counts, roots.tolist(), most))
            rooted = [trees[chosen[k]] for k in kept]
            forests.append(forest_by_counts(rooted, [counts[k] for k in kept], None if free else share))
    return forests


def _uses(
    latency_s: list[float], route_s: Callable[[Route], float], segment: Segment
) -> Iterator[tuple[int, float, float]]:
    """Each link that a segment's parts take, and the window: seconds after the start, and before the end."""
    up, down = (None if tree is None else _Heights.of(route_s, tree) for tree in (segment.up, segment.down))
    for tree, mine, other in ((segment.up, up, down), (segment.down, down, up)):
        if tree is None or mine is None:
            continue
        above_s = {mine.root: 0.0 if other is None else other.below_s[mine.root]}
        for v in mine.order:
            parent = tree.parent[v]
            behind_s, ahead_s = 0.0, mine.seconds[v]
            above_s[v] = above_s[parent] + ahead_s
            for link in tree.links[v]:
                near_s, far_s = above_s[parent], mine.below_s[v]
                if mine is up:
                    yield link, far_s + behind_s, near_s + ahead_s
                else:
                    yield link, near_s + behind_s, far_s + ahead_s
                behind_s += latency_s[link]
                ahead_s -= latency_s[link]


@dataclass(frozen=True)
class _Heights:
    """How long parts take within a tree.

    Attributes:
        order: the nodes but the root, parents first.
        seconds: between each of these nodes and its parent.
        below_s: between each node and the farthest node below it.
    """

    root: int
    order: list[int]
    seconds: dict[int, float]
    below_s: dict[int, float]

    @classmethod
    def of(cls, route_s: Callable[[Route], float], tree: RoutedTree) -> _Heights:
        children: dict[int, list[int]] = {}
        for v, parent in tree.parent.items():
            children.setdefault(parent, []).append(v)
        (root,) = children.keys() - tree.parent.keys()
        order = [root]
        for v in order:
            order += children.get(v, ())
        seconds = {v: route_s(route) for v, route in tree.links.items()}
        below_s = dict.fromkeys(order, 0.0)
        for v in order[:0:-1]:
            below_s[tree.parent[v]] = max(below_s[tree.parent[v]], below_s[v] + seconds[v])
        return cls(root, order[1:], seconds, below_s)
