"""Where nodes are drawn: at their coordinates, or in circles by site if they have none."""

from __future__ import annotations

import math

import numpy as np

from ..model.arrays import Float64
from ..model.topology import Topology
from .maps import geographic


def positions(topology: Topology) -> Float64:
    """float64[nodes, 2] in the unit square, y downward.

    Geographic coordinates are projected as on :mod:`.maps`.
    A node without coordinates, among nodes that have some, is placed beside its neighbours.
    """
    xy = topology.xy.copy()
    placed = ~np.isnan(xy[:, 0])
    if topology.geographic and placed.any():
        at, project = geographic(topology)
        return project(at)
    if not placed.any():
        xy = _by_site(topology)
        placed[:] = True
    low, high = np.nanmin(xy, axis=0), np.nanmax(xy, axis=0)
    span = float(max(high - low)) or 1.0
    unit: Float64 = (xy - (low + high) / 2) / span + 0.5
    unit[:, 1] = 1 - unit[:, 1]
    for i, v in enumerate(np.flatnonzero(~placed)):
        near = np.concatenate((topology.dst[topology.src == v], topology.src[topology.dst == v]))
        near = near[placed[near]]
        centre = unit[near].mean(axis=0) if len(near) else np.array([0.5, 0.5])
        turn = 2.4 * (i + 1)  # the golden angle: several nodes do not overlap
        unit[v] = centre + 0.06 * np.array([math.cos(turn), math.sin(turn)])
    return unit


def _by_site(topology: Topology) -> Float64:
    """Each site a circle, the sites on a circle, switches in the middle of theirs."""
    sites = list(dict.fromkeys(topology.sites))
    middles = _circle(len(sites)) * (3.0 * len(sites) / math.pi if len(sites) > 1 else 0.0)
    xy = np.zeros((topology.node_count, 2))
    for site, middle in zip(sites, middles, strict=True):
        here = np.array([name == site for name in topology.sites])
        inner = np.flatnonzero(here & topology.is_switch)
        outer = np.flatnonzero(here & ~topology.is_switch)
        if not len(outer):
            outer, inner = inner, outer
        xy[outer] = middle + _circle(len(outer))
        xy[inner] = middle
        xy[inner, 0] += 0.4 * (np.arange(len(inner)) - (len(inner) - 1) / 2)
    return xy


def _circle(count: int) -> Float64:
    turns = 2 * math.pi * np.arange(count) / count
    return np.column_stack([np.sin(turns), np.cos(turns)])
