"""The fast mode of SWOT: a beam search, linear programs for its best, climbing by single servings, and counts.

The schedule is never worse than one-shot, the strawman, or a schedule for fewer planes. A sequence
that mirrors itself is solved by its half (:func:`.instance.mirrored_half`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ...model.arrays import Bool, Float64
from ...model.stop import Stop
from .baselines import ideal, one_shot, strawman
from .beam import beam
from .counts import counts_decide, solve_by_counts
from .instance import Instance, completion, mirrored_half
from .polish import polish
from .repeats import by_repeating

Key = tuple[tuple[float, float, float, int, bytes], ...]

LONG = 400
"""Steps times planes from which an instance is long: one beam, fewer linear programs, no climbing."""

WIDTHS = (16, 64)
"""States that a beam keeps. A wider beam is not always better, so the schedules of all beams count."""

LONG_WIDTHS = (32,)
"""The same for long instances."""

MOST_POLISHED = 16
"""Schedules of the beams whose shares a linear program improves, the best first."""

LONG_POLISHED = 3
"""The same for long instances."""

MOST_CLIMBS = 150
"""Linear programs that climbing may solve."""

CLIMBED = 2
"""Schedules that climbing starts from, the best first."""


def find_schedule(instance: Instance, grouped: bool = True, stop: Stop | None = None) -> Float64:
    """A good schedule, in well under a second for up to some hundred steps times planes.

    Args:
        grouped: whether schedules for fewer planes are candidates.
        stop: the net; once it has fired nothing is climbed.
    """
    half = mirrored_half(instance)
    if half is not None:
        share = find_schedule(half, grouped, stop)
        return np.concatenate((share, share[::-1]))
    together = strawman(instance)
    if completion(instance, together) <= ideal(instance) * (1 + 1e-12):
        return together  # one matching, as a ring's: nothing has to turn
    groups = _in_groups(instance, stop) if grouped else ()
    simple = [s for s in (together, one_shot(instance), *groups) if s is not None]
    long = instance.steps * instance.planes >= LONG
    if long:
        # the short instance need not be tried in groups, since the whole is
        repeated = by_repeating(instance, partial(find_schedule, grouped=False, stop=stop))
        if repeated is not None:
            return min((repeated, *simple), key=partial(completion, instance))
    by_time = partial(completion, instance)
    searched = sorted((s for width in (LONG_WIDTHS if long else WIDTHS) for s in beam(instance, width)), key=by_time)
    seen: set[Key] = set()
    fresh = [s for s in searched if _is_new(instance, s > 0, seen)]
    if long:
        return min((*simple, *(polish(instance, s) for s in fresh[:LONG_POLISHED])), key=by_time)
    better = sorted((polish(instance, s) for s in (*fresh[:MOST_POLISHED], *simple)), key=by_time)
    climbed = _climb(instance, better[:CLIMBED], seen, stop)
    # single servings may not lead from one x to a better one: where x decide, all are enumerated within a small limit
    return solve_by_counts(instance, climbed, stop, quick=True).share if counts_decide(instance) else climbed


def _in_groups(instance: Instance, stop: Stop | None) -> Iterator[Float64]:
    """Schedules for fewer planes of the same bandwidth in all, which groups of planes can follow.

    So a multiple of planes is never worse; three planes may be worse than two (docs: planners/swot). None where
    planes differ, or cannot be grouped by what they join at first.
    """
    k = instance.planes
    for size in (d for d in range(2, k + 1) if k % d == 0 and all(d % e for e in range(2, d))):
        first = instance.initial.reshape(-1, size)
        if size == k or not instance.alike or (first != first[:, :1]).any():
            continue
        wider = instance.only(planes=slice(None, None, size))
        wider = replace(wider, bandwidth=size * wider.bandwidth)
        yield np.repeat(find_schedule(wider, stop=stop) / size, size, axis=1)


def _is_new(instance: Instance, serves: Bool, seen: set[Key]) -> bool:
    """Whether other planes carry other steps than in all before, up to the order of planes that are alike."""
    like = zip(instance.bandwidth, instance.latency_s, instance.turn_s, instance.initial, strict=True)
    key = tuple(sorted((*plane, column.tobytes()) for plane, column in zip(like, serves.T, strict=True)))
    new = key not in seen
    seen.add(key)
    return new


def _climb(instance: Instance, starts: list[Float64], seen: set[Key], stop: Stop | None) -> Float64:
    """The best schedule that adding, dropping and exchanging single servings leads to, none tried twice."""
    best = starts[0]
    for share in starts:
        left = MOST_CLIMBS // len(starts)
        improved = True
        while improved and left > 0 and not (stop is not None and stop.fired):
            improved = False
            now = completion(instance, share)
            for serves in _neighbours(share > 0):
                if not _is_new(instance, serves, seen):
                    continue
                left -= 1
                even = serves * instance.bandwidth
                other = polish(instance, even * (instance.volume / even.sum(1))[:, None])
                if completion(instance, other) < now * (1 - 1e-9):
                    share, improved = other, True
                    break
                if left <= 0:
                    break
        if completion(instance, share) < completion(instance, best):
            best = share
    return best


def _neighbours(serves: Bool) -> Iterator[Bool]:
    """All ways to add, drop or exchange one serving."""
    n, k = serves.shape
    for i in range(n):
        for p in range(k):
            other = serves.copy()
            other[i, p] = not serves[i, p]
            if other[i].any():
                yield other
            for q in range(k):
                if serves[i, p] and not serves[i, q]:
                    other = serves.copy()
                    other[i, p], other[i, q] = False, True
                    yield other
