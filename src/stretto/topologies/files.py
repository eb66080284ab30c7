"""Topology files: our JSON, GraphML and GML."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import InputError
from ..topology import ACCELERATOR, KINDS, Plane, Topology, make_topology
from ..units import parse_bandwidth, parse_time
from .wan import SETTINGS as SETTINGS
from .wan import Cable, Graph, Place, check_connected, to_topology

MOST_BYTES = 256 * 2**20


def read_topology(path: str, settings: dict[str, Any]) -> Topology:
    """Read a topology file by its ending.

    Args:
        settings: ``bandwidth`` and ``latency`` for all links, or None.
    Raises:
        InputError: it cannot be read, or something in it is wrong; names the place and the remedy.
    """
    try:
        if os.path.isdir(path):
            raise InputError("is a folder, not a topology file", path)
        if os.path.getsize(path) > MOST_BYTES:
            raise InputError("is larger than 256 MiB", path)
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"is not UTF-8 text ({error})", path) from None
    ending = os.path.splitext(path)[1].lower()
    if ending == ".json":
        topology = topology_from_json(_parse_json(text, path), path)
        check_connected(topology, path)
        return _override(topology, settings)
    if ending in (".graphml", ".xml"):
        return to_topology(_graphml(text, path), settings, path)
    if ending == ".gml":
        return to_topology(_gml(text, path), settings, path)
    raise InputError("is neither .json, .graphml nor .gml", path)


def _override(topology: Topology, settings: dict[str, Any]) -> Topology:
    from dataclasses import replace

    n = topology.link_count
    if settings["bandwidth"] is not None:
        topology = replace(topology, bandwidth=np.full(n, settings["bandwidth"]))
    if settings["latency"] is not None:
        topology = replace(topology, latency_s=np.full(n, settings["latency"]))
    return topology


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is no JSON: {error.msg} at line {error.lineno}, column {error.colno}", where) from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"is no JSON: {error}", where) from None


# --- our JSON -----------------------------------------------------------------------------------


def topology_from_json(data: Any, where: str | None) -> Topology:
    """A topology from the object of a topology file (docs: topologies).

    Raises:
        InputError: a missing or wrong entry; names it.
    """
    if not isinstance(data, dict):
        raise InputError("a topology is an object with 'nodes' and 'links'", where)
    nodes, links = (_list_of_objects(data, key, where) for key in ("nodes", "links"))
    number: dict[Any, int] = {}
    kinds, names, sites, xy = [], [], [], []
    transit: list[bool] = []
    replicates: list[bool] = []
    for i, node in enumerate(nodes):
        place = f"{where}, node {i}" if where else f"node {i}"
        key = node.get("id", i)
        if not isinstance(key, (int, str)) or isinstance(key, bool):
            raise InputError(f"the id {key!r} is neither a whole number nor text", place)
        if key in number:
            raise InputError(f"the id {key!r} is given twice", place)
        number[key] = i
        kind = {"gpu": "accelerator"}.get(node.get("kind", "gpu"), node.get("kind"))
        if kind not in KINDS:
            raise InputError(f"the kind {kind!r} is none of gpu, {', '.join(KINDS)}", place)
        kinds.append(KINDS.index(kind))
        names.append(_text(node, "name", place))
        sites.append(_text(node, "site", place))
        x, y = (_number(node, axis, place, missing=math.nan) for axis in ("x", "y"))
        xy.append((x, y) if not math.isnan(x + y) else (math.nan, math.nan))
        passes = kinds[-1] != ACCELERATOR
        for flag, values in (("transit", transit), ("replicates", replicates)):
            value = node.get(flag, passes)
            if not isinstance(value, bool):
                raise InputError(f"{flag!r} must be true or false, not {value!r}", place)
            values.append(value)
    rows = []
    for i, link in enumerate(links):
        place = f"{where}, link {i}" if where else f"link {i}"
        ends = []
        for end in ("src", "dst"):
            if end not in link:
                raise InputError(f"{end!r} is missing", place)
            key = link[end]
            if not isinstance(key, (int, str)) or isinstance(key, bool) or key not in number:
                raise InputError(f"{end} {key!r} is no node", place)
            ends.append(number[key])
        width = _quantity(link, (("bandwidth_GBps", 1e9), ("bandwidth_Bps", 1.0)), "bandwidth", place)
        delay = _quantity(link, (("latency_us", 1e-6), ("latency_s", 1.0)), "latency", place)
        rows.append((ends[0], ends[1], width, delay))
    given = [name for name in names if name]
    if len(set(given)) != len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise InputError(f"two nodes are called {twice!r}", where)
    name = data.get("name")
    notes = data.get("notes", [])
    notes = [notes] if isinstance(notes, str) else notes
    if not isinstance(notes, list) or not all(isinstance(n, str) for n in notes):
        raise InputError("'notes' must be a list of texts", where)
    return make_topology(
        name if isinstance(name, str) and name else str(where or "topology"),
        kinds,
        rows,
        names=_filled(names, kinds),
        sites=sites,
        xy=np.array(xy, dtype=np.float64).reshape(-1, 2),
        geographic=data.get("geographic") is True,
        transit=transit,
        replicates=replicates,
        planes=[_plane(p, len(nodes), f"{where}, plane {i}") for i, p in enumerate(data.get("planes") or [])],
        notes=notes,
        where=where,
    )


def _filled(names: list[str], kinds: list[int]) -> list[str]:
    """Nodes without a name are called by their kind and a number."""
    taken, counts, result = set(names), [0, 0, 0], []
    for name, kind in zip(names, kinds, strict=True):
        label = name
        while not label:
            candidate = f"{('gpu', 'router', 'switch')[kind]}{counts[kind]}"
            counts[kind] += 1
            label = candidate if candidate not in taken else ""
        result.append(label)
    return result


def _list_of_objects(data: dict[str, Any], key: str, where: str | None) -> list[dict[str, Any]]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise InputError(f"{key!r} must be a list of objects", where)
    return value


def _text(node: dict[str, Any], key: str, where: str) -> str:
    value = node.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"{key!r} must be text, not {value!r}", where)
    return value


def _number(data: dict[str, Any], key: str, where: str, missing: float | None = None) -> float:
    value = data.get(key, missing)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{key!r} must be a number, not {value!r}", where)
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{key!r} is too large", where) from None


def _quantity(link: dict[str, Any], names: tuple[tuple[str, float], ...], what: str, where: str) -> float:
    for key, factor in names:
        if key in link:
            value = _number(link, key, where) * factor
            if not math.isfinite(value) or value < 0 or (what == "bandwidth" and value == 0):
                wanted = "positive" if what == "bandwidth" else "zero or more"
                raise InputError(f"{key!r} must be {wanted} and finite, not {link[key]!r}", where)
            return value
    raise InputError(f"the {what} is missing; give {names[0][0]!r}", where)


def _plane(data: Any, nodes: int, where: str) -> Plane:
    if not isinstance(data, dict):
        raise InputError("a plane is an object", where)
    columns = []
    for key, low, high in (("nodes", 0, nodes), ("matching", -1, None)):
        values = data.get(key)
        high = len(data["nodes"]) if high is None and isinstance(data.get("nodes"), list) else high or 0
        whole = isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        if not whole or not all(low <= v < high for v in values):  # type: ignore[union-attr]
            raise InputError(f"{key!r} must be a list of whole numbers from {low} to {high - 1}", where)
        columns.append(np.array(values, dtype=np.int32))
    if len(columns[0]) != len(columns[1]):
        raise InputError("'matching' needs an entry for each of 'nodes'", where)
    width = _quantity(data, (("bandwidth_Bps", 1.0),), "bandwidth", where)
    latency = _quantity(data, (("latency_s", 1.0),), "latency", where)
    turn = _quantity(data, (("reconfiguration_s", 1.0),), "latency", where)
    return Plane(columns[0], width, latency, turn, columns[1])


# --- GraphML and GML ----------------------------------------------------------------------------


def _attributes(node: dict[str, str], where: str) -> Place:
    """A place from the attributes of the Topology Zoo, or of our own names."""
    low = {key.lower(): value for key, value in node.items()}
    lon, lat = (_float(low, keys, where) for keys in (("longitude", "lon", "x"), ("latitude", "lat", "y")))
    kind = {"gpu": "accelerator"}.get(low.get("kind", ""), low.get("kind"))
    if kind is not None and kind not in KINDS:
        raise InputError(f"the kind {kind!r} is none of gpu, {', '.join(KINDS)}", where)
    name = low.get("label") or low.get("name") or ""
    both = lon is not None and lat is not None
    return Place(
        name if name != "None" else "", lon if both else None, lat if both else None, kind, low.get("site", "")
    )


def _cable(a: int, b: int, edge: dict[str, str], where: str) -> Cable:
    low = {key.lower(): value for key, value in edge.items()}
    bits = _float(low, ("linkspeedraw",), where)
    width = None if bits is None or bits <= 0 else bits / 8
    if "bandwidth" in low:
        width = parse_bandwidth(low["bandwidth"], where)
    elif "bandwidth_gbps" in low:
        width = parse_bandwidth(low["bandwidth_gbps"] + "GB/s", where)
    delay = parse_time(low["latency"], where) if "latency" in low else None
    if "latency_us" in low:
        delay = parse_time(low["latency_us"] + "us", where)
    return Cable(a, b, width, delay)


def _float(attributes: dict[str, str], keys: tuple[str, ...], where: str) -> float | None:
    for key in keys:
        text = attributes.get(key)
        if text in (None, "", "None", "?"):
            continue
        try:
            value = float(text)  # type: ignore[arg-type]
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{key} {text!r} is not a number", where)
        return value
    return None


def _graphml(text: str, where: str) -> Graph:
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(text.encode())
    except ParseError as error:
        raise InputError(f"is no XML: {error}", where) from None
    except (DefusedXmlException, ValueError, RecursionError) as error:
        raise InputError(f"is not accepted: {type(error).__name__}", where) from None

    def named(element: Any, tag: str) -> list[Any]:
        return [child for child in element if isinstance(child.tag, str) and child.tag.rpartition("}")[2] == tag]

    graphs = named(root, "graph")
    if not graphs:
        raise InputError("has no <graph>", where)
    keys = {key.get("id"): key.get("attr.name") or key.get("id") for key in named(root, "key")}

    def data(element: Any) -> dict[str, str]:
        own = {k: v for k, v in element.attrib.items() if k not in ("id", "source", "target")}
        return own | {str(keys.get(d.get("key"), d.get("key"))): (d.text or "").strip() for d in named(element, "data")}

    number: dict[str, int] = {}
    places, cables = [], []
    for node in named(graphs[0], "node"):
        key = node.get("id")
        if key is None or key in number:
            raise InputError(f"node {len(number)}: the id {key!r} is missing or given twice", where)
        number[key] = len(number)
        places.append(_attributes(data(node), f"{where}, node {key}"))
    for i, edge in enumerate(named(graphs[0], "edge")):
        ends = [edge.get("source"), edge.get("target")]
        for end in ends:
            if end not in number:
                raise InputError(f"leads to {end!r}, which is no node", f"{where}, edge {i}")
        cables.append(_cable(number[ends[0]], number[ends[1]], data(edge), f"{where}, edge {i}"))
    directed = graphs[0].get("edgedefault") == "directed"
    name = data(graphs[0]).get("label") or os.path.splitext(os.path.basename(where))[0]
    return Graph(name, places, cables, directed)


_GML_TOKEN = re.compile(r'\s+|#[^\n]*|(?P<text>"[^"]*")|(?P<open>\[)|(?P<close>\])|(?P<word>[^\s\[\]"]+)')


def _gml_tokens(text: str, where: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _GML_TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise InputError(f"is no GML: a quotation mark that is not closed at line {line}", where)
        at = match.end()
        if match.lastgroup is not None:
            yield match.lastgroup, match[0]


def _gml(text: str, where: str) -> Graph:
    """GML: keys and values, a value being a number, a text, or a list of keys and values."""
    top: list[tuple[str, Any]] = []
    stack = [top]
    key: str | None = None
    for kind, token in _gml_tokens(text, where):
        if key is None:
            if kind == "close" and len(stack) > 1:
                stack.pop()
            elif kind == "word":
                key = token
            else:
                raise InputError(f"is no GML: {token[:20]!r} stands where a key should", where)
            continue
        if kind == "close":
            raise InputError(f"is no GML: {key[:20]!r} has no value", where)
        value: Any = [] if kind == "open" else token.strip('"')
        stack[-1].append((key.lower(), value))
        if kind == "open":
            stack.append(value)
        key = None
    if len(stack) > 1 or key is not None:
        raise InputError("is no GML: it ends in the middle", where)
    graph = next((v for k, v in top if k == "graph" and isinstance(v, list)), None)
    if graph is None:
        raise InputError("has no graph", where)

    def flat(items: list[tuple[str, Any]]) -> dict[str, str]:
        return {k: v for k, v in items if isinstance(v, str)}

    number: dict[str, int] = {}
    places, cables = [], []
    for _, node in [item for item in graph if item[0] == "node" and isinstance(item[1], list)]:
        attributes = flat(node)
        name = attributes.pop("id", None)
        if name is None or name in number:
            raise InputError(f"node {len(number)}: the id {name!r} is missing or given twice", where)
        number[name] = len(number)
        places.append(_attributes(attributes, f"{where}, node {name}"))
    for i, (_, edge) in enumerate([item for item in graph if item[0] == "edge" and isinstance(item[1], list)]):
        attributes = flat(edge)
        ends = [attributes.pop(end, None) for end in ("source", "target")]
        for end in ends:
            if end not in number:
                raise InputError(f"leads to {end!r}, which is no node", f"{where}, edge {i}")
        cables.append(_cable(number[str(ends[0])], number[str(ends[1])], attributes, f"{where}, edge {i}"))
    label = flat(graph)
    return Graph(
        label.get("label") or os.path.splitext(os.path.basename(where))[0], places, cables, label.get("directed") == "1"
    )
