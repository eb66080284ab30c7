"""Chunks spread over a network that looks the same from every node: one node is planned, and all nodes get alike.

Rings, tori, hypercubes, full meshes: see :mod:`.kernel_translations`. With n nodes that costs one n-th of a matching of
all chunks, so many orders can be tried; on tori one of the first mostly ends as early as any could.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...kernels import at_speed
from ...kernels import matching as matching_kernel
from ...model.arrays import Float64, Int64, Ragged
from ...model.collective import Workload
from ...model.topology import Topology
from ...schedule.inversion import Transfers
from . import kernel_translations
from .kernel_translations import Cayley, Rules

MOST_ORDERS = 64
"""Orders that are tried at most; more find little that is better."""

SCARCE = 3.0
"""For how many copies a link counts that could bring a chunk to the same node."""

WINDOW = 16
"""Chunks among which a link chooses the rarest."""

TICK = 2.0**-20
"""Moments closer than this share of the shortest transfer count as the same."""

DONE = 1 + 1e-9
"""Times the least possible completion up to which a schedule is not searched further."""


@dataclass(frozen=True, eq=False)
class NodeSchedule:
    """What each node gets, in the order of its starts.

    Attributes:
        group: the digits of the nodes' numbers, and the links of a node.
        node_chunks: int64[nodes * parts], the chunks that each node has.
        rows: int64[4, deliveries], the generator over which each comes, the displacement from where its chunk comes,
            which part of that node's it is, and the delivery that brought it to the node before, -1 if that has it.
        start_s, seconds, arrival_s: float64[deliveries].
    """

    topology: Topology
    group: Cayley
    node_chunks: Int64
    rows: Int64
    start_s: Float64
    seconds: Float64
    arrival_s: Float64

    def transfers(self) -> Transfers:
        """The deliveries of all nodes, in the order of their starts."""
        nodes = self.topology.node_count
        link, chunk, src, dst, parent = at_speed(kernel_translations.expand, self.rows.shape[1] * nodes)(
            self.group, self.rows, *self.topology.out_links, self.topology.dst, self.node_chunks
        )
        times = (self.start_s, self.seconds, self.arrival_s)
        return Transfers(chunk, src, dst, Ragged.single(link), parent, *(t.repeat(nodes) for t in times))


def match_translations(topology: Topology, workload: Workload, work: float, seed: int) -> NodeSchedule | None:
    """The best schedule tried that is alike for all nodes.

    Args:
        work: deliveries to one node that may be tried.
        seed: of the orders that are tried.
    Returns:
        None where nodes are not alike, or do not hold and want alike.
    """
    nodes, chunks = topology.node_count, workload.chunk_count
    if chunks % nodes:
        return None
    group = _cayley(topology)
    if group is None:
        return None
    parts = chunks // nodes
    tries = min(max(int(work // (chunks - parts)), 1), MOST_ORDERS)
    kernel_work = float((nodes + tries) * chunks)
    node_chunks = at_speed(kernel_translations.chunks_of_nodes, kernel_work)(
        nodes, *workload.chunk_holders, *workload.chunk_wanted, workload.chunk_bytes, workload.chunk_start_s
    )
    if not len(node_chunks):
        return None
    part_bytes, begin_s = workload.chunk_bytes[node_chunks[:parts]].astype(np.float64), float(workload.chunk_start_s[0])
    took_s = part_bytes.min() * group.per_byte
    into = np.arange(len(took_s) + 1)
    least_s = begin_s + at_speed(matching_kernel.least_finish, work)(
        into[:: len(took_s)], into, group.latency_s, took_s, np.array([chunks - parts])
    )
    tick_s = float((group.latency_s + took_s).min()) * TICK
    rules = Rules(seed & 0x7FFFFFFF, tries, SCARCE, least_s * DONE, WINDOW, tick_s)
    rows, times = at_speed(kernel_translations.match, kernel_work)(group, part_bytes, begin_s, rules)
    if not rows.shape[1]:
        return None
    order = np.lexsort((times[1], times[0]))
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(order)), -1
    rows, (start_s, arrival_s) = rows[:, order], times[:, order]
    rows[3] = rank[rows[3]]
    seconds = part_bytes[rows[2]] * group.per_byte[rows[0]]
    return NodeSchedule(topology, group, node_chunks, rows, start_s, seconds, arrival_s)


@lru_cache(maxsize=4)
def _cayley(topology: Topology) -> Cayley | None:
    """The group of which the network is a Cayley graph, None where there is none; kept, as it is asked for often."""
    nodes, links = topology.node_count, topology.link_count
    if len(topology.accelerators) < nodes or links % nodes or nodes < 2:
        return None
    offsets, out = topology.out_links
    sides = at_speed(kernel_translations.find_sides, float(nodes * links))(
        offsets, out, topology.dst, topology.bandwidth, topology.latency_s
    )
    one = out[: offsets[1]]
    generators = topology.dst[one].astype(np.int64)
    return Cayley(sides, generators, topology.latency_s[one], 1.0 / topology.bandwidth[one]) if len(sides) else None
