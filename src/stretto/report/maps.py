"""Maps: where longitudes and latitudes are drawn, and the coastlines there.

The outlines of land are Natural Earth's (public domain), simplified by ``benchmarks/data/coastlines.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import numpy as np

from ..model.arrays import Bool, Float64
from ..model.topology import Topology

UNIT_DEGREES = 0.05
"""The unit of coordinates in coastlines.txt, degrees."""

Project = Callable[[Float64], Float64]
"""From float64[..., 2] longitude and latitude to the unit square, y downward."""


def geographic(topology: Topology) -> tuple[Float64, Project]:
    """float64[nodes, 2] longitude and latitude of every node, and the projection that fills the unit square with them.

    Distances near the middle keep their shape. The map is cut where the gap between longitudes is widest. A node
    without coordinates is placed beside its neighbours.
    """
    at = topology.xy.copy()
    placed = ~np.isnan(at[:, 0])
    cut = _cut(at[placed, 0])
    at[placed, 0] = cut + (at[placed, 0] - cut) % 360
    low, high = at[placed].min(axis=0), at[placed].max(axis=0)
    middle = (low + high) / 2
    narrow = max(math.cos(math.radians(float(at[placed, 1].mean()))), 0.2)
    span = float(max((high[0] - low[0]) * narrow, high[1] - low[1])) or 1.0
    _place_others(topology, at, placed, middle, span)

    def project(degrees: Float64) -> Float64:
        x = (degrees[..., 0] - middle[0]) * narrow / span + 0.5
        return np.stack((x, 0.5 - (degrees[..., 1] - middle[1]) / span), axis=-1)

    return at, project


def _cut(longitude: Float64) -> float:
    """The longitude just east of the widest gap between longitudes; -180 where that is kept whole."""
    ordered = np.unique(longitude % 360)
    gaps = np.diff(np.append(ordered, ordered[0] + 360))
    k = int(gaps.argmax())
    inside = longitude.min() >= -180.0 and longitude.max() <= 180.0
    if inside and longitude.max() - longitude.min() <= 360 - gaps[k] + 1e-9:
        return -180.0
    return float(ordered[(k + 1) % len(ordered)]) - 1e-9


def _place_others(topology: Topology, at: Float64, placed: Bool, middle: Float64, span: float) -> None:
    """Give each node that has no place one beside its neighbours, else in the middle."""
    for i, v in enumerate(np.flatnonzero(~placed)):
        near = np.concatenate((topology.dst[topology.src == v], topology.src[topology.dst == v]))
        near = near[placed[near]]
        centre = at[near].mean(axis=0) if len(near) else middle
        turn = 2.4 * (i + 1)  # the golden angle: several nodes do not overlap
        at[v] = centre + 0.06 * span * np.array([math.cos(turn), -math.sin(turn)])


@cache
def outlines() -> tuple[Float64, ...]:
    """The outlines of land, longitude and latitude of their points."""
    text = (files(__package__) / "coastlines.txt").read_text(encoding="ascii")
    rings: list[Float64] = []
    for line in text.splitlines():
        steps = np.array([pair.split(",") for pair in line.split()], dtype=np.float64)
        rings.append(np.cumsum(steps, axis=0) * UNIT_DEGREES)
    return tuple(rings)


def land_path(project: Project, low: Float64, high: Float64, scale: float) -> str:
    """The land inside a rectangle as the path of an SVG, one decimal.

    Args:
        project: see :func:`geographic`.
        low, high: corners of the rectangle in the unit square; what is beyond is cut off.
        scale: pixels of the unit square's side. Points that would lie closer than a pixel are left out.
    """
    parts = []
    for ring in outlines():
        for turn in (-360.0, 0.0, 360.0):
            points = project(ring + [turn, 0.0])
            if (points.max(axis=0) < low).any() or (points.min(axis=0) > high).any():
                continue
            inside = _clipped(points, low, high) * scale
            shown = _coarser(inside)
            if len(shown) > 2:
                parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in shown) + "Z")
    return "".join(parts)


def _clipped(points: Float64, low: Float64, high: Float64) -> Float64:
    """A ring cut off at a rectangle (Sutherland and Hodgman, 1974)."""
    for axis in (0, 1):
        for sign, edge in ((1.0, high[axis]), (-1.0, -low[axis])):
            if not len(points):
                return points
            over = sign * points[:, axis] - edge
            following = np.roll(points, -1, axis=0)
            next_over = np.roll(over, -1)
            crosses = (over > 0) != (next_over > 0)
            share = np.divide(over, over - next_over, out=np.zeros_like(over), where=crosses)
            meeting = points + share[:, None] * (following - points)
            both = np.stack((points, meeting), axis=1).reshape(-1, 2)
            points = both[np.stack((over <= 0, crosses), axis=1).ravel()]
    return points


def _coarser(points: Float64) -> Float64:
    """The points of a ring of which each is a pixel or more from the last one."""
    kept: list[int] = []
    for k in range(len(points)):
        if not kept or abs(points[k] - points[kept[-1]]).max() >= 1.0:
            kept.append(k)
    found: Float64 = points[kept]
    return found
