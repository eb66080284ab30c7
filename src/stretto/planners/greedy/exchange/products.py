"""AllReduce on products of rings and lines, tori and meshes among them, in as many hops as the farthest rank is away.

In a product each node has a place on one line of each *factor*, and the lines of a factor lead to the same lines of all
others: each factor sums along its lines, one factor after another. Factors are found by squares: opposite sides of a
square without diagonals are of one factor, and so are two links of a node that span no such square or several
(Feder, Journal of Graph Theory 1992).

A line of n ranks sums towards its middle and copies from there, n - 1 hops. A ring of n = 2^k or 3 x 2^k ranks takes
n / 2 hops. Each rank's contribution (with n = 3 x 2^k first its neighbours' added) walks, those of every second rank to
the right, all others to the left; so at every hop all ranks swap what they have with a neighbour, the one on the right
and the one on the left in turn. Two contributions that meet pass each other, by copies, unless they hold neighbouring
stretches of equal length: then both go on with the sum, twice as long. The last two to meet hold half the ring each.
Where all ranks must add up in one order these sums may not overlap. Then, on a ring of any even n, neighbours add up in
pairs, and only sums of pairs walk: each rank forwards what comes apart from what it has, and adds all of it up. That
takes n / 2 hops, too.

Every link is used in every second hop. So parts of the buffer go through several exchanges, which begin with one
neighbour or the other, and along different factors: at any hop half of them use a link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....kernels import at_speed
from ....kernels.matching import components
from ....model.arrays import Ragged
from ....model.collective import Workload
from ....model.plan import COPY, REDUCE, Plan
from ....model.topology import Topology
from ....model.variants import opposite
from ....schedule.best import completion_s
from ....schedule.dispatch import dispatch
from ....schedule.trees import divide
from ...registry import Request
from .blocks import Block, assemble

MOST_TRANSFERS = 33_000
"""Transfers of a plan at most; the buffer is cut no finer."""

MOST_NEIGHBOURS = 8
"""Neighbours of a node up to which its squares are looked at."""

LEAST_GAIN = 0.005
"""Share of the completion that cutting twice as finely must gain to go on."""

COPIES, ADDS, FORWARDS = 0, 1, 2
Swap = tuple[int, int, int]
"""From a place on a line to another one, and what that is: all that is at the first place, which is copied or added to
what is at the second, or what came to the first place last, which is added."""


def plan_product(request: Request) -> Plan | None:
    """A timed plan of a single AllReduce.

    Returns:
        None where not all nodes are ranks, or the network is too large or no product of lines and rings of such sizes.
    """
    topology, workload = request.topology, request.workload
    c = workload.collectives[0]
    if len(c.ranks) < topology.node_count or opposite(topology) is None:
        return None
    factors = _factors(topology, request.one_order)
    if not factors:
        return None
    phases = (0, 1) if any(f.closed for f in factors) else (0,)
    orders = [factors[k:] + factors[:k] for k in range(len(factors))]
    if not all(_sums_up(order, topology.node_count) for order in orders):
        return None
    blocks = [_block(topology, order, phase) for order in orders for phase in phases]
    messages = sum(len(b.op) for b in blocks)
    most = min(MOST_TRANSFERS // messages, int(c.chunk_bytes.min()) // len(blocks))
    best: Plan | None = None
    rounds = 1
    while rounds <= most and (best is None or request.budget.allows(place=rounds * messages, order=rounds * messages)):
        finer = Workload((divide(c, rounds * len(blocks))[0],))
        position = np.arange(finer.chunk_count) // len(blocks) % rounds / rounds
        plan = assemble(topology, finer, blocks)
        request.budget.spend(place=plan.transfer_count)
        plan = dispatch(plan, position, request.budget, apart=False)
        if best is not None and completion_s(plan) > completion_s(best) * (1 - LEAST_GAIN):
            break
        best = plan
        rounds *= 2
    return best


@dataclass(frozen=True)
class _Factor:
    """Lines of equally many nodes, each node on one of them."""

    lines: tuple[tuple[int, ...], ...]  # the nodes of each line in order
    closed: bool  # whether the lines are rings
    swaps: list[list[Swap]]  # of each hop along a line


def _factors(topology: Topology, one_order: bool) -> list[_Factor]:
    """The factors of a network; none if it is no product of lines and of rings on which contributions can walk."""
    beside: list[set[int]] = [set() for _ in range(topology.node_count)]
    for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        beside[a].add(b)
    if not 1 <= max(len(neighbours) for neighbours in beside) <= MOST_NEIGHBOURS:
        return []
    label = _factor_of(beside)
    factors = []
    for factor in dict.fromkeys(label.values()):
        along = [[w for w in sorted(near) if label[v, w] == factor] for v, near in enumerate(beside)]
        lines: list[tuple[int, ...]] = []
        left = dict.fromkeys(range(len(beside)))
        closed = all(len(near) == 2 for near in along)
        while left:
            ends = (v for v in left if closed or len(along[v]) == 1)
            line = _line_from(along, next(ends, -1))
            if not line or (lines and len(line) != len(lines[0])):
                return []
            lines.append(line)
            for v in line:
                del left[v]
        count = len(lines[0])
        by_pairs = one_order and closed and count % 2 == 0
        factors.append(_Factor(tuple(lines), closed, _pairs_walk(count) if by_pairs else _swaps(count, closed)))
    return factors if all(f.swaps for f in factors) else []


def _sums_up(factors: list[_Factor], nodes: int) -> bool:
    """Whether sums along one factor after another hold every contribution once; if not, the network is no product."""
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
    return all(bits == (1 << nodes) - 1 for bits in holds)


def _factor_of(beside: list[set[int]]) -> dict[tuple[int, int], int]:
    """For each ordered pair of neighbours the number of its factor."""
    ends = [(v, w) for v, near in enumerate(beside) for w in near]
    number = {end: k for k, end in enumerate(ends)}
    alike = [((v, w), (w, v)) for v, w in ends]
    for v, near in enumerate(beside):
        for u in near:
            for w in near:
                if u < w:
                    across = (beside[u] & beside[w]) - {v}
                    square = len(across) == 1 and w not in beside[u] and not across & near
                    x = next(iter(across)) if square else v
                    alike += [((v, u), (w, x)), ((v, w), (u, x))] if square else [((v, u), (v, w))]
    one, other = np.array([[number[a], number[b]] for a, b in alike]).T
    factor = at_speed(components, float(len(alike)))(one, other, len(ends))
    return dict(zip(ends, factor.tolist(), strict=True))


def _line_from(along: list[list[int]], start: int) -> tuple[int, ...]:
    """The line that begins at a node, each node once; empty if there is none."""
    if start < 0 or max(len(near) for near in along) > 2:
        return ()
    line, before = [start], -1
    while True:
        onward = [w for w in along[line[-1]] if w != before]
        if not onward or onward[0] == start:
            return tuple(line)
        before = line[-1]
        line.append(onward[0])


def _swaps(count: int, closed: bool) -> list[list[Swap]]:
    """The swaps of each hop along a line of ``count`` ranks; none for rings on which contributions cannot walk."""
    if not closed:
        half = (count - 1) // 2
        inward = [[(k, k + 1, ADDS), (count - 1 - k, count - 2 - k, ADDS)] for k in range(half)]
        middle = [] if count % 2 else [[(half, half + 1, ADDS), (half + 1, half, ADDS)]]
        return inward + middle + [[(b, a, COPIES) for a, b, _ in hop] for hop in reversed(inward)]
    odd = count
    while odd % 2 == 0:
        odd //= 2
    if odd not in (1, 3):
        return []
    length = odd
    hops = [[(v, (v + d) % count, ADDS) for v in range(count) for d in (1, -1)]] if odd == 3 else []
    for hop in range(1, count // 2 - len(hops) + 1):
        # of two contributions that meet one began 2 hop - 1 ranks to the right of the other
        adds = hop == length - odd // 3
        length *= 1 + adds
        pairs = [(v % count, (v + 1) % count) for v in range(hop % 2, count, 2)]
        hops.append([(a, b, ADDS if adds else COPIES) for pair in pairs for a, b in (pair, pair[::-1])])
    return hops


def _pairs_walk(count: int) -> list[list[Swap]]:
    """The swaps of each hop along a ring by which sums of pairs come to all ranks."""
    hops: list[list[Swap]] = []
    for hop in range(1, count // 2 + 1):
        pairs = [(v % count, (v + 1) % count) for v in range(1 - hop % 2, count, 2)]
        what = ADDS if hop <= 2 else FORWARDS
        hops.append([(a, b, what) for pair in pairs for a, b in (pair, pair[::-1])])
    return hops


def _block(topology: Topology, factors: list[_Factor], phase: int) -> Block:
    """One exchange, along one factor after another.

    Args:
        phase: the place on each ring at which its numbering begins.
    """
    link = np.zeros((topology.node_count, topology.node_count), dtype=np.int32)
    link[topology.src, topology.dst] = np.arange(topology.link_count)
    # for each node the transfers that brought its sum: the last copy, and what was added after that
    state: list[list[int]] = [[] for _ in range(topology.node_count)]
    ends: list[tuple[int, int]] = []
    op: list[int] = []
    forwards: list[int] = []
    after: list[list[int]] = []
    for factor in factors:
        for hop in factor.swaps:
            fresh: list[tuple[int, int, int]] = []
            for line in factor.lines:
                turned = line[phase:] + line[:phase] if factor.closed else line
                for a, b, what in hop:
                    u, v = turned[a], turned[b]
                    fresh.append((v, len(op), what))
                    ends.append((u, v))
                    op.append(COPY if what == COPIES else REDUCE)
                    forwards.append(int(what == FORWARDS))
                    # what is added comes after the last copy, a copy after all
                    there = [k for k in state[v] if what == COPIES or op[k] == COPY]
                    after.append(sorted({*(state[u][-1:] if what == FORWARDS else state[u]), *there}))
            for v, k, what in fresh:
                state[v] = [k] if what == COPIES else [*state[v], k]
    src, dst = np.array(ends).T
    apart = np.array(forwards) if any(forwards) else None
    return Block(src, dst, np.array(op), Ragged.single(link[src, dst]), Ragged.of(after), apart)
