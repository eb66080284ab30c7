"""The verifier's loops over transfers.

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
UInt64 = NDArray[np.uint64]
Float64 = NDArray[np.float64]
Violation = tuple[int, int, int, int]

ROUTER, SWITCH = 1, 2
"""Kinds of nodes, see :class:`stretto.model.topology.Topology`."""

COPY, REDUCE = 0, 1
"""What a transfer does at its receiver."""


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


class Writes(NamedTuple):
    """What transfers read and write. A slot is a (chunk, node) pair.

    Attributes:
        chunk: int32[transfers].
        op: int8[transfers], copy or reduce.
        sources: for each transfer the nodes that send.
        src_slot: int64[sources], the slots that it reads.
        dst: for each transfer its receivers.
        dst_slot: int64[receivers], the slots that it writes.
        depends, dependents: for each transfer those it waits for, and those that wait for it.
    """

    chunk: Int32
    op: Int8
    sources: Lists
    src_slot: Int64
    dst: Lists
    dst_slot: Int64
    depends: Lists
    dependents: Lists


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


def _happened_before(
    a: int, b: int, dep_offsets: Int64, dep_values: Int32, next_offsets: Int64, followers: Int32, seen: Int64,
    stamp: int, back: Int64, forth: Int64,
) -> bool:  # fmt: skip
    """Whether transfer ``b`` depends on ``a``, directly or not.

    The search follows what ``b`` waits for and what waits for ``a`` in turn, the shorter list first, until they meet: a
    copy that comes down a tree leads straight to its root, and so does a sum that goes up.

    Args:
        seen: int64[transfers], marks of earlier searches, which are below twice ``stamp``.
        back, forth: int64[transfers + 1], room for the two lists.
    """
    behind, before = 2 * stamp, 2 * stamp + 1
    seen[b], seen[a] = behind, before
    back[0], forth[0] = b, a
    backs, forths = 1, 1
    while backs > 0 and forths > 0:
        if backs <= forths:
            backs -= 1
            k = back[backs]
            for i in range(dep_offsets[k], dep_offsets[k + 1]):
                d = dep_values[i]
                if seen[d] == before:
                    return True
                if d > a and seen[d] != behind:
                    seen[d] = behind
                    back[backs] = d
                    backs += 1
        else:
            forths -= 1
            k = forth[forths]
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = followers[i]
                if seen[m] == behind:
                    return True
                if m < b and seen[m] != before:
                    seen[m] = before
                    forth[forths] = m
                    forths += 1
    return False


def contents(writes: Writes, reduces: Bool, adds_at: Bool, state: UInt64, number: Float64) -> Violation:
    """Does every transfer have what it sends, and does every write follow those before it?

    A transfer carries what its slot held at first and what those of its dependencies that wrote to the slot have
    brought. A write that happened before it and is not among its dependencies would be in the buffer all the same: that
    is a violation.

    Args:
        reduces: bool[chunks], whether a chunk is summed.
        adds_at: bool[nodes], which nodes can sum. The others may have several partial sums, but send each on by itself.
        state: uint64[slots], what each slot holds at first; changed to what it holds at the end.
        number: float64[slots], how many contributions that is, 0 for nothing; changed likewise. Where contributions are
            counted again and again the fingerprints wrap around, and these numbers do not.
    """
    chunk, op, sources, src_slot, dst, dst_slot, depends, dependents = writes
    dst_offsets, dep_offsets, dep_values = dst.offsets, depends.offsets, depends.values
    next_offsets, followers = dependents.offsets, dependents.values
    n = len(chunk)
    initial, initially = state.copy(), number.copy()
    value, count = np.zeros(n, dtype=np.uint64), np.zeros(n)
    copied = np.full(len(state), -1, dtype=np.int64)  # the last copy into a slot
    newest = np.full(len(state), -1, dtype=np.int64)  # its newest write, as an index into dst_slot
    older = np.full(len(dst_slot), -1, dtype=np.int64)  # the write before it
    writer = np.empty(len(dst_slot), dtype=np.int64)
    listed = np.full(n, -1, dtype=np.int64)
    seen = np.full(n, -1, dtype=np.int64)
    back, forth = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    stamp = 0
    for k in range(n):
        marked = False
        for j in range(sources.offsets[k], sources.offsets[k + 1]):
            s = src_slot[j]
            carried, parts = initial[s], initially[s]
            if newest[s] >= 0:
                if not marked:
                    marked = True
                    for i in range(dep_offsets[k], dep_offsets[k + 1]):
                        listed[dep_values[i]] = k
                i, brought = newest[s], -1
                while i >= 0:
                    w = writer[i]
                    if listed[w] == k:
                        if brought >= 0 and not adds_at[sources.values[j]]:
                            return 29, k, w, j
                        brought = w
                        if op[w] == COPY:
                            carried = carried - initial[s] + value[w]
                            parts = parts - initially[s] + count[w]
                            break
                        carried = carried + value[w]
                        parts += count[w]
                    else:
                        stamp += 1
                        if _happened_before(
                            w, k, dep_offsets, dep_values, next_offsets, followers, seen, stamp, back, forth
                        ):
                            return 12, k, w, j
                    i = older[i]
                if parts == 0:
                    return 12, k, writer[newest[s]], j
            if parts == 0:
                return 11, k, -1, j
            value[k] += carried
            count[k] += parts
        adds = op[k] == REDUCE
        if not reduces[chunk[k]] and (adds or sources.offsets[k + 1] - sources.offsets[k] > 1):
            return 13, k, -1, sources.offsets[k]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            w = dst_slot[i]
            j = newest[w]
            while j >= 0:
                # sums commute; any other pair of writes must be ordered
                if not (adds and writer[j] != copied[w]):
                    stamp += 1
                    if not _happened_before(
                        writer[j], k, dep_offsets, dep_values, next_offsets, followers, seen, stamp, back, forth
                    ):
                        return 14, k, writer[j], sources.offsets[k]
                if writer[j] == copied[w]:
                    break
                j = older[j]
            writer[i] = k
            older[i] = newest[w]
            newest[w] = i
            if adds:
                state[w] = state[w] + value[k]
                number[w] += count[k]
            else:
                state[w] = value[k]
                number[w] = count[k]
                copied[w] = k
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
