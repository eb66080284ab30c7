"""Chakra execution traces, one file a rank, read as a plan.

A trace that stretto wrote names the chunk of each message, so the plan has the original collective.
A trace of another program (mlcommons/chakra, schema/protobuf/et_def.proto) does not: each message becomes
a piece of its own, from the sender that holds it to the receiver that wants it. Dependencies and times of
such a plan can be checked, what it computes cannot. Where switches store, stretto's own traces are read
the second way too, since several messages of one chunk may stand in a switch at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from struct import calcsize, unpack
from typing import Any, TypeVar

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError
from ..model.plan import COPY, Plan, make_plan
from ..model.topology import Topology
from ..topologies.values import count, parse_json, read_bytes, shown
from . import Size
from .chakra import ATTR, COMPUTE, CONTROL_DEPS, DATA_DEPS, ID, INT32, INT64, RECEIVE, SEND, STRING, TYPE
from .protobuf import fields, messages, packed
from .routes import Routes

METADATA = 1
REFUSED = {2: "loads from memory", 3: "stores to memory", 7: "is a whole collective"}
"""Values of the enum NodeType that a plan cannot express, and what they do."""
DURATION = 7
"""Field of Node, microseconds."""
MOST_DEPENDENCIES = 5_000_000

Key = TypeVar("Key")


@dataclass
class _Node:
    """A node of a trace."""

    key: int = 0
    kind: int = 0
    busy_us: int = 0
    deps: list[int] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def read(path: str, topology: Topology, size: Size) -> Plan:
    """The plan of the traces ``path.RANK.et``, one for each accelerator.

    Args:
        size: the size of the collective, for traces that stretto wrote; other traces give the size of each message.
    Raises:
        InputError: a file is missing or torn, a message lacks its sender or receiver, a node neither
            sends nor receives, or dependencies form a circle.
    """
    n = len(topology.accelerators)
    traces, facts = [], None
    for r in range(n):
        head, nodes = _trace(f"{path}.{r}.et")
        facts = facts or head
        traces.append(nodes)
    own, routes = isinstance(facts, dict), Routes(topology, path)
    rows = _paired(traces, path, own)
    order = _ordered(rows, path)
    if isinstance(facts, dict) and not routes.stores:
        collective = _own(facts, topology, size, path)
        for row in (rows[key] for key in order):
            if not row.chunk < collective.chunk_count or row.size_bytes != collective.chunk_bytes[row.chunk]:
                what = f"a message of {row.size_bytes} bytes is no chunk of this size; give that of the traces"
                raise InputError(what, path)
        chunk = [rows[key].chunk for key in order]
    else:
        if size != Size(None, None):
            where = " (where switches store, also those of stretto)" if own else ""
            raise InputError(f"its messages have sizes of their own{where}; give no size and no shard", path)
        collective = _messages([(*key[:2], rows[key].size_bytes) for key in order], topology)
        chunk = list(range(len(order)))
    busy_us = max((sum(node.busy_us for node in nodes if node.kind == COMPUTE) for nodes in traces), default=0)
    if busy_us:
        notes = (*topology.notes, f"computing left out: {busy_us} us at the rank that computes most")
        topology = replace(topology, notes=notes)
    message: list[int] = []
    ways: list[tuple[int, ...]] = []
    depends: list[list[int]] = []
    last: dict[Message, int] = {}
    for i, key in enumerate(order):
        before = sorted({last[d] for d in rows[key].after})
        for way in routes.hops(*(int(topology.accelerators[r]) for r in key[:2])):
            message.append(i)
            ways.append(way)
            depends.append(before)
            last[key] = len(ways) - 1
            before = [last[key]]
    return make_plan(
        topology, Workload((collective,)), "ready-order",
        chunk=[chunk[i] for i in message], src=[int(topology.src[way[0]]) for way in ways],
        op=[COPY if routes.stores else rows[order[i]].op for i in message],
        dst=Ragged.single([int(topology.dst[way[-1]]) for way in ways]), route=Ragged.of(ways),
        depends=Ragged.of(depends), meta={"planner": "chakra", "imported": path}, where=path,
    )  # fmt: skip


def _own(facts: dict[str, Any], topology: Topology, size: Size, where: str) -> Collective:
    """The collective of traces that stretto wrote."""
    if size == Size(None, None):
        raise InputError(
            "give the size of the full buffer or of one rank's shard: traces of a collective do not say it", where
        )
    parts, root = (count(facts.get(key), key, where, least, 10**6) for key, least in (("chunks", 1), ("root", 0)))
    full, shard = size
    return make_collective(str(facts.get("kind")), topology, full, shard_bytes=shard, chunks=parts, root=root)


def _messages(ends: list[tuple[int, int, int]], topology: Topology) -> Collective:
    """A piece for each (sender, receiver, bytes)."""
    src, dst, size = np.array(ends, dtype=np.int64).reshape(-1, 3).T
    return Collective(
        kind="remainder", ranks=topology.accelerators.astype(np.int32), size_bytes=int(size.sum()), root=-1,
        start_s=0.0, piece_bytes=size, holders=Ragged.single(src), wanted=Ragged.single(dst), reduces=False,
        chunk_piece=np.arange(len(size), dtype=np.int32), chunk_offset=np.zeros(len(size), dtype=np.int64),
        chunk_bytes=size,
    )  # fmt: skip


Message = tuple[int, int, int, int]
"""Sender, receiver, tag, and how many earlier messages have the same three."""


@dataclass
class _Row:
    """A message: what it waits for, and in stretto's own traces its chunk and whether the receiver adds it."""

    chunk: int
    op: int
    size_bytes: int
    after: list[Message]


def _paired(traces: list[list[_Node]], where: str, own: bool) -> dict[Message, _Row]:
    """The messages of the traces, sends paired with receipts of the same tag in the order of the files."""
    n = len(traces)
    at: dict[tuple[int, int], Message] = {}
    ends: dict[int, dict[Message, int]] = {SEND: {}, RECEIVE: {}}
    for r, nodes in enumerate(traces):
        seen: dict[tuple[int, int, int, int], int] = defaultdict(int)
        for node in (node for node in nodes if node.kind in ends):
            place = f"{where}.{r}.et, node {node.key}"
            here = "comm_src" if node.kind == SEND else "comm_dst"
            known = {here: r} | node.facts
            src, dst = (count(known.get(f"comm_{end}"), f"comm_{end}", place, 0, n - 1) for end in ("src", "dst"))
            tag = count(node.facts.get("comm_tag", None if own else 0), "comm_tag", place, 0, 2**32)
            if known[here] != r or src == dst:
                raise InputError(f"comm_src is {src} and comm_dst {dst}, which no {NAMES[node.kind]} here has", place)
            key = (src, dst, tag, seen[src, dst, tag, node.kind])
            seen[src, dst, tag, node.kind] += 1
            ends[node.kind][key] = count(node.facts.get("comm_size"), "comm_size", place, 1, 2**40)
            at[r, node.key] = key
    if ends[SEND] != ends[RECEIVE]:
        lost = min(set(ends[SEND].items()) ^ set(ends[RECEIVE].items()))[0]
        raise InputError(f"the message from {lost[0]} to {lost[1]} with tag {lost[2]} has only one end", where)
    rows = {}
    total = 0
    for r, nodes in enumerate(traces):
        waits = _waits(
            nodes, {key: at[r, key] for key in (node.key for node in nodes) if (r, key) in at}, f"{where}.{r}.et"
        )
        for node in (node for node in nodes if node.kind == SEND):
            place = f"{where}.{r}.et, node {node.key}"
            chunk = count(node.facts.get("stretto_chunk"), "stretto_chunk", place) if own else -1
            op = count(node.facts.get("stretto_op"), "stretto_op", place, 0, 1) if own else 0
            total += len(waits[node.key])
            if total > MOST_DEPENDENCIES:
                raise InputError(f"its messages have more than {MOST_DEPENDENCIES} dependencies", where)
            key = at[r, node.key]
            rows[key] = _Row(chunk, op, ends[SEND][key], sorted(waits[node.key]))
    return rows


NAMES = {SEND: "send", RECEIVE: "receipt"}


def _waits(nodes: list[_Node], message: dict[int, Message], where: str) -> dict[int, set[Message]]:
    """For each node the messages that must have arrived before it may start, also through nodes that send nothing.

    A receipt ends when its message has arrived and all that it waits for has ended; other nodes take no time.
    """
    known = {node.key: node for node in nodes}
    before: dict[int, set[Message]] = {}
    total = 0
    for key in _in_order(nodes, where):
        before[key] = set()
        for d in known[key].deps:
            if d in message:
                before[key].add(message[d])
            if known[d].kind != SEND:
                before[key] |= before[d]
        total += len(before[key])
        if total > MOST_DEPENDENCIES:
            raise InputError(f"its nodes wait for more than {MOST_DEPENDENCIES} messages", where)
    return before


def _in_order(nodes: list[_Node], where: str) -> list[int]:
    """The nodes of a rank, each after those that it waits for."""
    known = {node.key for node in nodes}
    if len(known) < len(nodes):
        raise InputError("has two nodes with one id", where)
    for node in nodes:
        gone = [d for d in node.deps if d not in known]
        if gone:
            raise InputError(f"waits for node {gone[0]}, which is not there", f"{where}, node {node.key}")
    return _sorted({node.key: sorted(set(node.deps)) for node in nodes}, "its nodes", where)


def _ordered(rows: dict[Message, _Row], where: str) -> list[Message]:
    """The messages, each after those that it waits for."""
    by_tag = sorted(rows, key=lambda key: key[2])
    return _sorted({key: rows[key].after for key in by_tag}, "its messages", where)


def _sorted(waits: dict[Key, list[Key]], what: str, where: str) -> list[Key]:
    """The keys, each after those that it waits for; keys that are free together keep their order."""
    sorter: TopologicalSorter[Key] = TopologicalSorter(dict.fromkeys(waits, ()))
    for key, before in waits.items():
        sorter.add(key, *before)
    try:
        return list(sorter.static_order())
    except CycleError:
        raise InputError(f"{what} wait for each other in a circle", where) from None


def _trace(path: str) -> tuple[Any, list[_Node]]:
    """The metadata of a trace file, and its nodes."""
    head, nodes = None, []
    for i, message in enumerate(messages(read_bytes(path), path)):
        if i == 0:
            texts = [_attribute(v, path) for f, v in fields(message, path) if f == 2 and isinstance(v, bytes)]
            head = next((parse_json(str(v), path) for name, v in texts if name == "stretto"), None)
            continue
        node = _Node()
        for what, value in fields(message, path):
            if what in PLAIN and isinstance(value, int):
                setattr(node, PLAIN[what], value)
            elif what in (CONTROL_DEPS, DATA_DEPS):
                node.deps += packed(value, path)
            elif what == ATTR and isinstance(value, bytes):
                name, fact = _attribute(value, path)
                node.facts[name] = fact
        if node.kind not in (SEND, RECEIVE, METADATA, COMPUTE):
            reason = REFUSED.get(node.kind, f"is of type {shown(node.kind)}")
            raise InputError(f"node {node.key} {reason}; a plan has sends and receipts only", path)
        nodes.append(node)
    return head, nodes


PLAIN = {ID: "key", TYPE: "kind", DURATION: "busy_us"}
"""The numeric fields of a node, and their names in :class:`_Node`."""


DOC = 2
PLAINLY, SIGNED, ZIGZAG = (11, 13, 27), (INT32, INT64), (15, 17)
"""Fields of AttributeProto that hold whole numbers: unsigned, in two's complement, and zigzag-encoded."""
FIXED = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
"""Fields of AttributeProto of fixed width, and their struct format."""


def _attribute(data: bytes, where: str) -> tuple[str, Any]:
    """Name and value of an attribute; lists and bytes are refused where a number is read."""
    name: str = ""
    fact: Any = None
    for what, value in fields(data, where):
        if what == 1 and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif what == STRING and isinstance(value, bytes):
            fact = value.decode("utf-8", "replace")
        elif isinstance(value, int) and what in PLAINLY:
            fact = value
        elif isinstance(value, int) and what in SIGNED:
            fact = value - (value >> 63 << 64)
        elif isinstance(value, int) and what in ZIGZAG:
            fact = value >> 1 ^ -(value & 1)
        elif isinstance(value, bytes) and what in FIXED:
            if len(value) != calcsize(FIXED[what]):
                raise InputError(f"the attribute {shown(name)} has {len(value)} bytes, not its width", where)
            fact = unpack(FIXED[what], value)[0]
        elif what != DOC:
            fact = [value]
    return name, fact
