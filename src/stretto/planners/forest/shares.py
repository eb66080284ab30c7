"""Which of many trees carry how much of an AllReduce where latency counts beside bandwidth.

A link of a tree has nothing to carry before all that lies behind it has come, and nothing at the end, for as long as
what it brings must travel on. Trees differ in this, so links that lie far from the middle can do less than their
bandwidth allows, others more, and a few trees of another middle use what would be idle. Each tree's share of a link
has a window, and what fits into windows is known: what opens s after the start or later and closes f before the end or
sooner takes no longer than is in between. So a linear program over the shares of many trees,

    minimise T + DEPTH x the mean time through a tree, where for each link, s and f
    s + f + seconds of all trees whose windows there open no sooner than s and close no later than T - f <= T,

whose first term is the least time in which links could do their part, each for itself. Few of these rows bind: they are
added where shares break them. (One that is there stays, even if later shares leave its window empty.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .meeting import Edges, Meeting

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

DEPTH = 1.0
"""How many times the time through trees counts: links also wait for each other."""

GRAIN = 1e-6
"""Of the latest opening or closing: those that are less apart are one."""

BROKEN = 1e-3
"""A row is broken where it asks for an end that is so much later, as a share."""

PARTS = 1 << 12
"""Of the whole, in which shares are counted."""


@dataclass(frozen=True)
class Uses:
    """Each use of a link by a tree, and its window.

    Attributes:
        tree, link: int64[uses].
        opens_s: float64[uses], how long after the start it can begin.
        closes_s: float64[uses], how long before the end it must be over.
    """

    tree: Int64
    link: Int64
    opens_s: Float64
    closes_s: Float64

    def rounded(self) -> Uses:
        """With windows that are hardly apart made one."""
        grain = GRAIN * float(max(self.opens_s.max(), self.closes_s.max()))
        opens, closes = (np.round(at / grain) * grain for at in (self.opens_s, self.closes_s))
        return replace(self, opens_s=opens, closes_s=closes)


def timely_counts(
    uses: Uses, seconds: Float64, root: Int64 | None = None, share: Float64 | None = None
) -> list[int] | None:
    """How much each tree should carry, in parts of about ``PARTS``; None where numbers are too far apart to tell.

    Args:
        seconds: float64[links], for which each would carry the whole.
        root: int64[trees], the place of each tree's root in ``share``,
        share: float64[roots], of the whole, that the trees of each root carry; None if any root may have any share.
    """
    from ...solvers import INFINITY, Model
    from ...solvers.highs import Growing

    uses = uses.rounded()
    order = np.argsort(uses.link, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(uses.link[order])) + 1)
    through = np.zeros(int(uses.tree.max()) + 1)
    np.maximum.at(through, uses.tree, uses.opens_s + uses.closes_s)
    alone = np.zeros(len(through))
    np.maximum.at(alone, uses.tree, seconds[uses.link])
    # about what comes out
    unit = float((through + alone).min())
    model = Model()
    carries = model.columns(len(through), 0.0, INFINITY, DEPTH * through / unit)
    (end,) = model.columns(1, 0.0, INFINITY, 1.0)
    whole = np.ones(1) if share is None else share
    model.rows(len(whole), whole, whole, (0 if root is None else root, carries, 1.0))
    program = Growing(model)
    fresh = [(some, float(uses.opens_s[some].min()), float(uses.closes_s[some].min())) for some in groups]
    while fresh:
        rows = Model(model.column_count)
        for some, after, before in fresh:
            inside = some[(uses.opens_s[some] >= after) & (uses.closes_s[some] >= before)]
            load = -seconds[uses.link[inside]] / unit
            rows.rows(1, (after + before) / unit, INFINITY, (0, end, 1.0), (0, carries[uses.tree[inside]], load))
        program.add(rows)
        solution = program.solve()
        if solution is None:
            return None
        found = np.maximum(solution, 0.0)
        carried = found[carries[uses.tree]] * seconds[uses.link]
        fresh = list(_broken(uses, groups, carried, float(found[end]) * unit * (1 + BROKEN)))
    counts: list[int] = np.floor(found[carries] / found[carries].sum() * PARTS + 1e-6).astype(np.int64).tolist()
    return counts


def _broken(uses: Uses, groups: list[Int64], carried: Float64, end_s: float) -> Iterator[tuple[Int64, float, float]]:
    """For each link whose windows do not hold what it carries, its uses and the window that lacks most."""
    for group in groups:
        some = group[carried[group] > 0]
        some = some[np.argsort(-uses.closes_s[some], kind="stable")]
        opens, closes = uses.opens_s[some], uses.closes_s[some]
        held = np.cumsum(np.where(opens[None] >= opens[:, None], carried[some], 0.0), axis=1)
        asks = np.where(held > 0, opens[:, None] + closes + held, 0.0)
        if asks.size and asks.max() > end_s:
            after, before = divmod(int(asks.argmax()), len(some))
            yield group, float(opens[after]), float(closes[before])


def balanced(edges: Edges, trees: list[Meeting], length: Float64, size: int) -> list[Meeting]:
    """Those of the trees that should carry something, with their shares of the buffer.

    Args:
        length: float64[edges], how long a part is on its way.
        size: bytes of the buffer.
    """
    opens = np.array([_openings(edges, tree, length) for tree in trees])
    # with time reversed sums become copies, and a link the opposite one
    closes = opens[:, :, ::-1] + length[:, None]
    tree, edge, way = np.nonzero(~np.isnan(opens))
    uses = Uses(tree, 2 * edge + way, opens[tree, edge, way], closes[tree, edge, way])
    counts = timely_counts(uses, np.repeat(size / edges.bandwidth, 2))
    if counts is None:
        return [t for t in trees if t.share]
    return [replace(t, share=Fraction(n, sum(counts))) for t, n in zip(trees, counts, strict=True) if n]


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
