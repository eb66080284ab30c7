"""The programs of all nodes of a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int8, Int64, Ragged
from ..model.plan import COPY, REDUCE, TIMING_COLUMNS, Plan, make_plan
from ..simulate import delays_of, simulate
from ..simulate.planes import events

MOST_SUBFLOWS = 8
"""The most subflows from one node to another; the packets of an emulated network say theirs in three bits. If a plan
has more routes, several share a subflow."""
NOTHING = -1
"""The base of a version that begins with an arrival."""


Ops = Int8 | Mapping[int, int]
"""What transfers do at their receivers, by their numbers."""


@dataclass(frozen=True)
class Version:
    """A state of one chunk at one node.

    Attributes:
        base: the version that it extends, or NOTHING.
        adds: the transfers whose bytes are written or added to it, in this order.
    """

    base: int
    adds: tuple[int, ...]


@dataclass(frozen=True)
class Send:
    """One transfer to send: a version of a chunk to some nodes.

    Attributes:
        start_s: earliest start in the plan's time, for a paced run.
        rate: bytes/s while it is sent, for a paced run; infinite if the network decides.
        priority: of several sends on a connection the one with the highest priority goes first.
        subflow: the number of its route, see :func:`subflows`.
    """

    row: int
    chunk: int
    version: int
    to: tuple[int, ...]
    start_s: float
    rate: float
    priority: float
    subflow: int


@dataclass(frozen=True)
class Receive:
    """One transfer to receive, on the subflow of its route."""

    row: int
    chunk: int
    source: int
    copies: bool
    subflow: int


@dataclass(frozen=True)
class Event:
    """A turn or a barrier at the controller. It begins when all its dependencies have happened, at ``start_s`` at the
    earliest, and takes ``seconds``."""

    row: int
    start_s: float
    seconds: float


@dataclass
class Program:
    """What one node does in a plan. Rows are transfers, then events.

    Attributes:
        node: a node of the topology, or ``node_count`` for the controller.
        peers: the other nodes that have programs.
        waits: for each row that starts here, the number of its dependencies.
        wakes: for each dependency, as (row, node where it happens), the rows here that wait for it. A dependency at
            another node comes as a signal.
        signals: for each row that happens here, the nodes to signal.
        versions: for each chunk its versions; version 0 is what the node holds at first.
        final: for each chunk that the node wants, the version that it must end with.
        held: the chunks that it holds at first.
    """

    plan: Plan
    node: int
    peers: tuple[int, ...] = ()
    sends: dict[int, Send] = field(default_factory=dict)
    receives: dict[int, Receive] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    wakes: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    signals: dict[int, list[int]] = field(default_factory=dict)
    versions: dict[int, tuple[Version, ...]] = field(default_factory=dict)
    final: dict[int, int] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"<Program of {self.name(self.node)}: {len(self.sends)} sends, {len(self.receives)} receives>"

    def describe(self, row: int) -> str:
        """A row as messages name it."""
        n, turns = self.plan.transfer_count, self.plan.turns
        if row < n:
            return self.plan.describe(row)
        return f"turn {row - n} of plane {turns.plane[row - n]}" if row < n + turns.count else "a barrier"

    def name(self, node: int) -> str:
        """A node as messages name it."""
        return node_name(self.plan, node)


def node_name(plan: Plan, node: int) -> str:
    """The name of a node, or ``controller``."""
    return plan.topology.names[node] if node < plan.topology.node_count else "controller"


def lower(plan: Plan) -> dict[int, Program]:
    """The program of each node that takes part in a plan; the plan must verify.

    Programs number transfers as the plan that :func:`played` gives.
    """
    plan = played(plan).plan
    n, controller = plan.transfer_count, plan.topology.node_count
    timed = plan.sharing == "timed"
    controls = events(plan, plan.barriers, timed)
    ends = (plan.src, plan.dst.values, plan.workload.chunk_wanted.values, plan.workload.chunk_holders.values)
    nodes = {int(v) for column in ends for v in column}
    if len(controls.earliest_s):
        nodes.add(controller)
    programs = {v: Program(plan, v, tuple(sorted(nodes - {v}))) for v in sorted(nodes)}
    holders = plan.workload.chunk_holders
    for chunk, node in zip(holders.owners.tolist(), holders.values.tolist(), strict=True):
        programs[node].held.add(chunk)
    start_s, rate, priority = _pace(plan)
    version_of = _versions(plan, programs)
    for k, subflow in enumerate(subflows(plan)):
        source, chunk = int(plan.src[k]), int(plan.chunk[k])
        to = tuple(map(int, plan.dst[k]))
        pace = float(start_s[k]), float(rate[k]), float(priority[k])
        programs[source].sends[k] = Send(k, chunk, version_of[k], to, *pace, subflow)
        for v in to:
            programs[v].receives[k] = Receive(k, chunk, source, bool(plan.op[k] == COPY), subflow)
    for i, (at, seconds) in enumerate(zip(controls.earliest_s, controls.seconds, strict=True)):
        programs[controller].events[n + i] = Event(n + i, float(at), float(seconds))
    _wait(plan, programs, controls.depends)
    return programs


def subflows(plan: Plan) -> list[int]:
    """For each transfer the number of its route among all routes from its source to its receiver, as they come in the
    plan; below ``MOST_SUBFLOWS``.

    A transfer to several receivers has number 0: it is sent to each of them, and not by the tree of its route.
    """
    routes: dict[tuple[int, int], dict[bytes, int]] = defaultdict(dict)
    numbers = []
    for k, source in enumerate(plan.src.tolist()):
        number = 0
        if len(plan.dst[k]) == 1:
            known = routes[source, int(plan.dst[k][0])]
            number = known.setdefault(plan.route[k].tobytes(), len(known))
        numbers.append(number % MOST_SUBFLOWS)
    return numbers


@dataclass(frozen=True)
class Played:
    """A plan in which switches that sum receive, add up and send.

    Attributes:
        plan: the plan with its transfers in single steps. Switches end and begin transfers here, so it does not verify.
        first, last: int64[transfers], for each transfer of the original plan the step in which its first source sends,
            and the one that its receivers get.
    """

    plan: Plan
    first: Int64
    last: Int64


def played(plan: Plan) -> Played:
    """The plan with steps in place of each transfer from several sources: to each sum, and from the last one on."""
    every = np.arange(plan.transfer_count)
    if plan.other_src is None:
        return Played(plan, every, every)
    hop_s = delays_of(plan).hop_s
    steps: list[_Step] = []
    first, last = np.empty_like(every), np.empty_like(every)
    for k in every.tolist():
        first[k] = len(steps)
        steps += _steps(plan, k, len(steps), last, hop_s[plan.route.offsets[k] : plan.route.offsets[k + 1]])
        last[k] = len(steps) - 1
    row = np.array([step.row for step in steps], dtype=np.int64)
    later_s = np.array([step.later_s for step in steps])
    columns = {
        name: column[row] + (later_s if name in ("start_s", "finish_s") else 0)
        for name in TIMING_COLUMNS
        if (column := getattr(plan, name)) is not None
    }
    turns = replace(plan.turns, before=np.append(first, len(steps))[plan.turns.before].astype(np.int32))
    single = make_plan(
        plan.topology, plan.workload, plan.sharing, chunk=plan.chunk[row], src=[step.src for step in steps],
        op=[step.op for step in steps], dst=Ragged.of([step.dst for step in steps]),
        route=Ragged.of([step.route for step in steps]), depends=Ragged.of([step.after for step in steps]),
        turns=turns, barriers=plan.barriers, meta=plan.meta, **columns,
    )  # fmt: skip
    return Played(single, first, last)


class _Step(NamedTuple):
    """One step of a transfer, ``row``; it begins ``later_s`` after the transfer."""

    row: int
    src: int
    dst: list[int]
    op: int
    route: list[int]
    after: list[int]
    later_s: float


def _steps(plan: Plan, k: int, base: int, last: Int64, hop_s: Float64) -> list[_Step]:
    """The steps of transfer ``k``: from each source to where it meets others, from there on, and to the receivers.

    Args:
        base: the number of the first step. last: int64[transfers], the last steps of the transfers before.
    """
    sources, route = plan.sources[k].tolist(), plan.route[k].tolist()
    depends, receivers, op = plan.depends[k].tolist(), plan.dst[k].tolist(), int(plan.op[k])
    if len(sources) == 1:
        return [_Step(k, sources[0], receivers, op, route, [int(last[d]) for d in depends], 0.0)]
    here = {s: [d for d in depends if s in plan.dst[d]] for s in sources}
    elsewhere = set(depends).difference(*here.values())
    steps: list[_Step] = []
    # for each node what has come there: where it began, over which hops, after what
    came: dict[int, list[tuple[int, list[int], list[int]]]] = {
        s: [(s, [], sorted(int(last[d]) for d in elsewhere.union(here[s])))] for s in sources
    }
    apart = len(sources)

    def add_up(v: int) -> list[int]:
        """End at ``v`` what has come there; the numbers of these steps."""
        first = base + len(steps)
        for begin, hops, after in came[v]:
            steps.append(_Step(k, begin, [v], REDUCE, [route[i] for i in hops], after, float(hop_s[hops[0]])))
        return [*range(first, base + len(steps))]

    v, i = sources[0], 0
    while apart > 1:
        a, v = int(plan.topology.src[route[i]]), int(plan.topology.dst[route[i]])
        begin, hops, after = came[a][0] if len(came[a]) == 1 else (a, [], add_up(a))
        del came[a]
        apart -= v in came
        came.setdefault(v, []).append((begin, [*hops, i], after))
        i += 1
    steps.append(_Step(k, v, receivers, op, route[i:], add_up(v), float(hop_s[i])))
    return steps


def _pace(plan: Plan) -> tuple[Float64, Float64, Float64]:
    """For each transfer its earliest start, its rate and its priority."""
    n = plan.transfer_count
    start_s = plan.workload.chunk_start_s[plan.chunk]
    rate, priority = np.full(n, np.inf), np.zeros(n)
    if plan.sharing == "timed" and plan.start_s is not None and plan.finish_s is not None:
        return np.maximum(start_s, plan.start_s), plan.size_bytes / (plan.finish_s - plan.start_s), priority
    if plan.sharing == "rates" and plan.rate is not None:
        rate = plan.rate
    elif plan.sharing == "weights":
        timeline = simulate(plan)  # a group's share is fixed, so its rate is constant
        rate = plan.size_bytes / (timeline.finish_s - timeline.start_s)
    elif plan.sharing == "priorities" and plan.weight is not None:
        priority = plan.weight
    return start_s, rate, priority


def _versions(plan: Plan, programs: dict[int, Program]) -> dict[int, int]:
    """Give each program the versions of its chunks; returns for each transfer the version that it sends."""
    writes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, v in zip(plan.dst.owners.tolist(), plan.dst.values.tolist(), strict=True):
        writes[v, int(plan.chunk[k])].append(k)
    reads: dict[tuple[int, int], dict[frozenset[int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for k in range(plan.transfer_count):
        slot = int(plan.src[k]), int(plan.chunk[k])
        here = set(writes.get(slot, ()))
        reads[slot][lasting_writes(plan.op, here.intersection(plan.depends[k].tolist()))].append(k)
    wanted = plan.workload.chunk_wanted
    wants = set(zip(wanted.values.tolist(), wanted.owners.tolist(), strict=True))
    version_of: dict[int, int] = {}
    for slot in {*reads, *wants}:
        node, chunk = slot
        version_of |= add_versions(programs[node], chunk, plan.op, reads[slot], writes.get(slot, ()), slot in wants)
    return version_of


def add_versions(
    program: Program, chunk: int, op: Ops, reads: Mapping[frozenset[int], list[int]], writes: Sequence[int],
    wanted: bool,
) -> dict[int, int]:  # fmt: skip
    """Give a program the versions of a chunk; returns for each transfer that sends it the version.

    Args:
        op: of each transfer.
        reads: for each state of the chunk, as the transfers that brought it, those that send it.
        writes: the transfers that bring the chunk, ascending.
        wanted: whether the node must end with it.
    """
    everything = lasting_writes(op, writes)
    states: set[frozenset[int]] = set(reads) | ({everything} if wanted else set()) | {frozenset()}
    ordered = sorted(states, key=lambda s: (len(s), sorted(s)))
    held = chunk in program.held
    program.versions[chunk] = tuple(_version(op, ordered, i, held) for i in range(len(ordered)))
    if wanted:
        program.final[chunk] = ordered.index(everything)
    return {k: i for i, state in enumerate(ordered) for k in reads.get(state, ())}


def lasting_writes(op: Ops, writes: Iterable[int]) -> frozenset[int]:
    """Writes to one chunk at one node, without those that a later copy replaced (all writes but sums are ordered)."""
    ordered = sorted(writes)
    copies = [i for i, k in enumerate(ordered) if op[k] == COPY]
    return frozenset(ordered[copies[-1] :] if copies else ordered)


def _version(op: Ops, ordered: list[frozenset[int]], i: int, held: bool) -> Version:
    """Version i: the largest earlier version that is part of it, and the writes that it adds."""
    state = ordered[i]
    base = next((j for j in range(i - 1, -1, -1) if ordered[j] < state), NOTHING)
    adds = tuple(sorted(state - ordered[base] if base != NOTHING else state))
    replaced = any(op[k] == COPY for k in adds)
    return Version(NOTHING if replaced or (base == 0 and not held) else base, adds)


def _wait(plan: Plan, programs: dict[int, Program], depends: Ragged) -> None:
    """Fill in for each program what its rows wait for, and which nodes it must signal."""
    n, controller = plan.transfer_count, plan.topology.node_count

    def happens_at(row: int) -> Iterable[int]:
        return plan.dst[row].tolist() if row < n else (controller,)

    for row in range(depends.rows):
        here = int(plan.src[row]) if row < n else controller
        program = programs[here]
        program.waits[row] = 0
        for cause in dict.fromkeys(depends[row].tolist()):
            places = list(happens_at(cause))
            for place in [here] if here in places else places:
                program.wakes.setdefault((cause, place), []).append(row)
                program.waits[row] += 1
                if place != here:
                    nodes = programs[place].signals.setdefault(cause, [])
                    if here not in nodes:
                        nodes.append(here)
