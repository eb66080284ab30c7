"""Greedy matching, searched: every collective at small and middle sizes, where latency and order decide.

Chunks are matched to links event by event, the earliest arrival first and the rarest chunk of those that are there
(:mod:`stretto.kernels.matching`; TACOS, Won et al., MICRO 2024, is the nearest relative). What ties leave open is
searched (:mod:`.greedy_search`). Sums are the same backwards in time; AllReduce is both, or an exchange
(:mod:`.exchange`). How finely chunks are cut is tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...bounds import Bound, bounds, distances
from ...model.collective import Collective, Workload
from ...model.errors import InputError
from ...model.kinds import KINDS
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.budget import Pace
from ...schedule.dispatch import completion, dispatch, justify
from ...schedule.inversion import plan_in_phases
from ...schedule.trees import divide
from .. import Candidate, Option, Progress, per_delivery, register
from .crossed import crossed
from .exchange.clusters import in_clusters
from .exchange.crossings import PARTS, in_crossings
from .exchange.hubs import MOST_RANKS, exchanged
from .exchange.products import in_product
from .search import Search, effort

MOST_WORK = 40_000
"""Chunks are not cut further where one try would take more work, unless it does so uncut."""

LEAST_GAIN = 0.005
"""Cutting goes on as long as one of the last two steps brought the completion so much nearer."""

QUICK_TRIES = 6
"""How many solutions are tried with each number of parts."""

EXCHANGES = 1
"""How many shapes of exchanges of each kind are cut finer for an AllReduce."""

NEAR = 1.02
"""An exchange that ends after so many times the bound is good enough where hops do not decide."""

ASK_ABOVE, HOPS_DECIDE = 1.05, 0.5
"""Where the longest way alone takes such a share of the bound, hops decide: an exchange that ends after so many times
the bound is good enough."""

MEET_FIRST = 0.2
"""Where the longest way alone takes less than such a share of the bound, exchanges are tried after matchings."""

CLUSTERS_ABOVE = 1.15
"""Where hops decide, an AllReduce by clusters is tried if exchanges end later than so many times the bound; else it is
tried first, and others if it ends later."""

CROSS_WHERE = 0.4
"""Sums of parts of clusters cross where the longest way alone takes such a share of the bound."""

CROSSING = 5 * PARTS
"""How many transfers that takes, for each rank."""

CROSS_ABOVE = 1.05
"""Other trees outward than inward are tried where an AllReduce ends later than so many times the bound."""

HOPEFUL = 1.1
"""What ends later than so many times what an exchange takes, or would with finer chunks, is not searched further."""

HOPELESS = 1.4
"""Where some link would be busy for so many times the bound an exchange is not looked at further."""

LITTLE_USE, OTHER_TREES = 4.0, 1.6
"""So many times what matching takes for each delivery is left for it where the last step gained little and copies may
yet overlap sums, and where it is asked for other trees outward than inward."""

UNIT_S = {"cut": 1e-5, "match": 3e-6, "grow": 3e-8, "dispatch": 2e-6, "message": 7e-6}
"""What these take, seconds of CPU, before it has been measured: matchings for each delivery, one try of one, a step of
growing trees, a transfer that is put in order, and one of an exchange with its making."""

OPTIONS = (
    Option("parts", int, 0, "cut every chunk into so many more; 0 chooses"),
    Option("work", int, 300_000, "how many deliveries the search may try"),
    Option("tries", int, 2_000, "how many solutions it may try"),
)


def _unserved(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    if workload.chunk_reduces.any() and not topology.transit[~topology.is_accelerator].all():
        return "it sums over ways through switches and routers, and one of these may not be passed through"
    return None


@register(
    "greedy",
    collectives=(*KINDS, "multicast"),
    topologies="any without planes",
    paper="our own; greedy matching as in TACOS, MICRO 2024",
    options=OPTIONS,
    serves=_unserved,
    cuts=True,
    auto=Candidate(60, per_delivery(10), counts=True, good_for=("latency",)),
)
def greedy(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    parts: int = 0,
    work: int = 300_000,
    tries: int = 2_000,
) -> Plan:
    """Chunks matched to links, earliest arrival first, and the order of what ties searched.

    Args:
        seed: of the search.
        time_limit_s: of CPU time, after which the best so far is returned; an exchange that has begun is finished.
            The search counts its work, so that without a limit (or within it) equal requests give equal plans.
        parts: into how many parts each chunk is cut, 0 to choose. An AllReduce's is cut for each rank before.
        work, tries: how many deliveries are tried in all, and how many solutions, with the best number of parts.
    Returns:
        A timed plan.
    Raises:
        InputError: ``parts``, ``work`` or ``tries`` is negative. Infeasible: some rank has no path from a source.
    """
    for name, value in (("parts", parts), ("work", work), ("tries", tries)):
        if value < 0:
            raise InputError(f"{value} is below 0", f"--option {name}")
    search = Search(work, tries, seed, Pace.within(time_limit_s, UNIT_S))
    if parts:
        return _planned(topology, workload, parts, search)
    return _Stages(topology, workload, search, progress).best()


@dataclass
class _Stages:
    """One request, stage by stage: none is begun that would not end in time, but one that gives a plan.

    Attributes:
        search: of the best number of parts.
        plans: what was found.
    """

    topology: Topology
    workload: Workload
    search: Search
    progress: Progress | None
    plans: list[Plan] = field(default_factory=list)

    def best(self) -> Plan:
        """The plan that ends first."""
        first = self.bound_s > 0 and self.far >= MEET_FIRST
        if first and self.meets():
            return self.found
        cut = self.cut()
        if cut is not None and self.sums_for_all and _ends(cut) < HOPEFUL * self.found_s:
            self.overlaps(cut)
            self.crosses(cut)
        if self.bound_s and not first and self.meets():
            return self.found
        if cut is not None and _ends(cut) < HOPEFUL * self.found_s:
            self.searches(cut)
        count = self.found.transfer_count
        if 0 < count <= self.search.work and self.pace.allows(dispatch=count):
            return justify(self.found)
        return self.found

    @property
    def pace(self) -> Pace:
        return self.search.pace

    @property
    def found(self) -> Plan:
        return min(self.plans, key=_ends)

    @property
    def found_s(self) -> float:
        return min(map(_ends, self.plans), default=math.inf)

    @cached_property
    def sums_for_all(self) -> bool:
        """Whether there are sums that several want: copies need not wait for all of them."""
        return bool((self.workload.chunk_reduces & (self.workload.chunk_wanted.lengths > 1)).any())

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """Lower bounds of a single AllReduce among few ranks; none for all else, which cannot be an exchange."""
        c = self.workload.collectives[0]
        alone = len(self.workload.collectives) == 1 and c.kind == "allreduce" and len(c.ranks) <= MOST_RANKS
        return bounds(self.topology, self.workload) if alone else ()

    @property
    def bound_s(self) -> float:
        """The largest lower bound, seconds; 0 where none was asked for."""
        return self.bounds[0].seconds if self.bounds else 0.0

    @property
    def far(self) -> float:
        """The share of the bound that the longest way alone takes."""
        return next((b.seconds for b in self.bounds if b.kind == "latency path"), 0.0) / self.bound_s

    @property
    def hops_decide(self) -> bool:
        return self.bound_s > 0 and self.far >= HOPS_DECIDE

    def late(self, share: float) -> bool:
        """Whether there is nothing yet that ends within so many times the bound."""
        return self.found_s > share * self.bound_s

    def add(self, plan: Plan | None) -> None:
        if plan is not None:
            self.plans.append(plan)

    def meets(self) -> bool:
        """By exchange; whether nothing else need be tried: the bound is near, or it is sooner than any way to one rank
        and from there to all."""
        topology, workload, pace, c = self.topology, self.workload, self.pace, self.workload.collectives[0]
        if self.hops_decide:
            self.add(in_product(topology, workload))
            if not self.late(ASK_ABOVE):
                return True
        swapped = None if self.hops_decide or pace.late else in_clusters(topology, workload, pace)
        self.add(swapped)
        meets = self.hops_decide or swapped is None or self.late(CLUSTERS_ABOVE)
        if meets and self.far >= CROSS_WHERE and pace.allows(message=CROSSING * len(c.ranks)):
            self.add(in_crossings(topology, workload))
        if meets:
            before_s = min(HOPELESS * self.bound_s, self.found_s)
            self.add(exchanged(topology, workload, EXCHANGES, self.search.seed, before_s, pace))
        if self.hops_decide and self.late(CLUSTERS_ABOVE) and not pace.late:
            self.add(in_clusters(topology, workload, pace))
        near = ASK_ABOVE if self.hops_decide else NEAR
        return self.found_s <= max(near * self.bound_s, _rooted_s(topology, c))

    def cut(self) -> Plan | None:
        """By matching, with as many parts as pay; at most some tries each. None where something else must do."""
        tried: list[tuple[float, Plan]] = []
        met_s, least = self.found_s, effort(self.topology, _finer(self.workload, 1))
        for count in _counts(least, self.workload):
            little = len(tried) > 1 and tried[-1][0] > tried[-2][0] * (1 - LEAST_GAIN)
            times = LITTLE_USE if little and self.sums_for_all else 1.0
            if (tried or self.plans) and not self.pace.allows(cut=times * least * count):
                break
            if self.progress is not None:
                self.progress(len(tried), len(tried) + 1, f"{count} parts")
            with self.pace.measured("cut", least * count):
                plan = _planned(self.topology, self.workload, count, self.quick(QUICK_TRIES))
            tried.append((_ends(plan), plan))
            last = [t[0] for t in tried]
            if len(last) > 2 and min(last[-2:]) > min(last[:-2]) * (1 - LEAST_GAIN):
                break
            # what chunks wait for each other is halved with them
            if len(last) > 1 and 2 * last[-1] - last[-2] > HOPEFUL * met_s:
                break
        if not tried:
            return None
        best = min(tried, key=lambda t: t[0])[1]
        self.plans.append(best)
        return best

    def quick(self, tries: int) -> Search:
        """So few tries, with little of the work."""
        return replace(self.search, work=self.search.work // 20, tries=tries)

    def overlaps(self, plan: Plan) -> None:
        """Copies that do not wait for all sums."""
        if self.pace.allows(dispatch=plan.transfer_count):
            with self.pace.measured("dispatch", plan.transfer_count):
                turn = np.zeros(plan.workload.chunk_count)
                self.plans.append(dispatch(plan, turn, apart=False))

    def crosses(self, plan: Plan) -> None:
        """Copies over other trees than sums, where a single AllReduce may end much sooner than it does."""
        work, late = effort(self.topology, plan.workload), bool(self.bound_s) and self.late(CROSS_ABOVE)
        if late and self.pace.allows(cut=OTHER_TREES * work, dispatch=plan.transfer_count):
            self.plans.append(crossed(self.topology, plan.workload, self.quick(1), until_s=self.pace.until_s))

    def searches(self, plan: Plan) -> None:
        """The same number of parts, with all tries."""
        work = effort(self.topology, plan.workload)
        if 2 * work <= self.search.work and self.pace.allows(cut=work / 2):
            self.plans.append(_planned(self.topology, self.workload, plan.meta["parts"], self.search))
            if self.sums_for_all and _ends(self.plans[-1]) < _ends(plan):
                self.overlaps(self.plans[-1])


def _rooted_s(topology: Topology, c: Collective) -> float:
    """Seconds before which no sum comes to one rank and from there to all."""
    far = distances(topology, 0.0)[np.ix_(c.ranks, c.ranks)]
    return float((far.max(axis=0) + far.max(axis=1)).min())


def _ends(plan: Plan) -> float:
    return completion(plan) if plan.transfer_count else 0.0


def _counts(least: float, workload: Workload) -> Iterator[int]:
    """1, 2, 4, ... as far as work, at least so much, and bytes allow."""
    count = 1
    while count == 1 or (least * count <= MOST_WORK and count <= int(workload.chunk_bytes.max())):
        yield count
        count *= 2


def _finer(workload: Workload, parts: int) -> Workload:
    """Every chunk cut, what everyone wants summed into a part a rank before."""
    counts = [parts * (len(c.ranks) if c.kind == "allreduce" else 1) for c in workload.collectives]
    if max(counts) == 1:
        return workload
    return Workload(tuple(divide(c, count)[0] for c, count in zip(workload.collectives, counts, strict=True)))


def _planned(topology: Topology, workload: Workload, parts: int, search: Search) -> Plan:
    plan = plan_in_phases(topology, _finer(workload, parts), search, mirrored=True)
    plan.meta["parts"] = parts
    return plan
