"""Sums by inversion: a planner that can spread chunks can sum them, too.

Take a plan that spreads a chunk from a node to all others on the network with every link turned round. Run it
backwards in time: each copy becomes a sum in the other direction, over the links as they are, and the node ends with
the sum of what all had. So whoever can plan copies can plan sums. AllReduce sums each chunk at a root (the ranks take
turns) and spreads it from there.

Routers copy but do not sum. So in what is to be inverted, pipes pass through routers instead of ending there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Float64, Int64, Ragged
from ..model.collective import Collective, Workload
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology, opposite
from .asap import Pass, as_soon_as_possible
from .moments import settled


@dataclass(frozen=True, eq=False)
class Transfers:
    """Copies of chunks, each after the one that brought the chunk to its source.

    Attributes:
        chunk, src, dst: int32 or int64[transfers].
        route: the links of each.
        parent: int32 or int64[transfers], the row that brought the chunk to ``src``; -1 where ``src`` held it.
        start_s, seconds: float64[transfers].
        arrival_s: float64[transfers], when all has arrived.
    """

    chunk: Int64
    src: Int64
    dst: Int64
    route: Ragged
    parent: Int64
    start_s: Float64
    seconds: Float64
    arrival_s: Float64


Spread = Callable[[Topology, Workload, bool], Transfers]
"""Plans how chunks get from their holders to all who want them; the flag says whether pipes pass through routers."""


def transfers_of(topology: Topology, workload: Workload, passes: Sequence[Pass]) -> Transfers:
    """The transfers of passes with one receiver each: every one starts as early as the physics let it; by start."""
    begin, finish = (np.array(t) for t in as_soon_as_possible(topology, workload, passes))
    order = np.lexsort((np.arange(len(passes)), begin))
    rank = np.empty(len(passes), dtype=np.int64)
    rank[order] = np.arange(len(passes))
    chosen = [passes[k] for k in order]
    chunk, route = np.array([p.chunk for p in chosen], dtype=np.int64), Ragged.of([p.route for p in chosen])
    latency = np.array([topology.latency_s[p.route].sum() for p in chosen])
    slowest = np.array([topology.bandwidth[p.route].min() for p in chosen])
    return Transfers(
        chunk=chunk,
        src=np.array([p.src for p in chosen], dtype=np.int64),
        dst=np.array([p.dst[0] for p in chosen], dtype=np.int64),
        route=route,
        parent=np.array([rank[p.after] if p.after >= 0 else -1 for p in chosen], dtype=np.int64),
        start_s=begin[order],
        # computed from size and bandwidth: a difference of two moments would be rounded
        seconds=workload.chunk_bytes[chunk] / slowest,
        arrival_s=finish[order] + latency,
    )


def plan_in_phases(topology: Topology, workload: Workload, spread: Spread, mirrored: bool = False) -> Plan:
    """A timed plan in up to three phases: the copies of the workload, its sums, and the copies of these sums.

    Args:
        mirrored: whether sums are copied to all back over the trees by which they were made, where links are alike both
            ways; ``spread`` is then not asked a second time.
    """
    reduces = workload.chunk_reduces
    if not reduces.any():
        return _joined(topology, workload, [_copies(spread(topology, workload, False))])
    copied, summed = np.flatnonzero(~reduces), np.flatnonzero(reduces)
    phases: list[Phase] = []
    now = float(workload.chunk_start_s[summed].max())
    if len(copied):
        part = _part(topology, workload, copied, None, None, None)
        phases.append(_copies(spread(topology, part, False), copied))
        now = max(now, float(phases[-1][0].arrival_s.max(initial=0.0)))
    roots = _roots(workload, summed)
    outwards = _part(topology, workload, summed, roots, workload.chunk_holders, 0.0)
    spreading = spread(_reversed(topology), outwards, True)
    sums = _inverted(spreading, summed, now)
    phases.append(sums)
    now = max(now, float(sums[0].arrival_s.max(initial=0.0)))
    if (workload.chunk_wanted.lengths[summed] > 1).any():
        back = _mirror(topology, workload, summed) if mirrored else None
        if back is None:
            onwards = _part(topology, workload, summed, roots, workload.chunk_wanted, now)
            spreading = spread(topology, onwards, False)
        else:
            spreading = _mirrored(spreading, back, now)
        phases.append(_after_sums(_copies(spreading, summed), sums, roots, summed))
    return _joined(topology, workload, phases)


def _roots(workload: Workload, chunks: Int64) -> Int64:
    """int64[chunks]: the node at which each is summed: a rank that wants it; where several do, they take turns."""
    wanted = workload.chunk_wanted
    return np.array([wanted[c][k % len(wanted[c])] for k, c in enumerate(chunks)], dtype=np.int64)


def _reversed(topology: Topology) -> Topology:
    return replace(topology, src=topology.dst, dst=topology.src)


def _mirror(topology: Topology, workload: Workload, chunks: Int64) -> Int64 | None:
    """For each link its like in the other direction, where sums can go to all back over the trees that made them.

    None where they cannot: links are not alike both ways, there are routers, or not all who contribute want the sum.
    """
    back = opposite(topology)
    if back is None or topology.is_router.any() or (topology.latency_s[back] != topology.latency_s).any():
        return None
    holders, wanted = workload.chunk_holders.take(chunks), workload.chunk_wanted.take(chunks)
    same = np.array_equal(holders.offsets, wanted.offsets) and np.array_equal(holders.values, wanted.values)
    return back if same else None


def _mirrored(sent: Transfers, back: Int64, begin_s: float) -> Transfers:
    """What was sent over the reversed network, now over real links that lead the same way, from ``begin_s``."""
    route = Ragged(sent.route.offsets, back[sent.route.values].astype(np.int32))
    return replace(sent, route=route, start_s=sent.start_s + begin_s, arrival_s=sent.arrival_s + begin_s)


def _part(
    topology: Topology,
    workload: Workload,
    chunks: Int64,
    roots: Int64 | None,
    wanted: Ragged | None,
    start_s: float | None,
) -> Workload:
    """Some chunks as a workload of their own: one multicast collective for each collective that they come from.

    Args:
        roots: the node that holds each of these chunks; None leaves the holders as they are.
        wanted: the nodes that want each chunk of the whole workload; None leaves them as they are.
        start_s: when all may start; None leaves the starts as they are.
    """
    rank_of = np.zeros(topology.node_count, dtype=np.int32)
    nodes = topology.accelerators
    rank_of[nodes] = np.arange(len(nodes))
    parts = []
    for number in np.unique(workload.chunk_collective[chunks]):
        here = np.flatnonzero(workload.chunk_collective[chunks] == number)
        some = chunks[here]
        holders = workload.chunk_holders.take(some) if roots is None else Ragged.single(roots[here].astype(np.int32))
        wants = (workload.chunk_wanted if wanted is None else wanted).take(some)
        c = workload.collectives[int(number)]
        size = workload.chunk_bytes[some]
        ends = [lists.with_values(rank_of[lists.values]) for lists in (holders, wants)]
        start = c.start_s if start_s is None else start_s
        parts.append(Collective.uncut("multicast", nodes, int(size.sum()), size, *ends, start_s=start))
    return Workload(tuple(parts))


Phase = tuple[Transfers, Ragged, int]
"""Transfers; for each the rows of this phase that it depends on; whether they copy or sum (COPY or REDUCE)."""


def _copies(sent: Transfers, chunks: Int64 | None = None) -> Phase:
    """A phase of copies. ``chunks`` has the workload's number of each chunk in ``sent``; None if they are the same."""
    has_parent = sent.parent >= 0
    offsets = np.zeros(len(has_parent) + 1, dtype=np.int64)
    np.cumsum(has_parent, out=offsets[1:])
    depends = Ragged(offsets, sent.parent[has_parent].astype(np.int32, copy=False))
    return sent if chunks is None else replace(sent, chunk=chunks[sent.chunk]), depends, COPY


def _inverted(sent: Transfers, chunks: Int64, begin_s: float) -> Phase:
    """A phase of sums: what was sent, backwards in time, from ``begin_s``; now parents wait for their children."""
    n = len(sent.chunk)
    end = float(sent.arrival_s.max(initial=0.0))
    back = np.arange(n - 1, -1, -1)
    after = np.flatnonzero(sent.parent >= 0)
    # parent and child change places: the row of the parent now depends on the row of the child
    waits, on = n - 1 - sent.parent[after], n - 1 - after
    order = np.lexsort((on, waits))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(waits, minlength=n)))).astype(np.int64)
    lists = sent.route.take(back)
    # each route from its end to its beginning
    index = np.arange(len(lists.values))
    mirrored = (lists.offsets[:-1] + lists.offsets[1:] - 1)[lists.owners] - index
    start = begin_s + np.maximum(end - sent.arrival_s[back], 0.0)
    turned = Transfers(
        chunk=chunks[sent.chunk[back]],
        src=sent.dst[back],
        dst=sent.src[back],
        route=Ragged(lists.offsets, lists.values[mirrored]),
        parent=np.full(n, -1, dtype=np.int64),
        start_s=start,
        seconds=sent.seconds[back],
        arrival_s=start + (sent.arrival_s - sent.start_s)[back],
    )
    return turned, Ragged(offsets, on[order].astype(np.int32)), REDUCE


def _after_sums(copies: Phase, sums: Phase, roots: Int64, chunks: Int64) -> Phase:
    """The same copies, but what leaves a root waits for all that was summed there.

    The sums are the phase just before, so their rows are numbered from -len(sums) to -1.
    """
    sent, depends, op = copies
    root_of = np.full(int(chunks.max()) + 1, -1, dtype=np.int64)
    root_of[chunks] = roots
    before = sums[0]
    arrives = np.flatnonzero(before.dst == root_of[before.chunk])
    by_chunk: dict[int, list[int]] = {}
    for k in arrives.tolist():
        by_chunk.setdefault(int(before.chunk[k]), []).append(k - len(before.chunk))
    lists: list[Any] = [
        depends[k] if sent.parent[k] >= 0 else by_chunk.get(int(sent.chunk[k]), []) for k in range(len(sent.chunk))
    ]
    return sent, Ragged.of(lists), op


def _joined(topology: Topology, workload: Workload, phases: list[Phase]) -> Plan:
    sent, depends, op = phases[0] if len(phases) == 1 else _one_after_another(phases)
    plan = make_plan(
        topology,
        workload,
        "timed",
        chunk=sent.chunk,
        src=sent.src,
        op=np.full(len(sent.chunk), op, dtype=np.int8),
        dst=Ragged.single(sent.dst.astype(np.int32, copy=False)),
        route=sent.route,
        depends=depends,
        start_s=sent.start_s,
        finish_s=sent.start_s + sent.seconds,
    )
    turned = any(op == REDUCE for _, _, op in phases) and plan.transfer_count > 0
    return settled(plan, sent.start_s, sent.seconds) if turned else plan


def _one_after_another(phases: list[Phase]) -> tuple[Transfers, Ragged, NDArray[np.int8]]:
    """All phases as one, with an operation for each row. ``parent`` still counts rows within each phase."""
    sizes = [len(sent.chunk) for sent, _, _ in phases]
    columns = {
        f.name: np.concatenate([getattr(sent, f.name) for sent, _, _ in phases])
        for f in fields(Transfers)
        if f.name != "route"
    }
    sent = Transfers(**columns, route=_stacked([sent.route for sent, _, _ in phases], [0] * len(phases)))
    depends = _stacked([waits for _, waits, _ in phases], list(accumulate(sizes[:-1], initial=0)))
    return sent, depends, np.repeat(np.array([op for _, _, op in phases], dtype=np.int8), sizes)


def _stacked(parts: list[Ragged], bases: list[int]) -> Ragged:
    """The lists of all parts, one part after the other; the base of a part is added to its values."""
    lengths = np.concatenate([p.lengths for p in parts])
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return Ragged(offsets, np.concatenate([p.values + base for p, base in zip(parts, bases, strict=True)]))
