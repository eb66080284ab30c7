"""GPU servers: DGX1, DGX2, NDv2 and AMD, one or several chassis.

The link tables are facts from microsoft/TE-CCL (c128bf2), teccl/topologies/{dgx1,dgx2,ndv2,amd}.py,
as its paper intends them; the ``teccl`` variants are as that code builds them, with its slips.
"""

from __future__ import annotations

import math
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from . import Family, check_size, whole

GB = 1e9
US = 1e-6

# hybrid cube mesh of 8 V100: 16 directed links of two NVLinks, 16 of one
CUBE_MESH = {
    50.0: ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7)),
    25.0: ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6)),
}
# 16 graphics dies (MI250X-like)
_DIES = {
    200.0: ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)),
    100.0: ((0, 4), (3, 7), (8, 12), (11, 15)),
    50.0: (
        (0, 8), (1, 5), (1, 9), (1, 10), (2, 6), (2, 9), (2, 10), (3, 11), (4, 6), (5, 6), (5, 7),
        (9, 13), (10, 14), (12, 14), (13, 14), (13, 15),
    ),
}  # fmt: skip

Links = list[tuple[int, int, float, float]]
XY = list[tuple[float, float]]


def _both(table: dict[float, Any], first: int, latency_us: float) -> Links:
    """Both directions of a table of links, whose node numbers are counted from ``first``."""
    links: Links = []
    for width, pairs in table.items():
        for a, b in pairs:
            links.append((first + a, first + b, width * GB, latency_us * US))
            links.append((first + b, first + a, width * GB, latency_us * US))
    return sorted(links)


def _circle(count: int, x: float, y: float = 0.0, radius: float = 1.0) -> XY:
    """Positions on a circle, the first at the top."""
    angles = [2 * math.pi * i / count for i in range(count)]
    return [(x + radius * math.sin(a), y + radius * math.cos(a)) for a in angles]


def _chassis(arguments: list[str], spec: str, pattern: str) -> tuple[int, bool]:
    """The number of chassis (1 if not given), and whether the ``teccl`` variant is meant."""
    variant = arguments[1:] == ["teccl"]
    if len(arguments) > 2 or (len(arguments) == 2 and not variant):
        raise InputError(f"write it as {pattern}", spec)
    count = whole(arguments[0], f"{spec} ({pattern})", 1) if arguments else 1
    check_size(33 * count, 450 * count, spec)
    return count, variant


def _dgx1(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    if arguments:
        raise InputError("dgx1 is one server; write it as dgx1", spec)
    return make_topology("dgx1", [ACCELERATOR] * 8, _both(CUBE_MESH, 0, 0.7), xy=_circle(8, 0), sites=["chassis0"] * 8)


def _ndv2(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """8 V100 a chassis; GPU 0 sends to the other chassis, GPU 1 receives, 12.5 GB/s.

    Two chassis are joined directly, more by a switch (12.5 GB/s, 1.3 us a hop). The ``teccl``
    variant makes GPU 0 of the first of two chassis a switch, and gives one chassis a switch.
    """
    count, teccl = _chassis(arguments, spec, "ndv2:CHASSIS or ndv2:CHASSIS:teccl")
    switched = count > 2 or (count == 1 and teccl)
    first = 1 if switched else 0
    kinds = [SWITCH] * first + [ACCELERATOR] * 8 * count
    links: Links = []
    xy: XY = [(1.5 * (count - 1), 2.2)] * first
    for c in range(count):
        links += _both(CUBE_MESH, first + 8 * c, 0.7)
        xy += _circle(8, 3.0 * c)
        if switched:
            links += [(8 * c + 1, 0, 12.5 * GB, 1.3 * US), (0, 8 * c + 2, 12.5 * GB, 1.3 * US)]
    if count == 2:
        links += [(0, 9, 12.5 * GB, 1.3 * US), (8, 1, 12.5 * GB, 1.3 * US)]
        if teccl:
            kinds[0] = SWITCH
    sites = [""] * first + [f"chassis{i // 8}" for i in range(8 * count)]
    return make_topology(f"ndv2:{count}" + ":teccl" * teccl, kinds, links, sites=sites, xy=xy)


def _dgx2(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """16 V100 a chassis on one NVSwitch (125 GB/s, 0.35 us a hop); odd GPUs send to other chassis.

    Two chassis are joined by 8 links each way, from GPU i (odd) to GPU i - 1, 12.5 GB/s and
    2.6 us. For more, which the public code does not have, each of these 8 rails has a switch of
    its own with half of that latency a hop.
    """
    count, teccl = _chassis(arguments, spec, "dgx2:CHASSIS")
    if teccl:
        raise InputError("dgx2 has no teccl variant: that code builds it as intended", spec)
    kinds, sites, links, xy = [], [], [], []
    for c in range(count):
        base = 17 * c
        kinds += [SWITCH] + [ACCELERATOR] * 16
        sites += [f"chassis{c}"] * 17
        xy += [(4.0 * c, 0.0), *_circle(16, 4.0 * c, radius=1.5)]
        for gpu in range(base + 1, base + 17):
            links += [(base, gpu, 125 * GB, 0.35 * US), (gpu, base, 125 * GB, 0.35 * US)]
    if count == 2:
        for a, b in ((0, 17), (17, 0)):
            links += [(a + 1 + i, b + i, 12.5 * GB, 2.6 * US) for i in range(1, 16, 2)]
    elif count > 2:
        for rail, i in enumerate(range(1, 16, 2)):
            switch = len(kinds)
            kinds.append(SWITCH)
            sites.append("")
            xy.append((4.0 * (count - 1) * (rail + 0.5) / 8, 2.5))
            for c in range(count):
                links += [(17 * c + 1 + i, switch, 12.5 * GB, 1.3 * US), (switch, 17 * c + i, 12.5 * GB, 1.3 * US)]
    return make_topology(f"dgx2:{count}", kinds, links, sites=sites, xy=xy)


def _amd(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """16 dies a chassis; each pair on a leaf switch, all leaves on one core switch (25 GB/s, 1.3 us).

    The ``teccl`` variant has that code's off-by-one: die 15 of each chassis is a switch on the
    core, leaf 7 an accelerator without a link to it, and leaf 0 has 50 GB/s.
    """
    count, teccl = _chassis(arguments, spec, "amd:CHASSIS or amd:CHASSIS:teccl")
    if count == 1:
        if teccl:
            raise InputError("amd:1 has no teccl variant: one chassis has no switches", spec)
        return make_topology("amd:1", [ACCELERATOR] * 16, _both(_DIES, 0, 0.7), sites=["chassis0"] * 16, xy=_dies_xy(0))
    kinds, sites = [SWITCH], [""]
    xy: XY = [(3.0 * (count - 1), 6.5)]
    links: Links = []
    for c in range(count):
        base = 24 * c
        kinds += [ACCELERATOR] * 15 + ([SWITCH] * 8 + [ACCELERATOR] if teccl else [ACCELERATOR] + [SWITCH] * 8)
        sites += [f"chassis{c}"] * 24
        xy += _dies_xy(6.0 * c) + [(6.0 * c - 1.6 + 0.6 * i, 5.0) for i in range(8)]
        links += _both(_DIES, base + 1, 0.7)
        for leaf in range(8):
            switch = base + 17 + leaf
            width, latency = (50.0, 0.7) if teccl and leaf == 0 else (25.0, 1.3)
            for gpu in (base + 1 + 2 * leaf, base + 2 + 2 * leaf):
                links += [(gpu, switch, width * GB, latency * US), (switch, gpu, width * GB, latency * US)]
            up = switch - 1 if teccl else switch
            links += [(up, 0, 25 * GB, 1.3 * US), (0, up, 25 * GB, 1.3 * US)]
    return make_topology(f"amd:{count}" + ":teccl" * teccl, kinds, links, sites=sites, xy=xy)


def _dies_xy(x: float) -> XY:
    return [(x + 1.2 * (i % 4) - 1.2, 1.2 * (i // 4)) for i in range(16)]


FAMILIES = (
    Family("dgx1", "dgx1", "8 V100, NVLink hybrid cube mesh of 25 and 50 GB/s", "dgx1", _dgx1),
    Family("dgx2", "dgx2:CHASSIS", "16 V100 a chassis on an NVSwitch, 8 links of 12.5 GB/s between", "dgx2:2", _dgx2),
    Family("ndv2", "ndv2:CHASSIS[:teccl]", "8 V100 a chassis, one link of 12.5 GB/s in and out", "ndv2:4", _ndv2),
    Family("amd", "amd:CHASSIS[:teccl]", "16 dies a chassis, leaf and core switches of 25 GB/s", "amd:2", _amd),
)
