"""Paths that load links evenly, for data that is not copied (above all AllToAll) where bandwidth decides.

The maximum concurrent flow says how fast all pairs can be served at once (Shahrokhi and Matula, J. ACM 1990; its dual
is the bound by lengths, :mod:`stretto.bounds.lengths`). Here each pair's data is divided into a few units, and selfish
rerouting chooses a path for each unit (:func:`stretto.bounds.concurrent_flow`). Paths are cut where nodes store, data
is cut into parts, and transfers are ordered by urgency (:mod:`stretto.schedule.dispatch`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bounds import concurrent_flow
from ..model.arrays import Float64, Int64, Ragged, offsets_of
from ..model.collective import Workload
from ..model.errors import InputError
from ..model.plan import Plan, make_plan
from ..model.topology import ACCELERATOR, Topology
from ..schedule.best import best, completion_s
from ..schedule.dispatch import busiest_link_s, dispatch
from ..schedule.effort import Budget
from ..schedule.trees import split_chunks
from . import Candidate, Option, Request, per_delivery, register

UNITS = 8_000
"""Units into which the data of all pairs is divided, about."""

MOST_UNITS_A_PAIR = 128
"""Units into which the data of one pair is divided at most."""

MOST_CHUNKS = 100_000
"""Chunks beyond which planning would take minutes, and is refused."""

LATENCY_WEIGHTS = (1.0, 4.0, 16.0)
"""What latency costs, see ``wait`` of :func:`stretto.bounds.concurrent_flow`. The first is always tried, the others
where latency counts (``LATENCY_SHARE``)."""

LATENCY_SHARE = 0.05
"""Latency of the longest path, as a share of the busiest link's time, from which latency counts."""

TRANSFER_COUNTS = (3_000, 12_000, 60_000)
"""Numbers of transfers for which parts are cut, coarse to fine. A finer plan is made where the last one is not yet
``NEAR`` the busiest link's time, and the last refinement gained."""

SMALLEST_PART_BYTES = 256
"""Mean size of a part, below which data is not cut, unless every link sends fewer bytes within its latency."""

NEAR = 1.003
"""Completion over the busiest link's time that is near enough; and the ratio by which a finer plan must gain."""

COSTS = {"transfer": 3.0}
"""Steps (:mod:`stretto.schedule.effort`) of a transfer of a plan, with one round of justification."""

OPTIONS = (Option("parts", int, 0, "into how many parts each path's data is cut; 0: by the number of transfers"),)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "its paths are of links, not of optical planes"
    if (workload.chunk_holders.lengths > 1).any() or (workload.chunk_wanted.lengths > 1).any():
        return "its paths lead from one rank to one other, and here data is copied"
    if workload.chunk_count > MOST_CHUNKS:
        return f"it seeks paths for at most {MOST_CHUNKS:,} chunks, and here are {workload.chunk_count:,}"
    return None


@register(
    "paths",
    collectives=("alltoall", "alltoallv", "scatter", "gather"),
    topologies="any without planes",
    paper="our own; maximum concurrent flow, Shahrokhi and Matula, J. ACM 1990",
    options=OPTIONS,
    serves=_serves,
    cuts=True,
    auto=Candidate(30, per_delivery(10, first=150_000), good_for=("bandwidth",)),
)
def paths(request: Request, *, parts: int = 0) -> Plan:
    """Paths that load links alike, their parts pipelined.

    Args:
        parts: into how many parts each path's data is cut, on average; 0 to choose.
    Raises:
        InputError: ``parts`` is negative.
    """
    if parts < 0:
        raise InputError(f"{parts} is below 0", "option parts")
    topology, workload = request.topology, request.workload
    candidates = [_route_units(topology, workload, LATENCY_WEIGHTS[0])]
    counts = [float(parts)] if parts else _part_counts(topology, candidates[0])
    # auto charges what is registered, so this budget is not charged to the request
    budget = Budget(request.budget.left, COSTS, request.budget.stop)
    hops = len(candidates[0].hops.values)
    if _latency_counts(topology, candidates[0]) and budget.allows(transfer=len(LATENCY_WEIGHTS) * counts[0] * hops):
        candidates += [_route_units(topology, workload, weight) for weight in LATENCY_WEIGHTS[1:]]
    coarse = [(_pipeline(topology, workload, streams, counts[0], budget), streams) for streams in candidates]
    first, streams = min(coarse, key=lambda candidate: completion_s(candidate[0]))
    plans = [first]
    for count in counts[1:]:
        near = completion_s(plans[-1]) <= NEAR * busiest_link_s(plans[-1])
        if near or not budget.allows(transfer=count * len(streams.hops.values)):
            break
        plans.append(_pipeline(topology, workload, streams, count, budget))
        if completion_s(plans[-2]) <= NEAR * completion_s(plans[-1]):
            break
    return best(plans)


@dataclass(frozen=True)
class Streams:
    """Streams: ranges of a chunk's bytes that follow one path, from one storing node to the next.

    Attributes:
        chunk: int64[streams], ascending.
        begin_bytes, size_bytes: int64[streams], the range within the chunk.
        hops: for each stream its hops in order, as rows of ``routes``, which are numbered through all streams.
        routes: for each hop its links.
    """

    chunk: Int64
    begin_bytes: Int64
    size_bytes: Int64
    hops: Ragged
    routes: Ragged


def _route_units(topology: Topology, workload: Workload, latency_weight: float) -> Streams:
    """Choose a path for each unit; units of one chunk that take the same path become one stream."""
    holder, wanted = (x.values.astype(np.int64) for x in (workload.chunk_holders, workload.chunk_wanted))
    chunk = np.flatnonzero(holder != wanted)
    chunk = chunk[np.argsort(holder[chunk], kind="stable")]
    size = workload.chunk_bytes[chunk]
    units = np.rint(UNITS * (size / size.sum())).astype(np.int64)
    units = np.minimum(np.clip(units, 1, MOST_UNITS_A_PAIR), size)
    pair = np.repeat(np.arange(len(chunk)), units)
    flow = concurrent_flow(topology, holder[chunk][pair], wanted[chunk][pair], (size / units)[pair], latency_weight)
    same, count = np.unique(np.column_stack((chunk[pair], flow.path)), axis=0, return_counts=True)
    owner, path = same[:, 0], same[:, 1:]
    units_of = np.zeros(workload.chunk_count, dtype=np.int64)
    units_of[chunk] = units
    before = np.cumsum(count) - count
    before -= before[np.searchsorted(owner, owner)]
    total = workload.chunk_bytes[owner]
    begin, end = (total * before // units_of[owner], total * (before + count) // units_of[owner])
    links = path[path >= 0]
    stream = np.repeat(np.arange(len(path)), (path >= 0).sum(axis=1))
    # a hop begins at the source, and at every node on the way that stores
    starts = (np.diff(stream, prepend=-1) != 0) | (topology.forwarding[topology.src[links]] == ACCELERATOR)
    routes = Ragged(np.append(np.flatnonzero(starts), len(links)), links.astype(np.int32))
    return Streams(owner, begin, end - begin, Ragged.grouped(stream[starts], np.arange(routes.rows), len(path)), routes)


def _latency_counts(topology: Topology, streams: Streams) -> bool:
    """Whether the latency of the longest path is at least ``LATENCY_SHARE`` of the busiest link's time."""
    routes, stream = streams.routes, streams.hops.owners[streams.routes.owners]
    load = np.bincount(routes.values, streams.size_bytes[stream], topology.link_count)
    longest_s = np.bincount(stream, topology.latency_s[routes.values]).max()
    return bool(longest_s > LATENCY_SHARE * (load / topology.bandwidth).max())


def _part_counts(topology: Topology, streams: Streams) -> list[float]:
    """Into how many parts to cut a stream, on average, ascending."""
    bytes_within_latency = float((topology.latency_s * topology.bandwidth).min())
    most = float(streams.size_bytes.mean()) / float(np.clip(bytes_within_latency, 1.0, SMALLEST_PART_BYTES))
    return sorted({max(min(count / len(streams.hops.values), most), 1.0) for count in TRANSFER_COUNTS})


def _pipeline(topology: Topology, workload: Workload, streams: Streams, parts: float, budget: Budget) -> Plan:
    """Cut streams into ``parts`` parts on average, larger streams into more, and order the transfers."""
    size = streams.size_bytes
    counts = np.maximum(np.rint(parts * size / size.mean()), 1).astype(np.int64)
    counts = np.minimum(counts, size)
    stream = np.repeat(np.arange(len(counts)), counts)
    part = np.arange(len(stream)) - offsets_of(counts)[stream]
    begin = streams.begin_bytes[stream] + size[stream] * part // counts[stream]
    owner = streams.chunk[stream]
    finer, first = split_chunks(workload, owner, begin)
    chunk = first[owner] + np.arange(len(owner)) - np.searchsorted(owner, owner)
    progress: Float64 = np.zeros(finer.chunk_count)
    progress[chunk] = (part + 0.5) / counts[stream]
    hops = streams.hops.take(stream)
    routes = streams.routes.take(hops.values)
    onward = np.flatnonzero(np.arange(len(hops.values)) > hops.offsets[hops.owners])
    plan = make_plan(
        topology,
        finer,
        "ready-order",
        chunk=chunk[hops.owners],
        src=topology.src[routes.values[routes.offsets[:-1]]],
        dst=Ragged.single(topology.dst[routes.values[routes.offsets[1:] - 1]]),
        route=routes,
        depends=Ragged.grouped(onward, onward - 1, routes.rows),
        meta={"parts": parts, "paths": len(counts)},
    )
    return dispatch(plan, progress, budget)
