"""The part of a plan that some of its collectives have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrays import Ragged
from .collective import Workload
from .errors import Unsupported
from .plan import Plan, make_plan


def part_of(plan: Plan, numbers: Sequence[int]) -> Plan:
    """What some of a plan's collectives do, at the same times: a plan of their own.

    Args:
        numbers: the collectives, in ascending order; none of them waits for another one.
    Raises:
        Unsupported: the plan turns optical planes, and some of its collectives are left out.
    """
    work = plan.workload
    if len(numbers) == len(work.collectives):
        return plan
    if plan.turns.count:
        raise Unsupported("the turns of optical planes serve all collectives of a plan, which cannot be parted")
    part = Workload(tuple(work.collectives[number] for number in numbers))
    rows = np.flatnonzero(np.isin(work.chunk_collective[plan.chunk], numbers))
    row = np.full(plan.transfer_count, -1, dtype=np.int32)
    row[rows] = np.arange(len(rows))
    base = np.zeros(len(work.collectives), dtype=np.int64)
    base[list(numbers)] = part.chunk_base[:-1] - work.chunk_base[list(numbers)]
    chunk = plan.chunk[rows] + base[work.chunk_collective[plan.chunk[rows]]]
    waits = plan.depends.take(rows)
    timing = {
        name: column[rows]
        for name in ("start_s", "finish_s", "rate", "weight", "group", "forwards")
        if (column := getattr(plan, name)) is not None
    }
    return make_plan(
        plan.topology, part, plan.sharing, chunk=chunk, src=plan.src[rows], op=plan.op[rows],
        dst=plan.dst.take(rows), route=plan.route.take(rows), depends=Ragged(waits.offsets, row[waits.values]),
        other_src=None if plan.other_src is None else plan.other_src.take(rows), **timing,
    )  # fmt: skip
