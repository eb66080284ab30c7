"""Exchanges of clusters in which sums cross before they are whole, and come in at several ranks at once.

Where slow links join all ranks of some clusters, a sum of a whole cluster cannot cross before its farthest rank has
come, nor be of use if it comes in so late that it does not reach all of the other cluster. Meanwhile what joins them
would be idle. So each part of the buffer crosses at a time t of its own, from as few ranks, *centres*, as all others of
their cluster can come to by t, to as few, *hubs*, as all others there can be reached from in what is left of the
time x for ways inside. With N(r) ranks so that all others are no farther than r from one, and u seconds for what joins
the clusters to carry the buffer once, that is possible if 1 / (u N(t) N(x - t)), integrated over t from 0 to x, is 1.
Hubs get the sum of their own cluster over trees of their own, for which there is time while sums cross.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from ....model.arrays import Ragged
from ....model.collective import Workload
from ....model.plan import Plan
from ....model.topology import Topology
from ....schedule.dispatch import dispatch
from ....schedule.pipes import Network
from ....schedule.trees import divide
from .clusters import Inside, alike_clusters
from .hubs import planned
from .trees import Bundle, Exchange, Message

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Ranks = tuple[int, ...]
Tree = list[tuple[int, int]]

MOST_SETS = 20_000
"""Of ranks that are looked at, to find the fewest centres."""

KEPT = 16
"""How many sets of the fewest centres are kept."""

TURNS = 64
"""How many of these are taken to see how evenly they use links."""

FEWER = 0.95
"""Farther ranks are of use where so many times as few are needed."""

PARTS = 96
"""Into how many parts the buffer is cut."""

IDLE = 1.1
"""Crossing takes so many times as long as if all that joins clusters were always busy: both ends must be free."""

STEPS = 200
"""Into how many the time inside is divided."""


def in_crossings(topology: Topology, workload: Workload) -> Plan | None:
    """A timed plan of a single AllReduce.

    Returns:
        None where there are no clusters of equally many ranks, each joined to all of the others.
    """
    c = workload.collectives[0]
    inside, clusters = alike_clusters(topology, c)
    across = _across(inside, clusters)
    parts = min(PARTS, int(c.chunk_bytes.min()))
    if not clusters or not across or parts < 1:
        return None
    members = [_Cluster.of(inside, own.tolist(), across) for own in clusters]
    if not all(own.radii for own in members):
        return None
    crossing = _Crossing.of(inside, members, across, c.size_bytes / parts)
    made = [crossing.made(at_s, left_s) for at_s, left_s in _times(members, IDLE * crossing.once_s * parts, parts)]
    whole = [exchange for exchange in made if exchange is not None]
    if len(whole) < parts:
        return None
    finer = Workload((divide(c, parts)[0],))
    return dispatch(planned(topology, finer, inside.network, whole), np.zeros(finer.chunk_count), apart=False)


def _across(inside: Inside, clusters: list[NDArray[np.int32]]) -> dict[tuple[int, int], int]:
    """The quickest pipe from each rank to each one of other clusters; none unless all are joined."""
    network = inside.network
    found: dict[tuple[int, int], int] = {}
    order = np.lexsort((network.per_byte, network.latency_s))[::-1]
    for p, v, w in zip(order.tolist(), network.src[order].tolist(), network.dst[order].tolist(), strict=True):
        found[v, w] = p
    home = {int(v): k for k, own in enumerate(clusters) for v in own}
    pairs = [(v, w) for v in home for w in home if home[v] != home[w]]
    return {pair: found[pair] for pair in pairs} if all(pair in found for pair in pairs) else {}


@dataclass(frozen=True)
class _Cluster:
    """The ranks of a cluster.

    Attributes:
        radii: seconds, least first.
        sets: for each radius some sets of the fewest ranks so that no rank is farther from all of one.
        number: how many ranks that is, or more, where links across carry more for these than for all ranks alike.
        pairs: for two radii what has been asked for.
    """

    inside: Inside
    ranks: list[int]
    radii: list[float]
    sets: list[list[Ranks]]
    number: list[float]
    pairs: dict[tuple[int, int], list[tuple[Ranks, Ranks]]] = field(default_factory=dict)

    @classmethod
    def of(cls, inside: Inside, ranks: list[int], across: dict[tuple[int, int], int]) -> _Cluster:
        """No radii if not all ranks are joined."""
        found = cls(inside, ranks, [], [], [])
        far = inside.far[np.ix_(ranks, ranks)]
        # there and back
        far = np.maximum(far, far.T)
        if not np.isfinite(far).all():
            return found
        far = np.round(far / max(float(far.max()), 1e-300), 9) * float(far.max())
        use = np.array([_uses(inside.network, ranks, across, end) for end in (0, 1)])
        for radius in np.unique(far).tolist():
            sets = _fewest(far <= radius)
            number = max(_alike(own, sets) for own in use) if sets else np.inf
            if sets and (not found.number or number < found.number[-1] * FEWER):
                found.radii.append(radius)
                found.sets.append([tuple(ranks[k] for k in some) for some in sets])
                found.number.append(number)
        return found

    def radius(self, within: float) -> float:
        """The largest up to some."""
        return self.radii[self.level(within)]

    def fewest(self, within: float) -> float:
        """How many ranks are needed."""
        return self.number[self.level(within)]

    def level(self, within: float) -> int:
        """Which radius is the largest up to some, -1 if none is."""
        return bisect_right(self.radii, within * (1 + 1e-9)) - 1

    def choices(self, at_s: float, left_s: float) -> list[tuple[Ranks, Ranks]]:
        """Centres to which all others come in some time, and hubs from which all others are reached in what is left.

        One rank may be both; else ways to centres do not lead through hubs, as what comes to a hub must be its own
        tree alone.
        """
        level = self.level(at_s), self.level(left_s)
        if min(level) < 0:
            return []
        if level not in self.pairs:
            both = [(some, hubs) for some in self.sets[level[0]] for hubs in self.sets[level[1]]]
            if max(len(both[0][0]), len(both[0][1])) == 1:
                both = [(some, hubs) for some, hubs in both if some == hubs]
            self.pairs[level] = [pair for pair in both if self._leads(*pair, self.radii[level[0]])]
        return self.pairs[level]

    def _leads(self, centres: Ranks, hubs: Ranks, radius: float) -> bool:
        """Whether ranks come to centres soon enough, and to each hub, through no other hubs."""
        if len(hubs) == 1 and centres == hubs:
            return True
        if len(centres) < len(self.ranks):
            near = self.inside.near(centres, True, hubs)[self.ranks]
            if not set(centres).isdisjoint(hubs) or near.max() > radius * (1 + 1e-9):
                return False
        others = [[v for v in hubs if v != hub] for hub in hubs]
        found = (self.inside.near((hub,), True, ends) for hub, ends in zip(hubs, others, strict=True))
        return len(hubs) < len(self.ranks) and all(np.isfinite(near[self.ranks]).all() for near in found)


def _fewest(near: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Some of the smallest sets of rows that have something in each column; none if there are too many to look at."""
    count = len(near)
    if near.sum() == count:
        return [tuple(range(count))]
    for size in range(1, count):
        if comb(count, size) > MOST_SETS:
            break
        sets = np.array(list(combinations(range(count), size)))
        full = sets[near[sets].any(axis=1).all(axis=1)]
        if len(full):
            return [tuple(own) for own in full[:: -(-len(full) // KEPT)].tolist()]
    return []


def _uses(network: Network, ranks: list[int], across: dict[tuple[int, int], int], end: int) -> Float64:
    """float64[ranks, links], seconds a byte on links across from each rank (end 0) or to it (1), all others alike."""
    found = np.zeros((len(ranks), network.topology.link_count))
    place = {v: k for k, v in enumerate(ranks)}
    for ends, pipe in across.items():
        if ends[end] in place:
            found[place[ends[end]], network.hops[pipe]] += 1
    return found / network.topology.bandwidth


def _alike(use: Float64, sets: list[tuple[int, ...]]) -> float:
    """How many ranks that send alike burden links as much as sets that take turns.

    Args:
        use: float64[ranks, links].
    """
    each = np.array([use[list(some)].sum(axis=0) for some in sets])
    total = np.zeros(use.shape[1])
    for _ in range(TURNS):
        total += each[np.argmin((total + each).max(axis=1))]
    return float(total.max() / TURNS / use.mean(axis=0).max())


def _times(members: list[_Cluster], once_s: float, parts: int) -> list[tuple[float, float]]:
    """When each part crosses, and what is left after that, seconds without the way across; nothing if none can.

    Args:
        once_s: for what joins the clusters to carry all parts once.
    """
    known: dict[tuple[int, ...], float] = {}

    def rates(whole: float) -> Float64:
        found = np.zeros(STEPS)
        for k, at_s in enumerate(((np.arange(STEPS) + 0.5) * whole / STEPS).tolist()):
            levels = tuple(own.level(t) for own in members for t in (at_s, whole - at_s))
            if levels not in known:
                leads = all(own.choices(at_s, whole - at_s) for own in members)
                most = max(a.fewest(at_s) * b.fewest(whole - at_s) for a in members for b in members)
                known[levels] = 1 / most if leads else 0.0
            found[k] = known[levels]
        return found

    low, high = 0.0, 2 * members[0].radii[-1] + 2 * once_s
    for _ in range(20):
        whole = (low + high) / 2
        low, high = (whole, high) if rates(whole).mean() * whole < once_s else (low, whole)
    done = np.cumsum(rates(high))
    if done[-1] == 0:
        return []
    places = np.searchsorted(done, (np.arange(parts) + 0.5) / parts * done[-1])
    return [((k + 0.5) * high / STEPS, (STEPS - k - 0.5) * high / STEPS) for k in places.tolist()]


@dataclass(frozen=True)
class _Crossing:
    """What exchanges are made of.

    Attributes:
        across: the pipe from each rank to each one of other clusters.
        late_s: the least latency of these.
        once_s: seconds for all that joins the clusters to carry a part from each to each other one.
        size: bytes of a part.
        load_s: for each link, seconds; grows by what exchanges bring.
    """

    inside: Inside
    members: list[_Cluster]
    across: dict[tuple[int, int], int]
    late_s: float
    once_s: float
    size: float
    load_s: list[float]

    @classmethod
    def of(cls, inside: Inside, members: list[_Cluster], across: dict[tuple[int, int], int], size: float) -> _Crossing:
        pipes, topology = np.array(list(across.values())), inside.network.topology
        busy = np.bincount(inside.network.hops.take(pipes).values, minlength=topology.link_count) / topology.bandwidth
        late_s = float(inside.network.latency_s[pipes].min())
        once_s = size * float(busy.max()) / len(members[0].ranks) ** 2
        return cls(inside, members, across, late_s, once_s, size, [0.0] * topology.link_count)

    @cached_property
    def pipes_across(self) -> set[int]:
        return set(self.across.values())

    @cached_property
    def hops(self) -> Ragged:
        """The links of the pipes across."""
        return self.inside.network.hops.take(np.array(list(self.across.values())))

    @cached_property
    def ends(self) -> Int64:
        """int64[2, pipes across]."""
        return np.array(list(self.across)).T

    def made(self, at_s: float, left_s: float) -> Exchange | None:
        """The exchange of a part that crosses at some time; None if some rank is not reached."""
        found = Exchange()
        sent = [self._gathered(found, own, at_s, left_s) for own in self.members]
        if not all(sent):
            return None
        for own, bundles in zip(self.members, sent, strict=True):
            for v, bundle in bundles.items():
                for hub, came in found.complete.items():
                    if hub not in own.ranks:
                        came.append(self._sent(found, self.across[v, hub], bundle))
        for own in self.members:
            hubs = tuple(v for v in own.ranks if v in found.complete)
            found.copies.extend(self._tree(hubs, left_s - own.radius(left_s), False))
        return found

    def _gathered(self, found: Exchange, own: _Cluster, at_s: float, left_s: float) -> dict[int, Bundle]:
        """What centres have to send; what comes to hubs inside is ``found.complete``. Nothing if some rank cannot come
        to either."""
        used = (self._used() ** 2).tolist()
        centres, hubs = min(
            own.choices(at_s, left_s),
            key=lambda pair: sum(used[0][v] for v in pair[0]) + sum(used[1][v] for v in pair[1]),
        )
        alone = centres == hubs
        bundles = self._sums(found, self._tree(centres, at_s - own.radius(at_s), True, () if alone else hubs), centres)
        everyone = sum(1 << v for v in own.ranks)
        if sum(content for content, _ in bundles.values()) != everyone:
            return {}
        slack = (at_s + self.late_s - own.radii[-1]) / 2
        for hub in hubs:
            others = tuple(v for v in hubs if v != hub)
            whole = bundles if alone else self._sums(found, self._tree((hub,), slack, True, others), (hub,))
            if whole[hub][0] != everyone:
                return {}
            found.complete[hub] = list(whole[hub][1])
        return bundles

    def _tree(self, roots: tuple[int, ...], slack_s: float, inward: bool, ends: tuple[int, ...] = ()) -> Tree:
        return self.inside.tree(roots, max(slack_s, 0.0), self.load_s, self.size, inward, ends)

    def _used(self) -> Float64:
        """float64[2, nodes], how much the links across from each rank, and to it, have carried."""
        carried = self.hops.reduced(np.add, np.array(self.load_s)[self.hops.values])
        return np.array([np.bincount(own, carried) for own in self.ends])

    def _sums(self, found: Exchange, tree: Tree, roots: tuple[int, ...]) -> dict[int, Bundle]:
        """What comes to the roots over a tree, with their own."""
        bundles: dict[int, Bundle] = {v: (1 << v, ()) for v in (*roots, *(v for _, v in tree))}
        heads = self.inside.network.dst.tolist()
        for pipe, v in reversed(tree):
            k, w = self._sent(found, pipe, bundles[v]), heads[pipe]
            bundles[w] = bundles[w][0] | bundles[v][0], (*bundles[w][1], k)
        return {v: bundles[v] for v in roots}

    def _sent(self, found: Exchange, pipe: int, bundle: Bundle) -> int:
        """The message of a bundle over a pipe, made where there is none."""
        content, after = bundle
        k = found.index.setdefault((pipe, content), len(found.messages))
        if k == len(found.messages):
            found.messages.append(Message(pipe, content, after))
            found.into.setdefault(int(self.inside.network.dst[pipe]), []).append(k)
            if pipe in self.pipes_across:
                for link in self.inside.hops[pipe]:
                    self.load_s[link] += self.size * self.inside.per_byte[pipe]
        return k
