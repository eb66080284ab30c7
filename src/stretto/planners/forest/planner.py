"""Trees that fill the network: AllGather, ReduceScatter, AllReduce, Broadcast and Reduce near the bandwidth bound.

Zhao et al., "ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics" (arXiv
2402.06787), and beyond it: trees of unequal counts, so that few chunks do where equal trees need thousands; switches
that get more than they send; and AllReduce by in-trees and out-trees of unequal roots at once
(:mod:`stretto.bounds.trees`) instead of ReduceScatter and then AllGather.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...bounds import distances
from ...model.collective import Collective, Workload
from ...model.errors import InputError
from ...model.plan import Plan
from ...model.progress import Progress
from ...model.topology import Topology
from ...schedule.best import best, completion_s
from ...schedule.cutting import BYTES_DECIDE, messages_cost, share_of_bytes
from ...schedule.effort import Budget
from .. import Candidate, Option, Request, register
from .candidates import LATENCY_SHARE, PACKING_STEPS, forests_of, packing_work
from .division import few_trees, keep_largest, quickest, without_small
from .filling import TRANSFER_COUNTS, Filling, most_promising
from .forest import Forest
from .latency import GROWN, GROWN_EACH, Choice, Pool
from .parts import best_by_parts, choices_by_parts
from .priced import PRICING_STEPS, pricing_work
from .refinement import LATE, Forests, Refinement, finest_part_bytes
from .relays import find_relays, summing_as_relays

KINDS = ("allgather", "reducescatter", "allreduce", "broadcast", "reduce", "remainder")

COSTS = {
    "packing": PACKING_STEPS,
    "rates": 0.5,
    "estimate": 0.5,
    "pricing": PRICING_STEPS,
    "cut": 0.4,
    "transfer": 3.0,
}
"""Steps (:mod:`stretto.schedule.effort`) of each kind of work: packing trees, see :func:`.candidates.packing_work`;
rates of trees, and an estimate, for each use of a link by a tree; priced trees, for each tree and link; cutting, for
each transfer. A transfer of a fine plan takes 3 in all for each link of its route, with one round of justification."""

LATENCY_BUDGET_SHARE = 0.75
"""Share of the effort within which priced trees must be grown, or there are none."""

SEARCH_TIMES, SEARCH_STEPS = 4.0, 1e6
"""Times the effort that each search for trees of one kind may take, and steps that it may take in any case."""

LEAST_SHARE = 0.05
"""Where switches sum, the least that a tree carries, as a share of the largest tree. Its transfers use many links, each
at a rate in proportion to what the tree carries, so that a small tree would be slow."""

OPTIONS = (
    Option("parts", int, 0, "into how many parts a tree's share is cut, on average; 0: by the number of transfers"),
    Option("trees", int, 16, "trees a rank, at most: of each root, of an AllReduce of all roots together"),
)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "its trees are of links, not of optical planes"
    if workload.chunk_reduces.any() and (topology.forwarding != topology.kind).any():
        return "routers that store end its trees, and cannot sum"
    copied = [c for c in workload.collectives if not c.reduces]
    if any((c.holders.lengths > 1).any() or (c.wanted.lengths < len(c.ranks)).any() for c in copied):
        return "its trees reach all ranks"
    return None


def _least_steps(request: Request) -> float:
    """Steps that the first trees take, about."""
    work = sum(packing_work(request.topology, c) for c in request.workload.collectives)
    return 40_000 + 4 * COSTS["packing"] * work


def _is_asked(request: Request) -> bool:
    """Whether bytes decide, and not what the messages of its many trees cost."""
    rooted = any(c.traits.rooted for c in request.workload.collectives)
    several = len(request.workload.collectives) > 1
    return rooted or several or share_of_bytes(request.topology, request.workload) >= BYTES_DECIDE


@register(
    "forest",
    collectives=KINDS,
    topologies="any without planes",
    paper="Zhao et al., arXiv 2402.06787; AllReduce our own",
    options=OPTIONS,
    serves=_serves,
    messages=True,
    cuts=True,
    auto=Candidate(_least_steps, counts=True, leads=True, fills_links=True, asked=_is_asked),
    tune=40,
)
def forest(request: Request, *, parts: int = 0, trees: int = 16) -> Plan:
    """Trees packed to fill every link of the bottleneck, their chunks pipelined.

    Args:
        parts: into how many parts a tree's share is cut, on average; 0 to choose.
        trees: trees a rank, at most: of each root; of an AllReduce, of all roots together.
    Raises:
        InputError: no trees are allowed.
    """
    if trees < 1:
        raise InputError("without a tree nothing is sent", f"option trees={trees}")
    net, budget = request.topology.delayed, request.budget.with_costs(COSTS)
    plans: list[Plan] = []

    @cache
    def packed(topology: Topology) -> list[list[Forest]]:
        return [_packed_forests(topology, c, trees, budget, request.tell) for c in request.workload.collectives]

    if not parts and _may_cut_by_messages(request):
        choices = _choices_by_parts(request, packed(net)[0], trees, budget)
        if choices:
            return best_by_parts(request, choices, budget)
    # where switches sum: trees through them as relays, then trees that make no use of that
    for topology in dict.fromkeys((summing_as_relays(net), net)):
        for search in _searches(request, topology, packed(topology), parts, trees, budget):
            if not plans or search.least_s < completion_s(best(plans)):
                plans.append(search.best())
    return best(plans)


def _searches(
    request: Request, topology: Topology, packed: list[list[Forest]], parts: int, trees: int, budget: Budget
) -> list[Refinement]:
    """Searches over the forests of a network: one over all, but where switches are relays one for each choice.

    Through switches that sum forests differ much: many trees fill all links, one tree needs fewest messages. So the
    best with few parts says little of the best with many.
    """
    collectives, apart = request.workload.collectives, request.topology.reduces.any() and not topology.reduces.any()
    choices = [
        of_c + _grown_forests(topology, c, of_c, trees, budget) for c, of_c in zip(collectives, packed, strict=True)
    ]
    if apart:
        stores = ~request.topology.is_switch
        choices = [
            [
                *(without_small(c, forest, LEAST_SHARE) for forest in of_c),
                *few_trees(topology, c, min(of_c, key=lambda forest: forest.seconds_per_byte(topology))),
                quickest(topology, c, Forest.concatenate(of_c), stores),
            ]
            for c, of_c in zip(collectives, choices, strict=True)
        ]
    else:
        choices = [most_promising(topology, c, of_c, budget) for c, of_c in zip(collectives, choices, strict=True)]
    tables: list[Forests] = [[of_c[min(k, len(of_c) - 1)] for of_c in choices] for k in range(max(map(len, choices)))]
    first = [of_c[0] for of_c in packed]
    searches = [
        Refinement(request, topology, some, some[0] if apart else first, parts, budget)
        for some in ([[table] for table in tables] if apart else [tables])
    ]
    return sorted(searches, key=lambda search: search.least_s)


def _packed_forests(topology: Topology, c: Collective, trees: int, budget: Budget, progress: Progress) -> list[Forest]:
    """Forests at the rate of the bottleneck, with no more trees than allowed."""
    progress(0, 0, "counting the trees that fill the links")
    budget.spend(packing=packing_work(topology, c))
    steps = max(SEARCH_TIMES * budget.steps, SEARCH_STEPS)
    forests = forests_of(topology, c, TRANSFER_COUNTS[-1], steps, progress)
    return [keep_largest(topology, c, forest, trees) for forest in forests]


def _may_cut_by_messages(request: Request) -> bool:
    """Whether messages cost, for a single collective whose sums are not made by switches."""
    topology = request.topology
    return len(request.workload.collectives) == 1 and not topology.reduces.any() and messages_cost(topology)


def _choices_by_parts(request: Request, packed: list[Forest], trees: int, budget: Budget) -> list[Choice]:
    """Forests for numbers of parts, where messages cost; none where the budget does not allow them."""
    (c,) = request.workload.collectives
    request.tell(0, 0, "growing trees for numbers of parts")
    if not (each := _spend_on_pool(request.topology, c, packed, budget)):
        return []
    return choices_by_parts(request.topology, c, packed, _most_trees(c, trees), each, budget, request.others_s)


def _grown_forests(topology: Topology, c: Collective, packed: list[Forest], trees: int, budget: Budget) -> list[Forest]:
    """Forests of priced trees beside packed ones, where packed ones alone are late, latency counts beside bandwidth, or
    an AllReduce has relays that could sum.

    None where the budget does not allow them.
    """
    if any(forest.down.twin is not None and (forest.down.twin >= 0).any() for forest in packed):
        return []
    transfers = min(
        TRANSFER_COUNTS[-1], budget.units("transfer") * packed[0].transfer_count(topology) / packed[0].links
    )
    part_bytes = finest_part_bytes(c, max(transfers, 1.0))
    busy_s = min(forest.seconds_per_byte(topology) for forest in packed) * c.size_bytes
    far_s = distances(topology, part_bytes)[np.ix_(c.ranks, c.ranks)].max()
    latency_counts = far_s > LATENCY_SHARE * packed[0].seconds_per_byte(topology) * c.size_bytes
    if not latency_counts and not (c.traits.reduces_to_all and find_relays(topology, c.ranks).any()):
        budget.spend(estimate=sum(len(forest.uses[0]) for forest in packed))
        late_s = min(Filling.of(topology, forest).estimated_s(c, transfers) for forest in packed)
        if late_s <= (1 + LATE) * busy_s:
            return []
    if not (each := _spend_on_pool(topology, c, packed, budget, GROWN_EACH[1])):
        return []
    pool = Pool.grown(topology, c, packed, part_bytes, _most_trees(c, trees), each)
    count = max(c.size_bytes / part_bytes, 1.0)
    filled = min(pool.by_filling(count, budget), key=lambda choice: choice.shared_s)
    return [filled.forest, *(pool.by_windows(count, filled.shared_s, budget) if latency_counts else [])]


def _most_trees(c: Collective, trees: int) -> int:
    """Trees that a forest may have: of an AllReduce in all, of other collectives of each root."""
    return trees * len(c.ranks) if c.traits.reduces_to_all else trees


def _spend_on_pool(
    topology: Topology, c: Collective, packed: list[Forest], budget: Budget, most: int = GROWN_EACH[0]
) -> int:
    """Count the growing of trees; how many in each way, 0 where the budget does not allow it."""
    each = Pool.grown_each(topology, c, packed, most, budget)
    work = {"pricing": len(GROWN) * pricing_work(topology, c, each)}
    if not each or budget.stop.fired or budget.spent + budget.cost(**work) > LATENCY_BUDGET_SHARE * budget.steps:
        return 0
    budget.spend(**work)
    return each
