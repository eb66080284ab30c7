"""Forests become a plan: chunks are cut along the rows of trees and into parts, lowered to transfers, and ordered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from ...model.collective import Collective, Workload
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.dispatch import NEAR as CLOSE_TO_BUSIEST
from ...schedule.dispatch import dispatch
from ...schedule.effort import Budget
from ...schedule.joins import lower_joined
from ...schedule.trees import lower, split_chunks
from .filling import Filling
from .forest import Forest


def pipeline(
    topology: Topology,
    workload: Workload,
    forests: Sequence[Forest],
    parts: float,
    budget: Budget,
    *,
    apart: bool | None = None,
    good_enough: float = CLOSE_TO_BUSIEST,
    ways: Mapping[str, int] | None = None,
) -> Plan:
    """Cut chunks along trees and into parts, lower them, and order the transfers.

    Args:
        forests: one for each collective.
        parts: parts of what a tree carries of a chunk, on average; trees that carry more, or fill later, have more.
        budget: with a cost for "cut", of one transfer.
        apart, good_enough, ways: see :func:`stretto.schedule.dispatch.dispatch`.
    """
    trees = Forest.concatenate(forests)
    first_row = np.cumsum([0, *(len(forest.share) for forest in forests)])
    cuts = [
        (int(workload.chunk_base[k]) + i, begin, int(first_row[k]) + row, position)
        for k, (c, forest) in enumerate(zip(workload.collectives, forests, strict=True))
        for counts in [Filling.of(topology, forest).parts(parts).tolist()]
        for i in range(c.chunk_count)
        for begin, row, position in _parts_of(c, i, forest, counts)
    ]
    chunk, begin, row = (np.array(column, dtype=np.int64) for column in list(zip(*cuts, strict=True))[:3])
    position = np.array([cut[3] for cut in cuts])
    # of parts that begin at the same byte only the last one is not empty
    kept = np.append((np.diff(chunk) != 0) | (np.diff(begin) != 0), True)
    finer, first = split_chunks(workload, chunk, begin)
    assert int(kept.sum()) == finer.chunk_count == int(first[-1])
    meta = {"parts": parts, "trees": len(trees.share)}
    lowered = lower_joined if trees.meets_at_switches(topology) else lower
    plan = lowered(topology, finer, row[kept], trees.up, trees.down, meta=meta)
    budget.spend(cut=plan.transfer_count)
    return dispatch(plan, position[kept], budget, apart=apart, good_enough=good_enough, ways=ways)


def _parts_of(c: Collective, chunk: int, forest: Forest, counts: list[int]) -> Iterator[tuple[int, int, float]]:
    """For each part of a chunk its first byte, its row, and its position in the data of the row, from 0 to 1."""
    size = int(c.chunk_bytes[chunk])
    rows, whole = [*range(len(forest.share))], Fraction(1)
    if not c.traits.reduces_to_all:
        roots = c.wanted if c.reduces else c.holders
        root = int(c.ranks[roots[int(c.chunk_piece[chunk])][0]])
        rows, whole = np.flatnonzero(forest.up.root == root).tolist(), forest.root_share[root]
    low = Fraction(0)
    for row in rows if size else ():
        count, share = counts[row], forest.share[row] / whole
        begin, each = low * size, share * size / count
        # floor(begin + part x each), in whole numbers
        below = begin.denominator * each.denominator
        offset, step = begin.numerator * each.denominator, each.numerator * begin.denominator
        for part in range(count):
            yield (offset + part * step) // below, row, (part + 0.5) / count
        low += share
