"""Trees that fork in switches, all sent at once at fixed rates; no accelerator passes anything on.

Where switches (or routers that cut through) copy, a rank's data can go to all others as one fluid pipe that forks, so
that nothing waits to be stored and sent on. All trees begin together and end together, and beside bandwidth only the
latency of the longest path is lost, at any size. Each rank's data is divided among trees so that the busiest link is
busy for the least time: a linear program over trees (fractional packing of Steiner trees: Jain, Mahdian and
Salavatipour, SODA 2003). The trees are grown by Takahashi and Matsuyama's heuristic (1980), repeatedly, at prices that
rise with what links carry already.

Where switches sum, sums for one rank take such trees with time reversed, grown over links turned round. An AllReduce
takes pairs of an in-tree and an out-tree that meet in a switch: all ranks send to it and get the sum in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..bounds import distances
from ..model.arrays import Float64, Int64, Ragged
from ..model.collective import Workload
from ..model.plan import COPY, REDUCE, Plan, make_plan
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


MOST_CENTERS = 16
"""Switches that an AllReduce may meet in: those nearest to all ranks. `fattree:4` has 4 that are needed."""


@dataclass(frozen=True)
class _Demand:
    """What is sent: chunks from the same nodes to the same nodes are one demand."""

    root: int  # the node that sends, or that gets a sum; -1 where all send and all get the sum
    others: frozenset[int]  # the nodes that receive from the root, or that send to it; all of them without a root
    sums: bool


@dataclass(frozen=True)
class _Demands:
    """All demands of a workload.

    Attributes:
        of_chunk: int64[chunks], the demand of each chunk, -1 where only the source wants it.
        every: the demands.
        size_bytes: float64[demands].
    """

    of_chunk: Int64
    every: list[_Demand]
    size_bytes: Float64

    @classmethod
    def of(cls, workload: Workload) -> _Demands:
        number: dict[_Demand, int] = {}
        of_chunk = np.full(workload.chunk_count, -1, dtype=np.int64)
        for chunk, sums in enumerate(workload.chunk_reduces.tolist()):
            ends = [workload.chunk_holders[chunk].tolist(), workload.chunk_wanted[chunk].tolist()]
            roots, others = ends[::-1] if sums else ends
            root = int(roots[0]) if len(roots) == 1 else -1
            demand = _Demand(root, frozenset(others) - {root}, sums)
            if demand.others:
                of_chunk[chunk] = number.setdefault(demand, len(number))
        size = np.zeros(len(number))
        np.add.at(size, of_chunk[of_chunk >= 0], workload.chunk_bytes[of_chunk >= 0])
        return cls(of_chunk, [*number], size)

    @property
    def count(self) -> int:
        return len(self.every)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    sums, copies = workload.chunk_reduces, workload.chunk_wanted.lengths > 1
    if (copies | ~sums).any() and (topology.transit & ~topology.replicates).any():
        return "a node that passes data on cannot copy it"
    if sums.any() and (topology.transit & ~topology.reduces).any():
        return "a node that passes data on cannot sum it"
    if len(np.unique(workload.chunk_start_s)) > 1:
        return "all must begin together"
    demands = _Demands.of(workload)
    if demands.count * topology.link_count > MOST_GROWTH_STEPS:
        return "that many trees would take too long to grow"
    trees = _Trees(topology)
    for demand in demands.every:
        if not trees.grow(demand, topology.latency_s):
            at = "the ranks" if demand.root < 0 else topology.names[demand.root]
            return f"from {at} some rank is reached only through accelerators"
    return None


@register(
    "switch-trees",
    collectives=("allgather", "broadcast", "multicast", "reducescatter", "reduce", "allreduce"),
    topologies="any in which switches that copy (and sum) join all ranks",
    paper="our own; trees by Takahashi and Matsuyama, 1980",
    serves=_serves,
    cuts=True,
    auto=Candidate(per_delivery(60, first=3_000)),
)
def switch_trees(request: Request) -> Plan:
    """Trees that fork or meet in switches, all at once, at rates that end together.

    Returns:
        A timed plan with one transfer for each part of a chunk and each link by which its tree leaves (or enters) the
        root; one for each part of an AllReduce.
    """
    topology, workload = request.topology, request.workload
    demands = _Demands.of(workload)
    trees = _grow_trees(topology, demands)
    share = _solve_shares(topology, demands, trees)
    branches = [_branches(topology, demands.every[tree.demand], tree) for tree in trees]
    parts = list(_cut_chunks(workload, demands, trees, share))
    chunk, begin, place = (np.array([part[i] for part in parts], dtype=np.int64) for i in (0, 1, 2))
    finer, first = split_chunks(workload, chunk, begin)
    sent = [
        (part, branch)
        for part, (*_, tree) in zip((first[chunk] + place).tolist(), parts, strict=True)
        for branch in branches[tree]
    ]
    chunks = np.array([part for part, _ in sent], dtype=np.int64)
    route = Ragged.of([branch.route for _, branch in sent])
    load = np.bincount(route.values, finer.chunk_bytes[chunks[route.owners]], topology.link_count)
    busiest_s = float((load / topology.bandwidth).max())
    start_s = finer.chunk_start_s[chunks]
    return make_plan(
        topology, finer, "timed",
        chunk=chunks, src=[branch.sources[0] for _, branch in sent],
        other_src=Ragged.of([branch.sources[1:] for _, branch in sent]), op=[branch.op for _, branch in sent],
        dst=Ragged.of([branch.receivers for _, branch in sent]), route=route, depends=Ragged.empty(len(sent)),
        start_s=start_s, finish_s=start_s + busiest_s, meta={"trees": int((share > 0).sum())},
    )  # fmt: skip


class _Tree(NamedTuple):
    """A Steiner tree of one demand; each link begins at the root or where an earlier link ends.

    In a tree for sums all links are turned round. Without a root, the links that lead to the switch where all meet come
    first, each after those that enter its beginning, then those that lead from it.
    """

    demand: int
    links: tuple[int, ...]


class _Branch(NamedTuple):
    """One transfer of a tree."""

    sources: list[int]
    receivers: list[int]
    op: int
    route: list[int]


def _branches(topology: Topology, demand: _Demand, tree: _Tree) -> list[_Branch]:
    """For each link that leaves the root (in a tree for sums, that enters it) the transfer over it."""
    links = list(tree.links)
    if demand.root < 0:
        return [_Branch(sorted(demand.others), sorted(demand.others), COPY, links)]
    tails, heads = topology.src[links].tolist(), topology.dst[links].tolist()
    if demand.sums:
        tails, heads = heads, tails
    branch_at: dict[int, tuple[list[int], list[int]]] = {}
    branches: list[tuple[list[int], list[int]]] = []
    for link, tail, head in zip(links, tails, heads, strict=True):
        if tail == demand.root:
            branches.append(([], []))
            branch_at[tail] = branches[-1]
        branch = branch_at[head] = branch_at[tail]
        branch[1].append(link)
        if head in demand.others:
            branch[0].append(head)
    if demand.sums:
        return [_Branch(others, [demand.root], REDUCE, route[::-1]) for others, route in branches]
    return [_Branch([demand.root], others, COPY, route) for others, route in branches]


def _grow_trees(topology: Topology, demands: _Demands) -> list[_Tree]:
    """Grow each demand's tree repeatedly, at prices by the load so far; return the different trees."""
    grower = _Trees(topology)
    load_s = np.zeros(topology.link_count)
    trees: dict[tuple[int, tuple[int, ...]], _Tree] = {}
    rounds = int(np.clip(GROWTH_STEPS // max(demands.count * topology.link_count, 1), 2, MOST_ROUNDS))
    for _ in range(rounds):
        for k, demand in enumerate(demands.every):
            seconds = demands.size_bytes[k] / topology.bandwidth
            busiest_s = max(float(load_s.max()), np.finfo(float).tiny)
            links = grower.grow(demand, topology.latency_s + seconds * np.exp(STEEPNESS * load_s / busiest_s))
            assert links, "_serves has grown a tree for each demand"
            load_s[links] += seconds[links]
            trees.setdefault((k, tuple(sorted(links))), _Tree(k, tuple(links)))
    return list(trees.values())


class _Trees:
    """Grows the trees of demands."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.outward = _Network(topology)
        self.inward = _Network(replace(topology, src=topology.dst, dst=topology.src))

    def grow(self, demand: _Demand, price: Float64) -> list[int]:
        """The links of a cheap tree, as in :class:`_Tree`; none where some rank is not reached."""
        if demand.root >= 0:
            network = self.inward if demand.sums else self.outward
            return network.grow(demand.root, demand.others, price) or []
        found = [links for center in self.centers if (links := self._pair(center, demand.others, price))]
        return min(found, key=lambda links: float(price[links].sum()), default=[])

    def _pair(self, center: int, ranks: frozenset[int], price: Float64) -> list[int]:
        """An in-tree and an out-tree that meet at a switch; none where a rank is not reached or a link is in both."""
        into, out = (network.grow(center, ranks, price) or [] for network in (self.inward, self.outward))
        return [] if not into or not out or {*into} & {*out} else into[::-1] + out

    @cached_property
    def centers(self) -> list[int]:
        """The switches nearest to the rank that is farthest from them, at most ``MOST_CENTERS``."""
        net = self.topology
        switches = np.flatnonzero(net.reduces & net.replicates)
        second = replace(net, latency_s=net.latency_s + net.bandwidth.min() / net.bandwidth * net.latency_s.mean())
        far = distances(second, 0.0)[np.ix_(net.accelerators, switches)].max(axis=0)
        nearest: list[int] = switches[np.argsort(far, kind="stable")[:MOST_CENTERS]].tolist()
        return nearest


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
    used: list[list[tuple[int, float]]] = [[] for _ in demands.every]
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
