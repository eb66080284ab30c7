"""A bound on when collectives over fixed routes end that accounts for how flows delay each other.

If the collectives end by given times, every flow has a window in which it is sent. Windows are narrowed by what must
cross each link (:mod:`stretto.planners.wan.kernel_narrowing`). If they contradict each other, no sharing of links meets
these times, with rates that vary and flows that are interrupted included: the times are *refuted*. Bisection over
refuted times bounds the last end. Branch and bound over boxes of ends bounds the mean: a box whose latest ends are
refuted is empty.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64, offsets_of
from ...schedule.effort import Budget
from ...simulate import delays_of
from . import kernel_narrowing
from .flows import Flows
from .slots import largest_overlap

NARROWING_STEPS = 5e5
"""Most steps of effort for all narrowings by default: about half a second."""

PAIRS_A_STEP = 40
"""Pairs of flows on a link in a step of effort."""

LEAST_NARROWINGS = 50
"""Narrowings for each collective below which none is made by default, since fewer lead nowhere."""

MOST_PROGRAMS = 120
"""Most linear programs by default."""

MOST_FLOWS = 100
"""Most flows for which linear programs are solved."""

PROGRAM_STEPS = 8e6
"""Most steps of effort for all linear programs by default: about 8 s, as ``benchmarks/wan.py --only small`` shows."""

FLOWS_TO_THE_FIFTH_A_STEP = 2000
"""The time of a program grows about with the fifth power of the flows: so much of it is a step of effort."""

NARROWINGS_A_PROGRAM = 100
"""Where narrowings are asked for by number, one linear program is solved for this many of them."""

QUESTIONS = 40
"""Programs for each question are their number divided by this, and at least one."""

PROGRAM_FROM_GAP, PROGRAM_TO_GAP = 0.05, 0.01
"""Linear programs are solved while the bound is below the best plan by a part of it between these two."""

ROUNDS = 60
"""Most rounds of one narrowing."""

RESOLUTION = 1e-4
"""Part of the best plan's value to which ends are distinguished."""

STEPS_A_PAIR = 10
"""Steps of the inner loop for each pair of flows on a link, about."""


class Windows:
    """Answers whether collectives can end by given times.

    Attributes:
        left: how many more times windows may be narrowed.
        programs: how many more linear programs may be solved.
        splits: how many linear programs one question may take.
    """

    def __init__(self, flows: Flows, tries: int = -1, budget: Budget | None = None) -> None:
        """Prepare the questions.

        Args:
            tries: how many times windows may be narrowed; -1 for what the budget allows.
            budget: of steps of effort.
        """
        order = np.argsort(flows.link, kind="stable")
        crowd = np.bincount(flows.link, minlength=len(flows.width))
        delay_s = delays_of(flows.plan).hop_s
        self.flows, self.budget = flows, budget or Budget()
        self.hops = kernel_narrowing.Hops(
            offsets_of(crowd), flows.owner[order], flows.hop_seconds[order], delay_s[order]
        )
        self.chains = kernel_narrowing.Chains(flows.seconds, flows.plan.depends, flows.wait_lag)
        pairs = float((crowd.astype(np.float64) ** 2).sum())
        self._narrowing_steps = pairs / PAIRS_A_STEP
        self._program_steps = len(flows.size) ** 5 / FLOWS_TO_THE_FIFTH_A_STEP
        affordable = int(min(NARROWING_STEPS, self.budget.left) / self._narrowing_steps)
        self.left = tries if tries >= 0 else affordable * (affordable >= LEAST_NARROWINGS * flows.collectives)
        small = len(flows.size) <= MOST_FLOWS and not delay_s.any() and not flows.lag.any()
        by_effort = min(PROGRAM_STEPS, self.budget.left) / self._program_steps
        programs = int(min(MOST_PROGRAMS, by_effort)) if tries < 0 else tries // NARROWINGS_A_PROGRAM
        self.programs = small * programs
        self.splits = max(self.programs // QUESTIONS, 1)
        self._work = STEPS_A_PAIR * pairs * self.left

    def by_chains(self, ends: Float64) -> tuple[Float64, Float64]:
        """float64[flows] twice, between which each flow is sent if collectives end by ``ends``, as chains alone say."""
        return self.flows.head.copy(), ends[self.flows.flow_collective] - self.flows.tail

    def narrow(self, ready: Float64, due: Float64) -> bool:
        """Narrow windows in place, float64[flows] each; False if they contradict each other."""
        self.budget.charge(self._narrowing_steps)
        return at_speed(kernel_narrowing.narrow, self._work)(self.hops, self.chains, ready, due, ROUNDS)

    def refuted(self, ends: Float64) -> bool:
        """Whether the collectives are proven not to end by ``ends``; False where no tries are left."""
        if self.left <= 0:
            return False
        self.left -= 1
        return not self.narrow(*self.by_chains(ends))

    def refuted_by_programs(self, ends: Float64) -> bool:
        """The same by linear programs over the narrowed windows; False where no programs are left."""
        asked = 0
        waits = self.flows.plan.depends
        open_windows = [self.by_chains(ends)]
        while open_windows:
            ready, due = open_windows.pop()
            if not self.narrow(ready, due):
                continue
            if self.programs <= 0 or asked == self.splits:
                return False
            self.programs -= 1
            asked += 1
            self.budget.charge(self._program_steps)
            overlap = largest_overlap(self.flows, ready, due)
            if overlap is None:
                continue
            flow, end = overlap
            if not ready[flow] < end < due[flow]:
                return False
            # either the flow ends by then, or the flows that wait for it begin later
            sooner, later = due.copy(), ready.copy()
            sooner[flow] = end
            waiting = waits.owners[waits.values == flow]
            later[waiting] = np.maximum(later[waiting], end)
            open_windows += [(later, due), (ready, sooner)]
        return True


def _last_refuted(low: float, high: float, step: float, refuted: Callable[[float], bool]) -> float:
    """By bisection a time in [low, high] below which everything is refuted, to within ``step``."""
    while high - low > step:
        middle = (low + high) / 2
        if refuted(middle):
            low = middle
        else:
            high = middle
    return low


def least_last(windows: Windows, low: float, value: float, start_s: Float64) -> float:
    """A bound on the time from ``start_s`` (float64[collectives]) to the end of all collectives, seconds.

    Args:
        low: a bound to raise.
        value: that of the best plan.
    """
    return _last_refuted(low, value, RESOLUTION * value, lambda t: windows.refuted(start_s + t))


def least_mean(windows: Windows, low: float, value: float, start_s: Float64, share: Float64) -> float:
    """A bound on the mean of completions weighted by ``share``, seconds.

    Args:
        low: a bound to raise.
        value: that of the best plan: ends with a worse mean are not looked at.
        start_s: float64[collectives], when each starts.
    """
    mean_end = value + float(share @ start_s)

    def within(first: Float64) -> Float64:
        """The latest end of each collective in a plan no worse than the best, given the earliest ends."""
        latest: Float64 = first + (mean_end - share @ first) / share
        return latest

    def raised(first: Float64, last: Float64) -> tuple[Float64, Float64]:
        """The box without its refuted parts at the lower sides."""
        for i in range(len(first)):

            def too_early(end: float, i: int = i) -> bool:
                ends = last.copy()
                ends[i] = end
                return windows.refuted(ends)

            first[i] = _last_refuted(
                first[i], last[i], max(RESOLUTION * mean_end, (last[i] - first[i]) / 20), too_early
            )
        return first, np.minimum(last, within(first))

    first = start_s.copy()
    boxes = [(0.0, 0, *raised(first, within(first)), False)]
    bound, number = low, 0
    while boxes and windows.left > 0:
        mean, _, first, last, asked = heapq.heappop(boxes)
        bound = max(bound, mean)
        side = share * (last - first)
        i = int(side.argmax())
        gap = 1 - bound / value
        if not asked and PROGRAM_TO_GAP < gap < PROGRAM_FROM_GAP and side.sum() < (value - bound) / 2:
            if windows.refuted_by_programs(last):
                continue
            asked = True
        if side[i] < RESOLUTION * mean_end:
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
                heapq.heappush(boxes, (float(share @ (a - start_s)), number, a, b, asked and bool((b == last).all())))
    # the least mean of an open box; if none is open, no plan is better than the best
    return max(bound, min(boxes[0][0], value) if boxes else value)
