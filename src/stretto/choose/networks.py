"""Measured networks that earlier processes have kept, so that plans which were kept for them serve again.

Two measurements of one network differ a little, and plans are kept by their request, with all its numbers. A network
that was just measured is therefore replaced by a kept one that is *alike*: with the same ranks and sites, with links
between sites whose numbers differ by less than ``ALIKE``, and on which the AllReduces of ``SIZES``, by the first plan,
take times that differ by less than that. What links inside a site have matters only by these times. Rounding to steps
would not do: wherever steps end, two measurements of one link may lie on two sides.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..formats import atomic_file
from ..model.arrays import Float64
from ..model.errors import InputError
from ..model.plan import Plan
from ..model.topology import SWITCH, Topology
from ..model.variants import costing
from ..simulate import simulate
from .quick import TARGET, quick_plan
from .requests import PlanRequest, Shape

ALIKE = 1.1
"""Numbers that differ by less than this factor are alike. Repeated measurements of one link differ by 5 %, and links of
which a plan expects a tenth too much or too little are not taken for slow ones."""
SIZES = (1 << 16, 1 << 26)
"""Bytes of the AllReduces that must take about the same time: what latencies decide, and what bandwidths do."""
MOST_ALIKE = 8
"""Networks that are kept of the same ranks and sites; the oldest gives way."""
SUFFIX = ".network"


def kept_like(net: Topology, folder: Path) -> Topology:
    """The kept network that is like one that was measured, or that one itself, which is kept then.

    Args:
        net: whose first nodes, all that are accelerators, are the ranks.
    """
    path = folder / f"{_digest(net)}{SUFFIX}"
    rows = _read(path, net.link_count)
    for bandwidth, latency_s in rows:
        earlier = replace(net, bandwidth=np.array(bandwidth), latency_s=np.array(latency_s))
        if alike(net, earlier):
            return earlier
    rows.append([net.bandwidth.tolist(), net.latency_s.tolist()])
    with suppress(OSError, InputError):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(str(path)) as file:
            json.dump(rows[-MOST_ALIKE:], file)
    return net


def alike(net: Topology, other: Topology) -> bool:
    """Whether plans for one network serve another one of the same ranks and links as well."""
    between = (net.kind[net.src] == SWITCH) & (net.kind[net.dst] == SWITCH)
    close = _close(net.bandwidth, other.bandwidth) & _close(
        net.latency_s + TARGET.message_s, other.latency_s + TARGET.message_s
    )
    if not close[between].all():
        return False
    ends = [costing(each, TARGET.message_s) for each in (net, other)]
    for size in SIZES:
        plan = quick_plan(PlanRequest(ends[0], tuple(net.accelerators.tolist()), Shape.of("allreduce", size, 0)))
        if not _close(*(np.array([shared_s(plan, each)]) for each in ends)).all():
            return False
    return True


def shared_s(plan: Plan, net: Topology) -> float:
    """When a plan ends on a network whose links its transfers share as TCP's flows do, whatever times it gives them."""
    return simulate(replace(plan, topology=net, sharing="fair", start_s=None, finish_s=None)).completion_s


def _close(a: Float64, b: Float64) -> Any:
    """bool[...], where two positive numbers are alike."""
    return (a < ALIKE * b) & (b < ALIKE * a)


def _digest(net: Topology) -> str:
    """A digest of all but the numbers of the links."""
    parts = [net.name, net.kind.tolist(), net.src.tolist(), net.dst.tolist(), list(net.sites)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _read(path: Path, links: int) -> list[Any]:
    """The bandwidths and latencies of each kept network; none if the file is missing or damaged."""
    try:
        rows = json.loads(path.read_text())
        values = np.array(rows, dtype=np.float64).reshape(-1, 2, links)
    except (OSError, ValueError):
        return []
    return list(rows) if (np.isfinite(values) & (values >= 0)).all() and (values[:, 0] > 0).all() else []
