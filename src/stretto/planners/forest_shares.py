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

from dataclasses import replace
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from .forest_meeting import Edges, Meeting

Float64 = NDArray[np.float64]

DEPTH = 1.0
"""How many times the time through trees counts: links also wait for each other."""

GRAIN = 1e-6
"""Of the longest edge: openings that are less apart are one."""

LEVELS, FEWEST, ROWS = 12, 6, 8192
"""How many openings and closings of a link are looked at, at most; fewer, but so many, where rows were more."""

PARTS = 1 << 12
"""Of the whole, in which shares are counted."""


def balanced(edges: Edges, trees: list[Meeting], length: Float64, size: int) -> list[Meeting]:
    """Those of the trees that should carry something, with their shares of the buffer.

    Args:
        length: float64[edges], how long a part is on its way.
        size: bytes of the buffer.
    """
    from ..solvers import INFINITY, Model, solve

    opens = np.array([_openings(edges, tree, length) for tree in trees])
    grain = GRAIN * float(length.max())
    opens = np.round(opens / grain) * grain
    # with time reversed sums become copies, and a link the opposite one
    closes = opens[:, :, ::-1] + length[:, None]
    model = Model()
    share = model.columns(len(trees), 0.0, INFINITY, DEPTH * np.nanmax(opens + closes, axis=(1, 2)))
    (end,) = model.columns(1, 0.0, INFINITY, 1.0)
    model.rows(1, 1.0, 1.0, (0, share, 1.0))
    levels = min(max(isqrt(ROWS // (2 * len(edges.tail))), FEWEST), LEVELS)
    for edge, width in enumerate(edges.bandwidth.tolist()):
        using = np.flatnonzero(~np.isnan(opens[:, edge, 0]))
        for way in range(2 if len(using) else 0):
            begin, rest = opens[using, edge, way], closes[using, edge, way]
            after, before = np.meshgrid(_levels(begin, levels), _levels(rest, levels), indexing="ij")
            inside = (begin >= after[:, :, None]) & (rest >= before[:, :, None])
            row, tree = np.nonzero(inside.reshape(-1, len(using)))
            count = after.size
            model.rows(
                count, (after + before).ravel(), INFINITY,
                (np.arange(count), end, 1.0), (row, share[using[tree]], -size / width),
            )  # fmt: skip
    found = solve(model)
    assert found.x is not None, "one tree alone is a solution"
    counted = np.floor(found.x[share] * PARTS + 1e-6).astype(np.int64)
    whole = int(counted.sum())
    return [replace(t, share=Fraction(n, whole)) for t, n in zip(trees, counted.tolist(), strict=True) if n]


def _levels(times: Float64, most: int) -> Float64:
    found: Float64 = np.unique(times)
    if len(found) > most:
        found = np.unique(np.quantile(found, np.linspace(0.0, 1.0, most), method="nearest"))
    return found


def _openings(edges: Edges, tree: Meeting, length: Float64) -> Float64:
    """float64[edges, 2]: when a part can begin on each edge from tail to head, and back; NaN where there is none."""
    height, beside = dict.fromkeys((tree.root, *tree.parent), 0.0), 0.0
    for v in reversed(tree.parent):  # parents come first
        above, come = tree.parent[v], height[v] + float(length[tree.edge[v]])
        height[above] = max(height[above], come)
        if above == tree.root and v != tree.twin:
            beside = max(beside, come)
    # the root has all when the highest branch has come; its twin, what the other branches sum up to
    whole = {tree.root: height[tree.root]}
    found = np.full((len(length), 2), np.nan)
    for v, e in tree.edge.items():
        above, down = tree.parent[v], int(edges.tail[e] == v)
        goes = beside if v == tree.twin else whole[above]
        found[e, down], found[e, 1 - down] = goes, height[v]
        whole[v] = max(height[v], goes + float(length[e]))
    return found
