"""Exchanges of clusters in which sums cross before they are whole, and come in at several ranks at once.

Where slow links join all ranks of some clusters, a sum of a whole cluster cannot cross before its farthest rank has
come, nor be of use if it comes in so late that it does not reach all of the other cluster. Meanwhile what joins them
would be idle. So each part of the buffer crosses at a time t of its own, from as few ranks, *centres*, as all others of
their cluster can come to by t, to as few, *hubs*, as all others there can be reached from in what is left of the time x
for paths inside. Let N(r) be the fewest ranks so that no rank of a cluster is farther than r from all of them, and u
the seconds for what joins the clusters to carry the buffer once. Then x suffices if 1 / (u N(t) N(x - t)), integrated
over t from 0 to x, is 1. Hubs get the sum of their own cluster over trees of their own, while sums cross.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np

from ....model.arrays import Bool, Float64
from ....model.collective import Workload
from ....model.plan import Plan
from ....schedule.cutting import cut_as_pays
from ....schedule.dispatch import dispatch
from ....schedule.trees import divide
from ...registry import Request
from .blocks import plan_exchanges
from .clusters import Inside, alike_clusters
from .trees import Bundle, Exchange, Tree

Ranks = tuple[int, ...]

MOST_SETS = 20_000
"""Sets of ranks that are looked at to find the fewest centres."""

MOST_KEPT = 16
"""Sets of the fewest centres that are kept."""

TURNS = 64
"""Sets that take turns to see how evenly they use links."""

FEWER = 0.95
"""Share of the ranks of a smaller radius below which a larger radius is of use."""

PARTS = 96
"""Parts of the buffer."""

IDLE = 1.1
"""Times the seconds for which crossing would take all that joins the clusters: both ends of a link must be free."""

STEPS = 200
"""Steps into which the time inside is divided."""


def plan_crossings(request: Request) -> Plan | None:
    """A timed plan of a single AllReduce; the request's budget has the planner's costs.

    Returns:
        None where there are no clusters of equally many ranks, each rank joined to all ranks of other clusters.
    """
    c = request.workload.collectives[0]
    inside = alike_clusters(request.topology, c)
    parts = min(PARTS, int(c.chunk_bytes.min()))
    if inside is None or parts < 1:
        return None
    each, others = len(inside.clusters[0]), len(inside.clusters) - 1
    if len(inside.across) < len(c.ranks) * others * each:
        return None
    use = _use_across(inside)
    members = [_Cluster.of(inside, ranks.tolist(), use[:, ranks]) for ranks in inside.clusters]
    if not all(cluster.radii for cluster in members):
        return None
    # each part from each rank to each rank of the other clusters, divided by the pairs of ranks of two clusters
    once_s = c.size_bytes * float(use[0].sum(axis=0).max()) / each**2

    def cut(parts: int) -> Plan | None:
        builder = _Builder(inside, members, use, c.size_bytes / parts, [0.0] * request.topology.link_count)
        times = _times(members, IDLE * once_s, parts)
        built = [builder.exchange(at_s, left_s) for at_s, left_s in times]
        exchanges = [exchange for exchange in built if exchange is not None]
        if len(exchanges) < parts:
            return None
        finer = Workload((divide(c, parts)[0],))
        plan = plan_exchanges(request.topology, finer, inside.network, exchanges)
        request.budget.spend(message=plan.transfer_count)
        return dispatch(plan, np.zeros(finer.chunk_count), request.budget, apart=False)

    return cut_as_pays(request.topology, cut, parts)


def _use_across(inside: Inside) -> Float64:
    """float64[2, nodes, links], seconds a byte on links across if nodes send to (0) or get from (1) all others."""
    topology = inside.network.topology
    use = np.zeros((2, topology.node_count, topology.link_count))
    for ends, pipe in inside.across.items():
        links = inside.hops[pipe]
        use[0, ends[0], links] += 1.0 / topology.bandwidth[links]
        use[1, ends[1], links] += 1.0 / topology.bandwidth[links]
    return use


@dataclass(frozen=True)
class _Cluster:
    """The ranks of a cluster.

    Attributes:
        radii: seconds, least first.
        sets: for each radius some sets of the fewest ranks so that no rank is farther than it from all of a set.
        load: for each radius how many ranks that send alike would burden the links across as much as its sets do.
        pairs: of centres and hubs, for two radii, as far as they were asked for.
    """

    inside: Inside
    ranks: list[int]
    radii: list[float]
    sets: list[list[Ranks]]
    load: list[float]
    pairs: dict[tuple[int, int], list[tuple[Ranks, Ranks]]] = field(default_factory=dict)

    @classmethod
    def of(cls, inside: Inside, ranks: list[int], use: Float64) -> _Cluster:
        """No radii if not all ranks are joined; ``use`` is that of its ranks alone."""
        cluster = cls(inside, ranks, [], [], [])
        far = inside.paths.distance[np.ix_(ranks, ranks)]
        # there and back
        far = np.maximum(far, far.T)
        if not np.isfinite(far).all():
            return cluster
        far = np.round(far / max(float(far.max()), 1e-300), 9) * float(far.max())
        for radius in np.unique(far).tolist():
            sets = _fewest(far <= radius)
            load = max(_load(end_use, sets) for end_use in use) if sets else np.inf
            if sets and (not cluster.load or load < cluster.load[-1] * FEWER):
                cluster.radii.append(radius)
                cluster.sets.append([tuple(ranks[k] for k in chosen) for chosen in sets])
                cluster.load.append(load)
        return cluster

    def level(self, within_s: float) -> int:
        """Which radius is the largest up to some time, -1 if none is."""
        return bisect_right(self.radii, within_s * (1 + 1e-9)) - 1

    def choices(self, at_s: float, left_s: float) -> list[tuple[Ranks, Ranks]]:
        """Centres to which all others come in some time, and hubs from which all others are reached in what is left.

        One rank may be both; else paths to centres do not lead through hubs, as what comes to a hub must be its own
        tree alone.
        """
        level = self.level(at_s), self.level(left_s)
        if min(level) < 0:
            return []
        if level not in self.pairs:
            pairs = [(centres, hubs) for centres in self.sets[level[0]] for hubs in self.sets[level[1]]]
            if max(len(pairs[0][0]), len(pairs[0][1])) == 1:
                pairs = [(centres, hubs) for centres, hubs in pairs if centres == hubs]
            self.pairs[level] = [pair for pair in pairs if self._leads(*pair, self.radii[level[0]])]
        return self.pairs[level]

    def _leads(self, centres: Ranks, hubs: Ranks, radius: float) -> bool:
        """Whether ranks come to centres within the radius, and to each hub, through no other hubs."""
        if len(hubs) == 1 and centres == hubs:
            return True
        if len(centres) < len(self.ranks):
            near = self.inside.near(centres, True, hubs)[self.ranks]
            if not set(centres).isdisjoint(hubs) or near.max() > radius * (1 + 1e-9):
                return False
        others = [[v for v in hubs if v != hub] for hub in hubs]
        to_hubs = (self.inside.near((hub,), True, ends) for hub, ends in zip(hubs, others, strict=True))
        return len(hubs) < len(self.ranks) and all(np.isfinite(near[self.ranks]).all() for near in to_hubs)


def _fewest(near: Bool) -> list[tuple[int, ...]]:
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
            return [tuple(rows) for rows in full[:: -(-len(full) // MOST_KEPT)].tolist()]
    return []


def _load(use: Float64, sets: list[tuple[int, ...]]) -> float:
    """How many ranks that send alike burden links as much as sets that take turns.

    Args:
        use: float64[ranks, links].
    """
    use_of_set = np.array([use[list(rows)].sum(axis=0) for rows in sets])
    total = np.zeros(use.shape[1])
    for _ in range(TURNS):
        total += use_of_set[np.argmin((total + use_of_set).max(axis=1))]
    return float(total.max() / TURNS / use.mean(axis=0).max())


def _times(members: list[_Cluster], once_s: float, parts: int) -> list[tuple[float, float]]:
    """When each part crosses, and what is left after that, seconds without the latency across; none if none can cross.

    Args:
        once_s: for what joins the clusters to carry all parts once.
    """

    def rate(at_s: float, left_s: float) -> float:
        if not all(cluster.choices(at_s, left_s) for cluster in members):
            return 0.0
        sending, receiving = (max(cluster.load[cluster.level(t)] for cluster in members) for t in (at_s, left_s))
        return 1 / (sending * receiving)

    def rates(whole_s: float) -> Float64:
        at_s = (np.arange(STEPS) + 0.5) * whole_s / STEPS
        return np.array([rate(t, whole_s - t) for t in at_s.tolist()])

    low, high = 0.0, 2 * members[0].radii[-1] + 2 * once_s
    for _ in range(20):
        whole_s = (low + high) / 2
        low, high = (whole_s, high) if rates(whole_s).mean() * whole_s < once_s else (low, whole_s)
    done = np.cumsum(rates(high))
    if done[-1] == 0:
        return []
    places = np.searchsorted(done, (np.arange(parts) + 0.5) / parts * done[-1])
    return [((k + 0.5) * high / STEPS, (STEPS - k - 0.5) * high / STEPS) for k in places.tolist()]


@dataclass(frozen=True)
class _Builder:
    """Builds an exchange for each part, over the links that carry least so far."""

    inside: Inside
    members: list[_Cluster]
    use: Float64  # see :func:`_use_across`
    size: float  # bytes of a part
    load_s: list[float]  # for each link, seconds; grows by what exchanges bring

    def exchange(self, at_s: float, left_s: float) -> Exchange | None:
        """The exchange of a part that crosses at some time; None if some rank is not reached."""
        exchange = Exchange()
        sent = [self._gather(exchange, cluster, at_s, left_s) for cluster in self.members]
        if not all(sent):
            return None
        inner = len(exchange.messages)
        exchange.swap(sent, self.inside.across)
        for message in exchange.messages[inner:]:
            self.inside.burden(self.load_s, message.pipe, self.size)
        for cluster in self.members:
            hubs = tuple(v for v in cluster.ranks if v in exchange.complete)
            exchange.copies.extend(self._tree(hubs, left_s - cluster.radii[cluster.level(left_s)], False))
        return exchange

    def _gather(self, exchange: Exchange, cluster: _Cluster, at_s: float, left_s: float) -> dict[int, Bundle]:
        """What centres have to send; ``exchange.complete`` gets what comes to hubs inside.

        Nothing if the contribution of some rank does not come to both.
        """
        sends, gets = ((self.use @ np.array(self.load_s)) ** 2).tolist()
        choices = cluster.choices(at_s, left_s)
        centres, hubs = min(choices, key=lambda pair: sum(sends[v] for v in pair[0]) + sum(gets[v] for v in pair[1]))
        same = centres == hubs
        tree = self._tree(centres, at_s - cluster.radii[cluster.level(at_s)], True, () if same else hubs)
        bundles = exchange.gather(self.inside.network, tree, centres)
        everyone = sum(1 << v for v in cluster.ranks)
        whole = sum(content for content, _ in bundles.values()) == everyone
        latency_s = min(self.inside.latency_s[p] for p in self.inside.across.values())
        slack_s = (at_s + latency_s - cluster.radii[-1]) / 2
        for hub in hubs:
            to_hub = bundles
            if not same:
                others = tuple(v for v in hubs if v != hub)
                to_hub = exchange.gather(self.inside.network, self._tree((hub,), slack_s, True, others), (hub,))
            whole = whole and to_hub[hub][0] == everyone
            exchange.complete[hub] = list(to_hub[hub][1])
        return bundles if whole else {}

    def _tree(self, roots: Ranks, slack_s: float, inward: bool, ends: Ranks = ()) -> Tree:
        return self.inside.tree(roots, max(slack_s, 0.0), self.load_s, self.size, inward, ends)
