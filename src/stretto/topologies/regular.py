"""Regular networks: rings, meshes, tori, hypercubes, full meshes, stars and fat trees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from ..model.units import parse_bandwidth, parse_time
from ..model.variants import storing
from . import SWITCHES, Family, Setting, check_size, numbers
from .draft import circle

SETTINGS = (
    Setting("bandwidth", parse_bandwidth, 25e9, "of every link"),
    Setting("latency", parse_time, 0.7e-6, "of every link"),
)
SWITCHED = (*SETTINGS, SWITCHES)

Pairs = Iterable[tuple[int, int]]


def _build(
    spec: str, settings: dict[str, Any], pairs: Pairs, ranks: int, switches: int = 0, xy: Any = None,
    sites: list[str] | None = None,
) -> Topology:  # fmt: skip
    """Accelerators and switches, with equal links in both directions of each undirected pair; drawn as a circle."""
    one_way = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    n = ranks + switches
    directed = np.unique(np.concatenate([one_way, one_way[:, ::-1]]) @ [n, 1])
    links = np.empty((len(directed), 4))
    links[:, 0], links[:, 1] = np.divmod(directed, n)
    links[:, 2:] = settings["bandwidth"], settings["latency"]
    kinds = [ACCELERATOR] * ranks + [SWITCH] * switches
    xy = [*circle(ranks), *[(0.0, 0.0)] * switches] if xy is None else xy
    built = make_topology(spec, kinds, links, xy=xy, sites=sites, where=spec)
    return storing(built) if settings.get(SWITCHES.name) else built


def _ring(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    (n,) = numbers(arguments, spec, "ring:N", 2)
    check_size(n, 2 * n, spec)
    return _build(spec, settings, ((v, (v + 1) % n) for v in range(n)), n)


def _line(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    (n,) = numbers(arguments, spec, "line:N", 2)
    check_size(n, 2 * n, spec)
    return _build(spec, settings, ((v, v + 1) for v in range(n - 1)), n, xy=[(float(v), 0.0) for v in range(n)])


def _grid(arguments: list[str], settings: dict[str, Any], spec: str, wraps: bool) -> Topology:
    name = "torus" if wraps else "mesh"
    sides = numbers(arguments, spec, f"{name}:AxB or {name}:AxBxC", 1, most=3)
    n = math.prod(sides)
    if n < 2:
        raise InputError("at least two nodes are needed", spec)
    check_size(n, 2 * len(sides) * n, spec)
    pairs = [pair for axis in range(len(sides)) for pair in axis_pairs(sides, axis, wraps)]
    return _build(spec, settings, pairs, n, xy=grid_positions(sides))


def axis_pairs(sides: Sequence[int], axis: int, wraps: bool) -> list[tuple[int, int]]:
    """The nodes of a grid, numbered row by row, that are joined along one axis."""
    grid = np.arange(math.prod(sides)).reshape(sides)
    after = np.roll(grid, -1, axis)
    last = sides[axis] if wraps and sides[axis] > 1 else sides[axis] - 1
    return list(zip(*(nodes.take(range(last), axis).ravel().tolist() for nodes in (grid, after))))


def grid_positions(sides: Sequence[int]) -> list[tuple[float, float]]:
    """Where the nodes of a grid are drawn; the third axis is depth."""
    flat = [(*cell, 0, 0)[:3] for cell in product(*map(range, sides))]
    return [(float(b) + 0.35 * c, -float(a) + 0.35 * c) for a, b, c in flat]


def _hypercube(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    (d,) = numbers(arguments, spec, "hypercube:D", 1)
    if d > 17:
        raise InputError(f"2^{d} nodes are too many", spec)
    check_size(2**d, d * 2**d, spec)
    return _build(spec, settings, ((v, v ^ (1 << bit)) for v in range(2**d) for bit in range(d)), 2**d)


def _fullmesh(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    (n,) = numbers(arguments, spec, "fullmesh:N", 2)
    check_size(n, n * (n - 1), spec)
    return _build(spec, settings, combinations(range(n), 2), n)


def _star(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    (n,) = numbers(arguments, spec, "star:N", 2)
    check_size(n + 1, 2 * n, spec)
    return _build(spec, settings, ((v, n) for v in range(n)), n, 1)


def _fattree(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """k pods of k/2 edge and k/2 aggregation switches, k/2 hosts an edge switch, (k/2)^2 cores."""
    (k,) = numbers(arguments, spec, "fattree:K", 2)
    if k % 2:
        raise InputError("K must be even", spec)
    half, hosts = k // 2, k**3 // 4
    check_size(hosts + 5 * half * half, 6 * hosts, spec)
    pairs = [(h, hosts + h // half) for h in range(hosts)]
    pairs += [(hosts + a, hosts + b) for a, b in fat_tree_pairs(k, k)]
    sites = [f"pod{h // half**2}" for h in range(hosts)]
    sites += [f"pod{s // half}" for _ in range(2) for s in range(k * half)] + [""] * half**2
    levels = ((hosts, 0.0), (k * half, 1.0), (k * half, 2.0), (half**2, 3.0))
    xy = [((i + 0.5) / count * hosts, level * hosts / 8) for count, level in levels for i in range(count)]
    return _build(spec, settings, pairs, hosts, 5 * half * half, xy, sites)


def fat_tree_pairs(k: int, pods: int) -> list[tuple[int, int]]:
    """The switches that a fat tree joins; they are numbered level by level: edge, aggregation and core switches."""
    half = k // 2
    aggregation, core = pods * half, 2 * pods * half
    pairs = []
    for pod, i in product(range(pods), range(half)):
        up = pod * half + i
        pairs += [(up, aggregation + pod * half + j) for j in range(half)]
        pairs += [(aggregation + up, core + i * half + j) for j in range(half)]
    return pairs


FAMILIES = (
    Family("ring", "ring:N", "N accelerators in a ring, both directions", "ring:8", _ring, SETTINGS),
    Family("line", "line:N", "N accelerators in a line", "line:4", _line, SETTINGS),
    Family("mesh", "mesh:AxB[xC]", "a grid", "mesh:4x4", partial(_grid, wraps=False), SETTINGS),
    Family("torus", "torus:AxB[xC]", "a grid whose ends are joined", "torus:4x4", partial(_grid, wraps=True), SETTINGS),
    Family(
        "hypercube", "hypercube:D", "2^D accelerators, joined if one bit differs", "hypercube:3", _hypercube, SETTINGS
    ),
    Family("fullmesh", "fullmesh:N", "every accelerator joined to every other", "fullmesh:8", _fullmesh, SETTINGS),
    Family("star", "star:N", "N accelerators around one switch", "star:8", _star, SWITCHED),
    Family(
        "fattree", "fattree:K", "K^3/4 accelerators under three levels of switches", "fattree:4", _fattree, SWITCHED
    ),
)
