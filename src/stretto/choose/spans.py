"""Spans of sizes, each with one program that keeps what was promised for its sizes.

A program has a fixed number of chunks and steps, so that it is good for sizes near the one that it was planned for. A
span is halved (on a logarithmic scale) until one of the programs planned at its ends and in its middle takes, at all
three, about as long as was promised there. Then neighbours that one program serves become one span.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

TOLERANCE = 0.05
"""Part of the promised time by which what a program takes may differ from it."""

NARROWEST = 1.02
"""A span is not halved where its ends are nearer to each other than this ratio."""


class Program(Protocol):
    """A program for any size."""

    def run_s(self, size_bytes: int) -> float:
        """Seconds that it takes for a full buffer of a size, infinite where it cannot run."""


@dataclass(frozen=True)
class Probe:
    """What was found out at one size.

    Attributes:
        promised_s: seconds that the plan for this size takes.
        program: what was made of the plan; None where it cannot be, for the reason ``refusal``.
    """

    size_bytes: int
    promised_s: float
    program: Program | None
    refusal: str | None = None

    def differs(self, program: Program) -> float:
        """By which part of the promised time a program takes longer (or, below zero, less)."""
        return program.run_s(self.size_bytes) / self.promised_s - 1.0


@dataclass(frozen=True)
class Span:
    """Sizes from ``low`` to ``high``, and the program for them.

    Attributes:
        probes: all that was found out in it, by size; the first is at ``low``, the last at ``high``.
        made: the probe that has the program; None where no program serves the span.
    """

    probes: tuple[Probe, ...]
    made: Probe | None

    @property
    def low(self) -> int:
        return self.probes[0].size_bytes

    @property
    def high(self) -> int:
        return self.probes[-1].size_bytes

    @property
    def broken(self) -> Probe | None:
        """Of the probes whose program does not keep its promise even for its own size, the one farthest from it."""
        own = [p for p in self.probes if p.program is not None and not _keeps(p, p.program)]
        return max(own, key=lambda p: p.differs(p.program), default=None)  # type: ignore[arg-type]

    @property
    def refusal(self) -> str:
        """Why there is no program for a size of the span."""
        return next((p.refusal for p in self.probes if p.refusal), "promised times jump")


def spans(low: int, high: int, probe: Callable[[int], Probe]) -> list[Span]:
    """The spans from one size to another, in order, without a gap.

    Args:
        probe: plans for a size; it is asked once for each.
    """
    found: list[Span] = []
    _halve(probe(low), probe(high), probe, found)
    return _joined(found)


def _halve(low: Probe, high: Probe, probe: Callable[[int], Probe], found: list[Span]) -> None:
    """Append the spans from one probe to another to those before them."""
    middle = probe(_middle(low.size_bytes, high.size_bytes))
    three = (low, middle, high)
    before = found[-1].made if found else None
    made = _best(three, three) or (before and _best(three, (before,)))
    wide = high.size_bytes > NARROWEST * low.size_bytes
    # where no program keeps its promise for the size that it was made for, smaller spans do not help
    helps = any(_keeps(p, p.program) for p in three) or (before and _keeps(low, before.program))
    if made is None and wide and helps:
        _halve(low, middle, probe, found)
        _halve(middle, high, probe, found)
    else:
        found.append(Span(three, made))


def _middle(low: int, high: int) -> int:
    """The power of two in the middle of two sizes, on a logarithmic scale; if there is none, the size there."""
    middle = math.sqrt(low * high)
    power = 2 ** round(math.log2(middle))
    return power if low < power < high else max(low, min(round(middle), high))


def _best(probes: tuple[Probe, ...], makers: tuple[Probe, ...]) -> Probe | None:
    """The maker whose program keeps what all probes promise, and comes nearest to it; None if none keeps it."""
    keeping = [m for m in makers if all(_keeps(p, m.program) for p in probes)]
    return min(keeping, key=lambda m: max(abs(p.differs(m.program)) for p in probes), default=None)  # type: ignore[arg-type]


def _keeps(probe: Probe, program: Program | None) -> bool:
    return program is not None and probe.differs(program) <= TOLERANCE


def _joined(found: list[Span]) -> list[Span]:
    """The spans with those that one program serves joined, from the smallest sizes on."""
    joined = found[:1]
    for span in found[1:]:
        last = joined[-1]
        probes = last.probes + span.probes[1:]
        if last.made is None and span.made is None:
            joined[-1] = Span(probes, None)
            continue
        makers = tuple(s.made for s in (last, span) if s.made is not None)
        made = _best(probes, makers) if len(makers) == 2 else None
        joined[-1:] = [last, span] if made is None else [Span(probes, made)]
    return joined
