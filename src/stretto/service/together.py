"""Plans of the collectives of several jobs: each alone, all put into one, and of that the part of each job.

Every plan that comes out of here has passed the verifier. No plan depends on anything but the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..choose.exportable import exportable
from ..model.collective import Collective, Workload
from ..model.errors import StrettoError, Unsupported
from ..model.part_plans import part_of
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..model.targets import Target, find_target
from ..model.topology import Topology
from ..planners import Request, run_planner
from ..planners.jobs import together as put_together
from ..schedule.effort import Budget, steps_of
from ..schedule.joining import on_all_planes
from ..schedule.kept import Kept
from ..schedule.moments import from_zero, moved
from ..schedule.side_by_side import side_by_side
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

    On optical planes they follow one another; see :func:`plan_beside` for those of several jobs.
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


def plan_beside(
    topology: Topology, collectives: Sequence[Collective], alone: Sequence[Plan], effort: str,
    numbers: Mapping[str, Sequence[int]], planes: Mapping[str, Sequence[int]],
) -> Plan:  # fmt: skip
    """One plan of several jobs at the same time, each on optical planes of its own.

    Args:
        collectives, alone: as of :func:`plan_together`; each plan is of the network with the planes of its job alone.
        numbers: by job its collectives; together they are all of them, in order.
        planes: by job the numbers of its planes.
    """
    parts = []
    for job, own in numbers.items():
        plan = plan_together(alone[own[0]].topology, [collectives[n] for n in own], [alone[n] for n in own], effort)
        if len(numbers) == 1 and len(planes[job]) == len(topology.planes):
            return plan
        if plan.plane is None:
            raise Unsupported(f"job {job!r} has a plan over links; beside other jobs it needs one over its planes")
        parts.append(on_all_planes(plan, topology, np.array(planes[job], dtype=np.int32)))
    return _verified(side_by_side(topology, parts) if len(parts) > 1 else parts[0])


def job_part(plan: Plan, numbers: Sequence[int]) -> Plan:
    """The part of a plan that one job runs, verified by itself."""
    return _verified(part_of(plan, numbers).noted({"planner": "jobs", "made_by": "stretto serve"}))


def _verified(plan: Plan) -> Plan:
    finding = verify(plan).finding
    if finding is not None:
        raise StrettoError(f"{plan.title} is not correct: {finding.message}")
    return plan
