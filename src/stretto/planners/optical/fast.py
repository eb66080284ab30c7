"""The fast mode of SWOT: search, polish, and climb; never worse than one-shot and strawman.

A sequence that reads the same backwards (AllReduce by halving and doubling) on planes that are
free at first is solved by its first half: for such planes OPT(1..n) >= OPT(1..a) + OPT(a+1..n), a
schedule run backwards is one, and the two halves meet in equal matchings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .model import FREE, Float64, Instance, completion, ideal, one_shot, strawman
from .polish import polished
from .repeats import by_repeating
from .search import beam

Key = tuple[tuple[float, float, float, int, bytes], ...]

WIDTHS, LONG_WIDTHS = (16, 64), (32,)
"""Beams; wider is not always better, so all count."""

MOST_POLISHED, LONG_POLISHED = 16, 3
"""How many of the best schedules get their linear program; of long ones fewer."""

LONG = 400
"""Steps times planes from which an instance is long: one beam, no climbing."""

MOST_CLIMBS = 150
"""Linear programs that climbing may solve."""


def fast(instance: Instance, grouped: bool = True) -> Float64:
    """A good schedule, in well under a second for up to some hundred steps times planes.

    Args:
        grouped: whether schedules for fewer planes are candidates.
    """
    half = mirrored_half(instance)
    if half is not None:
        share = fast(half, grouped)
        return np.concatenate((share, share[::-1]))
    together = strawman(instance)
    if completion(instance, together) <= ideal(instance) * (1 + 1e-12):
        return together  # one matching, as a ring's: nothing need turn
    known = [s for s in (together, one_shot(instance), *(_in_groups(instance) if grouped else ())) if s is not None]
    long = instance.steps * instance.planes >= LONG
    if long:
        # what is short need not be tried in groups: the whole is
        repeated = by_repeating(instance, partial(fast, grouped=False))
        if repeated is not None:
            return min((repeated, *known), key=partial(completion, instance))
    found = [share for width in (LONG_WIDTHS if long else WIDTHS) for share in beam(instance, width)]
    seen: set[Key] = set()
    found = [s for s in sorted(found, key=lambda s: completion(instance, s)) if _is_new(instance, s > 0, seen)]
    by_time = partial(completion, instance)
    if long:
        return min((*known, *(polished(instance, s) for s in found[:LONG_POLISHED])), key=by_time)
    better = sorted((polished(instance, s) for s in (*found[:MOST_POLISHED], *known)), key=by_time)
    return _climbed(instance, better[:2], seen)


def _in_groups(instance: Instance) -> Iterator[Float64]:
    """Schedules for fewer planes of the same bandwidth in all, which groups of planes can follow.

    So a multiple of planes is never worse; three planes may be worse than two (docs: planners/swot). None where
    planes differ, or cannot be grouped by what they join at first.
    """
    k = instance.planes
    for size in (d for d in range(2, k + 1) if k % d == 0 and all(d % e for e in range(2, d))):
        first = instance.initial.reshape(-1, size)
        if size == k or not instance.alike or (first != first[:, :1]).any():
            continue
        wider = replace(
            instance,
            bandwidth=size * instance.bandwidth[::size],
            latency_s=instance.latency_s[::size],
            turn_s=instance.turn_s[::size],
            initial=first[:, 0],
        )
        yield np.repeat(fast(wider) / size, size, axis=1)


def mirrored_half(instance: Instance) -> Instance | None:
    """The first half of an instance that its second half mirrors, None where it does not."""
    n = instance.steps
    same = np.array_equal(instance.matching, instance.matching[::-1])
    if n < 2 or n % 2 or not same or (instance.initial != FREE).any():
        return None
    if not np.allclose(instance.volume, instance.volume[::-1], rtol=1e-12):
        return None
    return instance.part(0, n // 2)


def _is_new(instance: Instance, serves: NDArray[np.bool_], seen: set[Key]) -> bool:
    """Whether other planes carry other steps than in all before, up to the order of planes that are alike."""
    like = zip(instance.bandwidth, instance.latency_s, instance.turn_s, instance.initial, strict=True)
    key = tuple(sorted((*plane, column.tobytes()) for plane, column in zip(like, serves.T, strict=True)))
    new = key not in seen
    seen.add(key)
    return new


def _climbed(instance: Instance, starts: list[Float64], seen: set[Key]) -> Float64:
    """The best schedule that adding, dropping and exchanging single servings leads to, none tried twice."""
    best = starts[0]
    for share in starts:
        left = MOST_CLIMBS // len(starts)
        improved = True
        while improved and left > 0:
            improved = False
            now = completion(instance, share)
            for serves in _neighbours(share > 0):
                if not _is_new(instance, serves, seen):
                    continue
                left -= 1
                even = serves * instance.bandwidth
                other = polished(instance, even * (instance.volume / even.sum(1))[:, None])
                if completion(instance, other) < now * (1 - 1e-9):
                    share, improved = other, True
                    break
                if left <= 0:
                    break
        if completion(instance, share) < completion(instance, best):
            best = share
    return best


def _neighbours(serves: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
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
