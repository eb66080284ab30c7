"""NCCL's tree algorithm: two binary trees across servers, each with half of the data, chains inside.

NCCL 2.20 (src/graph/trees.cc; "Massively scale your deep learning training with NCCL 2.4", NVIDIA,
2019, after Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan", Parallel Computing 2009): a server that is a leaf of one tree is inside the other. Sums go
up the tree and the result comes down, slice after slice. NCCL itself uses trees for AllReduce
alone; here they also broadcast and reduce, from or to the root's server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...model.collective import Collective, Workload
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.shortest_trees import shortest_trees
from ...schedule.trees import Trees, divide, lower
from ...schedule.two_trees import parents, slice_count
from .. import Candidate, Option, Request, over_links, register
from .rings import MOST_CHANNELS, MOST_TRANSFERS, Rings, channel_count, find_rings, servers_of, slice_option

OPTIONS = (
    Option("channels", str, "auto", f"trees side by side; auto for two a ring that is found, or 1 to {MOST_CHANNELS}"),
    Option("slices", int, 0, "parts in which a channel sends its share; 0 as NCCL, of 32 to 512 KiB"),
)


@dataclass(frozen=True)
class RankTree:
    """The edges of a tree over ranks, from the root down: (parent's node, child's node)."""

    root: int
    edges: tuple[tuple[int, int], ...]
    depth: int


@register(
    "nccl-tree",
    collectives=("allreduce", "broadcast", "reduce"),
    topologies="any without planes",
    paper="NVIDIA NCCL 2.20, src/graph/trees.cc; Sanders et al., Parallel Computing 2009",
    options=OPTIONS,
    serves=over_links,
    auto=Candidate(
        40, lambda request: 400.0 * sum(len(c.ranks) ** 2 for c in request.workload.collectives), early_up_to=16
    ),
    tune=60,
)
def nccl_tree(request: Request, *, channels: str = "auto", slices: int = 0) -> Plan:
    """Double binary trees across servers, chains inside, as NCCL lays them.

    Args:
        channels: "auto" for both trees over each ring that has bandwidth of its own.
        slices: into how many slices a channel cuts its share; 0 for those of NCCL.
    Returns:
        A plan in ready-order, whose chunks are the slices.
    """
    topology, workload = request.topology, request.workload
    collectives, which, metas = [], [], []
    trees: list[RankTree] = []
    sizes: list[int] = []
    for c in workload.collectives:
        found = find_rings(topology, c.ranks.astype(np.int64))
        own = rank_trees(topology, c, found, channel_count(channels))
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


def rank_trees(topology: Topology, c: Collective, found: Rings, channels: int) -> list[RankTree]:
    """The tree of each channel: the two trees take turns, over the chains of ring after ring."""
    server = servers_of(topology, c.ranks.astype(np.int64))
    root = int(c.ranks[c.root]) if c.root >= 0 else None
    names = list(dict.fromkeys(server[int(v)] for v in c.ranks))
    if root is not None:
        at = names.index(server[root])
        names = names[at:] + names[:at]
    both = 2 if len(names) > 1 else 1
    trees = []
    for lane in range(channels or min(MOST_CHANNELS, both * len(found.rings))):
        ring = found.rings[lane // both % len(found.rings)]
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
