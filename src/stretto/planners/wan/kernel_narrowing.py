"""Windows of flows, narrowed until they agree or contradict each other (:mod:`stretto.planners.wan.proof`).

A flow is sent between its ready time and its deadline. All bytes whose windows lie within a stretch of time must cross
a link in it (Hall's condition, exact for one machine that may be interrupted). That bounds how early a flow can have
ended and how late it can begin, and so narrows the windows of the flows that wait for it and of those it waits for
(preemptive edge finding: Carlier and Pinson, Management Science 1989; Baptiste, Le Pape, Nuijten, "Constraint-Based
Scheduling", 2001).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

TOLERANCE = 1e-9
"""Part of a moment by which a window may be overrun."""


class Lists(Protocol):
    """Lists of different lengths: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    @property
    def offsets(self) -> Int64: ...
    @property
    def values(self) -> Int32: ...


class Hops(NamedTuple):
    """Flows on links, sorted by link."""

    offsets: Int64  # int64[links + 1], where the hops of each link begin
    flow: Int64  # int64[hops]
    seconds: Float64  # float64[hops], the time of the flow on the link
    delay_s: Float64  # float64[hops], how much later than its source the link carries the flow, at most


class Chains(NamedTuple):
    """Flows and what they wait for."""

    seconds: Float64  # float64[flows], the time of each on its whole route alone
    depends: Lists  # for each flow those it waits for, which all have lower numbers
    lag: Float64  # float64[len(depends.values)], latency from each of them to the flow


def narrow(hops: Hops, chains: Chains, ready: Float64, due: Float64, rounds: int) -> bool:
    """Narrow all windows in place; False if they contradict each other, so that no plan keeps to them.

    Args:
        ready, due: float64[flows], no flow begins before and none ends after.
        rounds: most rounds over all chains and links.
    """
    offsets, flow, work, late = hops
    seconds, depends, lag = chains
    dep_offsets, dep_values = depends.offsets, depends.values
    links, count = len(offsets) - 1, len(seconds)
    widest = 0
    for e in range(links):
        widest = max(widest, offsets[e + 1] - offsets[e])
    low, high, load = np.empty(widest), np.empty(widest), np.empty(widest)
    ends, sums = np.empty(widest), np.empty(widest)
    early, last = ready + seconds, due - seconds  # the earliest ends and the latest starts
    for turn in range(rounds):
        moved = False
        for k in range(count):
            for i in range(dep_offsets[k], dep_offsets[k + 1]):
                after = early[dep_values[i]] + lag[i]
                if after > ready[k] + TOLERANCE * abs(after):
                    ready[k] = after
                    moved = True
            early[k] = max(early[k], ready[k] + seconds[k])
        for k in range(count - 1, -1, -1):
            last[k] = min(last[k], due[k] - seconds[k])
            for i in range(dep_offsets[k], dep_offsets[k + 1]):
                d = dep_values[i]
                before = last[k] - lag[i]
                if before < due[d] - TOLERANCE * abs(before):
                    due[d] = before
                    moved = True
        for k in range(count):
            if early[k] > due[k] + TOLERANCE * abs(early[k]):
                return False
        if turn > 0 and not moved:
            break
        for e in range(links):
            base = offsets[e]
            rows = offsets[e + 1] - base
            for mirrored in range(2):
                for x in range(rows):
                    k = flow[base + x]
                    load[x] = work[base + x]
                    if mirrored == 0:
                        low[x], high[x] = ready[k], due[k] + late[base + x]
                    else:
                        low[x], high[x] = -due[k] - late[base + x], -ready[k]
                if rows > 0 and not _earliest_ends(low, high, load, rows, ends, sums):
                    return False
                for x in range(rows):
                    k = flow[base + x]
                    if mirrored == 0:
                        early[k] = max(early[k], ends[x] - late[base + x])
                    else:
                        last[k] = min(last[k], -ends[x])
    return True


def _earliest_ends(low: Float64, high: Float64, work: Float64, count: int, ends: Float64, sums: Float64) -> bool:
    """How early each of a link's flows can have ended, into ``ends``; False if they do not all fit.

    Args:
        low, high, work: float64[count or more], window and time on the link.
        sums: float64[count or more], scratch.
    """
    by_low = np.argsort(low[:count], kind="mergesort")
    by_high = np.argsort(high[:count], kind="mergesort")
    bounded = np.zeros(count, dtype=np.bool_)
    for j in range(count):
        ends[j] = low[j] + work[j]
    for y in range(count - 1, -1, -1):
        until = high[by_high[y]]
        if y < count - 1 and high[by_high[y + 1]] == until:
            continue
        # what must be sent from low[j] until then: it is over at sums[z] at the earliest
        inside = 0.0
        for z in range(count - 1, -1, -1):
            j = by_low[z]
            if high[j] <= until:
                inside += work[j]
            sums[z] = low[j] + inside if inside > 0.0 else -np.inf
        over = -np.inf
        for z in range(count):
            j = by_low[z]
            over = max(over, sums[z])
            # a flow that had ended by ``until`` would have to fit in, too
            if high[j] > until and not bounded[j] and over + work[j] > until:
                ends[j] = max(ends[j], over + work[j])
                bounded[j] = True
        if over > until + TOLERANCE * abs(until):
            return False
    return True
