"""AllReduce by exchange: partial sums meet, instead of all going to a root and back, when latency counts.

All contributions come to a few *hubs*, or to every rank, over trees that share their messages, and the others get
copies from there (:mod:`.exchange_trees`): with one hub in each server the servers' sums cross once. On a
hypercube with every rank a hub that is recursive doubling. The buffer is cut into parts, which go through different
exchanges: each is made as if the links were already busy with what those before it bring. How many hubs, exchanges
and parts is tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....model.arrays import Ragged
from ....model.collective import Workload
from ....model.plan import COPY, REDUCE, Plan
from ....model.topology import Topology
from ....schedule.budget import Pace
from ....schedule.dispatch import completion, dispatch
from ....schedule.pipes import Network, build_network
from ....schedule.trees import divide
from .blocks import Block, assembled
from .images import Renaming, automorphisms
from .trees import Exchange, Ways, exchange_of, hub_order

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

MOST_RANKS = 128
"""Of an AllReduce that is tried: trees of all ranks take memory and time with the square of them."""

MOST_HUBS = 64
"""Of exchanges in which every rank is a hub."""

STEEP = 10.0
"""Times the busiest link's work that a steep cost puts on it."""

MOST_PARTS = 128
"""How finely the buffer is cut at most."""

FEW, MANY = 4, 16
"""Through how many different exchanges its parts go, beside one; or a few more, as many for each hub."""

MOST_TRANSFERS = 16_000
"""Of the plans that are tried."""

MOST_OF_IMAGES = 32_000
"""Of a plan of images, of which but one is made."""

MOST_IMAGES = 512
"""How many automorphisms of the network are looked at."""

MOST_HUBS_TRIED = 3
"""How many numbers of hubs are tried."""

LESS = 0.9
"""A number of hubs is worth trying where it brings the result to all in so much less time than the one before."""

LEAST_GAIN = 0.01
"""Cutting finer goes on as long as it brings the completion so much nearer."""


@dataclass(frozen=True)
class _Shape:
    """How many hubs an exchange has, how many exchanges there are, and which of equally short ways are taken.

    Attributes:
        order: "index"; "pairs", along a colouring of the pairs; "parallel", where opposite sides of squares are one
            direction (dimensions of hypercubes), each exchange from another one on; "cells", first those that stay
            among the nodes with the same nearest hub, in every second exchange those last.
        steep: what the links carry already counts little at first, and much more where it is most.
        even: ways are as long as their latency, and what the links carry only orders those that are equally long.
    """

    hubs: int
    structures: int
    order: str = "index"
    even: bool = False
    steep: bool = False


EVERYONE = (
    *(("cells", True), ("pairs", True), ("parallel", True), ("pairs", False)),
    *(("parallel", False), ("index", True), ("index", False)),
)
"""How ways are chosen, in turn, where all ranks are hubs; the last three only among few."""

MOST_NEIGHBOURS = 8
"""Of a node whose squares are looked at."""


def exchanged(
    topology: Topology, workload: Workload, tries: int, seed: int, before_s: float, pace: Pace | None = None
) -> Plan | None:
    """The best plan by exchange that could end before a given time.

    Args:
        tries: how many shapes with few hubs, and how many with all ranks as hubs, are cut finer.
        pace: when to be content with what there is; "message" counts transfers that are made and put in order.
    Returns:
        None but for a single AllReduce among few ranks that are joined directly.
    """
    if len(workload.collectives) > 1 or workload.collectives[0].kind != "allreduce":
        return None
    c = workload.collectives[0]
    if len(c.ranks) > MOST_RANKS:
        return None
    pace = pace or Pace()
    attempt = _Attempt(topology, workload, seed, pace)
    counts = attempt.hub_counts()
    if not counts:
        return None
    most = max(count for count in counts if count <= MANY)
    many = -(-MANY // most) * most
    few = [
        _Shape(hubs, many, steep=steep) for hubs in counts[:-1] for steep in ((False, True) if hubs <= 2 else (False,))
    ]
    choices = EVERYONE if 2 * counts[-1] <= MOST_HUBS else EVERYONE[:4] if counts[-1] <= MOST_HUBS else ()
    everyone = [_Shape(counts[-1], FEW, order, even) for order, even in choices]
    finest: list[_Tried] = []
    for shapes in (few, everyone):
        finest += attempt.searched(shapes, tries, min([before_s, *(t.end_s for t in finest)]))
    finest += attempt.renamed([*few, *everyone], min([before_s, *(t.end_s for t in finest)]))
    best = min(finest, key=_Tried.rank, default=None)
    if best is None or best.plan is None:
        return None
    return dispatch(best.plan, np.zeros(best.plan.workload.chunk_count))


@dataclass(frozen=True)
class _Tried:
    """A plan of one shape with so many parts, and when it ends."""

    end_s: float
    shape: _Shape
    made: list[Exchange]
    parts: int
    plan: Plan | None

    def rank(self) -> tuple[float, int, int]:
        """What ends sooner goes first; of what ends together, what has fewer transfers and exchanges."""
        if self.plan is None:
            return np.inf, 0, 0
        return round(math.log(self.end_s) / LEAST_GAIN), self.plan.transfer_count, self.shape.structures


@dataclass(frozen=True)
class _Attempt:
    """Plans for one request."""

    topology: Topology
    workload: Workload
    seed: int
    pace: Pace

    @property
    def ranks(self) -> NDArray[np.int32]:
        return self.workload.collectives[0].ranks

    @cached_property
    def _network(self) -> Network:
        return build_network(self.topology, float(self.workload.collectives[0].size_bytes) / MANY, True, 0.0)

    def network(self, size: float) -> Network:
        """The pipes, with the costs of so many bytes."""
        network = self._network
        return replace(network, cost_s=network.latency_s + size * network.per_byte)

    def ways(self, network: Network, busy_s: Float64, shape: _Shape, number: int) -> Ways:
        """The ways of one exchange of a shape, where pipes are busy so long with those before it."""
        kind = np.zeros(len(busy_s), dtype=np.int64)
        if shape.order == "pairs":
            kind = _colours(network)
        elif shape.order == "parallel":
            kinds, kind = np.unique(_parallels(network), return_inverse=True)
            kind = (kind.reshape(-1) + number) % len(kinds)
        elif shape.order == "cells":
            kind = self.apart[network.src, network.dst] * (-1) ** number
        by_kind = np.lexsort((busy_s, kind))
        rank = np.empty(len(kind), dtype=np.int64)
        rank[by_kind] = np.arange(len(kind))
        even = shape.even and float(network.latency_s.min()) > 0
        if shape.steep and busy_s.max() > 0:
            busy_s = STEEP * busy_s * (busy_s / busy_s.max()) ** 4
        cost = network.latency_s if even else network.cost_s + busy_s
        return Ways.of(network, self.ranks, cost, rank)

    @cached_property
    def _latency(self) -> tuple[list[int], list[float], Float64]:
        """Hubs in their order, when the result is everywhere with so many, and distances, by latency alone."""
        network = self.network(1.0)
        ways = self.ways(network, np.zeros(len(network.src)), _Shape(1, 1), 0)
        order, ends = hub_order(ways, self.ranks, len(self.ranks), np.random.default_rng(self.seed))
        return order, ends, ways.far

    @cached_property
    def apart(self) -> Int64:
        """int64[nodes, nodes], for how many of the numbers of hubs two nodes have different hubs nearest to them."""
        order, _, far = self._latency
        found = np.zeros((self.topology.node_count, self.topology.node_count), dtype=np.int64)
        for count in self.hub_counts():
            cell = far[:, order[:count]].argmin(axis=1)
            found += cell[:, None] != cell[None, :]
        return found

    def hub_counts(self) -> list[int]:
        """How many hubs are tried: one, two, all, and those that bring the result to all sooner, by latency alone."""
        ends = self._latency[1]
        if not np.isfinite(ends[-1]):
            return []
        counts = [1]
        for count in range(2, len(ends)):
            if len(counts) < MOST_HUBS_TRIED and ends[count - 1] < LESS * ends[counts[-1] - 1]:
                counts.append(count)
        return sorted({*counts, min(2, len(ends)), len(ends)})

    def searched(self, shapes: list[_Shape], tries: int, before_s: float) -> list[_Tried]:
        """The best of some shapes, with more or fewer exchanges, cut as finely as pays."""
        found: list[_Tried] = []
        for shape in shapes:
            if not (found and self.pace.late):
                found.append(self.tried(shape, shape.structures, before_s))
        for t in sorted(found, key=_Tried.rank)[:tries]:
            for s in (1, FEW, MANY):
                if s != t.shape.structures and not self.pace.late:
                    found.append(self.tried(replace(t.shape, structures=s), max(s, FEW), before_s))
        return [self.finest(t, before_s) for t in sorted(found, key=_Tried.rank)[:tries]]

    def tried(self, shape: _Shape, parts: int, before_s: float) -> _Tried:
        """The buffer in so many parts, which take turns in the exchanges of a shape."""
        made, load_s = self.made(shape, parts, before_s)
        tried = _Tried(np.inf, shape, made, parts, None)
        hopeless = float(load_s.max()) >= before_s or len(made) < shape.structures or not self.has_time(made[0], parts)
        return tried if hopeless else self.cut(tried, parts)

    def made(self, shape: _Shape, parts: int, before_s: float) -> tuple[list[Exchange], Float64]:
        """The exchanges of a shape, and for how long each link is busy; no further ones once that is too long, or it is
        too late."""
        c = self.workload.collectives[0]
        network = self.network(float(c.size_bytes) / parts)
        load_s = np.zeros(self.topology.link_count)
        rng = np.random.default_rng((self.seed, shape.hubs, shape.structures))
        made: list[Exchange] = []
        while not made or (len(made) < shape.structures and float(load_s.max()) < before_s and not self.pace.late):
            busy = network.hops.reduced(np.maximum, load_s[network.hops.values])
            ways = self.ways(network, busy, shape, len(made))
            hubs = hub_order(ways, self.ranks, shape.hubs, rng)[0]
            made.append(exchange_of(ways, self.ranks, hubs, float(c.size_bytes) / shape.structures))
            links = network.hops.take(made[-1].pipes()).values
            times = np.bincount(links, minlength=len(load_s))
            load_s += times * float(c.size_bytes) / shape.structures / self.topology.bandwidth
        return made, load_s

    def renamed(self, shapes: list[_Shape], before_s: float) -> list[_Tried]:
        """One exchange of some shape, under many automorphisms of the network, if that may end before some time.

        Of all shapes the one is taken that would end first if its steps overlapped and images burdened links alike.
        """
        if self.pace.late:
            return []
        network, size = self._network, float(self.workload.collectives[0].size_bytes)
        perms = automorphisms(self.topology, self.ranks, MOST_IMAGES, self.seed)
        renaming = Renaming.of(self.topology, network.hops, perms)
        if renaming is None:
            return []
        found: list[tuple[float, Int64, Exchange, _Shape]] = []
        for shape in shapes:
            if found and self.pace.late:
                break
            (made,), _ = self.made(replace(shape, structures=1), 1, np.inf)
            pipes, starts = made.pipes(), made.starts_s(network)
            step = np.unique(np.round(starts, 12), return_inverse=True)[1].reshape(-1)
            hops = network.hops.take(pipes)
            busy = renaming.busy_s(self.topology, hops.values, step[hops.owners], size)
            late = float((starts + network.latency_s[pipes]).max())
            found.append((max(late + busy.max(), busy.sum(axis=1).max()), step, made, shape))
        ends, step, made, shape = min(found, key=lambda f: f[0])
        if ends > before_s:
            return []
        most = min(MOST_OF_IMAGES, self.pace.room("message")) // len(step)
        if most < 1:
            return []
        count = min(len(perms), MOST_PARTS, int(most))
        chosen = renaming.spread(made.pipes(), step, count)
        images = [made.renamed(renaming.node[k].tolist(), renaming.pipe[k].tolist()) for k in chosen]
        whole = self.cut(_Tried(np.inf, replace(shape, structures=count), images, count, None), count)
        return [self.finer(whole, before_s)]

    def has_time(self, made: Exchange, parts: int) -> bool:
        """Whether so many parts through exchanges like this one can be put in order in time."""
        return self.pace.allows(message=parts * len(made.pipes()))

    def cut(self, tried: _Tried, parts: int) -> _Tried:
        """The same exchanges with so many parts, as far as there are bytes."""
        c = self.workload.collectives[0]
        parts = max(1, min(parts, int(c.chunk_bytes.min())))
        messages = parts * len(tried.made[0].pipes())
        with self.pace.measured("message", messages):
            finer = Workload((divide(c, parts)[0],))
            network = self.network(float(finer.chunk_bytes.mean()))
            plan = planned(self.topology, finer, network, tried.made)
            plan = dispatch(plan, np.zeros(finer.chunk_count), rounds=1)
        return replace(tried, end_s=completion(plan), parts=parts, plan=plan)

    def finest(self, tried: _Tried, before_s: float) -> _Tried:
        """The same exchanges with as many parts as pay, from one each on."""
        if tried.plan is None or not self.has_time(tried.made[0], tried.parts):
            return tried
        coarse = tried if tried.parts == tried.shape.structures else self.cut(tried, tried.shape.structures)
        return self.finer(coarse, before_s)

    def finer(self, best: _Tried, before_s: float) -> _Tried:
        """The same exchanges with twice as many parts, as often as that pays.

        What parts wait for each other is halved with them: if all the rest takes too long they are not cut further.
        """
        while best.plan is not None and best.parts < MOST_PARTS and best.plan.transfer_count <= MOST_TRANSFERS / 1.9:
            if not self.has_time(best.made[0], 2 * best.parts):
                break
            finer = self.cut(best, 2 * best.parts)
            if finer.end_s > best.end_s * (1 - LEAST_GAIN):
                break
            rest_s = 2 * finer.end_s - best.end_s
            best = finer
            if rest_s >= before_s:
                break
        return best


def _colours(network: Network) -> Int64:
    """int64[pipes]: a proper colouring of the pairs, cheap ones first, that orders what is summed before what."""
    colours = np.zeros(len(network.src), dtype=np.int64)
    taken: dict[int, set[int]] = {}
    pairs: dict[tuple[int, int], int] = {}
    for p in np.argsort(np.round(network.cost_s / network.cost_s.max(), 6), kind="stable").tolist():
        a, b = int(network.src[p]), int(network.dst[p])
        key = (min(a, b), max(a, b))
        if key not in pairs:
            colour = 0
            while colour in taken.setdefault(a, set()) or colour in taken.setdefault(b, set()):
                colour += 1
            pairs[key] = colour
            taken[a].add(colour)
            taken[b].add(colour)
        colours[p] = pairs[key]
    return colours


def _parallels(network: Network) -> Int64:
    """int64[pipes]: pairs that are opposite sides of a square without diagonals, and those parallel to these, alike."""
    pairs = sorted({(min(a, b), max(a, b)) for a, b in zip(network.src.tolist(), network.dst.tolist(), strict=True)})
    beside: dict[int, set[int]] = {}
    for a, b in pairs:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    first = {pair: pair for pair in pairs}

    def leader(pair: tuple[int, int]) -> tuple[int, int]:
        while first[pair] != pair:
            pair = first[pair]
        return pair

    for a, b in pairs:
        if max(len(beside[a]), len(beside[b])) <= MOST_NEIGHBOURS:
            for c in beside[a] - beside[b] - {b}:
                for d in (beside[b] & beside[c]) - beside[a] - {a}:
                    one, other = sorted((leader((a, b)), leader((min(c, d), max(c, d)))))
                    first[other] = one
    number = {pair: k for k, pair in enumerate(pairs)}
    ends = zip(network.src.tolist(), network.dst.tolist(), strict=True)
    return np.array([number[leader((min(a, b), max(a, b)))] for a, b in ends], dtype=np.int64)


def planned(topology: Topology, workload: Workload, network: Network, made: list[Exchange]) -> Plan:
    """Every chunk by one of the exchanges, in turn, as a plan in ready-order."""
    return assembled(topology, workload, [_block(network, exchange) for exchange in made])


def _block(network: Network, exchange: Exchange) -> Block:
    after = [sorted(set(m.after)) for m in exchange.messages]
    last = {v: list(own) for v, own in exchange.complete.items()}
    for p, v in exchange.copies:
        # a copy replaces what was summed here on its way elsewhere
        summed = exchange.into.get(v, [])
        last[v] = [*summed, len(after)]
        after.append(sorted({*last[int(network.src[p])], *summed}))
    pipes, op = exchange.pipes(), np.repeat([REDUCE, COPY], [len(exchange.messages), len(exchange.copies)])
    return Block(network.src[pipes], network.dst[pipes], op, network.hops.take(pipes), Ragged.of(after))
