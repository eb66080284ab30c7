"""Chakra execution traces (mlcommons/chakra, schema/protobuf/et_def.proto), one file a rank, for ASTRA-sim.

Each transfer is a send node at its source and a receive node at every receiver, which a tag of its
own pairs; a send waits for the receipts (and earlier sends) at its rank that the plan has it depend
on. Links are left to the network that the trace runs on. What the schema has no word for, the chunk
and whether it is added, is in attributes of our own, so that a trace can be read back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..collective import Ragged, Workload, make_collective
from ..errors import InputError, Unsupported
from ..plan import Plan, make_plan
from ..timeline import Timeline
from ..topologies.values import count, parse_json, shown
from ..topology import Topology
from . import Size, written_whole
from .protobuf import block, fields, messages, number, packed, sized, varint
from .routes import Routes
from .steps import only_collective

SEND, RECEIVE = 5, 6
"""Of the enum NodeType."""
ID, NAME, TYPE, CONTROL_DEPS, DATA_DEPS, ATTR = 1, 2, 3, 4, 5, 10
"""Fields of Node."""
INT32, INT64, BOOL, STRING = 7, 9, 27, 29
"""Fields of AttributeProto, beside its name (1)."""
MOST_BYTES = 256 * 2**20


def write(timeline: Timeline, path: str) -> Sequence[str]:
    """Write ``path.RANK.et`` for every rank; what was left out comes back as notes.

    Raises:
        Unsupported: a node that is no rank sends, or the plan holds what traces cannot say.
    """
    plan = timeline.plan
    collective = only_collective(plan)
    rank = {int(v): r for r, v in enumerate(collective.ranks)}
    if not all(v in rank for v in (*plan.src.tolist(), *plan.dst.values.tolist())):
        raise Unsupported("a node that is no rank sends or receives, and a trace is of a rank")
    parts = collective.chunk_count // len(collective.piece_bytes)
    facts = {"kind": collective.kind, "chunks": parts, "root": max(0, collective.root)}
    head = block(1, b"0.0.4") + block(2, _text("stretto", json.dumps(facts)))
    traces = [[sized(head)] for _ in rank]
    dropped = 0
    for k in range(plan.transfer_count):
        src, chunk = rank[int(plan.src[k])], int(plan.chunk[k])
        deps, lost = _local(plan, k)
        dropped += lost
        own = [("stretto_chunk", INT64, chunk), ("stretto_op", INT64, int(plan.op[k]))]
        for r in range(int(plan.dst.offsets[k]), int(plan.dst.offsets[k + 1])):
            dst = rank[int(plan.dst.values[r])]
            facts_of = [("comm_size", INT64, int(plan.size_bytes[k])), ("comm_tag", INT32, r)]
            ends = [("comm_src", INT32, src), ("comm_dst", INT32, dst)]
            traces[src].append(_node(2 * r, f"send chunk {chunk} to {dst}", SEND, deps, [*facts_of, *ends, *own]))
            traces[dst].append(_node(2 * r + 1, f"receive chunk {chunk} from {src}", RECEIVE, [], [*facts_of, *ends]))
    for r, trace in enumerate(traces):
        with written_whole(f"{path}.{r}.et", "wb") as file:
            file.writelines(trace)
    notes = ["routes and times left out: they are the network's that runs the trace"]
    return notes + [f"dependencies on what happens at other ranks left out: {dropped}"] * bool(dropped)


def _local(plan: Plan, k: int) -> tuple[list[int], int]:
    """The nodes of its own rank that transfer k waits for, and how many dependencies have none."""
    found, lost = [], 0
    for d in plan.depends[k].tolist():
        receivers = range(int(plan.dst.offsets[d]), int(plan.dst.offsets[d + 1]))
        arrived = [2 * r + 1 for r in receivers if plan.dst.values[r] == plan.src[k]]
        sent = [2 * r for r in receivers] if plan.src[d] == plan.src[k] else []
        found += arrived or sent
        lost += not (arrived or sent)
    return found, lost


def _node(key: int, name: str, kind: int, deps: list[int], attributes: list[tuple[str, int, int]]) -> bytes:
    body = number(ID, key) + block(NAME, name.encode()) + number(TYPE, kind)
    if deps:
        body += block(DATA_DEPS, b"".join(map(varint, deps)))
    body += block(ATTR, block(1, b"is_cpu_op") + number(BOOL, 0))
    for what, form, value in attributes:
        body += block(ATTR, block(1, what.encode()) + number(form, value))
    return sized(body)


def _text(name: str, value: str) -> bytes:
    return block(1, name.encode()) + block(STRING, value.encode())


@dataclass
class _Node:
    """A node as it is read."""

    key: int = -1
    kind: int = 0
    deps: list[int] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def read(path: str, topology: Topology, size: Size) -> Plan:
    """The plan of traces that :func:`write` made.

    Raises:
        InputError: a file is missing or torn, a message without both ends, or no word of chunks.
    """
    n = len(topology.accelerators)
    traces, facts = [], None
    for r in range(n):
        head, nodes = _trace(f"{path}.{r}.et")
        facts = facts or head
        traces.append(nodes)
    if not isinstance(facts, dict):
        raise InputError("does not say which chunks it carries; only traces that stretto wrote can be read", path)
    parts, root = (count(facts.get(key), key, path, least, 10**6) for key, least in (("chunks", 1), ("root", 0)))
    kind = str(facts.get("kind"))
    collective = make_collective(kind, topology, size.full_bytes, shard_bytes=size.shard_bytes, chunks=parts, root=root)
    rows = _paired(traces, path)
    order = _ordered(rows, path)
    place = {key: i for i, key in enumerate(order)}
    routes = Routes(topology, path)
    ends = [tuple(int(topology.accelerators[r]) for r in key[:2]) for key in order]
    for key in order:
        chunk, _, _, length = rows[key]
        if not chunk < collective.chunk_count or length != collective.chunk_bytes[chunk]:
            raise InputError(f"a message of {length} bytes is no chunk of this size; give that of the traces", path)
    return make_plan(
        topology, Workload((collective,)), "ready-order",
        chunk=[rows[key][0] for key in order], src=[a for a, _ in ends], op=[rows[key][1] for key in order],
        dst=Ragged.single([b for _, b in ends]), route=Ragged.of([routes.between(a, b) for a, b in ends]),
        depends=Ragged.of([sorted({place[d] for d in rows[key][2]}) for key in order]),
        meta={"planner": "chakra", "imported": path}, where=path,
    )  # fmt: skip


Message = tuple[int, int, int]
"""Sender, receiver and tag."""


def _paired(traces: list[list[_Node]], where: str) -> dict[Message, tuple[int, int, list[Message], int]]:
    """Chunk, op, the messages that it waits for, and length of each message."""
    n = len(traces)
    at: dict[tuple[int, int], Message] = {}
    ends: dict[int, set[Message]] = {SEND: set(), RECEIVE: set()}
    for r, nodes in enumerate(traces):
        for node in nodes:
            place = f"{where}.{r}.et, node {node.key}"
            src, dst = (count(node.facts.get(f"comm_{end}"), f"comm_{end}", place, 0, n - 1) for end in ("src", "dst"))
            key = (src, dst, count(node.facts.get("comm_tag"), "comm_tag", place, 0, 2**32))
            if r != (src if node.kind == SEND else dst) or src == dst or key in ends[node.kind] or (r, node.key) in at:
                raise InputError("is at another rank than it says, or is given twice", place)
            ends[node.kind].add(key)
            at[r, node.key] = key
    if ends[SEND] != ends[RECEIVE]:
        lost = sorted(ends[SEND] ^ ends[RECEIVE])[0]
        raise InputError(f"the message from {lost[0]} to {lost[1]} with tag {lost[2]} has only one end", where)
    rows = {}
    for r, nodes in enumerate(traces):
        for node in (node for node in nodes if node.kind == SEND):
            place = f"{where}.{r}.et, node {node.key}"
            missing = [d for d in node.deps if (r, d) not in at]
            if missing:
                raise InputError(f"waits for node {missing[0]}, which is not there", place)
            chunk = count(node.facts.get("stretto_chunk"), "stretto_chunk", place)
            op = count(node.facts.get("stretto_op"), "stretto_op", place, 0, 1)
            length = count(node.facts.get("comm_size"), "comm_size", place, 0, 2**62)
            rows[at[r, node.key]] = (chunk, op, [at[r, d] for d in node.deps], length)
    return rows


def _ordered(rows: dict[Message, tuple[int, int, list[Message], int]], where: str) -> list[Message]:
    """The messages, each after those that it waits for."""
    missing = {key: len(row[2]) for key, row in rows.items()}
    after: dict[Message, list[Message]] = {key: [] for key in rows}
    for key, row in rows.items():
        for d in row[2]:
            after[d].append(key)
    free = sorted((key for key, left in missing.items() if not left), key=lambda key: key[2])
    for key in free:
        for other in after[key]:
            missing[other] -= 1
            if not missing[other]:
                free.append(other)
    if len(free) < len(rows):
        raise InputError("its messages wait for each other in a circle", where)
    return free


def _trace(path: str) -> tuple[Any, list[_Node]]:
    """What a file says of its plan, and its send and receive nodes."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", path) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"is larger than {MOST_BYTES // 2**20} MiB", path)
    head, nodes = None, []
    for i, message in enumerate(messages(data, path)):
        if i == 0:
            texts = [_attribute(v, path) for f, v in fields(message, path) if f == 2 and isinstance(v, bytes)]
            head = next((parse_json(str(v), path) for name, v in texts if name == "stretto"), None)
            continue
        node = _Node()
        for what, value in fields(message, path):
            if what in (ID, TYPE) and isinstance(value, int):
                node.key, node.kind = (value, node.kind) if what == ID else (node.key, value)
            elif what in (CONTROL_DEPS, DATA_DEPS):
                node.deps += packed(value, path)
            elif what == ATTR and isinstance(value, bytes):
                name, fact = _attribute(value, path)
                node.facts[name] = fact
        if node.kind not in (SEND, RECEIVE):
            raise InputError(f"node {node.key} is of type {shown(node.kind)}, neither a send nor a receive", path)
        nodes.append(node)
    return head, nodes


def _attribute(data: bytes, where: str) -> tuple[str, Any]:
    """Name and value of an attribute; lists are left out."""
    name: str = ""
    fact: Any = None
    for what, value in fields(data, where):
        if what == 1 and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif what == STRING and isinstance(value, bytes):
            fact = value.decode("utf-8", "replace")
        elif isinstance(value, int):
            fact = value
    return name, fact
