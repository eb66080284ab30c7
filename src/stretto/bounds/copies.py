"""A bound for copies where messages cost: what enters a set late can be copied to few nodes inside.

Let no switch copy, and let nodes but accelerators store nothing. Take a set S of nodes, n ranks inside that want a
piece, and its holder outside. Each byte comes to each of these ranks by a chain of messages, which enters S for the
last time over some link e, in a message of a chunk of c bytes. From there on the chain stays inside. So what has
crossed e by time t serves no more ranks by the end T than N_e(T - t, c), the most ranks that could be told of a chunk
in that time by messages inside S, each of which takes the cost m_f of a link and c / b_f, and its latency:

    N_x(r) = 1 where x is a rank that wants it, and for each link f out of x the largest N_y(r - i (m_f + c / b_f) -
    latency) of any y where a way over f ends, for i = 1, 2, ...

A link to a node that stores tells that one node, so there i = 1 alone counts.

On link e a message of c bytes takes room for m_e + c / b_e, and none begins before a chunk of c bytes can have come to
where e begins. Let V_e(T) be the most that messages one after the other on e can add up to, where a message of c bytes
whose last byte leaves at t counts as c N_e(T - t, c). All bytes of all pieces must come to all ranks, so T is no sooner
than where

    sum over links e into S of V_e(T)  =  sum over pieces of their bytes x the ranks inside that want them.

V is found by dynamic programming over time. Sizes and times are rounded so that V is never too small: a message of a
size between two steps counts as many bytes as the larger one, and takes as long as the smaller one; a time is cut to
whole steps.

Sums are bounded by their copies backwards in time. This takes tenths of a second for each set, so ``bounds`` does not
ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import ROUTER, Topology
from .latency import distances


@dataclass(frozen=True)
class Grid:
    """Steps of size and of time.

    Attributes:
        sizes: steps of the size of a message, at most.
        entries: sizes times links inside a set, at most.
        steps: steps of time from the start to the latest end that is looked at.
        longer: this end, as a multiple of a bound that is known.
    """

    sizes: int
    entries: int
    steps: int
    longer: float


GRIDS = (Grid(64, 10_000, 800, 4.0), Grid(512, 40_000, 2000, 1.15), Grid(1024, 80_000, 5000, 1.01))
"""A coarse grid, and finer ones from what the one before found, as long as that is below the goal and may come near.
Broadcast of 16 MB on sites:2,8 takes at least 1.000, 1.047 and then 1.050 times the bound of a cut."""

HOPE = (0.0, 0.5, 0.99)
"""Share of the goal that must be proven for each of the grids to be tried."""

LEAST_SIZES = 16
"""Steps of the size of a message among many nodes."""

FARTHER = 2
"""Distances from the links into a set for which the nodes beyond are looked at alone. Without them the last messages
count as one rank each that they tell, also where that rank has been told: Broadcast of 1 KB on ndv2:4."""

BEGINS = 5
"""Sizes for which ways from a holder are looked for."""

NEAR = 2e-4
"""By what share the bound found may be below the best bound of its set."""


@dataclass(frozen=True)
class Copies:
    """A bound by one set."""

    seconds: float
    inside: tuple[int, ...]


def copies_bound(topology: Topology, collective: Collective, from_s: float, goal_s: float = np.inf) -> Copies | None:
    """The best bound of what is around the holders and around their sites; None where it says nothing.

    Args:
        from_s: seconds, another bound above the start; the answer is None unless this one is larger.
        goal_s: seconds; a bound that is above this need not be any larger.
    """
    c, net = collective, topology
    if c.reduces and (c.wanted.lengths == 1).all():
        net = replace(net, src=net.dst, dst=net.src)
        c = replace(c, kind="multicast", holders=c.wanted, wanted=c.holders, reduces=False)
    if c.reduces or (c.holders.lengths > 1).any() or (c.wanted.lengths < 2).all() or not _serves(net):
        return None
    best: Copies | None = None
    for inside, counted in _sets(net, c):
        least_s = max(from_s, 0.0 if best is None else best.seconds) - c.start_s
        if not 0 < least_s < goal_s - c.start_s:
            break
        seconds = _bound_of(net, c, inside, counted, least_s, goal_s - c.start_s)
        if seconds is not None:
            best = Copies(c.start_s + seconds, tuple(np.flatnonzero(inside).tolist()))
    return best


def _serves(net: Topology) -> bool:
    """Whether messages cost, each has one sender and one receiver, and only accelerators store."""
    several = net.replicates.any() or net.reduces.any() or (net.forwarding == ROUTER).any()
    return bool(net.message_s.all() and not several and not net.planes and not net.changes)


def _sets(net: Topology, c: Collective) -> list[tuple[Bool, Bool]]:
    """Sets, and the nodes inside that are to be told: what is around the sites of the holders, with and without nodes
    that store nothing, and around the holders, with all nodes or with those of other sites alone."""
    site = np.unique(np.array(net.sites), return_inverse=True)[1]
    held = np.unique(c.ranks[c.holders.values])
    home = np.isin(site, site[held])
    alone = np.isin(np.arange(net.node_count), held)
    sets = [(~home, ~home), (~home & net.store_and_forward, ~home), (~home | ~net.store_and_forward, ~home)]
    sets += [(~alone, ~home), (~alone, ~alone)]
    wanted = np.isin(np.arange(net.node_count), c.ranks[c.wanted.values])
    sets = [(inside, far) for inside, told in sets for far in _farther(net, inside, inside & told & wanted)]
    useful = {inside.tobytes() + told.tobytes(): (inside, told) for inside, told in sets}
    return list(useful.values())


def _farther(net: Topology, inside: Bool, told: Bool) -> list[Bool]:
    """Some nodes inside, and those of them that are farther from the links into the set than the nearest ones are."""
    entering = np.flatnonzero(~inside[net.src] & inside[net.dst])
    if not told.any() or not len(entering):
        return []
    stored_s = np.where(net.store_and_forward[net.dst], net.message_s, 0.0)
    within = replace(net, latency_s=net.latency_s + stored_s).with_links(inside[net.src] & inside[net.dst])
    far_s = (net.latency_s[entering, None] + distances(within, 0.0)[net.dst[entering]]).min(axis=0)
    nearest = np.unique(np.round(far_s[told & np.isfinite(far_s)] / net.message_s.min(), 3))[:FARTHER]
    farther = [told & (np.round(far_s / net.message_s.min(), 3) > level) for level in nearest]
    return [told, *(far for far in farther if far.any())]


def _bound_of(net: Topology, c: Collective, inside: Bool, counted: Bool, least_s: float, goal_s: float) -> float | None:
    """The bound of one set, seconds after the start; None where it is not above ``least_s``."""
    entering = np.flatnonzero(~inside[net.src] & inside[net.dst])
    outside = c.holders.values[c.holders.offsets[:-1]]
    pieces = np.flatnonzero(~inside[c.ranks[outside]])
    wanted = c.wanted.take(pieces)
    here = (inside & counted)[c.ranks[wanted.values]]
    needed = float((c.piece_bytes[pieces][wanted.owners] * here).sum())
    if not len(entering) or not needed:
        return None
    ranks, holders = np.unique(c.ranks[wanted.values[here]]), np.unique(c.ranks[outside[pieces]])
    low_s = least_s
    for grid, share in zip(GRIDS, HOPE, strict=True):
        if low_s > goal_s or (low_s < share * goal_s < np.inf):
            break
        case = _Case.of(net, inside, entering, ranks, holders, float(c.piece_bytes[pieces].max()), grid)
        high_s = grid.longer * low_s
        told = _Told.of(case, high_s / grid.steps)
        if told is None or told.most(low_s) >= needed:
            break
        while high_s - low_s > NEAR * low_s:
            middle_s = (low_s + high_s) / 2
            low_s, high_s = (middle_s, high_s) if told.most(middle_s) < needed else (low_s, middle_s)
    return low_s if low_s > least_s else None


@dataclass(frozen=True)
class _Case:
    """Links into a set, and what is told inside, for messages of some sizes."""

    net: Topology
    inside: Bool
    entering: Int64  # int64[links into the set]
    ranks: Int32  # that want what enters
    size: Float64  # float64[sizes + 1], bytes, from 0 to the largest piece
    takes_s: Float64  # float64[sizes, links of the network], what a message takes besides latency
    begin_s: Float64  # float64[sizes, links into the set], from when on a message of a size may begin
    way_s: Float64  # float64[nodes, nodes], latency by ways inside that pass no node that stores
    steps: int  # of time

    @classmethod
    def of(
        cls, net: Topology, inside: Bool, entering: Int64, ranks: Int32, holders: Int32, largest: float, grid: Grid
    ) -> _Case:
        """For chunks of up to ``largest`` bytes."""
        within = inside[net.src] & inside[net.dst]
        count = max(LEAST_SIZES, min(grid.sizes, grid.entries // max(int(within.sum()), 1)))
        size = largest * np.arange(count + 1) / count
        takes_s = net.message_s + size[:-1, None] / net.bandwidth
        # the shortest of several ways, each longer by as much for each byte: no sooner than between two sizes
        at = np.linspace(0, count - 1, BEGINS).astype(np.int64)
        begins = np.array([_begins(net, holders, entering, takes_s[k]) for k in at])
        begin_s = np.array([np.interp(np.arange(count), at, own) for own in begins.T]).T
        way_s = distances(net.with_links(within & ~net.store_and_forward[net.src]), 0.0)
        return cls(net, inside, entering, ranks, size, takes_s, begin_s, way_s, grid.steps)


@dataclass(frozen=True)
class _Told:
    """N_e times the size of a message, by the steps of time that are left."""

    step_s: float
    worth: Float64  # float64[steps, sizes, links into the set], bytes x ranks
    room: Int64  # int64[sizes, links into the set], steps
    begin_s: Float64  # float64[sizes, links into the set]

    @classmethod
    def of(cls, case: _Case, step_s: float) -> _Told | None:
        """None where a message takes less than a step."""
        net = case.net
        room = _steps(case.takes_s[:, case.entering], step_s, case.steps)
        if not room.all():
            return None
        told = _told_by_nodes(case, step_s)
        stores = np.flatnonzero(net.store_and_forward)
        served = np.zeros((case.steps + 1, *room.shape))
        for e, link in enumerate(case.entering.tolist()):
            # what the best node tells where a way over the link ends
            way_s = case.way_s[net.dst[link], stores] + net.latency_s[link]
            for node, ago in zip(stores.tolist(), _steps(way_s, step_s, case.steps).tolist(), strict=True):
                if ago <= case.steps and case.inside[node]:
                    served[ago:, :, e] = np.maximum(served[ago:, :, e], told[: case.steps + 1 - ago, :, node])
        return cls(step_s, case.size[1:, None] * served, room, case.begin_s)

    def most(self, end_s: float) -> float:
        """The sum of V over all links into the set."""
        steps = min(int(np.ceil(end_s / self.step_s)), len(self.worth) - 1)
        count, links = self.room.shape
        first = steps - _steps(
            self.begin_s, self.step_s, len(self.worth)
        )  # a message begins when no more than this is left
        best = np.zeros((steps + 1, links))
        rows, columns = np.arange(count)[:, None], np.arange(links)
        for left in range(1, steps + 1):
            after = left - self.room
            at = np.maximum(after, 0)
            value = best[at, columns] + self.worth[at, rows, columns]
            value[(after < 0) | (left > first)] = 0.0
            best[left] = np.maximum(best[left - 1], value.max(axis=0))
        return float(best[steps].sum())


def _told_by_nodes(case: _Case, step_s: float) -> Float64:
    """float64[steps, sizes, nodes]: N, by the steps of time that are left."""
    net, count, nodes = case.net, len(case.size) - 1, case.net.node_count
    stores = net.store_and_forward
    sends = np.flatnonzero(case.inside[net.src] & case.inside[net.dst] & stores[net.src])
    src, dst = net.src[sends], net.dst[sends]
    # each link and the nodes where a way over it ends
    reached = (case.way_s[dst] < np.inf) & stores & case.inside & (np.arange(nodes) != src[:, None])
    used = reached.any(axis=1)
    sends, src, dst, reached = sends[used], src[used], dst[used], reached[used]
    of, ends = np.nonzero(reached)
    later = _steps(case.takes_s[:, sends], step_s, case.steps)
    later_end = later[:, of] + _steps(net.latency_s[sends[of]] + case.way_s[dst[of], ends], step_s, case.steps)
    several = np.flatnonzero(~stores[dst])
    told = np.zeros((case.steps + 1, count, nodes))
    again = np.zeros((case.steps + 1, count, len(several)))  # what the messages that a link can still send tell
    wants, most = np.isin(np.arange(nodes), case.ranks).astype(np.float64), float(len(case.ranks))
    rows, begins = np.arange(count)[:, None], np.searchsorted(of, np.arange(len(sends)))
    at_once, endless = later_end == 0, later[:, several] == 0  # in less than a step: then all are told
    for left in range(case.steps + 1):
        after = left - later_end
        value = np.where(after >= 0, told[np.maximum(after, 0), rows, ends], 0.0)
        value[at_once] = most
        total = np.broadcast_to(wants, (count, nodes)).copy()
        if len(of):
            each = np.maximum.reduceat(value, begins, axis=1)
            before = left - later[:, several]
            more = np.where(before >= 0, again[np.maximum(before, 0), rows, np.arange(len(several))], 0.0)
            again[left] = np.where(endless, most, each[:, several] + more)
            each[:, several] = again[left]
            np.add.at(total.T, src, each.T)
        told[left] = np.minimum(total, most)
    return told


def _begins(net: Topology, holders: Int32, links: Int64, takes_s: Float64) -> Float64:
    """float64[links]: from when on a chunk may begin to cross each, if a message takes ``takes_s`` on a link."""
    stored = np.where(net.store_and_forward[net.dst], takes_s, 0.0)
    way = distances(replace(net, latency_s=net.latency_s + stored), 0.0)
    return np.asarray(way[np.ix_(holders, net.src[links])].min(axis=0))


def _steps(seconds: Float64, step_s: float, most: int) -> Int64:
    """The number of whole steps in each time, ``most`` + 1 at the most."""
    steps: Int64 = np.minimum(seconds / step_s, most + 1).astype(np.int64)
    return steps
