"""At most so many trees a rank: the largest are kept, and a linear program divides the data among them again.

Every tree of a root is a chunk of its own; capacities without a small common measure could ask for thousands. Here
shares need not be equal, and of all trees a few carry nearly everything.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from ...model.topology import Topology
from .trees import Forest, Segment

PARTS = 1 << 14
"""Of the whole, in which shares are counted."""


def limited(topology: Topology, forest: Forest, most: int, ranks: int) -> Forest:
    """The forest with at most ``most`` trees a rank: of each root, or, where all is summed, of all together.

    Args:
        ranks: how many there are.
    """
    largest: list[tuple[int, Segment]] = []
    for root, some in forest.segments.items():
        keep = len(some) if forest.summed else most
        largest += [(root, s) for s in sorted(some, key=lambda s: -s.share)[:keep]]
    if forest.summed:
        largest = sorted(largest, key=lambda pair: -forest.share[pair[0]] * pair[1].share)[: most * ranks]
    if len(largest) == sum(map(len, forest.segments.values())):
        return forest
    return divided(topology, largest, None if forest.summed else forest.share)


def divided(topology: Topology, trees: list[tuple[int, Segment]], share: dict[int, Fraction] | None = None) -> Forest:
    """A forest of trees, given with their roots, that together are as fast as they can be.

    Args:
        share: of each root; as is best if None.
    """
    return gathered(trees, _counts(topology, trees, share), share)


def gathered(trees: list[tuple[int, Segment]], counts: list[int], share: dict[int, Fraction] | None = None) -> Forest:
    """A forest of those trees, given with their roots, that carry anything.

    Args:
        counts: how much of the whole, or of their root's part, each tree carries beside the others.
        share: of each root; None if it is what its trees carry.
    """
    segments: dict[int, list[Segment]] = {}
    counted: dict[int, int] = {}
    for (root, segment), count in zip(trees, counts, strict=True):
        if count:
            segments.setdefault(root, []).append(replace(segment, share=Fraction(count)))
            counted[root] = counted.get(root, 0) + count
    if share is None:
        share = {root: Fraction(count, sum(counted.values())) for root, count in counted.items()}
    return Forest({v: [replace(s, share=s.share / counted[v]) for s in some] for v, some in segments.items()}, share)


def _counts(topology: Topology, trees: list[tuple[int, Segment]], share: dict[int, Fraction] | None) -> list[int]:
    """How much trees carry that are as fast together as they can be."""
    from ...solvers import INFINITY, Model, solve

    model = Model()
    rates = model.columns(len(trees), 0.0, INFINITY, -1.0)
    (whole,) = model.columns(1, 0.0, INFINITY, 0.0)
    entries = []
    for (_, segment), rate in zip(trees, rates.tolist(), strict=True):
        ways = [way for tree in (segment.up, segment.down) if tree is not None for way in tree.links.values()]
        links = np.concatenate([np.array(way, dtype=np.int64) for way in ways])
        entries.append((links, rate, 1.0))
    model.rows(topology.link_count, -INFINITY, topology.bandwidth / topology.bandwidth.max(), *entries)
    for root, amount in () if share is None else share.items():
        own = rates[[k for k, (v, _) in enumerate(trees) if v == root]]
        model.rows(1, 0.0, 0.0, (0, own, 1.0), (0, whole, -float(amount)))
    found = solve(model)
    assert found.x is not None, "nothing at all is a solution"
    at = found.x[rates]
    counts: list[int] = np.ceil(at / at.sum() * PARTS - 1e-6).astype(np.int64).tolist()
    return counts
