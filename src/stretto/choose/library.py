"""Plans for processes that ask for collectives: chosen once for each kind and size class, then reused.

Only the ranks run, so a plan that stores chunks elsewhere (at a router) does not count. A table of ``stretto tune``
names the planner, if there is a table for all ranks of the topology. Otherwise the planners that are registered for
the library are asked, and the plan of the least cost is kept. Every rank makes the same choice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from ..lower import Program, lower_for
from ..model.arrays import Int64
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError
from ..model.kinds import BY_NAME
from ..model.plan import Plan
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from ..model.variants import costing
from ..planners import asked_by, run_planner
from ..schedule.best import Answer, ask, best_of
from ..topologies import load_topology
from ..topologies.measured import sites_of
from .tuning import Tuning, plan_one, read_tuning

DIRECT_PLANNER = "shortest-path"
"""The planner of data that every sender sends straight to its receiver; it serves every kind of collective."""

DIRECT_ON_PLANES = "pairwise+swot"
"""The same on optical planes, for AllToAll."""

BANDWIDTH, LATENCY_S = 1e9, 10e-6
"""Bytes/s and seconds between a rank and the network, where no topology is given."""

SMALLEST_CLASS_BYTES = 1 << 12
"""Pieces up to this size share one plan; larger ones share one for each power of two."""

ALIKE = 1.005
"""Plans of up to this many times the least cost are alike: the planner with the lower place in the library is taken."""

SMALLEST_PART_BYTES = 1 << 18
"""Parts of a piece are cut in three, so that a rank sends while it receives, if the thirds are at least this large."""


def joined_directly(nodes: Sequence[int]) -> Topology:
    """Every one of these nodes linked to every other, all alike."""
    links = [(a, b, BANDWIDTH, LATENCY_S) for a in nodes for b in nodes if a != b]
    return make_topology(f"{len(nodes)} ranks joined directly", [ACCELERATOR] * (max(nodes) + 1), links)


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


def joined_by_sites(count: int, pairs: Pairs, between: Mapping[tuple[int, int], float] | None = None) -> Topology:
    """The network that measurements show: one switch for the ranks of each site, and links between the switches.

    Args:
        between: for two sites of :func:`sites_of` the bytes/s that many pairs reached together from the first to the
            second. Where it is missing, the best pair of the two sites says what the link has at least.
    """
    sites = sites_of(count, pairs)
    if len(sites) == 1:
        return joined_by_one_switch(count)
    best = max(width for _, width in pairs.values())
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
    """The recipes of one rank of one group.

    Args:
        topology: the network whose accelerators are the ranks of the world; None if it is not known.
        ranks: the ranks of the world that are in the group, in order.
        rank: the position of this rank among them.
        message_s: seconds that a message costs those who run the plans, at least, on every link.
    """

    def __init__(
        self,
        topology: Topology | None,
        ranks: Sequence[int],
        rank: int,
        tuning: Tuning | None = None,
        message_s: float = 0.0,
    ) -> None:
        self.tuning, self.message_s = tuning, message_s
        self.learn(joined_by_one_switch(len(ranks)) if topology is None else topology)
        # the direct network and the programs name the ranks of the group by their nodes
        self.nodes = list(range(len(ranks))) if topology is None else [int(topology.accelerators[r]) for r in ranks]
        self.in_table = topology is not None and self.nodes == topology.accelerators.tolist()
        self.direct = costing(joined_directly(self.nodes), message_s)
        self.rank, self.size = rank, len(ranks)
        self.recipes: dict[tuple[str, int, int, bool], Recipe] = {}

    def learn(self, topology: Topology) -> None:
        """Plan from now on for this network. Its nodes 0, 1, ... are the ranks, unless the library began with one."""
        # processes send one copy to each receiver, so no switch multicasts or sums
        none = np.zeros(topology.node_count, dtype=bool)
        # and optical planes are as the last collective left them: each plan turns them to what it needs
        planes = tuple(replace(p, matching=np.full(len(p.nodes), -1, dtype=np.int32)) for p in topology.planes)
        self.topology = costing(replace(topology, replicates=none, reduces=none, planes=planes), self.message_s)

    @property
    def controller(self) -> int | None:
        """The node of the controller, as programs name it; None on a network without optical planes."""
        return self.topology.node_count if self.topology.planes else None

    def recipe(self, kind: str, size_bytes: int, root: int = 0, direct: bool = False) -> Recipe:
        """How to run a collective whose largest piece has about this size.

        Args:
            root: the position of the root in the group.
            direct: whether every sender sends straight to its receivers, whatever the network.
        """
        size = max(SMALLEST_CLASS_BYTES, 1 << max(0, size_bytes - 1).bit_length())
        key = kind, size, root, direct
        if key not in self.recipes:
            self.recipes[key] = self._prepare(kind, size, root, direct)
        return self.recipes[key]

    def _prepare(self, kind: str, size: int, root: int, direct: bool) -> Recipe:
        n = len(self.nodes)
        total = size + -size % (3 * n) if BY_NAME[kind].whole else size * n
        answers = [] if direct else self._answers(kind, total, root)
        plan = best_of(answers, within=ALIKE).plan if answers else None
        if plan is None and self.topology.planes:
            c = make_collective(kind, self.topology, total, ranks=self.nodes, root=root)
            plan = plan_one(DIRECT_ON_PLANES, self.topology, c, 0, ranks_only=True)
        if plan is None:
            c = make_collective(kind, self.direct, total, ranks=self.nodes, root=root)
            plan = run_planner(DIRECT_PLANNER, self.direct, Workload((c,)))
        return Recipe(lower_for(plan, self.nodes[self.rank]), Cut.of(plan.workload.collectives[0]))

    def _answers(self, kind: str, size: int, root: int) -> list[Answer]:
        """The plan of the planner that the table names, or else the answers of all planners of the library."""
        # the table is for all ranks of its topology, and for one root
        table = self.tuning if self.in_table else None
        if table is not None and not (BY_NAME[kind].rooted and root != table.root):
            best = table.find(kind, size)
            if best is not None and (answer := self._ask(best.planner, kind, size, root, best.chunks)).plan is not None:
                return [answer]
        return [answer for entry in asked_by("library") for answer in self._answers_of(entry.name, kind, size, root)]

    def _answers_of(self, planner: str, kind: str, size: int, root: int) -> Iterator[Answer]:
        """The answers of one planner with fewer and more chunks; a planner that refuses one chunk is asked once."""
        first = self._ask(planner, kind, size, root, 1)
        yield first
        if first.plan is None or not BY_NAME[kind].whole:
            return
        n = len(self.nodes)
        # a planner that cuts an AllReduce into parts for the ranks itself needs no chunk for each rank
        parts = 1 if BY_NAME[kind].reduces_to_all and first.plan.workload.chunk_count > 1 else n
        thirds = [3 * parts] if size >= 3 * n * SMALLEST_PART_BYTES else []
        for chunks in [parts, *thirds]:
            if chunks > 1:
                yield self._ask(planner, kind, size, root, chunks)

    def _ask(self, planner: str, kind: str, size: int, root: int, chunks: int) -> Answer:
        """The answer of a planner, whose plan may need no node but the ranks."""

        def plan() -> Plan:
            c = make_collective(kind, self.topology, size, ranks=self.nodes, root=root, chunks=chunks)
            return plan_one(planner, self.topology, c, 0 if self.tuning is None else self.tuning.seed, ranks_only=True)

        return ask(planner, plan)


def from_environment(ranks: Sequence[int], rank: int, world: int, message_s: float) -> Library:
    """The library for the files that ``STRETTO_TOPOLOGY`` and ``STRETTO_TUNING`` name.

    Args:
        ranks, rank, message_s: as in :class:`Library`.
        world: the number of ranks in the world.
    Raises:
        InputError: a file cannot be read, the topology has another number of accelerators than the world has ranks,
            or the table was made for another topology.
    """
    spec, table = os.environ.get("STRETTO_TOPOLOGY"), os.environ.get("STRETTO_TUNING")
    topology = load_topology(spec) if spec else None
    if topology is not None and len(topology.accelerators) != world:
        raise InputError(
            f"{spec} has {len(topology.accelerators)} accelerators, the world {world} ranks: name one with as many",
            "STRETTO_TOPOLOGY",
        )
    tuning = read_tuning(table) if table else None
    if tuning is not None:
        if topology is None:
            raise InputError(f"say which topology it is for: STRETTO_TOPOLOGY={tuning.spec}", "STRETTO_TUNING")
        tuning.check(topology, "STRETTO_TUNING")
    return Library(topology, ranks, rank, tuning, message_s)
