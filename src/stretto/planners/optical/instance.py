"""The model of SWOT, section 3.2: steps with barriers, planes that carry or turn.

Step i needs ``volume[i]`` bytes a node over circuits of matching ``matching[i]``. The planes that
carry a part of it are those that hold this matching; a transmission takes the plane's latency and
its bytes over its bandwidth. A step begins when the one before it has ended on all planes (P3). A
plane turns as soon as its last transmission has ended (P2), towards the matching of the step that
it carries next (P1); to steps in between it is bypassed.

A sequence of steps that reads the same backwards (AllReduce by halving and doubling) on planes that
are free at first is solved by its first half: for such planes OPT(1..n) >= OPT(1..a) + OPT(a+1..n),
a schedule run backwards is one, and the two halves meet in equal matchings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64

FREE = -1
"""The matching of a plane that may take any as its first, before time zero."""


@dataclass(frozen=True, eq=False)
class Instance:
    """What is to be carried, and by what."""

    volume: Float64  # [steps], bytes a node
    matching: Int64  # [steps], which matching each step needs, by any numbers of zero or more
    bandwidth: Float64  # [planes], bytes/s
    latency_s: Float64  # [planes], of a transmission
    turn_s: Float64  # [planes], to change the matching
    initial: Int64  # [planes], the matching at first, or FREE

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

    @cached_property
    def kinds(self) -> Int64:
        """The different matchings of steps and planes."""
        return np.setdiff1d(np.concatenate((self.matching, self.initial)), FREE)

    def only(self, steps: Any = slice(None), planes: Any = slice(None)) -> Instance:
        """Some of the steps on some of the planes."""
        columns = (self.bandwidth, self.latency_s, self.turn_s, self.initial)
        return Instance(self.volume[steps], self.matching[steps], *(c[planes] for c in columns))  # type: ignore[arg-type]

    def part(self, first: int, end: int) -> Instance:
        """Steps ``first`` to ``end`` alone, with planes that are free at first."""
        return replace(self.only(slice(first, end)), initial=np.full(self.planes, FREE, dtype=np.int64))


def make_instance(
    volume: Any, matching: Any, bandwidth: Any, latency_s: Any, turn_s: Any, initial: Any = FREE
) -> Instance:
    """An instance from sequences; a number for all planes where they do not differ."""
    planes = np.atleast_1d(bandwidth).shape
    width, latency, turn = (np.broadcast_to(x, planes).astype(np.float64) for x in (bandwidth, latency_s, turn_s))
    first = np.broadcast_to(initial, planes).astype(np.int64)
    return Instance(np.array(volume, np.float64), np.array(matching, np.int64), width, latency, turn, first)


class Course(NamedTuple):
    """When what happens."""

    start_s: Float64  # [steps, planes], of each transmission; NaN where none
    end_s: Float64  # [steps, planes], of each transmission with its latency; NaN where none
    step_end_s: Float64  # [steps]
    turns: list[tuple[int, int, float]]  # (plane, step, start): before that step the plane turns, from then on

    @property
    def completion_s(self) -> float:
        return float(self.step_end_s[-1]) if len(self.step_end_s) else 0.0


def course(instance: Instance, span_s: Float64, after: Sequence[Sequence[int]] | None = None) -> Course:
    """The times of a schedule: everything as early as its plane and its step allow.

    Args:
        span_s: float64[steps, planes], how long each plane carries bytes of each step, 0 for not at all.
        after: for each step those that end before it begins; by default the one before.
    """
    n, k = span_s.shape
    latency, turn = instance.latency_s.tolist(), instance.turn_s.tolist()
    holds, free = instance.initial.tolist(), [0.0] * k
    start, end = np.full((n, k), np.nan), np.full((n, k), np.nan)
    step_end: list[float] = []
    turns, now = [], 0.0
    for i, (row, matching) in enumerate(zip(span_s.tolist(), instance.matching.tolist(), strict=True)):
        if after is not None:
            now = max((step_end[j] for j in after[i]), default=0.0)
        latest = now
        for p, span in enumerate(row):
            if span <= 0:
                continue
            if holds[p] != matching:
                turns.append((p, i, free[p]))
                free[p] += 0.0 if holds[p] == FREE else turn[p]
                holds[p] = matching
            begin = free[p] if free[p] > now else now
            free[p] = begin + span + latency[p]
            start[i, p], end[i, p] = begin, free[p]
            latest = free[p] if free[p] > latest else latest
        now = latest
        step_end.append(now)
    return Course(start, end, np.array(step_end), turns)


def completion(instance: Instance, share: Float64) -> float:
    """When the last step of a schedule ends, seconds."""
    return course(instance, share / instance.bandwidth).completion_s


def mirrored_half(instance: Instance) -> Instance | None:
    """The first half of an instance that its second half mirrors, None where it does not."""
    n = instance.steps
    same = np.array_equal(instance.matching, instance.matching[::-1])
    if n < 2 or n % 2 or not same or (instance.initial != FREE).any():
        return None
    if not np.allclose(instance.volume, instance.volume[::-1], rtol=1e-12):
        return None
    return instance.part(0, n // 2)
