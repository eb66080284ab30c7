"""Algorithms among ranks and idle accelerators as if all were ranks.

Where only some accelerators of servers or of a torus are ranks, the ports of others are idle, and ranks make no grid.
But an algorithm may run among all of them. In an AllReduce the idle ones add nothing of their own, but sum up
blocks for others. In an AllGather every piece is cut into blocks, and each accelerator *carries* some: it gets them
from a rank near it, and spreads them as if they were its own. ReduceScatter is the same backwards in time. What nobody
needs in the end is left out, and so are sums of nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64, Ragged
from ..model.collective import Collective
from ..model.kinds import BY_NAME, Kind
from ..model.plan import COPY, REDUCE
from ..model.topology import Topology
from .algorithms import Algorithm, Step
from .shortest_trees import shortest_trees
from .useful import useful

MOST_BLOCKS = 8
"""Blocks into which a piece is cut so that shares are nearly equal, at most: eight accelerators of a server can carry
equally many with that, however many of them are ranks."""

DIGITS = 9
"""Digits to which shares and distances are compared, which are rounded."""


class Carriers(NamedTuple):
    """Who carries what.

    Attributes:
        blocks: of each piece.
        carrier: int64[ranks * blocks], the number of the node that carries each block.
        moves: the steps that bring blocks there.
        words: how they are shared out.
    """

    blocks: int
    carrier: Int64
    moves: list[Step]
    words: str


def carriers(topology: Topology, c: Collective, nodes: Int32, labels: Sequence[Int64]) -> Iterator[Carriers]:
    """Ways to share out the blocks: each rank carries its own; all accelerators of a server carry equally many; or all
    accelerators do.

    Args:
        nodes: the ranks, then the other accelerators.
        labels: int64[nodes of the network] each, the server of every node.
    """
    ranks, own = len(c.ranks), np.arange(len(c.ranks))
    yield Carriers(1, own, [], "which pass data on")
    parts = list[tuple[Int64, Int64, str]]()
    for label in labels:
        server = np.unique(label[nodes], return_inverse=True)[1].ravel()
        here, all_here = np.bincount(server[:ranks], minlength=server.max() + 1), np.bincount(server)
        if np.ptp(here):
            parts.append((here[server], all_here[server], "which carry as much as others in their servers"))
    parts.append((np.full(len(nodes), ranks), np.full(len(nodes), len(nodes)), "which carry as much as others"))
    near = _Near.of(topology, c, nodes)
    for part, whole, words in parts:
        blocks = min(range(1, MOST_BLOCKS + 1), key=lambda count: round(_excess(count * part, whole), DIGITS))
        if blocks <= c.piece_bytes.min() and (found := _shared_out(near, ranks, blocks, -(-blocks * part // whole))):
            yield Carriers(blocks, *found, words)


def _excess(part: Int64, whole: Int64) -> float:
    """How many blocks a node has at most, as a multiple of its share ``part / whole``."""
    return float((-(-part // whole) * whole / np.maximum(part, 1)).max())


class _Near(NamedTuple):
    """How far nodes are from ranks.

    Attributes:
        far_s: float64[ranks, nodes], seconds for a block from each rank.
        before: int64[ranks, nodes], the node before each on the way there; -1 if the way leaves the nodes.
    """

    far_s: Float64
    before: Int64

    @classmethod
    def of(cls, topology: Topology, c: Collective, nodes: Int32) -> _Near:
        delayed, size = topology.delayed, float(c.piece_bytes.mean())
        trees = shortest_trees(delayed, c.ranks.astype(np.int64), np.full(len(c.ranks), size))
        link = trees.routes.values
        hop_s = trees.routes.reduced(np.add, delayed.latency_s[link] + size / delayed.bandwidth[link])
        number = np.full(topology.node_count + 1, -1)
        number[nodes] = np.arange(len(nodes))
        toward, hop = trees.toward[:, nodes], trees.hop[:, nodes]
        before = number[toward]
        far_s = np.full(before.shape, np.inf)
        own = np.arange(len(c.ranks))
        far_s[own, own] = 0.0
        for _ in nodes:
            next_s = np.where(before >= 0, far_s[own[:, None], before] + hop_s[hop], far_s)
            next_s[own, own] = 0.0
            if np.array_equal(next_s, far_s):
                break
            far_s = next_s
        return cls(far_s, before)

    def way(self, rank: int, goal: int) -> list[int]:
        """The nodes from a rank to another one."""
        way = [goal]
        while way[-1] != rank:
            way.append(int(self.before[rank, way[-1]]))
        return way[::-1]


def _shared_out(near: _Near, ranks: int, blocks: int, room: Int64) -> tuple[Int64, list[Step]] | None:
    """The carrier of each block, and the steps that bring it there; None if there is no way to some.

    Ranks take turns to hand a block to the nearest node with room; of several as near to that with most.

    Args:
        room: int64[nodes], how many blocks each may carry.
    """
    room, left, carrier = room.copy(), np.full(ranks, blocks), np.full(ranks * blocks, -1)
    longest_s = near.far_s[np.isfinite(near.far_s)].max()
    levels, level = np.unique(np.round(near.far_s / longest_s, DIGITS), return_inverse=True)
    level = level.reshape(near.far_s.shape)
    ways = list[list[int]]()
    of = list[int]()
    for number in np.flatnonzero(np.isfinite(levels)).tolist():
        while left.any():
            placed = False
            for rank in np.flatnonzero(left).tolist():
                as_near = np.flatnonzero((level[rank] == number) & (room > 0))
                if len(as_near):
                    goal = int(as_near[room[as_near].argmax()])
                    block = rank * blocks + blocks - int(left[rank])
                    room[goal] -= 1
                    left[rank] -= 1
                    carrier[block], placed = goal, True
                    if goal != rank:
                        ways.append(near.way(rank, goal))
                        of.append(block)
            if not placed:
                break
    if left.any():
        return None
    moves = []
    for hop in range(max((len(way) for way in ways), default=1) - 1):
        rows = [(block, way[hop], way[hop + 1]) for block, way in zip(of, ways, strict=True) if hop + 1 < len(way)]
        block, src, dst = np.array(rows).T
        moves.append(Step(block, src, dst, COPY))
    return carrier, moves


def for_ranks(
    algorithm: Algorithm, kind: str, ranks: int, relays: tuple[int, ...], how: Carriers | None,
    carried: Sequence[tuple[int, ...]] | None,
) -> tuple[Algorithm, Int64]:  # fmt: skip
    """An algorithm among ranks and other accelerators as if all were ranks, for the ranks alone.

    Args:
        relays: the others, which are numbered after the ranks.
        how: who carries what, if each piece is of one rank.
        carried: see :class:`~stretto.schedule.job_loads.Candidate`.
    Returns:
        The algorithm, and int64[steps], which step of the one given each of its own is; -1 for those that bring blocks
        to carriers.
    """
    traits, nodes = BY_NAME[kind], ranks + len(relays)
    steps, parts, moves = algorithm.steps(kind, nodes), algorithm.blocks(kind, nodes, nodes), list[Step]()
    summary = f"{algorithm.summary}, with {len(relays)} other accelerator{'s' * (len(relays) > 1)}"
    backwards = traits.reduces and not traits.reduces_to_all
    if backwards:
        steps = _backwards(steps, COPY)
    if traits.pieces == "pair":
        steps = [_of_ranks(step, ranks, nodes, parts) for step in steps]
    elif how is not None:
        summary += f", {how.words}"
        own = Ragged.grouped(how.carrier, np.arange(len(how.carrier)), nodes)
        steps = [_lifted(step, own, parts) for step in steps]
        moves = [_in_parts(step, parts) for step in how.moves]
        parts *= how.blocks
    number = np.pad(np.arange(len(steps)), (len(moves), 0), constant_values=-1)
    steps = useful([*moves, *steps], *_ends(traits, ranks, nodes, parts), not traits.reduces_to_all, carried)
    count, kept = len(steps) - len(moves), np.array([len(step.block) > 0 for step in steps], dtype=np.bool_)
    steps, number = [step for step in steps if len(step.block)], number[kept]
    if backwards:
        steps, number = _backwards(steps, REDUCE), np.where(number < 0, -1, count - 1 - number)[::-1]
    made = replace(
        algorithm,
        kinds={kind: lambda n, b: steps},
        blocks=lambda kind, n, piece: parts,
        relays=relays,
        summary=summary,
    )
    return made, number


def _backwards(steps: Sequence[Step], op: int) -> list[Step]:
    """Steps backwards in time: sums as copies, or copies as sums."""
    return [Step(step.block, step.dst, step.src, op) for step in reversed(steps)]


def _of_ranks(step: Step, ranks: int, nodes: int, parts: int) -> Step:
    """A step of an AllToAll with what goes from ranks to ranks alone."""
    piece, part = np.divmod(step.block, parts)
    origin, goal = np.divmod(piece, nodes)
    kept = (origin < ranks) & (goal < ranks)
    block = (origin * ranks + goal) * parts + part
    return Step(block[kept], step.src[kept], step.dst[kept], step.op)


def _lifted(step: Step, own: Ragged, parts: int) -> Step:
    """A step with the blocks that nodes carry in place of their own pieces.

    Args:
        own: of each node.
        parts: into how many a piece is cut, and then a block.
    """
    piece, part = np.divmod(step.block, parts)
    blocks = own.take(piece)
    of = blocks.owners
    return Step(blocks.values.astype(np.int64) * parts + part[of], step.src[of], step.dst[of], step.op)


def _in_parts(step: Step, parts: int) -> Step:
    """A step with every block in parts."""
    block = (step.block[:, None] * parts + np.arange(parts)).ravel()
    return Step(block, np.repeat(step.src, parts), np.repeat(step.dst, parts), step.op)


def _ends(traits: Kind, ranks: int, nodes: int, parts: int) -> tuple[Bool, Bool]:
    """bool[nodes, blocks] each, who has each block at first, and who wants it.

    Args:
        parts: blocks of a piece.
    """
    pieces = 1 if traits.reduces_to_all else ranks**2 if traits.pieces == "pair" else ranks
    first, last = np.zeros((2, nodes, pieces * parts), dtype=np.bool_)
    first[:ranks] = last[:ranks] = True
    block = np.arange(pieces * parts)
    if traits.pieces == "pair":
        first[:], last[:] = False, False
        origin, goal = np.divmod(block // parts, ranks)
        first[origin, block] = last[goal, block] = True
    elif not traits.reduces_to_all:  # of a ReduceScatter backwards
        first[:] = False
        first[block // parts, block] = True
    return first, last
