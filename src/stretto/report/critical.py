"""Where the time went: the chain of events that ends with the last arrival, walked backwards."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Float64
from ..model.messages import messages_of
from ..model.plan import Plan
from ..model.timeline import Timeline

MOST_STEPS = 5_000
"""Transfers that the walk visits at most."""
TOLERANCE = 1e-9
"""Relative difference up to which two moments are equal, and share of the completion up to which idle time is none."""


def critical_path(timeline: Timeline) -> dict[str, Any]:
    """How the time until completion was spent, along one chain of causes.

    The walk begins with the last arrival that a rank waits for, and goes back to time zero. A transfer started when it
    did because a transfer on which it depends had just arrived (latency); at a router also because its first byte had
    arrived, or its last byte was on the way; because one of its links had just become free (that link was busy); or
    for a reason that the plan does not show (idle).

    Returns:
        seconds of "latency", "busy", "message", "idle"; links where the chain spent most time, the longest first:
        ``[{link, seconds, latency}, ...]``, seconds of sending and of latency; "complete" is False if the walk
        stopped early, and the rest counts as idle. Of the time for which a transfer keeps its links, what its message
        costs besides the bytes is "message", the rest "busy".
    """
    plan = timeline.plan
    spent = {"latency": 0.0, "busy": 0.0, "message": 0.0, "idle": 0.0}
    on_link: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    if not len(timeline.arrival_s):
        return {**spent, "links": [], "complete": True}
    last = int(np.argmax(np.where(wanted_arrivals(plan), timeline.arrival_s, -1.0)))
    k, until = int(plan.dst.owners[last]), float(timeline.arrival_s[last])
    completion_s = until
    if (messages := messages_of(plan)) is not None:  # a message waits for what each of its chunks waits for
        k, timeline, plan = int(messages.of[k]), messages.course(timeline), messages.merged
    begin, end = hop_times(timeline)
    # for each link its hops by their end
    by_end = np.lexsort((end, plan.route.values))
    first = np.searchsorted(plan.route.values[by_end], np.arange(plan.topology.link_count + 1))

    of_message = _share_of_message(plan)
    latency_s, steps = 0.0, 0  # latency_s: latency of the next hop that a cut-through hides behind its sending
    while (until > 0 or latency_s > 0) and steps < MOST_STEPS:
        steps += 1
        start, finish = float(timeline.start_s[k]), float(timeline.finish_s[k])
        sent = min(until, finish)
        latency_s += until - sent
        spent["latency"] += latency_s
        busy = max(sent - start, 0.0)
        spent["busy"] += busy * (1 - of_message[k])
        spent["message"] += busy * of_message[k]
        hops = range(int(plan.route.offsets[k]), int(plan.route.offsets[k + 1]))
        links = plan.route[k]
        on_link[int(links[plan.topology.bandwidth[links].argmin()])][0] += busy
        on_link[int(links[plan.topology.latency_s[links].argmax()])][1] += latency_s
        until, latency_s = start, 0.0
        cause = _cause(timeline, k, start, hops, by_end, first, begin, end)
        if cause is None:
            spent["idle"] += start
            until = 0.0
            break
        k, moment, latency_s = cause
        spent["idle"] += max(start - moment, 0.0)
        until = min(moment, start) - latency_s
    spent["idle"] += until
    if spent["idle"] < TOLERANCE * completion_s:
        spent["idle"] = 0.0
    ranked = sorted(on_link.items(), key=lambda item: -sum(item[1]))
    names = [{"link": plan.topology.link_name(i), "seconds": s, "latency": late} for i, (s, late) in ranked[:12]]
    return {**spent, "links": names, "complete": until <= 0 or steps < MOST_STEPS}


def _share_of_message(plan: Plan) -> Float64:
    """float64[transfers], of the seconds for which each keeps its slowest link the share that its message costs."""
    net, links = plan.topology, plan.route.values
    seconds = plan.size_bytes[plan.route.owners] / net.bandwidth[links] + net.message_s[links]
    busiest = seconds >= plan.route.reduced(np.maximum, seconds)[plan.route.owners]
    return plan.route.reduced(np.maximum, busiest * net.message_s[links] / seconds)


def hop_times(timeline: Timeline) -> tuple[Float64, Float64]:
    """When each hop of each route begins and ends, seconds."""
    owners = timeline.plan.route.owners
    return timeline.start_s[owners] + timeline.hop_offset_s, timeline.finish_s[owners] + timeline.hop_offset_s


def wanted_arrivals(plan: Plan) -> NDArray[np.bool_]:
    """bool[len(plan.dst.values)], whether each arrival is at a rank that wants the chunk."""
    wanted, nodes = plan.workload.chunk_wanted, plan.topology.node_count
    arrived = plan.chunk[plan.dst.owners].astype(np.int64) * nodes + plan.dst.values
    return np.isin(arrived, wanted.owners * nodes + wanted.values)


def _cause(
    timeline: Timeline, k: int, start: float, hops: range, by_end: Any, first: Any, begin: Any, end: Any
) -> tuple[int, float, float] | None:
    """The transfer for which k waited last, until when, and the latency before that moment.

    The latency is zero unless k cut through: then k started when the first byte had arrived, or such that its last byte
    leaves when it arrives, while the transfer before was still sending.
    """
    plan = timeline.plan
    best: tuple[int, float, float] | None = None
    slack = TOLERANCE * max(start, 1e-12)
    lasts = float(timeline.finish_s[k]) - start
    for d in map(int, plan.depends[k]):
        ends = range(int(plan.dst.offsets[d]), int(plan.dst.offsets[d + 1]))
        here = [i for i in ends if plan.dst.values[i] in plan.sources[k]] or list(ends)
        arrival = max(float(timeline.arrival_s[i]) for i in here)
        latency_s = 0.0
        if arrival > start + slack:
            latency_s = arrival - float(timeline.finish_s[d])
            arrival = min(max(float(timeline.start_s[d]) + latency_s, arrival - lasts), start)
        if best is None or arrival > best[1]:
            best = d, arrival, latency_s
    for i in hops:
        link = int(plan.route.values[i])
        rows = by_end[first[link] : first[link + 1]]
        # the last hop on this link that ended when this one began
        at = int(np.searchsorted(end[rows], begin[i] + slack, side="right")) - 1
        if at < 0:
            continue
        other, moment = int(plan.route.owners[rows[at]]), float(end[rows[at]] - timeline.hop_offset_s[i])
        if other != k and moment <= start + slack and (best is None or moment > best[1] + slack):
            best = other, moment, 0.0
    return best
