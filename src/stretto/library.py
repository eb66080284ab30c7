"""Plans for processes that ask for collectives: chosen once for each kind and size class, then reused.

Only ranks run here, so a plan whose chunks are stored elsewhere (at a router) is none. Which planner is asked a
table of ``stretto tune`` says, where there is one for all ranks of the topology; else, of the planners that serve
the request, the one whose plan the simulator says ends first is kept. The choice is the same at every rank.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .collective import ROOTED, Collective, Workload, make_collective
from .errors import InputError, StrettoError
from .lower import Program, lower
from .plan import Plan
from .planners import run_planner
from .simulate import simulate
from .topologies import load_topology
from .topology import ACCELERATOR, Topology, make_topology
from .tuning import Tuning, needs_ranks_only, read_tuning

CANDIDATES = ("ring", "scale-ccl", "shortest-path")
DIRECT = "shortest-path"
BANDWIDTH, LATENCY_S = 1e9, 20e-6
"""Of every pair, where no topology is given."""
LEAST_CLASS = 1 << 12
ONE_PIECE = ("allreduce", "reduce", "broadcast")
"""The collectives whose buffer is one piece; of the others each rank has one."""


def joined_directly(nodes: Sequence[int]) -> Topology:
    """Every one of these nodes linked to every other, all alike."""
    links = [(a, b, BANDWIDTH, LATENCY_S) for a in nodes for b in nodes if a != b]
    return make_topology(f"{len(nodes)} ranks joined directly", [ACCELERATOR] * (max(nodes) + 1), links)


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
        self.given = topology
        self.tuning = tuning
        # mesh and programs know ranks of the group by node
        self.nodes = list(range(len(ranks))) if topology is None else [int(topology.accelerators[r]) for r in ranks]
        self.direct = joined_directly(self.nodes)
        self.rank = rank
        self.recipes: dict[tuple[str, int, int, bool], Recipe] = {}

    def recipe(self, kind: str, size_bytes: int, root: int = 0, direct: bool = False) -> Recipe:
        """How to run a collective whose largest piece has about this size, bytes."""
        size = max(LEAST_CLASS, 1 << max(0, size_bytes - 1).bit_length())
        size *= 1 if kind in ONE_PIECE else len(self.nodes)
        key = kind, size, root, direct
        if key not in self.recipes:
            self.recipes[key] = self._prepare(kind, size, root, direct)
        return self.recipes[key]

    def _prepare(self, kind: str, size: int, root: int, direct: bool) -> Recipe:
        plans = [] if direct else self._tuned(kind, size, root) or self._tried(kind, size, root)
        if plans:
            plan = min(plans, key=lambda p: simulate(p).completion_s)
        else:
            c = make_collective(kind, self.direct, size, ranks=self.nodes, root=root)
            plan = run_planner(DIRECT, self.direct, Workload((c,)))
        made: Collective = plan.workload.collectives[0]
        return Recipe(
            lower(plan)[self.nodes[self.rank]],
            made.chunk_piece.astype(np.int64),
            made.chunk_offset,
            made.chunk_offset + made.chunk_bytes,
            made.piece_bytes[made.chunk_piece],
        )

    def _tuned(self, kind: str, size: int, root: int) -> list[Plan]:
        """The plan that the table asks for, if it was made for these ranks and this root."""
        if self.given is None or self.tuning is None or self.nodes != self.given.accelerators.tolist():
            return []
        if kind in ROOTED and root != self.tuning.root:
            return []
        found = self.tuning.find(kind, size)
        plan = None if found is None else self._plan(found.planner, kind, size, root, found.chunks, self.tuning.seed)
        return [] if plan is None else [plan]

    def _tried(self, kind: str, size: int, root: int) -> list[Plan]:
        """The plans of all candidates that make one."""
        chunks = len(self.nodes) if kind in ONE_PIECE else 1
        return [p for name in CANDIDATES if (p := self._plan(name, kind, size, root, chunks)) is not None]

    def _plan(self, name: str, kind: str, size: int, root: int, chunks: int, seed: int = 0) -> Plan | None:
        """A plan by this planner that needs no one but the ranks, None if it makes none."""
        topology = self.direct if self.given is None else self.given
        try:
            c = make_collective(kind, topology, size, ranks=self.nodes, root=root, chunks=chunks)
            plan = run_planner(name, topology, Workload((c,)), seed=seed)
        except StrettoError:
            return None
        return plan if needs_ranks_only(plan) else None


def from_environment(ranks: Sequence[int], rank: int) -> Library:
    """The library that ``STRETTO_TOPOLOGY`` and ``STRETTO_TUNING`` ask for.

    Raises:
        InputError: one of them cannot be read, or the table is of another topology.
    """
    spec, table = os.environ.get("STRETTO_TOPOLOGY"), os.environ.get("STRETTO_TUNING")
    topology = load_topology(spec) if spec else None
    tuning = read_tuning(table) if table else None
    if tuning is not None and topology is None:
        raise InputError(f"say which topology it is for: STRETTO_TOPOLOGY={tuning.spec}", "STRETTO_TUNING")
    if tuning is not None and topology is not None:
        tuning.check(topology, "STRETTO_TUNING")
    return Library(topology, ranks, rank, tuning)
