"""The physics of links, switches and nodes: how long bytes are under way, and when a node may send them on.

- A link adds its latency. A message keeps it busy for its bytes over the bandwidth, and for the link's message cost.
- A switch adds nothing: it sends on what comes in, to several links if the route branches.
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


def delays(src: Int32, dst: Lists, route: Lists, links: Links, nodes: int) -> tuple[Float64, Float64]:
    """How much later than its source each link of a route carries a byte, and each receiver has it.

    Returns:
        hop_s: float64[hops]. receiver_s: float64[receivers].
    """
    hop_s = np.zeros(len(route.values))
    receiver_s = np.zeros(len(dst.values))
    at = np.zeros(nodes)
    for k in range(len(src)):
        at[src[k]] = 0.0
        for i in range(route.offsets[k], route.offsets[k + 1]):
            link = route.values[i]
            hop_s[i] = at[links.src[link]]
            at[links.dst[link]] = hop_s[i] + links.latency_s[link]
        for i in range(dst.offsets[k], dst.offsets[k + 1]):
            receiver_s[i] = at[dst.values[i]]
    return hop_s, receiver_s


def delay_to(node: int, k: int, dst: Lists, receiver_s: Float64) -> float:
    """Seconds from the end of transfer ``k`` until ``node`` knows of it: its bytes have arrived there or, if the
    transfer does not go there, at all receivers.
    """
    longest: float = 0.0
    for i in range(dst.offsets[k], dst.offsets[k + 1]):
        if dst.values[i] == node:
            return float(receiver_s[i])
        longest = max(longest, receiver_s[i])
    return longest


def cut_through_start(start: float, arrival: float, delay: float, seconds: float) -> float:
    """When a node that cuts through may start to send for ``seconds`` what it gets: not before its first byte has come
    (the transfer to it began at ``start``, ``delay`` seconds away), and so that its last byte leaves after ``arrival``.
    """
    return max(start + delay, arrival - seconds)
