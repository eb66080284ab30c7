"""A plan between sites as a plan of all ranks.

What a transfer between sites brings leaves one site at one of its nodes and enters the other at one of its nodes, its
*doors*, which are chosen so that all links to other sites, and all ranks of a site, have about as much to carry as each
other. What leaves is brought to the door first. What comes goes on to all ranks of the site that want it. Of a sum each
site has a *gateway*, where its ranks give their parts and where what comes is added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.collective import Collective
from ...model.errors import Unsupported
from ...model.plan import COPY, REDUCE, Plan
from ...model.topology import Topology
from .contraction import Contraction
from .messages import NONE, Messages, Way
from .parts import Crossing

LACKS = -2
"""No transfer: the node has not got it."""

Tree = Callable[[int], list[tuple[int, int]]]
"""Among a number of members, of which the first has what all others want: who sends to whom, in order."""


def star(count: int) -> list[tuple[int, int]]:
    """The first member sends to all others."""
    return [(0, k) for k in range(1, count)]


def binomial(count: int) -> list[tuple[int, int]]:
    """All that have it send it on, each time to as many others."""
    return [(k - (1 << (k.bit_length() - 1)), k) for k in range(1, count)]


@dataclass(eq=False)
class _Place:
    """What becomes of a chunk of the plan between sites in one of them."""

    due: int = 0  # transfers from other sites that have still to come, and those to others of a sum that is not whole
    at: dict[int, list[Int64]] = field(default_factory=dict)  # by node that has it the transfers that brought it there
    partly: dict[int, Int64] = field(default_factory=dict)  # by node int64[chunks], the same of what it has, or LACKS
    gateway: int = -1  # of a sum
    gave: list[Int64] = field(default_factory=list)  # the transfers by which ranks gave the gateway their parts
    came: list[Int64] = field(default_factory=list)  # those by which sums came to it from other sites
    passed: dict[int, list[Int64]] = field(default_factory=dict)  # those by which parts of a sum came to its doors

    def written(self, node: int) -> list[Int64]:
        """What a copy of the whole sum waits for besides the sum: parts of it that are added to what it replaces."""
        return self.passed.get(node, []) + ([*self.came, *self.gave] if node == self.gateway else [])


class Expansion:
    """Makes the plan of all ranks.

    Args:
        net: the network of sites.
        topology: the real one.
        c: the collective, in chunks of its own: copies, or sums that all ranks want.
        crossing: the plan between sites.
        own: for each chunk of that plan its chunks of ``c``.
        way_inside: the links from one node to another.
        tree: how something goes from a node to all others of its site, or backwards.
    """

    def __init__(
        self, net: Contraction, topology: Topology, c: Collective, crossing: Crossing, own: Ragged,
        way_inside: Way, tree: Tree,
    ) -> None:  # fmt: skip
        self._net, self._topology, self._c, self._tree = net, topology, c, tree
        self._between, self._start_s, self._seconds = crossing.plan, crossing.start_s, crossing.seconds
        self._own = [own[k].astype(np.int64) for k in range(own.rows)]
        self._messages = Messages(topology, c, way_inside)
        self._free_s = [0.0] * topology.link_count  # when each link has carried what is on its way between sites
        site = net.site[c.ranks]
        self._ranks = [c.ranks[site == s].tolist() for s in range(net.sites)]
        first = [lists.values[lists.offsets[:-1]] for lists in (c.holders, c.wanted)]
        self._holder, self._receiver = (c.ranks[ranks[c.chunk_piece]] for ranks in first)
        self._now_s = 0.0  # when the message between sites starts there that is looked at
        self._places: dict[tuple[int, int], _Place] = defaultdict(_Place)
        self._came: dict[tuple[int, int], Int64] = {}  # by transfer between sites and receiver: the last that it led to

    def plan(self, several_chunks: bool) -> tuple[Plan, Float64, Float64]:
        """The plan, in ready-order, and float64[transfers] each: before when each should not start, and how long it
        takes in the plan between sites; 0 for those inside sites.

        Args:
            several_chunks: whether a message may carry several chunks.
        """
        between = self._between
        for k in range(between.transfer_count):
            for b in [*between.dst[k].tolist(), *([int(between.src[k])] if self._is_summing(k) else [])]:
                self._places[b, int(between.chunk[k])].due += 1
        rows = np.arange(between.transfer_count)
        message = rows if between.message is None else between.message
        order = np.lexsort((rows, message, self._start_s)).tolist()
        for _, group in groupby(order, key=lambda k: int(message[k])):
            self._go([*group])
        if not self._c.reduces:
            self._stay()
        return self._messages.plan(several_chunks)

    # --- from site to site ----------------------------------------------------------------------

    def _go(self, rows: list[int]) -> None:
        """A message of the plan between sites: one for each pair of doors, and for copies and sums apart."""
        between, self._now_s = self._between, float(self._start_s[rows[0]])
        a, goals = int(between.src[rows[0]]), between.dst[rows[0]].tolist()
        by_doors: dict[tuple[int, bool, tuple[int, ...]], list[tuple[int, list[Int64]]]] = defaultdict(list)
        for k in rows:
            src = self._leaves_at(k)
            doors = src, *(self._enters_at(k, b, src) for b in goals)
            waits, apart = self._awaited(k, src)
            if self._c.reduces and not self._is_summing(k):
                ends = zip(goals, doors[1:], strict=True)
                waits = [*waits, *(w for b, v in ends for w in self._places[b, int(between.chunk[k])].written(v))]
            by_doors[int(between.op[k]), apart, doors].append((k, waits))
        for (op, apart, (src, *dst)), members in by_doors.items():
            route = self._real_route(between.route[rows[0]].tolist(), dict(zip([a, *goals], [src, *dst], strict=True)))
            chunks = [self._own[between.chunk[k]] for k, _ in members]
            waits = [
                np.concatenate(
                    [w[i] if i < len(w) else np.full(len(own), NONE) for (_, w), own in zip(members, chunks)]
                )
                for i in range(max(len(w) for _, w in members))
            ]
            every, share = np.concatenate(chunks), len(members) / len(rows)
            times_s = float(self._start_s[rows[0]]), float(self._seconds[rows[0]]) * share
            made = self._messages.send(every, src, dst, route, op, waits, apart, times_s)
            self._use(route, every, rows[0])
            for (k, _), came in zip(members, np.split(made, np.cumsum([*map(len, chunks)])[:-1]), strict=True):
                if self._is_summing(k):
                    self._passed(a, int(between.chunk[k]))
                for b, node in zip(goals, dst, strict=True):
                    self._arrived(k, b, node, came)

    def _use(self, route: list[int], chunks: Int64, k: int) -> None:
        """Note that chunks go over links, for a transfer between sites."""
        begin_s, size = max(self._start_s[k], *(self._free_s[link] for link in route)), self._messages.size(chunks)
        for link in route:
            self._free_s[link] = begin_s + size / self._messages.bandwidth[link] + self._messages.message_s[link]

    def _leaves_at(self, k: int) -> int:
        """The door by which a transfer between sites leaves."""
        a, chunk = int(self._between.src[k]), int(self._between.chunk[k])
        place, doors = self._places[a, chunk], self._doors(int(self._between.route[k][0]), leaves=True)
        has = [place.gateway] if self._is_summing(k) else place.at or self._holder[self._own[chunk]]
        if self._is_summing(k):  # where the whole sum is, a part of it may no longer come
            doors = {v: e for v, e in doors.items() if v == place.gateway or v not in place.at}
            if not doors:
                raise Unsupported("by-sites: a part of a sum leaves a site after the sum, by the same accelerator")
        return self._soonest(doors, k, lambda v: (v not in has, v not in self._ranks[a]))

    def _enters_at(self, k: int, b: int, src: int) -> int:
        """The door by which it enters a site."""
        net = self._net.topology
        last = next(link for link in self._between.route[k].tolist() if net.dst[link] == b)
        straight = net.src[last] < self._net.sites  # from site to site
        doors = self._doors(last, leaves=False, src=src if straight else None)
        gateway = self._places[b, int(self._between.chunk[k])].gateway
        return self._soonest(doors, k, lambda v: (v != gateway, v not in self._ranks[b]))

    def _soonest(self, doors: dict[int, int], k: int, worse: Callable[[int], tuple[bool, ...]]) -> int:
        """The door by which a transfer between sites is through first; of several alike the one with the least work.

        Args:
            worse: what decides between doors that are alike in work, too: True for each thing that speaks against one.
        """
        ready_s = max([self._start_s[k], *(self._free_s[link] for link in self._way(k))])
        size, seconds = self._messages.size(self._own[self._between.chunk[k]]), self._seconds[k]

        def rank(v: int) -> tuple[float | bool, ...]:
            door = doors[v]
            takes_s = max(seconds, size / self._messages.bandwidth[door])
            return max(self._free_s[door], ready_s) + takes_s, self._messages.work_s[v], *worse(v)

        return min(doors, key=rank)

    def _way(self, k: int) -> list[int]:
        """The real links of a transfer between sites that have no door at an end."""
        links = self._between.route[k]
        return [int(self._net.links[e][0]) for e in links[self._net.inner[links]].tolist()]

    def _doors(self, link: int, leaves: bool, src: int | None = None) -> dict[int, int]:
        """The nodes of a site at its end of a link between sites, and a real link of each: from ``src`` if given."""
        real = self._net.links[link]
        real = real if src is None else real[self._topology.src[real] == src]
        ends = (self._topology.src if leaves else self._topology.dst)[real]
        return dict(zip(ends.tolist(), real.tolist(), strict=True))

    def _real_route(self, route: list[int], door: dict[int, int]) -> list[int]:
        """The real links of a route between sites that has these doors."""
        net, topology, found = self._net, self._topology, []
        for link in route:
            src, dst = (door.get(int(v), int(net.node[v])) for v in (net.topology.src[link], net.topology.dst[link]))
            real = net.links[link]
            found += real[(topology.src[real] == src) & (topology.dst[real] == dst)].tolist()
        return found

    def _is_summing(self, k: int) -> bool:
        """Whether a transfer between sites carries a sum that is not yet whole."""
        return bool(self._between.op[k] == REDUCE)

    def _awaited(self, k: int, src: int) -> tuple[list[Int64], bool]:
        """What a transfer between sites waits for at its door, and whether it carries that alone."""
        between = self._between
        a, chunk = int(between.src[k]), int(between.chunk[k])
        place = self._places[a, chunk]
        before = [j for j in between.depends[k].tolist() if between.chunk[j] == chunk and a in between.dst[j]]
        waits = [self._came[j, a] for j in before]
        if self._c.reduces and place.gateway < 0:
            self._gather(a, chunk, src)
        if not self._is_summing(k):
            if self._c.reduces and not place.at:  # the sum is whole, though parts of it have still to leave
                place.at[place.gateway] = [*waits, *place.gave]
            if src not in place.at:
                self._bring(a, chunk, src)
            return place.at[src], False
        forwards = between.forwards is not None and bool(between.forwards[k])
        if not forwards and not any(between.op[j] == COPY for j in before):
            waits += place.gave
        if src == place.gateway:
            return waits, forwards
        sent = self._messages.near(self._own[chunk], place.gateway, src, REDUCE, waits, forwards)
        place.passed.setdefault(src, []).append(sent)
        return [sent], True

    def _arrived(self, k: int, b: int, node: int, rows: Int64) -> None:
        """What a chunk leads to in a site where it has come from another one."""
        chunk = int(self._between.chunk[k])
        self._came[k, b] = rows
        place, own = self._places[b, chunk], self._own[chunk]
        if self._c.reduces and place.at:
            raise Unsupported("by-sites: the plan between sites copies a sum to a site before the sum is whole")
        if not self._is_summing(k):
            place.at[node] = [rows]
            if self._c.traits.pieces == "pair":
                self._hand_out(chunk, node, b)
            else:
                self._passed(b, chunk)
            return
        if place.gateway < 0:
            self._gather(b, chunk, node)
        if node != place.gateway:
            place.passed.setdefault(node, []).append(rows)
            self._came[k, b] = rows = self._messages.near(own, node, place.gateway, REDUCE, [rows], True)
        place.came.append(rows)
        self._passed(b, chunk)

    def _passed(self, site: int, chunk: int) -> None:
        """A chunk has come to a site, or a part of it has left it: after the last time its ranks get what is whole."""
        place = self._places[site, chunk]
        place.due -= 1
        if not place.due:
            if not place.at:
                place.at[place.gateway] = [*place.came, *place.gave]
            self._spread(chunk, next(iter(place.at)), site)

    # --- inside sites ---------------------------------------------------------------------------

    def _gather(self, site: int, chunk: int, gateway: int) -> None:
        """The ranks of a site give their parts of a sum to its gateway."""
        place = self._places[site, chunk]
        place.gateway = gateway
        members = [gateway, *(v for v in self._ranks[site] if v != gateway)]
        came: dict[int, list[Int64]] = defaultdict(list)
        for to, by in reversed(self._tree(len(members))):
            due = self._now_s, len(members) - 1
            came[to].append(self._messages.near(self._own[chunk], members[by], members[to], REDUCE, came[by], due=due))
        place.gave = came[0]

    def _spread(self, chunk: int, source: int, site: int) -> None:
        """A chunk goes from a node that has it to all ranks of its site that have not."""
        members = [source, *(v for v in self._ranks[site] if v != source)]
        for by, to in self._tree(len(members)):
            if members[to] not in self._places[site, chunk].at:
                self._copy(chunk, members[by], members[to], site)

    def _copy(self, chunk: int, src: int, dst: int, site: int) -> None:
        """A node that has a chunk sends to another one what this lacks of it."""
        place, own = self._places[site, chunk], self._own[chunk]
        came = place.partly[dst] if dst in place.partly else self._held(chunk, dst)
        lacks = came == LACKS
        waits = [each[lacks] for each in (*place.at[src], *place.written(dst))]
        if lacks.any():
            came[lacks] = self._messages.near(own[lacks], src, dst, COPY, waits)
        place.at[dst] = [came]

    def _held(self, chunk: int, node: int) -> Int64:
        """int64[chunks], what a node held at first of what a chunk stands for: NONE, or LACKS."""
        return np.where((self._holder[self._own[chunk]] == node) & (not self._c.reduces), NONE, LACKS)

    def _is_origin(self, site: int, chunk: int) -> bool:
        """Whether ranks of a site hold a chunk that is no sum at first."""
        return not self._c.reduces and self._net.site[self._holder[self._own[chunk][0]]] == site

    def _bring(self, site: int, chunk: int, node: int) -> None:
        """A chunk goes to a node of a site in which others have it."""
        place, own = self._places[site, chunk], self._own[chunk]
        if place.at and (self._tree is not star or not self._is_origin(site, chunk)):
            self._copy(chunk, next(iter(place.at)), node, site)
            return
        members = [node, *(v for v in dict.fromkeys(self._holder[own].tolist()) if v != node)]
        came = [self._held(chunk, v) for v in members]
        for to, by in reversed(self._tree(len(members))):
            sent = came[by] != LACKS
            waits, due = [came[by][sent]], (self._now_s, len(members) - 1)
            came[to][sent] = self._messages.near(own[sent], members[by], members[to], COPY, waits, due=due)
        place.partly |= dict(zip(members, came, strict=True))
        place.at[node] = [came[0]]

    def _hand_out(self, chunk: int, source: int, site: int) -> None:
        """What has come for ranks of a site goes to each of them."""
        own = self._own[chunk]
        goals = self._receiver[own]
        inside = goals[self._net.site[goals] == site]
        members = [source, *(v for v in dict.fromkeys(inside.tolist()) if v != source)]
        pairs, wanted = self._tree(len(members)), [goals == v for v in members]
        for by, to in reversed(pairs):
            wanted[by] = wanted[by] | wanted[to]
        came = {0: self._places[site, chunk].at[source]}
        for by, to in pairs:
            rows = np.full(len(own), NONE)
            what = wanted[to]
            rows[what] = self._messages.near(
                own[what], members[by], members[to], COPY, [each[what] for each in came[by]]
            )
            came[to] = [rows]

    def _stay(self) -> None:
        """What ranks hold goes to those of their own site that have not got it on its way to others."""
        net, alone = self._net, self._c.traits.pieces == "pair"
        inside: dict[tuple[int, int], list[Int64]] = defaultdict(list)
        if alone:
            for k in np.flatnonzero(net.site[self._holder] == net.site[self._receiver]).tolist():
                inside[int(self._holder[k]), int(self._receiver[k])].append(np.array([k]))
        for chunk, own in enumerate(self._own if not alone else []):
            holders = self._holder[own]
            site = int(net.site[holders[0]])
            at = self._places[site, chunk].at
            if at and self._tree is not star:
                self._spread(chunk, next(iter(at)), site)
            for v in self._ranks[site]:
                for holder in dict.fromkeys(holders.tolist() if v not in at else ()):
                    inside[holder, v].append(own[holders == holder])
        for (src, dst), parts in inside.items():
            if src != dst:
                self._messages.near(np.concatenate(parts), src, dst, COPY, [])
