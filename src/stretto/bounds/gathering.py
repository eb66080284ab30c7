"""A bound for ranks that want data of many holders where messages cost: few messages hold little, so bytes come late.

Take a rank v that wants B bytes which others hold, each holder at most a of them. Let F(t) be how many of these bytes
any one node can have by time t. What a node has beyond its own came in messages over the links into it. Let e be one of
these, of bandwidth b, latency l, and m for each message. A message of L bytes keeps e busy for m + L / b, and its
sender had all of them when it began: L <= F(x - d), where e begins to carry them at x and d is the least latency from
any node that sends to e. So what messages bring that have left e by time t is at most

    P_e(t) = max over x and L of P_e(x) + L,  where x + m + L / b <= t and L <= F(x - d)
    F(t) <= a + the largest, over nodes, of the sum over links e into it of P_e(t - l)

and v has B bytes no sooner than these sums for v allow. Messages that share e at a time take no less of it together: in
the order in which they begin, the last ones fill the time from the first of them on. One port alone gives
log n (m + l) + B / b for pieces of equal size, where each message may carry as much as its receiver has already.

In AllReduce and Reduce what counts is contributions: F(t) is the sum over all bytes of how many contributions to it a
node has. Let C(t) be how many contributions to one byte any node can have by time t, which is the same bound for
messages without bytes. A message of L bytes then brings L C(x - d) at most, and no more than F(x - d). A byte holds
many contributions only late, and then few messages make all bytes hold them.

Backwards in time the same holds of a rank whose data goes to many ranks (ReduceScatter, AllToAll, Scatter), if no
switch copies: F is then of how many pieces, in bytes, a node can still deliver in the rest of the time, and only these
are worth sending to it. A message holds a sum of several contributions in the bytes of one. A switch that copies one
message of many pieces to many ranks, of which each needs another piece, delivers more than any of them could.

F, C and P are computed for each node, and for groups of nodes: servers and sites. What a group has beyond its own came
over the links that lead into it, from nodes outside; and no node of it has more than the group. So few links into a
server bound what each rank in it can have. The same is asked of the data of holders outside of a group alone, and of
all that ranks of a group want of others together. Where messages cost next to nothing (between switches or routers) a
link brings its bandwidth.

A router passes on a chunk while it still comes, but whole, and that chunk was whole at the node that sent it to the
router. So L <= F(x - d) holds there, too, if d is the least latency from a node that stores. Backwards in time it does
not, where a router or a switch copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_size, format_time
from .candidates import clusters, settled, width_into
from .gathering_places import LEAST_STEPS, Asked, Places, onward_s
from .late import Late, Source, levels_of
from .latency import message_distances
from .messages import cost_at_ends
from .model import Bound

WORK = 12_000_000
"""Entries x steps x steps of time, at the most: what decides how fine these are."""

STEPS = 150, 600
"""Steps of time: those of all questions, and the most of the one with the largest bound, which is asked again."""

MARGIN = 1.1
"""The most steps cover this many times the largest bound in few steps."""

LEAST_ROUGH = 0.9
"""Share of the other bounds that the largest bound in few steps must reach for more steps to be worth it."""

ROOM = 1.6
"""The steps cover this many times the other bounds: bytes and messages, one after the other, at most double them."""

MOST_PLACES = 1000
"""Nodes up to which anything is computed."""

MOST_GROUPS = 64
"""Groups that bound what their nodes have; where there are more of a level, none of this level does."""

MOST_ASKED = 4
"""Groups of which is asked when they have what they want of others: those with the narrowest ways in of each level."""


def gathering_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The bound for each collective whose pieces have one holder, or one rank that wants them, or which sums.

    None if it says nothing.

    Args:
        from_s: seconds, another bound; this one is given only if it is larger.
    """
    if topology.planes or topology.changes or not cost_at_ends(topology):
        return None
    found = [_of(topology, c, from_s - c.start_s) for c in workload.collectives]
    best = max((each for each in found if each is not None), key=lambda bound: bound.seconds, default=None)
    return best if best is not None and best.seconds > from_s else None


def _of(topology: Topology, c: Collective, from_s: float) -> Bound | None:
    if len(c.ranks) < 3 or from_s <= 0 or topology.node_count > MOST_PLACES:
        return None
    asked: list[_Gathering | None] = []
    if _sums_alike(c) and not topology.reduces.any() if c.reduces else (c.holders.lengths == 1).all():
        asked.append(_Gathering.of(topology, c, turned=False))
    passed = topology.is_router | topology.replicates | topology.reduces
    if (c.wanted.lengths == 1).all() and not passed.any():
        backwards = replace(topology, src=topology.dst, dst=topology.src)
        asked.append(_Gathering.of(backwards, c, turned=True))
    ends = [gathering.end(from_s) for gathering in asked if gathering is not None]
    best = max((end for end in ends if end is not None), default=None)
    if best is None:
        return None
    cost = format_time(float(topology.message_s[topology.message_s > 0].min()))
    names = [topology.names[v] for v in best.nodes]
    those = names[0] if len(names) == 1 else f"{names[0]}...{names[-1]} ({len(names)} nodes)"
    words = f"{format_size(best.size_bytes)} between {those} and many ranks, in messages of {cost} and their bytes"
    if best.sums:
        words = f"all contributions come to each byte at {those}, in messages of {cost} and their bytes"
    return Bound(c.start_s + best.seconds, "messages", words, best.nodes, ())


class _End(NamedTuple):
    """A bound in seconds after the start, whom it is for, and the bytes that are needed there."""

    seconds: float
    nodes: tuple[int, ...]
    size_bytes: float
    sums: bool


def _sums_alike(c: Collective) -> bool:
    """Whether the collective is one sum, or several of the same ranks, each of which one rank wants."""
    held = c.holders.lengths
    alike = (held == held[0]).all() and len(np.unique(c.holders.values)) == held[0]
    return bool(c.reduces and alike and (len(held) == 1 or (c.wanted.lengths == 1).all()))


@dataclass(frozen=True)
class _Gathering(Late):
    """What ranks have for others, and where messages bring it.

    Attributes:
        groups: how many groups there are; those after them are what is outside of each.
        levels: groups that data leaves late (:mod:`.late`).
    """

    groups: int
    levels: list[list[Source]]

    @classmethod
    def of(cls, topology: Topology, c: Collective, turned: bool) -> _Gathering | None:
        """None if no messages come to any node.

        Args:
            topology: with its links turned round if time runs backwards.
        """
        held, owners = _held(c), c.holders if turned else c.wanted
        inside = groups_of(topology)
        groups, levels = len(inside), levels_of(topology, c.ranks, np.asarray((held > 0).any(axis=int(not turned))))
        if levels:  # what leaves a group is asked of all others
            nodes = np.unique([source.nodes for level in levels for source in level], axis=0)
            left = [(inside[:, topology.is_accelerator] == row[topology.is_accelerator]).all(axis=1) for row in nodes]
            inside = np.concatenate((inside, ~inside[np.any(left, axis=0)]))
        alone = np.flatnonzero(topology.store_and_forward)[:, None] == c.ranks
        within = np.concatenate((alone, inside[:, c.ranks]))
        places = Places.of(topology, inside, turned)
        if places is None:
            return None
        apart, sums = bool((owners.lengths == 1).all()), c.reduces and not turned
        near_s = message_distances(topology, 0.0)[:, c.ranks]
        held = held.T if turned else held
        return cls(topology, held, apart, sums, places, inside, within, near_s, groups, levels)

    def end(self, from_s: float) -> _End | None:
        """The best bound of any question.

        Args:
            from_s: seconds after the start, another bound.
        """
        asked = chain(self._asked(), self.asked_late(self.levels, from_s))
        rough = [(end, one) for one in asked if (end := self._answer(one, from_s, STEPS[0])) is not None]
        if not rough:
            return None
        end, best = max(rough, key=lambda one: one[0])
        if end.seconds < LEAST_ROUGH * from_s:
            return end
        return max(end, self._answer(best, MARGIN * end.seconds / ROOM, STEPS[1]) or end)

    def _asked(self) -> Iterator[Asked]:
        """When each rank has what it wants; and each of some groups, of others."""
        nodes = len(self.within) - len(self.places.members)
        place_of = self.within[:nodes].argmax(axis=0)
        yield self._question(self.held, place_of, np.arange(len(place_of)))
        first = slice(nodes, nodes + self.groups)
        for group in _narrowest(self.topology, self.within[first], self.inside[: self.groups]):
            here = self.within[nodes + group]
            outside = self.held * ~here[:, None]
            yield self._question(outside, place_of[here], np.flatnonzero(here))
            for far, rest_s in self._behind(group, here) if self.apart else ():
                together = outside[:, far].sum(axis=1, keepdims=True)
                asked = self._question(together, np.array([nodes + group]), np.zeros(1, dtype=np.int64))
                yield asked._replace(onward_s=rest_s)

    def _behind(self, group: int, here: Bool) -> Iterator[tuple[Bool, float]]:
        """All ranks of a group; and those that what enters it must still be sent to, with the least time of that."""
        yield here, 0.0
        far_s = np.where(here, onward_s(self.topology, self.inside[group], self.near_s), 0.0)
        if (far_s > 0).any():
            yield far_s > 0, float(far_s[far_s > 0].min())

    def _question(self, held: Float64, places: Int64, of: Int64) -> Asked:
        """When do places have all of some columns of ``held``, each of its own?"""
        holds = (held > 0).any(axis=1)
        within = self.within.astype(np.float64)
        own = (within @ held[:, np.unique(of)]).max(axis=1, keepdims=True)
        return Asked(own, (within @ holds)[:, None], int(holds.sum()), places, held.sum(axis=0)[of])

    def _answer(self, asked: Asked, from_s: float, least_steps: int) -> _End | None:
        """When the last of the places has what it needs, at the soonest; None if that says nothing new."""
        if not len(asked.needs) or not asked.needs.max():
            return None
        places, columns, became = self.places.alike(np.concatenate((asked.own, asked.counts), axis=1))
        own, counts = np.split(columns.T, 2)
        # at least as many as tell messages apart, if that is not too much work
        least_s = float(places.message_s[places.message_s > 0].min(initial=np.inf))
        apart = max(1.1 * LEAST_STEPS * ROOM * from_s / least_s, least_steps)
        steps = int(np.clip(min(np.sqrt(WORK / len(places.message_s)), apart), *STEPS))
        soonest, found = steps, None
        while soonest == steps:  # all of them are not enough
            step_s = ROOM * from_s / steps
            if places.message_s.max() < LEAST_STEPS * step_s:
                break
            begun = np.arange(1, steps + 1)[:, None] * step_s > asked.since_s
            most, each = float(asked.ranks) if self.sums else 1.0, np.ones((steps, own.shape[1]))
            if self.sums or places.message_s.min() < LEAST_STEPS * step_s:
                each = places.counts(np.minimum(begun @ counts, most), most, steps, step_s)
            had = places.bytes(begun @ own, float(asked.needs.max()), steps, step_s, each)[:, became[asked.places]]
            enough = had >= asked.needs * (1 - 1e-9)
            last = np.where(enough.any(axis=0), enough.argmax(axis=0), steps)
            k = int(last.argmax())
            soonest, from_s = int(last[k]), steps * step_s
            whom = tuple(np.flatnonzero(self.covered(int(asked.places[k]))).tolist())
            found = _End(max(soonest - 1, 0) * step_s + asked.onward_s, whom, float(asked.needs[k]), self.sums)
        return found

    def covered(self, place: int) -> Bool:
        """bool[nodes of the network], the accelerators of a place."""
        stores = np.flatnonzero(self.topology.store_and_forward)
        if place < len(stores):
            return np.asarray(np.arange(self.topology.node_count) == stores[place])
        return np.asarray(self.inside[place - len(stores)] & self.topology.is_accelerator)


def _held(c: Collective) -> Float64:
    """float64[ranks, ranks], the bytes that the first one holds, or adds to, and the second one wants.

    Each piece has one holder, or one rank that wants it, or it is the only one.
    """
    n = len(c.ranks)
    held = np.zeros((n, n))
    if len(c.piece_bytes) == 1:
        held[np.ix_(c.holders.values, c.wanted.values)] = c.piece_bytes[0]
        return held
    if (c.holders.lengths == 1).all():
        piece, wants = c.wanted.owners, c.wanted.values
        has = c.holders.values[piece]
    else:
        piece, has = c.holders.owners, c.holders.values
        wants = c.wanted.values[piece]
    np.add.at(held.reshape(-1), has.astype(np.int64) * n + wants, c.piece_bytes[piece])
    return held


def groups_of(topology: Topology) -> Bool:
    """bool[groups, nodes]: sites and what fast links join, with the switches and routers that are theirs alone; and
    with those on whichever side leaves the narrowest way in."""
    sets: dict[tuple[int, ...], None] = {}
    for groups in clusters(topology):
        if len(groups) <= MOST_GROUPS:
            sets |= dict.fromkeys(tuple(sorted(group)) for group in groups if len(group) > 1)
    inside = np.zeros((min(len(sets), MOST_GROUPS), topology.node_count), dtype=np.bool_)
    for row, group in zip(inside, sets, strict=False):
        row[list(group)] = True
    if not len(inside):
        return inside
    return np.unique(np.concatenate((_closed(topology, inside), settled(topology, inside))), axis=0)


def _closed(topology: Topology, inside: Bool) -> Bool:
    """The groups with each switch and router all of whose neighbours are inside."""
    inside = inside.copy()
    passing = np.flatnonzero(~topology.is_accelerator)
    beside = [
        np.concatenate((topology.dst[topology.out_links[v]], topology.src[topology.in_links[v]])) for v in passing
    ]
    for v, nodes in zip(passing, beside, strict=True):
        inside[:, v] = inside[:, nodes].all(axis=1)
    return inside


def _narrowest(topology: Topology, within: Bool, inside: Bool) -> list[int]:
    """The groups that are asked: of those with ranks inside and outside, the ones with the narrowest ways in, and one
    of those with equally many ranks and links in of equal width."""
    width = width_into(topology, inside)
    links = (inside[:, topology.dst] & ~inside[:, topology.src]).sum(axis=1)
    count = within.sum(axis=1)
    usable = np.flatnonzero((count > 0) & (count < within.shape[1]) & (width > 0))
    first = np.unique(np.stack((width, count, links), axis=1)[usable], axis=0, return_index=True)[1]
    return list(map(int, usable[first][:MOST_ASKED]))
