"""A program of MSCCL++ in its own language: a Python file that MSCCL++ compiles, registers and selects.

The file uses microsoft/mscclpp's python/mscclpp/language (CollectiveProgram, Rank, MemoryChannel, PortChannel, Buffer,
Semaphore) and leaves to it what it would else do by itself: meetings of threads are written out (``auto_sync=False``,
``SyncType.none``), a sum that is also sent is written as ``reduce`` and ``put``, which it fuses. What it makes is the
plan of ``mscclpp``, operation for operation (``benchmarks/mscclpp_loader.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import dedent

from ..model.timeline import Timeline
from . import atomic_file
from .mscclpp_of_plan import plan_of
from .mscclpp_program import Chunks, ExecutionPlan, Operation

INTERCEPTED = ("allreduce", "allgather", "reducescatter")
"""Collectives that MSCCL++'s NCCL library offers to a selector without a root, which a request does not say."""


def write(timeline: Timeline, path: str, sizes: tuple[int, int] | None = None) -> Sequence[str]:
    """Write the program; returns notes as ``mscclpp`` does."""
    made, _, notes = plan_of(timeline, sizes)
    in_place = "input and output may be one buffer" in notes
    sites = [timeline.plan.topology.sites[v] for v in timeline.plan.workload.collectives[0].ranks.tolist()]
    counts = {sites.count(site) for site in sites}
    with atomic_file(path) as file:
        file.writelines(f"{line}\n" for line in lines_of(made, in_place, counts.pop() if len(counts) == 1 else 0))
    return [*notes, "a request to MSCCL++'s NCCL library does not say how to reduce: its plans always sum"]


def lines_of(plan: ExecutionPlan, in_place: bool, ranks_per_node: int) -> Iterator[str]:
    """The lines of the file.

    Args:
        in_place: whether input and output may be one buffer. ranks_per_node: 0 if nodes differ.
    """
    yield from _head(plan, in_place, ranks_per_node)
    yield ""
    yield ""
    yield "def program(spec: AlgoSpec) -> CollectiveProgram:"
    yield '    """The program: i, o, s are the buffers of each rank; tb is a threadblock."""'
    yield "    with CollectiveProgram.from_spec(spec) as made:"
    yield "        rank = [Rank(r) for r in range(spec.world_size)]"
    yield "        i, o = [r.get_input_buffer() for r in rank], [r.get_output_buffer() for r in rank]"
    yield "        s = [Buffer(r, size) for r, size in enumerate(SCRATCH)]"
    yield "        memory = [[MemoryChannel(peer, r) for peer in peers] for r, peers in enumerate(MEMORY)]"
    yield "        port = [[PortChannel(peer, r) for peer in peers] for r, peers in enumerate(PORT)]"
    yield "        semaphore = [[Semaphore(r, 0) for _ in range(count)] for r, count in enumerate(SEMAPHORES)]"
    for rank, gpu in enumerate(plan.gpus):
        for number, block in enumerate(gpu.blocks):
            yield f"        # rank {rank}, threadblock {number}"
            for op in block:
                for line in _calls(rank, number, op):
                    yield f"        {line}"
    yield "    return made"
    yield from _tail(plan)


def _head(plan: ExecutionPlan, in_place: bool, ranks_per_node: int) -> list[str]:
    """What comes before the program: what the file is, imports, sizes."""
    gpus = plan.gpus
    unit = plan.alignment * gpus[0].inputs
    spec = (
        f"AlgoSpec(name={plan.name!r}, collective=Buffers({len(gpus)}, 1, False), nranks_per_node={ranks_per_node}, "
        f"world_size={len(gpus)}, in_place=False, instances=1, protocol={plan.protocol!r}, instr_fusion=True, "
        f"auto_sync=False, num_threads_per_block={plan.threads}, buffer_alignment={plan.alignment}, "
        f"min_message_size={plan.least_bytes}, max_message_size={plan.most_bytes})"
    )
    text = f'''
        """{plan.name}, for MSCCL++. Written by stretto.

        `python FILE` prints the execution plan, where mscclpp is installed. In an application:

            import mscclpp.ext
            builder = mscclpp.ext.AlgorithmCollectionBuilder()
            register(builder, rank)
            builder.set_algorithm_selector(select)

        before the communicator is made. MSCCL++'s NCCL library (LD_PRELOAD) then asks `select` at each collective.
        """

        from mscclpp.language.channel import MemoryChannel, PortChannel
        from mscclpp.language.collectives import Collective
        from mscclpp.language.internal.types import BufferType, SyncType
        from mscclpp.language.program import CollectiveProgram
        from mscclpp.language.rank import BaseBuffer, Buffer, Rank, Semaphore
        from mscclpp.language.utils import AlgoSpec

        COLLECTIVE = {plan.collective!r}
        INPUTS = {[gpu.inputs for gpu in gpus]}
        OUTPUTS = {[gpu.outputs for gpu in gpus]}
        SCRATCH = {[gpu.scratch for gpu in gpus]}
        """Chunks of the buffers of each rank."""
        MEMORY = {[gpu.memory for gpu in gpus]}
        PORT = {[gpu.port for gpu in gpus]}
        """Peers of the channels of each rank, by type."""
        SEMAPHORES = {[len(gpu.semaphores) for gpu in gpus]}
        UNIT = {unit}
        """The number of bytes that a rank's input must be a multiple of."""
        IN_PLACE = {in_place}
        """Whether input and output may be one buffer."""
        NONE = SyncType.none


        class Buffers(Collective):
            """The collective, with the chunks of this program."""

            def __init__(self, num_ranks, chunk_factor, inplace):
                Collective.__init__(self, num_ranks, chunk_factor, inplace)
                self.name = COLLECTIVE

            def init_buffers(self):
                """Input and output of each rank."""
                return [
                    {{
                        BufferType.input: BaseBuffer(r, BufferType.input, 0, INPUTS[r]),
                        BufferType.output: BaseBuffer(r, BufferType.output, 0, OUTPUTS[r]),
                    }}
                    for r in range(self.num_ranks)
                ]


        SPEC = {spec}
    '''
    return dedent(text).strip().split("\n")


def _tail(plan: ExecutionPlan) -> list[str]:
    """What comes after the program: registration, selection, and the plan as JSON."""
    text = f'''


        def register(builder, rank):
            """Compile the program and add it to an AlgorithmCollectionBuilder."""
            import mscclpp

            builder.add_algorithm_builder(mscclpp.compile(algo=program, algo_spec=SPEC, rank=rank))


        def select(algorithms, request):
            """This program where it fits a request, else None: MSCCL++ then chooses as it does without it.

            A request does not say how to reduce, and a plan always sums.
            """
            full = request.message_size * (request.world_size if COLLECTIVE == "allgather" else 1)
            apart = request.input_buffer != request.output_buffer
            if (
                COLLECTIVE in {INTERCEPTED!r}
                and request.collective == COLLECTIVE
                and request.world_size == SPEC.world_size
                and SPEC.min_message_size <= full <= SPEC.max_message_size
                and request.message_size % UNIT == 0
                and (IN_PLACE or (apart and request.buffer_mode().name != "IN_PLACE"))
            ):
                return algorithms[COLLECTIVE][SPEC.name]
            return None


        if __name__ == "__main__":
            print(program(SPEC).to_json())
    '''
    return dedent(text).rstrip().split("\n")[1:]


def _calls(rank: int, number: int, op: Operation) -> list[str]:
    """The calls that make an operation."""
    tb, apart = f"tb={number}", "data_sync=NONE"
    if op.name == "nop":
        return [f"rank[{rank}].barrier([{number}])"]
    if op.name in ("signal", "wait"):
        return [f"{op.via}[{rank}][{c}].{op.name}({tb}, {apart})" for c in op.channels]
    if op.name in ("sem_acquire", "sem_release"):
        return [f"semaphore[{rank}][{s}].{op.name[4:]}({tb}, {apart})" for s in op.semaphores]
    src, dst = list(map(_slice, op.src)), list(map(_slice, op.dst))
    if op.name == "copy":
        return [f"rank[{rank}].copy({dst[0]}, {src[0]}, {tb})"]
    if op.name in ("re", "res"):
        added = f"rank[{rank}].reduce({src[0]}, [{', '.join(src[1:])}], {tb}, dst_chunk={dst[0]})"
        sent = (f"memory[{rank}][{c}].put({d}, {dst[0]}, {tb})" for c, d in zip(op.channels, dst[1:], strict=True))
        return [added, *sent]
    name = {"put": "put", "pws": "put_with_signal", "pwsf": "put_with_signal_and_flush"}[op.name]
    # of one put with several sources it makes one operation
    return [f"{op.via}[{rank}][{op.channels[0]}].{name}({d}, {s}, {tb})" for d, s in zip(dst, src, strict=True)]


def _slice(chunks: Chunks) -> str:
    """Chunks of a buffer, as a slice of it."""
    return f"{chunks.buffer}[{chunks.rank}][{chunks.first}:{chunks.first + chunks.size}]"
