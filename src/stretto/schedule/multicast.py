"""Multicast trees grown one task after another on a time-expanded graph that is searched implicitly.

MTEGCCA's steps 2 and 3 (Liu, Wang, Ma, Li, Li, Journal on Communications 2026, section 2), for every
planner that spreads chunks: tasks in order, for each an earliest-arrival tree, and the link time that
it uses is gone for those after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int32, Int64, Ragged
from ..model.collective import Workload
from ..model.errors import Infeasible
from ..model.topology import Topology
from . import kernel_multicast
from .kernel_candidates import Network, Rule
from .kernel_multicast import Tasks


class Passes(NamedTuple):
    """Transmissions of a chunk from a node that stores it, over one link or as one pipe through switches.

    Attributes:
        chunk, src: int[passes].
        parent: int[passes], the pass that brought the chunk to its node, -1 if the node held it.
    """

    chunk: Int32 | Int64
    src: Int32 | Int64
    parent: Int32 | Int64


class Times(NamedTuple):
    """When each pass starts, and how long its links take for it."""

    start_s: Float64
    seconds: Float64


class Hits(NamedTuple):
    """Nodes that passes deliver to, and the pass of each."""

    of_pass: Int32 | Int64
    node: Int32 | Int64


class Hops(NamedTuple):
    """Links that passes use, and the pass of each; those of a pass in the order of its pipe."""

    of_pass: Int32 | Int64
    link: Int32 | Int64


class MulticastTrees(NamedTuple):
    """One tree for each chunk, as passes, tree after tree."""

    passes: Passes
    times: Times
    hits: Hits
    hops: Hops


def tree_work(topology: Topology, workload: Workload) -> int:
    """About how many links are tried to grow all trees: once a chunk, beyond switches from every node before them."""
    switched = topology.is_switch[topology.dst]
    beyond = int((switched | topology.is_switch[topology.src]).sum())
    entries = len(np.unique(topology.src[switched & ~topology.is_switch[topology.src]]))
    return workload.chunk_count * (topology.link_count + entries * beyond)


def task_order(workload: Workload, order: str) -> Int64:
    """int64[chunks], step 2: chunks by the data of their task, largest first.

    Tasks of equal size take turns chunk by chunk (``interleaved``) or one after the other.
    """
    sizes: list[Int64] = []
    turns: list[Int64] = []
    for c in workload.collectives:
        sizes.append(c.piece_bytes[c.chunk_piece])
        index = np.arange(c.chunk_count)
        starts = np.searchsorted(c.chunk_piece, c.chunk_piece)
        turns.append(index - starts if order == "interleaved" else np.zeros_like(index))
    return np.lexsort((np.arange(workload.chunk_count), np.concatenate(turns), -np.concatenate(sizes)))


def slot_seconds(topology: Topology, workload: Workload) -> float:
    """The paper's slot: the largest chunk on the fastest link (section 1.2, definition 1)."""
    return float(workload.chunk_bytes.max() / topology.bandwidth.max())


@dataclass(frozen=True)
class Chunks:
    """What trees are grown for where there is no collective: what a workload says of its chunks.

    Attributes:
        chunk_bytes: int64[chunks].
        chunk_start_s: float64[chunks], before which none leaves its holders.
        chunk_holders, chunk_wanted: the nodes that hold and want each.
    """

    chunk_bytes: Int64
    chunk_start_s: Float64
    chunk_holders: Ragged
    chunk_wanted: Ragged


def grow_implicitly(
    topology: Topology,
    workload: Workload | Chunks,
    tasks: Int64,
    slot_s: float | None,
    nearness: float,
    thrift: float | Float64,
    work: float = 0.0,
) -> tuple[MulticastTrees, float]:
    """Trees for tasks in order, by the kernel, and when the last wanted chunk has arrived, seconds.

    Args:
        slot_s: the slot, None for continuous time.
        nearness, thrift: see :class:`stretto.schedule.kernel_candidates.Rule`.
        work: links that all calls together will try, to choose the kernel's speed.
    Raises:
        Infeasible: a node that wants a chunk has no path from its holders.
    """
    work = work or float(len(tasks)) * topology.link_count
    unit = slot_s or 1.0
    latency = topology.latency_s / unit
    start = workload.chunk_start_s / unit
    if slot_s is not None:
        latency, start = np.ceil(latency - 1e-9), np.ceil(start - 1e-9)
    out_offsets, out_links = topology.out_links
    network = Network(
        out_offsets, out_links.astype(np.int64),
        topology.src.astype(np.int64), topology.dst.astype(np.int64),
        1.0 / (topology.bandwidth * unit), latency, topology.forwarding, topology.replicates,
    )  # fmt: skip
    holders, wanted = workload.chunk_holders, workload.chunk_wanted
    spread = Tasks(
        tasks, workload.chunk_bytes.astype(np.float64), start,
        holders.offsets, holders.values.astype(np.int64), wanted.offsets, wanted.values.astype(np.int64),
    )  # fmt: skip
    rule = Rule(slot_s is not None, nearness, np.broadcast_to(thrift, topology.link_count).astype(np.float64))
    grow = at_speed(kernel_multicast.grow_trees, work)
    passes, (start_s, seconds), hits, hops, unreached, finish = grow(network, spread, rule)
    if unreached[0] >= 0:
        source, missed = int(holders[unreached[0]][0]), unreached[1]
        raise Infeasible(f"{topology.names[source]} cannot reach {topology.names[missed]}")
    times = Times(start_s * unit, seconds * unit)
    return MulticastTrees(Passes(*passes), times, Hits(*hits), Hops(*hops)), finish * unit
