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

from ..kernels import at_speed
from ..model.arrays import Bool, Float64, Int64
from ..model.topology import Topology
from . import kernel_gathering
from .latency import distances

LEAST_STEPS = 4
"""Steps of a message, at least: a link where one takes less counts as if messages cost nothing there."""

ENTRY_STEPS = 20
"""Steps of the kernel's inner loop for each entry in a step of time, about."""

EARLIER_STEPS = 0.125
"""The same for each earlier step of time, where messages take room for bytes."""


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
        """float64[steps, places]: how much each place can have, where a message holds all that its sender has.

        Args:
            own: float64[places] or float64[steps, places], what each has if nothing comes; it does not fall.
            most: that no place has more.
        """
        return self._filled(own, most, steps, step_s, np.zeros((0, own.shape[-1])))

    def bytes(self, own: Float64, most: float, steps: int, step_s: float, each: Float64) -> Float64:
        """The same where a message takes room for its bytes.

        Args:
            each: float64[steps, places], what each byte at a place counts as, at most; it does not fall.
        """
        return self._filled(own, most, steps, step_s, each)

    def _filled(self, own: Float64, most: float, steps: int, step_s: float, each: Float64) -> Float64:
        # a message that ends in a step began this many steps before at the latest
        takes = np.ceil(np.minimum(self.message_s / step_s, steps + 1.0) - 1e-9).astype(np.int64)
        takes[self.message_s < LEAST_STEPS * step_s] = 0
        late = np.clip(self.after_s / step_s - 1e-9, 0, steps).astype(np.int64)
        pair, sender = np.nonzero(np.isfinite(self.near_s))
        near = np.clip(self.near_s[pair, sender] / step_s - 1e-9, 0, steps).astype(np.int64)
        entry, place = np.nonzero(self.into.T)
        begins, first = (np.searchsorted(rows, np.arange(len(late) + 1)) for rows in (pair, entry))
        arrays = (
            self.message_s, self.bandwidth, takes, late, begins, sender, near, first, place, self.into[place, entry],
            self.members, np.broadcast_to(own, (steps, own.shape[-1])), each,
        )  # fmt: skip
        at_entry = ENTRY_STEPS + EARLIER_STEPS * len(each)
        work = float(steps) * (at_entry * len(late) + len(entry) + len(pair) + self.members.size)
        # copies of one layout that may be written to: compiled code serves only one kind of arrays
        copies: list[Any] = [np.array(column, order="C") for column in arrays]
        return at_speed(kernel_gathering.fill, work)(most, step_s, *copies)


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
    # as numpy.unique numbers rows, which sorts them as records of many fields: ten times as long
    order = np.lexsort(rows.T[::-1])
    alike = rows[order]
    labels = np.zeros(len(rows), dtype=np.int64)
    labels[order[1:]] = (alike[1:] != alike[:-1]).any(axis=1).cumsum()
    return labels
