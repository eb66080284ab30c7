"""MTEGCCA: AllGather, Broadcast and multicast by trees on a multicast time-expanded graph.

Liu, Wang, Ma, Li, Li, "Multicast time-expanded graph-based collective communication scheduling
algorithm", Journal on Communications 2026, section 2. A collective is a set of multicast tasks
(step 1), sorted by data, largest first (step 2). For each task a tree is grown on the
time-expanded graph by Takahashi-Matsuyama (step 3), and the link-slots that it uses are gone for
those after it (step 4).

The graph is searched implicitly, by a compiled kernel for any size; :mod:`.expanded` builds it
explicitly for small cases, to look at and to compare.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...model.arrays import Float64, Ragged
from ...model.collective import Workload
from ...model.errors import InputError, Unsupported
from ...model.plan import Plan, make_plan
from ...model.topology import Topology
from ...schedule.moments import with_and_without
from ...schedule.multicast import MulticastTrees, grow_implicitly, slot_seconds, task_order, tree_work
from .. import Candidate, Option, Request, over_links, per_delivery, register

RULES = {"earliest": (0.0, 0.0), "nearest": (1.0, 0.0), "thrifty": (0.0, 2.0), "balanced": (0.5, 2.0)}
"""How a tree grows: (nearness, thrift), see :class:`stretto.schedule.kernel_candidates.Rule`."""

FIRST_ROUND = (
    ("earliest", "interleaved"),
    ("thrifty", "interleaved"),
    ("balanced", "interleaved"),
    ("thrifty", "rank"),
)
"""What ``tree=auto`` tries, in this order: (rule, order of the tasks). The first of the best plans is kept."""

REPRICED = (("thrifty", "interleaved"), ("balanced", "interleaved"))
"""What later rounds grow again at new prices, in turn."""

REPRICING = 0.5
"""How strongly a link's use changes its price from round to round, as an exponent; 2 was measured to be worse."""

MOST_ROUNDS = 32
"""Rounds that ``rounds=-1`` makes at most."""

ROUNDS_WORK = 50_000
"""Work of all rounds together, in links tried (:func:`~stretto.schedule.multicast.tree_work`), with ``rounds=-1``."""

ONE_ROUND_WORK = 150_000
"""Work of a single round, in links tried, up to which ``rounds=-1`` makes that round even beyond ``ROUNDS_WORK``."""

COSTS = {"links": 0.5}
"""Steps of effort that a link tried costs, see :mod:`stretto.schedule.effort`; compiled, 0.2 on torus:24x24."""

OPTIONS = (
    Option(
        "graph", str, "implicit", "search the graph implicitly, or build it (small cases)", ("implicit", "explicit")
    ),
    Option("tree", str, "auto", "which destination a tree attaches next; auto tries several", ("auto", *RULES)),
    Option("time", str, "continuous", "exact times, or the paper's slots, rounded up", ("continuous", "slots")),
    Option(
        "order", str, "interleaved", "tasks of equal size: round the ranks, or rank after rank", ("interleaved", "rank")
    ),
    Option("rounds", int, -1, "how often to grow all trees again with busy links dearer; -1 for as often as is quick"),
    Option("slots", int, 0, "H of the explicit graph; 0 for as many as it takes"),
)


@register(
    "mtegcca",
    collectives=("allgather", "broadcast", "multicast"),
    topologies="any without planes",
    paper="Liu et al., Journal on Communications 2026, section 2",
    options=OPTIONS,
    changes=True,
    serves=over_links,
    auto=Candidate(per_delivery(15, first=10_000), counts=True),
    tune=20,
)
def mtegcca(
    request: Request,
    *,
    graph: str = "implicit",
    tree: str = "auto",
    time: str = "continuous",
    order: str = "interleaved",
    rounds: int = -1,
    slots: int = 0,
) -> Plan:
    """Multicast trees on a time-expanded graph, one task after the other.

    Args:
        graph: "implicit", or "explicit" to build the graph (needs ``time="slots"``).
        tree: "earliest" attaches the destination that is reached first, "nearest" the one with
            the shortest path from the tree (the paper's words), "thrifty" and "balanced" also
            count link time as a cost; "auto" grows several and keeps the plan that ends first.
        time: "continuous", or "slots" of the duration of a chunk on the fastest link.
        order: how tasks of equal size take turns ("auto" tries both).
        rounds: how often to grow all trees again at prices that make busy links dearer; -1 for as
            often as is quick (with ``tree="auto"``, else never). The best plan of all is kept.
        slots: H of the explicit graph, 0 for as many as it takes.
    Returns:
        A timed plan.
    Raises:
        Infeasible: some rank has no path from the source.
    """
    topology, workload = request.topology, request.workload
    slot_s = slot_seconds(topology, workload) if time == "slots" else None
    if graph == "explicit":
        from .expanded import grow_trees

        if slot_s is None or tree not in ("earliest", "nearest"):
            raise InputError("the explicit graph needs time=slots and tree=earliest or nearest", "option graph")
        if topology.changes:
            raise Unsupported("the explicit graph has constant bandwidths; where they change, leave graph=implicit")
        trees = grow_trees(topology, workload, task_order(workload, order), slot_s, tree == "nearest", slots)
        return trees_to_plan(topology, workload, trees, {"tree": tree, "order": order})
    return with_and_without(
        topology, lambda net: _in_rounds(replace(request, topology=net), tree, order, rounds, slot_s)
    )


def _in_rounds(request: Request, tree: str, order: str, rounds: int, slot_s: float | None) -> Plan:
    """The best of a first round, one try a rule, and of ``rounds`` more at prices that follow the use of links."""
    topology, workload = request.topology, request.workload
    first: tuple[tuple[str, str], ...] = FIRST_ROUND if tree == "auto" else ((tree, order),)
    if tree == "auto" and all(len(c.piece_bytes) == c.chunk_count for c in workload.collectives):
        first = tuple(t for t in first if t[1] == "interleaved")  # a piece is one chunk: both orders are the same
    work = tree_work(topology, workload)
    if rounds < 0:
        rounds = min(MOST_ROUNDS, max(ROUNDS_WORK // work, int(work <= ONE_ROUND_WORK))) if tree == "auto" else 0
    total = len(first) + rounds
    budget = request.budget.with_costs(COSTS)
    best: tuple[MulticastTrees, dict[str, Any]] | None = None
    prices: dict[str, Float64] = {}
    for i in range(total):
        if best is not None and not budget.allows(links=work):
            break
        budget.spend(links=work)
        again = i - len(first)
        rule, turns = first[i] if again < 0 else REPRICED[again % len(REPRICED)]
        nearness, thrift = RULES[rule]
        flat = np.full(topology.link_count, thrift)
        price = flat if again < 0 else prices.get(rule, flat)
        request.tell(i, total, f"{rule} trees")
        tasks = task_order(workload, turns)
        trees = grow_implicitly(topology, workload, tasks, slot_s, nearness, price, work * total)
        if best is None or trees.finish_s < best[0].finish_s:
            best = trees, {"tree": rule, "order": turns, "round": max(again + 1, 0)}
        if (rule, turns) in REPRICED:
            prices[rule] = _repriced(topology, workload, price, trees)
    assert best is not None
    return trees_to_plan(topology, workload, *best)


def _repriced(topology: Topology, workload: Workload, price: Float64, trees: MulticastTrees) -> Float64:
    """float64[links]: links dearer the more they were used, cheaper the less; the mean price stays.

    Trees grown at these prices leave the bottleneck where another way is nearly as good: the
    multiplicative weights of fractional packing.
    """
    if trees.finish_s <= 0:
        return price
    sent_bytes = workload.chunk_bytes[trees.chunk[trees.route.owners]]
    busy = np.bincount(trees.route.values, weights=sent_bytes, minlength=topology.link_count)
    use = busy / topology.bandwidth / trees.finish_s
    changed = price * np.exp(REPRICING * (use - use.mean()))
    scaled: Float64 = changed * (price.mean() / changed.mean())
    return scaled


def trees_to_plan(topology: Topology, workload: Workload, trees: MulticastTrees, meta: dict[str, Any]) -> Plan:
    """The passes of all trees as a timed plan, in the order in which they start."""
    # a child starts no earlier than its parent, and has the higher index at equal times
    order = np.argsort(trees.start_s, kind="stable")
    parent = trees.parent[order]
    has_parent = parent >= 0
    route = trees.route.take(order)
    chunk, start_s = trees.chunk[order], trees.start_s[order]
    return make_plan(
        topology,
        workload,
        "timed",
        chunk=chunk,
        src=trees.src[order],
        dst=trees.dst.take(order),
        route=route,
        depends=Ragged.from_lengths(has_parent, np.argsort(order)[parent[has_parent]]),
        start_s=start_s,
        # bytes that the slots leave idle are not sent slower: a transfer runs at the route's own speed
        finish_s=start_s + workload.chunk_bytes[chunk] / topology.route_bandwidth(route),
        meta=meta,
    )
