"""Sets of nodes worth trying as cuts, without max-flows: servers, sites, single nodes and pairs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.collective import Workload
from ..model.topology import ACCELERATOR, Topology

ALL_CUTS_UP_TO = 11
"""With as many accelerators or fewer, every cut is tried."""

ALL_SIDES_UP_TO = 4
"""With as many switches and routers or fewer, each is tried on both sides of every cut."""

MOST_ROUNDS = 4
"""Where there are more of them: in how many rounds they may change sides."""


def candidate_cuts(topology: Topology, workload: Workload) -> Bool:
    """bool[cuts, nodes]: each set once, with switches and routers on the side on which they narrow it most."""
    accelerators = topology.accelerators
    groups: dict[frozenset[int], None] = {}

    def add(nodes: Iterable[int]) -> None:
        group = frozenset(map(int, nodes))
        if 0 < len(group) < len(accelerators):
            groups.setdefault(group)

    for v in accelerators:
        add([v])
    if len(accelerators) <= ALL_CUTS_UP_TO:
        for size in range(2, len(accelerators) // 2 + 1):
            for some in combinations(map(int, accelerators), size):
                add(some)
    else:
        _add_clusters(topology, add)
    everyone = frozenset(map(int, accelerators))
    rows = []
    for group in groups:
        for members in (group, everyone - group):
            row = np.zeros(topology.node_count, dtype=np.bool_)
            row[list(members)] = True
            rows.append(row)
    inside = np.array(rows)
    if len(accelerators) < topology.node_count:
        inside = _settle(topology, inside)
    return inside


def _add_clusters(topology: Topology, add: object) -> None:
    """Sites, servers, their unions, and linked pairs."""
    assert callable(add)
    for groups in clusters(topology):
        most = len(groups) // 2 if len(groups) <= 8 else 1
        for size in range(1, most + 1):
            for union in combinations(groups, size):
                add(v for group in union for v in group)
        if len(groups) > 8:
            for end in range(2, len(groups)):
                add(v for group in groups[:end] for v in group)
    if topology.link_count <= 2000:
        kinds = topology.kind
        for a, b in zip(topology.src, topology.dst, strict=True):
            if kinds[a] == ACCELERATOR and kinds[b] == ACCELERATOR:
                add((a, b))


def clusters(topology: Topology) -> list[list[list[int]]]:
    """Ways to divide the accelerators into several groups, some larger than one: sites, and what fast links join."""
    accelerators = topology.accelerators
    levels: list[list[list[int]]] = []
    if any(topology.sites[v] for v in accelerators):
        by_site: dict[str, list[int]] = {}
        for v in map(int, accelerators):
            by_site.setdefault(topology.sites[v], []).append(v)
        levels.append(list(by_site.values()))
    for bandwidth in np.unique(topology.bandwidth)[::-1][:16]:
        levels.append(_components(topology, topology.bandwidth >= bandwidth))
    return [groups for groups in levels if 1 < len(groups) < len(accelerators)]


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


def _settle(topology: Topology, inside: Bool) -> Bool:
    """Put switches and routers on the side on which they narrow each cut.

    Where few nodes can move, all ways are tried. Else they move one at a time, once from all outside and once from all
    inside, and the narrower cut is kept.
    """
    movable = np.flatnonzero(~topology.is_accelerator)
    if len(movable) <= ALL_SIDES_UP_TO:
        starts = [np.array(sides, dtype=np.bool_) for sides in product((False, True), repeat=len(movable))]
        moves = False
    else:
        starts, moves = [np.zeros(len(movable), np.bool_), np.ones(len(movable), np.bool_)], True
    best, best_width = inside, np.full(len(inside), np.inf)
    for sides in starts:
        placed = inside.copy()
        placed[:, movable] = sides
        if moves:
            _move(topology, placed, movable)
        width = width_into(topology, placed)
        narrower = width < best_width
        best = np.where(narrower[:, None], placed, best)
        best_width = np.minimum(width, best_width)
    return best


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
