"""A bound on when collectives over fixed routes end that sees how flows hold each other up.

Were the collectives to end by given times, every flow would have a window in which it is sent.
Windows are narrowed by what must cross each link (:mod:`stretto.planners.wan.kernel_narrowing`); where they
contradict each other, no sharing of links whatever meets those times: rates may vary, and flows
may be put aside. Which times are refuted in this way bounds the last end by bisection, and the
mean by branch and bound over boxes of ends: a box whose latest ends are refuted holds nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...model.plan import Plan
from . import kernel_narrowing
from .bound import shifts, ways
from .flows import Flows
from .fluid import Fluid

Float64 = NDArray[np.float64]

STEPS = 2e7
"""Pairs of flows on a link looked at by default, over all narrowings: about half a second."""

WORTH = 50
"""Fewer narrowings than so many a collective lead nowhere: by default none is made then."""

PROGRAMS, PROGRAMS_UP_TO = 120, 100
"""How many linear programs are solved by default at most, and of how many flows at most."""

PROGRAM_STEPS = 1.6e10
"""Fifth powers of flows, about as which a program's time grows, over all programs by default: some seconds."""

NARROWINGS_A_PROGRAM = 100
"""One linear program for so many narrowings where they are asked for."""

QUESTIONS = 40
"""Windows of one question are split in several parts where there are programs for so many questions."""

FAR, NEAR = 0.05, 0.01
"""Parts of what was found: linear programs begin and stop where the bound is so much below."""

ROUNDS = 60
FINE = 1e-4
"""Part of what was found to which ends are told apart."""


class Windows:
    """Asks of ends whether they can be met; arrays are made ready once.

    Attributes:
        left: how many more times windows may be narrowed.
        programs: how many more linear programs may be solved.
        splits: how many of them for one question.
    """

    def __init__(self, plan: Plan, flows: Flows, lag: Float64, tries: int = -1) -> None:
        owners, links = flows.route.owners, flows.route.values.astype(np.int64)
        order = np.argsort(links, kind="stable")
        offsets = np.searchsorted(links[order], np.arange(len(flows.width) + 1)).astype(np.int64)
        work, late = flows.size[owners] / flows.width[links], shifts(plan)
        self.fixed = (
            offsets, owners[order], work[order], late[order], flows.seconds, lag,
            plan.depends.offsets.astype(np.int64), plan.depends.values.astype(np.int64),
        )  # fmt: skip
        self.head, self.tail = ways(plan, flows, lag)
        self.waits = plan.depends
        self.collective = flows.collective[flows.group]
        steps = float((np.diff(offsets).astype(np.float64) ** 2).sum())
        affordable = int(STEPS / steps)
        self.left = tries if tries >= 0 else affordable * (affordable >= WORTH * flows.collectives)
        small = len(flows.size) <= PROGRAMS_UP_TO and not late.any() and not lag.any()
        by_default = int(min(PROGRAMS, PROGRAM_STEPS / len(flows.size) ** 5))
        self.programs = small * (by_default if tries < 0 else tries // NARROWINGS_A_PROGRAM)
        self.splits = max(self.programs // QUESTIONS, 1)
        self.fluid = Fluid(plan, flows)
        self.kernel_steps = 10 * steps * self.left

    def narrowed(self, ends: Float64) -> tuple[Float64, Float64] | None:
        """float64[flows] twice, between which each is sent if collectives end by ``ends``; None if they cannot."""
        ready, due = self.head.copy(), ends[self.collective] - self.tail
        return (
            (ready, due)
            if at_speed(kernel_narrowing.narrow, self.kernel_steps)(*self.fixed, ready, due, ROUNDS)
            else None
        )

    def refuted(self, ends: Float64) -> bool:
        """Whether the collectives are known not to end by ``ends``; not, where no tries are left."""
        if self.left <= 0:
            return False
        self.left -= 1
        return self.narrowed(ends) is None

    def unsendable(self, ends: Float64) -> bool:
        """The same by linear programs in what windows are left; not, where no programs are."""
        asked = 0
        open_windows = [(self.head.copy(), ends[self.collective] - self.tail)]
        while open_windows:
            ready, due = open_windows.pop()
            if not at_speed(kernel_narrowing.narrow, self.kernel_steps)(*self.fixed, ready, due, ROUNDS):
                continue
            if self.programs <= 0 or asked == self.splits:
                return False
            self.programs -= 1
            asked += 1
            found = self.fluid.sending(ready, due)
            if found is None:
                continue
            flow, end = found
            if not ready[flow] < end < due[flow]:
                return False
            # that flow ends by then, or those that wait for it begin later
            sooner, later = due.copy(), ready.copy()
            sooner[flow] = end
            rows = self.waits.values == flow
            later[self.waits.owners[rows]] = np.maximum(later[self.waits.owners[rows]], end)
            open_windows += [(later, due), (ready, sooner)]
        return True


def _last_refuted(low: float, high: float, step: float, refuted: Callable[[float], bool]) -> float:
    """By bisection a time in [low, high], below which nothing is possible."""
    while high - low > step:
        middle = (low + high) / 2
        if refuted(middle):
            low = middle
        else:
            high = middle
    return low


def least_last(windows: Windows, low: float, value: float, asked: Float64) -> float:
    """What the time from ``asked`` (float64[collectives]) to the end of all cannot be below, seconds.

    Args:
        low: a bound that is known.
        value: what was found.
    """
    return _last_refuted(low, value, FINE * value, lambda t: windows.refuted(asked + t))


def least_mean(windows: Windows, low: float, value: float, asked: Float64, share: Float64) -> float:
    """What the mean of completions, weighted by ``share``, cannot be below, seconds.

    Args:
        low: a bound that is known.
        value: what was found: no ends that are worse are looked at.
        asked: float64[collectives], when each begins.
    """
    found = value + float(share @ asked)

    def within(first: Float64) -> Float64:
        """The latest ends of those no worse than what was found, given the earliest."""
        latest: Float64 = first + (found - share @ first) / share
        return latest

    def raised(first: Float64, last: Float64) -> tuple[Float64, Float64]:
        """The box without what is refuted at its lower sides."""
        for i in range(len(first)):

            def too_early(end: float, i: int = i) -> bool:
                ends = last.copy()
                ends[i] = end
                return windows.refuted(ends)

            first[i] = _last_refuted(first[i], last[i], max(FINE * found, (last[i] - first[i]) / 20), too_early)
        return first, np.minimum(last, within(first))

    first = asked.copy()
    boxes = [(0.0, 0, *raised(first, within(first)), False)]
    bound, number = low, 0
    while boxes and windows.left > 0:
        mean, _, first, last, answered = heapq.heappop(boxes)
        bound = max(bound, mean)
        side = share * (last - first)
        i = int(side.argmax())
        open_part = 1 - bound / value
        if not answered and NEAR < open_part < FAR and side.sum() < (value - bound) / 2:
            if windows.unsendable(last):
                continue
            answered = True
        if side[i] < FINE * found:
            return bound
        middle = (first[i] + last[i]) / 2
        for upper in (False, True):
            a, b = first.copy(), last.copy()
            (a if upper else b)[i] = middle
            b = np.minimum(b, within(a))
            if (a > b).any() or windows.refuted(b):
                continue
            a, b = raised(a, b)
            number += 1
            if (a <= b).all():
                heapq.heappush(boxes, (float(share @ (a - asked)), number, a, b, answered and bool((b == last).all())))
    # the least of what is open; if nothing is, nothing is better than what was found
    return max(bound, min(boxes[0][0], value) if boxes else value)
