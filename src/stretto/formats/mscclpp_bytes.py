"""A program of MSCCL++ for buffers of a size: which bytes each operation reads and writes.

Facts are those of microsoft/mscclpp at 1f5f065d: how chunks become bytes, from src/core/executor/execution_plan.cc;
which channels are joined, and where buffers begin, from executor.cc; and what each operation does, from
src/core/include/execution_kernel.hpp. Where the kernel does something else than the name of an operation says, what the
kernel does counts: ``get`` adds the offset of each end to the memory of the other, ``put`` over memory takes the buffer
of its first source for all of them, and ``pws`` signals over ports alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..model.errors import Fault, InputError
from .mscclpp_program import PORT, Chunks, ExecutionPlan, Gpu
from .mscclpp_program import Operation as Written
from .mscclpp_ranges import COLLECTIVES, Line, Loaded, Move, Operation, Place, Range

WHOLE = {"allreduce": "i", "alltoall": "i", "reducescatter": "i", "allgather": "o"}
"""Which buffer holds the other, where a plan is in place."""
LAID_OUT_SCRATCH, SHARED_SCRATCH = 1 << 26, 1 << 27
"""Bytes by which chunks are laid out, and that there are, where plans share a scratch buffer (``reuse_resources``)."""
MOST_BYTES, MOST_ITERATIONS = 1 << 32, 1 << 16
"""The executor counts bytes in 32 bits and iterations of a loop in 16."""
SUMS = ("re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt")
PACKETS = ("ppkt", "rppkt", "cpkt", "upkt", "repkt", "respkt", "recpkt", "recspkt", "gstorepkt")
"""Operations on packets. An iteration of a loop does all of such an operation again: the kernel gives it no offset."""


def resolve(plan: ExecutionPlan, path: str, full_bytes: int | None, shard_bytes: int | None) -> Loaded:
    """The program for a full buffer of a size, or for shards of one.

    Raises:
        InputError: the plan does not take such a size.
        Fault: the executor could not run it.
    """
    sizes = _sizes(plan, path, full_bytes, shard_bytes)
    layout = _Layout(plan, path, *sizes)
    threadblocks = []
    for rank, gpu in enumerate(plan.gpus):
        blocks = []
        for i, block in enumerate(gpu.blocks):
            resolver = _Resolver(layout, gpu, path)
            blocks.append([resolver.operation(op, Place(rank, i, k)) for k, op in enumerate(block)])
        threadblocks.append(blocks)
    switch = any(move.how == "switch" for op in _each(threadblocks) for move in op.moves)
    return Loaded(
        path, plan.name, plan.collective, plan.inplace, len(plan.gpus), *sizes, threadblocks,
        [gpu.semaphores for gpu in plan.gpus], switch, [layout.memory(gpu) for gpu in plan.gpus],
    )  # fmt: skip


def _each(threadblocks: list[list[list[Operation]]]) -> list[Operation]:
    operations = [op for blocks in threadblocks for block in blocks for op in block]
    return operations + [inner for op in operations for inner in op.inner]


def _sizes(plan: ExecutionPlan, path: str, full: int | None, shard: int | None) -> tuple[int, int, int]:
    """Bytes of a rank's input and output, and of a chunk."""
    n, promises = len(plan.gpus), plan.collective in COLLECTIVES
    inputs, outputs = plan.gpus[0].inputs, plan.gpus[0].outputs
    if promises:
        for r, gpu in enumerate(plan.gpus):
            if not gpu.inputs or not gpu.outputs:
                what = "input_chunks" if not gpu.inputs else "output_chunks"
                raise Fault(f"the loader divides by {what}, which is 0", Place(r), "load", path)
            if (gpu.inputs, gpu.outputs) != (inputs, outputs):
                raise InputError(f"gpu {r} has other input_chunks or output_chunks than gpu 0", path)
    else:
        inputs = max(*(gpu.inputs for gpu in plan.gpus), 1)
        outputs = max(gpu.outputs for gpu in plan.gpus)
    full = shard * n if shard is not None else full
    if full is None:
        raise InputError("give the size of the full buffer or of one rank's shard", path)
    if not plan.least_bytes <= full <= plan.most_bytes:
        raise InputError(f"takes messages of {plan.least_bytes} to {plan.most_bytes} bytes, not of {full}", path)
    ways = inputs * (n if plan.collective == "allgather" else 1)
    chunk, rest = divmod(full, ways)
    if rest or chunk % plan.alignment or not chunk:
        wanted = plan.alignment * ways
        raise InputError(f"a full buffer must be a multiple of {wanted} bytes, and {full} is none", path)
    if promises:
        scatters, gathers = plan.collective == "reducescatter", plan.collective == "allgather"
        if (outputs * n if scatters else outputs) != (inputs * n if gathers else inputs):
            what = (
                f"{inputs} input_chunks and {outputs} output_chunks are not those of {plan.collective} among {n} ranks"
            )
            raise Fault(what, None, "load", path)
        if plan.collective == "alltoall" and inputs % n:
            raise InputError(f"{inputs} input_chunks do not go evenly into {n} ranks", path)
    if chunk * max(inputs, outputs) >= MOST_BYTES:
        raise InputError("the executor counts bytes in 32 bits: a buffer is below 4 GiB", path)
    return chunk * inputs, chunk * outputs, chunk


def scratch_apart(plan: ExecutionPlan, gpu: Gpu) -> int:
    """By how many bytes chunks of the shared scratch are apart at most, 0 where scratch is not shared.

    Iterations of a loop use this much of a larger chunk, and then begin again.
    """
    if not plan.reuse_resources or not gpu.scratch:
        return 0
    each = -(-(LAID_OUT_SCRATCH // (2 if plan.double_scratch else 1)) // gpu.scratch)
    return -(-each // plan.alignment) * plan.alignment


class _Layout:
    """Where chunks are."""

    def __init__(self, plan: ExecutionPlan, path: str, inputs: int, outputs: int, chunk: int) -> None:
        self.plan, self.path, self.input_bytes, self.output_bytes, self.chunk_bytes = plan, path, inputs, outputs, chunk

    def memory(self, gpu: Gpu) -> dict[str, int]:
        """Bytes of each memory; of scratch, those that one launch may use."""
        plan = self.plan
        scratch = self.chunk_bytes * gpu.scratch * (2 if plan.protocol == "LL" else 1)
        if plan.reuse_resources and gpu.scratch:
            scratch = SHARED_SCRATCH // (2 if plan.double_scratch else 1)
        sizes = {"i": self.input_bytes, "o": self.output_bytes, "s": scratch}
        if plan.inplace and plan.collective in WHOLE:
            sizes[WHOLE[plan.collective]] = max(self.input_bytes, self.output_bytes)
        return sizes

    def offset(self, gpu: Gpu, end: Chunks) -> int:
        apart = scratch_apart(self.plan, gpu) if end.buffer == "s" else 0
        return end.first * (apart if 0 < apart < self.chunk_bytes else self.chunk_bytes)

    def part(self, size: int, share: tuple[int, int]) -> tuple[int, int]:
        """Where the part of one threadblock of a group begins, and its bytes."""
        (number, parts), align = share, self.plan.alignment
        each, more = divmod(size // align, parts)
        begin, end = (i * each + min(i, more) for i in (number, number + 1))
        return begin * align, (end - begin) * align

    def place(self, buffer: str, base: int) -> tuple[str, int]:
        """The memory that holds a buffer, and the buffer's first byte there.

        Args:
            base: the rank whose offset is taken, where input and output are one memory. The executor adds that of the
                rank which reaches into the memory of another, not that of the other; and to sources of ports none.
        """
        if not self.plan.inplace or buffer == "s" or self.plan.collective not in WHOLE:
            return buffer, 0
        whole = WHOLE[self.plan.collective]
        inner = buffer != whole and self.input_bytes != self.output_bytes
        return whole, base * min(self.input_bytes, self.output_bytes) if inner else 0


class _Resolver:
    """Resolves the operations of one GPU."""

    def __init__(self, layout: _Layout, gpu: Gpu, path: str) -> None:
        self.layout, self.gpu, self.path = layout, gpu, path
        self.peers = {kind: _numbered(peers) for kind, peers in (("memory", gpu.memory), ("port", gpu.port))}

    def operation(self, op: Written, at: Place) -> Operation:
        made = Operation(op.name, at)
        if op.name == "pipeline":
            made.unit = op.unit
            made.iterations = -(-op.chunks * self.layout.chunk_bytes // op.unit)
            if made.iterations >= MOST_ITERATIONS:
                what = f"has {made.iterations} iterations, and the kernel counts them in 16 bits"
                raise Fault(what, at, "limit", self.path)
            made.inner = [self.operation(inner, at._replace(inner=k)) for k, inner in enumerate(op.inner)]
        elif op.name == "barrier":
            made.barrier = op.barrier, op.blocks
        elif op.name == "sem_acquire":
            made.acquires = op.semaphores
        elif op.name == "sem_release":
            made.releases = op.semaphores
        elif op.name in ("signal", "rlxsignal"):
            made.signals = self._lines(op, at, out=True)
        elif op.name in ("wait", "rlxwait"):
            made.waits = self._lines(op, at, out=False)
        elif op.src or op.dst:
            made.sliced = op.name not in PACKETS
            made.moves = tuple(self._moves(op, at))
            if op.via == PORT and op.name in ("pws", "pwsf"):
                made.signals = self._lines(op, at, out=True)[: len(op.dst)]
        return made

    def _lines(self, op: Written, at: Place, out: bool) -> tuple[Line, ...]:
        ways = [self.peers[op.via][c] for c in op.channels]
        return tuple((op.via, *((at.rank, peer) if out else (peer, at.rank)), k) for peer, k in ways)

    def _moves(self, op: Written, at: Place) -> list[Move]:
        self._check(op, at)
        src, dst, name = op.src, op.dst, op.name
        if name in ("glres", "gstore", "gstorepkt"):
            size = self._bytes(src[0], op)
            to, sources = ([self._range(at, op, e, e, size, name == "gstorepkt") for e in side] for side in (dst, src))
            return [Move(tuple(to), tuple(sources), "switch", name == "gstorepkt")]
        if name in ("put", "pws", "pwsf", "ppkt"):
            return [self._put(op, at, i) for i in range(len(dst))]
        if name == "get":
            # the kernel adds the offset of each end to the memory of the other
            return [
                Move(
                    (self._range(at, op, a, b, self._bytes(a, op)),),
                    (self._range(at, op, b, a, self._bytes(a, op)),),
                    "get",
                )
                for a, b in zip(src, dst)
            ]
        size, how = self._bytes(src[0], op), "port" if op.via == PORT else "put"
        if name == "rppkt":
            here = self._range(at, op, src[0], self._scratch(at), size, True)
            return [Move((self._range(at, op, b, b, size, True),), (here,), how, True) for b in dst]
        if name in ("copy", "cpkt", "upkt"):
            packets = name == "upkt"
            here = self._range(at, op, src[0], self._scratch(at) if packets else src[0], size, packets)
            return [Move((self._range(at, op, dst[0], dst[0], size, name == "cpkt"),), (here,), "local", packets)]
        return [self._sum(op, at, size)]

    def _put(self, op: Written, at: Place, i: int) -> Move:
        a, b, packets, port = op.src[i], op.dst[i], op.name == "ppkt", op.via == PORT
        size = self._bytes(a if packets else b, op)
        # over memory, the kernel takes the buffer of the first source for all; over ports, packets must be packets
        here = self._range(at, op, a, a if port else op.src[0], size, packets and port, port)
        return Move((self._range(at, op, b, b, size, packets),), (here,), "port" if port else "put")

    def _sum(self, op: Written, at: Place, size: int) -> Move:
        """All reductions: sources are here, elsewhere (``rre``, ``rres``) or packets; ``..s..`` also sends the sum."""
        packets, copies = op.name.endswith("pkt"), op.name in ("recpkt", "recspkt")
        sources = [self._range(at, op, op.src[0], op.src[0], size)]
        for a in op.src[1:]:
            sources.append(self._range(at, op, a, self._scratch(at) if packets else a, size, packets))
        own = [self._range(at, op, op.dst[0], op.dst[0], size)]
        if copies:
            own.append(self._range(at, op, op.dst[1], op.dst[1], size, True))
        sends = op.name in ("res", "rres", "respkt", "recspkt")
        others = [self._range(at, op, b, b, size, packets) for b in op.dst[len(own) :]] if sends else []
        how = "get" if op.name in ("rre", "rres") else "put" if others else "local"
        return Move((*own, *others), tuple(sources), how, packets and len(sources) > 1)

    def _check(self, op: Written, at: Place) -> None:
        """Whether the operation has the ends that it needs, each at the rank where the kernel looks for it."""
        src, dst, where = op.src, op.dst, f"{self.path}, {at}"
        least = 2 if op.name in ("recpkt", "recspkt") else 1
        each = op.name in ("put", "pws", "pwsf", "ppkt", "get")
        if not src or len(dst) < least or (each and len(src) != len(dst)):
            raise InputError(
                f"{op.name} has {len(src)} sources and {len(dst)} destinations, which do not fit it", where
            )
        if op.name in ("glres", "gstore", "gstorepkt"):
            return
        own = (src if op.name != "get" else dst)[: None if op.name not in ("rre", "rres") else 1]
        own += dst[:least] if op.name in (*SUMS, "copy", "cpkt", "upkt") else ()
        away = (dst if op.name != "get" else src) if op.name not in (*SUMS, "copy", "cpkt", "upkt") else dst[least:]
        away += src[1:] if op.name in ("rre", "rres") else ()
        if any(e.rank != at.rank for e in own) or any(e.rank == at.rank for e in away):
            raise InputError(
                "names a buffer of its own where it needs one of another rank, or the other way round", where
            )
        if op.via == PORT:
            for b, line in zip(dst, (*self._lines(op, at, out=True), *([None] * len(dst)))):
                if line is None or line[2] != b.rank:
                    leads = "is missing" if line is None else f"leads to rank {line[2]}"
                    raise Fault(f"writes to rank {b.rank}, and the channel for it {leads}", at, "channel", self.path)

    def _scratch(self, at: Place) -> Chunks:
        """Where the kernel looks for packets, whatever the operation says."""
        return Chunks(at.rank, "s", 0, 0)

    def _bytes(self, end: Chunks, op: Written) -> int:
        return self.layout.part(end.size * self.layout.chunk_bytes, op.share)[1]

    def _range(
        self,
        at: Place,
        op: Written,
        offset: Chunks,
        memory: Chunks,
        size: int,
        packets: bool = False,
        port: bool = False,
    ) -> Range:
        """The bytes at the offset of one end in the memory of an end, most often the same."""
        layout = self.layout
        begin = layout.offset(self.gpu, offset) + layout.part(offset.size * layout.chunk_bytes, op.share)[0]
        if packets and memory.buffer != "s":
            raise Fault("takes a buffer that is not scratch for packets", at, "packets", self.path)
        name, base = layout.place(memory.buffer, 0 if port else at.rank)
        ring = scratch_apart(layout.plan, self.gpu) if memory.buffer == "s" else 0
        return Range(memory.rank, "p" if packets else name, base + begin, size, ring)


def _numbered(peers: Sequence[int]) -> list[tuple[int, int]]:
    """For each channel its peer, and how many channels before it lead there."""
    seen: Counter[int] = Counter()
    numbered = []
    for peer in peers:
        numbered.append((peer, seen[peer]))
        seen[peer] += 1
    return numbered
