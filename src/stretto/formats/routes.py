"""Routes for a foreign schedule that says who sends to whom, but not over which links.

A route passes through nodes with transit. Where hops are asked for it may also pass routers that store: there one
transfer ends and the next begins.
"""

from __future__ import annotations

from functools import cache

from ..model.arrays import Bool
from ..model.errors import InputError
from ..model.topology import Topology


class Routes:
    """Routes between ranks: the fewest links, then the highest bandwidth."""

    def __init__(self, topology: Topology, where: str) -> None:
        self.topology, self.where = topology, where
        self.between = cache(lambda a, b: self._way(a, b, topology.transit))
        self.hops = cache(self._hops)
        self.stores = bool((topology.forwarding != topology.kind).any())

    def _hops(self, a: int, b: int) -> list[tuple[int, ...]]:
        """The links of each transfer from a to b: one transfer, and one more for each router on the way that stores."""
        hops: list[tuple[int, ...]] = [()]
        for link in self._way(a, b, self.topology.transit | self.topology.is_router):
            if hops[-1] and not self.topology.transit[self.topology.src[link]]:
                hops.append(())
            hops[-1] += (link,)
        return hops

    def _way(self, a: int, b: int, passes: Bool) -> tuple[int, ...]:
        """The links of the route from a to b through nodes of the mask ``passes``; InputError if there is none."""
        net = self.topology
        offsets, links = net.out_links
        layer: dict[int, tuple[float, tuple[int, ...]]] = {a: (float("inf"), ())}
        seen = {a}
        while layer and b not in layer:
            further: dict[int, tuple[float, tuple[int, ...]]] = {}
            for v, (width, way) in layer.items():
                if v != a and not passes[v]:
                    continue
                for link in links[offsets[v] : offsets[v + 1]].tolist():
                    w, least = int(net.dst[link]), min(width, float(net.bandwidth[link]))
                    if w not in seen and (w not in further or further[w][0] < least):
                        further[w] = (least, (*way, link))
            seen |= set(further)
            layer = further
        if b not in layer:
            names = net.names
            raise InputError(
                f"{names[a]} sends to {names[b]}, which {net.name} joins only through other accelerators; "
                "give the topology that the schedule was made for",
                self.where,
            )
        return layer[b][1]
