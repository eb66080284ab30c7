"""What NCCL sends between machines: rings and trees whose machines follow each other by number.

Facts from NVIDIA/nccl at 50673976: src/graph/connect.cc (connectRings joins the last rank of machine n in a ring to the
first of machine n + 1, connectTrees the machines by ncclGetDtree), src/graph/trees.cc, src/enqueue.cc and
src/device/*.h (what is sent in which pieces). Which GPU of a machine comes next inside it NCCL decides by the hardware;
here channel c enters a machine at its GPU c and goes down the numbers, as on servers with a network card for each GPU.
Ring or tree is NCCL's own choice by its model of their times (:mod:`stretto.schedule.nccl_cost_model`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..model.arrays import Int64
from ..model.errors import Unsupported
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import ALGORITHMS, Step
from ..schedule.nccl_cost_model import Cluster, expected_s
from ..schedule.two_trees import parents, slice_count
from .patterns import Part, Pattern, Repeated, backwards, ring_copies, ring_sums, ring_sums_and_copies, together
from .traffic import Layout, Traffic

CHANNEL_BANDWIDTH = 12e9
"""Bytes/s of a channel that NCCL's model is asked with: a network card of 100 Gbit/s, as NCCL rounds it. It decides
up to which size an AllReduce goes by trees: with 64 ranks on 8 machines up to 16 MiB, and 8 MiB with twice as much."""
SLICE_BYTES = 1 << 20
"""Bytes that a rank of a ring sends at a time at most: two of eight steps of a buffer of 4 MiB."""
IN_FLIGHT = 2
"""Slices that a rank of a ring sends before it waits for the first that it receives."""


def nccl(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """What NCCL sends for a buffer of ``size_bytes``, by rings or trees as its model of their times says."""
    channels = _channels(layout)
    expected = expected_s(Cluster.alike(layout.ranks, len(layout.members), channels, CHANNEL_BANDWIDTH), size_bytes)
    algorithm, _ = min(expected, key=lambda pair: expected[pair])
    tables = {"ring": RINGS, "tree": TREES}
    return _traffic(tables[algorithm], layout, kind, size_bytes, root)


def nccl_rings(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """The same by rings alone (``NCCL_ALGO=ring``)."""
    return _traffic(RINGS, layout, kind, size_bytes, root)


def nccl_trees(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """The same by trees where NCCL has them (``NCCL_ALGO=tree``)."""
    return _traffic(TREES, layout, kind, size_bytes, root)


Make = Callable[[Layout, float, int], Pattern]
"""An algorithm for ranks on machines, the bytes of a piece, and the root."""


def _traffic(algorithms: dict[str, Make], layout: Layout, kind: str, size_bytes: int, root: int) -> Traffic:
    if kind not in algorithms:
        raise Unsupported(f"NCCL has no {kind}; it has {', '.join(sorted(algorithms))}")
    piece_bytes = size_bytes if BY_NAME[kind].whole else size_bytes / layout.ranks
    return algorithms[kind](layout, piece_bytes, root).traffic(piece_bytes)


def _channels(layout: Layout) -> int:
    """One for each GPU of the smallest machine."""
    return min(len(ranks) for ranks in layout.members)


# --- rings ----------------------------------------------------------------------------------------


def _order(layout: Layout, channel: int) -> Int64:
    """int64[ranks], the ranks around a channel's ring: in each machine from its GPU ``channel`` down the numbers."""
    return np.concatenate([np.roll(ranks[::-1], channel + 1) for ranks in layout.members])


def _rings(layout: Layout, steps: Repeated, piece_bytes: float, whole: bool) -> Pattern:
    """The steps of a ring on all channels at once, each with blocks of its own.

    Args:
        steps: those of a ring in the order of ranks, with a block for each rank.
        whole: whether the blocks are of one piece, or each is a piece.
    """
    n, channels = layout.ranks, _channels(layout)
    orders = [_order(layout, channel) for channel in range(channels)]

    def on_all_channels(number: int) -> Step:
        s = steps[number]
        blocks = [(s.block if whole else order[s.block]) * channels + c for c, order in enumerate(orders)]
        rows = zip(blocks, orders, strict=True)
        return together([Step(block, order[s.src], order[s.dst], s.op) for block, order in rows])

    blocks = n * channels if whole else channels
    segments = max(2, math.ceil(piece_bytes / blocks / SLICE_BYTES))
    part = Part(Repeated(len(steps), on_all_channels), segments=segments, in_flight=IN_FLIGHT)
    return Pattern("ring", (part,), blocks)


def _ring_allreduce(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    return _rings(layout, ring_sums_and_copies(layout.ranks, place=0, by=1), piece_bytes, whole=True)


def _ring_allgather(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    return _rings(layout, ring_copies(layout.ranks, begins=0, by=1), piece_bytes, whole=False)


def _ring_reducescatter(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    return _rings(layout, ring_sums(layout.ranks, ends=0, by=1), piece_bytes, whole=False)


def _chains(layout: Layout, piece_bytes: float, root: int, sums: bool) -> Pattern:
    """Along each ring from the root, or to it, slice after slice."""
    channels = _channels(layout)
    rows = []
    for channel in range(channels):
        order = _order(layout, channel)
        at = int(np.flatnonzero(order == root)[0])
        around = np.roll(order, -at - 1 if sums else -at)  # the root is last where it sums, else first
        ends = zip(around[:-1].tolist(), around[1:].tolist(), strict=True)
        rows.append(
            [Step(np.array([channel]), np.array([a]), np.array([b]), REDUCE if sums else COPY) for a, b in ends]
        )
    part = [together(same) for same in zip(*rows, strict=True)]
    segments = max(2, math.ceil(piece_bytes / channels / SLICE_BYTES * 2))
    return Pattern("ring", (Part(part, tree=True, segments=segments),), channels)


def _chain_broadcast(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    return _chains(layout, piece_bytes, root, sums=False)


def _chain_reduce(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    return _chains(layout, piece_bytes, root, sums=True)


# --- trees ----------------------------------------------------------------------------------------


def _two_trees(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    """Sums go up two trees of machines, half of the data on each, and come down again."""
    channels, machines = _channels(layout), len(layout.members)
    rows: list[list[tuple[int, int, int]]] = []
    for channel in range(channels):
        for second in (False, True):
            edges = _edges(layout, parents(machines, second, rooted=False), channel)
            for depth, ends in edges.items():
                while len(rows) <= depth:
                    rows.append([])
                rows[depth] += [(2 * channel + second, a, b) for a, b in ends]
    columns = (np.array(level, dtype=np.int64).T for level in rows if level)
    down = [Step(block, src, dst, COPY) for block, src, dst in columns]
    levels = max(1, (machines - 1).bit_length()) + max(map(len, layout.members)) - 1
    segments = slice_count(piece_bytes / (2 * channels), levels)
    part = Part([*backwards(down, REDUCE), *down], tree=True, segments=segments)
    return Pattern("tree", (part,), 2 * channels)


def _edges(layout: Layout, above: list[int], channel: int) -> dict[int, list[tuple[int, int]]]:
    """By depth the edges of one tree on one channel, downwards, as (sender, receiver).

    A machine's GPUs are a chain from the one that joins the parent machine, GPU ``channel``. The child with the lower
    number is joined to the first GPU of the chain, the other one to the second.
    """
    chains = [np.roll(ranks, -channel).tolist() for ranks in layout.members]
    depth = {}
    edges: dict[int, list[tuple[int, int]]] = {}

    def depth_of(machine: int) -> int:
        if machine not in depth:
            depth[machine] = 0 if above[machine] < 0 else depth_of(above[machine]) + 1
        return depth[machine]

    longest = max(map(len, chains))
    for machine, chain in enumerate(chains):
        first = depth_of(machine) * (longest + 1)
        for place in range(len(chain) - 1):
            edges.setdefault(first + place + 1, []).append((chain[place], chain[place + 1]))
        parent = above[machine]
        if parent >= 0:
            joins = chains[parent][min(int(machine > parent), len(chains[parent]) - 1)]
            edges.setdefault(first, []).append((joins, chain[0]))
    return edges


# --- the rest -------------------------------------------------------------------------------------


def _alltoall(layout: Layout, piece_bytes: float, root: int) -> Pattern:
    return Pattern("all at once", (Part([together(ALGORITHMS["pairwise"].steps("alltoall", layout.ranks))]),))


RINGS: dict[str, Make] = {
    "allreduce": _ring_allreduce,
    "allgather": _ring_allgather,
    "reducescatter": _ring_reducescatter,
    "broadcast": _chain_broadcast,
    "reduce": _chain_reduce,
    "alltoall": _alltoall,
}
"""By kind of collective."""
TREES = {**RINGS, "allreduce": _two_trees}
