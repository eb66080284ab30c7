"""Cut chunks, and lower trees to transfers: sums up a tree, copies down it.

Planners whose chunks each follow one tree (rings, double binary trees, shortest paths) say which
tree, and this makes the plan: a chunk that is summed goes up from its holders to the root, and
what is at the root goes down to those that want it. Only the branches that lead to them are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Trees:
    """Trees over the nodes that store, each edge a route through nodes that are only passed.

    Attributes:
        root: int64[trees].
        toward: int64[trees, nodes], the next node on the way to the root, -1 at the root and
            where the tree does not lead.
        hop: int64[trees, nodes], the row of ``routes`` that joins the two.
        routes: links in the order in which bytes take them: to the root in trees that sum, away
            from it in trees that copy.
        twin: int64[trees], a node below the root that gives and gets a sum at the same time, so that each of the two
            ends with the whole; -1 where the root alone sums, which it then does for all.
    """

    root: Int64
    toward: Int64
    hop: Int64
    routes: Ragged
    twin: Int64 | None = None


def divide(collective: Collective, parts: int) -> tuple[Collective, Int64]:
    """Cut every chunk into ``parts`` more, or into single bytes where it has fewer.

    Returns:
        The collective, and for each of its chunks which part of an old chunk it is.
    """
    if parts == 1:
        return collective, np.zeros(collective.chunk_count, dtype=np.int64)
    counts = np.minimum(collective.chunk_bytes, parts)
    old = np.repeat(np.arange(collective.chunk_count), counts)
    part = np.arange(len(old)) - np.repeat(np.cumsum(counts) - counts, counts)
    size, count = collective.chunk_bytes[old], counts[old]
    # part * size // count without a product that could overflow
    start = part * (size // count) + part * (size % count) // count
    end = (part + 1) * (size // count) + (part + 1) * (size % count) // count
    divided = replace(
        collective,
        chunk_piece=collective.chunk_piece[old],
        chunk_offset=collective.chunk_offset[old] + start,
        chunk_bytes=end - start,
    )
    return divided, part


def split_chunks(workload: Workload, chunk: Int64, at: Int64) -> tuple[Workload, Int64]:
    """Cut some chunks at further places.

    Args:
        chunk, at: int64[cuts], a chunk of the workload and a place inside it, bytes from its beginning;
            a place may be named several times.
    Returns:
        The workload with the finer chunks, and int64[chunks + 1], the first new chunk of each old one.
    """
    count = workload.chunk_count
    owner, begin = np.concatenate((np.arange(count), chunk)), np.concatenate((np.zeros(count, dtype=np.int64), at))
    order = np.lexsort((begin, owner))
    owner, begin = owner[order], begin[order]
    new = np.concatenate(([True], (np.diff(owner) != 0) | (np.diff(begin) != 0)))
    owner, begin = owner[new], begin[new]
    last = np.concatenate((owner[1:] != owner[:-1], [True]))
    end = np.where(last, workload.chunk_bytes[owner], np.concatenate((begin[1:], [0])))
    first = np.searchsorted(owner, np.arange(count + 1))
    parts = []
    for c, low, high in zip(workload.collectives, workload.chunk_base[:-1], workload.chunk_base[1:], strict=True):
        rows = slice(first[low], first[high])
        old = owner[rows] - low
        parts.append(
            replace(
                c,
                chunk_piece=c.chunk_piece[old],
                chunk_offset=c.chunk_offset[old] + begin[rows],
                chunk_bytes=end[rows] - begin[rows],
            )
        )
    return Workload(tuple(parts)), first.astype(np.int64)


def cut_at(workload: Workload, ends: Int64) -> tuple[Workload, Int64]:
    """Cut chunks also where their bytes, one chunk after another, reach given numbers.

    Args:
        ends: int64[parts], growing; the last is the number of all bytes.
    Returns:
        The workload, and for each of its chunks in which part it is.
    """
    last, each = np.cumsum(workload.chunk_bytes), workload.chunk_bytes
    chunk = np.searchsorted(last, ends[:-1], side="right")
    finer, _ = split_chunks(workload, chunk, ends[:-1] - (last - each)[chunk])
    begins = np.cumsum(finer.chunk_bytes) - finer.chunk_bytes
    return finer, np.searchsorted(ends, begins, side="right")


def lower(
    topology: Topology,
    workload: Workload,
    tree: Int64,
    up: Trees,
    down: Trees,
    *,
    multicast: bool = False,
    meta: dict[str, Any] | None = None,
) -> Plan:
    """A plan in ready-order in which every chunk follows its tree.

    Args:
        tree: int64[chunks], the index of each chunk's tree, in ``up`` and ``down`` alike; they
            have equal roots.
        up: trees for sums. Not looked at where the workload has none.
        down: trees for copies.
        multicast: send once where routes to several receivers begin with one link, and every
            node that they pass replicates.
    """
    summed, every = np.flatnonzero(workload.chunk_reduces), np.arange(workload.chunk_count)
    rising = _Edges.to(up, tree, summed, workload.chunk_holders.take(summed), topology.node_count, deepest_first=True)
    falling = _Edges.to(down, tree, every, workload.chunk_wanted, topology.node_count, deepest_first=False)
    down_routes = down.routes.take(falling.hop)
    alone = np.arange(len(falling.node))
    sent, group = _shared(topology, falling, down_routes) if multicast else (alone, alone)
    chunk, source = falling.chunk[sent], falling.parent[sent]

    # a sum waits for those below it, a copy for the one above it, or at the root for the sums that end there
    twin = np.full(len(tree), -1) if up.twin is None else up.twin[tree]
    above = rising.find(rising.chunk, rising.parent)
    has_above, ends = np.flatnonzero(above >= 0), np.flatnonzero(above < 0)
    before = falling.find(chunk, source)
    has_before, from_root = np.flatnonzero(before >= 0), np.flatnonzero(before < 0)
    sums = Ragged.grouped(rising.chunk[ends], ends, workload.chunk_count).take(chunk[from_root])
    base = len(rising.node)
    waiting: Int64 = np.concatenate((above[has_above], base + has_before, base + from_root[sums.owners]))
    awaited: Int64 = np.concatenate((has_above, base + group[before[has_before]], sums.values))
    crossing = falling.node[sent] == twin[chunk]
    if crossing.any():
        # to the twin goes the sum without what came from it, and there it meets the sums that ended there
        ends_there = np.flatnonzero((waiting >= base) & (awaited < base))
        kept = np.ones(len(waiting), dtype=np.bool_)
        row, summed = waiting[ends_there] - base, awaited[ends_there]
        kept[ends_there] = ~crossing[row] | (rising.node[summed] != twin[chunk[row]])
        met = np.flatnonzero(rising.parent == twin[rising.chunk])
        from_twin = np.flatnonzero(source == twin[chunk])
        own = Ragged.grouped(rising.chunk[met], met, workload.chunk_count).take(chunk[from_twin])
        waiting = np.concatenate((waiting[kept], base + from_twin[own.owners]))
        awaited = np.concatenate((awaited[kept], own.values))

    return make_plan(
        topology,
        workload,
        "ready-order",
        chunk=np.concatenate((rising.chunk, chunk)),
        src=np.concatenate((rising.node, source)),
        op=np.concatenate((np.full(base, REDUCE), np.where(crossing, REDUCE, COPY))),
        dst=Ragged.grouped(
            np.concatenate((np.arange(base), base + group)), np.concatenate((rising.parent, falling.node))
        ),
        route=Ragged.concatenate(
            [up.routes.take(rising.hop), _merged(down_routes, group) if multicast else down_routes]
        ),
        depends=Ragged.grouped(waiting, awaited, base + len(sent)),
        meta=meta,
    )


@dataclass(frozen=True)
class _Edges:
    """The tree edges that chunks use, each from a node toward the root, in the order of transfers."""

    chunk: Int64
    node: Int64
    parent: Int64
    hop: Int64
    nodes: int
    keys: Int64
    place: Int64

    @classmethod
    def to(cls, trees: Trees, tree: Int64, chunks: Int64, targets: Ragged, nodes: int, deepest_first: bool) -> _Edges:
        """All edges between the root and the targets of ``chunks``, by depth, then chunk."""
        chunk, node = chunks[targets.owners], targets.values.astype(np.int64)
        key, depth = chunk * nodes + node, depths(trees)[tree[chunk], node]
        key = key[np.argsort(depth, kind="stable")]
        ends = np.cumsum(np.bincount(depth, minlength=1))
        levels: list[Int64] = []
        level = key[:0]
        for d in range(len(ends) - 1, 0, -1):
            chunk, node = np.divmod(level, nodes)
            above = chunk * nodes + trees.toward[tree[chunk], node]
            level = np.unique(np.concatenate((above, key[ends[d - 1] : ends[d]])))
            levels.append(level)
        keys = np.concatenate(levels if deepest_first else levels[::-1]) if levels else level
        chunk, node = np.divmod(keys, nodes)
        which, order = tree[chunk], np.argsort(keys)
        return cls(chunk, node, trees.toward[which, node], trees.hop[which, node], nodes, keys[order], order)

    def find(self, chunk: Int64, node: Int64) -> Int64:
        """The index of the edge from ``node`` for ``chunk``, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(chunk), -1)
        key = chunk * self.nodes + node
        found = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[found] == key, self.place[found], -1)


def depths(trees: Trees) -> Int64:
    """int64[trees, nodes], the edges between each node and the root, found by doubling steps."""
    own = np.broadcast_to(np.arange(trees.toward.shape[1]), trees.toward.shape)
    ahead = np.where(trees.toward >= 0, trees.toward, own)
    depth = (trees.toward >= 0).astype(np.int64)
    while True:
        step = np.take_along_axis(depth, ahead, axis=1)
        if not step.any():
            return depth
        depth = depth + step
        ahead = np.take_along_axis(ahead, ahead, axis=1)


def _shared(topology: Topology, edges: _Edges, routes: Ragged) -> tuple[Int64, Int64]:
    """Edges whose routes begin alike become one transfer, if every node on the way replicates.

    Returns:
        The first edge of each transfer, in order, and the transfer of each edge.
    """
    first = routes.values[routes.offsets[:-1]].astype(np.int64)
    within = np.ones(len(routes.values), dtype=np.bool_)
    within[routes.offsets[:-1]] = False
    stuck = within & ~topology.replicates[topology.src[routes.values]]
    alone = np.zeros(len(first), dtype=np.bool_)
    alone[routes.owners[stuck]] = True
    key = np.where(alone, -1 - np.arange(len(first)), edges.chunk * topology.link_count + first)
    _, sent, group = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty(len(sent), dtype=np.int64)
    rank[np.argsort(sent)] = np.arange(len(sent))
    return np.sort(sent), rank[group]


def _merged(routes: Ragged, group: Int64) -> Ragged:
    """The links of all routes of a group, each once, where it came first."""
    owner = group[routes.owners]
    count = int(routes.values.max(initial=0)) + 1
    _, first = np.unique(owner * count + routes.values, return_index=True)
    first.sort()
    return Ragged.grouped(owner[first], routes.values[first])
