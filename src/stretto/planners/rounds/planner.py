"""Trees in rounds: collectives of middle sizes, where messages cost.

Where messages cost, a plan has few of them, and each should carry all that it can. So time is cut into a few rounds,
and in each of them every pipe sends one message of many chunks. A linear program finds how long the rounds are and over
which trees chunks go (:mod:`.program`), so that fast links carry more than slow ones in each round, and all of them are
busy from the first round, when sums set out, to the last one, when copies arrive. Our own.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf

import numpy as np

from ...kernels import at_speed
from ...kernels.paths import all_pairs
from ...model.arrays import Float64
from ...model.collective import Collective, Workload
from ...model.errors import Unsupported
from ...model.kinds import KINDS
from ...model.plan import Plan
from ...model.topology import ACCELERATOR, Topology
from ...schedule.best import handling_s
from ...schedule.best import preference_s as plan_preference_s
from ...schedule.cutting import messages_cost
from ...schedule.effort import Budget
from ...schedule.pipes import build_network
from .. import Candidate, Option, Request, register
from .generation import Solved, preference_s, solve_rounds, with_fewer_trees
from .lowering import plan_of
from .program import COSTS, Case, RoundTrees

WAYS = 2
"""Pipes from one node to another through switches and routers, at most."""

MOST_ROUNDS = 12
"""Rounds, at most, unless more are asked for."""

ENOUGH = 0.98
"""More rounds are tried as long as one round more takes at most this share of the time."""

SEARCH_SHARE, REFINEMENT_SHARE, MOST_STEPS = 0.06, 0.8, 1e6
"""Effort of the programs. ``SEARCH_SHARE``: share of what is left for each number of rounds. ``REFINEMENT_SHARE``: for
better trees in the best number of rounds. ``MOST_STEPS``: steps of each where effort has no limit."""

LATENCY_TIMES = 10.0
"""Times what a message costs, at most, that the latency of a link may be for ``auto`` to ask: in every round links are
idle for the latency, where other planners send more meanwhile."""

COMPARED = 3
"""Numbers of rounds of which plans are compared, those whose rounds are the shortest together."""

LIKELY_ROUNDS, LIKELY_SOLUTIONS = 3, 10
"""By these the least work is counted: rounds, or more where some rank needs more, and solutions of a program, at whose
prices trees grow."""

FIRST_STEPS = 0.04
"""Steps of the first program for each pair of pieces: about an iteration a piece, over as many rows and columns.
AllToAll on torus:8x8 takes 0.6 s of CPU for it."""

MOST_NODES = 1000
"""Nodes up to which messages on the way are counted, 0.1 s of CPU. In larger networks rounds take far more than the
effort."""

PASSED = 1e-6
"""What a link to a switch or router counts beside a message, where messages on the way are counted."""

OPTIONS = (Option("rounds", int, 0, "how many rounds; 0 chooses"),)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    if len(workload.collectives) > 1:
        return "it plans one collective"
    if topology.changes:
        return "its rounds are for bandwidths that do not change"
    least = _least_rounds(topology, workload.collectives[0])
    if least == 0:
        return "every rank has what it needs"
    if least == inf:
        return "links do not join its ranks"
    if workload.chunk_reduces.any() and (topology.forwarding != topology.kind).any():
        return "routers that store end its trees, and cannot sum"
    return None


def _least_steps(request: Request) -> float:
    """Steps that growing trees for few rounds takes, about."""
    topology, stores = request.topology, request.topology.forwarding == ACCELERATOR
    nodes = int(stores.sum())
    pipes = topology.link_count if stores.all() else nodes**2
    ends = sum(
        len((c.holders if c.reduces else c.wanted).values) * (nodes * LIKELY_ROUNDS if c.traits.reduces_to_all else 1)
        for c in request.workload.collectives
    )
    rounds = max(LIKELY_ROUNDS, max(_least_rounds(topology, c) for c in request.workload.collectives))
    pieces = sum(c.piece_count for c in request.workload.collectives)
    return 20_000 + COSTS["growth"] * LIKELY_SOLUTIONS * ends * rounds * pipes + FIRST_STEPS * pieces**2


def _least_rounds(topology: Topology, c: Collective) -> float:
    """Messages one after the other that data needs, at least; infinite where links do not join its ranks, and 1 in
    networks that are too large to look."""
    if topology.node_count > MOST_NODES:
        return 1.0
    hops = _hops(topology)
    if c.traits.reduces_to_all:
        most = hops[c.ranks].max(axis=0) + hops[:, c.ranks].max(axis=1)
        return float(most[topology.forwarding == ACCELERATOR].min())  # by way of a node that holds the sum
    ends, others = (c.wanted, c.holders) if c.reduces else (c.holders, c.wanted)
    root = c.ranks[ends.values[ends.offsets[:-1]]][others.owners]
    other = c.ranks[others.values]
    return float((hops[other, root] if c.reduces else hops[root, other]).max())


@lru_cache(2)
def _hops(topology: Topology) -> Float64:
    """float64[nodes, nodes], how many messages lead from node to node, at least; infinite where none do."""
    cost = np.where(topology.forwarding[topology.dst] == ACCELERATOR, 1.0, PASSED)
    work = float(topology.node_count) * topology.link_count
    return np.floor(at_speed(all_pairs, work)(*topology.out_links, topology.dst.astype(np.int64), cost))


def _is_asked(request: Request) -> bool:
    """Whether messages cost enough beside latency, and may carry several chunks."""
    topology = request.topology
    near = bool(topology.latency_s.max(initial=0.0) <= LATENCY_TIMES * topology.message_s.max(initial=0.0))
    return near and messages_cost(topology) and request.several_chunks


@register(
    "rounds",
    collectives=(*KINDS, "multicast"),
    topologies="any without planes",
    paper="our own",
    options=OPTIONS,
    serves=_serves,
    messages=True,
    cuts=True,
    auto=Candidate(_least_steps, counts=True, asked=_is_asked),
)
def rounds(request: Request, *, rounds: int = 0) -> Plan:
    """Trees in a few rounds, in each of which every pipe sends one message.

    Args:
        rounds: how many; 0 to choose.
    Returns:
        A plan with times, or in ready-order; its groups are the rounds.
    Raises:
        Unsupported: in that many rounds some rank is not reached.
    """
    topology, (c,) = request.topology, request.workload.collectives
    case = _case_of(topology, c)
    solutions = _solutions(case, rounds, request)
    if not solutions:
        raise Unsupported(
            f"rounds does not serve {topology.name}: in {rounds or MOST_ROUNDS} rounds some rank is not reached"
        )
    fewer = [_in_fewer_chunks(case, solved, request.budget) for solved in solutions[:COMPARED]]
    # a node that sends on what still comes begins and ends no message of several chunks
    several = request.several_chunks and bool(topology.store_and_forward[case.node].all())
    plans = [plan_of(c, case, solved, several) for solved in fewer]
    return min(plans, key=lambda plan: plan_preference_s(plan) + handling_s(plan))


def _in_fewer_chunks(case: Case, solved: Solved, budget: Budget) -> Solved:
    """The solution with all trees, or with fewer as long as that is preferred."""
    fewer: Solved | None = solved
    while fewer is not None and preference_s(case, fewer) <= preference_s(case, solved):
        solved = fewer
        fewer = with_fewer_trees(case, solved, budget.with_costs(COSTS))
    return solved


def _case_of(topology: Topology, c: Collective) -> Case:
    """The pipes between nodes that store, and what each piece asks for."""
    network = build_network(topology, c.size_bytes / len(c.ranks), True, 1e6, WAYS)
    nodes = np.flatnonzero(topology.forwarding == ACCELERATOR)
    place = np.full(topology.node_count, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    both = c.traits.reduces_to_all
    ends, others = (c.wanted, c.holders) if c.reduces else (c.holders, c.wanted)
    root = np.full(c.piece_count, -1) if both else place[c.ranks[ends.values[ends.offsets[:-1]]]]
    wanted = np.zeros((c.piece_count, len(nodes)), dtype=np.bool_)
    wanted[others.owners, place[c.ranks[others.values]]] = True
    joined = place[network.src], place[network.dst]
    return Case(network, nodes, *joined, root, wanted, c.piece_bytes, c.reduces, both or not c.reduces)


def _solutions(case: Case, rounds: int, request: Request) -> list[Solved]:
    """Trees for several numbers of rounds, or for the one that was asked for, the soonest first; for the best one with
    more effort."""
    solutions: dict[int, Solved] = {}
    count, known = rounds or int(_least_rounds(request.topology, request.workload.collectives[0])), None
    while count <= max(MOST_ROUNDS, rounds):
        request.tell(len(solutions), MOST_ROUNDS, f"trees in {count} rounds")
        solved = solve_rounds(case, count, known, _share(request.budget, SEARCH_SHARE))
        best_s = min((each.end_s for each in solutions.values()), default=inf)
        if solved is not None:
            solutions[count] = solved
            known = _with_another_round(solved.trees, count)
        ended = solved is None or solved.end_s > ENOUGH * best_s
        if rounds or request.budget.exhausted or (solutions and ended):
            break
        count += 1
    if solutions:
        request.tell(len(solutions), MOST_ROUNDS, "better trees")
        count = min(solutions, key=lambda count: solutions[count].end_s)
        better = solve_rounds(case, count, solutions[count].trees, _share(request.budget, REFINEMENT_SHARE))
        if better is not None and better.end_s < solutions[count].end_s:
            solutions[count] = better
    return sorted(solutions.values(), key=lambda solved: solved.end_s)


def _share(budget: Budget, share: float) -> Budget:
    return budget.within(min(share * budget.left, MOST_STEPS)).with_costs(COSTS)


def _with_another_round(trees: RoundTrees, count: int) -> RoundTrees:
    """The trees for one round more: with an idle one before the middle of ``count`` rounds, and with one after it."""
    return RoundTrees.concatenate([trees.later(first) for first in (count // 2, (count + 1) // 2 + 1)])
