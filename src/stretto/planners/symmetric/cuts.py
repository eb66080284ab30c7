"""Data in chunks with the transfers of their representatives, and the number of parts with which it ends first."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any, NamedTuple

import numpy as np

from ...model.arrays import Float64, Int8, Int64, Ragged
from ...model.collective import Workload
from ...model.symmetric import SymmetricPlan, make_symmetric_plan
from ...model.symmetry import Symmetry
from ...schedule.best import PER_HALF
from ...schedule.cutting import messages_cost
from . import lanes
from .times import Times, schedule

MOST_PARTS = 1024
"""Parts into which the data that goes by one tree is cut, at most."""

NEAR_ENOUGH = 1.02
"""Times the least work of the busiest orbit of links: where a plan ends by then, more parts are not tried from
:data:`FEW_ROWS` on."""

MOST_ROWS = 1_400_000
"""Transfers of the representatives, at most, if the data is cut into several parts."""

BRIEF_ROWS = 600
"""The same where little is to be tried, and kernels are interpreted (benchmarks/first_plans.py)."""

GAIN = 1.003
"""Times by which twice as many transfers must end sooner where messages cost nothing."""

PATIENCE = 2
"""Times that more parts are tried in vain, one after another."""

FEW_ROWS = 50_000
"""Transfers of the representatives up to which a schedule is tried, too, in which links carry one transfer after the
other (:mod:`.times`): with few parts it may end sooner."""

MANY_ROWS = 200_000
"""Transfers of the representatives from which only that one of :data:`SLOWER` is tried that was the best one there."""

SLOWER = (0.0, 0.01, 0.03)
"""By which shares of their time others may be delayed for hastened classes, see :func:`.lanes.lanes`."""


class Hops(NamedTuple):
    """Transfers of one representative chunk, or of several, each after those that it depends on."""

    chunk: Int64
    src: Int64
    dst: Int64
    op: Int8
    route: Ragged
    depends: Ragged

    @property
    def total(self) -> int:
        return len(self.src)


class Cut(NamedTuple):
    """The data in chunks, with the transfers of all representatives.

    Attributes:
        owner, position: of each representative, see :class:`~stretto.model.symmetric.Orbits`.
        size_bytes: int64[transfers].
        turn: float64[transfers], where in the data of its owner each transfer's chunk is, from 0 to 1.
    """

    workload: Workload
    owner: Int64
    position: Int64
    transfers: Hops
    size_bytes: Int64
    turn: Float64


def best_cut(
    symmetry: Symmetry, cut_into: Callable[[int], Cut | None], rows: int, least_s: float, brief: bool
) -> tuple[Cut, Times] | None:
    """The data in the number of parts with which it ends first, and when transfers start; None if it cannot be cut.

    Args:
        cut_into: the data in the given number of parts, None if a chunk would have less than a byte.
        rows: transfers of the representatives for each part, about.
        least_s: for how long the busiest orbit of links works at the least.
        brief: whether transfers are scheduled in one way to compare numbers of parts, and these are few.
    """
    costly = messages_cost(symmetry.topology)
    best: tuple[Cut, Times] | None = None
    slower: tuple[float, ...] = SLOWER[:1] if brief else SLOWER
    worse = 0
    most = max(1, min(MOST_PARTS, (BRIEF_ROWS if brief else MOST_ROWS) // max(rows, 1)))
    for parts in sorted({*(1 << k for k in range(most.bit_length())), most}):
        cut = cut_into(parts)
        if cut is None:
            break
        t = cut.transfers
        tried = lanes.schedules(symmetry, t.route, t.depends, cut.size_bytes, cut.turn, slower)
        if rows * parts < FEW_ROWS and not brief:
            turn = np.unique(cut.turn, return_inverse=True)[1].reshape(-1)
            tried.append(schedule(symmetry, t.route, t.op, t.depends, turn, cut.size_bytes))
        elif rows * parts >= MANY_ROWS and len(slower) > 1:
            slower = (min(zip(slower, tried, strict=True), key=lambda each: each[1].completion_s)[0],)
        ended = min(tried, key=lambda times: times.completion_s)
        if best is not None:
            surcharge = (PER_HALF if costly else GAIN) ** log2(t.total / best[0].transfers.total)
            if ended.completion_s * surcharge >= best[1].completion_s:
                worse += 1
                if worse == PATIENCE:
                    break
                continue
        best, worse = (cut, ended), 0
        if ended.completion_s <= NEAR_ENOUGH * least_s and rows * parts >= FEW_ROWS:
            break
    return best


def plan_of(symmetry: Symmetry, cut: Cut, times: Times, meta: dict[str, Any]) -> SymmetricPlan:
    """The plan of a cut."""
    t = cut.transfers
    return make_symmetric_plan(
        symmetry, cut.workload, owner=cut.owner, position=cut.position,
        meta={"parts": len(cut.position), "group": symmetry.orders.tolist(), **meta}, chunk=t.chunk, src=t.src,
        op=t.op, dst=Ragged.single(t.dst), route=t.route, depends=t.depends, start_s=times.start_s,
        finish_s=times.finish_s,
    )  # fmt: skip


def completion_s(plan: SymmetricPlan) -> float:
    """When the last transfer of a plan has arrived."""
    part = plan.part
    assert part.finish_s is not None, "plans by symmetry are timed"
    lag_s = np.bincount(part.route.owners, plan.topology.latency_s[part.route.values], part.transfer_count)
    return float((part.finish_s + lag_s).max(initial=0.0))


def joined(one: list[Hops], of: Int64, rows: Int64) -> Hops:
    """The transfers of all representatives, one after another.

    Args:
        one: those of some kinds of representatives.
        of: int64[representatives], the kind of each.
        rows: int64[representatives], the transfers of each.
    """
    begin = np.cumsum(rows) - rows
    src, dst, op = (np.concatenate([getattr(one[k], name) for k in of]) for name in ("src", "dst", "op"))
    route = Ragged.concatenate([one[k].route for k in of])
    waits = [one[k].depends.with_values(one[k].depends.values + b) for k, b in zip(of, begin, strict=True)]
    return Hops(np.repeat(np.arange(len(of)), rows), src, dst, op, route, Ragged.concatenate(waits))
