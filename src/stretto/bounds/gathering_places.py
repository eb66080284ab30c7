"""What messages can have brought to each node, and to groups of nodes together, in steps of time.

:mod:`.gathering` says what is counted, and proves it. A *place* is a node that stores, or a group of such nodes. An
*entry* is a link into a place, with the nodes outside the place that may have sent what comes over it. Entries and
places that look alike are counted once.

Time is cut into steps, and for a whole step the largest values are taken that occur in it. So nothing is too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Float64, Int64
from ..model.topology import Topology
from .latency import distances

LEAST_STEPS = 4
"""Steps of a message, at least: a link where one takes less counts as if messages cost nothing there."""


class Asked(NamedTuple):
    """A question: when do some places have what they need of the data of some ranks?

    Attributes:
        own: float64[places, sources], bytes that each has of that at first; of sums, bytes times contributions.
        counts: float64[places, sources], how many of these ranks are there.
        ranks: how many there are in all.
        places: int64[any], those that are asked.
        needs: float64[any], what each of these needs, its own too.
        onward_s: what it takes after that, at least.
        since_s: float64[sources], from when on places have what is of each source.
    """

    own: Float64
    counts: Float64
    ranks: int
    places: Int64
    needs: Float64
    onward_s: float = 0.0
    since_s: Float64 = np.zeros(1)


@dataclass(frozen=True)
class Places:
    """Nodes that store, then groups of them, and the links into each.

    Attributes:
        message_s, bandwidth: float64[entries], of the link.
        after_s: float64[entries], what it takes from leaving the link until it counts.
        near_s: float64[entries, nodes], what it takes from each node to the link; infinite if the node does not send.
        into: float64[places, entries], how many entries of this kind lead to a place.
        members: bool[groups, nodes].
    """

    message_s: Float64
    bandwidth: Float64
    after_s: Float64
    near_s: Float64
    into: Float64
    members: Bool

    @classmethod
    def of(cls, topology: Topology, inside: Bool, turned: bool) -> Places | None:
        """All nodes that store, and groups of them; None if no message comes to any.

        Args:
            inside: bool[groups, nodes of the network].
            turned: whether time runs backwards: then a message fills its link after its latency, not before.
        """
        stores = topology.store_and_forward
        nodes = np.flatnonzero(stores)
        members = inside[:, nodes]
        alone = np.zeros((len(nodes), topology.node_count), dtype=np.bool_)
        alone[np.arange(len(nodes)), nodes] = True
        covered = np.concatenate((alone, inside))
        place, link = np.nonzero(covered[:, topology.dst] & ~covered[:, topology.src])
        # what a node sends passes others that store nothing: they pass on what comes from a node that stores
        near_s = np.full((topology.node_count, len(nodes)), np.inf)
        near_s[nodes, np.arange(len(nodes))] = 0.0
        passed = topology.with_links(~stores[topology.dst])
        if passed.link_count:
            near_s[~stores] = distances(passed, 0.0)[np.ix_(nodes, np.flatnonzero(~stores))].T
        latency_s = topology.latency_s[link]
        sent_s = near_s[topology.src[link]] + (latency_s[:, None] if turned else 0.0)
        sent_s[covered[place][:, nodes]] = np.inf
        used = np.isfinite(sent_s).any(axis=1)
        if not used.any():
            return None
        place, link, sent_s = place[used], link[used], sent_s[used]
        into = np.zeros((len(covered), len(link)))
        into[place, np.arange(len(link))] = 1.0
        after_s = np.zeros(len(link)) if turned else latency_s[used]
        return cls(topology.message_s[link], topology.bandwidth[link], after_s, sent_s, into, members)

    def sent_by(self, senders: Bool) -> Places:
        """The places and entries, where only some nodes send.

        Args:
            senders: bool[nodes that store].
        """
        near_s = np.where(senders, self.near_s, np.inf)
        used = np.isfinite(near_s).any(axis=1)
        kept = self.message_s[used], self.bandwidth[used], self.after_s[used], near_s[used]
        return Places(*kept, self.into[:, used], self.members)

    def alike(self, own: Float64) -> tuple[Places, Float64, Int64]:
        """The places where those that look alike are one, with what each has at first; and which one each became.

        Args:
            own: float64[places, any], what each has at first.
        """
        groups, nodes = self.members.shape
        of_node, of_group = _labels(own[:nodes]), _labels(own[nodes:])
        columns = np.stack((self.message_s, self.bandwidth, self.after_s), axis=1)
        while True:
            nearest = np.stack([self.near_s[:, of_node == k].min(axis=1) for k in range(of_node.max() + 1)], axis=1)
            entry = _labels(np.concatenate((columns, nearest), axis=1))
            leads = self.into @ np.eye(entry.max() + 1)[entry]
            among = self.members.T @ np.eye(of_group.max() + 1)[of_group] if groups else np.zeros((nodes, 0))
            new_node = _labels(np.concatenate((of_node[:, None], leads[:nodes], among), axis=1))
            new_group = _labels(np.concatenate((of_group[:, None], leads[nodes:]), axis=1))
            if new_node.max() == of_node.max() and new_group.max(initial=-1) == of_group.max(initial=-1):
                break
            of_node, of_group = new_node, new_group
        first = np.unique(of_node, return_index=True)[1]
        firsts = np.concatenate((first, nodes + np.unique(of_group, return_index=True)[1]))
        one = np.unique(entry, return_index=True)[1]
        kept = self.message_s[one], self.bandwidth[one], self.after_s[one], nearest[one]
        merged = Places(*kept, leads[firsts], np.asarray(among[first].T > 0))
        return merged, own[firsts], np.concatenate((of_node, len(first) + of_group))

    def counts(self, own: Float64, most: float, steps: int, step_s: float) -> Float64:
        """float64[steps, places]: how much each place can have, where a message holds all that its sender has."""
        return _Run.of(self, steps, step_s).filled(own, most, None)

    def bytes(self, own: Float64, most: float, steps: int, step_s: float, each: Float64) -> Float64:
        """The same where a message takes room for its bytes.

        Args:
            own: float64[places] or float64[steps, places], what each has if nothing comes.
            each: float64[steps, places], what each byte at a place counts as, at most.
        """
        return _Run.of(self, steps, step_s).filled(own, most, each)


@dataclass(frozen=True)
class _Run:
    """The entries of some places in steps of time, those of links where messages cost first, by cost.

    Attributes:
        parts: (first, end, steps of a message) of entries where it takes equally many.
        late: int64[entries], steps from a link to its place.
        sender, near: int64[pairs] each, a node that sends to an entry, and in how many steps; in order of entries.
        begins: int64[entries], the first pair of each.
    """

    places: Places
    steps: int
    step_s: float
    parts: list[tuple[int, int, int]]
    late: Int64
    sender: Int64
    near: Int64
    begins: Int64

    @classmethod
    def of(cls, places: Places, steps: int, step_s: float) -> _Run:
        # a message that ends in a step began this many steps before at the latest
        ago = np.ceil(np.minimum(places.message_s / step_s, steps + 1.0) - 1e-9).astype(np.int64)
        ago[places.message_s < LEAST_STEPS * step_s] = 0
        order = np.argsort(-ago, kind="stable")
        columns = places.message_s[order], places.bandwidth[order], places.after_s[order], places.near_s[order]
        places = Places(*columns, places.into[:, order], places.members)
        kinds, first = np.unique(-ago[order], return_index=True)
        ends = [*first[1:].tolist(), len(order)]
        parts = list(zip(first.tolist(), ends, (-kinds).tolist(), strict=True))
        pair, sender = np.nonzero(np.isfinite(places.near_s))
        near = np.clip(places.near_s[pair, sender] / step_s - 1e-9, 0, steps).astype(np.int64)
        late = np.clip(places.after_s / step_s - 1e-9, 0, steps).astype(np.int64)
        begins = np.searchsorted(pair, np.arange(len(order)))
        return cls(places, steps, step_s, parts, late, sender, near, begins)

    def filled(self, own: Float64, most: float, each: Float64 | None) -> Float64:
        """float64[steps, places]: see :meth:`Places.counts` and :meth:`Places.bytes`."""
        steps, late, members = self.steps, self.late, self.places.members
        entries, nodes = len(late), members.shape[1]
        costly = [part for part in self.parts if part[2]]
        free = slice(costly[-1][1] if costly else 0, entries)
        room = np.arange(steps + 2) * self.step_s - self.places.message_s[:, None]
        room *= self.places.bandwidth[:, None]  # bytes of a message, by the steps that it takes
        left = np.zeros((entries, steps))  # P
        shown, counted = np.zeros((entries, steps)), np.zeros((entries, steps))  # F(x - d), C(x - d)
        own = np.broadcast_to(own, (steps, own.shape[-1]))
        had = np.zeros(own.shape)
        every = np.arange(entries)
        for k in range(steps):
            if each is not None:
                counted[:, k] = self._shown(each, k)
                filled = self.step_s * self.places.bandwidth[free] * counted[free, k]
                left[free, k] = filled + (left[free, k - 1] if k else 0.0)
            else:
                left[free, k] = np.where(late[free] == 0, most, 0.0)
            for begin, end, ago in costly:
                if (count := k + 2 - ago) > 0:
                    brought = shown[begin:end, :count]
                    if each is not None:
                        brought = np.minimum(
                            brought, room[begin:end, k + 1 : ago - 1 : -1] * counted[begin:end, :count]
                        )
                    left[begin:end, k] = (left[begin:end, :count] + brought).max(axis=1)
            came = np.where(k >= late, left[every, np.maximum(k - late, 0)], 0.0)
            had[k] = np.minimum(own[k] + self.places.into @ came, most)
            for group, cap in zip(members, had[k, nodes:], strict=True):
                np.minimum(had[k, :nodes], cap, out=had[k, :nodes], where=group)
            shown[:, k] = self._shown(had, k)
            if each is None:
                left[free, k] = np.where(shown[free, k] > 0, most, left[free, k])
        return had

    def _shown(self, had: Float64, k: int) -> Float64:
        """float64[entries]: the most that a node that sends to each entry can have had, when a message begins there."""
        ago = k - self.near
        known = np.where(ago >= 0, had[np.maximum(ago, 0), self.sender], 0.0)
        shown: Float64 = np.maximum.reduceat(known, self.begins)
        return shown


def onward_s(topology: Topology, inside: Bool, near_s: Float64) -> Float64:
    """float64[ranks], the least time that what enters a group still takes to each rank.

    Args:
        inside: bool[nodes], the group.
        near_s: float64[nodes, ranks], the least time that messages take.
    """
    heads = np.unique(topology.dst[inside[topology.dst] & ~inside[topology.src]])
    least_s: Float64 = near_s[heads].min(axis=0)
    return least_s


def _labels(rows: NDArray[Any]) -> Int64:
    """int64[rows]: equal numbers, from 0 on, for equal rows."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
