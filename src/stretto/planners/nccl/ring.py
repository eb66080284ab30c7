"""NCCL's ring algorithm: every channel sends its share of the buffer round a ring of its own.

NCCL 2.20: AllGather and ReduceScatter take ranks - 1 steps round the ring, AllReduce one of each,
Broadcast and Reduce a chain that begins, or ends, at the root. What a channel sends in a step is
cut into slices (src/include/collectives.h), which follow each other as in a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...model.arrays import Int64, Ragged
from ...model.collective import Collective, Workload
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.trees import Trees, divide, lower
from ...schedule.two_trees import STEP_BYTES
from .. import Option, Request, over_links, register
from .rings import MOST_CHANNELS, MOST_TRANSFERS, Ring, Rings, channel_count, find_rings, slice_option

SLICE_STEPS = {"allgather": 2, "reducescatter": 2, "allreduce": 2, "broadcast": 1, "reduce": 1}
"""Steps a slice, by kind: ALLGATHER_SLICESTEPS and the like."""

OPTIONS = (
    Option("channels", str, "auto", f"rings side by side; auto for as many as have links, or 1 to {MOST_CHANNELS}"),
    Option("slices", int, 0, "parts in which a channel sends what it sends in a step; 0 as NCCL, of 1 MiB or less"),
)


@register(
    "nccl-ring",
    collectives=tuple(SLICE_STEPS),
    topologies="any without planes",
    paper="NVIDIA NCCL 2.20, src/graph/search.cc and src/device/*.h",
    options=OPTIONS,
    serves=over_links,
)
def nccl_ring(request: Request, *, channels: str = "auto", slices: int = 0) -> Plan:
    """Rings, one a channel, as NCCL lays them.

    Args:
        channels: "auto" for as many rings as find bandwidth of their own; with more, rings are
            used several times over.
        slices: into how many slices a channel cuts what it sends in a step; 0 for those of NCCL.
    Returns:
        A plan in ready-order, whose chunks are the slices.
    """
    topology, workload = request.topology, request.workload
    wanted = channel_count(channels)
    collectives, keys, metas = [], [], []
    rings: list[Ring] = []
    for c in workload.collectives:
        found = find_rings(topology, c.ranks.astype(np.int64))
        lanes = wanted or len(found.rings)
        fine, lane, root = _shares(c, lanes, slice_option(slices))
        keys.append(np.stack((len(rings) + lane % len(found.rings), root), axis=1))
        rings += found.rings
        collectives.append(fine)
        metas.append(_meta(topology, found, lanes, int(fine.chunk_bytes.max())))
    trees, which = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    up, down = (ring_trees(topology, rings, trees, inward) for inward in (True, False))
    meta = metas[0] if len(metas) == 1 else {"collectives": metas}
    return lower(topology, Workload(tuple(collectives)), which.ravel(), up, down, meta=meta)


def _shares(c: Collective, lanes: int, slices: int) -> tuple[Collective, Int64, Int64]:
    """The collective cut into slices, and for each its channel, and the node where its chain begins or ends.

    What everyone wants summed is a part a rank, each of which ends, and begins again, at its rank.
    """
    everyone = c.kind == "allreduce"
    owners = len(c.ranks) if everyone else 1
    if not slices:
        moves = c.chunk_count * owners * lanes * len(c.ranks) * (2 if everyone else 1)
        share = int(c.chunk_bytes.max()) / (owners * lanes)
        slices = min(max(1, MOST_TRANSFERS // moves), math.ceil(share / (SLICE_STEPS[c.kind] * STEP_BYTES)))
    fine, part = divide(c, owners * lanes * slices)
    ends = fine.chunk_wanted if c.reduces else fine.chunk_holders
    root = c.ranks[part % owners] if everyone else ends.values[ends.offsets[:-1]]
    return fine, part // owners % lanes, root.astype(np.int64)


def ring_trees(topology: Topology, rings: Sequence[Ring], trees: Int64, inward: bool) -> Trees:
    """The chain that each ring is when it is cut at a root: away from it, or to it.

    A relay that comes before its own turn has the chunk from then on; nothing is sent to it again.

    Args:
        trees: int64[trees, 2], the ring of each tree and its root's node.
    """
    first = np.cumsum([0, *(len(r.walk) for r in rings)])
    toward, hop = (np.full((len(trees), topology.node_count), -1) for _ in range(2))
    for i, (number, root) in enumerate(trees.tolist()):
        ring = rings[number]
        at = ring.walk.index(root)
        walk = np.roll(np.array(ring.walk), -at)
        index = first[number] + np.roll(np.arange(len(walk)), -at)
        # the last assignment counts: that of the place nearest to the root
        if inward:
            toward[i, walk[1:]] = np.append(walk[2:], root)
            hop[i, walk[1:]] = index[1:]
        else:
            toward[i, walk[:0:-1]] = walk[-2::-1]
            hop[i, walk[:0:-1]] = index[-2::-1]
        toward[i, root] = hop[i, root] = -1
    return Trees(trees[:, 1], toward, hop, Ragged.of([route for r in rings for route in r.routes]))


def _meta(topology: Topology, found: Rings, lanes: int, slice_bytes: int) -> dict[str, Any]:
    """What a plan's meta says of its rings."""
    names = topology.names
    meta: dict[str, Any] = {
        "channels": lanes,
        "rings": [[names[v] for v in ring.order] for ring in found.rings[:lanes]],
        "channel_bandwidth": found.bandwidth,
        "slice_bytes": slice_bytes,
    }
    if found.relayed:
        pairs = ", ".join(f"{names[a]}→{names[b]}" for a, b in found.relayed)
        meta["note"] = f"no ring of direct connections was found: over shortest ways, relayed, {pairs}"
    return meta
