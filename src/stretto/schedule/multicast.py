"""Multicast trees grown one task after another on a time-expanded graph that is searched implicitly.

MTEGCCA's steps 2 and 3 (Liu, Wang, Ma, Li, Li, Journal on Communications 2026, section 2), for every
planner that spreads chunks: tasks in order, for each an earliest-arrival tree, and the link time that
it uses is gone for those after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.errors import Infeasible
from ..model.topology import Topology
from . import kernel_multicast


def tree_steps(topology: Topology, workload: Workload) -> int:
    """Steps of the kernel's inner loop, roughly: links tried a chunk, those through switches from every node."""
    switched = topology.is_switch[topology.dst]
    beyond = int((switched | topology.is_switch[topology.src]).sum())
    entries = len(np.unique(topology.src[switched & ~topology.is_switch[topology.src]]))
    return workload.chunk_count * (topology.link_count + entries * beyond)


def task_order(workload: Workload, order: str) -> NDArray[np.int64]:
    """int64[chunks], step 2: chunks by the data of their task, largest first.

    Tasks of equal size take turns chunk by chunk (``interleaved``) or one after the other.
    """
    sizes: list[NDArray[Any]] = []
    turns: list[NDArray[Any]] = []
    for c in workload.collectives:
        sizes.append(c.piece_bytes[c.chunk_piece])
        index = np.arange(c.chunk_count)
        starts = np.searchsorted(c.chunk_piece, c.chunk_piece)
        turns.append(index - starts if order == "interleaved" else np.zeros_like(index))
    return np.lexsort((np.arange(workload.chunk_count), np.concatenate(turns), -np.concatenate(sizes)))


def slot_seconds(topology: Topology, workload: Workload) -> float:
    """The paper's slot: the largest chunk on the fastest link (section 1.2, definition 1)."""
    return float(workload.chunk_bytes.max() / topology.bandwidth.max())


Grown = tuple[Any, ...]


@dataclass(frozen=True)
class Chunks:
    """What trees are grown for where there is no collective: what a workload says of its chunks.

    Attributes:
        chunk_bytes: int64[chunks].
        chunk_start_s: float64[chunks], before which none leaves its holders.
        chunk_holders, chunk_wanted: the nodes that hold and want each.
    """

    chunk_bytes: NDArray[np.int64]
    chunk_start_s: NDArray[np.float64]
    chunk_holders: Ragged
    chunk_wanted: Ragged


def grow_implicitly(
    topology: Topology,
    workload: Workload | Chunks,
    tasks: NDArray[np.int64],
    slot: float | None,
    nearness: float,
    thrift: float | NDArray[np.float64],
    work: float = 0.0,
) -> tuple[Grown, float]:
    """Trees for tasks in order, by the kernel, and when the last wanted chunk has arrived.

    Args:
        slot: the slot in seconds, None for continuous time.
        nearness, thrift: see :func:`stretto.schedule.kernel_multicast.grow_trees`.
        work: how much all calls together will do, to choose the kernel's speed.
    Returns:
        What the kernel does, in seconds, and the finish.
    """
    kernel_steps = work or float(len(tasks)) * topology.link_count
    out_offsets, out_links = topology.out_links
    unit = slot or 1.0
    latency = topology.latency_s / unit
    start = workload.chunk_start_s / unit
    if slot is not None:
        latency, start = np.ceil(latency - 1e-9), np.ceil(start - 1e-9)
    holders, wanted = workload.chunk_holders, workload.chunk_wanted
    passes, times, hits, hops, unreached, finish = at_speed(kernel_multicast.grow_trees, kernel_steps)(
        out_offsets, out_links.astype(np.int64), topology.src.astype(np.int64), topology.dst.astype(np.int64),
        1.0 / (topology.bandwidth * unit), latency, topology.forwarding, topology.replicates,
        tasks, workload.chunk_bytes.astype(np.float64), start,
        holders.offsets, holders.values.astype(np.int64), wanted.offsets, wanted.values.astype(np.int64),
        slot is not None, nearness, np.broadcast_to(thrift, topology.link_count).astype(np.float64),
    )  # fmt: skip
    if unreached[0] >= 0:
        source, missed = int(holders[unreached[0]][0]), unreached[1]
        raise Infeasible(f"{topology.names[source]} cannot reach {topology.names[missed]}")
    return (passes, (times[0] * unit, times[1] * unit), hits, hops), finish * unit
