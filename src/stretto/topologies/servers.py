"""GPU servers of 2018: DGX1, DGX2, NDv2 and AMD, one or several chassis. Those of today are in :mod:`.machines`.

The link tables are facts from microsoft/TE-CCL (c128bf2), teccl/topologies/{dgx1,dgx2,ndv2,amd}.py,
as its paper intends them; the ``teccl`` variants are as that code builds them, with its slips.
"""

from __future__ import annotations

from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from . import Family, check_size, whole
from .draft import Draft, circle

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


def _add_table(draft: Draft, table: dict[float, Any], first: int) -> None:
    """Add both directions of a table of links of 0.7 us, whose node numbers are counted from ``first``."""
    widths = {ends: width for width, pairs in table.items() for a, b in pairs for ends in ((a, b), (b, a))}
    for (a, b), width in sorted(widths.items()):
        draft.link(first + a, first + b, width * GB, 0.7 * US)


def _chassis(arguments: list[str], spec: str, pattern: str, nodes: int = 33, links: int = 450) -> tuple[int, bool]:
    """The number of chassis (1 if not given), and whether the ``teccl`` variant is meant.

    Args:
        nodes, links: of a chassis, at most.
    """
    variant = arguments[1:] == ["teccl"]
    if len(arguments) > 2 or (len(arguments) == 2 and not variant):
        raise InputError(f"write it as {pattern}", spec)
    count = whole(arguments[0], f"{spec} ({pattern})", 1) if arguments else 1
    check_size(nodes * count, links * count, spec)
    return count, variant


def _dgx1(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    if arguments:
        raise InputError("dgx1 is one server; write it as dgx1", spec)
    draft = Draft()
    draft.nodes(ACCELERATOR, "chassis0", circle(8))
    _add_table(draft, CUBE_MESH, 0)
    return draft.topology("dgx1")


def _ndv2(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """8 V100 a chassis; GPU 0 sends to the other chassis, GPU 1 receives, 12.5 GB/s.

    Two chassis are joined directly, more by a switch (12.5 GB/s, 1.3 us a hop). The ``teccl``
    variant makes GPU 0 of the first of two chassis a switch, and gives one chassis a switch.
    """
    count, teccl = _chassis(arguments, spec, "ndv2:CHASSIS or ndv2:CHASSIS:teccl")
    switched = count > 2 or (count == 1 and teccl)
    draft = Draft()
    if switched:
        draft.node(SWITCH, xy=(1.5 * (count - 1), 2.2))
    for c in range(count):
        base = len(draft.kinds)
        draft.nodes(ACCELERATOR, f"chassis{c}", circle(8, 3.0 * c))
        _add_table(draft, CUBE_MESH, base)
        if switched:
            draft.link(base, 0, 12.5 * GB, 1.3 * US)
            draft.link(0, base + 1, 12.5 * GB, 1.3 * US)
    if count == 2:
        draft.link(0, 9, 12.5 * GB, 1.3 * US)
        draft.link(8, 1, 12.5 * GB, 1.3 * US)
        if teccl:
            draft.kinds[0] = SWITCH
    return draft.topology(f"ndv2:{count}" + ":teccl" * teccl)


def _dgx2(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """16 V100 a chassis on one NVSwitch (125 GB/s, 0.35 us a hop); odd GPUs send to other chassis.

    Two chassis are joined by 8 links each way, from GPU i (odd) to GPU i - 1, 12.5 GB/s and
    2.6 us. For more, which the public code does not have, each of these 8 rails has a switch of
    its own with half of that latency a hop.
    """
    count, teccl = _chassis(arguments, spec, "dgx2:CHASSIS")
    if teccl:
        raise InputError("dgx2 has no teccl variant: that code builds it as intended", spec)
    draft = Draft()
    for c in range(count):
        base = draft.node(SWITCH, site=f"chassis{c}", xy=(4.0 * c, 0.0))
        draft.nodes(ACCELERATOR, f"chassis{c}", circle(16, 4.0 * c, radius=1.5))
        for gpu in range(base + 1, base + 17):
            draft.join(base, gpu, 125 * GB, 0.35 * US)
    if count == 2:
        for a, b in ((0, 17), (17, 0)):
            for i in range(1, 16, 2):
                draft.link(a + 1 + i, b + i, 12.5 * GB, 2.6 * US)
    elif count > 2:
        for rail, i in enumerate(range(1, 16, 2)):
            switch = draft.node(SWITCH, xy=(4.0 * (count - 1) * (rail + 0.5) / 8, 2.5))
            for c in range(count):
                draft.link(17 * c + 1 + i, switch, 12.5 * GB, 1.3 * US)
                draft.link(switch, 17 * c + i, 12.5 * GB, 1.3 * US)
    return draft.topology(f"dgx2:{count}")


def _amd(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """16 dies a chassis; each pair on a leaf switch, all leaves on one core switch (25 GB/s, 1.3 us).

    The ``teccl`` variant has that code's off-by-one: die 15 of each chassis is a switch on the
    core, leaf 7 an accelerator without a link to it, and leaf 0 has 50 GB/s.
    """
    count, teccl = _chassis(arguments, spec, "amd:CHASSIS or amd:CHASSIS:teccl")
    if count == 1 and teccl:
        raise InputError("amd:1 has no teccl variant: one chassis has no switches", spec)
    draft = Draft()
    if count > 1:
        draft.node(SWITCH, xy=(3.0 * (count - 1), 6.5))
    for c in range(count):
        first, x = len(draft.kinds), 6.0 * c
        draft.nodes(ACCELERATOR, f"chassis{c}", [(x + 1.2 * (i % 4) - 1.2, 1.2 * (i // 4)) for i in range(16)])
        _add_table(draft, _DIES, first)
        if count > 1:
            _add_leaves(draft, first, x, teccl)
    return draft.topology(f"amd:{count}" + ":teccl" * teccl)


def _add_leaves(draft: Draft, first: int, x: float, teccl: bool) -> None:
    """Add the leaf switches of a chassis, each joined to two dies and to the core switch, node 0."""
    draft.nodes(SWITCH, draft.sites[first], [(x - 1.6 + 0.6 * i, 5.0) for i in range(8)])
    if teccl:
        draft.kinds[first + 15], draft.kinds[first + 23] = SWITCH, ACCELERATOR
    for leaf in range(8):
        switch = first + 16 + leaf
        width, latency = (50.0, 0.7) if teccl and leaf == 0 else (25.0, 1.3)
        for die in (first + 2 * leaf, first + 2 * leaf + 1):
            draft.join(die, switch, width * GB, latency * US)
        draft.join(switch - 1 if teccl else switch, 0, 25 * GB, 1.3 * US)


FAMILIES = (
    Family("dgx1", "dgx1", "8 V100, NVLink hybrid cube mesh of 25 and 50 GB/s", "dgx1", _dgx1),
    Family("dgx2", "dgx2:CHASSIS", "16 V100 a chassis on an NVSwitch, 8 links of 12.5 GB/s between", "dgx2:2", _dgx2),
    Family("ndv2", "ndv2:CHASSIS[:teccl]", "8 V100 a chassis, one link of 12.5 GB/s in and out", "ndv2:4", _ndv2),
    Family("amd", "amd:CHASSIS[:teccl]", "16 dies a chassis, leaf and core switches of 25 GB/s", "amd:2", _amd),
)
