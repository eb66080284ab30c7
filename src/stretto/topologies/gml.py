"""GML (Himsolt's Graph Modelling Language): keys and values, a value being a number, text or list.

rustworkx does not read GML, and the grammar is four tokens, so it is read here.
"""

from __future__ import annotations

import html
import re
from typing import Any

from ..model.errors import InputError
from .attributes import cable, place
from .values import shown
from .wan import Graph

_TOKEN = re.compile(r'#[^\n]*|(?P<text>"[^"]*")|(?P<open>\[)|(?P<close>\])|(?P<word>[^\s\[\]"]+)|(?P<quote>")')

Items = list[tuple[str, Any]]


def begins_graph(text: str) -> bool:
    """Whether a line of the beginning opens a graph."""
    return bool(re.search(r"(?mi)^[ \t]*graph\s*(\[|$)", text[:10_000]))


def parse(text: str, where: str) -> Graph:
    """The graph of a GML text."""
    graphs = [v for k, v in _items(text, where) if k.lower() == "graph" and isinstance(v, list)]
    if not graphs:
        raise InputError("has no graph; a network is graph [ node [ id 0 ] … ]", where)
    if len(graphs) > 1:
        raise InputError(f"has {len(graphs)} graphs where one is wanted", where)
    graph = graphs[0]
    facts = _plain(graph)
    directed = facts.get("directed") == "1"
    network = Graph.named(facts.get("label", ""), where)
    for node in _lists(graph, "node"):
        attributes = _plain(node)
        key = attributes.pop("id", None)
        graphics = next((_plain(v) for k, v in node if k == "graphics" and isinstance(v, list)), {})
        drawn = {axis: graphics[axis] for axis in ("x", "y") if axis in graphics}
        network.add_place(key, place(drawn | attributes, f"{where}, node {shown(key)}"), where)
    for i, edge in enumerate(_lists(graph, "edge")):
        at, attributes = f"{where}, edge {i}", _plain(edge)
        ends = network.ends([attributes.pop(end, None) for end in ("source", "target")], at)
        network.cables.append(cable(*ends, attributes, directed, at))
    return network


def _lists(items: Items, key: str) -> list[Items]:
    return [v for k, v in items if k.lower() == key and isinstance(v, list)]


def _plain(items: Items) -> dict[str, str]:
    """The values that are not lists; keys of the grammar in lower case, other keys unchanged."""
    words = ("id", "label", "source", "target", "directed")
    return {(k.lower() if k.lower() in words else k): v for k, v in items if isinstance(v, str)}


def _items(text: str, where: str) -> Items:
    top: Items = []
    stack = [top]
    key: str | None = None

    def line_of(match: re.Match[str]) -> int:
        return text.count("\n", 0, match.start()) + 1

    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind is None:  # a comment
            continue
        if kind == "quote":
            raise InputError(f"is no GML: a quotation mark that is not closed at line {line_of(match)}", where)
        if key is None and kind == "close" and len(stack) > 1:
            stack.pop()
        elif key is None and kind == "word":
            key = token
        elif key is None or kind == "close":
            wanted = "a key" if key is None else f"the value of {key[:20]!r}"
            raise InputError(f"is no GML: {token[:20]!r} stands where {wanted} should, line {line_of(match)}", where)
        else:
            # GML is ASCII: other letters are written as &eacute; or &#233;
            value: Any = [] if kind == "open" else html.unescape(token.strip('"'))
            stack[-1].append((key, value))
            if kind == "open":
                stack.append(value)
            key = None
    if len(stack) > 1 or key is not None:
        raise InputError("is no GML: it ends in the middle; a ] or a value is missing", where)
    return top
