"""A bound on how soon collectives over fixed routes end, on average, which no sharing of links is below.

It holds for rates that vary and for flows that are interrupted at any time. L(S) bounds the time at which a set S of
collectives has ended: its longest chain of flows takes its time, and each link must carry all bytes of S, those of a
flow between what precedes and what follows it (heads and tails, as in job-shop bounds: Carlier, EJOR 1982). Whatever
the order in which collectives end, the j-th does not end before L of the first j. The least sum over all orders, by a
recursion over sets, bounds the mean. With many collectives the j smallest loads of a link bound the j-th end instead.
:mod:`.proof` starts from this bound and raises it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64, offsets_of
from ...simulate import delays_of
from . import kernel_windows
from .flows import Flows

MOST_SETS = 10
"""Most collectives of which all sets are looked at."""

STEPS_A_HOP = 20.0
"""Steps of the inner loop for each hop and set, about."""


class FlowBound(NamedTuple):
    """Bounds on completions, seconds: on their weighted mean, and on the end of the last collective from 0 on."""

    mean_s: float
    last_s: float


def flow_bound(flows: Flows, share: Float64 | None = None) -> FlowBound:
    """The bounds for a plan.

    Args:
        share: float64[collectives], weights of the mean that add up to 1; equal by default.
    """
    k = flows.collectives
    share = np.full(k, 1.0 / k) if share is None else share
    longest = flows.latest(flows.head + flows.seconds + flows.tail)
    # a link further on may carry the bytes later, and then less time follows
    after = np.maximum(flows.tail[flows.owner] - delays_of(flows.plan).hop_s, 0.0)
    if k > MOST_SETS:
        ends = _ends_by_load(flows, after, longest)
        # the least weights go with the latest ends
        total = float(np.sort(share)[::-1] @ ends)
    else:
        head = flows.head[flows.owner]
        order = np.lexsort((head, flows.link))
        hops = kernel_windows.Hops(
            offsets=offsets_of(np.bincount(flows.link, minlength=len(flows.width))), head=head[order],
            seconds=flows.hop_seconds[order], tail=after[order], collective=flows.flow_collective[flows.owner][order],
        )  # fmt: skip
        steps = STEPS_A_HOP * len(order) * 2**k
        ends = at_speed(kernel_windows.ends_of_sets, steps)(hops, longest)
        total = at_speed(kernel_windows.least_sum_of_ends, steps)(ends, share)
    return FlowBound(total - float(share @ flows.start_s), float(ends[-1]))


def _ends_by_load(flows: Flows, after: Float64, longest: Float64) -> Float64:
    """float64[collectives]: no earlier than the j-th of these ends j collectives have ended.

    Args:
        after: float64[hops], the least seconds after the link.
        longest: float64[collectives], the longest chain.
    """
    k, at = len(longest), (flows.link, flows.flow_collective[flows.owner])
    load = np.zeros((len(flows.width), k))
    np.add.at(load, at, flows.hop_seconds)
    first, last = np.full_like(load, np.inf), np.full_like(load, np.inf)
    np.minimum.at(first, at, flows.head[flows.owner])
    np.minimum.at(last, at, after)
    ends = np.sort(longest)
    for e in np.unique(flows.link):
        on = load[e] > 0
        busy = first[e][on].min(initial=np.inf) + np.cumsum(np.sort(load[e][on])) + last[e][on].min(initial=np.inf)
        # collectives that do not use the link may be among the first to end
        ends[k - len(busy) :] = np.maximum(ends[k - len(busy) :], busy)
    return ends
