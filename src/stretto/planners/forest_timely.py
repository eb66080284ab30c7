"""Trees for an AllReduce where latency counts beside bandwidth: shallow and deep ones, with shares by their windows.

Trees of least price are made several times, kept short more and more (:mod:`.forest_priced`), and of all of them
together those are taken that end soonest when links far from the middle carry less (:mod:`.forest_shares`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..collective import Collective
from ..topology import Topology
from .forest_budget import gathered
from .forest_priced import priced_trees
from .forest_shares import Uses, timely_counts
from .forest_trees import Forest, Routed, Segment

NEARNESS = (0.3, 1.0, 3.0, 10.0)
"""What the mean length of a link costs, relative to the cheapest one. Trees of the first are left out of one choice,
those of the last out of the other."""


def timely_forests(topology: Topology, c: Collective, known: list[Forest], part: float, most: int) -> list[Forest]:
    """Forests to choose from, with some of the known trees among theirs; each tree has a share of the buffer.

    Args:
        part: bytes that travel at a time.
        most: how many trees there may be.
    """
    trees = [(root, s) for forest in known for root, some in forest.segments.items() for s in some]
    kept_short = [0.0] * len(trees)
    for nearness in NEARNESS:
        trees += priced_trees(topology, c, known[0], part, most, nearness) or []
        kept_short += [nearness] * (len(trees) - len(kept_short))
    ways = _Ways(topology.latency_s.tolist(), topology.bandwidth.tolist(), part, {})
    rows = [(k, *use) for k, (root, segment) in enumerate(trees) for use in _uses(ways, root, segment)]
    tree, link, opens, closes = (np.array(column) for column in zip(*rows, strict=True))
    found = []
    for left_out in (max(NEARNESS), min(NEARNESS)):
        which = np.flatnonzero(np.array(kept_short) != left_out)
        used = np.isin(tree, which)
        uses = Uses(np.searchsorted(which, tree[used]), link[used], opens[used], closes[used])
        counts = timely_counts(uses, c.size_bytes / topology.bandwidth)
        found.append(gathered([trees[k] for k in which], counts))
    return found


@dataclass(frozen=True)
class _Ways:
    """How long a part is on its way over links, as far as that has been asked."""

    latency_s: list[float]
    bandwidth: list[float]
    part: float
    known: dict[tuple[int, ...], float]

    def seconds(self, way: tuple[int, ...]) -> float:
        if way not in self.known:
            slowest = min(self.bandwidth[link] for link in way)
            self.known[way] = sum(self.latency_s[link] for link in way) + self.part / slowest
        return self.known[way]


def _uses(ways: _Ways, root: int, segment: Segment) -> Iterator[tuple[int, float, float]]:
    """Each link that a tree's parts go over, and its window: after the start, and before the end."""
    assert segment.up is not None and segment.down is not None, "of an AllReduce"
    up, down = (_Heights.of(ways, root, tree) for tree in (segment.up, segment.down))
    for tree, mine, other in ((segment.up, up, down), (segment.down, down, up)):
        above = {root: other.below[root]}
        for v in mine.order:
            parent = tree.parent[v]
            behind, left = 0.0, mine.seconds[v]
            above[v] = above[parent] + left
            for link in tree.links[v]:
                near, far = above[parent], mine.below[v]
                yield (link, far + behind, near + left) if mine is up else (link, near + behind, far + left)
                behind += ways.latency_s[link]
                left -= ways.latency_s[link]


@dataclass(frozen=True)
class _Heights:
    """A tree's nodes but the root, parents first; how far each is from its parent, and from the farthest below it."""

    order: list[int]
    seconds: dict[int, float]
    below: dict[int, float]

    @classmethod
    def of(cls, ways: _Ways, root: int, tree: Routed) -> _Heights:
        children: dict[int, list[int]] = {}
        for v, parent in tree.parent.items():
            children.setdefault(parent, []).append(v)
        order = [root]
        for v in order:
            order += children.get(v, ())
        seconds = {v: ways.seconds(way) for v, way in tree.links.items()}
        below = dict.fromkeys(order, 0.0)
        for v in order[:0:-1]:
            below[tree.parent[v]] = max(below[tree.parent[v]], below[v] + seconds[v])
        return cls(order[1:], seconds, below)
