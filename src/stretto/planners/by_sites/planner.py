"""by-sites: a plan between sites, each as if it were one accelerator, and what it leads to inside them.

Between sites links are few and slow, and inside them many and fast. So who sends what to which site when is decided on
a network with an accelerator for each site, by any other planner. That takes as much as for so few ranks, however many
each site has.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Collective, Workload, make_collective
from ...model.errors import StrettoError, Unsupported
from ...model.messages import message_count, messages_of
from ...model.plan import Plan, make_plan
from ...model.symmetric import SymmetricPlan
from ...model.timeline import Timeline
from ...model.topology import ROUTER, SWITCH, Topology
from ...schedule.backwards import backwards
from ...schedule.best import best, completion_s
from ...schedule.effort import Budget
from ...schedule.moments import ends, settled
from ...schedule.pipes import build_network
from ...schedule.scheduling_problem import COSTS, Limits, SchedulingProblem
from ...simulate import simulate
from .. import Candidate, Option, Request, over_links, register
from ..fixed.planner import ways_of
from ..fixed.servers import server_labels
from ..run import plan_by
from .contraction import Contraction, cut_alike
from .expansion import Expansion, Tree, binomial, star

EFFORT_SHARE = 0.5
"""Share of what is left of the effort for the plan between sites."""

MESSAGE_STEPS = 80.0
"""Steps of effort (:mod:`stretto.schedule.effort`) that a message of the plan takes, about."""

APART = 10.0
"""Times the longest latency inside a site that there are between sites where ``auto`` asks the planner."""

GAIN = 0.005
"""Share of the completion that twice as many parts must gain for these to be cut in two again."""

MOST_LISTED = 4_000
"""Messages of a list schedule, at most: where many share links it takes long."""

ROUNDS = 3
"""Rounds of justification, at most."""

OPTIONS = (Option("planner", str, "auto", "what plans between sites: PLANNER[+REFINER...]"),)


def _labels(topology: Topology, c: Collective, apart: float = 0.0) -> list[Int64]:
    """int64[nodes] each: the site of every node, for each way to see sites.

    Args:
        apart: times the longest latency inside a site that there are from any site to another, at least.
    """
    work = float(len(topology.accelerators)) * topology.link_count
    network = build_network(topology.delayed, float(c.size_bytes), True, work)
    found = []
    for label in server_labels(topology, network, c.ranks):
        inside = label[network.src] == label[network.dst]
        if network.latency_s[~inside].min(initial=np.inf) >= apart * network.latency_s[inside].max(initial=0.0):
            found.append(label)
    return found


def _is_asked(request: Request) -> bool:
    """Whether sites are so far apart that what happens inside them takes little time."""
    c = request.workload.collectives[0]
    return not request.topology.planes and bool(_labels(request.topology, c, APART))


def _refusal(topology: Topology, workload: Workload) -> str | None:
    reason = over_links(topology, workload)
    if reason is None and len(workload.collectives) > 1:
        reason = "it plans one collective at a time"
    if reason is None and not _labels(topology, workload.collectives[0]):
        reason = "its ranks are not in several sites or servers"
    return reason


def _steps(request: Request) -> float:
    return 100_000.0 + 2.0 * request.deliveries


@register(
    "by-sites",
    collectives=("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce"),
    topologies="with several sites or servers, without planes",
    paper="our own",
    options=OPTIONS,
    messages=True,
    cuts=True,
    compares=True,
    serves=_refusal,
    auto=Candidate(_steps, leads=True, few_messages=True, asked=_is_asked),
)
def by_sites(request: Request, *, planner: str = "auto") -> Plan:
    """Plans between sites as if each were one accelerator.

    Args:
        planner: what plans between sites.
    Returns:
        A plan in ready-order.
    """
    topology, (c,) = request.topology, request.workload.collectives
    if c.reduces and not c.traits.reduces_to_all:
        return _backwards(request, planner)
    plans: list[Plan] = []
    refusal: StrettoError | None = None
    for label in _labels(topology, c):
        try:
            plans.extend(_of_sites(label, request, planner))
        except StrettoError as error:
            refusal = error
    if not plans:
        raise refusal or Unsupported("by-sites found no sites")
    return best(plans)


def _backwards(request: Request, planner: str) -> Plan:
    topology, (c,) = request.topology, request.workload.collectives
    turned = replace(
        topology, src=topology.dst, dst=topology.src, replicates=np.zeros(topology.node_count, dtype=np.bool_),
        kind=np.where(topology.forwarding == ROUTER, SWITCH, topology.kind).astype(np.int8),
    )
    mirror = make_collective(c.traits.mirror, topology, c.size_bytes, ranks=c.ranks.tolist(), root=max(c.root, 0))
    plan = by_sites(replace(request, topology=turned, workload=Workload((mirror,))), planner=planner)
    (m,) = plan.workload.collectives
    fine = replace(c, chunk_piece=m.chunk_piece, chunk_offset=m.chunk_offset, chunk_bytes=m.chunk_bytes)
    return backwards(plan, topology, Workload((fine,))).noted(plan.meta)


def _of_sites(label: Int64, request: Request, planner: str) -> list[Plan]:
    topology, (c,) = request.topology, request.workload.collectives
    net = Contraction.of(topology, label)
    workload, of = net.workload(c)
    own = replace(request, topology=net.topology, workload=workload, budget=request.budget.share(EFFORT_SHARE), target=None, kept=None, progress=None)
    between = plan_by(planner, own)
    between = between.expand() if isinstance(between, SymmetricPlan) else between

    budget = request.budget.with_costs(COSTS)

    def made(parts: int, tree: Tree) -> Plan:
        finer, start_s, seconds = in_parts(between, parts)
        fine, chunks = cut_alike(c, finer.workload.collectives[0], of)
        made = Expansion(net, topology, fine, finer, start_s, seconds, chunks, ways_of(topology).between, tree)
        plan = _scheduled(*made.plan(request.several_chunks), budget)
        budget.charge(MESSAGE_STEPS * message_count(plan))
        return plan.noted({"between": between.meta.get("chosen", planner), "sites": net.sites, "tree": f"{tree.__name__} {parts}"})

    tried: list[Plan] = []
    parts = 1
    steps = 0.0
    while not tried or (_gains(tried) and parts * steps <= budget.left):
        try:
            tried.append(made(parts, star))
        except Unsupported:
            if not tried:
                raise
            break
        steps = MESSAGE_STEPS * message_count(tried[-1]) / parts
        parts *= 2
    fewest = 1 << tried.index(best(tried))
    if fewest * steps <= budget.left:
        tried.append(made(fewest, binomial))
    return tried


def _gains(plans: list[Plan]) -> bool:
    """Whether finer parts may be better: the finest so far gained ``GAIN`` at least."""
    return len(plans) == 1 or completion_s(plans[-1]) < (1 - GAIN) * completion_s(plans[-2])


def _scheduled(plan: Plan, start_s: Float64, seconds: Float64, budget: Budget) -> Plan:
    """A plan with times: those that it has between sites, or those of a list schedule.

    Args:
        start_s, seconds: of each transfer, by the plan between sites.
    """
    messages, rows = messages_of(plan), np.arange(plan.transfer_count)
    sent, first, of = (plan, rows, rows) if messages is None else (messages.merged, messages.first, messages.of)
    least = plan.topology.route_s(sent.route, sent.size_bytes)
    problem = replace(SchedulingProblem.of(sent, np.arange(len(least))))

    def timed(start_s: Float64, seconds: Float64) -> Plan:
        start_s = simulate(settled(sent, start_s, seconds)).start_s
        return replace(plan, sharing="timed", start_s=start_s[of], finish_s=ends(start_s, seconds)[of])

    plans = [timed(start_s[first], np.maximum(seconds[first], least))]
    if len(least) <= MOST_LISTED:
        free_s = np.zeros(len(least))
        start_s = problem.list_schedule(np.arange(len(least)), free_s, budget)
        plans.append(timed(problem.justified(start_s, free_s, 0.0, Limits(ROUNDS, budget)), least))
    return best(plans)


def in_parts(plan: Plan, parts: int) -> tuple[Plan, Float64, Float64]:
    """A plan with every chunk cut into parts, each of which goes as the chunk did, and when each transfer may start.

    Raises:
        Unsupported: some chunk is too small.
    """
    line, count, (c,) = simulate(plan), plan.transfer_count, plan.workload.collectives
    if parts == 1:
        return plan, line.start_s, line.finish_s - line.start_s
    if c.chunk_bytes.min() < parts:
        raise Unsupported("by-sites cuts chunks of no bytes")
    each, part = (of.ravel() for of in np.indices((count, parts)))
    chunk, place = (of.ravel() for of in np.indices((c.chunk_count, parts)))
    edge = [c.chunk_bytes[chunk] * (place + k) // parts for k in (0, 1)]
    fine = replace(
        c, chunk_piece=c.chunk_piece[chunk], chunk_offset=c.chunk_offset[chunk] + edge[0], chunk_bytes=edge[1] - edge[0]
    )
    waits = plan.depends.take(each)
    waits = waits.with_values(waits.values * parts + part[waits.owners])
    made = make_plan(
        plan.topology, Workload((fine,)), "ready-order", chunk=plan.chunk[each].astype(np.int64) * parts + part,
        src=plan.src[each], op=plan.op[each], dst=plan.dst.take(each), route=plan.route.take(each), depends=waits,
        forwards=None if plan.forwards is None else plan.forwards[each], meta=plan.meta,
    )  # fmt: skip
    return made, _starts_in_parts(plan, line, parts), np.repeat((line.finish_s - line.start_s) / parts, parts)


def _starts_in_parts(plan: Plan, line: Timeline, parts: int) -> Float64:
    """When the parts of each transfer start if they follow each other, and wait for links as the whole did."""
    start_s, each_s = np.zeros((plan.transfer_count, parts)), (line.finish_s - line.start_s) / parts
    last_s = line.arrival_s[plan.dst.offsets[1:] - 1]
    behind = np.arange(parts)
    for k in range(plan.transfer_count):
        waits = plan.depends[k]
        came_s = (start_s[waits] + (each_s + last_s - line.finish_s)[waits, None]).max(axis=0, initial=0.0)
        came_s += line.start_s[k] - last_s[waits].max(initial=0.0)
        start_s[k] = np.maximum.accumulate(came_s - behind * each_s[k]) + behind * each_s[k]
    return start_s.ravel()
