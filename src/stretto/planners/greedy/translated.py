"""Chunks spread over a network that looks the same from every node: what one node gets is planned, and all get alike.

Rings, tori, hypercubes, full meshes: see :mod:`.kernel_translations`. For n nodes that costs one n-th of a
matching of all chunks, so many orders can be tried, and on tori one of the first mostly ends as early as any could.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...kernels import matching as matching_kernel
from ...model.arrays import Ragged
from ...model.collective import Workload
from ...model.topology import Topology
from ...schedule.inversion import Transfers
from . import kernel_translations

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

MOST_ORDERS = 64
"""How many orders are tried at most: beyond these few are better."""

SCARCE = 3.0
"""For how many copies a link counts that could bring a chunk to the same node."""

LOOKED = 16
"""Among how many chunks a link chooses."""

TICK = 2.0**-20
"""Moments that are closer than this part of the shortest transfer are the same."""

DONE = 1 + 1e-9
"""What ends after so many times what nothing can beat is not searched further."""


@dataclass(frozen=True, eq=False)
class Translated:
    """What each node gets, in the order of its starts.

    Attributes:
        sides: int64[digits], of the nodes' numbers.
        ways: int64[links of a node], the displacement over each.
        own: int64[nodes * parts], the chunks that each node has.
        rows: int64[4, deliveries], the way of each, the displacement from where the chunk comes, which part it is, and
            the delivery that brought it to the node before, -1 if that has it.
        start_s, seconds, arrival_s: float64[deliveries].
    """

    topology: Topology
    sides: Int64
    ways: Int64
    own: Int64
    rows: Int64
    start_s: Float64
    seconds: Float64
    arrival_s: Float64

    def transfers(self) -> Transfers:
        """Those of all nodes, in the order of their starts."""
        nodes = self.topology.node_count
        kernel_steps = self.rows.shape[1] * nodes
        link, chunk, src, dst, parent = at_speed(kernel_translations.expand, kernel_steps)(
            self.sides, self.rows, *self.topology.out_links, self.topology.dst, self.ways, self.own
        )
        times = (self.start_s, self.seconds, self.arrival_s)
        return Transfers(chunk, src, dst, Ragged.single(link), parent, *(t.repeat(nodes) for t in times))


Node = tuple[Int64, Int64, Float64, Float64]
"""Sides of the digits, and displacement, latency and seconds a byte of each way that leaves a node."""


@lru_cache(maxsize=4)
def _like_all(topology: Topology) -> Node | None:
    """What all nodes look like, None where they are not alike; kept, as a topology is planned for often."""
    nodes, links = topology.node_count, topology.link_count
    if len(topology.accelerators) < nodes or links % nodes or nodes < 2:
        return None
    offsets, out = topology.out_links
    kernel_steps = float(nodes * links)
    sides = at_speed(kernel_translations.find_sides, kernel_steps)(
        offsets, out, topology.dst, topology.bandwidth, topology.latency_s
    )
    one = out[: offsets[1]]
    way = topology.dst[one].astype(np.int64), topology.latency_s[one], 1.0 / topology.bandwidth[one]
    return (sides, *way) if len(sides) else None


def translated(topology: Topology, workload: Workload, work: float, seed: int) -> Translated | None:
    """The best schedule found, alike for all nodes; None where nodes are not alike, or do not want alike.

    Args:
        work: how many deliveries to one node may be tried.
        seed: of the orders that are tried.
    """
    nodes, chunks = topology.node_count, workload.chunk_count
    if chunks % nodes:
        return None
    node = _like_all(topology)
    if node is None:
        return None
    parts = chunks // nodes
    tries = min(max(int(work // (chunks - parts)), 1), MOST_ORDERS)
    kernel_steps = float((nodes + tries) * chunks)
    own = at_speed(kernel_translations.own_chunks, kernel_steps)(
        nodes, *workload.chunk_holders, *workload.chunk_wanted, workload.chunk_bytes, workload.chunk_start_s
    )
    if not len(own):
        return None
    sides, ways, latency, per_byte = node
    size, begun = workload.chunk_bytes[own[:parts]].astype(np.float64), float(workload.chunk_start_s[0])
    took = size.min() * per_byte
    into = np.arange(len(ways) + 1)
    least_s = begun + at_speed(matching_kernel.least_finish, work)(
        into[:: len(ways)], into, latency, took, np.array([chunks - parts])
    )
    tick = float((latency + took).min()) * TICK
    rows, times = at_speed(kernel_translations.match, kernel_steps)(
        sides, ways, latency, per_byte, size, begun, seed & 0x7FFFFFFF, tries, SCARCE, least_s * DONE, LOOKED, tick
    )
    if not rows.shape[1]:
        return None
    order = np.lexsort((times[1], times[0]))
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(order)), -1
    rows, (start_s, arrival_s) = rows[:, order], times[:, order]
    rows[3] = rank[rows[3]]
    seconds = size[rows[2]] * per_byte[rows[0]]
    return Translated(topology, sides, ways, own, rows, start_s, seconds, arrival_s)
