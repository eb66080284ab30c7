"""One part of the buffer's way through an exchange, as transfers, and plans that take such ways in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....model.arrays import Ragged
from ....model.collective import Workload
from ....model.plan import Plan, make_plan
from ....model.topology import Topology

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """The transfers of one chunk.

    Attributes:
        src, dst, op: int64[transfers].
        route: the links of each.
        after: for each those that it waits for, by their places in the block.
    """

    src: Int64
    dst: Int64
    op: Int64
    route: Ragged
    after: Ragged


def assembled(topology: Topology, workload: Workload, blocks: Sequence[Block]) -> Plan:
    """Every chunk by one of the blocks, in turn, as a plan in ready-order."""
    turns = (np.arange(workload.chunk_count) % len(blocks)).tolist()
    sizes = np.array([len(blocks[t].op) for t in turns])
    first = np.cumsum(sizes) - sizes

    def column(name: str) -> Int64:
        each = [getattr(b, name) for b in blocks]
        return np.concatenate([each[t] for t in turns])

    def lists(name: str, base: Int64) -> Ragged:
        each = [getattr(blocks[t], name) for t in turns]
        lengths = np.concatenate([r.lengths for r in each])
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        moved = [r.values + b for r, b in zip(each, base.tolist(), strict=True)]
        return Ragged(offsets, np.concatenate(moved).astype(np.int32))

    return make_plan(
        topology,
        workload,
        "ready-order",
        chunk=np.repeat(np.arange(workload.chunk_count), sizes),
        src=column("src"),
        op=column("op"),
        dst=Ragged.single(column("dst").astype(np.int32)),
        route=lists("route", np.zeros_like(first)),
        depends=lists("after", first),
    )
