"""The registry of planners and refiners, and how a spec such as ``ring+rate-alloc`` is run.

A planner is ``f(topology, workload, *, seed, time_limit_s, progress, **options) -> Plan``, decorated
with :func:`register`; a refiner is ``f(plan, *, seed, time_limit_s, progress, **options) -> Plan``,
decorated with :func:`refiner`. Each lives in one file of this package; other distributions add theirs
through the entry-point group ``stretto.planners``, whose entries name modules that register on import.
"""

from __future__ import annotations

import difflib
import importlib
import math
import pkgutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from ..model.collective import ALLTOALLV, REMAINDER, Workload
from ..model.errors import InputError, Unsupported
from ..model.plan import Plan
from ..model.reach import find_unreachable
from ..model.topology import Topology
from ..schedule.moments import from_zero, moved

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what) now and then during long work."""


@dataclass(frozen=True)
class Option:
    """One option of a planner, as ``--option name=value`` takes it."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] = ()

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for; InputError if it stands for none."""
        where = f"--option {self.name}={text}"
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        try:
            value = words[text.lower()] if self.type is bool else self.type(text)
        except (KeyError, ValueError):
            raise InputError(f"{text!r} is no {self.type.__name__}", where) from None
        if self.choices and value not in self.choices:
            raise InputError(f"{text!r} is none of {', '.join(map(str, self.choices))}", where)
        return value


@dataclass(frozen=True)
class Entry:
    """A registered planner or refiner.

    Attributes:
        name: what ``-p`` takes.
        run: the function.
        refines: True for a refiner (plan to plan).
        collectives: the kinds that it serves.
        topologies: which topologies it serves, in words.
        serves: ``(topology, workload) -> reason``, None where it can; checked before any work.
        paper: where it comes from.
        exact: True if its answer is optimal by construction.
        alone: the planners that a refiner which is named alone is run after, to keep the best plan.
        quick: options with which one that solves programs answers within seconds on a few ranks.
    """

    name: str
    run: Callable[..., Plan]
    summary: str
    collectives: tuple[str, ...]
    topologies: str
    paper: str
    exact: bool = False
    refines: bool = False
    alone: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    quick: Mapping[str, Any] | None = None
    serves: Callable[[Topology, Workload], str | None] = lambda topology, workload: None


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str,
    *,
    collectives: Iterable[str],
    topologies: str,
    paper: str,
    exact: bool = False,
    refines: bool = False,
    alone: Iterable[str] = (),
    options: Iterable[Option] = (),
    quick: Mapping[str, Any] | None = None,
    serves: Callable[[Topology, Workload], str | None] | None = None,
) -> Callable[[Callable[..., Plan]], Callable[..., Plan]]:
    """Register the decorated function; its docstring's first line is the summary."""

    def decorate(run: Callable[..., Plan]) -> Callable[..., Plan]:
        if name in _ENTRIES and _ENTRIES[name].run is not run:
            raise ValueError(f"two planners are called {name!r}")
        entry = Entry(
            name=name,
            run=run,
            summary=(run.__doc__ or "").strip().partition("\n")[0].rstrip("."),
            collectives=tuple(collectives),
            topologies=topologies,
            paper=paper,
            exact=exact,
            refines=refines,
            alone=tuple(alone),
            options=tuple(options),
            quick=quick,
        )
        _ENTRIES[name] = entry if serves is None else replace(entry, serves=serves)
        return run

    return decorate


refiner = partial(register, refines=True)
"""Register the decorated ``f(plan, *, seed, time_limit_s, progress, **options) -> Plan`` as a refiner."""


def over_links(topology: Topology, workload: Workload) -> str | None:
    """What those say to optical planes that use links alone."""
    return "it plans over links, not optical planes" if topology.planes else None


def registered() -> dict[str, Entry]:
    """All planners and refiners by name, built in and from entry points."""
    _load_all()
    return dict(sorted(_ENTRIES.items()))


@cache
def _load_all() -> None:
    """Import every module that registers planners; once, since looking for entry points takes milliseconds."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f".{module.name}", __name__)
    for point in entry_points(group="stretto.planners"):
        point.load()


def find(name: str) -> Entry:
    """The planner or refiner of that name; InputError names the nearest, or the ones there are."""
    _load_all()
    if name not in _ENTRIES:
        near = difflib.get_close_matches(name, [*registered()], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(registered())}"
        raise InputError(f"there is no planner {name!r}; {hint}", "-p")
    return _ENTRIES[name]


def run_planner(
    spec: str,
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    options: Mapping[str, Any] | None = None,
) -> Plan:
    """Run ``planner[+refiner...]`` and stamp the plan with how it was made.

    A refiner that says which planners it can be run after may stand alone: of those that serve the
    request, the plan that ends first is kept.

    Args:
        options: by name; text is parsed as the option's type. Each goes to the stages of the spec
            that declare it.
    Raises:
        InputError: an unknown name or option. Unsupported: a stage does not serve this request.
    """
    candidates = find(spec.partition("+")[0]).alone
    if candidates:
        return _best(candidates, spec, topology, workload, seed, time_limit_s, progress, options)
    stages = _stages(spec)
    given = _distribute(stages, dict(options or {}))
    asked, workload = workload, from_zero(workload)
    for stage in stages:
        for kind in (c.kind for c in workload.collectives):
            # what is left of a collective, or an uneven AllToAll, is a multicast of each chunk
            names = {kind, "multicast"} if kind in (REMAINDER, ALLTOALLV) else {kind}
            if names.isdisjoint(stage.collectives):
                raise Unsupported(f"{stage.name} does not serve {kind}; it serves {', '.join(stage.collectives)}")
        reason = stage.serves(topology, workload)
        if reason is not None:
            raise Unsupported(f"{stage.name} does not serve {topology.name}: {reason}")
    for collective in workload.collectives:
        pair = find_unreachable(topology, collective)
        if pair is not None:
            a, b = (topology.names[v] for v in pair)
            raise InputError(f"{a} cannot reach {b}: the ranks are not connected", topology.name)
    wall, cpu = time.perf_counter(), time.process_time()
    result: Any = None
    for stage, own in zip(stages, given, strict=True):
        inputs = (result,) if stage.refines else (topology, workload)
        result = stage.run(*inputs, seed=seed, time_limit_s=time_limit_s, progress=progress, **own)
    meta = {
        "planner": spec,
        "seed": seed,
        "options": {k: v for own in given for k, v in own.items()},
        "planning_s": time.perf_counter() - wall,
        "planning_cpu_s": time.process_time() - cpu,
    }
    plan: Plan = replace(result, meta={**result.meta, **meta})
    return moved(plan, asked)


def _best(
    candidates: tuple[str, ...],
    spec: str,
    topology: Topology,
    workload: Workload,
    seed: int,
    time_limit_s: float | None,
    progress: Progress | None,
    options: Mapping[str, Any] | None,
) -> Plan:
    """The plan that ends first, of those that ``candidate+spec`` gives."""
    if len(candidates) == 1:
        return run_planner(
            f"{candidates[0]}+{spec}", topology, workload,
            seed=seed, time_limit_s=time_limit_s, progress=progress, options=options,
        )  # fmt: skip
    for stage in map(find, spec.split("+")):
        # what no algorithm changes is said once
        if (reason := stage.serves(topology, workload)) is not None:
            raise Unsupported(f"{stage.name} does not serve {topology.name}: {reason}")
    plans, refusals = [], []
    wall, cpu = time.perf_counter(), time.process_time()
    for name in candidates:
        try:
            plans.append(
                run_planner(
                    f"{name}+{spec}", topology, workload,
                    seed=seed, time_limit_s=time_limit_s, progress=progress, options=options,
                )
            )  # fmt: skip
        except Unsupported as refusal:
            refusals.append(str(refusal))
    if not plans:
        raise Unsupported(f"{spec} has no algorithm for this: {'; '.join(refusals)}")
    best = min(plans, key=lambda plan: math.inf if plan.finish_s is None else float(plan.finish_s.max(initial=0.0)))
    spent = {"planning_s": time.perf_counter() - wall, "planning_cpu_s": time.process_time() - cpu}
    return replace(best, meta={**best.meta, **spent})


def _stages(spec: str) -> list[Entry]:
    """The planner and the refiners of a spec; InputError says which part is the wrong one."""
    stages = [find(name) for name in spec.split("+")]
    if stages[0].refines:
        planners = ", ".join(e.name for e in registered().values() if not e.refines)
        name = stages[0].name
        raise InputError(f"{name} refines a plan; name a planner before it, PLANNER+{name}: {planners}", "-p")
    for stage in stages[1:]:
        if not stage.refines:
            raise InputError(f"{stage.name} is a planner; only refiners come after a +", "-p")
    return stages


def _distribute(stages: list[Entry], options: dict[str, Any]) -> list[dict[str, Any]]:
    """For each stage its own options, parsed."""
    declared = {o.name for s in stages for o in s.options}
    for name in options:
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise InputError(f"{'+'.join(s.name for s in stages)} has no option {name!r}; it has {known}", "--option")
    return [
        {
            o.name: o.parse(options[o.name]) if isinstance(options[o.name], str) else options[o.name]
            for o in stage.options
            if o.name in options
        }
        for stage in stages
    ]
