"""The multicast time-expanded graph itself, built node by node: for small cases and for looking at.

MTEGCCA, section 2.1 and algorithm 1. Every node of the network appears once a slot. A *storage*
edge keeps a chunk for a slot and costs one; a *transmission* edge follows a link and costs its
slots; a *virtual* edge, free, says that a chunk has reached a node that wants it, whenever that is.

Where bandwidths change, a transmission costs the slots that it takes when it is sent in its slot, by the capacity of
each slot (equation (7), :mod:`.slots`).

Three things go beyond the paper's words. A link that needs several slots for a chunk is busy in all
of them, not only in the first. A switch stores nothing, so it has no storage edges, and bytes flow
through it: the link into it costs its latency alone, and links that meet in switches all take as
many slots a chunk as the slowest of them. And since bytes may come out of a switch before the slot
to which its latency is rounded up, the link out of it is kept free for the slot before, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ...model.arrays import Bool, Int8, Int32, Int64, Ragged
from ...model.collective import Workload
from ...model.errors import Infeasible, Unsupported
from ...model.topology import Topology
from ...schedule.multicast import MulticastTrees, whole_slots
from .slots import busy_slots

STORAGE, TRANSMISSION, VIRTUAL = 0, 1, 2

MOST_EDGES = 20_000_000
"""Edges of the largest graph that is built, about 30 bytes each."""

FIRST_SLOTS = 40
"""Slots of the first graph where no horizon is given; doubled until every rank is reached."""


@dataclass(frozen=True, eq=False)
class Mteg:
    """A multicast time-expanded graph.

    Slots 0 to H have a copy of every node: node v in slot t is ``t * nodes + v``. Virtual node i has the number
    ``(slots + 1) * nodes + i``.
    """

    slots: int  # H
    nodes: int  # how many the network has
    slot_s: float  # the length of a slot
    terminals: Int32  # int32[terminals, 2], (node, chunk) of each virtual node
    src: Int64  # int64[edges]
    dst: Int64
    cost: Int64  # int64[edges], slots
    kind: Int8  # int8[edges], STORAGE, TRANSMISSION or VIRTUAL
    link: Int32  # int32[edges], of a transmission, else -1
    link_slots: Int64  # int64[slots + 1, links], for how many slots a chunk sent in each slot keeps each link busy

    @property
    def node_count(self) -> int:
        return (self.slots + 1) * self.nodes + len(self.terminals)


def build_mteg(topology: Topology, workload: Workload, slot_s: float, slots: int, neglected: float = 0.0) -> Mteg:
    """Algorithm 1, for the largest chunk of the workload.

    Args:
        neglected: share of a slot up to which a latency takes no slot.
    Raises:
        Unsupported: routers, switches that do not replicate, switches where bandwidths change, chunks of different
            sizes, or a graph of more than 20 million edges.
    """
    if topology.is_router.any() or topology.planes:
        raise Unsupported("the explicit graph knows accelerators and switches, no routers and no planes")
    if not topology.replicates[topology.is_switch].all():
        raise Unsupported("the explicit graph takes every switch to replicate")
    if (topology.is_switch[topology.src] & topology.is_switch[topology.dst]).any():
        raise Unsupported("the explicit graph knows no links between switches; use graph=implicit")
    if topology.changes and topology.is_switch.any():
        raise Unsupported("the explicit graph knows no switches where bandwidths change; use graph=implicit")
    if workload.chunk_bytes.max() - workload.chunk_bytes.min() > 1:
        raise Unsupported("the explicit graph has slots for one size of chunk")
    n, links = topology.node_count, topology.link_count
    wanted = workload.chunk_wanted
    terminals = np.stack((wanted.values, wanted.owners.astype(np.int32)), axis=1)
    if (slots + 1) * (n + links + len(terminals)) > MOST_EDGES:
        raise Unsupported(f"{slots} slots make the explicit graph too large; use graph=implicit")
    wait = whole_slots(topology.latency_s, slot_s, neglected).astype(np.int64)
    busy = busy_slots(topology, float(workload.chunk_bytes.max()), slot_s, slots)
    into_switch = topology.is_switch[topology.dst]
    piped = into_switch | topology.is_switch[topology.src]
    if piped.any():
        busy = np.where(piped, busy[:, piped].max(), busy)
    takes = np.where(into_switch, wait, wait + busy)

    time = np.arange(slots + 1)
    stores = np.flatnonzero(~topology.is_switch)
    storage = (time[:-1, None] * n + stores[None]).ravel()
    sent, link = np.meshgrid(time, np.arange(links), indexing="ij")
    fits = sent + takes <= slots
    sent, link, takes = sent[fits], link[fits], takes[fits]
    virtual_src = (time[:, None] * n + terminals[None, :, 0]).ravel()
    virtual_dst = np.tile((slots + 1) * n + np.arange(len(terminals)), slots + 1)
    counts = (len(storage), len(sent), len(virtual_src))
    return Mteg(
        slots=slots,
        nodes=n,
        slot_s=slot_s,
        terminals=terminals,
        src=np.concatenate((storage, sent * n + topology.src[link], virtual_src)),
        dst=np.concatenate((storage + n, (sent + takes) * n + topology.dst[link], virtual_dst)),
        cost=np.concatenate((np.ones(counts[0], np.int64), takes, np.zeros(counts[2], np.int64))),
        kind=np.repeat(np.array([STORAGE, TRANSMISSION, VIRTUAL], dtype=np.int8), counts),
        link=np.concatenate((np.full(counts[0], -1), link, np.full(counts[2], -1))).astype(np.int32),
        link_slots=busy,
    )


def grow_trees(
    topology: Topology,
    workload: Workload,
    tasks: Int64,
    slot_s: float,
    nearest: bool,
    slots: int = 0,
    neglected: float = 0.0,
) -> MulticastTrees:
    """Steps 3 and 4 on the explicit graph.

    Args:
        slots: H; 0 for as many as it takes, doubled from 40 until every rank is reached. Paths
            that end later do not exist, so with ``nearest`` a longer H can make a *worse* plan.
        neglected: share of a slot up to which a latency takes no slot.
    Raises:
        Infeasible: a rank has no path from the source. Unsupported: see :func:`build_mteg`.
    """
    grows = slots == 0
    slots = slots or FIRST_SLOTS
    while True:
        growth = _Growth(
            topology, workload, build_mteg(topology, workload, slot_s, slots, neglected), nearest, neglected
        )
        try:
            for chunk in tasks:
                growth.grow(int(chunk))
        except Infeasible:
            if not grows:
                raise
            slots *= 2
            continue
        return growth.trees()


class _Growth:
    """The trees grown so far on one graph, and what they leave free."""

    def __init__(self, topology: Topology, workload: Workload, graph: Mteg, nearest: bool, neglected: float) -> None:
        self.topology, self.workload, self.graph, self.nearest = topology, workload, graph, nearest
        self.neglected = neglected
        starts = np.ceil(workload.chunk_start_s / graph.slot_s - max(neglected, 1e-9)).astype(np.int64)
        # where all slots are alike the graph begins with the first chunk
        self.first_slot = 0 if topology.changes else int(starts.min())
        self.start_slot: Int64 = starts - self.first_slot
        order = np.argsort(graph.src, kind="stable")
        self.edges = order
        self.offsets = np.searchsorted(graph.src[order], np.arange(graph.node_count + 1))
        most = min(int(graph.link_slots.max()), graph.slots + 1)
        self.idle = np.ones((topology.link_count, graph.slots + 1 + most), dtype=np.bool_)
        self.pass_rows: list[tuple[int, int, int, int]] = []  # chunk, src, parent, start
        self.hits: list[tuple[int, int]] = []
        self.hops: list[tuple[int, int]] = []
        self.finish = 0

    def grow(self, chunk: int) -> None:
        """Takahashi-Matsuyama: join the nearest terminal to the tree until none is left."""
        g, n = self.graph, self.graph.nodes
        work = self.workload
        start = int(self.start_slot[chunk])
        if start > g.slots:
            raise Infeasible(f"chunk {chunk} starts after the last of {g.slots} slots")
        holders = [int(v) for v in work.chunk_holders[chunk]]
        tree = {start * n + v: -1 for v in holders}  # time-node -> the pass that brought it
        brought = dict.fromkeys(holders, -1)
        first = int(work.chunk_wanted.offsets[chunk])
        left = {(g.slots + 1) * n + first + i for i, v in enumerate(work.chunk_wanted[chunk]) if int(v) not in brought}
        while left:
            path = self._way_to_nearest(tree, left, brought, chunk)
            left.discard(int(g.dst[path[-1]]))
            self._commit(path, tree, brought, chunk)

    def _way_to_nearest(self, tree: dict[int, int], left: set[int], brought: dict[int, int], chunk: int) -> list[int]:
        """The edges of the shortest path from the tree to a terminal (Dijkstra from all of it)."""
        g, n = self.graph, self.graph.nodes
        distance = {v: 0 if self.nearest else v // n for v in tree}
        heap = [(d, v) for v, d in sorted(distance.items())]
        by: dict[int, int] = {}
        while heap:
            d, v = heappop(heap)
            if v in left:
                path = []
                while v not in tree:
                    path.append(by[v])
                    v = int(g.src[by[v]])
                return path[::-1]
            if d > distance[v]:
                continue
            for e in self.edges[self.offsets[v] : self.offsets[v + 1]]:
                w, link = int(g.dst[e]), g.link[e]
                if g.kind[e] == VIRTUAL and w not in left:
                    continue
                if link >= 0 and w % n in brought:
                    continue  # to receive a chunk twice is of no use
                if link >= 0 and not self._window(v, link).all():
                    continue
                far = d + int(g.cost[e])
                if far < distance.get(w, far + 1):
                    distance[w] = far
                    by[w] = int(e)
                    heappush(heap, (far, w))
        raise Infeasible(f"chunk {chunk} cannot reach all its ranks within {g.slots} slots")

    def _window(self, v: int, link: int) -> Bool:
        """The slots of a link that a chunk sent from time-node v takes, as a view of ``idle``."""
        slot, n = v // self.graph.nodes, self.graph.nodes
        early = 1 if self.topology.is_switch[v % n] else 0
        return self.idle[link, max(slot - early, 0) : slot + self.graph.link_slots[slot, link]]

    def _commit(self, path: list[int], tree: dict[int, int], brought: dict[int, int], chunk: int) -> None:
        """Add a path to the tree, take its link-slots, and note passes, hops and hits."""
        g, n = self.graph, self.graph.nodes
        carried = tree[int(g.src[path[0]])]
        for e in path:
            v, w, link = int(g.src[e]), int(g.dst[e]), int(g.link[e])
            if g.kind[e] == VIRTUAL:
                self.finish = max(self.finish, v // n)
                continue
            if g.kind[e] == TRANSMISSION:
                self._window(v, link)[:] = False
                if not self.topology.is_switch[v % n]:
                    self.pass_rows.append((chunk, v % n, brought[v % n], v // n))
                    carried = len(self.pass_rows) - 1
                self.hops.append((carried, link))
                if not self.topology.is_switch[w % n]:
                    self.hits.append((carried, w % n))
                    brought[w % n] = carried
            tree[w] = carried

    def trees(self) -> MulticastTrees:
        """What :func:`grow_trees` returns."""
        slot_s = np.float64(self.graph.slot_s)
        chunk, src, parent, start = np.array(self.pass_rows, dtype=np.int64).reshape(-1, 4).T
        hits, hops = (np.array(rows, dtype=np.int64).reshape(-1, 2).T for rows in (self.hits, self.hops))
        dst, route = (Ragged.grouped(of_pass, values, len(chunk)) for of_pass, values in (hits, hops))
        seconds = self.graph.link_slots[start, route.values[route.offsets[:-1]]] * slot_s
        start_s, finish_s = (start + self.first_slot) * slot_s, float((self.finish + self.first_slot) * slot_s)
        return MulticastTrees(chunk, src, parent, start_s, seconds, dst, route, finish_s)
