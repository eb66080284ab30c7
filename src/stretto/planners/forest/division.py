"""A limit on the trees of each rank: the largest are kept, and a linear program divides the data among them again.

Every tree of a root is a chunk of its own, and capacities without a small common measure could ask for thousands of
trees. Here shares need not be equal, and a few of the trees carry nearly all data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.collective import Collective
from ...model.topology import Topology
from ...schedule.trees import sums_to_root
from .forest import Forest

SHARE_UNITS = 1 << 14
"""Units of the whole in which shares are counted."""


def keep_largest(topology: Topology, c: Collective, forest: Forest, most: int) -> Forest:
    """The forest with at most ``most`` trees of each root; of an AllReduce ``most`` times the ranks for all roots."""
    free = c.traits.reduces_to_all
    groups = [0] * len(forest.share) if free else forest.up.root.tolist()
    kept = largest(forest.share, groups, most * len(c.ranks) if free else most)
    if len(kept) == len(groups):
        return forest
    return divide_data(topology, forest.take(np.array(kept)), None if free else forest.root_share)


def without_small(c: Collective, forest: Forest, least: float) -> Forest:
    """The forest without trees that carry less than ``least`` times what the largest tree does.

    The largest tree is that of the same root; in an AllReduce, where roots may have any share, of all roots.
    """
    free = c.traits.reduces_to_all
    root = [0] * len(forest.share) if free else forest.up.root.tolist()
    most: dict[int, Fraction] = {}
    for v, share in zip(root, forest.share, strict=True):
        most[v] = max(most.get(v, share), share)
    kept = [share if share >= least * most[v] else Fraction(0) for v, share in zip(root, forest.share, strict=True)]
    return forest.divided(kept, None if free else forest.root_share) if 0 in kept else forest


def few_trees(topology: Topology, c: Collective, forest: Forest) -> Iterator[Forest]:
    """For an AllReduce the forests of the 2, 4, ... largest trees of one forest: fewer messages, at less bandwidth."""
    count = 2
    while c.traits.reduces_to_all and count < len(forest.share):
        kept = largest(forest.share, [0] * len(forest.share), count)
        yield divide_data(topology, forest.take(np.array(kept)), None)
        count *= 2


def quickest(topology: Topology, c: Collective, forest: Forest, stores: Bool) -> Forest:
    """One tree of each root, of an AllReduce one in all: those along which all data in one part takes least time.

    Args:
        stores: bool[nodes], where data must have come whole before it goes on.
    """
    free = c.traits.reduces_to_all
    root = np.zeros_like(forest.up.root) if free else forest.up.root
    size = np.array([c.size_bytes * float(1 if free else forest.root_share[v]) for v in root.tolist()])
    through = np.zeros(len(root))
    for way, inward in ((forest.up, True), (forest.down, False)):
        used = way.toward >= 0
        tree, node = np.nonzero(used)
        routes = way.routes.take(way.hop[used])
        waits = stores[way.toward[used] if inward else node]
        seconds = np.zeros(used.shape)
        seconds[used] = topology.route_latency_s(routes) + waits * size[tree] / topology.route_bandwidth(routes)
        through += sums_to_root(way, seconds).max(axis=1)
    order = np.lexsort((through, root))
    kept = order[np.unique(root[order], return_index=True)[1]]
    return forest.take(kept).divided([Fraction(1)] * len(kept), None if free else forest.root_share)


def largest(amounts: Sequence[Fraction] | Sequence[int], groups: Sequence[int], most: int) -> list[int]:
    """The indexes of the ``most`` largest amounts of each group, group by group, the largest amount first."""
    place = {group: k for k, group in enumerate(dict.fromkeys(groups))}
    kept, left = [], dict.fromkeys(groups, most)
    for k in sorted(range(len(amounts)), key=lambda k: (place[groups[k]], -amounts[k])):
        if left[groups[k]]:
            kept.append(k)
            left[groups[k]] -= 1
    return kept


def divide_data(topology: Topology, forest: Forest, root_share: dict[int, Fraction] | None) -> Forest:
    """The forest in which these trees are as fast together as they can be.

    Args:
        root_share: of each root; None where roots may have any share.
    """
    root = forest.up.root
    groups = [] if root_share is None else [(np.flatnonzero(root == v), float(s)) for v, s in root_share.items()]
    rates = fastest_rates(len(root), *forest.uses, topology.bandwidth, groups)
    return forest.divided(np.ceil(rates * SHARE_UNITS - 1e-6).astype(np.int64).tolist(), root_share)


def fastest_rates(
    trees: int,
    tree: Int64,
    link: Int64,
    bandwidth: Float64,
    groups: Iterable[tuple[Int64, float]] = (),
    worth: Float64 | float = 1.0,
) -> Float64:
    """float64[trees], the shares of the whole with which trees are fastest together, by a linear program.

    Args:
        tree, link: int64[uses], the links (or edges) that each tree uses.
        bandwidth: float64[links].
        groups: trees whose data together is in the given proportion to that of other groups.
        worth: float64[trees], what the rate of each counts.
    """
    from ...solvers import INFINITY, Model
    from ...solvers.highs import Growing

    model = Model()
    rates = model.columns(trees, 0.0, INFINITY, -np.broadcast_to(worth, trees))
    model.rows(len(bandwidth), -INFINITY, bandwidth / bandwidth.max(), (link, rates[tree], 1.0))
    (whole,) = model.columns(1, 0.0, INFINITY, 0.0)
    for group, amount in groups:
        model.rows(1, 0.0, 0.0, (0, rates[group], 1.0), (0, whole, -amount))
    # rates of 0 are a solution to begin with, and presolving takes longer than it saves
    x = Growing(model, by_columns=True).solve()
    assert x is not None, "rates of 0 are a solution, and links limit those of all trees"
    rate = np.maximum(x[rates], 0.0)
    return np.asarray(rate / max(rate.sum(), 1e-300))
