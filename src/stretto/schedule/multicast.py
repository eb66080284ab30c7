"""Multicast trees grown one task after another on a time-expanded graph that is searched implicitly.

MTEGCCA's steps 2 and 3 (Liu, Wang, Ma, Li, Li, Journal on Communications 2026, section 2), for every
planner that spreads chunks: tasks in order, for each an earliest-arrival tree, and the link time that
it uses is gone for those after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels import at_speed, matching
from ..kernels.steps import Steps
from ..model.arrays import Float64, Int64, Ragged
from ..model.collective import Workload
from ..model.errors import Infeasible
from ..model.topology import Topology
from . import kernel_multicast
from .kernel_candidates import Network, Rule
from .kernel_multicast import Tasks


@dataclass(frozen=True, eq=False)
class MulticastTrees:
    """One tree for each chunk, tree after tree, as *passes*.

    A pass is one transmission from a node that stores the chunk: over one link, or as one pipe through switches.
    """

    chunk: Int64  # int64[passes]
    src: Int64  # int64[passes], nodes
    parent: Int64  # int64[passes], the pass that brought the chunk to its node, -1 if the node held it
    start_s: Float64
    seconds: Float64  # float64[passes], how long the links take
    dst: Ragged  # the nodes that each pass delivers to
    route: Ragged  # the links of each pass, in the order of its pipe
    finish_s: float  # when the last wanted chunk has arrived


def tree_work(topology: Topology, workload: Workload) -> int:
    """About how many links are tried to grow all trees: for each chunk once those that leave a node which stores, and
    from each node before switches those of all switches that it can enter."""
    switch, n = topology.is_switch, topology.node_count
    between = switch[topology.src] & switch[topology.dst]
    fabric = at_speed(matching.components, n)(topology.src[between], topology.dst[between], n)
    into, out = ~switch[topology.src] & switch[topology.dst], switch[topology.src]
    entries = np.unique(topology.src[into].astype(np.int64) * n + fabric[topology.dst[into]]) % n
    beyond = np.bincount(fabric[topology.src[out]], minlength=n)
    return workload.chunk_count * (int((~out).sum()) + int(beyond[entries].sum()))


def task_order(workload: Workload, order: str) -> Int64:
    """int64[chunks], step 2: chunks by the data of their task, largest first.

    Tasks of equal size take turns chunk by chunk (``interleaved``) or one after the other.
    """
    sizes = np.concatenate([c.piece_bytes[c.chunk_piece] for c in workload.collectives])
    if order != "interleaved":
        return np.argsort(-sizes, kind="stable")
    # the place of each chunk in its piece
    pieces = [c.chunk_piece for c in workload.collectives]
    turns = [np.arange(len(piece)) - np.searchsorted(piece, piece) for piece in pieces]
    return np.lexsort((np.concatenate(turns), -sizes))


def whole_slots(seconds: Float64, slot_s: float, neglected: float = 0.0) -> Float64:
    """Times in whole slots, rounded up (the paper's section 1.2, definition 3).

    Args:
        neglected: share of a slot up to which a time takes no slot.
    """
    exact = seconds / slot_s
    return np.where(exact <= neglected, 0.0, np.ceil(exact - 1e-9))


def slot_seconds(topology: Topology, workload: Workload) -> float:
    """The paper's slot: the largest chunk on the fastest link (section 1.2, definition 1)."""
    return float(workload.chunk_bytes.max() / topology.bandwidth.max())


@dataclass(frozen=True)
class Chunks:
    """What trees are grown for where there is no collective: what a workload says of its chunks."""

    chunk_bytes: Int64
    chunk_start_s: Float64  # before which none leaves its holders
    chunk_holders: Ragged  # the nodes that hold each chunk
    chunk_wanted: Ragged  # the nodes that want each chunk


def _steps(topology: Topology, unit_s: float) -> Steps:
    """How links change with time, with times in units of ``unit_s`` seconds."""
    changes, width = topology.changes, topology.changes.bandwidth * unit_s
    per_byte = np.divide(1.0, width, out=np.full(len(width), np.inf), where=width > 0)
    return Steps(changes.offsets(topology.link_count), changes.at_s / unit_s, per_byte)


def grow_implicitly(
    topology: Topology,
    workload: Workload | Chunks,
    tasks: Int64,
    slot_s: float | None,
    nearness: float,
    thrift: float | Float64,
    work: float = 0.0,
    neglected: float = 0.0,
    counted: Int64 | None = None,
) -> MulticastTrees:
    """Trees for tasks in order, by the kernel.

    Args:
        slot_s: the slot, None for continuous time.
        nearness, thrift: see :class:`stretto.schedule.kernel_candidates.Rule`.
        work: links that all calls together will try, to choose the kernel's speed.
        neglected: share of a slot up to which a latency takes no slot; what is sent may start too early by that.
        counted: int64[1], counts the trees while they are grown.
    Raises:
        Infeasible: a node that wants a chunk has no path from its holders.
    """
    work = work or float(len(tasks)) * topology.link_count
    unit = slot_s or 1.0
    latency = topology.latency_s / unit
    start = workload.chunk_start_s / unit
    if slot_s is not None:
        latency = whole_slots(topology.latency_s, slot_s, neglected)
        start = np.ceil(start - max(neglected, 1e-9))
    out_offsets, out_links = topology.out_links
    network = Network(
        out_offsets, out_links.astype(np.int64),
        topology.src.astype(np.int64), topology.dst.astype(np.int64),
        1.0 / (topology.bandwidth * unit), latency, topology.forwarding, topology.replicates, _steps(topology, unit),
    )  # fmt: skip
    holders, wanted = workload.chunk_holders, workload.chunk_wanted
    spread = Tasks(
        tasks, workload.chunk_bytes.astype(np.float64), start,
        holders.offsets, holders.values.astype(np.int64), wanted.offsets, wanted.values.astype(np.int64),
    )  # fmt: skip
    rule = Rule(slot_s is not None, nearness, np.broadcast_to(thrift, topology.link_count).astype(np.float64))
    grow = at_speed(kernel_multicast.grow_trees, work)
    passes, times, hits, hops, unreached, finish = grow(
        network, spread, rule, np.zeros(1, dtype=np.int64) if counted is None else counted
    )
    if unreached[0] >= 0:
        source, missed = int(holders[unreached[0]][0]), unreached[1]
        raise Infeasible(f"{topology.names[source]} cannot reach {topology.names[missed]}")
    dst, route = (Ragged.grouped(of_pass, values, len(passes)) for of_pass, values in (hits.T, hops.T))
    chunk, src, parent = passes.T
    start_s, seconds = times.T * unit
    return MulticastTrees(chunk, src, parent, start_s, seconds, dst, route, finish * unit)
