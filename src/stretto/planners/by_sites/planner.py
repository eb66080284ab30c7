"""by-sites: a plan between sites, each as if it were one accelerator, and what it leads to inside them.

Between sites links are few and slow, and inside them many and fast. So another planner plans who sends what to which
site, on a network with one accelerator for each site (:mod:`.contraction`). That takes no longer where a site has more
ranks, and what all of these have crosses in one message. Then each transfer becomes one between two accelerators of its
sites, and others bring to it what it carries and spread it (:mod:`.expansion`).
Chunks are cut in 2, 4, 8 and so on parts while the plan ends sooner by that, as sites work on one part while the next
one crosses. ReduceScatter and Reduce are the plan for their mirror backwards in time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from ...model.arrays import Int64
from ...model.collective import Workload, make_collective
from ...model.errors import StrettoError
from ...model.messages import message_count
from ...model.plan import Plan
from ...model.symmetric import SymmetricPlan
from ...model.topology import SWITCH, Topology
from ...schedule.backwards import backwards
from ...schedule.best import best, completion_s
from ...schedule.scheduling_problem import COSTS
from ...schedule.servers import FAR_APART, are_far_apart, sites_apart, too_many
from ...schedule.ways import ways_of
from .. import Candidate, Option, Request, over_links, register
from ..run import plan_by
from .contraction import Contraction, cut_in_order
from .expansion import Expansion, Tree, binomial, star
from .parts import Crossing
from .timing import timed

EFFORT_SHARE = 0.5
"""Share of what is left of the effort for the plan between sites."""

FIRST_STEPS, DELIVERY_STEPS, CROSSING_STEPS, MESSAGE_STEPS = 100_000.0, 2.0, 300.0, 20.0
"""Steps (:mod:`stretto.schedule.effort`) of the plan between sites, and for each delivery, transfer between sites and
message of all ranks."""

HANDLINGS = 3e-4, 3e-3, 3e-2
"""What a message between sites counts as where messages cost nothing, as a share of the time that all data takes into
the site of ranks with the narrowest links; the next one where the plan of all ranks would take too long."""

MESSAGES_A_RANK = 4.0
"""For each rank and chunk, messages of an AllReduce inside sites and between them, about."""

LONGEST_TIMES = 8.0
"""Times the effort that the plan of all ranks may take if messages are free and it could have fewer chunks."""

GAIN = 0.005
"""Share of the completion that twice as many parts must gain for these to be cut in two again."""

OPTIONS = (Option("planner", str, "auto", "what plans between sites: PLANNER[+REFINER...]"),)


def _refusal(topology: Topology, workload: Workload) -> str | None:
    c, *others = workload.collectives
    if topology.planes:
        return over_links(topology, workload)
    if others:
        return "it plans one collective at a time"
    if not topology.store_and_forward[topology.accelerators].all():
        return "routes pass through its accelerators"
    if reason := too_many(topology):
        return reason
    return None if sites_apart(topology, c) else "its ranks are not in several sites or servers"


def _steps(request: Request) -> float:
    """Steps that it takes, about. Each rank sends to some that are as many as those of its site."""
    ranks = len(request.workload.collectives[0].ranks)
    return FIRST_STEPS + DELIVERY_STEPS * request.deliveries + MESSAGE_STEPS * ranks**2


@register(
    "by-sites",
    collectives=("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce"),
    topologies="with several sites or servers, without planes",
    paper="our own",
    options=OPTIONS,
    messages=True,
    cuts=True,
    serves=_refusal,
    auto=Candidate(_steps, leads=True, few_messages=True, asked=lambda r: are_far_apart(r.topology, r.workload)),
)
def by_sites(request: Request, *, planner: str = "auto") -> Plan:
    """Plans between sites, each as if it were one accelerator, then inside them.

    Args:
        planner: what plans between sites.
    Returns:
        A timed plan. Its ``meta`` has ``between``, the planner between sites; ``sites``, how many there are;
        ``inside``, how ranks spread what comes; and ``parts``, of each chunk of the plan between sites.
    Raises:
        Unsupported: ranks of a site are not joined, or no planner serves the network of sites.
    """
    (c,) = request.workload.collectives
    mirror = c.traits.mirror
    sites = sites_apart(request.topology, c)
    labels = [label for label, apart in sites if apart >= FAR_APART] or [label for label, _ in sites]
    if c.reduces and not c.traits.reduces_to_all and mirror is not None:
        return _mirrored(labels, request, mirror, planner)
    return _best(labels, request, planner)


def _best(labels: list[Int64], request: Request, planner: str) -> Plan:
    """The plan that ends first, of those for each way to see sites."""
    plans, refusals = list[Plan](), list[StrettoError]()
    for label in labels:
        try:
            plans += _plans(label, request, planner)
        except StrettoError as refusal:
            refusals.append(refusal)
    if not plans:
        raise refusals[-1]
    return best(plans)


def _mirrored(labels: list[Int64], request: Request, kind: str, planner: str) -> Plan:
    """Sums as the copies of the mirrored kind over links that are turned round, backwards in time."""
    topology, (c,) = request.topology, request.workload.collectives
    none = np.zeros(topology.node_count, dtype=np.bool_)
    passed = np.where(topology.is_accelerator, topology.kind, SWITCH).astype(np.int8)
    turned = replace(topology, src=topology.dst, dst=topology.src, kind=passed, replicates=none, reduces=none)
    copied = make_collective(kind, topology, c.size_bytes, ranks=c.ranks.tolist(), root=max(c.root, 0))
    plan = _best(labels, request.for_other_work(topology=turned, workload=Workload((copied,))), planner)
    (cut,) = plan.workload.collectives
    summed = replace(c, chunk_piece=cut.chunk_piece, chunk_offset=cut.chunk_offset, chunk_bytes=cut.chunk_bytes)
    return backwards(plan, topology, Workload((summed,))).noted(plan.meta)


def _plans(label: Int64, request: Request, planner: str) -> list[Plan]:
    """Plans by a plan between sites, and by it in more and more parts."""
    topology, (c,) = request.topology, request.workload.collectives
    net = Contraction.of(topology, label)
    workload, of = net.workload(c)

    def chosen_on(between: Topology) -> Plan:
        share = request.budget.share(EFFORT_SHARE)
        own = request.for_other_work(
            topology=between, workload=workload, budget=share, target=None, kept=None, progress=None
        )
        plan = plan_by(planner, own)
        return replace(plan.expand() if isinstance(plan, SymmetricPlan) else plan, topology=net.topology)

    each, most = float(len(c.ranks)), LONGEST_TIMES * request.budget.most
    for handling in HANDLINGS:
        between = net.handled(c, handling)
        chosen = chosen_on(between)
        if between is net.topology or _steps_inside(chosen, MESSAGES_A_RANK * each) <= most:
            break
    budget, way = request.budget.with_costs(COSTS), ways_of(topology).one

    def made(crossing: Crossing, parts: int, tree: Tree) -> Plan:
        meta, crossing = crossing.plan.meta, crossing.in_parts(parts)
        fine, chunks = cut_in_order(c, crossing.plan.workload.collectives[0], of)
        expanded = Expansion(net, topology, fine, crossing, chunks, way, tree).plan(request.several_chunks)
        plan = timed(*expanded, net, budget)
        budget.charge(_steps_inside(crossing.plan, message_count(plan) / crossing.plan.workload.chunk_count))
        facts = {"between": meta.get("chosen", meta["planner"]), "sites": net.sites}
        return plan.noted({**facts, "inside": tree.__name__, "parts": parts})

    crossing = Crossing.of(chosen)
    plans = [made(crossing, 1, star)]
    parts, smallest = 1, crossing.plan.workload.chunk_bytes.min()
    with suppress(StrettoError):  # pieces of ranks may be too small
        while len(plans) == 1 or completion_s(plans[-1]) < (1 - GAIN) * completion_s(plans[-2]):
            parts *= 2
            if 2 * MESSAGE_STEPS * message_count(plans[-1]) > budget.left or smallest < parts:
                break
            plans.append(made(crossing, parts, star))
    if len(plans) > 1 and completion_s(plans[-1]) > (1 - GAIN) * completion_s(plans[-2]):
        plans.pop()  # of as many transfers, perhaps, but in more messages
    for parts in dict.fromkeys((best(plans).meta["parts"], 1)):
        if MESSAGE_STEPS * message_count(plans[-1]) <= budget.left:
            with suppress(StrettoError):
                plans.append(made(crossing, parts, binomial))
    return plans


def _steps_inside(between: Plan, each: float) -> float:
    """About how many steps it takes to bring what crosses to all ranks, in ``each`` messages for a chunk."""
    return CROSSING_STEPS * between.transfer_count + MESSAGE_STEPS * each * between.workload.chunk_count
