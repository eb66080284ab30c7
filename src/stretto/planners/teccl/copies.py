"""TE-CCL's mixed-integer program: chunks that may be copied, in epochs (section 3).

Variables exist only where they can matter: a chunk is at a node no earlier than the fastest path
brings it (earliest-arrival windows) and moves no later than it can still be of use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...model.arrays import Bool, Float64, Int32, Int64
from ...model.collective import Workload
from ...model.topology import Topology
from ...schedule.asap import Send
from ...solvers import Model, affordable
from .epochs import NEVER, Epochs, State, windows


class CopyModel:
    """The program for a fixed number of epochs.

    Args:
        horizon: K; demands are met when epoch K begins.
        wanted: bool[chunks, nodes], demands not yet met.
        between: int64[nodes, nodes], see :func:`.epochs.distances`.
        objective: "feasible" (any schedule that meets every demand), "paper" (the public code's
            sum over the epochs of the demand that is met), or "astar" (one round: demands need
            not be met, chunks may be under way at the end, and what is rewarded is meeting
            demands and being near to those who still wait).
        switch_copies: a switch may send a chunk that it got once over several links.

    Attributes:
        possible: False where some demand cannot be met even by the fastest path alone.
    """

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        epochs: Epochs,
        horizon: int,
        state: State,
        wanted: Bool,
        between: Int64,
        *,
        objective: str = "feasible",
        switch_copies: bool = True,
    ) -> None:
        forced = objective != "astar"
        self.objective, self.between = objective, between
        self.topology, self.epochs, self.horizon = topology, epochs, horizon
        self.model = Model()
        self.wanted, self.state = wanted, state
        earliest = self._earliest(between)
        self.possible = not forced or bool((earliest[wanted] <= horizon).all())
        if not self.possible:
            return
        useful = np.where(wanted[:, None, :], between[None], NEVER).min(axis=2) if forced else np.zeros_like(earliest)
        self._flows(earliest, useful, forced)
        self._buffers(earliest, forced)
        self._switches(earliest, switch_copies)
        self._capacities()

    def _earliest(self, between: Int64) -> Int64:
        """int64[chunks, nodes], the first epoch in which a node can have a chunk."""
        earliest = np.empty(self.state.held.shape, dtype=np.int64)
        for q, held in enumerate(self.state.held):
            earliest[q] = between[held].min(axis=0) + self.state.release[q]
        for q, v, k in self.state.coming:
            np.minimum(earliest[q], k + between[v], out=earliest[q])
        return earliest

    def _flows(self, earliest: Int64, useful: Int64, forced: bool) -> None:
        """F[q, link, k]: chunk q is put on the link in epoch k."""
        net, delay = self.topology, self.epochs.delay
        into_switch = net.is_switch[net.dst]
        first = earliest[:, net.src]
        last = self.horizon - delay[None] - np.minimum(useful[:, net.dst], NEVER)
        if not forced:
            # in an A* round a chunk may be under way at the end, but not inside a switch
            from_switch = net.is_switch[net.src]
            last = np.where(into_switch, self.horizon - delay, self.horizon - 1 + from_switch)
            last = np.broadcast_to(last, first.shape)
        count = np.where(self.state.held[:, net.dst], 0, np.maximum(0, last - first + 1))
        affordable(int(count.sum()), self.epochs.seconds, integer=True)
        self.first_sent, self.sent_count = first, count
        self.base, self.chunk, self.link, self.epoch = windows(count, first)
        cost = np.zeros(len(self.chunk))
        if not forced:
            late = self.epoch + delay[self.link] > self.horizon
            cost[late] = -self._worth()[self.chunk[late], net.dst[self.link[late]]]
        self.flow = self.model.columns(len(self.chunk), cost=cost, integer=True)

    def _worth(self) -> Float64:
        """float64[chunks, nodes], the reward of an A* round for a chunk at a node, whole numbers.

        1000 where it is wanted there, and up to 10 for each that still wants it, by 1 / (1 + distance).
        """
        near = 1.0 / (1.0 + np.minimum(self.between, NEVER))
        return np.round(1000.0 * self.wanted + 10.0 * (self.wanted @ near.T))

    def _buffers(self, earliest: Int64, forced: bool) -> None:
        """B[q, n, k]: the node has the chunk when epoch k begins; it gets it at most once."""
        net, horizon, model = self.topology, self.horizon, self.model
        stores = ~net.is_switch & ~self.state.held
        count = np.where(stores, np.maximum(0, horizon - earliest + 1), 0)
        base, owner_chunk, owner_node, self.buffer_epoch = windows(count, earliest)
        total = len(owner_chunk)
        needed = forced & self.wanted[owner_chunk, owner_node] & (self.buffer_epoch == horizon)
        cost = np.zeros(total)
        if self.objective != "feasible":
            cost -= self.wanted[owner_chunk, owner_node]
        if not forced:
            cost -= np.where(self.buffer_epoch == horizon, self._worth()[owner_chunk, owner_node], 0.0)
        column = model.columns(total, lower=needed.astype(float), cost=cost, integer=True)
        rows = np.arange(total)
        again = rows[rows > base[owner_chunk, owner_node]]
        on_its_way = np.zeros(total)
        for q, v, k in self.state.coming:
            if base[q, v] >= 0 and k <= horizon:
                on_its_way[base[q, v] + k - earliest[q, v]] += 1
        there = self.epoch + self.epochs.delay[self.link]
        end = net.dst[self.link]
        landing = ~net.is_switch[end] & (there <= horizon)
        at = base[self.chunk[landing], end[landing]] + there[landing] - earliest[self.chunk[landing], end[landing]]
        model.rows(
            total, on_its_way, on_its_way,
            (rows, column, 1.0), (again, column[again - 1], -1.0), (at, self.flow[landing], -1.0),
        )  # fmt: skip
        # a node sends what it has: F[q, (n, j), k] <= B[q, n, k]
        begin = net.src[self.link]
        fed = base[self.chunk, begin] >= 0
        fed &= ~net.is_switch[begin]
        held = base[self.chunk[fed], begin[fed]] + self.epoch[fed] - earliest[self.chunk[fed], begin[fed]]
        rows = np.arange(len(held))
        model.rows(len(held), -np.inf, 0.0, (rows, self.flow[fed], 1.0), (rows, column[held], -1.0))
        if not forced:
            self._receive_once(base, earliest, column)
        self.buffer, self.buffer_chunk, self.buffer_node = column, owner_chunk, owner_node

    def _receive_once(self, base: Int64, earliest: Int64, column: Int64) -> None:
        """A node has a chunk at the end, or it is on its way there, by one link: together at most once (A* rounds)."""
        net, horizon = self.topology, self.horizon
        there = self.epoch + self.epochs.delay[self.link]
        end = net.dst[self.link].astype(np.int64)
        late = there > horizon
        key = self.chunk[late] * net.node_count + end[late]
        coming = np.array([q * net.node_count + v for q, v, k in self.state.coming if k > horizon], dtype=np.int64)
        keys, at = np.unique(np.concatenate([key, coming]), return_inverse=True)
        q, v = np.divmod(keys, net.node_count)
        may_hold = base[q, v] >= 0
        room = 1.0 - np.bincount(at[len(key) :], minlength=len(keys))
        self.model.rows(
            len(keys), -np.inf, room,
            (at[: len(key)], self.flow[late], 1.0),
            (np.flatnonzero(may_hold), column[(base[q, v] + horizon - earliest[q, v])[may_hold]], 1.0),
        )  # fmt: skip

    def _switches(self, earliest: Int64, copies: bool) -> None:
        """A switch sends a chunk on in the epoch in which it arrives, over several links if it copies."""
        net, model = self.topology, self.model
        leaves = net.is_switch[net.src[self.link]]
        if not leaves.any():
            return
        there = self.epoch + self.epochs.delay[self.link]
        enters = net.is_switch[net.dst[self.link]]
        span = self.horizon + 1
        entering, leaving = np.flatnonzero(enters & (there <= self.horizon)), np.flatnonzero(leaves)

        def place(flows: Int64, node: Int32, epoch: Int64) -> Int64:
            return (self.chunk[flows] * net.node_count + node[self.link[flows]]) * span + epoch[flows]

        out, into = place(leaving, net.src, self.epoch), place(entering, net.dst, there)
        keys, at = np.unique(out, return_inverse=True)
        useful = np.isin(into, keys)
        where = np.searchsorted(keys, into[useful])
        arrived = model.columns(len(keys), integer=True)
        rows = np.arange(len(keys))
        model.rows(len(keys), -np.inf, 0.0, (rows, arrived, 1.0), (where, self.flow[entering[useful]], -1.0))
        may = net.replicates[net.src[self.link[leaving]]] & copies
        each = np.arange(int(may.sum()))
        model.rows(len(each), -np.inf, 0.0, (each, self.flow[leaving[may]], 1.0), (each, arrived[at[may]], -1.0))
        model.rows(len(keys), -np.inf, 0.0, (at[~may], self.flow[leaving[~may]], 1.0), (rows, arrived, -1.0))

    def _capacities(self) -> None:
        """In any ``window`` epochs in a row no more chunks start on a link than it can carry."""
        window = self.epochs.window[self.link]
        span = int(self.horizon + self.epochs.window.max() + 1)
        # windows are named by their last epoch; those that begin before epoch 0 matter after an earlier A* round only
        least = self.epochs.window - 1
        least[[link for link, _ in self.state.begun]] = 0
        columns, keys = [], []
        for shift in range(int(window.max(initial=0))):
            busy = shift < window
            columns.append(self.flow[busy])
            keys.append(self.link[busy] * span + np.maximum(self.epoch[busy] + shift, least[self.link[busy]]))
        if not columns:
            return
        key, column = np.concatenate(keys), np.concatenate(columns)
        pair = np.unique(np.stack([key, column]), axis=1)
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
            q, i, k = s.chunk, s.link, int(s.at)
            offset = k - self.first_sent[q, i]
            if 0 <= offset < self.sent_count[q, i]:
                x[self.flow[self.base[q, i] + offset]] = 1.0
                have[q, int(self.topology.dst[i])] = int(s.there)
        for c, chunk, node, until in zip(
            self.buffer, self.buffer_chunk, self.buffer_node, self.buffer_epoch, strict=True
        ):
            x[c] = float(have.get((int(chunk), int(node)), NEVER) <= until)
        return x
