"""The baselines of SWOT, section 4.1, and how the bytes of a step are divided.

All planes turn together (strawman-ICR), each plane holds one matching for good (one-shot), or no
turn costs anything (ideal).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64, Int64
from .instance import FREE, Instance, completion


def level(instance: Instance, volume: float, ready_s: Float64, planes: Int64) -> Float64:
    """float64[planes], the bytes of one step, divided so that all planes that carry a part end together.

    Args:
        ready_s: float64[planes], from when each could begin.
        planes: those that may carry; one that could only begin after the end carries nothing.
    """
    share = np.zeros(instance.planes)
    if volume <= 0 or not len(planes):
        return share
    begin = ready_s[planes] + instance.latency_s[planes]
    order = planes[np.argsort(begin, kind="stable")]
    width, start = instance.bandwidth[order], np.sort(begin)
    # with the first r planes the step ends when their bandwidths have carried it
    until = (volume + np.cumsum(width * start)) / np.cumsum(width)
    r = int(np.flatnonzero(until > start)[-1]) + 1
    share[order[:r]] = width[:r] * (until[r - 1] - start[:r])
    return share


def ideal(instance: Instance) -> float:
    """Completion if turning took no time: every step at full bandwidth, seconds."""
    still = replace(instance, turn_s=np.zeros(instance.planes))
    return completion(still, strawman(still))


def strawman(instance: Instance) -> Float64:
    """The schedule in which all planes carry every step and turn together between steps."""
    everyone = np.arange(instance.planes)
    share = np.zeros((instance.steps, instance.planes))
    holds = instance.initial.copy()
    for i, (volume, matching) in enumerate(zip(instance.volume, instance.matching, strict=True)):
        wait = np.where((holds != matching) & (holds != FREE), instance.turn_s, 0.0)
        share[i] = level(instance, float(volume), wait, everyone)
        holds[:] = matching
    return share


def one_shot(instance: Instance) -> Float64 | None:
    """The best schedule in which each plane holds one matching for the whole collective.

    Planes with a first matching of their own turn once, at the beginning. None where steps need
    more matchings than there are planes.
    """
    kinds, which = np.unique(instance.matching, return_inverse=True)
    if len(kinds) > instance.planes:
        return None
    # the plane that helps most goes where it helps most; for planes that are alike this is optimal,
    # because what one more plane saves falls with each
    owner = np.full(instance.planes, -1)
    order = np.argsort(-instance.bandwidth, kind="stable").tolist()
    total = np.zeros(len(kinds))
    work = np.bincount(which, weights=instance.volume, minlength=len(kinds))
    for p in order:
        width = instance.bandwidth[p]
        unserved = total == 0
        saved = work / np.where(unserved, 1.0, total) - work / (total + width)
        choice = int(np.argmax(np.where(unserved, work, -1.0) if unserved.any() else saved))
        owner[p] = choice
        total[choice] += width
    return _held(instance, kinds, which, _prefer_initial(instance, kinds, owner))


def _prefer_initial(instance: Instance, kinds: Int64, owner: Int64) -> Int64:
    """Among planes of equal bandwidth let those hold a matching that already have it."""
    owner = owner.copy()
    for p in range(instance.planes):
        for q in range(instance.planes):
            same = instance.bandwidth[p] == instance.bandwidth[q] and instance.turn_s[p] == instance.turn_s[q]
            wins = instance.initial[p] == kinds[owner[q]] != kinds[owner[p]] and instance.initial[q] != kinds[owner[q]]
            if same and wins:
                owner[p], owner[q] = owner[q], owner[p]
    return owner


def _held(instance: Instance, kinds: Int64, which: Int64, owner: Int64) -> Float64:
    share = np.zeros((instance.steps, instance.planes))
    now = 0.0
    turned = (instance.initial == FREE) | (instance.initial == kinds[owner])
    ready = np.where(turned, 0.0, instance.turn_s)
    for i in range(instance.steps):
        wait = np.maximum(ready - now, 0.0)
        share[i] = level(instance, float(instance.volume[i]), wait, np.flatnonzero(owner == which[i]))
        span = wait + share[i] / instance.bandwidth + instance.latency_s
        now += float(span[share[i] > 0].max(initial=0.0))
    return share
