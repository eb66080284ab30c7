"""Windows of flows, narrowed until they agree or contradict each other (:mod:`stretto.planners.wan.proof`).

A flow is sent between its ready time and its deadline. All bytes whose windows lie within a stretch
of time must cross a link in it (Hall's condition, exact for one machine that may be interrupted),
which says how early a flow can have ended and how late it can begin; whoever waits for it, or it
for whom, has a narrower window then (preemptive edge finding: Carlier and Pinson, Management
Science 1989; Baptiste, Le Pape, Nuijten, "Constraint-Based Scheduling", 2001).
"""

import numpy as np

SLACK = 1e-9


def _earliest_ends(low, high, work, count, ends, sums):
    """How early each of a link's flows can have ended, into ``ends``; False if they do not all fit.

    Args:
        low, high, work: float64[count or more], window and time on the link.
        sums: float64[count or more], scratch.
    """
    by_low = np.argsort(low[:count], kind="mergesort")
    by_high = np.argsort(high[:count], kind="mergesort")
    settled = np.zeros(count, dtype=np.bool_)
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
            if high[j] > until and not settled[j] and over + work[j] > until:
                ends[j] = max(ends[j], over + work[j])
                settled[j] = True
        if over > until + SLACK * abs(until):
            return False
    return True


def narrow(offsets, flow, work, late, seconds, lag, dep_offsets, dep_values, ready, due, rounds):
    """Narrow all windows in place; False if they contradict each other, so that no plan keeps to them.

    Args:
        offsets: int64[links + 1], which rows of the next three are of each link.
        flow, work, late: the flow, its time on the link, and how much later than its source the link
            may see it, seconds.
        seconds, lag: float64[flows], on the whole route alone; latency to the receiver.
        dep_offsets, dep_values: for each flow those it waits for, all earlier.
        ready, due: float64[flows], no flow begins before and none ends after.
        rounds: how often at most.
    """
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
                after = early[dep_values[i]] + lag[dep_values[i]]
                if after > ready[k] + SLACK * abs(after):
                    ready[k] = after
                    moved = True
            early[k] = max(early[k], ready[k] + seconds[k])
        for k in range(count - 1, -1, -1):
            last[k] = min(last[k], due[k] - seconds[k])
            for i in range(dep_offsets[k], dep_offsets[k + 1]):
                d = dep_values[i]
                before = last[k] - lag[d]
                if before < due[d] - SLACK * abs(before):
                    due[d] = before
                    moved = True
        for k in range(count):
            if early[k] > due[k] + SLACK * abs(early[k]):
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
