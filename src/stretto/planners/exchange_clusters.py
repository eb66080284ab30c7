"""Exchanges of alike clusters: sums inside each, a swap among counterparts, copies inside each.

Where slow links join a few clusters (servers, chassis, sites) of equally many ranks, least crosses, over all that joins
them, if each part of the buffer is summed at one rank of every cluster, these counterparts exchange their sums, and
copies spread from them; counterparts take turns. The parts cross one after another. So what crosses first must be
summed soon and may spread slowly, and what crosses last may be summed slowly and must spread soon: a tree may be as
much deeper than need be as its part waits for others to cross, and uses the links that carry least so far.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ..collective import Collective, Workload
from ..plan import Plan
from ..topology import Topology
from .clusters import clusters_of
from .dispatch import dispatched
from .exchange import planned
from .exchange_trees import Exchange, Ways, composed
from .lowering import divide
from .pace import Pace
from .scale_network import Network, build_network

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

MOST_CLUSTERS = 4
"""Each counterpart may send to every other one."""

MOST_TRANSFERS = 32_000
"""The buffer is cut as finely as that allows."""


def in_clusters(topology: Topology, workload: Workload, pace: Pace | None = None) -> Plan | None:
    """A timed plan of a single AllReduce.

    Args:
        pace: the buffer is cut no finer than that allows; "message" counts transfers.
    Returns:
        None where there are no clusters of equally many ranks, too many of them, or counterparts that are not joined.
    """
    c = workload.collectives[0]
    inside, clusters = alike_clusters(topology, c)
    if not clusters:
        return None
    each = len(clusters[0])
    messages = 2 * (len(c.ranks) - len(clusters)) + len(clusters) * (len(clusters) - 1)
    pace = pace or Pace()
    most = int(min(MOST_TRANSFERS, pace.room("message")))
    rounds = min(most // (messages * each), int(c.chunk_bytes.min()) // each)
    if rounds < 1:
        return None
    made = _made(inside, clusters, c.size_bytes, rounds)
    if not made:
        return None
    finer = Workload((divide(c, len(made))[0],))
    plan = planned(topology, finer, inside.network, made)
    return dispatched(
        plan, np.arange(finer.chunk_count) % len(made) // each / rounds, apart=False, until_s=pace.until_s
    )


def alike_clusters(topology: Topology, c: Collective) -> tuple[Inside, list[NDArray[np.int32]]]:
    """The fast pipes and the ranks of each of the largest clusters; none if they are too many, or not as large."""
    network = build_network(topology, float(c.size_bytes), True, 0.0)
    levels = clusters_of(network, topology.node_count, topology.bandwidth)
    label = levels.of[max(len(levels.of) - 2, 0)][c.ranks]
    clusters = [c.ranks[label == own] for own in dict.fromkeys(label.tolist())]
    each = len(clusters[0])
    alike = 1 < len(clusters) <= MOST_CLUSTERS and {len(own) for own in clusters} == {each} and each > 1
    return Inside.of(network, c.ranks, levels.level < len(levels.of) - 1), clusters if alike else []


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
        ways = Ways.of(network, hops, ranks, cost, np.arange(len(cost)))
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


def _made(inside: Inside, clusters: list[NDArray[np.int32]], size_bytes: int, rounds: int) -> list[Exchange]:
    """An exchange for each counterparts, in so many rounds; none if some are not joined."""
    network = inside.network
    counterparts = list(zip(*(own.tolist() for own in clusters), strict=True))
    size = size_bytes / (rounds * len(counterparts))
    load_s = [0.0] * network.topology.link_count
    swaps, waits = [], []
    for hubs in counterparts:
        nodes = np.array(hubs, dtype=np.int32)
        swaps.append(Ways.of(network, inside.hops, nodes, network.cost_s, np.arange(len(network.src))))
        if not np.isfinite(swaps[-1].far[np.ix_(nodes, nodes)]).all():
            return []
        waits.append(size * float(network.per_byte[swaps[-1].usable].max()))
    found = []
    for k in range(rounds):
        for hubs, ways, wait in zip(counterparts, swaps, waits, strict=True):
            gather = inside.tree(hubs, k * wait, load_s, size, True)
            copies = inside.tree(hubs, (rounds - 1 - k) * wait, load_s, size, False)
            made = composed(ways, gather, list(hubs), copies)
            if made is None:
                return []
            found.append(made)
    return found
