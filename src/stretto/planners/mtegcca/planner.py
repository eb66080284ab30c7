"""MTEGCCA: AllGather, Broadcast and multicast by trees on a multicast time-expanded graph, and sums by the same trees
backwards in time.

Liu, Wang, Ma, Li, Li, "Multicast time-expanded graph-based collective communication scheduling
algorithm", Journal on Communications 2026, section 2. A collective is a set of multicast tasks
(step 1), sorted by data, largest first (step 2). For each task a tree is grown on the
time-expanded graph by Takahashi-Matsuyama (step 3), and the link-slots that it uses are gone for
those after it (step 4).

The graph is searched implicitly, by a compiled kernel for any size; :mod:`.expanded` builds it
explicitly for small cases, to look at and to compare.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...model.collective import Workload
from ...model.errors import InputError
from ...model.plan import Plan
from ...model.topology import ROUTER, SWITCH, Topology
from ...schedule.best import best, completion_s
from ...schedule.cutting import is_too_fine
from ...schedule.inversion import Transfers, plan_in_phases
from ...schedule.moments import for_messages, with_and_without
from ...schedule.multicast import slot_seconds, tree_work
from ...schedule.trees import divide
from .. import Candidate, Option, Request, over_links, register
from .growth import COSTS, RULES, Growth, transfers_of_trees

AS_PRINTED = {"tree": "nearest", "order": "rank", "time": "slots", "rounds": 0}
"""Section 2 word by word: the destination nearest to the tree (step 3), tasks of equal size rank after rank (steps 1
and 2), whole slots (section 1.2), and each tree grown once."""

NEGLECTED = 0.1
"""Share of a slot up to which ``latency=neglected`` takes a latency for none: the threshold of TE-CCL's code, whose
parameters section 3 has. Figure 2 neglects microseconds beside a slot of 1 s."""

COLLECTIVES = ("allgather", "broadcast", "multicast", "reducescatter", "reduce", "allreduce", "partial-sums")

TRIES_SHARE = 0.25
"""Share of the effort that is left up to which other rules and prices are tried with a number of parts, too."""

QUICK_ROUNDS = 4
"""Rounds at new prices with each number of parts; the best number gets as many as ``rounds`` says."""

LEAST_GAIN = 0.005
"""Share of the completion that one of the last two cuts must have gained for chunks to be cut further."""

OPTIONS = (
    Option(
        "rules", str, "ours",
        "our own rules; or the paper's: tree=nearest, order=rank, time=slots, each tree grown once", ("ours", "paper"),
    ),
    Option(
        "graph", str, "implicit", "search the graph implicitly, or build it (small cases)", ("implicit", "explicit")
    ),
    Option("tree", str, "auto", "which destination a tree attaches next; auto tries several", ("auto", *RULES)),
    Option("time", str, "continuous", "exact times, or the paper's slots, rounded up", ("continuous", "slots")),
    Option(
        "latency", str, "equation",
        "with time=slots, a latency in slots: rounded up by the paper's equation, or none up to a tenth of a slot",
        ("equation", "neglected"),
    ),
    Option(
        "order", str, "interleaved", "tasks of equal size: round the ranks, or rank after rank", ("interleaved", "rank")
    ),
    Option("rounds", int, -1, "how often to grow all trees again with busy links dearer; -1 for as often as is quick"),
    Option("slots", int, 0, "H of the explicit graph; 0 for as many as it takes"),
    Option("parts", int, 0, "cut every chunk into this many parts; 0 chooses for one root whose data switches copy"),
)  # fmt: skip


def _unserved(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return over_links(topology, workload)
    if workload.chunk_reduces.any() and not topology.transit[topology.is_router].all():
        return "it sums over ways through switches and routers, and one of these may not be passed through"
    return None


def _steps(request: Request) -> float:
    """Steps of one round, with all that it takes besides."""
    sums = request.workload.chunk_reduces.any()
    links = tree_work(request.topology, _cut_for_sums(request.workload) if sums else request.workload)
    return 10_000 + 2.0 * request.deliveries + COSTS["round"] + COSTS["links"] * links


def _is_asked(request: Request) -> bool:
    """Trees of sums are those of copies backwards in time, but not where switches copy."""
    return not (request.workload.chunk_reduces.any() and request.topology.is_switch.any())


@register(
    "mtegcca",
    collectives=COLLECTIVES,
    topologies="any without planes",
    paper="Liu et al., Journal on Communications 2026, section 2",
    options=OPTIONS,
    changes=True,
    messages=True,
    serves=_unserved,
    auto=Candidate(_steps, counts=True, fills_links=True, asked=_is_asked),
    tune=20,
)
def mtegcca(
    request: Request,
    *,
    rules: str = "ours",
    graph: str = "implicit",
    tree: str = "auto",
    time: str = "continuous",
    latency: str = "equation",
    order: str = "interleaved",
    rounds: int = -1,
    slots: int = 0,
    parts: int = 0,
) -> Plan:
    """Multicast trees on a time-expanded graph, one task after the other.

    Args:
        rules: "paper" for section 2 as it is printed (:data:`AS_PRINTED`).
        graph: "implicit", or "explicit" to build the graph (needs ``time="slots"``).
        tree: "earliest" attaches the destination that is reached first, "nearest" the one with
            the shortest path from the tree (the paper's words), "thrifty" and "balanced" also
            count link time as a cost; "auto" grows several and keeps the plan that ends first.
        time: "continuous", or "slots" of the duration of a chunk on the fastest link.
        latency: with ``time="slots"``, "equation" rounds each latency up to slots (definition 3 of section 1.2),
            "neglected" takes one of up to a tenth of a slot for none.
        order: how tasks of equal size take turns ("auto" tries both).
        rounds: how often to grow all trees again at prices that make busy links dearer; -1 for as
            often as is quick (with ``tree="auto"``, else never). The best plan of all is kept.
        slots: H of the explicit graph, 0 for as many as it takes.
        parts: into how many parts each chunk is cut, or into single bytes where it has fewer; each part has a tree of
            its own. 0 chooses where switches copy the data of one root and time is continuous, and is 1 elsewhere:
            trees of all ranks use all links already.
    Returns:
        A timed plan. With ``time="slots"`` its meta has ``slots``, ``slot_s`` and ``reported_s`` (slots x slot), which
        is not its completion: times rounded up to slots are longer, neglected ones shorter.
    Raises:
        InputError: options that contradict each other, or ``parts`` is negative. Infeasible: some rank has no path from
            the source.
    """
    topology, workload = request.topology, request.workload
    if parts < 0:
        raise InputError(f"{parts} is below 0", "option parts")
    if rules == "paper":
        _check_as_printed(tree=tree, time=time, rounds=rounds)
        tree, order, time, rounds = "nearest", "rank", "slots", 0
    if workload.chunk_reduces.any():
        workload = _cut_for_sums(workload)
    parts = parts or int(time == "slots" or not _chooses_parts(topology, workload))
    slot_s = slot_seconds(topology, _divided(workload, parts)) if time == "slots" else None
    neglected = NEGLECTED if latency == "neglected" else 0.0
    if neglected and slot_s is None:
        raise InputError("there are no slots to neglect a latency in; add time=slots or rules=paper", "option latency")
    explicit = graph == "explicit"
    if explicit and (slot_s is None or tree not in ("earliest", "nearest")):
        raise InputError("the explicit graph needs time=slots and tree=earliest or nearest", "option graph")
    growth = Growth(tree, order, rounds, slot_s, neglected, explicit, slots)

    def on(net: Topology) -> Plan:
        own = replace(request, topology=net, workload=workload)
        return _in_parts(own, growth, parts) if parts else _cut_as_pays(own, growth)

    # the paper knows the capacity of each slot, eq. (7), and has no second plan that does not
    return on(topology) if rules == "paper" or explicit else with_and_without(topology, on)


def _chooses_parts(topology: Topology, workload: Workload) -> bool:
    """Whether each collective has one root, whose data switches copy."""
    one_root = all(c.traits.rooted and c.traits.pieces == "buffer" and not c.reduces for c in workload.collectives)
    return one_root and bool(topology.replicates[topology.transit].any())


def _cut_as_pays(request: Request, growth: Growth) -> Plan:
    """The best plan of 1, 2, 4, ... parts of each chunk, as long as finer parts gain and the effort lasts."""
    topology, workload, budget = request.topology, request.workload, request.budget.with_costs(COSTS)
    work, parts, most_parts = tree_work(topology, workload), 1, int(workload.chunk_bytes.min())
    quick = growth.of_few_rounds(QUICK_ROUNDS)
    plans: list[Plan] = []
    while not plans or (_may_gain(plans) and parts <= most_parts and budget.allows(links=parts * work, round=1)):
        plans.append(_in_parts(replace(request, budget=budget.share(TRIES_SHARE)), quick, parts))
        quick = quick.beginning_with(best(plans).meta)
        parts *= 2
    if growth != growth.of_few_rounds(QUICK_ROUNDS):
        plans.append(_in_parts(request, growth.beginning_with(best(plans).meta), best(plans).meta["parts"]))
    return best(plans)


def _may_gain(plans: list[Plan]) -> bool:
    """Whether finer parts than those of the last plan may gain."""
    times_s = [completion_s(plan) for plan in plans]
    gained = min(times_s[-2:]) < (1 - LEAST_GAIN) * min(times_s[:-2], default=math.inf)
    return gained and not is_too_fine(plans)


def _in_parts(request: Request, growth: Growth, parts: int) -> Plan:
    """The plan with each chunk in this many parts."""

    def grown(net: Topology, workload: Workload) -> Plan:
        own = replace(request, topology=net, workload=workload)
        return in_phases(own, growth) if workload.chunk_reduces.any() else growth.plan(own)

    plan = for_messages(request.topology, _divided(request.workload, parts), grown)
    return plan.noted(plan.meta | {"parts": parts})


def _divided(workload: Workload, parts: int) -> Workload:
    """The workload with each chunk in this many parts, or in single bytes where it has fewer."""
    return workload if parts == 1 else Workload(tuple(divide(c, parts)[0] for c in workload.collectives))


def _check_as_printed(**given: object) -> None:
    """InputError where an option contradicts ``rules=paper``."""
    defaults = {o.name: o.default for o in OPTIONS}
    for name, value in given.items():
        if value not in (defaults[name], AS_PRINTED[name]):
            raise InputError(f"rules=paper means {name}={AS_PRINTED[name]}, not {value}", f"option {name}")


def in_phases(request: Request, growth: Growth) -> Plan:
    """Sums by trees backwards in time, and copies of what was summed by trees forwards.

    With slots, the meta counts those of all phases, one phase after the other.
    """
    counted_s = 0.0
    meta: dict[str, object] = {}

    def spread(net: Topology, part: Workload, through_routers: bool) -> Transfers:
        nonlocal counted_s
        plan = growth.plan(replace(request, topology=_one_receiver(net, through_routers), workload=part))
        meta.update(plan.meta)
        if growth.slot_s is not None:
            # sums are planned from zero, copies at their moment
            begin_s = counted_s if through_routers else 0.0
            counted_s = max(counted_s, begin_s + float(plan.meta["reported_s"]))
        return transfers_of_trees(plan)

    plan = plan_in_phases(request.topology, request.workload, spread)
    if growth.slot_s is not None:
        meta.update(growth.reported(counted_s))
    return plan.noted(meta)


def _cut_for_sums(workload: Workload) -> Workload:
    """The workload with a part for each rank of each chunk that all want summed, so that each rank sums its own."""
    parts = [len(c.ranks) if c.traits.reduces_to_all else 1 for c in workload.collectives]
    return Workload(tuple(divide(c, count)[0] for c, count in zip(workload.collectives, parts, strict=True)))


def _one_receiver(topology: Topology, through_routers: bool) -> Topology:
    """The network for transfers with one receiver each: no switch replicates; pipes may pass through routers."""
    kind = topology.kind
    if through_routers:
        kind = np.where(topology.forwarding == ROUTER, SWITCH, kind).astype(np.int8)
    return replace(topology, kind=kind, replicates=topology.replicates & (kind != SWITCH))
