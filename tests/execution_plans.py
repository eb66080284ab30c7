"""Execution plans of MSCCL++ for two ranks, written by hand: each operation once, in a program that does a collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Entry = dict[str, Any]
NOP: Entry = {"name": "nop"}


def own(buffer: str, index: int = 0, size: int = 1) -> Entry:
    return {"type": buffer, "index": index, "size": size}


def other(buffer: str, index: int = 0, size: int = 1) -> Entry:
    """Of the other rank."""
    return {"buffer_id": "ios".index(buffer), "index": index, "size": size}


def shared(index: int = 0, size: int = 1, channel: int = 0) -> Entry:
    """Of both ranks, through the switch: channel 0 is the input, 1 the output, 2 scratch."""
    return {"switch_channel_id": channel, "index": index, "size": size}


def op(name: str, src: Any = (), dst: Any = (), via: str = "memory", **more: Any) -> Entry:
    """An operation; sources and destinations are entries or lists of them."""
    made: Entry = {"name": name, "channel_type": via} | more
    for key, ends in (("src_buff", src), ("dst_buff", dst)):
        if ends:
            made[key] = ends if isinstance(ends, list) else [ends]
    return made


def over(name: str, via: str = "memory", channels: tuple[int, ...] = (0,)) -> Entry:
    return {"name": name, "channel_ids": list(channels), "channel_type": via}


MEET = [over("rlxsignal"), over("rlxwait"), NOP]
"""Both ranks have begun."""
DONE = [NOP, over("signal"), over("wait"), NOP]
"""Both ranks have written what the other reads."""


def gpu(rank: int, chunks: tuple[int, int, int], blocks: list[list[Entry]], semaphores: tuple[int, ...] = ()) -> Entry:
    inputs, outputs, scratch = chunks
    peer = 1 - rank
    kinds = ["memory", "port"]
    return {
        "id": rank, "input_chunks": inputs, "output_chunks": outputs, "scratch_chunks": scratch,
        "channels": [{"channel_type": kind, "connected_to": [peer, peer]} for kind in kinds]
        + [{"channel_type": "switch", "buffer_type": b, "rank_groups": [{"size": 2, "ranks": [0, 1]}]} for b in "ios"],
        "remote_buffers": [{"rank": peer, "type": b, "access_channel_types": kinds} for b in "ios"],
        "semaphores": [{"init_value": value} for value in semaphores],
        "threadblocks": [
            {
                "id": i, "ops": ops,
                "channels": [{"channel_type": kind, "channel_ids": [0, 1]} for kind in kinds]
                + [{"channel_type": "switch", "channel_ids": [0, 1, 2]}],
                "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": [0, 1, 2]} for kind in kinds],
            }
            for i, ops in enumerate(blocks)
        ],
    }  # fmt: skip


def plan(
    collective: str, chunks: tuple[int, int, int], blocks: Callable[[int], list[list[Entry]]], *, inplace: bool = False,
    protocol: str = "Simple", semaphores: tuple[int, ...] = (), **more: Any,
) -> Entry:  # fmt: skip
    """A plan; ``blocks`` gives the threadblocks of a rank."""
    return {
        "name": "by hand", "collective": collective, "protocol": protocol, "inplace": inplace,
        "use_double_scratch_buffer": protocol == "LL",
        "gpus": [gpu(r, chunks, blocks(r), semaphores) for r in range(2)],
    } | more  # fmt: skip


def gather(r: int, *moves: Entry) -> list[list[Entry]]:
    """Of AllGather: one's own part, and what brings the other's."""
    return [[op("copy", own("i"), own("o", r)), *MEET, *moves]]


HALF = {"tb_id": 0, "tbg_size": 2}, {"tb_id": 1, "tbg_size": 2}
SUMS = {"chunks": (2, 2, 0), "inplace": True}


PLANS: dict[str, Entry] = {
    "put": plan("allgather", (1, 2, 0), lambda r: gather(r, op("put", own("i"), other("o", r)), *DONE)),
    "put in place": plan(
        "allgather", (1, 2, 0), lambda r: [[*MEET, op("put", own("o", r), other("o", r)), *DONE]], inplace=True
    ),
    "fused put": plan(
        "allgather", (2, 4, 0),
        lambda r: [[op("copy", own("i", 0, 2), own("o", 2 * r, 2)), *MEET,
                    op("put", [own("i", 0), own("i", 1)], [other("o", 2 * r), other("o", 2 * r + 1)]), *DONE]],
    ),
    "get": plan(
        "allgather", (1, 2, 2),
        lambda r: [[op("copy", own("i"), own("s", r)), op("copy", own("i"), own("o", r)), *DONE,
                    op("get", other("s", 1 - r), own("s", 1 - r)), NOP, op("copy", own("s", 1 - r), own("o", 1 - r)),
                    *DONE]],
    ),
    "pws": plan(
        "allgather", (1, 2, 0),
        lambda r: gather(r, op("pws", own("i"), other("o", r), "port", channel_ids=[0]), over("wait", "port"), *DONE,
                         op("pwsf", own("i"), other("o", r), "port", channel_ids=[1]), over("wait", "port", (1,)), NOP),
    ),
    "pwsf": plan(
        "allgather", (1, 2, 0),
        lambda r: gather(r, op("pwsf", own("i"), other("o", r), "port", channel_ids=[0]), over("wait", "port"), NOP),
    ),
    "ppkt": plan(
        "allgather", (1, 2, 1),
        lambda r: [[op("copy", own("i"), own("o", r)), op("ppkt", own("i"), other("s")),
                    op("upkt", own("s"), own("o", 1 - r))]],
        protocol="LL",
    ),
    "rppkt": plan(
        "allgather", (1, 2, 2),
        lambda r: [[op("cpkt", own("i"), own("s", r)), op("rppkt", own("s", r), other("s", r)),
                    op("upkt", own("s", 0), own("o", 0)), op("upkt", own("s", 1), own("o", 1))]],
        protocol="LL",
    ),
    "gstore": plan("allgather", (1, 2, 0), lambda r: [[*MEET, op("gstore", own("i"), shared(r, 1, 1), "switch"), *DONE]]),
    "gstorepkt": plan(
        "allgather", (1, 2, 2),
        lambda r: [[op("cpkt", own("i"), own("s", r)), op("gstorepkt", own("s", r), shared(r, 1, 2), "switch"),
                    op("upkt", own("s", 0), own("o", 0)), op("upkt", own("s", 1), own("o", 1))]],
        protocol="LL",
    ),
    "rres": plan(
        "allreduce",
        blocks=lambda r: [[*MEET, op("rres", [own("i", r), other("i", r)], [own("i", r), other("i", r)]), *DONE]], **SUMS,
    ),
    "rre": plan(
        "reducescatter", (2, 1, 0), lambda r: [[*MEET, op("rre", [own("i", r), other("i", r)], own("o")), *DONE]]
    ),
    "re": plan(
        "reducescatter", (2, 1, 1),
        lambda r: [[*MEET, op("put", own("i", 1 - r), other("s")), *DONE, op("re", [own("i", r), own("s")], own("o")),
                    *DONE]],
    ),
    "res": plan(
        "allreduce", (2, 2, 1),
        lambda r: [[*MEET, op("put", own("i", 1 - r), other("s")), *DONE,
                    op("res", [own("i", r), own("s")], [own("o", r), other("o", r)]), *DONE]],
    ),
    "repkt": plan(
        "reducescatter", (2, 1, 1),
        lambda r: [[op("ppkt", own("i", 1 - r), other("s")), op("repkt", [own("i", r), own("s")], own("o"))]],
        protocol="LL",
    ),
    "respkt": plan(
        "allreduce", (2, 2, 2),
        lambda r: [[op("ppkt", own("i", 1 - r), other("s")),
                    op("respkt", [own("i", r), own("s")], [own("o", r), other("s", 1)]),
                    op("upkt", own("s", 1), own("o", 1 - r))]],
        protocol="LL",
    ),
    "recpkt": plan(
        "allreduce", (2, 2, 3),
        lambda r: [[op("ppkt", own("i", 1 - r), other("s")),
                    op("recpkt", [own("i", r), own("s")], [own("o", r), own("s", 2)]),
                    op("rppkt", own("s", 2), other("s", 1)), op("upkt", own("s", 1), own("o", 1 - r))]],
        protocol="LL",
    ),
    "recspkt": plan(
        "allreduce", (2, 2, 3),
        lambda r: [[op("ppkt", own("i", 1 - r), other("s")),
                    op("recspkt", [own("i", r), own("s")], [own("o", r), own("s", 2), other("s", 1)]),
                    op("upkt", own("s", 1), own("o", 1 - r))]],
        protocol="LL",
    ),
    "glres": plan(
        "allreduce", blocks=lambda r: [[*MEET, op("glres", shared(r), shared(r), "switch"), *DONE]], **SUMS
    ),
    "pipeline": plan(
        "allreduce",
        blocks=lambda r: [[*MEET, {"name": "pipeline", "iter_context": {"unit_size": 256, "num_chunks": 1},
                                   "ops": [op("glres", shared(r), shared(r), "switch")]}, *DONE]],
        **SUMS,
    ),
    "threadblock group": plan(
        "allreduce",
        blocks=lambda r: [
            [over("rlxsignal", channels=(t,)), over("rlxwait", channels=(t,)), NOP,
             op("rres", [own("i", r), other("i", r)], [own("i", r), other("i", r)], tbg_info=HALF[t]), NOP,
             over("signal", channels=(t,)), over("wait", channels=(t,)), NOP]
            for t in range(2)
        ],
        **SUMS,
    ),
    "barrier": plan(
        "allgather", (1, 2, 0),
        lambda r: [[*MEET, {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2},
                    op("put", own("o", r), other("o", r)), *DONE],
                   [op("copy", own("i"), own("o", r)), {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}]],
    ),
    "semaphores": plan(
        "allgather", (1, 2, 0),
        lambda r: [[*MEET, {"name": "sem_acquire", "semaphore_ids": [0]}, NOP, op("put", own("o", r), other("o", r)),
                    *DONE],
                   [op("copy", own("i"), own("o", r)), NOP, {"name": "sem_release", "semaphore_ids": [0]}]],
        semaphores=(0,),
    ),
    "alltoall": plan(
        "alltoall", (2, 2, 0),
        lambda r: [[op("copy", own("i", r), own("o", r)), *MEET, op("put", own("i", 1 - r), other("o", r)), *DONE]],
    ),
    "sendrecv": plan("sendrecv", (1, 1, 0), lambda r: [[*MEET, op("put", own("i"), other("o")), *DONE]]),
}  # fmt: skip
"""A correct plan for each operation."""
