"""Exchanges of alike clusters: sums inside each, a swap among counterparts, copies inside each.

Where slow links join a few clusters (servers, chassis, sites) of equally many ranks, least crosses, over all that joins
them, if each part of the buffer is summed at one rank of every cluster, these counterparts exchange their sums, and
copies spread from them; counterparts take turns (:mod:`.exchange_turns`). What crosses first must be summed soon and
may spread slowly, what crosses last may be summed slowly and must spread soon. Trees that may hardly be deeper than
need be are grown in time, the most urgent first, over what the others leave free
(:mod:`stretto.schedule.kernel_multicast`). All others may be deeper, and take the links that carry least so far.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ....model.arrays import Ragged
from ....model.collective import Collective, Workload
from ....model.plan import Plan
from ....model.topology import Topology
from ....schedule.budget import Pace
from ....schedule.clusters import clusters_of
from ....schedule.dispatch import dispatch_by_deadlines
from ....schedule.multicast import Chunks, grow_implicitly
from ....schedule.pipes import Network, build_network
from ....schedule.trees import cut_at
from .hubs import planned
from .trees import Exchange, Ways, composed
from .turns import Counterparts, Turn, part_sizes, turns

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Tree = list[tuple[int, int]]
"""(pipe, node) of how each node is reached, in order."""

MOST_CLUSTERS = 4
"""Each counterpart may send to every other one."""

MOST_TRANSFERS = 48_000
"""The buffer is cut as finely as that allows."""

WHOLE = 2
"""A transfer takes so many times as long where every part has trees of its own."""

GRAIN = 0.002
"""Parts take about such a share of the whole time at least, on links alone, on all their way."""

TIGHT = 0.6
"""Trees that may be deeper than need be by less than such a share of the longest way inside are grown in time."""

THRIFT = 5.0
"""How much a second of a link's time counts against one of waiting, as they grow."""

DEEPER = 0.7
"""The share of the time that a part waits by which other trees may be deeper."""


def in_clusters(topology: Topology, workload: Workload, pace: Pace | None = None) -> Plan | None:
    """A timed plan of a single AllReduce.

    Args:
        pace: the buffer is cut no finer than that allows; "message" counts transfers.
    Returns:
        None where there are no clusters of equally many ranks, too many of them, or counterparts that are not joined.
    """
    c = workload.collectives[0]
    inside, clusters = alike_clusters(topology, c)
    who = _counterparts(inside, clusters)
    if not who:
        return None
    messages = 2 * (len(c.ranks) - len(clusters)) + len(clusters) * (len(clusters) - 1)
    pace = pace or Pace()
    most = min(int(min(MOST_TRANSFERS, pace.room("message") / WHOLE)) // messages, int(c.size_bytes))
    if most < len(who):
        return None
    told = turns(who, part_sizes(c.size_bytes, len(who), 1))
    # how long a byte is on links on its way, if each stores it
    way_s = max(k.per_byte for k in who) + 2 * max(_farthest_s(inside, own) for own in clusters)
    enough = int(c.size_bytes * way_s / (GRAIN * (told[-1].by_s + told[-1].left_s)))
    parts = max(min(most, enough), len(who))
    told = turns(who, part_sizes(c.size_bytes, parts, len(who)))
    finer, part = cut_at(workload, np.cumsum([turn.size for turn in told]))
    made = _made(inside, who, told)
    if not made:
        return None
    plan = planned(topology, finer, inside.network, [made[k] for k in part.tolist()])
    return dispatch_by_deadlines(plan, np.array([turn.by_s for turn in told])[part], told[-1].by_s + told[-1].left_s)


def alike_clusters(topology: Topology, c: Collective) -> tuple[Inside, list[NDArray[np.int32]]]:
    """The fast pipes and the ranks of each of the largest clusters, or the pipes inside sites and their ranks.

    None if there are too many of both kinds, or they are not equally large.
    """
    network = build_network(topology, float(c.size_bytes), True, 0.0)
    levels = clusters_of(network, topology.node_count, topology.bandwidth)
    clusters = _equal(c.ranks, levels.of[max(len(levels.of) - 2, 0)])
    if clusters:
        return Inside.of(network, c.ranks, levels.level < len(levels.of) - 1), clusters
    site = np.unique(np.array(topology.sites), return_inverse=True)[1].reshape(-1)
    across = site[network.src] != site[network.dst]
    joins = np.zeros(topology.link_count, dtype=np.bool_)
    joins[network.hops.take(np.flatnonzero(across)).values] = True
    shares = network.hops.reduced(np.logical_or, joins[network.hops.values])
    return Inside.of(network, c.ranks, ~across & ~shares), _equal(c.ranks, site)


def _equal(ranks: NDArray[np.int32], label: Int64) -> list[NDArray[np.int32]]:
    """The ranks of each label of nodes, where these are few, equally many and more than one; else none."""
    own = label[ranks]
    clusters = [ranks[own == some] for some in dict.fromkeys(own.tolist())]
    alike = 1 < len(clusters) <= MOST_CLUSTERS and len({len(some) for some in clusters}) == 1
    return clusters if alike and len(clusters[0]) > 1 else []


@dataclass(frozen=True)
class Inside:
    """The fast pipes.

    Attributes:
        hops: the links of each pipe.
        late, per_byte: seconds, and seconds a byte, of each.
        out, into: (pipe, other end) of those that leave each node, and of those that enter it.
        far: float64[nodes, nodes], the least latency over them.
    """

    network: Network
    hops: list[list[int]]
    late: list[float]
    per_byte: list[float]
    out: dict[int, list[tuple[int, int]]]
    into: dict[int, list[tuple[int, int]]]
    far: Float64

    @classmethod
    def of(cls, network: Network, ranks: NDArray[np.int32], fast: NDArray[np.bool_]) -> Inside:
        hops = [links.tolist() for links in np.split(network.hops.values, network.hops.offsets[1:-1])]
        cost = np.where(fast, network.latency_s, np.inf)
        ways = Ways.of(network, ranks, cost, np.arange(len(cost)))
        out: dict[int, list[tuple[int, int]]] = {}
        into: dict[int, list[tuple[int, int]]] = {}
        for p in ways.usable[fast[ways.usable]].tolist():
            v, w = int(network.src[p]), int(network.dst[p])
            out.setdefault(v, []).append((p, w))
            into.setdefault(w, []).append((p, v))
        return cls(network, hops, network.latency_s.tolist(), network.per_byte.tolist(), out, into, ways.far)

    def near(self, hubs: tuple[int, ...], backward: bool, ends: Collection[int] = ()) -> Float64:
        """float64[nodes], the least latency from some hub (to it, if ``backward``), through none of ``ends``."""
        found: Float64
        if not ends:
            found = self.far[:, list(hubs)].min(axis=1) if backward else self.far[list(hubs)].min(axis=0)
            return found
        leads = self.into if backward else self.out
        found = np.full(len(self.far), np.inf)
        heap = [(0.0, v) for v in hubs]
        while heap:
            at, v = heappop(heap)
            if at < found[v]:
                found[v] = at
                for p, w in leads.get(v, ()) if at == 0.0 or v not in ends else ():
                    heappush(heap, (at + self.late[p], w))
        return found

    def tree(
        self,
        hubs: tuple[int, ...],
        slack_s: float,
        load_s: list[float],
        size: float,
        backward: bool,
        ends: Collection[int] = (),
    ) -> list[tuple[int, int]]:
        """(pipe, node) of how each node is reached from a hub (or reaches one, if ``backward``), in order.

        A node may be so much farther from its hub than need be. Each time the pipe is taken that carries least so far;
        as whoever is reached in time reaches in time whatever its shortest ways lead to, all are reached.

        Args:
            load_s: for each link, seconds; grows by what the tree brings.
            ends: nodes through which no way leads.
        """
        leads = self.into if backward else self.out
        most = (self.near(hubs, backward, ends) * (1 + 1e-9) + slack_s).tolist()
        came = dict.fromkeys(hubs, 0.0)
        heap: list[tuple[float, float, int, int]] = []
        found: list[tuple[int, int]] = []
        left = list(hubs)
        while left or heap:
            for v in left:
                for p, w in leads.get(v, ()):
                    at = came[v] + self.late[p]
                    if w not in came and at <= most[w]:
                        carried = max(load_s[link] for link in self.hops[p])
                        heappush(heap, (carried + size * self.per_byte[p], at, p, w))
            left = []
            if heap:
                _, at, p, w = heappop(heap)
                if w not in came:
                    came[w] = at
                    left = [] if w in ends else [w]
                    found.append((p, w))
                    for link in self.hops[p]:
                        load_s[link] += size * self.per_byte[p]
        return found


def _farthest_s(inside: Inside, ranks: NDArray[np.int32]) -> float:
    """Seconds a byte over all links between the ranks of a cluster that are farthest apart."""
    network = inside.network
    cost = np.full(len(network.src), np.inf)
    fast = np.array([p for leads in inside.out.values() for p, _ in leads])
    cost[fast] = network.per_byte[fast]
    ways = Ways.of(network, ranks, cost, np.arange(len(cost)))
    return float(ways.far[np.ix_(ranks, ranks)].max())


def _counterparts(inside: Inside, clusters: list[NDArray[np.int32]]) -> list[Counterparts]:
    """The first ranks of all clusters, the second ones, ...; none if some are not joined."""
    found = []
    for hubs in zip(*(own.tolist() for own in clusters), strict=True):
        gather_s = max(float(inside.far[own, hub].max()) for own, hub in zip(clusters, hubs, strict=True))
        spread_s = max(float(inside.far[hub, own].max()) for own, hub in zip(clusters, hubs, strict=True))
        who = Counterparts.of(inside.network, inside.hops, hubs, gather_s, spread_s)
        if who is None or not np.isfinite(gather_s + spread_s):
            return []
        found.append(who)
    return found


def _made(inside: Inside, who: list[Counterparts], told: list[Turn]) -> list[Exchange]:
    """An exchange for each turn; none if not all counterparts end with the whole sum."""
    tight_s = TIGHT * max(max(c.gather_s, c.spread_s) for c in who)
    slack = {}
    for k, turn in enumerate(told):
        slack[k, True] = turn.at_s - who[turn.who].gather_s
        slack[k, False] = turn.left_s - who[turn.who].spread_s
    trees: dict[tuple[int, bool], Tree] = {}
    if all(len(inside.hops[p]) == 1 for leads in inside.out.values() for p, _ in leads):
        for backward in (True, False):
            own = sorted((late, k) for (k, way), late in slack.items() if way == backward and late < tight_s)
            trees |= {(k, backward): tree for k, tree in _grown(inside, who, told, [k for _, k in own], backward)}
    load_s = [0.0] * inside.network.topology.link_count
    for (k, _), tree in trees.items():
        for p, _ in tree:
            for link in inside.hops[p]:
                load_s[link] += told[k].size * inside.per_byte[p]
    for (k, backward), late in sorted(slack.items(), key=lambda item: item[1]):
        if (k, backward) not in trees:
            turn = told[k]
            trees[k, backward] = inside.tree(who[turn.who].hubs, max(DEEPER * late, 0.0), load_s, turn.size, backward)
    made = []
    for k, turn in enumerate(told):
        c = who[turn.who]
        exchange = composed(c.ways, trees[k, True], list(c.hubs), trees[k, False])
        if exchange is None:
            return []
        made.append(exchange)
    return made


def _grown(
    inside: Inside, who: list[Counterparts], told: list[Turn], urgent: list[int], backward: bool
) -> list[tuple[int, Tree]]:
    """For each of these parts, the most urgent first, how its hubs reach all ranks (or are reached, ``backward``)."""
    if not urgent:
        return []
    network, topology = inside.network, inside.network.topology
    pipes = np.array([p for leads in inside.out.values() for p, _ in leads])
    links = network.hops.values[network.hops.offsets[pipes]]
    src, dst = (topology.dst, topology.src) if backward else (topology.src, topology.dst)
    width, late_s = topology.bandwidth[links], topology.latency_s[links]
    net = replace(topology, src=src[links], dst=dst[links], bandwidth=width, latency_s=late_s)
    left = np.array([told[k].at_s if backward else told[k].left_s for k in urgent])
    ranks = np.array(list(inside.out), dtype=np.int32)
    chunks = Chunks(
        np.array([told[k].size for k in urgent]),
        left.max() - left,
        Ragged.of([np.array(who[told[k].who].hubs, dtype=np.int32) for k in urgent]),
        Ragged.of([ranks] * len(urgent)),
    )
    work = float(len(urgent)) * len(links) * len(ranks)
    (passes, _, hits, hops), _ = grow_implicitly(net, chunks, np.arange(len(urgent)), None, 0.0, THRIFT, work)
    chunk, pipe, node = passes[0], np.empty(len(passes[0]), np.int64), np.empty(len(passes[0]), np.int64)
    pipe[hops[0]], node[hits[0]] = pipes[hops[1]], hits[1]
    trees: list[Tree] = [[] for _ in urgent]
    for k, p, v in zip(chunk.tolist(), pipe.tolist(), node.tolist(), strict=True):
        trees[k].append((p, v))
    return list(zip(urgent, trees, strict=True))
