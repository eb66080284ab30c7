"""TACCL, stage 1: which links each chunk takes, by a relaxed integer program.

Shah, Chidambaram et al., NSDI 2023, section 4.1. The program knows paths and the total work of
each link, and ignores the order in which a link serves its chunks: bandwidth is relaxed to
"no link works longer than the whole takes".
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace

import numpy as np

from ...bounds import bounds
from ...model.arrays import Bool, Float64, Int64, Ragged
from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.topology import Topology
from ...solvers import Model, Solution
from .hops import Hops
from .sketch import Sketch, site_of
from .symmetry import orbits


class Routing:
    """The relaxed program: sent[chunk, hop], arrival[chunk, node] and the time T to be minimised.

    Args:
        slack: a chunk may take a hop only if its way to the end of that hop costs (alpha + beta) at most ``slack``
            times the cheapest way there.
    """

    def __init__(self, topology: Topology, workload: Workload, hops: Hops, sketch: Sketch, slack: float) -> None:
        self.topology, self.workload, self.hops = topology, workload, hops
        sizes = workload.chunk_bytes.astype(np.float64)
        holder = workload.chunk_holders.values.astype(np.int64)
        cost = hops.latency_s[None] + sizes[:, None] / hops.bandwidth[None]
        self.cost = cost
        far = _cheapest(topology.node_count, hops, cost, holder)
        ways = (hops.dst[None] != holder[:, None]) & np.isfinite(far[:, hops.src])
        ways &= far[:, hops.src] + cost <= slack * far[:, hops.dst] + 1e-15
        ways &= ~_leaves_elsewhere(topology, sketch, hops, holder)
        wanted = np.zeros((workload.chunk_count, topology.node_count), dtype=np.bool_)
        wanted[workload.chunk_wanted.owners, workload.chunk_wanted.values] = True
        wanted[np.arange(len(holder)), holder] = False
        self.orbit = orbits(topology, workload, hops, sketch, ways)
        self.ways, self.wanted, self.holder, self.far = ways, wanted, holder, far
        # chunks that symmetry makes alike are decided once; links carry them all
        first = (self.orbit // ways.shape[1]).min(axis=1)
        self.chosen_chunks = np.flatnonzero(first == np.arange(len(first)))
        self.first_trees, self.horizon_s = self._first_trees(sizes)
        self._build(sizes, sketch)

    def _first_trees(self, sizes: Float64) -> tuple[dict[int, list[int]], float]:
        """A good routing to begin with: trees, grown again a few times with busy links dearer.

        Returns:
            The hops of each chunk that is decided, and the relaxed time of them all.
        """
        hops, width = self.hops, self.topology.bandwidth
        images: dict[int, list[tuple[int, int]]] = {}
        for q, h in zip(*(a.tolist() for a in np.nonzero(self.ways)), strict=True):
            images.setdefault(int(self.orbit[q, h]), []).append((q, h))
        best: tuple[float, dict[int, list[int]]] = (np.inf, {})
        price = np.ones(len(hops.src))
        # how much the way so far counts, and how much the work that a link has already
        for memory, patience in itertools.product((1.0, 0.3, 0.0), (0.1, 0.3, 1.0)):
            trees: dict[int, list[int]] = {}
            load = np.zeros(len(width))
            longest = 0.0
            for q in self.chosen_chunks.tolist():
                busy = hops.route.reduced(np.maximum, load[hops.route.values])
                taken, time = self._grow_tree(q, self.cost[q] * price + patience * busy, memory)
                trees[q], longest = taken, max(longest, time)
                for orbit in {int(self.orbit[q, h]) for h in taken}:
                    for p, h in images[orbit]:
                        load[hops.route[h]] += sizes[p] / width[hops.route[h]]
            relaxed = max(longest, float(load.max()))
            if relaxed < best[0]:
                best = relaxed, trees
            share = load / max(float(load.max()), 1e-30)
            price *= np.exp(hops.route.reduced(np.maximum, share[hops.route.values]) - 0.5)
        return best[1], best[0]

    def _grow_tree(self, q: int, price: Float64, memory: float) -> tuple[list[int], float]:
        """A tree for chunk q to all who want it, and when the last of them has it.

        Its hops come outwards. The hop with the least ``memory`` x (price of the way to its source) + price is added
        first: with memory 1 that is the cheapest way to everyone (Dijkstra), with 0 the cheapest tree (Prim).
        """
        hops, root = self.hops, int(self.holder[q])
        out: dict[int, list[int]] = {}
        for h in np.flatnonzero(self.ways[q]).tolist():
            out.setdefault(int(hops.src[h]), []).append(h)
        paid, arrival, by = {root: 0.0}, {root: 0.0}, {root: -1}
        missing = set(np.flatnonzero(self.wanted[q]).tolist())
        queue = [(float(price[h]), h) for h in out.get(root, ())]
        heapq.heapify(queue)
        while missing and queue:
            _, h = heapq.heappop(queue)
            a, b = int(hops.src[h]), int(hops.dst[h])
            if b in by:
                continue
            by[b], paid[b], arrival[b] = h, paid[a] + float(price[h]), arrival[a] + float(self.cost[q, h])
            missing.discard(b)
            for n in out.get(b, ()):
                heapq.heappush(queue, (memory * paid[b] + float(price[n]), n))
        if missing:
            names = self.topology.names
            raise Infeasible(f"the sketch and the slack leave no way from {names[root]} to {names[min(missing)]}")
        taken: set[int] = set()
        ends = np.flatnonzero(self.wanted[q]).tolist()
        for v in ends:
            while by[v] >= 0 and by[v] not in taken:
                taken.add(by[v])
                v = int(hops.src[by[v]])
        return [h for h in by.values() if h in taken], max((arrival[v] for v in ends), default=0.0)

    def _build(self, sizes: Float64, sketch: Sketch) -> None:
        hops, model, wanted, holder = self.hops, Model(), self.wanted, self.holder
        self.scale = scale = 1.0 / self.cost[self.ways].min()  # times in units of the cheapest hop
        self.chunk, self.hop = np.nonzero(self.ways)
        names, column = np.unique(self.orbit[self.chunk, self.hop], return_inverse=True)
        # of routings that are equally fast, one of fewer and cheaper hops
        weight = np.bincount(column, weights=self.cost[self.chunk, self.hop] * scale)
        orbit_sent = model.columns(len(names), cost=1e-4 * weight / max(weight.sum(), 1.0), integer=True)
        self.sent = orbit_sent[column]
        decided = np.isin(self.chunk, self.chosen_chunks)
        chunk, hop, sent = self.chunk[decided], self.hop[decided], self.sent[decided]
        horizon = self.horizon_s * scale * (1 + 1e-9)
        soonest = np.minimum(self.far * scale, horizon)
        arrival = np.full(wanted.shape, -1)
        q, v = np.nonzero(np.isfinite(self.far) & np.isin(np.arange(len(holder)), self.chosen_chunks)[:, None])
        arrival[q, v] = model.columns(len(q), lower=soonest[q, v], upper=np.where(v == holder[q], 0.0, horizon))
        # a bound that no routing can beat, since the program alone does not see cuts
        still = replace(self.topology, latency_s=np.zeros_like(self.topology.latency_s))
        least = min(bounds(still, self.workload)[0].seconds * scale, horizon)
        finish = model.columns(1, lower=least, upper=horizon, cost=1.0)[0]
        self.arrival, self.finish, self.model = arrival, finish, model
        # a node that wants a chunk gets it once; a node that passes it on has got it, or held it at first
        q, v = np.nonzero(wanted & (arrival >= 0))
        number = np.full(wanted.shape, -1)
        number[q, v] = np.arange(len(q))
        start, end = hops.src[hop], hops.dst[hop]
        ends = number[chunk, end]
        model.rows(len(q), 1, 1, (ends[ends >= 0], sent[ends >= 0], 1.0))
        relays, nodes = np.flatnonzero(start != holder[chunk]), wanted.shape[1]
        into = Ragged.grouped(chunk * nodes + end, np.arange(len(chunk)), wanted.size)
        feeds = into.take((chunk * nodes + start)[relays])
        model.rows(len(relays), -np.inf, 0.0, (sent[relays], 1.0), (feeds.owners, sent[feeds.values], -1.0))
        # a chunk arrives no sooner than at the node before, plus alpha and beta
        took = self.cost[chunk, hop] * scale
        slack = horizon + took - soonest[chunk, end]
        model.rows(
            len(chunk), took - slack, np.inf,
            (arrival[chunk, end], 1.0), (arrival[chunk, start], -1.0), (sent, -slack),
        )  # fmt: skip
        model.rows(len(q), -np.inf, 0.0, (arrival[q, v], 1.0), (finish, -1.0))
        # the relaxed bandwidth: no link works longer than T
        used = hops.route.take(self.hop)
        links, at = np.unique(used.values, return_inverse=True)
        work = sizes[self.chunk[used.owners]] / self.topology.bandwidth[used.values] * scale
        model.rows(len(links), -np.inf, 0.0, (at, self.sent[used.owners], work), (finish, -1.0))
        if sketch.switch_pairs:
            self._pairs(sketch.switch_pairs)

    def start(self) -> Float64:
        """The point of the first trees, for the solver to begin with."""
        x = np.zeros(self.model.column_count)
        x[self.finish] = self.horizon_s * self.scale
        taken = {int(self.orbit[q, h]) for q, tree in self.first_trees.items() for h in tree}
        x[self.sent] = np.isin(self.orbit[self.chunk, self.hop], list(taken))
        decided = self.arrival >= 0
        x[self.arrival[decided]] = np.minimum(self.far[decided] * self.scale, self.horizon_s * self.scale)
        for q, tree in self.first_trees.items():
            x[self.arrival[q, self.holder[q]]] = 0.0
            for h in tree:
                before = x[self.arrival[q, self.hops.src[h]]]
                x[self.arrival[q, self.hops.dst[h]]] = before + self.cost[q, h] * self.scale
        if self.pair_columns is not None:
            columns, at, through = self.pair_columns
            np.maximum.at(x, columns[at], x[self.sent[through]])
        return x

    pair_columns: tuple[Int64, Int64, Int64] | None = None

    def _pairs(self, preference: int) -> None:
        """The switch strategies of the sketch: few (uc-min) or many (uc-max) pairs of nodes talk through a switch."""
        through = np.flatnonzero(self.hops.route.lengths[self.hop] > 1)
        names, at = np.unique(self.hop[through], return_inverse=True)
        used = self.model.columns(len(names), cost=-preference * 1e-3 / max(len(names), 1), integer=True)
        self.pair_columns = used, at, through
        if preference < 0:  # a pair that is used is paid for
            self.model.rows(len(through), -np.inf, 0.0, (self.sent[through], 1.0), (used[at], -1.0))
        else:
            self.model.rows(len(names), 0.0, np.inf, (at, self.sent[through], 1.0), (used, -1.0))

    def hops_of_chunks(self, solution: Solution) -> list[list[int]]:
        """For each chunk the hops that it takes, from its holder outwards, without those that lead nowhere."""
        assert solution.x is not None
        taken: list[list[int]] = [[] for _ in range(self.workload.chunk_count)]
        for q, h in zip(*(a[solution.x[self.sent] > 0.5].tolist() for a in (self.chunk, self.hop)), strict=True):
            taken[q].append(h)
        return [self._tree(q, hops) for q, hops in enumerate(taken)]

    def _tree(self, q: int, hops: list[int]) -> list[int]:
        net = self.hops
        reached, wanted = {int(self.holder[q])}, set(self.workload.chunk_wanted[q].tolist())
        order: list[int] = []
        rest = sorted(hops, key=lambda h: self.cost[q, h])
        while fresh := [h for h in rest if net.src[h] in reached and net.dst[h] not in reached]:
            reached.add(int(net.dst[fresh[0]]))
            order.append(fresh[0])
        if wanted - reached:
            raise Infeasible(f"the routing misses {self.topology.names[min(wanted - reached)]}")
        while True:
            inner = {int(net.src[h]) for h in order}
            kept = [h for h in order if int(net.dst[h]) in inner or int(net.dst[h]) in wanted]
            if len(kept) == len(order):
                return order
            order = kept


def _cheapest(n: int, hops: Hops, cost: Float64, holder: Int64) -> Float64:
    """float64[chunks, nodes], the cheapest way from the holder (Bellman-Ford over all chunks at once)."""
    far = np.full((len(holder), n), np.inf)
    far[np.arange(len(holder)), holder] = 0.0
    order = np.argsort(hops.dst, kind="stable")
    ends, firsts = np.unique(hops.dst[order], return_index=True)
    for _ in range(n):
        through = np.minimum.reduceat((far[:, hops.src] + cost)[:, order], firsts, axis=1)
        better = np.minimum(far[:, ends], through)
        if (better == far[:, ends]).all():
            break
        far[:, ends] = better
    return far


def _leaves_elsewhere(topology: Topology, sketch: Sketch, hops: Hops, holder: Int64) -> Bool:
    """bool[chunks, hops], where a chunk would leave its holder's site by another sender than the sketch names."""
    if sketch.sender_of is None:
        return np.zeros((len(holder), len(hops.src)), dtype=np.bool_)
    site, local = site_of(sketch, topology)
    sender = np.array([sketch.sender_of.get(i, -1) for i in local[holder].tolist()])[:, None]
    elsewhere: Bool = (site[hops.src] == site[holder, None]) & (local[hops.src] != sender)
    return elsewhere & hops.remote & (sender >= 0)
