"""The plan: who sends which chunk to whom, over which links, after what.

A plan holds its topology and workload and, as columns, its *transfers*: each takes one whole chunk from a node to one
node (or to several, where a replicating node branches) along a route. Where switches on the route sum, a transfer has
several sources: its route leads from all of them to one switch, and on to all receivers.

Dependencies are the truth: transfer k depends only on transfers before it, and a plan is correct in every timing that
respects them. ``start_s``, ``rate`` and ``weight`` only shape time; what happened is in the timeline.

A transfer carries what its dependencies decide: what its source held at first, and what the transfers among ``depends``
that wrote this chunk there have brought (copied or summed). From several sources, it carries the sum of these. One that
*forwards* carries what those transfers have brought, apart from all else that its source has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Float64, Int8, Int32, Int64, Ragged
from .collective import Workload
from .errors import InputError
from .message_form import wrong_message
from .topology import Topology

COPY, REDUCE = 0, 1
"""What a transfer does at its receiver: replace the chunk there, or add to it."""

WEIGHTED = ("weights", "fair", "priorities")
"""Ways of sharing links that need the column ``weight``."""

SHARING = ("timed", "ready-order", "rates", *WEIGHTED)
"""Ways of sharing links, see :class:`Plan`."""


@dataclass(frozen=True, eq=False)
class Turns:
    """When optical planes change their matching; the turns of each plane are in the order in which they happen.

    A turn begins when all that its plane carried before has arrived, and takes the plane's ``reconfiguration_s``. The
    first turn of a plane that joined nothing takes no time.

    Attributes:
        plane: int32[turns].
        before: int32[turns], a transfer: from it on, transfers of the plane use the new matching.
        start_s: float64[turns], in a timed plan, when the turn begins.
        matching: ragged, the port to which each port of the plane then sends, -1 for none.
    """

    plane: Int32
    before: Int32
    start_s: Float64
    matching: Ragged

    def __repr__(self) -> str:
        return f"<Turns: {self.count} of {len(np.unique(self.plane))} planes>"

    @property
    def count(self) -> int:
        return len(self.plane)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, float, Any]]) -> Turns:
        """From rows (plane, before, start_s, matching)."""
        plane, before, start_s, matching = zip(*rows, strict=True) if rows else ((),) * 4
        return cls(np.array(plane, np.int32), np.array(before, np.int32), np.array(start_s, float), Ragged.of(matching))


NO_TURNS = Turns.of([])


@dataclass(frozen=True, eq=False)
class Plan:
    """Transfers over a topology for a workload. Build one with :func:`make_plan`.

    Attributes:
        sharing: how links are shared: "timed" (``start_s`` given), "ready-order" (FIFO a link), "rates" or "weights"
            (reserved, used or not), "fair" (work-conserving: max-min by weight among those active) or "priorities"
            (work-conserving: highest weight first).
        chunk: int32[transfers], chunk of the workload that is sent.
        src: int32[transfers], the node that sends.
        op: int8[transfers], COPY or REDUCE (the receiver adds).
        dst: ragged, the nodes that receive: one, or several where the route is a tree.
        route: ragged, links from src to every dst; each begins at src or where an earlier one ended. Empty on a plane.
            From several sources it has first the links that lead to the switch where all of them have met, each after
            those that enter its beginning; then the links from that switch to every dst.
        depends: ragged, the transfers that must have happened before; each has a lower index.
        start_s, finish_s: float64[transfers] of a timed plan: the transmission begins and ends at the source.
        rate: float64[transfers], bytes/s, of a plan that shares by rates.
        weight: float64[transfers], of a plan that shares by weights, fair or by priorities.
        group: int32[transfers], the flow group, or the step of an algorithm.
        plane: int32[transfers], the optical plane, -1 for a transfer over links.
        turns: when planes change their matching.
        barriers: whether a group begins only when all groups before it have arrived everywhere.
        meta: what made the plan: planner, options, seed, planning_s, planning_cpu_s, and
            loading_s, in which kernels were loaded or compiled and which these do not hold.
        other_src: ragged, the sources besides ``src``; None if no transfer has any. A source may be a receiver, too.
        forwards: int8[transfers], 1 for transfers that forward what others brought; None if none does.
        message: int32[transfers], ascending from 0: transfers of one number are one message of several chunks, which
            costs once, begins when all of them may, and brings all at its end; None if each transfer is a message.
    """

    topology: Topology
    workload: Workload
    sharing: str
    chunk: Int32
    src: Int32
    op: Int8
    dst: Ragged
    route: Ragged
    depends: Ragged
    start_s: Float64 | None = None
    finish_s: Float64 | None = None
    rate: Float64 | None = None
    weight: Float64 | None = None
    group: Int32 | None = None
    plane: Int32 | None = None
    turns: Turns = NO_TURNS
    barriers: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    other_src: Ragged | None = None
    forwards: Int8 | None = None
    message: Int32 | None = None

    def __repr__(self) -> str:
        turns = f", {self.turns.count} turns of optical planes" if self.turns.count else ""
        return (
            f"<{self.title}\n {self.transfer_count} transfers of {self.workload.chunk_count} chunks{turns}; "
            f"links are shared by {self.sharing!r}>"
        )

    @property
    def title(self) -> str:
        """``Plan by ring: allreduce of 1 GB among 8 ranks of ring:8``: what was planned, and by which planner."""
        planner = self.meta.get("planner", "an unknown planner")
        return f"Plan by {planner}: {self.workload.title} of {self.topology.name}"

    @property
    def transfer_count(self) -> int:
        return len(self.chunk)

    @cached_property
    def size_bytes(self) -> Int64:
        """int64[transfers], the size of the chunk that each transfer carries."""
        return self.workload.chunk_bytes[self.chunk]

    @cached_property
    def sources(self) -> Ragged:
        """For each transfer all nodes that send: ``src``, then ``other_src``."""
        if self.other_src is None:
            return Ragged.single(self.src)
        rows = np.concatenate((np.arange(self.transfer_count), self.other_src.owners))
        return Ragged.grouped(rows, np.concatenate((self.src, self.other_src.values)), self.transfer_count)

    @cached_property
    def turn_seconds(self) -> Float64:
        """float64[turns], how long each turn takes: the first of a plane that joined nothing takes no time."""
        seconds = np.zeros(self.turns.count)
        for p, plane in enumerate(self.topology.planes):
            own = np.flatnonzero(self.turns.plane == p)
            seconds[own] = plane.reconfiguration_s
            if (plane.matching < 0).all():
                seconds[own[:1]] = 0.0
        return seconds

    @cached_property
    def dependents(self) -> Ragged:
        """For each transfer those that depend on it."""
        return self.depends.turned()

    def digest(self) -> str:
        """SHA-256 of everything but ``meta``: equal plans have equal digests."""
        h = hashlib.sha256(self.sharing.encode())
        t = self.topology
        arrays = [t.kind, t.replicates, t.transit, t.src, t.dst, t.bandwidth, t.latency_s]
        if t.message_s.any():
            arrays.append(t.message_s)
        for plane in t.planes:
            h.update(f"{plane.bandwidth!r} {plane.latency_s!r} {plane.reconfiguration_s!r}".encode())
            arrays += [plane.nodes, plane.matching]
        for c in self.workload.collectives:
            h.update(f"{c.kind} {c.root} {c.start_s!r} {c.size_bytes}".encode())
            if c.weight != 1.0:
                h.update(f"weight {c.weight!r}".encode())
            arrays += [c.ranks, c.piece_bytes, *c.holders, *c.wanted, c.chunk_piece, c.chunk_offset, c.chunk_bytes]
        arrays += [self.chunk, self.src, self.op, *self.dst, *self.route, *self.depends]
        for name in TIMING_COLUMNS:
            column = getattr(self, name)
            h.update(name.encode() if column is not None else b"-")
            if column is not None:
                arrays.append(column)
        if self.turns.count or self.barriers:
            h.update(b"barriers" if self.barriers else b"turns")
            arrays += [self.turns.plane, self.turns.before, self.turns.start_s, *self.turns.matching]
        if t.changes:
            h.update(b"changes")
            arrays += [t.changes.link, t.changes.at_s, t.changes.bandwidth]
        if t.reduces.any():
            h.update(b"reduces")
            arrays.append(t.reduces)
        if self.other_src is not None:
            h.update(b"other_src")
            arrays += self.other_src
        if self.forwards is not None:
            h.update(b"forwards")
            arrays.append(self.forwards)
        if self.message is not None:
            h.update(b"message")
            arrays.append(self.message)
        for a in arrays:
            h.update(np.ascontiguousarray(a).tobytes())
        return h.hexdigest()

    def noted(self, meta: Mapping[str, Any]) -> Plan:
        """The same plan with other notes on how it was made."""
        return replace(self, meta=dict(meta))

    def describe(self, k: int) -> str:
        """A transfer as messages name it: ``transfer 7 (chunk 3: gpu0→gpu4)``."""
        names = self.topology.names
        starts, ends = (",".join(names[v] for v in nodes) for nodes in (self.sources[k], self.dst[k]))
        return f"transfer {k} (chunk {self.chunk[k]}: {starts}→{ends})"


TIMING_COLUMNS = ("start_s", "finish_s", "rate", "weight", "group", "plane")
OPTIONAL_COLUMNS = (*TIMING_COLUMNS, "forwards", "message")
"""Columns that a plan may lack."""
_COLUMNS: dict[str, Any] = {
    "chunk": np.int32, "src": np.int32, "op": np.int8, "start_s": np.float64, "finish_s": np.float64,
    "rate": np.float64, "weight": np.float64, "group": np.int32, "plane": np.int32, "forwards": np.int8,
    "message": np.int32,
}  # fmt: skip
"""Columns and their types."""


def make_plan(
    topology: Topology,
    workload: Workload,
    sharing: str,
    *,
    chunk: Any,
    src: Any,
    op: Any = None,
    dst: Ragged,
    route: Ragged,
    depends: Ragged,
    turns: Turns = NO_TURNS,
    barriers: bool = False,
    meta: dict[str, Any] | None = None,
    other_src: Ragged | None = None,
    where: str | None = None,
    **timing: Any,
) -> Plan:
    """Build a plan and check the form of its columns; whether the plan is correct is for the verifier.

    Raises:
        InputError: columns of unequal length, an index out of range, a dependency on itself or on
            a later transfer, an unknown sharing mode, or a mode without the column it needs.
    """
    n = len(chunk)
    given = {"chunk": chunk, "src": src, "op": np.zeros(n, dtype=np.int8) if op is None else op, **timing}
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(given[name], dtype=dtype)
        for name, dtype in _COLUMNS.items()
        if given.get(name) is not None
    }
    lists = {"dst": dst, "route": route, "depends": depends}
    if other_src is not None and len(other_src.values):
        lists["other_src"] = other_src
    ragged: dict[str, Any] = {
        name: Ragged(np.ascontiguousarray(r.offsets, np.int64), np.ascontiguousarray(r.values, np.int32))
        for name, r in lists.items()
    }
    if sharing not in SHARING:
        raise InputError(f"unknown sharing mode {sharing!r}; there are {', '.join(SHARING)}", where)
    for name in _NEEDED.get(sharing, ()):
        if name not in columns:
            raise InputError(f"a plan that shares by {sharing!r} needs the column {name!r}", where)
    for name, column in columns.items():
        if len(column) != n:
            raise InputError(f"column {name!r} has {len(column)} rows, not {n}", where)
        if column.dtype == np.float64 and not (finite := np.isfinite(column)).all():
            row = int(finite.argmin())
            raise InputError(f"column {name!r}, transfer {row}: {column[row]} is not finite", where)
    share = {"rates": "rate", "weights": "weight", "fair": "weight"}.get(sharing)
    if share is not None and n and columns[share].min() <= 0:
        row = int(columns[share].argmin())
        raise InputError(f"column {share!r}, transfer {row}: {columns[share][row]} is not above 0", where)
    shortest = {name: _shortest(r, n) for name, r in ragged.items()}
    for name, least in shortest.items():
        if least < 0:
            raise InputError(f"column {name!r} does not have a list for each of the {n} transfers", where)
    ranges = [
        ("chunk", columns["chunk"], workload.chunk_count),
        ("src", columns["src"], topology.node_count),
        ("op", columns["op"], 2),
        ("dst", ragged["dst"].values, topology.node_count),
        ("route", ragged["route"].values, topology.link_count),
    ]
    if "forwards" in columns:
        ranges.append(("forwards", columns["forwards"], 2))
    if "other_src" in ragged:
        ranges.append(("other_src", ragged["other_src"].values, topology.node_count))
    for name, values, count in ranges:
        if _beyond(values, count):
            wrong = values[(values < 0) | (values >= count)][0]
            raise InputError(f"column {name!r} holds {wrong}, outside 0 to {count - 1}", where)
    if "plane" in columns:
        _check_planes(columns["plane"], ragged["route"].lengths, len(topology.planes), where)
        if "other_src" in ragged and (columns["plane"][ragged["other_src"].owners] >= 0).any():
            raise InputError("a transfer on a plane has several sources; a plane has no switch that sums", where)
    elif n and not shortest["route"]:
        raise InputError(f"transfer {ragged['route'].lengths.argmin()} has no route", where)
    if "other_src" in ragged and "forwards" in columns and columns["forwards"][ragged["other_src"].owners].any():
        raise InputError("a transfer from several sources forwards; switches sum what ranks have", where)
    owners, waits = ragged["depends"].owners, ragged["depends"].values
    late = (waits < 0) | (waits >= owners)
    if late.any():
        k = int(late.argmax())
        raise InputError(f"transfer {owners[k]} depends on transfer {waits[k]}, which is not before it", where)
    _check_turns(turns, topology, n, where)
    if barriers and ("group" not in columns or (np.diff(columns["group"]) < 0).any()):
        raise InputError("a plan with barriers needs the column 'group', in ascending order", where)
    plan = Plan(
        topology, workload, sharing, **columns, **ragged, turns=turns, barriers=barriers, meta=dict(meta or {})
    )  # fmt: skip
    if (wrong := wrong_message(plan)) is not None:
        first, words = wrong
        raise InputError(words if first is None else f"{plan.describe(first)} {words}", where)
    # where every message has one transfer the column says nothing
    return plan if plan.message is None or (n and plan.message[-1] + 1 < n) else replace(plan, message=None)


_NEEDED = {"timed": ("start_s", "finish_s"), "rates": ("rate",)} | dict.fromkeys(WEIGHTED, ("weight",))
"""The columns that a way of sharing needs."""


def _shortest(lists: Ragged, rows: int) -> int:
    """The least length of ``rows`` lists, 1 if there are none; -1 if the offsets do not fit that number of lists."""
    offsets = lists.offsets
    if len(offsets) != rows + 1 or offsets[0] != 0 or offsets[-1] != len(lists.values):
        return -1
    return int(np.minimum.reduce(lists.lengths, initial=1))


def _beyond(values: NDArray[Any], count: int) -> bool:
    """Whether some index is below 0 or not below ``count``."""
    # read as unsigned numbers, negative ones are the largest
    unsigned = values.view(f"u{values.itemsize}")
    return len(values) > 0 and bool(np.maximum.reduce(unsigned) >= count)


def _check_planes(plane: Int32, hops: Int64, planes: int, where: str | None) -> None:
    """A transfer has either a plane or a route."""
    bad = (plane < -1) | (plane >= planes)
    if bad.any():
        raise InputError(f"column 'plane' holds {plane[bad][0]}, outside -1 to {planes - 1}", where)
    pathless = np.flatnonzero((plane < 0) & (hops == 0))
    if len(pathless):
        raise InputError(f"transfer {pathless[0]} has no route", where)
    routed = np.flatnonzero((plane >= 0) & (hops > 0))
    if len(routed):
        raise InputError(f"transfer {routed[0]} is on a plane and has a route; it can have only one", where)


def _check_turns(turns: Turns, topology: Topology, transfers: int, where: str | None) -> None:
    last: dict[int, int] = {}
    for i in range(turns.count):
        plane, before = int(turns.plane[i]), int(turns.before[i])
        place = f"{where}, turn {i}" if where else f"turn {i}"
        if not 0 <= plane < len(topology.planes):
            raise InputError(f"there is no plane {plane}", place)
        ports = len(topology.planes[plane].nodes)
        matching = turns.matching[i]
        if len(matching) != ports or (len(matching) and not -1 <= matching.min() <= matching.max() < ports):
            raise InputError(f"'matching' needs a port from 0 to {ports - 1}, or -1, for each of {ports} ports", place)
        if not last.get(plane, 0) <= before <= transfers:
            raise InputError(f"it comes before transfer {before}, out of order for its plane", place)
        if not np.isfinite(turns.start_s[i]):
            raise InputError(f"it begins at {turns.start_s[i]}, which is not finite", place)
        last[plane] = before
