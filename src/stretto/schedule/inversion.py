"""Sums by inversion: a planner that can spread chunks can sum them, too.

Take a plan that spreads a chunk from a node to all others on the network with every link turned round. Run it
backwards in time: each copy becomes a sum in the other direction, over the links as they are, and the node ends with
the sum of what all had. So whoever can plan copies can plan sums. AllReduce sums each chunk at a root (the ranks take
turns, spread evenly) and spreads it from there.

Routers copy but do not sum. So in what is to be inverted, pipes pass through routers instead of ending there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Float64, Int64, Ragged
from ..model.changes import NO_CHANGES
from ..model.collective import Collective, Workload
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology
from ..model.variants import opposite
from .asap import Pass, as_soon_as_possible
from .moments import settled


@dataclass(frozen=True, eq=False)
class Transfers:
    """Copies of chunks, each after the one that brought the chunk to its source."""

    chunk: Int64  # int32 or int64[transfers]
    src: Int64
    dst: Int64
    route: Ragged  # the links of each
    parent: Int64  # the transfer that brought the chunk to ``src``; -1 where ``src`` held it
    start_s: Float64
    seconds: Float64  # on each link
    arrival_s: Float64  # when all has arrived

    def in_order(self, order: Int64) -> Transfers:
        """The same transfers in another order, in which each parent still comes before its children."""
        names = [f.name for f in fields(self) if f.name != "route"]
        moved = replace(self, route=self.route.take(order), **{name: getattr(self, name)[order] for name in names})
        rank = np.argsort(order)
        return replace(moved, parent=np.where(moved.parent >= 0, rank[moved.parent], -1))


Spread = Callable[[Topology, Workload, bool], Transfers]
"""Plans how chunks get from their holders to all who want them; the flag says whether pipes pass through routers."""


def transfers_of(topology: Topology, workload: Workload, passes: Sequence[Pass]) -> Transfers:
    """The transfers of passes with one receiver each: every one starts as early as the physics let it; by start."""
    begin, finish = (np.array(t) for t in as_soon_as_possible(topology, workload, passes))
    columns = np.array([(p.chunk, p.src, p.dst[0], p.after) for p in passes], dtype=np.int64).reshape(-1, 4)
    chunk, src, dst, parent = columns.T
    route = Ragged.of([p.route for p in passes])
    # computed from size and bandwidth: a difference of two moments would be rounded
    seconds = workload.chunk_bytes[chunk] / topology.route_bandwidth(route)
    arrival_s = finish + topology.route_latency_s(route)
    sent = Transfers(chunk, src, dst, route, parent, begin, seconds, arrival_s)
    return sent.in_order(np.argsort(begin, kind="stable"))


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
    """int64[chunks]: the node at which each is summed: a rank that wants it.

    Where several ranks want a chunk, the chunks of a collective go round the ranks. The last round may have fewer
    chunks than there are ranks. These take the middle ones of equal stretches of the ranks: neighbours in number are
    often in one server, whose ports would carry the last sums of all chunks and the first copies.
    """
    wanted, collective = workload.chunk_wanted.take(chunks), workload.chunk_collective[chunks]
    ranks, first = wanted.lengths, np.searchsorted(collective, collective)
    number = np.arange(len(chunks)) - first
    round_begins = number - number % ranks
    in_round = np.minimum(np.bincount(collective)[collective] - round_begins, ranks)
    place = (2 * (number - round_begins) + 1) * ranks // (2 * in_round)
    roots: Int64 = wanted.values[wanted.offsets[:-1] + place].astype(np.int64)
    return roots


def _reversed(topology: Topology) -> Topology:
    # backward in time nobody knows when a bandwidth changes
    return replace(topology, src=topology.dst, dst=topology.src, changes=NO_CHANGES)


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
    depends = Ragged.from_lengths(has_parent, sent.parent[has_parent])
    return sent if chunks is None else replace(sent, chunk=chunks[sent.chunk]), depends, COPY


def _inverted(sent: Transfers, chunks: Int64, begin_s: float) -> Phase:
    """A phase of sums: what was sent, backwards in time, from ``begin_s``; now parents wait for their children."""
    n = len(sent.chunk)
    end = float(sent.arrival_s.max(initial=0.0))
    back = np.arange(n - 1, -1, -1)
    after = np.flatnonzero(sent.parent[back] >= 0)
    start = begin_s + np.maximum(end - sent.arrival_s[back], 0.0)
    turned = Transfers(
        chunk=chunks[sent.chunk[back]],
        src=sent.dst[back],
        dst=sent.src[back],
        # each route from its end to its beginning
        route=Ragged.from_lengths(sent.route.lengths[back], sent.route.values[::-1]),
        parent=np.full(n, -1, dtype=np.int64),
        start_s=start,
        seconds=sent.seconds[back],
        arrival_s=start + (sent.arrival_s - sent.start_s)[back],
    )
    # parent and child change places: the row of the parent now depends on the row of the child
    return turned, Ragged.grouped(n - 1 - sent.parent[back[after]], after, n), REDUCE


def _after_sums(copies: Phase, sums: Phase, roots: Int64, chunks: Int64) -> Phase:
    """The same copies, but what leaves a root waits for all that was summed there.

    The sums are the phase just before, so their rows are numbered from -len(sums) to -1.
    """
    sent, depends, op = copies
    before = sums[0]
    root_of = np.full(int(chunks.max()) + 1, -1, dtype=np.int64)
    root_of[chunks] = roots
    arrives = np.flatnonzero(before.dst == root_of[before.chunk])
    leaves = np.flatnonzero(sent.parent < 0)
    at_root = Ragged.grouped(before.chunk[arrives], arrives - len(before.chunk), len(root_of)).take(sent.chunk[leaves])
    waiting = np.concatenate((depends.owners, leaves[at_root.owners]))
    awaited = np.concatenate((depends.values, at_root.values))
    return sent, Ragged.grouped(waiting, awaited, len(sent.chunk)), op


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
    parts = [sent for sent, _, _ in phases]
    sizes = [len(sent.chunk) for sent in parts]
    names = [f.name for f in fields(Transfers) if f.name != "route"]
    columns = {name: np.concatenate([getattr(sent, name) for sent in parts]) for name in names}
    begins = accumulate(sizes[:-1], initial=0)
    depends = [waits.with_values(waits.values + begin) for (_, waits, _), begin in zip(phases, begins, strict=True)]
    sent = Transfers(**columns, route=Ragged.concatenate([part.route for part in parts]))
    return sent, Ragged.concatenate(depends), np.repeat(np.array([op for _, _, op in phases], dtype=np.int8), sizes)
