"""The verifier's loops over the routes and times of transfers.

Each returns the first violation as ``(code, transfer, a, b)``, code 0 for none. Codes are indexes into
:data:`stretto.verify.findings.CODES`; what ``a`` and ``b`` are depends on the code.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .kernel_joins import aligned, joined, meets_after

Bool = NDArray[np.bool_]
Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Violation = tuple[int, int, int, int]

ROUTER, SWITCH = 1, 2
"""Kinds of nodes, see :class:`stretto.model.topology.Topology`."""


class Lists(Protocol):
    """Lists of different lengths: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    @property
    def offsets(self) -> Int64: ...
    @property
    def values(self) -> Int32: ...


class Paths(NamedTuple):
    """For each transfer the nodes that send, the nodes that receive, and its links."""

    sources: Lists
    dst: Lists
    route: Lists


class Network(NamedTuple):
    """The end nodes of links, and of each node its kind (in :func:`routes`) or how it sends on (in :func:`starts`)."""

    src: Int32
    dst: Int32
    kind: Int8


class Times(NamedTuple):
    """The times of a timed plan.

    Attributes:
        chunk: int32[transfers].
        depends: for each transfer those it waits for.
        start_s, finish_s: float64[transfers].
        earliest_s: float64[transfers], the start of the collective.
        latency_s: float64[links].
        circuit_latency_s: float64[transfers], the latency of a transfer without a route.
        slack_s: float64[transfers], by how much others may start before each has arrived.
    """

    chunk: Int32
    depends: Lists
    start_s: Float64
    finish_s: Float64
    earliest_s: Float64
    latency_s: Float64
    circuit_latency_s: Float64
    slack_s: Float64


def routes(
    paths: Paths, plane: Int32, network: Network, transit: Bool, replicates: Bool, reduces: Bool
) -> Violation:  # fmt: skip
    """Is every route a path, or a tree that sums and branches where it may, from the sources to exactly the receivers?

    Args:
        plane: int32[transfers], the plane of each; a transfer with a plane has no route.
        transit, replicates, reduces: bool[nodes], whether a route may pass through a node, branch and sum there.
    """
    sources, dst, route = paths
    dst_offsets, dst_nodes, route_offsets, route_links = dst.offsets, dst.values, route.offsets, route.values
    link_src, link_dst, kind = network
    nodes = len(kind)
    stage, weight = np.full(nodes, -1, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    crossed = np.full(len(link_src), -1, dtype=np.int64)
    entered = np.full(nodes, -1, dtype=np.int64)
    leaves = np.full(nodes, -1, dtype=np.int64)
    left = np.zeros(nodes, dtype=np.int64)
    received = np.full(nodes, -1, dtype=np.int64)
    for k in range(len(sources.offsets) - 1):
        own = sources.values[sources.offsets[k] : sources.offsets[k + 1]]
        for s in own:
            if kind[s] == SWITCH:
                return 1, k, s, -1
        if dst_offsets[k] == dst_offsets[k + 1]:
            return 2, k, -1, -1
        if plane[k] >= 0:
            continue
        first, end = route_offsets[k], route_offsets[k + 1]
        code, node, link, root, links = joined(
            own, route_links[first:end], link_src, link_dst, transit, reduces, stage, weight, k
        )
        if code != 0:
            return (code, k, link, -1) if node < 0 else (code, k, node, link)
        for i in range(first, first + links):
            crossed[route_links[i]] = k
        first += links
        entered[root] = k
        for i in range(first, end):
            a, b = link_src[route_links[i]], link_dst[route_links[i]]
            if entered[a] != k:
                return 3, k, route_links[i], -1
            if entered[b] == k or crossed[route_links[i]] == k:
                return 4, k, b, route_links[i]
            entered[b] = k
            if leaves[a] != k:
                leaves[a] = k
                left[a] = 0
            left[a] += 1
            if (a != root or links > 0) and not transit[a]:
                return 5, k, a, route_links[i]
            if left[a] > 1 and not replicates[a]:
                return 6, k, a, route_links[i]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            w = dst_nodes[i]
            if kind[w] == SWITCH:
                return 7, k, w, -1
            if entered[w] != k or (w == root and links == 0):
                return 8, k, w, -1
            if received[w] == k:
                return 9, k, w, -1
            received[w] = k
            # a receiver that passes the bytes on replicates them
            if leaves[w] == k and not replicates[w]:
                return 6, k, w, -1
        for i in range(first, end):
            w = link_dst[route_links[i]]
            if leaves[w] != k and received[w] != k:
                return 10, k, w, route_links[i]
    return 0, -1, -1, -1


class Load(NamedTuple):
    """What links carry, as events: begins and ends of transfers, link by link and in order of time."""

    link: Int64  # int64[events]
    time_s: Float64  # float64[events]
    change: Float64  # float64[events], bytes/s that come (positive) or go (negative), at most the link's bandwidth
    # float64[events], bytes that come at once: what the link could not carry in the transfer's own time
    excess: Float64
    limit: Float64  # float64[links], bytes/s
    slack_s: float  # seconds for which a link may be this far ahead of its limit, in all


def crowded(load: Load) -> int:
    """The event from which a link first carries more than it can, -1 if none does.

    The excess over the limit collects as in a queue: it grows while the link carries more than its limit and drains
    while it carries less. Its largest value is the largest excess of any interval, so tiny overlaps add up.
    """
    link, time_s, change, more, limit, slack_s = load
    worst, worst_s = -1, np.inf
    begun, active, carried, excess = 0, 0, 0.0, 0.0
    for i in range(len(link)):
        if i == 0 or link[i] != link[i - 1]:
            active, carried, excess = 0, 0.0, 0.0
        else:
            excess = max(0.0, excess + (carried - limit[link[i]]) * (time_s[i] - time_s[i - 1]))
        if change[i] > 0:
            active += 1
        elif change[i] < 0:
            active -= 1
        carried = carried + change[i] if active > 0 else 0.0
        if excess == 0.0 and (more[i] > 0 or carried > limit[link[i]]):
            begun = i
        excess += more[i]
        if excess > limit[link[i]] * slack_s and time_s[begun] < worst_s:
            worst, worst_s = begun, time_s[begun]
    return worst


def starts(paths: Paths, network: Network, times: Times, hop: Float64) -> Violation:
    """Does every transfer of a timed plan start no earlier than it may?

    Args:
        network: its ``kind`` says how each node sends on, see :attr:`stretto.model.topology.Topology.forwarding`.
        hop: float64[hops], set here: how much later than its source each link of a route carries the bytes.
    """
    sources, dst, route = paths
    dst_offsets, dst_nodes, route_offsets, route_links = dst.offsets, dst.values, route.offsets, route.values
    link_src, link_dst, kind = network
    sends, head = np.full(len(kind), -1, dtype=np.int64), np.full(len(kind), -1, dtype=np.int64)
    chunk, depends, start, finish, earliest, latency, circuit_latency, slack = times
    dep_offsets, dep_values = depends.offsets, depends.values
    arrives = np.zeros(len(dst_nodes))
    delay = np.zeros(len(kind))
    for k in range(len(sources.offsets) - 1):
        own = sources.values[sources.offsets[k] : sources.offsets[k + 1]]
        first, end = route_offsets[k], route_offsets[k + 1]
        for s in own:
            sends[s] = k
            delay[s] = 0.0
        if len(own) > 1:
            first += meets_after(own, route_links[first:end], link_src, link_dst, head, k)
            inward = route_links[route_offsets[k] : first]
            longest = aligned(inward, hop[route_offsets[k] : first], link_src, link_dst, latency, delay)
            delay[link_dst[route_links[first - 1]]] = longest
        for i in range(first, end):
            link = route_links[i]
            hop[i] = delay[link_src[link]]
            delay[link_dst[link]] = hop[i] + latency[link]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            arrives[i] = delay[dst_nodes[i]]
            if route_offsets[k] == route_offsets[k + 1]:
                arrives[i] = circuit_latency[k]
        if not finish[k] > start[k]:
            return 15, k, -1, -1
        if start[k] < earliest[k]:
            return 16, k, -1, -1
        for e in range(dep_offsets[k], dep_offsets[k + 1]):
            d = dep_values[e]
            everywhere, need, until = 0.0, -np.inf, 0.0
            for i in range(dst_offsets[d], dst_offsets[d + 1]):
                everywhere = max(everywhere, finish[d] + arrives[i])
                if sends[dst_nodes[i]] == k:
                    if kind[dst_nodes[i]] == ROUTER and chunk[d] == chunk[k]:
                        need = max(need, start[d] + arrives[i])
                        until = max(until, finish[d] + arrives[i])
                    else:
                        need = max(need, finish[d] + arrives[i])
            if need == -np.inf:
                need = everywhere
            if start[k] < need - slack[d] or finish[k] < until - slack[d]:
                return 17, k, d, -1
    return 0, -1, -1, -1
