"""Telemetry files: what was measured on a network, and what is down (docs: replanning)."""

from __future__ import annotations

from typing import Any

from ..model.errors import InputError, no_link, no_node
from ..model.telemetry import Telemetry
from ..model.topology import Topology
from ..model.units import parse_bandwidth, parse_time
from ..topologies.values import check_keys, entry, indexes, parse_json, read_text, real

ENTRIES = ("at", "time", "links", "down", "held")
LINK_ENTRIES = ("src", "dst", "down", "bandwidth", "latency", "carried")


def read_telemetry(path: str, topology: Topology, chunks: int) -> Telemetry:
    """The telemetry of a topology, for a plan of ``chunks`` chunks, from a JSON file.

    The file has one object, or an object a line, of which later ones replace what earlier ones say of the same link;
    so ``stretto measure --watch`` writes it.

    Raises:
        InputError: the file cannot be read, or names something that the topology or plan does not have.
    """
    text = read_text(path)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if len(lines) < 2 or not all(line.lstrip().startswith("{") for _, line in lines):
        return parse_telemetry(parse_json(text, path), topology, chunks, path)
    news = Telemetry()
    for number, line in lines:
        place = f"{path}, line {number}"
        news = news.then(parse_telemetry(parse_json(line, place), topology, chunks, place))
    return news


def parse_telemetry(data: Any, topology: Topology, chunks: int, where: str) -> Telemetry:
    """The telemetry of a topology from the object in a telemetry file; see :func:`read_telemetry`."""
    check_keys(data, ENTRIES, where)
    entry(data, "time", str, where, "")
    nodes = {name: v for v, name in enumerate(topology.names)}
    links = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(topology.src, topology.dst, strict=True))}
    bandwidth: dict[int, float] = {}
    latency_s: dict[int, float] = {}
    carried: dict[int, float] = {}
    down: set[int] = set()
    for number, link in enumerate(entry(data, "links", list, where, [])):
        place = f"{where}, link {number}"
        check_keys(link, LINK_ENTRIES, place)
        ends = (_node(link.get("src"), nodes, place), _node(link.get("dst"), nodes, place))
        if ends not in links:
            names = topology.names
            of = [(names[a], names[b]) for a, b in links]
            pair = names[ends[0]], names[ends[1]]
            raise InputError(no_link(f"there is no link {'→'.join(pair)}", *pair, of), place)
        if entry(link, "down", bool, place, False):
            down.add(links[ends])
        if "bandwidth" in link:
            bandwidth[links[ends]] = parse_bandwidth(_quantity(link["bandwidth"], place), place)
        if "carried" in link:
            carried[links[ends]] = _carried(link["carried"], place)
        if "latency" in link:
            latency_s[links[ends]] = parse_time(_quantity(link["latency"], place), place)
    held = {
        _node(name, nodes, where): tuple(indexes(some, f"the chunks that {name!r} holds", 0, chunks, where))
        for name, some in entry(data, "held", dict, where, {}).items()
    }
    return Telemetry(
        at_s=parse_time(_quantity(data.get("at", 0), where), where),
        bandwidth=bandwidth,
        latency_s=latency_s,
        links_down=frozenset(down),
        nodes_down=frozenset(_node(name, nodes, where) for name in entry(data, "down", list, where, [])),
        held=held if "held" in data else None,
        carried=carried,
    )


def _node(name: Any, nodes: dict[str, int], where: str) -> int:
    if not isinstance(name, str) or name not in nodes:
        raise InputError(no_node(name, nodes), where)
    return nodes[name]


def _carried(value: Any, where: str) -> float:
    """What a link carried, bytes/s; unlike a bandwidth it may be zero."""
    quantity = _quantity(value, where)
    return parse_bandwidth(quantity, where) if isinstance(quantity, str) else real(quantity, "'carried'", where)


def _quantity(value: Any, where: str) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"{value!r} is no quantity", where)
    return value
