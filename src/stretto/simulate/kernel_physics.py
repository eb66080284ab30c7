"""The physics of links, switches and nodes: how long bytes are under way, and when a node may send them on.

- A link adds its latency. A message keeps it busy for its bytes over the bandwidth, and for the link's message cost.
- A switch adds nothing: it sends on what comes in, to several links if the route branches. Where it sums, what comes in
  over several links comes at one moment: sources that are nearer send later.
- A node that stores sends on what has arrived whole.
- A node that cuts through sends on from the first byte, and no byte before it came.

The bandwidth of links is shared in :mod:`stretto.simulate.kernel_ready_order` and :mod:`stretto.simulate.kernel_rates`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Float64 = NDArray[np.float64]


class Lists(Protocol):
    """Lists of different lengths: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def values(self) -> Int32: ...


class Links(NamedTuple):
    """The columns of links: end nodes, latency in seconds, bandwidth in bytes/s, seconds that each message costs."""

    src: Int32
    dst: Int32
    latency_s: Float64
    bandwidth: Float64
    message_s: Float64


def delays(sources: Lists, dst: Lists, route: Lists, links: Links, nodes: int) -> tuple[Float64, Float64]:
    """How much later than its first source each link of a route carries a byte, and each receiver has it.

    Returns:
        hop_s: float64[hops]. receiver_s: float64[receivers].
    """
    hop_s = np.zeros(len(route.values))
    receiver_s = np.zeros(len(dst.values))
    at = np.zeros(nodes)
    open_in = np.full(nodes, -1, dtype=np.int64)
    for k in range(len(sources.offsets) - 1):
        first = route.offsets[k]
        if sources.offsets[k + 1] - sources.offsets[k] == 1:
            at[sources.values[sources.offsets[k]]] = 0.0
        else:
            first = _sum_delays(k, sources, route, links, open_in, at, hop_s)
        for i in range(first, route.offsets[k + 1]):
            link = route.values[i]
            hop_s[i] = at[links.src[link]]
            at[links.dst[link]] = hop_s[i] + links.latency_s[link]
        for i in range(dst.offsets[k], dst.offsets[k + 1]):
            receiver_s[i] = at[dst.values[i]]
    return hop_s, receiver_s


def _sum_delays(
    k: int, sources: Lists, route: Lists, links: Links, open_in: NDArray[np.int64], at: Float64, hop_s: Float64
) -> int:
    """Fill in ``hop_s`` of the links over which transfer ``k`` is summed, and ``at`` the node where all have met.

    Args:
        open_in: int64[nodes], the transfer of which each node has a part that it has not sent on.
        at: float64[nodes], room.
    Returns:
        The place in ``route`` after these links.
    """
    parts = sources.offsets[k + 1] - sources.offsets[k]
    for j in range(sources.offsets[k], sources.offsets[k + 1]):
        open_in[sources.values[j]] = k
    end = route.offsets[k]
    while parts > 1 and end < route.offsets[k + 1]:
        link = route.values[end]
        open_in[links.src[link]] = -1
        if open_in[links.dst[link]] == k:
            parts -= 1
        open_in[links.dst[link]] = k
        end += 1
    # backward from the moment at which all have met
    meeting = links.dst[route.values[end - 1]]
    at[meeting] = 0.0
    first_s = 0.0
    for i in range(end - 1, route.offsets[k] - 1, -1):
        link = route.values[i]
        at[links.src[link]] = at[links.dst[link]] - links.latency_s[link]
        first_s = min(first_s, at[links.src[link]])
        hop_s[i] = at[links.src[link]]
    for i in range(route.offsets[k], end):
        hop_s[i] -= first_s
    at[meeting] = -first_s
    return int(end)


def delay_to(m: int, k: int, sources: Lists, dst: Lists, receiver_s: Float64) -> float:
    """Seconds from the end of transfer ``k`` until the sources of ``m`` know of it: its bytes have arrived at those of
    them to which it goes or, if it goes to none, at all receivers.
    """
    longest: float = 0.0
    there: float = -1.0
    for i in range(dst.offsets[k], dst.offsets[k + 1]):
        longest = max(longest, receiver_s[i])
        for j in range(sources.offsets[m], sources.offsets[m + 1]):
            if dst.values[i] == sources.values[j]:
                there = max(there, receiver_s[i])
    return longest if there < 0.0 else there


def cut_through_start(start: float, arrival: float, delay: float, seconds: float) -> float:
    """When a node that cuts through may start to send for ``seconds`` what it gets: not before its first byte has come
    (the transfer to it began at ``start``, ``delay`` seconds away), and so that its last byte leaves after ``arrival``.
    """
    return max(start + delay, arrival - seconds)
