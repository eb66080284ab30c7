"""MSCCL XML: a plan as the program that MSCCL, RCCL and msccl-executor-nccl run on GPUs.

The form is that of microsoft/msccl-tools (msccl/language/ir.py, old format). A threadblock has at most one send peer
and one receive peer, on one channel. Its steps run in order. A step waits for at most one step of another threadblock;
``nop`` steps before it carry further waits. A message is one step at each end, so its chunks are one range of a buffer:
where they stand apart, the threadblock that sends or receives them copies them together, or to their places. Input and
output are separate buffers ("out of place"). The executor's ``rrc`` adds to the rank's own ``src``; here this is also
its ``dst``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree

from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.rows import messages_at_nodes
from ..model.targets import TARGETS
from ..model.timeline import Timeline
from . import atomic_file
from .steps import Program, Step, only_collective, program_of

TARGET = TARGETS["msccl"]
"""What runtimes accept."""
MOST_BYTES = 2**40
"""Largest size, bytes, that the file of a range without end names."""
KINDS = {"reducescatter": "reduce_scatter"}


@dataclass
class _Block:
    """A threadblock that is being filled."""

    rank: int
    send: int
    receive: int
    channel: int
    steps: list[dict[str, str]] = field(default_factory=list)
    waited: dict[int, int] = field(default_factory=dict)
    number: int = -1


def write(timeline: Timeline, path: str, sizes: tuple[int, int] = (0, MOST_BYTES)) -> Sequence[str]:
    """Write the program of a plan; returns notes on what the format could not keep.

    Args:
        sizes: the least and the greatest full buffer, bytes, for which a runtime shall use the program.
    """
    _check_elements(timeline.plan)
    program = program_of(timeline, TARGET)
    root = to_xml(program, timeline.plan.topology.name, sizes)
    ElementTree.indent(root)
    with atomic_file(path) as file:
        file.write(ElementTree.tostring(root, encoding="unicode") + "\n")
    return program.notes


def _check_elements(plan: Plan) -> None:
    """Refuse a plan with more messages at a rank than a file may have elements, before its steps are made."""
    ranks = only_collective(plan).ranks
    messages = messages_at_nodes(plan)[ranks]
    rank = int(messages.argmax())
    if 1 + len(ranks) + messages[rank] > TARGET.elements:
        raise Unsupported(f"{_too_many(rank)}: it sends and receives {messages[rank]:,} messages")


def _too_many(rank: int) -> str:
    limit = f"rank {rank} has more than the {TARGET.elements} elements that MSCCL's runtimes take"
    return f"{limit}; use fewer chunks or ranks"


def to_xml(program: Program, name: str, sizes: tuple[int, int] = (0, MOST_BYTES)) -> ElementTree.Element:
    """The ``<algo>`` element of a program, for full buffers between two sizes, bytes."""
    blocks, channels = _threadblocks(_joined(program.steps))
    chunks = max(max(program.inputs), max(program.outputs))
    facts = {
        "name": f"stretto {name}", "proto": "Simple", "nchannels": channels, "nchunksperloop": chunks,
        "ngpus": program.ranks, "coll": KINDS.get(program.kind, program.kind), "inplace": 0, "outofplace": 1,
        "minBytes": sizes[0], "maxBytes": sizes[1],
    }  # fmt: skip
    root = ElementTree.Element("algo", {k: str(v) for k, v in facts.items()})
    most = max(chunks, *program.scratch)
    if most > TARGET.buffer_parts:
        raise Unsupported(
            f"a buffer has {most:,} parts, more than the {TARGET.buffer_parts:,} of MSCCL; use fewer chunks"
        )
    for rank in range(program.ranks):
        own = [b for b in blocks if b.rank == rank]
        if 1 + len(own) + program.ranks + sum(len(b.steps) for b in own) > TARGET.elements:
            raise Unsupported(_too_many(rank))
        held = zip("ios", (program.inputs[rank], program.outputs[rank], program.scratch[rank]), strict=True)
        gpu = ElementTree.SubElement(root, "gpu", {"id": str(rank)} | {f"{b}_chunks": str(n) for b, n in held})
        for b in own:
            ends = {"send": b.send, "recv": b.receive, "chan": b.channel}
            block = ElementTree.SubElement(gpu, "tb", {"id": str(b.number)} | {k: str(v) for k, v in ends.items()})
            for s, step in enumerate(b.steps):
                ElementTree.SubElement(block, "step", {"s": str(s)} | step)
    return root


def _joined(steps: list[Step]) -> list[Step]:
    """The steps with one for each message and each copy: its parts stand side by side."""
    found: list[Step] = []
    number: list[int] = []
    for step in steps:
        waits = [number[w] for w in step.waits]
        if step.more:
            found[-1].count += step.count
            found[-1].waits += waits
        else:
            found.append(replace(step, waits=waits))
        number.append(len(found) - 1)
    for step in found:
        step.partner = number[step.partner] if step.partner >= 0 else -1
    return found


def _threadblocks(steps: list[Step]) -> tuple[list[_Block], int]:
    """The steps as threadblocks, numbered from 0 in each rank, and the number of channels."""
    keys = _keys(steps)
    awaited = {keys[w] for step, key in zip(steps, keys, strict=True) for w in step.waits if keys[w] != key}
    # runtimes hold the number of a threadblock that is waited for in few bits, so those come first; else what is
    # earlier in time
    blocks = {key: _Block(*key) for key in sorted(dict.fromkeys(keys), key=lambda key: key not in awaited)}
    counts: Counter[int] = Counter()
    for key, block in blocks.items():
        block.number = counts[block.rank]
        counts[block.rank] += 1
        if counts[block.rank] > (TARGET.awaited_threadblocks if key in awaited else TARGET.threadblocks):
            raise Unsupported(f"rank {block.rank} needs more threadblocks than MSCCL has; use fewer chunks or ranks")
    at: list[tuple[_Block, int]] = []
    for step, key in zip(steps, keys, strict=True):
        at.append((blocks[key], _append(blocks[key], step, [at[w] for w in step.waits])))
        if len(blocks[key].steps) > TARGET.steps:
            raise Unsupported(
                f"a threadblock of rank {step.rank} needs more than {TARGET.steps} steps; use fewer chunks"
            )
    channels = 1 + max((b.channel for b in blocks.values()), default=0)
    if channels > TARGET.channels:
        raise Unsupported(f"it needs {channels} channels, more than the {TARGET.channels} of MSCCL; use fewer chunks")
    return list(blocks.values()), channels


def _key(step: Step, channel: int) -> tuple[int, int, int, int]:
    """Rank, send peer, receive peer and channel of the threadblock that runs a step."""
    sends, receives = step.kind == "s", step.kind in ("r", "rrc")
    return step.rank, step.peer if sends else -1, step.peer if receives else -1, channel


def _keys(steps: list[Step]) -> list[tuple[int, int, int, int]]:
    """The threadblock of each step: on a new channel when either end's threadblock is full, or has no room there."""
    channel: Counter[tuple[int, int]] = Counter()
    used: Counter[tuple[int, int, int, int]] = Counter()
    peers: Counter[tuple[int, bool, int]] = Counter()
    keys = [_key(step, 0) for step in steps]
    local: dict[int, list[int]] = defaultdict(list)  # for each end of a message the steps that pack or unpack it there
    for number, step in enumerate(steps):
        if step.kind in ("cpy", "re") and step.partner >= 0:
            local[step.partner].append(number)
    for number, step in enumerate(steps):
        if step.partner >= 0 and step.kind != "s":
            continue  # it is where its message is
        pair = (step.rank, step.peer)
        ends = {k: sum(_room(steps[i]) for i in (k, *local[k])) for k in (number, step.partner) if k >= 0}
        while any(_is_full(_key(steps[k], channel[pair]), room, used, peers) for k, room in ends.items()):
            channel[pair] += 1
        for k, room in ends.items():
            for i in (k, *local[k]):
                keys[i] = _key(steps[k], channel[pair])
            peers[_side(keys[k])] += keys[k] not in used
            used[keys[k]] += room
    return keys


def _side(key: tuple[int, int, int, int]) -> tuple[int, bool, int]:
    """Rank, whether it sends, and channel of a threadblock."""
    return key[0], key[1] >= 0, key[3]


def _is_full(
    key: tuple[int, int, int, int],
    room: int,
    used: Counter[tuple[int, int, int, int]],
    peers: Counter[tuple[int, bool, int]],
) -> bool:
    """Whether a threadblock cannot take ``room`` more steps; of a new one, whether its channel takes no more peers."""
    if key in used:
        return used[key] + room > TARGET.steps
    copies = key[1] < 0 and key[2] < 0
    return not copies and peers[_side(key)] >= TARGET.channel_peers


def _room(step: Step) -> int:
    """How many steps of a file a step needs at most: for what it waits for, and since each carries few parts."""
    return max(1, len(step.waits)) + (step.count - 1) // TARGET.step_parts


def _append(block: _Block, step: Step, waits: list[tuple[_Block, int]]) -> int:
    """Append a step to its threadblock, after a nop for each wait but the last; returns the index of its end there."""
    latest: dict[int, tuple[_Block, int]] = {}
    for other, place in waits:
        known = max(block.waited.get(other.number, -1), latest[other.number][1] if other.number in latest else -1)
        if other is not block and place > known:
            latest[other.number] = (other, place)
    needed = list(latest.values())
    for other, place in needed:
        block.waited[other.number] = place
        other.steps[place]["hasdep"] = "1"
    for wait in needed[:-1]:
        block.steps.append(_element("nop", ("i", -1), ("o", -1), 0, wait))
    own = step.dst if step.kind == "rrc" else step.src
    for done in range(0, step.count, TARGET.step_parts):
        src, dst = ((buffer, first + done) for buffer, first in (own, step.dst))
        last = needed[-1] if needed and not done else None
        block.steps.append(_element(step.kind, src, dst, min(step.count - done, TARGET.step_parts), last))
    return len(block.steps) - 1


def _element(
    kind: str, src: tuple[str, int], dst: tuple[str, int], count: int, wait: tuple[_Block, int] | None
) -> dict[str, str]:
    after = (wait[0].number, wait[1]) if wait else (-1, -1)
    return {
        "type": kind, "srcbuf": src[0], "srcoff": str(src[1]), "dstbuf": dst[0], "dstoff": str(dst[1]),
        "cnt": str(count), "depid": str(after[0]), "deps": str(after[1]), "hasdep": "0",
    }  # fmt: skip
