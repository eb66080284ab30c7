"""Shortest paths: every chunk takes the way that is best for it alone, blind to all others.

The baseline SPH of SCALE-CCL (Dai et al., INET4AI 2025, section 5): each subchunk is routed by
Dijkstra and links serve what comes in the order in which it comes, without a look at load. Sums
take the same ways backwards.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.errors import Unsupported
from ..model.kinds import KINDS
from ..model.plan import Plan, make_plan
from ..model.topology import Topology
from ..schedule.shortest_trees import shortest_trees
from ..schedule.trees import Int64, Trees, divide, lower
from . import Option, Progress, over_links, register

OPTIONS = (
    Option("copy", bool, True, "one tree a chunk, whose shared ways carry it once; false: once for each receiver"),
    Option(
        "cost", str, "alpha-beta", "what a way costs: latency and transmission, or latency", ("alpha-beta", "alpha")
    ),
)


@register(
    "shortest-path",
    collectives=(*KINDS, "multicast"),
    topologies="any without planes",
    paper="SPH in SCALE-CCL, INET4AI 2025, section 5",
    options=OPTIONS,
    serves=over_links,
)
def shortest_path(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    copy: bool = True,
    cost: str = "alpha-beta",
) -> Plan:
    """Every chunk by shortest paths, first come first served.

    Args:
        seed, time_limit_s, progress: taken for uniformity; nothing is random or long.
        copy: True grows one tree a chunk out of its shortest paths, and a link carries it once,
            branching in switches that replicate. False sends it to every receiver anew, as SPH does.
        cost: of a link for a chunk: "alpha-beta" its latency and the time that it takes, "alpha"
            its latency, as the paper has it.
    Returns:
        A plan in ready-order.
    Raises:
        Unsupported: sums with ``copy=False``: what meets at a node is added there.
    """
    if not copy and workload.chunk_reduces.any():
        raise Unsupported("shortest-path with copy=false does not serve sums: what meets at a node is added there")
    workload, root = _rooted(workload)
    size = workload.chunk_bytes.astype(np.float64) if cost == "alpha-beta" else np.zeros(workload.chunk_count)
    kinds, tree = np.unique(np.stack((root, size), axis=1), axis=0, return_inverse=True)
    tree = tree.ravel()
    roots, sizes = kinds[:, 0].astype(np.int64), kinds[:, 1].astype(np.float64)
    down = shortest_trees(topology, roots, sizes)
    if not copy:
        return _separately(topology, workload, tree, down)
    up = shortest_trees(topology, roots, sizes, inward=True) if workload.chunk_reduces.any() else down
    return lower(topology, workload, tree, up, down, multicast=True)


def _rooted(workload: Workload) -> tuple[Workload, Int64]:
    """The node that each chunk spreads from, or at which it is summed.

    What everyone wants summed is cut into a part a rank, each summed at its own.
    """
    collectives, roots = [], []
    for c in workload.collectives:
        if c.kind == "allreduce":
            c, part = divide(c, len(c.ranks))
            roots.append(c.ranks[part])
        else:
            lists = c.chunk_wanted if c.reduces else c.chunk_holders
            roots.append(lists.values[lists.offsets[:-1]])
        collectives.append(c)
    return Workload(tuple(collectives)), np.concatenate(roots).astype(np.int64)


def _separately(topology: Topology, workload: Workload, tree: Int64, trees: Trees) -> Plan:
    """Each receiver's copy on its own, from the source all the way.

    Copies of a chunk that come to one node do so in order, the next sent when the last has arrived.
    """
    wanted = workload.chunk_wanted
    far = wanted.values != trees.root[tree[wanted.owners]]
    chunk_of, at = wanted.owners[far], wanted.values[far].astype(np.int64)
    flows, nodes, parents = [], [], []
    flow = np.arange(len(at))
    while len(flow):
        parent = trees.toward[tree[chunk_of[flow]], at]
        flows.append(flow)
        nodes.append(at)
        parents.append(parent)
        inner = parent != trees.root[tree[chunk_of[flow]]]
        flow, at = flow[inner], parent[inner]
    flow, node, src = (np.concatenate(x) if x else np.zeros(0, dtype=np.int64) for x in (flows, nodes, parents))
    back = np.repeat(np.arange(len(flows)), [len(f) for f in flows])
    order = np.lexsort((-back, flow))
    flow, node, src = flow[order], node[order], src[order]
    chunk, n = chunk_of[flow], len(flow)

    # a copy goes on when it has come, and after the last one of its chunk to the same node
    sent_on = np.flatnonzero(flow[1:] == flow[:-1]) + 1
    place = chunk * topology.node_count + node
    order = np.argsort(place, kind="stable")
    same = place[order][1:] == place[order][:-1]
    pairs = np.concatenate(
        (np.stack((sent_on, sent_on - 1), axis=1), np.stack((order[1:][same], order[:-1][same]), axis=1))
    )
    return make_plan(
        topology,
        workload,
        "ready-order",
        chunk=chunk,
        src=src,
        dst=Ragged.single(node.astype(np.int32)),
        route=trees.routes.take(trees.hop[tree[chunk], node]),
        depends=Ragged.grouped(pairs[:, 0], pairs[:, 1], n),
    )
