"""Which of many trees carry how much of an AllReduce where latency counts beside bandwidth.

A link of a tree has nothing to carry before all that lies behind it has come, and nothing at the end, for as long as
what it brings must travel on. Trees differ in this, so links that lie far from the middle can do less than their
bandwidth allows, others more, and a few trees of another middle use what would be idle. Each tree's share of a link
has a window, and what fits into windows is known: what opens s after the start or later and closes f before the end or
sooner takes no longer than is in between. So a linear program over the shares of many trees,

    minimise T + DEPTH x the mean time through a tree, where for each link, s and f
    s + f + seconds of all trees whose windows there open no sooner than s and close no later than T - f <= T,

whose first term is the least time in which links could do their part, each for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import inf, isqrt

import numpy as np
from numpy.typing import NDArray

from ..topology import Topology
from .forest_trees import Forest, Routed, Segment

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

DEPTH = 1.0
"""How many times the time through trees counts: links also wait for each other."""

GRAIN = 1e-6
"""Of the longest tree: openings that are less apart are one."""

LEVELS, FEWEST, SPACE = 12, 6, 500_000
"""How many openings and closings of a link are looked at, at most; fewer, but so many, where rows x trees were more."""

PARTS = 1 << 12
"""Of the whole, in which shares are counted."""

SHORTER = 0.85
"""The program holds even trees that carry nothing to end in time; where that alone decides, those that take longer than
this part of the time found are left out next, while that gains."""


def balanced(
    topology: Topology, trees: list[tuple[int, Segment]], part: float, size: int, within_s: float = inf
) -> Forest | None:
    """Those of the trees that should carry something, with their shares of the buffer; None if all take too long.

    Args:
        trees: for sums and for copies, each pair with its root.
        part: bytes that travel at a time.
        size: bytes of the buffer.
        within_s: the longest time through a tree.
    """
    windows = _Windows.of(topology, trees, part)
    best: _Found | None = None
    while (kept := windows.depth_s <= within_s).any():
        found = windows.shares(topology, size, kept)
        if best is not None and found.cost_s >= best.cost_s:
            break
        best, within_s = found, min(SHORTER * found.end_s, float(windows.depth_s[kept].max()) * (1 - 1e-9))
        if found.end_s > found.least_s * (1 + 1e-6):
            break
    if best is None:
        return None
    counted: dict[int, int] = {}
    segments: dict[int, list[Segment]] = {}
    for (root, segment), count in zip(
        trees, np.floor(best.share * PARTS + 1e-6).astype(np.int64).tolist(), strict=True
    ):
        if count:
            counted[root] = counted.get(root, 0) + count
            segments.setdefault(root, []).append(replace(segment, share=Fraction(count)))
    return Forest(
        {root: [replace(s, share=s.share / counted[root]) for s in some] for root, some in segments.items()},
        {root: Fraction(count, sum(counted.values())) for root, count in counted.items()},
    )


@dataclass(frozen=True)
class _Found:
    """A solution.

    Attributes:
        cost_s: what is minimised.
        end_s: T.
        least_s: what T were if no tree carried anything.
        share: float64[trees], of the buffer.
    """

    cost_s: float
    end_s: float
    least_s: float
    share: Float64


@dataclass(frozen=True)
class _Windows:
    """Of each link on each tree the time before it is needed, and that from its begin to the end.

    Attributes:
        link, tree: int64[uses].
        open_s, close_s: float64[uses].
        depth_s: float64[trees], the time through each.
    """

    link: Int64
    tree: Int64
    open_s: Float64
    close_s: Float64
    depth_s: Float64

    @classmethod
    def of(cls, topology: Topology, trees: list[tuple[int, Segment]], part: float) -> _Windows:
        latency_s, width = topology.latency_s.tolist(), topology.bandwidth.tolist()

        @cache
        def long(way: tuple[int, ...]) -> float:
            seconds: float = sum(latency_s[e] for e in way) + part / min(width[e] for e in way)
            return seconds

        uses: list[tuple[int, int, float, float]] = []
        depth = np.zeros(len(trees))
        for k, (root, segment) in enumerate(trees):
            assert segment.up is not None and segment.down is not None, "an AllReduce's"
            up, down = _Walked.of(root, segment.up, long), _Walked.of(root, segment.down, long)
            # with time reversed copies are sums, so what is before the one is after the other
            sums, copies = up.beyond(down, segment.twin), down.beyond(up, segment.twin)
            begins = [(up, v, up.height[v], sums[v] + up.long[v]) for v in up.long]
            begins += [(down, v, copies[v], down.height[v] + down.long[v]) for v in down.long]
            for walk, v, opens, closes in begins:
                depth[k] = max(depth[k], opens + closes)
                for e in walk.tree.links[v]:
                    uses.append((e, k, opens, closes))
                    opens, closes = opens + latency_s[e], closes - latency_s[e]
        link, tree, opens_s, closes_s = (np.array(column) for column in zip(*uses, strict=True))
        grain = GRAIN * depth.max()
        return cls(link, tree, np.round(opens_s / grain) * grain, np.round(closes_s / grain) * grain, depth)

    def shares(self, topology: Topology, size: int, kept: NDArray[np.bool_]) -> _Found:
        """How much of the buffer each tree should have; only those that are kept have any."""
        from ..solvers import INFINITY, Model, solve

        unit = float(self.depth_s[kept].max()) + size / float(topology.bandwidth.max())
        model = Model()
        share = model.columns(len(kept), 0.0, np.where(kept, 1.0, 0.0), DEPTH * self.depth_s / unit)
        (end,) = model.columns(1, 0.0, INFINITY, 1.0)
        model.rows(1, 1.0, 1.0, (0, share, 1.0))
        of = [some[kept[self.tree[some]]] for some in _grouped(self.link, topology.link_count)]
        levels = _level_count(topology.link_count, int(kept.sum()))
        floor = 0.0
        for using, width in zip(of, topology.bandwidth.tolist(), strict=True):
            if not len(using):
                continue
            opens, closes, tree = self.open_s[using], self.close_s[using], self.tree[using]
            after, before = np.meshgrid(_levels(opens, levels), _levels(closes, levels), indexing="ij")
            inside = (opens >= after.reshape(-1, 1)) & (closes >= before.reshape(-1, 1))
            inside = inside[_unlike(inside)]
            least = np.where(inside, opens, inf).min(axis=1) + np.where(inside, closes, inf).min(axis=1)
            floor = max(floor, float(least.max()))
            row, use = np.nonzero(inside)
            model.rows(
                len(inside), least / unit, INFINITY,
                (np.arange(len(inside)), end, 1.0), (row, share[tree[use]], -size / width / unit),
            )  # fmt: skip
        found = solve(model)
        assert found.x is not None and found.objective is not None, "one tree alone is a solution"
        return _Found(found.objective * unit, float(found.x[end]) * unit, floor, found.x[share])


@dataclass(frozen=True)
class _Walked:
    """A tree and its times.

    Attributes:
        root: its root.
        long: for each node but the root, how long a part is on the way between it and its parent.
        height: how long it is from the farthest node below each node.
    """

    root: int
    tree: Routed
    long: dict[int, float]
    height: dict[int, float]

    @classmethod
    def of(cls, root: int, tree: Routed, length: Callable[[tuple[int, ...]], float]) -> _Walked:
        children: dict[int, list[int]] = {}
        for v, above in tree.parent.items():
            children.setdefault(above, []).append(v)
        order = [root]
        for v in order:
            order += children.get(v, [])
        height, long = dict.fromkeys(order, 0.0), {v: length(tree.links[v]) for v in order[1:]}
        for v in reversed(order[1:]):
            above = tree.parent[v]
            height[above] = max(height[above], height[v] + long[v])
        return cls(root, tree, long, height)

    def beyond(self, other: _Walked, twin: int) -> dict[int, float]:
        """For each node but the root how long it takes beyond its parent, through the root and the other tree.

        If there is a twin both trees are one, and each of root and twin needs of the other only the other's branches.
        """
        whole, found = {self.root: other.height[self.root]}, {}
        for v, long in self.long.items():  # parents come first
            above = self.tree.parent[v]
            if v == twin:
                beside = [w for w, a in self.tree.parent.items() if a == above and w != v]
                found[v] = max((other.height[w] + other.long[w] for w in beside), default=0.0)
                whole[v] = max(other.height[v], found[v] + long)
            else:
                found[v] = whole[above]
                whole[v] = found[v] + long
        return found


def _level_count(links: int, trees: int) -> int:
    return min(max(isqrt(SPACE // (links * trees)), FEWEST), LEVELS)


def _grouped(values: Int64, count: int) -> list[Int64]:
    """Where each of the values up to ``count`` is."""
    order = np.argsort(values, kind="stable")
    return np.split(order, np.cumsum(np.bincount(values, minlength=count))[:-1])


def _unlike(rows: NDArray[np.bool_]) -> list[int]:
    """One of each kind of row, but for those without anything."""
    found = {row.tobytes(): k for k, row in enumerate(np.packbits(rows, axis=1))}
    found.pop(bytes(-(-rows.shape[1] // 8)), None)
    return list(found.values())


def _levels(times: Float64, most: int) -> Float64:
    found: Float64 = np.unique(times)
    if len(found) > most:
        found = np.unique(np.quantile(found, np.linspace(0.0, 1.0, most), method="nearest"))
    return found
