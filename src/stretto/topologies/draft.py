"""A topology while it is collected, node by node and link by link."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..model.topology import Topology, make_topology

XY = tuple[float, float]
NOWHERE = (math.nan, math.nan)


@dataclass
class Draft:
    """Nodes, and the bandwidth (bytes/s) and latency (s) of each directed link; both in the order of addition.

    Parallel links become one, whose bandwidth is the sum of theirs.
    """

    kinds: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    xy: list[XY] = field(default_factory=list)
    links: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def node(self, kind: int, name: str = "", site: str = "", xy: XY = NOWHERE) -> int:
        """Add a node; returns its number."""
        self.kinds.append(kind)
        self.names.append(name)
        self.sites.append(site)
        self.xy.append(xy)
        return len(self.kinds) - 1

    def nodes(self, kind: int, site: str, positions: Iterable[XY]) -> None:
        """Add a node at each position."""
        for xy in positions:
            self.node(kind, site=site, xy=xy)

    def link(self, a: int, b: int, bandwidth: float, latency_s: float) -> None:
        """Add the link from a to b."""
        self.links[a, b] = (self.links.get((a, b), (0.0, 0.0))[0] + bandwidth, latency_s)

    def join(self, a: int, b: int, bandwidth: float, latency_s: float) -> None:
        """Add the links from a to b and from b to a."""
        self.link(a, b, bandwidth, latency_s)
        self.link(b, a, bandwidth, latency_s)

    def topology(self, name: str, *, ordered: bool = False, **more: Any) -> Topology:
        """The topology; ``ordered`` numbers the links by their ends. ``more`` goes to :func:`make_topology`."""
        links = sorted(self.links.items()) if ordered else self.links.items()
        columns = {"sites": self.sites or None, "xy": self.xy or None, "names": self.names if any(self.names) else None}
        return make_topology(name, self.kinds, [(a, b, *values) for (a, b), values in links], **columns | more)


def circle(count: int, x: float = 0.0, y: float = 0.0, radius: float = 1.0) -> list[XY]:
    """Positions on a circle, the first at the top."""
    angles = [2 * math.pi * i / count for i in range(count)]
    return [(x + radius * math.sin(a), y + radius * math.cos(a)) for a in angles]
