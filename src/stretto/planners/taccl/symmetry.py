"""Symmetry of TACCL's sketches: equal decisions where the network looks the same after a rotation."""

from __future__ import annotations

from collections import Counter

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
    hop_of = np.full((topology.node_count, topology.node_count), -1)
    hop_of[hops.src, hops.dst] = np.arange(len(hops.src))
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
        moved = hop_of[node[hops.src], node[hops.dst]]
        unlike = (moved < 0) | (hops.bandwidth[moved] != hops.bandwidth) | (hops.latency_s[moved] != hops.latency_s)
        if unlike.any():
            a, b = (topology.names[ends[unlike.argmax()]] for ends in (hops.src, hops.dst))
            raise InputError(f"after symmetry offset {offset} there is no link like {a}→{b}", sketch.name)
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

    parts: Counter[tuple[int, frozenset[int]]] = Counter()
    chunks = []
    for holder, wanted in (
        (int(workload.chunk_holders[q][0]), workload.chunk_wanted[q]) for q in range(workload.chunk_count)
    ):
        ends = holder, frozenset(wanted.tolist())
        chunks.append((*ends, parts[ends]))
        parts[ends] += 1
    number = {chunk: q for q, chunk in enumerate(chunks)}
    to = node.tolist()
    moved = [number.get((to[h], frozenset(to[w] for w in wanted), part), -1) for h, wanted, part in chunks]
    return None if -1 in moved else np.array(moved, dtype=np.int64)
