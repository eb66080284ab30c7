"""Concurrent flow: paths for data that is not copied, such that all links are about equally busy.

This is the maximum concurrent flow by selfish rerouting (:mod:`.kernel_concurrent`): data in units, each of which takes
one path. A planner uses the paths; a bound uses the prices of links as their lengths (:mod:`.lengths`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64
from ..model.topology import ACCELERATOR, Topology
from . import kernel_concurrent

ROUNDS = (10, 50)
"""The fewest and the most; in between, the amount of work decides."""

WORK = 400_000
"""How much work there is: units times rounds."""

POWERS = (4.0, 64.0)
"""The power of the first round and of the last."""

HOP = 0.02
"""What as many hops as there are nodes cost besides the prices of the links, the largest of which is about 1."""

TINY = 1e-30


class ConcurrentFlow(NamedTuple):
    """Where units go, and what that says of links."""

    path: Int64  # int64[units, most], the links of each unit's path, then -1
    full: Float64  # float64[links], how near each link is to the busiest: 1 for that, much less for links less busy


def concurrent_flow(topology: Topology, source: Int64, goal: Int64, size: Float64, wait: float = 1.0) -> ConcurrentFlow:
    """Paths that load links evenly; of paths that do so equally well, short ones.

    Args:
        source, goal: int64[units], nodes; units of the same source follow each other.
        size: float64[units], bytes.
        wait: what latency costs. A latency as long as the time for which some node must be busy costs this many times
            the price of the busiest link.
    """
    sources, first = np.unique(source, return_index=True)
    rounds = int(np.clip(WORK / max(len(source), 1), *ROUNDS))
    path = np.full((len(source), topology.node_count), -1, dtype=np.int32)
    offsets, links = topology.out_links
    tie = HOP / topology.node_count + wait * topology.latency_s / _least(topology, source, goal, size)
    length = at_speed(kernel_concurrent.spread, 30.0 * rounds * (len(source) + len(sources) * topology.link_count))(
        offsets, links.astype(np.int64), topology.src.astype(np.int64), topology.dst.astype(np.int64),
        topology.bandwidth, tie, topology.transit | (topology.forwarding == ACCELERATOR),
        np.append(first, len(source)), sources, goal, size, np.geomspace(*POWERS, rounds), path,
        np.zeros(len(source), dtype=np.int64),
    )  # fmt: skip
    longest = int((path >= 0).sum(axis=1).max(initial=0))
    price = length * topology.bandwidth
    return ConcurrentFlow(path[:, :longest].astype(np.int64), price / max(price.max(), TINY))


def _least(topology: Topology, source: Int64, goal: Int64, size: Float64) -> float:
    """Seconds for which the busiest node must send or receive, whatever the paths."""
    needs = [0.0]
    for nodes, ends in ((source, topology.src), (goal, topology.dst)):
        width = np.bincount(ends, topology.bandwidth, topology.node_count)
        needs += (np.bincount(nodes, size, topology.node_count)[nodes] / width[nodes]).tolist()
    return max(*needs, TINY)
