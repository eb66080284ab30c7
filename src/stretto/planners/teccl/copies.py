"""TE-CCL's mixed-integer program: chunks that may be copied, in epochs (section 3).

Variables exist only where they can matter: a chunk is at a node no earlier than the fastest path
brings it (earliest-arrival windows) and moves no later than it can still be of use. Where routers cut
through, what waits at a node waits at its places (:class:`.epochs.Places`), and what comes in an epoch
may leave in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...model.arrays import Bool, Float64, Int32, Int64
from ...schedule.asap import Send
from ...solvers import Model, affordable
from .epochs import NEVER, Epochs, State, windows
from .routers import forbid_cycles


class CopyModel:
    """The program for a fixed number of epochs.

    Args:
        horizon: K; demands are met when epoch K begins.
        wanted: bool[chunks, nodes], demands not yet met.
        objective: "feasible" (any schedule that meets every demand), "paper" (the public code's
            sum over the epochs of the demand that is met), or "astar" (one round: demands need
            not be met, chunks may be under way at the end, and what is rewarded is meeting
            demands and being near to those who still wait).
        switch_copies: a switch may send a chunk that it got once over several links.

    Attributes:
        possible: False where some demand cannot be met even by the fastest path alone.
    """

    def __init__(
        self, epochs: Epochs, horizon: int, state: State, wanted: Bool, *, objective: str = "feasible",
        switch_copies: bool = True,
    ) -> None:  # fmt: skip
        forced = objective != "astar"
        self.topology, self.epochs, self.horizon, self.objective = epochs.topology, epochs, horizon, objective
        self.model, self.wanted, self.state = Model(), wanted, state
        self.places, nodes = epochs.places, epochs.topology.node_count
        earliest = epochs.earliest(state)
        self.possible = not forced or bool((earliest[:, :nodes][wanted] <= horizon).all())
        if not self.possible:
            return
        useful = np.zeros_like(earliest)
        if forced:
            useful = np.where(wanted[:, None, :], epochs.between[None, :, :nodes], NEVER).min(axis=2)
        self._flows(earliest, useful, forced)
        self._buffers(earliest, forced)
        self._switches(switch_copies)
        self._capacities()

    def _flows(self, earliest: Int64, useful: Int64, forced: bool) -> None:
        """F[q, link, k]: chunk q is put on the link in epoch k."""
        net, delay = self.topology, self.epochs.delay
        into_switch = net.is_switch[net.dst]
        first = earliest[:, self.places.origin]
        onward = [np.where(place >= 0, after + useful[:, place], NEVER) for place, after in self.places.landings]
        last = self.horizon - np.min(onward, axis=0)
        if not forced:
            # in an A* round a chunk may be under way at the end, but not inside a switch
            from_switch = net.is_switch[net.src]
            last = np.where(into_switch, self.horizon - delay, self.horizon - 1 + from_switch)
            last = np.broadcast_to(last, first.shape)
        count = np.where(self.state.held[:, net.dst], 0, np.maximum(0, last - first + 1))
        affordable(int(count.sum()), self.epochs.seconds, integer=True)
        self.sent = windows(count, first)
        self.chunk, self.link, self.epoch = self.sent.row, self.sent.place, self.sent.epoch
        self.there = self.epoch + delay[self.link]
        self.lands = self.epoch + self.places.landings[0][1][self.link]
        cost = np.zeros(len(self.chunk))
        if not forced:
            late = self.lands > self.horizon
            cost[late] = -self._worth()[self.chunk[late], net.dst[self.link[late]]]
        self.flow = self.model.columns(len(self.chunk), cost=cost, integer=True)

    def _worth(self) -> Float64:
        """float64[chunks, nodes], the reward of an A* round for a chunk at a node, whole numbers.

        1000 where it is wanted there, and up to 10 for each that still wants it, by 1 / (1 + distance).
        """
        nodes = self.topology.node_count
        near = 1.0 / (1.0 + self.epochs.between[:nodes, :nodes])
        return np.round(1000.0 * self.wanted + 10.0 * (self.wanted @ near.T))

    def _buffers(self, earliest: Int64, forced: bool) -> None:
        """B[q, p, k]: the chunk is at the place when epoch k begins; it gets there at most once."""
        net, horizon, model, places = self.topology, self.horizon, self.model, self.places
        stores = (~net.is_switch & ~self.state.held)[:, places.node]
        self.buffers = windows(np.where(stores, np.maximum(0, horizon - earliest + 1), 0), earliest)
        chunk, place, epoch = self.buffers.row, self.buffers.place, self.buffers.epoch
        node, at_end = places.node[place], epoch == horizon
        wanted = self.wanted[chunk, node]
        cost = np.zeros(len(chunk))
        if self.objective != "feasible":
            cost -= wanted
        if not forced:
            cost -= np.where(at_end & (place == node), self._worth()[chunk, node], 0.0)
        lower = (forced & wanted & at_end).astype(np.float64)
        column = self.buffer = model.columns(len(chunk), lower=lower, cost=cost, integer=True)
        on_its_way = np.zeros(len(chunk))
        for q, p, k in places.coming(self.state):
            at = int(self.buffers.at(q, p, k))
            on_its_way[at] += at >= 0
        before = self.buffers.at(chunk, place, epoch - 1)
        landed = []
        for lands, after in places.landings:
            arrives = self.buffers.at(self.chunk, lands[self.link], self.epoch + after[self.link])
            arrives = np.where(lands[self.link] >= 0, arrives, -1)
            landed.append((arrives[arrives >= 0], self.flow[arrives >= 0], -1.0))
        model.rows(
            len(chunk), on_its_way, on_its_way,
            (column, 1.0), (np.where(before >= 0, column[before], -1), -1.0), *landed,
        )  # fmt: skip
        # a node sends what it has: F[q, (n, j), k] <= B[q, p, k], p the place from which it sends over that link
        held = self.buffers.at(self.chunk, places.origin[self.link], self.epoch)
        fed = held >= 0
        model.rows(int(fed.sum()), -np.inf, 0.0, (self.flow[fed], 1.0), (column[held[fed]], -1.0))
        self.depth = forbid_cycles(model, self.epochs, self.chunk, self.link, self.flow, len(self.wanted))
        if not forced:
            self._receive_once()

    def _receive_once(self) -> None:
        """A node has a chunk at the end, or it is on its way there, by one link: together at most once (A* rounds)."""
        net, horizon = self.topology, self.horizon
        late = self.lands > horizon
        key = self.chunk[late] * net.node_count + net.dst[self.link[late]]
        ahead = [(q, p) for q, p, k in self.places.coming(self.state) if k > horizon and p < net.node_count]
        coming = np.array([q * net.node_count + v for q, v in ahead], dtype=np.int64)
        keys, at = np.unique(np.concatenate([key, coming]), return_inverse=True)
        has = self.buffers.at(*np.divmod(keys, net.node_count), horizon)
        room = 1.0 - np.bincount(at[len(key) :], minlength=len(keys))
        self.model.rows(
            len(keys), -np.inf, room,
            (at[: len(key)], self.flow[late], 1.0), (np.where(has >= 0, self.buffer[has], -1), 1.0),
        )  # fmt: skip

    def _switches(self, copies: bool) -> None:
        """A switch sends a chunk on in the epoch in which it arrives, over several links if it copies."""
        net, model = self.topology, self.model
        leaves = net.is_switch[net.src[self.link]]
        if not leaves.any():
            return
        enters = net.is_switch[net.dst[self.link]]
        span = self.horizon + 1
        entering, leaving = np.flatnonzero(enters & (self.there <= self.horizon)), np.flatnonzero(leaves)

        def place(flows: Int64, node: Int32, epoch: Int64) -> Int64:
            return (self.chunk[flows] * net.node_count + node[self.link[flows]]) * span + epoch[flows]

        out, into = place(leaving, net.src, self.epoch), place(entering, net.dst, self.there)
        keys, at = np.unique(out, return_inverse=True)
        useful = np.isin(into, keys)
        where = np.searchsorted(keys, into[useful])
        arrived = model.columns(len(keys), integer=True)
        model.rows(len(keys), -np.inf, 0.0, (arrived, 1.0), (where, self.flow[entering[useful]], -1.0))
        may = net.replicates[net.src[self.link[leaving]]] & copies
        model.rows(int(may.sum()), -np.inf, 0.0, (self.flow[leaving[may]], 1.0), (arrived[at[may]], -1.0))
        model.rows(len(keys), -np.inf, 0.0, (at[~may], self.flow[leaving[~may]], 1.0), (arrived, -1.0))

    def _capacities(self) -> None:
        """In any ``window`` epochs in a row no more chunks start on a link than it can carry."""
        window = self.epochs.window[self.link]
        span = int(self.horizon + self.epochs.window.max() + 1)
        # windows are named by their last epoch; those that begin before epoch 0 matter after an earlier A* round only
        least = self.epochs.window - 1
        least[[link for link, _ in self.state.begun]] = 0
        flow = np.repeat(np.arange(len(window)), window)
        shift = np.arange(len(flow)) - np.repeat(np.cumsum(window) - window, window)
        links = self.link[flow]
        if not len(flow):
            return
        key = links * span + np.maximum(self.epoch[flow] + shift, least[links])
        pair = np.unique(np.stack([key, self.flow[flow]]), axis=1)
        names, at, count = np.unique(pair[0], return_inverse=True, return_counts=True)
        room = self.epochs.capacity[names // span]
        for link, k in self.state.begun:
            end = names - link * span
            room = room - ((end >= 0) & (k <= end) & (end < k + self.epochs.window[link]))
        tight = count > room  # the others cannot be exceeded
        number = np.cumsum(tight) - 1
        kept = tight[at]
        self.model.rows(int(tight.sum()), -np.inf, room[tight], (number[at[kept]], pair[1][kept], 1.0))

    def sends(self, x: Float64) -> list[Send]:
        """The sends of a solution."""
        return [
            Send(int(k), int(k + self.epochs.delay[i]), int(q), int(i))
            for q, i, k in zip(*(a[x[self.flow] > 0.5] for a in (self.chunk, self.link, self.epoch)), strict=True)
        ]

    def start_from(self, sends: Sequence[Send]) -> Float64:
        """The point of a schedule within this horizon, to start a solver from."""
        x = np.zeros(self.model.column_count)
        have: dict[tuple[int, int], int] = {}
        for s in sends:
            sent = int(self.sent.at(s.chunk, s.link, int(s.at)))
            if sent >= 0:
                x[self.flow[sent]] = 1.0
                for place, after in self.places.landings:
                    have[s.chunk, int(place[s.link])] = int(s.at + after[s.link])
        table = self.buffers
        cells = zip(table.row.tolist(), table.place.tolist(), table.epoch.tolist(), strict=True)
        x[self.buffer] = [have.get((chunk, place), NEVER) <= epoch for chunk, place, epoch in cells]
        self.depth.start(sends, x)
        return x
