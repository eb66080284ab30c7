"""Sizes of chunks by a linear program: messages keep their routes, their order and their shares of links, and chunks
get the bytes with which the last message ends soonest.

A chunk's bytes delay what waits for it, and messages cost a fixed time besides. With the order given, every moment is a
sum of these along a chain of messages, so the completion is the largest of finitely many linear functions of the
sizes: a linear program in the sizes, the starts and the seconds that messages take.

Messages that are on a link at the same time share it, and each keeps its share. That never is too much: two messages
of which one left a link before the other came stay in this order. So of messages that are on it at some moment any two
overlapped before. Intervals of which any two overlap have a moment in common. At that moment all of them were on the
link, which carried them. Where a link was never full while a message was on it, the message gets a larger share.

The program decides sizes alone, in units that are coarse beside its tolerance; when messages start follows from these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64, Ragged, distinct
from ..model.chunks import weighted
from ..model.collective import Workload
from ..model.messages import message_count, messages_of
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..model.timeline import Timeline
from ..simulate import simulate
from ..solvers import INFINITY, INTERIOR_ENTRIES_A_UNIT, Model, solve
from .best import completion_s
from .effort import Budget
from .moments import ends, lags_s

MOST_CHUNKS = 100
"""Chunks of a piece that get sizes, at most: more fill pipelines well enough as they are."""

MOST_MESSAGES = 4_000
"""Messages of such a plan, at most."""

LEAST_SHARE = 1 / 16
"""Bytes of the smallest chunk, at least, in those of a chunk of mean size: what is smaller costs a message for little.
Half as much changes less than 0.3 % for Broadcast of 16 MB on sites:3,4, sites:2,8, dgx1, amd:1 and ndv2:4, for no
target or msccl; with twice as much it takes 2 % longer on ndv2:4."""

WORTH = 0.998
"""Times the completion before that a plan with other sizes takes at most, for it to be preferred."""

GRAINS = 1 << 15
"""Units of a chunk of mean size in which sizes are given: one is 3e-5 of it, and the program is right to about 1e-7."""

UNITS, LIKELY_ITERATIONS = 0.5, 30.0
"""Effort of a program at most, in units of :func:`stretto.solvers.solve`, and iterations that it is likely to take."""

OVERLAP = 1e-9
"""Share of the completion by which messages overlap because of rounding."""

COURSE_STEPS = 20.0
"""Steps of effort for each link of each route, for when messages are on links."""


def sized(plan: Plan, budget: Budget, worth: float = WORTH) -> Plan:
    """The plan with chunks of other sizes, where it takes at most ``worth`` times as long; else the plan itself."""
    if budget.exhausted or not _may_be_sized(plan):
        return plan
    (c,) = plan.workload.collectives
    course = _Course.of(plan)
    budget.charge(COURSE_STEPS * len(course.share))
    size = _solved(plan, course, budget.for_solvers(UNITS))
    cut = None if size is None else weighted(c, size / c.chunk_bytes)
    if cut is None:
        return plan
    message_bytes: Float64 = np.bincount(course.message, cut.chunk_bytes[plan.chunk]).astype(np.float64)
    seconds = course.seconds(message_bytes)
    start_s, seconds = course.starts(seconds)[course.message], seconds[course.message]
    new = replace(plan, workload=Workload((cut,)), sharing="timed", start_s=start_s, finish_s=ends(start_s, seconds))
    start_s = simulate(new).start_s
    new = replace(new, start_s=start_s, finish_s=ends(start_s, seconds))
    return new if completion_s(new) <= worth * completion_s(plan) else plan


def _may_be_sized(plan: Plan) -> bool:
    """Whether the moments of a plan of one collective are those of its messages, which are few, and pieces are cut."""
    if plan.sharing not in ("timed", "ready-order") or isinstance(plan, SymmetricPlan):
        return False
    if len(plan.workload.collectives) > 1 or plan.other_src is not None or plan.barriers:
        return False
    net, (c,) = plan.topology, plan.workload.collectives
    if c.start_s or net.planes or net.changes or not net.store_and_forward[plan.src].all():
        return False
    return 0 < message_count(plan) <= MOST_MESSAGES and 1 < np.bincount(c.chunk_piece).max() <= MOST_CHUNKS


class _Course(NamedTuple):
    """The messages of a plan, each as one transfer, when they are on their links, and with what share of each.

    Attributes:
        plan: of messages.
        message: int64[transfers], the message of each.
        line: of the messages.
        share: float64[links of routes].
        before, after: int64[pairs], messages, and behind them moments by which some have left a link: the second does
            not begin before the first ends.
        later_s: float64[pairs], by how much later than that the second begins, at least.
        moments: how many there are.
    """

    plan: Plan
    message: Int64
    line: Timeline
    share: Float64
    before: Int64
    after: Int64
    later_s: Float64
    moments: int

    @classmethod
    def of(cls, plan: Plan) -> _Course:
        messages = messages_of(plan)
        of = np.arange(plan.transfer_count) if messages is None else messages.of
        merged = plan if messages is None else messages.merged
        line, owner, link = simulate(merged), merged.route.owners, merged.route.values
        alone_s = merged.size_bytes[owner] / merged.topology.bandwidth[link] + merged.topology.message_s[link]
        seconds = (line.finish_s - line.start_s)[owner]
        used = np.minimum(alone_s / np.maximum(seconds, np.finfo(float).tiny), 1.0)
        begin_s, end_s = line.start_s[owner] + line.hop_offset_s, line.finish_s[owner] + line.hop_offset_s
        share, pairs, moments = np.ones(len(link)), list[Int64](), 0
        order = np.lexsort((begin_s, link))
        for rows in np.split(order, np.flatnonzero(np.diff(link[order])) + 1):
            share[rows], found = _on_link(begin_s[rows], end_s[rows], used[rows], OVERLAP * line.completion_s)
            events = np.arange(max(0, int(found.max(initial=0)) + 1 - len(rows)))
            pairs.append(np.concatenate((rows, len(link) + moments + events))[found])
            moments += len(events)
        before, after = np.concatenate(pairs, axis=1)
        event = np.concatenate((owner, len(line.start_s) + np.arange(moments)))
        at_s = np.concatenate((line.hop_offset_s, np.zeros(moments)))
        lag_s = lags_s(merged, line.arrival_s - line.finish_s[merged.dst.owners])
        return cls(
            merged, of, line, share, np.concatenate((merged.depends.values, event[before])),
            np.concatenate((merged.depends.owners, event[after])), np.concatenate((lag_s, at_s[before] - at_s[after])),
            moments,
        )  # fmt: skip

    def starts(self, seconds: Float64) -> Float64:
        """float64[messages], when messages that take these seconds start, at the soonest.

        What comes to links late may have to wait for itself by a rounding. So it ends after as many rounds as there are
        events, if not before.
        """
        takes_s = np.concatenate((seconds, np.zeros(self.moments)))
        start_s = np.zeros(len(takes_s))
        for _ in range(len(takes_s)):
            before_s = start_s.copy()
            np.maximum.at(start_s, self.after, (before_s + takes_s)[self.before] + self.later_s)
            if (start_s == before_s).all():
                break
        return start_s[: len(seconds)]

    def seconds(self, size_bytes: Float64) -> Float64:
        """float64[messages], what messages of these bytes take with their shares of links."""
        net, route = self.plan.topology, self.plan.route
        alone_s = net.message_s[route.values] + size_bytes[route.owners] / net.bandwidth[route.values]
        seconds: Float64 = route.reduced(np.maximum, alone_s / self.share)
        return seconds

    def slowest(self) -> tuple[Int64, Float64, Float64]:
        """The links of routes that may be the slowest of their messages: where bytes take longest, and where more of
        the time is not that of bytes. With float64[these], what a message takes besides its bytes, and for each."""
        net, route = self.plan.topology, self.plan.route
        wait_s, per_byte_s = net.message_s[route.values] / self.share, 1 / net.bandwidth[route.values] / self.share
        narrowest = np.lexsort((-wait_s, -per_byte_s, route.owners))[route.offsets[:-1]]
        kept = wait_s > wait_s[narrowest][route.owners]
        kept[narrowest] = True
        hop = np.flatnonzero(kept)
        return hop, wait_s[hop], per_byte_s[hop]


def _on_link(begin_s: Float64, end_s: Float64, used: Float64, near_s: float) -> tuple[Float64, Int64]:
    """The shares of a link that messages may have, and who follows whom.

    Args:
        begin_s: float64[messages], ascending.
        used: float64[messages], the share of the link that each has.
        near_s: seconds, by which messages overlap because of rounding.
    Returns:
        float64[messages], and int64[2, pairs]: the second one is not before the first has left. Beyond the messages are
        moments, ascending, by which all messages have left that left before some other came.
    """
    count = len(begin_s)
    near_s = min(near_s, float((end_s - begin_s).min()) / 2)
    if (end_s[:-1] <= begin_s[1:] + near_s).all():
        return np.ones(count), np.stack((np.arange(count - 1), np.arange(1, count)))
    met = (begin_s <= begin_s[:, None] + near_s) & (end_s > begin_s[:, None] + near_s)
    full = met @ used  # the share of the link that is used when a message comes
    peak = np.where(met.T, full, used[:, None]).max(axis=1)
    by_end = np.argsort(end_s, kind="stable")
    left = np.searchsorted(end_s[by_end], begin_s + near_s, side="right")  # how many left before a message comes
    moment = distinct(left[left > 0])
    place = np.searchsorted(moment, np.arange(1, count + 1))
    ended, follows, chain = place < len(moment), np.flatnonzero(left), count + np.arange(len(moment))
    before = np.concatenate((by_end[ended], chain[:-1], chain[np.searchsorted(moment, left[follows])]))
    after = np.concatenate((chain[place[ended]], chain[1:], follows))
    return np.minimum(used / peak, 1.0), np.stack((before, after))


def _solved(plan: Plan, course: _Course, budget: Budget) -> Float64 | None:
    """float64[chunks], the sizes with which the plan ends soonest; None where no answer is found within the effort.

    Moments are in completions of the plan, sizes in shares of their pieces.
    """
    (c,), messages = plan.workload.collectives, course.plan
    unit_s, count, owner = course.line.completion_s, messages.transfer_count, messages.route.owners
    piece = c.chunk_piece.astype(np.int64)
    mean = 1.0 / np.bincount(piece)[piece]
    model = Model()
    begin = model.columns(count + course.moments, upper=INFINITY)
    takes = model.columns(count, upper=INFINITY)
    share = model.columns(c.chunk_count, lower=LEAST_SHARE * mean)
    end = model.columns(1, upper=INFINITY, cost=1.0)
    model.rows(c.piece_count, 1.0, 1.0, (piece, share, 1.0))
    hop, wait, slope = course.slowest()
    carried = Ragged.grouped(course.message, np.arange(plan.transfer_count), count).take(owner[hop])
    chunk = plan.chunk[carried.values]
    model.rows(
        len(hop), wait / unit_s, INFINITY, (takes[owner[hop]], 1.0),
        (carried.owners, share[chunk], -slope[carried.owners] * c.piece_bytes[piece[chunk]] / unit_s),
    )  # fmt: skip
    last_s = messages.dst.reduced(np.maximum, course.line.arrival_s) - course.line.finish_s
    model.rows(
        count, last_s / unit_s, INFINITY, (end[np.zeros(count, dtype=np.int64)], 1.0), (begin[:count], -1.0),
        (takes, -1.0),
    )  # fmt: skip
    taking = np.concatenate((takes, np.full(course.moments, -1)))[course.before]
    model.rows(
        len(course.before), course.later_s / unit_s, INFINITY, (begin[course.after], 1.0),
        (begin[course.before], -1.0), (taking, -1.0),
    )  # fmt: skip
    if LIKELY_ITERATIONS * model.entry_count > INTERIOR_ENTRIES_A_UNIT * budget.units("units"):
        return None
    answer = solve(model, effort=budget.units("units"), interior=True)
    budget.spend(units=answer.effort)
    if answer.x is None or answer.status != "optimal":
        return None
    grains = np.rint(answer.x[share] / mean * GRAINS)
    size: Float64 = np.maximum(grains * mean / GRAINS * c.piece_bytes[piece], 1.0)
    return size
