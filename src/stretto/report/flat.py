"""Networks node by node: at their places, in circles, or on a map."""

from __future__ import annotations

import math

import numpy as np

from ..model.arrays import Float64
from ..model.topology import ROUTER, Topology
from .labels import around
from .layout import positions
from .maps import geographic, land_path
from .scene import MOST_TITLED, Line, Mark, Scene, pairs_of

SIZE, MARGIN = 800.0, 60.0
LEAST_HEIGHT = 360.0
"""Of a map, pixels."""

NEAR = 13.0
"""Pixels between places on a map that would lie over each other."""


def flat(topology: Topology, label_size: float) -> Scene:
    """Each node at its place, or in a circle around its site's switches."""
    at, height = _fitted(positions(topology))
    scene = Scene(SIZE, height)
    scene.lines = [Line(_point(at[a]), _point(at[b]), i, ends=(a, b)) for a, b, i in pairs_of(topology)]
    scene.lines += [Line(_point(at[a]), _point(at[b])) for a, b in _circuits(topology)]
    small = 6.0 if topology.node_count <= MOST_TITLED else 3.0
    for v, name in enumerate(topology.names):
        scene.marks.append(Mark(*_point(at[v]), int(topology.kind[v]), name, bool(topology.reduces[v]), small))
    _label(scene, list(topology.names), label_size)
    return scene


def on_map(topology: Topology, label_size: float) -> Scene:
    """Places on a map with coastlines: the nodes of a site that are at one place are one mark."""
    degrees, project = geographic(topology)
    unit = project(degrees)
    at, height = _fitted(unit, LEAST_HEIGHT)
    scene = Scene(SIZE, height)
    inside = SIZE - 2 * MARGIN
    shift = at[0] - unit[0] * inside  # the same for all nodes
    low, high = -shift / inside, (np.array([SIZE, height]) - shift) / inside
    scene.land = land_path(lambda d: project(d) + shift / inside, low + shift / inside, high + shift / inside, inside)
    place, members = _places(topology, degrees)
    xy = _apart(np.array([at[nodes[0]] for nodes in members]))
    best: dict[tuple[int, int], int] = {}
    for a, b, i in pairs_of(topology):
        ends = (min(place[a], place[b]), max(place[a], place[b]))
        if ends[0] != ends[1] and (ends not in best or topology.bandwidth[i] > topology.bandwidth[best[ends]]):
            best[ends] = i
    scene.lines = [Line(_point(xy[a]), _point(xy[b]), i, ends=(a, b)) for (a, b), i in best.items()]
    scene.place = place
    here = np.array(place)
    scene.counted = np.flatnonzero(here[topology.src] != here[topology.dst]).tolist()
    names = []
    for nodes, where in zip(members, xy, strict=True):
        kinds = topology.kind[nodes]
        ranks = int((kinds == 0).sum())
        name = topology.names[nodes[0]] if len(nodes) == 1 else topology.sites[nodes[0]]
        names.append(f"{name} ({ranks})" if ranks > 1 else name)
        scene.marks.append(Mark(*_point(where), int(kinds.min()), names[-1]))
    _label(scene, names, label_size)
    if len(members) < topology.node_count:
        scene.notes.append("a mark is a region, with the number of its accelerators; links inside are not drawn")
    scene.notes.append("coastlines: Natural Earth")
    return scene


def _fitted(unit: Float64, least: float = 2 * MARGIN) -> tuple[Float64, float]:
    """Pixels from the unit square, and the height that they need, at least ``least``."""
    at = MARGIN + unit * (SIZE - 2 * MARGIN)
    at[:, 1] -= at[:, 1].min() - MARGIN
    needed = float(at[:, 1].max()) + MARGIN
    height = max(needed, least)
    at[:, 1] += (height - needed) / 2
    return at, height


def _point(row: Float64) -> tuple[float, float]:
    return float(row[0]), float(row[1])


def _places(topology: Topology, degrees: Float64) -> tuple[list[int], list[list[int]]]:
    """The place of each node, and the nodes of each place: nodes of one site with equal coordinates share one."""
    number: dict[object, int] = {}
    place: list[int] = []
    members: list[list[int]] = []
    for v, (site, where) in enumerate(zip(topology.sites, degrees.tolist(), strict=True)):
        key = (site, *where) if site else v
        k = number.setdefault(key, len(number))
        if k == len(members):
            members.append([])
        members[k].append(v)
        place.append(k)
    return place, members


def _apart(xy: Float64) -> Float64:
    """Places that would lie over each other, moved around their common place."""
    moved = xy.copy()
    for k in range(len(moved)):
        turn = 0
        while k and (np.hypot(*(moved[:k] - moved[k]).T) < NEAR).any() and turn < 60:
            turn += 1
            angle, far = 2.4 * turn, NEAR * (1 + 0.15 * turn)
            moved[k] = xy[k] + far * np.array([math.cos(angle), math.sin(angle)])
    return moved


def _label(scene: Scene, names: list[str], size: float) -> None:
    """Names beside marks, where they have room; those of marks with many links first."""
    for mark in scene.marks:
        r = mark.radius
        scene.labels.reserve((mark.x - r, mark.y - r, mark.x + r, mark.y + r))
    if len(names) > 10 * MOST_TITLED:
        scene.labels.left_out += len(names)
        return
    order = sorted(range(len(names)), key=lambda k: (scene.marks[k].kind == ROUTER, k))
    for k in order:
        mark = scene.marks[k]
        scene.labels.add(around(mark.x, mark.y, size, mark.radius + 3), names[k], size, scene.room)


def _circuits(topology: Topology) -> list[tuple[int, int]]:
    """The pairs of nodes that the first matchings of optical planes join, each pair once."""
    joined = [(p.nodes[p.matching >= 0], p.nodes[p.matching[p.matching >= 0]]) for p in topology.planes]
    return sorted({(min(a, b), max(a, b)) for ends in joined for a, b in zip(*(v.tolist() for v in ends), strict=True)})
