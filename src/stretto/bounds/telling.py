"""How many ranks of a set messages inside can tell of a chunk in the time that is left.

Let no switch copy, and let nodes but accelerators store nothing. The nodes of a set that store are divided into
*groups*: each a group by itself, or those of each server. Take a chunk of c bytes that has come to node x with time r
left, and all ranks that get it from there on. Within the group of x, nothing is counted but the shortest way d(x, z) to
each rank z. Ranks of other groups are told by messages over links f out of the group, each from a node u to a node y
where a way over f ends. The i-th of those messages to leave u ends i times m_f + c / b_f after the chunk came to u, or
later, where m_f is the cost of a message and b_f the bandwidth. So x tells at most

    N_x(r) = the ranks z of its group with d(x, z) <= r
             + sum over links f out of its group, and i = 1, 2, ..., of the largest
               N_y(r - d(x, u) - i (m_f + c / b_f) - latency) of any y of other groups where a way over f ends.

A link to a node that stores tells that one node, so there i = 1 alone counts.

Where each node is a group by itself this is the number of nodes that messages one after the other tell (LogP; Karp,
Sahay, Santos and Schauser, SPAA 1993), but a rank counts once for each message that tells it. Where servers are groups
a rank counts once for each message into its server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.topology import Topology
from .latency import distances

SAMPLES = 5
"""Sizes of a chunk for which shortest ways are looked for."""


@dataclass(frozen=True)
class Telling:
    """What a set of nodes can do with messages of some sizes.

    Attributes:
        entries: int64[entries], the nodes where a message from another group, or from outside, can end.
        most: the number of ranks that are counted.
        takes_s: float64[sizes, links], what a message takes over each link out of a group, besides latency.
        sender: int64[links], the node that sends over each, as a number from 0 on; the links are sorted by it.
        one: bool[links], whether the link leads to a node that stores.
        link, end: int64[ends], the links and the entries where ways over them end, sorted by link.
        later_s: float64[ends], the latency of these ways.
        of, by: int64[ways], the entries and the senders in their groups, sorted by entry.
        away_s: float64[sizes, ways], the shortest way from the one to the other.
        told: int64[ranks counted], the entry in whose group it is, once for each entry there, sorted.
        told_s: float64[sizes, ranks counted], the shortest way from the one to the other.
    """

    entries: Int64
    most: float
    takes_s: Float64
    sender: Int64
    one: Bool
    link: Int64
    end: Int64
    later_s: Float64
    of: Int64
    by: Int64
    away_s: Float64
    told: Int64
    told_s: Float64

    @classmethod
    def of_set(
        cls,
        net: Topology,
        inside: Bool,
        ranks: Int32,
        group: Int64,
        size: Float64,
        takes_s: Float64,
        passing_s: Float64,
    ) -> Telling:
        """For the nodes ``inside``.

        Args:
            ranks: those that are counted.
            group: int64[nodes], the group of each node that stores.
            size: float64[sizes], bytes, ascending.
            takes_s: float64[sizes, links of the network], what a message takes besides latency.
            passing_s: float64[nodes, nodes], latency by ways inside that pass no node that stores.
        """
        sends, reached = leaving(net, inside, group, passing_s)
        sends = sends[np.argsort(net.src[sends], kind="stable")]
        reached = reached[sends]
        links = np.flatnonzero(~inside[net.src] & inside[net.dst])
        enters = (passing_s[net.dst[links]] < np.inf).any(axis=0) & net.store_and_forward & inside
        entries = np.flatnonzero(enters | reached.any(axis=0))
        senders, sender = np.unique(net.src[sends], return_inverse=True)
        link, end = np.nonzero(reached[:, entries])
        later_s = net.latency_s[sends[link]] + passing_s[net.dst[sends[link]], entries[end]]
        of, by = np.nonzero(group[entries][:, None] == group[senders])
        told, rank = np.nonzero(group[entries][:, None] == group[ranks])
        kept = inside[net.src] & inside[net.dst]
        within = net.with_links(kept)

        def ways_s(k: int) -> Float64:
            stored_s = np.where(within.store_and_forward[within.dst], takes_s[k, kept], 0.0)
            way_s = distances(replace(within, latency_s=within.latency_s + stored_s), 0.0)
            return np.concatenate((way_s[entries[of], senders[by]], way_s[entries[told], ranks[rank]]))

        way_s = between_sizes(size, ways_s)
        return cls(
            entries, float(len(ranks)), takes_s[:, sends], sender.reshape(-1), net.store_and_forward[net.dst[sends]],
            link, end, later_s, of, by, way_s[:, : len(of)], told, way_s[:, len(of) :],
        )  # fmt: skip

    def numbers(self, step_s: float, steps: int) -> Float64:
        """float64[steps + 1, sizes, entries]: N, by the whole steps of time that are left."""
        room = whole_steps(self.takes_s, step_s, steps)
        later = room[:, self.link] + whole_steps(self.later_s, step_s, steps)
        away, told_at = (whole_steps(s, step_s, steps) for s in (self.away_s, self.told_s))
        count, rows = len(room), np.arange(len(room))[:, None]
        several, link_firsts = np.flatnonzero(~self.one), _firsts(self.link)
        add_told, add_sent, add_ways = (_adding(column) for column in (self.told, self.sender, self.of))
        number = np.zeros((steps + 1, count, len(self.entries)))
        sent = np.zeros((steps + 1, count, int(self.sender.max(initial=-1)) + 1))
        again = np.zeros((steps + 1, count, len(several)))  # what the messages that a link can still send tell
        at_once, endless = later == 0, room[:, several] == 0  # in less than a step: then all are told
        for left in range(steps + 1):
            total = number[left]
            add_told(total, (told_at <= left).astype(np.float64))
            if len(self.link):
                value = _ago(number, left - later, rows, self.end)
                value[at_once] = self.most
                each = np.maximum.reduceat(value, link_firsts, axis=1)
                more = _ago(again, left - room[:, several], rows, np.arange(len(several)))
                again[left] = np.where(endless, self.most, each[:, several] + more)
                each[:, several] = again[left]
                add_sent(sent[left], each)
                add_ways(total, _ago(sent, left - away, rows, self.by))
            np.minimum(total, self.most, out=total)
        return number


def leaving(net: Topology, inside: Bool, group: Int64, passing_s: Float64) -> tuple[Int64, Bool]:
    """The links by which messages leave a group for another one inside, and bool[links of the network, nodes], where
    ways over each link end then."""
    stores = net.store_and_forward & inside
    ends = (passing_s[net.dst] < np.inf) & stores & (group != group[net.src][:, None])
    ends &= (stores[net.src] & inside[net.dst])[:, None]
    return np.flatnonzero(ends.any(axis=1)), ends


def passing(net: Topology, inside: Bool) -> Float64:
    """float64[nodes, nodes]: latency by ways inside a set that pass no node that stores."""
    within = inside[net.src] & inside[net.dst]
    return distances(net.with_links(within & ~net.store_and_forward[net.src]), 0.0)


def between_sizes(size: Float64, seconds: Callable[[int], Float64]) -> Float64:
    """float64[sizes, any]: the lengths of shortest ways, computed for some of the sizes, and no less between these.

    The shortest of several ways, each longer by as much for each byte, is no shorter than between two sizes.

    Args:
        size: float64[sizes], ascending.
        seconds: the lengths for the size of that number.
    """
    at = np.unique(np.linspace(0, len(size) - 1, SAMPLES).astype(np.int64))
    known = np.array([seconds(int(k)) for k in at])
    above = np.clip(np.searchsorted(at, np.arange(len(size))), 1, len(at) - 1)
    low, high = size[at[above - 1]], size[at[above]]
    share = ((size - low) / (high - low))[:, None]
    with np.errstate(invalid="ignore"):  # where there is no way
        return np.where(np.isinf(known[above]), np.inf, known[above - 1] * (1 - share) + known[above] * share)


def whole_steps(seconds: Float64, step_s: float, most: int) -> Int64:
    """The number of whole steps in each time, ``most`` + 1 at the most."""
    steps: Int64 = np.minimum(seconds / step_s, most + 1).astype(np.int64)
    return steps


def _ago(table: Float64, left: Int64, rows: Int64, column: Int64) -> Float64:
    """float64[sizes, any]: what a table says for these steps that are left; 0 before the end."""
    return np.where(left >= 0, table[np.maximum(left, 0), rows, column], 0.0)


def _adding(column: Int64) -> Callable[[Float64, Float64], None]:
    """Adds values to their columns, which are sorted."""
    firsts = _firsts(column)

    def add(total: Float64, values: Float64) -> None:
        if len(column):
            total[:, column[firsts]] += np.add.reduceat(values, firsts, axis=1)

    return add


def _firsts(column: Int64) -> Int64:
    """Where each number begins in a sorted column."""
    return np.flatnonzero(np.diff(column, prepend=-1))
