"""Nodes joined by optical circuit switches: every plane has one port of every node.

A node's bandwidth is divided among the planes by port splitting (SWOT, section 2.1.1). A plane that joins
nothing at first may take its first matching before time zero. Planes may be divided by the dimensions of
a grid: then a plane is a set of small switches, one for each line of its dimension.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ..model.arrays import Int32
from ..model.errors import InputError
from ..model.topology import ACCELERATOR, Plane, Topology, make_topology
from ..model.units import parse_bandwidth, parse_time
from . import Family, Setting, decimal, listed, numbers
from .draft import circle

MOST_PORTS = 1_000_000


_positive = decimal("one of a list of positive numbers such as 2,1,1", lambda value: 0 < value < math.inf)


def _initial(text: str, where: str) -> str:
    if not re.fullmatch(r"free|(shift|xor)[1-9]\d{0,6}", text):
        raise InputError(f"{text!r} is none of free, shiftD (i to i+D) and xorD (i to i^D)", where)
    return text


def _matching(name: str, n: int, spec: str) -> Int32:
    """int32[ports], the port that each port sends to."""
    ports = np.arange(n)
    if name == "free":
        return np.full(n, -1, dtype=np.int32)
    kind, distance = name.rstrip("0123456789"), int(name.lstrip("shiftxor"))
    to = (ports + distance) % n if kind == "shift" else ports ^ distance
    if to.max() >= n or (to == ports).any():
        raise InputError(f"{name} does not join {n} ports to others", f"{spec}, option initial")
    return to.astype(np.int32)


def _each(values: list[Any], k: int, name: str, spec: str) -> list[Any]:
    """One value for each plane, from a single value or a list."""
    if len(values) not in (1, k):
        raise InputError(f"give one value, or one for each of the {k} planes", f"{spec}, option {name}")
    return values * (k // len(values))


def _dims(text: str, where: str) -> list[int]:
    if not re.fullmatch(r"[1-9]\d{0,6}(x[1-9]\d{0,6})+", text) or min(map(int, text.split("x"))) < 2:
        raise InputError(f"{text!r} is no grid of at least two dimensions such as 4x4x4", where)
    return [int(part) for part in text.split("x")]


def _lines(n: int, k: int, dims: list[int] | None, spec: str) -> list[list[Int32]]:
    """For each plane the nodes of its switches: one switch of all nodes, or one for each line of its dimension."""
    nodes = np.arange(n, dtype=np.int32)
    if dims is None:
        return [[nodes]] * k
    if math.prod(dims) != n:
        raise InputError(f"a grid of {'x'.join(map(str, dims))} has {math.prod(dims)} nodes, not {n}", spec)
    if k < len(dims):
        raise InputError(f"{len(dims)} dimensions need a plane each, and there are {k}", spec)
    grid = nodes.reshape(dims)
    return [list(np.moveaxis(grid, p % len(dims), -1).reshape(-1, dims[p % len(dims)])) for p in range(k)]


def _optical(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    parts = numbers(arguments, spec, "optical:N,K", 1, most=2)
    if len(parts) != 2 or parts[0] < 2:
        raise InputError("write it as optical:N,K: at least two nodes, and the planes", spec)
    n, k = parts
    if n * k > MOST_PORTS:
        raise InputError(f"{n * k} ports are more than the {MOST_PORTS} that are built", spec)
    shares = np.array(_each(settings["shares"], k, "shares", spec))
    planes = [
        Plane(nodes, float(width), latency, turn, _matching(initial, len(nodes), spec))
        for lines, width, latency, turn, initial in zip(
            _lines(n, k, settings["dims"], spec),
            settings["bandwidth"] * shares / shares.sum(),
            *(_each(settings[name], k, name, spec) for name in ("latency", "reconfiguration", "initial")),
            strict=True,
        )
        for nodes in lines
    ]
    return make_topology(spec, [ACCELERATOR] * n, [], xy=circle(n), planes=planes, where=spec)


FAMILIES = (
    Family(
        "optical",
        "optical:N,K",
        "N nodes joined by K optical circuit switches (planes)",
        "optical:8,2",
        _optical,
        (
            Setting("bandwidth", parse_bandwidth, 100e9, "of a node, over all planes"),
            Setting("shares", listed(_positive), [1.0], "how planes divide it, e.g. 2,1,1"),
            Setting("dims", _dims, None, "a grid, e.g. 4x4x4: plane p has a switch for each line of dimension p mod 3"),
            Setting("latency", listed(parse_time), [20e-6], "of a circuit; one for all planes, or one each"),
            Setting("reconfiguration", listed(parse_time), [200e-6], "in which a plane turns; one, or one each"),
            Setting("initial", listed(_initial), ["free"], "matching at first: free, shiftD or xorD; one, or one each"),
        ),
    ),
)
