"""TE-CCL's linear program: fractions of chunks, never copied (AllToAll, Scatter, Gather; section 4.1).

Without copying, the chunks of one source are one commodity, flows may be fractional, and the
program is linear. Capacities are fractional, too: an epoch may be shorter than a chunk's time on a
link. The solution is taken apart into paths. A router that cuts through passes on what comes in the epoch in which it
comes; a cycle of such routers within an epoch makes nothing, since what comes in is what goes out, and is taken out of
the solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.topology import Topology
from ...solvers import Model, affordable
from .epochs import NEVER, Epochs, cuts_through, leaves_switches, windows

DUST = 1e-6
"""A share of a chunk that is taken for a rounding error."""


@dataclass(frozen=True)
class Path:
    """A share of what ``target`` wants of ``source``, in chunks, and the (link, epoch) by which it goes."""

    source: int
    target: int
    amount: float
    hops: tuple[tuple[int, int], ...]


def without_windows(epochs: Epochs) -> Epochs:
    """The epochs of the linear program: fractions need not wait until a whole chunk has passed."""
    further = np.where(leaves_switches(epochs.topology), 0, epochs.window - 1)
    stores = ~cuts_through(epochs.topology)[epochs.topology.dst]
    head = epochs.head - np.where(stores, further, 0)
    return replace(epochs, delay=epochs.delay - further, head=head, window=np.ones_like(epochs.window))


class FlowModel:
    """The linear program for a fixed number of epochs.

    Args:
        epochs: of :func:`without_windows`.
        sources: int64[sources], nodes; a node is a source for each epoch in which something of it starts.
        arrival: int64[sources, nodes], the first epoch in which anything of a source can be at a node.
        demand: float64[sources, nodes], chunks that each node wants of each source.
        horizon: K; what is read by the beginning of epoch K counts.
        early: reward reading early, 1 / (k + 1) a chunk (the public code's objective).

    Attributes:
        possible: False where some demand cannot be met even by the fastest path alone.
    """

    def __init__(
        self, epochs: Epochs, sources: Int64, arrival: Int64, demand: Float64, horizon: int, early: bool
    ) -> None:
        net = self.net = epochs.topology
        self.horizon, self.sources, self.arrival = horizon, sources, arrival
        # every node is one place, as every link takes one epoch
        ((_, self.delay),) = epochs.places.landings
        self.model = Model()
        wanting = demand > 0
        self.possible = bool((arrival[wanting] <= horizon).all())
        if not self.possible:
            return
        # F[s, link, k]: what is put on the link in epoch k
        useful = np.where(wanting[:, None, :], epochs.between[None], NEVER).min(axis=2)
        first = arrival[:, net.src]
        count = np.maximum(0, horizon - self.delay[None] - useful[:, net.dst] - first + 1)
        count[net.dst[None] == sources[:, None]] = 0
        affordable(int(count.sum()), epochs.seconds)
        self.sent = windows(count, first)
        self.source, self.link, self.epoch = self.sent.row, self.sent.place, self.sent.epoch
        self.there = self.epoch + self.delay[self.link]
        self.flow = self.model.columns(len(self.link), upper=np.inf)
        # S[s, n, k]: what is left at a node when epoch k ends; R[s, n, k]: what is read there in it
        stores = ~net.is_switch[None] & (np.arange(net.node_count)[None] != sources[:, None])
        self.stock = windows(np.where(stores, np.maximum(0, horizon - arrival + 1), 0), arrival)
        owner, node, at = self.stock.row, self.stock.place, self.stock.epoch
        self.left = self.model.columns(len(at), upper=np.inf)
        reads = wanting[owner, node]
        self.read_of = np.where(reads, np.cumsum(reads) - 1, -1)
        cost = -1.0 / (1.0 + at[reads]) if early else 0.0
        self.read = self.model.columns(int(reads.sum()), upper=np.inf, cost=cost)
        self._balance(reads)
        self._switches()
        names, where = np.unique(self.link * (horizon + 1) + self.epoch, return_inverse=True)
        self.model.rows(len(names), -np.inf, epochs.per_epoch[names // (horizon + 1)], (where, self.flow, 1.0))
        s, v = np.nonzero(wanting)
        number = np.full(wanting.shape, -1, dtype=np.int64)
        number[s, v] = np.arange(len(s))
        self.model.rows(len(s), demand[s, v], demand[s, v], (number[owner[reads], node[reads]], self.read, 1.0))
        self.wanting = list(zip(s.tolist(), v.tolist(), strict=True))

    def _balance(self, reads: Bool) -> None:
        """What is left from the epoch before, and what arrives, is read, sent on, or left."""
        net, stock = self.net, self.stock
        before = stock.at(stock.row, stock.place, stock.epoch - 1)
        lands = stock.at(self.source, net.dst[self.link], self.there)
        leaves = stock.at(self.source, net.src[self.link], self.epoch)
        into, out = lands >= 0, leaves >= 0
        self.model.rows(
            len(reads), 0.0, 0.0,
            (self.left, -1.0), (np.where(before >= 0, self.left[before], -1), 1.0),
            (np.flatnonzero(reads), self.read, -1.0),
            (lands[into], self.flow[into], 1.0), (leaves[out], self.flow[out], -1.0),
        )  # fmt: skip

    def _switches(self) -> None:
        """What enters a switch leaves it in the epoch in which it arrives."""
        net, span = self.net, self.horizon + 1
        out, into = net.is_switch[net.src[self.link]], net.is_switch[net.dst[self.link]]
        place = self.source * net.node_count
        leaving = ((place + net.src[self.link]) * span + self.epoch)[out]
        entering = ((place + net.dst[self.link]) * span + self.there)[into]
        names, where = np.unique(np.concatenate([leaving, entering]), return_inverse=True)
        self.model.rows(
            len(names), 0.0, 0.0,
            (where[: len(leaving)], self.flow[out], 1.0), (where[len(leaving) :], self.flow[into], -1.0),
        )  # fmt: skip

    def paths(self, x: Float64) -> list[Path]:
        """The solution as paths from each source to where and when it is read."""
        # what is left of each column, and 0 for no column
        flow, left = np.append(x[self.flow], 0.0), np.append(x[self.left], 0.0)
        read = x[self.read]
        paths: list[Path] = []
        for s, v in self.wanting:
            for k in range(int(self.arrival[s, v]), self.horizon + 1):
                rest = float(read[self.read_of[self.stock.at(s, v, k)]])
                while rest > DUST:
                    path = self._back(s, v, k, flow, left, rest)
                    if path is None:
                        break
                    rest -= path.amount
                    paths.append(path)
        return paths

    def _back(self, s: int, target: int, end: int, flow: Float64, left: Float64, amount: float) -> Path | None:
        """One path that ends in epoch ``end``, by the largest flows from there backwards; it is taken out of them.

        None where only rounding errors are left of the flow.
        """
        hops: list[tuple[int, int]] = []
        used: list[tuple[Float64, int]] = []
        passed: list[tuple[int, int]] = []  # node and epoch before each of ``used``
        v, k = target, end
        while v != self.sources[s]:
            if (v, k) in passed:  # a cycle within an epoch
                _take(used[passed.index((v, k)) :], np.inf)
                hops, used, passed, v, k = [], [], [], target, end
                continue
            passed.append((v, k))
            links = self.net.in_links[v]
            waits, sent = int(self.stock.at(s, v, k - 1)), self.sent.at(s, links, k - self.delay[links])
            shares = np.append(left[waits], flow[sent])
            best = int(shares.argmax())
            if shares[best] <= DUST / 10:
                return None
            if best == 0:
                used.append((left, waits))
                k -= 1
            else:
                i = int(links[best - 1])
                used.append((flow, int(sent[best - 1])))
                k -= int(self.delay[i])
                hops.append((i, k))
                v = int(self.net.src[i])
        return Path(s, target, _take(used, amount), _direct(self.net, hops[::-1]))


def _take(columns: list[tuple[Float64, int]], most: float) -> float:
    """Take what all columns have, and no more than ``most``, out of each."""
    amount = min([most, *(float(column[at]) for column, at in columns)])
    for column, at in columns:
        column[at] -= amount
    return amount


def _direct(net: Topology, hops: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Hops without the detours that come back to a node that stores: what is there waits instead."""
    kept: list[tuple[int, int]] = []
    for i, k in hops:
        stores = ~net.is_switch[net.dst[i]]
        home = [n for n, (j, _) in enumerate(kept) if stores and net.src[j] == net.dst[i]]
        kept = kept[: home[0]] if home else [*kept, (i, k)]
    return tuple(kept)
