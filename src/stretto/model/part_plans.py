"""The part of a plan that some of its collectives have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrays import Bool, Int64, Ragged
from .collective import Workload
from .errors import Unsupported
from .plan import Plan, Turns, make_plan


def part_of(plan: Plan, numbers: Sequence[int]) -> Plan:
    """What some of a plan's collectives do, at the same times: a plan of their own.

    Args:
        numbers: the collectives, in ascending order; none of them waits for another one.
    Raises:
        Unsupported: a plane turns for them and for collectives that are left out.
    """
    work = plan.workload
    if len(numbers) == len(work.collectives):
        return plan
    part = Workload(tuple(work.collectives[number] for number in numbers))
    inside = np.isin(work.chunk_collective[plan.chunk], numbers)
    rows = np.flatnonzero(inside)
    turns = _turns_of(plan, inside, rows)
    row = np.full(plan.transfer_count, -1, dtype=np.int32)
    row[rows] = np.arange(len(rows))
    base = np.zeros(len(work.collectives), dtype=np.int64)
    base[list(numbers)] = part.chunk_base[:-1] - work.chunk_base[list(numbers)]
    chunk = plan.chunk[rows] + base[work.chunk_collective[plan.chunk[rows]]]
    waits = plan.depends.take(rows)
    timing = {
        name: column[rows]
        for name in ("start_s", "finish_s", "rate", "weight", "group", "forwards", "plane")
        if (column := getattr(plan, name)) is not None
    }
    if plan.message is not None:
        timing["message"] = np.unique(plan.message[rows], return_inverse=True)[1]
    return make_plan(
        plan.topology, part, plan.sharing, chunk=chunk, src=plan.src[rows], op=plan.op[rows],
        dst=plan.dst.take(rows), route=plan.route.take(rows), depends=Ragged(waits.offsets, row[waits.values]),
        other_src=None if plan.other_src is None else plan.other_src.take(rows), turns=turns, **timing,
    )  # fmt: skip


def _turns_of(plan: Plan, inside: Bool, rows: Int64) -> Turns:
    """The turns of the planes that a part of a plan uses.

    Args:
        inside: bool[transfers], those of the part; ``rows`` are their numbers.
    """
    turns = plan.turns
    if not turns.count:
        return turns
    assert plan.plane is not None, "only planes turn"
    own, others = np.unique(plan.plane[inside]), np.unique(plan.plane[~inside])
    if np.isin(turns.plane, np.intersect1d(own, others)).any():
        raise Unsupported("the turns of an optical plane serve all collectives on it, which cannot be parted")
    mine = np.flatnonzero(np.isin(turns.plane, own))
    before = np.searchsorted(rows, turns.before[mine]).astype(np.int32)
    return Turns(turns.plane[mine], before, turns.start_s[mine], turns.matching.take(mine))
