"""The verifier: is a plan correct? It shares no code with the simulator or any planner.

It checks that the collectives promise what their kind means and that chunks cover it; that routes
are paths or trees over links that exist, passing only through nodes that let them and branching
only where a node replicates; that nothing is sent before it is there, written out of order, summed
twice or not at all; in a timed plan that starts respect dependencies and that no link carries more
than its bandwidth; and that every rank ends with exactly what it was promised.

Sums are followed as fingerprints: each contribution is a 64-bit hash, a sum is their sum, and a
complete one must equal the sum over all holders. A wrong set of contributions passes with a
probability of 2^-64. The cost is near-linear in transfers, hops and dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.plan import Plan
from ..model.units import format_bandwidth, format_time
from . import kernel_referee
from .planes import Wrong, as_links, broken_barrier, delays, wrong_circuit, wrong_turn
from .promises import broken_promise

CODES = (
    "none", "source", "no-receiver", "route", "route-loop", "no-transit", "no-replication",
    "receiver", "route-misses-receiver", "receiver-twice", "route-loose-end", "not-held",
    "missing-dependency", "reduce-of-copy", "unordered-writes", "duration", "before-start",
    "before-dependency", "speed", "capacity", "incomplete", "promise", "cover", "matching", "no-circuit", "turn",
    "barrier", "group",
)  # fmt: skip
"""What can be wrong. The first ones are the codes of :mod:`stretto.verify.kernel_referee`."""

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Finding:
    """The first violation in a plan.

    Attributes:
        code: one of :data:`CODES`.
        message: what is wrong, in words.
        transfer, chunk, node, link: where, as far as it applies.
        time_s: when.
    """

    code: str
    message: str
    transfer: int | None = None
    chunk: int | None = None
    node: int | None = None
    link: int | None = None
    time_s: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a plan is correct, and if not, the first thing that is wrong."""

    finding: Finding | None = None

    def __repr__(self) -> str:
        if self.finding is None:
            return "<Verdict: correct>"
        return f"<Verdict: not correct [{self.finding.code}]: {self.finding.message}>"

    def __bool__(self) -> bool:
        return self.ok

    @property
    def ok(self) -> bool:
        return self.finding is None


def verify(plan: Plan) -> Verdict:
    """Check a plan against the physics and its collectives' promises.

    Only a ``timed`` plan has times to check. One that shares by ``rates`` is correct if no link
    can carry too much in any timing; one in any other mode, in every timing that respects its
    dependencies, since the network divides what there is.
    """
    for check in (_promises, _routes, _matchings, _speeds, _flow, _times, _reservations):
        finding = check(plan)
        if finding is not None:
            return Verdict(finding)
    return Verdict()


def _promises(plan: Plan) -> Finding | None:
    """Do the collectives' pieces say what their kind means, and do chunks cover them exactly?"""
    base = 0
    for number, c in enumerate(plan.workload.collectives):
        wrong = broken_promise(c)
        if wrong is not None:
            return Finding("promise", f"collective {number} ({c.kind}): {wrong}")
        if (c.chunk_piece < 0).any() or (c.chunk_piece >= len(c.piece_bytes)).any() or (c.chunk_bytes < 1).any():
            return Finding("cover", f"collective {number} ({c.kind}): a chunk of no piece or of no bytes")
        order = np.lexsort((c.chunk_offset, c.chunk_piece))
        piece, offset = c.chunk_piece[order], c.chunk_offset[order]
        end = offset + c.chunk_bytes[order]
        first = np.concatenate(([True], piece[1:] != piece[:-1]))
        last = np.concatenate((first[1:], [True]))
        expected = np.where(first, 0, np.concatenate(([0], end[:-1])))
        bad = np.flatnonzero((offset != expected) | (last & (end != c.piece_bytes[piece])))
        if len(bad) or first.sum() != len(c.piece_bytes):
            chunk = base + int(order[bad[0]]) if len(bad) else None
            what = f"chunk {chunk} leaves a gap or overlaps" if len(bad) else "a piece has no chunk"
            return Finding("cover", f"collective {number} ({c.kind}): {what}", chunk=chunk)
        base += c.chunk_count
    return None


def _routes(plan: Plan) -> Finding | None:
    t = plan.topology
    kernel_steps = 4.0 * plan.transfer_count
    code, k, a, b = at_speed(kernel_referee.routes, kernel_steps)(
        plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values,
        np.full(plan.transfer_count, -1, np.int32) if plan.plane is None else plan.plane,
        t.src, t.dst, t.kind, t.transit, t.replicates,
    )  # fmt: skip
    if code == 0:
        return None
    name = CODES[code]
    # a is a node, but for a link that does not begin where the bytes are
    link = a if name == "route" else b
    node = None if name in ("route", "no-receiver") else int(a)
    at = "" if node is None else t.names[node]
    words = {
        "source": f"starts at {at}, a switch, which stores nothing",
        "no-receiver": "has no receiver",
        "route": f"takes link {t.link_name(int(link)) if link >= 0 else ''} without having come to its beginning",
        "route-loop": f"comes to {at} twice",
        "no-transit": f"passes through {at}, which no route may pass through",
        "no-replication": f"branches at {at}, which does not replicate",
        "receiver": f"ends at {at}, a switch, which stores nothing",
        "route-misses-receiver": f"has a route that does not lead to its receiver {at}",
        "receiver-twice": f"names the receiver {at} twice",
        "route-loose-end": f"has a route that ends at {at}, which is no receiver",
    }[name]
    return _about(plan, name, int(k), words, node=node, link=int(link) if link >= 0 else None)


def _matchings(plan: Plan) -> Finding | None:
    """Does every transfer on a plane use a circuit that the plane has set up?"""
    return _on_planes(plan, wrong_circuit(plan)) if plan.topology.planes else None


def _on_planes(plan: Plan, wrong: Wrong | None) -> Finding | None:
    if wrong is None:
        return None
    code, words, where = wrong
    if "transfer" in where:
        return _about(plan, code, where.pop("transfer"), words, **where)
    return Finding(code, words, **where)


def _about(plan: Plan, code: str, k: int, words: str, **where: Any) -> Finding:
    return Finding(code, f"{plan.describe(k)} {words}", transfer=k, chunk=int(plan.chunk[k]), **where)


def _speeds(plan: Plan) -> Finding | None:
    """No transfer is faster than the slowest link of its route."""
    seconds = None
    if plan.sharing == "timed" and plan.start_s is not None and plan.finish_s is not None:
        seconds = plan.finish_s - plan.start_s
    elif plan.rate is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = plan.size_bytes / plan.rate
    if seconds is None:
        return None
    # the rounding of two moments may make a short transfer seem too fast
    rounding = 0.0 if plan.finish_s is None else 4 * np.spacing(plan.finish_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = np.where(seconds > 0, plan.size_bytes / (seconds + rounding), np.inf)
    owners = plan.route.owners
    width = plan.topology.bandwidth[plan.route.values]
    bad = np.flatnonzero(speed[owners] > width * (1 + TOLERANCE))
    if not len(bad):
        rows, ports, widths = as_links(plan)
        bad = np.flatnonzero(speed[rows] > widths[ports] * (1 + TOLERANCE))
        if not len(bad):
            return None
        k = int(rows[bad[0]])
        words = f"takes {format_time(float(seconds[k]))}, faster than a port of plane {_plane(plan, k)} allows"
        return _about(plan, "speed", k, words)
    k, link = int(owners[bad[0]]), int(plan.route.values[bad[0]])
    words = (
        f"takes {format_time(float(seconds[k]))}, which is faster than link {plan.topology.link_name(link)} "
        f"of {format_bandwidth(float(width[bad[0]]))} allows"
    )
    return _about(plan, "speed", k, words, link=link)


def _plane(plan: Plan, k: int) -> int:
    return -1 if plan.plane is None else int(plan.plane[k])


def _flow(plan: Plan) -> Finding | None:
    """Everything sent is there, writes are ordered, and every rank ends with what it wants."""
    work, nodes = plan.workload, plan.topology.node_count
    slots = _Slots(work.chunk_count, nodes, plan)
    state = slots.initial(plan)
    kernel_steps = 4.0 * plan.transfer_count
    with np.errstate(over="ignore"):  # fingerprints wrap around
        code, k, other, _ = at_speed(kernel_referee.flow, kernel_steps)(
            plan.chunk, slots.of(plan.chunk, plan.src), plan.op,
            plan.dst.offsets, slots.of(plan.chunk[plan.dst.owners], plan.dst.values),
            plan.depends.offsets, plan.depends.values, plan.dependents.offsets, plan.dependents.values,
            work.chunk_reduces, state,
        )  # fmt: skip
    if code:
        name, k = CODES[code], int(k)
        words = {
            "not-held": f"sends what {plan.topology.names[plan.src[k]]} does not have",
            "missing-dependency": f"does not depend on {plan.describe(int(other)) if other >= 0 else ''}, "
            "which brought or changed what it sends",
            "reduce-of-copy": "adds to a chunk that is not to be summed",
            "unordered-writes": f"and {plan.describe(int(other)) if other >= 0 else ''} write to the same chunk at the "
            "same node, and neither waits for the other",
        }[name]
        return _about(plan, name, k, words, node=int(plan.src[k]))
    wanted = work.chunk_wanted
    complete = _complete_state(plan)
    have = state[slots.of(wanted.owners, wanted.values)]
    bad = np.flatnonzero(have != complete[wanted.owners])
    if not len(bad):
        return None
    chunk, node = int(wanted.owners[bad[0]]), int(wanted.values[bad[0]])
    what = "never gets" if have[bad[0]] == 0 else "ends with a wrong sum of"
    message = f"{plan.topology.names[node]} {what} chunk {chunk}"
    return Finding("incomplete", message, chunk=chunk, node=node)


class _Slots:
    """Numbers the (chunk, node) pairs that a plan touches: densely if few could be, else by sorting."""

    def __init__(self, chunks: int, nodes: int, plan: Plan) -> None:
        self.nodes = nodes
        self.keys: NDArray[np.int64] | None = None
        self.count = chunks * nodes
        if self.count > 1 << 24:
            work = plan.workload
            parts = [
                self._key(plan.chunk, plan.src),
                self._key(plan.chunk[plan.dst.owners], plan.dst.values),
                self._key(work.chunk_wanted.owners, work.chunk_wanted.values),
                self._key(work.chunk_holders.owners, work.chunk_holders.values),
            ]
            self.keys = np.unique(np.concatenate(parts))
            self.count = len(self.keys)

    def _key(self, chunk: NDArray[Any], node: NDArray[Any]) -> NDArray[np.int64]:
        key: NDArray[np.int64] = chunk.astype(np.int64) * self.nodes + node
        return key

    def of(self, chunk: NDArray[Any], node: NDArray[Any]) -> NDArray[np.int64]:
        key = self._key(chunk, node)
        return key if self.keys is None else np.searchsorted(self.keys, key).astype(np.int64)

    def initial(self, plan: Plan) -> NDArray[np.uint64]:
        """uint64[slots]: the contribution of each holder, 0 elsewhere."""
        holders = plan.workload.chunk_holders
        state = np.zeros(self.count, dtype=np.uint64)
        state[self.of(holders.owners, holders.values)] = _contributions(plan)
        return state


def _contributions(plan: Plan) -> NDArray[np.uint64]:
    """uint64[holders of chunks]: a hash for each summand, 1 for what is only copied."""
    holders = plan.workload.chunk_holders
    x = holders.owners.astype(np.uint64) * np.uint64(plan.topology.node_count) + holders.values.astype(np.uint64)
    # splitmix64
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.where(plan.workload.chunk_reduces[holders.owners], x, np.uint64(1))


def _complete_state(plan: Plan) -> NDArray[np.uint64]:
    """uint64[chunks]: what a rank that wants the chunk must end with."""
    holders = plan.workload.chunk_holders
    totals = holders.reduced(np.add, _contributions(plan))
    return np.where(plan.workload.chunk_reduces, totals, np.uint64(1))


def _times(plan: Plan) -> Finding | None:
    if plan.sharing != "timed" or plan.start_s is None or plan.finish_s is None:
        return None
    t = plan.topology
    hop = np.zeros(len(plan.route.values))
    delay = delays(plan)
    kernel_steps = 4.0 * plan.transfer_count
    code, k, other, _ = at_speed(kernel_referee.times, kernel_steps)(
        plan.chunk, plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values,
        plan.depends.offsets, plan.depends.values, plan.start_s, plan.finish_s,
        plan.workload.chunk_start_s[plan.chunk], t.forwarding, t.src, t.dst, t.latency_s, delay, hop,
    )  # fmt: skip
    if not code:
        arrival_s = plan.finish_s + delay
        np.maximum.at(
            arrival_s, plan.route.owners, (plan.finish_s[plan.route.owners] + hop) + t.latency_s[plan.route.values]
        )
        wrong = wrong_turn(plan, plan.start_s, plan.finish_s) or broken_barrier(plan, plan.start_s, arrival_s)
        return _on_planes(plan, wrong) or _crowded_link(plan, plan.start_s, plan.finish_s, hop)
    k = int(k)
    when = float(plan.start_s[k])
    words = {
        "duration": "does not end after it starts",
        "before-start": f"starts at {format_time(when)}, before its collective may",
        "before-dependency": f"starts at {format_time(when)}, before "
        f"{plan.describe(int(other)) if other >= 0 else ''}, on which it depends, has arrived",
    }[CODES[code]]
    return _about(plan, CODES[code], k, words, time_s=when)


def _crowded_link(plan: Plan, start_s: NDArray[Any], finish_s: NDArray[Any], hop: NDArray[Any]) -> Finding | None:
    """The first moment at which a link carries more than its bandwidth: a sweep over each link."""
    rows, ports, widths = as_links(plan)
    owners = np.concatenate((plan.route.owners, rows))
    links = np.concatenate((plan.route.values, plan.topology.link_count + ports))
    width = np.concatenate((plan.topology.bandwidth, widths))
    later = np.concatenate((hop, np.zeros(len(rows))))
    begin, end = start_s[owners] + later, finish_s[owners] + later
    # nothing is faster than its link here, but for the rounding of its two moments
    speed = np.minimum(plan.size_bytes[owners] / (finish_s - start_s)[owners], width[links])
    # what ends as another begins does not overlap it, up to rounding
    end = np.maximum(end - TOLERANCE * np.abs(end), begin)
    n = len(owners)
    link2, time2 = np.concatenate((links, links)), np.concatenate((begin, end))
    change = np.concatenate((speed, -speed))
    order = np.lexsort((change, time2, link2))
    load = np.cumsum(change[order])
    over = load > width[link2[order]] * (1 + 10 * TOLERANCE)
    if not over.any():
        return None
    hit = np.flatnonzero(over)
    worst = hit[np.argmin(time2[order][hit])]
    row = int(order[worst])
    link, k = int(link2[row]), int(owners[row % n])
    when = float(time2[row])
    over_link = link < plan.topology.link_count
    name = f"link {plan.topology.link_name(link)}" if over_link else f"its port of plane {_plane(plan, k)}"
    words = (
        f"shares {name} of {format_bandwidth(float(width[link]))} with more than it can carry at {format_time(when)}"
    )
    return _about(plan, "capacity", k, words, link=link if over_link else None, time_s=when)


def _reservations(plan: Plan) -> Finding | None:
    """Rates that no timing can make too much for a link (WAN paper, eqs. 8 and 9, lemma 3).

    Of a group, transfers that each wait for the one before, only one is ever active: it reserves
    on a link the most that any of them needs there. Without groups each transfer is its own.
    """
    if plan.sharing != "rates" or plan.rate is None:
        return None
    group = np.arange(plan.transfer_count) if plan.group is None else plan.group.astype(np.int64)
    order = np.argsort(group, kind="stable")
    follows = np.flatnonzero(group[order][1:] == group[order][:-1])
    later, earlier = order[1:][follows], order[:-1][follows]
    waits = plan.depends.owners * plan.transfer_count + plan.depends.values
    free = np.flatnonzero(~np.isin(later * plan.transfer_count + earlier, waits))
    if len(free):
        k, other = int(later[free[0]]), int(earlier[free[0]])
        return _about(plan, "group", k, f"does not wait for {plan.describe(other)}, which is before it in its group")
    owners, links = plan.route.owners, plan.route.values.astype(np.int64)
    # by link and group, the fastest transfer last
    by = np.lexsort((plan.rate[owners], group[owners], links))
    last = np.ones(len(by), dtype=np.bool_)
    last[:-1] = (links[by][1:] != links[by][:-1]) | (group[owners][by][1:] != group[owners][by][:-1])
    top = by[last]
    reserved = np.bincount(links[top], weights=plan.rate[owners[top]], minlength=plan.topology.link_count)
    over = np.flatnonzero(reserved > plan.topology.bandwidth * (1 + 10 * TOLERANCE))
    if not len(over):
        return None
    link = int(over[0])
    k = int(owners[top[links[top] == link][-1]])
    words = (
        f"shares link {plan.topology.link_name(link)} of {format_bandwidth(float(plan.topology.bandwidth[link]))}, "
        f"on which groups reserve {format_bandwidth(float(reserved[link]))}"
    )
    return _about(plan, "capacity", k, words, link=link)
