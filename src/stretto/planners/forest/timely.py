"""Trees where latency counts beside bandwidth: shallow and deep ones, with shares by their windows.

Trees of least price are made several times, kept short more and more (:mod:`.forest_priced`), and of all of them
together those are taken that end soonest when links far from the middle, or from the root, carry less
(:mod:`.forest_shares`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...model.collective import Collective
from ...model.topology import Topology
from .budget import gathered
from .priced import priced_trees
from .shares import Uses, timely_counts
from .trees import Forest, Routed, Segment

Int64 = NDArray[np.int64]

NEARNESS = (0.3, 1.0, 3.0, 10.0)
"""What the mean length of a link costs, relative to the cheapest one. Trees of the first are left out of one choice,
those of the last out of the other."""

USES = 50_000
"""How many uses of links by trees there may be in all, about."""


def timely_forests(topology: Topology, c: Collective, known: list[Forest], part: float, most: int) -> list[Forest]:
    """Forests to choose from, with some of the known trees among theirs; none where that were too much work.

    Args:
        part: bytes that travel at a time.
        most: how many trees there may be: of an AllReduce in all, of others of each root.
    """
    summed, share = c.kind == "allreduce", known[0].share
    trees = [(root, s) for forest in known for root, some in forest.segments.items() for s in some]
    kept_short = [0.0] * len(trees)
    uses_each = sum(len(_links(s)) for _, s in trees) / len(trees)
    affordable = int((USES / uses_each - len(trees)) / len(NEARNESS))
    if affordable < (1 if summed else len(known[0].segments)):
        return []
    many = min(most if summed else most * len(known[0].segments), affordable)
    for nearness in NEARNESS:
        trees += priced_trees(topology, c, known[0], part, many, nearness) or []
        kept_short += [nearness] * (len(trees) - len(kept_short))
    ways = _Ways(topology.latency_s.tolist(), topology.bandwidth.tolist(), part, {})
    rows = [(k, *use) for k, (_, segment) in enumerate(trees) for use in _uses(ways, segment)]
    tree, link, opens, closes = (np.array(column) for column in zip(*rows, strict=True))
    of = np.array([root for root, _ in trees])
    amounts = np.array([float(share.get(root, 0)) for root in np.unique(of).tolist()])
    found = []
    for left_out in (max(NEARNESS), min(NEARNESS)):
        which = np.flatnonzero(np.array(kept_short) != left_out)
        used = np.isin(tree, which)
        uses = Uses(np.searchsorted(which, tree[used]), link[used], opens[used], closes[used])
        seconds, roots = c.size_bytes / topology.bandwidth, np.unique(of, return_inverse=True)[1][which]
        counts = timely_counts(uses, seconds, *(() if summed else (roots, amounts / amounts.sum())))
        if counts is not None:
            counts = _largest(counts, np.zeros_like(roots) if summed else roots, most)
            found.append(gathered([trees[k] for k in which], counts, None if summed else share))
    return found


def _links(segment: Segment) -> list[int]:
    """All links that its trees use, one as often as it is used."""
    trees = [tree for tree in (segment.up, segment.down) if tree is not None]
    return [link for tree in trees for way in tree.links.values() for link in way]


def _largest(counts: list[int], group: Int64, most: int) -> list[int]:
    """Counts, but of each group only so many, the largest."""
    kept, left = [0] * len(counts), dict.fromkeys(group.tolist(), most)
    for k in sorted(range(len(counts)), key=lambda k: -counts[k]):
        if counts[k] and left[int(group[k])]:
            kept[k] = counts[k]
            left[int(group[k])] -= 1
    return kept


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


def _uses(ways: _Ways, segment: Segment) -> Iterator[tuple[int, float, float]]:
    """Each link that a segment's parts go over, and its window: after the start, and before the end."""
    up, down = (None if tree is None else _Heights.of(ways, tree) for tree in (segment.up, segment.down))
    for tree, mine, other in ((segment.up, up, down), (segment.down, down, up)):
        if tree is None or mine is None:
            continue
        above = {mine.root: 0.0 if other is None else other.below[mine.root]}
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

    root: int
    order: list[int]
    seconds: dict[int, float]
    below: dict[int, float]

    @classmethod
    def of(cls, ways: _Ways, tree: Routed) -> _Heights:
        children: dict[int, list[int]] = {}
        for v, parent in tree.parent.items():
            children.setdefault(parent, []).append(v)
        (root,) = children.keys() - tree.parent.keys()
        order = [root]
        for v in order:
            order += children.get(v, ())
        seconds = {v: ways.seconds(way) for v, way in tree.links.items()}
        below = dict.fromkeys(order, 0.0)
        for v in order[:0:-1]:
            below[tree.parent[v]] = max(below[tree.parent[v]], below[v] + seconds[v])
        return cls(root, order[1:], seconds, below)
