"""Rings over a network as NCCL lays them: one a channel, each with bandwidth of its own.

NCCL 2.20 (src/graph/search.cc, rings.cc) looks for rings that all have the same bandwidth on every link that they
use, so that channels x bandwidth is largest. A ring visits a server's ranks one after the other and then goes on to
the next server. The search here is ours: depth first, with the next rank chosen by the bandwidth that earlier rings
have left on the links to it, for a limited number of steps.

Where no ring of direct connections exists, neighbours are joined by shortest ways over other
accelerators, which relay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int64
from ...model.errors import InputError
from ...model.topology import Topology
from ...schedule.effort import Budget
from ...schedule.shortest_trees import shortest_trees
from ...schedule.trees import depths, sums_to_root

MOST_CHANNELS = 32
"""MAXCHANNELS of NCCL 2.20."""

MOST_TRANSFERS = 200_000
"""Transfers in a plan above which slices become larger than those of NCCL."""

STEPS_A_RANK = 8
"""Steps of a search from one rank, for each rank that the ring must visit."""

MOST_STARTS = 16
"""Ranks from which a ring is searched."""

MOST_STEPS = 8192
"""Steps of the searches from all ranks together."""

STEP_COST = 2.5
"""Steps of a budget that one step of the search takes, or one rank to which a route is found."""

MOST_OF_BUDGET = 0.25
"""What the search may spend of a request's steps before no other bandwidth is tried. Where many links differ, as
between regions, there are hundreds."""

SHARES = (1, 2)
"""Channels that may share a link: a channel's bandwidth is that of some link, or a half of it."""

Route = tuple[int, ...]
Room = Callable[[float, int, int, bool], tuple[float, ...]]


class ByRank(NamedTuple):
    """Try the next rank in the order of ranks (1), or the one before (-1). All channels then pass a switch in the same
    order, so that no two ranks behind the switch send to the same rank.

    Attributes:
        every: the way in the first server of a ring, the third, and so on.
        second: the way in every second server. Where rails alone join servers, a ring that comes in at the last rank
            must leave at the first one.
        closing: whether the last rank that leads back to where the ring began is kept for its end. So a ring closes
            over the rails of an odd number of servers.
    """

    every: int
    second: int
    closing: bool = False


BY_ROOM: tuple[Room, ...] = (
    lambda left, onward, after, leaves: (leaves, -left, onward, after),
    lambda left, onward, after, leaves: (leaves, onward, -left, after),
)
"""Where that gives too few rings, try ranks by: whether the server would be left too early from there, the bandwidth
left on the route, the routes onward, and the distance in the order of ranks."""

Preference = ByRank | Room

PREFERENCES: tuple[Preference, ...] = (
    ByRank(1, 1), ByRank(-1, -1), *BY_ROOM, ByRank(1, -1), ByRank(1, -1, closing=True),
)  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """One channel's ring."""

    order: tuple[int, ...]  # the ranks' nodes in turn
    walk: tuple[int, ...]  # the nodes that store along it, relays among them; it closes
    routes: tuple[Route, ...]  # for each node of the walk the links to the next


@dataclass(frozen=True)
class Rings:
    """The rings of all channels."""

    rings: tuple[Ring, ...]
    bandwidth: float  # bytes/s that each has on its links
    relayed: tuple[tuple[int, int], ...]  # pairs of neighbours with an accelerator between them


def channel_count(text: str) -> int:
    """The number of channels that an option's ``auto`` (0) or digits stand for."""
    count = 0 if text == "auto" else int(text) if text.isdecimal() else -1
    if not 0 <= count <= MOST_CHANNELS or text == "0":
        raise InputError(f"{text!r} is neither auto nor 1 to {MOST_CHANNELS} channels", "option channels")
    return count


def slice_option(slices: int) -> int:
    """The option's number of slices, 0 for NCCL's own."""
    if slices < 0:
        raise InputError(f"{slices} slices: at least one is needed, or 0 for as many as NCCL", "option slices")
    return slices


def servers_of(topology: Topology, ranks: Int64) -> dict[int, str]:
    """The server of each rank's node: its site, or the node itself where it has none."""
    return {v: topology.sites[v] or f"node {v}" for v in map(int, ranks)}


def find_rings(topology: Topology, ranks: Int64, budget: Budget, widths: Sequence[float] | None = None) -> Rings:
    """The rings whose number times bandwidth is the largest that the search comes across.

    Args:
        budget: charged for the search; it ends before all bandwidths are tried if it spends much of that.
        widths: bandwidths of a ring to try, bytes/s. Default: those of the links, and halves of them.
    """
    share = budget.share(MOST_OF_BUDGET)
    search = _Search(topology, ranks)
    tried = widths or [float(b) / part for b in topology.bandwidth for part in SHARES]
    best: list[Ring] = []
    width, counted = 0.0, 0
    if search.may_close(min(tried)) and search.all_rings(min(tried), 1):
        for w in sorted(set(tried), key=lambda w: (-search.most_rings(w) * w, -w)):
            if search.most_rings(w) * w <= len(best) * width or (best and share.exhausted):
                break
            rings = search.all_rings(w, search.most_rings(w))
            share.charge(STEP_COST * (search.steps - counted))
            counted = search.steps
            if len(rings) * w > len(best) * width:
                best, width = rings, w
    if best:
        return Rings(tuple(best), width, ())
    return _relayed(topology, ranks, search.server)


class _Search:
    """Depth-first search for rings over what earlier rings have left of the links.

    Attributes:
        steps: how many have been made, with one for each rank to which routes were looked for.
    """

    def __init__(self, topology: Topology, ranks: Int64) -> None:
        self.topology = topology
        self.ranks = sorted(map(int, ranks))
        self.position = {v: i for i, v in enumerate(self.ranks)}
        self.server = servers_of(topology, ranks)
        self.size = {s: list(self.server.values()).count(s) for s in self.server.values()}
        self.out = [topology.out_links[v].tolist() for v in range(topology.node_count)]
        self.end = topology.dst.tolist()
        self.steps = 0
        full = topology.bandwidth.tolist()
        reach = {a: self._reach(a, 0.0, full) for a in self.ranks}
        self.exits = {a for a in self.ranks if any(self.server[b] != self.server[a] for b in reach[a])}
        self.entries = {b for a in self.ranks for b in reach[a] if self.server[b] != self.server[a]}

    def _reach(self, a: int, width: float, left: list[float]) -> dict[int, Route]:
        """The ranks that ``a`` has a route to without a relay, every link with ``width`` left."""
        routes: dict[int, Route] = {}
        seen = {a}
        edge: list[tuple[int, Route]] = [(a, ())]
        while edge:
            ahead: list[tuple[int, Route]] = []
            for v, route in edge:
                for link in sorted(self.out[v], key=lambda e: -left[e]):
                    w = self.end[link]
                    if w in seen or left[link] < width:
                        continue
                    seen.add(w)
                    if w in self.server:
                        self.steps += 1
                        routes[w] = (*route, link)
                    if self.topology.transit[w]:
                        ahead.append((w, (*route, link)))
            edge = ahead
        return routes

    def may_close(self, width: float) -> bool:
        """False where some rank is a dead end, so that no ring can exist."""
        left = self.topology.bandwidth.tolist()
        reach = {a: set(self._reach(a, width, left)) for a in self.ranks}
        into = {b: {a for a in self.ranks if b in reach[a]} for b in self.ranks}
        neighbours = min(2, len(self.ranks) - 1)
        return all(reach[a] and into[a] and len(reach[a] | into[a]) >= neighbours for a in self.ranks)

    def most_rings(self, width: float) -> int:
        """How many rings of this bandwidth can pass all ranks and servers at most."""
        topology = self.topology
        room = np.floor(topology.bandwidth / width * (1 + 1e-9))
        groups = [{v} for v in self.ranks]
        if len(self.size) > 1:
            nodes = range(topology.node_count)
            groups += [{v for v in nodes if topology.sites[v] == s} for s in self.size if s in topology.sites]
        most = MOST_CHANNELS
        for group in groups:
            inside = np.zeros(topology.node_count, dtype=np.bool_)
            inside[list(group)] = True
            for a, b in ((topology.src, topology.dst), (topology.dst, topology.src)):
                most = min(most, int(room[inside[a] & ~inside[b]].sum()))
        return most

    def all_rings(self, width: float, most: int) -> list[Ring]:
        """Rings of this bandwidth, laid one after the other by the preference that gives most of them."""
        best: list[Ring] = []
        for prefer in PREFERENCES:
            left = self.topology.bandwidth * (1 + 1e-9)
            rings: list[Ring] = []
            while len(rings) < most:
                ring = self._ring(width, left.tolist(), prefer, len(rings))
                if ring is None:
                    break
                rings.append(ring)
                np.subtract.at(left, [link for route in ring.routes for link in route], width)
            best = max(best, rings, key=len)
            if len(best) == most:
                break
        return best

    def _ring(self, width: float, left: list[float], prefer: Preference, number: int) -> Ring | None:
        """One ring, None if the search finds none within its steps.

        Args:
            left: float[links], bytes/s that earlier rings have left; changed as the search goes.
            number: how many rings were laid before; each begins at another rank where it can.
        """
        ways = _Onward(self, width, left, prefer)
        full = left.copy()
        starts = [a for a in self.ranks if a in self.entries] or self.ranks
        first = number % len(starts)
        steps_each = STEPS_A_RANK * len(self.ranks)
        tried = max(1, min(MOST_STARTS, MOST_STEPS // steps_each))
        for start in (starts[first:] + starts[:first])[:tried]:
            steps = steps_each
            left[:] = full
            unvisited = dict(self.size)
            ways.begin(start)
            frames: list[tuple[int, Route, Iterator[tuple[int, Route]]]] = []
            step: tuple[int, Route] | None = (start, ())
            while step is not None or frames:
                steps -= 1
                self.steps += 1
                if steps < 0:
                    break
                if step is None:
                    v, route, _ = frames.pop()
                    ways.visited ^= 1 << self.position[v]
                    unvisited[self.server[v]] += 1
                    for link in route:
                        left[link] += width
                else:
                    v, route = step
                    ways.visited ^= 1 << self.position[v]
                    unvisited[self.server[v]] -= 1
                    for link in route:
                        left[link] -= width
                    frames.append((v, route, ways.after(v, unvisited)))
                    closing = ways.reach[v].get(start, ()) if len(frames) == len(self.ranks) else ()
                    if closing and ways.has(closing):
                        order = tuple(f[0] for f in frames)
                        return Ring(order, order, (*(f[1] for f in frames[1:]), closing))
                options = frames[-1][2] if frames else iter(())
                step = next((o for o in options if ways.has(o[1])), None)
        return None


class _Onward:
    """The ranks that may come after another one on a ring, while the ring is searched for.

    Attributes:
        left: float[links], the bandwidth that the ring so far leaves; changes with the ring.
        visited: the ranks on the ring, as bits by their position.
        closers: the ranks that may be the last one of the ring, as bits.
        routes: for each rank the ranks that it has a route to; if ``prefer`` is by rank, in its order in the first
            server, and in its order in the second one.
    """

    def __init__(self, search: _Search, width: float, left: list[float], prefer: Preference) -> None:
        self.search, self.width, self.left, self.prefer = search, width, left, prefer
        self.visited = self.closers = 0
        position, n = search.position, len(search.ranks)
        self.bit = {v: 1 << k for v, k in position.items()}
        self.reach = {a: search._reach(a, width, left) for a in search.ranks}
        self.bits = {a: sum(self.bit[b] for b in routes) for a, routes in self.reach.items()}
        ways = (prefer.every, prefer.second) if isinstance(prefer, ByRank) else (1, 1)
        self.by_rank = [
            {a: [b for _, b in sorted((way * ((position[b] - position[a]) % n), b) for b in self.reach[a])]
             for a in search.ranks} for way in ways
        ]  # fmt: skip

    def begin(self, start: int) -> None:
        """Begin a ring at a rank."""
        self.visited, self.closers = 0, -1
        if isinstance(self.prefer, ByRank) and self.prefer.closing and len(self.search.size) > 1:
            server = self.search.server
            back = [a for a, routes in self.reach.items() if start in routes and server[a] != server[start]]
            self.closers = sum(self.bit[a] for a in back)

    def after(self, v: int, unvisited: dict[str, int]) -> Iterator[tuple[int, Route]]:
        """The ranks that may come after ``v``, the best first.

        Args:
            unvisited: how many ranks of each server are left. The next rank is of the server of ``v`` unless none is.
        """
        server, visited, n = self.search.server, self.visited, len(self.search.ranks)
        own, reach = unvisited[server[v]], self.reach[v]
        rest = ((1 << n) - 1) & ~visited
        back = self.closers & rest
        # the last rank that leads back, unless it is the last of all
        kept = back if back & (back - 1) == 0 and back != rest else 0

        def allowed(b: int) -> bool:
            return not self.bit[b] & (visited | kept) and (own == 0 or server[b] == server[v])

        if isinstance(self.prefer, ByRank):
            # the server that is left, or the one that comes next
            done = sum(not count for count in unvisited.values()) - (own == 0)
            return ((b, reach[b]) for b in self.by_rank[done % 2][v] if allowed(b))
        prefer, position, exits = self.prefer, self.search.position, self.search.exits

        def key(option: tuple[int, Route]) -> tuple[float, ...]:
            b, route = option
            onward = (self.bits[b] & ~visited).bit_count()
            left = min([self.left[link] for link in route])
            return prefer(left, onward, (position[b] - position[v]) % n, own > 1 and b in exits)

        return iter(sorted(((b, route) for b, route in reach.items() if allowed(b)), key=key))

    def has(self, route: Route) -> bool:
        """Whether every link of a route has room for one more ring."""
        return min([self.left[link] for link in route]) >= self.width


def _relayed(topology: Topology, ranks: Int64, server: dict[int, str]) -> Rings:
    """One ring that goes on to the nearest rank by a shortest way, and leaves a server when all its ranks are on it."""
    trees = shortest_trees(topology, ranks, np.zeros(len(ranks)))
    row = {int(v): i for i, v in enumerate(ranks)}
    far, depth = sums_to_root(trees, np.append(topology.route_latency_s(trees.routes), 0.0)[trees.hop]), depths(trees)
    order = [int(ranks[0])]
    rest = set(map(int, ranks[1:]))
    while rest:
        v = order[-1]
        here = [w for w in rest if server[w] == server[v]] or rest
        order.append(min(here, key=lambda w: (far[row[v], w], depth[row[v], w], w)))
        rest.discard(order[-1])
    walk: list[int] = []
    routes: list[Route] = []
    relayed: list[tuple[int, int]] = []
    for a, b in zip(order, order[1:] + order[:1]):
        back, at = [], b
        while at != a:
            back.append((int(trees.toward[row[a], at]), tuple(trees.routes[trees.hop[row[a], at]].tolist())))
            at = back[-1][0]
        walk += [v for v, _ in back[::-1]]
        routes += [route for _, route in back[::-1]]
        if len(back) > 1:
            relayed.append((a, b))
    width = min(float(topology.bandwidth[list(route)].min()) for route in routes)
    return Rings((Ring(tuple(order), tuple(walk), tuple(routes)),), width, tuple(relayed))
