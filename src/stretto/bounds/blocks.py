"""Cuts of a symmetric network: sets of ranks that its group maps to themselves or to sets that look alike.

A group (:mod:`stretto.symmetry`) leaves orbits of ranks; *leads* are the ranks that stand for them. In a cluster where
all ranks look alike there is one lead. Where a NIC is slow or servers are of two kinds there are several, and some
ranks, such as those of the broken server, are moved by no element: they are leads of their own.

What a set can be entered by, its images can. So sets are tried that have a lead inside, each once: what some of the
generators map a lead to, whole orbits, halves of a cycle, servers and sites, their complements; and the bottleneck of
all cuts, from a min-cut for each lead (:mod:`.exact`). This takes time near linear in links, where a search takes a
min-cut for each rank.

Among the sets with the largest ratio of bytes to width there is one that every element maps to itself or to a disjoint
set. So where all ranks look alike what generators map one rank to is all that need be tried, if every such set is a
union of images of generators. Halves of a cycle are tried as an AllToAll on a torus has its bottleneck there.

Times of arrival at a cut, and of the way inside, are those of :mod:`.cuts`, from one search for shortest ways from
all its links together. Partitions are found in :mod:`.block_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.collective import Collective
from ..model.kinds import split_evenly
from ..model.symmetry import Symmetry
from ..model.topology import Topology
from ..symmetry import find_symmetry
from .candidates import clusters
from .exact import Arcs, in_units

UNLIMITED = 1 << 61

MOST_TAILS = 4
"""Lengths of the way inside a cut of which each is tried as the least that bytes still travel, as in :mod:`.cuts`."""

LEAST_RANKS = 4
"""Ranks for each orbit of ranks, at least: where there are fewer, a search takes no longer."""

MOST_SUBSETS = 256
"""Sets of generators that are tried; of a group with more of them only those of few generators, and of all but few."""


class Block(NamedTuple):
    """Ranks, with the switches and routers that narrow what can enter them."""

    inside: Bool  # bool[nodes]
    ranks: Bool  # bool[nodes], the ranks inside


def rank_symmetry(topology: Topology, collective: Collective) -> Symmetry | None:
    """A group under which each orbit of ranks has a rank for each element, or is one rank; None if none was found, or
    if it leaves many orbits."""
    if topology.planes or topology.changes or len(collective.ranks) < 2:
        return None
    among = np.zeros(topology.node_count, dtype=np.int64)
    among[collective.ranks] = 1
    colours = among if len(collective.ranks) < len(topology.accelerators) else None
    symmetry = find_symmetry(topology, colours, counted=among == 1)
    if symmetry is None:
        return None
    orbits = len(np.unique(symmetry.node_orbits[collective.ranks]))
    return symmetry if orbits == 1 or orbits * LEAST_RANKS <= len(collective.ranks) else None


@dataclass(frozen=True, eq=False)
class Blocks:
    """The sets of ranks of a symmetric network that are worth trying.

    Attributes:
        symmetry: a group under which each orbit of ranks has a rank for each element, or is one rank.
        ranks: bool[nodes].
        centre: the rank that stands for its orbit, such as the root.
    """

    symmetry: Symmetry
    ranks: Bool
    centre: int

    @property
    def topology(self) -> Topology:
        return self.symmetry.topology

    @cached_property
    def units(self) -> Int64:
        """int64[links], bandwidths as multiples of their common unit; rounded up to 24 bits where there is none."""
        return in_units(self.topology.bandwidth, upward=True)

    @cached_property
    def leads(self) -> Int64:
        """int64[orbits], the rank that stands for each orbit of ranks, the centre first."""
        firsts = np.unique(self.symmetry.node_orbits[self.ranks])
        others = firsts[firsts != self.symmetry.node_orbits[self.centre]]
        return np.concatenate(([self.centre], others)).astype(np.int64)

    @cached_property
    def lead_of(self) -> Int64:
        """int64[nodes], the place of its orbit's lead among the leads; -1 for nodes outside the collective."""
        place = np.full(self.topology.node_count, -1, dtype=np.int64)
        place[self.symmetry.node_orbits[self.leads]] = np.arange(len(self.leads))
        return np.where(self.ranks, place[self.symmetry.node_orbits], -1)

    @cached_property
    def element(self) -> Int64:
        """int64[nodes], the element that maps a rank's lead to it; 0 for ranks that no element moves, and others."""
        place = np.maximum(self.symmetry.place, 0)
        own = self.symmetry.product(place, self.symmetry.inverse(place[self.leads[self.lead_of]]))
        return np.where(self.ranks & (self.symmetry.place >= 0), own, 0)

    @cached_property
    def orbit_sizes(self) -> Int64:
        """int64[orbits], the ranks of each."""
        return np.bincount(self.lead_of[self.ranks], minlength=len(self.leads))

    @cached_property
    def subgroups(self) -> list[Int64]:
        """The elements that each set of generators makes, of the set of all of them too; few generators first."""
        count = len(self.symmetry.orders)
        sets = [chosen for size in range(count + 1) for chosen in combinations(range(count), size)]
        few = sets if len(sets) <= MOST_SUBSETS else [*sets[: MOST_SUBSETS // 2], *sets[-MOST_SUBSETS // 2 :]]
        return [self._elements(chosen) for chosen in few]

    @cached_property
    def groups(self) -> list[Int64]:
        """Ways to divide the accelerators into sites or servers: int64[nodes] each, a label for each, -1 for others."""
        found: dict[bytes, Int64] = {}
        for groups in clusters(self.topology):
            label = np.full(self.topology.node_count, -1, dtype=np.int64)
            for number, group in enumerate(groups):
                label[group] = number
            if len(np.unique(label[self.ranks])) > 1:
                found.setdefault(label.tobytes(), label)
        return list(found.values())

    def sets(self) -> list[Bool]:
        """bool[nodes] each, the sets of ranks to try, small ones first."""
        found: dict[bytes, Bool] = {}
        for own in self._sets():
            if own.any() and not np.array_equal(own, self.ranks):
                found.setdefault(own.tobytes(), own)
        return sorted(found.values(), key=lambda own: int(own.sum()))

    def _sets(self) -> Iterator[Bool]:
        for elements in self.subgroups:
            for lead in self.leads.tolist():
                yield self._images(elements, lead)
        for label in self.groups:
            for number in np.unique(label[self.leads]).tolist():
                yield self.ranks & (label == number)
        orders, every = self.symmetry.orders, np.arange(self.symmetry.size)
        moved = self.ranks & (self.symmetry.place >= 0)
        for k in np.flatnonzero(orders >= 4).tolist():
            half = self.symmetry.exponents(every)[:, k] < orders[k] // 2
            yield moved & half[self.element]

    def block(self, own: Bool) -> Block:
        """A set of ranks with what narrows it."""
        return Block(narrowest(self.topology, self.units, self.ranks, own), own)

    def toggled(self, own: Bool) -> Bool | None:
        """An image of a set of ranks that has the centre inside if the set has not, and the other way round; None if
        there is none."""
        like = np.flatnonzero((self.lead_of == 0) & (own != own[self.centre]))
        if not len(like) or self.orbit_sizes[0] == 1:
            return None
        # the element that maps the first of these ranks to the centre
        back = self.symmetry.inverse(self.element[like[:1]])
        image = np.zeros_like(own)
        image[self.symmetry.image(back, np.flatnonzero(own))] = True
        return image

    def _elements(self, generators: tuple[int, ...]) -> Int64:
        """int64[elements], the elements of the group that the generators make."""
        elements = np.zeros(1, dtype=np.int64)
        for k in generators:
            powers = np.arange(self.symmetry.orders[k]) * self.symmetry.strides[k]
            elements = (elements[:, None] + powers).reshape(-1)
        return elements

    def _images(self, elements: Int64, node: int) -> Bool:
        out = np.zeros(self.topology.node_count, dtype=np.bool_)
        out[self.symmetry.image(elements, np.array(node))] = True
        return out


def narrowest(topology: Topology, units: Int64, ranks: Bool, own: Bool) -> Bool:
    """bool[nodes]: the set with the least bandwidth into it that has the ranks ``own`` and no other rank.

    A min-cut between the ranks ``own`` and the other ranks decides on which side nodes without a rank are. Those that
    are joined to ranks alone are decided one by one; the flow is for those joined to each other.
    """
    src, dst = topology.src, topology.dst
    free = ~ranks
    into = np.bincount(dst[~own[src] & ranks[src]], units[~own[src] & ranks[src]], topology.node_count)
    out = np.bincount(src[own[dst]], units[own[dst]], topology.node_count)
    inside = own | (free & (into < out))
    between = free[src] & free[dst]
    met = np.union1d(src[between], dst[between])
    if not len(met):
        return inside
    number = np.full(topology.node_count, -1, dtype=np.int64)
    number[met] = np.arange(len(met))
    source, target = len(met), len(met) + 1
    every = np.arange(len(met))
    # arcs lead backward: from the ranks inside, over links, to the ranks outside
    tails = np.concatenate((number[dst[between]], every, np.full(len(met), source)))
    heads = np.concatenate((number[src[between]], np.full(len(met), target), every))
    arcs = Arcs.of(tails, heads, len(met) + 2)
    capacity = arcs.capacities(np.concatenate((units[between], into[met].astype(np.int64), out[met].astype(np.int64))))
    side = arcs.first_violated(
        capacity, np.array([source]), 0, target, UNLIMITED, UNLIMITED, 50.0 * len(tails)
    )[1]  # fmt: skip
    inside[met] = side[: len(met)]
    return inside


def spread(topology: Topology, start_s: Float64, weight: Float64, backward: bool = False) -> Float64:
    """float64[nodes], the least of ``start_s`` and ways from there, over links of these weights (or against them)."""
    tail, head = (topology.dst, topology.src) if backward else (topology.src, topology.dst)
    seconds = start_s.copy()
    while True:
        before = seconds.copy()
        np.minimum.at(seconds, head, before[tail] + weight)
        if np.array_equal(before, seconds):
            return seconds


def from_node(topology: Topology, node: int, weight: Float64, backward: bool = False) -> Float64:
    """float64[nodes], the least ways from one node (or to it)."""
    start_s = np.full(topology.node_count, np.inf)
    start_s[node] = 0.0
    return spread(topology, start_s, weight, backward)


class Load(NamedTuple):
    """What must enter a set: pieces of senders for receivers, ``weight x size`` bytes each, and when."""

    arrive_s: Float64  # float64[senders], when each sender's bytes can have come inside
    weight: Float64  # float64[senders]
    tail_s: Float64  # float64[receivers], how long it then takes to each receiver
    size: Float64  # float64[receivers]

    def seconds(self, width: float) -> float:
        """The bound of a cut: b bytes that come no sooner than r enter by r + b / width, and then travel on."""
        order = np.argsort(-self.arrive_s)
        carried, best = np.cumsum(self.weight[order]) / width, 0.0
        for least in np.unique(np.quantile(self.tail_s, np.linspace(0.0, 1.0, MOST_TAILS), method="nearest")).tolist():
            size = float(self.size[self.tail_s >= least].sum())
            best = max(best, float((self.arrive_s[order] + carried * size).max()) + least)
        return best


def _ends(c: Collective, block: Block) -> tuple[Bool, Bool]:
    """bool[ranks] each: which ranks outside hold what must enter a set, and which inside want it."""
    own = block.ranks[c.ranks]
    rooted = np.arange(len(c.ranks)) == c.root
    senders = rooted if c.traits.held == "root" else np.ones(len(c.ranks), dtype=np.bool_)
    receivers = rooted if c.traits.wanted == "root" else np.ones(len(c.ranks), dtype=np.bool_)
    return senders & ~own, receivers & own


def bytes_into(c: Collective, block: Block) -> float:
    """The bytes that must enter a set of ranks."""
    senders, receivers = (int(some.sum()) for some in _ends(c, block))
    if not senders or not receivers:
        return 0.0
    if c.traits.whole:
        return float(c.size_bytes)
    piece = split_evenly(c.size_bytes, len(c.ranks)).astype(np.float64)
    alone = piece[_ends(c, block)[1]] if c.traits.wanted in ("own", "receiver") else piece[_ends(c, block)[0]]
    return float(alone.sum()) * (senders if c.traits.pieces == "pair" else 1)


def load_into(topology: Topology, c: Collective, block: Block) -> Load | None:
    """The bytes that must enter a set of ranks; None if there are none. Messages cost nothing here."""
    inside = block.inside
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    begin, entered = np.full(topology.node_count, np.inf), np.full(topology.node_count, np.inf)
    np.minimum.at(begin, topology.src[links], topology.latency_s[links])
    entered[topology.dst[links]] = 0.0
    entry = c.start_s + spread(topology, begin, topology.latency_s, backward=True)[c.ranks]
    way = spread(topology, entered, topology.latency_s)[c.ranks]
    piece = split_evenly(c.size_bytes, 1 if c.traits.whole else len(c.ranks)).astype(np.float64)
    senders, receivers = _ends(c, block)
    if not senders.any() or not receivers.any():
        return None
    one = np.ones(1)
    if c.reduces:  # a sum waits for the last contribution
        arrive, weight = entry[senders].max(keepdims=True), one
    else:
        arrive, weight = entry[senders], piece[senders] if c.traits.held == "own" else np.ones(int(senders.sum()))
    if c.traits.reduces_to_all:
        return Load(arrive, weight, np.zeros(1), piece)
    if c.traits.wanted == "all" or c.traits.held == "own":  # every receiver wants all bytes
        size = piece if c.traits.whole else one
        return Load(arrive, weight, way[receivers].max(keepdims=True), size)
    if c.traits.whole:
        return Load(arrive, weight, way[receivers], piece)
    return Load(arrive, weight, way[receivers], piece[receivers])
