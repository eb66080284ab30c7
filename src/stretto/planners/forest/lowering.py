"""Forests become a plan: chunks are cut along segments and into parts, lowered to transfers, and ordered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...model.arrays import Int64, Ragged
from ...model.collective import Collective, Workload
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.dispatch import NEAR as CLOSE_TO_BUSIEST
from ...schedule.dispatch import dispatch
from ...schedule.effort import Budget
from ...schedule.trees import Trees, lower, split_chunks
from .segments import Forest, Route, RoutedTree, Segment


@dataclass(frozen=True)
class SegmentTable:
    """One forest for each collective, their segments as rows of trees.

    Attributes:
        first_row: for each collective the row of each root's first segment.
        up, down: the in-tree and the out-tree of each row.
    """

    forests: list[Forest]
    first_row: list[dict[int, int]]
    up: Trees
    down: Trees

    @classmethod
    def of(cls, topology: Topology, forests: list[Forest]) -> SegmentTable:
        first_row: list[dict[int, int]] = []
        rows: list[Segment] = []
        roots: list[int] = []
        for forest in forests:
            first_row.append({})
            for root, segments in forest.segments.items():
                first_row[-1][root] = len(rows)
                rows += segments
                roots += [root] * len(segments)
        root_of = np.array(roots, dtype=np.int64)
        up, down = (_as_trees(topology, root_of, trees) for trees in ([s.up for s in rows], [s.down for s in rows]))
        return cls(forests, first_row, replace(up, twin=np.array([s.twin for s in rows], dtype=np.int64)), down)


def _as_trees(topology: Topology, roots: Int64, trees: list[RoutedTree | None]) -> Trees:
    toward = np.full((len(trees), topology.node_count), -1, dtype=np.int64)
    hop = np.zeros_like(toward)
    routes: dict[Route, int] = {(0,): 0}
    for k, tree in enumerate(trees):
        if tree is None:
            continue
        for v, parent in tree.parent.items():
            toward[k, v] = parent
            hop[k, v] = routes.setdefault(tree.links[v], len(routes))
    return Trees(roots, toward, hop, Ragged.of(list(routes)))


def pipeline(
    topology: Topology,
    workload: Workload,
    table: SegmentTable,
    parts: float,
    budget: Budget,
    *,
    apart: bool | None = None,
    good_enough: float = CLOSE_TO_BUSIEST,
) -> Plan:
    """Cut chunks along segments and into parts, lower them, and order the transfers.

    Args:
        parts: parts of a segment, on average; segments with more data have more.
        budget: with a cost for "cut", of one transfer.
        apart, good_enough: see :func:`stretto.schedule.dispatch.dispatch`.
    """
    cuts = [
        (int(workload.chunk_base[number]) + i, *part)
        for number, (c, forest) in enumerate(zip(workload.collectives, table.forests, strict=True))
        for i in range(c.chunk_count)
        for part in _parts_of(c, i, forest, table.first_row[number], parts)
    ]
    chunk, begin, row = (np.array(column, dtype=np.int64) for column in list(zip(*cuts, strict=True))[:3])
    position = np.array([cut[3] for cut in cuts])
    # of parts that begin at the same byte only the last one is not empty
    kept = np.append((np.diff(chunk) != 0) | (np.diff(begin) != 0), True)
    finer, first = split_chunks(workload, chunk, begin)
    assert int(kept.sum()) == finer.chunk_count == int(first[-1])
    meta = {"parts": parts, "trees": len(table.up.root)}
    plan = lower(topology, finer, row[kept], table.up, table.down, meta=meta)
    budget.spend(cut=plan.transfer_count)
    return dispatch(plan, position[kept], budget, apart=apart, good_enough=good_enough)


def _parts_of(
    c: Collective, chunk: int, forest: Forest, first_row: dict[int, int], parts: float
) -> Iterator[tuple[int, int, float]]:
    """For each part of a chunk the byte at which it begins, its row, and its position in the segment, from 0 to 1."""
    size = int(c.chunk_bytes[chunk])
    if c.traits.reduces_to_all:
        shares = [*forest.share.items()]
    else:
        roots = c.wanted if c.reduces else c.holders
        shares = [(int(c.ranks[roots[int(c.chunk_piece[chunk])][0]]), Fraction(1))]
    low = Fraction(0)
    for root, share in shares if size else ():
        for k, segment in enumerate(forest.segments[root]):
            count = max(round(parts * forest.weight[root][k]), 1)
            begin, each = low * size, share * segment.share * size / count
            # floor(begin + part x each), in whole numbers
            below = begin.denominator * each.denominator
            offset, step = begin.numerator * each.denominator, each.numerator * begin.denominator
            for part in range(count):
                yield (offset + part * step) // below, first_row[root] + k, (part + 0.5) / count
            low += share * segment.share
