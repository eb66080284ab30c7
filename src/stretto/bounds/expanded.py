"""A bound for data that is spread, from prices of each link at each time (a time-expanded network).

Cut time into slots no longer than any latency. Give every link in every slot a price for each pair of a piece and a
rank that wants it. To come to that rank, a byte crosses links one after the other, and pays their prices for this pair:
at least what the cheapest such way costs. A byte of a piece crosses a link in a slot only once for all ranks that want
it, so there it pays at most the sum of the prices for this piece. Call the largest of these sums, over all pieces, the
link's price in that slot. So

    sum over pairs of bytes x the cheapest way <= sum over links and slots of bandwidth x time x the link's price

for whoever ends within the slots, where a link carries nothing that comes after the end: a lower bound on the end.

By linear programming duality the best prices say exactly when the multicast flow in the expanded network is possible
(Fleischer and Skutella, SIAM J. Comput. 2007, without copies), but for what slots round: bytes may go on as if all
bytes of their slot had come at its beginning. The bound joins cuts of all kinds, at all times and around all ranks.

Sums that only one rank wants are the same backward in time. Symmetric networks have symmetric prices, so that the
program is as many times smaller as there are symmetries (:mod:`.symmetry`). It takes seconds of CPU, so ``bounds`` does
not ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Int64
from ..model.collective import Collective
from ..model.topology import Topology
from ..solvers import INFINITY, Model, solve
from .symmetry import symmetries

ROUNDS = 6
"""How often prices are sought: each time for the end that the prices before have proved."""

NEAR = 1e-4
"""Ends that differ by no more than this share count as the same."""

FINEST = 1 << 20
"""The largest price, in whole numbers."""

MOST_PRICES = 3_000_000
"""The most prices that are sought: pairs x links x slots."""


@dataclass(frozen=True)
class Expanded:
    """A bound by prices.

    Attributes:
        slot_s: seconds of a slot.
        price: int64[pairs, links, slots].
        piece, rank: int64[pairs], what each price is for: a piece on its way to a rank (of sums, backward in time).
    """

    seconds: float
    slot_s: float
    price: Int64
    piece: Int64
    rank: Int64


def expanded_bound(topology: Topology, collective: Collective, from_s: float, parts: int = 1) -> Expanded | None:
    """The best bound by prices, searched for upwards from another bound.

    Args:
        from_s: seconds, that other bound.
        parts: into how many slots the shortest latency (that is not 0) is cut.
    Returns:
        None where no link has a latency, there are planes or sums that several ranks want, or the problem is too large.
    """
    turned = spreading(topology, collective)
    late = topology.latency_s[topology.latency_s > 0]
    if turned is None or not len(late):
        return None
    net, c = turned
    problem = _Problem.of(net, c, float(late.min()) / parts)
    best: Expanded | None = None
    end = from_s - c.start_s
    for _ in range(ROUNDS):
        slots = int(np.ceil(end / problem.slot_s + NEAR))
        price = problem.prices(slots, end) if problem.size * slots <= MOST_PRICES else None
        if price is None:
            break
        proved = end_of(net, c, problem.slot_s, problem.piece, problem.rank, price)
        if best is None or c.start_s + proved > best.seconds:
            best = Expanded(c.start_s + proved, problem.slot_s, price, problem.piece, problem.rank)
        if proved <= end * (1 + NEAR):
            break
        # where even all these slots are too few, go on with one more
        end = proved if proved < slots * problem.slot_s * (1 - NEAR) else (slots + 2 * NEAR) * problem.slot_s
    return best


def spreading(topology: Topology, collective: Collective) -> tuple[Topology, Collective] | None:
    """The network and what is spread in it; sums are turned round in time. None where there is no such view."""
    net, c = topology, collective
    if c.reduces:
        net = replace(topology, src=topology.dst, dst=topology.src)
        c = replace(c, kind="multicast", holders=c.wanted, wanted=c.holders, reduces=False)
    return None if topology.planes or (c.holders.lengths > 1).any() else (net, c)


def end_of(net: Topology, c: Collective, slot_s: float, piece: Int64, rank: Int64, price: Int64) -> float:
    """The bound that prices prove: before it links have no room for the cheapest ways. At most the end of the slots."""
    slots = price.shape[2]
    steps = _steps(net, slot_s)
    needed = 0.0
    for k in range(len(piece)):
        way = np.full((net.node_count, slots), np.inf)
        way[int(c.ranks[c.holders[int(piece[k])][0]])] = 0.0
        for t in range(slots):
            way[:, t] = np.minimum(way[:, t], way[:, max(t - 1, 0)])
            on = np.flatnonzero(steps <= t)
            for _ in range(net.node_count if (steps == 0).any() else 1):
                np.minimum.at(way[:, t], net.dst[on], way[net.src[on], t - steps[on]] + price[k, on, t - steps[on]])
        needed += float(c.piece_bytes[piece[k]]) * float(way[rank[k], -1])
    dearest = np.zeros(price.shape[1:], dtype=np.int64)
    for p in np.unique(piece):
        dearest = np.maximum(dearest, price[piece == p].sum(axis=0))
    link, slot = np.nonzero(dearest)
    begin = net.latency_s[link] + slot * slot_s
    rate = net.bandwidth[link] * dearest[link, slot]
    low, high = 0.0, slots * slot_s
    for _ in range(60):
        middle = (low + high) / 2
        room = float((rate * np.clip(middle - begin, 0.0, slot_s)).sum())
        low, high = (middle, high) if room < needed else (low, middle)
    return low


@dataclass(frozen=True)
class _Problem:
    """What prices are sought for.

    Attributes:
        piece, rank: int64[pairs], a piece and a rank that wants it and does not hold it.
        node, link, pair: int64[symmetries, ...], where each symmetry takes the nodes, links and pairs.
    """

    net: Topology
    c: Collective
    slot_s: float
    piece: Int64
    rank: Int64
    node: Int64
    link: Int64
    pair: Int64

    @classmethod
    def of(cls, net: Topology, c: Collective, slot_s: float) -> _Problem:
        holder = c.ranks[c.holders.values].astype(np.int64)
        piece, rank = c.wanted.owners.astype(np.int64), c.ranks[c.wanted.values].astype(np.int64)
        other = rank != holder[piece]
        piece, rank = piece[other], rank[other]
        n = net.node_count
        size, pair, link = np.zeros((n, n)), np.full((n, n), -1), np.full((n, n), -1)
        size[holder[piece], rank] = c.piece_bytes[piece]
        pair[holder[piece], rank] = np.arange(len(piece))
        link[net.src, net.dst] = np.arange(net.link_count)
        group = symmetries(net, c.ranks)
        if len(np.unique(holder)) == len(holder):
            # the same pieces to the same ranks
            group = group[[bool((size[np.ix_(g, g)] == size).all()) for g in group]]
        else:
            group = group[:1]
        if len(group) == 1:
            return cls(net, c, slot_s, piece, rank, group, np.arange(net.link_count)[None], np.arange(len(piece))[None])
        links, pairs = link[group[:, net.src], group[:, net.dst]], pair[group[:, holder[piece]], group[:, rank]]
        return cls(net, c, slot_s, piece, rank, group, links, pairs)

    @property
    def size(self) -> int:
        """How many prices there are in each slot."""
        return len(self.piece) * self.net.link_count

    def prices(self, slots: int, end: float) -> Int64 | None:
        """The prices that best refute an end within this number of slots, by a linear program; None if none does.

        The program bounds the cost of coming to each node at each time by the prices on the way there. The room of all
        links, at their prices, is at most one. It maximises what all pairs need. Prices that symmetries take into each
        other share a column.
        """
        net, c, pairs = self.net, self.c, np.arange(len(self.piece))
        n, m = net.node_count, net.link_count
        model = Model()
        price = _columns(model, (self.pair[:, :, None] * m + self.link[:, None, :]).min(axis=0), slots)
        way = _columns(model, (self.pair[:, :, None] * n + self.node[:, None, :]).min(axis=0), slots)
        dear = _columns(model, self.link.min(axis=0), slots)
        room = np.clip(end - net.latency_s[:, None] - np.arange(slots) * self.slot_s, 0.0, self.slot_s)
        room *= net.bandwidth[:, None]
        model.rows(1, -INFINITY, 1.0, (0, dear.ravel(), (room / room.max()).ravel()))
        total = model.columns(1, 0.0, INFINITY, -1.0)
        size = c.piece_bytes[self.piece] / c.piece_bytes.max()
        model.rows(1, -INFINITY, 0.0, (0, total, 1.0), (0, way[pairs, self.rank, -1], -size))
        steps = _steps(net, self.slot_s)
        far = _steps_between(net, steps)
        # of pairs that are alike, one
        first = np.unique(self.pair.min(axis=0))
        for k in first.tolist():
            self._follow(model, k, way[k], price[k], steps, far)
        for p in np.unique(self.piece[first]).tolist():
            mine = np.flatnonzero(self.piece == p)
            row = np.arange(m * slots)
            model.rows(
                len(row), -INFINITY, 0.0, (row, dear.ravel(), -1.0),
                (np.tile(row, len(mine)), price[mine].ravel(), 1.0),
            )  # fmt: skip
        found = solve(model)
        if found.x is None or found.x[price].max() <= 0:
            return None
        value = np.maximum(found.x[price], 0.0)
        whole: Int64 = np.rint(value / value.max() * FINEST).astype(np.int64)
        return whole

    def _follow(self, model: Model, pair: int, way: Int64, price: Int64, steps: Int64, far: Int64) -> None:
        """Rows that keep the cost of being at a node at a time at most that of every way to come there."""
        net, slots = self.net, way.shape[1]
        source, goal = int(self.c.ranks[self.c.holders[int(self.piece[pair])][0]]), int(self.rank[pair])
        model.rows(slots, -INFINITY, 0.0, (np.arange(slots), way[source], 1.0))
        # storing costs nothing
        v, t = (x.ravel() for x in np.meshgrid(np.arange(net.node_count), np.arange(1, slots), indexing="ij"))
        come = t - 1 >= far[source, v]
        v, t = v[come], t[come]
        row = np.arange(len(v))
        model.rows(len(v), -INFINITY, 0.0, (row, way[v, t], 1.0), (row, way[v, t - 1], -1.0))
        # links that nothing can have come to yet, or from which the goal is too far, need no row
        e, t = (x.ravel() for x in np.meshgrid(np.arange(net.link_count), np.arange(slots), indexing="ij"))
        useful = (t >= far[source, net.src[e]]) & (t + steps[e] + far[net.dst[e], goal] < slots)
        useful &= (net.src[e] != goal) & (net.dst[e] != source)
        e, t = e[useful], t[useful]
        row = np.arange(len(e))
        model.rows(
            len(e), -INFINITY, 0.0,
            (row, way[net.dst[e], t + steps[e]], 1.0), (row, way[net.src[e], t], -1.0), (row, price[e, t], -1.0),
        )  # fmt: skip


def _columns(model: Model, orbit: Int64, slots: int) -> Int64:
    """int64[..., slots], new columns of the program; entries with the same number share them."""
    numbers, place = np.unique(orbit, return_inverse=True)
    columns = model.columns(len(numbers) * slots, 0.0, INFINITY).reshape(-1, slots)
    return columns[place.reshape(orbit.shape)]


def _steps(net: Topology, slot_s: float) -> Int64:
    """int64[links], how many whole slots each latency takes."""
    return np.floor(net.latency_s / slot_s + 1e-9).astype(np.int64)


def _steps_between(net: Topology, steps: Int64) -> Int64:
    """int64[nodes, nodes], the fewest slots from node to node; very many where there is no way."""
    far = np.full((net.node_count, net.node_count), np.iinfo(np.int64).max // 4, dtype=np.int64)
    np.fill_diagonal(far, 0)
    np.minimum.at(far, (net.src, net.dst), steps)
    for k in range(net.node_count):
        far = np.minimum(far, far[:, k : k + 1] + far[k : k + 1])
    return far
