"""Plans whose chunks go along in messages that leave anyway: chunk after chunk is routed anew, where messages cost.

A planner that routes chunks over links with room gives each message few of them. Where a message costs as much as its
bytes, a chunk comes sooner if it goes along with others, even by a way round. So each chunk in turn is taken out of all
messages and routed again: to each node by the ways on which it comes there first, in messages that leave when it is
there or wait a little for it, or in new ones where links are idle. The other chunks stay in their messages, which start
as soon as they can, in their order. A route is kept if copies come no later, the late ones counted most; this ends when
no chunk gains. Sums are copies backwards in time, so the sums of a plan are rerouted with time reversed, and in an
AllReduce first the copies, then the sums, and so on. Messages that branch in switches are ways to several nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int32, Int64, Ragged
from ..model.collective import Workload
from ..model.messages import messages_of, numbered
from ..model.plan import COPY, REDUCE, Plan
from ..model.symmetric import SymmetricPlan
from ..simulate import delays_of, simulate
from . import kernel_courses, kernel_rerouting
from .cutting import messages_cost
from .kernel_courses import NEVER
from .kernel_rerouting import BETTER
from .moments import ends
from .pipes import build_network
from .trees import divide

WAITS, PRICES, ROOMS = (0.9, 0.0, 0.5, 0.9, 0.0), (0.5, 0.0, 0.3, 1.0, 0.0), (1.0, 1.0, 1.0, 1.0, 0.0)
"""Kinds of searches: how long a message may wait for a chunk, and what a new message counts besides its time, as
multiples of what a message costs; and the share of its time for which a new message needs idle links."""

INNER_STEPS = 90.0
"""Steps of the kernel's inner loops for each step of effort."""

MOST_REROUTED = 10_000
"""Transfers up to which a plan is looked at."""

ROUNDS = 100
"""Rounds over all chunks, at most."""

LIKELY_ROUNDS, LIKELY_STEPS, FIRST_RUNS = 5.0, 150.0, 3.0
"""What the kernel's speed is chosen by: likely rounds, steps of inner loops for each chunk and message, and how often
all messages are looked at before the first chunk is routed."""

GAIN = 1.005
"""Times by which messages of halves of chunks must end sooner."""

LEAST_BYTES = 0.25
"""Least time of a chunk's bytes, as a multiple of what a message costs, from which chunks are halved."""

TURNS = 4
"""Times that an AllReduce's copies and sums are rerouted in turn, at most."""


def rerouted(plan: Plan, steps: float, enough_s: float) -> tuple[Plan | None, float]:
    """The plan with its chunks routed anew, and the steps that this took.

    Args:
        steps: of effort, at most.
        enough_s: a completion that is good enough, seconds.
    Returns:
        None for the plan where it does not end sooner, or is not served: messages that cost nothing, sums by other ways
        than trees, routers that store.
    """
    course = _course(plan) if steps > 0 else None
    if course is None:
        return None, 0.0
    before_s, spent = simulate(plan).completion_s, 0.0
    best: _Course | None = None
    while before_s > enough_s:
        found, took = _in_turn(course, steps - spent, enough_s)
        spent += took
        if found is None or (best is not None and found.end_s * GAIN > best.end_s):
            break
        best = found
        if not found.may_be_halved or best.end_s <= enough_s or spent >= steps:
            break
        course = found.halved()
    return None if best is None or best.end_s >= before_s * BETTER else best.plan(), spent


def _in_turn(course: _Course, steps: float, enough_s: float) -> tuple[_Course | None, float]:
    """The messages with copies and sums rerouted in turn, and the steps that this took; None where it is not served."""
    turns = [False, True] * (TURNS // 2) if course.copied and course.summed else [not course.copied]
    spent = 0.0
    for backwards in turns:
        found, took = course.towards(backwards).rerouted(steps / len(turns), enough_s)
        spent += took
        if found is None:
            return None, spent
        course = found
    return course.towards(False), spent


@dataclass(frozen=True, eq=False)
class _Ways:
    """Ways from nodes to others, by their numbers among accelerators; either one source or one receiver each."""

    sources: Ragged
    goals: Ragged
    links: Ragged
    late_s: Float64
    latency_s: Float64

    def reversed(self) -> _Ways:
        """The ways with time reversed."""
        return replace(
            self, sources=self.goals, goals=self.sources, late_s=self.latency_s[self.links.owners] - self.late_s
        )


@dataclass(frozen=True, eq=False)
class _Course:
    """The messages of a plan by start, and which of them carries each copy and each sum.

    Of chunk c and node v the number is ``c * nodes + v``.
    """

    like: Plan  # the plan
    nodes: Int32  # int32[nodes], the accelerators
    ways: _Ways
    way: Int64  # int64[messages]
    start_s: Float64  # float64[messages]
    end_s_of: Float64  # float64[messages]
    copy: Int64  # int64[chunks x nodes], the message that brings the chunk, -1 for none
    sum: Int64  # int64[chunks x nodes], the message by which the node sends what it has summed, -1 for none
    source: Any  # bool[chunks x nodes], where copies begin and sums end
    wanted: Any  # bool[chunks x nodes], where copies must come
    summed_at: Any  # bool[chunks x nodes], what must be summed
    backwards: bool = False  # whether time is reversed

    @property
    def copied(self) -> bool:
        return bool(self.wanted.any())

    @property
    def summed(self) -> bool:
        return bool(self.summed_at.any())

    @property
    def end_s(self) -> float:
        """When the last message has come, seconds."""
        return float((self.end_s_of + self.ways.latency_s[self.way]).max(initial=0.0))

    @property
    def may_be_halved(self) -> bool:
        """Whether half a chunk may be worth a transfer: its bytes take long enough beside what a message costs."""
        net, size = self.like.topology, self.like.workload.chunk_bytes
        alike_s = size.mean() * np.median(1 / net.bandwidth)
        few = 2 * int((self.copy >= 0).sum() + (self.sum >= 0).sum()) <= MOST_REROUTED
        return few and size.min() > 1 and alike_s > LEAST_BYTES * float(net.message_s.max())

    def halved(self) -> _Course:
        """The same messages with two chunks for each."""
        (c,) = self.like.workload.collectives
        like = replace(self.like, workload=Workload((divide(c, 2)[0],)))
        copy, sums, source, wanted, summed_at = (
            np.repeat(each.reshape(-1, len(self.nodes)), 2, axis=0).ravel()
            for each in (self.copy, self.sum, self.source, self.wanted, self.summed_at)
        )
        return replace(self, like=like, copy=copy, sum=sums, source=source, wanted=wanted, summed_at=summed_at)

    def towards(self, backwards: bool) -> _Course:
        """The messages with time forwards or backwards."""
        if backwards == self.backwards:
            return self
        start_s = self.end_s - (self.end_s_of + self.ways.latency_s[self.way])
        order = np.lexsort((-np.arange(len(start_s)), start_s))
        place = np.empty(len(order) + 1, dtype=np.int64)
        place[order], place[-1] = np.arange(len(order)), -1
        return replace(
            self, ways=self.ways.reversed(), way=self.way[order], start_s=start_s[order],
            end_s_of=(start_s + self.end_s_of - self.start_s)[order], copy=place[self.sum], sum=place[self.copy],
            wanted=self.summed_at, summed_at=self.wanted, backwards=backwards,
        )  # fmt: skip

    def rerouted(self, steps: float, enough_s: float) -> tuple[_Course | None, float]:
        """The messages with copies routed anew, and the steps that this took.

        None for the messages where a node sends what has not come.
        """
        net, ways, count = self.like.topology, self.ways, len(self.way)
        single = np.flatnonzero(ways.sources.lengths == 1)
        out = Ragged.grouped(ways.sources.values[ways.sources.offsets[single]], single, len(self.nodes))
        tables = kernel_courses.Ways(
            _first(ways.sources), _first(ways.goals), ways.links.offsets, _wide(ways.links.values), ways.late_s,
            ways.latency_s, ways.goals.offsets, _wide(ways.goals.values), out.offsets, _wide(out.values),
            net.message_s, 1 / net.bandwidth,
        )  # fmt: skip
        sent = np.flatnonzero(self.sum >= 0)
        goal = sent // len(self.nodes) * len(self.nodes) + tables.dst[self.way[self.sum[sent]]]
        case = kernel_courses.Case(
            self.like.workload.chunk_bytes.astype(np.float64), self.source,
            (self.wanted & ~self.source).astype(np.int64), np.bincount(goal, minlength=len(self.sum)),
        )  # fmt: skip
        most = 2 * count + 4 * len(self.nodes) + 100
        course = _columns(np.concatenate((self.copy, self.sum)), self.way, self.start_s, most)
        a_round = len(case.size) * (LIKELY_STEPS * count + len(ways.late_s))
        likely = FIRST_RUNS * LIKELY_STEPS * count + min(steps * INNER_STEPS, LIKELY_ROUNDS * a_round)
        reroute = at_speed(kernel_rerouting.reroute, likely)
        count, end_s, took = reroute(
            tables,
            case,
            course,
            count,
            np.array(WAITS),
            np.array(PRICES),
            np.array(ROOMS),
            ROUNDS,
            steps * INNER_STEPS,
            enough_s,
        )
        if end_s >= NEVER:
            return None, took / INNER_STEPS
        order = course.order[:count]
        place = np.full(most + 1, -1)
        place[order] = np.arange(count)
        copy, summed = np.split(place[course.via], 2)
        found = replace(
            self, way=course.way[order], start_s=course.start_s[order], end_s_of=course.end_s[order], copy=copy,
            sum=summed,
        )  # fmt: skip
        return found, took / INNER_STEPS

    def plan(self) -> Plan:
        """The plan with these messages, with times."""
        nodes, first = len(self.nodes), _first(self.ways.goals)
        moves = np.concatenate((self.copy, self.sum))
        number = np.flatnonzero(moves >= 0)
        message, at, copies = moves[number], number % len(self.copy), number < len(self.copy)
        kept = ~copies | (at % nodes == first[self.way[message]])  # of several receivers the first one
        row = np.flatnonzero(kept)[np.argsort(message[kept], kind="stable")]
        message, at, copies = message[row], at[row], copies[row]
        chunk, way = at // nodes, self.way[message]
        src = _first(self.ways.sources)[way]
        depends = self._depends(chunk, src, message, at, copies)
        start_s = self.start_s[message]
        return replace(
            self.like, sharing="timed", chunk=chunk.astype(np.int32), src=self.nodes[src].astype(np.int32),
            op=np.where(copies, COPY, REDUCE).astype(np.int8),
            dst=self.ways.goals.take(way).with_values(self.nodes[self.ways.goals.take(way).values]),
            route=self.ways.links.take(way), depends=depends, start_s=start_s,
            finish_s=ends(start_s, (self.end_s_of - self.start_s)[message]), group=None, barriers=False,
            forwards=None, message=None if len(np.unique(message)) == len(message) else numbered(message),
        )  # fmt: skip

    def _depends(self, chunk: Int64, src: Int64, message: Int64, at: Int64, copies: Any) -> Ragged:
        """For each transfer those that brought what it sends."""
        nodes, rows = len(self.nodes), np.arange(len(chunk))
        goals = self.ways.goals.take(self.way[message])
        came = chunk[goals.owners] * nodes + goals.values
        sends = chunk * nodes + src
        by_copy = np.full(len(self.copy), -1)
        by_copy[came[copies[goals.owners]]] = goals.owners[copies[goals.owners]]
        sums = Ragged.grouped(came[~copies[goals.owners]], goals.owners[~copies[goals.owners]], len(self.copy))
        copied = copies & ~self.source[sends]
        awaited = sums.take(np.where(copied, 0, sends))
        keep = ~copied[awaited.owners]
        owner = np.concatenate((rows[copied], awaited.owners[keep]))
        value = np.concatenate((by_copy[sends[copied]], awaited.values[keep]))
        return Ragged.grouped(owner, value, len(chunk))


def _course(plan: Plan) -> _Course | None:
    """The messages of a plan; None where they are not served."""
    if not messages_cost(plan.topology) or not 0 < plan.transfer_count <= MOST_REROUTED:
        return None
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
    net, workload = plan.topology, plan.workload
    if plan.other_src is not None or net.planes or net.changes or len(workload.collectives) > 1:
        return None
    stores = net.is_accelerator & net.store_and_forward
    if workload.collectives[0].start_s or not stores[np.concatenate((plan.src, plan.dst.values))].all():
        return None
    messages = messages_of(plan)
    first = np.arange(plan.transfer_count) if messages is None else messages.first
    line = simulate(plan)
    order = np.argsort(line.start_s[first], kind="stable")
    nodes = np.flatnonzero(stores).astype(np.int32)
    place = np.full(net.node_count, -1)
    place[nodes] = np.arange(len(nodes))
    ways, way = _ways_of(plan, first[order], place)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    message = number if messages is None else number[messages.of]
    copies, size = plan.op == COPY, workload.chunk_count * len(nodes)
    to = plan.dst.owners[copies[plan.dst.owners]], plan.dst.values[copies[plan.dst.owners]]
    arrives = plan.chunk[to[0]] * len(nodes) + place[to[1]]
    sends = (plan.chunk * len(nodes) + place[plan.src])[plan.dst.owners[~copies[plan.dst.owners]]]  # for each receiver
    if len(np.unique(arrives)) < len(arrives) or len(np.unique(sends)) < len(sends):
        return None
    copy, sums = np.full(size, -1), np.full(size, -1)
    copy[arrives], sums[sends] = message[to[0]], message[~copies]
    held, wanted = (
        _marked(size, lists.owners * len(nodes) + place[lists.values])
        for lists in (workload.chunk_holders, workload.chunk_wanted)
    )
    reduced = np.repeat(workload.chunk_reduces, len(nodes))
    into = plan.chunk[~copies] * len(nodes) + place[plan.dst.values[~copies[plan.dst.owners]]]
    source = np.where(reduced, _marked(size, into) & (sums < 0), held)
    summed_at = reduced & held
    alone = source.reshape(-1, len(nodes)).sum(axis=1)[workload.chunk_reduces] == 1
    complete = (source | ~wanted | (copy >= 0)).all() and (source | ~summed_at | (sums >= 0)).all()
    if not alone.all() or not complete or (copy[source] >= 0).any():
        return None
    return _Course(
        plan, nodes, ways, way, line.start_s[first[order]], line.finish_s[first[order]], copy, sums, source, wanted,
        summed_at,
    )  # fmt: skip


def _ways_of(plan: Plan, first: Int64, place: Int64) -> tuple[_Ways, Int64]:
    """All ways between accelerators, those of the messages first, and the way of each message.

    Args:
        first: int64[messages], a transfer of each.
        place: int64[nodes], the number of each accelerator.
    """
    net, delays = plan.topology, delays_of(plan)
    rows: dict[tuple[int, ...], int] = {}
    way, used = list[int](), list[int]()
    for k in first.tolist():
        key = (int(plan.src[k]), *plan.dst[k].tolist(), -1, *plan.route[k].tolist())
        if key not in rows:
            rows[key] = len(rows)
            used.append(k)
        way.append(rows[key])
    sent = np.array(used)
    ends, routes = plan.dst.take(sent), plan.route.take(sent)
    late_s = Ragged.wide(plan.route.offsets, delays.hop_s).take(sent).values
    latency_s = ends.reduced(np.maximum, Ragged.wide(plan.dst.offsets, delays.receiver_s).take(sent).values)
    pipes = build_network(net, float(plan.workload.chunk_bytes.mean()), True, float(net.link_count))
    # neither to routers that store nor to accelerators through which routes pass
    others = np.flatnonzero((place[pipes.src] >= 0) & (place[pipes.dst] >= 0))
    joined = pipes.src[others] * net.node_count + pipes.dst[others]
    known = np.isin(joined, plan.src[sent[ends.owners]].astype(np.int64) * net.node_count + ends.values)
    for k in np.flatnonzero(known).tolist():
        p = others[k]
        known[k] = (int(pipes.src[p]), int(pipes.dst[p]), -1, *pipes.hops[p].tolist()) in rows
    others = others[~known]
    hops = pipes.hops.take(others)
    ways = _Ways(
        Ragged.single(place[np.concatenate((plan.src[sent], pipes.src[others]))]),
        Ragged.concatenate([ends.with_values(place[ends.values]), Ragged.single(place[pipes.dst[others]])]),
        Ragged.concatenate([routes, hops]),
        np.concatenate((late_s, Ragged.wide(pipes.hops.offsets, pipes.late_s).take(others).values)),
        np.concatenate((latency_s, pipes.latency_s[others])),
    )
    return ways, np.array(way, dtype=np.int64)


def _columns(via: Int64, way: Int64, start_s: Float64, most: int) -> kernel_courses.Course:
    """The messages as the kernel takes them, with room for ``most``."""
    count = len(way)
    head, following, before = np.full(most, -1), np.full(len(via), -1), np.full(len(via), -1)
    sent = np.flatnonzero(via >= 0)
    sent = sent[np.argsort(via[sent], kind="stable")]
    same = via[sent[1:]] == via[sent[:-1]]
    following[sent[:-1][same]], before[sent[1:][same]] = sent[1:][same], sent[:-1][same]
    begins = sent[np.flatnonzero(np.append(True, ~same))] if len(sent) else sent
    head[via[begins]] = begins
    wide = np.concatenate((way, np.zeros(most - count, dtype=np.int64)))
    started = np.concatenate((start_s, np.zeros(most - count)))
    came_s = np.full(len(via), NEVER)
    return kernel_courses.Course(
        via.copy(), following, before, head, wide, started, np.zeros(most), np.arange(most), came_s,
        np.zeros(len(via) // 2, dtype=np.int64),
    )  # fmt: skip


def _marked(size: int, places: Any) -> Any:
    marked = np.zeros(size, dtype=np.bool_)
    marked[places] = True
    return marked


def _first(lists: Ragged) -> Int64:
    """int64[lists], the first value of each."""
    return _wide(lists.values[lists.offsets[:-1]])


def _wide(values: Int32) -> Int64:
    return values.astype(np.int64)
