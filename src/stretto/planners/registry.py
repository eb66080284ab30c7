"""The registry: every planner and refiner, what it serves, and what its options are.

A planner is ``f(request, **options) -> Plan``, decorated with :func:`register`; a refiner is
``f(plan, request, **options) -> Plan``, decorated with :func:`refiner`. Those of stretto are the modules and folders
beside this file. Other distributions add theirs through the entry-point group ``stretto.planners``, whose entries name
modules that register on import.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from ..model.collective import Workload
from ..model.errors import InputError
from ..model.plan import Plan
from ..model.topology import Topology
from ..schedule.effort import Budget

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what) now and then during long work."""


@dataclass(frozen=True)
class Request:
    """What a planner is asked for, besides its own options.

    Attributes:
        topology, workload: what to plan; the first collective starts at 0.
        seed: for planners that draw random numbers.
        budget: counted work that it may spend, and the net that may stop it early.
        progress: told now and then how far long work is.
    """

    topology: Topology
    workload: Workload
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    progress: Progress | None = None

    def tell(self, done: int, total: int, what: str) -> None:
        """Tell :attr:`progress`, if somebody listens."""
        if self.progress is not None:
            self.progress(done, total, what)


@dataclass(frozen=True)
class Option:
    """One option of a planner, as ``--option name=value`` takes it."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] = ()

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for.

        Raises:
            InputError: it stands for none.
        """
        where = f"option {self.name}={text}"
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
        alone: for a refiner that may be named without a planner: the planners to run it after; the best plan is kept.
        quick: for one that solves programs: options with which it answers within seconds on a few ranks.
        takes_request: False while a function still takes topology, workload, seed, time limit and progress apart.
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
    takes_request: bool = True


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
    """Register the decorated function; the first line of its docstring is the summary."""

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
            takes_request="request" in inspect.signature(run).parameters,
        )
        _ENTRIES[name] = entry if serves is None else replace(entry, serves=serves)
        return run

    return decorate


refiner = partial(register, refines=True)
"""Register the decorated ``f(plan, request, **options) -> Plan`` as a refiner."""


def over_links(topology: Topology, workload: Workload) -> str | None:
    """The reason of planners that plan over links alone, where a topology has optical planes."""
    return "it plans over links, not optical planes" if topology.planes else None


def registered() -> dict[str, Entry]:
    """All planners and refiners by name, stretto's own and those from entry points."""
    _load_all()
    return dict(sorted(_ENTRIES.items()))


@cache
def _load_all() -> None:
    """Import every module that registers planners; once, since looking for entry points takes milliseconds."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    for point in entry_points(group="stretto.planners"):
        point.load()


def find(name: str) -> Entry:
    """The planner or refiner of that name.

    Raises:
        InputError: there is none; it names the nearest, or all that there are.
    """
    _load_all()
    if name not in _ENTRIES:
        near = difflib.get_close_matches(name, [*registered()], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(registered())}"
        raise InputError(f"there is no planner {name!r}; {hint}", "planner")
    return _ENTRIES[name]
