"""Cuts and parts of a symmetric network: blocks of its group, one of each kind.

Where a group maps every rank to every other one (:mod:`stretto.symmetry`), a *block* is what some of its generators
map one rank to: a server, a rail, a pod, one GPU. All images of a block are alike, so one min-cut says what can enter
each of them. Among the sets with the largest ratio of bytes to width there is one that every element maps to itself or
to a disjoint set: this holds for the best partition of an AllReduce, and for the best cut of an AllGather. So it is
enough to try blocks, if every set of that kind is what some generators map one rank to. This takes time near linear in
links, where a search takes a min-cut for each rank.

Halves of what one generator maps a rank to are tried as cuts, too: an AllToAll on a torus has its bottleneck there.

Times of arrival at a cut, and of the way inside, are those of :mod:`.cuts`, from one search for shortest ways from
all its links together. Windows of partitions are those of :mod:`.windows`, of one part in the place of all
(:mod:`.block_windows`).
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
from .exact import Arcs, in_units

UNLIMITED = 1 << 61

MOST_TAILS = 4
"""Lengths of the way inside a cut of which each is tried as the least that bytes still travel, as in :mod:`.cuts`."""


class Block(NamedTuple):
    """A set of ranks that each element maps to itself or to a disjoint set, and the nodes of a narrow cut around it."""

    generators: tuple[int, ...]  # whose images it is
    inside: Bool  # bool[nodes]
    ranks: Bool  # bool[nodes], the ranks inside


def rank_symmetry(topology: Topology, collective: Collective) -> Symmetry | None:
    """A group that maps each rank to every other one, by one element each; None if none was found."""
    if topology.planes or topology.changes or len(collective.ranks) < 2:
        return None
    among = np.zeros(topology.node_count, dtype=np.int64)
    among[collective.ranks] = 1
    colours = among if len(collective.ranks) < len(topology.accelerators) else None
    symmetry = find_symmetry(topology, colours, counted=among == 1)
    return symmetry if symmetry is not None and symmetry.size == len(collective.ranks) else None


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a network around one of its ranks.

    Attributes:
        symmetry: a group that maps each rank to every other one.
        ranks: bool[nodes].
        centre: the rank that all blocks have inside.
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

    def whole(self) -> Iterator[Block]:
        """The block of each set of generators, small sets first, without that of all generators."""
        count = len(self.symmetry.orders)
        for size in range(count):
            for chosen in combinations(range(count), size):
                yield self._block(chosen, self._images(self._elements(chosen)))

    def halves(self) -> Iterator[Block]:
        """For each generator the half of all ranks to which it maps the centre with the lower half of its exponents."""
        orders = self.symmetry.orders
        every = np.arange(self.symmetry.size)
        for k in np.flatnonzero(orders >= 4).tolist():
            exponent = self.symmetry.exponents(every)[:, k]
            yield self._block((), self._images(every[exponent < orders[k] // 2]))

    def images(self, block: Block) -> Bool:
        """bool[parts, nodes], a block of generators and its images under the others."""
        rest = self._elements(tuple(k for k in range(len(self.symmetry.orders)) if k not in block.generators))
        out = np.zeros((len(rest), self.topology.node_count), dtype=np.bool_)
        members = np.flatnonzero(block.inside)
        out[np.arange(len(rest))[:, None], self.symmetry.image(rest[:, None], members)] = True
        return out

    def complement(self, block: Block) -> Block:
        """All ranks that are not in a block."""
        return self._block((), self.ranks & ~block.ranks)

    def elsewhere(self, block: Block) -> Block:
        """The image of a block of generators under an element that moves it."""
        other = next(k for k in range(len(self.symmetry.orders)) if k not in block.generators)
        image = self.symmetry.generators[other]
        moved = [np.zeros_like(block.ranks), np.zeros_like(block.ranks)]
        moved[0][image[block.inside]], moved[1][image[block.ranks]] = True, True
        return Block((), *moved)

    def _elements(self, generators: tuple[int, ...]) -> Int64:
        """int64[elements], the elements of the group that the generators make."""
        elements = np.zeros(1, dtype=np.int64)
        for k in generators:
            powers = np.arange(self.symmetry.orders[k]) * self.symmetry.strides[k]
            elements = (elements[:, None] + powers).reshape(-1)
        return elements

    def _images(self, elements: Int64) -> Bool:
        out = np.zeros(self.topology.node_count, dtype=np.bool_)
        out[self.symmetry.image(elements, np.array(self.centre))] = True
        return out

    def _block(self, generators: tuple[int, ...], own: Bool) -> Block:
        return Block(generators, narrowest(self.topology, self.units, self.ranks, own), own)


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

    @property
    def total_bytes(self) -> float:
        return float(self.weight.sum() * self.size.sum())

    def seconds(self, width: float) -> float:
        """The bound of a cut: b bytes that come no sooner than r enter by r + b / width, and then travel on."""
        order = np.argsort(-self.arrive_s)
        carried, best = np.cumsum(self.weight[order]) / width, 0.0
        for least in np.unique(np.quantile(self.tail_s, np.linspace(0.0, 1.0, MOST_TAILS), method="nearest")).tolist():
            size = float(self.size[self.tail_s >= least].sum())
            best = max(best, float((self.arrive_s[order] + carried * size).max()) + least)
        return best


def load_into(topology: Topology, c: Collective, block: Block) -> Load | None:
    """The bytes that must enter a set of ranks; None if there are none. Messages cost nothing here."""
    inside, own = block.inside, block.ranks[c.ranks]
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    begin, entered = np.full(topology.node_count, np.inf), np.full(topology.node_count, np.inf)
    np.minimum.at(begin, topology.src[links], topology.latency_s[links])
    entered[topology.dst[links]] = 0.0
    entry = c.start_s + spread(topology, begin, topology.latency_s, backward=True)[c.ranks]
    way = spread(topology, entered, topology.latency_s)[c.ranks]
    piece = split_evenly(c.size_bytes, 1 if c.traits.whole else len(c.ranks)).astype(np.float64)
    rooted = np.arange(len(c.ranks)) == c.root
    senders = rooted if c.traits.held == "root" else np.ones(len(c.ranks), dtype=np.bool_)
    receivers = rooted if c.traits.wanted == "root" else np.ones(len(c.ranks), dtype=np.bool_)
    senders, receivers = senders & ~own, receivers & own
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
