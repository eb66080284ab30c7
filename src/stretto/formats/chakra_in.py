"""Chakra execution traces, one file a rank, read as a plan.

A trace that stretto wrote names the chunk of each message, so the plan has the original collective. In a trace of
another program each message becomes a piece of its own, from the sender that holds it to the receiver that wants it:
dependencies and times of such a plan can be checked, what it computes cannot. Where switches store, stretto's own
traces are read this way too, since several messages of one chunk may stand in a switch at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from struct import calcsize, unpack
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..model.arrays import Ragged
from ..model.chunks import covering
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError
from ..model.messages import as_sent
from ..model.plan import COPY, Plan, make_plan
from ..model.topology import Topology
from ..topologies.values import count, parse_json, read_bytes, shown
from . import Size
from .chakra import ATTR, COMPUTE, CONTROL_DEPS, DATA_DEPS, ID, INT32, INT64, RECEIVE, SEND, STRING, TYPE
from .protobuf import fields, messages, packed
from .routes import Routes

METADATA = 1
NAMES = {SEND: "send", RECEIVE: "receipt"}
REFUSED = {2: "loads from memory", 3: "stores to memory", 7: "is a whole collective"}
"""Values of the enum NodeType that a plan cannot express, and what they do."""
DURATION = 7
"""Field of Node, microseconds."""
MOST_DEPENDENCIES = 5_000_000
BYTES_OFF = 2
"""Bytes by which a chunk of a plan may differ from the equal parts that it covers: a byte at each end."""

Key = TypeVar("Key")


Message = tuple[int, int, int, int]
"""Sender, receiver, tag, and how many earlier messages have the same three."""


@dataclass
class _Node:
    """A node of a trace; ``message`` is what it sends or receives."""

    key: int = 0
    kind: int = 0
    busy_us: int = 0
    deps: list[int] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    message: Message | None = None


class _Row(NamedTuple):
    """A message: what it waits for, and in stretto's own traces its chunks and whether the receiver adds each."""

    carried: list[tuple[int, int]]
    size_bytes: int
    after: list[Message]


def read(path: str, topology: Topology, size: Size) -> Plan:
    """The plan of the traces ``path.RANK.et``, one for each accelerator.

    Args:
        size: the size of the collective, for traces that stretto wrote; other traces give the size of each message.
    Raises:
        InputError: a file is missing or torn, a message lacks its sender or receiver, a node neither
            sends nor receives, or dependencies form a circle.
    """
    heads, traces = zip(*(_trace(f"{path}.{r}.et") for r in range(len(topology.accelerators))), strict=True)
    facts = next(filter(None, heads), heads[-1])
    own, routes = isinstance(facts, dict), Routes(topology, path)
    rows = _paired(traces, path, own, _several(heads, path))
    by_tag = sorted(rows, key=lambda key: key[2])
    order = _sorted({key: rows[key].after for key in by_tag}, "its messages", path)
    if isinstance(facts, dict) and not routes.stores:
        collective = _own(facts, topology, size, path)
        for row in (rows[key] for key in order):
            chunks = [chunk for chunk, _ in row.carried]
            off = BYTES_OFF * len(chunks) if facts.get("covered") else 0
            if (
                max(chunks) >= collective.chunk_count
                or abs(row.size_bytes - collective.chunk_bytes[chunks].sum()) > off
            ):
                what = f"a message of {row.size_bytes} bytes is no chunk of this size; give that of the traces"
                raise InputError(what, path)
        carried = [rows[key].carried for key in order]
    else:
        if size != Size(None, None):
            where = " (where switches store, also those of stretto)" if own else ""
            raise InputError(f"its messages have sizes of their own{where}; give no size and no shard", path)
        ends = np.array([(*key[:2], rows[key].size_bytes) for key in order], dtype=np.int64).reshape(-1, 3).T
        pieces = ends[2], Ragged.single(ends[0]), Ragged.single(ends[1])
        collective = Collective.uncut("remainder", topology.accelerators, int(ends[2].sum()), *pieces)
        carried = [[(i, COPY if routes.stores else rows[key].carried[0][1])] for i, key in enumerate(order)]
    busy_us = max(sum(node.busy_us for node in nodes if node.kind == COMPUTE) for nodes in traces)
    if busy_us:
        notes = (*topology.notes, f"computing left out: {busy_us} us at the rank that computes most")
        topology = replace(topology, notes=notes)
    message: list[int] = []
    chunk: list[int] = []
    op: list[int] = []
    forwards: list[int] = []
    ways: list[tuple[int, ...]] = []
    depends: list[list[int]] = []
    last: dict[Message, dict[int, int]] = {}  # for each message the last transfer of each of its chunks
    for i, key in enumerate(order):
        last[key] = {}
        hops = routes.hops(*topology.accelerators[list(key[:2])].tolist())
        for k, added in carried[i]:
            # of a message that brought this chunk the chunk, else any
            before = sorted({last[d].get(k, max(last[d].values())) for d in rows[key].after})
            for way in hops:
                depends.append(before)
                before = [len(ways)]
                message.append(i)
                chunk.append(k)
                op.append(added & 1)
                forwards.append(added >> 1)
                ways.append(way)
            last[key][k] = len(ways) - 1
    src, dst = ([int(ends[way[at]]) for way in ways] for ends, at in ((topology.src, 0), (topology.dst, -1)))
    return make_plan(
        topology, Workload((collective,)), "ready-order", chunk=chunk, src=src, op=op, dst=Ragged.single(dst),
        route=Ragged.of(ways), depends=Ragged.of(depends), message=as_sent(topology, message, chunk, src, dst),
        forwards=forwards if any(forwards) else None, meta={"planner": "chakra", "imported": path}, where=path,
    )  # fmt: skip


def _several(heads: Sequence[Any], where: str) -> dict[int, list[tuple[int, int]]]:
    """For the tags of messages that carry several chunks these, and whether each is added, as stretto's traces say."""
    found: dict[int, list[tuple[int, int]]] = {}
    for r, head in enumerate(heads):
        listed = head.get("messages", {}) if isinstance(head, dict) else {}
        place = f"{where}.{r}.et, 'messages'"
        if not isinstance(listed, dict):
            raise InputError("is no object of messages by their tags", place)
        for tag, carried in listed.items():
            if not (
                isinstance(carried, list) and carried and all(isinstance(c, list) and len(c) == 2 for c in carried)
            ):
                raise InputError(f"of {shown(tag)} has no pairs of a chunk and whether it is added", place)
            pairs = [(count(c, "chunk", place), count(op, "op", place, 0, 3)) for c, op in carried]
            if len(dict(pairs)) < len(pairs):
                raise InputError(f"of {shown(tag)} has a chunk twice", place)
            found[count(parse_json(tag, place), "tag", place, 0, 2**32)] = pairs
    return found


def _own(facts: dict[str, Any], topology: Topology, size: Size, where: str) -> Collective:
    """The collective of traces that stretto wrote."""
    if size == Size(None, None):
        what = "give the size of the full buffer or of one rank's shard: traces of a collective do not say it"
        raise InputError(what, where)
    kind, (full, shard) = str(facts.get("kind")), size
    parts, root = (count(facts.get(key), key, where, least, 10**6) for key, least in (("chunks", 1), ("root", 0)))
    covered = facts.get("covered")
    if covered is None:
        return make_collective(kind, topology, full, shard_bytes=shard, chunks=parts, root=root)
    whole = make_collective(kind, topology, full, shard_bytes=shard, root=root)
    cut = None
    if isinstance(covered, list) and covered:
        cut = covering(whole, parts, np.array([count(n, "covered", where, 1, parts) for n in covered], dtype=np.int64))
    if cut is None:
        raise InputError(f"'covered' does not cover {whole.piece_count} pieces of {parts} parts", where)
    return cut


def _paired(
    traces: Sequence[list[_Node]], where: str, own: bool, several: dict[int, list[tuple[int, int]]]
) -> dict[Message, _Row]:
    """The messages of the traces, sends paired with receipts of the same tag in the order of the files."""
    ends: dict[int, dict[Message, int]] = {SEND: {}, RECEIVE: {}}
    for r, nodes in enumerate(traces):
        seen: Counter[tuple[int, int, int, int]] = Counter()
        for node in (node for node in nodes if node.kind in ends):
            place = f"{where}.{r}.et, node {node.key}"
            here = "comm_src" if node.kind == SEND else "comm_dst"
            known = {here: r} | node.facts
            src, dst = (count(known.get(e), e, place, 0, len(traces) - 1) for e in ("comm_src", "comm_dst"))
            tag = count(node.facts.get("comm_tag", None if own else 0), "comm_tag", place, 0, 2**32)
            if known[here] != r or src == dst:
                raise InputError(f"comm_src is {src} and comm_dst {dst}, which no {NAMES[node.kind]} here has", place)
            node.message = (src, dst, tag, seen[src, dst, tag, node.kind])
            seen[src, dst, tag, node.kind] += 1
            ends[node.kind][node.message] = count(node.facts.get("comm_size"), "comm_size", place, 1, 2**40)
    if ends[SEND] != ends[RECEIVE]:
        lost = min(set(ends[SEND].items()) ^ set(ends[RECEIVE].items()))[0]
        raise InputError(f"the message from {lost[0]} to {lost[1]} with tag {lost[2]} has only one end", where)
    rows = {}
    total = 0
    for r, nodes in enumerate(traces):
        waits = _waits(nodes, f"{where}.{r}.et")
        for node in nodes:
            if node.message is None or node.kind != SEND:
                continue
            place = f"{where}.{r}.et, node {node.key}"
            chunk = count(node.facts.get("stretto_chunk"), "stretto_chunk", place) if own else -1
            op = count(node.facts.get("stretto_op"), "stretto_op", place, 0, 3) if own else 0
            total += len(waits[node.key])
            if total > MOST_DEPENDENCIES:
                raise InputError(f"its messages have more than {MOST_DEPENDENCIES} dependencies", where)
            carried = several.get(node.message[2], [(chunk, op)])
            rows[node.message] = _Row(carried, ends[SEND][node.message], sorted(waits[node.key]))
    return rows


def _waits(nodes: list[_Node], where: str) -> dict[int, set[Message]]:
    """For each node the messages that must have arrived before it may start, also through nodes that send nothing.

    A receipt ends when its message has arrived and all that it waits for has ended; other nodes take no time.
    """
    known = {node.key: node for node in nodes}
    if len(known) < len(nodes):
        raise InputError("has two nodes with one id", where)
    for node in nodes:
        gone = [d for d in node.deps if d not in known]
        if gone:
            raise InputError(f"waits for node {gone[0]}, which is not there", f"{where}, node {node.key}")
    before: dict[int, set[Message]] = {}
    total = 0
    for key in _sorted({node.key: sorted(set(node.deps)) for node in nodes}, "its nodes", where):
        before[key] = set()
        for earlier in (known[d] for d in known[key].deps):
            before[key] |= {earlier.message} if earlier.message else set()
            if earlier.kind != SEND:
                before[key] |= before[earlier.key]
        total += len(before[key])
        if total > MOST_DEPENDENCIES:
            raise InputError(f"its nodes wait for more than {MOST_DEPENDENCIES} messages", where)
    return before


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
    bodies = messages(read_bytes(path), path)
    texts = [_attribute(v, path) for f, v in fields(next(bodies, b""), path) if f == 2 and isinstance(v, bytes)]
    facts = next((parse_json(str(v), path) for name, v in texts if name == "stretto"), None)
    return facts, [_node(body, path) for body in bodies]


def _node(body: bytes, path: str) -> _Node:
    node = _Node()
    for what, value in fields(body, path):
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
    return node


PLAIN = {ID: "key", TYPE: "kind", DURATION: "busy_us"}
"""The numeric fields of a node, and their names in :class:`_Node`."""


DOC = 2
WHOLE: dict[int, Callable[[int], int]] = (
    dict.fromkeys((11, 13, 27), int)
    | dict.fromkeys((INT32, INT64), lambda value: value - (value >> 63 << 64))
    | dict.fromkeys((15, 17), lambda value: value >> 1 ^ -(value & 1))
)
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
        elif what in WHOLE and isinstance(value, int):
            fact = WHOLE[what](value)
        elif what in FIXED and isinstance(value, bytes):
            if len(value) != calcsize(FIXED[what]):
                raise InputError(f"the attribute {shown(name)} has {len(value)} bytes, not its width", where)
            fact = unpack(FIXED[what], value)[0]
        elif what != DOC:
            fact = [value]
    return name, fact
