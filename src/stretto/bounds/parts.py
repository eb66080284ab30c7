"""AllReduce among parts of a network: each byte must be received by parts 2 (k - 1) times, however it is summed.

Divide the nodes that store into k parts, each with a rank. For one byte of the buffer let r be the part whose nodes,
taken together, are the first to have all contributions.

- Before that, each of the k - 1 other parts has sent something on its way to r.
- After it, each of them receives something, since it did not have all.

So k - 1 transfers by different senders come before, and k - 1 transfers to different receivers after: at least
2 (k - 1) receipts, as in the gossip problem with one-way calls (Harary and Schwenk 1974). Each receipt takes room on
the links into its part, so

    seconds >= 2 (k - 1) bytes / (sum over parts of what can enter it)

and more where links have latency, since none can carry such transfers all the time (:mod:`stretto.bounds.windows`).

Switches neither store nor sum, but may copy. They belong to no part: for each part, every switch is put on the side on
which it makes what can enter the part least.

Where every link has an equal one in the opposite direction, and all nodes are ranks, in-trees and out-trees reach the
bound of the best partition: it is twice the bound of packing undirected spanning trees (Tutte and Nash-Williams 1961),
and each of these trees can be used inwards for sums, then outwards for copies. The best partition is found by
Dinkelbach's iteration. Each step is a Dilworth truncation (Cunningham 1985), which takes one min-cut for each rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .candidates import clusters
from .exact import Arcs, in_units
from .model import Bound
from .reach import least
from .windows import windows

SEARCHED_UP_TO = 256
"""Ranks up to which the best partition is searched for; among more, each rank is a part."""

UNLIMITED = 1 << 61


@dataclass(frozen=True)
class Parts:
    """A partition and what must be received."""

    inside: Bool  # bool[parts, nodes]. A switch may be inside several
    load_bytes: int  # bytes that all parts together must receive
    width: Fraction  # bytes/s that can enter all parts together, exactly

    @property
    def seconds(self) -> Fraction:
        """The time that no plan can beat."""
        return Fraction(self.load_bytes) / self.width


def best_parts(topology: Topology, collective: Collective) -> Parts | None:
    """The partition with the largest bound by bandwidth; None if it is no AllReduce, or there are planes."""
    if not collective.traits.reduces_to_all or topology.planes:
        return None
    search = _Search(topology, collective.ranks)
    inside = search.narrowed(np.arange(len(collective.ranks)))
    if len(collective.ranks) <= SEARCHED_UP_TO:
        while True:
            gap, label = search.best_partition(search.width_into(inside), len(inside) - 1)
            if gap >= 0:
                break
            inside = search.narrowed(label)
    entering = inside[:, topology.dst] & ~inside[:, topology.src]
    times = entering.sum(axis=0).tolist()
    width = sum((Fraction(w) * n for w, n in zip(topology.bandwidth.tolist(), times, strict=True)), Fraction(0))
    return Parts(inside, 2 * (len(inside) - 1) * collective.size_bytes, width) if width else None


def parts_bound(topology: Topology, collective: Collective, near: Float64) -> Bound | None:
    """The best bound by parts, where each link into a part counts in its window alone.

    Tried are the partition that is best by bandwidth and, since latency may make others decide, sites and servers.
    """
    best = best_parts(topology, collective)
    if best is None:
        return None
    found = [best.inside]
    if len(collective.ranks) <= SEARCHED_UP_TO:
        found += partitions(topology, collective.ranks)
    return max((_in_words(topology, collective, inside, near) for inside in found), key=lambda b: b.seconds)


def partitions(topology: Topology, ranks: Int32) -> list[Bool]:
    """bool[parts, nodes] each: sites, servers, what fast links join; with switches where they narrow the parts."""
    search = _Search(topology, ranks)
    return [search.narrowed(label) for label in _groups(topology, ranks)]


def _in_words(topology: Topology, collective: Collective, inside: Bool, near: Float64) -> Bound:
    when = windows(topology, collective.ranks, inside, near)
    waits, width, count = when.opens_s + when.closes_s, topology.bandwidth[when.link], len(inside)
    each = "ranks" if count == len(collective.ranks) else "parts"
    words = f"each byte must be received at least {2 * (count - 1)} times until all {count} {each} have its sum"
    seconds = collective.start_s + least(waits, width, 2.0 * (count - 1) * collective.size_bytes)
    return Bound(seconds, "parts", words, tuple(range(topology.node_count)), tuple(np.unique(when.link).tolist()))


def _groups(topology: Topology, ranks: Int32) -> list[Int64]:
    """For each way to tell sites or servers apart, a label for each rank that says which one it is in."""
    found: dict[tuple[int, ...], None] = {}
    for groups in clusters(topology):
        label = np.full(topology.node_count, -1, dtype=np.int64)
        for number, group in enumerate(groups):
            label[group] = number
        label = np.unique(label[ranks], return_inverse=True)[1].reshape(-1)
        if label.max() > 0:
            found.setdefault(tuple(label.tolist()))
    return [np.array(label) for label in found]


class _Search:
    """Min-cuts around sets of ranks; switches may be on either side."""

    def __init__(self, topology: Topology, ranks: Int32) -> None:
        self.topology, self.ranks = topology, ranks.astype(np.int64)
        self.width = in_units(topology.bandwidth, upward=True)
        self.nodes = topology.node_count
        # arcs: backward over links, from a source to the ranks, from the ranks to a target, between what stays together
        store, home = self._homes()
        self.source, self.target = self.nodes, self.nodes + 1
        count = len(self.ranks)
        tails: list[NDArray[Any]] = [topology.dst, np.full(count, self.source), self.ranks, store, home]
        heads: list[NDArray[Any]] = [topology.src, self.ranks, np.full(count, self.target), home, store]
        self.arcs = Arcs.of(np.concatenate(tails), np.concatenate(heads), self.nodes + 2)
        self.ends = np.cumsum([len(t) for t in tails]).tolist()
        self.work = 50.0 * count * len(self.arcs.forward)

    def _homes(self) -> tuple[Int64, Int64]:
        """Nodes that store but are no ranks, and for each a rank beside it, whose part it belongs to."""
        t = self.topology
        home = np.full(self.nodes, -1, dtype=np.int64)
        home[self.ranks] = self.ranks
        wide_first = np.argsort(-t.bandwidth, kind="stable")
        changed = True
        while changed:
            changed = False
            for link in wide_first[(home[t.src[wide_first]] < 0) & (home[t.dst[wide_first]] >= 0)].tolist():
                if home[t.src[link]] < 0:
                    home[t.src[link]] = home[t.dst[link]]
                    changed = True
        store = np.flatnonzero(~t.is_switch & ~np.isin(np.arange(self.nodes), self.ranks) & (home >= 0))
        return store, home[store]

    def _cut(self, gain: Int64, loss: Int64) -> tuple[int, Bool]:
        """The flow, and the set with the least ``width that enters - gains of ranks inside + losses of ranks inside``.

        A rank of unlimited gain is inside, one of unlimited loss outside.
        """
        ends = self.ends
        edge = np.full(ends[-1], UNLIMITED >> 8, dtype=np.int64)
        edge[: ends[0]] = self.width * self.scale
        edge[ends[0] : ends[1]], edge[ends[1] : ends[2]] = gain, loss
        _, side, flow = self.arcs.first_violated(
            self.arcs.capacities(edge), np.array([self.source]), 0, self.target, UNLIMITED, UNLIMITED, self.work
        )
        return flow, side[: self.nodes]

    def best_partition(self, width: int, receivers: int) -> tuple[int, Int64]:
        """Dilworth truncation of ``entering(S) - width / receivers``.

        Returns:
            A gap, negative if a partition is narrower than ``width / receivers`` for each part but one (the gap is
            that difference times ``receivers``), and the label that this partition gives each rank.
        """
        self.scale = receivers
        count = len(self.ranks)
        label = np.arange(count)
        x = np.zeros(count, dtype=np.int64)
        for i in range(count):
            gain, loss = np.maximum(x, 0), np.maximum(-x, 0)
            gain[i], loss[i + 1 :] = UNLIMITED >> 8, UNLIMITED >> 8
            gained = int(gain[:i].sum())
            flow, side = self._cut(gain, loss)
            x[i] = flow - gained - width
            joined = label[: i + 1][side[self.ranks[: i + 1]]]
            label[np.isin(label, joined)] = i
        return int(x.sum()) + width, label

    def narrowed(self, label: Int64) -> Bool:
        """bool[parts, nodes]: the ranks of each label, nodes that belong to them, and switches where they narrow it."""
        self.scale = 1
        rows = []
        for part in np.unique(label):
            own = label == part
            big = np.int64(UNLIMITED >> 8)
            rows.append(self._cut(np.where(own, big, 0), np.where(own, 0, big))[1])
        return np.array(rows)

    def width_into(self, inside: Bool) -> int:
        """What can enter all parts together."""
        entering = inside[:, self.topology.dst] & ~inside[:, self.topology.src]
        return int((entering @ self.width).sum())
