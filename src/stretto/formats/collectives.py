"""A collective in a plan file: the parameters that make it, or all of its pieces and chunks."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Collective, Promised, make_collective
from ..model.errors import InputError
from ..model.symmetric import Orbits
from ..model.topology import Topology
from .by_symmetry import dealt_from_json, ranges_of, unevenly_cut

FACTS: dict[str, Any] = {"kind": str, "size_bytes": int, "root": int, "start_s": float, "reduces": bool}
COLUMNS: dict[str, Any] = {
    "ranks": np.int32, "piece_bytes": np.int64,
    "chunk_piece": np.int32, "chunk_offset": np.int64, "chunk_bytes": np.int64,
}  # fmt: skip
"""The single values and the columns of a collective, and their types."""


def collective_to_json(c: Collective, topology: Topology, orbits: Orbits | None) -> dict[str, Any]:
    """A collective as its parameters if these rebuild it, else as all its pieces and chunks.

    Args:
        orbits: by which a plan by symmetry deals out buffers.
    """
    short: dict[str, Any] = {"kind": c.kind, "size_bytes": c.size_bytes, "chunks": _cuts(c)}
    if c.root >= 0:
        short["root"] = c.root
    if c.start_s:
        short["start_s"] = c.start_s
    if c.weight != 1.0:
        short["weight"] = c.weight
    if c.traits.rooted and c.traits.wanted == "receivers":
        short["receivers"] = c.wanted[0].tolist()
    if not np.array_equal(c.ranks, topology.accelerators):
        short["ranks"] = c.ranks.tolist()
    if isinstance(c, Promised):
        return short
    if orbits is not None and (ranges := ranges_of(c, orbits)) is not None:
        short |= {"chunks": 1, "ranges": ranges}
    try:
        if _same(c, _from_parameters(short, topology)):
            return short
    except InputError:
        pass
    facts = {key: getattr(c, key) for key in FACTS}
    columns = {key: getattr(c, key).tolist() for key in COLUMNS}
    lists = {"holders": c.holders, "wanted": c.wanted}
    facts |= {"weight": c.weight} if c.weight != 1.0 else {}
    return facts | columns | {key: [r[i].tolist() for i in range(r.rows)] for key, r in lists.items()}


def collective_from_json(data: dict[str, Any], topology: Topology) -> Collective:
    """The collective that :func:`collective_to_json` wrote."""
    if "chunk_piece" not in data:
        return _from_parameters(data, topology)
    values: dict[str, Any] = {key: kind(data[key]) for key, kind in FACTS.items()}
    values |= {key: Ragged.of(data[key]) for key in ("holders", "wanted")}
    values |= {key: np.asarray(data[key], dtype=dtype) for key, dtype in COLUMNS.items()}
    c = Collective(**values, weight=float(data.get("weight", 1.0)))
    pieces, ranks = len(c.piece_bytes), len(c.ranks)
    in_range = [
        (c.ranks, topology.node_count), (c.holders.values, ranks), (c.wanted.values, ranks), (c.chunk_piece, pieces),
    ]  # fmt: skip
    if any(len(v) == 0 or v.min() < 0 or v.max() >= most for v, most in in_range) or c.holders.lengths.min() < 1:
        raise ValueError("a rank, node or piece out of range")
    if not (len(c.chunk_piece) == len(c.chunk_offset) == len(c.chunk_bytes) and pieces == c.wanted.rows):
        raise ValueError("columns of unequal length")
    return c


def _from_parameters(data: dict[str, Any], topology: Topology) -> Collective:
    optional = {key: data[key] for key in ("ranks", "root", "receivers", "start_s", "weight") if key in data}
    chunks = data["chunks"]
    each = 1 if isinstance(chunks, list) else chunks
    c = make_collective(data["kind"], topology, data["size_bytes"], chunks=each, **optional)
    if isinstance(chunks, list):
        return unevenly_cut(c, chunks)
    return dealt_from_json(c, data["ranges"]) if "ranges" in data else c


def _same(a: Collective, b: Collective) -> bool:
    for f in fields(Collective):
        x, y = getattr(a, f.name), getattr(b, f.name)
        pairs: Any = zip(x, y, strict=True) if isinstance(x, Ragged) else [(x, y)]
        if not all(np.array_equal(p, q) for p, q in pairs):
            return False
    return True


def _cuts(c: Collective) -> int | list[int]:
    """Into how many chunks each piece is cut; a list where pieces differ."""
    if isinstance(c, Promised) and not isinstance(c.chunks, int):
        return list(map(int, c.chunks))
    return c.chunk_count // c.piece_count
