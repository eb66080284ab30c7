"""SWOT and its baselines: which plane carries how much of which step, and when it turns.

"Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks",
section 3. The refiners take a plan in steps (``rabenseifner+swot``). Each plan's ``meta`` has under
``schedule`` its completion, and a bound that no schedule of the same steps can beat.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...model.arrays import Float64
from ...model.errors import Unsupported
from ...model.plan import Plan
from ...schedule.algorithms import ALGORITHMS
from .. import Candidate, Option, Request, per_delivery, refiner
from .baselines import one_shot, strawman
from .bound import lower_bound
from .certificate import certify
from .circuits import instance_of, refusal, schedule_plan
from .instance import Instance, completion
from .named_planes import solve_by_names
from .search import find_schedule

ALONE = ("rabenseifner", "recursive-doubling", "ring", "pairwise", "bruck", "binomial")
"""The fixed algorithms that ``-p swot`` chooses from, besides the decompositions of :mod:`.birkhoff`."""

MOST_UNITS = 12.0
"""Units of effort that the paper's program may take, see :func:`stretto.solvers.solve`; for AllToAll among 9 to 16
ranks a unit is 5 to 13 s of CPU."""

_refiner = partial(
    refiner,
    collectives=dict.fromkeys((*(kind for algorithm in ALGORITHMS.values() for kind in algorithm.kinds), "alltoallv")),
    topologies="optical planes",
    paper="SWOT: Enabling Reconfiguration-Communication Overlap in Optical Networks",
    serves=refusal,
)


def _refine(plan: Plan, instance: Instance, share: Float64, bound_s: float = 0.0) -> Plan:
    end_s = completion(instance, share)
    facts = {"completion_s": end_s, "bound_s": min(max(bound_s, lower_bound(instance, share)), end_s)}
    return schedule_plan(plan, share, {"schedule": facts})


@_refiner("ideal")
def ideal(plan: Plan, request: Request) -> Plan:
    """All planes carry every step and turn in no time: what planes of the same bandwidth cannot beat."""
    planes = tuple(replace(p, reconfiguration_s=0.0) for p in plan.topology.planes)
    free = replace(plan, topology=replace(plan.topology, planes=planes))
    instance = instance_of(free)
    return _refine(free, instance, strawman(instance))


@_refiner("strawman-icr")
def strawman_icr(plan: Plan, request: Request) -> Plan:
    """All planes carry every step, and turn together between steps."""
    instance = instance_of(plan)
    return _refine(plan, instance, strawman(instance))


@_refiner("one-shot")
def one_shot_planes(plan: Plan, request: Request) -> Plan:
    """Each plane holds one matching for the whole collective."""
    instance = instance_of(plan)
    share = one_shot(instance)
    if share is None:
        matchings = len(set(instance.matching.tolist()))
        raise Unsupported(
            f"one-shot needs a plane for each of the {matchings} matchings, and there are {instance.planes}"
        )
    return _refine(plan, instance, share)


@_refiner(
    "swot",
    alone=(*ALONE, "birkhoff"),
    options=(Option("mode", str, "fast", "search, or prove the optimum in 4 units of effort", ("fast", "exact")),),
    cuts=True,
    auto=Candidate(per_delivery(500, first=10_000), leads=True),
    tune=80,
    library=80,
)
def swot(plan: Plan, request: Request, *, mode: str = "fast") -> Plan:
    """Uneven shares, turns hidden behind transmission, matchings bypassed."""
    instance = instance_of(plan)
    if mode == "fast":
        return _refine(plan, instance, find_schedule(instance, stop=request.budget.stop))
    answer = certify(instance, budget=request.budget)
    return _refine(plan, instance, answer.share, answer.bound_s)


@_refiner(
    "swot-milp",
    exact=True,
    options=(
        Option(
            "solver",
            str,
            "highs",
            "the solver of the program; CBC counts no effort, so --time-limit alone stops it",
            ("highs", "cbc", "gurobi"),
        ),
        Option("gap", float, 0.05, "relative gap at which it stops; the paper's is 0.05"),
    ),
)
def swot_milp(plan: Plan, request: Request, *, solver: str = "highs", gap: float = 0.05) -> Plan:
    """The paper's mixed-integer program over named planes, from the better of one-shot and strawman."""
    instance = instance_of(plan)
    start = min(
        (s for s in (strawman(instance), one_shot(instance)) if s is not None), key=partial(completion, instance)
    )
    budget = request.budget.for_solvers(MOST_UNITS)
    answer = solve_by_names(instance, start, budget, gap, solver)
    return _refine(plan, instance, answer.share, answer.bound_s)
