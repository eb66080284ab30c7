"""Times that no plan can beat, and what makes them so.

Two kinds of reason. A *latency path*: what a rank wants is held far away. A *cut*: bytes that a
set of nodes lacks must all enter it over the links that lead in, none of them before it can have
come there, and the last must still travel on to every rank inside that wants it. A cut around
one node is its ingress, around all but one its egress.

All bounds hold with multicast and summing inside switches, and, unless ``chunk_bytes`` is given,
however finely the data is cut. The cuts tried are those of sites, of servers (nodes joined by
faster links than those between them), of single nodes and of pairs; every cut where there are few
nodes. A cut that is not tried can only raise the bound: the exact one needs max-flows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from . import kernels
from .collective import Collective, Ragged, Workload
from .topology import ACCELERATOR, Topology
from .units import format_bandwidth, format_size

Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

ALL_CUTS_UP_TO = 11
"""With as many accelerators or fewer, every cut is tried."""

ALL_SIDES_UP_TO = 4
"""With as many switches and routers or fewer, each is tried on both sides of every cut."""

MOST_ROUNDS = 4
"""How often more of them may change sides."""

MOST_REFINED = 64
"""How many of the best cuts are looked at more closely (arrival times, way to go inside)."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on the completion of a workload.

    Attributes:
        seconds: no plan completes before.
        kind: "latency path", "node ingress", "node egress" or "cut".
        witness: what makes it so, in words.
        nodes: the nodes inside the cut, or along the path.
        links: the links that enter the cut, or the path's.
    """

    seconds: float
    kind: str
    witness: str
    nodes: tuple[int, ...]
    links: tuple[int, ...]


def bounds(
    topology: Topology, workload: Workload, chunk_bytes: float | None = None, *, whole_chunks: bool = False
) -> tuple[Bound, ...]:
    """Lower bounds on when the last collective of a workload completes, the best first.

    One bound of each kind is given.

    Args:
        chunk_bytes: if given, bounds for plans that move indivisible chunks of (at least) that
            size, which accelerators store before they forward them.
        whole_chunks: bounds for plans that move the workload's own chunks, none cut further: each
            is stored before it is forwarded, and crosses a cut over one link.
    """
    if whole_chunks:
        chunk_bytes = float(workload.chunk_bytes.min())
    near = _distances(topology, 0.0)
    far = near if chunk_bytes is None else _distances(topology, chunk_bytes)
    best: dict[str, Bound] = {}
    for bound in (
        _latency_path(topology, workload, far, chunk_bytes or 0.0),
        *_cuts(topology, workload, near, far, whole_chunks),
    ):
        if bound is not None and (bound.kind not in best or bound.seconds > best[bound.kind].seconds):
            best[bound.kind] = bound
    return tuple(sorted(best.values(), key=lambda b: -b.seconds))


def _weights(topology: Topology, chunk_bytes: float) -> Float64:
    """float64[links]: latency, and the time of a chunk where it must be stored before it goes on."""
    stores = (topology.kind == ACCELERATOR) & ~topology.transit
    return topology.latency_s + np.where(stores[topology.dst], chunk_bytes / topology.bandwidth, 0.0)


def _distances(topology: Topology, chunk_bytes: float) -> Float64:
    kernel = kernels.load("paths", float(topology.node_count) * topology.link_count)
    offsets, links = topology.out_links
    distance: Float64 = kernel.all_pairs(offsets, links, topology.dst.astype(np.int64), _weights(topology, chunk_bytes))
    for plane in topology.planes:
        # a plane can join any two of its nodes; paths that mix planes and links are not shortened
        rows = np.ix_(plane.nodes, plane.nodes)
        distance[rows] = np.minimum(distance[rows], plane.latency_s)
    np.fill_diagonal(distance, 0.0)
    return distance


def _latency_path(topology: Topology, workload: Workload, distance: Float64, chunk_bytes: float) -> Bound | None:
    """The farthest that anything must travel."""
    worst, ends = -1.0, (0, 0)
    for c in workload.collectives:
        far, holder, rank = _farthest(c, distance[np.ix_(c.ranks, c.ranks)])
        if c.start_s + far > worst:
            worst, ends = c.start_s + far, (int(c.ranks[holder]), int(c.ranks[rank]))
    if not np.isfinite(worst) or worst < 0:
        return None
    nodes, links = _path(topology, ends, distance, chunk_bytes)
    words = "→".join(topology.names[v] for v in nodes)
    return Bound(worst, "latency path", f"the way {words}", nodes, links)


def _farthest(c: Collective, between: Float64) -> tuple[float, int, int]:
    """The largest distance from a rank that wants a piece to its nearest holder (or, of a sum, to any).

    Args:
        between: float64[ranks, ranks].
    Returns:
        The distance, the holder's rank, the wanting rank.
    """
    if (c.holders.lengths == 1).all():
        holder, rank = c.holders.values[c.wanted.owners], c.wanted.values
        k = int(np.argmax(between[holder, rank]))
        return float(between[holder[k], rank[k]]), int(holder[k]), int(rank[k])
    best = (-1.0, 0, 0)
    for piece in range(len(c.piece_bytes)):
        holders, wanted = c.holders[piece], c.wanted[piece]
        block = between[np.ix_(holders, wanted)]
        chosen = block.argmax(axis=0) if c.reduces else block.argmin(axis=0)
        reach = block[chosen, np.arange(len(wanted))]
        k = int(np.argmax(reach))
        if reach[k] > best[0]:
            best = float(reach[k]), int(holders[chosen[k]]), int(wanted[k])
    return best


def _path(
    topology: Topology, ends: tuple[int, int], distance: Float64, chunk_bytes: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The nodes and links of a shortest path, walked back from its end."""
    offsets, into = topology.in_links
    weight = _weights(topology, chunk_bytes)
    nodes: list[int] = [ends[1]]
    links: list[int] = []
    while nodes[-1] != ends[0]:
        v = nodes[-1]
        choices = into[offsets[v] : offsets[v + 1]]
        if not len(choices):
            return ends, ()
        slack = distance[ends[0], topology.src[choices]] + weight[choices]
        link = int(choices[int(np.argmin(slack))])
        if len(links) > topology.node_count or slack.min() > distance[ends[0], v] * (1 + 1e-9):
            return ends, ()  # over a plane
        links.append(link)
        nodes.append(int(topology.src[link]))
    return tuple(nodes[::-1]), tuple(links[::-1])


# --- cuts ---------------------------------------------------------------------------------------


def _cuts(topology: Topology, workload: Workload, near: Float64, far: Float64, whole: bool) -> Iterable[Bound | None]:
    inside = _candidate_cuts(topology, workload)
    width = _width_into(topology, inside)
    load = sum((_bytes_into(c, inside) for c in workload.collectives), np.zeros(len(inside)))
    useful = (load > 0) & (width > 0)
    inside, width, load = inside[useful], width[useful], load[useful]
    simple = load / width
    ranked = np.argsort(-simple, kind="stable")
    found: list[tuple[float, int]] = []
    best = 0.0
    # a cut's detour through arrival times and the way inside adds at most two longest ways
    reach = 2 * float(far[np.isfinite(far)].max()) + max(c.start_s for c in workload.collectives)
    for row in map(int, ranked[:MOST_REFINED]):
        if simple[row] + reach < best:
            break
        if topology.planes:
            seconds = float(simple[row]) + _way_in(topology, workload, inside[row])
        else:
            seconds = _refined(topology, workload, inside[row], float(width[row]), near, far, whole)
        found.append((seconds, row))
        best = max(best, seconds)
    return [_as_bound(topology, inside[row], seconds, load[row], width[row]) for seconds, row in found]


def _as_bound(topology: Topology, inside: Bool, seconds: float, load: float, width: float) -> Bound:
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    members = np.flatnonzero(inside)
    accelerators = [int(v) for v in members if topology.kind[v] == ACCELERATOR]
    outside = [v for v in map(int, topology.accelerators) if not inside[v]]
    flow = f"{format_size(float(load))} over {format_bandwidth(float(width))}"
    if len(accelerators) == 1:
        kind, words = "node ingress", f"{flow} into {topology.names[accelerators[0]]}"
    elif len(outside) == 1:
        kind, words = "node egress", f"{flow} out of {topology.names[outside[0]]}"
    else:
        kind, words = "cut", f"{flow} into {_group_name(topology, accelerators)}"
    return Bound(seconds, kind, words, tuple(map(int, members)), tuple(map(int, links)))


def _group_name(topology: Topology, nodes: list[int]) -> str:
    sites = sorted({topology.sites[v] for v in nodes})
    if "" not in sites:
        whole = [v for v in map(int, topology.accelerators) if topology.sites[v] in sites]
        if len(whole) == len(nodes):
            return ", ".join(sites) if len(sites) <= 4 else f"{len(sites)} sites ({sites[0]}, ...)"
    names = [topology.names[v] for v in nodes]
    return "{" + ", ".join(names if len(names) <= 8 else [*names[:4], "...", names[-1]]) + f"}} ({len(nodes)} nodes)"


def _incidence(c: Collective, lists: Ragged) -> NDArray[np.int32] | Float64 | str:
    """Which ranks are on each piece's list: "everyone", one rank a piece, or a matrix [ranks, pieces]."""
    lengths = lists.lengths
    if (lengths == len(c.ranks)).all():
        return "everyone"
    if (lengths == 1).all():
        return lists.values
    matrix = np.zeros((len(c.ranks), len(lengths)))
    matrix[lists.values, lists.owners] = 1.0
    return matrix


def _bytes_into(c: Collective, inside: Bool) -> Float64:
    """float64[cuts]: bytes that must enter each set, copies and sums once."""
    holders, wanted = _incidence(c, c.holders), _incidence(c, c.wanted)
    batch = max(1, 20_000_000 // max(len(c.piece_bytes), 1))
    total = np.zeros(len(inside))
    for low in range(0, len(inside), batch):
        ranks = inside[low : low + batch][:, c.ranks]
        needed = _some(ranks, wanted) & (_some(~ranks, holders) if c.reduces else ~_some(ranks, holders))
        total[low : low + batch] = np.broadcast_to(needed, (len(ranks), len(c.piece_bytes))) @ c.piece_bytes.astype(
            float
        )
    return total


def _some(ranks: Bool, listed: NDArray[np.int32] | Float64 | str) -> Bool:
    """bool[cuts, pieces (or 1)]: whether some rank of a piece's list is among ``ranks[cuts, ranks]``."""
    if isinstance(listed, str):
        anyone: Bool = np.asarray(ranks.any(axis=1, keepdims=True))
        return anyone
    if listed.ndim == 1:
        return ranks[:, listed]
    some: Bool = ranks.astype(float) @ listed > 0
    return some


def _width_into(topology: Topology, inside: Bool) -> Float64:
    """float64[cuts]: bytes/s that can enter each set."""
    enters = inside[:, topology.dst] & ~inside[:, topology.src]
    width: Float64 = enters @ topology.bandwidth
    for plane in topology.planes:
        ports = inside[:, plane.nodes]
        width = width + np.minimum(ports.sum(axis=1), (~ports).sum(axis=1)) * plane.bandwidth
    return width


def _way_in(topology: Topology, workload: Workload, inside: Bool) -> float:
    """When the first bytes of a cut can begin to enter it, and the least latency with which the last do."""
    links = ~inside[topology.src] & inside[topology.dst]
    latencies = [*topology.latency_s[links].tolist(), *(p.latency_s for p in topology.planes)]
    return float(min(c.start_s for c in workload.collectives) + min(latencies))


def _refined(
    topology: Topology, workload: Workload, inside: Bool, width: float, near: Float64, far: Float64, whole: bool
) -> float:
    """The bound of one cut with arrival times outside and the way to go inside.

    If bytes b arrive no earlier than r, all have entered no earlier than r + b / width; if they are
    ``whole`` chunks, no earlier than r and the time in which the links can carry so many.
    """
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    if not len(links):
        return 0.0
    arrive_s: list[Float64] = []
    sizes: list[Float64] = []
    tail = np.inf
    for c in workload.collectives:
        # a chunk is at a link's beginning after it came there, and inside a latency later
        entry = (far[np.ix_(c.ranks, topology.src[links])] + topology.latency_s[links]).min(axis=1)
        holders, wanted = _incidence(c, c.holders), _incidence(c, c.wanted)
        ranks = inside[c.ranks]
        needed = _some(ranks[None], wanted) & (
            _some(~ranks[None], holders) if c.reduces else ~_some(ranks[None], holders)
        )
        pieces = np.flatnonzero(np.broadcast_to(needed[0], len(c.piece_bytes)))
        if not len(pieces):
            continue
        lists = c.holders.take(pieces)
        starts = np.where(ranks[lists.values], -np.inf if c.reduces else np.inf, entry[lists.values])
        gather = np.maximum if c.reduces else np.minimum
        arrive = c.start_s + gather.reduceat(starts, lists.offsets[:-1])
        size = c.piece_bytes[pieces].astype(float)
        if whole:
            chunk = np.flatnonzero(np.isin(c.chunk_piece, pieces))
            arrive = arrive[np.searchsorted(pieces, c.chunk_piece[chunk])]
            size = c.chunk_bytes[chunk].astype(float)
        arrive_s.append(arrive)
        sizes.append(size)
        tail = min(tail, _way_inside(topology, c, wanted, inside, links, near, far))
    if not sizes:
        return 0.0
    when, size = np.concatenate(arrive_s), np.concatenate(sizes)
    order = np.argsort(-when)
    carried_s = np.cumsum(size[order]) / width
    if whole:
        carried_s = np.maximum(carried_s, _carried(topology.bandwidth[links], len(size), float(size.min())))
    return float((when[order] + carried_s).max()) + tail


def _carried(bandwidth: Float64, chunks: int, chunk_bytes: float) -> Float64:
    """float64[chunks]: the least time in which links side by side carry 1, 2, ... chunks of that size."""
    soonest = [(chunk_bytes / b, chunk_bytes / b) for b in bandwidth.tolist()]
    heapify(soonest)
    times = np.empty(chunks)
    for k in range(chunks):
        at, each = soonest[0]
        times[k] = at
        heapreplace(soonest, (at + each, each))
    return times


def _way_inside(
    topology: Topology,
    c: Collective,
    wanted: NDArray[np.int32] | Float64 | str,
    inside: Bool,
    links: NDArray[np.int64],
    near: Float64,
    far: Float64,
) -> float:
    """From any entry, the least time to the last rank inside, if all of them want everything."""
    if not isinstance(wanted, str) or c.reduces:
        return 0.0
    entries = np.unique(topology.dst[links])
    targets = c.ranks[inside[c.ranks]]
    stores = (topology.kind[entries] == ACCELERATOR) & ~topology.transit[entries]
    ways = np.where(stores[:, None], far[np.ix_(entries, targets)], near[np.ix_(entries, targets)])
    return float(ways.min(axis=0).max())


def _candidate_cuts(topology: Topology, workload: Workload) -> Bool:
    """bool[cuts, nodes], each set once, and each with the switches and routers that narrow it most."""
    accelerators = topology.accelerators
    groups: dict[frozenset[int], None] = {}

    def add(nodes: Iterable[int]) -> None:
        group = frozenset(map(int, nodes))
        if 0 < len(group) < len(accelerators):
            groups.setdefault(group)

    for v in accelerators:
        add([v])
    if len(accelerators) <= ALL_CUTS_UP_TO:
        for size in range(2, len(accelerators) // 2 + 1):
            for some in combinations(map(int, accelerators), size):
                add(some)
    else:
        _add_clusters(topology, add)
    everyone = frozenset(map(int, accelerators))
    rows = []
    for group in groups:
        for members in (group, everyone - group):
            row = np.zeros(topology.node_count, dtype=np.bool_)
            row[list(members)] = True
            rows.append(row)
    inside = np.array(rows)
    if len(accelerators) < topology.node_count:
        inside = _settle(topology, inside)
    return inside


def _add_clusters(topology: Topology, add: object) -> None:
    """Sites, servers, their unions, and linked pairs."""
    assert callable(add)
    accelerators = topology.accelerators
    levels: list[list[list[int]]] = []
    if any(topology.sites[v] for v in accelerators):
        by_site: dict[str, list[int]] = {}
        for v in map(int, accelerators):
            by_site.setdefault(topology.sites[v], []).append(v)
        levels.append(list(by_site.values()))
    for bandwidth in np.unique(topology.bandwidth)[::-1][:16]:
        levels.append(_components(topology, topology.bandwidth >= bandwidth))
    for clusters in levels:
        if len(clusters) < 2 or len(clusters) == len(accelerators):
            continue
        most = len(clusters) // 2 if len(clusters) <= 8 else 1
        for size in range(1, most + 1):
            for union in combinations(clusters, size):
                add(v for cluster in union for v in cluster)
        if len(clusters) > 8:
            for end in range(2, len(clusters)):
                add(v for cluster in clusters[:end] for v in cluster)
    if topology.link_count <= 2000:
        kinds = topology.kind
        for a, b in zip(topology.src, topology.dst, strict=True):
            if kinds[a] == ACCELERATOR and kinds[b] == ACCELERATOR:
                add((a, b))


def _components(topology: Topology, usable: Bool) -> list[list[int]]:
    """The accelerators of each part of the network that the usable links join."""
    label = np.arange(topology.node_count)
    src, dst = topology.src[usable], topology.dst[usable]
    changed = True
    while changed:
        low = np.minimum(label[src], label[dst])
        before = label.copy()
        np.minimum.at(label, src, low)
        np.minimum.at(label, dst, low)
        label = label[label]
        changed = not np.array_equal(label, before)
    parts: dict[int, list[int]] = {}
    for v in map(int, topology.accelerators):
        parts.setdefault(int(label[v]), []).append(v)
    return list(parts.values())


def _settle(topology: Topology, inside: Bool) -> Bool:
    """Put switches and routers on the side on which they narrow each cut.

    All ways are tried where few nodes can move; else they move one at a time, from all outside and
    from all inside, and the narrower cut is kept.
    """
    movable = np.flatnonzero(topology.kind != ACCELERATOR)
    if len(movable) <= ALL_SIDES_UP_TO:
        starts = [np.array(sides, dtype=np.bool_) for sides in product((False, True), repeat=len(movable))]
        moves = False
    else:
        starts, moves = [np.zeros(len(movable), np.bool_), np.ones(len(movable), np.bool_)], True
    best, best_width = inside, np.full(len(inside), np.inf)
    for sides in starts:
        placed = inside.copy()
        placed[:, movable] = sides
        if moves:
            _move(topology, placed, movable)
        width = _width_into(topology, placed)
        narrower = width < best_width
        best = np.where(narrower[:, None], placed, best)
        best_width = np.minimum(width, best_width)
    return best


def _move(topology: Topology, inside: Bool, movable: NDArray[np.int64]) -> None:
    """Move nodes to the side on which they narrow each cut, in place, until none moves."""
    offsets_out, out = topology.out_links
    offsets_in, into = topology.in_links
    for _ in range(MOST_ROUNDS):
        before = inside.copy()
        for v in map(int, movable):
            leaving, entering = out[offsets_out[v] : offsets_out[v + 1]], into[offsets_in[v] : offsets_in[v + 1]]
            # outside, v's links into the set count; inside, the links into v from without
            if_outside = inside[:, topology.dst[leaving]] @ topology.bandwidth[leaving]
            if_inside = ~inside[:, topology.src[entering]] @ topology.bandwidth[entering]
            inside[:, v] = if_inside < if_outside
        if np.array_equal(before, inside):
            break
