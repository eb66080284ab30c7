"""The better plan of a shape: that of the planner which the request names, if it ends sooner than the first plan."""

from __future__ import annotations

import math
from functools import partial

from ..bounds import bounds
from ..model.collective import Workload
from ..model.errors import StrettoError, Unsupported
from ..model.plan import Plan
from ..model.topology import Topology
from ..planners import run_planner
from ..schedule.best import ask, best_of, completion_s, exposed_s
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

    exposed = partial(exposed_s, least_s=_least_latency_s(asked.topology, work), share=TARGET.late_share)
    makers = (("first", partial(quick_plan, asked)), (asked.planner, plan))
    first, better = (ask(name, make, completion_s, exposed) for name, make in makers)
    if better.plan is None:
        assert better.refusal is not None
        raise better.refusal
    if best_of((first, better), within=ALIKE) is first:
        return None
    finding = verify(better.plan).finding
    if finding is not None:
        raise StrettoError(f"the plan of {asked.planner} is wrong: {finding.message}")
    return better.plan


def _least_latency_s(topology: Topology, work: Workload) -> float:
    """Latency that no plan can avoid, seconds; infinite where the network is too large for bounds."""
    try:
        return next((bound.seconds for bound in bounds(topology, work) if bound.kind == "latency path"), 0.0)
    except Unsupported:
        return math.inf
