"""Forests where latency counts beside bandwidth: shallow and deep trees, with shares by their windows.

Trees of least price are grown several times, with a higher price of length each time (:mod:`.priced`). Of these and the
trees that there were before, a linear program takes those that together end soonest when links far from the middle, or
from the root, carry less (:mod:`.windows`).
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64
from ...model.collective import Collective
from ...model.topology import Topology
from .division import largest
from .forest import Forest
from .priced import priced_trees
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
    free, root_share = c.traits.reduces_to_all, packed[0].root_share
    known = Forest.concatenate(packed)
    count = len(known.share)
    affordable = int((MOST_USES * count / len(known.uses[0]) - count) / len(LENGTH_PRICES))
    if affordable < (1 if free else len(root_share)):
        return []
    more = min(most if free else most * len(root_share), affordable)
    priced = [priced_trees(topology, c, packed[0], part_bytes, more, price) for price in LENGTH_PRICES]
    trees = Forest.concatenate([known, *(forest for forest in priced if forest is not None)])
    price_of = np.repeat((0.0, *LENGTH_PRICES), [count, *(0 if f is None else len(f.share) for f in priced)])
    uses = LinkUses.of(topology, trees, part_bytes)
    distinct, root = np.unique(trees.up.root, return_inverse=True)
    amounts: Float64 | float = np.array([float(root_share.get(v, 0)) for v in distinct.tolist()])
    if free:
        # roots may have any share
        root, amounts = np.zeros_like(root), 1.0
    forests = []
    for left_out in (LENGTH_PRICES[-1], LENGTH_PRICES[0]):
        chosen = np.flatnonzero(price_of != left_out)
        of_chosen = uses.among(chosen)
        counts = counts_by_windows(of_chosen, c.size_bytes / topology.bandwidth, root[chosen], amounts)
        if counts is not None:
            kept = sorted(largest(counts, root[chosen].tolist(), most))
            forest = trees.take(chosen[kept])
            forests.append(forest.divided([counts[k] for k in kept], None if free else root_share))
    return forests
