"""Paths that load links alike: what is not copied, AllToAll above all, at sizes where bandwidth decides.

The maximum concurrent flow says how fast all pairs can be served at once (Shahrokhi and Matula, J. ACM 1990; its dual
is the bound by lengths, :mod:`stretto.bounds.lengths`). Here each pair's data is a few units that take paths by selfish
rerouting (:mod:`stretto.bounds.concurrent`). Paths are cut where nodes store, data is cut into parts, and starts are
set by urgency (:mod:`.dispatch`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..bounds import concurrent_flow
from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.errors import InputError
from ..model.plan import Plan, make_plan
from ..model.topology import ACCELERATOR, Topology
from ..schedule.dispatch import busy, completion, dispatched
from ..schedule.trees import split_chunks
from . import Option, Progress, register

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

UNITS = 8_000
"""Into about so many units the data of all pairs is divided, each pair's into ``MOST_UNITS`` at most."""
MOST_UNITS = 128

MOST_CHUNKS = 100_000
"""Of more a plan would take minutes."""

WAITS = (1.0, 4.0, 16.0)
"""What latency may cost, see :func:`stretto.bounds.concurrent_flow`: those after the first where it is ``LATE``."""

LATE = 0.05
"""Latency of the longest path, beside the work of the busiest link, from which more is tried."""

TRANSFERS = (3_000, 12_000, 60_000)
"""Parts are cut so small that a plan has about so many: smaller ones where larger are not ``NEAR`` and still gain."""

SMALLEST_BYTES = 256
"""Parts are not cut smaller than this, on average, unless some link takes longer for that than its latency."""

NEAR = 1.003
"""Times the busiest link's work that are near enough, or times which a finer plan must gain."""

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
)
def paths(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    parts: int = 0,
) -> Plan:
    """Paths that load links alike, their parts pipelined.

    Args:
        parts: into how many parts each path's data is cut, on average; 0 to choose.
    Raises:
        InputError: ``parts`` is negative.
    """
    if parts < 0:
        raise InputError(f"{parts} is below 0", "--option parts")
    tried = [_streams(topology, workload, WAITS[0])]
    if _is_late(topology, tried[0]):
        tried += [_streams(topology, workload, wait) for wait in WAITS[1:]]
    counts = [float(parts)] if parts else _counts(topology, tried[0])
    plans = [_planned(topology, workload, streams, counts[0]) for streams in tried]
    best = min(range(len(plans)), key=lambda k: completion(plans[k]))
    plans = [plans[best]]
    for count in counts[1:]:
        if completion(plans[-1]) <= NEAR * busy(plans[-1]):
            break
        plans.append(_planned(topology, workload, tried[best], count))
        if completion(plans[-2]) <= NEAR * completion(plans[-1]):
            break
    return min(plans, key=completion)


@dataclass(frozen=True)
class Streams:
    """What goes along paths of their own, each a chain of routes from a node that stores to the next.

    Attributes:
        chunk: int64[streams], whose data it is, ascending.
        begin, size: int64[streams], which bytes of the chunk.
        parts: the routes of each stream, as rows of ``routes``.
        routes: links.
    """

    chunk: Int64
    begin: Int64
    size: Int64
    parts: Ragged
    routes: Ragged


def _counts(topology: Topology, streams: Streams) -> list[float]:
    """Into how many parts streams may be cut, on average."""
    most = float(streams.size.mean()) / _smallest(topology)
    return sorted({max(min(count / len(streams.parts.values), most), 1.0) for count in TRANSFERS})


def _is_late(topology: Topology, streams: Streams) -> bool:
    """Whether the latency of the longest path is not small beside the work of the busiest link."""
    route, size = streams.routes, streams.size
    hop = np.bincount(route.owners, topology.latency_s[route.values])[streams.parts.values]
    of_route = np.zeros(route.rows)
    of_route[streams.parts.values] = size[streams.parts.owners]
    load = np.bincount(route.values, of_route[route.owners], topology.link_count)
    latest = np.bincount(streams.parts.owners, hop).max()
    return bool(latest > LATE * (load / topology.bandwidth).max())


def _streams(topology: Topology, workload: Workload, wait: float) -> Streams:
    """Units on their paths; those of one chunk that take the same path go together."""
    holder, wanted = (x.values.astype(np.int64) for x in (workload.chunk_holders, workload.chunk_wanted))
    chunk = np.flatnonzero(holder != wanted)
    chunk = chunk[np.argsort(holder[chunk], kind="stable")]
    size = workload.chunk_bytes[chunk]
    units = np.rint(UNITS * (size / size.sum())).astype(np.int64)
    units = np.minimum(np.clip(units, 1, MOST_UNITS), size)
    owner = np.repeat(np.arange(len(chunk)), units)
    path = concurrent_flow(topology, holder[chunk][owner], wanted[chunk][owner], (size / units)[owner], wait).path
    same, count = np.unique(np.column_stack((chunk[owner], path)), axis=0, return_counts=True)
    whose, path = same[:, 0], same[:, 1:]
    among = np.zeros(workload.chunk_count, dtype=np.int64)
    among[chunk] = units
    before = np.cumsum(count) - count
    before -= before[np.searchsorted(whose, whose)]
    total = workload.chunk_bytes[whose]
    begin, end = (total * before // among[whose], total * (before + count) // among[whose])
    links = path[path >= 0]
    stream = np.repeat(np.arange(len(path)), (path >= 0).sum(axis=1))
    # a transfer begins with the stream and wherever the data is stored on the way
    starts = (np.diff(stream, prepend=-1) != 0) | (topology.forwarding[topology.src[links]] == ACCELERATOR)
    routes = Ragged(np.append(np.flatnonzero(starts), len(links)), links.astype(np.int32))
    return Streams(whose, begin, end - begin, Ragged.grouped(stream[starts], np.arange(routes.rows), len(path)), routes)


def _smallest(topology: Topology) -> float:
    way = float((topology.latency_s * topology.bandwidth).min())
    return float(np.clip(way, 1.0, SMALLEST_BYTES))


def _planned(topology: Topology, workload: Workload, streams: Streams, parts: float) -> Plan:
    """Streams cut into about so many parts each, the larger into more, and put in order."""
    counts = np.maximum(np.rint(parts * streams.size / streams.size.mean()), 1).astype(np.int64)
    counts = np.minimum(counts, streams.size)
    stream = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(stream)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = streams.begin[stream] + streams.size[stream] * number // counts[stream]
    finer, first = split_chunks(workload, streams.chunk[stream], begin)
    owner = streams.chunk[stream]
    chunk = first[owner] + np.arange(len(owner)) - np.searchsorted(owner, owner)
    turn = np.zeros(finer.chunk_count)
    turn[chunk] = (number + 0.5) / counts[stream]
    hops = streams.parts.take(stream)
    routes = streams.routes.take(hops.values)
    later = np.arange(len(hops.values)) - hops.offsets[hops.owners] > 0
    plan = make_plan(
        topology,
        finer,
        "ready-order",
        chunk=chunk[hops.owners],
        src=topology.src[routes.values[routes.offsets[:-1]]],
        dst=Ragged.single(topology.dst[routes.values[routes.offsets[1:] - 1]]),
        route=routes,
        depends=Ragged.grouped(np.flatnonzero(later), np.flatnonzero(later) - 1, len(later)),
        meta={"parts": parts, "paths": len(counts)},
    )
    return dispatched(plan, turn)
