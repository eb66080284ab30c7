"""No transfer is faster than its route, and no link carries more than its bandwidth."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64
from ..model.plan import Plan
from ..model.symmetry import Symmetry
from ..model.units import format_bandwidth, format_time
from . import kernel_referee
from .findings import LOAD_TOLERANCE, TOLERANCE, Finding, about
from .planes import ports_of
from .rounding import ENDS_ULPS, Rounding


def too_fast(plan: Plan) -> Finding | None:
    """The first transfer of a plan with times or rates that is faster than the slowest link of its route."""
    topology, message_s = plan.topology, np.zeros(plan.topology.link_count)
    if plan.sharing == "timed" and plan.start_s is not None and plan.finish_s is not None:
        if topology.changes:
            return None  # :mod:`.changing` looks at times and loads together
        seconds, message_s = plan.finish_s - plan.start_s, topology.message_s
    elif plan.rate is not None:
        with np.errstate(divide="ignore"):
            seconds = plan.size_bytes / plan.rate
    else:
        return None
    owners, links = plan.route.owners, plan.route.values
    most = seconds * (1 + TOLERANCE)
    if plan.finish_s is not None:
        most += ENDS_ULPS * np.spacing(plan.finish_s)
    width = topology.bandwidth[links]
    bad = np.flatnonzero(most[owners] < plan.size_bytes[owners] / width + message_s[links])
    if not len(bad):
        rows, ports, widths = ports_of(plan)
        bad = np.flatnonzero(most[rows] < plan.size_bytes[rows] / widths[ports])
        if not len(bad):
            return None
        k = int(rows[bad[0]])
        words = f"takes {format_time(float(seconds[k]))}, faster than a port of plane {_plane(plan, k)} allows"
        return about(plan, "speed", k, words)
    k, link = int(owners[bad[0]]), int(links[bad[0]])
    words = (
        f"takes {format_time(float(seconds[k]))}, which is faster than link {plan.topology.link_name(link)} "
        f"of {format_bandwidth(float(width[bad[0]]))} allows"
    )
    return about(plan, "speed", k, words, link=link)


def crowded_link(plan: Plan, hop_s: Float64, allowed: Rounding, symmetry: Symmetry | None = None) -> Finding | None:
    """The first moment of a timed plan at which a link carries more than its bandwidth: a sweep over each link.

    Args:
        hop_s: float64[hops], how much later than its source each link of a route carries the bytes.
        allowed: what rounding may hide.
        symmetry: the group whose images of the plan share the links. All links of an orbit carry what each does.
    """
    assert plan.start_s is not None and plan.finish_s is not None
    rows, ports, widths = ports_of(plan)
    owners = np.concatenate((plan.route.owners, rows))
    route = plan.route.values if symmetry is None else symmetry.link_orbits[plan.route.values]
    copies = np.ones(len(owners), np.int64) if symmetry is None else symmetry.copies[plan.route.values]
    links = np.concatenate((route, plan.topology.link_count + ports))
    width = np.concatenate((plan.topology.bandwidth, widths))
    later = np.concatenate((hop_s, np.zeros(len(rows))))
    begin, end = plan.start_s[owners] + later, plan.finish_s[owners] + later
    # what a link cannot carry in a transfer's time, all of it where that is no time, comes at once
    message_s = np.concatenate((plan.topology.message_s, np.zeros(len(widths))))
    takes, size = end - begin, plan.size_bytes[owners] + message_s[links] * width[links]
    timed = takes > 0
    speed = copies * np.minimum(np.divide(size, takes, out=np.zeros(len(size)), where=timed), width[links])
    excess = copies * np.maximum(size - width[links] * takes, 0.0)
    n = len(owners)
    link2, time2 = np.concatenate((links, links)), np.concatenate((begin, end))
    change = np.concatenate((speed, -speed))
    order = np.lexsort((change, time2, link2))
    # most links serve one transfer at a time
    number = np.concatenate((copies, copies)) * np.sign(change)
    active = np.cumsum(number[order].astype(np.int64))
    suspect = np.zeros(len(width), dtype=np.bool_)
    suspect[link2[order][active > 1]] = True
    suspect[links[excess > 0]] = True
    order = order[suspect[link2[order]]]
    load = kernel_referee.Load(
        link2[order], time2[order], change[order], np.concatenate((excess, np.zeros(n)))[order],
        width * (1 + LOAD_TOLERANCE), allowed.drift_s,
    )  # fmt: skip
    worst = at_speed(kernel_referee.crowded, float(len(order)))(load)
    if worst < 0:
        return None
    row = int(order[worst])
    link, k = int(link2[row]), int(owners[row % n])
    when = float(time2[row])
    over_link = link < plan.topology.link_count
    name = f"link {plan.topology.link_name(link)}" if over_link else f"its port of plane {_plane(plan, k)}"
    words = (
        f"shares {name} of {format_bandwidth(float(width[link]))} with more than it can carry at {format_time(when)}"
    )
    return about(plan, "capacity", k, words, link=link if over_link else None, time_s=when)


def crowded_reservations(plan: Plan) -> Finding | None:
    """The first link on which reserved rates exceed the bandwidth in some timing (WAN paper, eqs. 8 and 9, lemma 3).

    In a group each transfer waits for the one before it, so that only one is ever active: the group reserves on a link
    the highest rate of its transfers there. Without groups each transfer is a group.
    """
    if plan.sharing != "rates" or plan.rate is None:
        return None
    group = np.arange(plan.transfer_count) if plan.group is None else plan.group.astype(np.int64)
    order = np.argsort(group, kind="stable")
    follows = np.flatnonzero(group[order][1:] == group[order][:-1])
    later, earlier = order[1:][follows], order[:-1][follows]
    waits = plan.depends.owners * plan.transfer_count + plan.depends.values
    free = np.flatnonzero(~np.isin(later * plan.transfer_count + earlier, waits))
    if len(free):
        k, other = int(later[free[0]]), int(earlier[free[0]])
        return about(plan, "group", k, f"does not wait for {plan.describe(other)}, which is before it in its group")
    owners, links = plan.route.owners, plan.route.values.astype(np.int64)
    # by link and group, the fastest transfer last
    by = np.lexsort((plan.rate[owners], group[owners], links))
    last = np.ones(len(by), dtype=np.bool_)
    last[:-1] = (links[by][1:] != links[by][:-1]) | (group[owners][by][1:] != group[owners][by][:-1])
    top = by[last]
    reserved = np.bincount(links[top], weights=plan.rate[owners[top]], minlength=plan.topology.link_count)
    over = np.flatnonzero(reserved > plan.topology.bandwidth * (1 + LOAD_TOLERANCE))
    if not len(over):
        return None
    link = int(over[0])
    k = int(owners[top[links[top] == link][-1]])
    words = (
        f"shares link {plan.topology.link_name(link)} of {format_bandwidth(float(plan.topology.bandwidth[link]))}, "
        f"on which groups reserve {format_bandwidth(float(reserved[link]))}"
    )
    return about(plan, "capacity", k, words, link=link)


def _plane(plan: Plan, k: int) -> int:
    return -1 if plan.plane is None else int(plan.plane[k])
