"""The figures of NCCL's tuning model: those of release 2.20.3 for Volta GPUs, and those of 2.30.7 for four generations.

From src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime, and in 2.30 ncclTunerConstantsDefaults), for Intel
CPUs. A triple by protocol is (LL, LL128, Simple); one by scale is for 1, 2 and more servers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Triple = tuple[float, float, float]


class Latencies(NamedTuple):
    """Latencies by algorithm, each by protocol, microseconds."""

    tree: Triple
    ring: Triple
    nvls: Triple = (0.0, 0.0, 0.0)
    nvls_tree: Triple = (0.0, 0.0, 0.0)
    pat: Triple = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Release:
    """The model's figures for one release and one generation of GPUs.

    Attributes:
        base_us: latency of a launch (baseLat).
        nvlink_us, pcie_us, network_us: latency of a step (hwLat).
        overhead_us: the least latency of a step inside a server where a ring also crosses the network, by protocol.
        ll_gbps: bandwidth of all channels by LL at most, by scale, GB/s (llMaxBws).
        ring_ll128_gbps, tree_ll128_gbps, tree_gbps, nvls_tree_gbps: of a channel at most, by scale (perChMax*).
        nvls_share: share of an NVSwitch's bandwidth that multicast reaches (nvlsEfficiency).
        ring_ll: share of its bandwidth that a ring by LL reaches.
        ring_ll128_few: share that a ring by LL128 reaches with fewer than two ranks a server.
        one_port_tree: share that a tree reaches whose server has one GPU for all of its traffic with others.
        crosses_back: whether a ring is counted to cross from the last server to the first as well.
        plateau: times the latency that a ring AllReduce by Simple between servers takes from 64 bytes a rank and
            channel on.
        tree_correction: share of its bandwidth that a tree reaches, by protocol and size: 64 B, 128 B and so on.
        corrects_nvls_tree: whether this holds for NVLS trees too.
    """

    base_us: Latencies
    nvlink_us: Latencies
    pcie_us: Latencies
    network_us: Latencies
    overhead_us: Triple
    ll_gbps: Triple
    ring_ll128_gbps: Triple
    tree_ll128_gbps: Triple
    tree_gbps: Triple
    nvls_tree_gbps: Triple
    nvls_share: float
    ring_ll: float
    ring_ll128_few: float
    one_port_tree: float
    crosses_back: bool
    plateau: float
    tree_correction: tuple[tuple[float, ...], ...]
    corrects_nvls_tree: bool = False


TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    (
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.8,
        0.7,
        0.6,
        0.6,
        0.5,
        0.5,
        0.5,
        0.5,
        0.6,
        0.7,
        0.8,
        0.7,
        0.7,
        0.8,
        0.9,
        0.9,
        0.9,
    ),
)
"""treeCorrectionFactor, in both releases. Trees use the first 23 values, NVLS trees all."""

TREE_POWERS = 23
"""Powers of two for which a tree's bandwidth is corrected."""

VOLTA_2_20 = Release(
    base_us=Latencies((6.8, 14.0, 0.0), (6.6, 14.0, 8.4)),
    nvlink_us=Latencies((0.6, 1.25, 28.0), (0.6, 1.9, 3.4)),
    pcie_us=Latencies((1.0, 1.9, 28.0), (1.0, 2.5, 5.7)),
    network_us=Latencies((5.0, 8.5, 28.0), (2.7, 4.0, 14.0)),
    overhead_us=(1.0, 1.0, 3.0),
    ll_gbps=(39.0, 39.0, 20.4),
    ring_ll128_gbps=(20.0, 20.0, 20.0),
    tree_ll128_gbps=(20.0, 20.0, 20.0),
    tree_gbps=(26.5, 18.5, 10.0),
    nvls_tree_gbps=(26.5, 18.5, 10.0),
    nvls_share=0.0,
    ring_ll=1 / 4,
    ring_ll128_few=0.7,
    one_port_tree=1.0,
    crosses_back=True,
    plateau=1.9,
    tree_correction=TREE_CORRECTION,
)
"""Release 2.20.3, Volta."""

_SCALES: dict[int, tuple[float, Triple, Triple, Triple, Triple, float]] = {
    70: (39.0, (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (26.5, 18.5, 10.0), (26.5, 18.5, 10.0), 0.0),
    80: (87.7, (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (24.0, 23.6, 17.8), (24.0, 23.6, 17.8), 0.0),
    90: (141.0, (36.7, 36.7, 36.7), (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), (0.0, 57.7, 45.5), 0.85),
    100: (282.0, (40.0, 40.0, 40.0), (55.6, 31.67, 20.0), (70.0, 42.8, 24.0), (0.0, 96.0, 80.0), 0.74),
}
"""By compute capability: LL in one server, ring LL128, tree LL128, tree, NVLS tree, NVLS share."""


def release_2_30(sm: int) -> Release:
    """Release 2.30.7 for GPUs of a compute capability of 70 or more, with Intel CPUs."""
    ll, ring_ll128, tree_ll128, tree, nvls_tree, nvls_share = _SCALES[max(least for least in _SCALES if least <= sm)]
    return Release(
        base_us=Latencies((6.8, 14.0, 8.4), (6.6, 14.0, 8.4), pat=(8.0, 8.0, 8.0)),
        nvlink_us=Latencies((0.6, 1.25, 4.0), (0.6, 1.9, 3.4), (0, 0, 25.0), (0, 0, 25.0), (0, 0, 4.0)),
        pcie_us=Latencies((1.0, 1.9, 4.0), (1.0, 2.5, 5.7), pat=(0, 0, 4.0)),
        network_us=Latencies((5.0, 8.5, 14.0), (2.7, 4.0, 14.0), (0, 0, 18.0), (0, 0, 20.9), (0, 0, 14.0)),
        overhead_us=(1.0, 1.0, 3.0),
        ll_gbps=(ll, 39.0, 20.4),
        ring_ll128_gbps=ring_ll128,
        tree_ll128_gbps=tree_ll128,
        tree_gbps=tree,
        nvls_tree_gbps=nvls_tree,
        nvls_share=nvls_share,
        ring_ll=1 / 2,
        ring_ll128_few=0.92,
        one_port_tree=0.85,
        crosses_back=False,
        plateau=1.9 if sm < 80 else 1.4,
        tree_correction=TREE_CORRECTION,
        corrects_nvls_tree=sm >= 100,
    )
