"""Exchanges as transfers: each part of the buffer takes a block of transfers, and parts take blocks in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....model.arrays import Int64, Ragged
from ....model.collective import Workload
from ....model.plan import COPY, REDUCE, Plan, make_plan
from ....model.topology import Topology
from ....schedule.pipes import Network
from .trees import Exchange


@dataclass(frozen=True)
class Block:
    """The transfers of one chunk.

    Attributes:
        src, dst, op: int64[transfers].
        route: the links of each.
        after: for each the transfers that it waits for, by their places in the block.
        forwards: int64[transfers], 1 where a transfer forwards what those have brought; none does by default.
    """

    src: Int64
    dst: Int64
    op: Int64
    route: Ragged
    after: Ragged
    forwards: Int64 | None = None


def assemble(topology: Topology, workload: Workload, blocks: Sequence[Block]) -> Plan:
    """Every chunk by one of the blocks, in turn, as a plan in ready-order."""
    turns = (np.arange(workload.chunk_count) % len(blocks)).tolist()
    sizes = np.array([len(blocks[t].op) for t in turns])
    first = np.cumsum(sizes) - sizes

    def column(name: str) -> Int64:
        columns = [getattr(b, name) for b in blocks]
        return np.concatenate([columns[t] for t in turns])

    after = Ragged.concatenate([blocks[t].after for t in turns])
    return make_plan(
        topology,
        workload,
        "ready-order",
        chunk=np.repeat(np.arange(workload.chunk_count), sizes),
        src=column("src"),
        op=column("op"),
        forwards=None if blocks[0].forwards is None else column("forwards"),
        dst=Ragged.single(column("dst").astype(np.int32)),
        route=Ragged.concatenate([blocks[t].route for t in turns]),
        depends=after.with_values(after.values + np.repeat(first, sizes)[after.owners]),
    )


def plan_exchanges(topology: Topology, workload: Workload, network: Network, exchanges: Sequence[Exchange]) -> Plan:
    """Every chunk by one of the exchanges, in turn, as a plan in ready-order."""
    return assemble(topology, workload, [_block(network, exchange) for exchange in exchanges])


def _block(network: Network, exchange: Exchange) -> Block:
    after = [sorted(set(m.after)) for m in exchange.messages]
    brought = {v: list(messages) for v, messages in exchange.complete.items()}
    for p, v in exchange.copies:
        # a copy replaces what was summed here on its way elsewhere
        summed = exchange.into.get(v, [])
        brought[v] = [*summed, len(after)]
        after.append(sorted({*brought[int(network.src[p])], *summed}))
    pipes, op = exchange.pipes(), np.repeat([REDUCE, COPY], [len(exchange.messages), len(exchange.copies)])
    return Block(network.src[pipes], network.dst[pipes], op, network.hops.take(pipes), Ragged.of(after))
