"""A bound for copies where messages cost: what enters a set late can be copied to few nodes inside.

It is for plans whose messages carry one chunk each, as those of programs for targets do.

Let no switch copy, and let nodes but accelerators store nothing. Take a set S of nodes, n ranks inside that want a
piece, and its holder outside. Each byte comes to each of these ranks by a chain of messages, which enters S for the
last time over some link e, in a message of a chunk of c bytes. From there on the chain stays inside. So what has
crossed e by time t serves no more ranks by the end T than N_e(T - t, c), the most ranks that messages inside S can tell
of a chunk in that time (:mod:`.telling`): those of each server by one message into the server or more, or each rank by
a message.

On link e a message of c bytes takes room for m_e + c / b_e, and none begins before a chunk of c bytes can have come to
where e begins. Let V_e(T) be the most that messages on e can add up to, where a message of c bytes whose last byte
leaves at t counts as c N_e(T - t, c). All bytes of all pieces must come to all ranks, so T is no sooner than where

    sum over links e into S of V_e(T)  =  sum over pieces of their bytes x the ranks inside that want them.

Messages that share the link are taken in the order in which they end. Put one after the other in that order, from when
the first chunk can have come to e, none ends later than it did. So V is the most by messages one after the other, where
one counts as if it ended when it could have, had it begun no sooner than its own chunk can have come.

Between two switches messages may cost nothing, m_e = 0, and those of many nodes share e. None of them ends before the
cost of a link to a switch has passed, too: each begins at a node that stores. What crosses counts at most as if it were
told as it passes, in a time dt as b_e N_e(T - t, 0) dt.

V is found by dynamic programming over time. Sizes and times are rounded so that V is never too small: a message of a
size between two steps counts as many bytes as the larger one, and takes as long as the smaller one; a time is cut to
whole steps.

A piece of few chunks is also bounded by what its holder must feed into other sites itself (:mod:`.feeding`), and one of
any number of chunks by what servers lack of what has left the holder's (:mod:`.backlog`).

Sums are bounded by their copies backwards in time. This takes tenths of a second for each set, so ``bounds`` does not
ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .backlog import backlog_bound
from .feeding import feeding_bound
from .latency import distances
from .telling import Telling, between_sizes, passing, whole_steps


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

SMALLEST = 1e-3
"""The smallest size of a message but 0, as a share of the piece. From there each size is larger by the same ratio."""

LEAST_SIZES = 16
"""Steps of the size of a message among many nodes."""

FARTHER = 2
"""Distances from the links into a set for which the nodes beyond are looked at alone. Without them the last messages
count as one rank each that they tell, also where that rank has been told: Broadcast of 1 KB on ndv2:4."""

MOST_ENTRIES = 120_000_000
"""Entries of a table of nodes, steps of time and sizes, at most."""

NEAR = 2e-4
"""By what share the bound found may be below the best bound of its set."""


@dataclass(frozen=True)
class Copies:
    """A bound by one set."""

    seconds: float
    inside: tuple[int, ...]


def copies_bound(topology: Topology, collective: Collective, from_s: float, goal_s: float = np.inf) -> Copies | None:
    """The best bound of what is around the holders and around their sites; None where it says nothing.

    A plan whose messages carry several chunks may end sooner.

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
    best = _between_servers(net, c, from_s)
    for near in _sets(net, c):
        least_s = max(from_s, 0.0 if best is None else best.seconds) - c.start_s
        if not 0 < least_s < goal_s - c.start_s:
            break
        seconds = _bound_of(net, c, near, least_s, goal_s - c.start_s)
        if seconds is not None:
            best = Copies(c.start_s + seconds, tuple(np.flatnonzero(near.inside).tolist()))
    return best


def _between_servers(net: Topology, c: Collective, from_s: float) -> Copies | None:
    """The bound by what the holder must feed into other sites itself, or by what these lack of what it has sent."""
    fed_s = feeding_bound(net, c, from_s - c.start_s) if from_s > c.start_s else None
    lacking_s = backlog_bound(net, c) if net.message_s.all() else None
    seconds = max((s for s in (fed_s, lacking_s) if s is not None), default=0.0)
    if seconds <= from_s - c.start_s:
        return None
    sites = np.array(net.sites)
    away = sites != sites[c.ranks[c.holders.values[0]]]
    return Copies(c.start_s + seconds, tuple(np.flatnonzero(away).tolist()))


def _serves(net: Topology) -> bool:
    """Whether messages cost where they begin and end, each has one sender and one receiver, and only accelerators
    store."""
    several = net.replicates.any() or net.reduces.any() or not (net.store_and_forward | net.is_switch).all()
    stores = net.store_and_forward
    costs = net.message_s[stores[net.src] | stores[net.dst]].all()
    return bool(costs and not several and not net.planes and not net.changes)


@dataclass(frozen=True)
class _Set:
    """Nodes that messages enter.

    Attributes:
        inside: bool[nodes].
        told: bool[nodes], the ranks inside that are counted.
        group: int64[nodes], the group of each node inside (:mod:`.telling`).
    """

    inside: Bool
    told: Bool
    group: Int64


def _sets(net: Topology, c: Collective) -> list[_Set]:
    """What is around the sites of the holders, with and without nodes that store nothing, and around the holders, with
    all nodes or with those of other sites alone; each site a group, then each node."""
    site = np.unique(np.array(net.sites), return_inverse=True)[1].astype(np.int64)
    held = np.unique(c.ranks[c.holders.values])
    home = np.isin(site, site[held])
    alone = np.isin(np.arange(net.node_count), held)
    sets = [(~home, ~home), (~home & net.store_and_forward, ~home), (~home | ~net.store_and_forward, ~home)]
    sets += [(~alone, ~home), (~alone, ~alone)]
    wanted = np.isin(np.arange(net.node_count), c.ranks[c.wanted.values])
    sets = [(inside, far) for inside, told in sets for far in _farther(net, inside, inside & told & wanted)]
    useful = {inside.tobytes() + told.tobytes(): (inside, told) for inside, told in sets}.values()
    several = [(inside, told) for inside, told in useful if _shares(site, inside & net.store_and_forward, home)]
    return [_Set(*each, site) for each in several] + [_Set(*each, np.arange(net.node_count)) for each in useful]


def _shares(site: Int64, storing: Bool, home: Bool) -> bool:
    """Whether some of these nodes share a site, and some are away from the sites of the holders."""
    return bool((storing & ~home).any() and np.bincount(site[storing]).max() > 1)


def _farther(net: Topology, inside: Bool, told: Bool) -> list[Bool]:
    """Some nodes inside, and those of them that are farther from the links into the set than the nearest ones are."""
    entering = np.flatnonzero(~inside[net.src] & inside[net.dst])
    if not told.any() or not len(entering):
        return []
    stored_s = np.where(net.store_and_forward[net.dst], net.message_s, 0.0)
    within = replace(net, latency_s=net.latency_s + stored_s).with_links(inside[net.src] & inside[net.dst])
    far_s = (net.latency_s[entering, None] + distances(within, 0.0)[net.dst[entering]]).min(axis=0)
    least_s = net.message_s[net.message_s > 0].min()
    nearest = np.unique(np.round(far_s[told & np.isfinite(far_s)] / least_s, 3))[:FARTHER]
    farther = [told & (np.round(far_s / least_s, 3) > level) for level in nearest]
    return [told, *(far for far in farther if far.any())]


def _bound_of(net: Topology, c: Collective, near: _Set, least_s: float, goal_s: float) -> float | None:
    """The bound of one set, seconds after the start; None where it is not above ``least_s``."""
    inside = near.inside
    entering = np.flatnonzero(~inside[net.src] & inside[net.dst])
    outside = c.holders.values[c.holders.offsets[:-1]]
    pieces = np.flatnonzero(~inside[c.ranks[outside]])
    wanted = c.wanted.take(pieces)
    here = (inside & near.told)[c.ranks[wanted.values]]
    needed = float((c.piece_bytes[pieces][wanted.owners] * here).sum())
    if not len(entering) or not needed:
        return None
    ranks, holders = np.unique(c.ranks[wanted.values[here]]), np.unique(c.ranks[outside[pieces]])
    low_s = least_s
    for grid, share in zip(GRIDS, HOPE, strict=True):
        if low_s > goal_s or (low_s < share * goal_s < np.inf):
            break
        case = _Case.of(net, near, ranks, holders, float(c.piece_bytes[pieces].max()), grid)
        low_s = _raised(case, grid, needed, low_s, goal_s)
    return low_s if low_s > least_s else None


def _raised(case: _Case, grid: Grid, needed: float, low_s: float, goal_s: float) -> float:
    """The best bound by a grid, seconds, from one that is known; where it is at the grid's end, by one from there."""
    while True:
        high_s = grid.longer * low_s
        told = _Told.of(case, high_s / grid.steps)
        if told is None or told.most(low_s) >= needed:
            return low_s
        least_s = low_s
        while high_s - low_s > NEAR * low_s:
            middle_s = (low_s + high_s) / 2
            low_s, high_s = (middle_s, high_s) if told.most(middle_s) < needed else (low_s, middle_s)
        if low_s > goal_s or high_s < grid.longer * least_s:
            return low_s


@dataclass(frozen=True)
class _Case:
    """Links into a set, and what is told inside, for messages of some sizes."""

    net: Topology
    entering: Int64  # int64[links into the set]
    size: Float64  # float64[sizes + 1], bytes, from 0 to the largest piece
    takes_s: Float64  # float64[sizes, links into the set], what a message takes besides latency
    begin_s: Float64  # float64[sizes, links into the set], from when on a message of a size may begin
    free: Bool  # bool[links into the set], whether messages cost nothing there
    elsewhere_s: float  # what a message costs on another link of its route, at least, if it crosses such a link
    passing_s: Float64  # float64[nodes, nodes], latency by ways inside that pass no node that stores
    telling: Telling
    steps: int  # of time

    @classmethod
    def of(cls, net: Topology, near: _Set, ranks: Int32, holders: Int32, largest: float, grid: Grid) -> _Case:
        """For chunks of up to ``largest`` bytes."""
        passing_s = passing(net, near.inside)
        links = int((near.inside[net.src] & near.inside[net.dst]).sum())
        table = MOST_ENTRIES // (grid.steps * net.node_count)
        count = max(LEAST_SIZES, min(grid.sizes, grid.entries // max(links, 1), table))
        size = largest * np.append(0.0, SMALLEST ** (np.arange(count - 1, -1, -1) / (count - 1)))
        takes_s = net.message_s + size[:-1, None] / net.bandwidth
        entering = np.flatnonzero(~near.inside[net.src] & near.inside[net.dst])
        begin_s = between_sizes(size[:-1], lambda k: _begins(net, holders, entering, takes_s[k]))
        telling = Telling.of_set(net, near.inside, ranks, near.group, size[:-1], takes_s, passing_s)
        first = net.store_and_forward[net.src] & ~net.store_and_forward[net.dst]
        return cls(
            net, entering, size, takes_s[:, entering], begin_s, net.message_s[entering] == 0,
            float(net.message_s[first].min(initial=np.inf)), passing_s, telling, grid.steps,
        )  # fmt: skip


@dataclass(frozen=True)
class _Told:
    """N_e times the size of a message, by the steps of time that are left."""

    step_s: float
    worth: Float64  # float64[steps, sizes, links into the set], bytes x ranks; 0 where messages cost nothing
    room: Int64  # int64[sizes, links into the set], steps
    begin_s: Float64  # float64[sizes, links into the set]
    elsewhere: Int64  # int64[links into the set], steps; 0 where messages cost there
    passing: Float64  # float64[steps, links into the set], bytes x ranks of the bytes that pass in a step

    @classmethod
    def of(cls, case: _Case, step_s: float) -> _Told | None:
        """None where a message takes less than a step."""
        room = whole_steps(case.takes_s, step_s, case.steps)
        if not (room.astype(np.bool_) | case.free).all():
            return None
        number = case.telling.numbers(step_s, case.steps)
        served = np.zeros((case.steps + 1, *room.shape))
        for e, link in enumerate(case.entering.tolist()):
            # what the best node tells where a way over the link ends
            way_s = case.passing_s[case.net.dst[link], case.telling.entries] + case.net.latency_s[link]
            for k, ago in enumerate(whole_steps(way_s, step_s, case.steps).tolist()):
                if ago <= case.steps:
                    served[ago:, :, e] = np.maximum(served[ago:, :, e], number[: case.steps + 1 - ago, :, k])
        elsewhere = whole_steps(np.where(case.free, case.elsewhere_s, 0.0), step_s, case.steps)
        worth = np.where(case.free, 0.0, case.size[1:, None]) * served
        passing = np.where(case.free, case.net.bandwidth[case.entering] * step_s, 0.0) * served[:, 0]
        return cls(step_s, worth, room, case.begin_s, elsewhere, passing)

    def most(self, end_s: float) -> float:
        """The sum of V over all links into the set."""
        steps = min(int(np.ceil(end_s / self.step_s)), len(self.worth) - 1)
        count, links = self.room.shape
        # the most time that can be left when a message begins, and when it ends
        first = steps - whole_steps(self.begin_s, self.step_s, len(self.worth))
        ended = first - self.room
        best = np.zeros((steps + 1, links))
        rows, columns = np.arange(count)[:, None], np.arange(links)
        begins, ends = first.max(axis=0), (first - self.elsewhere).max(axis=0)
        for left in range(1, steps + 1):
            passing = np.where(left > begins, 0.0, self.passing[np.maximum(np.minimum(left, ends), 0), columns])
            after = left - self.room
            end = np.minimum(after, ended)
            value = best[np.maximum(after, 0), columns] + self.worth[np.maximum(end, 0), rows, columns]
            value[(end < 0) | (left > begins)] = 0.0
            best[left] = np.maximum(best[left - 1] + passing, value.max(axis=0))
        return float(best[steps].sum())


def _begins(net: Topology, holders: Int32, links: Int64, takes_s: Float64) -> Float64:
    """float64[links]: from when on a chunk may begin to cross each, if a message takes ``takes_s`` on a link."""
    stored = np.where(net.store_and_forward[net.dst], takes_s, 0.0)
    way = distances(replace(net, latency_s=net.latency_s + stored), 0.0)
    return np.asarray(way[np.ix_(holders, net.src[links])].min(axis=0))
