"""Windows of the parts that are images of one block, from one of them (:mod:`.windows` has the proof).

The group is the product of H, made by the generators of the block, and C, made by the other generators. The parts are
the images of the block under C, and for each part the two ranks that :mod:`.windows` takes are the image of the centre
under C. So the windows of all parts are those of the first one, and all distances that they need are distances from or
to the centre: the way from g(centre) to a node is the way from the centre to the node's image under the inverse of g.

Here a router is never taken for a node of a part, and what leaves for a switch is not known to have far to go. Both
make windows larger at most.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64, Int32, Int64
from .blocks import Block, Blocks, from_node

MOST_ENTRIES = 4_000_000
"""Pairs of a node and an element of C up to which the least way to each node is computed. Where there are more, that
way counts as 0, and windows are larger."""


def block_waits(blocks: Blocks, block: Block) -> tuple[Int64, Float64]:
    """When links into a block of generators carry nothing that counts for an AllReduce.

    Returns:
        int64[links], the links. float64[links], how long that is: seconds after the start and before the end, added up.
    """
    t, centre = blocks.topology, blocks.centre
    inside, own = block.inside, block.ranks
    links = np.flatnonzero(~inside[t.src] & inside[t.dst])
    x, y, latency = t.src[links], t.dst[links], t.latency_s[links]
    forth, back = (from_node(t, centre, t.latency_s, backward) for backward in (False, True))
    apart = _coset_least(blocks, block, forth)
    reached, has_sent = apart[1:].max(), apart[1:].min()
    comes = own.copy()
    comes[own] = False
    comes[t.dst[own[t.dst] & ~own[t.src]]] = True
    must_get = back[comes].min(initial=np.inf)
    left = _left(blocks, block, forth)
    stores = blocks.ranks
    least, most = _to_stores(blocks, block)
    sent = np.where(stores[x], _first_sent(blocks, block, forth, x), 0.0)
    passed = np.flatnonzero(~stores[x])
    sent[passed] = _first_passed(blocks, block, forth, x[passed])
    had = np.maximum(np.maximum(reached, has_sent) - latency - most[y], 0.0)
    nearest = np.full(t.node_count, np.inf)
    np.minimum.at(nearest, blocks.symmetry.node_orbits, forth)
    opens = np.maximum(np.minimum(sent, had), nearest[blocks.symmetry.node_orbits[x]])
    closes = latency + np.minimum(np.maximum(left, must_get + least[y]), back[y])
    return links, opens + closes


def _coset_least(blocks: Blocks, block: Block, forth: Float64) -> Float64:
    """float64[parts], the least way from the centre to a rank of each part, its own part first."""
    symmetry = blocks.symmetry
    element = np.arange(symmetry.size)
    least = np.full(symmetry.size, np.inf)
    to = symmetry.image(element, np.array(blocks.centre))
    np.minimum.at(least, _rest(blocks, block, element), forth[to])
    parts: Float64 = least[np.isfinite(least) | (np.bincount(_rest(blocks, block, element), minlength=len(least)) > 0)]
    return parts


def _rest(blocks: Blocks, block: Block, element: Int64) -> Int64:
    """For each element its factor in C: the element with exponent 0 for the generators of the block."""
    exponents = blocks.symmetry.exponents(element)
    exponents[..., list(block.generators)] = 0
    return blocks.symmetry.element(exponents)


def _others(blocks: Blocks, block: Block) -> Int64:
    """int64[parts - 1], the elements of C but the identity."""
    every = np.arange(blocks.symmetry.size)
    others: Int64 = every[(_rest(blocks, block, every) == every) & (every > 0)]
    return others


def _first_sent(blocks: Blocks, block: Block, forth: Float64, x: Int32) -> Float64:
    """For each node of ``x`` the way to it from the centre's image in its part; infinite for a node without a rank."""
    symmetry = blocks.symmetry
    ranks = np.flatnonzero(blocks.ranks)
    place = np.zeros(len(blocks.ranks), dtype=np.int64)
    every = np.arange(symmetry.size)
    place[symmetry.image(every, np.array(blocks.centre))] = every
    seconds = np.full(len(blocks.ranks), np.inf)
    home = _rest(blocks, block, place[ranks])
    seconds[ranks] = forth[symmetry.image(symmetry.inverse(home), ranks)]
    return np.asarray(seconds[x])


def _first_passed(blocks: Blocks, block: Block, forth: Float64, x: Int32) -> Float64:
    """For each node of ``x`` the least way to it from an image of the centre in another part than the block."""
    nodes, at = np.unique(x, return_inverse=True)
    others = _others(blocks, block)
    if len(nodes) * len(others) > MOST_ENTRIES:
        return np.zeros(len(x))
    images = blocks.symmetry.image(blocks.symmetry.inverse(others)[:, None], nodes)
    least: Float64 = forth[images].min(axis=0)
    return least[at.reshape(-1)]


def _left(blocks: Blocks, block: Block, forth: Float64) -> float:
    """The least time in which bytes that have just left the block can come to the farthest rank outside it.

    0 where a link leads out of the block to a node that is no rank, since that node may lie nearer to all ranks.
    """
    t, own = blocks.topology, block.ranks
    heads = np.unique(t.dst[own[t.src] & ~own[t.dst]])
    others = np.flatnonzero(blocks.ranks & ~own)
    if not len(heads) or not blocks.ranks[heads].all() or len(heads) * len(others) > MOST_ENTRIES:
        return 0.0
    symmetry = blocks.symmetry
    place = np.zeros(len(blocks.ranks), dtype=np.int64)
    every = np.arange(symmetry.size)
    place[symmetry.image(every, np.array(blocks.centre))] = every
    ways = forth[symmetry.image(symmetry.inverse(place[heads])[:, None], others)]
    return float(ways.min(axis=0).max())


def _to_stores(blocks: Blocks, block: Block) -> tuple[Float64, Float64]:
    """Seconds from each node until what passes it is stored for the block, as in :func:`.windows._to_stores`."""
    t, stores, inside = blocks.topology, blocks.ranks, block.inside
    least, most = np.where(stores, 0.0, np.inf), np.where(inside & ~stores, -np.inf, 0.0)
    passes = np.flatnonzero(~stores[t.src])
    np.minimum.at(least, t.src[passes], t.latency_s[passes])
    within = passes[inside[t.src[passes]] & inside[t.dst[passes]]]
    straight = stores[t.dst[within]] & t.is_switch[t.src[within]]
    np.maximum.at(most, t.src[within], np.where(straight, t.latency_s[within], np.inf))
    return least, np.where(np.isneginf(most), np.inf, most)
