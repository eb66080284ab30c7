"""Symmetry of TACCL's sketches: equal decisions where the network looks the same after a rotation."""

from __future__ import annotations

import numpy as np

from ...model.arrays import Bool, Int64
from ...model.collective import Workload
from ...model.errors import InputError
from ...model.topology import Topology
from .hops import Hops
from .sketch import Sketch


def orbits(topology: Topology, workload: Workload, hops: Hops, sketch: Sketch, ways: Bool) -> Int64:
    """int64[chunks, hops]: equal where symmetry says that the decisions are equal.

    Raises:
        InputError: the network does not look the same after a rotation.
    """
    orbit = np.arange(ways.size, dtype=np.int64).reshape(ways.shape)
    nodes = topology.accelerators.astype(np.int64)
    place = {(int(a), int(b)): h for h, (a, b) in enumerate(zip(hops.src, hops.dst, strict=True))}
    for offset, group in sketch.rotations:
        size = group or len(nodes)
        if len(nodes) % size or not 0 < offset < size:
            raise InputError(
                f"symmetry offset {offset} of groups of {size} does not fit {len(nodes)} ranks", sketch.name
            )
        index = np.arange(len(nodes))
        turned = index // size * size + (index + offset) % size
        node = np.arange(topology.node_count)
        node[nodes] = nodes[turned]
        moved = np.empty(len(hops.src), dtype=np.int64)
        for h in range(len(hops.src)):
            other = place.get((int(node[hops.src[h]]), int(node[hops.dst[h]])))
            if (
                other is None
                or hops.bandwidth[other] != hops.bandwidth[h]
                or hops.latency_s[other] != hops.latency_s[h]
            ):
                a, b = topology.names[hops.src[h]], topology.names[hops.dst[h]]
                raise InputError(f"after symmetry offset {offset} there is no link like {a}→{b}", sketch.name)
            moved[h] = other
        chunk = _moved_chunks(workload, node)
        if chunk is None:
            continue  # the collective has a root: it does not look alike from every rank
        while True:
            joined = np.minimum(orbit, orbit[chunk][:, moved])
            np.minimum.at(joined, (chunk[:, None], moved[None]), orbit)
            if (joined == orbit).all():
                break
            orbit = joined
    return orbit


def _moved_chunks(workload: Workload, node: Int64) -> Int64 | None:
    """int64[chunks], the chunk that each becomes when nodes move; None if some chunk has no counterpart."""

    def key(holder: int, wanted: list[int], part: int) -> tuple[int, tuple[int, ...], int]:
        return holder, tuple(sorted(wanted)), part

    seen: dict[tuple[int, tuple[int, ...]], int] = {}
    names: list[tuple[int, tuple[int, ...], int]] = []
    for q in range(workload.chunk_count):
        holder, wanted = int(workload.chunk_holders[q][0]), workload.chunk_wanted[q].tolist()
        part = seen.get((holder, tuple(wanted)), 0)
        seen[holder, tuple(wanted)] = part + 1
        names.append(key(holder, wanted, part))
    place = {k: q for q, k in enumerate(names)}
    moved = [place.get(key(int(node[h]), [int(node[w]) for w in ws], part)) for h, ws, part in names]
    if any(m is None for m in moved):
        return None
    return np.array(moved, dtype=np.int64)
