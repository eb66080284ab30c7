"""Plans that divide links by rates: reserved (``rates``, ``weights``) or work-conserving (``fair``, ``priorities``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from ..model.plan import Plan
from ..model.timeline import Timeline
from ..model.topology import Topology
from . import kernel_physics, kernel_rates
from .changing import never_ends
from .completion import completions_s

WORK_CONSERVING = ("fair", "priorities")
"""Ways of sharing in which the active transfers share what is idle."""

BY_RATES = ("rates", "weights", *WORK_CONSERVING)
"""Ways of sharing in which a transfer has a part of a link's bandwidth."""

STEPS_A_TRANSFER = {"fair": 1000.0, "priorities": 1000.0, "rates": 10.0, "weights": 10.0}
"""Steps of the inner loop for each transfer, about."""

STEPS_A_HOP = 4.0
"""The same for each hop of which the delay is computed."""

RESERVATION_TOLERANCE = 1e-9
"""Part of a link's bandwidth by which reserved rates may exceed it before they shrink."""


class Delays(NamedTuple):
    """How much later than its source the links and receivers of a transfer see a byte.

    Attributes:
        hop_s: float64[len(plan.route.values)], seconds, for each link of a route.
        receiver_s: float64[len(plan.dst.values)], seconds, for each receiver.
    """

    hop_s: Float64
    receiver_s: Float64


def delays_of(plan: Plan, work: float | None = None) -> Delays:
    """The delays of a plan over links.

    Args:
        work: steps by which to choose between interpreted and compiled code; those for each hop by default.
    """
    t = plan.topology
    links = kernel_physics.Links(t.src, t.dst, t.latency_s, t.bandwidth, t.message_s)
    steps = STEPS_A_HOP * len(plan.route.values) if work is None else work
    return Delays(*at_speed(kernel_physics.delays, steps)(plan.sources, plan.dst, plan.route, links, t.node_count))


class SharedLinks:
    """A plan over links to run several times, each time with other ranks and weights of its transfers.

    Links are shared work-conservingly: the lowest rank first, weighted max-min within a rank.

    Attributes:
        delays: of the plan's hops and receivers.
    """

    def __init__(self, plan: Plan, *, work: float) -> None:
        """Prepare the runs.

        Args:
            work: steps of the inner loop in all runs together, about; decides whether they are compiled.
        """
        self.delays = delays_of(plan, work)
        self._run = at_speed(kernel_rates.run, work)
        self._transfers = _transfers(plan, self.delays)
        first, changes = plan.topology.bandwidth, plan.topology.changes
        self._widths = kernel_rates.Widths(first, changes.moments_s, changes.widths(first))

    def run(self, rank: Int64, weight: Float64) -> tuple[Float64, Float64]:
        """float64[transfers] twice: when each transfer starts at its source, and when it ends there.

        Args:
            rank: int64[transfers], the lowest number is served first.
            weight: float64[transfers], of a transfer within its rank.
        """
        return self._run(self._transfers, self._widths, rank, weight)


def run(plan: Plan) -> Timeline:
    """The timeline of a plan that shares by rates; see :func:`stretto.simulate.simulate`."""
    work = STEPS_A_TRANSFER[plan.sharing] * plan.transfer_count
    if plan.sharing in WORK_CONSERVING:
        shared = SharedLinks(plan, work=work)
        delays = shared.delays
        start, finish = shared.run(*_ranks_and_weights(plan))
    else:
        delays = delays_of(plan, work)
        transfers, moments_s = _transfers(plan, delays), plan.topology.changes.moments_s
        rates = _reserved_rates(plan, transfers.load)
        start, finish = at_speed(kernel_rates.reserved, work)(transfers, moments_s, rates)
    if np.isinf(finish).any():
        raise never_ends(plan, start, finish)
    arrival = finish[plan.dst.owners] + delays.receiver_s
    return Timeline(plan, start, finish, arrival, delays.hop_s, completions_s(plan, arrival), np.zeros(0))


def _transfers(plan: Plan, delays: Delays) -> kernel_rates.Transfers:
    """The columns of a plan that the kernels read."""
    size_bytes, load = pipes(plan.topology, plan.route, plan.size_bytes)
    return kernel_rates.Transfers(
        sources=plan.sources, dst=plan.dst, route=plan.route, depends=plan.depends,
        next_offsets=plan.dependents.offsets, dependents=plan.dependents.values.astype(np.int64),
        delay_s=delays.receiver_s, size_bytes=size_bytes, load=load, earliest_s=plan.workload.chunk_start_s[plan.chunk],
    )  # fmt: skip


def pipes(topology: Topology, route: Ragged, size_bytes: Int64) -> tuple[Float64, Float64]:
    """Transfers as pipes over routes, with what their messages cost.

    Returns:
        float64[transfers]: the bytes of each pipe, as if the message cost bytes: those that its route, alone and as
        wide as its slowest link, carries in what the message adds to its time.
        float64[hops]: what a link of the route carries for each byte of the pipe.
    """
    slowest = topology.route_bandwidth(route)
    route_s = topology.route_s(route, size_bytes)
    piped = size_bytes + (route_s - size_bytes / slowest) * slowest
    if not topology.message_s.any():
        return piped, np.ones(len(route.values))
    return piped, (size_bytes[route.owners] + topology.message_bytes[route.values]) / piped[route.owners]


def _ranks_and_weights(plan: Plan) -> tuple[Int64, Float64]:
    """int64[transfers] and float64[transfers]: who is served first in a work-conserving plan, and by which weight."""
    weight = np.ones(plan.transfer_count) if plan.weight is None else plan.weight
    if plan.sharing == "fair":
        return np.zeros(plan.transfer_count, dtype=np.int64), weight
    rank = np.unique(-weight, return_inverse=True)[1].astype(np.int64)
    return rank, np.ones(plan.transfer_count)


def _reserved_rates(plan: Plan, load: Float64) -> Float64:
    """float64[moments + 1, transfers], the rate of each transfer before the first change of bandwidth, after it, ...

    Where all that is reserved, with what messages add to it, is more than a link has, rates shrink.

    Args:
        load: float64[hops], what a link of a route carries for each byte of the transfer.
    """
    first = plan.topology.bandwidth
    widths = np.concatenate((first[None], plan.topology.changes.widths(first)))
    owners, links = plan.route.owners, plan.route.values.astype(np.int64)
    group = np.arange(plan.transfer_count) if plan.group is None else plan.group.astype(np.int64)
    share = plan.rate if plan.sharing == "rates" else plan.weight
    assert share is not None, "make_plan asks for it"
    # a group asks of a link the most that one of its transfers does: eqs. (8), (9), (11)
    groups = int(group.max()) + 1
    pairs, row = np.unique(links * groups + group[owners], return_inverse=True)
    asks = np.zeros(len(pairs))
    np.maximum.at(asks, row, share[owners] * load)
    total = np.bincount(pairs // groups, weights=asks, minlength=widths.shape[1])
    rates = np.empty((len(widths), plan.transfer_count))
    for i, width in enumerate(widths):
        scale = width[links] / total[links]
        if plan.sharing == "rates":
            scale[scale > 1 - RESERVATION_TOLERANCE] = 1.0
        rates[i] = share * plan.route.reduced(np.minimum, scale)
    return rates
