"""Collectives one after another on optical planes: the plan of each, joined by what planes turn between them.

Each plan was made as if it were alone, so it begins with the planes as the topology gives them. Where the plan before
has left a plane otherwise, and the next one uses what the topology gives, the plane turns back first. A plane that
joins nothing in the topology goes straight to the first matching of the next plan, which then takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.arrays import Int32, Int64, Ragged
from ..model.collective import Workload
from ..model.errors import Unsupported
from ..model.plan import Plan, Turns, make_plan
from ..model.topology import Topology
from ..simulate import simulate

Turn = tuple[int, int, float, Int32 | Int64]
"""Its plane, the first transfer after it, its start, and the matching."""


def one_after_another(topology: Topology, workload: Workload, plans: Sequence[Plan]) -> Plan:
    """The plans of single collectives in turn: the shortest for its weight first (Smith 1956).

    Args:
        workload: the collectives, with their starts and weights.
        plans: for each its plan alone, timed, from 0.
    Raises:
        Unsupported: a plan is not timed.
    """
    if any(plan.sharing != "timed" or plan.group is None or plan.plane is None for plan in plans):
        raise Unsupported("plans on optical planes follow one another where all are timed and have steps")
    work = Workload(tuple(
        replace(plan.workload.collectives[0], start_s=collective.start_s, weight=collective.weight)
        for plan, collective in zip(plans, workload.collectives, strict=True)
    ))  # fmt: skip
    alone_s = [float(simulate(plan).completions_s[0]) for plan in plans]
    order = sorted(range(len(plans)), key=lambda k: (alone_s[k] / work.collectives[k].weight, k))
    now: list[Int32 | Int64] = [plane.matching for plane in topology.planes]
    turns: list[Turn] = []
    columns: list[dict[str, Any]] = []
    depends: list[Ragged] = []
    row, steps, free_s = 0, 0, 0.0
    for k in order:
        plan = plans[k]
        own, begin_s = _turns(topology, plan, now, row, free_s, work.collectives[k].start_s)
        turns += own
        columns.append(_columns(plan, int(work.chunk_base[k]), steps, begin_s))
        depends.append(plan.depends.with_values(plan.depends.values + row))
        row, free_s = row + plan.transfer_count, begin_s + alone_s[k]
        steps = int(columns[-1]["group"].max(initial=steps)) + 1
    joined: dict[str, Any] = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    dst, route = (Ragged.concatenate([getattr(plans[k], name) for k in order]) for name in ("dst", "route"))
    return make_plan(
        topology, work, "timed", **joined, dst=dst, route=route,
        depends=Ragged.concatenate(depends), turns=Turns.of(turns), barriers=all(plan.barriers for plan in plans),
        meta={"order": order, "alone_s": alone_s},
    )  # fmt: skip


def _columns(plan: Plan, chunk: int, step: int, begin_s: float) -> dict[str, Any]:
    """The columns of a plan that begins later, with its chunks and steps after those of others."""
    assert plan.group is not None and plan.start_s is not None and plan.finish_s is not None
    return {
        "chunk": plan.chunk + chunk, "src": plan.src, "op": plan.op, "plane": plan.plane, "group": plan.group + step,
        "start_s": plan.start_s + begin_s, "finish_s": plan.finish_s + begin_s,
    }  # fmt: skip


def _turns(
    topology: Topology, plan: Plan, now: list[Int32 | Int64], row: int, free_s: float, start_s: float
) -> tuple[list[Turn], float]:
    """The turns of a plan that follows others, and when it begins.

    Args:
        now: the matching of each plane as the plans before leave it; as this one leaves it on return.
        row: the number of its first transfer.
        free_s: when the plans before have ended.
        start_s: when its collective starts at the earliest.
    """
    assert plan.plane is not None
    before: list[Turn] = []
    own: list[Turn] = []
    wait_s, at = 0.0, plan.turns
    for p, plane in enumerate(topology.planes):
        rows, turns = np.flatnonzero(plan.plane == p), np.flatnonzero(at.plane == p)
        if not len(rows):
            continue
        first = int(at.before[turns[0]]) if len(turns) else plan.transfer_count
        mine: list[Turn] = [(p, int(at.before[t]) + row, float(at.start_s[t]), at.matching[t]) for t in turns]
        uses_given = bool(rows[0] < first)
        if np.array_equal(now[p], plane.matching):
            pass
        elif uses_given:
            before.append((p, row, free_s, plane.matching))
            wait_s = max(wait_s, plane.reconfiguration_s)
        elif np.array_equal(now[p], mine[0][3]):
            del mine[0]
        elif (plane.matching < 0).all():  # alone its first turn takes no time
            early_s = mine[0][2] - plane.reconfiguration_s
            mine[0] = (p, mine[0][1], early_s, mine[0][3])
            wait_s = max(wait_s, -early_s)
        own += mine
        now[p] = mine[-1][3] if mine else plane.matching if uses_given else now[p]
    begin_s = max(free_s + wait_s, start_s)
    return [*before, *((p, k, since_s + begin_s, matching) for p, k, since_s, matching in own)], begin_s
