"""hierarchical where data is large: inside servers and across them at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as choices
from itertools import starmap

import numpy as np

from ...model.arrays import Int32, Int64
from ...model.collective import Collective
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.algorithms import WHERE_MESSAGES_COST, Algorithm, Step
from ...schedule.cutting import messages_cost
from ...schedule.gossip import Direction, Line, gossips
from ...schedule.grid_steps import HALVES, on_grid
from ...schedule.job_loads import Candidate
from ...schedule.overlapping import overlapped
from ...schedule.pipes import build_network
from ...schedule.products import exchanges_in_turn
from ...schedule.servers import grids, server_labels
from ...schedule.spreading import spread_in_turn
from ...schedule.ways import Ways
from .. import Request
from .hops import Hop
from .neighbours import lines_of, neighbours, product_among
from .planner import pairless
from .wider import wider

FEW_STEPS = ("rabenseifner", "dissemination")
"""Algorithms in a line of few messages, of which the first one that serves is tried."""

DIRECT = ("all-pairs", "pairwise")
"""Algorithms in a line that send each block straight to its goal."""

MOST_SENT = 400_000
"""Blocks that go from neighbour to neighbour in all, at most."""

MOST_DIRECT = 512
"""Ranks up to which these are tried. They have many steps: among 512 GPUs planning takes half as long again.
AllGather of 64 MB on h100:32 ends at 1.28 of the bound with them, at 1.50 without."""


def overlaps(request: Request, ways: Ways, algorithms: Sequence[Algorithm], within_s: float) -> Iterator[Plan]:
    """The plan in which links inside servers and across them are busy at the same time, or slices go several ways, if
    one ends by ``within_s``.

    Args:
        algorithms: that are tried besides those with direct exchanges.
    """
    topology, (c,) = request.topology, request.workload.collectives
    if not (request.several_chunks and messages_cost(topology) and c.is_whole):
        return
    found = overlapped(topology, c, _candidates(topology, c, algorithms, ways), ways, within_s)
    if found is not None:
        plan = found.plan(request.workload)
        yield plan.noted(plan.meta | {"algorithm": found.summary})


def _candidates(topology: Topology, c: Collective, algorithms: Sequence[Algorithm], ways: Ways) -> Iterator[Candidate]:
    work = float(len(topology.accelerators)) * topology.link_count
    network = build_network(topology.delayed, float(c.size_bytes), True, work)
    labels = server_labels(topology, network, c.ranks)
    for algorithm in algorithms:
        nodes = algorithm.nodes(c.ranks)
        steps = algorithm.steps(c.kind, len(c.ranks), int(c.piece_bytes.max()))
        if topology.store_and_forward[nodes].all() and not algorithm.at_once:
            phases = [phase for label in labels if max(phase := _phases(steps, label[nodes])) > 0]
            if not phases and ways.are_several(_pairs(steps, nodes)):
                phases = [(0,) * len(steps)]  # slices overlap that go different ways
            for phase in dict.fromkeys(phases):
                yield Candidate(algorithm, np.array(phase), np.zeros(len(phase), dtype=np.bool_))
    if c.traits.rooted or not topology.store_and_forward[c.ranks].all():
        return
    yield from _at_once(topology, c, [*grids(c.ranks, labels)], ways)
    for wide in wider(topology, c):
        for each in wide.candidates(_at_once(topology, wide.c, wide.cells, ways)):
            if pairless(each.algorithm, topology, c, ways) is None:
                yield each


def _at_once(topology: Topology, c: Collective, cells: Sequence[tuple[Int64, int]], ways: Ways) -> Iterator[Candidate]:
    """Moves that all ranks make alike, or messages from neighbour to neighbour; and direct exchanges on grids.

    Args:
        cells: grids of the numbers of ranks, as of :func:`~stretto.schedule.servers.grids`.
    """
    moves = [each for rank in _clusters(cells) for each in _gossips(topology, c, rank, ways)]
    yield from moves or _among_neighbours(topology, c)
    if len(c.ranks) > MOST_DIRECT:
        return
    for rank, across in cells:
        if min(rank.shape) > 1 and rank.ndim > 1:
            for lines in choices(*(_lines(c.kind, count, d == across) for d, count in enumerate(rank.shape))):
                if set(lines) & set(DIRECT):
                    phased = on_grid(c.kind, rank.shape, rank.ravel(), 1, lines)
                    yield Candidate(phased.algorithm, phased.dimension, np.isin(lines, DIRECT)[phased.dimension])


def _clusters(cells: Sequence[tuple[Int64, int]]) -> Iterator[Int64]:
    """The grids of servers that have equally many ranks; or a line of all ranks."""
    found = set[bytes]()
    for rank, across in sorted(cells, key=lambda each: each[1] < 0):
        # turned round it is the same grid
        if not found & {rank.tobytes(), rank.T.tobytes()} and (across >= 0 or not found):
            found.add(rank.tobytes())
            yield rank


def _gossips(topology: Topology, c: Collective, rank: Int64, ways: Ways) -> Iterator[Candidate]:
    """The moves that all ranks of a grid make alike, if partners are joined."""
    nodes = c.ranks
    first = [nodes[np.moveaxis(rank, d, 0).reshape(count, -1)[:, 0]] for d, count in enumerate(rank.shape)]
    hops = [Hop.of(line, topology, ways) for line in first]
    port = [next(e for e in range(d + 1) if e == d or hops[e].exits & hop.exits) for d, hop in enumerate(hops)]
    lines = [Line(*hop[:3], port) for hop, port in zip(hops, port, strict=True)]
    directions = [
        Direction(tuple(k * (e == d) for e in range(rank.ndim)), lines[d])
        for d, count in enumerate(rank.shape)
        for k in range(1, count)
        if all(starmap(ways.join, np.stack((nodes[rank], nodes[np.roll(rank, -k, d)]), -1).reshape(-1, 2).tolist()))
    ]
    yield from gossips(c.kind, rank.shape, rank.ravel(), directions, c.size_bytes / len(c.ranks))


def _among_neighbours(topology: Topology, c: Collective) -> Iterator[Candidate]:
    """Messages to neighbours alone: those that all ranks of a torus, or of another network that looks alike from each
    of them, send alike; and those along one dimension of a product of small graphs after the other."""
    block_bytes = c.size_bytes / len(c.ranks)
    if (found := neighbours(topology, c.ranks)) is not None:
        yield from gossips(c.kind, *found, block_bytes)
    if c.traits.pieces == "pair":
        if (graphs := product_among(topology, c.ranks)) is not None:
            yield from exchanges_in_turn(graphs, block_bytes, MOST_SENT)
    elif (product := product_among(topology, c.ranks)) is not None:
        lines, _ = lines_of(topology, product, c.ranks)
        yield from spread_in_turn(product, c.kind, lines, block_bytes, MOST_SENT)


def _pairs(steps: Sequence[Step], nodes: Int32) -> Int64:
    """int64[pairs, 2], the nodes that send in any step and those that they send to."""
    sent = np.unique(np.concatenate([step.src * len(nodes) + step.dst for step in steps]))
    pairs: Int64 = nodes[np.stack(np.divmod(sent, len(nodes)), axis=1)].astype(np.int64)
    return pairs


def _phases(steps: Sequence[Step], server: Int64) -> tuple[int, ...]:
    """The phase of each step: steps inside servers follow each other, and steps across."""
    leads = np.array([np.mean(server[step.src] != server[step.dst]) > 0.5 for step in steps])
    return tuple(np.cumsum(np.diff(leads, prepend=leads[:1]) != 0).tolist())


def _lines(kind: str, count: int, across: bool) -> list[str]:
    """The algorithms in a line of ``count`` ranks. One across servers may also be a ring, which passes narrow links
    between switches less often."""
    more = (*DIRECT, "ring") if across else DIRECT
    return [few_steps(kind, count), *(name for name in more if fits(name, kind, count))]


def few_steps(kind: str, count: int) -> str:
    """The algorithm of few steps in a line of ``count`` ranks."""
    return next(name for name in FEW_STEPS if fits(name, kind, count))


def fits(name: str, kind: str, count: int) -> bool:
    """Whether an algorithm can carry out all passes of a collective in a line of ``count`` ranks."""
    algorithm = WHERE_MESSAGES_COST[name]
    return all(p in algorithm.kinds and algorithm.serves(p, count) is None for p in HALVES[kind])
