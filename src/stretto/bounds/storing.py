"""Bounds where messages cost and nodes store: many messages take room, few large ones take long to store.

Take a rank a, and a rank b that wants B bytes which a contributes to, or which a alone holds, and which a node between
them stores. Let them leave a in K messages, and come to b in J. Let a message count as w_a bytes more, or as more than
that, on each link out of a, and as w_b on each into b. Of all that leaves a by links of W_a bytes/s the mean byte
leaves no sooner than after (B + K w_a) / (2 W_a), if a byte counts as leaving in the middle of its message. What enters
b by links of W_b bytes/s enters on the mean no later than (B + J w_b) / (2 W_b) before the end. From the middle of its
first message until that has come whole, a byte waits for L / 2 b_a at least, where the message has L bytes and no link
out of a has more than b_a bytes/s. The mean byte is in a message of B / K bytes or more. The same holds of its last
message until the middle of that, where links into b have b_b at most. Let A be the latency and the cost of the
messages between, where the first and the last one count by half. So for some K and J

    T >= A + (B + K w_a) / (2 W_a) + B / (2 b_a K) + (B + J w_b) / (2 W_b) + B / (2 b_b J).

Nodes on the way may divide the bytes into other messages, so what these wait for is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_size
from .latency import distances
from .messages import cost_at_ends
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
    if topology.planes or not cost_at_ends(topology):
        return None
    out, into = (np.bincount(at, topology.bandwidth, topology.node_count) for at in (topology.src, topology.dst))
    pairs = [(c, *_pairs(c)) for c in workload.collectives if len(c.piece_bytes) * len(c.ranks) <= MOST_ENTRIES]
    with np.errstate(divide="ignore"):  # a rank that only sends or only receives
        alone_s = [(c, size.max(initial=0) / min(out[c.ranks].min(), into[c.ranks].min())) for c, size, *_ in pairs]
    if all(seconds < LEAST_SHARE * (from_s - c.start_s) for c, seconds in alone_s):
        return None
    way_s, stored = _ways(topology)
    first, last = ends_of(topology)
    found: list[tuple[float, float, float, int, int]] = []
    for c, size, a, b in pairs:
        leaving_s, count = first.passed_s(a, size, stored[a, b])
        entering_s, _ = last.passed_s(b, size, stored[a, b])
        seconds = c.start_s + way_s[a, b] + leaving_s + entering_s
        if len(seconds):
            k = int(seconds.argmax())
            found.append((float(seconds[k]), float(size[k]), float(count[k]), int(a[k]), int(b[k])))
    if not found:
        return None
    best, size_bytes, messages, start, end = max(found)
    words = storing_words(topology, size_bytes, (start, end), messages)
    return Bound(best, "storing", words, (start, end), ())


class Ends(NamedTuple):
    """What messages take at the nodes where they begin, or where they end: float64[nodes] each, seconds.

    Attributes:
        byte_s: 1 / W, infinite where nothing leaves or enters. message_s: w / W. stored_s: 1 / b.
    """

    byte_s: Float64
    message_s: Float64
    stored_s: Float64

    def passed_s(self, node: Int64 | int, size: Float64 | float, stored: Bool | bool) -> tuple[Float64, Float64]:
        """Seconds from the start until the mean byte has left, or from there to the end, and in how many messages.

        Args:
            stored: whether a node between the ends stores the bytes.
        """
        stored_s, message_s = np.where(stored, self.stored_s[node], 0.0) * size, self.message_s[node]
        count = np.maximum(np.sqrt(stored_s / message_s), 1.0)
        return (size * self.byte_s[node] + count * message_s + stored_s / count) / 2, count


def ends_of(topology: Topology) -> tuple[Ends, Ends]:
    """What messages take at the nodes where they begin, and where they end."""
    found = []
    for ends in (topology.src, topology.dst):
        fewest, widest = np.full(topology.node_count, np.inf), np.zeros(topology.node_count)
        np.minimum.at(fewest, ends, topology.message_bytes)
        np.maximum.at(widest, ends, topology.bandwidth)
        with np.errstate(divide="ignore"):
            byte_s = 1 / np.bincount(ends, topology.bandwidth, topology.node_count)
            found.append(Ends(byte_s, fewest * byte_s, 1 / widest))
    return found[0], found[1]


def storing_words(topology: Topology, size_bytes: float, ends: tuple[int, int], count: float) -> str:
    """The witness of the bound."""
    first, last = (topology.names[v] for v in ends)
    plural = "" if count == 1 else "s"
    return f"{format_size(size_bytes)} from {first} to {last}, stored on the way in {count:.3g} message{plural}"


def _pairs(c: Collective) -> tuple[Float64, Int64, Int64]:
    """For each pair of ranks the bytes that the first one has for the second one."""
    owned = c.holders if c.reduces else c.holders.take(np.flatnonzero(c.holders.lengths == 1))
    piece = np.arange(len(c.piece_bytes)) if c.reduces else np.flatnonzero(c.holders.lengths == 1)
    has = np.zeros((len(piece), len(c.ranks)))
    has[owned.owners, owned.values] = 1.0
    wants = np.zeros((len(c.piece_bytes), len(c.ranks)))
    wants[c.wanted.owners, c.wanted.values] = 1.0
    size = has.T @ (c.piece_bytes[piece, None] * wants[piece])
    a, b = np.nonzero((size > 0) & ~np.eye(len(size), dtype=np.bool_))
    return size[a, b], c.ranks[a].astype(np.int64), c.ranks[b].astype(np.int64)


def _ways(topology: Topology) -> tuple[Float64, Bool]:
    """A in seconds, float64[nodes, nodes], no sooner on any way; and whether all ways lead over a node that stores."""
    return ways(topology, distances, np.arange(topology.node_count)[:, None])


def ways(topology: Topology, far: Callable[[Topology, float], Float64], start: Int64 | int) -> tuple[Float64, Bool]:
    """A from some nodes to all, and whether every way leads over a node that stores.

    Args:
        far: the distances from these nodes, as :func:`.latency.distances` gives them from all nodes.
        start: the nodes, one for each row of these distances.
    """
    stores = topology.store_and_forward
    nothing = replace(topology, latency_s=np.zeros(topology.link_count), message_s=np.zeros(topology.link_count))
    hops = far(replace(nothing, bandwidth=np.ones(topology.link_count)), 1.0)
    cost_s = np.where(stores[topology.dst], topology.message_s, 0.0)
    first_s, last_s = _largest(topology, topology.message_s)
    whole_s = far(replace(nothing, latency_s=topology.latency_s + cost_s), 0.0) - (first_s[start] + last_s) / 2
    near_s, stored = far(replace(nothing, latency_s=topology.latency_s), 0.0), hops > 1
    return np.where(stored, np.maximum(whole_s, near_s), near_s), stored


def _largest(topology: Topology, charged: Float64) -> tuple[Float64, Float64]:
    """float64[nodes] each: the most that the first message from a node, and the last one to it, is charged.

    A way is charged for its first message what the link costs over which this comes to a node that stores. If that link
    costs more than the first one, by a difference d, only the cost of the first one surely comes on top of the bytes.
    As half of what is given here counts, it is larger by d then.
    """
    stores = topology.store_and_forward
    behind = charged[~stores[topology.src] & stores[topology.dst]].max(initial=0.0)
    through = behind + np.maximum(behind - charged, 0.0)
    first, last = np.zeros(topology.node_count), np.zeros(topology.node_count)
    np.maximum.at(first, topology.src, np.where(stores[topology.dst], charged, through))
    np.maximum.at(last, topology.dst, charged)
    return first, last
