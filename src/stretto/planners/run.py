"""Runs a spec such as ``ring+rate-alloc``: a planner makes a plan, and refiners decide what the plan leaves open."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..kernels import LOADING
from ..model.collective import Promised, Workload
from ..model.errors import InputError, StrettoError, Unsupported, nearest
from ..model.memory import too_much
from ..model.messages import apart
from ..model.plan import Plan
from ..model.progress import Progress
from ..model.reach import refuse_unreachable
from ..model.stop import Stop
from ..model.targets import Target
from ..model.topology import Topology
from ..model.variants import seen_by, usable
from ..schedule.best import ask, best_of
from ..schedule.effort import Budget, steps_of
from ..schedule.fitting import fitting, refuse, seen_by_target
from ..schedule.joining import joining_planes, on_all_planes, on_planes
from ..schedule.kept import Kept
from ..schedule.moments import charged, from_zero, moved, retimed
from .registry import Entry, Request, find, registered


def run_planner(
    spec: str,
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    effort: str = "thorough",
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    options: Mapping[str, Any] | None = None,
    target: Target | None = None,
    kept: Kept | None = None,
    several_chunks: bool = True,
) -> Plan:
    """Run ``planner[+refiner...]``, and note in the plan's meta how it was made.

    A refiner may stand alone if it names planners that it can be run after: each of them is tried, and the plan that
    ends first is kept.

    Args:
        spec: names of the registry, or ``FILE.py:NAME``. A file is imported, so take no spec from strangers.
        effort: how much may be tried, in counted work: quick, normal, thorough, or about how many seconds of CPU.
        time_limit_s: a net: wall-clock seconds after which the best plan so far is taken. The plan's meta then says
            ``stopped``, since another run may give another plan.
        options: by name; text is parsed as the option's type. Each goes to all stages of the spec that declare it.
        target: what shall run the plan. The plan's network is then the one that the target uses
            (:mod:`stretto.schedule.fitting`).
        kept: plans of earlier calls for the same topology and workload, for other targets or for fewer messages; those
            of this call are added. Without effect where there is a time limit.
        several_chunks: whether a message may carry several chunks.
    Raises:
        InputError: an unknown name, effort or option, or a piece of no bytes. Unsupported: a stage does not serve this
            request, or the target cannot run it.
    """
    topology = usable(topology)
    _refuse_empty_pieces(workload)
    if target is not None:
        refuse(target, topology, workload)
        topology = seen_by_target(target, topology, workload, kept)
    find(spec.partition("+")[0])  # loads the planners, which is not planning
    loaded, wall, cpu = replace(LOADING), time.perf_counter(), time.process_time()
    several = len(workload.collectives) > 1
    different = len({c.alike for c in workload.collectives}) if several else 1
    budget = Budget(steps_of(effort, different), stop=Stop(time_limit_s))
    begin_s = min(c.start_s for c in workload.collectives)
    from_now = replace(topology, changes=topology.changes.since(begin_s)) if topology.changes and begin_s else topology
    planes = joining_planes(topology, workload)
    planned_on = from_now if planes is None else on_planes(from_now, planes)
    request = Request(
        planned_on, from_zero(workload), seed, budget, progress, target, None if time_limit_s else kept,
        several_chunks=several_chunks,
    )  # fmt: skip
    plan = _plan(spec, request, options or {})
    if planes is not None:
        plan = on_all_planes(plan, topology, planes)
    if from_now is not topology:
        plan = replace(plan, topology=topology)
    loading_s, loading_cpu_s = LOADING.wall_s - loaded.wall_s, LOADING.cpu_s - loaded.cpu_s
    facts: dict[str, Any] = {
        "effort": effort,
        "planning_s": time.perf_counter() - wall - loading_s,
        "planning_cpu_s": time.process_time() - cpu - loading_cpu_s,
        "loading_s": loading_s,
    }
    if target is not None:
        facts["target"] = target.name
    if budget.stop.used:
        facts["stopped"] = True
    return moved(plan.noted({**plan.meta, **facts}), workload)


def default_effort(spec: str) -> str:
    """The effort of a request that names none: normal for ``auto``, thorough for any other planner."""
    return "normal" if find(spec.partition("+")[0]).name == "auto" else "thorough"


def plan_by(spec: str, request: Request, **options: Any) -> Plan:
    """The plan of ``planner[+refiner...]`` for a request. Planners ask each other by this."""
    return _plan(spec, request, options)


def refusal_of(name: str, request: Request) -> StrettoError | None:
    """Why a planner does not serve a request, as far as that is known before any work; None if it may."""
    try:
        _refuse([find(name)], request)
    except StrettoError as refusal:
        return refusal
    return None


def _refuse_empty_pieces(workload: Workload) -> None:
    for number, c in enumerate(workload.collectives):
        # make_collective gives no empty pieces
        if not isinstance(c, Promised) and not c.piece_bytes.all():
            piece = int(np.flatnonzero(c.piece_bytes == 0)[0])
            raise InputError(f"piece {piece} has no bytes; leave it out", f"collective {number}")


def _plan(spec: str, request: Request, options: Mapping[str, Any]) -> Plan:
    candidates = find(spec.partition("+")[0]).alone
    return _best(candidates, spec, request, options) if candidates else _run(spec, request, options)


def _run(spec: str, request: Request, options: Mapping[str, Any]) -> Plan:
    """The plan of a spec that begins with a planner, as the request's target can run it."""
    target, budget = request.target, request.budget
    if target is None:
        return _once(spec, options, request)
    compares = find(spec.partition("+")[0]).compares
    own = request if compares else replace(request, target=None, one_order=target.same_bits)
    whole = budget.apart()

    def make(topology: Topology) -> Plan:
        # what a target asks takes nothing from what planners may try, so that they plan as they do without one; and a
        # plan that is made again has as much effort as the first one had
        again = topology is not request.topology
        if again:
            return _once(spec, options, own.for_other_work(topology=topology, budget=whole.apart()))
        return _once(spec, options, replace(own, budget=budget))

    return fitting(make, request.topology, request.workload, target, whole.apart(), request.kept)


def _once(spec: str, options: Mapping[str, Any], request: Request) -> Plan:
    """The plan of a spec that begins with a planner, unless an earlier request has made it."""
    if request.kept is None:
        return _by_stages(spec, options, request)
    asked = (request.seed, request.target, request.one_order and _sums_for_all(request), request.several_chunks)
    known = (request.enough_s, request.others_s)
    key = (spec, repr(sorted(options.items())), request.topology, request.workload, *asked, *known)
    return request.kept.plan(key, request.budget, partial(_by_stages, spec, options, request))


def _sums_for_all(request: Request) -> bool:
    """Whether several ranks want a sum, so that the order of sums matters."""
    return any(c.traits.reduces_to_all for c in request.workload.collectives)


def _by_stages(spec: str, options: Mapping[str, Any], request: Request) -> Plan:
    """Run each stage of a spec that begins with a planner."""
    stages = _stages(spec)
    options_of = _distribute(stages, options)
    _refuse(stages, request)
    topology = request.topology
    if not all(stage.messages for stage in stages):
        request = replace(request, topology=seen_by(topology, float(request.workload.chunk_bytes.mean())))
    plan: Any = None
    for stage, values in zip(stages, options_of, strict=True):
        # refiners decide about each transfer by itself
        plan = stage.run(apart(plan), request, **values) if stage.refines else stage.run(request, **values)
        if not isinstance(plan, Plan):
            raise InputError(f"{stage.name} returned {type(plan).__name__}, not a plan", "planner")
    used = {name: value for values in options_of for name, value in values.items()}
    meta = {**plan.meta, "planner": spec, "seed": request.seed, "options": used}
    retime = retimed if topology.changes else charged
    return retime(plan, topology).noted(meta)


def _best(planners: tuple[str, ...], spec: str, request: Request, options: Mapping[str, Any]) -> Plan:
    """The plan that ends first of those that ``planner+spec`` gives."""
    specs = [f"{name}+{spec}" for name in planners]
    if len(specs) == 1:
        return _run(specs[0], request, options)
    for stage in map(find, spec.split("+")):
        # a reason that holds after every planner is said once
        _check_served(stage, request)
    answers = [ask(each, partial(_run, each, request, options)) for each in specs]
    for answer in answers:
        if isinstance(answer.refusal, InputError):
            raise answer.refusal
    plan = best_of(answers).plan
    if plan is None:
        raise Unsupported(f"{spec} has no algorithm for this: {'; '.join(str(a.refusal) for a in answers)}")
    return plan


def _refuse(stages: list[Entry], request: Request) -> None:
    """Raise the reason why a stage does not serve a request, before any work."""
    collectives, topology = request.workload.collectives, request.topology
    if not (topology.link_count or topology.planes):  # planners say whether they serve networks with links
        refuse_unreachable(topology, collectives)
    for stage in stages:
        for collective in collectives:
            if not {*collective.traits.served_as} & {*stage.collectives}:
                serves = ", ".join(stage.collectives)
                raise Unsupported(f"{stage.name} does not serve {collective.kind}; it serves {serves}")
        _check_served(stage, request)
    refuse_unreachable(topology, collectives)


def _check_served(stage: Entry, request: Request) -> None:
    """Raise the reason why a stage does not serve a request: its plan is too large, or what the stage says."""
    reason = too_much(stage.transfers(request), "transfers")
    if reason is not None:
        raise Unsupported(f"{stage.name} does not serve {request.workload.title}: {reason}")
    reason = stage.serves(request.topology, request.workload)
    if reason is None and request.topology.changes and not stage.changes:
        wanted = [{*c.traits.served_as} for c in request.workload.collectives]
        able = ", ".join(
            e.name for e in registered().values() if e.changes and all(w & {*e.collectives} for w in wanted)
        )
        reason = f"it cannot heed bandwidths that change; these can: {able}"
    if reason is not None:
        raise Unsupported(f"{stage.name} does not serve {request.topology.name}: {reason}")


def _stages(spec: str) -> list[Entry]:
    """The planner and the refiners of a spec; InputError says which part is wrong."""
    stages = [find(name) for name in spec.split("+")]
    if stages[0].refines:
        planners = ", ".join(e.name for e in registered().values() if not e.refines)
        name = stages[0].name
        raise InputError(f"{name} refines a plan; name a planner before it, PLANNER+{name}: {planners}", "planner")
    for stage in stages[1:]:
        if not stage.refines:
            raise InputError(f"{stage.name} is a planner; only refiners come after a +", "planner")
    return stages


def _distribute(stages: list[Entry], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each stage its own options, parsed."""
    declared = {o.name for s in stages for o in s.options}
    for name in options:
        if name not in declared:
            of = "+".join(s.name for s in stages)
            raise InputError(f"{of} has no option {name!r}; {nearest(name, sorted(declared))}", "option")
    return [{o.name: o.value(options[o.name]) for o in stage.options if o.name in options} for stage in stages]
