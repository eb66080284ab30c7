"""GraphML as the Internet Topology Zoo and graph libraries write it.

Read by http://graphml.graphdrawing.org/specification.html: keys have defaults, and an edge's own ``directed``
overrides the graph's. Hyperedges, ports and nested graphs are refused.
"""

from __future__ import annotations

from typing import Any

from ..model.errors import InputError
from ..model.topology import KINDS, Topology
from .attributes import cable, place
from .values import named, shown, tag
from .wan import Graph

_GRAPH_WORDS = ("id", "source", "target", "directed", "edgedefault", "sourceport", "targetport")


def parse(root: Any, where: str) -> Graph:
    """The graph of a ``<graphml>`` element."""
    graphs = named(root, "graph")
    if not graphs:
        raise InputError("has no <graph>; a network is <graphml><graph>…</graph></graphml>", where)
    if len(graphs) > 1:
        raise InputError(f"has {len(graphs)} <graph> elements where one is wanted", where)
    graph, attributes = graphs[0], _Attributes(root)
    network = Graph.named(attributes.of(graph, "graph").get("label", ""), where)
    for element in graph:
        what = tag(element)
        if what == "hyperedge" or (what in ("node", "edge") and named(element, "graph")):
            raise InputError("has hyperedges or graphs in graphs; write plain nodes and edges", where)
        if what == "node":
            key = element.get("id")
            network.add_place(key, place(attributes.of(element, "node"), f"{where}, node {shown(key)}"), where)
    both_ways = graph.get("edgedefault") != "directed"
    for i, element in enumerate(named(graph, "edge")):
        at = f"{where}, edge {i}"
        ends = network.ends([element.get("source"), element.get("target")], at)
        directed = element.get("directed", "false" if both_ways else "true") == "true"
        network.cables.append(cable(*ends, attributes.of(element, "edge"), directed, at))
    return network


class _Attributes:
    """The keys that a GraphML text declares; they say what the data of its elements mean."""

    def __init__(self, root: Any) -> None:
        self.names: dict[str | None, str] = {}
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        for key in named(root, "key"):
            name = key.get("attr.name") or key.get("id") or ""
            self.names[key.get("id")] = name
            default = next(((d.text or "").strip() for d in named(key, "default")), "")
            for domain in self.defaults if key.get("for", "all") == "all" else (key.get("for"),):
                if default and domain in self.defaults:
                    self.defaults[domain][name] = default

    def of(self, element: Any, domain: str) -> dict[str, str]:
        """Name and value of each attribute of an element: defaults, then XML attributes, then data."""
        own = {k: v for k, v in element.attrib.items() if k not in _GRAPH_WORDS}
        data = {}
        for child in named(element, "data"):
            key = child.get("key")
            data[self.names.get(key, key or "")] = (child.text or "").strip()
        return self.defaults[domain] | own | data


_KEYS = (
    ("node", "string", ("name", "kind", "site")),
    ("node", "double", ("x", "y", "lon", "lat")),
    ("edge", "double", ("bandwidth_Bps", "latency_s", "message_s")),
    ("graph", "string", ("label",)),
)


def write(topology: Topology) -> str:
    """The GraphML text of a topology. It does not keep ``transit``, ``replicates``, ``reduces``,
    prices and planes."""
    from xml.sax.saxutils import escape

    def data(key: str, value: object) -> str:
        return f'<data key="{key}">{escape(str(value))}</data>'

    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    lines += [
        f'<key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>'
        for of, kind, names in _KEYS
        for name in names
    ]
    lines += ['<graph edgedefault="directed">', data("label", topology.name)]
    axes = ("lon", "lat") if topology.geographic else ("x", "y")
    for v, (name, site) in enumerate(zip(topology.names, topology.sites, strict=True)):
        known = [data("name", name), data("kind", KINDS[topology.kind[v]])] + [data("site", site)] * bool(site)
        x, y = map(float, topology.xy[v])
        known += [data(axes[0], repr(x)), data(axes[1], repr(y))] if x == x and y == y else []
        lines.append(f'<node id="n{v}">{"".join(known)}</node>')
    columns = (topology.src, topology.dst, topology.bandwidth, topology.latency_s, topology.message_s)
    costs = topology.knows_messages
    for a, b, width, delay, message_s in zip(*(c.tolist() for c in columns), strict=True):
        known = [data("bandwidth_Bps", repr(width)), data("latency_s", repr(delay))]
        known += [data("message_s", repr(message_s))] * bool(costs)
        lines.append(f'<edge source="n{a}" target="n{b}">{"".join(known)}</edge>')
    return "\n".join([*lines, "</graph>", "</graphml>", ""])
