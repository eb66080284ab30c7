"""Trees that fork in switches, all sent at once at fixed rates; no accelerator passes anything on.

Where switches (or routers that cut through) copy, a rank's data can go to all others as one fluid pipe that forks, so
that nothing waits to be stored and sent on. All trees begin together and end together, and beside bandwidth only the
latency of the longest path is lost, at any size. Each rank's data is divided among trees so that the busiest link is
busy for the least time: a linear program over trees (fractional packing of Steiner trees: Jain, Mahdian and
Salavatipour, SODA 2003). The trees are grown by Takahashi and Matsuyama's heuristic (1980), repeatedly, at prices that
rise with what links carry already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64, Ragged
from ..model.collective import Workload
from ..model.plan import Plan, make_plan
from ..model.topology import Topology
from ..schedule.trees import split_chunks
from . import Candidate, Request, per_delivery, register

MOST_ROUNDS = 16
"""How often each demand's tree is grown anew at most; at least twice."""

GROWTH_STEPS = 50_000
"""Demands times links over all rounds: fewer rounds where one round has more of them."""

MOST_GROWTH_STEPS = 100_000
"""Demands times links of one round, beyond which the request is refused."""

STEEPNESS = 4.0
"""The price of a link's time is e to this power times as high on the busiest link as on an idle one."""

SMALLEST_SHARE = 1e-6
"""Share of a demand below which a tree is dropped."""


@dataclass(frozen=True)
class _Demands:
    """What is sent: chunks of one source for the same receivers are one demand.

    Attributes:
        of_chunk: int64[chunks], the demand of each chunk, -1 where only the source wants it.
        root, receivers: the source and the receivers of each demand.
        size_bytes: float64[demands].
    """

    of_chunk: Int64
    root: list[int]
    receivers: list[frozenset[int]]
    size_bytes: Float64

    @classmethod
    def of(cls, workload: Workload) -> _Demands:
        number: dict[tuple[int, frozenset[int]], int] = {}
        of_chunk = np.full(workload.chunk_count, -1, dtype=np.int64)
        for chunk in range(workload.chunk_count):
            root = int(workload.chunk_holders[chunk][0])
            receivers = frozenset(workload.chunk_wanted[chunk].tolist()) - {root}
            if receivers:
                of_chunk[chunk] = number.setdefault((root, receivers), len(number))
        size = np.zeros(len(number))
        np.add.at(size, of_chunk[of_chunk >= 0], workload.chunk_bytes[of_chunk >= 0])
        return cls(of_chunk, [root for root, _ in number], [receivers for _, receivers in number], size)

    @property
    def count(self) -> int:
        return len(self.root)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    if (topology.transit & ~topology.replicates).any():
        return "a node that passes data on cannot copy it"
    if len(np.unique(workload.chunk_start_s)) > 1:
        return "all must begin together"
    demands, network = _Demands.of(workload), _Network(topology)
    if demands.count * topology.link_count > MOST_GROWTH_STEPS:
        return "that many trees would take too long to grow"
    for root, receivers in zip(demands.root, demands.receivers, strict=True):
        if network.grow(root, receivers, topology.latency_s) is None:
            return f"from {topology.names[root]} some rank is reached only through accelerators"
    return None


@register(
    "switch-trees",
    collectives=("allgather", "broadcast", "multicast"),
    topologies="any in which switches that copy join all ranks",
    paper="our own; trees by Takahashi and Matsuyama, 1980",
    serves=_serves,
    cuts=True,
    auto=Candidate(
        10,
        per_delivery(60, first=3_000),
        good_for=("bandwidth",),
        early_up_to=32,
        suits=lambda topology: bool((topology.transit & topology.replicates).any()),
    ),
)
def switch_trees(request: Request) -> Plan:
    """Trees that fork in switches, all at once, at rates that end together.

    Returns:
        A timed plan with one transfer for each part of a chunk and each link by which its tree leaves the root.
    """
    topology, workload = request.topology, request.workload
    demands = _Demands.of(workload)
    trees = _grow_trees(topology, demands)
    share = _solve_shares(topology, demands, trees)
    branches = [_branches(topology, demands, tree) for tree in trees]
    parts = list(_cut_chunks(workload, demands, trees, share))
    chunk, begin, place = (np.array([part[i] for part in parts], dtype=np.int64) for i in (0, 1, 2))
    finer, first = split_chunks(workload, chunk, begin)
    sent = [
        (part, demands.root[trees[tree].demand], *branch)
        for part, (*_, tree) in zip((first[chunk] + place).tolist(), parts, strict=True)
        for branch in branches[tree]
    ]
    chunks = np.array([part for part, *_ in sent], dtype=np.int64)
    route = Ragged.of([links for *_, links in sent])
    load = np.bincount(route.values, finer.chunk_bytes[chunks[route.owners]], topology.link_count)
    busiest_s = float((load / topology.bandwidth).max())
    start_s = finer.chunk_start_s[chunks]
    return make_plan(
        topology, finer, "timed",
        chunk=chunks, src=[root for _, root, *_ in sent], dst=Ragged.of([receivers for *_, receivers, _ in sent]),
        route=route, depends=Ragged.empty(len(sent)),
        start_s=start_s, finish_s=start_s + busiest_s, meta={"trees": int((share > 0).sum())},
    )  # fmt: skip


class _Tree(NamedTuple):
    """A Steiner tree of one demand; each link begins at the root or where an earlier link ends."""

    demand: int
    links: tuple[int, ...]


def _branches(topology: Topology, demands: _Demands, tree: _Tree) -> list[tuple[list[int], list[int]]]:
    """For each link that leaves the root the receivers and the links of its branch."""
    branch_at: dict[int, tuple[list[int], list[int]]] = {}
    branches: list[tuple[list[int], list[int]]] = []
    links = list(tree.links)
    for link, tail, head in zip(links, topology.src[links].tolist(), topology.dst[links].tolist(), strict=True):
        if tail == demands.root[tree.demand]:
            branches.append(([], []))
            branch_at[tail] = branches[-1]
        branch = branch_at[head] = branch_at[tail]
        branch[1].append(link)
        if head in demands.receivers[tree.demand]:
            branch[0].append(head)
    return branches


def _grow_trees(topology: Topology, demands: _Demands) -> list[_Tree]:
    """Grow each demand's tree repeatedly, at prices by the load so far; return the different trees."""
    network = _Network(topology)
    load_s = np.zeros(topology.link_count)
    trees: dict[tuple[int, tuple[int, ...]], _Tree] = {}
    rounds = int(np.clip(GROWTH_STEPS // max(demands.count * topology.link_count, 1), 2, MOST_ROUNDS))
    for _ in range(rounds):
        for k, (root, receivers) in enumerate(zip(demands.root, demands.receivers, strict=True)):
            seconds = demands.size_bytes[k] / topology.bandwidth
            busiest_s = max(float(load_s.max()), np.finfo(float).tiny)
            links = network.grow(root, receivers, topology.latency_s + seconds * np.exp(STEEPNESS * load_s / busiest_s))
            assert links is not None, "_serves has grown a tree for each demand"
            load_s[links] += seconds[links]
            trees.setdefault((k, tuple(sorted(links))), _Tree(k, tuple(links)))
    return list(trees.values())


def _solve_shares(topology: Topology, demands: _Demands, trees: list[_Tree]) -> Float64:
    """float64[trees], the share of its demand that each tree carries, so that the busiest link is least busy."""
    from ..solvers import INFINITY, Model, solve

    if not trees:
        return np.zeros(0)
    demand = np.array([tree.demand for tree in trees], dtype=np.int64)
    links = Ragged.of([tree.links for tree in trees])
    seconds = demands.size_bytes[demand[links.owners]] / topology.bandwidth[links.values]
    model = Model()
    busiest, share = model.columns(1, 0.0, INFINITY, 1.0), model.columns(len(trees), 0.0, 1.0)
    model.rows(demands.count, 1.0, 1.0, (demand, share, 1.0))
    every_link = np.arange(topology.link_count)
    model.rows(
        len(every_link), -INFINITY, 0.0,
        (links.values, share[links.owners], seconds / seconds.max()), (every_link, busiest, -1.0),
    )  # fmt: skip
    solution = solve(model)
    assert solution.x is not None, "any shares of trees are a solution"
    kept = np.where(solution.x[share] < SMALLEST_SHARE, 0.0, solution.x[share])
    shares: Float64 = kept / np.bincount(demand, kept)[demand]
    return shares


def _cut_chunks(
    workload: Workload, demands: _Demands, trees: list[_Tree], share: Float64
) -> Iterator[tuple[int, int, int, int]]:
    """For each part of a chunk: the chunk, the part's first byte, its place in the chunk, and the index of its tree."""
    used: list[list[tuple[int, float]]] = [[] for _ in demands.root]
    for k, amount in enumerate(share.tolist()):
        if amount > 0:
            used[trees[k].demand].append((k, amount))
    for chunk in np.flatnonzero(demands.of_chunk >= 0).tolist():
        parts = used[demands.of_chunk[chunk]]
        size = int(workload.chunk_bytes[chunk])
        ends = np.rint(size * np.cumsum([amount for _, amount in parts])).astype(np.int64)
        begin, place = 0, 0
        for (tree, _), end in zip(parts, ends.tolist(), strict=True):
            if end > begin:
                yield chunk, begin, place, tree
                begin, place = end, place + 1


class _Network:
    """Links by the node that they leave, in which Steiner trees grow."""

    def __init__(self, topology: Topology) -> None:
        self.transit: list[bool] = topology.transit.tolist()
        self.src: list[int] = topology.src.tolist()
        offsets, links = topology.out_links
        rows = list(zip(topology.dst[links].tolist(), links.tolist(), strict=True))
        self.out = [rows[low:high] for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def grow(self, root: int, receivers: frozenset[int], price: Float64) -> list[int] | None:
        """Grow a Steiner tree by Takahashi and Matsuyama's heuristic: the nearest receiver joins next.

        Returns:
            Its links, those nearer to the root first; None where a receiver is reached only through accelerators.
        """
        cost: list[float] = price.tolist()
        distance, in_tree = {root: 0.0}, {root}
        via: dict[int, int] = {}
        queue = [(0.0, root)]
        links: list[int] = []
        missing = set(receivers)
        while missing and queue:
            near, v = heappop(queue)
            if near > distance[v]:
                continue
            if v in missing:
                missing.remove(v)
                path = []
                while v not in in_tree:
                    in_tree.add(v)
                    path.append(via[v])
                    distance[v] = 0.0
                    if self.transit[v]:
                        heappush(queue, (0.0, v))
                    v = self.src[via[v]]
                links += reversed(path)
                continue
            if v == root or self.transit[v]:
                for w, link in self.out[v]:
                    there = near + cost[link]
                    if w not in in_tree and there < distance.get(w, np.inf):
                        distance[w], via[w] = there, link
                        heappush(queue, (there, w))
        return None if missing else links
