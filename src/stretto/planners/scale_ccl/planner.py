"""SCALE-CCL: collectives across datacenters by an event-driven synthesizer.

Xiong, Zhang, Medagliani, Ferrero, Liu, Lian, Di Cicco, Musumeci, Zhao, Ibrahimi, Tornatore,
"SCALE-CCL: A Scalable Collective Communication Library for Wide-Area Distributed Training",
INET4AI 2025, section 4. Time runs from event to event (a transmission starts or is complete, a
reception starts or is complete); at each, chunks are given to neighbours (Load-Aware Neighbour
Forwarding) and every idle link takes one (Subchunk Scheduling). No route is computed: routes are
what happened.

``rules=paper`` is the published algorithm (:mod:`stretto.planners.scale_ccl.kernel_subchunks`), ``rules=eager`` our
own within the same loop (:mod:`stretto.planners.scale_ccl.kernel_forwarding`).
"""

from __future__ import annotations

from time import monotonic as clock

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...model.collective import Workload
from ...model.errors import Infeasible, InputError, Unsupported
from ...model.kinds import KINDS
from ...model.plan import Plan
from ...model.topology import ROUTER, SWITCH, Topology
from ...schedule.inversion import Transfers, plan_in_phases
from ...schedule.pipes import HELD, LACKS_WANTED, Goals, Network, build_network, set_goals
from ...schedule.trees import divide
from ...simulate import simulate
from .. import Candidate, Option, Progress, over_links, per_delivery, register
from . import kernel_forwarding, kernel_subchunks

TRIES = ((0.5, 4), (0.5, 0), (0.0, 0))
"""Patience (how long a slow link leaves a chunk to others), and how many steps of a token may lead no nearer to its
goal, in turn; the first of the best is kept."""

ONE_TRY_WORK = 5_000_000
"""With more steps than this, only the first is tried."""

LEAST_GAIN = 0.01
"""With ``split=0`` chunks are halved as long as that brings the completion so much nearer."""

MOST_LOOKED = 16
"""Among how many chunks a slow link chooses."""

Sent = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""Pipe, chunk, parent (the transfer that brought the chunk, -1 if it was held), start, seconds of each transfer."""

OPTIONS = (
    Option("rules", str, "eager", "our own choices, or the paper's", ("eager", "paper")),
    Option("patience", float, -1.0, "how long a slow link leaves a chunk to faster ones; -1 tries several"),
    Option("split", int, 1, "cut every chunk into so many more; 0 halves them as long as that gains 1 %"),
    Option("queue", float, 2.0, "in f(link, buffer, progress), how much a second queued for the link counts"),
    Option("occupancy", float, 0.0, "there, with rules=paper, a second queued at the neighbour"),
    Option("delivered", float, 0.0, "there, with rules=paper, the share of the chunk that the neighbour has"),
)


MOST_PLAIN = 16
"""Accelerators up to which a network without routers and switches may join datacenters."""


def _joins_sites(topology: Topology) -> bool:
    """Whether a network may join datacenters. On others its event loop can take minutes."""
    routers, switches = (topology.kind == ROUTER).any(), (topology.kind == SWITCH).any()
    return bool(routers or (not switches and len(topology.accelerators) <= MOST_PLAIN))


@register(
    "scale-ccl",
    collectives=(*KINDS, "multicast"),
    topologies="any without planes",
    paper="Xiong et al., INET4AI 2025, section 4",
    options=OPTIONS,
    serves=over_links,
    auto=Candidate(80, per_delivery(200, first=5_000), suits=_joins_sites),
    tune=10,
    library=60,
)
def scale_ccl(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    rules: str = "eager",
    patience: float = -1.0,
    split: int = 1,
    queue: float = 2.0,
    occupancy: float = 0.0,
    delivered: float = 0.0,
) -> Plan:
    """Chunks move from neighbour to neighbour, event by event, and routes emerge.

    Args:
        seed: taken for uniformity; nothing is random.
        time_limit_s: no new try is begun after it.
        split: with more than 1, or 0, the plan's workload has more chunks than the one given.
    Returns:
        A timed plan.
    Raises:
        InputError: ``split`` is negative.
        Infeasible: some rank has no path from the source.
    """
    if split < 0:
        raise InputError(f"{split} is neither 0 nor a number of parts", "--option split")
    started = clock()

    def in_time() -> bool:
        return time_limit_s is None or clock() - started <= time_limit_s

    def spread(net: Topology, part: Workload, through_routers: bool) -> Transfers:
        work = float(part.chunk_count) * net.link_count
        network = build_network(net, float(part.chunk_bytes.mean()), through_routers, work)
        goals = set_goals(net, network, part, work)
        if rules == "paper":
            return _kept(part, network, _as_published(net, part, network, goals, (queue, occupancy, delivered), work))
        tries = TRIES[:1] if patience >= 0 or work > ONE_TRY_WORK else TRIES
        best: tuple[float, Sent] | None = None
        for number, (waits, aside) in enumerate(tries):
            if best is not None and not in_time():
                break
            if progress is not None:
                progress(number, len(tries), f"patience {waits}")
            waits = patience if patience >= 0 else waits
            sent, finish = _forward(net, part, network, goals, waits, aside, queue, work)
            if best is None or finish < best[0]:
                best = finish, sent
        assert best is not None
        return _kept(part, network, best[1])

    if rules == "paper":
        for c in workload.collectives:
            if c.kind not in ("allgather", "broadcast"):
                raise Unsupported(f"scale-ccl with rules=paper does not serve {c.kind}; rules=eager does")
    parts = max(split, 1)
    plan = plan_in_phases(topology, _cut(workload, parts), spread)
    done = simulate(plan).completion_s if split == 0 else 0.0
    while split == 0 and in_time() and 2 * parts * workload.chunk_count * topology.link_count <= ONE_TRY_WORK:
        finer = plan_in_phases(topology, _cut(workload, 2 * parts), spread)
        then = simulate(finer).completion_s
        if then > done * (1 - LEAST_GAIN):
            break
        plan, done, parts = finer, then, 2 * parts
    return plan


def _cut(workload: Workload, parts: int) -> Workload:
    return workload if parts == 1 else Workload(tuple(divide(c, parts)[0] for c in workload.collectives))


def _forward(
    topology: Topology,
    workload: Workload,
    network: Network,
    goals: Goals,
    patience: float,
    aside: int,
    queue: float,
    work: float,
) -> tuple[Sent, float]:
    holders = workload.chunk_holders
    came = goals.came.copy()
    # who can pass most on chooses first, so that what it gets is near to all others
    reach = np.diff(network.out[0])[network.dst]
    turns = np.argsort(-reach, kind="stable")
    sent, missing, finish = at_speed(kernel_forwarding.forward, max(work, _comparisons(network, goals)))(
        network.src, network.dst, network.hops.offsets, network.hops.values.astype(np.int64), network.late_s,
        network.latency_s, network.per_byte, network.slow, *network.out, *network.into, *network.users,
        topology.forwarding, network.region, network.unlike,
        workload.chunk_bytes.astype(np.float64), workload.chunk_start_s,
        goals.whole_region, holders.offsets, holders.values.astype(np.int64), came,
        goals.offsets, goals.goal, goals.near, goals.single, goals.distance, goals.beside,
        patience, queue, aside, MOST_LOOKED, np.argsort(turns), turns,
    )  # fmt: skip
    if missing:
        raise _unreached(topology, workload, came)
    return sent, finish


def _comparisons(network: Network, goals: Goals) -> float:
    """About how many ways to bring a chunk slow pipes compare; on a fabric of switches this is most of the work.

    A pipe that falls idle wakes those that share a link with it, and each slow one compares all pipes to its node.
    """
    if not network.slow.any():
        return 0.0
    came = goals.came.reshape(len(goals.whole_region), -1)[goals.whole_region]
    sharing, rivals = (int(np.diff(offsets).max()) for offsets, _ in (network.users, network.into))
    return float(np.count_nonzero(came == LACKS_WANTED) * sharing * rivals * network.slow.mean())


def _as_published(
    topology: Topology,
    workload: Workload,
    network: Network,
    goals: Goals,
    weights: tuple[float, float, float],
    work: float,
) -> Sent:
    """The transfers of algorithm 1; for collectives in which everyone gets everything."""
    holders = workload.chunk_holders
    came = goals.came.copy()
    piece = np.concatenate([c.chunk_piece + 0 for c in workload.collectives])
    offset = np.repeat(np.cumsum([0, *(len(c.piece_bytes) for c in workload.collectives[:-1])]),
                       [c.chunk_count for c in workload.collectives])  # fmt: skip
    sent, missing, _ = at_speed(kernel_subchunks.synthesize, work)(
        network.src, network.dst, network.hops.offsets, network.hops.values.astype(np.int64), network.late_s,
        network.latency_s, network.per_byte, *network.out, *network.into, *network.users,
        topology.forwarding, network.region, workload.chunk_bytes.astype(np.float64), workload.chunk_start_s,
        piece.astype(np.int64) + offset, holders.offsets, holders.values.astype(np.int64), came, *weights,
    )  # fmt: skip
    if missing:
        raise _unreached(topology, workload, came)
    result: Sent = sent
    return result


def _unreached(topology: Topology, workload: Workload, came: NDArray[np.int32]) -> Infeasible:
    wanted = workload.chunk_wanted
    lacking = came.reshape(workload.chunk_count, -1)[wanted.owners, wanted.values] < 0
    lacking &= came.reshape(workload.chunk_count, -1)[wanted.owners, wanted.values] != HELD
    k = int(np.flatnonzero(lacking)[0])
    node = topology.names[int(wanted.values[k])]
    return Infeasible(f"{node} cannot be reached from where chunk {int(wanted.owners[k])} is")


def _kept(workload: Workload, network: Network, sent: Sent) -> Transfers:
    """What an event loop sent, without what led nowhere."""
    pipe, chunk, parent, start_s, seconds = sent
    kept = _useful(workload, chunk, network.dst[pipe], parent)
    number = np.cumsum(kept) - 1
    pipe, parent = pipe[kept], parent[kept]
    return Transfers(
        chunk=chunk[kept],
        src=network.src[pipe],
        dst=network.dst[pipe],
        route=network.hops.take(pipe),
        parent=np.where(parent >= 0, number[parent], -1),
        start_s=start_s[kept],
        seconds=seconds[kept],
        arrival_s=start_s[kept] + network.latency_s[pipe] + seconds[kept],
    )


def _useful(
    workload: Workload, chunk: NDArray[np.int64], dst: NDArray[np.int64], parent: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """bool[transfers]: those that bring a chunk to who wants it, and those before them."""
    nodes = int(max(dst.max(initial=0), workload.chunk_wanted.values.max())) + 1
    wanted = np.zeros((workload.chunk_count, nodes), dtype=np.bool_)
    lists = workload.chunk_wanted
    wanted[lists.owners, lists.values] = True
    useful = wanted[chunk, dst]
    fresh = useful
    while True:
        before = parent[fresh]
        before = np.unique(before[before >= 0])
        before = before[~useful[before]]
        if not len(before):
            return useful
        useful = useful.copy()
        useful[before] = True
        fresh = np.zeros_like(useful)
        fresh[before] = True
