"""Where the time went: the chain of events that ends with the last arrival, walked backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..timeline import Timeline

MOST_STEPS = 5_000
TOLERANCE = 1e-9


def critical_path(timeline: Timeline) -> dict[str, Any]:
    """What the time until completion was spent on, along one chain of causes.

    A transfer began when it did because a transfer that it depends on had just come (latency), or
    because one of its links had just come free (that link was busy), or for no reason that the
    plan shows (idle). The walk goes from cause to cause until time zero.

    Returns:
        seconds of "latency", "busy" and "idle", and the links by how long the chain kept them
        busy: ``[{link, seconds}, ...]``, the longest first; "complete" is False where the walk
        was cut short, its rest counted as idle.
    """
    plan = timeline.plan
    spent = {"latency": 0.0, "busy": 0.0, "idle": 0.0}
    on_link: dict[int, float] = {}
    if not len(timeline.arrival_s):
        return {**spent, "links": [], "complete": True}
    owners = plan.route.owners
    begin = timeline.start_s[owners] + timeline.hop_offset_s
    end = timeline.finish_s[owners] + timeline.hop_offset_s
    # for each link its hops by their end
    by_end = np.lexsort((end, plan.route.values))
    first = np.searchsorted(plan.route.values[by_end], np.arange(plan.topology.link_count + 1))

    hit = int(np.argmax(timeline.arrival_s))
    k, until = int(plan.dst.owners[hit]), float(timeline.arrival_s[hit])
    steps = 0
    while until > 0 and steps < MOST_STEPS:
        steps += 1
        start, finish = float(timeline.start_s[k]), float(timeline.finish_s[k])
        sent = min(until, finish)
        spent["latency"] += until - sent
        busy = max(sent - start, 0.0)
        spent["busy"] += busy
        hops = range(int(plan.route.offsets[k]), int(plan.route.offsets[k + 1]))
        slowest = min(hops, key=lambda i: plan.topology.bandwidth[plan.route.values[i]])
        link = int(plan.route.values[slowest])
        on_link[link] = on_link.get(link, 0.0) + busy
        until = start
        cause = _cause(timeline, k, start, hops, by_end, first, begin, end)
        if cause is None:
            spent["idle"] += start
            until = 0.0
            break
        k, moment = cause
        spent["idle"] += max(start - moment, 0.0)
        until = min(moment, start)
    spent["idle"] += until
    ranked = sorted(on_link.items(), key=lambda item: -item[1])
    names = [{"link": plan.topology.link_name(i), "seconds": s} for i, s in ranked[:12]]
    return {**spent, "links": names, "complete": until <= 0 or steps < MOST_STEPS}


def _cause(
    timeline: Timeline, k: int, start: float, hops: range, by_end: Any, first: Any, begin: Any, end: Any
) -> tuple[int, float] | None:
    """The transfer that kept k waiting, and when it stopped doing so: the latest such."""
    plan = timeline.plan
    best: tuple[int, float] | None = None
    for d in map(int, plan.depends[k]):
        for i in range(int(plan.dst.offsets[d]), int(plan.dst.offsets[d + 1])):
            arrival = float(timeline.arrival_s[i])
            if plan.dst.values[i] == plan.src[k] and (best is None or arrival > best[1]):
                best = d, arrival
    slack = TOLERANCE * max(start, 1e-12)
    for i in hops:
        link = int(plan.route.values[i])
        rows = by_end[first[link] : first[link + 1]]
        # the last hop on this link that ended when this one began
        at = int(np.searchsorted(end[rows], begin[i] + slack, side="right")) - 1
        if at < 0:
            continue
        other, moment = int(plan.route.owners[rows[at]]), float(end[rows[at]] - timeline.hop_offset_s[i])
        if other != k and moment <= start + slack and (best is None or moment > best[1] + slack):
            best = other, moment
    return best
