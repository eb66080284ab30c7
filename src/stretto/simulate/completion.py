"""When the ranks of each collective have all that they want."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64
from ..model.plan import Plan

LARGEST_TABLE = 1 << 26
"""Most pairs of a chunk and a node for which a table of bytes says who wants what: 64 MiB."""


def completions_s(plan: Plan, arrival_s: Float64) -> Float64:
    """float64[collectives], seconds from each collective's start until the last byte that some rank wants.

    Args:
        arrival_s: float64[receivers], when each receiver of each transfer has its bytes.
    """
    workload, owners = plan.workload, plan.dst.owners
    chunk = plan.chunk[owners].astype(np.int64)
    wanted = workload.chunk_wanted
    nodes = plan.topology.node_count
    if workload.chunk_count * nodes <= LARGEST_TABLE:
        wants = np.zeros(workload.chunk_count * nodes, dtype=np.bool_)
        wants[wanted.owners * nodes + wanted.values] = True
        counts = wants[chunk * nodes + plan.dst.values]
    else:
        counts = np.isin(chunk * nodes + plan.dst.values, wanted.owners * nodes + wanted.values)
    starts = np.array([c.start_s for c in workload.collectives])
    last = starts.copy()
    collective = workload.chunk_collective[plan.chunk[owners]]
    np.maximum.at(last, collective[counts], arrival_s[counts])
    completions: Float64 = last - starts
    return completions
