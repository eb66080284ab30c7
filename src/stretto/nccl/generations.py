"""Generations of NVIDIA's GPUs, as far as NCCL's graphs depend on them.

Bandwidths of links and the speeds that NCCL tries are those of NCCL 2.30.7 (src/graph/topo.h, ncclTopoNVLinkBw;
src/graph/search.cc, speedArrayIntra and the like), in GB/s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..model.errors import InputError, Unsupported, nearest

RELEASE = "2.30.7"
"""The release of NCCL whose facts these are."""

INTRA = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
INTER = (48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2, 0.24, 0.12)
INTRA_HOPPER = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
INTER_HOPPER = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12)
INTRA_BLACKWELL = (90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0)
INTER_BLACKWELL = (
    96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12,
)  # fmt: skip


@dataclass(frozen=True)
class Generation:
    """GPUs of one generation.

    Attributes:
        sm: the compute capability, as NCCL writes it.
        nvlink: bandwidth of one NVLink by its data sheet, bytes/s each way.
        counted: what NCCL counts for it.
        pcie: generation of PCIe.
        intra, inter: speeds of a channel that NCCL tries within one server, and for several, GB/s.
    """

    name: str
    sm: int
    nvlink: float
    counted: float
    pcie: int
    intra: tuple[float, ...]
    inter: tuple[float, ...]

    def links(self, bandwidth: float) -> int:
        """How many NVLinks a bandwidth is: a whole number by the data sheet, or else by NCCL's count."""
        sheet, counted = bandwidth / self.nvlink, bandwidth / self.counted
        by_nccl = abs(sheet - round(sheet)) > 1e-6 and abs(counted - round(counted)) < 1e-6
        return max(1, round(counted if by_nccl else sheet))


GENERATIONS = (
    Generation("v100", 70, 25e9, 20e9, 3, INTRA, INTER),
    Generation("a100", 80, 25e9, 20e9, 4, INTRA, INTER),
    Generation("h100", 90, 25e9, 20.6e9, 5, INTRA_HOPPER, INTER_HOPPER),
    Generation("b200", 100, 50e9, 40.1e9, 5, INTRA_BLACKWELL, INTER_BLACKWELL),
)
NAMES = tuple(g.name for g in GENERATIONS)

FAMILIES = {"dgx1": "v100", "dgx2": "v100", "ndv2": "v100", "h200": "h100", **{name: name for name in NAMES}}
"""The GPUs of the catalogue's servers."""

OTHERS = ("amd", "mi300x", "mi325x", "gaudi3", "trn2", "trn2u", "tpuv4", "tpuv5e", "tpuv5p")
"""Servers of the catalogue without NVIDIA's GPUs."""


def generation_of(name: str, gpu: str | None) -> Generation:
    """The generation that a user names, or else that of the servers in a topology's name.

    Raises:
        InputError: no name says which GPUs they are, or there is no such generation.
        Unsupported: they are not NVIDIA's.
    """
    words = set(re.findall(r"[a-z]+\d*\w*", name.lower()))
    if gpu is None:
        if others := sorted(words & set(OTHERS)):
            raise Unsupported(
                f"NCCL runs on NVIDIA's GPUs, and {others[0]} has others; RCCL and others are not written"
            )
        found = {FAMILIES[word] for word in words & set(FAMILIES)}
        if len(found) != 1:
            raise InputError(f"the name {name} does not say which GPUs these are; there are {', '.join(NAMES)}", "gpu")
        gpu = found.pop()
    if gpu not in FAMILIES:
        raise InputError(f"there is no GPU {gpu!r}; {nearest(gpu, NAMES)}", "gpu")
    return next(g for g in GENERATIONS if g.name == FAMILIES[gpu])
