"""The reach of a cut among many ranks: :mod:`.reach` has the proof.

All ways that are needed begin or end at the links of the cut, so cuts of few links are looked at alone. Contributions
that come to a link at the same moment are counted together, and so are ranks that are served at the same moment.

How many contributions a node that adds can have by some time is taken from a node of its orbit, and counts those of all
ranks, not only of those beyond the cut. That makes the bound lower at most.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product

import numpy as np

from ..model.arrays import Float64, Int32, Int64
from ..model.collective import Collective
from ..model.kinds import split_evenly
from .blocks import Block, Blocks, from_node
from .reach import farther, least

MOST_ENDS = 64
"""Links of a cut that is looked at, at most: those of 8 servers of 8 GPUs."""


Steps = tuple[Float64, Float64]
"""Moments, and how much more there is from each on."""


class BlockReach:
    """What the reach of cuts needs of a network and a collective."""

    def __init__(self, blocks: Blocks, c: Collective) -> None:
        self.blocks, self.c = blocks, c
        self._passed: dict[tuple[int, int], Steps] = {}

    @property
    def serves(self) -> bool:
        """Whether pieces go to all ranks, or from one rank to another."""
        kind = self.c.traits
        return kind.reduces_to_all or (not kind.reduces and (kind.wanted == "all" or not kind.copies))

    def seconds(self, block: Block) -> float:
        """The bound by one cut; 0 where nothing is said."""
        c, t = self.c, self.blocks.topology
        links = np.flatnonzero(~block.inside[t.src] & block.inside[t.dst])
        outside, within = self._ends(block)
        if len(links) > MOST_ENDS or not len(links) or not len(outside) or not len(within):
            return 0.0
        come, served = self._ways(t.src[links], True), t.latency_s[links][:, None] + self._ways(t.dst[links], False)
        senders = [outside[some] for some in farther(come[:, outside].min(axis=0))]
        receivers = [within[some] for some in farther(served[:, within].min(axis=0))]
        width = t.bandwidth[links]
        if not c.reduces and not c.traits.copies:
            return c.start_s + max(
                least(come[:, a].min(axis=1) + served[:, b].min(axis=1), width, self._bytes(a, b))
                for a, b in product(senders, receivers)
            )
        best, tails = 0.0, t.src[links]
        onward = [(len(last), [_steps(way[last]) for way in served]) for last in receivers]
        for first in senders:
            held = [self._held(int(v), way, first) for v, way in zip(tails, come, strict=True)]
            needed = self._bytes(first, first) * (len(first) if c.reduces else 1)
            for number, ways in onward:
                hinges = [_hinges(*there, *then, w) for there, then, w in zip(held, ways, width.tolist(), strict=True)]
                at, slope = (np.concatenate(column) for column in zip(*hinges, strict=True))
                best = max(best, least(at, slope, needed * number))
        return c.start_s + best

    def _bytes(self, first: Int32, last: Int32) -> float:
        """The bytes that some nodes hold for others, or for all ranks."""
        c, kind = self.c, self.c.traits
        if kind.whole:
            return float(c.size_bytes)
        piece = np.zeros(self.blocks.topology.node_count)
        piece[c.ranks] = split_evenly(c.size_bytes, len(c.ranks))
        return float(piece[first].sum() if kind.held == "own" else piece[last].sum() * len(first))

    def _ends(self, block: Block) -> tuple[Int32, Int32]:
        """The nodes outside that hold what must enter, and the ranks inside that want it."""
        c, kind = self.c, self.c.traits
        holders = c.ranks if kind.held != "root" else c.ranks[c.root : c.root + 1]
        wanting = c.ranks if kind.wanted != "root" else c.ranks[c.root : c.root + 1]
        return holders[~block.inside[holders]], wanting[block.inside[wanting]]

    def _ways(self, ends: Int32, backward: bool) -> Float64:
        """float64[links, nodes], seconds from each end to all nodes, or to it."""
        t = self.blocks.topology
        nodes, at = np.unique(ends, return_inverse=True)
        return np.stack([from_node(t, int(v), t.latency_s, backward) for v in nodes])[at.reshape(-1)]

    def _held(self, tail: int, come: Float64, first: Int32) -> Steps:
        """When a byte at the beginning of a link can hold how many more of the contributions, or the one piece."""
        if not self.c.reduces:
            return _steps(come[first].min(keepdims=True))
        if self.blocks.topology.adds[tail]:
            return _steps(come[first])
        key = tail, len(first)
        if key not in self._passed:
            firsts, times = self._had
            adds, nearest = self.blocks.topology.adds, np.full(len(come), np.inf)
            np.minimum.at(nearest, self.blocks.symmetry.node_orbits[adds], come[adds])
            self._passed[key] = _steps((times[:, : len(first)] + nearest[firsts][:, None]).min(axis=0))
        return self._passed[key]

    @cached_property
    def _had(self) -> tuple[Int64, Float64]:
        """The first node of each orbit of nodes that add, and float64[orbits, ranks], when it can have 1, 2, ...
        contributions."""
        t = self.blocks.topology
        firsts = np.unique(self.blocks.symmetry.node_orbits[t.adds]).astype(np.int64)
        ways = [from_node(t, int(v), t.latency_s, backward=True)[self.c.ranks] for v in firsts]
        return firsts, np.sort(np.stack(ways), axis=1)


def _steps(moments: Float64) -> Steps:
    """The different moments, and how many there are of each."""
    values, count = np.unique(moments, return_counts=True)
    return values, count.astype(np.float64)


def _hinges(held_s: Float64, held: Float64, way_s: Float64, served: Float64, width: float) -> Steps:
    """When a link begins to serve pairs of a contribution and a rank, and how many bytes/s of them from then on."""
    return (held_s[:, None] + way_s).ravel(), (width * held[:, None] * served).ravel()


def longest_way(blocks: Blocks) -> float:
    """Seconds between the two ranks that are farthest from each other."""
    t = blocks.topology
    return max(float(from_node(t, int(v), t.latency_s)[blocks.ranks].max()) for v in blocks.leads)
