"""Plans for processes that ask for collectives: one for each kind, root and size class.

The first call of such a *shape* gets a plan that any rank can make in hundredths of a second, and that is the same
wherever it is made (:mod:`.quick`). A better one is made once, by the planner that a table of ``stretto tune`` names or
else by ``auto``, in a process of its own (:mod:`.planning`), and kept on disk (:mod:`.kept`). When to change to it, the
processes have to agree (:mod:`stretto.torch.plans`).

Only the ranks run plans: routers are the network's matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ..lower import Program, lower_for
from ..model.arrays import Int64
from ..model.collective import Collective
from ..model.errors import InputError, Unsupported
from ..model.kinds import BY_NAME
from ..model.plan import Plan
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from ..model.variants import costing
from ..schedule.effort import steps_of
from ..topologies import load_topology
from ..topologies.measured import sites_of
from .dead_links import DeadPairs, dead_words, without_pairs
from .requests import PlanRequest, Shape

if TYPE_CHECKING:
    from .tuning import Tuning

BANDWIDTH, LATENCY_S = 1e9, 10e-6
"""Bytes/s and seconds between a rank and the network, where no topology is given."""

EFFORT = "normal"
"""Effort of better plans, unless ``STRETTO_EFFORT`` gives another."""

NO_EFFORT = "none"
"""The value of ``STRETTO_EFFORT`` with which no better plans are made."""


def joined_by_one_switch(count: int) -> Topology:
    """The network to assume where nothing is known: every rank sends and receives through one port."""
    links = _ports([count] * count, BANDWIDTH, LATENCY_S)
    return make_topology(f"{count} ranks at one switch", [ACCELERATOR] * count + [SWITCH], links)


def _ports(switches: Sequence[int], bandwidth: float, latency_s: float) -> list[tuple[int, int, float, float]]:
    """The links between each rank and its switch, both ways."""
    ends = [end for v, switch in enumerate(switches) for end in ((v, switch), (switch, v))]
    return [(a, b, bandwidth, latency_s) for a, b in ends]


Pairs = Mapping[tuple[int, int], tuple[float, float]]
"""For each two ranks, the lower first, the latency in seconds and the bandwidth in bytes/s, as measured."""


def joined_by_sites(
    count: int, pairs: Pairs, between: Mapping[tuple[int, int], float] | None = None, widest: float = 0.0,
    sites: Sequence[Sequence[int]] | None = None,
) -> Topology:  # fmt: skip
    """The network that measurements show: one switch for the ranks of each site, and links between the switches.

    Args:
        between: for two sites of :func:`sites_of` the bytes/s that many pairs reached together from the first to the
            second. Where it is missing, the best pair of the two sites says what the link has at least.
        widest: bytes/s that some pair of one site reached by several connections.
        sites: the ranks of each site; by default those of :func:`sites_of`.
    """
    sites = sites or sites_of(count, pairs)
    if len(sites) == 1:
        return joined_by_one_switch(count)
    best = max(widest, *(width for _, width in pairs.values()), *(between or {}).values())
    at = {v: i for i, site in enumerate(sites) for v in site}
    inner = [t for (a, b), (t, _) in pairs.items() if at[a] == at[b]] or [LATENCY_S]
    latency_s = min(inner) / 2
    links = _ports([count + at[v] for v in range(count)], best, latency_s)
    for a, b in combinations(range(len(sites)), 2):
        crossing = [m for (x, y), m in pairs.items() if {at[x], at[y]} == {a, b}]
        if crossing:
            far, wide = min(t for t, _ in crossing), max(w for _, w in crossing)
            links += [(count + x, count + y, (between or {}).get((x, y), wide), far) for x, y in ((a, b), (b, a))]
    kinds = [ACCELERATOR] * count + [SWITCH] * len(sites)
    return make_topology(f"{count} ranks in {len(sites)} sites, as measured", kinds, links)


@dataclass(frozen=True, eq=False)
class Cut:
    """For each chunk of a plan its piece, from where to where it lies in it, and the size of the piece, in bytes."""

    piece: Int64
    low: Int64
    high: Int64
    whole: Int64

    @classmethod
    def of(cls, c: Collective) -> Cut:
        """How a collective's pieces are cut into chunks."""
        end = c.chunk_offset + c.chunk_bytes
        return cls(c.chunk_piece.astype(np.int64), c.chunk_offset, end, np.maximum(c.piece_bytes, 1)[c.chunk_piece])

    def edges(self, elements: Int64) -> tuple[Int64, Int64]:
        """For each chunk its first element and the one after its last.

        The plan may have been made for another size. Its places are scaled; together they still cover every piece.

        Args:
            elements: int64[pieces], the elements of each piece.
        """
        count = elements[self.piece]
        return self._scaled(self.low, count), self._scaled(self.high, count)

    def _scaled(self, place: Int64, count: Int64) -> Int64:
        # place * count // whole, without a product that may overflow
        return place * (count // self.whole) + (place * (count % self.whole)) // self.whole


@dataclass(frozen=True, eq=False)
class Recipe:
    """This rank's program of a plan, and how the plan cuts pieces."""

    program: Program
    cut: Cut

    @cached_property
    def digest(self) -> int:
        """64 bits of the plan's digest: ranks whose plans are equal have equal ones."""
        return int(self.program.plan.digest()[:16], 16)


class Library:
    """The plans of one rank of one group.

    Args:
        topology: the network whose accelerators are the ranks of the world; None if it is not known.
        ranks: the ranks of the world that are in the group, in order.
        rank: the position of this rank among them.
        message_s: seconds that a message costs those who run the plans, at least, on every link.
        effort: of better plans; None if there are to be none.

    Attributes:
        unknown: whether no topology was given.
        dead: pairs of ranks whose links are dead.
    """

    def __init__(
        self,
        topology: Topology | None,
        ranks: Sequence[int],
        rank: int,
        tuning: Tuning | None = None,
        message_s: float = 0.0,
        effort: str | None = EFFORT,
    ) -> None:
        self.tuning, self.message_s, self.effort = tuning, message_s, effort
        self.unknown = topology is None
        self.learn(joined_by_one_switch(len(ranks)) if topology is None else topology)
        # the direct network and the programs name the ranks of the group by their nodes
        self.nodes = list(range(len(ranks))) if topology is None else [int(topology.accelerators[r]) for r in ranks]
        self.in_table = topology is not None and self.nodes == topology.accelerators.tolist()
        self.rank, self.size = rank, len(ranks)
        self.recipes: dict[tuple[Shape, bool], Recipe] = {}
        self.dead: DeadPairs = frozenset()

    def learn(self, topology: Topology) -> None:
        """Plan from now on for this network. Its nodes 0, 1, ... are the ranks, unless the library began with one."""
        # processes send one copy to each receiver, so no switch multicasts or sums
        none = np.zeros(topology.node_count, dtype=bool)
        # and optical planes are as the last collective left them: each plan turns them to what it needs
        planes = tuple(replace(p, matching=np.full(len(p.nodes), -1, dtype=np.int32)) for p in topology.planes)
        self.topology = costing(replace(topology, replicates=none, reduces=none, planes=planes), self.message_s)

    def lose(self, dead: DeadPairs) -> None:
        """Plan from now on for the network without the links of these pairs of ranks."""
        self.topology = without_pairs(self.topology, self.nodes, dead)
        self.dead, self.tuning, self.recipes = dead, None, {}

    @property
    def sites(self) -> list[int]:
        """For each rank the number of its site: its server or datacenter where the topology names them, else what is
        joined without a link between two switches or routers."""
        net = self.topology
        names = [net.sites[v] for v in self.nodes]
        if not all(names):
            from scipy.sparse import coo_array
            from scipy.sparse.csgraph import connected_components

            own = (net.kind[net.src] == ACCELERATOR) | (net.kind[net.dst] == ACCELERATOR)
            links = coo_array((np.ones(own.sum()), (net.src[own], net.dst[own])), shape=(net.node_count,) * 2)
            part = connected_components(links, directed=False)[1]
            names = [str(part[v]) for v in self.nodes]
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        return [number[name] for name in names]

    @property
    def assumed(self) -> bool:
        """Whether nothing is known of the network but the number of ranks."""
        return self.topology.name == joined_by_one_switch(self.size).name

    @property
    def controller(self) -> int | None:
        """The node of the controller, as programs name it; None on a network without optical planes."""
        return self.topology.node_count if self.topology.planes else None

    def has(self, kind: str, size_bytes: int, root: int = 0, direct: bool = False) -> bool:
        """Whether :meth:`recipe` has answered before."""
        return (Shape.of(kind, size_bytes, root), direct) in self.recipes

    def recipe(
        self, kind: str, size_bytes: int, root: int = 0, direct: bool = False,
        plan_of: Callable[[Shape, bool], Plan] | None = None,
    ) -> Recipe:  # fmt: skip
        """How to run a collective whose largest piece has about this size, by the first plan of its shape.

        Args:
            root: the position of the root in the group.
            direct: whether every sender sends straight to its receivers, whatever the network.
            plan_of: gives the first plan if it is not known; by default :meth:`first_plan`.
        """
        shape = Shape.of(kind, size_bytes, root)
        if direct and self.dead:
            name = BY_NAME[kind].name
            raise Unsupported(f"pieces of {name} go straight from rank to rank, and {dead_words(self.dead)}")
        if (shape, direct) not in self.recipes:
            self.recipes[shape, direct] = self.recipe_of((plan_of or self.first_plan)(shape, direct))
        return self.recipes[shape, direct]

    def first_plan(self, shape: Shape, direct: bool = False) -> Plan:
        """The first plan of a shape, made here; ``direct`` as of :meth:`recipe`."""
        from .quick import direct_plan, quick_plan

        return (direct_plan if direct else quick_plan)(self.request(shape))

    def recipe_of(self, plan: Plan) -> Recipe:
        """How this rank runs a plan."""
        recipe = Recipe(lower_for(plan, self.nodes[self.rank]), Cut.of(plan.workload.collectives[0]))
        own = {v for r, v in enumerate(self.nodes) if frozenset((r, self.rank)) in self.dead}
        if own & recipe.program.partners:
            raise Unsupported(f"the plan needs a link that is gone: {dead_words(self.dead)}")
        return recipe

    def request(self, shape: Shape) -> PlanRequest:
        """The request for the plans of a shape: the better one by the planner of the table, or else by ``auto``."""
        effort, seed = self.effort or EFFORT, 0 if self.tuning is None else self.tuning.seed
        # the table is for all ranks of its topology, and for one root
        table = self.tuning if self.in_table else None
        basis = effort if table is None else f"{effort} {table.ranges!r} {table.root}"
        asked = PlanRequest(self.topology, tuple(self.nodes), shape, effort=effort, seed=seed, basis=basis)
        if table is not None and not (BY_NAME[shape.kind].rooted and shape.root != table.root):
            best = table.find(shape.kind, asked.size_bytes)
            if best is not None:
                from ..planners import default_effort

                # what the table has compared was made with the effort that its planner has by default
                return replace(asked, planner=best.planner, chunks=best.chunks, effort=default_effort(best.planner))
        return asked


def from_environment(ranks: Sequence[int], rank: int, world: int, message_s: float) -> Library:
    """The library for the files that ``STRETTO_TOPOLOGY`` and ``STRETTO_TUNING`` name, and the effort of
    ``STRETTO_EFFORT``.

    Args:
        ranks, rank, message_s: as in :class:`Library`.
        world: the number of ranks in the world.
    Raises:
        InputError: there is no such effort, a file cannot be read, the topology has another number of accelerators than
            the world has ranks, or the table was made for another topology.
    """
    spec, table = os.environ.get("STRETTO_TOPOLOGY"), os.environ.get("STRETTO_TUNING")
    topology = load_topology(spec) if spec else None
    if topology is not None and len(topology.accelerators) != world:
        raise InputError(
            f"{spec} has {len(topology.accelerators)} accelerators, the world {world} ranks: name one with as many",
            "STRETTO_TOPOLOGY",
        )
    tuning = None
    if table:
        from .tuning import read_tuning

        tuning = read_tuning(table)
        if topology is None:
            raise InputError(f"say which topology it is for: STRETTO_TOPOLOGY={tuning.spec}", "STRETTO_TUNING")
        tuning.check(topology, "STRETTO_TUNING")
    return Library(topology, ranks, rank, tuning, message_s, effort_from_environment())


def effort_from_environment() -> str | None:
    """The effort of better plans that ``STRETTO_EFFORT`` gives; None if it asks for none.

    Raises:
        InputError: there is no such effort.
    """
    effort = os.environ.get("STRETTO_EFFORT") or EFFORT
    if effort == NO_EFFORT:
        return None
    steps_of(effort)
    return effort
