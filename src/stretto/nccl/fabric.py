"""What the network between servers leaves each channel of NCCL.

NCCL joins channel c of a server to channel c of the next (src/graph/connect.cc, connectRings).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from ..model.topology import Topology
from ..schedule.nccl_releases import VOLTA_2_20
from .server import Server, read_server


class Fabric:
    """Ways between the network cards of equal servers."""

    def __init__(self, topology: Topology, servers: Sequence[Sequence[int]], server: Server) -> None:
        self.topology, self.servers = topology, servers
        nics = [read_server(topology, list(own), server.generation).nics for own in servers]
        self.out = [
            [n.node if n.node >= 0 else own[n.sends[0]] for n in cards]
            for own, cards in zip(servers, nics, strict=True)
        ]
        self.into = [
            [n.node if n.node >= 0 else own[n.receives[0]] for n in cards]
            for own, cards in zip(servers, nics, strict=True)
        ]
        self.links = list(
            zip(topology.dst.tolist(), topology.bandwidth.tolist(), topology.latency_s.tolist(), strict=True)
        )

    def share(self, nets: Sequence[tuple[int, ...]], swapped: bool) -> tuple[float, float]:
        """What each channel has between servers at least, GB/s, and the longest latency of a way, seconds.

        Ways are those with the fewest links, and among these the emptiest; (0, 0) if there is none.

        Args:
            nets: the network cards by which data enters and leaves a server, by channel.
            swapped: whether every second server exchanges its channels 2k and 2k + 1.
        """
        used = np.zeros(self.topology.link_count)
        longest = 0.0
        for n in range(len(self.servers)):
            after = (n + 1) % len(self.servers)
            for c in range(len(nets)):
                leaves, enters = (nets[c ^ (swapped and at % 2)] for at in (n, after))
                way = self._way(n, self.out[n][leaves[1]], self.into[after][enters[0]], used)
                if way is None:
                    return 0.0, 0.0
                used[way] += 1
                longest = max(longest, float(self.topology.latency_s[way].sum()))
        busy = used > 0
        return float((self.topology.bandwidth[busy] / used[busy]).min()) / 1e9, longest

    def beyond_us(self, latency_s: float) -> float:
        """What a latency has beyond NCCL's own figure for a step over the network, microseconds."""
        return round(max(0.0, latency_s * 1e6 - VOLTA_2_20.network_us.ring[0]), 3)

    def _way(self, server: int, start: int, end: int, used: np.ndarray) -> list[int] | None:
        """The links of the emptiest of the shortest ways that only switches are on."""
        topology = self.topology
        site = topology.sites[self.servers[server][0]]
        edge: list[tuple[int, float, int, tuple[int, ...]]] = [(0, 0.0, start, ())]
        best = {start: (0, 0.0)}
        while edge:
            hops, load, v, way = heapq.heappop(edge)
            if v == end:
                return list(way)
            if v != start and not topology.is_switch[v]:
                continue
            for link in topology.out_links[v].tolist():
                w, width, _ = self.links[link]
                if topology.sites[w] == site or (w != end and not (topology.is_switch[w] and topology.transit[w])):
                    continue
                key = (hops + 1, max(load, (used[link] + 1) / width))
                if key < best.get(w, (math.inf, 0.0)):
                    best[w] = key
                    heapq.heappush(edge, (*key, w, (*way, link)))
        return None
