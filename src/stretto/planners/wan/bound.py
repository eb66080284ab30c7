"""How soon collectives over fixed routes can end, on average: a bound that no sharing of links beats.

Rates may vary and flows may be put aside at any time. Two facts, for a set S of collectives: its
longest chain of flows takes its time, and over each link all bytes of S must go, those of a flow
neither before what precedes it nor later than what follows it allows (heads and tails, as in
job-shop bounds: Carlier, EJOR 1982). That is L(S), before which S has not ended. In any order of ends
the j-th collective ends no earlier than L of the first j, so the least sum of ends over all orders
bounds the mean; a recursion over sets finds it. With many collectives the j-th to end is bounded
by the j smallest loads of a link instead. :mod:`.wan_proof` starts from this bound and raises it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...model.arrays import Ragged
from ...model.plan import Plan
from ...simulate import delays_of
from . import kernel_windows
from .flows import Flows

Float64 = NDArray[np.float64]

MOST_SETS = 10
"""Up to so many collectives all sets are looked at."""


@dataclass(frozen=True)
class FlowBound:
    """Attributes: mean_s, of completions (weighted); last_s, of the last end, seconds from 0."""

    mean_s: float
    last_s: float


def ways(plan: Plan, flows: Flows, lag: Float64) -> tuple[Float64, Float64]:
    """float64[flows] twice: from 0 to a flow's first byte and from its last byte to its chain's end, at the least.

    Args:
        lag: float64[flows], latency from source to receiver.
    """
    head = plan.workload.chunk_start_s[plan.chunk].copy()
    tail = lag.copy()
    depends = plan.depends
    for k in range(plan.transfer_count):
        for d in depends[k]:
            head[k] = max(head[k], head[d] + flows.seconds[d] + lag[d])
    for k in range(plan.transfer_count - 1, -1, -1):
        for d in depends[k]:
            tail[d] = max(tail[d], lag[d] + flows.seconds[k] + tail[k])
    return head, tail


def flow_bound(plan: Plan, flows: Flows, lag: Float64, weight: Float64 | None = None) -> FlowBound:
    """The bound on the mean completion (by ``weight``, over collectives) and on the last end."""
    head, tail = ways(plan, flows, lag)
    collective = flows.collective[flows.group]
    k = flows.collectives
    share = np.full(k, 1.0 / k) if weight is None else weight / weight.sum()
    began = np.array([c.start_s for c in plan.workload.collectives])
    longest = np.zeros(k)
    np.maximum.at(longest, collective, head + flows.seconds + tail)
    owners, links = flows.route.owners, flows.route.values.astype(np.int64)
    work = flows.size[owners] / flows.width[links]
    # a link further on may see the bytes later, and has less after it then
    after = np.maximum(tail[owners] - shifts(plan), 0.0)
    if k > MOST_SETS:
        return _by_load(collective[owners], links, work, head[owners], after, longest, began, share)
    order = np.lexsort((head[owners], links))
    offsets = np.searchsorted(links[order], np.arange(len(flows.width) + 1)).astype(np.int64)
    rows = owners[order]
    kernel_steps = 20.0 * len(rows) * 2**k
    least = at_speed(kernel_windows.subsets, kernel_steps)(
        offsets, head[rows], work[order], after[order], collective[rows], longest, k
    )
    return FlowBound(
        float(at_speed(kernel_windows.orders, kernel_steps)(least, share) - share @ began), float(least[-1])
    )


def _by_load(
    collective: NDArray[np.int64],
    links: NDArray[np.int64],
    work: Float64,
    head: Float64,
    tail: Float64,
    longest: Float64,
    began: Float64,
    share: Float64,
) -> FlowBound:
    """The bound for many collectives. All but the last two arguments' first five are by hop."""
    k, count = len(longest), int(links.max()) + 1
    load = np.zeros((count, k))
    np.add.at(load, (links, collective), work)
    first, last = np.full((count, k), np.inf), np.full((count, k), np.inf)
    np.minimum.at(first, (links, collective), head)
    np.minimum.at(last, (links, collective), tail)
    ends = np.sort(longest)
    for e in range(count):
        on = load[e] > 0
        busy = first[e][on].min(initial=np.inf) + np.cumsum(np.sort(load[e][on])) + last[e][on].min(initial=np.inf)
        # where collectives do not use the link, they may be among the first to end
        if len(busy):
            ends[k - len(busy) :] = np.maximum(ends[k - len(busy) :], busy)
    # the least weights go with the latest ends
    mean = float(np.sort(share)[::-1] @ ends - share @ began)
    return FlowBound(mean, float(ends[-1]))


def shifts(plan: Plan) -> Float64:
    """float64[hops], how much later than its source each link of a route sees the bytes, where plans are timed."""
    return delays_of(plan).hop_s


def lags(plan: Plan) -> Float64:
    """float64[transfers], the latency of each one's whole route, 0 for a route that branches."""
    route: Ragged = plan.route
    total = plan.topology.route_latency_s(route)
    straight: Float64 = np.where(plan.dst.lengths == 1, total, 0.0)
    return straight
