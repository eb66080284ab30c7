"""Candidate forests of a collective: trees that reach the rate of the bottleneck.

Switches are split off (:mod:`.split`), trees are packed among ranks (:mod:`.pack`), and their edges get their links
back. An AllReduce needs in-trees and out-trees of the same roots; on links that are alike both ways, trees that meet in
their middle (:mod:`.meeting`) are candidates too.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...bounds import best_parts, bottleneck, distances, tree_rates_within
from ...model.arrays import Int32, Int64
from ...model.collective import Collective
from ...model.errors import Unsupported
from ...model.progress import Progress, silent
from ...model.topology import Topology
from ...model.variants import opposite
from ...schedule.trees import Trees
from .forest import Forest, aligned
from .meeting import UndirectedEdges, meeting_trees, more_trees
from .pack import pack, rank_edges, shorten
from .rates import TreeCounts, spreading, whole_counts
from .relays import find_relays, through_relays
from .split import without_switches
from .windows import shares_by_windows

UNEQUAL_ROOTS_GAIN = 1.001
"""How many times faster AllReduce must be by unequal roots than by equal ones for them to be used."""

LATENCY_SHARE = 0.02
"""Latency of the longest path, as a share of the time that bandwidth alone takes, from which latency counts in the
shares of trees."""

MOST_EDGES_BY_WINDOWS = 128
"""Edges up to which trees that meet in their middle also get shares by latency."""


PACKING_STEPS = 0.7
"""Steps of a unit of :func:`packing_work`."""

PACKING_TIMES = 25.0
"""Times the steps of a search that packing may take: 100 s of CPU at "normal". Packing is counted before it begins."""

ROOTS, ONE_ROOT = 24, 0.25
"""``ROOTS``: as many roots double the work of packing trees. ``ONE_ROOT``: of a unit, what the trees of a single root
take."""


class Packing(NamedTuple):
    """Trees, each with its share of its root's data."""

    trees: Trees
    share: list[Fraction]

    def of_root(self, root: int) -> list[tuple[Fraction, int]]:
        """For each tree of a root its share and its row."""
        return [(self.share[k], k) for k in np.flatnonzero(self.trees.root == root).tolist()]

    def backward(self, link: Int64) -> Packing:
        """The trees with routes turned round.

        Args:
            link: int64[links], for each link the one to take instead.
        """
        routes = self.trees.routes.reversed()
        return Packing(replace(self.trees, routes=routes.with_values(link[routes.values])), self.share)


def forests_of(
    topology: Topology, c: Collective, transfers: int, steps: float = math.inf, progress: Progress = silent
) -> list[Forest]:
    """Forests for a collective, to choose from.

    Args:
        transfers: about how many transfers the finest plan has: the time of one is a length to be kept short, as
            latency is.
        steps: about microseconds of CPU that a search for trees of one kind may take.
        progress: told how many trees are packed.
    Raises:
        Unsupported: no trees are found within these.
    """
    ranks = c.ranks
    if c.traits.reduces_to_all:
        return _allreduce_forests(topology, c, 2 * (len(ranks) - 1) * c.size_bytes / transfers, steps, progress)
    if not _may_pack(topology, c, steps):
        raise _too_long(topology, c)
    amounts = _amounts(c)
    # sums that are not copied are copies with all links turned round
    net = _reversed(topology) if c.reduces else topology
    part_bytes = (len(ranks) - 1) * c.size_bytes / transfers
    counts = spreading(net, ranks, amounts.astype(np.float64), steps)
    if (counts.roots[amounts > 0] == 0).any():
        raise Unsupported(f"forest does not serve {c.kind} on {topology.name}: some ranks have too little of the data")
    packings = _packed(net, ranks, counts, part_bytes, c.reduces, progress)
    of_root = dict(zip(ranks.tolist(), (Fraction(n, int(amounts.sum())) for n in amounts.tolist()), strict=True))
    return [
        Forest.one_way(
            trees, c.reduces, [part * of_root[v] for part, v in zip(share, trees.root.tolist(), strict=True)]
        )
        for trees, share in packings
    ]


def _amounts(c: Collective) -> Int64:
    """int64[ranks], in which proportion ranks are roots: of all data that each holds, or that is summed for it."""
    roots = c.wanted if c.reduces else c.holders
    amounts = np.zeros(len(c.ranks), dtype=np.int64)
    np.add.at(amounts, roots.values, c.piece_bytes)
    has = amounts > 0
    # pieces that differ by a byte count as equal
    return has.astype(np.int64) if np.ptp(amounts[has]) <= 1 else amounts


def packing_work(topology: Topology, c: Collective) -> float:
    """The work of packing trees: for each rank and link a unit, and more where every rank is a root.

    On 14 networks of 8 to 256 ranks a unit takes 0.2 to 3 us of CPU, on torus:16x16 with all roots 3.2. Of a single
    root, trees take 0.2 to 0.9 us for each rank and link on tori of 64 to 1,024 ranks and `random:256` of
    benchmarks/large.py, 3 on h100:32.
    """
    if c.traits.rooted:
        return ONE_ROOT * len(c.ranks) * topology.link_count
    return len(c.ranks) * topology.link_count * (1 + len(c.ranks) / ROOTS) * (2 if c.traits.reduces_to_all else 1)


def _may_pack(topology: Topology, c: Collective, steps: float) -> bool:
    """Whether trees may be packed, where a search for trees may take ``steps``."""
    return PACKING_STEPS * packing_work(topology, c) <= PACKING_TIMES * steps


def _too_long(topology: Topology, c: Collective) -> Unsupported:
    seconds = PACKING_STEPS * packing_work(topology, c) / 1e6
    return Unsupported(
        f"forest does not serve {c.kind} on {topology.name} at this effort: packing its trees takes about "
        f"{seconds:.0f} s of CPU"
    )


def _allreduce_forests(
    topology: Topology, c: Collective, part_bytes: float, steps: float, progress: Progress
) -> list[Forest]:
    """In-trees and out-trees of the same roots; the roots have equal shares where unequal shares gain nothing.

    Where links are alike both ways, also trees that meet in their middle, which are as fast as unequal roots.
    """
    ranks = c.ranks
    back = _reversed(topology)
    copies = spreading(topology, ranks, np.ones(len(ranks)), steps)
    sums = spreading(back, ranks, np.ones(len(ranks)), steps)
    # copies and sums share a link's time in proportion to the time that each of them takes alone
    composed = len(ranks) / (1 / _root_rate(copies) + 1 / _root_rate(sums))
    equal_roots = composed * UNEQUAL_ROOTS_GAIN >= _best_rate(topology, c)
    meeting = _meeting_forests(topology, c, part_bytes, steps)
    if not equal_roots and any(composed * forest.seconds_per_byte(topology) < 1 for forest in meeting):
        return meeting
    if not _may_pack(topology, c, steps):
        if not meeting:
            raise _too_long(topology, c)
        return meeting
    best = None if equal_roots else tree_rates_within(steps, topology, ranks)
    if best is not None and best.rate > composed * UNEQUAL_ROOTS_GAIN:
        copies = whole_counts(topology, ranks, best.copies, best.root)
        sums = whole_counts(back, ranks, best.sums, best.root)
    down = _packed(topology, ranks, copies, part_bytes, False, progress)
    other = opposite(topology) if equal_roots else None
    if other is None:
        up = _packed(back, ranks, sums, part_bytes, True, progress)
    else:
        up = [packing.backward(other) for packing in down]
    amount = np.where(sums.roots > 0, copies.roots, 0).tolist()
    share = {v: Fraction(n, sum(amount)) for v, n in zip(ranks.tolist(), amount, strict=True) if n}
    return [*(_aligned_ways(u, d, share) for u, d in zip(up, down, strict=True)), *meeting]


def _aligned_ways(up: Packing, down: Packing, root_share: dict[int, Fraction]) -> Forest:
    """In-trees and out-trees of the same roots: a root's data is cut both where the one and where the other changes."""
    rows = [
        (share * part, *trees)
        for root, share in root_share.items()
        for part, trees in aligned(up.of_root(root), down.of_root(root))
    ]
    into, out = (np.array([row[k] for row in rows]) for k in (1, 2))
    return Forest(up.trees.take(into), down.trees.take(out), [row[0] for row in rows])


def _meeting_forests(topology: Topology, c: Collective, part_bytes: float, steps: float) -> list[Forest]:
    """Trees walked in and out from their middle; none where links are not alike both ways or too many trees would do.

    Where latency counts, a second forest with other shares.
    """
    edges, bound = UndirectedEdges.of(topology, c.ranks, part_bytes), best_parts(topology, c)
    if edges is None or bound is None:
        return []
    rate, far = _best_rate(topology, c), distances(topology, part_bytes)
    forest = meeting_trees(edges, bound, rate, far, steps)
    if forest is None:
        return []
    if far.max() <= LATENCY_SHARE * float(bound.seconds) or len(edges.forth) > MOST_EDGES_BY_WINDOWS:
        return [forest.divided(forest.share)]
    choice = Forest.concatenate([forest, more_trees(edges, rate, far, steps)])
    by_windows = shares_by_windows(topology, edges, choice, part_bytes, c.size_bytes)
    return [trees.divided(trees.share) for trees in (forest, by_windows or forest)]


def _best_rate(topology: Topology, c: Collective) -> float:
    """Bytes/s of AllReduce that no plan can beat."""
    bounds = (bottleneck(topology, c), best_parts(topology, c))
    return float(min(c.size_bytes / bound.seconds for bound in bounds if bound is not None))


def _root_rate(trees: TreeCounts) -> float:
    """Bytes/s that each root sends, if all send alike."""
    return int(trees.roots.max()) * trees.rate


def _reversed(topology: Topology) -> Topology:
    """The topology with every link turned round."""
    return replace(topology, src=topology.dst, dst=topology.src)


def _packed(
    topology: Topology, ranks: Int32, counts: TreeCounts, part_bytes: float, backward: bool, progress: Progress
) -> list[Packing]:
    """Trees packed among ranks: first as the packing gives them, then made shallower.

    Args:
        backward: links are turned round, and bytes take them to the root.
    """
    network = without_switches(topology, ranks, counts)
    ends = sorted(edge for edge in network.paths if network.capacity(edge))
    place = np.full(topology.node_count, -1)
    place[ranks] = np.arange(len(ranks))
    tail, head = place[np.array(ends)].T
    edges = rank_edges(len(ranks), tail, head, np.array([network.capacity(edge) for edge in ends]))
    latency_s, bandwidth = topology.latency_s, topology.bandwidth
    routes = [[list(path) for _, path in network.paths[edge]] for edge in ends]
    nearest_s, part_s = (
        np.array([min(float(latency_s[p].sum() + size / bandwidth[p].min()) for p in paths) for paths in routes])
        for size in (0.0, part_bytes)
    )
    trees, order = pack(edges, counts.roots, nearest_s, progress)
    shallow = shorten(trees, edges, part_s)
    relays = find_relays(topology, ranks)
    packings = []
    for (every_via, copies), ranks_of, left in ((trees, order, deepcopy(network)), (shallow, np.sort(order), network)):
        rows = []
        for via, reached, count in zip(every_via, ranks_of, copies.tolist(), strict=True):
            root = int(np.argmin(via))
            # where an edge has several paths the batch is divided, so that each tree has one path for each edge
            paths_of = (left.take(ends[e], count) for e in via[reached[reached != root]])
            for part, paths in aligned(*paths_of):
                tree = through_relays(int(ranks[root]), paths, topology, relays)
                rows.append((int(ranks[root]), tree, Fraction(part, int(counts.roots[root]))))
        of_root, edges_of, share = zip(*rows, strict=True)
        packings.append(Packing(Trees.of(topology, of_root, edges_of), [*share]))
    return [packing.backward(np.arange(topology.link_count)) for packing in packings] if backward else packings
