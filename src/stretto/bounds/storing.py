"""Bounds where messages cost and nodes store: many messages take room, few large ones take long to store.

Take a rank a, and a rank b that wants B bytes which a contributes to, or which a alone holds. Each of these bytes
comes from a to b in the messages of one chunk, and is stored whole at each node on the way. Let there be K chunks, of
c_i bytes each. Let a message count as w_a bytes more, or as more than that, on each link out of a, and as w_b on each
into b. Of all that leaves a by links of W_a bytes/s the mean byte leaves no sooner than after (B + K w_a) / (2 W_a).
What enters b by links of W_b bytes/s enters on the mean no later than (B + K w_b) / (2 W_b) before the end. Between the
middles of its messages on the first and on the last link, chunk i travels for at least A + R c_i: A is the latency and
the cost of the messages between, R the sum of 1 / bandwidth over the links to nodes that store, where the first and the
last message count by half. The mean byte is in a chunk of B / K bytes or more, so for some K

    T >= A + (B + K w_a) / (2 W_a) + (B + K w_b) / (2 W_b) + R B / K.

On a chain of D links, all alike, these are the D - 1 messages of the mean size that a pipeline waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_size
from .latency import distances
from .model import Bound

LEAST_SHARE = 0.25
"""Time that the bytes of one pair of ranks alone take, as a share of another bound, below which nothing is computed."""

MOST_ENTRIES = 1_000_000
"""Pairs of a piece and a rank that are looked at."""


def storing_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The best bound of any collective and pair of ranks.

    None where messages cost nothing, where planes turn, or where this bound can hardly be better than another one.

    Args:
        from_s: seconds, the other bound.
    """
    if topology.planes or not len(topology.message_s) or not topology.message_s.all():
        return None
    out, into = (np.bincount(at, topology.bandwidth, topology.node_count) for at in (topology.src, topology.dst))
    pairs = [(c, *_pairs(c)) for c in workload.collectives if len(c.piece_bytes) * len(c.ranks) <= MOST_ENTRIES]
    with np.errstate(divide="ignore"):  # a rank that only sends or only receives
        alone_s = [(c, size.max(initial=0) / min(out[c.ranks].min(), into[c.ranks].min())) for c, size, *_ in pairs]
    if all(seconds < LEAST_SHARE * (from_s - c.start_s) for c, seconds in alone_s):
        return None
    way_s, way_s_per_byte = _ways(topology)
    sent_s, received_s = message_ends_s(topology)
    found: list[tuple[float, float, float, int, int]] = []
    for c, size, pieces, a, b in pairs:
        mean_s_per_byte = (1 / out[a] + 1 / into[b]) / 2
        mean_message_s = (sent_s[a] + received_s[b]) / 2
        chunks = np.maximum(np.sqrt(way_s_per_byte[a, b] * size / mean_message_s), pieces)
        room_s = size * mean_s_per_byte + chunks * mean_message_s
        seconds = c.start_s + way_s[a, b] + room_s + way_s_per_byte[a, b] * size / chunks
        if len(seconds):
            k = int(seconds.argmax())
            found.append((float(seconds[k]), float(size[k]), float(chunks[k]), int(a[k]), int(b[k])))
    if not found:
        return None
    best, size_bytes, count, first, last = max(found)
    words = storing_words(topology, size_bytes, (first, last), count)
    return Bound(best, "storing", words, (first, last), ())


def message_ends_s(topology: Topology) -> tuple[Float64, Float64]:
    """float64[nodes] twice: w_a / W_a of each node, and w_b / W_b, seconds; infinite where nothing leaves or enters."""
    found = []
    for ends in (topology.src, topology.dst):
        fewest = np.full(topology.node_count, np.inf)
        np.minimum.at(fewest, ends, topology.message_bytes)
        with np.errstate(divide="ignore"):
            found.append(fewest / np.bincount(ends, topology.bandwidth, topology.node_count))
    return found[0], found[1]


def storing_words(topology: Topology, size_bytes: float, ends: tuple[int, int], count: float) -> str:
    """The witness of the bound."""
    first, last = (topology.names[v] for v in ends)
    plural = "" if count == 1 else "s"
    return f"{format_size(size_bytes)} from {first} to {last}, stored on the way in {count:.3g} message{plural}"


def _pairs(c: Collective) -> tuple[Float64, Float64, Int64, Int64]:
    """For each pair of ranks the bytes and the number of pieces that the first one has for the second one."""
    owned = c.holders if c.reduces else c.holders.take(np.flatnonzero(c.holders.lengths == 1))
    piece = np.arange(len(c.piece_bytes)) if c.reduces else np.flatnonzero(c.holders.lengths == 1)
    has = np.zeros((len(piece), len(c.ranks)))
    has[owned.owners, owned.values] = 1.0
    wants = np.zeros((len(c.piece_bytes), len(c.ranks)))
    wants[c.wanted.owners, c.wanted.values] = 1.0
    size, pieces = has.T @ (c.piece_bytes[piece, None] * wants[piece]), has.T @ wants[piece]
    a, b = np.nonzero((size > 0) & ~np.eye(len(size), dtype=np.bool_))
    return size[a, b], pieces[a, b], c.ranks[a].astype(np.int64), c.ranks[b].astype(np.int64)


def _ways(topology: Topology) -> tuple[Float64, Float64]:
    """A in seconds and R in seconds per byte, float64[nodes, nodes] each; no sooner on any way, each by itself."""
    return ways(topology, distances, np.arange(topology.node_count)[:, None])


def ways(topology: Topology, far: Callable[[Topology, float], Float64], start: Int64 | int) -> tuple[Float64, Float64]:
    """A and R from some nodes to all.

    Args:
        far: the distances from these nodes, as :func:`.latency.distances` gives them from all nodes.
        start: the nodes, one for each row of these distances.
    """
    stores = topology.store_and_forward
    nothing = replace(topology, latency_s=np.zeros(topology.link_count), message_s=np.zeros(topology.link_count))
    hops = far(replace(nothing, bandwidth=np.ones(topology.link_count)), 1.0)
    cost_s = np.where(stores[topology.dst], topology.message_s, 0.0)
    spent = []
    for charged, whole in (
        (topology.message_s, far(replace(nothing, latency_s=topology.latency_s + cost_s), 0.0)),
        (1 / topology.bandwidth, far(nothing, 1.0)),
    ):
        first, last = _largest(topology, charged)
        spent.append(whole - (first[start] + last) / 2)
    near = far(replace(nothing, latency_s=topology.latency_s), 0.0)
    direct = hops <= 1
    return np.where(direct, near, np.maximum(spent[0], near)), np.where(direct, 0.0, np.maximum(spent[1], 0.0))


def _largest(topology: Topology, charged: Float64) -> tuple[Float64, Float64]:
    """float64[nodes] each: the most that the first message from a node, and the last one to it, is charged."""
    stores = topology.store_and_forward
    behind = charged[~stores[topology.src] & stores[topology.dst]].max(initial=0.0)
    first, last = np.zeros(topology.node_count), np.zeros(topology.node_count)
    np.maximum.at(first, topology.src, np.where(stores[topology.dst], charged, behind))
    np.maximum.at(last, topology.dst, charged)
    return first, last
