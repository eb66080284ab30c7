"""Plans for processes that ask for collectives: chosen once for each kind and size class, then reused.

Only ranks run here, so a plan whose chunks are stored elsewhere (at a router) is none. Which planner is asked a
table of ``stretto tune`` says, where there is one for all ranks of the topology; else, of the planners that serve
the request, the one whose plan the simulator says ends first is kept. The choice is the same at every rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..lower import Program, lower
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError, StrettoError
from ..model.kinds import BY_NAME
from ..model.plan import Plan
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from ..planners import run_planner
from ..simulate import simulate
from ..topologies import load_topology
from .tuning import Tuning, needs_ranks_only, read_tuning

CANDIDATES = ("all-pairs", "ring", "recursive-doubling", "rabenseifner", "nccl", "scale-ccl", "shortest-path")
DIRECT = "shortest-path"
BANDWIDTH, LATENCY_S = 1e9, 10e-6
"""Of the way from a rank into the network and back, where no topology is given."""
LEAST_CLASS = 1 << 12
WHOLE = ("allreduce", "reduce", "broadcast")
"""The collectives whose one piece is the whole buffer."""
FAST = 3.0
"""How many times slower than the best pair of ranks a pair of one site may be measured."""
NEAR_S = 2e-3
"""How much farther than the nearest pair the ranks of a site may be measured, one way."""
ALIKE = 1.005
"""Plans of up to this many times the least cost are alike: the first by CANDIDATES is taken."""
OVERHEAD_S = 400e-6
"""What one transfer costs at each of its ends, whatever its size: 60 µs of work, where several ranks share a core."""
SMALL_BYTES = 1 << 18
"""Pieces are cut in three, so that a rank sends while it receives, if the parts are not smaller than this."""


def joined_directly(nodes: Sequence[int]) -> Topology:
    """Every one of these nodes linked to every other, all alike."""
    links = [(a, b, BANDWIDTH, LATENCY_S) for a in nodes for b in nodes if a != b]
    return make_topology(f"{len(nodes)} ranks joined directly", [ACCELERATOR] * (max(nodes) + 1), links)


def joined_by_one_switch(count: int) -> Topology:
    """A network of which nothing is known but that every rank sends and receives by one port."""
    links = [
        link for v in range(count) for link in ((v, count, BANDWIDTH, LATENCY_S), (count, v, BANDWIDTH, LATENCY_S))
    ]
    kinds = [ACCELERATOR] * count + [SWITCH]
    return make_topology(f"{count} ranks at one switch", kinds, links)


Pairs = Mapping[tuple[int, int], tuple[float, float]]
"""For two ranks, the lower first, latency in seconds and bandwidth in bytes/s, as measured."""


def sites_of(count: int, pairs: Pairs) -> list[list[int]]:
    """The ranks that are near each other, perhaps by others: at no less than a third of the best bandwidth, and hardly
    farther than the nearest."""
    best, least_s = max((w for _, w in pairs.values()), default=0.0), min((t for t, _ in pairs.values()), default=0.0)
    site = list(range(count))
    for (a, b), (latency_s, width) in pairs.items():
        if FAST * width >= best and latency_s <= least_s + NEAR_S:
            site = [site[a] if s == site[b] else s for s in site]
    return [[v for v in range(count) if site[v] == s] for s in sorted(set(site))]


def joined_by_sites(count: int, pairs: Pairs, between: Mapping[tuple[int, int], float] | None = None) -> Topology:
    """The network that measurements show: sites of ranks at one switch each, and the links between sites.

    Args:
        between: bytes/s that many pairs got together from one site of :func:`sites_of` to another. Elsewhere the
            most that any pair across got is taken: the link has at least that.
    """
    sites = sites_of(count, pairs)
    if len(sites) == 1:
        return joined_by_one_switch(count)
    best = max(width for _, width in pairs.values())
    at = {v: i for i, site in enumerate(sites) for v in site}
    inner = [t for (a, b), (t, _) in pairs.items() if at[a] == at[b]] or [LATENCY_S]
    latency_s = min(inner) / 2
    links = [link for v in range(count) for w in (count + at[v],)
             for link in ((v, w, best, latency_s), (w, v, best, latency_s))]  # fmt: skip
    for a, b in combinations(range(len(sites)), 2):
        crossing = [m for (x, y), m in pairs.items() if {at[x], at[y]} == {a, b}]
        if crossing:
            far, wide = min(t for t, _ in crossing), max(w for _, w in crossing)
            links += [(count + x, count + y, (between or {}).get((x, y), wide), far) for x, y in ((a, b), (b, a))]
    kinds = [ACCELERATOR] * count + [SWITCH] * len(sites)
    return make_topology(f"{count} ranks in {len(sites)} sites, as measured", kinds, links)


def cost_s(plan: Plan) -> float:
    """When a plan would end: as simulated, and what the busiest node spends on its transfers one by one."""
    busiest = np.bincount(np.concatenate((plan.src, plan.dst.values))).max()
    return simulate(plan).completion_s + OVERHEAD_S * float(busiest)


def _cuts(planner: str, kind: str, size: int, ranks: int) -> list[int]:
    """Into how many chunks to have a piece of so many bytes cut."""
    if kind not in WHOLE:
        return [1]
    # the others cut an AllReduce into parts for the ranks themselves
    parts = ranks if kind != "allreduce" or planner == "scale-ccl" else 1
    return sorted({1, parts, *([3 * parts] if size >= 3 * ranks * SMALL_BYTES else [])})


@dataclass(frozen=True, eq=False)
class Recipe:
    """A plan, this rank's program of it, and where in its piece each chunk lies.

    Attributes:
        piece: int64[chunks].
        low, high, whole: int64[chunks], where the chunk begins and ends in its piece, and the piece's size.
    """

    program: Program
    piece: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    whole: NDArray[np.int64]

    def edges(self, elements: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each chunk its first element and the one after its last, for pieces of so many elements.

        The plan was made for another size: its places are scaled, and still cover every piece.
        """
        count = elements[self.piece]
        return self._scaled(self.low, count), self._scaled(self.high, count)

    def _scaled(self, place: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
        # place * count // whole without a product that could overflow
        return place * (count // self.whole) + (place * (count % self.whole)) // self.whole


class Library:
    """The recipes of one rank of one group.

    Args:
        topology: whose accelerators are the ranks of the world, or None.
        ranks: the world's ranks in the group, in order; ``rank``: which of them this is.
        tuning: which planner is best for which sizes, if that is known.
    """

    def __init__(
        self, topology: Topology | None, ranks: Sequence[int], rank: int, tuning: Tuning | None = None
    ) -> None:
        self.tuning = tuning
        self.learn(joined_by_one_switch(len(ranks)) if topology is None else topology)
        # mesh and programs know ranks of the group by node
        self.nodes = list(range(len(ranks))) if topology is None else [int(topology.accelerators[r]) for r in ranks]
        self.in_table = topology is not None and self.nodes == topology.accelerators.tolist()
        self.direct = joined_directly(self.nodes)
        self.rank, self.size = rank, len(ranks)
        self.recipes: dict[tuple[str, int, int, bool], Recipe] = {}

    def learn(self, topology: Topology) -> None:
        """Plan from now on for this network, whose nodes 0, 1, ... are the ranks unless one was given before."""
        # the executor sends one copy to each receiver
        self.topology = replace(topology, replicates=np.zeros(topology.node_count, dtype=bool))

    def recipe(self, kind: str, size_bytes: int, root: int = 0, direct: bool = False) -> Recipe:
        """How to run a collective whose largest piece has about this size."""
        size = max(LEAST_CLASS, 1 << max(0, size_bytes - 1).bit_length())
        key = kind, size, root, direct
        if key not in self.recipes:
            self.recipes[key] = self._prepare(kind, size, root, direct)
        return self.recipes[key]

    def _prepare(self, kind: str, size: int, root: int, direct: bool) -> Recipe:
        n = len(self.nodes)
        whole = kind in WHOLE
        tries = [(name, chunks) for name in CANDIDATES for chunks in _cuts(name, kind, size, n)]
        total = size + -size % (3 * n) if whole else size * n
        plans: list[Plan] = []
        for asked in () if direct else (self._asked(kind, total, root), tries):
            plans = plans or [*self._plans(asked, kind, total, root)]
        if plans:
            costs = [cost_s(p) for p in plans]
            plan = next(p for p, cost in zip(plans, costs, strict=True) if cost <= ALIKE * min(costs))
        else:
            c = make_collective(kind, self.direct, total, ranks=self.nodes, root=root)
            plan = run_planner(DIRECT, self.direct, Workload((c,)))
        made: Collective = plan.workload.collectives[0]
        return Recipe(
            lower(plan)[self.nodes[self.rank]],
            made.chunk_piece.astype(np.int64),
            made.chunk_offset,
            made.chunk_offset + made.chunk_bytes,
            made.piece_bytes[made.chunk_piece],
        )

    def _asked(self, kind: str, size: int, root: int) -> list[tuple[str, int]]:
        """The planner and the chunks that the table asks for, if it was made for these ranks and this root."""
        if self.tuning is None or not self.in_table or (BY_NAME[kind].rooted and root != self.tuning.root):
            return []
        found = self.tuning.find(kind, size)
        return [] if found is None else [(found.planner, found.chunks)]

    def _plans(self, asked: Iterable[tuple[str, int]], kind: str, size: int, root: int) -> Iterator[Plan]:
        """The plans of those asked that can make one; who cannot with few chunks is not asked for more."""
        failed = ""
        for name, chunks in asked:
            plan = None if name == failed else self._plan(name, kind, size, chunks, root)
            if plan is None:
                failed = name
            else:
                yield plan

    def _plan(self, name: str, kind: str, size: int, chunks: int, root: int) -> Plan | None:
        """A plan by this planner that needs no one but the ranks, None if it makes none."""
        seed = 0 if self.tuning is None else self.tuning.seed
        try:
            c = make_collective(kind, self.topology, size, ranks=self.nodes, root=root, chunks=chunks)
            plan = run_planner(name, self.topology, Workload((c,)), seed=seed)
        except StrettoError:
            return None
        return plan if needs_ranks_only(plan) else None


def from_environment(ranks: Sequence[int], rank: int, world: int) -> Library:
    """The library that ``STRETTO_TOPOLOGY`` and ``STRETTO_TUNING`` ask for.

    Args:
        world: how many ranks the world has.
    Raises:
        InputError: one of them cannot be read, the topology is of another size, or the table of another topology.
    """
    spec, table = os.environ.get("STRETTO_TOPOLOGY"), os.environ.get("STRETTO_TUNING")
    topology = load_topology(spec) if spec else None
    if topology is not None and len(topology.accelerators) != world:
        raise InputError(
            f"{spec} has {len(topology.accelerators)} accelerators, the world {world} ranks: name one with as many",
            "STRETTO_TOPOLOGY",
        )
    tuning = read_tuning(table) if table else None
    if tuning is not None and topology is None:
        raise InputError(f"say which topology it is for: STRETTO_TOPOLOGY={tuning.spec}", "STRETTO_TUNING")
    if tuning is not None and topology is not None:
        tuning.check(topology, "STRETTO_TUNING")
    return Library(topology, ranks, rank, tuning)
