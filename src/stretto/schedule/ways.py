"""Ways between nodes without accelerators in between, for plans whose transfers are given by their ends.

Where several routes are equally quick, as over the spines of a leaf-spine fabric, accelerators that send at the same
time should not all take the same one. In most steps of most algorithms the k-th accelerator sends to the one some
places after it, all at the same distance. So the pairs of a distance choose their routes one after the other, each the
one whose links have least to carry then (:mod:`.kernel_ways`). A link to a spine is often narrower than an
accelerator's own. So what a pair sends can also be divided among *lanes*: for each lane all pairs choose once more,
with what they carry in others. Two lanes are chosen together, as two for each pair may fit where no choice of the first
one leaves room for the second.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int32, Int64, Ragged
from ..model.topology import Topology
from . import kernel_ways
from .branching import branching
from .routes import Routes, routes_from

MOST_EQUAL = 64
"""Equally quick routes between two switches that are looked at, at most."""

MOST_LANES, GROUP = 4, 2
"""Lanes that are told apart, at most, and how many of them are chosen together."""

SWEEPS = 8
"""How often a pair chooses its routes, at most."""

NEAR = 1e-9
"""Relative difference of latencies up to which routes are equally quick: their sums are rounded."""

_Equal = tuple[int, Int64, int]
"""Routes that have their first and last links in common: these, and int64[routes, links], those between."""


class Ways:
    """The links from one node to another: that which joins them, or a quickest route through switches and routers."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._direct = {
            ends: i for i, ends in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
        }
        self._from: dict[int, Routes] = {}
        self._between_passing: dict[tuple[int, int], tuple[float, Int64]] = {}
        self._found: dict[tuple[int, int], list[list[int]]] = {}  # for each lane
        self._firsts: dict[tuple[int, int], list[int]] = {}
        self._known: dict[bytes, list[Ragged]] = {}  # lanes that were asked for
        self._options: dict[int, tuple[kernel_ways.Options, Float64]] = {}
        # of pairs at a distance: their routes, and what links carry of the lanes so far for a byte of each pair
        self._several: set[tuple[int, int]] = set()  # pairs with several ways

    def between(self, pairs: Int32 | Int64, lane: int = 0) -> list[list[int]]:
        """For each pair (src, dst) the links, [] if none."""
        return [self.one(a, b, lane) for a, b in pairs.tolist()]

    def lanes(self, pairs: Int32 | Int64, alone: bool = False) -> list[Ragged]:
        """The links for each pair, for each of some lanes; of one lane if there are not several ways.

        Args:
            alone: whether one lane is enough.
        """
        if alone or not self.are_several(pairs):
            return [Ragged.of(self.between(pairs))]
        key = pairs.astype(np.int64).tobytes()
        if key not in self._known:
            self._known[key] = [Ragged.of(self.between(pairs, lane)) for lane in range(MOST_LANES)]
        return self._known[key]

    def are_several(self, pairs: Int32 | Int64) -> bool:
        """Whether there are several equally quick ways between two nodes that are a pair."""
        self.between(pairs)
        return not self._several.isdisjoint(map(tuple, pairs.tolist()))

    def first(self, pairs: Int32 | Int64) -> list[list[int]]:
        """The links for each pair, [] if none: where several routes are equally quick, the first of them."""
        return [self._links(a, b) for a, b in pairs.tolist()]

    def join(self, a: int, b: int) -> bool:
        """Whether there is a way from one node to another."""
        if (a, b) in self._direct or a == b or a not in self._place:
            return bool(self._links(a, b))
        return any(b in self._routes_from(u).length for _, u, _ in self._ends[0][a])

    def one(self, a: int, b: int, lane: int = 0) -> list[int]:
        """The links from one node to another, [] if none."""
        found = self._found.setdefault((a, b), [])
        if not found:
            if (a, b) in self._direct or self._distance(a, b) <= 0:
                found.append(self._links(a, b))
            else:
                self._spread(self._distance(a, b))
        while lane >= len(found) and (a, b) in self._several:
            self._spread(self._distance(a, b))
        return found[min(lane, len(found) - 1)]

    def to_all(self, node: int, others: tuple[int, ...]) -> list[list[int]]:
        """From a node to several others: the links of one way that branches, or of a way to each of them. Of equally
        quick ones it is the first."""
        ways = [self._links(node, other) for other in others]
        branches = branching(self._topology, ways)
        return ways if branches is None else [branches]

    @cached_property
    def _place(self) -> dict[int, int]:
        return {v: k for k, v in enumerate(self._topology.accelerators.tolist())}

    def _links(self, a: int, b: int) -> list[int]:
        """The link that joins two nodes, or of equally quick routes the first one by the numbers of its links."""
        if (a, b) in self._direct:
            return [self._direct[a, b]]
        if self._distance(a, b) <= 0:
            return self._routes_from(a).links_to(b)
        if (a, b) not in self._firsts:
            equal = ([e, *routes[0].tolist(), f] for e, routes, f in self._equal(a, b))
            self._firsts[a, b] = min(equal, default=[])
        return self._firsts[a, b]

    def _routes_from(self, a: int) -> Routes:
        if a not in self._from:
            self._from[a] = routes_from(self._topology, a, metric="latency")
        return self._from[a]

    def _distance(self, a: int, b: int) -> int:
        """How many places after one accelerator the other one is: 0 if they are the same, -1 if a node is none."""
        if a not in self._place or b not in self._place:
            return -1
        return (self._place[b] - self._place[a]) % len(self._place)

    def _spread(self, distance: int) -> None:
        """Choose the routes of all pairs at a distance for the next lanes."""
        nodes = [*self._place]
        pairs = [p for p in zip(nodes, nodes[distance:] + nodes[:distance], strict=True) if p not in self._direct]
        if not self._found.setdefault(pairs[0], []):
            equal = [self._equal(*pair) for pair in pairs]
            several = {p for p, each in zip(pairs, equal, strict=True) if sum(len(r) for _, r, _ in each) > 1}
            self._several |= several
            if not several:
                for pair, each in zip(pairs, equal, strict=True):
                    links = [[first, *routes[0].tolist(), last] for first, routes, last in each] or [[]]
                    self._found.setdefault(pair, []).extend(links)
                return
            self._options[distance] = _options(equal), np.zeros(self._topology.link_count)
        options, busy_s = self._options[distance]
        # first in the order of accelerators, then in others, so that the lanes of a pair differ, too
        done, count = len(self._found[pairs[0]]), len(pairs)
        order = np.stack([np.random.default_rng(k).permutation(count) for k in range(done, done + GROUP)])
        if not done:
            order[0] = np.arange(count)
        choose = at_speed(kernel_ways.choose, float(2 * GROUP * SWEEPS * len(options.links)))
        chosen, carried_s = choose(options, 1 / self._topology.bandwidth, busy_s, order, SWEEPS)
        self._options[distance] = options, busy_s + carried_s
        for pair, lanes in zip(pairs, chosen.tolist(), strict=True):
            routes = (options.links[slice(*options.begins[[k, k + 1]])].tolist() if k >= 0 else [] for k in lanes)
            self._found.setdefault(pair, []).extend(routes)

    def _equal(self, a: int, b: int) -> list[_Equal]:
        """The quickest routes from one accelerator to another, of these those of fewest links."""
        found = list[tuple[float, _Equal]]()
        for e, u, leaves_s in self._ends[0][a]:
            for f, v, comes_s in self._ends[1][b]:
                takes_s, routes = self._passing(u, v)
                if len(routes):
                    found.append((leaves_s + takes_s + comes_s, (e, routes, f)))
        if len(found) > 1:
            least_s = min(takes_s for takes_s, _ in found) * (1 + NEAR)
            fewest = min(routes.shape[1] for takes_s, (_, routes, _) in found if takes_s <= least_s)
            found = [each for each in found if each[0] <= least_s and each[1][1].shape[1] == fewest]
        return [routes for _, routes in found]

    @cached_property
    def _ends(self) -> tuple[list[list[tuple[int, int, float]]], ...]:
        """For each node the links out of it, and then into it, to nodes that routes may pass; these; and latencies."""
        topology, latency_s = self._topology, self._topology.latency_s.tolist()
        ends = []
        for links, others in ((topology.out_links, topology.dst), (topology.in_links, topology.src)):
            other, passed = others.tolist(), topology.transit[others].tolist()
            each = (links[v].tolist() for v in range(topology.node_count))
            ends.append([[(e, other[e], latency_s[e]) for e in own if passed[e]] for own in each])
        return tuple(ends)

    def _passing(self, a: int, b: int) -> tuple[float, Int64]:
        """What it takes between two nodes that routes may pass through, seconds; and int64[routes, links], the quickest
        routes, of these those of fewest links, by the numbers of their links."""
        if (a, b) not in self._between_passing:
            topology, known = self._topology, self._routes_from(a)
            found, partial = list[tuple[int, ...]](), [(b, tuple[int, ...]())] if b in known.length else []
            while partial and len(found) < MOST_EQUAL:
                node, links = partial.pop()
                if node == a:
                    found.append(links)
                    continue
                for e in topology.in_links[node].tolist()[::-1]:
                    before = int(topology.src[e])
                    if before not in known.length or not topology.transit[before]:
                        continue
                    come_s = known.length[before] + float(topology.latency_s[e])
                    fewest = len(known.links.get(before, ())) + 1 == len(known.links[node])
                    if fewest and come_s <= known.length[node] * (1 + NEAR):
                        partial.append((before, (e, *links)))
            routes = np.array(sorted(found), dtype=np.int64) if found else np.zeros((0, 0), dtype=np.int64)
            self._between_passing[a, b] = known.length.get(b, np.inf), routes
        return self._between_passing[a, b]


def _options(equal: list[list[_Equal]]) -> kernel_ways.Options:
    """The equally quick routes of pairs as the kernel takes them."""
    offsets, lengths, links = [0], [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for each in equal:
        for first, routes, last in each:
            count, length = routes.shape
            ends = np.full((count, 1), first), np.full((count, 1), last)
            links.append(np.hstack((ends[0], routes, ends[1])).ravel())
            lengths.append(np.full(count, length + 2))
        offsets.append(offsets[-1] + sum(len(routes) for _, routes, _ in each))
    return kernel_ways.Options(np.array(offsets), np.cumsum(np.concatenate(lengths)), np.concatenate(links))


@lru_cache(1)
def ways_of(topology: Topology) -> Ways:
    """The ways of a network: those that are found to say whether a request is served are there for its plan."""
    return Ways(topology)
