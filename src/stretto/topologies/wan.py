"""From a graph of places and cables to a topology, with defaults for missing data.

The Internet Topology Zoo, GraphML, GML and SNDlib files are read this way. A node is an accelerator unless its
data says otherwise. An undirected edge becomes two links. Parallel edges become one link: their bandwidths
add up, its latency is the lowest. An edge from a node to itself is dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ..model.errors import InputError
from ..model.reach import reachable_from
from ..model.topology import ACCELERATOR, Topology, make_topology
from ..model.units import format_bandwidth, format_time, parse_bandwidth, parse_time
from ..model.variants import usable
from . import Setting
from .sites import FIBRE_KM_PER_S
from .values import one_line, shown

DEFAULT_BANDWIDTH, DEFAULT_LATENCY_S = 1.25e9, 1e-3
EARTH_RADIUS_KM = 6371.0

SETTINGS = (
    Setting("bandwidth", parse_bandwidth, None, "of every link; without it the data's, else 10Gbit/s"),
    Setting("latency", parse_time, None, "of every link; without it by distance at 200,000 km/s, else 1ms"),
)


@dataclass
class Place:
    """A node of a file; an unknown value is None."""

    name: str
    lon: float | None = None  # degrees, from which latencies are computed
    lat: float | None = None
    kind: int = ACCELERATOR
    site: str = ""
    drawn: tuple[float, float] | None = None  # where to draw the node if no node has degrees


@dataclass
class Cable:
    """An edge of a file, between indexes of places."""

    a: int
    b: int
    bandwidth: float | None = None
    latency_s: float | None = None
    directed: bool = False
    message_s: float | None = None


@dataclass
class Graph:
    """Places and cables, before gaps are filled; ``number`` has the index of each place by its id in the file."""

    name: str
    places: list[Place] = field(default_factory=list)
    cables: list[Cable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)

    @classmethod
    def named(cls, label: str, path: str) -> Graph:
        """An empty graph with the label that a file gives it, else with the name of the file."""
        return cls(one_line(label) or one_line(Path(path).stem))

    def add_place(self, key: str | None, place: Place, where: str) -> None:
        """Add the node with an id; InputError if there is no id, or another node has it."""
        if not key or key in self.number:
            raise InputError(f"node {len(self.places)}: the id {shown(key)} is missing or given twice", where)
        self.number[key] = len(self.places)
        self.places.append(place)

    def ends(self, keys: Sequence[str | None], where: str) -> tuple[int, int]:
        """The indexes of the two places that an edge joins; InputError if an id is no node's."""
        for key in keys:
            if key not in self.number:
                raise InputError(f"leads to {shown(key)}, which is no node", where)
        a, b = (self.number[key or ""] for key in keys)
        return a, b


def kilometres(a: Place, b: Place) -> float | None:
    """The great-circle distance, None where a coordinate is missing."""
    if a.lon is None or a.lat is None or b.lon is None or b.lat is None:
        return None
    p, q = math.radians(a.lat), math.radians(b.lat)
    turn = math.radians(b.lon - a.lon)
    h = math.sin((q - p) / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin(turn / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


def to_topology(graph: Graph, settings: dict[str, Any], where: str) -> Topology:
    """Fill gaps, merge parallel edges, check, and say in the notes what was done."""
    if len(graph.places) < 2:
        raise InputError("a network needs at least two nodes", where)
    links, filled = _merged(graph, settings)
    places = graph.places
    known = [(p.lon, p.lat) if p.lon is not None and p.lat is not None else None for p in places]
    geographic = any(known)
    positions = known if geographic else [p.drawn for p in places]
    topology = make_topology(
        graph.name,
        [p.kind for p in places],
        [(a, b, *value) for (a, b), value in sorted(links.items())],
        message_s=_messages_s(graph, sorted(links)),
        names=_unique([p.name for p in places]),
        sites=[p.site for p in places],
        xy=[position or (math.nan, math.nan) for position in positions],
        geographic=geographic,
        notes=[*graph.notes, *(what.format(edges) for what, edges in filled.items())],
        where=where,
    )
    check_connected(topology, where)
    return topology


def _merged(graph: Graph, settings: dict[str, Any]) -> tuple[dict[tuple[int, int], tuple[float, float]], Counter[str]]:
    """Bandwidth and latency of each directed link, and how many links got which default.

    A bandwidth given as a setting is that of every link: parallel edges do not add it up.
    """
    filled = Counter[str]()
    links: dict[tuple[int, int], tuple[float, float]] = {}
    for cable in graph.cables:
        if cable.a == cable.b:
            filled["edges from a node to itself left out: {}"] += 1
            continue
        width, delay = cable.bandwidth, cable.latency_s
        if width is None:
            width = DEFAULT_BANDWIDTH
            if settings["bandwidth"] is None:
                filled[f"edges without a bandwidth, taken as {format_bandwidth(width)}: {{}}"] += 1
        if delay is None:
            km = kilometres(graph.places[cable.a], graph.places[cable.b])
            delay = DEFAULT_LATENCY_S if km is None else km / FIBRE_KM_PER_S
            if km is None and settings["latency"] is None:
                filled[f"edges without coordinates, taken as {format_time(delay)} long: {{}}"] += 1
        pairs = ((cable.a, cable.b), (cable.b, cable.a))[: 1 if cable.directed else 2]
        if any(pair in links for pair in pairs):
            filled["parallel edges added up: {}"] += 1
        for pair in pairs:
            before = links.get(pair, (0.0, math.inf))
            links[pair] = (before[0] + width, min(before[1], delay))
    width, delay = settings["bandwidth"], settings["latency"]
    forced = {pair: (w if width is None else width, t if delay is None else delay) for pair, (w, t) in links.items()}
    return forced, filled


def _messages_s(graph: Graph, links: list[tuple[int, int]]) -> list[float] | None:
    """What a message costs on each link, of parallel edges the most; None if no edge says it."""
    if all(cable.message_s is None for cable in graph.cables):
        return None
    cost = dict.fromkeys(links, 0.0)
    for cable in graph.cables:
        for pair in ((cable.a, cable.b), (cable.b, cable.a))[: 1 if cable.directed else 2]:
            if pair in cost:
                cost[pair] = max(cost[pair], cable.message_s or 0.0)
    return list(cost.values())


def _unique(names: list[str]) -> list[str]:
    """Names for all places: a missing or repeated name gets a number."""
    seen: Counter[str] = Counter()
    taken = set(names)
    result = []
    for i, name in enumerate(names):
        label = name or f"node{i}"
        seen[label] += 1
        if seen[label] > 1:
            label = next(free for k in count(seen[label]) if (free := f"{label} ({k})") not in taken)
            taken.add(label)
        result.append(label)
    return result


def check_connected(topology: Topology, where: str) -> None:
    """Refuse a network in which some accelerator cannot reach another. A plane counts as joining all its nodes."""
    first, net = int(topology.accelerators[0]), usable(topology)
    remedy = "add the missing links" + ("" if net is topology else ", or let routes pass through all switches")
    for backward in (False, True):
        lost = topology.accelerators[~reachable_from(net, [first], backward)[topology.accelerators]]
        if len(lost):
            a, b = (topology.names[v] for v in ((lost[0], first) if backward else (first, lost[0])))
            raise InputError(f"{a} cannot reach {b}: the network is not connected; {remedy}", where)
