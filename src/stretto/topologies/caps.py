"""Pairs of nodes as a topology, where nodes and sites may be capped: limited in what they send or receive in all.

What one pair was measured at, alone, is the bandwidth of its link. A cap is a link of its own that all pairs of the
node pass: a node that is capped sends by a switch NAME out, and receives by a switch NAME in. These are two, so that
nothing passes them from other nodes to others. A site that is capped has four: pairs with other sites pass from SITE up
to SITE out and from SITE in to SITE down, and pairs that join the same switches are one link, with the sum of their
bandwidths and the lowest of their latencies.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import format_bandwidth, format_time
from .draft import Draft
from .values import one_line, shown
from .wan import DEFAULT_LATENCY_S

Place = tuple[str, str]
"""A node or a site, and which of its switches: "" for the node itself."""
Hop = tuple[Place, Place]
Names = tuple[str, str]
MOST_SEARCHED = 2_000
PAIR = 0.0
"""Instead of a cap: the link that has the latency of a pair, and what its pairs add up to."""


@dataclass
class Ends:
    """What is known of a node, or of a site: its site, and what it may send and receive in all, bytes/s."""

    site: str | None = None
    up: float | None = None
    down: float | None = None

    def set(self, key: str, value: Any, name: str, place: str) -> None:
        """Sets a value that is not None; InputError if the node has another already."""
        known = getattr(self, key)
        if value is None or known == value:
            return
        if known is not None:
            before, now = (v if key == "site" else format_bandwidth(v) for v in (known, value))
            what = {"site": "the site", "up": "what it may send", "down": "what it may receive"}[key]
            raise InputError(f"{shown(name)}: {what} is {now} here and {before} before", place)
        setattr(self, key, value)


@dataclass
class Network:
    """Pairs while they are collected: bandwidth in bytes/s and latency in seconds, None where not known."""

    where: str
    nodes: dict[str, Ends] = field(default_factory=dict)
    sites: dict[str, Ends] = field(default_factory=dict)
    pairs: dict[Names, tuple[float, float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    filled: Counter[str] = field(default_factory=Counter)

    def add(self, a: str, b: str, width: float | None, latency_s: float | None) -> None:
        """Adds the nodes and the pair; a pair with itself or without a bandwidth is left out and counted."""
        for name in (a, b):
            self.nodes.setdefault(name, Ends())
        if a == b:
            self.filled["pairs of a node with itself left out: {}"] += 1
        elif width is None:
            self.filled["pairs without a bandwidth left out: {}"] += 1
        else:
            self.pairs[a, b] = (width, latency_s)

    def topology(self, settings: dict[str, Any]) -> Topology:
        """The topology; InputError if it has no pair, or a site that is capped has no node."""
        if not self.pairs:
            raise InputError("has no pair of two nodes with a bandwidth", self.where)
        known = {ends.site for ends in self.nodes.values()}
        lost = next((site for site in self.sites if site not in known), None)
        if lost is not None:
            raise InputError(f"the site {shown(lost)} has a cap and no node", self.where)
        latencies = self._latencies(settings["latency"])
        # numbers are the ranks that people mean by them, in whatever order rows have them
        names = sorted(self.nodes, key=int) if all(map(_is_number, self.nodes)) else list(self.nodes)
        links: dict[Hop, tuple[float, float]] = {}
        for (a, b), (width, _) in self.pairs.items():
            hops = self._hops(a, b)
            for hop, cap in hops:
                before = links.get(hop, (0.0, math.inf))
                delay = latencies[a, b] if cap == PAIR else 0.0
                links[hop] = (cap or before[0] + width, min(before[1], delay))
        draft = Draft()
        number: dict[Place, int] = {
            (name, ""): draft.node(ACCELERATOR, name, self.nodes[name].site or "") for name in names
        }
        for (start, end), way in links.items():
            for place in (start, end):
                if place not in number:
                    number[place] = draft.node(SWITCH, " ".join(place))
            draft.link(number[start], number[end], *way)
        capped = sum(ends.up is not None or ends.down is not None for ends in self.nodes.values())
        notes = [what.format(number) for what, number in self.filled.items()]
        notes += [f"nodes with a cap: {capped}"] * bool(capped)
        notes += [f"sites with a cap: {len(self.sites)}"] * bool(self.sites)
        return draft.topology(
            one_line(Path(self.where).stem),
            ordered=True,
            replicates=[False] * len(draft.kinds),
            notes=[*self.notes, *notes],
            where=self.where,
        )

    def _hops(self, a: str, b: str) -> list[tuple[Hop, float | None]]:
        """The links of a pair in order, each with its cap; None for the sum of its pairs, PAIR for the pair's own."""
        src, dst = self.nodes[a], self.nodes[b]
        apart = src.site != dst.site
        leaves = (self.sites.get(src.site or "") if apart else None) or Ends()
        enters = (self.sites.get(dst.site or "") if apart else None) or Ends()
        tail: list[tuple[Place, float | None]] = [((a, ""), None)]
        tail += [((a, "out"), src.up)] * (src.up is not None)
        if leaves.up is not None:
            tail += [((self._border(src.site), "up"), None), ((self._border(src.site), "out"), leaves.up)]
        head: list[tuple[Place, float | None]] = []
        if enters.down is not None:
            head += [((self._border(dst.site), "in"), PAIR), ((self._border(dst.site), "down"), enters.down)]
        head += [((b, "in"), None)] * (dst.down is not None)
        head += [((b, ""), dst.down)]
        places = [*tail, (head[0][0], PAIR), *head[1:]]
        return [((x, y), cap) for (x, _), (y, cap) in pairwise(places)]

    def _border(self, site: str | None) -> str:
        """What the switches of a site are called after: the site, unless a node has the same name."""
        name = site or ""
        while name in self.nodes:
            name = f"site {name}"
        return name

    def _latencies(self, every: float | None) -> dict[Names, float]:
        """The latency of each pair: as given, else that of the way back, of the shortest known way, or the median."""
        known = {pair: delay for pair, (_, delay) in self.pairs.items() if delay is not None}
        if every is not None:
            return dict.fromkeys(self.pairs, every)
        if not known:
            self.filled[f"pairs without a latency, taken as {format_time(DEFAULT_LATENCY_S)}: {{}}"] = len(self.pairs)
            return dict.fromkeys(self.pairs, DEFAULT_LATENCY_S)
        missing = [pair for pair in self.pairs if pair not in known]
        if not missing:
            return known
        shortest, median = _shortest(list(self.nodes), known), statistics.median(known.values())
        latencies = dict(known)
        for a, b in missing:
            way = known.get((b, a), shortest(a, b))
            source = "the way back or the shortest known way" if math.isfinite(way) else "the median of the others"
            self.filled[f"pairs without a latency, which is that of {source}: {{}}"] += 1
            latencies[a, b] = way if math.isfinite(way) else median
        return latencies


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10


def _shortest(names: list[str], known: dict[Names, float]) -> Callable[[str, str], float]:
    """A function for the least latency from one node to another over known pairs, infinite where there is no way.

    Among more than :data:`MOST_SEARCHED` nodes none is looked for.
    """
    if len(names) > MOST_SEARCHED:
        return lambda a, b: math.inf
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    number = {name: i for i, name in enumerate(names)}
    ends = np.array([(number[a], number[b]) for a, b in known]).T
    # a stored zero is no edge to SciPy
    costs = np.maximum(np.array(list(known.values())), 1e-15)
    graph = csr_array((costs, (ends[0], ends[1])), shape=(len(names), len(names)))

    @lru_cache(64)
    def row(source: int) -> Any:
        return dijkstra(graph, indices=source)

    return lambda a, b: float(row(number[a])[number[b]])
