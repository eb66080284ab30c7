"""Partitions of a symmetric network into parts that its group maps to parts: one part stands for each orbit of parts.

The best partition is found by Dilworth truncation (:mod:`.parts` says of what), orbit by orbit. Let f(S) be what can
enter a set S of ranks, less a constant. The sum of f over the parts of the best partition is the largest sum of x over
all ranks, where no set S has x(S) > f(S); and every x that no rank can exceed has this sum (Cunningham 1985). The group
maps f to itself. So all ranks of an orbit are given the same x, as large as the orbits before allow it. Then one rank
of the orbit is in a set with x(S) = f(S), and so by the group is each. For each orbit a few min-cuts say how large
(Newton's iteration on the ratio), however many ranks it has. Sets with x(S) = f(S) and their images that overlap are
in one part of the best partition.

Other nodes that add belong to some part, too. Where all ranks of a server or site are in one part, the others there
join it; those that are left all join the first part.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Int64
from ..symmetry.graph import components
from .blocks import Blocks, narrowest
from .exact import Arcs

UNLIMITED = 1 << 61
FORCED = UNLIMITED >> 8
"""Capacity of an arc that keeps a rank on its side of a min-cut."""

LARGEST = 1 << 50
"""What capacities add up to at most."""

MOST_ROUNDS = 12
"""Partitions that are improved one after the other, at most."""

MOST_CUTS = 20
"""Min-cuts for one orbit, at most."""


class Part(NamedTuple):
    """A part that stands for an orbit of parts."""

    lead: int  # the place of a lead inside among all leads
    own: Bool  # bool[nodes], nodes that add
    inside: Bool  # bool[nodes], with switches and routers where they narrow what can enter
    times: int  # how many parts look like it


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the nodes that add. The group maps the ranks of each part to the ranks of a part.

    Attributes:
        label: int64[nodes], the same for ranks in one part, and for nodes that add beside them; -1 for other nodes.
    """

    blocks: Blocks
    label: Int64

    @cached_property
    def places(self) -> tuple[Int64, Int64]:
        """For each node the lead whose part stands for the part that the node is in, and the element that maps that
        part to this one; -1 and 0 for nodes outside the collective."""
        blocks, ranks = self.blocks, np.flatnonzero(self.blocks.ranks)
        number = np.unique(self.label[ranks], return_inverse=True)[1].reshape(-1)
        size = blocks.symmetry.size
        # of the ranks of a part that of the first orbit, and of these the one of the first element
        key = np.full(int(number.max()) + 1, len(blocks.leads) * size, dtype=np.int64)
        np.minimum.at(key, number, blocks.lead_of[ranks] * size + blocks.element[ranks])
        lead, element = np.divmod(key[number], size)
        out = np.full(len(self.label), -1, dtype=np.int64), np.zeros(len(self.label), dtype=np.int64)
        out[0][ranks], out[1][ranks] = lead, element
        return out

    @cached_property
    def count(self) -> int:
        """How many parts there are."""
        return len(np.unique(self.label[self.blocks.ranks]))

    @cached_property
    def parts(self) -> list[Part]:
        """A part for each orbit of parts. Where relays join the first part, its image without them follows."""
        blocks, t = self.blocks, self.blocks.topology
        lead, _ = self.places
        other = t.adds & (self.label < 0)
        found: list[Part] = []
        for number in np.unique(lead[blocks.ranks]).tolist():
            own, times = self.label == self.label[blocks.leads[number]], len(self.elements(number))
            if other.any() and not found:
                found.append(self._part(number, own | other, 1))
                times -= 1
            if times:
                found.append(self._part(number, own, times))
        return found

    def elements(self, lead: int) -> Int64:
        """int64[parts], the elements that map the part of a lead to each part that looks like it, in order."""
        own, element = self.places
        return np.unique(element[own == lead])

    def _part(self, lead: int, own: Bool, times: int) -> Part:
        blocks = self.blocks
        return Part(lead, own, narrowest(blocks.topology, blocks.units, blocks.topology.adds, own), times)

    @cached_property
    def width(self) -> int:
        """What can enter all parts together, in the units of the blocks."""
        return sum(part.times * _width(self.blocks, part.inside) for part in self.parts)

    @property
    def seconds_per_unit(self) -> Fraction:
        """Half the receipts of each byte over what can enter all parts together."""
        return Fraction(self.count - 1, max(self.width, 1))

    @property
    def inside(self) -> Bool:
        """bool[parts, nodes], every part."""
        rows, placed = [], dict.fromkeys((part.lead for part in self.parts), 0)
        for part in self.parts:
            begin = placed[part.lead]
            placed[part.lead] += part.times
            images = self.elements(part.lead)[begin : begin + part.times]
            out = np.zeros((len(images), len(self.label)), dtype=np.bool_)
            members = np.flatnonzero(part.inside)
            out[np.arange(len(images))[:, None], self.blocks.symmetry.image(images[:, None], members)] = True
            rows.append(out)
        return np.concatenate(rows)


def _width(blocks: Blocks, inside: Bool) -> int:
    t = blocks.topology
    return int(blocks.units[~inside[t.src] & inside[t.dst]].sum())


def partitions(blocks: Blocks) -> list[Partition]:
    """Partitions to try: the best one first; single ranks, what generators make of them, sites and servers."""
    labels = [np.where(blocks.ranks, np.arange(len(blocks.ranks)), -1)]
    labels += [_orbits_under(blocks, elements) for elements in blocks.subgroups[1:]]
    labels += [np.where(blocks.ranks, group, -1) for group in blocks.groups]
    found: dict[bytes, Partition] = {}
    for label in labels:
        first = np.unique(label[blocks.ranks], return_index=True)[1]
        if len(first) > 1 and (len(first) < len(label) or label is labels[0]):
            found.setdefault(label.tobytes(), Partition(blocks, _with_others(blocks, label)))
    tried = list(found.values())
    best = max(tried, key=lambda partition: partition.seconds_per_unit)
    for _ in range(MOST_ROUNDS):
        better = _better(best)
        if better is None or better.seconds_per_unit <= best.seconds_per_unit:
            break
        best = better
    return [best, *(partition for partition in tried if partition is not best)]


def _orbits_under(blocks: Blocks, elements: Int64) -> Int64:
    """int64[nodes], for each rank the least node to which the elements of a subgroup map it; -1 for other nodes."""
    nodes = np.flatnonzero(blocks.ranks)
    label = np.full(len(blocks.ranks), -1, dtype=np.int64)
    # a subgroup's orbits: an element and the subgroup's least element beside it
    exponents = blocks.symmetry.exponents(elements).any(axis=0)
    rest = blocks.symmetry.exponents(blocks.element[nodes])
    rest[:, exponents] = 0
    label[nodes] = blocks.lead_of[nodes] * blocks.symmetry.size + blocks.symmetry.element(rest)
    return label


def _better(partition: Partition) -> Partition | None:
    """The best partition by the ratio of another one; None if it is that one, or no better."""
    blocks = partition.blocks
    search = _Search(blocks, partition.width, partition.count - 1)
    x = np.zeros(blocks.topology.node_count, dtype=np.int64)
    pairs: list[tuple[Int64, Int64]] = []
    total = 0
    for number, lead in enumerate(blocks.leads.tolist()):
        of_orbit = blocks.lead_of == number
        known = (blocks.lead_of >= 0) & (blocks.lead_of < number)
        side = (partition.label == partition.label[lead]) & (known | of_orbit)
        for _ in range(MOST_CUTS):
            value = search.value(side) - int(x[side & known].sum())
            x[of_orbit] = value // int((side & of_orbit).sum())
            gap, other = search.least(lead, x, known | of_orbit)
            if gap >= 0:
                break
            side = other
        else:
            return None
        total += int(x[of_orbit].sum())
        pairs.append(_images_of_pairs(blocks, lead, np.flatnonzero(side)))
    if total + search.constant >= 0:
        return None
    label = components(len(x), np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs]))
    label[~blocks.ranks] = -1
    return Partition(blocks, _with_others(blocks, label)) if len(np.unique(label[blocks.ranks])) > 1 else None


def _with_others(blocks: Blocks, label: Int64) -> Int64:
    """The labels of ranks, and of other nodes that add where all ranks of a server or site have one label."""
    out, others = label.copy(), np.flatnonzero(blocks.topology.adds & ~blocks.ranks)
    ranks = np.flatnonzero(blocks.ranks)
    for group in blocks.groups if len(others) else []:
        count = int(group.max()) + 1
        least, most = np.full(count, UNLIMITED), np.full(count, -1)
        np.minimum.at(least, group[ranks], label[ranks])
        np.maximum.at(most, group[ranks], label[ranks])
        near = others[(group[others] >= 0) & (out[others] < 0)]
        out[near] = np.where(least[group[near]] == most[group[near]], least[group[near]], -1)
    return out


def _images_of_pairs(blocks: Blocks, lead: int, members: Int64) -> tuple[Int64, Int64]:
    """All images of the pairs of a rank and each member of a set."""
    every = np.arange(blocks.symmetry.size)[:, None]
    a = blocks.symmetry.image(every, np.array([lead]))
    b = blocks.symmetry.image(every, members)
    return np.broadcast_to(a, b.shape).ravel().astype(np.int64), b.ravel().astype(np.int64)


class _Search:
    """Min-cuts for ``f(S) = receivers * (what can enter S) - width``, in units of a fraction of a bandwidth.

    A cut leaves each switch, router and relay on the side that makes ``f`` least.
    """

    def __init__(self, blocks: Blocks, width: int, receivers: int) -> None:
        t = blocks.topology
        self.blocks, self.nodes = blocks, t.node_count
        fine = max(1, LARGEST // max(1, receivers * int(blocks.units.sum())))
        self.capacity = blocks.units * (receivers * fine)
        self.constant = width * fine
        self.ranks = np.flatnonzero(blocks.ranks)
        self.source, self.target = self.nodes, self.nodes + 1
        tails = np.concatenate((t.dst, np.full(len(self.ranks), self.source), self.ranks))
        heads = np.concatenate((t.src, self.ranks, np.full(len(self.ranks), self.target)))
        self.arcs = Arcs.of(tails, heads, self.nodes + 2)

    def value(self, own: Bool) -> int:
        """f of a set of ranks."""
        t, blocks = self.blocks.topology, self.blocks
        inside = narrowest(t, blocks.units, blocks.ranks, own)
        return int(self.capacity[~inside[t.src] & inside[t.dst]].sum()) - self.constant

    def least(self, lead: int, x: Int64, allowed: Bool) -> tuple[int, Bool]:
        """The least f(S) - x(S) of all sets of allowed ranks with the lead inside, and that set."""
        gain, loss = np.maximum(x[self.ranks], 0), np.maximum(-x[self.ranks], 0)
        loss[~allowed[self.ranks]] = FORCED
        gain[~allowed[self.ranks]] = 0
        at = int(np.searchsorted(self.ranks, lead))
        gain[at], loss[at] = FORCED, 0
        capacity = self.arcs.capacities(np.concatenate((self.capacity, gain, loss)))
        _, side, flow = self.arcs.first_violated(
            capacity, np.array([self.source]), 0, self.target, UNLIMITED, UNLIMITED, 50.0 * len(capacity)
        )
        gained = int(gain.sum()) - FORCED
        own = side[: self.nodes] & self.blocks.ranks
        return flow - gained - int(x[lead]) - self.constant, own
