"""Topology files: which importer reads which file, and stretto's own JSON. Other formats have modules of their own."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, KINDS, Plane, Topology, make_topology, printable, storing
from . import ENDINGS, SWITCHES
from .astra_sim import parse_astra_sim, write_astra_sim
from .gml import parse_gml
from .graphml import graph_of, write_graphml
from .nccl_xml import is_nccl, parse_nccl
from .nvidia_smi import looks_like as looks_like_nvidia_smi
from .nvidia_smi import parse_nvidia_smi
from .sndlib import is_sndlib, looks_native, parse_sndlib_native, parse_sndlib_xml
from .taccl import is_taccl, parse_taccl
from .tacos import parse_tacos
from .teccl import is_teccl, parse_teccl
from .values import entry, indexes, number, objects, parse_json, parse_xml, read_text, shown
from .wan import SETTINGS as OF_LINKS
from .wan import Graph, check_connected, to_topology

SETTINGS = (*OF_LINKS, SWITCHES)


def read_topology(path: str, settings: dict[str, Any]) -> Topology:
    """Read a topology file. The ending names the syntax, the content tells which tool wrote it.

    Args:
        settings: ``bandwidth`` and ``latency`` for all links, or None, and whether ``switches`` store.
    Raises:
        InputError: the file cannot be read, or an entry is wrong; names the place and the remedy.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS and not os.path.isdir(path):
        raise InputError(f"is none of {', '.join(ENDINGS)}", path)
    found = _parse(ending, read_text(path), path)
    if isinstance(found, Graph):
        built = to_topology(found, settings, path)
    else:
        check_connected(found, path)
        built = _override(found, settings)
    return storing(built) if settings[SWITCHES.name] else built


def _parse(ending: str, text: str, path: str) -> Topology | Graph:
    """The topology of a text, by the importer of its format."""
    if ending == ".json":
        data = parse_json(text, path)
        if isinstance(data, dict) and is_teccl(data):
            return parse_teccl(data, path)
        return parse_taccl(data, path) if isinstance(data, dict) and is_taccl(data) else topology_from_json(data, path)
    if ending in (".graphml", ".xml"):
        root = parse_xml(text, path)
        if is_nccl(root):
            return parse_nccl(root, path)
        return parse_sndlib_xml(root, path) if is_sndlib(root) else graph_of(root, path)
    if ending == ".gml":
        return parse_gml(text, path)
    if ending in (".yml", ".yaml"):
        return parse_astra_sim(text, path)
    if ending == ".csv":
        return parse_tacos(text, path)
    if looks_native(text):
        return parse_sndlib_native(text, path)
    if looks_like_nvidia_smi(text):
        return parse_nvidia_smi(text, path)
    raise InputError("is neither the output of nvidia-smi topo -m nor SNDlib's native format", path)


WRITERS: dict[str, Callable[[Topology, str], str]] = {
    "json": lambda net, where: json.dumps(net.to_json(), indent=1) + "\n",
    "graphml": lambda net, where: write_graphml(net),
    "astra-sim": write_astra_sim,
}
"""The formats that a topology can be written to, each ``(topology, where) -> text``."""


def _override(topology: Topology, settings: dict[str, Any]) -> Topology:
    n = topology.link_count
    if settings["bandwidth"] is not None:
        topology = replace(topology, bandwidth=np.full(n, settings["bandwidth"]))
    if settings["latency"] is not None:
        topology = replace(topology, latency_s=np.full(n, settings["latency"]))
    return topology


# --- our JSON -----------------------------------------------------------------------------------


def topology_from_json(data: Any, where: str | None) -> Topology:
    """A topology from the object of a topology file (docs: topologies).

    Raises:
        InputError: a missing or wrong entry; names it.
    """
    if not isinstance(data, dict):
        raise InputError("a topology is an object with 'nodes' and 'links'", where)
    nodes, links = objects(data, "nodes", where), objects(data, "links", where)
    places = [_at(where, "node", i) for i in range(len(nodes))]
    placed = list(zip(nodes, places, strict=True))
    number = _numbered(placed)
    kinds = [_kind(node, place) for node, place in placed]
    flags = {
        flag: [entry(n, flag, bool, p, k != ACCELERATOR) for (n, p), k in zip(placed, kinds, strict=True)]
        for flag in ("transit", "replicates")
    }
    planes = [] if data.get("planes") is None else objects(data, "planes", where)
    notes = data.get("notes")
    notes = [notes] if isinstance(notes, str) else [] if notes is None else notes
    if not isinstance(notes, list) or not all(isinstance(n, str) and _whole(n) for n in notes):
        raise InputError("'notes' must be a list of texts", where)
    return make_topology(
        _text(data, "name", where) or printable(str(where or "topology")),
        kinds,
        [_link(link, number, _at(where, "link", i)) for i, link in enumerate(links)],
        names=_filled([_label(n, p) for n, p in placed], kinds),
        sites=[_text(n, "site", p) for n, p in placed],
        xy=np.array([_position(n, p) for n, p in placed]).reshape(-1, 2),
        geographic=entry(data, "geographic", bool, where, False),
        planes=[_plane(plane, len(nodes), _at(where, "plane", i)) for i, plane in enumerate(planes)],
        notes=notes,
        where=where,
        **flags,
    )


def _at(where: str | None, what: str, index: int) -> str:
    return f"{where}, {what} {index}" if where else f"{what} {index}"


def _is_id(key: object) -> bool:
    return isinstance(key, (int, str)) and not isinstance(key, bool)


def _numbered(placed: list[tuple[dict[str, Any], str]]) -> dict[Hashable, int]:
    """The number of each node by the id that the file gives it."""
    number: dict[Hashable, int] = {}
    for i, (node, place) in enumerate(placed):
        key = node.get("id", i)
        if not _is_id(key):
            raise InputError(f"the id {shown(key)} is neither a whole number nor text", place)
        if key in number:
            raise InputError(f"the id {shown(key)} is given twice", place)
        number[key] = i
    return number


def _kind(node: dict[str, Any], where: str) -> int:
    kind = node.get("kind", "gpu")
    kind = "accelerator" if kind == "gpu" else kind
    if kind not in KINDS:
        raise InputError(f"the kind {shown(kind)} is none of gpu, {', '.join(KINDS)}", where)
    return KINDS.index(kind)


def _position(node: dict[str, Any], where: str) -> tuple[float, float]:
    if "x" not in node and "y" not in node:
        return math.nan, math.nan
    for axis, other in ("xy", "yx"):
        if axis not in node:
            raise InputError(f"{other!r} is given without {axis!r}; give both or none", where)
    x, y = (number(node, axis, where) for axis in ("x", "y"))
    if not math.isfinite(x) or not math.isfinite(y):
        raise InputError("'x' and 'y' must be finite; leave both out where unknown", where)
    return x, y


def _link(link: dict[str, Any], number: dict[Hashable, int], where: str) -> tuple[int, int, float, float]:
    ends = []
    for end in ("src", "dst"):
        if end not in link:
            raise InputError(f"{end!r} is missing", where)
        key = link[end]
        if not _is_id(key) or key not in number:
            raise InputError(f"{end} {shown(key)} is no node; there are {len(number)}", where)
        ends.append(number[key])
    width = _quantity(link, (("bandwidth_GBps", 1e9), ("bandwidth_Bps", 1.0)), "bandwidth", where)
    delay = _quantity(link, (("latency_us", 1e-6), ("latency_s", 1.0)), "latency", where)
    return ends[0], ends[1], width, delay


def _label(node: dict[str, Any], place: str) -> str:
    """The file's name for a node: its ``name``, or its id if that is a string."""
    named = _text(node, "name", place)
    return named if named or not isinstance(node.get("id"), str) else _text(node, "id", place)


def _filled(names: list[str], kinds: list[int]) -> list[str]:
    """Names for all nodes: a node without one gets its kind and a number."""
    taken, counts, result = set(names), [0, 0, 0], []
    for name, kind in zip(names, kinds, strict=True):
        label = name
        while not label:
            candidate = f"{('gpu', 'router', 'switch')[kind]}{counts[kind]}"
            counts[kind] += 1
            label = candidate if candidate not in taken else ""
        result.append(label)
    return result


def _text(data: dict[str, Any], key: str, where: str | None) -> str:
    value = entry(data, key, str, where, "")
    if value != printable(value):
        raise InputError(f"{key!r} must be one line of printable text, not {shown(value)}", where)
    return value


def _whole(text: str) -> bool:
    """Whether a text has no lone surrogate, which no UTF-8 file could hold."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _quantity(data: dict[str, Any], names: tuple[tuple[str, float], ...], what: str, where: str) -> float:
    """The value of the one entry that is present, in bytes/s or seconds."""
    given = [(key, factor) for key, factor in names if key in data]
    if not given:
        raise InputError(f"the {what} is missing; give {names[0][0]!r}", where)
    if len(given) > 1:
        raise InputError(f"the {what} is given twice, as {given[0][0]!r} and {given[1][0]!r}; keep one", where)
    ((key, factor),) = given
    value = number(data, key, where) * factor
    if not math.isfinite(value) or value < 0 or (what == "bandwidth" and value == 0):
        wanted = "positive" if what == "bandwidth" else "zero or more"
        raise InputError(f"{key!r} must be {wanted} and finite, not {shown(data[key])}", where)
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
        _quantity(data, (("bandwidth_Bps", 1.0),), "bandwidth", where),
        _quantity(data, (("latency_s", 1.0),), "latency", where),
        _quantity(data, (("reconfiguration_s", 1.0),), "reconfiguration time", where),
        np.array(matching, dtype=np.int32),
    )
