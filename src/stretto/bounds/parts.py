"""AllReduce among parts of a network: each byte must be received by parts 2 (k - 1) times, however it is summed.

Divide the nodes that add (:attr:`Topology.adds`) into k parts, each with a rank. A *message* is what one of these nodes
composes and others receive; on its way it may pass, wait in and be copied by switches and routers, but none of them
adds. For one byte of the buffer let r be the part whose nodes, taken together, are the first to have all contributions.

- Before that, each of the k - 1 other parts has sent something on its way to r.
- After it, each of them receives something that is new to it, since it did not have all.

So k - 1 messages of different senders are received before, and k - 1 receivers get another message after: at least
2 (k - 1) receipts, as in the gossip problem with one-way calls (Harary and Schwenk 1974). Each receipt takes room on
the links into its part, so

    seconds >= 2 (k - 1) bytes / (sum over parts of what can enter it)

and more where links have latency, since none can carry such messages all the time (:mod:`stretto.bounds.windows`).

Switches and routers that do not add belong to no part. Whatever a part receives crosses every set of nodes that has all
nodes of the part and none that other parts have. So for each part they are put on the side on which they make what can
enter it least: a min-cut.

Backwards in time an AllReduce is one, too: sums become copies and copies sums, each contribution comes to each rank
once, and a message that went from one node to another goes back over the same links. A node that copies without adding
then adds: a switch that replicates, and any router, since it stores what comes and can send it on several times. So the
bound holds for what leaves parts, too (:func:`backwards`), where each node that copies is in a part.

Where every link has an equal one in the opposite direction, and all nodes are ranks, in-trees and out-trees reach the
bound of the best partition: it is twice the bound of packing undirected spanning trees (Tutte and Nash-Williams 1961),
and each of these trees can be used inwards for sums, then outwards for copies. The best partition is found by
Dinkelbach's iteration. Each step is a Dilworth truncation (Cunningham 1985), which takes one min-cut for each rank.
Among many ranks the min-cuts are counted: then sites or servers are divided, and none of them further.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .block_parts import partitions as partitions_of_blocks
from .blocks import Blocks, rank_symmetry
from .candidates import LATER, MOST_TURNS, clusters, narrowed_by_time
from .exact import Arcs, in_units
from .model import Bound
from .reach import least
from .windows import windows

MOST_STEPS = 20_000_000
"""Arcs of min-cuts that one search for the best partition may look at, were each cut to look at every arc once. This is
about a second of CPU at most; 512 ranks joined at random need half of it."""

SEARCH_SHARE = 0.75
"""Share of them that is kept for the search itself: where fast links join ranks one after the other there are many
partitions to begin with."""

MOST_ALONE = 128
"""Ranks from which on partitions come from the symmetry of the network: with 512 ranks in a hundredth of the time of a
search."""

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
    """The partition with the largest bound by bandwidth; None if it is no AllReduce, or there are planes.

    Where there are too many ranks for that, the best one of those that cut no site or server.
    """
    if not collective.traits.reduces_to_all or topology.planes:
        return None
    parts = _parts_of_blocks(topology, collective)
    if parts is not None:
        return parts
    searches, left = _searches(topology, collective.ranks), float(MOST_STEPS)
    found: list[Bool] = []
    for search in searches:
        if search.steps <= left and (not found or left > SEARCH_SHARE * MOST_STEPS):
            found.append(search.narrowed(np.arange(search.count)))
            left -= search.steps
    if not found:
        return None
    inside = max(found, key=lambda parts: Fraction(len(parts) - 1, max(searches[0].width_into(parts), 1)))
    for search in searches:
        gap = -1
        while gap < 0 and search.steps <= left:
            left -= search.steps
            gap, label = search.best_partition(search.width_into(inside), len(inside) - 1)
            inside = search.narrowed(label) if gap < 0 else inside
        if gap >= 0:
            break  # coarser searches have no other partitions
    return Parts(inside, 2 * (len(inside) - 1) * collective.size_bytes, _exact_width(topology, inside))


def backwards(topology: Topology) -> Topology:
    """The network on which an AllReduce of this one runs backwards in time: links turned round, copies made sums."""
    reduces = topology.reduces | ((topology.replicates | topology.is_router) & ~topology.adds)
    return replace(topology, src=topology.dst, dst=topology.src, reduces=reduces).relaying


def both_ways(topology: Topology) -> list[Topology]:
    """The network and, where links are not alike in both directions, what it is backwards.

    Where they are alike, parts say backwards what they say forward, or less since more nodes add.
    """
    links = (topology.src, topology.dst, topology.bandwidth, topology.latency_s)
    forth, back = (np.array(rows)[:, np.lexsort(rows)] for rows in (links, (links[1], links[0], *links[2:])))
    return [topology] if np.array_equal(forth, back) else [topology, backwards(topology)]


def _parts_of_blocks(topology: Topology, collective: Collective) -> Parts | None:
    """The best partition among many ranks of which many look alike."""
    if len(collective.ranks) < MOST_ALONE:
        return None
    symmetry = rank_symmetry(topology, collective)
    if symmetry is None:
        return None
    ranks = np.zeros(topology.node_count, dtype=np.bool_)
    ranks[collective.ranks] = True
    inside = partitions_of_blocks(Blocks(symmetry, ranks, int(collective.ranks[0])))[0].inside
    return Parts(inside, 2 * (len(inside) - 1) * collective.size_bytes, _exact_width(topology, inside))


def _exact_width(topology: Topology, inside: Bool) -> Fraction:
    """Bytes/s that can enter all parts together."""
    times = (inside[:, topology.dst] & ~inside[:, topology.src]).sum(axis=0).tolist()
    return sum((Fraction(w) * n for w, n in zip(topology.bandwidth.tolist(), times, strict=True)), Fraction(0))


def parts_bound(topology: Topology, collective: Collective, near: Float64) -> Bound | None:
    """The best bound by parts, forward and backwards in time, where each link counts in its window alone.

    Tried are the partition that is best by bandwidth and, since latency may make others decide, sites and servers, also
    with switches where they narrow what can enter in time.
    """
    found = list[Bound]()
    for network in both_ways(topology):
        far, done = (near, "received") if network is topology else (near.T, "sent")
        best, best_s = best_parts(network, collective), 0.0
        tried = [] if best is None else [best.inside, *partitions(network, collective.ranks)]
        for _ in range(1 + MOST_TURNS):
            before_s = best_s
            found += (some := [_in_words(network, collective, inside, far, done) for inside in tried])
            best_s = max((best_s, *(bound.seconds for bound in some)))
            narrowed = narrowed_by_time(network, far, best_s - collective.start_s)
            if best_s <= LATER * before_s or narrowed is None:
                break
            tried = partitions(narrowed, collective.ranks, alone=True)
    return max(found, key=lambda bound: bound.seconds, default=None)


def partitions(topology: Topology, ranks: Int32, alone: bool = False) -> list[Bool]:
    """bool[parts, nodes] each: sites, servers, what fast links join; with switches where they narrow the parts.

    Args:
        alone: whether each rank alone is a partition to try, too.
    """
    left = float(MOST_STEPS)
    found = []
    # among many ranks what is left is enough for sites and servers alone
    for label in _groups(topology, ranks) + [np.arange(len(ranks))] * alone:
        search = _Search(topology, ranks, label)
        left -= search.steps
        if left >= 0:
            found.append(search.narrowed(np.arange(search.count)))
    return found


def _searches(topology: Topology, ranks: Int32) -> list[_Search]:
    """A search among all ranks, and those among sites or servers, the finest first."""
    labels = [np.arange(len(ranks)), *_groups(topology, ranks)]
    return sorted((_Search(topology, ranks, label) for label in labels), key=lambda search: -search.count)


def _in_words(topology: Topology, collective: Collective, inside: Bool, near: Float64, done: str) -> Bound:
    when = windows(topology, collective.ranks, inside, near)
    waits, width, count = when.opens_s + when.closes_s, topology.bandwidth[when.link], len(inside)
    each = "ranks" if count == len(collective.ranks) else "parts"
    words = f"each byte must be {done} at least {2 * (count - 1)} times until all {count} {each} have its sum"
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
    """Min-cuts around sets of ranks; switches and routers that do not add may be on either side.

    Args:
        label: int64[ranks], numbers from 0. Ranks of equal number stay together: they are one *member* of a set.
    """

    def __init__(self, topology: Topology, ranks: Int32, label: Int64) -> None:
        self.topology = topology
        self.width = in_units(topology.bandwidth, upward=True)
        self.nodes = topology.node_count
        self.count = int(label.max()) + 1
        self.lead = ranks.astype(np.int64)[np.unique(label, return_index=True)[1]]
        # arcs: backward over links, from a source to members, from members to a target, between what stays together
        home = self._homes(ranks, label)
        with_others = np.flatnonzero(home >= 0)
        home = home[with_others]
        self.source, self.target = self.nodes, self.nodes + 1
        tails: list[NDArray[Any]] = [
            topology.dst, np.full(self.count, self.source), self.lead, with_others, home,
        ]  # fmt: skip
        heads: list[NDArray[Any]] = [topology.src, self.lead, np.full(self.count, self.target), home, with_others]
        self.arcs = Arcs.of(np.concatenate(tails), np.concatenate(heads), self.nodes + 2)
        self.ends = np.cumsum([len(t) for t in tails]).tolist()
        self.steps = float(self.count * len(self.arcs.forward))

    def _homes(self, ranks: Int32, label: Int64) -> Int64:
        """int64[nodes], the rank that stands for the member that each node belongs to, -1 for that rank, and for nodes
        that do not add.

        A node that adds and is no rank belongs to the rank beside it.
        """
        t = self.topology
        home = np.full(self.nodes, -1, dtype=np.int64)
        home[ranks] = self.lead[label]
        wide_first = np.argsort(-t.bandwidth, kind="stable")
        changed = True
        while changed:
            changed = False
            for link in wide_first[(home[t.src[wide_first]] < 0) & (home[t.dst[wide_first]] >= 0)].tolist():
                if home[t.src[link]] < 0:
                    home[t.src[link]] = home[t.dst[link]]
                    changed = True
        home[~t.adds] = -1
        home[self.lead] = -1
        return home

    def _cut(self, gain: Int64, loss: Int64, scale: int) -> tuple[int, Bool]:
        """The flow, and the set with the least ``scale * width that enters - gains of members inside + losses of
        members inside``.

        A member of unlimited gain is inside, one of unlimited loss outside.
        """
        ends = self.ends
        edge = np.full(ends[-1], UNLIMITED >> 8, dtype=np.int64)
        edge[: ends[0]] = self.width * scale
        edge[ends[0] : ends[1]], edge[ends[1] : ends[2]] = gain, loss
        _, side, flow = self.arcs.first_violated(
            self.arcs.capacities(edge), np.array([self.source]), 0, self.target, UNLIMITED, UNLIMITED, 2.0 * self.steps
        )
        return flow, side[: self.nodes]

    def best_partition(self, width: int, receivers: int) -> tuple[int, Int64]:
        """Dilworth truncation of ``entering(S) - width / receivers``.

        Returns:
            A gap, negative if a partition is narrower than ``width / receivers`` for each part but one (the gap is
            that difference times ``receivers``), and the label that this partition gives each member.
        """
        label = np.arange(self.count)
        x = np.zeros(self.count, dtype=np.int64)
        for i in range(self.count):
            gain, loss = np.maximum(x, 0), np.maximum(-x, 0)
            gain[i], loss[i + 1 :] = UNLIMITED >> 8, UNLIMITED >> 8
            gained = int(gain[:i].sum())
            flow, side = self._cut(gain, loss, receivers)
            x[i] = flow - gained - width
            joined = label[: i + 1][side[self.lead[: i + 1]]]
            label[np.isin(label, joined)] = i
        return int(x.sum()) + width, label

    def narrowed(self, label: Int64) -> Bool:
        """bool[parts, nodes]: the members of each label, with switches and routers where they narrow the part."""
        rows = []
        for part in np.unique(label):
            own = label == part
            big = np.int64(UNLIMITED >> 8)
            rows.append(self._cut(np.where(own, big, 0), np.where(own, 0, big), 1)[1])
        return np.array(rows)

    def width_into(self, inside: Bool) -> int:
        """What can enter all parts together."""
        entering = inside[:, self.topology.dst] & ~inside[:, self.topology.src]
        return int((entering @ self.width).sum())
