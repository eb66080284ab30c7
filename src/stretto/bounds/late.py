"""What leaves servers late: few nodes lead out of a server, and they hear last of some of its ranks.

Let G be a group of nodes, such as a server, and C the ranks of G that contribute to a sum, or hold something that
others want. What leaves G is sent by its *exits*: the nodes of G from which a message leads to a node that stores
outside of G. Let K(t) be a limit for how many ranks of C the exits can have heard of by time t, where messages hold all
that their sender had: that of one node, added up over the exits. What comes back into G was known to exits before, so
only messages inside G count. For one byte of a sum K counts contributions to it. Let τ be a time before which
K(t) <= k < |C|. Then of |C| - k ranks of C, the *late* ones, no exit has anything before τ. So nothing of these leaves
G in a message that begins before τ; and for each byte of a sum one contribution of C, or more, does not.

:mod:`.gathering` asks when others can have what several groups, which have no node in common, let out late. Only this
is counted: the bytes of late ranks; of a sum, for each group one contribution to each byte that leaves late. Let a node
have, for the count, what is late of groups that it is not in; and an exit also what is late of its own group, from τ
on. A message into an exit from its own group brings what counts there already, and what is late of its own group leads
nowhere from a node that is no exit. So the limits of :mod:`.gathering` hold for this count, too.

This bounds more than all bytes together do where messages bring again what is there: from a gateway that has heard of
one rank, of two and of four, others have heard of no more than four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.topology import Topology
from .candidates import clusters, width_into
from .gathering_places import Asked, Places, onward_s
from .latency import distances

MOST_ASKED = 4
"""Questions for which limits in time are computed: those with the largest estimates. A question is when one group has
what leaves other groups late."""

STEPS = 300
"""Steps of time in which exits hear of the ranks of their group."""

MOST_SOURCES = 8
"""Groups of a level whose τ is computed: those with most ranks for each exit. For others it is 0."""


class Source(NamedTuple):
    """A group of nodes that something leaves late.

    Attributes:
        nodes: bool[nodes of the network], its accelerators.
        stores: bool[nodes that store], the same.
        ranks: bool[ranks], those in it that contribute or hold something.
        exits: int64[any], places.
        since_s: seconds, τ: before it the exits have not heard of the late ranks.
        late: how many late ranks there are.
    """

    nodes: Bool
    stores: Bool
    ranks: Bool
    exits: Int64
    since_s: float
    late: int


@dataclass(frozen=True)
class Late:
    """What ranks want of others, and where messages bring it.

    Attributes:
        held: float64[ranks, ranks], the bytes that the first one holds, or adds to, and the second one wants.
        apart: whether no two ranks want the same bytes.
        sums: whether messages hold sums of what several ranks have.
        inside: bool[groups, nodes of the network].
        within: bool[places, ranks], the ranks at each place: each node that stores, then each group.
        near_s: float64[nodes of the network, ranks], the least time that messages take.
    """

    topology: Topology
    held: Float64
    apart: bool
    sums: bool
    places: Places
    inside: Bool
    within: Bool
    near_s: Float64

    def asked_late(self, levels: list[list[Source]], from_s: float) -> list[Asked]:
        """When does a group have what leaves other groups late and its farthest ranks want? The questions that have the
        largest answers by an estimate.

        Args:
            levels: ways to divide the network into groups, see :func:`levels_of`.
            from_s: seconds, another bound.
        """
        nodes, t = len(self.within) - len(self.places.members), self.topology
        width, least_s = width_into(t, self.inside), float(self.places.message_s.min())
        found: dict[tuple[int, bytes], tuple[float, Asked]] = {}
        for number, level in enumerate(levels):
            known = waiting(level, self.places, self.within, from_s)
            for group, inside in enumerate(self.inside):
                sources = [source for source in known if not (source.nodes & inside).any()]
                if not any(source.since_s for source in sources) or width[group] == 0:
                    continue
                wants = np.array([self._late_bytes(source) for source in sources]) * self.within[nodes + group]
                if not wants.any():
                    continue
                far_s = onward_s(t, inside, self.near_s)
                most_s = float(far_s[wants.any(axis=0)].max())
                late = wants[:, far_s >= most_s]
                late = late.sum(axis=1, keepdims=True) if self.apart else late.max(axis=1, keepdims=True)
                asked = self._late(sources, late, np.array([nodes + group]))._replace(onward_s=most_s)
                come = -(-len(sources) // int((inside[t.dst] & ~inside[t.src]).sum()))
                busy_s = come * least_s + (late.max() if self.sums else late.sum()) / width[group]
                estimate_s, key = (
                    float(asked.since_s.max() + busy_s) + most_s,
                    (number, inside[t.accelerators].tobytes()),
                )
                if key not in found or found[key][0] < estimate_s:
                    found[key] = estimate_s, asked
        return [asked for _, asked in sorted(found.values(), key=lambda each: -each[0])[:MOST_ASKED]]

    def _late_bytes(self, source: Source) -> Float64:
        """float64[ranks], the bytes of late ranks of a group that each rank wants, at least; of a sum, all bytes."""
        held = self.held[source.ranks]
        found: Float64 = held.max(axis=0) if self.sums else np.sort(held, axis=0)[: source.late].sum(axis=0)
        return found

    def _late(self, sources: Sequence[Source], late: Float64, places: Int64) -> Asked:
        """When do places have what is late?

        Args:
            late: float64[sources, places].
        """
        exits = np.zeros((len(self.within), len(sources)), dtype=np.bool_)
        nodes = len(self.within) - len(self.places.members)
        for k, source in enumerate(sources):
            exits[source.exits, k] = True
            exits[nodes:, k] = self.places.members[:, source.exits].any(axis=1)
        counts = np.array([1.0 if self.sums else source.late for source in sources])
        since_s = np.array([source.since_s for source in sources])
        most = late.max(axis=1)
        return Asked(exits * most, exits * counts, int(counts.sum()), places, late.sum(axis=0), since_s=since_s)


def levels_of(topology: Topology, ranks: Int32, holds: Bool) -> list[list[Source]]:
    """The ways to divide the accelerators into groups of which one has fewer exits than ranks that hold something.

    Of each way, the groups with ranks that hold something; those with most such ranks for each exit first.

    Args:
        holds: bool[ranks], which hold something or contribute.
    """
    stores = np.flatnonzero(topology.store_and_forward)
    others = reached(topology, stores)
    found: dict[bytes, list[Source]] = {}
    for groups in clusters(topology):
        level = []
        for group in groups:
            nodes = np.isin(np.arange(topology.node_count), group)
            own = nodes[stores]
            exits = np.flatnonzero(own & (others & ~own).any(axis=1))
            inside = holds & nodes[ranks]
            if inside.any() and len(exits):
                level.append(Source(nodes, own, inside, exits, 0.0, int(inside.sum())))
        level.sort(key=lambda source: source.late / len(source.exits), reverse=True)
        if len(level) > 1 and level[0].late > len(level[0].exits):
            found.setdefault(np.stack([source.nodes for source in level]).tobytes(), level)
    return list(found.values())


def waiting(level: list[Source], places: Places, within: Bool, end_s: float) -> list[Source]:
    """The groups of a level, each with the time before which its exits have not heard of all of its ranks.

    Args:
        within: bool[places, ranks], the ranks at each place.
        end_s: seconds, after which no more is asked.
    """
    first = [_waiting(source, places, within, end_s) for source in level[:MOST_SOURCES]]
    return first + level[MOST_SOURCES:]


def _waiting(source: Source, places: Places, within: Bool, end_s: float) -> Source:
    every, step_s = source.late, end_s / STEPS
    places = places.sent_by(source.stores)
    merged, own, became = places.alike((within.astype(np.float64) @ source.ranks)[:, None])
    heard = merged.counts(own[:, 0], float(every), STEPS, step_s)[:, became[source.exits]].sum(axis=1)
    first = int((heard < every).sum())
    if first < 2:
        return source
    return source._replace(since_s=(first - 1) * step_s, late=every - round(heard[first - 1]))


def reached(topology: Topology, stores: Int64) -> Bool:
    """bool[nodes that store, nodes that store]: whether a message leads from one to the other, or it is the same."""
    passing = topology.with_links(~topology.store_and_forward[topology.dst])
    at = np.eye(topology.node_count, dtype=np.bool_)[stores]
    if passing.link_count:
        at |= np.isfinite(distances(passing, 0.0)[stores])
    to = at.copy()
    for link in range(topology.link_count):
        to[:, topology.dst[link]] |= at[:, topology.src[link]]
    return to[:, stores]
