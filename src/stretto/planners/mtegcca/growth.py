"""How trees are grown for all tasks: by which rule and in which order, in how many rounds, and over which graph.

The search for one tree is :mod:`stretto.schedule.multicast`; :mod:`.expanded` does the same on the graph itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...model.arrays import Float64, Ragged
from ...model.collective import Workload
from ...model.plan import Plan, make_plan
from ...model.topology import Topology
from ...schedule.inversion import Transfers
from ...schedule.multicast import MulticastTrees, grow_implicitly, task_order, tree_work
from ...simulate import simulate
from .. import Request

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

COSTS = {"links": 0.4, "round": 400.0}
"""Steps of effort (:mod:`stretto.schedule.effort`) that a link tried costs, and a round besides."""


@dataclass(frozen=True)
class Growth:
    """How trees are grown."""

    tree: str  # one of RULES, or "auto"
    order: str  # of tasks of equal size
    rounds: int
    slot_s: float | None  # the length of a slot; None for continuous time
    neglected: float  # share of a slot up to which a latency takes no slot
    explicit: bool  # whether the graph is built
    slots: int  # H of the graph that is built; 0 for as many as it takes
    leading: tuple[str, str] | None = None  # the rule and order that tree="auto" tries first

    def of_few_rounds(self, most: int) -> Growth:
        """The same with at most this many rounds at new prices."""
        if self.tree != "auto":
            return self
        return replace(self, rounds=most if self.rounds < 0 else min(self.rounds, most))

    def beginning_with(self, meta: dict[str, Any]) -> Growth:
        """The same, beginning with what the trees of a plan with this meta were grown by."""
        return replace(self, leading=(meta["tree"], meta["order"]))

    def trees(self, request: Request) -> tuple[MulticastTrees, dict[str, Any]]:
        """The trees of a request, and what the plan's meta says of them.

        Raises:
            Infeasible: some rank has no path from the source. Unsupported: the graph cannot be built.
        """
        topology, workload = request.topology, request.workload
        if not self.explicit:
            return _in_rounds(request, self)
        from .expanded import grow_trees

        assert self.slot_s is not None
        tasks, nearest = task_order(workload, self.order), self.tree == "nearest"
        trees = grow_trees(topology, workload, tasks, self.slot_s, nearest, self.slots, self.neglected)
        return trees, {"tree": self.tree, "order": self.order}

    def plan(self, request: Request) -> Plan:
        """The trees of a request as a timed plan."""
        trees, meta = self.trees(request)
        return self.timed(request.topology, request.workload, trees, meta)

    def timed(self, topology: Topology, workload: Workload, trees: MulticastTrees, meta: dict[str, Any]) -> Plan:
        """Trees as a timed plan; its meta has the time that is counted in slots."""
        if self.slot_s is not None:
            meta = meta | self.reported(trees.finish_s)
        plan = trees_to_plan(topology, workload, trees, meta)
        if not self.neglected:
            return plan
        # what neglected latencies make too early waits for its data and its links
        line = simulate(plan)
        return replace(plan, start_s=line.start_s, finish_s=line.finish_s)

    def reported(self, finish_s: float) -> dict[str, Any]:
        """What the meta says of a time that is counted in slots."""
        assert self.slot_s is not None
        return {"slots": round(finish_s / self.slot_s), "slot_s": self.slot_s, "reported_s": finish_s}


def _in_rounds(request: Request, growth: Growth) -> tuple[MulticastTrees, dict[str, Any]]:
    """The best of a first round, one try a rule, and of ``rounds`` more at prices that follow the use of links."""
    topology, workload = request.topology, request.workload
    tree, rounds = growth.tree, growth.rounds
    first: tuple[tuple[str, str], ...] = FIRST_ROUND if tree == "auto" else ((tree, growth.order),)
    if tree == "auto" and all(len(c.piece_bytes) == c.chunk_count for c in workload.collectives):
        first = tuple(t for t in first if t[1] == "interleaved")  # a piece is one chunk: both orders are the same
    first = tuple(sorted(first, key=lambda each: each != growth.leading))
    work = tree_work(topology, workload)
    if rounds < 0:
        rounds = min(MOST_ROUNDS, max(ROUNDS_WORK // work, int(work <= ONE_ROUND_WORK))) if tree == "auto" else 0
    total = len(first) + rounds
    budget = request.budget.with_costs(COSTS)
    best: tuple[MulticastTrees, dict[str, Any]] | None = None
    prices: dict[str, Float64] = {}
    for i in range(total):
        if best is not None and not budget.allows(links=work, round=1):
            break
        budget.spend(links=work, round=1)
        again = i - len(first)
        rule, turns = first[i] if again < 0 else REPRICED[again % len(REPRICED)]
        nearness, thrift = RULES[rule]
        flat = np.full(topology.link_count, thrift)
        price = flat if again < 0 else prices.get(rule, flat)
        tasks = task_order(workload, turns)
        counted = np.zeros(1, dtype=np.int64)
        request.tell_counting(counted, i * len(tasks), total * len(tasks), f"{rule} trees")
        trees = grow_implicitly(
            topology, workload, tasks, growth.slot_s, nearness, price, work * total, growth.neglected, counted
        )
        if best is None or trees.finish_s < best[0].finish_s:
            best = trees, {"tree": rule, "order": turns, "round": max(again + 1, 0)}
        if (rule, turns) in REPRICED:
            prices[rule] = _repriced(topology, workload, price, trees)
    assert best is not None
    return best


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


def transfers_of_trees(plan: Plan) -> Transfers:
    """The transfers of :func:`trees_to_plan`, where no switch replicates: each has one receiver and one parent."""
    assert plan.start_s is not None and plan.finish_s is not None
    parent = np.full(plan.transfer_count, -1, dtype=np.int64)
    parent[plan.depends.owners] = plan.depends.values
    seconds = plan.finish_s - plan.start_s
    return Transfers(
        chunk=plan.chunk.astype(np.int64), src=plan.src.astype(np.int64), dst=plan.dst.values.astype(np.int64),
        route=plan.route, parent=parent, start_s=plan.start_s, seconds=seconds,
        arrival_s=plan.finish_s + plan.topology.route_latency_s(plan.route),
    )  # fmt: skip
