"""Chunks spread over a network that looks the same from every node: one node is planned, and all nodes get alike.

Nodes are numbered in mixed radix. Where adding to any digit, modulo its side, maps links to links of the same bandwidth
and latency, these translations are a commutative group of automorphisms, of which exactly one takes a node to another:
the network is a Cayley graph of the group, and the links of node 0 lead to its generators. Rings, tori, hypercubes and
full meshes are. With n nodes a matching costs one n-th of a matching of all chunks (:mod:`.kernel_translations`), so
many orders can be tried; on tori one of the first mostly ends as early as any could.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...kernels import matching as matching_kernel
from ...model.arrays import Int64, Ragged
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


def match_translations(topology: Topology, workload: Workload, work: float, seed: int) -> Transfers | None:
    """The best schedule tried that is alike for all nodes, in the order of its starts.

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
    node_chunks = _chunks_of_nodes(nodes, workload)
    if node_chunks is None:
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
    generator, displacement, part, parent = rows[:, order, None].astype(np.int32)
    start_s, arrival_s = times[:, order].repeat(nodes, axis=1)
    source, parent = np.arange(nodes, dtype=np.int32), rank[parent].astype(np.int32)
    link_into = np.empty(group.onward.shape, dtype=np.int32)
    for p, onward in enumerate(group.onward):
        link_into[p, onward] = _links_between(topology, np.arange(nodes), onward)
    dst = _displaced(source, displacement, group.sides)
    link = link_into[generator, dst].ravel()
    return Transfers(
        node_chunks.astype(np.int32)[source * parts + part].ravel(),
        topology.src[link],
        dst.ravel(),
        Ragged.single(link),
        np.where(parent >= 0, parent * nodes + source, -1).ravel(),
        start_s,
        (part_bytes[part] * group.per_byte[generator]).repeat(nodes),
        arrival_s,
    )


def _chunks_of_nodes(nodes: int, workload: Workload) -> Int64 | None:
    """int64[nodes * parts], the chunks of each node; None unless all hold alike and want what all others hold."""
    holders, wanted, parts = workload.chunk_holders, workload.chunk_wanted, workload.chunk_count // nodes
    if not parts or (holders.lengths != 1).any() or (np.bincount(holders.values, minlength=nodes) != parts).any():
        return None
    owner = wanted.owners
    others = np.bincount(owner, wanted.values != holders.values[owner], workload.chunk_count)
    node_chunks = np.argsort(holders.values, kind="stable")
    size = workload.chunk_bytes[node_chunks].reshape(nodes, parts)
    alike = (size == size[0]).all() and (workload.chunk_start_s == workload.chunk_start_s[0]).all()
    return node_chunks if alike and (others == nodes - 1).all() else None


@lru_cache(maxsize=4)
def _cayley(topology: Topology) -> Cayley | None:
    """The group of which the network is a Cayley graph, None where there is none; kept, as it is asked for often."""
    nodes, links = topology.node_count, topology.link_count
    if len(topology.accelerators) < nodes or links % nodes or nodes < 2:
        return None
    sides, of_node = find_sides(topology), topology.out_links[0]
    onward = _displaced(np.arange(nodes), topology.dst[of_node].astype(np.int64)[:, None], sides)
    return Cayley(sides, onward, topology.latency_s[of_node], 1.0 / topology.bandwidth[of_node]) if len(sides) else None


def find_sides(topology: Topology) -> Int64:
    """int64[digits], the sides of digits to which one may be added without a change; none if there are no such digits.

    Of each digit the largest side is taken, the highest digit first.
    """
    nodes, columns = topology.node_count, (topology.bandwidth, topology.latency_s)
    node, side_from = np.arange(topology.node_count), {topology.node_count: 0}
    for stride in range(nodes // 2, 0, -1):
        for side in range(nodes // stride, 1, -1):
            if stride * side in side_from:
                shifted = _displaced(node, stride, np.array([stride, side, nodes // (stride * side)]))
                image = _links_between(topology, shifted[topology.src], shifted[topology.dst])
                if (image >= 0).all() and all((column[image] == column).all() for column in columns):
                    side_from[stride] = side
                    break
    sides: list[int] = []
    while (stride := math.prod(sides)) < nodes and stride in side_from:
        sides.append(side_from[stride])
    return np.array(sides, dtype=np.int64)


def _links_between(topology: Topology, src: Int64, dst: Int64) -> Int64:
    """int64[pairs], the link between each pair of nodes, -1 where there is none."""
    order, keys = _links_by_ends(topology)
    wanted = src.astype(np.int64) * topology.node_count + dst
    place = np.searchsorted(keys, wanted, side="right") - 1
    return np.where(keys[place] == wanted, order[place], -1)


@lru_cache(maxsize=4)
def _links_by_ends(topology: Topology) -> tuple[Int64, Int64]:
    """The links in the order of their ends, and int64[links], a number for the ends of each in that order."""
    key = topology.src.astype(np.int64) * topology.node_count + topology.dst
    order = np.argsort(key, kind="stable")
    return order, key[order]


def _displaced(node: NDArray[Any], by: Any, sides: Int64) -> NDArray[Any]:
    """The sums of nodes and displacements, digit by digit."""
    total, stride = np.zeros_like(node), 1
    for side in sides.tolist():
        total = total + (node // stride + by // stride) % side * stride
        stride *= side
    return total
