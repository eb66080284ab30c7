"""Time in epochs: what each link can do in them, and who holds what when the first one begins.

Section 3, with the rounding that the public code does (facts; nothing of that code is here). In epoch k a link carries
whole chunks; a chunk sent in epoch k is in the receiver's buffer when epoch ``k + delay`` begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.collective import Workload
from ...model.topology import Topology
from ...schedule.asap import Send

NEVER = 1 << 30
"""An epoch that never comes: the distance to a node without a path."""

ALPHA_THRESHOLD = 0.1
"""Share of an epoch up to which a latency is dropped, as the public code does."""

EPOCHS_A_LATENCY = 200
"""Epochs in the smallest latency at most: the public code's guard against horizons of thousands of epochs."""


@dataclass(frozen=True)
class Epochs:
    """A topology in epochs."""

    topology: Topology  # which one
    seconds: float  # the length of an epoch
    # [links], a chunk sent in epoch k has arrived when epoch ``k + delay`` begins: 1 + ceil(alpha / epoch) + (epochs of
    # transmission - 1); alpha counts only where it is more than ``alpha_threshold`` of an epoch. From a switch to an
    # accelerator only alpha is charged, since the switch sends a chunk on in the epoch in which it arrives.
    delay: Int64
    window: Int64  # [links], epochs that one chunk takes on the link
    capacity: Int64  # [links], chunks that may start in any ``window`` epochs in a row
    per_epoch: Float64  # [links], chunks that the link carries in an epoch

    @cached_property
    def between(self) -> Int64:
        """int64[nodes, nodes], epochs from node to node along the fastest path, NEVER without one."""
        n = self.topology.node_count
        return self._fastest(np.where(np.eye(n, dtype=np.bool_), 0, NEVER), range(n))

    @property
    def longest_passage(self) -> int:
        """Epochs of the longest fastest way between two nodes that store, among the ways through switches alone.

        An A* round has to be longer, since it ends with nothing inside a switch.
        """
        net = self.topology
        n, relays = net.node_count, np.flatnonzero(net.is_switch).tolist()
        stores = np.ix_(~net.is_switch, ~net.is_switch)
        d, between = self._fastest(np.full((n, n), NEVER), relays)[stores], self.between[stores]
        return int(d[(d == between) & (d < NEVER)].max(initial=1))

    def _fastest(self, d: Int64, through: Iterable[int]) -> Int64:
        """The least epochs by links and ways through some nodes, where ``d`` has no less."""
        np.minimum.at(d, (self.topology.src, self.topology.dst), self.delay)
        for k in through:
            np.minimum(d, d[:, k, None] + d[None, k, :], out=d)
        return np.minimum(d, NEVER)


def epoch_seconds(topology: Topology, chunk_bytes: float, which: str, multiplier: float = 1.0) -> float:
    """A chunk on the fastest ("fast") or slowest ("slow") link, times ``multiplier``.

    Raised so that no epoch is shorter than a 200th of the smallest latency.
    """
    width = topology.bandwidth.max() if which == "fast" else topology.bandwidth.min()
    return max(float(chunk_bytes / width) * multiplier, float(topology.latency_s.min()) / EPOCHS_A_LATENCY)


def in_epochs(topology: Topology, chunk_bytes: float, seconds: float) -> Epochs:
    """The topology in epochs of ``seconds``, for chunks of ``chunk_bytes``."""
    alpha = topology.latency_s / seconds
    alpha_epochs = np.where(alpha > ALPHA_THRESHOLD + 1e-12, np.ceil(alpha - 1e-9), 0).astype(np.int64)
    per_epoch = topology.bandwidth * seconds / chunk_bytes
    window = np.maximum(1, np.ceil(1 / per_epoch - 1e-9)).astype(np.int64)
    delay = np.where(leaves_switches(topology), alpha_epochs, alpha_epochs + window)
    return Epochs(topology, seconds, delay, window, np.floor(window * per_epoch + 1e-9).astype(np.int64), per_epoch)


def leaves_switches(topology: Topology) -> Bool:
    """bool[links], those from a switch to a node that stores: they cost no epoch of transmission of their own."""
    leaves: Bool = topology.is_switch[topology.src] & ~topology.is_switch[topology.dst]
    return leaves


@dataclass(frozen=True, eq=False)
class Windows:
    """Columns of a table whose cells have a window of epochs each."""

    count: Int64  # [rows, places], epochs in the window of each cell
    first: Int64  # [rows, places], the first of them
    base: Int64  # [rows, places], the first column of each cell
    row: Int64  # [columns]
    place: Int64  # [columns]
    epoch: Int64  # [columns]

    def at(self, row: Any, place: Any, epoch: Any) -> Int64:
        """The column of each row, place and epoch, -1 outside the window."""
        offset = epoch - self.first[row, place]
        return np.where((offset >= 0) & (offset < self.count[row, place]), self.base[row, place] + offset, -1)


def windows(count: Int64, first: Int64) -> Windows:
    """The table of windows with these numbers of epochs, from these epochs on."""
    base = (np.cumsum(count) - count.ravel()).reshape(count.shape)
    row, place = np.nonzero(count)
    row, place = (np.repeat(a, count[row, place]) for a in (row, place))
    return Windows(count, first, base, row, place, np.arange(len(row)) - base[row, place] + first[row, place])


@dataclass
class State:
    """Who holds what when the first epoch begins."""

    held: Bool  # [chunks, nodes]
    release: Int64  # [chunks], the epoch from which a chunk may be sent by its holders
    # (chunk, node, epoch) of chunks on their way, which arrive when that epoch begins
    coming: list[tuple[int, int, int]] = field(default_factory=list)
    # (link, epoch) of earlier sends, epochs below 0, which may keep links busy
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


def initial_state(topology: Topology, workload: Workload, seconds: float) -> State:
    """What each node holds at first, and when it may be sent, in epochs of ``seconds``."""
    held = np.zeros((workload.chunk_count, topology.node_count), dtype=np.bool_)
    held[workload.chunk_holders.owners, workload.chunk_holders.values] = True
    return State(held, np.ceil(workload.chunk_start_s / seconds - 1e-9).astype(np.int64))
