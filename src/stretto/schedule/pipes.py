"""Pipes: the ways between nodes that store, with regions and goals, as arrays for event loops.

A *pipe* joins two nodes that store: a link, or several through switches. A *region* is a set of
accelerators that reach each other without routers: a datacenter. A *goal* is where a chunk must
come: a region whose accelerators all want it, or else each single node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..kernels import paths as paths_kernel
from ..kernels import pipes as pipes_kernel
from ..kernels.pipes import Goals
from ..kernels.steps import Steps
from ..model.arrays import Bool, Float64, Int64, Ragged, offsets_of
from ..model.collective import Workload
from ..model.topology import ACCELERATOR, Topology
from .moments import path_delays

LACKS_WANTED, LACKS, HELD = -1, -2, -9
"""What a node knows of a chunk at first; see :mod:`stretto.planners.scale_ccl.kernel_states`."""


@dataclass(frozen=True, eq=False)
class Network:
    """The pipes of a topology, for chunks of a typical size. What only some planners ask for is found when they do."""

    topology: Topology
    src: Int64  # int64[pipes]
    dst: Int64
    hops: Ragged  # the links of each pipe
    late_s: Float64  # float64[hops], how much later than a pipe's beginning each carries the bytes
    latency_s: Float64  # float64[pipes]
    per_byte: Float64  # float64[pipes], seconds a byte
    cost_s: Float64  # float64[pipes], seconds of a typical chunk

    @cached_property
    def columns(self) -> pipes_kernel.Pipes:
        """The pipes as kernels take them."""
        links = self.hops.values.astype(np.int64)
        return pipes_kernel.Pipes(
            self.src, self.dst, self.hops.offsets, links, self.late_s, self.latency_s, self.per_byte, *self.out,
            self.steps,
        )  # fmt: skip

    @cached_property
    def steps(self) -> Steps:
        """How pipes change with time: a pipe is as fast as its slowest link, as its bytes come there."""
        net, changes = self.topology, self.topology.changes
        if not changes:
            return Steps(np.zeros(len(self.src) + 1, dtype=np.int64), np.zeros(0), np.zeros(0))
        of_link = changes.offsets(net.link_count)
        rows: list[tuple[Float64, Float64]] = []
        for pipe in range(len(self.src)):
            hops = range(int(self.hops.offsets[pipe]), int(self.hops.offsets[pipe + 1]))
            own = [(int(link), float(self.late_s[i])) for i, link in zip(hops, self.hops[pipe], strict=True)]
            at = [changes.at_s[of_link[link] : of_link[link + 1]] - late for link, late in own]
            moments = np.unique(np.concatenate(at))
            width = np.full(len(moments), np.inf)
            for (link, _), when in zip(own, at, strict=True):
                given = np.insert(changes.bandwidth[of_link[link] : of_link[link + 1]], 0, net.bandwidth[link])
                width = np.minimum(width, given[np.searchsorted(when, moments, side="right")])
            rows.append((moments, np.divide(1.0, width, out=np.full(len(width), np.inf), where=width > 0)))
        lengths = np.array([len(moments) for moments, _ in rows], dtype=np.int64)
        return Steps(offsets_of(lengths), *(np.concatenate(column) for column in zip(*rows, strict=True)))

    @cached_property
    def share(self) -> Float64:
        """float64[hops], how much of each link its pipe uses, which is as fast as its slowest link.

        All of it where bandwidths change, since nobody knows what will be left.
        """
        if self.topology.changes:
            return np.ones(len(self.hops.values))
        return 1.0 / (self.per_byte[self.hops.owners] * self.topology.bandwidth[self.hops.values])

    @cached_property
    def out(self) -> tuple[Int64, Int64]:
        """CSR of the pipes that leave each node."""
        return _csr(self.src, self.topology.node_count)

    @cached_property
    def into(self) -> tuple[Int64, Int64]:
        """CSR of the pipes that enter each node."""
        return _csr(self.dst, self.topology.node_count)

    @cached_property
    def users(self) -> tuple[Int64, Int64]:
        """CSR of the pipes over each link."""
        offsets, indexes = _csr(self.hops.values, self.topology.link_count)
        return offsets, self.hops.owners[indexes]

    @cached_property
    def region(self) -> Int64:
        """int64[nodes], the region of each accelerator, -1 elsewhere."""
        through = self.topology.forwarding[self.topology.dst[self.hops.values]] == 1
        routed = np.add.reduceat(through.astype(np.int64), self.hops.offsets[:-1]) > 0
        return _regions(self.topology, self.src[~routed], self.dst[~routed])

    @cached_property
    def unlike(self) -> Bool:
        """bool[nodes], accelerators of a region of which some are joined to other nodes outside than others."""
        return _unlike(self.region, self.src, self.dst)

    @cached_property
    def slow(self) -> Bool:
        """bool[pipes], whether a faster pipe leads to the same node, or may at some time, since this one changes."""
        least = np.full(self.topology.node_count, np.inf)
        np.minimum.at(least, self.dst, self.cost_s)
        slow: Bool = self.cost_s > least[self.dst] * (1 + 1e-9)
        return slow | (np.diff(self.steps.offsets) > 0)


def build_network(
    topology: Topology, typical_bytes: float, through_routers: bool, work: float, ways: int = 1
) -> Network:
    """The pipes of a topology.

    Args:
        through_routers: pass through routers too, instead of storing there.
        work: what will be done with it, to choose the speed of the kernels.
        ways: pipes from one node to another through nodes that pass bytes on, at most.
    """
    passed = topology.forwarding != ACCELERATOR if through_routers else topology.is_switch
    link_s = topology.latency_s + typical_bytes / topology.bandwidth
    ends = topology.src.astype(np.int64), topology.dst.astype(np.int64)
    if not passed.any():
        return Network(
            topology, ends[0], ends[1], Ragged.single(np.arange(topology.link_count)),
            np.zeros(topology.link_count), topology.latency_s, 1.0 / topology.bandwidth, link_s,
        )  # fmt: skip
    offsets, links = topology.out_links
    src, dst, *lists = at_speed(pipes_kernel.find_pipes, work)(
        offsets, links.astype(np.int64), *ends, link_s, passed, ways
    )
    src, dst = src.astype(np.int64), dst.astype(np.int64)  # no pipes are lists without a type
    hops = Ragged(lists[0].astype(np.int64), lists[1].astype(np.int32))
    late_s, latency = path_delays(topology, hops)
    per_byte = 1.0 / topology.route_bandwidth(hops)
    return Network(topology, src, dst, hops, late_s, latency, per_byte, latency + typical_bytes * per_byte)


def _csr(keys: NDArray[Any], n: int) -> tuple[Int64, Int64]:
    offsets, indexes = Ragged.grouped(keys, np.arange(len(keys)), n)
    return offsets, indexes.astype(np.int64)


def _regions(topology: Topology, src: Int64, dst: Int64) -> Int64:
    """int64[nodes]: the strongly connected parts that the accelerators form with these pipes."""
    inside = topology.is_accelerator[src]
    src, dst = src[inside], dst[inside]
    region = np.full(topology.node_count, -1, dtype=np.int64)
    count = 0
    for v in map(int, topology.accelerators):
        if region[v] < 0:
            open_to = region < 0
            region[_spread(v, src, dst, open_to) & _spread(v, dst, src, open_to)] = count
            count += 1
    return region


def _unlike(region: Int64, src: Int64, dst: Int64) -> Bool:
    leave = (region[src] >= 0) & (region[src] != region[dst])
    outside: dict[int, set[int]] = {}
    for u, v in zip(src[leave].tolist(), dst[leave].tolist(), strict=True):
        outside.setdefault(u, set()).add(v)
    found = np.zeros(int(region.max(initial=0)) + 1, dtype=np.bool_)
    first: dict[int, set[int]] = {}
    for u, nodes in outside.items():
        r = int(region[u])
        found[r] |= first.setdefault(r, nodes) != nodes
    return found[region] & (region >= 0)


def _spread(node: int, src: Int64, dst: Int64, allowed: Bool) -> Bool:
    """bool[nodes]: where one comes from a node over allowed nodes."""
    reached = np.zeros(len(allowed), dtype=np.bool_)
    reached[node] = True
    while True:
        fresh = dst[reached[src] & ~reached[dst] & allowed[dst]]
        if not len(fresh):
            return reached
        reached[fresh] = True


def set_goals(topology: Topology, network: Network, workload: Workload, work: float) -> Goals:
    """Where each chunk of a workload must come, and from which holder."""
    nodes, chunks = topology.node_count, workload.chunk_count
    holders, wanted = workload.chunk_holders, workload.chunk_wanted
    came = np.full((chunks, nodes), LACKS, dtype=np.int32)
    came[wanted.owners, wanted.values] = LACKS_WANTED
    came[holders.owners, holders.values] = HELD
    regions = int(network.region.max()) + 1
    members = np.bincount(network.region[topology.accelerators], minlength=regions)
    # a chunk's goals are regions if everyone wants or holds it in each region that it must come to
    served = np.zeros((chunks, regions), dtype=np.int64)
    lacking = np.zeros((chunks, regions), dtype=np.bool_)
    for v in map(int, topology.accelerators):
        served[:, network.region[v]] += came[:, v] != LACKS
        lacking[:, network.region[v]] |= came[:, v] == LACKS_WANTED
    whole_region = (~lacking | (served == members)).all(axis=1)
    holds = np.zeros((chunks, regions), dtype=np.bool_)
    holds[holders.owners, network.region[holders.values]] = True
    regional = np.argwhere((lacking & ~holds) & whole_region[:, None])
    alone = np.argwhere((came == LACKS_WANTED) & ~whole_region[:, None])
    owner = np.concatenate((regional[:, 0], alone[:, 0]))
    goal = np.concatenate((regional[:, 1], alone[:, 1] + regions))
    places = Ragged.of([np.flatnonzero(network.region == r).astype(np.int32) for r in range(regions)])
    if len(alone):
        places = Ragged(
            np.concatenate((places.offsets, places.offsets[-1] + 1 + np.arange(nodes))),
            np.concatenate((places.values, np.arange(nodes, dtype=np.int32))),
        )
    if not len(goal):
        places = Ragged(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    distance = at_speed(paths_kernel.distances, work)(
        *network.into, network.src, network.cost_s, places.offsets, places.values.astype(np.int64)
    )
    near, far = _nearest(holders, owner, goal, distance)
    # near goals first: the way to a far one may be that of a near one
    order = np.lexsort((goal, far, owner))
    owner, goal, near = owner[order], goal[order], near[order]
    at_goal = np.zeros(distance.shape, dtype=np.bool_)
    at_goal[places.owners, places.values] = True
    beside = np.zeros(distance.shape, dtype=np.bool_)
    for g in range(len(distance)):
        beside[g, network.src[at_goal[g, network.dst]]] = True
    return Goals(
        came=came.ravel(),
        whole_region=whole_region,
        offsets=offsets_of(np.bincount(owner, minlength=chunks)),
        goal=goal.astype(np.int64),
        near=near,
        distance=distance,
        beside=beside,
        single=regions,
    )


def _nearest(holders: Ragged, owner: Int64, goal: Int64, distance: Float64) -> tuple[Int64, Float64]:
    """int64, float64[goals of chunks]: the holder of each chunk that is nearest to the goal, and how far it is."""
    lists = holders.take(owner)
    far = distance[np.repeat(goal, lists.lengths), lists.values]
    first = np.lexsort((far, lists.owners))[lists.offsets[:-1]]
    return lists.values[first].astype(np.int64), far[first]
