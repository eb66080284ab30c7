"""Shortest paths: every chunk takes the path that is best for it alone, blind to all others.

The baseline SPH of SCALE-CCL (Dai et al., INET4AI 2025, section 5): each subchunk is routed by
Dijkstra's algorithm, and links serve subchunks in the order in which they come, whatever the load. Sums
take the same paths backwards.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int64, Ragged
from ..model.collective import Workload
from ..model.errors import Unsupported
from ..model.kinds import EVERY_KIND
from ..model.plan import Plan, make_plan
from ..model.topology import Topology
from ..schedule.shortest_trees import shortest_trees
from ..schedule.trees import Trees, divide, lower
from . import Candidate, Option, Request, over_links, per_delivery, register

COSTS = {"transfer": 3.0}
"""Steps (:mod:`stretto.schedule.effort`) of a transfer, with simulating it."""

OPTIONS = (
    Option("copy", bool, True, "one tree a chunk, whose shared links carry it once; false: once for each receiver"),
    Option(
        "cost", str, "alpha-beta", "what a path costs: latency and transmission, or latency", ("alpha-beta", "alpha")
    ),
)


@register(
    "shortest-path",
    collectives=EVERY_KIND,
    topologies="any without planes",
    paper="SPH in SCALE-CCL, INET4AI 2025, section 5",
    options=OPTIONS,
    serves=over_links,
    auto=Candidate(per_delivery(4, first=1_000)),
    tune=30,
    library=60,
)
def shortest_path(request: Request, *, copy: bool = True, cost: str = "alpha-beta") -> Plan:
    """Every chunk by shortest paths, first come first served.

    Args:
        copy: True grows one tree a chunk out of its shortest paths, and a link carries it once,
            branching in switches that replicate. False sends it to every receiver anew, as SPH does.
        cost: of a link for a chunk: "alpha-beta" its latency and the time that it takes, "alpha"
            its latency, as the paper has it.
    Returns:
        A plan in ready-order.
    Raises:
        Unsupported: sums with ``copy=False``: what meets at a node is added there.
    """
    topology, workload = request.topology, request.workload
    transfers = request.budget.with_costs(COSTS)
    transfers.require(f"shortest-path for {workload.title} on {topology.name}", transfer=request.transfers)
    if not copy and workload.chunk_reduces.any():
        raise Unsupported("shortest-path with copy=false does not serve sums: what meets at a node is added there")
    workload, root = _choose_roots(workload)
    size = workload.chunk_bytes.astype(np.float64) if cost == "alpha-beta" else np.zeros(workload.chunk_count)
    distinct, tree = np.unique(np.stack((root, size), axis=1), axis=0, return_inverse=True)
    tree = tree.ravel()
    roots, sizes = distinct[:, 0].astype(np.int64), distinct[:, 1].astype(np.float64)
    down = shortest_trees(topology, roots, sizes)
    if not copy:
        return _send_separately(topology, workload, tree, down)
    up = shortest_trees(topology, roots, sizes, inward=True) if workload.chunk_reduces.any() else down
    return lower(topology, workload, tree, up, down, multicast=True)


def _choose_roots(workload: Workload) -> tuple[Workload, Int64]:
    """The node from which each chunk spreads, or at which it is summed.

    A buffer that all want summed is cut into one part a rank, each summed at that rank.
    """
    collectives, roots = [], []
    for c in workload.collectives:
        if c.traits.reduces_to_all:
            c, part = divide(c, len(c.ranks))
            roots.append(c.ranks[part])
        else:
            lists = c.chunk_wanted if c.reduces else c.chunk_holders
            roots.append(lists.values[lists.offsets[:-1]])
        collectives.append(c)
    return Workload(tuple(collectives)), np.concatenate(roots).astype(np.int64)


def _send_separately(topology: Topology, workload: Workload, tree: Int64, trees: Trees) -> Plan:
    """Send each receiver its own copy, from the source all the way.

    Copies of a chunk that come to one node do so in order, the next sent when the last has arrived.
    """
    wanted = workload.chunk_wanted
    remote = wanted.values != trees.root[tree[wanted.owners]]
    # a flow is a chunk on its path to one receiver; it is followed back, node by node
    chunk_of, at = wanted.owners[remote], wanted.values[remote].astype(np.int64)
    flow = np.arange(len(at))
    hops: list[tuple[Int64, Int64, Int64]] = []
    while len(flow):
        parent = trees.toward[tree[chunk_of[flow]], at]
        hops.append((flow, at, parent))
        inner = parent != trees.root[tree[chunk_of[flow]]]
        flow, at = flow[inner], parent[inner]
    flow, node, src = (np.concatenate(x) for x in zip(*hops, strict=True)) if hops else (flow, flow, flow)
    back = np.arange(len(hops)).repeat([len(flows) for flows, _, _ in hops])
    order = np.lexsort((-back, flow))
    flow, node, src = flow[order], node[order], src[order]
    chunk = chunk_of[flow]

    # a copy goes on when it has arrived, and after the last copy of its chunk to the same node
    onward = np.flatnonzero(flow[1:] == flow[:-1]) + 1
    place = chunk * topology.node_count + node
    order = np.argsort(place, kind="stable")
    same = np.flatnonzero(place[order][1:] == place[order][:-1])
    return make_plan(
        topology,
        workload,
        "ready-order",
        chunk=chunk,
        src=src,
        dst=Ragged.single(node),
        route=trees.routes.take(trees.hop[tree[chunk], node]),
        depends=Ragged.grouped(
            np.concatenate((onward, order[same + 1])), np.concatenate((onward - 1, order[same])), len(chunk)
        ),
    )
