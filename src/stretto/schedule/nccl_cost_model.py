"""How long NCCL expects a collective to take: its own tuning model, as one formula over the figures of a release.

NCCL's src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime); figures in :mod:`.nccl_releases`. A time is a
latency, by steps inside and between servers, plus the size over a bandwidth that depends on algorithm and protocol (LL
and LL128 carry flags with the data, so they wait less and waste more). What needs switches of the network that sum
(CollNet) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.kinds import BY_NAME
from .nccl_releases import TREE_POWERS, VOLTA_2_20, Release, Triple

PROTOCOLS = ("LL", "LL128", "Simple")

ALGORITHMS = ("tree", "ring", "nvls", "nvls_tree", "pat")


@dataclass(frozen=True)
class Lanes:
    """The channels of an algorithm's graph.

    Attributes:
        intra, inter: bandwidth of a channel inside a server and between servers, bytes/s.
        latency_us: what a step between servers takes beyond the release's figure.
        nvlink: whether steps inside a server go over NVLink, or else PCIe.
        ll128: whether its paths allow LL128.
        alike: whether all channels pass the GPUs in one order.
        one_port: of trees, whether one GPU has all of a server's traffic with others.
    """

    channels: int
    intra: float
    inter: float
    latency_us: float = 0.0
    nvlink: bool = True
    ll128: bool = True
    alike: bool = False
    one_port: bool = False

    def gbps(self, servers: int) -> float:
        """GB/s of all channels, as NCCL counts them for a number of servers."""
        return self.channels * (self.intra if servers <= 2 else self.inter) / 1e9


@dataclass(frozen=True)
class Cluster:
    """The network as the model sees it.

    Attributes:
        channels: how many a ring may use at most, with those that NCCL adds to the graph's.
        nvls: the heads that multicast in a server, None if its switches cannot.
    """

    ranks: int
    servers: int
    channels: int
    ring: Lanes
    tree: Lanes
    nvls: Lanes | None = None

    @classmethod
    def alike(cls, ranks: int, servers: int, channels: int, bandwidth: float) -> Cluster:
        """A cluster whose rings and trees have the same channels, of one bandwidth (bytes/s)."""
        lanes = Lanes(channels, bandwidth, bandwidth)
        return cls(ranks, servers, channels, lanes, lanes)


def expected_s(
    cluster: Cluster, size_bytes: int, kind: str = "allreduce", release: Release = VOLTA_2_20
) -> dict[tuple[str, str], float]:
    """Seconds that NCCL expects of a collective, by algorithm and protocol; those that it does not offer are left out.

    Args:
        kind: allreduce, allgather, reducescatter, broadcast or reduce.
        size_bytes: the full buffer, as nccl-tests count it.
    """
    model = _Model(cluster, kind, release)
    ways = ((a, p) for a in ALGORITHMS for p in range(3) if model.offers(a, p))
    return {
        (a, PROTOCOLS[p]): 1e-6 * model.latency_us(a, p, size_bytes) + size_bytes / (1e9 * model.gbps(a, p, size_bytes))
        for a, p in ways
    }


class _Model:
    """The formula for one cluster and kind of collective."""

    def __init__(self, cluster: Cluster, kind: str, release: Release) -> None:
        self.cluster, self.release = cluster, release
        traits = BY_NAME[kind]
        self.everyone, self.rooted = traits.reduces_to_all, traits.rooted
        ranks = cluster.ranks
        self.steps = 2 * (ranks - 1) if self.everyone else ranks if self.rooted else ranks - 1
        self.scale = min(cluster.servers, 3) - 1
        self.inside = ranks // cluster.servers
        self.levels = cluster.servers.bit_length() - 1

    def lanes(self, algorithm: str) -> Lanes:
        c = self.cluster
        if algorithm == "ring":
            return c.ring
        return c.nvls if c.nvls and algorithm.startswith("nvls") else c.tree

    def offers(self, algorithm: str, p: int) -> bool:
        """Whether NCCL offers an algorithm with a protocol for this collective."""
        if algorithm == "ring":
            return p != 1 or self.cluster.ring.ll128
        if self.rooted:
            return False
        if algorithm == "tree":
            return self.everyone and (p != 1 or self.cluster.tree.ll128)
        if algorithm == "pat":
            return p == 2 and not self.everyone and self.inside == 1 and self.release.base_us.pat[2] > 0
        multicast = p == 2 and self.cluster.nvls is not None and self.cluster.nvls.channels > 1
        return multicast and (
            self.cluster.servers == 1 if algorithm == "nvls" else self.everyone and self.cluster.servers > 1
        )

    def latency_us(self, algorithm: str, p: int, size_bytes: int) -> float:
        release, c = self.release, self.cluster
        lanes = self.lanes(algorithm)
        base: float = getattr(release.base_us, algorithm)[p]
        inside: float = getattr(release.nvlink_us if lanes.nvlink else release.pcie_us, algorithm)[p]
        network: Triple = release.network_us.tree if self.inside == 1 else getattr(release.network_us, algorithm)
        between = network[p] + lanes.latency_us * (2 if p == 2 else 1)
        if algorithm == "ring":
            return self._ring_us(base, inside, between, p, size_bytes)
        if algorithm == "tree":
            return base + 2 * ((self.inside - 1) * inside + self.levels * between)
        if algorithm == "nvls":
            return inside
        if algorithm == "nvls_tree":
            return base + inside + 2 * self.levels * between
        return base + self.levels * between / 3.5 + 2.8 * c.ranks

    def _ring_us(self, base: float, inside: float, between: float, p: int, size_bytes: int) -> float:
        release, c = self.release, self.cluster
        if self.rooted:
            hardware = release.network_us if c.servers > 1 else release.nvlink_us if c.ring.nvlink else release.pcie_us
            if c.ring.alike:
                return base + hardware.ring[p]
            return base + self.steps * (hardware.tree[p] if p == 2 else hardware.ring[p])
        crossing = 0
        if c.servers > 1:
            inside = max(inside, release.overhead_us[p])
            crossing = (2 if self.everyone else 1) * (c.servers - (not release.crosses_back))
        latency = base + (self.steps - crossing) * inside + crossing * between
        plateau = self.everyone and p == 2 and c.servers > 1 and size_bytes // (c.channels * c.ranks) >= 64
        return latency * (release.plateau if plateau else 1.0)

    def gbps(self, algorithm: str, p: int, size_bytes: int) -> float:
        """Of the algorithm: the size of the buffer over the time that its links are busy."""
        release, c = self.release, self.cluster
        lanes = self.lanes(algorithm)
        total = lanes.gbps(c.servers)
        if algorithm == "ring":
            if p == 0:
                total = min(release.ll_gbps[self.scale], total * release.ring_ll)
            elif p == 1:
                share = release.ring_ll128_few if c.ranks < 2 * c.servers else 0.92
                total = min(total * share, lanes.channels * release.ring_ll128_gbps[self.scale])
            return total * c.ranks / self.steps
        if algorithm == "pat":
            return total * 0.75
        if algorithm == "tree":
            total = min(total * 0.92, lanes.channels * release.tree_gbps[self.scale])
            if p == 0:
                total = min(total / 3.8, release.ll_gbps[self.scale])
            elif p == 1:
                share = 7 / 9 if c.servers == 1 else 120 / 128
                total = min(total * share, lanes.channels * release.tree_ll128_gbps[self.scale])
            total *= release.one_port_tree if lanes.one_port else 1.0
            return total / 2 * self._correction(release.tree_correction[p][:TREE_POWERS], size_bytes)
        total = lanes.channels * self._multicast_gbps(lanes, algorithm == "nvls_tree")
        corrected = algorithm == "nvls_tree" and release.corrects_nvls_tree
        factor = self._correction(release.tree_correction[p], size_bytes) if corrected else 1.0
        return total * (c.ranks / self.steps if self.everyone else 1.0) * factor

    def _multicast_gbps(self, lanes: Lanes, tree: bool) -> float:
        """Of a head: what its switch carries, and in a tree what its network card does."""
        inside = lanes.intra / 1e9 * self.release.nvls_share * (lanes.channels - 1) / lanes.channels
        inside *= 2 if self.everyone else (self.inside - 1) / self.inside
        between = lanes.inter / 1e9 * (2 if tree and self.cluster.servers <= 2 else 1)
        return min(inside, between, self.release.nvls_tree_gbps[self.scale]) if tree else min(inside, between)

    def _correction(self, factors: tuple[float, ...], size_bytes: int) -> float:
        power = max((size_bytes >> 6).bit_length() - 1, 0)
        return factors[power] if power < len(factors) else 1.0
