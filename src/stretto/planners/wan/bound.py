"""A bound on how soon collectives over fixed routes end, on average, which no sharing of links is below.

It holds for rates that vary and for flows that are interrupted at any time. L(S) bounds the time at which a set S of
collectives has ended: its longest chain of flows takes its time, and each link must carry all bytes of S, those of a
flow between what precedes and what follows it (heads and tails, as in job-shop bounds: Carlier, EJOR 1982). Whatever
the order in which collectives end, the j-th does not end before L of the first j. The least sum over all orders, by a
recursion over sets, bounds the mean. With many collectives the j smallest loads of a link bound the j-th end instead.
:mod:`.proof` starts from this bound and raises it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64, Int64, offsets_of
from ...model.plan import Plan
from ...simulate import delays_of
from . import kernel_windows
from .flows import Flows

MOST_SETS = 10
"""Most collectives of which all sets are looked at."""

STEPS_A_HOP = 20.0
"""Steps of the inner loop for each hop and set, about."""


@dataclass(frozen=True)
class FlowBound:
    """Bounds on completions.

    Attributes:
        mean_s: on the weighted mean of completions, seconds.
        last_s: on the end of the last collective, seconds from 0.
    """

    mean_s: float
    last_s: float


def heads_and_tails(plan: Plan, flows: Flows, lag: Float64) -> tuple[Float64, Float64]:
    """float64[flows] twice: the least seconds from 0 to a flow's first byte, and from its last byte to its chain's end.

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
    """The bounds for a plan.

    Args:
        lag: float64[flows], latency from source to receiver.
        weight: float64[collectives], weights of the mean; equal by default.
    """
    head, tail = heads_and_tails(plan, flows, lag)
    collective = flows.flow_collective
    k = flows.collectives
    share = np.full(k, 1.0 / k) if weight is None else weight / weight.sum()
    start_s = np.array([c.start_s for c in plan.workload.collectives])
    longest = np.zeros(k)
    np.maximum.at(longest, collective, head + flows.seconds + tail)
    owners, links = flows.route.owners, flows.route.values.astype(np.int64)
    work = flows.size[owners] / flows.width[links]
    # a link further on may carry the bytes later, and then less time follows
    after = np.maximum(tail[owners] - delays_of(plan).hop_s, 0.0)
    if k > MOST_SETS:
        return _by_load(collective[owners], links, work, head[owners], after, longest, start_s, share)
    order = np.lexsort((head[owners], links))
    rows = owners[order]
    hops = kernel_windows.Hops(
        offsets=offsets_of(np.bincount(links, minlength=len(flows.width))),
        head=head[rows], seconds=work[order], tail=after[order], collective=collective[rows],
    )  # fmt: skip
    steps = STEPS_A_HOP * len(rows) * 2**k
    ends = at_speed(kernel_windows.ends_of_sets, steps)(hops, longest)
    mean = at_speed(kernel_windows.least_sum_of_ends, steps)(ends, share) - share @ start_s
    return FlowBound(float(mean), float(ends[-1]))


def _by_load(
    collective: Int64, links: Int64, work: Float64, head: Float64, tail: Float64, longest: Float64, start_s: Float64,
    share: Float64,
) -> FlowBound:  # fmt: skip
    """The bounds for many collectives.

    Args:
        collective, links: int64[hops].
        work, head, tail: float64[hops], seconds on, before and after the link, at the least.
        longest: float64[collectives], the longest chain.
        start_s, share: float64[collectives], starts, and weights that add up to 1.
    """
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
        # collectives that do not use the link may be among the first to end
        if len(busy):
            ends[k - len(busy) :] = np.maximum(ends[k - len(busy) :], busy)
    # the least weights go with the latest ends
    mean = float(np.sort(share)[::-1] @ ends - share @ start_s)
    return FlowBound(mean, float(ends[-1]))


def lags(plan: Plan) -> Float64:
    """float64[transfers], the latency of each whole route; 0 for a route that branches."""
    latency_s = plan.topology.route_latency_s(plan.route)
    straight: Float64 = np.where(plan.dst.lengths == 1, latency_s, 0.0)
    return straight
