"""Windows of the parts of a symmetric network, of one part of each orbit (:mod:`.windows` has the proof).

For each part the two ranks that :mod:`.windows` takes are one rank of the part that stands for its orbit, and the
images of that rank. So the windows of all parts are those of a few, and all distances that they need are distances from
or to a few ranks: the way from g(v) to a node is the way from v to the node's image under the inverse of g.

Here a router is never taken for a node of a part. That makes windows larger at most.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from .block_parts import Part, Partition
from .blocks import from_node, spread

MOST_EXITS = 32
"""Nodes from which a part sends that are looked at for the rank whose contribution leaves it last."""


class PartWindows:
    """When links into parts can be of use.

    Attributes:
        first: int64[parts], for each part that stands for others the rank that was taken.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition, self.parts = partition, partition.parts
        self.topology = t = partition.blocks.topology
        self.stores, self.ranks = t.adds, partition.blocks.ranks
        of_lead = {part.lead: self._leaves_last(part) for part in self.parts}
        self.first = np.array([of_lead[part.lead] for part in self.parts])
        self.forth = np.stack([from_node(t, int(v), t.latency_s) for v in self.first])
        self.back = np.stack([from_node(t, int(v), t.latency_s, backward=True) for v in self.first])

    def waits(self, number: int) -> tuple[Int64, Float64]:
        """The links into a part, and for how many seconds in all each of them can carry nothing that counts before the
        end of an AllReduce."""
        t, part = self.topology, self.parts[number]
        links = np.flatnonzero(~part.inside[t.src] & part.inside[t.dst])
        x, y, latency = t.src[links], t.dst[links], t.latency_s[links]
        least_s, most_s = self._to_stores(part)
        home, ranks = self.home[x], self.ranks[x]
        # what comes from another node than a rank may come from any part but the one that it enters
        sent = np.where(ranks, self._first_sent(x), spread(t, self._others_first(part), t.latency_s)[x])
        others_left = min(self.left[k] for k, p in enumerate(self.parts) if p.times > (k == number))
        sent_end = np.where(ranks, self.left[home], others_left)
        had = np.maximum(np.maximum(self.reached[number], self.has_sent) - latency - most_s[y], 0.0)
        opens = np.maximum(np.minimum(sent, had), self.nearest_s[x])
        closes = latency + np.minimum(np.maximum(sent_end, self.must_get + least_s[y]), self.back[number][y])
        return links, opens + closes

    @cached_property
    def home(self) -> Int64:
        """int64[nodes], for each rank which of the parts stands for its part; 0 for other nodes."""
        lead, _ = self.partition.places
        home = np.zeros(len(lead), dtype=np.int64)
        for number in range(len(self.parts) - 1, -1, -1):
            home[lead == self.parts[number].lead] = number
        return home

    def _leaves_last(self, part: Part) -> int:
        """The rank of a part that is farthest from where it sends, by the width of its links."""
        t = self.topology
        ranks = np.flatnonzero(part.own & self.ranks)
        out = np.flatnonzero(part.own[t.src] & ~part.own[t.dst])
        exits, at = np.unique(t.src[out], return_inverse=True)
        if len(exits) > MOST_EXITS or len(ranks) == 1:
            return int(ranks[0])
        width = np.bincount(at.reshape(-1), t.bandwidth[out])
        far = sum(w * from_node(t, int(v), t.latency_s, True)[ranks] for v, w in zip(exits, width, strict=True))
        return int(ranks[np.argmax(far)])

    def _first_sent(self, x: Int32) -> Float64:
        """For each node, if it is a rank, the way to it from the rank that was taken for its part."""
        symmetry = self.partition.blocks.symmetry
        _, element = self.partition.places
        return self.forth[self.home[x], symmetry.image(symmetry.inverse(element[x]), x)]

    def _others_first(self, part: Part) -> Float64:
        """float64[nodes], 0 at the ranks that were taken for the other parts."""
        start = np.full(self.topology.node_count, np.inf)
        for other, first in zip(self.parts, self.first, strict=True):
            images = self.partition.elements(other.lead)[int(other.lead == part.lead) :]
            start[self.partition.blocks.symmetry.image(images, first)] = 0.0
        return start

    @cached_property
    def nearest_s(self) -> Float64:
        """float64[nodes], from the nearest rank."""
        return spread(self.topology, np.where(self.ranks, 0.0, np.inf), self.topology.latency_s)

    @cached_property
    def reached(self) -> Float64:
        """float64[parts], until the farthest rank elsewhere has reached each part."""
        t, ranks = self.topology, self.ranks
        out = []
        for part in self.parts:
            into = spread(t, np.where(part.own, 0.0, np.inf), t.latency_s, backward=True)
            out.append(into[ranks & ~part.own].max())
        return np.array(out)

    @cached_property
    def left(self) -> Float64:
        """float64[parts], how far the farthest rank elsewhere is from what has left each part; 0 where that may be
        stored nearer to it."""
        t, ranks = self.topology, self.ranks
        out = []
        for part in self.parts:
            heads = t.dst[part.own[t.src] & ~part.own[t.dst]]
            start = np.full(t.node_count, np.inf)
            start[heads] = 0.0
            stored = len(heads) > 0 and self.stores[heads].all()
            out.append(spread(t, start, t.latency_s)[ranks & ~part.own].max() if stored else 0.0)
        # images of the first part, if other nodes join that, count as the one from which less has far to go
        for k, part in enumerate(self.parts):
            out[0] = min(out[0], out[k]) if part.lead == self.parts[0].lead else out[0]
        return np.array(out)

    @cached_property
    def has_sent(self) -> float:
        """By then all parts but one have sent something, whichever that one is."""
        each = [way[self.stores & ~part.own].min() for way, part in zip(self.forth, self.parts, strict=True)]
        return self._all_but_one(each)

    @cached_property
    def must_get(self) -> float:
        """So long before the end all parts but one must get something."""
        t = self.topology
        each = []
        for way, part in zip(self.back, self.parts, strict=True):
            comes = np.zeros(t.node_count, dtype=np.bool_)
            comes[t.dst[part.own[t.dst] & ~part.own[t.src]]] = True
            each.append(way[comes].min(initial=np.inf))
        return self._all_but_one(each)

    def _all_but_one(self, times_s: list[float]) -> float:
        """The second largest of all parts."""
        every = np.repeat(times_s, [min(part.times, 2) for part in self.parts])
        return float(np.sort(every)[-2])

    def _to_stores(self, part: Part) -> tuple[Float64, Float64]:
        """Seconds from each node until what passes it is stored for a part, as in :func:`.windows._to_stores`."""
        t, stores, inside = self.topology, self.stores, part.inside
        least, most = np.where(stores, 0.0, np.inf), np.where(inside & ~stores, -np.inf, 0.0)
        passes = np.flatnonzero(~stores[t.src])
        np.minimum.at(least, t.src[passes], t.latency_s[passes])
        within = passes[inside[t.src[passes]] & inside[t.dst[passes]]]
        straight = stores[t.dst[within]] & t.is_switch[t.src[within]]
        np.maximum.at(most, t.src[within], np.where(straight, t.latency_s[within], np.inf))
        return least, np.where(np.isneginf(most), np.inf, most)


def links_of_parts(partition: Partition) -> Int64:
    """int64[links], all links into parts."""
    t, symmetry = partition.blocks.topology, partition.blocks.symmetry
    entered: Bool = np.zeros(t.link_count, dtype=np.bool_)
    for part in partition.parts:
        entered[symmetry.link_orbits[~part.inside[t.src] & part.inside[t.dst]]] = True
    return np.flatnonzero(entered[symmetry.link_orbits])
