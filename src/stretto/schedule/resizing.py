"""Plans whose chunks get other sizes: timed again, and tapered.

A chunk is passed on when it has come whole. So the last chunk that crosses the slowest link is passed on behind it, for
as long as its size takes, and small chunks everywhere cost a message each. Chunks that become smaller towards the end
cost few messages and leave little to pass on: where the next hop is four times as fast, each chunk can be passed on
while one of a quarter of its size crosses the slow link. Sums, whose trees are run backwards, want small chunks first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..model.arrays import Float64, Int32, Ragged, offsets_of
from ..model.chunks import weighted
from ..model.collective import Workload
from ..model.plan import REDUCE, Plan
from ..model.symmetric import SymmetricPlan
from ..model.topology import Topology
from ..simulate import simulate
from .best import completion_s
from .dispatch import dispatch
from .effort import Budget
from .in_steps import timed_in_steps
from .moments import ends
from .scheduling_problem import route_numbers

FIRST_OVER_LAST = 4.0
"""Times as many bytes that the largest chunk of a piece gets, compared with the smallest one: this at first, then its
square, its cube and so on, as long as plans end sooner."""

MOST_CHUNKS = 32
"""Chunks of a piece that are tapered, at most. More chunks than this leave next to nothing to pass on."""

WORTH = 0.998
"""Times the completion before that a tapered plan takes at most, for it to be preferred."""

LEAST_S = 1e-300
"""Seconds of a transfer of no bytes."""


def tapered(plan: Plan, budget: Budget) -> Plan:
    """The plan with smaller chunks at one end of its pieces, where it ends sooner so; else the plan itself.

    Either the chunks that arrive last are smaller, or those that set out first. Shares of trees that run side by side
    stay as they are, since their chunks set out and arrive at about the same times.
    """
    collectives = plan.workload.collectives
    if plan.sharing != "timed" or isinstance(plan, SymmetricPlan) or len(collectives) > 1 or plan.topology.planes:
        return plan
    if plan.message is not None:  # its chunks arrive together
        return plan
    if not plan.transfer_count or not 1 < np.bincount(collectives[0].chunk_piece).max() <= MOST_CHUNKS:
        return plan
    best = plan
    for lateness in _latenesses(plan):
        before, weight = plan, FIRST_OVER_LAST**-lateness
        cut = weighted(collectives[0], weight)
        while cut is not None:
            now = timed_again(plan, plan.topology, Workload((cut,)), budget)
            if completion_s(now) > WORTH * completion_s(before):
                break
            before, weight = now, weight * FIRST_OVER_LAST**-lateness
            cut = weighted(collectives[0], weight)
        best = min(best, before, key=completion_s)
    return best


def _latenesses(plan: Plan) -> Iterator[Float64]:
    """float64[chunks] from 0 to 1: how late a chunk arrives among those of its piece; then, how early it sets out."""
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    (c,) = plan.workload.collectives
    for time_s in (plan.finish_s, -plan.start_s):
        latest_s = np.full(c.chunk_count, time_s.min())  # what no transfer carries, too
        np.maximum.at(latest_s, plan.chunk, time_s)
        least_s, most_s = np.full(c.piece_count, np.inf), np.full(c.piece_count, -np.inf)
        np.minimum.at(least_s, c.chunk_piece, latest_s)
        np.maximum.at(most_s, c.chunk_piece, latest_s)
        span_s = (most_s - least_s)[c.chunk_piece]
        after_s = latest_s - least_s[c.chunk_piece]
        yield np.divide(after_s, span_s, out=np.zeros_like(after_s), where=span_s > 0)


def timed_again(plan: Plan, topology: Topology, workload: Workload, budget: Budget) -> Plan:
    """A plan timed again on a network where messages cost something else, or for chunks of other sizes.

    Several ways are tried: transfers keep their shares of their routes, and are put off until their links have room; or
    links serve the transfers by urgency, chunks in the order in which they set out before, or where chunks go the same
    way by their turn among those that do, as trees side by side fill. Messages of several chunks go in ready-order, or
    those of a step side by side.
    """
    new = replace(plan, topology=topology, workload=workload)
    if plan.sharing != "timed" or plan.start_s is None or plan.finish_s is None or topology.planes:
        return new
    if plan.message is not None:
        ready = replace(new, sharing="ready-order", start_s=None, finish_s=None)
        return ready if plan.group is None else min(ready, timed_in_steps(ready), key=completion_s)
    alone_s = plan.topology.route_s(plan.route, plan.size_bytes)
    least_s = topology.route_s(new.route, new.size_bytes)
    seconds = np.maximum(least_s * (plan.finish_s - plan.start_s) / np.maximum(alone_s, LEAST_S), least_s)
    line = simulate(replace(new, finish_s=ends(plan.start_s, seconds)))
    plans = [replace(new, start_s=line.start_s, finish_s=ends(line.start_s, seconds))]
    if topology.changes or not plan.transfer_count:
        return plans[0]
    ready = replace(new, sharing="ready-order", start_s=None, finish_s=None)
    plans += [dispatch(ready, position, budget).noted(plan.meta) for position in _positions(plan)]
    return min(plans, key=completion_s)


def _positions(plan: Plan) -> Iterator[Float64]:
    """float64[chunks], from 0 to 1: the place of each chunk among all, by when its first transfer begins; then, where
    chunks go the same way, its place among those that do."""
    assert plan.start_s is not None, "timed"
    count = plan.workload.chunk_count
    first_s = np.full(count, np.inf)
    np.minimum.at(first_s, plan.chunk, plan.start_s)
    yield _places(first_s, np.zeros(count, dtype=np.int32))
    number = 2 * route_numbers(plan.route).astype(np.int64) + (plan.op == REDUCE)
    row = np.lexsort((number, plan.chunk))
    way = route_numbers(Ragged.grouped(plan.chunk[row], number[row], count))
    if int(way.max()) + 1 < count:
        yield _places(first_s, way)


def _places(first_s: Float64, way: Int32) -> Float64:
    """float64[chunks], from 0 to 1: the place of each chunk among those of its way, by when it sets out."""
    row = np.lexsort((first_s, way))
    chunks = np.bincount(way)
    place = np.empty(len(way))
    place[row] = (np.arange(len(way)) - offsets_of(chunks)[way[row]]) / chunks[way[row]]
    return place
