"""Servers of today: HGX A100 to B200, GB200 NVL72, MI300X, MI325X, Gaudi 3, TPU v4, v5e and v5p, Trainium2.

docs/reference/topologies.md has the source of each figure. Latencies are those of the other servers of the catalogue:
0.7 us between two accelerators, half of it to a switch between them. Several servers are joined by rails
(:func:`.composition.in_rails`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import parse_bandwidth
from . import CAN_SUM, Family, Setting, check_size, choice, numbers, whole
from .composition import in_rails
from .draft import Draft, circle
from .fabrics import LATENCY, NUMBER, RAILS
from .pcie import PCIE, PCIE_LATENCY_S
from .ports import Nics, ports
from .regular import axis_pairs, grid_positions

GB = 1e9
DIRECT_S, HOP_S = 0.7e-6, 0.35e-6
"""Latency of a link between two accelerators, and between an accelerator and a switch."""

SETTINGS = (
    Setting("rails", parse_bandwidth, None, "bandwidth of the NIC of each accelerator; by default the machine's"),
    Setting("nics", choice({"links": "links", "nodes": "nodes"}), "links",
            "links: a NIC is the link to its rail; nodes: also a PCIe switch and a NIC"),
    *(s for s in RAILS.settings if s not in (LATENCY, NUMBER)),
)  # fmt: skip
NVSWITCHES = Setting(
    "nvswitches",
    partial(whole, least=1),
    1,
    "nodes that stand for the NVSwitch chips of a server; 1 balances perfectly",
)


@dataclass(frozen=True)
class Switched:
    """Accelerators around NVSwitches, each with the same number of NVLinks to every one."""

    gpus: int
    bandwidth: float  # of one accelerator, bytes/s each way
    multicasts: bool  # whether the switches replicate, and can sum
    radius: float = 1.5
    switches: int = 1  # how many nodes stand for the chips

    def draft(self) -> Draft:
        draft = Draft()
        names = ["nvswitch"] if self.switches == 1 else [f"nvswitch{k}" for k in range(self.switches)]
        middle = circle(self.switches, radius=0.5 * self.radius if self.switches > 1 else 0.0)
        chips = [draft.node(SWITCH, name, "server0", xy) for name, xy in zip(names, middle, strict=True)]
        for k, xy in enumerate(circle(self.gpus, radius=self.radius)):
            gpu = draft.node(ACCELERATOR, f"gpu{k}", "server0", xy)
            for chip in chips:
                draft.join(chip, gpu, self.bandwidth / self.switches, HOP_S)
        return draft


@dataclass(frozen=True)
class Joined:
    """Accelerators of which every two are joined."""

    gpus: int
    bandwidth: float  # between two accelerators, bytes/s each way

    def draft(self) -> Draft:
        draft = Draft()
        for k, xy in enumerate(circle(self.gpus, radius=1.5)):
            draft.node(ACCELERATOR, f"gpu{k}", "server0", xy)
        for a, b in combinations(range(self.gpus), 2):
            draft.join(a, b, self.bandwidth, DIRECT_S)
        return draft


@dataclass(frozen=True)
class Torus:
    """A torus, or a grid along the axes that do not wrap around."""

    sides: tuple[int, ...]
    bandwidths: tuple[float, ...]  # of a link along each axis, bytes/s each way
    wraps: tuple[bool, ...]

    def draft(self) -> Draft:
        draft = Draft()
        for k, xy in enumerate(grid_positions(self.sides)):
            draft.node(ACCELERATOR, f"gpu{k}", "server0", xy)
        for axis, (bandwidth, wraps) in enumerate(zip(self.bandwidths, self.wraps, strict=True)):
            for a, b in {(min(pair), max(pair)): None for pair in axis_pairs(self.sides, axis, wraps)}:
                draft.join(a, b, bandwidth, DIRECT_S)
        return draft


Inside = Switched | Joined | Torus


def _servers(
    arguments: list[str], settings: dict[str, Any], spec: str, *, name: str, inside: Inside, nic: float, pcie: int,
    share: int = 1, rails: int | None = None,
) -> Topology:  # fmt: skip
    """Servers of one kind, one by default.

    Args:
        nic: bandwidth of the NIC of an accelerator, bytes/s each way.
        pcie: generation of PCIe between them.
        share: accelerators, and their NICs, on one PCIe switch.
        rails: how many there are, if fewer than NICs.
    """
    if len(arguments) > 1:
        raise InputError(f"write it as {name}:SERVERS", spec)
    count = whole(arguments[0], f"{spec} ({name}:SERVERS)", 1) if arguments else 1
    if isinstance(inside, Switched):
        inside = replace(inside, switches=settings["nvswitches"])
        check_size(inside.gpus + inside.switches, 2 * inside.gpus * inside.switches, spec)
    draft = inside.draft()
    check_size(len(draft.kinds) * count, len(draft.links) * count, spec)
    nic = nic if settings["rails"] is None else settings["rails"]
    if settings["nics"] == "nodes":
        _add_nics(draft, PCIE[pcie], share)
    chips = inside.switches if isinstance(inside, Switched) and inside.multicasts else 0
    replicates = [k < chips for k in range(len(draft.kinds))]
    server = draft.topology(name, replicates=replicates, notes=[CAN_SUM] * bool(chips))
    fabric = settings | {LATENCY.name: LATENCY.default, NUMBER.name: rails}
    server, found = ports(server, Nics(None, nic), spec)
    built = in_rails(server, count, found, fabric, spec, named=settings["nics"] == "nodes")
    return replace(built, name=f"{name}:{count}" + "".join(spec.partition("?")[1:]))


def _add_nics(draft: Draft, bandwidth: float, share: int) -> None:
    """A PCIe switch for every ``share`` accelerators, and as many NICs on it."""
    gpus = [v for v, kind in enumerate(draft.kinds) if kind == ACCELERATOR]
    for k, v in enumerate(gpus):
        x, y = draft.xy[v]
        if k % share == 0:
            switch = draft.node(SWITCH, f"pcie{k // share}", "server0", (1.2 * x, 1.2 * y))
        draft.join(v, switch, bandwidth, PCIE_LATENCY_S)
        draft.join(switch, draft.node(SWITCH, f"nic{k}", "server0", (1.4 * x, 1.4 * y)), bandwidth, PCIE_LATENCY_S)


WRAP = Setting(
    "wrap", choice({"slice": None, "all": True, "none": False}), None,
    "which axes wrap around: slice, as Google's slices do; all or none",
)  # fmt: skip


def _tpu(
    arguments: list[str], settings: dict[str, Any], spec: str, *, name: str, axes: int, bandwidth: float, whole_at: int
) -> Topology:
    """A slice of TPUs, numbered row by row.

    Args:
        bandwidth: of a link, bytes/s each way.
        whole_at: with two axes, the side from which an axis wraps around; with three, all axes do if all sides are
            multiples of it.
    """
    pattern = f"{name}:" + "x".join("ABC"[:axes])
    sides = numbers(arguments, spec, pattern, 1, most=axes)
    if len(sides) != axes:
        raise InputError(f"write it as {pattern}", spec)
    nodes = 1
    for side in sides:
        nodes *= side
        check_size(nodes, 2 * axes * nodes, spec)
    cubes = all(side % whole_at == 0 for side in sides)
    own = [cubes if axes == 3 else side >= whole_at for side in sides]
    wraps = own if settings["wrap"] is None else [settings["wrap"]] * axes
    draft = Torus(tuple(sides), (bandwidth,) * axes, tuple(wraps)).draft()
    return draft.topology(spec, where=spec)


_EIGHT = partial(Switched, 8)
_RACK = Switched(72, 900 * GB, True, radius=4.0)
_TRN2 = Torus((4, 4), (128 * GB,) * 2, (True,) * 2)
_TRN2U = Torus((4, 4, 4), (64 * GB, 128 * GB, 128 * GB), (True,) * 3)


def _family(
    name: str, summary: str, inside: Inside, nics: str, pcie: int = 5, share: int = 1, rails: int | None = None,
    example: int = 2,
) -> Family:  # fmt: skip
    settings = (*SETTINGS, NVSWITCHES) if isinstance(inside, Switched) else SETTINGS
    _, _, rate = nics.partition("x")
    build = partial(_servers, name=name, inside=inside, nic=parse_bandwidth(rate), pcie=pcie, share=share, rails=rails)
    return Family(name, f"{name}:SERVERS", summary, f"{name}:{example}", build, settings, nics)


def _slice(name: str, summary: str, axes: int, gbps: float, whole_at: int, nics: str, example: str) -> Family:
    build = partial(_tpu, name=name, axes=axes, bandwidth=gbps * GB, whole_at=whole_at)
    return Family(name, f"{name}:" + "x".join("ABC"[:axes]), summary, f"{name}:{example}", build, (WRAP,), nics)


FAMILIES = (
    _family(
        "a100", "8 A100 a server on an NVSwitch of 300 GB/s, 8 rails of 25 GB/s", _EIGHT(300 * GB, False),
        "8x200Gbit/s", pcie=4, share=2,
    ),
    _family(
        "h100", "8 H100 a server on an NVSwitch of 450 GB/s, 8 rails of 50 GB/s", _EIGHT(450 * GB, True), "8x400Gbit/s"
    ),
    _family(
        "h200", "8 H200 a server on an NVSwitch of 450 GB/s, 8 rails of 50 GB/s", _EIGHT(450 * GB, True), "8x400Gbit/s"
    ),
    _family(
        "b200", "8 B200 a server on an NVSwitch of 900 GB/s, 8 rails of 50 GB/s", _EIGHT(900 * GB, True), "8x400Gbit/s"
    ),
    _family(
        "gb200", "72 GPUs a GB200 NVL72 rack on NVSwitches of 900 GB/s, 4 rails of 50 GB/s a GPU", _RACK,
        "72x400Gbit/s", rails=4,
        example=1,
    ),
    _family(
        "mi300x", "8 MI300X a server, all joined by 64 GB/s, 8 rails of 50 GB/s", Joined(8, 64 * GB), "8x400Gbit/s"
    ),
    _family(
        "mi325x", "8 MI325X a server, all joined by 64 GB/s, 8 rails of 50 GB/s", Joined(8, 64 * GB), "8x400Gbit/s"
    ),
    _family(
        "gaudi3", "8 Gaudi 3 a server, all joined by 75 GB/s, 8 rails of 75 GB/s", Joined(8, 75 * GB), "8x600Gbit/s"
    ),
    _family("trn2", "16 Trainium2 a server, a torus of 128 GB/s, 16 rails of 25 GB/s", _TRN2, "16x200Gbit/s"),
    _family(
        "trn2u", "64 Trainium2 an UltraServer, a torus of 128 and 64 GB/s, 16 rails of 25 GB/s a chip", _TRN2U,
        "64x200Gbit/s", rails=16, example=1,
    ),
    _slice("tpuv4", "a slice of TPU v4, links of 45 GB/s", 3, 45, 4, "1x50Gbit/s", "2x2x4"),
    _slice("tpuv5e", "a slice of TPU v5e, links of 50 GB/s", 2, 50, 16, "1x25Gbit/s", "4x4"),
    _slice("tpuv5p", "a slice of TPU v5p, links of 100 GB/s", 3, 100, 4, "1x50Gbit/s", "2x2x4"),
)  # fmt: skip
