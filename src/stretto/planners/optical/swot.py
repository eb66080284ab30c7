"""SWOT and its baselines: which plane carries how much of which step, and when it turns.

"Enabling Reconfiguration-Communication Overlap for Collective Communication in Optical Networks",
section 3. The refiners take a plan in steps (``rabenseifner+swot``); the model and the methods are
in :mod:`stretto.optics`, the way from and to plans in :mod:`.circuits`. Each plan's ``meta`` has
under ``schedule`` its completion, and a bound that no schedule of the same steps can beat.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...model.errors import Unsupported
from ...model.plan import Plan
from ...schedule.algorithms import ALGORITHMS
from .. import Candidate, Option, Progress, per_delivery, refiner
from .bound import lower_bound
from .circuits import instance_of, refusal, scheduled
from .fast import fast
from .milp import named_planes
from .model import Float64, Instance, completion, one_shot, strawman
from .optimal import optimal

ALONE = ("rabenseifner", "recursive-doubling", "ring", "pairwise", "bruck")
"""The fixed algorithms that ``-p swot`` chooses from; uneven demands are decomposed instead."""

_refiner = partial(
    refiner,
    collectives=dict.fromkeys((*(kind for algorithm in ALGORITHMS.values() for kind in algorithm.kinds), "alltoallv")),
    topologies="optical planes",
    paper="SWOT: Enabling Reconfiguration-Communication Overlap in Optical Networks",
    serves=refusal,
)


def _refined(plan: Plan, instance: Instance, share: Float64, bound_s: float = 0.0) -> Plan:
    done = completion(instance, share)
    facts = {"completion_s": done, "bound_s": min(max(bound_s, lower_bound(instance)), done)}
    return scheduled(plan, share, {"schedule": facts})


@_refiner("ideal")
def ideal(plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None) -> Plan:
    """All planes carry every step and turn in no time: what planes of the same bandwidth cannot beat."""
    planes = tuple(replace(p, reconfiguration_s=0.0) for p in plan.topology.planes)
    free = replace(plan, topology=replace(plan.topology, planes=planes))
    instance = instance_of(free)
    return _refined(free, instance, strawman(instance))


@_refiner("strawman-icr")
def strawman_icr(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None
) -> Plan:
    """All planes carry every step, and turn together between steps."""
    instance = instance_of(plan)
    return _refined(plan, instance, strawman(instance))


@_refiner("one-shot")
def one_shot_planes(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None
) -> Plan:
    """Each plane holds one matching for the whole collective."""
    instance = instance_of(plan)
    share = one_shot(instance)
    if share is None:
        kinds = len(set(instance.matching.tolist()))
        raise Unsupported(f"one-shot needs a plane for each of the {kinds} matchings, and there are {instance.planes}")
    return _refined(plan, instance, share)


@_refiner(
    "swot",
    alone=(*ALONE, "birkhoff"),
    options=(Option("mode", str, "fast", "search, or prove the optimum in 30 s or --time-limit", ("fast", "exact")),),
    cuts=True,
    auto=Candidate(20, per_delivery(500, first=10_000)),
    tune=80,
)
def swot(
    plan: Plan,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    mode: str = "fast",
) -> Plan:
    """Uneven shares, turns hidden behind transmission, matchings bypassed."""
    instance = instance_of(plan)
    if mode == "fast":
        return _refined(plan, instance, fast(instance))
    answer = optimal(instance, time_limit_s=time_limit_s)
    return _refined(plan, instance, answer.share, answer.bound_s)


@_refiner(
    "swot-milp",
    exact=True,
    options=(
        Option("solver", str, "highs", "who solves the program", ("highs", "cbc", "gurobi")),
        Option("gap", float, 0.05, "relative gap at which it stops; the paper's is 0.05"),
    ),
)
def swot_milp(
    plan: Plan,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    solver: str = "highs",
    gap: float = 0.05,
) -> Plan:
    """The paper's mixed-integer program over named planes; 120 s unless --time-limit says otherwise."""
    instance = instance_of(plan)
    known = min(
        (s for s in (strawman(instance), one_shot(instance)) if s is not None), key=partial(completion, instance)
    )
    limit = 120.0 if time_limit_s is None else time_limit_s
    answer = named_planes(instance, known, limit, gap, solver)
    return _refined(plan, instance, answer.share, answer.bound_s)
