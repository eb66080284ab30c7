"""AllReduce on products of rings and lines, tori and meshes among them, in as many hops as the farthest rank is away.

A network is a product where each node is a place on several lines, one of each *factor*, and lines of a factor lead
to the same lines of all others: each factor sums along its lines, one factor after another. Factors are found by
squares: opposite sides of a square without diagonals are of one factor, and so are two links of a node that span no
such square or several (Feder 1992).

A line of n ranks sums towards its middle and copies from there, n - 1 hops. On a ring of n = 2^k or 3 x 2^k ranks n / 2
hops do. Each rank's contribution (with n = 3 x 2^k first its neighbours' added) walks, those of every second rank to
the right, all others to the left; so at every hop all ranks swap what they have with a neighbour, the one on the right
and the one on the left in turn. Two that meet pass each other, by copies, unless they hold neighbouring stretches of
equal length: then both go on with the sum, twice as long. The last two to meet hold half the ring each.
Every link is used in every second hop, at any hop by half of the exchanges that begin with one neighbour or the other,
and those along different factors first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....model.arrays import Ragged
from ....model.collective import Workload
from ....model.plan import COPY, REDUCE, Plan
from ....model.topology import Topology, opposite
from ....schedule.dispatch import completion, dispatch
from ....schedule.trees import divide
from .blocks import Block, assembled

MOST_NEIGHBOURS = 8
"""Of a node whose squares are looked at."""

MOST_TRANSFERS = 33_000
"""How finely the buffer is cut at most."""

LEAST_GAIN = 0.005
"""Cutting finer goes on as long as it brings the completion so much nearer."""

Swap = tuple[int, int, bool]
"""From a place on a line to another one, and whether it is added to what is there."""


def in_product(topology: Topology, workload: Workload) -> Plan | None:
    """A timed plan of a single AllReduce among all nodes.

    Returns:
        None where the network is no product of rings of such sizes and lines, or it is too large.
    """
    c = workload.collectives[0]
    if len(workload.collectives) > 1 or c.kind != "allreduce" or len(c.ranks) < topology.node_count:
        return None
    if topology.planes or not topology.is_accelerator.all() or opposite(topology) is None:
        return None
    factors = _factors(topology)
    if not factors:
        return None
    phases = (0, 1) if any(f.closed for f in factors) else (0,)
    orders = [factors[k:] + factors[:k] for k in range(len(factors))]
    if not all(_sums_up(order, topology.node_count) for order in orders):
        return None
    blocks = [_block(topology, order, phase) for order in orders for phase in phases]
    most = min(MOST_TRANSFERS // sum(len(b.op) for b in blocks), int(c.chunk_bytes.min()) // len(blocks))
    best: Plan | None = None
    rounds = 1
    while rounds <= most:
        finer = Workload((divide(c, rounds * len(blocks))[0],))
        turn = np.arange(finer.chunk_count) // len(blocks) % rounds / rounds
        plan = dispatch(assembled(topology, finer, blocks), turn, apart=False)
        if best is not None and completion(plan) > completion(best) * (1 - LEAST_GAIN):
            break
        best = plan
        rounds *= 2
    return best


@dataclass(frozen=True)
class _Factor:
    """Lines that lead through all nodes, each through as many.

    Attributes:
        lines: the nodes of each in order.
        closed: whether they are rings.
    """

    lines: tuple[tuple[int, ...], ...]
    closed: bool


def _factors(topology: Topology) -> list[_Factor]:
    """Those of a network that is a product of rings and lines; none if it is not, or hops cannot be halved."""
    beside: list[set[int]] = [set() for _ in range(topology.node_count)]
    for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        beside[a].add(b)
    if not 1 <= max(len(own) for own in beside) <= MOST_NEIGHBOURS:
        return []
    label = _classes(beside)
    found = []
    for one in dict.fromkeys(label.values()):
        along = [[w for w in sorted(own) if label[v, w] == one] for v, own in enumerate(beside)]
        lines: list[tuple[int, ...]] = []
        left = dict.fromkeys(range(len(beside)))
        closed = all(len(own) == 2 for own in along)
        while left:
            ends = (v for v in left if closed or len(along[v]) == 1)
            line = _walked(along, next(ends, -1))
            if not line or (lines and len(line) != len(lines[0])):
                return []
            lines.append(line)
            for v in line:
                del left[v]
        found.append(_Factor(tuple(lines), closed))
    return found if all(_swaps(len(f.lines[0]), f.closed) for f in found) else []


def _sums_up(factors: list[_Factor], nodes: int) -> bool:
    """Whether sums along one factor after another hold what all have, once: no if lines only seem to be a product's."""
    holds = [1 << v for v in range(nodes)]
    for factor in factors:
        for line in factor.lines:
            total = 0
            for v in line:
                if total & holds[v]:
                    return False
                total |= holds[v]
            for v in line:
                holds[v] = total
    return all(own == (1 << nodes) - 1 for own in holds)


def _classes(beside: list[set[int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """For each pair of neighbours, both ways round, one pair of its factor."""
    first = {(min(v, w), max(v, w)): (min(v, w), max(v, w)) for v, own in enumerate(beside) for w in own}

    def leader(v: int, w: int) -> tuple[int, int]:
        pair = min(v, w), max(v, w)
        while first[pair] != pair:
            first[pair] = pair = first[first[pair]]
        return pair

    for v, own in enumerate(beside):
        for u in own:
            for w in own:
                if u < w:
                    across = (beside[u] & beside[w]) - {v}
                    square = len(across) == 1 and w not in beside[u] and not across & own
                    x = next(iter(across)) if square else v
                    for a, b in (((v, u), (w, x)), ((v, w), (u, x))) if square else (((v, u), (v, w)),):
                        one, other = sorted((leader(*a), leader(*b)))
                        first[other] = one
    return {(v, w): leader(v, w) for v, own in enumerate(beside) for w in own}


def _walked(along: list[list[int]], start: int) -> tuple[int, ...]:
    """The line from a node on, each node once; empty if it is none."""
    if start < 0 or max(len(own) for own in along) > 2:
        return ()
    line, before = [start], -1
    while True:
        onward = [w for w in along[line[-1]] if w != before]
        if not onward or onward[0] == start:
            return tuple(line)
        before = line[-1]
        line.append(onward[0])


def _swaps(count: int, closed: bool) -> list[list[Swap]]:
    """What is sent in each hop along a line of so many ranks; nothing where it is not known."""
    if not closed:
        half = (count - 1) // 2
        inward = [[(k, k + 1, True), (count - 1 - k, count - 2 - k, True)] for k in range(half)]
        middle = [] if count % 2 else [[(half, half + 1, True), (half + 1, half, True)]]
        return inward + middle + [[(b, a, False) for a, b, _ in hop] for hop in reversed(inward)]
    odd = count
    while odd % 2 == 0:
        odd //= 2
    if odd not in (1, 3):
        return []
    length = odd
    found = [[(v, (v + d) % count, True) for v in range(count) for d in (1, -1)]] if odd == 3 else []
    for hop in range(1, count // 2 - len(found) + 1):
        # the right one of two that meet began 2 hop - 1 to the right of the other
        adds = hop == length - odd // 3
        length *= 1 + adds
        pairs = [(v % count, (v + 1) % count) for v in range(hop % 2, count, 2)]
        found.append([(a, b, adds) for pair in pairs for a, b in (pair, pair[::-1])])
    return found


def _block(topology: Topology, factors: list[_Factor], phase: int) -> Block:
    """One exchange, along one factor after another.

    Args:
        phase: by how many places the ranks of rings are taken to be further on than they are.
    """
    link = np.zeros((topology.node_count, topology.node_count), dtype=np.int32)
    link[topology.src, topology.dst] = np.arange(topology.link_count)
    # what brought the sum that each node has: the last copy, and what was added after that
    state: list[list[int]] = [[] for _ in range(topology.node_count)]
    ends: list[tuple[int, int]] = []
    op: list[int] = []
    after: list[list[int]] = []
    for factor in factors:
        for hop in _swaps(len(factor.lines[0]), factor.closed):
            fresh: list[tuple[int, int, bool]] = []
            for line in factor.lines:
                turned = line[phase:] + line[:phase] if factor.closed else line
                for a, b, adds in hop:
                    u, v = turned[a], turned[b]
                    fresh.append((v, len(op), adds))
                    ends.append((u, v))
                    op.append(REDUCE if adds else COPY)
                    # what is added comes after the last copy, a copy after all
                    there = [k for k in state[v] if not adds or op[k] == COPY]
                    after.append(sorted({*state[u], *there}))
            for v, k, adds in fresh:
                state[v] = [*state[v], k] if adds else [k]
    src, dst = np.array(ends).T
    return Block(src, dst, np.array(op), Ragged.single(link[src, dst]), Ragged.of(after))
