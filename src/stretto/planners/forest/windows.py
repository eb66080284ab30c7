"""How much of the data each of many trees carries where latency counts beside bandwidth.

A link of a tree has nothing to carry before the data behind it has come, and nothing at the end, for as long as
what it brought must travel on: each use of a link by a tree has a window. So links far from the middle of a tree can
carry less than their bandwidth allows, links near it more, and a few trees with another middle use what would be idle.
Uses whose windows open s or more after the start and close f or more before the end must fit into the time between.
So there is a linear program over the shares of many trees,

    minimise T + DEPTH x the mean time through a tree, where for each link, s and f
    s + f + seconds of all trees whose windows there open no sooner than s and close no later than T - f <= T.

T is the least time in which every link, considered alone, could carry its data. Few of these rows bind, so rows are
added where a solution breaks them. (A row stays even if later shares leave its window empty.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...model.arrays import Float64, Int64
from .meeting import SHARE_UNITS, MeetingTree, UndirectedEdges

DEPTH = 1.0
"""Weight of the mean time through a tree beside T: links also wait for each other."""

GRAIN = 1e-6
"""Windows that differ by less are one, as a share of the latest opening or closing."""

TOLERANCE = 1e-3
"""A row is broken where it asks for a T that is later by more than this share."""


@dataclass(frozen=True)
class LinkUses:
    """Uses of links by trees, and their windows.

    Attributes:
        tree, link: int64[uses].
        opens_s: float64[uses], how long after the start it can begin.
        closes_s: float64[uses], how long before the end it must be over.
    """

    tree: Int64
    link: Int64
    opens_s: Float64
    closes_s: Float64

    def rounded(self) -> LinkUses:
        """The uses with windows rounded to a grain, so that windows which hardly differ are one."""
        grain = GRAIN * float(max(self.opens_s.max(), self.closes_s.max()))
        opens, closes = (np.round(at / grain) * grain for at in (self.opens_s, self.closes_s))
        return replace(self, opens_s=opens, closes_s=closes)


def counts_by_windows(
    uses: LinkUses, seconds: Float64, root: Int64 | None = None, share: Float64 | None = None
) -> list[int] | None:
    """How much each tree should carry, in about ``SHARE_UNITS`` units; None where numbers are too far apart to solve.

    Args:
        seconds: float64[links], for which each link would carry the whole.
        root: int64[trees], the place of each tree's root in ``share``.
        share: float64[roots], the part of the whole that the trees of each root carry; None if roots may have any
            share.
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
    # T is about this long
    unit = float((through + alone).min())
    model = Model()
    carried_by = model.columns(len(through), 0.0, INFINITY, DEPTH * through / unit)
    (end,) = model.columns(1, 0.0, INFINITY, 1.0)
    whole = np.ones(1) if share is None else share
    model.rows(len(whole), whole, whole, (0 if root is None else root, carried_by, 1.0))
    program = Growing(model)
    windows = [(of_link, float(uses.opens_s[of_link].min()), float(uses.closes_s[of_link].min())) for of_link in groups]
    while windows:
        rows = Model(model.column_count)
        for of_link, after, before in windows:
            inside = of_link[(uses.opens_s[of_link] >= after) & (uses.closes_s[of_link] >= before)]
            load = -seconds[uses.link[inside]] / unit
            rows.rows(1, (after + before) / unit, INFINITY, (0, end, 1.0), (0, carried_by[uses.tree[inside]], load))
        program.add(rows)
        solution = program.solve()
        if solution is None:
            return None
        x = np.maximum(solution, 0.0)
        busy_s = x[carried_by[uses.tree]] * seconds[uses.link]
        windows = list(_broken(uses, groups, busy_s, float(x[end]) * unit * (1 + TOLERANCE)))
    counts: list[int] = np.floor(x[carried_by] / x[carried_by].sum() * SHARE_UNITS + 1e-6).astype(np.int64).tolist()
    return counts


def _broken(uses: LinkUses, groups: list[Int64], busy_s: Float64, end_s: float) -> Iterator[tuple[Int64, float, float]]:
    """For each link with a window that does not hold its uses: all uses of the link, and the most overfull window.

    Args:
        groups: the uses of each link.
        busy_s: float64[uses], how long each use keeps its link busy.
    """
    for group in groups:
        used = group[busy_s[group] > 0]
        used = used[np.argsort(-uses.closes_s[used], kind="stable")]
        opens, closes = uses.opens_s[used], uses.closes_s[used]
        inside_s = np.cumsum(np.where(opens[None] >= opens[:, None], busy_s[used], 0.0), axis=1)
        needed_s = np.where(inside_s > 0, opens[:, None] + closes + inside_s, 0.0)
        if needed_s.size and needed_s.max() > end_s:
            after, before = divmod(int(needed_s.argmax()), len(used))
            yield group, float(opens[after]), float(closes[before])


def shares_by_windows(
    edges: UndirectedEdges, trees: list[MeetingTree], length: Float64, size_bytes: int
) -> list[MeetingTree]:
    """The trees that should carry something, with their shares of the buffer.

    Args:
        length: float64[edges], seconds that a part is on its way.
        size_bytes: of the buffer.
    """
    opens = np.array([_openings(edges, tree, length) for tree in trees])
    # with time reversed sums become copies, and a link its opposite link
    closes = opens[:, :, ::-1] + length[:, None]
    tree, edge, way = np.nonzero(~np.isnan(opens))
    uses = LinkUses(tree, 2 * edge + way, opens[tree, edge, way], closes[tree, edge, way])
    counts = counts_by_windows(uses, np.repeat(size_bytes / edges.bandwidth, 2))
    if counts is None:
        return [t for t in trees if t.share]
    return [replace(t, share=Fraction(n, sum(counts))) for t, n in zip(trees, counts, strict=True) if n]


def _openings(edges: UndirectedEdges, tree: MeetingTree, length: Float64) -> Float64:
    """float64[edges, 2], when a part can begin on each edge from tail to head, and back; NaN outside the tree."""
    height, beside_twin = dict.fromkeys((tree.root, *tree.parent), 0.0), 0.0
    for v in reversed(tree.parent):  # parents come first
        above, arrival = tree.parent[v], height[v] + float(length[tree.edge[v]])
        height[above] = max(height[above], arrival)
        if above == tree.root and v != tree.twin:
            beside_twin = max(beside_twin, arrival)
    # the root has the whole sum when its highest branch has come; its twin gets the sum of the other branches
    whole = {tree.root: height[tree.root]}
    opens = np.full((len(length), 2), np.nan)
    for v, e in tree.edge.items():
        above, down = tree.parent[v], int(edges.tail[e] == v)
        sent = beside_twin if v == tree.twin else whole[above]
        opens[e, down], opens[e, 1 - down] = sent, height[v]
        whole[v] = max(height[v], sent + float(length[e]))
    return opens
