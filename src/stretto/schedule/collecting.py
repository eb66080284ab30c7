"""Transfers of any plan put into messages of several chunks: what waits for a route goes in one message.

The plan's routes and dependencies stay. Links serve what is ready first, as in ready-order; but when the links of a
route are free, everything that waits for this route goes at once, as one message. Where messages cost little, little
waits, and the plan stays nearly as it is. Where they cost much, messages grow until links keep up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ..model.message_form import SHARING
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..simulate import delays_of
from .cutting import messages_cost

COLLECT_STEPS = 20.0
"""Steps (:mod:`.effort`) that this takes for each transfer, with the simulation of the plan."""

MOST_COLLECTED = 10_000
"""Transfers up to which a plan is looked at."""


def collected(plan: Plan) -> Plan | None:
    """The plan with what waits for a route in one message; None where nothing waits together, or it is not served."""
    if not messages_cost(plan.topology) or plan.transfer_count > MOST_COLLECTED or plan.message is not None:
        return None
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
    if plan.sharing not in SHARING or plan.other_src is not None or plan.topology.planes or plan.topology.changes:
        return None
    sent = _Collector.of(plan).messages()
    if len(sent) == plan.transfer_count:
        return None
    rows = np.concatenate(sent).astype(np.int64)
    place = np.empty(len(rows), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    waits = plan.depends.take(rows)
    return replace(
        plan, sharing="ready-order", chunk=plan.chunk[rows], src=plan.src[rows], op=plan.op[rows],
        dst=plan.dst.take(rows), route=plan.route.take(rows),
        depends=waits.with_values(place[waits.values]), start_s=None, finish_s=None, group=None, barriers=False,
        forwards=None if plan.forwards is None else plan.forwards[rows],
        message=np.repeat(np.arange(len(sent), dtype=np.int32), [len(own) for own in sent]),
    )  # fmt: skip


@dataclass
class _Way:
    """A route from a source to its receivers, and what waits for it."""

    links: list[int]
    later_s: list[float]  # for each link how much later than the source it carries the bytes
    several: bool  # whether a message may carry several chunks
    waiting: list[tuple[float, int]] = field(default_factory=list)  # heap: when it was ready, the transfer
    queue: list[tuple[float, int]] | None = None  # in which it waits for a busy link


@dataclass
class _Collector:
    """A run of a plan in which what waits for a route goes together."""

    plan: Plan
    ways: list[_Way]
    way: list[int]  # of each transfer
    arrives_s: list[list[float]]  # for each transfer how much later than its end each of its dependents may start
    # ways that wait for the same link to be free, as much later than their source: heaps as ``turns``, without times
    queues: dict[tuple[float, ...], list[tuple[float, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> _Collector:
        hop_s, receiver_s = delays_of(plan)
        stores, collective = plan.topology.store_and_forward, plan.workload.chunk_collective
        numbers: dict[Any, int] = {}
        ways: list[_Way] = []
        of: list[int] = []
        for k in range(plan.transfer_count):
            links, ends = plan.route[k].tolist(), plan.dst[k].tolist()
            src = int(plan.src[k])
            key = (src, *ends, -1, *links, int(collective[plan.chunk[k]]))
            if key not in numbers:
                numbers[key] = len(ways)
                later = hop_s[plan.route.offsets[k] : plan.route.offsets[k + 1]].tolist()
                ways.append(_Way(links, later, bool(stores[[src, *ends]].all())))
            of.append(numbers[key])
        arrives_s = []
        for k in range(plan.transfer_count):
            delay = dict(zip(plan.dst[k].tolist(), receiver_s[plan.dst.offsets[k] : plan.dst.offsets[k + 1]].tolist()))
            longest = max(delay.values(), default=0.0)
            arrives_s.append([delay.get(int(plan.src[m]), longest) for m in plan.dependents[k].tolist()])
        return cls(plan, ways, of, arrives_s)

    def messages(self) -> list[list[int]]:
        """The transfers of each message, in the order in which messages start."""
        plan, net = self.plan, self.plan.topology
        chunk, size = plan.chunk.tolist(), plan.size_bytes.tolist()
        missing, dependents = plan.depends.lengths.tolist(), plan.dependents
        ready_s = plan.workload.chunk_start_s[plan.chunk].tolist()
        free_s = [0.0] * net.link_count
        s_per_byte, message_s = (1 / net.bandwidth).tolist(), net.message_s.tolist()
        events = [(at, k) for k, (at, count) in enumerate(zip(ready_s, missing, strict=True)) if not count]
        events.sort()
        turns: list[tuple[float, float, int]] = []  # heap: when a way may start, since when it waits, its number
        sent: list[list[int]] = []

        def start_s(way: _Way) -> tuple[float, int, float]:
            """When a way may start, and the link for which it waits until then, with how much later that carries."""
            free = ((free_s[e] - later, e, later) for e, later in zip(way.links, way.later_s, strict=True))
            until, e, later = max(free, default=(0.0, -1, 0.0))
            return max(way.waiting[0][0], until), e, later

        def take_turn(number: int, from_s: float) -> None:
            way = self.ways[number]
            heappush(turns, (max(start_s(way)[0], from_s), way.waiting[0][0], number))

        while events or turns:
            while events and (not turns or events[0][0] <= turns[0][0]):
                at, k = heappop(events)
                heappush(self.ways[self.way[k]].waiting, (at, k))
                if len(self.ways[self.way[k]].waiting) == 1:
                    take_turn(self.way[k], at)
            now, since, number = heappop(turns)
            way = self.ways[number]
            if not way.waiting or way.waiting[0][0] != since:
                continue
            left = self._leave(way)
            begin, *link = start_s(way)
            if begin > now:
                way.queue = self.queues.setdefault(tuple(link), [])
                heappush(way.queue, (since, number))
                if way.queue[0] == (since, number):
                    take_turn(number, now)
            else:
                rows = self._taken(way, chunk)
                total = sum(size[k] for k in rows)
                took_s = max(message_s[e] + total * s_per_byte[e] for e in way.links)
                for e, later in zip(way.links, way.later_s, strict=True):
                    free_s[e] = now + later + took_s
                if way.waiting:
                    take_turn(number, now)
                for k in rows:
                    for m, later in zip(dependents[k].tolist(), self.arrives_s[k], strict=True):
                        ready_s[m] = max(ready_s[m], now + took_s + later)
                        missing[m] -= 1
                        if not missing[m]:
                            heappush(events, (ready_s[m], m))
                sent.append(rows)
            if left and left[0] != (since, number):
                take_turn(left[0][1], now)
        return sent

    def _leave(self, way: _Way) -> list[tuple[float, int]]:
        """Take a way out of the queue in which it waits, if in any: the queue, without those which have left it."""
        queue, way.queue = way.queue or [], None
        while queue and self.ways[queue[0][1]].queue is not queue:
            heappop(queue)
        return queue

    def _taken(self, way: _Way, chunk: list[int]) -> list[int]:
        """What goes in the next message of a way: all that waits, but no chunk twice."""
        rows = [heappop(way.waiting)]
        if way.several:
            later, known = [], {chunk[rows[0][1]]}
            for each in sorted(way.waiting):
                if chunk[each[1]] in known:
                    later.append(each)
                else:
                    known.add(chunk[each[1]])
                    rows.append(each)
            way.waiting[:] = later
        return [k for _, k in rows]
