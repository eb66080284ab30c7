"""SNDlib's networks, XML and native (http://sndlib.zib.de): places, and links with installed capacity.

A link is undirected; its capacity is what is installed already, else its largest module, in
Mbit/s where the file names no other unit. Costs and demands are left out.
"""

from __future__ import annotations

import re
from typing import Any

from ..model.errors import InputError
from .values import named, one_line, real, shown
from .wan import Cable, Graph, Place

UNITS = {"MBITPERSEC": 1e6 / 8, "GBITPERSEC": 1e9 / 8, "KBITPERSEC": 1e3 / 8}


def _network(where: str) -> Graph:
    graph = Graph.named("", where)
    graph.notes.append("links without capacity have none installed")
    return graph


def _add_place(network: Graph, name: str, x: str, y: str, degrees: bool, where: str) -> None:
    try:
        at = (float(x), float(y))
    except (TypeError, ValueError):
        raise InputError(f"the node {shown(name)} has no coordinates", where) from None
    lon, lat = at if degrees and abs(at[0]) <= 360 and abs(at[1]) <= 90 else (None, None)
    drawn = at if max(map(abs, at)) < 1e300 else None
    network.add_place(name, Place(one_line(name), lon, lat, drawn=drawn), where)


def _add_cable(network: Graph, name: str, ends: list[str], texts: list[str], unit: str, where: str) -> None:
    """Add a link; ``texts`` are the capacities installed, then those of the modules that could be."""
    capacities = [real(text, f"link {shown(name)}: capacity", where) for text in texts]
    width = (capacities[0] or max(capacities)) * UNITS.get(unit.upper(), 1e6 / 8)
    network.cables.append(Cable(*network.ends(ends, f"{where}, link {shown(name)}"), width or None))


def parse_xml(root: Any, where: str) -> Graph:
    """The graph of a ``<network>`` element."""
    network = _network(where)
    structure = named(root, "networkStructure")[0]
    unit = next((u.text or "" for meta in named(root, "meta") for u in named(meta, "unit")), "").strip()
    for nodes in named(structure, "nodes"):
        degrees = nodes.get("coordinatesType", "geographical") == "geographical"
        for node in named(nodes, "node"):
            at = [_text(c, axis) for axis in "xy" for c in named(node, "coordinates")[:1]]
            x, y = at if len(at) == 2 else ("", "")
            _add_place(network, node.get("id") or "", x, y, degrees, where)
    for link in (link for links in named(structure, "links") for link in named(links, "link")):
        name = link.get("id") or ""
        installed = [_text(m, "capacity") for m in named(link, "preInstalledModule")]
        modules = [_text(m, "capacity") for more in named(link, "additionalModules") for m in named(more, "addModule")]
        ends = [_text(link, "source"), _text(link, "target")]
        _add_cable(network, name, ends, (installed[:1] or ["0"]) + modules, unit, where)
    return network


def _text(element: Any, name: str) -> str:
    return next(((child.text or "").strip() for child in named(element, name)), "")


def parse_native(text: str, where: str) -> Graph:
    """The graph of a native text."""
    network = _network(where)
    unit = next(iter(re.findall(r"^\s*unit\s*=\s*(\w+)", text, re.MULTILINE)), "")
    degrees = "PIXEL" not in text.upper()
    for line, words in _section(text, "NODES", where):
        if len(words) != 3:
            raise InputError(f"the node {shown(line)} is not NAME ( X Y )", where)
        _add_place(network, words[0], words[1], words[2], degrees, where)
    for line, words in _section(text, "LINKS", where):
        if len(words) < 4:
            raise InputError(f"the link {shown(line)} is not NAME ( A B ) CAPACITY ...", where)
        _add_cable(network, words[0], words[1:3], [words[3], *words[7::2]], unit, where)
    return network


def _section(text: str, name: str, where: str) -> list[tuple[str, list[str]]]:
    """The lines between ``NAME (`` and the ``)`` that closes it, without comments, each with its words."""
    lines = iter(line.split("#")[0].strip() for line in text.splitlines())
    if not any(line.replace(" ", "") == f"{name}(" for line in lines):
        raise InputError(f"has no section {name} ( ... )", where)
    section: list[tuple[str, list[str]]] = []
    for line in lines:
        if line == ")":
            return section
        if line:
            section.append((line, line.replace("(", " ").replace(")", " ").split()))
    raise InputError(f"the section {name} does not end with )", where)
