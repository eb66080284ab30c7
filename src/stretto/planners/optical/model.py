"""The model of SWOT, section 3.2: steps with barriers, planes that carry or turn.

Step i needs ``volume[i]`` bytes a node over circuits of matching ``matching[i]``. The planes that
carry a part of it are those that hold this matching; a transmission takes the plane's latency and
its bytes over its bandwidth. A step begins when the one before it has ended on all planes (P3). A
plane turns as soon as its last transmission has ended (P2), towards the matching of the step that
it carries next (P1); to steps in between it is bypassed.

The baselines are the paper's, section 4.1: all planes turn together (strawman-ICR), each plane
holds one matching for good (one-shot), no turn costs anything (ideal).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

FREE = -1
"""The matching of a plane that may take any as its first, before time zero."""


@dataclass(frozen=True, eq=False)
class Instance:
    """What is to be carried, and by what.

    Attributes:
        volume: float64[steps], bytes a node.
        matching: int64[steps], which matching each step needs, by any numbers of zero or more.
        bandwidth: float64[planes], bytes/s.
        latency_s: float64[planes], of a transmission.
        turn_s: float64[planes], to change the matching.
        initial: int64[planes], the matching at first, or FREE.
    """

    volume: Float64
    matching: Int64
    bandwidth: Float64
    latency_s: Float64
    turn_s: Float64
    initial: Int64

    @property
    def steps(self) -> int:
        return len(self.volume)

    @property
    def planes(self) -> int:
        return len(self.bandwidth)

    @cached_property
    def alike(self) -> bool:
        """Whether planes differ in their first matching at most."""
        columns = (self.bandwidth, self.latency_s, self.turn_s)
        return all(bool((c == c[0]).all()) for c in columns)

    def part(self, first: int, end: int) -> Instance:
        """Steps ``first`` to ``end`` alone, with planes that are free at first."""
        return Instance(
            self.volume[first:end],
            self.matching[first:end],
            self.bandwidth,
            self.latency_s,
            self.turn_s,
            np.full(self.planes, FREE, dtype=np.int64),
        )


def make_instance(
    volume: Any, matching: Any, bandwidth: Any, latency_s: Any, turn_s: Any, initial: Any = FREE
) -> Instance:
    """An instance from sequences; a number for all planes where they do not differ."""
    widths = np.atleast_1d(np.asarray(bandwidth, dtype=np.float64))
    latency, turn = (np.broadcast_to(np.asarray(x, dtype=np.float64), widths.shape).copy() for x in (latency_s, turn_s))
    first = np.broadcast_to(np.asarray(initial, dtype=np.int64), widths.shape).copy()
    return Instance(
        np.asarray(volume, dtype=np.float64), np.asarray(matching, dtype=np.int64), widths, latency, turn, first
    )


class Course(NamedTuple):
    """When what happens.

    Attributes:
        start_s, end_s: float64[steps, planes], of each transmission with its latency; NaN where none.
        step_end_s: float64[steps].
        turns: rows (plane, step, start): before that step the plane turns, from that time on.
    """

    start_s: Float64
    end_s: Float64
    step_end_s: Float64
    turns: list[tuple[int, int, float]]

    @property
    def completion_s(self) -> float:
        return float(self.step_end_s[-1]) if len(self.step_end_s) else 0.0


def course(instance: Instance, share: Float64) -> Course:
    """The times of a schedule: everything as early as its plane and its step allow.

    Args:
        share: float64[steps, planes], the bytes that each plane carries in each step.
    """
    n, k = share.shape
    bandwidth, latency, turn = instance.bandwidth.tolist(), instance.latency_s.tolist(), instance.turn_s.tolist()
    holds, free = instance.initial.tolist(), [0.0] * k
    start, end = np.full((n, k), np.nan), np.full((n, k), np.nan)
    step_end, turns, now = [], [], 0.0
    for i, (row, matching) in enumerate(zip(share.tolist(), instance.matching.tolist(), strict=True)):
        latest = now
        for p, carried in enumerate(row):
            if carried <= 0:
                continue
            if holds[p] != matching:
                turns.append((p, i, free[p]))
                free[p] += 0.0 if holds[p] == FREE else turn[p]
                holds[p] = matching
            begin = free[p] if free[p] > now else now
            free[p] = begin + carried / bandwidth[p] + latency[p]
            start[i, p], end[i, p] = begin, free[p]
            latest = free[p] if free[p] > latest else latest
        now = latest
        step_end.append(now)
    return Course(start, end, np.array(step_end), turns)


def completion(instance: Instance, share: Float64) -> float:
    """When the last step of a schedule ends, seconds."""
    return course(instance, share).completion_s


# --- baselines ----------------------------------------------------------------------------------


def level(instance: Instance, volume: float, ready_s: Float64, planes: NDArray[Any]) -> Float64:
    """float64[planes], bytes of one step so that all planes that carry some end together.

    Args:
        ready_s: float64[planes], from when each could begin.
        planes: those that may carry; one that could only begin after the end carries nothing.
    """
    share = np.zeros(instance.planes)
    some = np.asarray(planes, dtype=np.int64)
    if volume <= 0 or not len(some):
        return share
    begin = ready_s[some] + instance.latency_s[some]
    order = some[np.argsort(begin, kind="stable")]
    width, start = instance.bandwidth[order], np.sort(begin)
    # with the first r planes the step ends when their bandwidths have carried it
    until = (volume + np.cumsum(width * start)) / np.cumsum(width)
    r = int(np.flatnonzero(until > start)[-1]) + 1
    share[order[:r]] = width[:r] * (until[r - 1] - start[:r])
    return share


def ideal(instance: Instance) -> float:
    """Completion if turning took no time: every step at full bandwidth, seconds."""
    everyone = np.arange(instance.planes)
    now = 0.0
    for volume in instance.volume:
        share = level(instance, float(volume), np.zeros(instance.planes), everyone)
        used = share > 0
        now += float((share / instance.bandwidth + instance.latency_s)[used].max(initial=0.0))
    return now


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
        share[i] = level(
            instance, float(instance.volume[i]), np.maximum(ready - now, 0.0), np.flatnonzero(owner == which[i])
        )
        used = share[i] > 0
        span = np.maximum(ready - now, 0.0) + share[i] / instance.bandwidth + instance.latency_s
        now += float(span[used].max(initial=0.0))
    return share
