"""A program of MSCCL++ for a simulated plan, with the proof that none of its interleavings deadlocks or races.

Data go straight to their place where the proof allows it; where it finds that what was there before may still be in
use, those messages go through a slot of their own and the program is made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import replace
from hashlib import sha256

from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.timeline import Timeline
from .interleavings import Finding, Proof, prove
from .mscclpp_blocks import TARGET, Blocks
from .mscclpp_lanes import Lanes, lanes_of
from .mscclpp_program import MEMORY, PORT, Chunks, ExecutionPlan, Gpu, Operation
from .steps import Program, parts_of, program_of

RESIDENT = 80
"""Threadblocks of 1,024 threads that a GPU surely runs at once: the multiprocessors of a V100, the smallest GPU that
MSCCL++ names as supported. An A100 has 108, an H100 132."""
BLOCK_BYTES_PER_S = 1024 * 16 / 0.6e-6
"""What a threadblock copies, estimated: each of 1,024 threads has 16 bytes on their way from memory, whose latency is
about 0.6 us. With half as much the export makes twice as many threadblocks where a rank's links need them."""
MESSAGE_BYTES = 23_000
"""Memory for each message while its program is made, proved and written, about: what the export adds to a process for
each message of an AllGather by shortest-path on torus:8x16. Clocks of threadblocks are a third of it."""
MOST_OFFSET = 2**32
"""Offsets are 32 bits wide (execution_common.hpp)."""


def plan_of(timeline: Timeline, sizes: tuple[int, int] | None = None) -> tuple[ExecutionPlan, Proof, list[str]]:
    """The program of a plan, its proof, and notes.

    Args:
        sizes: the least and the greatest full buffer, bytes, for which MSCCL++ shall take it; by default any.
    Raises:
        Unsupported: steps cannot express the plan, or no order of threadblocks is safe; says why.
    """
    program = program_of(timeline, TARGET, MESSAGE_BYTES)
    plan = timeline.plan
    sites = [plan.topology.sites[v] for v in plan.workload.collectives[0].ranks.tolist()]

    def via(one: int, other: int) -> str:
        return MEMORY if sites[one] == sites[other] else PORT

    staged: set[tuple[int, int, int]] = set()
    flushed: set[tuple[int, int, int]] = set()
    while True:
        lanes = lanes_of(program, staged, lambda one, other: via(one, other) == PORT)
        made = _made(program, lanes, via, flushed, plan)
        proof = prove(made)
        before = len(staged) + len(flushed)
        for finding in proof.findings:
            _heed(finding, lanes, made, staged, flushed)
        if len(staged) + len(flushed) == before:
            break
    in_place = proof.holds and not _misplaced(made) and prove(replace(made, inplace=True)).holds
    ranges = (m for pair, own in lanes.messages.items() if via(*pair) == PORT for m in own if len(m.parts) > 1)
    # no part of a range of several chunks is a part of each of them
    copies = 1 if next(ranges, None) is not None else _copies(made, plan)
    if copies > 1:
        made = copied(made, copies)
        proof = prove(made, resident=RESIDENT)
    elif proof.blocks > RESIDENT:
        proof = prove(made, resident=RESIDENT)
    if not proof.holds:
        raise Unsupported(f"no safe order of threadblocks: {proof.findings[0].text}")
    made = _limited(made, sizes)
    return made, proof, _notes(made, proof, program, copies, in_place)


def _made(
    program: Program,
    lanes: Lanes,
    via: Callable[[int, int], str],
    flushed: Container[tuple[int, int, int]],
    plan: Plan,
) -> ExecutionPlan:
    """The program of some lanes."""
    # a rank that holds or wants nothing passes a buffer all the same: the loader divides by its chunks
    inputs, outputs = ([n or max(chunks) for n in chunks] for chunks in (program.inputs, program.outputs))
    gpus = [
        Blocks(rank, lanes, via, flushed).gpu(inputs[rank], outputs[rank], lanes.scratch[rank])
        for rank in range(program.ranks)
    ]
    # contexts of an executor are known by the name of their plan: two plans must not share one
    digest = sha256(repr([gpu.blocks for gpu in gpus]).encode()).hexdigest()[:12]
    name = f"stretto {program.kind} {plan.topology.name} {digest}"
    return ExecutionPlan(name, program.kind, gpus)


def _limited(made: ExecutionPlan, sizes: tuple[int, int] | None) -> ExecutionPlan:
    """The plan for messages of these sizes, as far as offsets reach."""
    first = made.gpus[0]
    chunks = first.outputs if made.collective == "allgather" else first.inputs
    most = max(max(gpu.inputs, gpu.outputs, gpu.scratch) for gpu in made.gpus)
    unit = made.alignment * chunks
    least, greatest = sizes or (0, MOST_OFFSET * chunks)
    return replace(
        made, least_bytes=least, most_bytes=min(greatest, (MOST_OFFSET - 1) // (most * made.alignment) * unit)
    )


def _heed(
    finding: Finding,
    lanes: Lanes,
    made: ExecutionPlan,
    staged: set[tuple[int, int, int]],
    flushed: set[tuple[int, int, int]],
) -> None:
    """Send what a race concerns through slots of its own, or wait for what the CPU still reads."""
    if finding.kind != "race":
        return
    for rank, block, place in finding.operations:
        op = made.gpus[rank].blocks[block][place]
        if op.name not in ("put", "pws", "pwsf", "res"):
            continue
        sent, put = (op.dst[0], op.dst[-1]) if op.name == "res" else (op.src[0], op.dst[0])
        peer = put.rank
        for message in lanes.messages[rank, peer]:
            if any(part.dst == (put.buffer, put.first) and part.src[1] == sent.first for part in message.parts):
                key = (rank, peer, message.number)
                if not message.staged:
                    staged.add(key)
                if op.via == PORT:
                    flushed.add(key)


def _misplaced(made: ExecutionPlan) -> bool:
    """Whether MSCCL++ would miss the place of a part, if input and output were one buffer.

    The input of an AllGather and the output of a ReduceScatter then begin at another place on each rank. The executor
    adds the place of the rank that acts to addresses in the memory of others, and none to sources of ports
    (constSrcOffset in execution_plan.cc).
    """
    part = {"allgather": "i", "reducescatter": "o"}.get(made.collective)
    for rank, gpu in enumerate(made.gpus):
        for op in (op for block in gpu.blocks for op in block):
            missed = [chunks for chunks in (*op.src, *op.dst) if chunks.rank != rank or op.via == PORT]
            if any(chunks.buffer == part for chunks in missed):
                return True
    return False


def _copies(made: ExecutionPlan, plan: Plan) -> int:
    """How many times side by side the program runs, each on its part of every chunk.

    As many as threadblocks are needed to fill the links of the rank that has least of them, within what runs at once
    and what divides a chunk of the plan's size.
    """
    collective = plan.workload.collectives[0]
    ranks = collective.ranks.tolist()
    wanted = 1.0
    for rank, gpu in enumerate(made.gpus):
        sending = sum(1 for block in gpu.blocks if any(op.name in ("put", "res") and op.via == MEMORY for op in block))
        if sending:
            width = float(plan.topology.bandwidth[plan.topology.src == ranks[rank]].sum())
            wanted = max(wanted, width / sending / BLOCK_BYTES_PER_S)
    most = max(len(gpu.blocks) for gpu in made.gpus)
    unit_bytes = int(collective.piece_bytes.min()) // parts_of(collective, TARGET).number
    units = unit_bytes // made.alignment if unit_bytes % made.alignment == 0 else 1
    for copies in range(min(math.ceil(wanted), RESIDENT // max(1, most)), 1, -1):
        if units % copies == 0:
            return copies
    return 1


def copied(plan: ExecutionPlan, copies: int) -> ExecutionPlan:
    """A program several times side by side, as instances of MSCCL++'s language: chunks in parts, the rest its own."""

    def chunks(refs: tuple[Chunks, ...], copy: int) -> tuple[Chunks, ...]:
        return tuple(ref._replace(first=ref.first * copies + copy * ref.size) for ref in refs)

    def operation(op: Operation, copy: int) -> Operation:
        channels, semaphores = (tuple(n * copies + copy for n in own) for own in (op.channels, op.semaphores))
        src, dst = chunks(op.src, copy), chunks(op.dst, copy)
        return op._replace(src=src, dst=dst, channels=channels, semaphores=semaphores)

    def every(values: list[int]) -> list[int]:
        return [value for value in values for _ in range(copies)]

    gpus = [
        Gpu(
            gpu.inputs * copies,
            gpu.outputs * copies,
            gpu.scratch * copies,
            memory=every(gpu.memory),
            port=every(gpu.port),
            semaphores=every(gpu.semaphores),
            blocks=[[operation(op, copy) for op in block] for block in gpu.blocks for copy in range(copies)],
        )
        for gpu in plan.gpus
    ]
    return replace(plan, gpus=gpus)


def _notes(made: ExecutionPlan, proof: Proof, program: Program, copies: int, in_place: bool) -> list[str]:
    """What a user should know."""
    notes = [*program.notes, proof.note()]
    if copies > 1:
        notes.append(f"each threadblock {copies} times, on {copies} parts of every chunk")
    if any(gpu.port for gpu in made.gpus):
        notes.append("port channels between sites, memory channels inside")
    if program.kind in ("allreduce", "allgather", "reducescatter"):
        notes.append("input and output may be one buffer" if in_place else "input and output must be buffers apart")
    chunks = max(max(gpu.inputs, gpu.outputs) for gpu in made.gpus)
    notes.append(f"buffers must be multiples of {made.alignment} bytes times their chunks ({chunks} in the larger one)")
    return notes
