"""What the verifier says: the first violation in a plan, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..model.plan import Plan

CODES = (
    "none", "source", "no-receiver", "route", "route-loop", "no-transit", "no-replication",
    "receiver", "route-misses-receiver", "receiver-twice", "route-loose-end", "not-held",
    "missing-dependency", "reduce-of-copy", "unordered-writes", "duration", "before-start",
    "before-dependency", "speed", "capacity", "incomplete", "promise", "cover", "matching", "no-circuit", "turn",
    "barrier", "group", "source-twice", "no-reduction", "apart", "symmetry", "message",
)  # fmt: skip
"""What can be wrong. Those that loops find are numbered as in the kernels."""

TOLERANCE = 1e-9
"""Share of a rate, of a bandwidth, or of what a transfer takes by which it may be missed."""

LOAD_TOLERANCE = 10 * TOLERANCE
"""Share of a link's bandwidth by which the rates on it may exceed it together."""


@dataclass(frozen=True)
class Finding:
    """The first violation in a plan.

    Attributes:
        code: one of :data:`CODES`.
        message: what is wrong, in words.
        transfer, chunk, node, link: where, as far as it applies.
        time_s: when.
    """

    code: str
    message: str
    transfer: int | None = None
    chunk: int | None = None
    node: int | None = None
    link: int | None = None
    time_s: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a plan is correct, and if not, the first thing that is wrong."""

    finding: Finding | None = None

    def __repr__(self) -> str:
        if self.finding is None:
            return "<Verdict: correct>"
        return f"<Verdict: not correct [{self.finding.code}]: {self.finding.message}>"

    def __bool__(self) -> bool:
        return self.ok

    @property
    def ok(self) -> bool:
        return self.finding is None


def about(plan: Plan, code: str, k: int, words: str, **where: Any) -> Finding:
    """A finding about transfer ``k``; the message names the transfer and goes on with ``words``."""
    return Finding(code, f"{plan.describe(k)} {words}", transfer=k, chunk=int(plan.chunk[k]), **where)
