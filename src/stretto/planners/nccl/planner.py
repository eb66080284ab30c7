"""What NCCL would do: a ring or, for AllReduce, the tree, by which is expected to end first.

NCCL decides by size from a table of its own (:mod:`.nccl_tuning`), which also knows protocols and
what launches cost on real hardware. The physics here knows neither, so by default both plans are
made and simulated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...model.errors import Unsupported
from ...model.plan import Plan
from ...schedule.best import completion_s
from .. import Option, Request, over_links, register
from .ring import SLICE_STEPS, nccl_ring
from .rings import MOST_CHANNELS, channel_count, find_rings, servers_of
from .tree import nccl_tree
from .tuning import Cluster, expected_s

OPTIONS = (
    Option("by", str, "simulation", "what ring and tree are compared by", ("simulation", "model")),
    Option("channels", str, "auto", f"as of nccl-ring and nccl-tree: auto, or 1 to {MOST_CHANNELS}"),
    Option("slices", int, 0, "as of nccl-ring and nccl-tree; 0 as NCCL"),
)


@register(
    "nccl",
    collectives=tuple(SLICE_STEPS),
    topologies="any without planes",
    paper="NVIDIA NCCL 2.20, src/graph/tuning.cc",
    options=OPTIONS,
    serves=over_links,
    library=50,
)
def nccl(request: Request, *, by: str = "simulation", channels: str = "auto", slices: int = 0) -> Plan:
    """NCCL's choice by size: ring, or for AllReduce double binary trees.

    Args:
        by: "simulation" makes both plans and keeps the one that ends first, "model" asks NCCL's
            tuning model, for an AllReduce on its own.
        channels, slices: of both, see there.
    Returns:
        A plan in ready-order; its meta says which algorithm, and what was expected of each.
    """
    if any(not c.traits.reduces_to_all for c in request.workload.collectives):
        ring = nccl_ring(request, channels=channels, slices=slices)
        return _with(ring, {"algorithm": "ring", "why": "NCCL has trees for AllReduce alone"})
    if by == "model":
        return _by_model(request, channels, slices)
    plans = {
        "ring": nccl_ring(request, channels=channels, slices=slices),
        "tree": nccl_tree(request, channels=channels, slices=slices),
    }
    expected = {name: completion_s(plan) for name, plan in plans.items()}
    best = min(expected, key=lambda name: expected[name])
    return _with(plans[best], {"algorithm": best, "expected_s": expected})


def _by_model(request: Request, channels: str, slices: int) -> Plan:
    topology, workload = request.topology, request.workload
    if len(workload.collectives) != 1:
        raise Unsupported("nccl with by=model serves one collective at a time; by=simulation serves several")
    c = workload.collectives[0]
    ranks = c.ranks.astype(np.int64)
    found = find_rings(topology, ranks)
    servers = len(set(servers_of(topology, ranks).values()))
    cluster = Cluster(len(ranks), servers, channel_count(channels) or len(found.rings), found.bandwidth)
    expected = expected_s(cluster, c.size_bytes)
    algorithm, protocol = min(expected, key=lambda pair: expected[pair])
    make = nccl_ring if algorithm == "ring" else nccl_tree
    table = {f"{a} {p}": seconds for (a, p), seconds in expected.items()}
    plan = make(request, channels=channels, slices=slices)
    return _with(plan, {"algorithm": algorithm, "protocol": protocol, "expected_s": table})


def _with(plan: Plan, meta: dict[str, Any]) -> Plan:
    return replace(plan, meta=plan.meta | meta)
