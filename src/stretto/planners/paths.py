"""Paths that load links evenly, for data that is not copied (above all AllToAll) where bandwidth decides.

The maximum concurrent flow says how fast all pairs can be served at once (Shahrokhi and Matula, J. ACM 1990; its dual
is the bound by lengths, :mod:`stretto.bounds.lengths`). Here each pair's data is divided into a few units, and selfish
rerouting chooses a path for each unit (:func:`stretto.bounds.concurrent_flow`). Paths are cut where nodes store, data
is cut into parts, and transfers are ordered by urgency (:mod:`stretto.schedule.dispatch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
"""Units into which the data of all pairs is divided at most, about."""

UNITS_OF_PAIR = (1, 4, 16, 128)
"""Units into which the data of one pair is divided on average: few make few messages, many load links more evenly. All
are tried that make no more than ``UNITS`` (benchmarks/wire.py)."""

MOST_CHUNKS = 1_000_000
"""Chunks beyond which planning would take minutes, and is refused."""

TRANSFERS = 60_000
"""Transfers of a plan at most, if parts are not given."""

SMALLEST_PART_BYTES = 256
"""Mean size of a part, below which data is not cut, unless every link sends fewer bytes within its latency."""

PATIENCE = 2
"""Doublings of the parts without a gain after which data is not cut further."""

NEAR = 1.003
"""Completion over the busiest link's time that is near enough; and the ratio by which a finer plan must gain."""

COSTS = {"transfer": 3.0}
"""Steps (:mod:`stretto.schedule.effort`) of a transfer of a plan, with one round of justification."""

OPTIONS = (Option("parts", int, 0, "into how many parts each path's data is cut; 0: as many as gain"),)


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
    messages=True,
    transfers=lambda request: request.transfers,
    auto=Candidate(per_delivery(10, first=150_000), leads=True, fills_links=True),
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
    # auto charges what is registered, so this budget is not charged to the request
    budget = Budget(request.budget.left, COSTS, request.budget.stop)
    live = [_Cut(streams) for streams in _candidates(topology, workload)]
    everything, count = live, float(parts or 1)
    while live:
        for c in live:
            first = c is everything[0] and not c.plans
            if first or budget.allows(transfer=count * len(c.streams.hops.values)):
                c.plans.append(_pipeline(topology, workload, c.streams, count, budget))
        count *= 2
        live = sorted((c for c in live if c.plans), key=_Cut.hoped_s)
        live = [c for c in live[: (len(live) + 1) // 2] if c.may_gain() and count <= _most_parts(topology, c.streams)]
        if parts:
            break
    return best([plan for c in everything for plan in c.plans])


@dataclass(frozen=True)
class _Cut:
    """Streams, and their plans with more and more parts, each with twice as many as the one before."""

    streams: Streams
    plans: list[Plan] = field(default_factory=list)

    def hoped_s(self) -> float:
        """When the next plan may end: with parts of half the size, about half as late over its busiest link."""
        return (completion_s(self.plans[-1]) + busiest_link_s(self.plans[-1])) / 2

    def may_gain(self) -> bool:
        """Whether finer parts may gain: lately they did, and the last plan is not near its busiest link's time."""
        end_s = [completion_s(plan) for plan in self.plans]
        return end_s[-1] > NEAR * busiest_link_s(self.plans[-1]) and (
            len(end_s) <= PATIENCE or min(end_s[-PATIENCE:]) * NEAR < min(end_s[:-PATIENCE])
        )


def _candidates(topology: Topology, workload: Workload) -> Iterator[Streams]:
    """Streams of few units to many; equal ones once."""
    pairs = int((workload.chunk_holders.values != workload.chunk_wanted.values).sum())
    known: set[bytes] = set()
    for count in sorted({max(min(units * pairs, UNITS), 1) for units in UNITS_OF_PAIR}):
        streams = _route_units(topology, workload, count)
        key = streams.routes.values.tobytes() + streams.size_bytes.tobytes()
        if key not in known:
            known.add(key)
            yield streams


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


def _route_units(topology: Topology, workload: Workload, most: int) -> Streams:
    """Choose a path for each of about ``most`` units; units of one chunk that take the same path become one stream."""
    holder, wanted = (x.values.astype(np.int64) for x in (workload.chunk_holders, workload.chunk_wanted))
    chunk = np.flatnonzero(holder != wanted)
    chunk = chunk[np.argsort(holder[chunk], kind="stable")]
    size = workload.chunk_bytes[chunk]
    units = np.minimum(np.maximum(np.rint(most * (size / size.sum())).astype(np.int64), 1), size)
    pair = np.repeat(np.arange(len(chunk)), units)
    flow = concurrent_flow(topology, holder[chunk][pair], wanted[chunk][pair], (size / units)[pair], topology.latency_s)
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


def _most_parts(topology: Topology, streams: Streams) -> float:
    """Into how many parts a stream may be cut, on average."""
    bytes_within_latency = float((topology.latency_s * topology.bandwidth).min())
    smallest = float(np.clip(bytes_within_latency, 1.0, SMALLEST_PART_BYTES))
    return min(float(streams.size_bytes.mean()) / smallest, TRANSFERS / len(streams.hops.values))


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
