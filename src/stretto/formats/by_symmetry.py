"""What the file of a plan by symmetry holds besides a plain one: its group, its orbits, and how buffers are dealt."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.collective import Collective, Promised, Workload
from ..model.errors import InputError
from ..model.memory import too_much
from ..model.symmetric import Orbits, SymmetricPlan, dealt, make_symmetric_plan
from ..model.symmetry import Symmetry
from ..model.topology import Topology
from ..topologies.values import entry, indexes

CHUNK_BYTES = 64
"""Memory for each chunk of a buffer that is dealt out, while it is read."""

MOST_ELEMENTS = 2**31
"""Elements of a group that a file may hold; elements are numbered by int64."""


def symmetry_to_json(plan: SymmetricPlan) -> dict[str, Any]:
    """The generators, their orders, and for each orbit of chunks its owner, or owners, and its position."""
    g, orbits = plan.symmetry, plan.orbits
    columns: dict[str, Any] = {
        "generators": g.generators,
        "orders": g.orders,
        "owner": orbits.owner,
        "position": orbits.position,
    }
    return {name: column.tolist() for name, column in columns.items()}


def ranges_of(c: Collective, orbits: Orbits) -> list[list[int]] | None:
    """The ranges of a buffer that is dealt out, each as its bytes and how many owners share it; None for another."""
    begin, first = np.unique(orbits.position, return_index=True)
    owners = orbits.shares[first]
    if not c.traits.whole or not np.array_equal(begin, np.cumsum(owners) - owners):
        return None
    ranges = np.add.reduceat(c.chunk_bytes, begin)
    again = dealt(c, ranges, owners)
    same = all(np.array_equal(getattr(c, name), getattr(again, name)) for name in ("chunk_bytes", "chunk_offset"))
    return np.stack((ranges, owners), axis=1).tolist() if same and not c.chunk_piece.any() else None


def dealt_from_json(c: Collective, ranges: Any) -> Collective:
    """A collective whose buffer is dealt out as a file says; ValueError if it says nothing of that form."""
    listed = [indexes(row, "a range", 1, c.size_bytes + 1, "collective") for row in ranges]
    rows = np.array(listed, dtype=np.int64).reshape(len(ranges), 2)
    if (rows[:, 0] < rows[:, 1]).any() or sum(rows[:, 0].tolist()) != c.size_bytes:
        raise ValueError("the ranges must have a byte for each owner and add up to the buffer")
    if (reason := too_much(float(rows[:, 1].sum(dtype=float)), "chunks", CHUNK_BYTES)) is not None:
        raise ValueError(reason)
    return dealt(c, rows[:, 0], rows[:, 1])


def unevenly_cut(c: Collective, chunks: list[Any]) -> Promised:
    """A collective with the number of chunks that a file names for each piece; ValueError if it is none."""
    most = c.size_bytes // (1 if c.traits.whole else len(c.ranks))
    counts = indexes(chunks, "'chunks'", 1, most + 1, "collective")
    if len(counts) != c.piece_count:
        raise ValueError(f"'chunks' has {len(counts)} numbers, and there are {c.piece_count} pieces")
    if (reason := too_much(float(sum(counts)), "chunks", CHUNK_BYTES)) is not None:
        raise ValueError(reason)
    return Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, np.array(counts, dtype=np.int64))


def symmetric_from_json(
    data: Any, topology: Topology, collectives: tuple[Collective, ...], where: str, **columns: Any
) -> SymmetricPlan:
    """The plan of a file's rows and its entry ``symmetry``; InputError names what is wrong."""
    place = f"{where}, symmetry"
    if not isinstance(data, dict):
        raise InputError("must be an object", place)
    generators = [
        indexes(images, f"generator {k}", 0, topology.node_count, place)
        for k, images in enumerate(entry(data, "generators", list, place))
    ]
    orders = indexes(data.get("orders"), "'orders'", 1, MOST_ELEMENTS, place)
    if not generators or len(orders) != len(generators) or any(len(g) != topology.node_count for g in generators):
        raise InputError("'generators' needs an image for every node, and 'orders' a number for each of them", place)
    if np.prod(np.array(orders, dtype=float)) >= MOST_ELEMENTS:
        raise InputError(f"the group has {MOST_ELEMENTS:,} elements or more", place)
    position = indexes(data.get("position"), "'position'", 0, 2**62, place)
    owner = [indexes(nodes, "'owner'", 0, topology.node_count, place) for nodes in entry(data, "owner", list, place)]
    if not position or len(owner) != len(position) or len({len(nodes) for nodes in owner}) != 1:
        raise InputError("'owner' needs a list of one or two nodes for each 'position'", place)
    symmetry = Symmetry(topology, np.array(generators, dtype=np.int32), np.array(orders, dtype=np.int64))
    return make_symmetric_plan(
        symmetry, Workload(collectives), owner=np.array(owner), position=np.array(position), where=where, **columns
    )
