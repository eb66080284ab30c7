"""Bounds by cuts on networks whose bandwidths change with time.

All that a set of nodes lacks must be carried over the links that lead in, so it is not inside before the sum of what
these links can have carried, an integral, is as much, and the least of their latencies has passed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..model.arrays import Bool, Float64
from ..model.collective import Workload
from ..model.topology import Topology
from .cuts import as_bound, bytes_into
from .model import Bound


def integral_bounds(topology: Topology, workload: Workload, found: Iterable[Bound]) -> list[Bound]:
    """Bounds of cuts by what links carry in time: around each accelerator, around all nodes but one, and
    the cuts of ``found``.

    Args:
        found: bounds of the network at its best, whose cuts are tried.
    """
    n = topology.node_count
    own = np.zeros((len(topology.accelerators), n), dtype=np.bool_)
    own[np.arange(len(own)), topology.accelerators] = True
    cuts = [
        np.isin(np.arange(n), bound.nodes) for bound in found if bound.kind in ("cut", "node ingress", "node egress")
    ]
    inside = np.concatenate((own, ~own, *(cut[None] for cut in cuts)))
    load = sum((bytes_into(c, inside) for c in workload.collectives), np.zeros(len(inside)))
    begin_s = min(c.start_s for c in workload.collectives)
    widths = np.concatenate((topology.bandwidth[None], topology.changes.widths(topology.bandwidth)))
    bounds = []
    for row in np.flatnonzero(load > 0).tolist():
        enters: Bool = ~inside[row][topology.src] & inside[row][topology.dst]
        if not enters.any():
            continue
        carried_s = _time_to_carry(load[row], begin_s, topology.changes.moments_s, widths[:, enters].sum(axis=1))
        if np.isfinite(carried_s):
            seconds = carried_s + float(topology.latency_s[enters].min())
            mean = load[row] / (carried_s - begin_s)
            bounds.append(as_bound(topology, inside[row], seconds, load[row], mean))
    return bounds


def _time_to_carry(load: float, begin_s: float, moments_s: Float64, width: Float64) -> float:
    """When ``load`` bytes can have passed from ``begin_s``, infinite if never.

    Args:
        width: float64[moments + 1], bytes/s before the first moment, after it, ...
    """
    ends = np.append(moments_s, np.inf)
    begins = np.maximum(np.insert(moments_s, 0, 0.0), begin_s)
    for begin, end, rate in zip(begins.tolist(), ends.tolist(), width.tolist(), strict=True):
        if end > begin and rate > 0:
            if load <= rate * (end - begin):
                return float(begin + load / rate)
            load -= rate * (end - begin)
    return float("inf")
