"""Chakra execution traces (mlcommons/chakra, schema/protobuf/et_def.proto), one file a rank, for ASTRA-sim.

Each transfer is a send node at its source and a receive node at every receiver, paired by a tag of their own. A send
waits for the receipts and earlier sends at its rank that the plan makes it depend on. The network that runs the trace
chooses the links, and orders sends that become ready at the same time. Where these share their first link, each one
waits for one more *turn*, a computing node without duration (1 ns in ASTRA-sim), than the send that the plan puts
before it. The chunk and whether it is added are attributes of our own, so that a trace can be read back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.timeline import Timeline
from . import atomic_file
from .protobuf import block, number, sized, varint
from .steps import only_collective

COMPUTE, SEND, RECEIVE = 4, 5, 6
"""Values of the enum NodeType."""
ID, NAME, TYPE, CONTROL_DEPS, DATA_DEPS, ATTR = 1, 2, 3, 4, 5, 10
"""Fields of Node."""
INT32, INT64, BOOL, STRING = 7, 9, 27, 29
"""Fields of AttributeProto, beside its name (1)."""


def write(timeline: Timeline, path: str) -> Sequence[str]:
    """Write ``path.RANK.et`` for every rank; returns notes on what was left out."""
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
    latest: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
    for k in np.lexsort((np.arange(plan.transfer_count), timeline.start_s)).tolist():
        src, chunk = rank[int(plan.src[k])], int(plan.chunk[k])
        waits, lost = _local(plan, k)
        dropped += lost
        together = (src, int(plan.route[k][0]), tuple(sorted(waits)))
        own = [("stretto_chunk", INT64, chunk), ("stretto_op", INT64, int(plan.op[k]))]
        for r in range(int(plan.dst.offsets[k]), int(plan.dst.offsets[k + 1])):
            dst = rank[int(plan.dst.values[r])]
            facts_of = [("comm_size", INT64, int(plan.size_bytes[k])), ("comm_tag", INT32, r)]
            ends = [("comm_src", INT32, src), ("comm_dst", INT32, dst)]
            deps = latest.get(together, waits)
            if together in latest:
                turn = 2 * len(plan.dst.values) + r
                traces[src].append(_node(turn, "turn", COMPUTE, deps, []))
                deps = [turn]
            latest[together] = deps
            traces[src].append(_node(2 * r, f"send chunk {chunk} to {dst}", SEND, deps, [*facts_of, *ends, *own]))
            traces[dst].append(_node(2 * r + 1, f"receive chunk {chunk} from {src}", RECEIVE, [], [*facts_of, *ends]))
    for r, trace in enumerate(traces):
        with atomic_file(f"{path}.{r}.et", "wb") as file:
            file.writelines(trace)
    notes = ["routes and times left out: they are the network's that runs the trace"]
    return notes + [f"dependencies on what happens at other ranks left out: {dropped}"] * bool(dropped)


def _local(plan: Plan, k: int) -> tuple[list[int], int]:
    """The trace nodes of the sender's rank that transfer k waits for, and how many dependencies have no such node."""
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
