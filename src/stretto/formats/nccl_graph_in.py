"""Graphs of NCCL, refereed and read as plans: do its rings and trees visit every rank, over which links, how fast?

A channel takes an equal part of the data. Rings take n - 1 steps for AllGather and ReduceScatter and twice as many for
AllReduce, and channels share links evenly; trees sum upward and copy downward in slices that follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError, none_of
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology
from . import Size
from .nccl_graph import RING, TREE, read_graph, rings_of, servers_of, trees_of
from .nccl_joins import Joins

COLLECTIVES = {RING: ("allreduce", "allgather", "reducescatter"), TREE: ("allreduce",)}
SLICE_BYTES, MOST_SLICES = 1 << 19, 64
"""A slice of a tree: a step of NCCL's buffers for the protocol Simple (4 MiB in 8 steps); and how many there are."""
MOST_TRANSFERS = 2_000_000


class _Row(NamedTuple):
    chunk: int
    src: int
    dst: int
    op: int
    after: tuple[int, ...]


def read(path: str, topology: Topology, size: Size, collective: str, id: int) -> Plan:
    """The plan of a collective over the rings (``id`` 0) or trees (1) of a file.

    Raises:
        InputError: the file is none of NCCL's graphs, or not for such servers.
        Fault: a channel does not visit every rank once, or two GPUs of it are not joined.
    """
    if collective not in COLLECTIVES[id]:
        raise InputError(none_of(collective, COLLECTIVES[id]), "collective")
    servers = servers_of(topology, path)
    graph = read_graph(path, id, len(servers[0]))
    n, channels = len(topology.accelerators), len(graph.channels)
    if n * channels * n * 2 > MOST_TRANSFERS:
        raise InputError(f"{channels} channels among {n} ranks are more than {MOST_TRANSFERS} messages", path)
    if id == RING:
        parts = channels * n if collective == "allreduce" else channels
        whole = make_collective(collective, topology, size.full_bytes, shard_bytes=size.shard_bytes, chunks=parts)
        rows = _round_rings(whole, rings_of(graph, servers))
        edges = claims = [[(ring[i - 1], ring[i]) for i in range(n)] for ring in rings_of(graph, servers)]
    else:
        trees = trees_of(graph, servers)
        uncut = make_collective(collective, topology, size.full_bytes, shard_bytes=size.shard_bytes)
        slices = min(max(-(-uncut.size_bytes // (len(trees) * SLICE_BYTES)), 1), MOST_SLICES)
        whole = make_collective(collective, topology, uncut.size_bytes, chunks=len(trees) * slices)
        rows = _along_trees(trees, slices)
        claims = [[(a, b) for b, a in trees[2 * c].items() if a >= 0] for c in range(channels)]
        down = [
            [(a, b) for tree in trees[2 * c : 2 * c + 2] for b, a in tree.items() if a >= 0] for c in range(channels)
        ]
        edges = [pairs + [(b, a) for a, b in pairs] for pairs in down]
    joins = Joins(topology, graph, edges, path)
    sharing = {"sharing": "fair", "weight": np.ones(len(rows))} if id == RING else {"sharing": "ready-order"}
    ways = [joins.of(row.src, row.dst) for row in rows]
    return make_plan(
        joins.topology, Workload((whole,)), **sharing, chunk=[r.chunk for r in rows], src=[r.src for r in rows],
        op=[r.op for r in rows], dst=Ragged.single([r.dst for r in rows]), route=Ragged.of(ways),
        depends=Ragged.of([r.after for r in rows]),
        meta={"planner": "nccl-graph", "imported": path, "notes": [joins.speeds(graph, claims)]}, where=path,
    )  # fmt: skip


def _round_rings(whole: Collective, rings: list[list[int]]) -> list[_Row]:
    """Every chunk goes round the ring of its channel, step by step."""
    n, channels = len(whole.ranks), len(rings)
    place = [{v: i for i, v in enumerate(ring)} for ring in rings]
    starts: list[tuple[int, int, int]] = []  # of each chunk: itself, its channel, and where it is last (or first) whole
    for chunk in range(whole.chunk_count):
        piece, channel = int(whole.chunk_piece[chunk]), chunk // n if whole.traits.whole else chunk % channels
        at = chunk % n if whole.traits.whole else place[channel][int(whole.ranks[piece])]
        starts.append((chunk, channel, at))
    rows: list[_Row] = []
    last = [-1] * whole.chunk_count
    for op, begin in ((REDUCE, 1), (COPY, 0)) if whole.reduces else ((COPY, 0),):
        if op == COPY and whole.traits.wanted == "own":
            break
        for step in range(n - 1):
            for chunk, channel, at in starts:
                ring = rings[channel]
                i = at + begin + step
                after = (last[chunk],) if last[chunk] >= 0 else ()
                last[chunk] = len(rows)
                rows.append(_Row(chunk, ring[i % n], ring[(i + 1) % n], op, after))
    return rows


def _along_trees(trees: list[dict[int, int]], slices: int) -> list[_Row]:
    """Every slice of every tree: sums from the leaves to the root, and copies back."""
    rows: list[_Row] = []
    orders = [_from_root(tree) for tree in trees]
    for part in range(slices):
        for t, (tree, order) in enumerate(zip(trees, orders)):
            chunk, came = t * slices + part, defaultdict[int, list[int]](list)
            for v in reversed(order[1:]):
                came[tree[v]].append(len(rows))
                rows.append(_Row(chunk, v, tree[v], REDUCE, tuple(came[v])))
            brought = {order[0]: tuple(came[order[0]])}
            for v in order[1:]:
                # what a rank sends up it has read before its sum comes back
                rows.append(_Row(chunk, tree[v], v, COPY, brought[tree[v]]))
                brought[v] = (len(rows) - 1,)
    return rows


def _from_root(tree: dict[int, int]) -> list[int]:
    """The nodes of a tree, each after the one above it."""
    below: dict[int, list[int]] = defaultdict(list)
    for v, above in tree.items():
        below[above].append(v)
    order = list(below[-1])
    for v in order:
        order += below[v]
    return order


read_rings, read_trees = (partial(read, id=id) for id in (RING, TREE))
