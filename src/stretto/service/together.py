"""Plans of the collectives of several jobs: each alone, all put into one, and of that the part of each job.

Every plan that comes out of here has passed the verifier. No plan depends on anything but the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..choose.exportable import exportable
from ..model.arrays import Ragged
from ..model.collective import Collective, Workload
from ..model.errors import StrettoError, Unsupported
from ..model.plan import Plan, make_plan
from ..model.symmetric import SymmetricPlan
from ..model.targets import Target, find_target
from ..model.topology import Topology
from ..planners import Request, run_planner
from ..planners.jobs import together as put_together
from ..schedule.effort import Budget, steps_of
from ..schedule.kept import Kept
from ..schedule.moments import from_zero, moved
from ..schedule.successive import one_after_another
from ..verify import verify
from .numbering import links_there
from .requests import SEED, Alone


def plan_alone(asked: Alone) -> Plan:
    """The plan of one collective as if it had the network for itself.

    Raises:
        StrettoError: there is none, or the target cannot run it.
    """
    work = asked.work

    def make(target: Target | None, kept: Kept | None = None) -> Plan:
        return run_planner(
            asked.planner, asked.topology, work, seed=SEED, effort=asked.effort, target=target, kept=kept
        )

    plan = make(None) if asked.target is None else exportable(make, find_target(asked.target))
    return _verified(_on(plan, asked.topology))


def _on(plan: Plan, topology: Topology) -> Plan:
    """A plan that was made for the network as its target uses it, which may lack links, on the network itself."""
    if plan.topology is topology:
        return plan
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
    there = links_there(plan.topology, topology)
    return replace(plan, topology=topology, route=plan.route.with_values(there[plan.route.values].astype(np.int32)))


def plan_together(topology: Topology, collectives: Sequence[Collective], alone: Sequence[Plan], effort: str) -> Plan:
    """One plan of several collectives, each by its plan alone, with their starts and weights.

    On optical planes they follow one another.
    """
    work = Workload(tuple(collectives))
    if len(collectives) == 1:
        weighed = Workload((replace(alone[0].workload.collectives[0], weight=collectives[0].weight),))
        single = alone[0].expand() if isinstance(alone[0], SymmetricPlan) else alone[0]
        return _verified(moved(replace(single, workload=weighed), work))
    plans = [plan.expand() if isinstance(plan, SymmetricPlan) else plan for plan in alone]
    if topology.planes:
        return _verified(moved(one_after_another(topology, from_zero(work), plans), work))
    budget = Budget(steps_of(effort, len({c.alike for c in collectives})))
    plan = put_together(Request(topology, from_zero(work), SEED, budget), plans)
    return _verified(moved(plan, work))


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
        for name in ("start_s", "finish_s", "rate", "weight", "group")
        if (column := getattr(plan, name)) is not None
    }
    return make_plan(
        plan.topology, part, plan.sharing, chunk=chunk, src=plan.src[rows], op=plan.op[rows],
        dst=plan.dst.take(rows), route=plan.route.take(rows), depends=Ragged(waits.offsets, row[waits.values]),
        other_src=None if plan.other_src is None else plan.other_src.take(rows), **timing,
    )  # fmt: skip


def job_part(plan: Plan, numbers: Sequence[int]) -> Plan:
    """The part of a plan that one job runs, verified by itself."""
    return _verified(part_of(plan, numbers).noted({"planner": "jobs", "made_by": "stretto serve"}))


def _verified(plan: Plan) -> Plan:
    finding = verify(plan).finding
    if finding is not None:
        raise StrettoError(f"{plan.title} is not correct: {finding.message}")
    return plan
