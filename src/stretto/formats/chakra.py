"""Chakra execution traces (mlcommons/chakra, schema/protobuf/et_def.proto), one file a rank, for ASTRA-sim.

Each message is a send node at its source and a receive node at every receiver, paired by a tag of their own. A send
waits for the receipts and earlier sends at its rank that the plan makes it depend on. The network that runs the trace
chooses the links, and orders sends that become ready at the same time. Where these share their first link, each one
waits for one more *turn*, a computing node without duration (1 ns in ASTRA-sim), than the send that the plan puts
before it. The chunk and whether it is added (2 more if its sender's own data is left out) are attributes of our own, so
that a trace can be read back; of messages that carry several chunks the file of their sender says so before its nodes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.collective import Collective
from ..model.errors import Unsupported
from ..model.messages import Messages, messages_of
from ..model.rows import nodes_in
from ..model.targets import TARGETS
from ..model.timeline import Timeline
from . import atomic_file, kernel_chakra
from .chakra_trace import message_count, trace_of
from .kernel_chakra import Nodes, Words
from .protobuf import block, sized
from .steps import only_collective, parts_of

COMPUTE, SEND, RECEIVE = 4, 5, 6
"""Values of the enum NodeType."""
ID, NAME, TYPE, CONTROL_DEPS, DATA_DEPS, ATTR = 1, 2, 3, 4, 5, 10
"""Fields of Node."""
INT32, INT64, BOOL, STRING = 7, 9, 27, 29
"""Fields of AttributeProto, beside its name (1)."""

TYPES = (RECEIVE, SEND, COMPUTE)
"""The types of receipts, sends and turns."""
NAMES = ("receive chunk ", " from ", "send chunk ", " to ", "turn", "")
"""For each of them the texts of a node's name before and after its chunk."""
ATTRIBUTES = {
    "is_cpu_op": BOOL, "comm_size": INT64, "comm_tag": INT32, "comm_src": INT32, "comm_dst": INT32,
    "stretto_chunk": INT64, "stretto_op": INT64,
}  # fmt: skip
"""The attributes of a send, in their order, and the form of each."""
ATTRIBUTE_COUNTS = (5, 7, 1)
"""How many of these attributes receipts, sends and turns have."""
LONGEST_NODE_BYTES = 400
"""No node is longer, apart from the numbers of the nodes for which it waits."""
MOST_MESSAGES = 1 << 31
"""Tags are int32."""


def write(timeline: Timeline, path: str, ranks: Sequence[int] | None = None) -> Sequence[str]:
    """Write ``path.RANK.et`` for every rank, or for some; returns notes on what was left out."""
    facts, messages = check(timeline), messages_of(timeline.plan)
    several = {} if messages is None else _several(messages)
    if messages is not None:
        timeline = messages.course(timeline)
    plan = timeline.plan
    nodes = only_collective(plan).ranks.tolist()
    rank_of = np.full(plan.topology.node_count, -1, dtype=np.int64)
    rank_of[nodes] = np.arange(len(nodes))
    dropped = 0
    for rank in range(len(nodes)) if ranks is None else ranks:
        trace, lost = trace_of(timeline, nodes[rank], rank_of)
        dropped += lost
        content = encoded(trace)
        own = {"messages": several[nodes[rank]]} if nodes[rank] in several else {}
        with atomic_file(f"{path}.{rank}.et", "wb") as file:
            file.write(sized(block(1, b"0.0.4") + block(2, _text("stretto", json.dumps(facts | own)))))
            file.write(content.data)
    notes = ["routes and times left out: they are the network's that runs the trace"]
    return notes + [f"dependencies on what happens at other ranks left out: {dropped}"] * bool(dropped)


def check(timeline: Timeline) -> dict[str, object]:
    """What traces say of the collective of a plan; Unsupported if there are none of such a plan."""
    plan = timeline.plan
    collective = only_collective(plan)
    if not np.isin(nodes_in(plan), collective.ranks).all():
        raise Unsupported("a node that is no rank sends or receives, and a trace is of a rank")
    if (messages := message_count(plan)) > MOST_MESSAGES:
        raise Unsupported(f"the plan has {messages:,} messages, and tags go up to {MOST_MESSAGES:,}; use fewer chunks")
    return {"kind": collective.kind, "root": max(0, collective.root), **_cut_of(collective)}


def _several(messages: Messages) -> dict[int, dict[int, list[tuple[int, int]]]]:
    """For each node that sends messages of several chunks, for their tags the chunks, and whether each is added."""
    plan, dst = messages.plan, messages.merged.dst
    apart = np.zeros(len(plan.op), dtype=np.int8) if plan.forwards is None else plan.forwards
    chunk, op = plan.chunk.tolist(), (plan.op + 2 * apart).tolist()
    found: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for m, (first, last) in enumerate(zip(messages.first.tolist(), messages.last.tolist(), strict=True)):
        if first < last:
            carried = [(chunk[k], op[k]) for k in range(first, last + 1)]
            tags = range(int(dst.offsets[m]), int(dst.offsets[m + 1]))
            found.setdefault(int(plan.src[first]), {}).update(dict.fromkeys(tags, carried))
    return found


def _cut_of(collective: Collective) -> dict[str, object]:
    """How pieces are cut: into how many equal parts and, where chunks are not these parts, how many each covers."""
    if collective.evenly_cut:  # asked first: the chunks of large collectives are not listed
        return {"chunks": collective.chunk_count // collective.piece_count}
    parts = parts_of(collective, TARGETS["chakra"])
    return {"chunks": parts.number, "covered": parts.covered.tolist()}


def encoded(trace: Nodes) -> NDArray[np.uint8]:
    """The bytes of a trace's nodes, each after its length."""
    words = Words(*_joined(NAMES), *_joined(tuple(ATTRIBUTES)), np.array([*ATTRIBUTES.values()]))
    work = float(LONGEST_NODE_BYTES * len(trace.kind))
    return at_speed(kernel_chakra.encode, work)(
        trace, words, np.array(ATTRIBUTE_COUNTS), np.array(TYPES), LONGEST_NODE_BYTES
    )


def _joined(texts: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of texts, and where each begins and ends."""
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return np.frombuffer("".join(texts).encode(), dtype=np.uint8).copy(), ends


def _text(name: str, value: str) -> bytes:
    return block(1, name.encode()) + block(STRING, value.encode())
