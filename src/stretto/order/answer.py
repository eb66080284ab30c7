"""``order``: the numbering of machines, and of the GPUs in them, with which a library ends a step soonest."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.arrays import Int64
from ..model.errors import InputError, nearest
from ..model.progress import Progress, silent
from ..model.topology import Topology
from ..model.units import format_time, parse_size
from . import libraries
from .inside import find_inside
from .judge import Judge
from .network import Machines, machines_of
from .problem import Problem
from .search import BUDGETS, Found, find_order
from .step import Family, families, known_kind, listed_families, stage_of, whole
from .traffic import Library

TORCHRUN = "torchrun"
"""What torchrun starts with its usual backend, NCCL: it gives machines numbers in the order of their names."""

ALIASES = {TORCHRUN: "nccl", "mpi": "openmpi"}
"""Other names of libraries."""


@dataclass(frozen=True, eq=False)
class Order:
    """The order that was found, and what it is worth.

    Attributes:
        problem: the machines and the messages of each stage.
        library: the name of the library.
        families: what the step does, one family of groups after the other.
        algorithms: for each family the library's own name of its algorithm.
        given, found: int64[machines], the machine that has each number, before and after.
        before_s, after_s: the time of a step, as the simulator says.
        bound_s: no order of the machines (with GPUs inside in this order) takes less.
        stages: for each family its name, and its time before and after.
        judged: how many orders the simulator ran.
        paced: whether the simulator ran only the first times of long phases.
    """

    problem: Problem
    library: str
    families: tuple[Family, ...]
    algorithms: tuple[str, ...]
    given: Int64
    found: Int64
    before_s: float
    after_s: float
    bound_s: float
    stages: tuple[tuple[str, float, float], ...]
    judged: int
    paced: bool

    @property
    def machines(self) -> Machines:
        """The machines of the topology."""
        return self.problem.machines

    @property
    def inside(self) -> Int64:
        """int64[GPUs of the largest machine], the GPU that has each number in its machine."""
        return self.problem.inside

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the machines in the order of their numbers."""
        return tuple(self.machines.names[m] for m in self.found.tolist())

    @property
    def before(self) -> tuple[str, ...]:
        """The names of the machines in the order that was given."""
        return tuple(self.machines.names[m] for m in self.given.tolist())

    @property
    def ranks(self) -> tuple[int, ...]:
        """How many ranks the machine of each number has."""
        return tuple(self.machines.counts[self.found].tolist())

    @property
    def proven(self) -> bool:
        """Whether no order of the machines ends sooner."""
        return Found(self.found, self.after_s, self.bound_s, self.judged, not self.paced).proven

    @property
    def gpus(self) -> dict[str, list[str]]:
        """For each machine, in the order of their numbers, its accelerators in the order of theirs."""
        nodes = {self.machines.names[m]: self.machines.gpus[m] for m in self.found.tolist()}
        names = self.machines.topology.names
        return {name: [names[v] for v in g[self.inside[self.inside < len(g)]]] for name, g in nodes.items()}

    @property
    def links(self) -> list[int]:
        """The links that carry something in the order that was found."""
        k, nodes = self.problem.kinds, self.problem.net.gpu
        src, dst = nodes[self.found[k.src], k.src_gpu], nodes[self.found[k.dst], k.dst_gpu]
        hops = self.machines.pairs(src, dst, k.size_bytes).hops
        return sorted(set(self.machines.routes(src, dst, hops).values.tolist()))

    def to_json(self) -> dict[str, Any]:
        """What ``stretto order --json`` prints."""
        return {
            "order": list(self.order),
            "before_s": self.before_s,
            "after_s": self.after_s,
            "bound_s": self.bound_s,
            "proven": self.proven,
            "speedup": self.before_s / self.after_s,
            "topology": self.machines.topology.name,
            "library": self.library,
            "algorithm": self.algorithms[0] if len(self.algorithms) == 1 else None,
            "machines": self.machines.count,
            "ranks": len(self.machines.nodes),
            "before": list(self.before),
            "gpu_order": self.inside.tolist(),
            "gpus": self.gpus,
            "groups": [
                {"name": name, "collective": f.collective, "size_bytes": f.size_bytes, "groups": len(f.groups),
                 "algorithm": algorithm, "before_s": before_s, "after_s": after_s}
                for (name, before_s, after_s), f, algorithm in zip(self.stages, self.families, self.algorithms)
            ],
            "orders_simulated": self.judged,
            "long_phases_by_pace": self.paced,
        }  # fmt: skip

    def write(self, path: str | os.PathLike[str], to: str | None = None) -> None:
        """Write the order as a launcher reads it, or all of :meth:`to_json` as JSON.

        Args:
            to: a format of :data:`stretto.order.files.FILES`.
        """
        from ..formats import atomic_file
        from .files import write_order

        if to is not None:
            write_order(os.fspath(path), to, self.order, self.ranks)
            return
        with atomic_file(os.fspath(path)) as file:
            file.write(json.dumps(self.to_json(), indent=1) + "\n")

    def __repr__(self) -> str:
        said = "no order ends sooner" if self.proven else f"no order ends before {format_time(self.bound_s)}"
        gain = f"{format_time(self.before_s)} before, {format_time(self.after_s)} after; {said}"
        order = self.order if len(self.order) <= SHOWN else (*self.order[:SHOWN], f"... ({len(self.order)} in all)")
        return f"<Order of {self.machines.topology.name} for {self.library}: {gain}\n {' '.join(order)}>"


SHOWN = 16
"""Machines that an order prints."""


def order(
    topology: Topology,
    library: str,
    collective: str | None = None,
    size: str | float | None = None,
    *,
    groups: str | None = None,
    root: int = 0,
    given: Sequence[str] | str | None = None,
    machines: str = "site",
    gpus: bool = True,
    effort: str = "normal",
    progress: Progress | None = None,
) -> Order:
    """Find the order of machines with which a library ends a step soonest.

    Args:
        library: a name in :data:`stretto.order.libraries.LIBRARIES` or :data:`ALIASES`; "torchrun" is NCCL and sorts
            machines by name, "mpi" is Open MPI.
        collective, size: what all ranks do, and the full buffer; or of groups that do not say theirs.
        groups: families of parallel groups, see :func:`stretto.order.step.families`, or the path of a JSON file.
        root: of a rooted collective, a rank.
        given: the order to compare with and to improve on, by names of machines or as one text with commas; "sorted" by
            name; by default the topology's own order.
        machines: "site" or "gpu", see :func:`stretto.order.network.machines_of`.
        gpus: whether the order of GPUs inside machines may change, too.
        effort: "quick", "normal" or "thorough".
        progress: told how far the search is, see :mod:`stretto.model.progress`.
    Raises:
        InputError: no such library, collective, group, machine or effort.
        Unsupported: the library lacks the collective, or the topology has what an order cannot be planned for.
    """
    if effort not in BUDGETS:
        raise InputError(f"{effort!r} is no effort; {nearest(effort, BUDGETS)}", "effort")
    lib = library_named(library)
    net = machines_of(topology, machines)
    before = _given(net, given, library)
    seats = net.counts[before]
    asked = _families(collective, size, groups, root, len(net.nodes))
    number = np.repeat(np.arange(net.count), seats)
    stages = tuple(stage_of(family, lib, number) for family in asked)
    problem = Problem(net, stages, seats, np.arange(int(seats.max())))
    judge = Judge(problem)
    tell = progress or silent
    tell(0, 0, f"simulating the order of machines of {topology.name} before")
    before_s = judge.stages_s(before)
    if gpus and lib.inside and len(problem.inside) > 1:
        inside = find_inside(problem, before, tell)
        if not np.array_equal(inside, problem.inside):
            problem = replace(problem, inside=inside)
            judge = Judge(problem)
    found = find_order(problem, before, effort, judge, tell)
    tell(0, 0, "simulating the order that was found")
    after_s = judge.stages_s(found.order)
    total_s = float(sum(t.max() for t in before_s))
    if found.seconds > total_s:
        raise AssertionError("the order given is one of those that are compared")
    return Order(
        problem, library, tuple(asked), tuple(stage.shares[0].traffic.algorithm for stage in stages), before,
        found.order, total_s, found.seconds, found.bound_s,
        tuple((f.name, float(b.max()), float(a.max())) for f, b, a in zip(asked, before_s, after_s)),
        found.judged, not found.exact,
    )  # fmt: skip


def library_named(name: str) -> Library:
    """A library by its name.

    Raises:
        InputError: there is none; names those there are.
    """
    known = libraries.LIBRARIES
    lib = known.get(ALIASES.get(name, name))
    if lib is None:
        raise InputError(f"there is no library {name!r}; {nearest(name, (*known, *ALIASES))}", "library")
    return lib


def _given(net: Machines, given: Sequence[str] | str | None, library: str) -> Int64:
    """int64[machines], the order before."""
    if given is None:
        given = "sorted" if library == TORCHRUN else "topology"
    if given == "topology":
        return np.arange(net.count)
    if given == "sorted":
        return np.array(sorted(range(net.count), key=lambda m: net.names[m]), dtype=np.int64)
    names = given.split(",") if isinstance(given, str) else list(given)
    return net.numbers([name.strip() for name in names], "order")


def _families(
    collective: str | None, size: str | float | None, groups: str | None, root: int, ranks: int
) -> list[Family]:
    """What the step does."""
    size_bytes = parse_size(size, "size") if size is not None else None
    if collective is not None:
        known_kind(collective, "collective")
    if groups is not None:
        if groups.endswith(".json") or os.path.exists(groups):
            return listed_families(groups, ranks, collective, size_bytes)
        return families(groups, ranks, collective, size_bytes)
    if collective is None or size_bytes is None:
        raise InputError("give a collective and its size, or groups that say theirs", "collective")
    if not 0 <= root < ranks:
        raise InputError(f"root {root} is not a rank; there are ranks 0 to {ranks - 1}", "root")
    return [whole(collective, size_bytes, ranks, root)]
