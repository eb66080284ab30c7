"""Long instances that repeat themselves: solve a short one, and repeat what it does.

A pipeline's steps recur for hundreds of periods (two trees: two matchings in turn). What planes do in
the middle of such a run recurs as well, so all but a few of its periods are left out, and the schedule
of what remains is drawn out again by repeating one period's shares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64
from .instance import Instance, completion

LONGEST_PERIOD = 4
"""Steps of the longest period that is looked for."""

KEPT = 12
"""Steps of a run that stay, at least."""


class Run(NamedTuple):
    """Steps ``first`` to ``end``, where each is like the one ``period`` before it."""

    first: int
    end: int
    period: int

    @property
    def left_out(self) -> int:
        """How many periods the short instance goes without."""
        return (self.end - self.first - KEPT) // self.period


def by_repeating(instance: Instance, solve: Callable[[Instance], Float64]) -> Float64 | None:
    """A schedule drawn out from that of a shorter instance, which ``solve`` finds; None where little repeats."""
    runs = [run for run in _runs(instance) if run.left_out > 1]
    if not runs:
        return None
    kept = np.arange(instance.steps)
    for run in reversed(runs):
        kept = np.delete(kept, slice(run.first, run.first + run.left_out * run.period))
    share = solve(instance.only(kept))
    # from the last on, so that what comes before a run keeps its place in the short schedule
    gone = sum(run.left_out * run.period for run in runs)
    for run in reversed(runs):
        gone -= run.left_out * run.period
        first, last = run.first - gone, run.end - run.left_out * run.period - gone
        kept = np.insert(kept, first, np.arange(run.first, run.first + run.left_out * run.period))
        longer, starts = instance.only(kept), range(first, last - run.period + 1, run.period)
        drawn = [_drawn_out(share, start, run) for start in starts]
        share = min(drawn, key=lambda one: completion(longer, one))
    return share


def _drawn_out(share: Float64, start: int, run: Run) -> Float64:
    """A schedule with the shares of one period, those from ``start`` on, as often as was left out."""
    return np.concatenate((share[:start], np.tile(share[start : start + run.period], (run.left_out, 1)), share[start:]))


def _runs(instance: Instance) -> list[Run]:
    """Stretches that repeat with a short period, from the first on; they do not overlap."""
    n, stretches, at = instance.steps, [], 0
    ends = {}
    for period in range(1, min(LONGEST_PERIOD, n - 1) + 1):
        same = np.isclose(instance.volume[period:], instance.volume[:-period], rtol=1e-12, atol=0)
        same &= instance.matching[period:] == instance.matching[:-period]
        broken = np.append(np.flatnonzero(~same), n - period)
        # for each step where the stretch that begins there ends
        ends[period] = broken[np.searchsorted(broken, np.arange(n - period))] + period
    while at < n:
        runs = [Run(at, int(end[at]), period) for period, end in ends.items() if at < len(end)]
        best = max(runs, key=lambda run: run.left_out * run.period, default=None)
        if best is not None and best.left_out > 1:
            stretches.append(best)
            at = best.end
        else:
            at += 1
    return stretches
