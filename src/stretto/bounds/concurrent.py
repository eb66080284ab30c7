"""Concurrent flow: paths for data that is not copied, such that all links are about equally busy.

This is the maximum concurrent flow by selfish rerouting (:mod:`.kernel_concurrent`): data in units, each of which takes
one path. A planner uses the paths; a bound uses the prices of links as their lengths (:mod:`.lengths`).

In each round there is one search for paths from each source. Where there are fewer goals than sources (Gather), all
links are turned round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..kernels import paths as paths_kernel
from ..model.arrays import Float64, Int32, Int64
from ..model.changes import NO_CHANGES
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

MOST_ENTRIES = 16_000_000
"""Links of paths for which there is room from the start, 4 bytes each. If paths that pass every node need more, paths
may first have no more than ``DETOUR`` times the hops of the farthest pair."""

DETOUR = 2


class ConcurrentFlow(NamedTuple):
    """Where units go, and what that says of links."""

    path: Int64  # int64[units, most], the links of each unit's path, then -1
    full: Float64  # float64[links], how near each link is to the busiest: 1 for that, much less for links less busy


def concurrent_flow(
    topology: Topology, source: Int64, goal: Int64, size: Float64, latency_s: Float64 | None = None
) -> ConcurrentFlow:
    """Paths that load links evenly; of paths that do so equally well, short ones.

    Args:
        source, goal: int64[units], nodes; units of the same source follow each other.
        size: float64[units], bytes.
        latency_s: float64[links], what counts as latency; None if it does not count.
    """
    if len(np.unique(goal)) < len(np.unique(source)):
        order = np.argsort(goal, kind="stable")
        turned = replace(topology, src=topology.dst, dst=topology.src, changes=NO_CHANGES)
        flow = concurrent_flow(turned, goal[order], source[order], size[order], latency_s)
        back = np.argsort(order, kind="stable")
        return ConcurrentFlow(_turned(flow.path)[back], flow.full)
    sources, first = np.unique(source, return_index=True)
    rounds = int(np.clip(WORK / max(len(source), 1), *ROUNDS))
    offsets, links = topology.out_links
    late_s = np.zeros(topology.link_count) if latency_s is None else latency_s
    run = at_speed(kernel_concurrent.spread, 30.0 * rounds * (len(source) + len(sources) * topology.link_count))
    most = _most_hops(topology, sources, goal)
    while True:
        path: Int32 = np.full((len(source), most), -1, dtype=np.int32)
        hops = np.zeros(len(source), dtype=np.int64)
        length = run(
            offsets, links.astype(np.int64), topology.src.astype(np.int64), topology.dst.astype(np.int64),
            topology.bandwidth, late_s, HOP / topology.node_count,
            topology.transit | (topology.forwarding == ACCELERATOR),
            np.append(first, len(source)), sources, goal, size, np.geomspace(*POWERS, rounds), path, hops,
        )  # fmt: skip
        if hops.all():
            break
        most = min(2 * most, topology.node_count)
    price = length * topology.bandwidth
    return ConcurrentFlow(path[:, : int(hops.max(initial=0))].astype(np.int64), price / max(price.max(), TINY))


def _most_hops(topology: Topology, sources: Int64, goal: Int64) -> int:
    """Hops for which each path has room at first."""
    if len(goal) * topology.node_count <= MOST_ENTRIES:
        return topology.node_count
    hops = at_speed(paths_kernel.distances, 30.0 * len(sources) * topology.link_count)(
        *topology.out_links, topology.dst.astype(np.int64), np.ones(topology.link_count),
        np.arange(len(sources) + 1), sources,
    )  # fmt: skip
    return min(max(int(DETOUR * hops[:, np.unique(goal)].max()), 1), topology.node_count)


def _turned(path: Int64) -> Int64:
    """Paths with the last link first."""
    place = (path >= 0).sum(axis=1)[:, None] - 1 - np.arange(path.shape[1])
    turned: Int64 = np.where(place >= 0, np.take_along_axis(path, np.maximum(place, 0), axis=1), -1)
    return turned
