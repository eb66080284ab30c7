"""GraphML: the dialect of the Internet Topology Zoo, and what graph libraries write.

Read as http://graphml.graphdrawing.org/specification.html has it: keys with defaults, an edge's own
``directed`` before the graph's. Hyperedges, ports and graphs in graphs are no networks and refused.
"""

from __future__ import annotations

import os
from typing import Any
from xml.etree.ElementTree import ParseError

from ..errors import InputError
from .attributes import cable, one_line, place
from .wan import Cable, Graph, Place

_GRAPH_WORDS = ("id", "source", "target", "directed", "edgedefault", "sourceport", "targetport")


def parse_graphml(text: str, where: str) -> Graph:
    """The graph of a GraphML text.

    Raises:
        InputError: no XML, no graph, an edge to nowhere, an id twice; entities, which could grow
            without bound, are refused.
    """
    root = _parse_xml(text, where)
    graphs = _named(root, "graph")
    if not graphs:
        raise InputError("has no <graph>; a network is <graphml><graph>…</graph></graphml>", where)
    if len(graphs) > 1:
        raise InputError(f"has {len(graphs)} <graph> elements where one is wanted", where)
    graph, attributes = graphs[0], _Attributes(root)
    number: dict[str, int] = {}
    places: list[Place] = []
    cables: list[Cable] = []
    for element in graph:
        tag = _tag(element)
        if tag == "hyperedge" or (tag in ("node", "edge") and _named(element, "graph")):
            raise InputError("has hyperedges or graphs in graphs; write plain nodes and edges", where)
        if tag == "node":
            key = element.get("id")
            if key is None or key in number:
                raise InputError(f"node {len(number)}: the id {_short(key)} is missing or given twice", where)
            number[key] = len(number)
            places.append(place(attributes.of(element, "node"), f"{where}, node {_short(key)}"))
    both_ways = graph.get("edgedefault") != "directed"
    for i, element in enumerate(_named(graph, "edge")):
        at = f"{where}, edge {i}"
        ends = [element.get("source"), element.get("target")]
        for end in ends:
            if end not in number:
                raise InputError(f"leads to {_short(end)}, which is no node", at)
        directed = element.get("directed", "false" if both_ways else "true") == "true"
        own = attributes.of(element, "edge")
        cables.append(cable(number[ends[0]], number[ends[1]], own, directed, at))
    name = one_line(attributes.of(graph, "graph").get("label", ""))
    return Graph(name or one_line(os.path.splitext(os.path.basename(where))[0]), places, cables)


def _parse_xml(text: str, where: str) -> Any:
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        return fromstring(text.encode())
    except ParseError as error:
        raise InputError(f"is no XML: {error}", where) from None
    except DefusedXmlException:
        raise InputError("is not accepted: it declares XML entities; remove its DOCTYPE", where) from None
    except (ValueError, LookupError, RecursionError) as error:
        raise InputError(f"is no XML that can be read: {one_line(str(error))}; save it as UTF-8", where) from None


def _tag(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _named(element: Any, tag: str) -> list[Any]:
    return [child for child in element if _tag(child) == tag]


def _short(key: str | None) -> str:
    return repr(key if key is None or len(key) <= 40 else key[:40] + "…")


class _Attributes:
    """The keys that a GraphML text declares, to read the data of its elements by."""

    def __init__(self, root: Any) -> None:
        self.names: dict[str | None, str] = {}
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        for key in _named(root, "key"):
            name = key.get("attr.name") or key.get("id") or ""
            self.names[key.get("id")] = name
            default = next(((d.text or "").strip() for d in _named(key, "default")), "")
            for domain in self.defaults if key.get("for", "all") == "all" else (key.get("for"),):
                if default and domain in self.defaults:
                    self.defaults[domain][name] = default

    def of(self, element: Any, domain: str) -> dict[str, str]:
        """Name and value of each attribute of an element: defaults, then XML attributes, then data."""
        own = {k: v for k, v in element.attrib.items() if k not in _GRAPH_WORDS}
        data = {}
        for child in _named(element, "data"):
            key = child.get("key")
            data[self.names.get(key, key or "")] = (child.text or "").strip()
        return self.defaults[domain] | own | data
