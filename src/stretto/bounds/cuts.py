"""Bounds by cuts: bytes that a set of nodes lacks must all enter it.

Where messages cost, let a chain of messages bring a byte from rank u over link e = (x, y) into the set, and to rank v.
The message that crosses begins when it has come to its sender s, at the latency of the way from s to x before it takes
e. It leaves e no later than the latencies from y to its receiver, and what the messages behind that one take, before
the end. So e is busy with it in a time that begins d(u, x) after the start, and ends latency(e) + d(y, v) before the
end, where d counts a message for each node that stores (:func:`.latency.message_distances`). In that time e carries no
more than its bandwidth allows, less the cost of one message; or less what messages count as bytes (``messages``). A
router that passes a chunk on while it comes delays both its beginning and its end by the latency, so that all of this
holds there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heapreplace

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_bandwidth, format_size
from .candidates import LATER, MOST_TURNS, candidate_cuts, narrowed_by_time, width_into
from .exact import bottleneck, bytes_between, lacking
from .latency import message_distances
from .model import Bound
from .reach import reach_bound, thresholds

MOST_REFINED = 64
"""How many of the best cuts are looked at more closely: when bytes arrive, and how far they go inside.

So is the best of each number of accelerators inside: among equal nodes one would otherwise hide cuts around groups.
"""

MOST_ENTRIES = 20_000_000
"""Pairs of a cut and a piece that are looked at together, so that they fit into memory."""

MOST_TAILS = 4
"""How many thresholds are tried for the way inside a cut: pieces that have less far to go are then left out."""


def cut_bounds(
    topology: Topology, workload: Workload, waits: Topology, chunk_bytes: float = 0.0, whole: bool = False
) -> Iterable[Bound | None]:
    """The best bound of each kind, of the cuts that look best by bandwidth alone.

    Args:
        topology: the network that a message needs to cross a cut: its cost there is latency, or bytes.
        waits: the network that messages need before and after that, where they cost.
        chunk_bytes: the size of chunks that are stored whole on the way; 0 where they may be cut however finely.
        whole: whether plans move the workload's chunks, none cut further.
    """
    near = message_distances(waits, 0.0)
    far = near if chunk_bytes == 0 else message_distances(waits, chunk_bytes)
    # arrival times and the way inside add at most two longest ways to what bandwidth alone says
    reach_s = 2 * float(far[np.isfinite(far)].max()) + max(c.start_s for c in workload.collectives)
    best_of: dict[str, tuple[float, Bool, float, float]] = {}
    known, best_s, seen, turn = set[bytes](), 0.0, topology, 0
    while True:
        before_s = best_s
        for inside, load, about_s in _ranked(seen, workload):
            if not turn and about_s + reach_s < best_s:
                break
            if (name := inside.tobytes()) in known:
                continue
            known.add(name)
            width = float(width_into(topology, inside[None])[0])
            if topology.planes:
                seconds = load / width + _way_in(topology, workload, inside)
            else:
                seconds = _refined(topology, workload, inside, width, near, far, whole)
                reached = (reach_bound(topology, c, inside, near, far) for c in workload.collectives)
                seconds = max(seconds, *(r.seconds for r in reached if r is not None), 0.0)
            kind = kind_of(int(inside[topology.accelerators].sum()), len(topology.accelerators))
            if kind not in best_of or seconds > best_of[kind][0]:
                best_of[kind] = seconds, inside, load, width
            best_s = max(best_s, seconds)
        narrowed = narrowed_by_time(topology, near, best_s - min(c.start_s for c in workload.collectives))
        if narrowed is None or turn == MOST_TURNS or best_s < LATER * before_s:
            break
        seen, turn = narrowed, turn + 1
    return [as_bound(topology, inside, seconds, load, width) for seconds, inside, load, width in best_of.values()]


def _ranked(topology: Topology, workload: Workload) -> Iterator[tuple[Bool, float, float]]:
    """The cuts that look best by bandwidth alone, the best first, with what must enter them and how long that takes."""
    inside = candidate_cuts(topology)
    if not topology.planes:
        exact = (bottleneck(topology, c) for c in workload.collectives)
        inside = np.concatenate((inside, *(found.inside[None] for found in exact if found is not None)))
    width = width_into(topology, inside)
    load = sum((bytes_into(c, inside) for c in workload.collectives), np.zeros(len(inside)))
    useful = np.flatnonzero((load > 0) & (width > 0))
    ranked = useful[np.argsort(-load[useful] / width[useful], kind="stable")]
    members = inside[:, topology.accelerators].sum(axis=1)
    first = np.unique(members[ranked], return_index=True)[1]
    for row in ranked[np.union1d(np.arange(min(MOST_REFINED, len(ranked))), first)].tolist():
        yield inside[row], float(load[row]), float(load[row] / width[row])


def turned_cut_bounds(
    topology: Topology, workload: Workload, waits: Topology, chunk_bytes: float, whole: bool
) -> list[Bound]:
    """The same for sums that only one rank wants, seen backward in time on the reversed network.

    A chain of transfers leads from every contribution to a byte to the rank that wants the sum. Backward in time these
    chains lead from that rank to all contributors, over the same links at the same times. So whatever bounds the
    spreading of a byte bounds its summing. What enters a set first in reversed time is what leaves it last: that must
    still travel on, and cannot leave before the set's farthest contribution has come to an exit.
    """
    collectives = workload.collectives
    if not all(c.reduces and (c.wanted.lengths == 1).all() for c in collectives):
        return []
    back, waits = (replace(net, src=net.dst, dst=net.src) for net in (topology, waits))
    spread = (
        replace(c, kind="multicast", holders=c.wanted, wanted=c.holders, reduces=False, start_s=0.0)
        for c in collectives
    )
    begin = min(c.start_s for c in collectives)
    found = []
    for bound in cut_bounds(back, Workload(tuple(spread)), waits, chunk_bytes, whole):
        if bound is not None:
            inside = np.ones((1, topology.node_count), dtype=np.bool_)
            inside[0, list(bound.nodes)] = False
            load = sum(float(bytes_into(c, inside)[0]) for c in collectives)
            width = float(width_into(topology, inside)[0])
            found.append(as_bound(topology, inside[0], begin + bound.seconds, load, width))
    return found


def as_bound(topology: Topology, inside: Bool, seconds: float, load: float, width: float) -> Bound:
    """The bound of a cut around the nodes ``inside``, which ``load`` bytes enter at up to ``width`` bytes/s."""
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    members = np.flatnonzero(inside)
    accelerators = np.flatnonzero(inside & topology.is_accelerator).tolist()
    outside = np.flatnonzero(~inside & topology.is_accelerator).tolist()
    flow = f"{format_size(float(load))} over {format_bandwidth(float(width))}"
    kind = kind_of(len(accelerators), len(accelerators) + len(outside))
    if kind == "node ingress":
        words = f"{flow} into {topology.names[accelerators[0]]}"
    elif kind == "node egress":
        words = f"{flow} out of {topology.names[outside[0]]}"
    else:
        words = f"{flow} into {_group_name(topology, accelerators)}"
    return Bound(seconds, kind, words, tuple(map(int, members)), tuple(map(int, links)))


def kind_of(inside: int, accelerators: int) -> str:
    """What the bound of a cut is called: around one accelerator, around all but one, or around a group."""
    return "node ingress" if inside == 1 else "node egress" if inside == accelerators - 1 else "cut"


def _group_name(topology: Topology, nodes: list[int]) -> str:
    among = {topology.sites[v] for v in nodes}
    sites = sorted(among)
    if "" not in among:
        whole = [v for v in map(int, topology.accelerators) if topology.sites[v] in among]
        if len(whole) == len(nodes):
            return ", ".join(sites) if len(sites) <= 4 else f"{len(sites)} sites ({sites[0]}, ...)"
    names = [topology.names[v] for v in nodes]
    return "{" + ", ".join(names if len(names) <= 8 else [*names[:4], "...", names[-1]]) + f"}} ({len(nodes)} nodes)"


def bytes_into(c: Collective, inside: Bool) -> Float64:
    """float64[cuts]: bytes that must enter each set, copies and sums once."""
    between = bytes_between(c)
    if between is not None:
        within = inside[:, c.ranks].astype(np.float64)
        entering: Float64 = (((1 - within) @ between) * within).sum(axis=1)
        return entering
    batch = max(1, MOST_ENTRIES // max(len(c.piece_bytes), 1))
    size = c.piece_bytes.astype(float)
    return np.concatenate([lacking(c, inside[low : low + batch]) @ size for low in range(0, len(inside), batch)])


def _way_in(topology: Topology, workload: Workload, inside: Bool) -> float:
    """Seconds to add to the time that bandwidth alone takes: the first start, and the least latency of a way in."""
    links = ~inside[topology.src] & inside[topology.dst]
    latencies = [*topology.latency_s[links].tolist(), *(p.latency_s for p in topology.planes)]
    return float(min(c.start_s for c in workload.collectives) + min(latencies))


def _refined(
    topology: Topology, workload: Workload, inside: Bool, width: float, near: Float64, far: Float64, whole: bool
) -> float:
    """The bound of one cut, with when bytes can arrive outside and how far they must still go inside.

    If b bytes arrive no earlier than r, the last of them enters no earlier than r + b / width. If they are ``whole``
    chunks, what is added to r is the time in which the links can carry these chunks. If all of them must still travel
    at least s seconds inside, so must the last: s is added, too.
    """
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    if not len(links):
        return 0.0
    found: list[tuple[Float64, Float64, Float64]] = []
    for c in workload.collectives:
        pieces = np.flatnonzero(lacking(c, inside[None])[0])
        if not len(pieces):
            continue
        # a chunk must first come to the beginning of a link, and is inside one latency later
        entry = (far[c.ranks[:, None], topology.src[links]] + topology.latency_s[links]).min(axis=1)
        lists = c.holders.take(pieces)
        starts = np.where(inside[c.ranks][lists.values], -np.inf if c.reduces else np.inf, entry[lists.values])
        arrive = c.start_s + lists.reduced(np.maximum if c.reduces else np.minimum, starts)
        size = c.piece_bytes[pieces]
        tail = _way_inside(topology, c, pieces, inside, links, near, far)
        if whole:
            chunk = np.flatnonzero(np.isin(c.chunk_piece, pieces))
            piece = np.searchsorted(pieces, c.chunk_piece[chunk])
            arrive, tail, size = arrive[piece], tail[piece], c.chunk_bytes[chunk]
        found.append((arrive, size.astype(float), tail))
    if not found:
        return 0.0
    all_when, all_sizes, tail = map(np.concatenate, zip(*found, strict=True))
    best = 0.0
    for least in thresholds(tail, MOST_TAILS):
        far_enough = tail >= least
        when, size = all_when[far_enough], all_sizes[far_enough]
        order = np.argsort(-when)
        carried_s = np.cumsum(size[order]) / width
        if whole:
            carried_s = np.maximum(carried_s, _carried(topology.bandwidth[links], len(size), float(size.min())))
        best = max(best, float((when[order] + carried_s).max()) + least)
    return best


def _carried(bandwidth: Float64, chunks: int, chunk_bytes: float) -> Float64:
    """float64[chunks]: the least time in which links side by side can carry 1, 2, ... chunks of that size."""
    soonest = [(chunk_bytes / b, chunk_bytes / b) for b in bandwidth.tolist()]
    heapify(soonest)
    times = np.empty(chunks)
    for k in range(chunks):
        at, each = soonest[0]
        times[k] = at
        heapreplace(soonest, (at + each, each))
    return times


def _way_inside(
    topology: Topology, c: Collective, pieces: Int64, inside: Bool, links: Int64, near: Float64, far: Float64
) -> Float64:  # fmt: skip
    """float64[pieces]: how long each needs from the nearest entry to the farthest rank inside that wants it."""
    if c.reduces and (c.wanted.lengths > 1).any():
        return np.zeros(len(pieces))
    entries = np.unique(topology.dst[links])
    stores = topology.store_and_forward[entries]
    at = entries[:, None]
    ways = np.where(stores[:, None], far[at, c.ranks], near[at, c.ranks]).min(axis=0)
    ways[~inside[c.ranks]] = 0.0
    wanted = c.wanted.take(pieces)
    return wanted.reduced(np.maximum, ways[wanted.values])
