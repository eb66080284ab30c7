"""The registry: every planner and refiner, what it serves, and what its options are.

A planner is ``f(request, **options) -> Plan``, decorated with :func:`register`; a refiner is
``f(plan, request, **options) -> Plan``, decorated with :func:`refiner`. Those of stretto are the modules and folders
beside this file. Another package adds planners through the entry-point group ``stretto.planners``, whose entries name
modules that register on import. A planner in a file of its own is named as ``FILE.py:NAME``.

This is the only list of planners: whoever asks several of them (``auto``, ``tune``, the library of running processes)
reads here which ones, and in which order.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, cached_property, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..kernels import at_speed
from ..kernels.paths import distances
from ..model.arrays import Int64
from ..model.collective import Collective, Workload
from ..model.errors import InputError, nearest, none_of
from ..model.plan import Plan
from ..model.progress import Progress, tell_at_most, tell_counting
from ..model.targets import Target
from ..model.topology import ACCELERATOR, Topology
from ..schedule.effort import STEPS_A_SECOND, UNIT_STEPS, Budget
from ..schedule.kept import Kept


@dataclass(frozen=True)
class Request:
    """What a planner is asked for, besides its own options.

    Attributes:
        topology, workload: what to plan; the first collective starts at 0.
        seed: for planners that draw random numbers.
        budget: counted work that it may spend, and the net that may stop it early.
        progress: told now and then how far long work is.
        target: what shall run the plan; None if nothing is known of it. The topology is as the target uses it.
        kept: plans of earlier requests for the same work, which may differ in their targets.
        one_order: whether plans in which ranks add up in different orders will be left out, so that a planner which
            compares several of its own should compare the others.
        several_chunks: whether a message may carry several chunks.
        enough_s: a plan that ends by then is good enough, seconds.
        others_s: what the best plan of others takes so far, seconds: what ends much later need not be sought.
    """

    topology: Topology
    workload: Workload
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    progress: Progress | None = None
    target: Target | None = None
    kept: Kept | None = None
    one_order: bool = False
    several_chunks: bool = True
    enough_s: float = 0.0
    others_s: float = math.inf

    def for_other_work(self, **changes: Any) -> Request:
        """A request for a part of this work, or for work on another network, of which no plan is there."""
        return replace(self, **changes, enough_s=0.0, others_s=math.inf)

    def tell(self, done: int, total: int, what: str) -> None:
        """Tell :attr:`progress`, if somebody listens."""
        if self.progress is not None:
            self.progress(done, total, what)

    def tell_solving(self, what: str, units: float | None = None) -> None:
        """Tell :attr:`progress` what a solver is asked, and how long it takes at most.

        Args:
            units: of effort that the solver may spend; None if it is still the same call.
        """
        if self.progress is not None:
            seconds = None if units is None else min(units * UNIT_STEPS / STEPS_A_SECOND, self.budget.stop.left_s)
            tell_at_most(self.progress, what, seconds)

    def tell_counting(self, counted: Int64, before: int, total: int, what: str) -> None:
        """Tell :attr:`progress` of a kernel's work, see :func:`stretto.model.progress.tell_counting`."""
        if self.progress is not None:
            tell_counting(self.progress, counted, before, total, what)

    @property
    def deliveries(self) -> int:
        """About how many deliveries a plan makes: for each chunk one from every holder and one to every receiver.

        A chunk that every rank wants summed counts once for each rank, since planners cut it into a part for each.
        """
        return sum(map(_deliveries, self.workload.collectives))

    @cached_property
    def transfers(self) -> int:
        """About how many transfers a plan over links makes: a delivery, or where data is not copied one for each node
        that stores on a way of fewest."""
        topology, collectives = self.topology, self.workload.collectives
        alone = [not (c.traits.copies or c.reduces) for c in collectives]
        if topology.planes or not any(alone):
            return self.deliveries
        return sum(
            _stops(topology, c) if single else _deliveries(c) for c, single in zip(collectives, alone, strict=True)
        )


def _deliveries(c: Collective) -> int:
    """The deliveries of a collective."""
    parts = len(c.ranks) if c.traits.reduces_to_all else 1
    return c.pairs * parts * c.chunk_count // c.piece_count


def _stops(topology: Topology, c: Collective) -> int:
    """How many nodes that store are on ways of fewest from holders of chunks to receivers, one holder and one receiver
    a chunk; counted from the holders or from the receivers, whichever are fewer."""
    ends = c.chunk_holders.values, c.chunk_wanted.values
    moves = ends[0] != ends[1]
    nodes, (begins, goals) = topology.node_count, (end[moves].astype(np.int64) for end in ends)
    joined = topology.src.astype(np.int64) * nodes + topology.dst
    if (topology.forwarding[goals] == ACCELERATOR).all() and np.isin(begins * nodes + goals, joined).all():
        return len(goals)  # each by one link
    few = [np.unique(nodes, return_inverse=True) for nodes in ends]
    backward = len(few[0][0]) > len(few[1][0])
    starts, row = few[backward]
    links, to = (topology.in_links, topology.src) if backward else (topology.out_links, topology.dst)
    weight = (topology.forwarding == ACCELERATOR)[topology.dst].astype(np.float64)
    work = 30.0 * len(starts) * topology.link_count
    every = np.arange(len(starts) + 1)
    hops = at_speed(distances, work)(*links, to.astype(np.int64), weight, every, starts.astype(np.int64))
    stops = hops[row.reshape(-1), ends[not backward]]
    return int(stops[np.isfinite(stops)].sum())  # what no way leads to is refused later, with its name


@dataclass(frozen=True)
class Candidate:
    """How ``auto`` asks a planner.

    Attributes:
        steps: ``request -> steps``, the work that the planner and the simulation of its plan take, about (see
            :mod:`stretto.schedule.effort`). ``auto`` asks the planner if that number is left, and counts them as spent,
            or what the planner itself has counted on ``request.budget`` if that is more.
        counts: True for a planner that searches on while its budget lasts; ``steps`` is then the least with which it
            is worth asking.
        leads: True for a planner from which the best plans come. The first of these is asked whatever it takes.
        fills_links: for one that leads: True if it is asked before the others where bandwidth decides.
        few_messages: for one that leads: True if it sends few messages and is asked before searches. Where bandwidth
            decides it comes with those that fill links, or after them where sites are far apart.
        collectives_from: it is asked where there are at least as many collectives; before all others if these are two.
        ranks_from: it is asked where there are at least as many ranks.
        by_ranks: True if its work grows with the number of ranks, not with that of pairs of ranks.
        asked: ``request -> bool``, whether it is asked at all.
        least_s: ``request -> seconds``, what its plan would take at least, about, for little work. It is not asked
            once there is a plan that takes less.
    """

    steps: Callable[[Request], float]
    counts: bool = False
    leads: bool = False
    fills_links: bool = False
    few_messages: bool = False
    collectives_from: int = 1
    ranks_from: int = 2
    by_ranks: bool = False
    asked: Callable[[Request], bool] = lambda request: True
    least_s: Callable[[Request], float] | None = None


def per_delivery(steps: float, first: float = 0.0) -> Callable[[Request], float]:
    """A cost for :class:`Candidate`: ``first`` steps, and ``steps`` for each of the request's deliveries."""
    return lambda request: first + steps * request.deliveries


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
            kind = {int: "no integer", float: "no number", bool: "neither true nor false"}[self.type]
            raise InputError(f"{text!r} is {kind}", where) from None
        if self.choices and value not in self.choices:
            raise InputError(none_of(text, map(str, self.choices)), where)
        return value

    def value(self, given: Any) -> Any:
        """What a planner gets: text is parsed, and a whole number is a float where the option is one, since a kernel is
        compiled again for arguments of another type."""
        if isinstance(given, str):
            return self.parse(given)
        return float(given) if self.type is float and isinstance(given, int) else given


@dataclass(frozen=True)
class Entry:
    """A registered planner or refiner.

    Attributes:
        name: the name by which it is asked.
        run: the function.
        refines: True for a refiner (plan to plan).
        collectives: the kinds that it serves.
        topologies: which topologies it serves, in words.
        serves: ``(topology, workload) -> reason``, None where it can; checked before any work.
        paper: where it comes from.
        exact: True if its answer is optimal by construction.
        alone: for a refiner that may be named without a planner: the planners to run it after; the best plan is kept.
        quick: for one that solves programs: options with which it answers within seconds on a few ranks.
        messages: True if it heeds what messages cost. If a stage of a spec does not, all stages are given the network
            as a chunk of mean size sees it, with links that are slower by the cost, and their plan is timed again.
        changes: True if it heeds bandwidths that change with time; other planners refuse a network on which they do.
        transfers: ``request -> count``, about how many transfers its plan has.
        cuts: True if it cuts chunks as it needs, so that the chunks of the request matter little.
        compares: True if it compares plans of other planners. It then asks them for plans that the target can run;
            any other planner plans as if there were no target, but for the order of sums, and its plan is fitted to the
            target afterwards.
        auto: how ``auto`` asks it; None if ``auto`` does not.
        tune: its place among the planners that ``stretto tune`` compares by default, the lowest first; None if it is
            not among them. Of plans that end together the first is kept.
        library: its place among the planners from which running processes take the first plan of a collective at once
            (:mod:`stretto.choose.quick`): planners that need a few hundredths of a second.
        library_wide: the same where bandwidth decides; by default its place in the library.
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
    messages: bool = False
    changes: bool = False
    transfers: Callable[[Request], float] = lambda request: request.deliveries
    cuts: bool = False
    compares: bool = False
    auto: Candidate | None = None
    tune: int | None = None
    library: int | None = None
    library_wide: int | None = None
    serves: Callable[[Topology, Workload], str | None] = lambda topology, workload: None


GIVEN = tuple(f.name for f in fields(Entry) if f.default is not MISSING)
"""What :func:`register` takes besides what it needs."""

_ENTRIES: dict[str, Entry] = {}

AT_ONCE = ("fixed", "optical", "shortest_path", "symmetric")
"""The modules beside this file that have planners with a place in the library: a rank that makes first plans loads
these alone, in 0.03 s of CPU instead of 0.12 s."""

_FILES: dict[Path, tuple[str, ...]] = {}
"""The names that each imported file of planners has registered."""


def register(
    name: str, *, collectives: Iterable[str], topologies: str, paper: str, **more: Any
) -> Callable[[Callable[..., Plan]], Callable[..., Plan]]:
    """Register the decorated function; the first line of its docstring is the summary.

    Args:
        more: other fields of :class:`Entry`; None for the default.
    Raises:
        TypeError: there is no such field, or it is not to be given.
    """
    for word in more:
        if word not in GIVEN:
            raise TypeError(f"planner {name!r} is registered with {word!r}; {nearest(word, GIVEN)}")
    given = {word: value for word, value in more.items() if value is not None}
    for word in ("alone", "options"):
        given[word] = tuple(given.get(word, ()))

    def decorate(run: Callable[..., Plan]) -> Callable[..., Plan]:
        if name in _ENTRIES and _ENTRIES[name].run is not run:
            raise ValueError(f"two planners are called {name!r}")
        summary = (run.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        _ENTRIES[name] = Entry(name, run, summary, tuple(collectives), topologies, paper, **given)
        return run

    return decorate


refiner = partial(register, refines=True)
"""Register the decorated ``f(plan, request, **options) -> Plan`` as a refiner."""


def asked_by(role: Literal["auto", "tune", "library"]) -> list[Entry]:
    """The planners that ``tune`` or the library asks, in their places; those that ``auto`` asks, by name."""
    _load(AT_ONCE if role == "library" else None)
    asked = [entry for _, entry in sorted(_ENTRIES.items()) if getattr(entry, role) is not None]
    return asked if role == "auto" else sorted(asked, key=lambda entry: getattr(entry, role))


def over_links(topology: Topology, workload: Workload) -> str | None:
    """The reason of planners that plan over links alone, where a topology has optical planes."""
    return "it plans over links, not optical planes" if topology.planes else None


def registered() -> dict[str, Entry]:
    """All planners and refiners by name, stretto's own and those from entry points."""
    _load(None)
    return dict(sorted(_ENTRIES.items()))


@cache
def _load(names: tuple[str, ...] | None) -> None:
    """Import modules beside this file, all if none are named, and those of other packages."""
    package = importlib.import_module(__package__)
    every = (module.name for module in pkgutil.iter_modules(package.__path__))
    for name in every if names is None else names:
        importlib.import_module(f"{__package__}.{name}")
    _load_others()


@cache
def _load_others() -> None:
    """Import the modules of other packages; once, since looking for entry points takes milliseconds."""
    for point in entry_points(group="stretto.planners"):
        point.load()


def find(name: str) -> Entry:
    """The planner or refiner of that name; ``FILE.py:NAME`` is one that a file registers, which is imported once.

    Raises:
        InputError: there is none, or the file cannot be imported or does not register it.
    """
    for modules in ((), *zip(AT_ONCE), None):  # few first
        _load(modules)
        if name in _ENTRIES:  # names are unique, so the other planners need not be loaded
            return _ENTRIES[name]
    file, colon, inside = name.rpartition(":")
    if colon and file.endswith(".py"):
        names = _load_file(Path(file))
        if inside not in names:
            raise InputError(f"it registers no planner {inside!r}; it registers {', '.join(names)}", file)
        return _ENTRIES[inside]
    if name.endswith(".py"):
        raise InputError(f"{name} is a file; name a planner in it, {name}:NAME", "planner")
    if "," in name:
        raise InputError(f"{name!r} is not one planner; `stretto compare` and `stretto tune` take several", "planner")
    if name not in _ENTRIES:
        raise InputError(f"there is no planner {name!r}; {nearest(name, registered())}", "planner")
    return _ENTRIES[name]


def _load_file(file: Path) -> tuple[str, ...]:
    """The names of the planners that a file registers.

    Raises:
        InputError: the file is missing, cannot be imported, or registers nothing.
    """
    path = file.resolve()
    if path in _FILES:
        return _FILES[path]
    if not path.is_file():
        raise InputError("there is no such file", str(file))
    before = dict(_ENTRIES)
    name = f"planner_file_{len(_FILES)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "its name ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        _ENTRIES.clear()
        _ENTRIES.update(before)
        raise InputError(f"it cannot be imported: {type(error).__name__}: {error}", str(file)) from error
    names = tuple(name for name in _ENTRIES if name not in before)
    if not names:
        raise InputError("it registers no planner; decorate a function with stretto.planners.register", str(file))
    _FILES[path] = names
    return names
