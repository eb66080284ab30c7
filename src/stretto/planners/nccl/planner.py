"""What NCCL would do: rings, double binary trees, and its choice between them.

NCCL 2.20. *Rings*: every channel sends its share of the buffer round a ring of its own. AllGather and ReduceScatter
take ranks - 1 steps round the ring, AllReduce one of each, Broadcast and Reduce a chain from or to the root.
*Trees* (src/graph/trees.cc; "Massively scale your deep learning training with NCCL 2.4", NVIDIA, 2019, after Sanders,
Speck, Träff, Parallel Computing 2009): two binary trees across servers, each with half of the data, chains inside; a
server that is a leaf of one tree is inside the other. Sums go up the tree and the result comes down. NCCL itself uses
trees for AllReduce alone; here they also broadcast and reduce, from or to the root's server. What a channel sends is
cut into slices (src/include/collectives.h), which follow each other as in a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...model.arrays import Int64, Ragged
from ...model.collective import Collective, Workload
from ...model.errors import Unsupported
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.best import completion_s
from ...schedule.nccl_cost_model import Cluster, expected_s
from ...schedule.shortest_trees import shortest_trees
from ...schedule.trees import Trees, divide, lower
from ...schedule.two_trees import STEP_BYTES, parents, slice_count
from .. import Option, Request, over_links, register
from .rings import MOST_CHANNELS, MOST_TRANSFERS, Ring, Rings, channel_count, find_rings, servers_of, slice_option

SLICE_STEPS = {"allgather": 2, "reducescatter": 2, "allreduce": 2, "broadcast": 1, "reduce": 1}
"""Steps of a channel's buffer that a slice fills, by kind: ALLGATHER_SLICESTEPS and the like."""


@dataclass(frozen=True)
class RankTree:
    """The edges of a tree over ranks, from the root down: (parent's node, child's node)."""

    root: int
    edges: tuple[tuple[int, int], ...]
    depth: int


@register(
    "nccl",
    collectives=tuple(SLICE_STEPS),
    topologies="any without planes",
    paper="NVIDIA NCCL 2.20, src/graph/tuning.cc",
    options=(
        Option("by", str, "simulation", "what ring and tree are compared by", ("simulation", "model")),
        Option("channels", str, "auto", f"as of nccl-ring and nccl-tree: auto, or 1 to {MOST_CHANNELS}"),
        Option("slices", int, 0, "as of nccl-ring and nccl-tree; 0 as NCCL"),
    ),
    serves=over_links,
)
def nccl(request: Request, *, by: str = "simulation", channels: str = "auto", slices: int = 0) -> Plan:
    """NCCL's choice by size: ring, or for AllReduce double binary trees.

    NCCL decides by size from a table of its own (:mod:`stretto.schedule.nccl_cost_model`), which also knows protocols
    and what launches cost on real hardware. The physics here knows neither, so by default both plans are made and
    simulated.

    Args:
        by: "simulation" makes both plans and keeps the one that ends first; "model" asks NCCL's tuning model, for an
            AllReduce on its own.
        channels, slices: as :func:`nccl_ring` and :func:`nccl_tree` take them.
    Returns:
        A plan in ready-order; its meta says which algorithm, and what was expected of each.
    """
    if any(not c.traits.reduces_to_all for c in request.workload.collectives):
        ring = nccl_ring(request, channels=channels, slices=slices)
        return replace(ring, meta=ring.meta | {"algorithm": "ring", "why": "NCCL has trees for AllReduce alone"})
    if by == "model":
        return _by_model(request, channels, slices)
    makers = {"ring": nccl_ring, "tree": nccl_tree}
    plans = {name: make(request, channels=channels, slices=slices) for name, make in makers.items()}
    expected = {name: completion_s(plan) for name, plan in plans.items()}
    algorithm = min(expected, key=lambda name: expected[name])
    plan = plans[algorithm]
    return replace(plan, meta=plan.meta | {"algorithm": algorithm, "expected_s": expected})


def _by_model(request: Request, channels: str, slices: int) -> Plan:
    if len(request.workload.collectives) != 1:
        raise Unsupported("nccl with by=model serves one collective at a time; by=simulation serves several")
    c = request.workload.collectives[0]
    ranks = c.ranks.astype(np.int64)
    rings = find_rings(request.topology, ranks, request.budget)
    servers = len(set(servers_of(request.topology, ranks).values()))
    cluster = Cluster.alike(len(ranks), servers, channel_count(channels) or len(rings.rings), rings.bandwidth)
    expected = expected_s(cluster, c.size_bytes)
    algorithm, protocol = min(expected, key=lambda pair: expected[pair])
    make = nccl_ring if algorithm == "ring" else nccl_tree
    table = {f"{a} {p}": seconds for (a, p), seconds in expected.items()}
    plan = make(request, channels=channels, slices=slices)
    return replace(plan, meta=plan.meta | {"algorithm": algorithm, "protocol": protocol, "expected_s": table})


@register(
    "nccl-ring",
    collectives=tuple(SLICE_STEPS),
    topologies="any without planes",
    paper="NVIDIA NCCL 2.20, src/graph/search.cc and src/device/*.h",
    options=(
        Option("channels", str, "auto", f"rings side by side; auto for as many as have links, or 1 to {MOST_CHANNELS}"),
        Option("slices", int, 0, "parts in which a channel sends what it sends in a step; 0 as NCCL, of 1 MiB or less"),
    ),
    serves=over_links,
)
def nccl_ring(request: Request, *, channels: str = "auto", slices: int = 0) -> Plan:
    """Rings, one a channel, as NCCL lays them.

    Args:
        channels: "auto" for as many rings as can each have bandwidth of their own; with more channels, several share
            a ring.
        slices: into how many slices a channel cuts what it sends in a step; 0 for as many as NCCL.
    Returns:
        A plan in ready-order, whose chunks are the slices.
    """
    topology, wanted = request.topology, channel_count(channels)
    collectives, keys, metas = [], [], []
    rings: list[Ring] = []
    for c in request.workload.collectives:
        own = find_rings(topology, c.ranks.astype(np.int64), request.budget)
        lanes = wanted or len(own.rings)
        fine, lane, root = _shares(c, lanes, slice_option(slices))
        keys.append(np.stack((len(rings) + lane % len(own.rings), root), axis=1))
        rings += own.rings
        collectives.append(fine)
        metas.append(_ring_meta(topology, own, lanes, int(fine.chunk_bytes.max())))
    trees, which = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    up, down = (ring_trees(topology, rings, trees, inward) for inward in (True, False))
    meta = metas[0] if len(metas) == 1 else {"collectives": metas}
    return lower(topology, Workload(tuple(collectives)), which.ravel(), up, down, meta=meta)


def _shares(c: Collective, lanes: int, slices: int) -> tuple[Collective, Int64, Int64]:
    """The collective cut into slices, and for each slice its channel and the node where its chain begins or ends.

    An AllReduce is cut into a part for each rank, whose chain ends, and begins again, at this rank.
    """
    everyone = c.traits.reduces_to_all
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


def _ring_meta(topology: Topology, rings: Rings, lanes: int, slice_bytes: int) -> dict[str, Any]:
    """What a plan's meta says of its rings."""
    names = topology.names
    meta: dict[str, Any] = {
        "channels": lanes,
        "rings": [[names[v] for v in ring.order] for ring in rings.rings[:lanes]],
        "channel_bandwidth": rings.bandwidth,
        "slice_bytes": slice_bytes,
    }
    if rings.relayed:
        pairs = ", ".join(f"{names[a]}→{names[b]}" for a, b in rings.relayed)
        meta["note"] = f"no ring of direct connections was found: over shortest ways, relayed, {pairs}"
    return meta


@register(
    "nccl-tree",
    collectives=("allreduce", "broadcast", "reduce"),
    topologies="any without planes",
    paper="NVIDIA NCCL 2.20, src/graph/trees.cc; Sanders et al., Parallel Computing 2009",
    options=(
        Option("channels", str, "auto", f"trees side by side; auto for two for each ring, or 1 to {MOST_CHANNELS}"),
        Option("slices", int, 0, "parts in which a channel sends its share; 0 as NCCL, of 32 to 512 KiB"),
    ),
    serves=over_links,
    tune=60,
)
def nccl_tree(request: Request, *, channels: str = "auto", slices: int = 0) -> Plan:
    """Double binary trees across servers, chains inside, as NCCL lays them.

    Args:
        channels: "auto" for both trees over each ring that has bandwidth of its own.
        slices: into how many slices a channel cuts its share; 0 for as many as NCCL.
    Returns:
        A plan in ready-order, whose chunks are the slices.
    """
    topology = request.topology
    collectives, which, metas = [], [], []
    trees: list[RankTree] = []
    sizes: list[int] = []
    for c in request.workload.collectives:
        rings = find_rings(topology, c.ranks.astype(np.int64), request.budget)
        own = rank_trees(topology, c, rings, channel_count(channels))
        biggest = int(c.chunk_bytes.max())
        room = max(1, MOST_TRANSFERS // (2 * len(c.ranks) * len(own) * c.chunk_count))
        cuts = slice_option(slices) or min(room, slice_count(biggest / len(own), max(t.depth for t in own)))
        fine, part = divide(c, len(own) * cuts)
        which.append(len(trees) + part % len(own))
        trees += own
        sizes += [int(fine.chunk_bytes.max())] * len(own)
        collectives.append(fine)
        metas.append({"channels": len(own), "slice_bytes": sizes[-1], "roots": [topology.names[t.root] for t in own]})
    up, down = (_routed(topology, trees, sizes, inward) for inward in (True, False))
    meta: dict[str, Any] = metas[0] if len(metas) == 1 else {"collectives": metas}
    return lower(topology, Workload(tuple(collectives)), np.concatenate(which), up, down, meta=meta)


def rank_trees(topology: Topology, c: Collective, rings: Rings, channels: int) -> list[RankTree]:
    """The tree of each channel: the two trees take turns, over the chains of ring after ring."""
    server = servers_of(topology, c.ranks.astype(np.int64))
    root = int(c.ranks[c.root]) if c.root >= 0 else None
    names = list(dict.fromkeys(server[int(v)] for v in c.ranks))
    if root is not None:
        at = names.index(server[root])
        names = names[at:] + names[:at]
    both = 2 if len(names) > 1 else 1
    trees = []
    for lane in range(channels or min(MOST_CHANNELS, both * len(rings.rings))):
        ring = rings.rings[lane // both % len(rings.rings)]
        chains = [[v for v in ring.order if server[v] == name] for name in names]
        above = parents(len(names), lane % both == 1, root is not None)
        trees.append(_over_ranks(chains, above, root))
    return trees


def _over_ranks(chains: Sequence[Sequence[int]], above: Sequence[int], root: int | None) -> RankTree:
    """The tree over ranks: servers joined at the heads of their chains, the root the head of its own."""
    heads = [chain[0] for chain in chains]
    if root is not None:
        heads[0] = root
    edges: list[tuple[int, int]] = []
    depth: dict[int, int] = {}
    todo = [above.index(-1)]
    for s in todo:
        head = heads[s]
        if above[s] >= 0:
            edges.append((heads[above[s]], head))
        depth[head] = depth[heads[above[s]]] + 1 if above[s] >= 0 else 0
        at = chains[s].index(head)
        for chain in (chains[s][at:], chains[s][at::-1]):
            for a, b in pairwise(chain):
                edges.append((a, b))
                depth[b] = depth[a] + 1
        todo += [i for i, p in enumerate(above) if p == s]
    return RankTree(heads[todo[0]], tuple(edges), max(depth.values()))


def _routed(topology: Topology, trees: Sequence[RankTree], sizes: Sequence[int], inward: bool) -> Trees:
    """The trees with each edge a shortest way; a relay that a tree passes has the chunk from then on."""
    pairs = sorted({(a, size) for tree, size in zip(trees, sizes) for a, _ in tree.edges})
    row = {pair: i for i, pair in enumerate(pairs)}
    ways = shortest_trees(
        topology, np.array([a for a, _ in pairs]), np.array([size for _, size in pairs], dtype=np.float64), inward
    )
    shape = len(trees), topology.node_count
    toward, hop = np.full(shape, -1), np.full(shape, -1)
    for t, (tree, size) in enumerate(zip(trees, sizes)):
        for a, b in tree.edges:
            way, v = row[a, size], b
            while v != tree.root and toward[t, v] < 0:
                toward[t, v], hop[t, v] = ways.toward[way, v], ways.hop[way, v]
                v = int(ways.toward[way, v])
    return Trees(np.array([tree.root for tree in trees]), toward, hop, ways.routes)
