"""Exchanges of alike clusters: sums inside each, a swap among counterparts, copies inside each.

Where slow links join a few clusters (servers, chassis, sites) of equally many ranks, the least crosses, over all that
joins the clusters, if each part of the buffer is summed at one rank of every cluster, these counterparts exchange their
sums, and copies spread from them; counterparts take turns (:mod:`.turns`). What crosses first must be summed soon and
may spread slowly, what crosses last may be summed slowly and must spread soon. Urgent trees, which may hardly be deeper
than the shortest paths, are grown in time, the most urgent first, over what the trees before leave free
(:mod:`stretto.schedule.kernel_multicast`). All other trees may be deeper, and take the links that carry least so far.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import permutations

import numpy as np

from ....kernels import at_speed
from ....kernels import paths as paths_kernel
from ....model.arrays import Bool, Float64, Int32, Int64, Ragged
from ....model.collective import Collective
from ....model.plan import Plan
from ....model.topology import Topology
from ....schedule.clusters import clusters_of
from ....schedule.cutting import cut_as_pays
from ....schedule.dispatch import dispatch_by_deadlines
from ....schedule.multicast import Chunks, grow_implicitly
from ....schedule.pipes import Network, build_network
from ....schedule.trees import cut_at
from ...registry import Request
from .blocks import plan_exchanges
from .trees import Exchange, Paths, Tree
from .turns import Counterparts, Turn, assign_turns

MOST_CLUSTERS = 4
"""Clusters at most, as each counterpart sends to every other one."""

MOST_TRANSFERS = 48_000
"""Transfers of a plan at most; the buffer is cut no finer."""

GRAIN = 0.002
"""Share of the whole time that a part is on links on its way, at least."""

TIGHT = 0.6
"""Share of the longest path inside: trees that may be deeper by less are urgent."""

THRIFT = 5.0
"""How much a second of a link's time counts against one of waiting, as urgent trees grow."""

DEEPER = 0.7
"""Share of the time that a part waits by which its tree may be deeper, if it is not urgent."""


def plan_clusters(request: Request) -> Plan | None:
    """A timed plan of a single AllReduce, cut as finely as the budget, with the planner's costs, lasts for.

    Returns:
        None where there are no clusters of equally many ranks, too many of them, or counterparts that are not joined.
    """
    topology, workload, budget = request.topology, request.workload, request.budget
    c = workload.collectives[0]
    inside = alike_clusters(topology, c)
    counterparts = find_counterparts(inside) if inside else []
    if inside is None or not counterparts:
        return None
    clusters = len(inside.clusters)
    messages = 2 * (len(c.ranks) - clusters) + clusters * (clusters - 1)
    most = min(int(min(MOST_TRANSFERS, budget.units("message"))) // messages, int(c.size_bytes))
    if most < len(counterparts):
        return None
    turns = assign_turns(counterparts, c.size_bytes, len(counterparts))
    # for how long a byte is on links on its way, if each node stores it
    way_s = max(k.per_byte for k in counterparts) + 2 * inside.farthest_per_byte
    enough = int(c.size_bytes * way_s / (GRAIN * (turns[-1].crossed_s + turns[-1].left_s)))
    finest = max(min(most, enough), len(counterparts))

    def cut(count: int) -> Plan:
        turns = assign_turns(counterparts, c.size_bytes, count)
        finer, part = cut_at(workload, np.cumsum([turn.size for turn in turns]))
        exchanges = _exchanges(inside, counterparts, turns)
        plan = plan_exchanges(topology, finer, inside.network, [exchanges[k] for k in part.tolist()])
        budget.spend(message=plan.transfer_count)
        crossed_s, end_s = np.array([turn.crossed_s for turn in turns]), turns[-1].crossed_s + turns[-1].left_s
        return dispatch_by_deadlines(plan, crossed_s[part], end_s, budget)

    return cut_as_pays(topology, cut, finest, len(counterparts))


def alike_clusters(topology: Topology, c: Collective) -> Inside | None:
    """The largest clusters that faster pipes join, or the sites; None if they are too many, or not equally large."""
    network = build_network(topology.delayed, float(c.size_bytes), True, 0.0)
    levels = clusters_of(network, topology.node_count, topology.bandwidth)
    clusters = _equal(c.ranks, levels.of[max(len(levels.of) - 2, 0)])
    if clusters:
        return Inside.of(network, clusters, levels.level < len(levels.of) - 1)
    site = np.unique(np.array(topology.sites), return_inverse=True)[1].reshape(-1)
    clusters = _equal(c.ranks, site)
    across = site[network.src] != site[network.dst]
    joins = np.zeros(topology.link_count, dtype=np.bool_)
    joins[network.hops.take(np.flatnonzero(across)).values] = True
    shares = network.hops.reduced(np.logical_or, joins[network.hops.values])
    return Inside.of(network, clusters, ~across & ~shares) if clusters else None


def _equal(ranks: Int32, label: Int64) -> list[Int32]:
    """The ranks of each label of nodes, where these are few, equally many and more than one; else none."""
    labels = label[ranks]
    clusters = [ranks[labels == one] for one in dict.fromkeys(labels.tolist())]
    alike = 1 < len(clusters) <= MOST_CLUSTERS and len({len(members) for members in clusters}) == 1
    return clusters if alike and len(clusters[0]) > 1 else []


@dataclass(frozen=True)
class Inside:
    """Clusters, the fast pipes, which join the ranks of one cluster, and the pipes across.

    Attributes:
        clusters: the ranks of each.
        paths: over fast pipes alone, by latency.
        hops: the links of each pipe of the network.
        latency_s, per_byte: seconds, and seconds a byte, of each pipe of the network.
        out, into: (pipe, other end) of the fast pipes that leave each node, and of those that enter it.
        across: the quickest pipe from a rank to a rank of another cluster, where there is one.
    """

    network: Network
    clusters: list[Int32]
    paths: Paths
    hops: list[list[int]]
    latency_s: list[float]
    per_byte: list[float]
    out: dict[int, list[tuple[int, int]]]
    into: dict[int, list[tuple[int, int]]]
    across: dict[tuple[int, int], int]

    @classmethod
    def of(cls, network: Network, clusters: list[Int32], fast: Bool) -> Inside:
        hops = [links.tolist() for links in np.split(network.hops.values, network.hops.offsets[1:-1])]
        src, dst = network.src.tolist(), network.dst.tolist()
        cost = np.where(fast, network.latency_s, np.inf)
        paths = Paths.of(network, np.concatenate(clusters), cost, np.arange(len(cost)))
        out: dict[int, list[tuple[int, int]]] = {}
        into: dict[int, list[tuple[int, int]]] = {}
        for p in paths.usable[fast[paths.usable]].tolist():
            out.setdefault(src[p], []).append((p, dst[p]))
            into.setdefault(dst[p], []).append((p, src[p]))
        home = {v: k for k, ranks in enumerate(clusters) for v in ranks.tolist()}
        slowest_first = np.lexsort((network.per_byte, network.latency_s))[::-1]
        across = {
            (src[p], dst[p]): p
            for p in slowest_first[np.isin(slowest_first, paths.usable)].tolist()
            if home[src[p]] != home[dst[p]]
        }
        latency_s, per_byte = network.latency_s.tolist(), network.per_byte.tolist()
        return cls(network, clusters, paths, hops, latency_s, per_byte, out, into, across)

    @property
    def pipes(self) -> Int64:
        """The fast pipes, by the node that they leave."""
        return np.array([p for leads in self.out.values() for p, _ in leads], dtype=np.int64)

    @property
    def farthest_per_byte(self) -> float:
        """Seconds a byte over all links between the ranks of a cluster that are farthest apart."""
        cost = np.full(len(self.per_byte), np.inf)
        cost[self.pipes] = self.network.per_byte[self.pipes]
        distance = Paths.of(self.network, np.concatenate(self.clusters), cost, np.arange(len(cost))).distance
        return float(distance[np.isfinite(distance)].max())

    def near(self, hubs: tuple[int, ...], backward: bool, ends: Collection[int] = ()) -> Float64:
        """float64[nodes], the least latency from some hub (to it, if ``backward``), through none of ``ends``."""
        nearest: Float64
        if not ends:
            distance_s = self.paths.distance.T if backward else self.paths.distance
            nearest = distance_s[list(hubs)].min(axis=0)
            return nearest
        tail, head = (self.network.dst, self.network.src) if backward else (self.network.src, self.network.dst)
        cost = np.where(np.isin(tail, [v for v in ends if v not in hubs]), np.inf, self.paths.cost)
        leads = self.paths.entering if backward else self.paths.leaving
        starts = np.array([0, len(hubs)]), np.array(hubs)
        nearest = at_speed(paths_kernel.distances, 20.0 * len(cost))(*leads, head, cost, *starts)[0]
        return nearest

    def tree(
        self,
        hubs: tuple[int, ...],
        slack_s: float,
        load_s: list[float],
        size: float,
        backward: bool,
        ends: Collection[int] = (),
    ) -> Tree:
        """How each node is reached from a hub (or reaches one, if ``backward``), in order.

        Each time the pipe is taken that carries least so far. As a node that is reached in time reaches in time
        whatever its shortest paths lead to, all nodes are reached.

        Args:
            slack_s: by how much a node may be farther from its hub than the shortest path.
            load_s: for each link, seconds; grows by what the tree brings.
            size: bytes that the tree carries.
            ends: nodes through which no path leads.
        """
        leads = self.into if backward else self.out
        latest = (self.near(hubs, backward, ends) * (1 + 1e-9) + slack_s).tolist()
        arrival = dict.fromkeys(hubs, 0.0)
        heap: list[tuple[float, float, int, int]] = []
        tree: Tree = []
        left = list(hubs)
        while left or heap:
            for v in left:
                for p, w in leads.get(v, ()):
                    at = arrival[v] + self.latency_s[p]
                    if w not in arrival and at <= latest[w]:
                        carried = max(load_s[link] for link in self.hops[p])
                        heappush(heap, (carried + size * self.per_byte[p], at, p, w))
            left = []
            if heap:
                _, at, p, w = heappop(heap)
                if w not in arrival:
                    arrival[w] = at
                    left = [] if w in ends else [w]
                    tree.append((p, w))
                    self.burden(load_s, p, size)
        return tree

    def burden(self, load_s: list[float], pipe: int, size: float) -> None:
        """Add the seconds that bytes over a pipe take to the load of its links."""
        for link in self.hops[pipe]:
            load_s[link] += size * self.per_byte[pipe]


def find_counterparts(inside: Inside) -> list[Counterparts]:
    """The first ranks of all clusters, the second ones, ...; none if some cannot swap, not even over a tree."""
    counterparts = []
    distance_s, bandwidth = inside.paths.distance, inside.network.topology.bandwidth
    for hubs in zip(*(ranks.tolist() for ranks in inside.clusters), strict=True):
        gather_s = max(float(distance_s[ranks, hub].max()) for ranks, hub in zip(inside.clusters, hubs, strict=True))
        spread_s = max(float(distance_s[hub, ranks].max()) for ranks, hub in zip(inside.clusters, hubs, strict=True))
        pairs = list(permutations(hubs, 2))
        tree: list[tuple[int, int]] = []
        if any(pair not in inside.across for pair in pairs):
            tree = _tree_of(hubs, inside.across)
            pairs = [*tree, *((w, v) for v, w in tree)]
        if not np.isfinite(gather_s + spread_s) or len(pairs) < 2 * (len(hubs) - 1):
            return []
        swaps = [inside.across[pair] for pair in pairs]
        link_per_byte: dict[int, float] = {}
        for link in inside.network.hops.take(np.array(swaps)).values.tolist():
            link_per_byte[link] = link_per_byte.get(link, 0.0) + 1.0 / float(bandwidth[link])
        latency_s = max(inside.latency_s[p] for p in swaps)
        counterparts.append(Counterparts(hubs, tree, link_per_byte, latency_s, gather_s, spread_s))
    return counterparts


def _tree_of(hubs: tuple[int, ...], across: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """(hub, the next one on its way to the best joined one) of all hubs, from there on.

    None where each hub is joined to several: a tree would leave pipes idle which all that crosses can use.
    """
    near = {v: [w for w in hubs if (v, w) in across and (w, v) in across] for v in hubs}
    reached = [max(hubs, key=lambda v: len(near[v]))]
    tree: list[tuple[int, int]] = []
    for w in reached if min(map(len, near.values())) == 1 else ():
        for v in near[w]:
            if v not in reached:
                reached.append(v)
                tree.append((v, w))
    return tree


def _exchanges(inside: Inside, counterparts: list[Counterparts], turns: list[Turn]) -> list[Exchange]:
    """An exchange for each turn."""
    urgent_s = TIGHT * max(max(c.gather_s, c.spread_s) for c in counterparts)
    slack_s: dict[tuple[int, bool], float] = {}
    for k, turn in enumerate(turns):
        slack_s[k, True] = turn.begin_s - counterparts[turn.number].gather_s
        slack_s[k, False] = turn.left_s - counterparts[turn.number].spread_s
    trees: dict[tuple[int, bool], Tree] = {}
    if (inside.network.hops.lengths[inside.pipes] == 1).all():
        for backward in (True, False):
            urgent = sorted((s, k) for (k, way), s in slack_s.items() if way == backward and s < urgent_s)
            grown = _grow_urgent(inside, counterparts, turns, [k for _, k in urgent], backward)
            trees |= {(k, backward): tree for k, tree in grown}
    load_s = [0.0] * inside.network.topology.link_count
    for (k, _), tree in trees.items():
        for p, _ in tree:
            inside.burden(load_s, p, turns[k].size)
    for (k, backward), slack in sorted(slack_s.items(), key=lambda item: item[1]):
        if (k, backward) not in trees:
            hubs = counterparts[turns[k].number].hubs
            trees[k, backward] = inside.tree(hubs, max(DEEPER * slack, 0.0), load_s, turns[k].size, backward)
    exchanges = []
    for k, turn in enumerate(turns):
        hubs, tree, exchange = counterparts[turn.number].hubs, counterparts[turn.number].tree, Exchange()
        ups = [(inside.across[pair], pair[0]) for pair in tree]
        bundles = exchange.gather(inside.network, [*ups, *trees[k, True]], hubs)
        for (up, v), (_, w) in zip(ups, tree, strict=True):
            (whole, after), (own, brought) = bundles[w], bundles[v]
            others = whole ^ own, tuple(m for m in after if m != exchange.index[up, own])
            bundles[v] = whole, (*brought, exchange.send(inside.across[w, v], v, others))
        exchange.complete |= {hub: list(after) for hub, (_, after) in bundles.items()}
        if not tree:
            exchange.swap([{hub: bundle} for hub, bundle in bundles.items()], inside.across)
        exchange.copies.extend(trees[k, False])
        exchanges.append(exchange)
    return exchanges


def _grow_urgent(
    inside: Inside, counterparts: list[Counterparts], turns: list[Turn], urgent: list[int], backward: bool
) -> list[tuple[int, Tree]]:
    """For each of these turns how its hubs reach all ranks (or are reached, if ``backward``).

    Args:
        urgent: the turns, the most urgent first.
    """
    if not urgent:
        return []
    network, topology = inside.network, inside.network.topology
    pipes = inside.pipes
    links = network.hops.values[network.hops.offsets[pipes]]
    src, dst = (topology.dst, topology.src) if backward else (topology.src, topology.dst)
    net = replace(topology.with_links(links), src=src[links], dst=dst[links])
    left = np.array([turns[k].begin_s if backward else turns[k].left_s for k in urgent])
    ranks = np.array(list(inside.out), dtype=np.int32)
    chunks = Chunks(
        np.array([turns[k].size for k in urgent]),
        left.max() - left,
        Ragged.of([np.array(counterparts[turns[k].number].hubs, dtype=np.int32) for k in urgent]),
        Ragged.of([ranks] * len(urgent)),
    )
    work = float(len(urgent)) * len(links) * len(ranks)
    grown = grow_implicitly(net, chunks, np.arange(len(urgent)), None, 0.0, THRIFT, work)
    pipe, node = pipes[grown.route.values], grown.dst.values
    trees: list[Tree] = [[] for _ in urgent]
    for k, p, v in zip(grown.chunk.tolist(), pipe.tolist(), node.tolist(), strict=True):
        trees[k].append((p, v))
    return list(zip(urgent, trees, strict=True))
