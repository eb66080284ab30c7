"""From ordered sends to a timed plan, every transfer as early as the physics let it.

The schedules of solvers are in epochs or slots, and say which node sends which chunk over which link
in what order. Here each send becomes a transfer that starts as soon as its chunk has arrived and its
links are free, in the order of the schedule. A router that cuts through starts with the first byte, if no byte leaves
it before it came. The simulator then reproduces these times.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.plan import Plan, make_plan
from ..model.topology import ROUTER, Topology


@dataclass(frozen=True)
class Send:
    """A chunk put on a link at some time: what the schedules of solvers consist of."""

    at: float  # when it is put on the link, in any unit; sends of one link are made in this order
    there: float  # when it has arrived at the link's other end, in the same unit
    chunk: int
    link: int


@dataclass
class Pass:
    """A transfer of one chunk over a route, in order from ``src``."""

    chunk: int
    src: int
    dst: list[int]
    route: list[int]
    after: int  # the pass that brings the chunk to ``src``, -1 if ``src`` holds it


def plan_of_sends(topology: Topology, workload: Workload, sends: Sequence[Send], meta: dict[str, Any]) -> Plan:
    """The timed plan of sends by single-holder chunks, each started as early as order permits.

    A send into a switch and the sends that leave it with the same chunk become one transfer with a
    route. Sends that end in a switch, and those that serve no node that wants the chunk, are left out.

    Args:
        sends: in any order; each node gets each chunk at most once.
    """
    passes = passes_of(topology, workload, sends)
    start, finish = as_soon_as_possible(topology, workload, passes)
    order = sorted(range(len(passes)), key=lambda k: start[k])
    rank = {old: new for new, old in enumerate(order)}
    chosen = [passes[k] for k in order]
    return make_plan(
        topology,
        workload,
        "timed",
        chunk=[p.chunk for p in chosen],
        src=[p.src for p in chosen],
        dst=Ragged.of([p.dst for p in chosen]),
        route=Ragged.of([p.route for p in chosen]),
        depends=Ragged.of([[rank[p.after]] if p.after >= 0 else [] for p in chosen]),
        start_s=[start[k] for k in order],
        finish_s=[finish[k] for k in order],
        meta=meta,
    )


def passes_of(topology: Topology, workload: Workload, sends: Sequence[Send]) -> list[Pass]:
    """The passes of :func:`plan_of_sends`: transfers between nodes that store, each after the one that fed it.

    They are in the order of the sends. A router may pass on in a moment what came in the same: then the pass that feeds
    another one comes first.
    """
    inside: dict[tuple[int, int], list[tuple[float, Pass]]] = {}
    brought = {(q, int(v)): -1 for q in range(workload.chunk_count) for v in workload.chunk_holders[q]}
    passes: list[Pass] = []
    begun: list[float] = []
    # a send out of a switch may be listed in the epoch in which it arrived there: feed it first
    from_switch = topology.is_switch[topology.src]
    for s in sorted(sends, key=lambda s: (s.at, from_switch[s.link], s.there, s.link, s.chunk)):
        a, b = int(topology.src[s.link]), int(topology.dst[s.link])
        if topology.is_switch[a]:
            fed = [p for t, p in inside.get((s.chunk, a), ()) if abs(t - s.at) < 1e-9]
            assert fed, "a switch sends only what arrives at that moment"
            # where the chunk arrives twice at once, each send has one of its own
            one = min(fed, key=lambda p: any(topology.src[i] == a for i in p.route))
        else:
            one = Pass(s.chunk, a, [], [], -1)
            passes.append(one)
            begun.append(s.at)
        if all(topology.dst[i] != b for i in one.route):  # the pass does not go back into a switch
            one.route.append(s.link)
        if topology.is_switch[b]:
            inside.setdefault((s.chunk, b), []).append((s.there, one))
        elif b not in one.dst:
            one.dst.append(b)
    for k, p in enumerate(passes):
        _trim(topology, p)
        for v in p.dst:
            brought.setdefault((p.chunk, v), k)
    for p in passes:
        p.after = brought[p.chunk, p.src]

    def ahead(k: int) -> int:
        """The passes of the same moment that feed a pass."""
        fed = passes[k].after
        return 1 + ahead(fed) if fed >= 0 and begun[fed] == begun[k] else 0

    return _needed(workload, passes, sorted(range(len(passes)), key=lambda k: (begun[k], ahead(k))))


def _trim(topology: Topology, one: Pass) -> None:
    """Drop the branches of the route that end in a switch."""
    kept: list[int] = []
    while len(kept) != len(one.route):
        kept = one.route
        leaves = {int(topology.src[i]) for i in kept} | set(one.dst)
        one.route = [i for i in kept if int(topology.dst[i]) in leaves]


def _needed(workload: Workload, passes: list[Pass], order: list[int]) -> list[Pass]:
    """The passes that bring a chunk to a node that wants it, and those that they come after, in an order."""
    wanted = [set(workload.chunk_wanted[q].tolist()) for q in range(workload.chunk_count)]
    used: set[int] = set()
    for k, p in enumerate(passes):
        if any(v in wanted[p.chunk] for v in p.dst):
            while k >= 0 and k not in used:
                used.add(k)
                k = passes[k].after
    kept = [k for k in order if k in used]
    names = {old: new for new, old in enumerate(kept)}
    return [replace(passes[k], after=names.get(passes[k].after, -1)) for k in kept]


def as_soon_as_possible(
    topology: Topology, workload: Workload, passes: Sequence[Pass]
) -> tuple[list[float], list[float]]:
    """Start and end of the transmission of each pass, seconds.

    Links serve passes in the given order, or the pass that can begin first, whichever ends sooner:
    the order within an epoch means little, and a schedule in epochs leaves gaps.
    """
    answers = [_start(topology, workload, passes, greedy) for greedy in (False, True)]
    return min(answers, key=lambda times: max(times[2], default=0.0))[:2]


def _start(
    topology: Topology, workload: Workload, passes: Sequence[Pass], greedy: bool
) -> tuple[list[float], list[float], list[float]]:
    """Start, end and last arrival of each pass: in the given order, or the first that can begin next."""
    n, cuts = len(passes), topology.forwarding == ROUTER
    begin, finish, last = [0.0] * n, [0.0] * n, [0.0] * n
    free: dict[int, float] = {}
    offsets: list[dict[int, float]] = []
    after: dict[int, list[int]] = {}
    seconds = []
    for k, p in enumerate(passes):
        offset = {p.src: 0.0}
        for i in p.route:
            offset[int(topology.dst[i])] = offset[int(topology.src[i])] + float(topology.latency_s[i])
        offsets.append(offset)
        seconds.append(float(workload.chunk_bytes[p.chunk]) / min(float(topology.bandwidth[i]) for i in p.route))
        after.setdefault(p.after, []).append(k)

    def earliest(k: int) -> float:
        p, offset = passes[k], offsets[k]
        if p.after >= 0:
            ready = finish[p.after] + offsets[p.after][p.src]
            if cuts[p.src]:
                ready = max(begin[p.after] + offsets[p.after][p.src], ready - seconds[k])
        else:
            ready = float(workload.chunk_start_s[p.chunk])
        return max([ready, *(free.get(i, 0.0) - offset[int(topology.src[i])] for i in p.route)])

    queue = [(earliest(k) if greedy else 0.0, k) for k in after.get(-1, [])]
    heapq.heapify(queue)
    while queue:
        asked, k = heapq.heappop(queue)
        at = earliest(k)
        if greedy and at > asked:  # its links were taken meanwhile
            heapq.heappush(queue, (at, k))
            continue
        begin[k], finish[k] = at, at + seconds[k]
        for i in passes[k].route:
            free[i] = finish[k] + offsets[k][int(topology.src[i])]
        last[k] = finish[k] + max(offsets[k][v] for v in passes[k].dst)
        for child in after.get(k, ()):
            heapq.heappush(queue, (earliest(child) if greedy else 0.0, child))
    return begin, finish, last
