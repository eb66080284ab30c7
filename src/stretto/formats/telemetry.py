"""Telemetry files: what was measured on a network, and what is down (docs: replanning)."""

from __future__ import annotations

import json
from typing import Any

from ..model.errors import InputError
from ..model.telemetry import Telemetry
from ..model.topology import Topology
from ..model.units import parse_bandwidth, parse_time

ENTRIES = ("at", "links", "down", "held")
LINK_ENTRIES = ("src", "dst", "down", "bandwidth", "latency")


def read_telemetry(path: str, topology: Topology, chunks: int) -> Telemetry:
    """The telemetry of a topology from a JSON file.

    Args:
        chunks: the number of chunks of the plan.
    Raises:
        InputError: the file cannot be read, or names something that the topology or plan does not have.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot be read as JSON: {error}", path) from None
    return parse_telemetry(data, topology, chunks, path)


def parse_telemetry(data: Any, topology: Topology, chunks: int, where: str) -> Telemetry:
    """The telemetry of a topology from the object in a telemetry file; see :func:`read_telemetry`."""
    _known(data, ENTRIES, where)
    nodes = {name: v for v, name in enumerate(topology.names)}
    links = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(topology.src, topology.dst, strict=True))}
    bandwidth: dict[int, float] = {}
    latency_s: dict[int, float] = {}
    down: set[int] = set()
    for number, entry in enumerate(_list(data, "links", where)):
        place = f"{where}, link {number}"
        _known(entry, LINK_ENTRIES, place)
        ends = (_node(entry.get("src"), nodes, place), _node(entry.get("dst"), nodes, place))
        if ends not in links:
            raise InputError(f"there is no link {topology.names[ends[0]]}→{topology.names[ends[1]]}", place)
        if entry.get("down", False) not in (True, False):
            raise InputError("'down' must be true or false", place)
        if entry.get("down"):
            down.add(links[ends])
        if "bandwidth" in entry:
            bandwidth[links[ends]] = parse_bandwidth(_quantity(entry["bandwidth"], place), place)
        if "latency" in entry:
            latency_s[links[ends]] = parse_time(_quantity(entry["latency"], place), place)
    return Telemetry(
        at_s=parse_time(_quantity(data.get("at", 0), where), where),
        bandwidth=bandwidth,
        latency_s=latency_s,
        links_down=frozenset(down),
        nodes_down=frozenset(_node(name, nodes, where) for name in _list(data, "down", where)),
        held=None if "held" not in data else _held(data["held"], nodes, chunks, where),
    )


def _held(value: Any, nodes: dict[str, int], chunks: int, where: str) -> dict[int, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise InputError("'held' must be an object of nodes and the chunks that they hold", where)
    held = {}
    for name, some in value.items():
        whole = isinstance(some, list) and all(isinstance(c, int) and not isinstance(c, bool) for c in some)
        if not whole or not all(0 <= c < chunks for c in some):
            raise InputError(f"what {name!r} holds must be a list of chunks from 0 to {chunks - 1}", where)
        held[_node(name, nodes, where)] = tuple(some)
    return held


def _known(data: Any, entries: tuple[str, ...], where: str) -> None:
    if not isinstance(data, dict):
        raise InputError("must be an object", where)
    for key in data:
        if key not in entries:
            raise InputError(f"{key!r} is not known; there are {', '.join(entries)}", where)


def _list(data: dict[str, Any], key: str, where: str) -> list[Any]:
    value = data.get(key, [])
    if not isinstance(value, list):
        raise InputError(f"{key!r} must be a list", where)
    return value


def _node(name: Any, nodes: dict[str, int], where: str) -> int:
    if not isinstance(name, str) or name not in nodes:
        raise InputError(f"there is no node {name!r}", where)
    return nodes[name]


def _quantity(value: Any, where: str) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"{value!r} is no quantity", where)
    return value
