"""Concurrent flow: paths for data that is not copied that keep all links about equally busy, and dual lengths.

The maximum concurrent flow by selfish rerouting (:mod:`.kernel_concurrent`): units of data that each take one
path. The paths are a plan's, the prices of links the lengths of a bound (:mod:`.lengths`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64
from ..model.topology import ACCELERATOR, Topology
from . import kernel_concurrent

ROUNDS = (10, 50)
"""At least and at most, as the work allows."""

WORK = 400_000
"""Units times rounds."""

POWERS = (4.0, 64.0)
"""The power of the first round and of the last."""

HOP = 0.02
"""What a link costs beside its price, which is 1 for the busiest of the widest: as many hops as there are nodes."""

TINY = 1e-30


class ConcurrentFlow(NamedTuple):
    """Where units go, and what that says of links.

    Attributes:
        path: int64[units, most], the links of each unit's path, then -1.
        full: float64[links], how near each is to the busiest one: 1 for that, much less for others that are less busy.
    """

    path: Int64
    full: Float64


def concurrent_flow(topology: Topology, source: Int64, goal: Int64, size: Float64, wait: float = 1.0) -> ConcurrentFlow:
    """Paths that load links alike, short ones among equals.

    Args:
        source, goal: int64[units], nodes; units of one source are together.
        size: float64[units], bytes.
        wait: what latency costs: so many times the price of the busiest link for as long as some node is busy at least.
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
    """Seconds for which some node must send or receive."""
    needs = [0.0]
    for nodes, ends in ((source, topology.src), (goal, topology.dst)):
        width = np.bincount(ends, topology.bandwidth, topology.node_count)
        needs += (np.bincount(nodes, size, topology.node_count)[nodes] / width[nodes]).tolist()
    return max(*needs, TINY)
