"""stretto's own topology files: JSON, changes, and the formats that topologies are written to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any

import numpy as np

from ..model.changes import Changes, make_changes
from ..model.errors import InputError, Unsupported, nearest_numbered, no_link
from ..model.topology import (
    ACCELERATOR,
    ASSUMED,
    GIVEN,
    HIGHEST_USD,
    UNKNOWN,
    Plane,
    Topology,
    make_topology,
    printable,
)
from ..model.units import BANDWIDTHS, LONGEST_S
from . import astra_sim, graphml, values
from .measured import check_ranges
from .values import entry, indexes, number, objects, shown, single

SHORT = ("gpu", "router", "switch")

_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which no UTF-8 file could hold."""


def _graphml(net: Topology, where: str) -> str:
    return graphml.write(_constant(net, "GraphML"))


def _astra_sim(net: Topology, where: str) -> str:
    return astra_sim.write(_constant(net, "ASTRA-sim"), where)


def _constant(net: Topology, format: str) -> Topology:
    if net.changes:
        raise Unsupported(f"{format} has no bandwidths that change with time; write {net.name} as json")
    return net


WRITERS: dict[str, Callable[[Topology, str], str]] = {
    "json": lambda net, where: values.json_text(net.to_json()) + "\n",
    "graphml": _graphml,
    "astra-sim": _astra_sim,
}
"""The formats that a topology can be written to, each ``(topology, where) -> text``."""


# --- our JSON -----------------------------------------------------------------------------------

MESSAGE_UNITS = {"message_us": 1e-6, "message_s": 1.0}
PRICE_UNITS = {"usd_per_GB": 1e-9, "usd_per_byte": 1.0}
BANDWIDTH_UNITS = {"bandwidth_GBps": 1e9, "bandwidth_Bps": 1.0}
LATENCY_UNITS = {"latency_us": 1e-6, "latency_s": 1.0}
ENTRIES = frozenset(
    ("name", "source", "notes", "nodes", "links", "planes", "changes", "measured", "geographic", "message_assumed")
) | frozenset(MESSAGE_UNITS)
NODE_ENTRIES = frozenset(("id", "name", "kind", "site", "x", "y", "transit", "replicates", "reduces"))
LINK_ENTRIES = frozenset(("src", "dst", "measured", *BANDWIDTH_UNITS, *LATENCY_UNITS, *MESSAGE_UNITS, *PRICE_UNITS))
"""What a topology file, its nodes and its links may say; other entries are left alone unless they look like these."""


def topology_from_json(data: Any, where: str | None) -> Topology:
    """A topology from the object of a topology file (docs: topologies); InputError names a wrong entry."""
    if not isinstance(data, dict):
        raise InputError("a topology is an object with 'nodes' and 'links'", where)
    values.refuse_misspelt([(data, where)], ENTRIES)
    placed = [(node, _at(where, "node", i)) for i, node in enumerate(objects(data, "nodes", where))]
    links = objects(data, "links", where)
    values.refuse_misspelt(placed, NODE_ENTRIES)
    values.refuse_misspelt(((link, _at(where, "link", i)) for i, link in enumerate(links)), LINK_ENTRIES)
    number = _numbered(placed)
    kinds = [values.parse_kind(node.get("kind", "gpu"), place) for node, place in placed]
    flags = {
        flag: [entry(n, flag, bool, p, k != ACCELERATOR) for (n, p), k in zip(placed, kinds, strict=True)]
        for flag in ("transit", "replicates")
    }
    entry(data, "measured", dict, where, {})  # what else was measured: not part of the topology
    reduces = [entry(node, "reduces", bool, place, False) for node, place in placed]
    every_s = _message_s(data, 0.0, where)
    planes = [] if data.get("planes") is None else objects(data, "planes", where)
    notes = data.get("notes")
    notes = [notes] if isinstance(notes, str) else [] if notes is None else notes
    if not isinstance(notes, list) or not all(isinstance(n, str) and not _HALF.search(n) for n in notes):
        raise InputError("'notes' must be a list of texts", where)
    return make_topology(
        _text(data, "name", where) or printable(str(where or "topology")),
        kinds,
        [_link(link, number, _at(where, "link", i)) for i, link in enumerate(links)],
        message_s=[_message_s(link, every_s, _at(where, "link", i)) for i, link in enumerate(links)],
        message_basis=_message_basis(data, links, where),
        usd_per_byte=[_usd_per_byte(link, _at(where, "link", i)) for i, link in enumerate(links)],
        names=_names(placed, kinds),
        sites=[_text(n, "site", p) for n, p in placed],
        xy=np.array([_position(n, p) for n, p in placed]).reshape(-1, 2),
        geographic=entry(data, "geographic", bool, where, False),
        planes=[_plane(plane, len(placed), _at(where, "plane", i)) for i, plane in enumerate(planes)],
        notes=notes,
        changes=[] if data.get("changes") is None else changes_of(data, number, links, where),
        where=where,
        reduces=reduces,
        **flags,
    )


def changes_of(
    data: dict[str, Any], number: dict[Hashable, int], links: Sequence[dict[str, Any]], where: str | None
) -> list[tuple[float, int, float]]:
    """The rows of ``changes``: a step's moment, its link (a number, or the ids of both ends), and its bandwidth."""
    ends = {(number[link["src"]], number[link["dst"]]): i for i, link in enumerate(links)}
    rows = []
    for i, change in enumerate(objects(data, "changes", where)):
        place = _at(where, "change", i)
        if "link" in change:
            link = values.count(change["link"], "'link'", place, most=max(len(links) - 1, 0))
        else:
            pair = (_end(change, "src", number, place), _end(change, "dst", number, place))
            if pair not in ends:
                message = f"there is no link from {shown(change['src'])} to {shown(change['dst'])}"
                of = [(str(link["src"]), str(link["dst"])) for link in links]
                raise InputError(no_link(message, str(change["src"]), str(change["dst"]), of), place)
            link = ends[pair]
        width = _quantity(change, BANDWIDTH_UNITS, "bandwidth or 0", place)
        rows.append((values.real(change.get("at_s"), "'at_s'", place), link, width))
    return rows


def _end(entries: dict[str, Any], end: str, number: dict[Hashable, int], where: str) -> int:
    if end not in entries:
        raise InputError(f"{end!r} is missing", where)
    key = entries[end]
    if type(key) not in (int, str) or key not in number:
        otherwise = f"there are {len(set(number.values()))}"
        known = [each for each in number if isinstance(each, str)]
        hint = nearest_numbered(key, known, otherwise) if isinstance(key, str) else otherwise
        raise InputError(f"{end} {shown(key)} is no node; {hint}", where)
    return number[key]


def read_changes(path: str, topology: Topology) -> Changes:
    """The changes of a topology's links from a file: JSON with ``changes`` as in a topology file, or CSV.

    A CSV has a line of names (``at_s``, ``link`` or ``src`` and ``dst``, ``bandwidth_Bps`` or ``bandwidth_GBps``), then
    a line for each step. Nodes are named, or numbered.

    Raises:
        InputError: the file cannot be read, or a step is wrong; names it.
    """
    text = values.read_text(path)
    if path.lower().endswith(".csv"):
        (_, names), *lines = values.parse_csv(text, path) or [(1, [])]
        cells = [(dict(zip(names, row, strict=False)), line) for line, row in lines]
        data: Any = {"changes": [_csv_change(row, topology.names, f"{path}, line {line}") for row, line in cells]}
    else:
        data = values.parse_json(text, path)
    if not isinstance(data, dict) or "changes" not in data:
        raise InputError("must be an object with 'changes', as in a topology file", path)
    number: dict[Hashable, int] = {name: v for v, name in enumerate(topology.names)}
    number |= {v: v for v in range(topology.node_count)}
    of = topology.names
    links = [{"src": of[a], "dst": of[b]} for a, b in zip(topology.src, topology.dst, strict=True)]
    return make_changes(changes_of(data, number, links, path), topology.link_count, path)


def _csv_change(cells: dict[str, str], names: Sequence[str], place: str) -> dict[str, Any]:
    known = ("at_s", "link", "src", "dst", "bandwidth_Bps", "bandwidth_GBps")
    values.check_keys(cells, known, place)
    change: dict[str, Any] = dict(cells)
    for name in ("at_s", "bandwidth_Bps", "bandwidth_GBps"):
        if name in cells:
            change[name] = values.real(cells[name], repr(name), place)
    for name in ("src", "dst"):
        if cells.get(name, "").isdigit() and cells[name] not in names:
            change[name] = int(cells[name])
    return change


def _at(where: str | None, what: str, index: int) -> str:
    return f"{where}, {what} {index}" if where else f"{what} {index}"


def _numbered(placed: list[tuple[dict[str, Any], str]]) -> dict[Hashable, int]:
    """The number of each node by the id that the file gives it."""
    number: dict[Hashable, int] = {}
    for i, (node, place) in enumerate(placed):
        key = node.get("id", i)
        if type(key) not in (int, str):
            raise InputError(f"the id {shown(key)} is neither a whole number nor text", place)
        if key in number:
            raise InputError(f"the id {shown(key)} is given twice", place)
        number[key] = i
    return number


def _position(node: dict[str, Any], where: str) -> tuple[float, float]:
    if "x" not in node and "y" not in node:
        return math.nan, math.nan
    for axis, other in ("xy", "yx"):
        if axis not in node:
            raise InputError(f"{other!r} is given without {axis!r}; give both or none", where)
    x, y = number(node, "x", where), number(node, "y", where)
    if not math.isfinite(x) or not math.isfinite(y):
        raise InputError("'x' and 'y' must be finite; leave both out where unknown", where)
    return x, y


def _link(link: dict[str, Any], number: dict[Hashable, int], where: str) -> tuple[int, int, float, float]:
    ends = [_end(link, end, number, where) for end in ("src", "dst")]
    if "measured" in link:
        check_ranges(link, where)
    width = _quantity(link, BANDWIDTH_UNITS, "bandwidth", where)
    delay = _quantity(link, LATENCY_UNITS, "latency", where)
    return ends[0], ends[1], width, delay


def _message_s(data: dict[str, Any], default_s: float, where: str | None) -> float:
    """What a message costs on a link, or by the topology's own entry on all links that do not say."""
    given = MESSAGE_UNITS.keys() & data.keys()
    return _quantity(data, MESSAGE_UNITS, "cost of a message", where) if given else default_s


def _message_basis(data: dict[str, Any], links: list[dict[str, Any]], where: str | None) -> str:
    if entry(data, "message_assumed", bool, where, False):
        return ASSUMED
    return GIVEN if any(MESSAGE_UNITS.keys() & each.keys() for each in (data, *links)) else UNKNOWN


def _usd_per_byte(link: dict[str, Any], where: str) -> float:
    """What a byte over a link costs, US dollars; nothing where the file says nothing."""
    key = single([key for key in PRICE_UNITS if key in link], where)
    if key is None:
        return 0.0
    price = values.real(link[key], repr(key), where) * PRICE_UNITS[key]
    if price > HIGHEST_USD:
        raise InputError(f"{key!r} must be at most {HIGHEST_USD / PRICE_UNITS[key]:g}, not {shown(link[key])}", where)
    return price


def _names(placed: list[tuple[dict[str, Any], str]], kinds: list[int]) -> list[str]:
    """The file's name for each node: its ``name``, its id if that is text, or else its kind and a number."""
    given = [
        _text(node, "name", place) or (_text(node, "id", place) if isinstance(node.get("id"), str) else "")
        for node, place in placed
    ]
    taken = set(given)
    free = [filter(lambda name: name not in taken, map(f"{word}{{}}".format, count())) for word in SHORT]
    return [name or next(free[kind]) for name, kind in zip(given, kinds, strict=True)]


def _text(data: dict[str, Any], key: str, where: str | None) -> str:
    value = entry(data, key, str, where, "")
    if value != printable(value):
        raise InputError(f"{key!r} must be one line of printable text, not {shown(value)}", where)
    return value


def _quantity(data: dict[str, Any], units: dict[str, float], what: str, where: str | None) -> float:
    """The value of the one entry of these names, in bytes/s or seconds."""
    key = single([key for key in units if key in data], where)
    if key is None:
        raise InputError(f"the {what.removesuffix(' or 0')} is missing; give {next(iter(units))!r}", where)
    value = number(data, key, where) * units[key]
    least, most = BANDWIDTHS if what.startswith("bandwidth") else (0.0, LONGEST_S)
    failed = what == "bandwidth or 0" and value == 0
    if not least <= value <= most and not failed:
        allowed = "1 B/s to 1e18 B/s" if what.startswith("bandwidth") else "zero to a year"
        allowed = f"{allowed}, or 0" if what == "bandwidth or 0" else allowed
        raise InputError(f"{key!r} must be from {allowed}, not {shown(data[key])}", where)
    return value


def _plane(data: dict[str, Any], nodes: int, where: str) -> Plane:
    ports = indexes(data.get("nodes"), "'nodes'", 0, nodes, where)
    matching = indexes(data.get("matching"), "'matching'", -1, len(ports), where)
    if len(matching) != len(ports):
        raise InputError("'matching' needs an entry for each of 'nodes', -1 for none", where)
    joined = [port for port in matching if port >= 0]
    if len(set(joined)) != len(joined):
        raise InputError("'matching' joins two ports to one; a port receives from one port", where)
    return Plane(
        np.array(ports, dtype=np.int32),
        _quantity(data, {"bandwidth_Bps": 1.0}, "bandwidth", where),
        _quantity(data, {"latency_s": 1.0}, "latency", where),
        _quantity(data, {"reconfiguration_s": 1.0}, "reconfiguration time", where),
        np.array(matching, dtype=np.int32),
    )
