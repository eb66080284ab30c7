"""The better plan of a shape: that of the planner which the request names, if it ends sooner than the first plan."""

from __future__ import annotations

from functools import partial

from ..model.collective import Workload
from ..model.errors import StrettoError
from ..model.plan import Plan
from ..planners import run_planner
from ..schedule.best import ask, best_of
from ..verify import verify
from .quick import TARGET, quick_plan
from .requests import ALIKE, PlanRequest


def better_plan(asked: PlanRequest) -> Plan | None:
    """The better plan of a request, which the referee has passed; None if the first plan is as good.

    Raises:
        StrettoError: the planner refuses, or its plan is wrong.
    """
    work = Workload((asked.collective(asked.chunks),))

    def plan() -> Plan:
        return run_planner(asked.planner, asked.topology, work, seed=asked.seed, effort=asked.effort, target=TARGET)

    first, better = ask("first", partial(quick_plan, asked)), ask(asked.planner, plan)
    if better.plan is None:
        assert better.refusal is not None
        raise better.refusal
    if best_of((first, better), within=ALIKE) is first:
        return None
    finding = verify(better.plan).finding
    if finding is not None:
        raise StrettoError(f"the plan of {asked.planner} is wrong: {finding.message}")
    return better.plan
