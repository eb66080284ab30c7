"""What running processes ask a plan for: a shape of calls on the network of a group."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from typing import Any

from ..model.collective import Collective, make_collective
from ..model.kinds import BY_NAME
from ..model.source import source_digest
from ..model.topology import Topology
from ..topologies.files import topology_from_json

SMALLEST_CLASS_BYTES = 1 << 12
"""Pieces up to this size share one plan; larger ones share one for each power of two."""

ALIKE = 1.005
"""Plans of up to this many times the least time are alike: that of the planner with the lower place is taken."""

PARTS = (
    "bounds", "choose", "formats", "kernels", "lower", "model", "planners", "schedule", "simulate", "solvers",
    "symmetry", "topologies", "verify",
)  # fmt: skip
"""The parts of stretto that decide plans."""

SOLVERS = ("numpy", "highspy", "ortools", "clarabel")
"""Packages whose answers plans may depend on."""


@dataclass(frozen=True)
class Shape:
    """What calls have in common that one plan runs.

    Attributes:
        size_bytes: the largest size of a piece.
        root: the position of the root in the group; 0 for kinds without one.
    """

    kind: str
    size_bytes: int
    root: int

    @classmethod
    def of(cls, kind: str, size_bytes: int, root: int) -> Shape:
        """The shape of a call whose largest piece has this size."""
        return cls(kind, max(SMALLEST_CLASS_BYTES, 1 << max(0, size_bytes - 1).bit_length()), root)

    @property
    def name(self) -> str:
        """The shape in the name of a file."""
        return f"{self.kind}-{self.size_bytes}-{self.root}"

    @classmethod
    def named(cls, name: str) -> Shape | None:
        """The shape of that name, None if there is none."""
        kind, _, rest = name.partition("-")
        size, _, root = rest.partition("-")
        if kind not in BY_NAME or not (size.isdecimal() and root.isdecimal()):
            return None
        return cls(kind, int(size), int(root))

    def full_bytes(self, ranks: int) -> int:
        """The full buffer, as nccl-tests count it."""
        if BY_NAME[self.kind].whole:
            return self.size_bytes + -self.size_bytes % (3 * ranks)
        return self.size_bytes * ranks


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """A request for the plan of a shape.

    Attributes:
        topology: as the processes use it.
        ranks: the node of each rank.
        planner, chunks, effort, seed: how the better plan is made.
        basis: what has decided that for all shapes, such as the table of ``stretto tune``.
    """

    topology: Topology
    ranks: tuple[int, ...]
    shape: Shape
    planner: str = "auto"
    chunks: int = 1
    effort: str = "normal"
    seed: int = 0
    basis: str = ""

    @property
    def size_bytes(self) -> int:
        """The full buffer."""
        return self.shape.full_bytes(len(self.ranks))

    def collective(self, chunks: int = 1, topology: Topology | None = None) -> Collective:
        """What is asked for, with the pieces cut into ``chunks``."""
        net = self.topology if topology is None else topology
        return make_collective(
            self.shape.kind, net, self.size_bytes, ranks=list(self.ranks), root=self.shape.root, chunks=chunks
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "topology": self.topology.to_json(), "ranks": list(self.ranks), "shape": self.shape.name,
            "planner": self.planner, "chunks": self.chunks, "effort": self.effort, "seed": self.seed,
            "basis": self.basis,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanRequest:
        """The request of :meth:`to_json`."""
        shape = Shape.named(data["shape"])
        assert shape is not None, data["shape"]
        topology = topology_from_json(data["topology"], "the request")
        rest = {key: data[key] for key in ("planner", "chunks", "effort", "seed", "basis")}
        return cls(topology, tuple(data["ranks"]), shape, **rest)

    @cached_property
    def network(self) -> str:
        """A digest of all but the shape and what follows from it, and of the code that answers requests."""
        asked = [self.topology.to_json(), self.ranks, self.seed, self.basis, *code_digest()]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]

    @property
    def name(self) -> str:
        """A name that only equal requests to equal code have."""
        return f"{self.network}-{self.shape.name}"


@cache
def code_digest() -> tuple[str, ...]:
    """A digest of the source that decides plans, and the versions of the packages that it uses."""
    return source_digest(PARTS.__contains__), *map(_version, SOLVERS)


def _version(package: str) -> str:
    """The version of a package; "none" where it is not installed, as those of extras may be."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
