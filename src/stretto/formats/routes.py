"""Where a foreign schedule says who sends to whom but not over which links."""

from __future__ import annotations

from functools import cache

from ..errors import InputError
from ..topology import Topology


class Routes:
    """Ways between ranks that pass only what may be passed through: fewest links, then the widest."""

    def __init__(self, topology: Topology, where: str) -> None:
        self.topology, self.where = topology, where
        self.between = cache(self._between)

    def _between(self, a: int, b: int) -> tuple[int, ...]:
        """The links of the way from a to b.

        Raises:
            InputError: there is none without storing in between.
        """
        net = self.topology
        offsets, links = net.out_links
        layer: dict[int, tuple[float, tuple[int, ...]]] = {a: (float("inf"), ())}
        seen = {a}
        while layer and b not in layer:
            further: dict[int, tuple[float, tuple[int, ...]]] = {}
            for v, (width, way) in layer.items():
                if v != a and not net.transit[v]:
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
