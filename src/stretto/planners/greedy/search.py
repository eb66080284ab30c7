"""The search of the greedy planner: restarts, and large neighbourhoods of the best.

A solution is how ties are broken: for each chunk the salt from which its preferences for pipes are drawn, for each
pipe its turn, and from when on it is used (a slow link that takes a chunk at once may take what a fast one then lacks).
A neighbour forgets those of some chunks, or of the pipes into some nodes; all that followed from them is routed anew
(random keys: Bean, ORSA Journal on Computing 1994). Where chunks must pass through nodes that do not want them, trees
are grown instead (:mod:`stretto.schedule.kernel_multicast`), and the order of chunks is searched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...kernels import matching as matching_kernel
from ...model.arrays import Ragged
from ...model.collective import Workload
from ...model.topology import SWITCH, Topology
from ...schedule.budget import Pace
from ...schedule.clusters import SLOWER, Clusters, clusters_of
from ...schedule.inversion import Transfers
from ...schedule.multicast import grow_implicitly, task_order, tree_work
from ...schedule.pipes import Network, build_network
from .translated import translated

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SPREADS = (1.0, 0.0, 3.0, 5.0)
"""How many copies more than the rarest a preferred chunk may have, in turn."""

RESTARTS = 0.4
"""The part of the tries that start anew."""

STRAIGHT = 4
"""How many matchings over links alone are tried in one call each."""

LATE = 8
"""Among solutions that end together, the one whose arrivals to this power sum to less is nearer to a better one."""

TICK = 2.0**-20
"""Moments that are closer than this part of the shortest transfer are the same."""

TWICE = 4.0
"""A try may take so many times the work that is given where patience is tried both ways."""

LOOKED, LOOKED_FAR = 16, 192
"""Among how many chunks a pipe chooses, and where what a cluster has is in between."""

GROWING, GROWN = 0.02, 1_000.0
"""The work of a step of growing trees, in deliveries, and what a try takes beside its steps."""

DONE = 1 + 1e-9
"""A solution that ends after so many times what no other can beat is not searched further."""

Score = tuple[float, float]


def effort(topology: Topology, workload: Workload) -> float:
    """The work of one try, in deliveries; those over links that many pipes share are looked at more often."""
    deliveries = float(len(workload.chunk_wanted.values))
    if workload.chunk_reduces.any():
        sums = np.where(workload.chunk_reduces, workload.chunk_holders.lengths, 0)
        deliveries = float(np.maximum(workload.chunk_wanted.lengths, sums).sum())
    if len(topology.accelerators) == topology.node_count:
        return deliveries
    beyond = int((~topology.is_accelerator[topology.src]).sum())
    entries = int((~topology.is_accelerator[topology.dst]).sum())
    shared = len(topology.accelerators) * beyond / max(topology.link_count, 1)
    return deliveries * (1.0 + shared / 8 * (entries > 0))


@dataclass(frozen=True)
class Search:
    """Spreads chunks, as :func:`.inversion.plan_in_phases` asks for it.

    Attributes:
        work: how many deliveries may be tried,
        tries: and how many solutions at most.
        seed: of the random choices.
        pace: when to be content with what there is; "match" counts the deliveries of tries.
    """

    work: int
    tries: int
    seed: int
    pace: Pace = field(default_factory=Pace)

    def __call__(self, topology: Topology, workload: Workload, through_routers: bool) -> Transfers:
        alike = translated(topology, workload, self.work, self.seed)
        if alike is not None:
            return alike.transfers()
        straight = self._straight(topology, workload)
        if straight is not None:
            return straight
        rng = np.random.default_rng(self.seed)
        matching, found = self.matched(topology, workload, rng)
        if found is not None:
            return matching.transfers(found)
        return _grown(topology, workload, through_routers, self.work, self.tries, rng, self.pace)

    def _straight(self, topology: Topology, workload: Workload) -> Transfers | None:
        """One of a few matchings over links alone, if it ends as early as any could; only tried before many others."""
        if len(topology.accelerators) < topology.node_count:
            return None
        one_try = effort(topology, workload)
        kernel_steps = one_try
        for number in range(min(STRAIGHT, int(self.work // (2 * one_try)))):
            what, when = at_speed(matching_kernel.at_once, kernel_steps)(
                topology.src, topology.dst, topology.latency_s, topology.bandwidth,
                *topology.out_links, *topology.in_links, *workload.chunk_holders, *workload.chunk_wanted,
                workload.chunk_bytes, workload.chunk_start_s,
                (self.seed + number) & 0x7FFFFFFF, SCARCITIES[0], SLOWER, LOOKED, TICK, DONE,
            )  # fmt: skip
            if what.shape[1]:
                chunk, src, dst, link, parent = what
                return Transfers(chunk, src, dst, Ragged.single(link), parent, *when)
        return None

    def matched(self, topology: Topology, workload: Workload, rng: np.random.Generator) -> tuple[Matching, Any]:
        """The matching problem, and what its best solution sends, None if it has none."""
        matching = Matching.of(topology, workload, self.work)
        least = len(PATIENCE) if len(matching.clusters.of) > 1 else 1
        quick = matching.effort > (TWICE if least > 1 else 1.0) * self.work
        tries = int(min(max(self.work / matching.effort, 1 if quick else least), max(self.tries, least)))
        return matching, _search(matching, tries, max(least, RESTARTS * tries), quick, rng, self.pace)


Keys = tuple[Int64, Float64, Float64, float, float, bool, bool]
"""Salts of chunks, turns of pipes, from when on each is used, spread, scarcity, whether rarity goes before turns,
patience."""

HELD_SHARES = (0.0, 0.5, 0.0, 1.0)
"""Which share of the slow pipes is held back, in turn."""

SCARCITIES = (3.0, 0.0, 0.0)
"""For how many copies a pipe counts that could bring a chunk to the same node, in turn."""

PATIENCE = (True, False, False, True)
"""Whether pipes wait rather than bring what the cluster at their end has, in turn."""

SLOW = 1.5
"""Pipes that take so many times as long as the quickest one may be held back."""


@dataclass(frozen=True)
class Matching:
    """One matching problem, ready for the kernel.

    Attributes:
        came: int32[nodes * chunks], what each node knows of each chunk at first.
        tick: moments less than this apart, seconds, are the same.
        effort: of one try, in deliveries.
        least_s: when it can end at the earliest.
    """

    workload: Workload
    network: Network
    came: NDArray[np.int32]
    links: int
    tick: float
    effort: float
    clusters: Clusters
    least_s: float

    @classmethod
    def of(cls, topology: Topology, workload: Workload, work: float) -> Matching:
        holders, wanted = workload.chunk_holders, workload.chunk_wanted
        network = build_network(topology, float(workload.chunk_bytes.mean()), True, work)
        least, one_try = float(workload.chunk_bytes.min()), effort(topology, workload)
        kernel_steps = one_try
        came, lacks = at_speed(matching_kernel.known, kernel_steps)(topology.node_count, *holders, *wanted)
        least_s = at_speed(matching_kernel.least_finish, kernel_steps)(
            *topology.in_links, topology.latency_s, least / topology.bandwidth, lacks
        )
        shortest = float((network.latency_s + least * network.per_byte).min())
        return cls(
            workload, network, came, topology.link_count, shortest * TICK, one_try,
            clusters_of(network, topology.node_count, topology.bandwidth),
            float(workload.chunk_start_s.min()) + least_s,
        )  # fmt: skip

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """What the kernel takes before what each try may change."""
        network, workload = self.network, self.workload
        holders = workload.chunk_holders
        return (
            network.src, network.dst, network.hops.offsets, network.hops.values.astype(np.int64), network.late_s,
            network.latency_s, network.per_byte, *network.out, self.links,
            workload.chunk_bytes.astype(np.float64), workload.chunk_start_s,
            holders.offsets, holders.values.astype(np.int64),
        )  # fmt: skip

    def run(self, keys: Keys, work: float) -> tuple[Any, int]:
        """What is sent, and how many deliveries could not be made."""
        found: tuple[Any, int] = at_speed(matching_kernel.match, work)(
            *self.arguments,
            self.came.copy(),
            self.clusters.of,
            self.clusters.level,
            *keys,
            LOOKED if len(self.clusters.of) == 1 else LOOKED_FAR,
            self.tick,
        )  # type: ignore[call-arg]
        return found

    @cached_property
    def shared(self) -> bool:
        """Whether some pipes lead over several links, of which others may use one."""
        return len(self.network.hops.values) > len(self.network.src)

    @cached_property
    def took_s(self) -> Float64:
        """float64[pipes], how long each takes for the smallest chunk."""
        took: Float64 = self.network.latency_s + self.workload.chunk_bytes.min() * self.network.per_byte
        return took

    @cached_property
    def slow(self) -> NDArray[np.bool_]:
        """bool[pipes], which of them may be held back."""
        slow: NDArray[np.bool_] = self.took_s > SLOW * self.took_s.min()
        return slow

    def held_back(self, pipes: Int64, share: float, rng: np.random.Generator) -> Float64:
        """float64[pipes given], from when on each is used: some of the slow ones after one or two quick transfers."""
        if share == 0.0 or not (slow := self.slow[pipes]).any():
            return np.zeros(len(pipes))
        times = rng.integers(1, 3) if share == 1.0 else rng.integers(1, 3, len(pipes))
        return np.where(slow & (rng.random(len(pipes)) < share), self.took_s.min() * times, 0.0)

    def transfers(self, sent: Any) -> Transfers:
        """What was sent, in the order of its starts."""
        pipe, chunk, parent, start, last = sent
        network = self.network
        order = np.lexsort((last, start))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        pipe, parent, chunk = pipe[order], parent[order], chunk[order].astype(np.int64)
        return Transfers(
            chunk=chunk,
            src=network.src[pipe],
            dst=network.dst[pipe],
            route=network.hops.take(pipe) if self.shared else Ragged.single(network.hops.values[pipe]),
            parent=np.where(parent >= 0, rank[parent], -1),
            start_s=start[order],
            seconds=self.workload.chunk_bytes[chunk] * network.per_byte[pipe],
            arrival_s=last[order],
        )


def _search(matching: Matching, tries: int, restarts: float, quick: bool, rng: np.random.Generator, pace: Pace) -> Any:
    """What the best solution sends, None if some node cannot be reached through those that want the chunks.

    The first ones, so many as are asked for, are restarts. The ``quick`` one has no preferences.
    """
    chunks, pipes = matching.workload.chunk_count, len(matching.network.src)
    work = matching.effort * tries * 10
    best: tuple[Score, Keys, Any] | None = None
    for k in range(tries):
        if best is not None and not pace.allows(match=matching.effort):
            break
        keys: Keys
        if quick:
            keys = np.zeros(chunks, dtype=np.int64), rng.random(pipes), np.zeros(pipes), 0.0, SCARCITIES[0], False, True
        elif best is None or k < restarts:
            hold = matching.held_back(np.arange(pipes), HELD_SHARES[k % len(HELD_SHARES)], rng)
            keys = (
                rng.integers(0, 1 << 30, chunks),
                rng.random(pipes),
                hold,
                SPREADS[k // len(HELD_SHARES) % len(SPREADS)],
                SCARCITIES[k % len(SCARCITIES)],
                matching.shared and k % 2 == 1,
                PATIENCE[k % len(PATIENCE)],
            )
        else:
            keys = _neighbour(matching, best[1], rng)
        with pace.measured("match", matching.effort):
            sent, missing = matching.run(keys, work)
        if missing:
            return None
        if sent[-1].max(initial=0.0) <= matching.least_s * DONE:
            return sent
        score = _score(sent[-1])
        if best is None or score <= best[0]:
            best = score, keys, sent
    assert best is not None, "there is at least one try"
    return best[2]


def _score(last: Float64) -> Score:
    finish = float(last.max(initial=0.0))
    return finish, float(((last / finish) ** LATE).mean()) if finish > 0 else 0.0


def _neighbour(matching: Matching, keys: Keys, rng: np.random.Generator) -> Keys:
    """Some chunks, or the pipes into some nodes, choose anew."""
    salt, turn, hold, spread = keys[0].copy(), keys[1].copy(), keys[2].copy(), keys[3]
    what = rng.integers(0, 3)
    if what != 1:
        some = rng.integers(0, len(salt), rng.integers(1, max(2, len(salt) // 3)))
        salt[some] = rng.integers(0, 1 << 30, len(some))
    if what != 0:
        a, b = rng.integers(0, len(matching.network.out[0]) - 1, 2)
        into = np.flatnonzero((matching.network.dst == a) | (matching.network.dst == b))
        turn[into] = rng.random(len(into))
        hold[into] = matching.held_back(into, HELD_SHARES[rng.integers(0, len(HELD_SHARES))], rng)
    if rng.random() < 0.1:
        spread = SPREADS[rng.integers(0, len(SPREADS))]
    return salt, turn, hold, spread, *keys[4:]


def _grown(
    topology: Topology,
    workload: Workload,
    through_routers: bool,
    work: float,
    most: int,
    rng: np.random.Generator,
    pace: Pace,
) -> Transfers:
    """Trees, chunk by chunk in the best order found."""
    passed = np.where(topology.is_router & through_routers, SWITCH, topology.kind).astype(np.int8)
    net = replace(topology, kind=passed, replicates=np.zeros_like(topology.replicates))
    steps = float(tree_work(topology, workload))
    tries = int(np.clip(work / (GROWN + GROWING * steps), 1, most))
    best: tuple[Score, Int64, Any] | None = None
    for k in range(tries):
        if best is not None and not pace.allows(grow=steps):
            break
        order = task_order(workload, "interleaved") if best is None else _later_first(best, workload, rng)
        with pace.measured("grow", steps):
            grown, finish = grow_implicitly(net, workload, order, None, 0.0, (0.0, 2.0)[k % 2], steps * tries)
        score = finish, float((_arrivals(net, grown) ** LATE).mean())
        if best is None or score <= best[0]:
            best = score, order, grown
    assert best is not None
    return _as_transfers(net, workload, best[2])


def _later_first(best: tuple[Score, Int64, Any], workload: Workload, rng: np.random.Generator) -> Int64:
    """The order with some of the chunks that came last, and some others, moved to the front."""
    (finish, _), order, grown = best
    (chunk, *_), (start, seconds), _, _ = grown
    last = np.zeros(workload.chunk_count)
    np.maximum.at(last, chunk, start + seconds)
    weight = (last / max(finish, 1e-300)) ** LATE + 0.01
    moved = rng.choice(len(order), size=int(rng.integers(1, max(2, len(order) // 4))), p=weight / weight.sum())
    front = np.isin(order, moved)
    return np.concatenate((order[front], order[~front]))


def _arrivals(topology: Topology, grown: Any) -> Float64:
    """float64[passes], relative to the last."""
    _, (start, seconds), _, (hop_pass, hop) = grown
    arrives = start + seconds + np.bincount(hop_pass, weights=topology.latency_s[hop], minlength=len(start))
    relative: Float64 = arrives / max(float(arrives.max(initial=0.0)), 1e-300)
    return relative


def _as_transfers(topology: Topology, workload: Workload, grown: Any) -> Transfers:
    (chunk, src, parent), (start, _), (hit_pass, hit), (hop_pass, hop) = grown
    n = len(chunk)
    order = np.argsort(start, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    dst = np.empty(n, dtype=np.int64)
    dst[hit_pass] = hit
    offsets = np.concatenate(([0], np.cumsum(np.bincount(hop_pass, minlength=n)))).astype(np.int64)
    route = Ragged(offsets, hop[np.argsort(hop_pass, kind="stable")].astype(np.int32)).take(order)
    parent, chunk = parent[order], chunk[order].astype(np.int64)
    seconds = workload.chunk_bytes[chunk] * (1.0 / topology.route_bandwidth(route))
    start_s = start[order]
    return Transfers(
        chunk=chunk,
        src=src[order].astype(np.int64),
        dst=dst[order],
        route=route,
        parent=np.where(parent >= 0, rank[parent], -1),
        start_s=start_s,
        seconds=seconds,
        arrival_s=start_s + seconds + topology.route_latency_s(route),
    )
