"""The network: nodes, directed links, and the planes of optical circuit switches.

A node is an *accelerator* (sends, receives, stores, reduces; store-and-forward), a *router* (stores, replicates,
cut-through) or a *switch* (stores nothing, is only passed through; it may replicate). Three flags say what it can do:
``transit``, whether a route may pass through it as one fluid pipe, ``replicates``, whether that pipe may branch there,
and ``reduces``, whether a switch may sum what comes in over several links. A router that no route may pass through
stores whole messages before it sends them on, as an accelerator does (:func:`.variants.storing`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from .arrays import Bool, Float64, Int8, Int32, Int64, Ragged
from .changes import NO_CHANGES, Changes, make_changes
from .errors import InputError
from .units import BANDWIDTHS, LONGEST_S, format_bandwidth

ACCELERATOR, ROUTER, SWITCH = 0, 1, 2
KINDS = ("accelerator", "router", "switch")

HIGHEST_USD = 1.0
"""The highest price of a link, USD a byte."""

_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, eq=False)
class Plane:
    """One optical circuit switch: it joins port i of every node in ``nodes`` to one other port.

    Attributes:
        nodes: int32[ports], the node behind each port.
        bandwidth: bytes/s of a circuit.
        latency_s: latency of a circuit, seconds.
        reconfiguration_s: time in which the plane changes its matching and carries nothing.
        matching: int32[ports], the port that each port sends to at first, -1 for none. A plane that joins nothing at
            first takes its first matching before time zero.
    """

    nodes: Int32
    bandwidth: float
    latency_s: float
    reconfiguration_s: float
    matching: Int32

    def __repr__(self) -> str:
        return f"<Plane of {len(self.nodes)} ports, {format_bandwidth(self.bandwidth)} a circuit>"


UNKNOWN, GIVEN, ASSUMED = MESSAGE_BASES = ("unknown", "given", "assumed")
"""Whether a topology's source says what messages cost. Where it does not they cost nothing, unless a cost is assumed
(:func:`stretto.topologies.assume_messages`)."""


@dataclass(frozen=True, eq=False)
class Topology:
    """Nodes and directed links, as columns. Build one with :func:`make_topology`.

    Attributes:
        name: what reports call it.
        kind: int8[nodes], index into :data:`KINDS`.
        replicates, transit, reduces: bool[nodes], see the module.
        names: the label of each node.
        sites: the server or datacenter of each node, "" where unknown.
        xy: float64[nodes, 2], longitude and latitude (or a drawing position), NaN where unknown.
        src, dst: int32[links], end nodes.
        bandwidth: float64[links], bytes/s.
        latency_s: float64[links], seconds.
        message_s: float64[links], seconds for which each message keeps a link busy besides its bytes.
        planes: the optical circuit switches, if any.
        notes: what a reader should know, e.g. which defaults filled gaps in the data.
        changes: how the bandwidth of links changes with time, if it does.
        message_basis: how ``message_s`` is known, one of ``MESSAGE_BASES``.
        usd_per_byte: float64[links], what a byte over each link costs, US dollars; 0 where nothing is charged.
    """

    name: str
    kind: Int8
    replicates: Bool
    transit: Bool
    reduces: Bool
    names: tuple[str, ...]
    sites: tuple[str, ...]
    xy: Float64
    geographic: bool
    src: Int32
    dst: Int32
    bandwidth: Float64
    latency_s: Float64
    message_s: Float64
    usd_per_byte: Float64
    planes: tuple[Plane, ...] = ()
    notes: tuple[str, ...] = field(default=())
    changes: Changes = NO_CHANGES
    message_basis: str = UNKNOWN

    def __repr__(self) -> str:
        counts = Counter(KINDS[k] for k in self.kind.tolist())
        plural = {"switch": "switches"}
        nodes = ", ".join(f"{n} {kind if n == 1 else plural.get(kind, kind + 's')}" for kind, n in counts.items())
        widths = sorted({*self.bandwidth.tolist(), *(plane.bandwidth for plane in self.planes)})
        rates = " to ".join(format_bandwidth(w) for w in dict.fromkeys((widths[0], widths[-1]))) if widths else "none"
        planes = f", {len(self.planes)} optical planes" if self.planes else ""
        changes = f"; {len(self.changes)} changes of bandwidth" if self.changes else ""
        sums = f" (reducing: {self.reduces.sum()})" if self.reduces.any() else ""
        return f"<Topology {self.name}: {nodes}{sums}\n {self.link_count} directed links{planes}; {rates}{changes}>"

    @property
    def knows_messages(self) -> bool:
        """Whether it says what messages cost."""
        return self.message_basis != UNKNOWN or bool(self.message_s.any())

    @property
    def node_count(self) -> int:
        return len(self.kind)

    @property
    def link_count(self) -> int:
        return len(self.src)

    @cached_property
    def accelerators(self) -> Int32:
        """int32[n], the node ids of the accelerators: the default ranks, in order."""
        return np.flatnonzero(self.kind == ACCELERATOR).astype(np.int32)

    @cached_property
    def is_accelerator(self) -> Bool:
        return np.asarray(self.kind == ACCELERATOR)

    @cached_property
    def is_router(self) -> Bool:
        return np.asarray(self.kind == ROUTER)

    @cached_property
    def is_switch(self) -> Bool:
        """bool[nodes]. All other nodes store what they get."""
        return np.asarray(self.kind == SWITCH)

    @cached_property
    def forwarding(self) -> Int8:
        """int8[nodes], how each node sends on: as its kind, but as an accelerator where a router has no transit."""
        whole = (self.kind == ROUTER) & ~self.transit
        return np.where(whole, ACCELERATOR, self.kind).astype(np.int8)

    @cached_property
    def store_and_forward(self) -> Bool:
        """bool[nodes], who sends on only what has arrived whole, and lets no route pass through."""
        return np.asarray((self.forwarding == ACCELERATOR) & ~self.transit)

    @cached_property
    def adds(self) -> Bool:
        """bool[nodes], who can sum what comes to it: accelerators, routers that store whole messages, and switches that
        reduce."""
        return np.asarray((self.forwarding == ACCELERATOR) | self.reduces)

    @cached_property
    def out_links(self) -> Ragged:
        """For each node the links that leave it, in link order."""
        return Ragged.grouped(self.src, np.arange(self.link_count), self.node_count)

    @cached_property
    def in_links(self) -> Ragged:
        """For each node the links that enter it, in link order."""
        return Ragged.grouped(self.dst, np.arange(self.link_count), self.node_count)

    def route_latency_s(self, route: Ragged) -> Float64:
        """float64[routes], the sum of the latencies of each route's links, seconds."""
        return route.reduced(np.add, self.latency_s[route.values])

    def route_bandwidth(self, route: Ragged) -> Float64:
        """float64[routes], the bandwidth of each route's slowest link, bytes/s."""
        return route.reduced(np.minimum, self.bandwidth[route.values])

    @cached_property
    def message_bytes(self) -> Float64:
        """float64[links], the bytes that each link could carry in what a message costs it."""
        return self.message_s * self.bandwidth

    def route_s(self, route: Ragged, size_bytes: Int64 | Float64) -> Float64:
        """float64[routes], how long a message of ``size_bytes`` keeps the busiest link of each route, seconds."""
        links = route.values
        return route.reduced(np.maximum, size_bytes[route.owners] / self.bandwidth[links] + self.message_s[links])

    def with_links(self, links: Int32 | Int64 | Bool) -> Topology:
        """The network with only some of its links, by index or mask."""
        columns = ("src", "dst", "bandwidth", "latency_s", "message_s", "usd_per_byte")
        kept = {name: getattr(self, name)[links] for name in columns}
        return replace(self, **kept, changes=self.changes.of_links(links))

    @cached_property
    def at_best(self) -> Topology:
        """The network where each link always has the largest bandwidth that it ever has. No plan ends later there.

        A message counts as the same number of bytes there as here.
        """
        if not self.changes:
            return self
        best = self.changes.best(self.bandwidth)
        usable = np.maximum(best, BANDWIDTHS[0])
        message_s = self.message_s * (self.bandwidth / usable)
        return replace(self, bandwidth=usable, message_s=message_s, changes=NO_CHANGES)

    @cached_property
    def delayed(self) -> Topology:
        """The network where messages cost nothing, and where links to nodes that store have their cost as latency.

        Where no bandwidth changes, no plan ends later here: a node that stores has a message no sooner than its cost
        and the latency have passed.
        """
        if not self.message_s.any():
            return self
        cost_s = np.where(self.store_and_forward[self.dst], self.message_s, 0.0)
        return replace(self, latency_s=self.latency_s + cost_s, message_s=np.zeros(self.link_count))

    @cached_property
    def relaying(self) -> Topology:
        """The network where each switch that reduces is a router that sums. No plan ends later here."""
        if not self.reduces.any():
            return self
        return replace(self, kind=np.where(self.reduces, ROUTER, self.kind).astype(np.int8))

    def link_name(self, link: int) -> str:
        """``gpu3→switch0``: a link as reports and messages write it."""
        return f"{self.names[self.src[link]]}→{self.names[self.dst[link]]}"

    def to_json(self) -> dict[str, Any]:
        """The object of a topology file (docs: topologies), lossless."""
        nodes = []
        for v in range(self.node_count):
            node: dict[str, Any] = {"id": v, "kind": KINDS[self.kind[v]], "name": self.names[v]}
            if self.sites[v]:
                node["site"] = self.sites[v]
            if not np.isnan(self.xy[v]).any():
                node["x"], node["y"] = map(float, self.xy[v])
            for flag, does in (("transit", bool(self.transit[v])), ("replicates", bool(self.replicates[v]))):
                if does != (self.kind[v] != ACCELERATOR):
                    node[flag] = does
            if self.reduces[v]:
                node["reduces"] = True
            nodes.append(node)
        links = [
            {"src": int(a), "dst": int(b), "bandwidth_Bps": float(w), "latency_s": float(t)}
            for a, b, w, t in zip(self.src, self.dst, self.bandwidth, self.latency_s, strict=True)
        ]
        if self.message_s.any():
            for link, message_s in zip(links, self.message_s.tolist(), strict=True):
                link["message_s"] = message_s
        for i in np.flatnonzero(self.usd_per_byte).tolist():
            links[i]["usd_per_byte"] = float(self.usd_per_byte[i])
        out: dict[str, Any] = {"name": self.name, "nodes": nodes, "links": links}
        if self.message_basis == ASSUMED:
            out["message_assumed"] = True
        elif self.message_basis == GIVEN and not self.message_s.any():
            out["message_s"] = 0.0
        if self.geographic:
            out["geographic"] = True
        if self.notes:
            out["notes"] = list(self.notes)
        if self.changes:
            out["changes"] = self.changes.to_json()
        if self.planes:
            out["planes"] = [
                {"nodes": p.nodes.tolist(), "bandwidth_Bps": p.bandwidth, "latency_s": p.latency_s,
                 "reconfiguration_s": p.reconfiguration_s, "matching": p.matching.tolist()}
                for p in self.planes
            ]  # fmt: skip
        return out


def make_topology(
    name: str,
    kinds: Sequence[int],
    links: Iterable[tuple[int, int, float, float]] | Float64,
    *,
    message_s: Sequence[float] | Float64 | None = None,
    message_basis: str | None = None,
    usd_per_byte: Sequence[float] | Float64 | None = None,
    names: Sequence[str] | None = None,
    sites: Sequence[str] | None = None,
    xy: Sequence[tuple[float, float]] | Float64 | None = None,
    geographic: bool = False,
    replicates: Sequence[bool] | None = None,
    transit: Sequence[bool] | None = None,
    reduces: Sequence[bool] | Bool | None = None,
    planes: Sequence[Plane] = (),
    notes: Sequence[str] = (),
    changes: Iterable[tuple[float, int, float]] | Float64 = (),
    where: str | None = None,
) -> Topology:
    """Build and check a topology.

    Args:
        kinds: one of ACCELERATOR, ROUTER, SWITCH for each node.
        links: ``(src, dst, bandwidth in bytes/s, latency in seconds)``, directed; or an array with such rows.
        message_s: seconds for which each message keeps each link busy besides its bytes; 0 by default.
        message_basis: how they are known; by default given if ``message_s`` is.
        usd_per_byte: what a byte over each link costs, US dollars; 0 by default.
        replicates: whether a node copies; by default true for routers and switches, false for accelerators.
        transit: whether routes may pass through a node; by default likewise.
        reduces: whether a node sums what comes in over several links: only a switch can; by default none does.
        changes: ``(seconds, link, bytes/s from then on)``, see :func:`stretto.model.changes.make_changes`.
        where: the file or argument to name in errors.
    Raises:
        InputError: a link to nowhere, to itself or twice, a bandwidth outside of 1 to 1e18 B/s, a latency or a cost of
            a message outside of zero to a year, a price outside of 0 to 1 USD a byte, a name that two nodes have or
            that is not one printable line, a node that reduces and is no switch, or no accelerator.
    """
    kind = np.asarray(kinds, dtype=np.int8)
    n = len(kind)
    table = np.array(links if isinstance(links, np.ndarray) else list(links), dtype=np.float64).reshape(-1, 4)
    src, dst = table[:, 0].astype(np.int32), table[:, 1].astype(np.int32)
    numbers = [count(), count(), count()]
    labels = list(names or ()) or [f"{('gpu', 'router', 'switch')[k]}{next(numbers[k])}" for k in kind]
    for text in (name, *labels, *(sites or ())):
        if text != printable(text):
            raise InputError(f"the name {text[:40]!a} must be one line of printable text", where)
    if len(set(labels)) != len(labels):
        twice = next(name for name, number in Counter(labels).items() if number > 1)
        raise InputError(f"two nodes are called {twice!r}; give each a name of its own", where)
    message = np.zeros(len(table)) if message_s is None else np.array(message_s, dtype=np.float64)
    price = np.zeros(len(table)) if usd_per_byte is None else np.array(usd_per_byte, dtype=np.float64)
    _check_links(labels, src, dst, table[:, 2], table[:, 3], message, price, where)
    if not (kind == ACCELERATOR).any():
        raise InputError("no accelerator: at least one node must have kind 'accelerator'", where)
    passable = kind != ACCELERATOR
    sums = np.zeros(n, dtype=np.bool_) if reduces is None else np.asarray(reduces, dtype=np.bool_)
    wrong = sums & ~((kind == SWITCH) & (passable if transit is None else np.asarray(transit, dtype=np.bool_)))
    if wrong.any():
        raise InputError(
            f"{labels[int(wrong.argmax())]!r} cannot reduce: only a switch that routes pass through can", where
        )
    steps = make_changes(changes, len(table), where)
    if planes and steps:
        raise InputError("bandwidths of links cannot change where there are optical planes", where)
    return Topology(
        name=name,
        kind=kind,
        replicates=passable if replicates is None else np.asarray(replicates, dtype=np.bool_),
        transit=passable if transit is None else np.asarray(transit, dtype=np.bool_),
        reduces=sums,
        names=tuple(labels),
        sites=tuple(sites) if sites is not None else ("",) * n,
        xy=np.full((n, 2), np.nan) if xy is None else np.asarray(xy, dtype=np.float64).reshape(n, 2),
        geographic=geographic,
        src=src,
        dst=dst,
        bandwidth=table[:, 2].copy(),
        latency_s=table[:, 3].copy(),
        message_s=message,
        usd_per_byte=price,
        planes=tuple(planes),
        notes=tuple(notes),
        changes=steps,
        message_basis=message_basis or (UNKNOWN if message_s is None else GIVEN),
    )


def printable(text: str) -> str:
    """Text on one line: control characters and halves of characters become spaces."""
    return _NOT_ONE_LINE.sub(" ", text)


def _check_links(
    names: Sequence[str], src: Int32, dst: Int32, bandwidth: Float64, latency_s: Float64, message_s: Float64,
    usd_per_byte: Float64, where: str | None,
) -> None:  # fmt: skip
    n = len(names)

    def fail(bad: Bool, message: str) -> None:
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            ends = [names[v] if 0 <= v < n else f"node {v}" for v in (int(src[k]), int(dst[k]))]
            raise InputError(f"link {k} ({ends[0]}→{ends[1]}) {message}", where)

    fail((src < 0) | (src >= n) | (dst < 0) | (dst >= n), f"leads to nowhere: there are {n} nodes")
    fail(src == dst, "joins a node to itself; remove it")
    slowest, fastest = BANDWIDTHS
    fail(~((bandwidth >= slowest) & (bandwidth <= fastest)), "needs a bandwidth from 1 B/s to 1e18 B/s")
    fail(~((latency_s >= 0) & (latency_s <= LONGEST_S)), "needs a latency from zero to a year")
    fail(~((message_s >= 0) & (message_s <= LONGEST_S)), "needs a cost of a message from zero to a year")
    fail(~((usd_per_byte >= 0) & (usd_per_byte <= HIGHEST_USD)), "needs a price from zero to 1 USD a byte")
    key = src.astype(np.int64) * n + dst
    order = np.argsort(key, kind="stable")
    twice = np.zeros(len(key), dtype=np.bool_)
    twice[order[1:]] = key[order[1:]] == key[order[:-1]]
    fail(twice, "is given twice; add up the bandwidths of parallel links")
