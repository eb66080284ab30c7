"""SNDlib's networks, XML and native (http://sndlib.zib.de): places, and links with installed capacity.

A link is undirected; its capacity is what is installed already, else its largest module, in
Mbit/s where the file names no other unit. Costs and demands are left out.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ..model.errors import InputError
from .attributes import one_line
from .values import named, real, shown, tag
from .wan import Cable, Graph, Place

UNITS = {"MBITPERSEC": 1e6 / 8, "GBITPERSEC": 1e9 / 8, "KBITPERSEC": 1e3 / 8}


def is_sndlib(root: Any) -> bool:
    """Whether an XML root is SNDlib's."""
    return tag(root) == "network" and bool(named(root, "networkStructure"))


def looks_native(text: str) -> bool:
    """Whether a text is in the native format."""
    return text.lstrip().startswith("?SNDlib native format")


class _Network:
    """Places and cables, collected while the file is read."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.number: dict[str, int] = {}
        self.places: list[Place] = []
        self.cables: list[Cable] = []

    def place(self, name: str, x: str, y: str, degrees: bool) -> None:
        if not name or name in self.number:
            raise InputError(f"the node {shown(name)} has no name, or is given twice", self.where)
        try:
            at = (float(x), float(y))
        except (TypeError, ValueError):
            raise InputError(f"the node {shown(name)} has no coordinates", self.where) from None
        self.number[name] = len(self.places)
        degrees = degrees and abs(at[0]) <= 360 and abs(at[1]) <= 90
        lon, lat = at if degrees else (None, None)
        self.places.append(Place(one_line(name), lon, lat, drawn=at if max(map(abs, at)) < 1e300 else None))

    def cable(self, name: str, ends: list[str], capacities: list[float], unit: float) -> None:
        for end in ends:
            if end not in self.number:
                raise InputError(f"link {shown(name)} leads to {shown(end)}, which is no node", self.where)
        width = (capacities[0] or max(capacities)) * unit if capacities else 0.0
        self.cables.append(Cable(self.number[ends[0]], self.number[ends[1]], width or None))

    def graph(self) -> Graph:
        name = one_line(os.path.splitext(os.path.basename(self.where))[0])
        return Graph(name, self.places, self.cables, ["links without capacity have none installed"])


def parse_sndlib_xml(root: Any, where: str) -> Graph:
    """The graph of a ``<network>`` element.

    Raises:
        InputError: a node or link lacks an entry; names it.
    """
    network = _Network(where)
    structure = named(root, "networkStructure")[0]
    unit = next((u.text or "" for meta in named(root, "meta") for u in named(meta, "unit")), "").strip()
    for nodes in named(structure, "nodes"):
        degrees = nodes.get("coordinatesType", "geographical") == "geographical"
        for node in named(nodes, "node"):
            at = [_text(c, axis) for axis in "xy" for c in named(node, "coordinates")[:1]]
            x, y = at if len(at) == 2 else ("", "")
            network.place(node.get("id") or "", x, y, degrees)
    for link in (link for links in named(structure, "links") for link in named(links, "link")):
        name = link.get("id") or ""
        installed = [_text(m, "capacity") for m in named(link, "preInstalledModule")]
        modules = [_text(m, "capacity") for more in named(link, "additionalModules") for m in named(more, "addModule")]
        sizes = [real(c, f"link {shown(name)}: capacity", where) for c in ([*installed[:1]] or ["0"]) + modules]
        network.cable(name, [_text(link, "source"), _text(link, "target")], sizes, UNITS.get(unit, 1e6 / 8))
    return network.graph()


def _text(element: Any, name: str) -> str:
    return next(((child.text or "").strip() for child in named(element, name)), "")


def parse_sndlib_native(text: str, where: str) -> Graph:
    """The graph of a native text.

    Raises:
        InputError: a line in NODES or LINKS cannot be parsed.
    """
    network = _Network(where)
    unit = next(iter(re.findall(r"^\s*unit\s*=\s*(\w+)", text, re.MULTILINE)), "")
    degrees = "PIXEL" not in text.upper()
    for line in _section(text, "NODES", where):
        found = line.replace("(", " ").replace(")", " ").split()
        if len(found) != 3:
            raise InputError(f"the node {shown(line)} is not NAME ( X Y )", where)
        network.place(found[0], found[1], found[2], degrees)
    for line in _section(text, "LINKS", where):
        found = line.replace("(", " ").replace(")", " ").split()
        if len(found) < 4:
            raise InputError(f"the link {shown(line)} is not NAME ( A B ) CAPACITY ...", where)
        sizes = [real(c, f"link {shown(found[0])}: capacity", where) for c in [found[3], *found[7::2]]]
        network.cable(found[0], found[1:3], sizes, UNITS.get(unit.upper(), 1e6 / 8))
    return network.graph()


def _section(text: str, name: str, where: str) -> list[str]:
    """The lines between ``NAME (`` and the ``)`` that closes it, without comments."""
    lines = iter(line.split("#")[0].strip() for line in text.splitlines())
    if not any(line.replace(" ", "") == f"{name}(" for line in lines):
        raise InputError(f"has no section {name} ( ... )", where)
    found: list[str] = []
    for line in lines:
        if line == ")":
            return found
        if line:
            found.append(line)
    raise InputError(f"the section {name} does not end with )", where)
