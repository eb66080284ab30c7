"""How long NCCL expects a collective to take: its own tuning model, as data and one formula.

The figures are those of NCCL 2.20.3, src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime),
for Volta GPUs with NVLink, Intel CPUs and no latency of the network device of its own. A time is
a latency, by steps inside and between servers, plus the size over a bandwidth that depends on
algorithm and protocol (LL and LL128 carry flags with the data, so they wait less and waste more).
"""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOLS = ("LL", "LL128", "Simple")

BASE_US = {"tree": (6.8, 14.0, 0.0), "ring": (6.6, 14.0, 8.4)}
"""Latency of a launch, by protocol, microseconds (baseLat)."""

NVLINK_US = {"tree": (0.6, 1.25, 28.0), "ring": (0.6, 1.9, 3.4)}
"""Latency of a step over NVLink, by protocol, microseconds (hwLat)."""

NETWORK_US = {"tree": (5.0, 8.5, 28.0), "ring": (2.7, 4.0, 14.0)}
"""Latency of a step over the network, by protocol, microseconds (hwLat)."""

NETWORK_OVERHEAD_US = (1.0, 1.0, 3.0)
"""The least latency of a step inside a server where a ring also crosses the network."""

MOST_LL_GBPS = (39.0, 39.0, 20.4)
"""Bandwidth of all channels by LL at most, GB/s; for 1, 2 and more servers (llMaxBws)."""

MOST_TREE_GBPS = (26.5, 18.5, 10.0)
"""Bandwidth of a channel with a tree at most, GB/s; for 1, 2 and more servers (perChMax*)."""

MOST_LL128_GBPS = 20.0
"""Bandwidth of a channel by LL128 at most, GB/s (perChMax*)."""

RING_PLATEAU = 1.9
"""Times the latency that a ring AllReduce by Simple between servers takes from 64 bytes a rank and channel on."""

TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""Share of its bandwidth that a tree reaches, by protocol and size: 64 B, 128 B and so on (treeCorrectionFactor)."""


@dataclass(frozen=True)
class Cluster:
    """The network as the model sees it: ranks, servers, channels, and the bandwidth of each channel, bytes/s."""

    ranks: int
    servers: int
    channels: int
    bandwidth: float


def expected_s(cluster: Cluster, size_bytes: int) -> dict[tuple[str, str], float]:
    """Seconds that NCCL expects of an AllReduce, by algorithm and protocol."""
    return {
        (algorithm, protocol): 1e-6 * _latency_us(cluster, algorithm, p, size_bytes)
        + size_bytes / (1e9 * _bandwidth_gbps(cluster, algorithm, p, size_bytes))
        for algorithm in ("ring", "tree")
        for p, protocol in enumerate(PROTOCOLS)
    }


def _latency_us(c: Cluster, algorithm: str, p: int, size_bytes: int) -> float:
    inside, between = NVLINK_US[algorithm][p], NETWORK_US[algorithm][p]
    if algorithm == "tree":
        levels = c.servers.bit_length() - 1
        return BASE_US["tree"][p] + 2 * ((c.ranks // c.servers - 1) * inside + levels * between)
    steps, crossing = 2 * (c.ranks - 1), 2 * c.servers if c.servers > 1 else 0
    if c.servers > 1:
        inside = max(inside, NETWORK_OVERHEAD_US[p])
    latency = BASE_US["ring"][p] + (steps - crossing) * inside + crossing * between
    plateau = PROTOCOLS[p] == "Simple" and c.servers > 1 and size_bytes // (c.channels * c.ranks) >= 64
    return latency * (RING_PLATEAU if plateau else 1.0)


def _bandwidth_gbps(c: Cluster, algorithm: str, p: int, size_bytes: int) -> float:
    """Of the algorithm: the size of the buffer over the time that its links are busy."""
    total, row = c.channels * c.bandwidth / 1e9, min(c.servers, 3) - 1
    protocol = PROTOCOLS[p]
    if algorithm == "ring":
        if protocol == "LL":
            total = min(MOST_LL_GBPS[row], total / 4)
        elif protocol == "LL128":
            total = min(total * (0.7 if c.ranks < 2 * c.servers else 0.92), c.channels * MOST_LL128_GBPS)
        return total * c.ranks / (2 * (c.ranks - 1))
    total = min(total * 0.92, c.channels * MOST_TREE_GBPS[row])
    if protocol == "LL":
        total = min(total / 3.8, MOST_LL_GBPS[row])
    elif protocol == "LL128":
        total = min(total * (7 / 9 if c.servers == 1 else 120 / 128), c.channels * MOST_LL128_GBPS)
    power = max((size_bytes >> 6).bit_length() - 1, 0)
    return total / 2 * (TREE_CORRECTION[p][power] if power < len(TREE_CORRECTION[p]) else 1.0)
