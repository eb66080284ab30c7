"""What the verifier says: the first violation in a plan, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.arrays import Float64
from ..model.plan import Plan

CODES = (
    "none", "source", "no-receiver", "route", "route-loop", "no-transit", "no-replication",
    "receiver", "route-misses-receiver", "receiver-twice", "route-loose-end", "not-held",
    "missing-dependency", "reduce-of-copy", "unordered-writes", "duration", "before-start",
    "before-dependency", "speed", "capacity", "incomplete", "promise", "cover", "matching", "no-circuit", "turn",
    "barrier", "group",
)  # fmt: skip
"""What can be wrong. The first 18 are numbered as in :mod:`stretto.verify.kernel_referee`."""

# docs/physics.md, "What rounding may hide", says what these allow in all
TOLERANCE = 1e-9
"""Share of a rate, of a bandwidth, or of what a transfer takes by which it may be missed."""

LOAD_TOLERANCE = 10 * TOLERANCE
"""The same for sums of rates on a link."""

ULPS = 64
"""Units in the last place of a plan's last moment by which rounding may miss a moment."""

DRIFT = 1e-12
"""Share of the time that a plan takes by which a link may be ahead, in all: many roundings add up."""


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


def last_s(plan: Plan) -> float:
    """About when the last bytes arrive at a rank that wants them, in a timed plan.

    What nobody wants may be as late as it likes, so it says nothing of how exact the others are.
    """
    assert plan.finish_s is not None, "timed"
    workload, nodes = plan.workload, plan.topology.node_count
    wanted, owners = workload.chunk_wanted, plan.dst.owners
    pairs = plan.chunk[owners].astype(np.int64) * nodes + plan.dst.values
    counts = np.zeros(plan.transfer_count, dtype=np.bool_)
    counts[owners[np.isin(pairs, wanted.owners * nodes + wanted.values)]] = True
    arrival_s = plan.finish_s.copy()
    np.add.at(arrival_s, plan.route.owners, plan.topology.latency_s[plan.route.values])
    return float(arrival_s[counts].max(initial=0.0))


def rounding_s(plan: Plan) -> float:
    """Seconds by which rounding may miss a moment of a timed plan."""
    return 0.0 if plan.finish_s is None else ULPS * float(np.spacing(last_s(plan)))


def drift_s(plan: Plan) -> float:
    """Seconds by which a link of a timed plan may be ahead of what it can carry."""
    assert plan.start_s is not None, "timed"
    return rounding_s(plan) + DRIFT * max(last_s(plan) - float(plan.start_s.min(initial=np.inf)), 0.0)


def slack_s(plan: Plan, takes_s: Float64) -> Float64:
    """float64[transfers], seconds by which transfers may be early: a share of what they take, or a rounding."""
    return np.maximum(TOLERANCE * takes_s, rounding_s(plan))
