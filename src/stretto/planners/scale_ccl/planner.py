"""SCALE-CCL: collectives across datacenters by an event-driven synthesizer (the paper's section 4).

Time runs from event to event (a transmission starts or is complete, a reception starts or is complete). At each event,
chunks are given to neighbours (Load-Aware Neighbour Forwarding) and every idle link takes one (Subchunk Scheduling). No
route is computed: routes are what happened.
"""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...kernels.pipes import Goals, Lists
from ...model.arrays import Bool, Int64
from ...model.collective import Workload, make_collective
from ...model.errors import InputError
from ...model.kinds import EVERY_KIND
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.best import completion_s
from ...schedule.inversion import Transfers, plan_in_phases
from ...schedule.moments import with_and_without
from ...schedule.multicast import tree_work
from ...schedule.pipes import LACKS_WANTED, Network
from ...schedule.trees import divide
from .. import Candidate, Option, Request, over_links, register
from . import kernel_choice, kernel_eager
from .kernel_forwarding import Reading
from .kernel_transmission import Sent
from .published import as_published
from .task import Task, complete, task_of


class Try(NamedTuple):
    """A setting of our rules."""

    patience: float  # of slow links
    aside: int  # how many steps of a token may lead no nearer to its goal
    shared: bool  # whether pipes leave room on their links, and have a second way through routers


TRIES = (Try(0.5, 4, False), Try(0.5, 0, False), Try(0.0, 0, False), Try(0.0, 0, True))
"""What is tried in turn; the one that shares, where some pipe leaves room. A patient one that shares added nothing."""

WAYS = 2
"""Routes from one accelerator to another through routers, where a chunk cannot choose at each router (sums): without a
second one, sums leave the links of a WAN idle that are on no shortest route."""

SHARING_WORK = 3
"""How much more work a try takes that shares links: CPU on leaves and spines of unlike links."""

ONE_TRY_WORK = 5_000_000
"""Chunks times links above which only the first of :data:`TRIES` is made, and chunks are not halved."""

LEAST_GAIN = 0.01
"""Share by which halving the chunks must shorten the plan to be tried once more."""

MOST_LOOKED = 16
"""Among how many chunks a slow link chooses."""

TRY_STEPS, LOOK_STEPS = 2_000.0, 20.0
"""Steps of the kernel's inner loops for a try, and for each chunk and link in it, about."""

COSTS = {"hops": 0.1, "rivals": 0.08}
"""Steps of a try. ``hops``: for each chunk and link of the network; compiled 0.01 to 0.16 us on sites:8,8 to sites:8,32
and torus:4,4. ``rivals``: see :func:`_rivals`; 0.03 to 0.5 us on leaves and spines, h100:4 to h100:32 and rails."""

OPTIONS = (
    Option("rules", str, "eager", "our own rules, or the paper's", ("eager", "paper")),
    Option("patience", float, -1.0, "how long a slow link leaves a chunk to faster ones; -1 tries several"),
    Option("split", int, 1, "the number of parts of each chunk; 0 halves chunks while that gains 1 %"),
    Option("queue", float, 2.0, "in f(link, buffer, progress), how much a second queued for the link counts"),
    Option("occupancy", float, 0.5, "with rules=paper, in f, how much a second queued for or at the neighbour counts"),
    Option("delivered", float, 1.0, "with rules=paper, in f, how much the neighbour's share of the chunk counts"),
    Option(
        "forwarding", str, "every-site",
        "with rules=paper, whether a chunk leaves for every datacenter that lacks it at once, or for one at a time",
        ("every-site", "one-site"),
    ),
    Option(
        "receivers", str, "siblings",
        "with rules=paper, who may get a chunk in place of a router: routers of its datacenter, or all of the sender's",
        ("siblings", "all"),
    ),
    Option(
        "duplicates", str, "figure",
        "with rules=paper, what Algorithm 1 takes for duplicates: as figure 7 has it, or in all queues of P x D",
        ("figure", "all"),
    ),
)  # fmt: skip


def _rivals(topology: Topology, deliveries: float) -> float:
    """About how often a pipe is compared with another one to the same node; through switches this is most of the work.

    A pipe that falls idle wakes those that share a link with it, and each compares all pipes to its node.
    """
    one = Workload((make_collective("broadcast", topology, 1),))
    pipes = tree_work(topology, one) / len(topology.accelerators)
    return deliveries * pipes**2


def _least_steps(request: Request) -> float:
    """Steps of all tries, about."""
    rivals = COSTS["rivals"] * _rivals(request.topology, request.deliveries)
    return 5_000 + 150 * request.deliveries + len(TRIES) * rivals


@register(
    "scale-ccl",
    collectives=EVERY_KIND,
    topologies="any without planes",
    paper="Xiong et al., INET4AI 2025, section 4",
    options=OPTIONS,
    changes=True,
    serves=over_links,
    auto=Candidate(_least_steps),
    tune=10,
)
def scale_ccl(
    request: Request,
    *,
    rules: str = "eager",
    patience: float = -1.0,
    split: int = 1,
    queue: float = 2.0,
    occupancy: float = 0.5,
    delivered: float = 1.0,
    forwarding: str = "every-site",
    receivers: str = "siblings",
    duplicates: str = "figure",
) -> Plan:
    """Chunks move from neighbour to neighbour, event by event, and routes emerge.

    Args:
        split: with more than 1, or 0, the plan's workload has more chunks than the one given.
    Raises:
        InputError: ``split`` is negative.
        Infeasible: some rank has no path from the source.
    """
    topology, workload = request.topology, request.workload
    if split < 0:
        raise InputError(f"{split} is neither 0 nor a number of parts", "option split")
    budget = request.budget.with_costs(COSTS)
    reading = Reading(
        queue, occupancy, delivered, forwarding == "every-site", receivers == "siblings", duplicates == "figure"
    )
    tries = TRIES if patience < 0 else (TRIES[0]._replace(patience=patience), TRIES[-1]._replace(patience=patience))

    def spread(net: Topology, part: Workload, through_routers: bool) -> Transfers:
        work, compares = float(part.chunk_count) * net.link_count, rules == "eager"
        rivals = _rivals(net, float(part.chunk_wanted.lengths.sum())) if compares else 0.0
        budget.require(f"scale-ccl's events for {part.title} on {net.name}", hops=work, rivals=rivals)
        if rules == "paper":
            budget.spend(hops=work)
            task = task_of(net, part, through_routers)
            return _transfers(task, as_published(task, reading))
        best: tuple[Sent, float, Task] | None = None
        tasks: dict[bool, Task] = {}
        for number, each in enumerate(tries if work <= ONE_TRY_WORK else tries[:1]):
            if each.shared not in tasks:
                ways = WAYS if each.shared else 1
                tasks[each.shared] = task_of(net, part, through_routers, each.shared, ways)
            task = tasks[each.shared]
            steps = work * (SHARING_WORK if each.shared else 1)
            if each.shared and not (task.shares or len(task.network.src) > len(tasks[False].network.src)):
                continue
            if best is not None and not budget.allows(hops=steps, rivals=rivals):
                break
            request.tell(number, len(tries), f"patience {each.patience}{', shared links' if each.shared else ''}")
            budget.spend(hops=steps, rivals=rivals)
            fresh = (*_eager(task, each, queue), task)
            best = fresh if best is None else min(best, fresh, key=itemgetter(1))
        assert best is not None
        return _transfers(best[2], best[0])

    parts = max(split, 1)

    def cut_into(parts: int) -> Plan:
        return with_and_without(topology, lambda net: plan_in_phases(net, _cut(workload, parts), spread))

    plan = cut_into(parts)
    end_s = completion_s(plan) if split == 0 else 0.0
    while split == 0 and 2 * parts * workload.chunk_count * topology.link_count <= ONE_TRY_WORK:
        parts *= 2
        rivals = _rivals(topology, float(parts * request.deliveries))
        if not budget.allows(hops=float(parts) * workload.chunk_count * topology.link_count, rivals=rivals):
            break
        finer = cut_into(parts)
        finer_end_s = completion_s(finer)
        if finer_end_s > end_s * (1 - LEAST_GAIN):
            break
        plan, end_s = finer, finer_end_s
    return plan


def _cut(workload: Workload, parts: int) -> Workload:
    return workload if parts == 1 else Workload(tuple(divide(c, parts)[0] for c in workload.collectives))


def _eager(task: Task, each: Try, queue: float) -> tuple[Sent, float]:
    """The transfers by our own rules, and when the last wanted delivery arrives."""
    network, goals = task.network, task.goals
    rules = kernel_choice.Rules(each.patience, queue, each.aside, MOST_LOOKED, network.slow, network.unlike)
    work = TRY_STEPS + LOOK_STEPS * max(task.work, _comparisons(network, goals))
    sent, count, missing, finish_s = at_speed(kernel_eager.spread, work)(
        network.columns, task.share, Lists(*network.into), Lists(*network.users), task.places, task.chunks, goals,
        rules,
    )  # fmt: skip
    return complete(task, sent, count, missing), finish_s


def _comparisons(network: Network, goals: Goals) -> float:
    """About how many ways to bring a chunk slow pipes compare; on a fabric of switches this is most of the work.

    A pipe that falls idle wakes those that share a link with it, and each slow one compares all pipes to its node.
    """
    if not network.slow.any():
        return 0.0
    came = goals.came.reshape(len(goals.whole_region), -1)[goals.whole_region]
    sharing, rivals = (int(np.diff(offsets).max()) for offsets, _ in (network.users, network.into))
    return float(np.count_nonzero(came == LACKS_WANTED) * sharing * rivals * network.slow.mean())


def _transfers(task: Task, sent: Sent) -> Transfers:
    """What was sent, without what led nowhere."""
    network = task.network
    kept = _useful(task, sent.chunk, network.dst[sent.pipe], sent.parent)
    number = np.cumsum(kept) - 1
    pipe, parent = sent.pipe[kept], sent.parent[kept]
    return Transfers(
        chunk=sent.chunk[kept], src=network.src[pipe], dst=network.dst[pipe], route=network.hops.take(pipe),
        parent=np.where(parent >= 0, number[parent], -1),
        start_s=sent.start_s[kept], seconds=sent.seconds[kept], arrival_s=sent.last_s[kept],
    )  # fmt: skip


def _useful(task: Task, chunk: Int64, dst: Int64, parent: Int64) -> Bool:
    """bool[transfers]: those that bring a chunk to who wants it, and those before them."""
    lists = task.workload.chunk_wanted
    wanted = np.zeros((task.workload.chunk_count, task.topology.node_count), dtype=np.bool_)
    wanted[lists.owners, lists.values] = True
    useful: Bool = wanted[chunk, dst]
    fresh = np.flatnonzero(useful)
    while len(fresh):
        before = np.unique(parent[fresh])
        fresh = before[(before >= 0) & ~useful[before]]
        useful[fresh] = True
    return useful
