"""Times of a timed plan on links whose bandwidth changes with time.

A timed transfer advances, at each moment between its start and its end, by a constant share of what its route could
carry at that moment. So a share of 1 is the most, and a link carries as much as the sum of its transfers' rates.
"""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64
from ..model.plan import Plan
from ..model.units import format_bandwidth, format_time
from . import kernel_changing
from .findings import LOAD_TOLERANCE, TOLERANCE, Finding, about
from .rounding import ENDS_ULPS, Rounding

STEPS_A_TRANSFER = 10.0
"""Steps of the kernels' inner loops for each transfer, about."""


def wrong_load(plan: Plan, hop_s: Float64, allowed: Rounding) -> Finding | None:
    """The first transfer that is shorter than its route allows, whatever else the links carry; else the first chunk
    that a node which cuts through sends on before it came; else the first crowded link.

    Args:
        hop_s: float64[hops], how much later than its source each link of a route carries the bytes.
        allowed: what rounding may hide.
    """
    assert plan.start_s is not None and plan.finish_s is not None
    fast = _too_fast(plan, hop_s)
    if fast is not None:
        return fast
    pieces = _pieces(plan, hop_s, plan.start_s, plan.finish_s)
    return _early_bytes(plan, hop_s, pieces, allowed.moment_s) or _crowded_link(plan, hop_s, pieces, allowed.drift_s)


def _too_fast(plan: Plan, hop_s: Float64) -> Finding | None:
    assert plan.start_s is not None and plan.finish_s is not None
    rounding_s = ENDS_ULPS * np.spacing(plan.finish_s)
    part = _whole(_pieces(plan, hop_s, plan.start_s - rounding_s, plan.finish_s + rounding_s))
    bad = np.flatnonzero((part < 1 - TOLERANCE) & (plan.route.lengths > 0))
    if not len(bad):
        return None
    k = int(bad[0])
    seconds = format_time(float(plan.finish_s[k] - plan.start_s[k]))
    words = f"takes {seconds}, in which its route, as bandwidths change, carries {100 * part[k]:.4g} % of it"
    return about(plan, "speed", k, words, link=int(plan.route[k][0]))


def _early_bytes(plan: Plan, hop_s: Float64, pieces: kernel_changing.Pieces, rounding_s: float) -> Finding | None:
    assert plan.start_s is not None
    t = plan.topology
    owners = plan.dst.owners
    # the last link of a route to each receiver: a sum may have passed there on its way in
    key = plan.route.owners * t.node_count + t.dst[plan.route.values]
    order = np.argsort(key, kind="stable")
    found = order[np.searchsorted(key[order], owners * t.node_count + plan.dst.values, side="right") - 1]
    delay_s = (hop_s + t.latency_s[plan.route.values])[found]
    work = STEPS_A_TRANSFER * plan.transfer_count
    k, d = at_speed(kernel_changing.left_before_it_came, work)(
        plan.sources, plan.chunk, plan.dst, plan.depends, t.forwarding, delay_s, pieces, rounding_s, TOLERANCE
    )
    if k < 0:
        return None
    words = f"sends bytes on from {t.names[int(plan.src[k])]} before {plan.describe(int(d))} brings them"
    return about(plan, "before-dependency", int(k), words, time_s=float(plan.start_s[k]))


def _crowded_link(plan: Plan, hop_s: Float64, pieces: kernel_changing.Pieces, drift_s: float) -> Finding | None:
    t = plan.topology
    assert plan.start_s is not None
    load_bytes, whole = _load_bytes(plan), _whole(pieces)
    owners, links = plan.route.owners, plan.route.values
    # what a transfer's own time leaves no room for comes at once
    excess = np.maximum(1 - whole[owners], 0.0) * load_bytes
    number = np.diff(pieces.offsets)
    hops = np.repeat(np.arange(len(owners)), number[owners])
    within = np.arange(len(hops)) - np.repeat(np.cumsum(number[owners]) - number[owners], number[owners])
    piece = pieces.offsets[owners[hops]] + within
    before = np.where(within > 0, pieces.part[np.maximum(piece - 1, 0)], 0.0)
    length = pieces.end_s[piece] - pieces.begin_s[piece]
    speed = (pieces.part[piece] - before) / length / np.maximum(whole[owners[hops]], 1.0) * load_bytes[hops]
    moves = speed > 0
    hops, piece, speed = hops[moves], piece[moves], speed[moves]
    begin, end = pieces.begin_s[piece] + hop_s[hops], pieces.end_s[piece] + hop_s[hops]
    late = np.flatnonzero(excess > 0)
    changes = t.changes
    link = np.concatenate((links[hops], links[hops], links[late], changes.link)).astype(np.int64)
    time_s = np.concatenate((begin, end, plan.start_s[owners[late]] + hop_s[late], changes.at_s))
    change = np.concatenate((speed, -speed, np.zeros(len(late) + len(changes))))
    at_once = np.concatenate((np.zeros(2 * len(hops)), excess[late], np.zeros(len(changes))))
    limit = np.full(len(link), -1.0)
    limit[len(link) - len(changes) :] = changes.bandwidth * (1 + LOAD_TOLERANCE)
    who = np.concatenate((owners[hops], owners[hops], owners[late], np.full(len(changes), -1)))
    order = np.lexsort((change, time_s, link))
    load = kernel_changing.Load(
        link[order], time_s[order], change[order], at_once[order], limit[order], t.bandwidth * (1 + LOAD_TOLERANCE),
        changes.best(t.bandwidth) * drift_s,
    )  # fmt: skip
    worst = at_speed(kernel_changing.crowded, float(len(order)))(load)
    if worst < 0:
        return None
    row, when = int(order[worst]), float(time_s[order[worst]])
    over = int(link[row])
    k = int(who[row])
    if k < 0:
        k = int(owners[hops[links[hops] == over][0]])
    name = f"link {t.link_name(over)} of {format_bandwidth(float(t.bandwidth[over]))}, which changes,"
    words = f"shares {name} with more than it can carry at {format_time(when)}"
    return about(plan, "capacity", k, words, link=over, time_s=when)


def _load_bytes(plan: Plan) -> Float64:
    """float64[hops], what each link of a route carries: the transfer's bytes, and those that a message counts as."""
    t, links = plan.topology, plan.route.values
    return plan.size_bytes[plan.route.owners] + t.message_s[links] * t.bandwidth[links]


def _pieces(plan: Plan, hop_s: Float64, begin_s: Float64, end_s: Float64) -> kernel_changing.Pieces:
    t = plan.topology
    widths = kernel_changing.Widths(t.bandwidth, t.changes.offsets(t.link_count), t.changes.at_s, t.changes.bandwidth)
    work = STEPS_A_TRANSFER * plan.transfer_count
    pieces: kernel_changing.Pieces = at_speed(kernel_changing.pieces_of, work)(
        plan.route, hop_s, _load_bytes(plan), begin_s, end_s, widths
    )
    return pieces


def _whole(pieces: kernel_changing.Pieces) -> Float64:
    """float64[transfers], the part of each that could pass in all of its time."""
    ends = pieces.offsets[1:]
    return np.where(ends > pieces.offsets[:-1], np.append(pieces.part, 0.0)[ends - 1], 0.0)
