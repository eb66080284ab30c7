"""Sets of nodes worth trying as cuts, without max-flows: single nodes, servers, sites, unions and pairs.

Sets that are narrow by bandwidth need not be those that bytes enter latest: a wide link over which bytes come near the
end alone is narrow. So sets are also sought where each link is as wide as what it can carry by the best bound so far
(:func:`narrowed_by_time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.topology import Topology

ALL_CUTS_UP_TO = 11
"""With as many accelerators or fewer, every cut is tried."""

UNIONS_UP_TO = 8
"""With as many sites or servers or fewer, cuts around their unions are tried."""

PAIRS_UP_TO = 2000
"""With as many links or fewer, cuts around linked pairs are tried."""

MOST_ROUNDS = 4
"""Rounds in which switches and routers may change sides."""

MOST_TURNS, LATER = 3, 1.001
"""Times that sets are sought again by the best bound so far, and times by which that must have raised it before."""

UNEVEN, LEAST_LEFT = 1.01, 1e-6
"""Ratio of the largest to the least share of the time that links have, from which sets are sought again; and the least
share that a link counts with."""


def narrowed_by_time(topology: Topology, near: Float64, end_s: float) -> Topology | None:
    """The network in which each link is as wide, all the time, as what it can bring from a rank to a rank by the end.

    None if that narrows all links about alike.

    Args:
        near: float64[nodes, nodes], least seconds from node to node.
        end_s: seconds after the start.
    """
    ends = topology.accelerators
    wait_s = near[ends][:, topology.src].min(axis=0) + topology.latency_s + near[topology.dst][:, ends].min(axis=1)
    left = np.maximum(1.0 - wait_s / end_s, LEAST_LEFT) if end_s > 0 else np.ones(topology.link_count)
    if topology.planes or left.max() < UNEVEN * left.min():
        return None
    return replace(topology, bandwidth=topology.bandwidth * left)


def candidate_cuts(topology: Topology) -> Bool:
    """bool[cuts, nodes]: each set once, with switches and routers on the side on which they narrow it most."""
    everyone = frozenset(topology.accelerators.tolist())
    groups = dict.fromkeys(group for group in map(frozenset, _groups(topology)) if 0 < len(group) < len(everyone))
    sets = [members for group in groups for members in (group, everyone - group)]
    inside = np.zeros((len(sets), topology.node_count), dtype=np.bool_)
    for row, members in zip(inside, sets, strict=True):
        row[list(members)] = True
    return settled(topology, inside) if len(everyone) < topology.node_count else inside


def _groups(topology: Topology) -> Iterator[Iterable[int]]:
    """Single accelerators; then all sets of them where there are few, else sites, servers, unions and linked pairs."""
    accelerators = topology.accelerators.tolist()
    yield from ([v] for v in accelerators)
    if len(accelerators) <= ALL_CUTS_UP_TO:
        for size in range(2, len(accelerators) // 2 + 1):
            yield from combinations(accelerators, size)
        return
    for groups in clusters(topology):
        for size in range(1, len(groups) // 2 + 1 if len(groups) <= UNIONS_UP_TO else 2):
            yield from map(chain.from_iterable, combinations(groups, size))
    if topology.link_count <= PAIRS_UP_TO:
        joined = topology.is_accelerator[topology.src] & topology.is_accelerator[topology.dst]
        yield from zip(topology.src[joined].tolist(), topology.dst[joined].tolist(), strict=True)


def clusters(topology: Topology) -> list[list[list[int]]]:
    """Ways to divide the accelerators into several groups, some larger than one.

    They are sites, what fast links join, and what switches and routers of the lower tiers join, such as the servers
    below the same leaf switches.
    """
    accelerators = topology.accelerators
    levels: list[list[list[int]]] = []
    if any(topology.sites[v] for v in accelerators):
        by_site: dict[str, list[int]] = {}
        for v in map(int, accelerators):
            by_site.setdefault(topology.sites[v], []).append(v)
        levels.append(list(by_site.values()))
    for bandwidth in np.unique(topology.bandwidth)[::-1][:16]:
        levels.append(_components(topology, topology.bandwidth >= bandwidth))
    tier = _tiers(topology)
    for highest in range(1, int(tier[tier < topology.node_count].max(initial=0))):
        levels.append(_components(topology, (tier[topology.src] <= highest) & (tier[topology.dst] <= highest)))
    return [groups for groups in levels if 1 < len(groups) < len(accelerators)]


def _tiers(topology: Topology) -> Int64:
    """int64[nodes], links from the nearest accelerator to each; as many as nodes where none leads there."""
    tier = np.where(topology.is_accelerator, 0, topology.node_count)
    while True:
        before = tier.copy()
        np.minimum.at(tier, topology.dst, before[topology.src] + 1)
        if np.array_equal(before, tier):
            return tier


def _components(topology: Topology, usable: Bool) -> list[list[int]]:
    """The accelerators of each part of the network that the usable links join."""
    label = np.arange(topology.node_count)
    src, dst = topology.src[usable], topology.dst[usable]
    changed = True
    while changed:
        low = np.minimum(label[src], label[dst])
        before = label.copy()
        np.minimum.at(label, src, low)
        np.minimum.at(label, dst, low)
        label = label[label]
        changed = not np.array_equal(label, before)
    parts: dict[int, list[int]] = {}
    for v in map(int, topology.accelerators):
        parts.setdefault(int(label[v]), []).append(v)
    return list(parts.values())


def settled(topology: Topology, inside: Bool) -> Bool:
    """The cuts with switches and routers on the side on which they narrow each.

    They move one at a time, once from all outside and once from all inside, and the narrower cut is kept.
    """
    movable = np.flatnonzero(~topology.is_accelerator)
    begun_outside, begun_inside = inside.copy(), inside.copy()
    begun_outside[:, movable], begun_inside[:, movable] = False, True
    for placed in (begun_outside, begun_inside):
        _move(topology, placed, movable)
    narrower = width_into(topology, begun_inside) < width_into(topology, begun_outside)
    return np.where(narrower[:, None], begun_inside, begun_outside)


def _move(topology: Topology, inside: Bool, movable: Int64) -> None:
    """Move nodes to the side on which they narrow each cut, in place, until none moves or the rounds are over."""
    for _ in range(MOST_ROUNDS):
        before = inside.copy()
        for v in map(int, movable):
            leaving, entering = topology.out_links[v], topology.in_links[v]
            # if v is outside, its links into the set count; if it is inside, the links into v from outside
            if_outside = inside[:, topology.dst[leaving]] @ topology.bandwidth[leaving]
            if_inside = ~inside[:, topology.src[entering]] @ topology.bandwidth[entering]
            inside[:, v] = if_inside < if_outside
        if np.array_equal(before, inside):
            break


def width_into(topology: Topology, inside: Bool) -> Float64:
    """float64[cuts]: bytes/s that can enter each set."""
    enters = inside[:, topology.dst] & ~inside[:, topology.src]
    width: Float64 = enters @ topology.bandwidth
    for plane in topology.planes:
        ports = inside[:, plane.nodes]
        width = width + np.minimum(ports.sum(axis=1), (~ports).sum(axis=1)) * plane.bandwidth
    return width
