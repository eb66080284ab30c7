"""Targets: what shall run a plan, and what that asks of the plan.

A target is a row of :data:`TARGETS`. Planners read it before they plan, exporters check a plan against the same row. A
number that limits plans stands here only.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InputError, nearest
from .kinds import KINDS
from .plan import SHARING
from .units import format_time

MESSAGE_S = 50e-6
"""Seconds that a message keeps a link busy besides its bytes when processes send it: between what the compiled loop
takes and what Python's does (``benchmarks/executor.py``). With twice as much, plans are cut about 1.4 times as
coarsely."""

LATE_SHARE = 0.02
"""Of processes that send over sockets. With 0, sums that cross wait for what crosses before them, for 1 % on paper:
AllReduce between two sites of two ranks, over a link of 100 ms that loses 1 % of packets, has 0.76 of the link instead
of 0.87 (benchmarks/torch_wan.py --only lossy --sites)."""

UNLIMITED = 2**62
"""A limit that nothing comes to."""

BUFFERED = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce")
"""Kinds of collectives whose input and output buffers the runtimes of programs of steps know."""

UNPACED = tuple(way for way in SHARING if way not in ("rates", "weights", "priorities"))
"""Ways of sharing links that need no runtime which shares by rates or weights."""


@dataclass(frozen=True)
class Target:
    """What runs a plan, and what it asks of the plan.

    Attributes:
        name, help: for lists.
        kinds: the kinds of collectives that it runs.
        collectives: how many collectives a plan may have.
        sharing: the ways of sharing links that it can follow.
        planes: whether it turns optical planes.
        multicast: whether switches may send one transfer to several receivers. Where they may not, plans are made for
            switches that do not.
        sums: the same of switches that sum.
        relays: whether nodes outside the ranks run the plan, too: they store data and send it on. Where they do not,
            routers only pass data on, and accelerators outside the ranks do not even that.
        same_bits: whether all ranks must end an AllReduce with the same bits, which depend on the order of sums.
        equal_parts: whether a piece must be cut into equal parts, of which a chunk covers one or several.
        alignment_bytes: the least bytes of a part.
        buffer_parts: parts of one buffer of a rank, at most.
        step_parts: parts that one step carries, at most.
        threadblocks: of a GPU, at most.
        awaited_threadblocks: of these, those that others wait for, at most.
        steps: of a threadblock, at most.
        channels: of a file, or peers of a threadblock where each has a channel of its own, at most.
        channel_peers: threadblocks of a channel of a GPU that send, and threadblocks that receive, at most.
        semaphores: of a GPU, at most.
        elements: of the file of a GPU, at most.
        pass_bytes: bytes of each chunk that one pass of a program carries, and bytes of a message, at most.
        in_flight: messages from a threadblock to another that may be under way.
        buffer_bytes: bytes of a buffer, at most.
        messages: that a rank sends and receives in all, at most, about: what plans are made for. Whether a plan fits
            in all that is counted above, an exporter finds out.
        messages_at_once: that a rank sends and receives in all, about, if all threadblocks of its program are to run at
            once. Plans with more are made where fewer cost too much time.
        one_range: whether a message is one range of a buffer at its sender and one at its receiver. Where its chunks
            do not stand side by side, exporters copy them together.
        message_s: seconds that a message costs at least, on links at an end of which something handles messages.
        late_share: share of a plan's completion up to which it counts that chains of its transfers meet more latency
            than they must. It is for networks on which bytes may come late, as over TCP: what waits for them is late,
            too, and links fall idle where a plan would have them busy.
    """

    name: str
    help: str
    kinds: tuple[str, ...] = KINDS
    collectives: int = 1
    sharing: tuple[str, ...] = UNPACED
    planes: bool = False
    multicast: bool = False
    sums: bool = False
    relays: bool = False
    same_bits: bool = False
    equal_parts: bool = False
    alignment_bytes: int = 1
    buffer_parts: int = UNLIMITED
    step_parts: int = UNLIMITED
    threadblocks: int = UNLIMITED
    awaited_threadblocks: int = UNLIMITED
    steps: int = UNLIMITED
    channels: int = UNLIMITED
    channel_peers: int = UNLIMITED
    semaphores: int = UNLIMITED
    elements: int = UNLIMITED
    pass_bytes: int = UNLIMITED
    in_flight: int = UNLIMITED
    buffer_bytes: int = UNLIMITED
    messages: int = UNLIMITED
    messages_at_once: int = UNLIMITED
    one_range: bool = False
    message_s: float = 0.0
    late_share: float = 0.0

    @property
    def asks(self) -> list[str]:
        """What it asks of a plan, in words."""
        said = [] if self.collectives >= UNLIMITED else [f"at most {_counted(self.collectives, 'collective')}"]
        if not self.relays:
            said.append("no data is stored outside the ranks: routers only pass it on")
        said += [f"switches do not {does}" for does, may in (("copy", self.multicast), ("sum", self.sums)) if not may]
        if self.same_bits:
            said.append("all ranks add up in one order, so that they end an AllReduce with the same bits")
        said += [] if self.planes else ["no optical planes"]
        if self.sharing != SHARING:
            left_out = [way for way in SHARING if way not in self.sharing]
            said.append(f"no {', '.join(left_out[:-1])} or {left_out[-1]} by which transfers share links")
        if self.equal_parts:
            least = f" of {_counted(self.alignment_bytes, 'byte')} or more"
            said.append(f"chunks cover equal parts of a piece{least if self.alignment_bytes > 1 else ''}")
        limits = {
            "part of a buffer": self.buffer_parts, "part in a step": self.step_parts,
            "threadblock of a GPU": self.threadblocks, "step of a threadblock": self.steps, "channel": self.channels,
            "peer of a GPU on a channel, to send to or to receive from": self.channel_peers,
            "semaphore of a GPU": self.semaphores, "element in the file of a GPU": self.elements,
        }  # fmt: skip
        said += [f"at most {_counted(limit, what)}" for what, limit in limits.items() if limit < UNLIMITED]
        said += [f"a message costs {format_time(self.message_s)} or more"] if self.message_s else []
        counts = (
            f"latency that chains of transfers meet without need counts up to {self.late_share:.0%} of the completion"
        )
        return said + ([f"bytes may come late: {counts}"] if self.late_share else [])


def _counted(count: int, what: str) -> str:
    """``1 step of a threadblock``, ``256 steps of a threadblock``."""
    noun, space, rest = what.partition(" ")
    return f"{count:,} {noun}{'s' * (count != 1)}{space}{rest}"


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            # microsoft/msccl src/include/msccl.h: MSCCL_MAX_NUM_STEPS, MSCCL_MAX_NUM_THREAD_BLOCKS, MSCCL_MAX_COUNT,
            # MAXCHANNELS, offsets of 16 bits, threadblocks that are waited for in 8 bits; src/graph/xml.h: MAX_NODES.
            # A step of MSCCL_MAX_COUNT parts is refused: src/graph/topo.cc. A channel of a GPU has at most
            # MSCCL_MAX_NUM_THREAD_BLOCKS_PER_CHANNEL threadblocks that send, and as many that receive.
            # A part holds whole elements; the usual ones have four bytes or less. ROCm/rccl
            # src/device/msccl_kernel_impl.h: all steps are repeated for each half (MSCCL_CHUNKSTEPS of NCCL_STEPS) of a
            # buffer of 4 MiB (NCCL_BUFFSIZE) of each chunk, and each message takes half of it, however small it is.
            "msccl", "MSCCL XML, which MSCCL and RCCL before 2026 run on GPUs: `stretto export --to msccl`",
            kinds=BUFFERED, equal_parts=True, alignment_bytes=4, buffer_parts=2**15 - 1, step_parts=71,
            threadblocks=216, awaited_threadblocks=128, steps=256, channels=32, channel_peers=32, elements=4096,
            messages=3600, pass_bytes=2 << 20, in_flight=2, one_range=True,
        ),
        Target(
            # microsoft/mscclpp src/core/include/execution_common.hpp: MAX_OPERATION, MAX_CHANNEL,
            # MAX_DEVICE_SEMAPHORES, offsets of 32 bits; src/core/executor/execution_plan.cc: buffer_alignment.
            # A buffer must be a multiple of its parts times 16 bytes, so that many parts serve few sizes: 128 KiB here.
            # A GPU of 80 multiprocessors runs 80 threadblocks of 64 operations at once, about two for a message's end.
            "mscclpp", "MSCCL++ execution plan, run by MSCCL++ on GPUs: `stretto export --to mscclpp` (`mscclpp-dsl`)",
            kinds=BUFFERED, equal_parts=True, alignment_bytes=16, buffer_parts=2**13, steps=64, channels=16,
            buffer_bytes=2**32, messages_at_once=2560,
        ),
        Target(
            "torch", "processes of PyTorch's backend `stretto`, and those of `stretto run`, which send over sockets",
            sharing=SHARING, planes=True, same_bits=True, message_s=MESSAGE_S,
            late_share=LATE_SHARE,
        ),
        Target(
            "nccl-p2p", "sends and receives of any group of torch.distributed, such as NCCL's, and sums at the ranks",
        ),
        Target(
            "chakra", "Chakra traces, for ASTRA-sim: `stretto export --to chakra`", kinds=BUFFERED, equal_parts=True,
        ),
    )
}  # fmt: skip


def find_target(name: str) -> Target:
    """The target of that name.

    Raises:
        InputError: there is none; names the nearest one, or all.
    """
    if name not in TARGETS:
        raise InputError(f"there is no target {name!r}; {nearest(name, TARGETS)}", "target")
    return TARGETS[name]
