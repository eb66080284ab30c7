"""Time in epochs: what each link can do in them, and who holds what when the first one begins.

Section 3, with the rounding that the public code does (facts; nothing of that code is here). In epoch k a link carries
whole chunks; a chunk sent in epoch k is in the receiver's buffer when epoch ``k + delay`` begins. Routers that cut
through, which TE-CCL does not have, are places of their own (:class:`Places`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.collective import Workload
from ...model.topology import ROUTER, Topology
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
    head: Int64  # [links], likewise for as much of it as the receiver needs to send on: its first byte, for a router
    window: Int64  # [links], epochs that one chunk takes on the link
    capacity: Int64  # [links], chunks that may start in any ``window`` epochs in a row
    per_epoch: Float64  # [links], chunks that the link carries in an epoch

    @cached_property
    def places(self) -> Places:
        """Where chunks wait in this topology."""
        return _places(self)

    @cached_property
    def between(self) -> Int64:
        """int64[places, places], epochs from place to place along the fastest path, NEVER without one."""
        n = len(self.places.node)
        return self._fastest(np.where(np.eye(n, dtype=np.bool_), 0, NEVER), range(n))

    @property
    def longest_passage(self) -> int:
        """Epochs of the longest fastest way between two nodes that store, among the ways through switches alone.

        An A* round has to be longer, since it ends with nothing inside a switch.
        """
        inside = self.topology.is_switch[self.places.node]
        n, relays = len(inside), np.flatnonzero(inside).tolist()
        stores = np.ix_(~inside, ~inside)
        d, between = self._fastest(np.full((n, n), NEVER), relays)[stores], self.between[stores]
        return int(d[(d == between) & (d < NEVER)].max(initial=1))

    def earliest(self, state: State) -> Int64:
        """int64[chunks, places], the first epoch in which a chunk can be at a place."""
        holds = state.held[:, self.places.node]
        first = np.stack([self.between[held].min(axis=0, initial=NEVER) for held in holds]) + state.release[:, None]
        for q, place, epoch in self.places.coming(state):
            np.minimum(first[q], epoch + self.between[place], out=first[q])
        return first

    def _fastest(self, d: Int64, through: Iterable[int]) -> Int64:
        """The least epochs by links and ways through some places, where ``d`` has no less."""
        for place, after in self.places.landings:
            lands = place >= 0
            np.minimum.at(d, (self.places.origin[lands], place[lands]), after[lands])
        for k in through:
            np.minimum(d, d[:, k, None] + d[None, k, :], out=d)
        return np.minimum(d, NEVER)


@dataclass(frozen=True, eq=False)
class Places:
    """Where chunks wait to be sent on.

    A node that stores, and a switch, is one place: a chunk is there when it has arrived whole. A router that cuts
    through is one place for each number of epochs w that a chunk takes on the links which leave it. A chunk is at
    that place from the first epoch on in which such a link may start with it: when the first byte has come, and not so
    early that the last byte would leave before it came. Of a link by which the chunk is ``head`` epochs under way to
    its first byte, and ``delay`` to its last, that is max(head, delay - w) after it was sent.
    """

    node: Int64  # [places], places 0 to nodes - 1 are those of the nodes; what more routers have follows
    window: Int64  # [places], w for a router; 0 elsewhere
    origin: Int64  # [links], the place from which each sends
    # (int64[links], int64[links]) each: a place to which each link brings what it carries, -1 for none, and the epochs
    # after which it is there; the first has the place with the number of the node
    landings: tuple[tuple[Int64, Int64], ...]

    def coming(self, state: State) -> list[tuple[int, int, int]]:
        """(chunk, place, epoch) of each chunk on its way: it is at the place when that epoch begins."""
        return [
            (q, p, max(0, head, whole - int(self.window[p])))
            for q, v, head, whole in state.coming
            for p in np.flatnonzero(self.node == v).tolist()
        ]


def _places(epochs: Epochs) -> Places:
    """The places of a topology in epochs."""
    net = epochs.topology
    n, cuts = net.node_count, cuts_through(net)
    # the numbers of epochs that links take which leave a router; any will do where none leaves
    of = [sorted({int(w) for w in epochs.window[net.out_links[v]]}) or [0] if cuts[v] else [0] for v in range(n)]
    more = [(v, w) for v in range(n) for w in of[v][1:]]
    node = np.array([*range(n), *(v for v, _ in more)], dtype=np.int64)
    window = np.array([*(ws[0] for ws in of), *(w for _, w in more)], dtype=np.int64)
    number = {(v, w): p for p, (v, w) in enumerate(zip(node.tolist(), window.tolist(), strict=True))}
    leaves = zip(net.src.tolist(), epochs.window.tolist(), strict=True)
    origin = np.array([number[v, w if cuts[v] else 0] for v, w in leaves], dtype=np.int64)
    landings = []
    for slot in range(max(map(len, of))):
        place = np.array([number[v, of[v][slot]] if slot < len(of[v]) else -1 for v in range(n)], dtype=np.int64)
        at = place[net.dst]
        landings.append((at, np.maximum(epochs.head, epochs.delay - window[at])))
    return Places(node, window, origin, tuple(landings))


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
    head = np.where(cuts_through(topology)[topology.dst], alpha_epochs, delay)
    capacity = np.floor(window * per_epoch + 1e-9).astype(np.int64)
    return Epochs(topology, seconds, delay, head, window, capacity, per_epoch)


def cuts_through(topology: Topology) -> Bool:
    """bool[nodes], routers that send on a byte as soon as it has come, and keep what they have for later."""
    return np.asarray(topology.forwarding == ROUTER)


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
    # (chunk, node, epoch, epoch) of chunks on their way: when the first epoch begins, as much has arrived as the node
    # needs to send on (``Epochs.head``), and when the second does, all
    coming: list[tuple[int, int, int, int]] = field(default_factory=list)
    # (link, epoch) of earlier sends, epochs below 0, which may keep links busy
    begun: list[tuple[int, int]] = field(default_factory=list)

    def after(self, sends: Sequence[Send], epochs: Epochs, horizon: int) -> State:
        """The state ``horizon`` epochs later, epochs counted from there, if these sends are made."""
        topology, held = epochs.topology, self.held.copy()
        coming = [(q, v, head - horizon, whole - horizon) for q, v, head, whole in self.coming]
        coming += [
            (s.chunk, int(topology.dst[s.link]), int(s.at + epochs.head[s.link]) - horizon, int(s.there) - horizon)
            for s in sends
            if not topology.is_switch[topology.dst[s.link]]
        ]
        for q, v, _, whole in coming:
            if whole <= 0:
                held[q, v] = True
        begun = [(i, k - horizon) for i, k in self.begun] + [(s.link, int(s.at) - horizon) for s in sends]
        return State(held, np.maximum(self.release - horizon, 0), [c for c in coming if c[3] > 0], begun)


def initial_state(topology: Topology, workload: Workload, seconds: float) -> State:
    """What each node holds at first, and when it may be sent, in epochs of ``seconds``."""
    held = np.zeros((workload.chunk_count, topology.node_count), dtype=np.bool_)
    held[workload.chunk_holders.owners, workload.chunk_holders.values] = True
    return State(held, np.ceil(workload.chunk_start_s / seconds - 1e-9).astype(np.int64))
