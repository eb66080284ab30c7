"""Cut chunks, and lower trees to transfers: sums go up a tree, copies go down it.

Planners whose chunks each follow one tree (rings, double binary trees, shortest paths) say which
tree, and :func:`lower` makes the plan: a chunk that is summed goes up from its holders to the root,
and the root's chunk goes down to the nodes that want it. Branches without holders or receivers are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Int64, Ragged, offsets_of
from ..model.collective import Collective, Workload
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology


@dataclass(frozen=True)
class Trees:
    """Trees over the nodes that store; each edge is a route through nodes that pass bytes on."""

    root: Int64  # int64[trees]
    toward: Int64  # int64[trees, nodes], the parent of each node; -1 at the root and at nodes outside the tree
    hop: Int64  # int64[trees, nodes], the row of ``routes`` between a node and its parent
    routes: Ragged  # links as bytes take them: to the root in trees that sum, away from it in trees that copy
    twin: Int64 | None = None  # int64[trees], a child that swaps sums with the root, so that both have it; -1 for none

    @classmethod
    def of(
        cls, topology: Topology, roots: Sequence[int], trees: Sequence[Mapping[int, tuple[int, Sequence[int]]]]
    ) -> Trees:
        """From, for each tree, the parent of each node but the root, and the links between the two."""
        toward = np.full((len(roots), topology.node_count), -1, dtype=np.int64)
        hop = np.full_like(toward, -1)
        routes: list[Sequence[int]] = []
        for k, tree in enumerate(trees):
            for v, (parent, links) in tree.items():
                toward[k, v], hop[k, v] = parent, len(routes)
                routes.append(links)
        return cls(np.array(roots, dtype=np.int64), toward, hop, Ragged.of(routes))

    @classmethod
    def concatenate(cls, parts: Sequence[Trees]) -> Trees:
        """The trees of the first part, then those of the next, and so on."""
        before = offsets_of(np.array([part.routes.rows for part in parts]))
        return cls(
            np.concatenate([part.root for part in parts]),
            np.concatenate([part.toward for part in parts]),
            np.concatenate([part.hop + first for part, first in zip(parts, before[:-1], strict=True)]),
            Ragged.concatenate([part.routes for part in parts]),
            np.concatenate([np.full(len(p.root), -1) if p.twin is None else p.twin for p in parts]),
        )

    def take(self, rows: Int64) -> Trees:
        """The trees at ``rows``, in that order."""
        twin = None if self.twin is None else self.twin[rows]
        return Trees(self.root[rows], self.toward[rows], self.hop[rows], self.routes, twin)

    @property
    def uses(self) -> tuple[Int64, Int64]:
        """The tree and the link of each use of a link by a tree."""
        tree, node = np.nonzero(self.toward >= 0)
        routes = self.routes.take(self.hop[tree, node])
        return tree[routes.owners], routes.values.astype(np.int64)


def divide(collective: Collective, parts: int) -> tuple[Collective, Int64]:
    """Cut every chunk into ``parts`` more, or into single bytes where it has fewer.

    Returns:
        The collective, and int64[chunks], which part of an old chunk each new chunk is.
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
    return _parts_of(collective, old, start, end), part


def _parts_of(c: Collective, chunk: Int64, begin: Int64, end: Int64) -> Collective:
    """The collective whose chunks are the bytes from ``begin`` to ``end`` of these chunks."""
    offset = c.chunk_offset[chunk] + begin
    return replace(c, chunk_piece=c.chunk_piece[chunk], chunk_offset=offset, chunk_bytes=end - begin)


def split_chunks(workload: Workload, chunk: Int64, at: Int64) -> tuple[Workload, Int64]:
    """Cut some chunks at further places.

    Args:
        chunk, at: int64[cuts], a chunk of the workload and a place in it, bytes from its beginning;
            a place may be given several times.
    Returns:
        The workload with the finer chunks, and int64[chunks + 1], the first new chunk of each old one.
    """
    count = workload.chunk_count
    owner, begin = np.concatenate((np.arange(count), chunk)), np.concatenate((np.zeros(count, dtype=np.int64), at))
    order = np.lexsort((begin, owner))
    owner, begin = owner[order], begin[order]
    distinct = np.concatenate(([True], (np.diff(owner) != 0) | (np.diff(begin) != 0)))
    owner, begin = owner[distinct], begin[distinct]
    last = np.concatenate((owner[1:] != owner[:-1], [True]))
    end = np.where(last, workload.chunk_bytes[owner], np.concatenate((begin[1:], [0])))
    first = np.searchsorted(owner, np.arange(count + 1))
    parts = []
    for c, low, high in zip(workload.collectives, workload.chunk_base[:-1], workload.chunk_base[1:], strict=True):
        rows = slice(first[low], first[high])
        parts.append(_parts_of(c, owner[rows] - low, begin[rows], end[rows]))
    return Workload(tuple(parts)), first.astype(np.int64)


def cut_at(workload: Workload, ends: Int64) -> tuple[Workload, Int64]:
    """Cut chunks so that all bytes, one chunk after another, fall into parts.

    Args:
        ends: int64[parts], ascending, the byte before which each part ends; the last is the number of all bytes.
    Returns:
        The workload, and int64[chunks], the part in which each chunk is.
    """
    chunk_ends = np.cumsum(workload.chunk_bytes)
    chunk = np.searchsorted(chunk_ends, ends[:-1], side="right")
    finer, _ = split_chunks(workload, chunk, ends[:-1] - (chunk_ends - workload.chunk_bytes)[chunk])
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
        tree: int64[chunks], the index of each chunk's tree, in ``up`` and ``down`` alike; the two
            have equal roots.
        up: trees for sums. Ignored where the workload has none.
        down: trees for copies.
        multicast: send once where routes to several receivers begin with one link, and every
            node that they pass replicates.
    """
    summed, every = np.flatnonzero(workload.chunk_reduces), np.arange(workload.chunk_count)
    rising = _Edges.to(up, tree, summed, workload.chunk_holders.take(summed), topology.node_count, deepest_first=True)
    falling = _Edges.to(down, tree, every, workload.chunk_wanted, topology.node_count, deepest_first=False)
    routes = down.routes.take(falling.hop)
    if multicast:
        first, transfer = _share_first_links(topology, falling, routes)
        routes = _merge_routes(routes, transfer)
    else:
        first = transfer = np.arange(len(falling.node))
    twin = np.full(len(tree), -1) if up.twin is None else up.twin[tree]
    chunk, src, sums = falling.chunk[first], falling.parent[first], len(rising.node)
    crossing = falling.node[first] == twin[chunk]
    return make_plan(
        topology,
        workload,
        "ready-order",
        chunk=np.concatenate((rising.chunk, chunk)),
        src=np.concatenate((rising.node, src)),
        op=np.concatenate((np.full(sums, REDUCE), np.where(crossing, REDUCE, COPY))),
        dst=Ragged.grouped(
            np.concatenate((np.arange(sums), sums + transfer)), np.concatenate((rising.parent, falling.node))
        ),
        route=Ragged.concatenate([up.routes.take(rising.hop), routes]),
        depends=_dependencies(rising, falling, first, transfer, twin),
        meta=meta,
    )


@dataclass(frozen=True)
class _Edges:
    """The tree edges that chunks use, each between a node and its parent, in the order of transfers."""

    chunk: Int64  # int64[edges]
    node: Int64
    parent: Int64
    hop: Int64
    nodes: int  # of the topology
    keys: Int64  # int64[edges], chunk x nodes + node, ascending
    place: Int64  # int64[edges], the edge of each key

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
        row, order = tree[chunk], np.argsort(keys)
        return cls(chunk, node, trees.toward[row, node], trees.hop[row, node], nodes, keys[order], order)

    def find(self, chunk: Int64, node: Int64) -> Int64:
        """The edge of each chunk between ``node`` and its parent, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(chunk), -1)
        key = chunk * self.nodes + node
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[at] == key, self.place[at], -1)


def _dependencies(rising: _Edges, falling: _Edges, first: Int64, transfer: Int64, twin: Int64) -> Ragged:
    """What each transfer waits for: a sum for the sums below it, a copy for the copy above it, or, at the root, for
    the sums that end there.

    Args:
        first: int64[copies], the first edge of each copy. transfer: int64[edges], the copy of each edge.
        twin: int64[chunks].
    """
    sums, chunk, src = len(rising.node), falling.chunk[first], falling.parent[first]
    above = rising.find(rising.chunk, rising.parent)
    inner, last = np.flatnonzero(above >= 0), np.flatnonzero(above < 0)
    before = falling.find(chunk, src)
    onward, from_root = np.flatnonzero(before >= 0), np.flatnonzero(before < 0)
    at_root = Ragged.grouped(rising.chunk[last], last, len(twin)).take(chunk[from_root])
    waiting: Int64 = np.concatenate((above[inner], sums + onward, sums + from_root[at_root.owners]))
    awaited: Int64 = np.concatenate((inner, sums + transfer[before[onward]], at_root.values))
    crossing = falling.node[first] == twin[chunk]
    if crossing.any():
        # the root sends its twin its sum without the twin's own; the twin adds the sums that ended at the twin
        ends_at_root = np.flatnonzero((waiting >= sums) & (awaited < sums))
        kept = np.ones(len(waiting), dtype=np.bool_)
        copy, summed = waiting[ends_at_root] - sums, awaited[ends_at_root]
        kept[ends_at_root] = ~crossing[copy] | (rising.node[summed] != twin[chunk[copy]])
        at_twin = np.flatnonzero(rising.parent == twin[rising.chunk])
        from_twin = np.flatnonzero(src == twin[chunk])
        ends_at_twin = Ragged.grouped(rising.chunk[at_twin], at_twin, len(twin)).take(chunk[from_twin])
        waiting = np.concatenate((waiting[kept], sums + from_twin[ends_at_twin.owners]))
        awaited = np.concatenate((awaited[kept], ends_at_twin.values))
    return Ragged.grouped(waiting, awaited, sums + len(first))


def depths(trees: Trees) -> Int64:
    """int64[trees, nodes], the edges between each node and the root."""
    return sums_to_root(trees, (trees.toward >= 0).astype(np.int64))


def sums_to_root(trees: Trees, value: NDArray[Any]) -> NDArray[Any]:
    """For each node the sum over the edges to the root, by pointer doubling.

    Args:
        value: [trees, nodes], of the edge between each node and its parent; 0 where there is none.
    """
    ahead = np.where(trees.toward >= 0, trees.toward, np.arange(trees.toward.shape[1]))
    while (onward := np.take_along_axis(value, ahead, axis=1)).any():
        value = value + onward
        ahead = np.take_along_axis(ahead, ahead, axis=1)
    return value


def _share_first_links(topology: Topology, edges: _Edges, routes: Ragged) -> tuple[Int64, Int64]:
    """Edges of a chunk whose routes begin with one link become one transfer, if every node on the way replicates.

    Returns:
        The first edge of each transfer, in order, and the transfer of each edge.
    """
    first_link = routes.values[routes.offsets[:-1]].astype(np.int64)
    within = np.ones(len(routes.values), dtype=np.bool_)
    within[routes.offsets[:-1]] = False
    blocked = within & ~topology.replicates[topology.src[routes.values]]
    alone = np.zeros(len(first_link), dtype=np.bool_)
    alone[routes.owners[blocked]] = True
    key = np.where(alone, -1 - np.arange(len(first_link)), edges.chunk * topology.link_count + first_link)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[group]


def _merge_routes(routes: Ragged, group: Int64) -> Ragged:
    """The links of all routes of a group, each link once, where it came first."""
    owner = group[routes.owners]
    count = int(routes.values.max(initial=0)) + 1
    _, first = np.unique(owner * count + routes.values, return_index=True)
    first.sort()
    return Ragged.grouped(owner[first], routes.values[first])
