"""The search of the greedy planner: matchings by random keys (Bean, ORSA Journal on Computing 1994).

A solution is how ties are broken: for each chunk the salt from which its preferences for pipes are drawn, and for each
pipe its turn and the time from which on it is used (a slow link that takes a chunk at once may take what a fast one
would then lack). Each try draws all keys anew. Where chunks must pass through nodes that do not want them, trees are
grown instead (:mod:`stretto.schedule.kernel_multicast`), and the order of chunks is searched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...kernels import at_speed
from ...kernels import matching as matching_kernel
from ...kernels.chunks import Chunks, Keys
from ...model.arrays import Bool, Float64, Int32, Ragged
from ...model.collective import Workload
from ...model.topology import Topology
from ...schedule.clusters import SLOWER, Clusters, clusters_of
from ...schedule.effort import Budget
from ...schedule.inversion import Transfers
from ...schedule.pipes import Network, build_network
from ..registry import Request
from .costs import COSTS
from .growth import LATE, Score, grow_trees
from .orders import improve_order
from .translations import DONE, TICK, WINDOW, match_translations

SPREADS = (1.0, 0.0, 3.0, 5.0)
"""How many more copies than the rarest chunk a preferred chunk may have, in turn."""

DIRECT_TRIES = 4
"""Matchings over links alone that are tried in one kernel call each."""

DIRECT_STEPS = 50.0
"""Steps of the kernel's inner loops for each delivery in one of these, about."""

BOTH_PATIENCES = 4.0
"""Times the given work up to which one try may take more where patience is tried both ways."""

WINDOW_OF_CLUSTERS = 192
"""Chunks among which a pipe chooses the rarest where clusters hold some of them back; elsewhere WINDOW."""

HELD_SHARES = (0.0, 0.5, 0.0, 1.0)
"""Share of the slow pipes that is held back, in turn."""

SCARCITIES = (3.0, 0.0, 0.0)
"""For how many copies a pipe counts that could bring a chunk to the same node, in turn."""

PATIENCE = (True, False, False, True)
"""Whether pipes wait rather than bring what the cluster at their end has, in turn."""

WORK_BY_PIPES = 0.2
"""Work of a delivery, in deliveries over links alone, for each pipe through switches that enters its node, at most: on
rails of 128 to 208 GPUs, with 22 such pipes, a delivery takes 2.5 to 4 us."""

WORK_BY_USERS = 0.3
"""Work of a delivery of data that is not copied, in deliveries over links alone, for each pipe that shares a link with
its pipe: such data crosses each shared link often, and each time all pipes over that link are looked at again. AllToAll
among 288 GPUs on rails with a spine, where 2,078 pipes share a link, looks at 1,460 pipes for each delivery."""

STEPS_A_DELIVERY = 10.0
"""Steps for each delivery with which the planner is worth asking."""

LOOKS_SHARE = 0.4
"""Share of the steps that are left which one order may take to be improved."""

PIPE_WORK = 1.0
"""Work of a try for each pipe, in deliveries: through switches there are more pipes than a few chunks need."""

MANY_PIPES = 1_000_000
"""Pipes beyond which a try counts as a delivery for each of them at least: among 16,384 GPUs on rails there are 34
million, and 14 s of CPU go into finding which links they share."""

SLOW = 1.5
"""Times the seconds of the quickest pipe from which a pipe may be held back."""


def least_steps(request: Request) -> float:
    """The steps of few tries; where data is not copied and many pipes share links, at least those of one try."""
    least = STEPS_A_DELIVERY * request.deliveries
    if any(c.traits.copies or c.reduces for c in request.workload.collectives):
        return least
    pipes = PIPE_WORK * _pipes_through_switches(request.topology)
    if pipes > MANY_PIPES:  # to find who shares them takes as long
        return max(least, pipes)
    return max(least, deliveries_of_try(request.topology, request.workload))


def deliveries_of_try(topology: Topology, workload: Workload) -> float:
    """The work of one try, in deliveries; deliveries over links that many pipes share are looked at more often."""
    deliveries = float(len(workload.chunk_wanted.values))
    if workload.chunk_reduces.any():
        sums = np.where(workload.chunk_reduces, workload.chunk_holders.lengths, 0)
        deliveries = float(np.maximum(workload.chunk_wanted.lengths, sums).sum())
    accelerators = len(topology.accelerators)
    if accelerators == topology.node_count:
        return deliveries
    beyond = int((~topology.is_accelerator[topology.src]).sum())
    entries = int((~topology.is_accelerator[topology.dst]).sum())
    shared = accelerators * beyond / max(topology.link_count, 1) / 8 * (entries > 0)
    looks = min(shared, WORK_BY_PIPES * _pipes_through_switches(topology) / accelerators)
    if entries and not any(c.traits.copies or c.reduces for c in workload.collectives):
        looks = max(looks, WORK_BY_USERS * _users_of_pipes(topology, workload))
    return deliveries * (1.0 + looks)


def _users_of_pipes(topology: Topology, workload: Workload) -> float:
    """How many pipes share a link with a pipe, the busiest of its links, in the mean over pipes."""
    network = build_network(topology, float(workload.chunk_bytes.mean()), True, float(topology.link_count))
    users = np.bincount(network.hops.values, minlength=topology.link_count)
    return float(network.hops.reduced(np.maximum, users[network.hops.values]).mean())


def _pipes_through_switches(topology: Topology) -> float:
    """Pairs of accelerators that switches and routers join, counted for each set of switches that are joined."""
    passed = ~topology.is_accelerator
    between = passed[topology.src] & passed[topology.dst]
    src, dst = (v[between].astype(np.int64) for v in (topology.src, topology.dst))
    group = at_speed(matching_kernel.components, float(len(src)))(src, dst, topology.node_count)
    enters, leaves = passed[topology.dst] & ~between, passed[topology.src] & ~between
    into = np.bincount(group[topology.dst[enters]], minlength=topology.node_count)
    out = np.bincount(group[topology.src[leaves]], minlength=topology.node_count)
    return float((into * np.maximum(out - 1.0, 0.0)).sum())


@dataclass(frozen=True)
class Search:
    """Spreads chunks, as :func:`.inversion.plan_in_phases` asks for it.

    Attributes:
        work, tries: deliveries that may be tried, and solutions at most.
        seed: of the random choices.
        budget: with :data:`.costs.COSTS`; tries after the first end with it.
        looks: pipes that may be looked at to improve the order of the best solution (:mod:`.orders`); 0 leaves it.
    """

    work: int
    tries: int
    seed: int
    budget: Budget = field(default_factory=lambda: Budget(costs=COSTS))
    looks: float = 0.0

    def __call__(self, topology: Topology, workload: Workload, through_routers: bool) -> Transfers:
        sent = self._spread(topology, workload, through_routers)
        if not self.looks or not len(sent.chunk) or (not through_routers and topology.is_router.any()):
            return sent
        network = build_network(topology, float(workload.chunk_bytes.mean()), True, self.work)
        return improve_order(network, workload, sent, self.looks, self.seed, self.budget.share(LOOKS_SHARE))

    def _spread(self, topology: Topology, workload: Workload, through_routers: bool) -> Transfers:
        alike = match_translations(topology, workload, self.work, self.seed)
        if alike is not None:
            self.budget.spend(match=len(alike.chunk) // topology.node_count)
            return alike
        direct = self._direct(topology, workload)
        if direct is not None:
            return direct
        rng = np.random.default_rng(self.seed)
        matching, solution = self.best_matching(topology, workload, rng)
        if solution is not None:
            return matching.transfers(solution)
        work = self.work / 4 if self.looks else self.work  # the rest is for the order of the best trees
        return grow_trees(topology, workload, through_routers, work, self.tries, rng, self.budget)

    def _direct(self, topology: Topology, workload: Workload) -> Transfers | None:
        """One of a few matchings over links alone, if it ends as early as any could; tried only before many others."""
        if len(topology.accelerators) < topology.node_count:
            return None
        one_try = deliveries_of_try(topology, workload)
        for number in range(min(DIRECT_TRIES, int(self.work // (2 * one_try)))):
            what, when = at_speed(matching_kernel.at_once, DIRECT_STEPS * one_try)(
                topology.src, topology.dst, topology.latency_s, topology.bandwidth,
                *topology.out_links, *topology.in_links, *workload.chunk_holders, *workload.chunk_wanted,
                workload.chunk_bytes, workload.chunk_start_s,
                (self.seed + number) & 0x7FFFFFFF, SCARCITIES[0], SLOWER, WINDOW, TICK, DONE,
            )  # fmt: skip
            if what.shape[1]:
                chunk, src, dst, link, parent = what
                self.budget.spend(match=(number + 1) * one_try)
                return Transfers(chunk, src, dst, Ragged.single(link), parent, *when)
        return None

    def best_matching(self, topology: Topology, workload: Workload, rng: np.random.Generator) -> tuple[Matching, Any]:
        """The matching problem, and what its best solution sends.

        That is None if chunks must pass through nodes that do not want them.
        """
        matching = Matching.of(topology, workload, self.work)
        least = len(PATIENCE) if len(matching.clusters.of) > 1 else 1
        plain = matching.work > (BOTH_PATIENCES if least > 1 else 1.0) * self.work
        tries = int(min(max(self.work / matching.work, 1 if plain else least), max(self.tries, least)))
        best: tuple[Score, Any] | None = None
        for k in range(tries):
            if best is not None and not self.budget.allows(match=matching.work):
                break
            keys = matching.plain_keys(rng) if plain else matching.keys(k, rng)
            sent, missing = matching.run(keys, matching.work * tries * 10)
            self.budget.spend(match=matching.work)
            if missing:
                return matching, None
            score = _score(sent[-1])
            if score[0] <= matching.least_s * DONE:
                return matching, sent
            if best is None or score <= best[0]:
                best = score, sent
        assert best is not None, "there is at least one try"
        return matching, best[1]


def _score(arrival_s: Float64) -> Score:
    finish = float(arrival_s.max(initial=0.0))
    return finish, float(((arrival_s / finish) ** LATE).mean()) if finish > 0 else 0.0


@dataclass(frozen=True)
class Matching:
    """One matching problem, ready for the kernel."""

    workload: Workload
    network: Network
    came: Int32  # int32[nodes * chunks], what each node has and wants of each chunk at first, as the kernel writes it
    link_count: int
    tick: float  # moments closer than this, seconds, are the same
    work: float  # of one try, in deliveries
    clusters: Clusters
    least_s: float  # no solution ends before

    @classmethod
    def of(cls, topology: Topology, workload: Workload, work: float) -> Matching:
        """The problem of a workload; ``work``, in deliveries, is what all tries may take."""
        holders, wanted = workload.chunk_holders, workload.chunk_wanted
        network = build_network(topology, float(workload.chunk_bytes.mean()), True, work)
        least_bytes, one_try = float(workload.chunk_bytes.min()), deliveries_of_try(topology, workload)
        came, lacks = at_speed(matching_kernel.first_states, one_try)(topology.node_count, *holders, *wanted)
        least_s = at_speed(matching_kernel.least_finish, one_try)(
            *topology.in_links, topology.latency_s, least_bytes / topology.bandwidth, lacks
        )
        shortest = float((network.latency_s + least_bytes * network.per_byte).min())
        return cls(
            workload, network, came, topology.link_count, shortest * TICK, one_try + PIPE_WORK * len(network.src),
            clusters_of(network, topology.node_count, topology.bandwidth),
            float(workload.chunk_start_s.min()) + least_s,
        )  # fmt: skip

    @cached_property
    def chunks(self) -> Chunks:
        """The chunks as the kernel takes them."""
        workload, holders = self.workload, self.workload.chunk_holders
        size_bytes = workload.chunk_bytes.astype(np.float64)
        return Chunks(size_bytes, workload.chunk_start_s, holders.offsets, holders.values.astype(np.int64))

    def run(self, keys: Keys, work: float) -> tuple[Any, int]:
        """What is sent, and how many deliveries could not be made."""
        window = WINDOW if len(self.clusters.of) == 1 else WINDOW_OF_CLUSTERS
        return at_speed(matching_kernel.match, work)(
            self.network.columns, self.link_count, self.chunks, self.came.copy(), self.clusters.of,
            self.clusters.level, keys, window, self.tick,
        )  # fmt: skip

    def plain_keys(self, rng: np.random.Generator) -> Keys:
        """Keys without preferences, for problems of which not even one try fits the work."""
        chunks, pipes = self.workload.chunk_count, len(self.network.src)
        salt, turn = np.zeros(chunks, dtype=np.int64), rng.random(pipes)
        # where links are shared the rarest goes first: AllGather on rails of 64 to 208 GPUs ends 3 to 26 % sooner
        return Keys(salt, turn, np.zeros(pipes), 0.0, SCARCITIES[0], self.shares_links, True)

    def keys(self, k: int, rng: np.random.Generator) -> Keys:
        """Keys for the k-th try."""
        hold_s = self.hold_back(HELD_SHARES[k % len(HELD_SHARES)], rng)
        return Keys(
            rng.integers(0, 1 << 30, self.workload.chunk_count),
            rng.random(len(hold_s)),
            hold_s,
            SPREADS[k // len(HELD_SHARES) % len(SPREADS)],
            SCARCITIES[k % len(SCARCITIES)],
            self.shares_links and k % 2 == 1,
            PATIENCE[k % len(PATIENCE)],
        )

    def hold_back(self, share: float, rng: np.random.Generator) -> Float64:
        """float64[pipes], from when on each is used: some slow ones after one or two of the quickest ones."""
        if share == 0.0 or not self.some_are_slow:
            return np.zeros(len(self.took_s))
        times = rng.integers(1, 3) if share == 1.0 else rng.integers(1, 3, len(self.took_s))
        return np.where(self.slow & (rng.random(len(self.took_s)) < share), self.took_s.min() * times, 0.0)

    @cached_property
    def slow(self) -> Bool:
        """bool[pipes], those that take much longer than the quickest one."""
        return np.asarray(self.took_s > SLOW * self.took_s.min())

    @cached_property
    def some_are_slow(self) -> bool:
        return bool(self.slow.any())

    @cached_property
    def shares_links(self) -> bool:
        """Whether some pipes lead over several links, which others may use too."""
        return len(self.network.hops.values) > len(self.network.src)

    @cached_property
    def took_s(self) -> Float64:
        """float64[pipes], seconds that the smallest chunk takes over each."""
        took: Float64 = self.network.latency_s + self.workload.chunk_bytes.min() * self.network.per_byte
        return took

    def transfers(self, sent: Any) -> Transfers:
        """What was sent, in the order of its starts."""
        pipe, chunk, parent, start_s, arrival_s = sent
        network = self.network
        route = network.hops.take(pipe) if self.shares_links else Ragged.single(network.hops.values[pipe])
        seconds = self.workload.chunk_bytes[chunk] * network.per_byte[pipe]
        transfers = Transfers(
            chunk.astype(np.int64), network.src[pipe], network.dst[pipe], route, parent, start_s, seconds, arrival_s
        )
        return transfers.in_order(np.lexsort((arrival_s, start_s)))
