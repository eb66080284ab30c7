"""Candidate forests of a collective: trees that reach the rate of the bottleneck.

Switches are split off (:mod:`.split`), trees are packed among ranks (:mod:`.pack`), and their edges get their links
back. An AllReduce needs in-trees and out-trees of the same roots; on links that are alike both ways, trees that meet in
their middle (:mod:`.meeting`) are candidates too.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ...bounds import best_parts, bottleneck, distances, tree_rates
from ...model.arrays import Int32
from ...model.collective import Collective
from ...model.topology import Topology, opposite
from .meeting import MeetingTree, UndirectedEdges, meeting_trees, more_trees
from .pack import pack, shorten
from .rates import TreeCounts, spreading, whole_counts
from .relays import find_relays, through_relays
from .segments import Forest, RoutedTree, Segment, aligned
from .split import without_switches
from .windows import shares_by_windows

UNEQUAL_ROOTS_GAIN = 1.001
"""How many times faster AllReduce must be by unequal roots than by equal ones for them to be used."""

LATENCY_SHARE = 0.02
"""Latency of the longest path, as a share of the time that bandwidth alone takes, from which latency counts in the
shares of trees."""

MOST_EDGES_BY_WINDOWS = 128
"""Edges up to which trees that meet in their middle also get shares by latency."""

Shares = dict[int, list[tuple[Fraction, RoutedTree]]]
"""For each root its trees, each with its share of the root's data."""


def forests_of(topology: Topology, c: Collective, transfers: int) -> list[Forest]:
    """Forests for a collective, to choose from.

    Args:
        transfers: about how many transfers the finest plan has: the time of one is a length to be kept short, as
            latency is.
    """
    ranks = c.ranks
    if c.traits.reduces_to_all:
        return _allreduce_forests(topology, c, 2 * (len(ranks) - 1) * c.size_bytes / transfers)
    amounts = np.zeros(len(ranks)) if c.root >= 0 else np.ones(len(ranks))
    if c.root >= 0:
        amounts[c.root] = 1.0
    # sums that are not copied are copies with all links turned round
    net = _reversed(topology) if c.reduces else topology
    part_bytes = (len(ranks) - 1) * c.size_bytes / transfers
    share = {int(v): Fraction(int(amount)) for v, amount in zip(ranks, amounts, strict=True)}
    return [
        Forest(
            {
                root: [Segment(part, tree, None) if c.reduces else Segment(part, None, tree) for part, tree in trees]
                for root, trees in shares.items()
            },
            share,
        )
        for shares in _packed(net, ranks, spreading(net, ranks, amounts), part_bytes, backward=c.reduces)
    ]


def _allreduce_forests(topology: Topology, c: Collective, part_bytes: float) -> list[Forest]:
    """In-trees and out-trees of the same roots; the roots have equal shares where unequal shares gain nothing.

    Where links are alike both ways, also trees that meet in their middle, which are as fast as unequal roots.
    """
    ranks = c.ranks
    back = _reversed(topology)
    copies = spreading(topology, ranks, np.ones(len(ranks)))
    sums = spreading(back, ranks, np.ones(len(ranks)))
    # copies and sums share a link's time in proportion to the time that each of them takes alone
    composed = len(ranks) / (1 / _root_rate(copies) + 1 / _root_rate(sums))
    equal_roots = composed * UNEQUAL_ROOTS_GAIN >= _best_rate(topology, c)
    meeting = _meeting_forests(topology, c, part_bytes)
    if meeting and not equal_roots:
        return meeting
    best = None if equal_roots else tree_rates(topology, ranks)
    if best is not None and best.rate > composed * UNEQUAL_ROOTS_GAIN:
        copies = whole_counts(topology, ranks, best.copies, best.root)
        sums = whole_counts(back, ranks, best.sums, best.root)
    down = _packed(topology, ranks, copies, part_bytes, backward=False)
    other = opposite(topology) if equal_roots else None
    if other is None:
        up = _packed(back, ranks, sums, part_bytes, backward=True)
    else:
        links = other.tolist()
        up = [
            {
                root: [(part, t.with_routes(lambda route: tuple(links[e] for e in route[::-1]))) for part, t in trees]
                for root, trees in shares.items()
            }
            for shares in down
        ]
    total = sum(copies.roots.values())
    share = {v: Fraction(k, total) for v, k in copies.roots.items() if v in down[0] and v in up[0]}
    whole = sum(share.values(), Fraction(0))
    packed = [
        # a root's data is cut both where the in-tree and where the out-tree changes
        Forest(
            {v: [Segment(part, *trees) for part, trees in aligned(u[v], d[v])] for v in share},
            {v: s / whole for v, s in share.items()},
        )
        for u, d in zip(up, down, strict=True)
    ]
    return [*packed, *meeting]


def _meeting_forests(topology: Topology, c: Collective, part_bytes: float) -> list[Forest]:
    """Trees walked in and out from their middle; none where links are not alike both ways or too many trees would do.

    Where latency counts, a second forest with other shares.
    """
    edges, bound = UndirectedEdges.of(topology, c.ranks), best_parts(topology, c)
    if edges is None or bound is None:
        return []
    rate, far = c.size_bytes / float(bound.seconds), distances(topology, part_bytes)
    trees = meeting_trees(edges, bound, rate, far, part_bytes)
    if not trees:
        return []
    forests = [_walked_both_ways(edges, trees)]
    if far.max() > LATENCY_SHARE * float(bound.seconds) and len(edges.tail) <= MOST_EDGES_BY_WINDOWS:
        length = edges.latency_s + part_bytes / edges.bandwidth
        trees += more_trees(edges, rate, far, part_bytes)
        forests.append(_walked_both_ways(edges, shares_by_windows(edges, trees, length, c.size_bytes)))
    return forests


def _walked_both_ways(edges: UndirectedEdges, trees: list[MeetingTree]) -> Forest:
    """The forest in which sums go to the middle of each tree and copies go out from there."""
    rooted = []
    for tree in trees:
        out, into = edges.links(tree)
        up, down = RoutedTree(tree.parent, into), RoutedTree(tree.parent, out)
        rooted.append((tree.root, Segment(tree.share, up, down, tree.twin)))
    return Forest.of(rooted)


def _best_rate(topology: Topology, c: Collective) -> float:
    """Bytes/s of AllReduce that no plan can beat."""
    bounds = (bottleneck(topology, c), best_parts(topology, c))
    return float(min(c.size_bytes / bound.seconds for bound in bounds if bound is not None))


def _root_rate(trees: TreeCounts) -> float:
    """Bytes/s that each root sends, if all send alike."""
    return max(trees.roots.values()) * trees.rate


def _reversed(topology: Topology) -> Topology:
    """The topology with every link turned round."""
    return replace(topology, src=topology.dst, dst=topology.src)


def _packed(topology: Topology, ranks: Int32, trees: TreeCounts, part_bytes: float, backward: bool) -> list[Shares]:
    """Trees packed among ranks: first as the packing gives them, then made shallower.

    Args:
        backward: links are turned round, and bytes take them to the root.
    """
    nodes = ranks.tolist()
    network = without_switches(topology.src, topology.dst, trees.capacity, trees.roots, nodes, topology.node_count)
    capacity = {edge: network.capacity(edge) for edge in network.paths if network.capacity(edge)}
    routes = {edge: [list(path) for _, path in network.paths[edge]] for edge in capacity}
    latency_s, bandwidth = topology.latency_s, topology.bandwidth
    nearest_s, part_s = (
        {
            edge: min(float(latency_s[path].sum() + size / bandwidth[path].min()) for path in paths)
            for edge, paths in routes.items()
        }
        for size in (0.0, part_bytes)
    )
    batches = pack(capacity, trees.roots, nodes, nearest_s)
    shallow = shorten(batches, capacity, nodes, part_s)
    relays = find_relays(topology, ranks)
    packings = []
    for packing, left in ((batches, deepcopy(network)), (shallow, network)):
        shares: Shares = {}
        for batch in packing:
            # where an edge has several paths the batch is divided, so that each tree has one path for each edge
            for count, paths in aligned(*(left.take(edge, batch.count) for edge in batch.edges)):
                tree = through_relays(batch.root, dict(zip(batch.edges, paths, strict=True)), topology, relays)
                tree = tree.with_routes(lambda route: route[::-1]) if backward else tree
                shares.setdefault(batch.root, []).append((Fraction(count, trees.roots[batch.root]), tree))
        packings.append(shares)
    return packings
