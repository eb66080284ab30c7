"""What NCCL calls the paths inside a server: over NVLink, over one PCIe switch or several, over a CPU, between CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .server import COUNTED_AT_8GT, Branch, Server, pcie_link

ORDER = ("LOC", "NVL", "PIX", "PXB", "PXN", "PHB", "SYS")
"""Types from the best to the worst (src/include/graph.h)."""


class Paths:
    """The paths of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.above: dict[tuple[str, int], tuple[Branch, ...]] = {}
        self.own: dict[tuple[str, int], Branch] = {}
        for socket in server.sockets:
            for trail, branch in _trails(socket, ()):
                self.above[branch.kind, branch.number] = trail
                self.own[branch.kind, branch.number] = branch

    def worst(self, types: Iterable[str]) -> str:
        """The worst of several types."""
        return max(types, key=ORDER.index)

    def between(self, a: int, b: int) -> str:
        """The type of the path between two GPUs."""
        server = self.server
        direct = (a, b) in server.nvlinks or (server.to_switch[a] and server.to_switch[b])
        return "NVL" if direct else self._pcie(("gpu", a), ("gpu", b))

    def to_nic(self, gpu: int, nic: int) -> str:
        """The type of the path between a GPU and a network card: PXN if a GPU nearby leads there over NVLink."""
        own = self._pcie(("gpu", gpu), ("nic", nic))
        if ORDER.index(own) <= ORDER.index("PXB"):
            return own
        near = [g for g in range(len(self.server.gpus)) if self._pcie(("gpu", g), ("nic", nic)) in ("PIX", "PXB")]
        return "PXN" if any(self.between(gpu, g) == "NVL" for g in near) else own

    def receivers(self, nic: int) -> tuple[int, ...]:
        """The GPUs into which a network card leads: those that the topology says, or else the nearest."""
        return self.server.nics[nic].receives or self.local(nic)

    def senders(self, nic: int) -> tuple[int, ...]:
        """The GPUs from which a network card leads out."""
        return self.server.nics[nic].sends or self.local(nic)

    def local(self, nic: int) -> tuple[int, ...]:
        """The GPUs on the network card's own PCIe switch, or else the nearest."""
        gpus = range(len(self.server.gpus))
        rank = {g: ORDER.index(self._pcie(("gpu", g), ("nic", nic))) for g in gpus}
        return tuple(g for g in gpus if rank[g] == min(rank.values()))

    def nic_width(self, nic: int) -> float:
        """GB/s between a network card and its GPUs, as NCCL counts them."""
        gt, lanes = pcie_link(self.own["nic", nic].width, self.server.generation)
        return min(self.server.nics[nic].bandwidth / 1e9, COUNTED_AT_8GT * gt / 8 * lanes / 1e9)

    def _pcie(self, a: tuple[str, int], b: tuple[str, int]) -> str:
        ups, downs = self.above[a], self.above[b]
        if ups[0] is not downs[0]:
            return "SYS"
        shared = sum(x is y for x, y in zip(ups, downs, strict=False))
        if shared == 1:
            return "PHB"
        return "PIX" if len(ups) + len(downs) - 2 * shared == 0 else "PXB"


def _trails(branch: Branch, above: tuple[Branch, ...]) -> Iterator[tuple[tuple[Branch, ...], Branch]]:
    """Each device with those above it, the socket first."""
    if branch.kind in ("gpu", "nic"):
        yield above, branch
    for below in branch.below:
        yield from _trails(below, (*above, branch))
