"""TE-CCL's mixed-integer program: chunks that may be copied, in epochs.

Liu, Arzani, Kakarla et al., "Rethinking machine learning collective communication as a
multi-commodity flow problem", SIGCOMM 2024, section 3, with the rounding that its public code
does (facts; nothing of that code is here). In epoch k a link carries whole chunks; a chunk sent in
epoch k is in the receiver's buffer when epoch ``k + delay`` begins.

Variables exist only where they can matter: a chunk is at a node no earlier than the fastest path
brings it (earliest-arrival windows) and moves no later than it can still be of use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...model.collective import Workload
from ...model.topology import Topology
from ...schedule.asap import Send
from ...solvers import Model, affordable

Int64 = NDArray[np.int64]
NEVER = 1 << 30


@dataclass(frozen=True)
class Epochs:
    """A topology in epochs.

    Attributes:
        seconds: the length of an epoch.
        delay: int64[links], a chunk sent in epoch k is there when epoch ``k + delay`` begins:
            1 + ceil(alpha / epoch) + (epochs of transmission - 1); alpha counts only where it is
            more than ``alpha_threshold`` of an epoch. From a switch to an accelerator only alpha
            is charged, since the switch sends a chunk on in the epoch in which it is there.
        window: int64[links], epochs that one chunk takes on the link.
        capacity: int64[links], chunks that may start in any ``window`` epochs in a row.
    """

    seconds: float
    delay: Int64
    window: Int64
    capacity: Int64
    per_epoch: NDArray[np.float64]


def epoch_seconds(topology: Topology, chunk_bytes: float, which: str, multiplier: float = 1.0) -> float:
    """A chunk on the fastest ("fast") or slowest ("slow") link, times ``multiplier``.

    Raised so that no epoch is shorter than a 200th of the smallest latency: the public code's
    guard against horizons of thousands of epochs.
    """
    width = topology.bandwidth.max() if which == "fast" else topology.bandwidth.min()
    return max(float(chunk_bytes / width) * multiplier, float(topology.latency_s.min()) / 200)


def in_epochs(
    topology: Topology, chunk_bytes: float, seconds: float, alpha_threshold: float = 0.1, switch_charged: bool = False
) -> Epochs:
    """The topology in epochs of ``seconds``, for chunks of ``chunk_bytes``."""
    alpha = topology.latency_s / seconds
    alpha_back = np.where(alpha > alpha_threshold + 1e-12, np.ceil(alpha - 1e-9), 0).astype(np.int64)
    per_epoch = topology.bandwidth * seconds / chunk_bytes
    window = np.maximum(1, np.ceil(1 / per_epoch - 1e-9)).astype(np.int64)
    delay = alpha_back + window
    if not switch_charged:
        freed = topology.is_switch[topology.src] & ~topology.is_switch[topology.dst]
        delay = np.where(freed, alpha_back, delay)
    return Epochs(seconds, delay, window, np.floor(window * per_epoch + 1e-9).astype(np.int64), per_epoch)


@dataclass
class State:
    """Who holds what when the first epoch begins.

    Attributes:
        held: bool[chunks, nodes].
        release: int64[chunks], the epoch from which what is held may be sent.
        coming: (chunk, node, epoch): on its way, there when that epoch begins.
        begun: (link, epoch) of earlier sends, epochs below 0, which may keep links busy.
    """

    held: NDArray[np.bool_]
    release: Int64
    coming: list[tuple[int, int, int]] = field(default_factory=list)
    begun: list[tuple[int, int]] = field(default_factory=list)

    def after(self, sends: Sequence[Send], topology: Topology, horizon: int) -> State:
        """The state ``horizon`` epochs later, epochs counted from there, if these sends are made."""
        held = self.held.copy()
        coming = [(q, v, k - horizon) for q, v, k in self.coming]
        coming += [
            (s.chunk, int(topology.dst[s.link]), int(s.there) - horizon)
            for s in sends
            if not topology.is_switch[topology.dst[s.link]]
        ]
        for q, v, k in coming:
            if k <= 0:
                held[q, v] = True
        begun = [(i, k - horizon) for i, k in self.begun] + [(s.link, int(s.at) - horizon) for s in sends]
        return State(held, np.maximum(self.release - horizon, 0), [c for c in coming if c[2] > 0], begun)


def longest_passage(topology: Topology, epochs: Epochs, between: Int64) -> int:
    """Epochs of the longest way between two accelerators, through switches alone, that no other way is faster than.

    An A* round has to be longer: it ends with nothing inside a switch.
    """
    n, relays = topology.node_count, np.flatnonzero(topology.is_switch)
    d = np.full((n, n), NEVER, dtype=np.int64)
    np.minimum.at(d, (topology.src, topology.dst), epochs.delay)
    for k in relays:
        np.minimum(d, d[:, k, None] + d[None, k, :], out=d)
    ends = np.ix_(~topology.is_switch, ~topology.is_switch)
    fastest = (d[ends] == between[ends]) & (d[ends] < NEVER)
    return int(d[ends][fastest].max(initial=1))


def initial(topology: Topology, workload: Workload, seconds: float) -> State:
    """What the workload says is held at first, in epochs of ``seconds``."""
    held = np.zeros((workload.chunk_count, topology.node_count), dtype=np.bool_)
    held[workload.chunk_holders.owners, workload.chunk_holders.values] = True
    return State(held, np.ceil(workload.chunk_start_s / seconds - 1e-9).astype(np.int64))


def distances(topology: Topology, epochs: Epochs) -> Int64:
    """int64[nodes, nodes], epochs from node to node along the fastest path, NEVER without one."""
    n = topology.node_count
    d = np.full((n, n), NEVER, dtype=np.int64)
    np.fill_diagonal(d, 0)
    np.minimum.at(d, (topology.src, topology.dst), epochs.delay)
    for k in range(n):
        np.minimum(d, d[:, k, None] + d[None, k, :], out=d)
    return np.minimum(d, NEVER)


class CopyModel:
    """The program for a fixed number of epochs.

    Args:
        horizon: K; demands are met when epoch K begins.
        wanted: bool[chunks, nodes], demands not yet met.
        between: int64[nodes, nodes], see :func:`distances`.
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
        wanted: NDArray[np.bool_],
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
        found = np.empty(self.state.held.shape, dtype=np.int64)
        for q, held in enumerate(self.state.held):
            found[q] = between[held].min(axis=0) + self.state.release[q]
        for q, v, k in self.state.coming:
            np.minimum(found[q], k + between[v], out=found[q])
        return found

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
        chunk, link = np.nonzero(count)
        counts = count[chunk, link]
        self.base = np.full(count.shape, -1, dtype=np.int64)
        self.base[chunk, link] = np.cumsum(counts) - counts
        self.first_sent, self.sent_count = first, count
        self.chunk, self.link = np.repeat(chunk, counts), np.repeat(link, counts)
        offset = np.arange(len(self.chunk)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.epoch = first[self.chunk, self.link] + offset
        cost = np.zeros(len(self.chunk))
        if not forced:
            late = self.epoch + delay[self.link] > self.horizon
            cost[late] = -self._worth()[self.chunk[late], net.dst[self.link[late]]]
        self.flow = self.model.columns(len(self.chunk), cost=cost, integer=True)

    def _worth(self) -> NDArray[np.float64]:
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
        chunk, node = np.nonzero(count)
        counts = count[chunk, node]
        base = np.full(count.shape, -1, dtype=np.int64)
        base[chunk, node] = np.cumsum(counts) - counts
        total = int(counts.sum())
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        self.buffer_epoch = np.repeat(earliest[chunk, node], counts) + np.arange(total) - starts
        owner_chunk, owner_node = np.repeat(chunk, counts), np.repeat(node, counts)
        needed = forced & self.wanted[owner_chunk, owner_node] & (self.buffer_epoch == horizon)
        cost = np.zeros(total)
        if self.objective != "feasible":
            cost -= self.wanted[owner_chunk, owner_node]
        if not forced:
            cost -= np.where(self.buffer_epoch == horizon, self._worth()[owner_chunk, owner_node], 0.0)
        column = model.columns(total, lower=needed.astype(float), cost=cost, integer=True)
        rows = np.arange(total)
        again = rows[rows > starts]
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
        # what is sent is there: F[q, (n, j), k] <= B[q, n, k]
        begin = net.src[self.link]
        fed = base[self.chunk, begin] >= 0
        fed &= ~net.is_switch[begin]
        held = base[self.chunk[fed], begin[fed]] + self.epoch[fed] - earliest[self.chunk[fed], begin[fed]]
        some = np.arange(len(held))
        model.rows(len(held), -np.inf, 0.0, (some, self.flow[fed], 1.0), (some, column[held], -1.0))
        if not forced:
            self._receive_once(base, earliest, column)
        self.buffer, self.buffer_chunk, self.buffer_node = column, owner_chunk, owner_node

    def _receive_once(self, base: Int64, earliest: Int64, column: Int64) -> None:
        """Held at the end, or on its way: together at most once (A* rounds)."""
        net, horizon = self.topology, self.horizon
        there = self.epoch + self.epochs.delay[self.link]
        end = net.dst[self.link].astype(np.int64)
        late = there > horizon
        key = self.chunk[late] * net.node_count + end[late]
        coming = np.array([q * net.node_count + v for q, v, k in self.state.coming if k > horizon], dtype=np.int64)
        keys, at = np.unique(np.concatenate([key, coming]), return_inverse=True)
        q, v = np.divmod(keys, net.node_count)
        known = base[q, v] >= 0
        room = 1.0 - np.bincount(at[len(key) :], minlength=len(keys))
        self.model.rows(
            len(keys), -np.inf, room,
            (at[: len(key)], self.flow[late], 1.0),
            (np.flatnonzero(known), column[(base[q, v] + horizon - earliest[q, v])[known]], 1.0),
        )  # fmt: skip

    def _switches(self, earliest: Int64, copies: bool) -> None:
        """A switch sends on in the epoch in which a chunk is there, over several links if it copies."""
        net, model = self.topology, self.model
        leaves = net.is_switch[net.src[self.link]]
        if not leaves.any():
            return
        there = self.epoch + self.epochs.delay[self.link]
        enters = net.is_switch[net.dst[self.link]]
        span = self.horizon + 1
        entering, leaving = np.flatnonzero(enters & (there <= self.horizon)), np.flatnonzero(leaves)

        def place(flows: Int64, node: NDArray[np.int32], epoch: Int64) -> Int64:
            return (self.chunk[flows] * net.node_count + node[self.link[flows]]) * span + epoch[flows]

        out, into = place(leaving, net.src, self.epoch), place(entering, net.dst, there)
        keys, at = np.unique(out, return_inverse=True)
        known = np.isin(into, keys)
        where = np.searchsorted(keys, into[known])
        arrived = model.columns(len(keys), integer=True)
        rows = np.arange(len(keys))
        model.rows(len(keys), -np.inf, 0.0, (rows, arrived, 1.0), (where, self.flow[entering[known]], -1.0))
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
            some = shift < window
            columns.append(self.flow[some])
            keys.append(self.link[some] * span + np.maximum(self.epoch[some] + shift, least[self.link[some]]))
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

    def sends(self, x: NDArray[np.float64]) -> list[Send]:
        """What a solution sends."""
        return [
            Send(int(k), int(k + self.epochs.delay[i]), int(q), int(i))
            for q, i, k in zip(*(a[x[self.flow] > 0.5] for a in (self.chunk, self.link, self.epoch)), strict=True)
        ]

    def start_from(self, sends: Sequence[Send]) -> NDArray[np.float64]:
        """The point of a known schedule (whose sends keep to this horizon), to start a solver from."""
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
