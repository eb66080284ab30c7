"""What plans cost at least, and how soon they can end for a given amount of money.

Links may have prices (``Topology.usd_per_byte``). Nodes that reach each other over links without prices count as one
(:func:`merged`): merging nodes takes nothing away from any plan, so what holds of the merged network holds of the given
one.

The least cost (:func:`least_usd`). A piece that is copied must reach every node that wants it, over links that contain
an arborescence from its holders; a piece that is summed at one node, the same with links turned round. The cost of the
cheapest one is bounded from below by dual ascent (Wong, Math. Programming 1984). Where every node wants the piece this
is Edmonds' algorithm, and exact. Of an AllReduce let r be the node that first has the whole sum of a byte: before, it
was sent over an in-tree to r; after that moment, each other node must get at least once more. The cheapest in-tree and
the cheapest links into the others are the bound, for the best r; and the same with time reversed.

The least time for a budget is in :mod:`.priced`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.changes import NO_CHANGES
from ..model.collective import Collective, Workload
from ..model.topology import ACCELERATOR, ROUTER, Topology

ROUNDING = 1e-12
"""The part by which the least cost is lowered: a plan of that cost may sum to a little less in floating point."""

MOST_NODES = 400
"""Merged nodes up to which costs are bounded: a closure of the graph takes their cube."""


@dataclass(frozen=True)
class Merged:
    """A network whose nodes are the given one's, merged.

    Attributes:
        topology: the nodes that have ranks are accelerators, the others routers; its links are some of the given one's.
        links: int64[links], the given link of each.
        node: int64[given nodes], the node into which each is merged.
    """

    topology: Topology
    links: Int64
    node: Int64


def merged(topology: Topology, c: Collective) -> Merged:
    """The network with all nodes merged that reach each other over links without prices, or beside which there is no
    other way."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, free = topology.node_count, topology.usd_per_byte == 0
    ends = topology.src[free], topology.dst[free]
    ones = coo_array((np.ones(len(ends[0])), ends), shape=(n, n))
    node = connected_components(ones, directed=True, connection="strong")[1].astype(np.int64)
    _, node = np.unique(node, return_inverse=True)
    links = np.flatnonzero(node[topology.src] != node[topology.dst])
    part = topology.with_links(links)
    count = int(node.max()) + 1
    first = np.zeros(count, dtype=np.int64)
    first[node[::-1]] = np.arange(n)[::-1]
    ranked = np.zeros(count, dtype=np.bool_)
    ranked[node[c.ranks]] = True
    copies = np.zeros(count, dtype=np.bool_)
    np.logical_or.at(copies, node, topology.replicates | topology.store_and_forward | topology.is_router)
    names = tuple(topology.names[v] for v in first)
    net = replace(
        part, kind=np.where(ranked, ACCELERATOR, ROUTER).astype(np.int8), replicates=copies, transit=~ranked,
        reduces=np.zeros(count, dtype=np.bool_), names=names, sites=("",) * count, xy=np.full((count, 2), np.nan),
        src=node[part.src].astype(np.int32), dst=node[part.dst].astype(np.int32), planes=(), changes=NO_CHANGES,
    )  # fmt: skip
    return Merged(net, links, node)


def least_usd(topology: Topology, workload: Workload) -> float:
    """US dollars that every plan costs at least; 0 where nothing has a price or the network is too large."""
    if not topology.usd_per_byte.any() or topology.planes:
        return 0.0
    return sum(_least_usd(topology, c) for c in workload.collectives) * (1 - ROUNDING)


def _least_usd(topology: Topology, c: Collective) -> float:
    net = merged(topology, c)
    if net.topology.node_count > MOST_NODES:
        return 0.0
    node, price = _prices(net)
    total = 0.0
    for (held, wanted), size in _pieces(c, node).items():
        total += size * _of_piece(price, np.frombuffer(held, np.int64), np.frombuffer(wanted, np.int64), c.reduces)
    return total


def least_tree_usd(net: Merged, c: Collective) -> float:
    """US dollars that an AllReduce costs at least by an in-tree and an out-tree of the same root, other collectives by
    any plan, about: what :func:`.priced.fastest_within` needs as its budget."""
    node, price = _prices(net)
    total = 0.0
    for (held_bytes, wanted_bytes), size in _pieces(c, node).items():
        held, wanted = np.frombuffer(held_bytes, np.int64), np.frombuffer(wanted_bytes, np.int64)
        if not c.traits.reduces_to_all:
            total += size * _of_piece(price, held, wanted, c.reduces)
            continue
        both = [
            arborescence_cost(price.T, np.array([r]), held) + arborescence_cost(price, np.array([r]), wanted)
            for r in held.tolist()
        ]
        total += size * min(both)
    return total


def _pieces(c: Collective, node: Int64) -> dict[tuple[bytes, bytes], int]:
    """The bytes of all pieces that the same nodes hold and the same nodes want."""
    sizes: dict[tuple[bytes, bytes], int] = {}
    for piece, size in enumerate(c.piece_bytes.tolist()):
        held, wanted = (
            np.unique(node[c.ranks[rows.values[rows.offsets[piece] : rows.offsets[piece + 1]]]]).tobytes()
            for rows in (c.holders, c.wanted)
        )
        sizes[held, wanted] = sizes.get((held, wanted), 0) + size
    return sizes


def _prices(net: Merged) -> tuple[Int64, Float64]:
    """The node of each given node, and prices from node to node, where a relay that has one way in or out, a free one,
    is merged with the node at its other end."""
    topology, into = net.topology, np.arange(net.topology.node_count)
    for ends, others in ((topology.src, topology.dst), (topology.dst, topology.src)):
        for v in np.flatnonzero(topology.is_router).tolist():
            links = np.flatnonzero(others == v)
            if len(links) == 1 and topology.usd_per_byte[links[0]] == 0 and into[v] == v:
                into[into == v] = into[ends[links[0]]]
    _, into = np.unique(into, return_inverse=True)
    price = np.full((int(into.max()) + 1,) * 2, np.inf)
    np.minimum.at(price, (into[topology.src], into[topology.dst]), topology.usd_per_byte)
    np.fill_diagonal(price, np.inf)
    return into[net.node], price


def _of_piece(price: Float64, held: Int64, wanted: Int64, sums: bool) -> float:
    """What a byte of a piece costs at least."""
    if not sums:
        return arborescence_cost(price, held, wanted)
    if len(wanted) == 1:
        return arborescence_cost(price.T, wanted, held)
    return max(_sum_for_all(price, held, wanted), _sum_for_all(price.T, wanted, held))


def _sum_for_all(price: Float64, held: Int64, wanted: Int64) -> float:
    """What a byte costs at least that many hold summands of and many want the sum of."""
    into = np.where(np.isfinite(price.min(axis=0)), price.min(axis=0), 0.0)
    return min(
        arborescence_cost(price.T, np.array([r]), held) + float(into[wanted[wanted != r]].sum())
        for r in range(len(price))
    )


def arborescence_cost(price: Float64, roots: Int64, wanted: Int64) -> float:
    """A lower bound on the cost of links over which ``roots`` together reach all of ``wanted``; exact where all nodes
    are wanted.

    Args:
        price: float64[nodes, nodes], from each node to each, infinite where there is no link, as from a node to itself.
    """
    left, total = price.copy(), 0.0
    while True:
        reach = _closure(left <= 0)
        open_nodes = [t for t in wanted.tolist() if not reach[roots, t].any()]
        if not open_nodes:
            return total
        # the smallest set of nodes that reach one that is wanted: no link enters it for nothing
        target = min(open_nodes, key=lambda t: (int(reach[:, t].sum()), t))
        inside = reach[:, target]
        entering = np.ix_(~inside, inside)
        least = float(left[entering].min())
        if not np.isfinite(least):
            return total  # nothing reaches it: there is no plan
        total += least
        left[entering] -= least


def _closure(joined: Bool) -> Bool:
    """bool[nodes, nodes], whether each node reaches each."""
    reach = joined | np.eye(len(joined), dtype=np.bool_)
    while True:
        further = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if (further == reach).all():
            return reach
        reach = further
