"""Shortest routes from one node to others, through nodes that let routes pass."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from ..model.topology import Topology


class Routes(NamedTuple):
    """Shortest routes from one node."""

    length: dict[int, float]  # of the route to each node that is reached
    links: dict[int, tuple[int, ...]]  # of that route

    def links_to(self, node: int) -> list[int]:
        """The links of the route to a node, [] if none."""
        return [*self.links.get(node, ())]


def routes_from(topology: Topology, source: int, metric: str, target: int | None = None) -> Routes:
    """The shortest route to each node that transit nodes lead to; of equal ones the first by the numbers of its links.

    Args:
        metric: shortest in "hops" (then latency) or in "latency" (then hops).
        target: stop once the route to this node is known.
    """
    routes = Routes({}, {})
    least = {source: (0.0, 0.0)}
    heap = [(0.0, 0.0, source)]
    while heap:
        length, second, v = heappop(heap)
        if v in routes.length:
            continue
        routes.length[v] = length
        if v == target:
            break
        if v != source and not topology.transit[v]:
            continue
        out, so_far = topology.out_links[v], routes.links.get(v, ())
        for link, w, latency_s in zip(out.tolist(), topology.dst[out].tolist(), topology.latency_s[out].tolist()):
            if w in routes.length:
                continue
            cost = (length + 1.0, second + latency_s) if metric == "hops" else (length + latency_s, second + 1.0)
            if w not in least or cost < least[w]:
                least[w], routes.links[w] = cost, (*so_far, link)
                heappush(heap, (*cost, w))
            elif cost == least[w]:
                routes.links[w] = min(routes.links[w], (*so_far, link))
    return routes
