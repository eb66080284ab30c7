"""Greedy matching, searched: every collective at small and middle sizes, where latency and order decide.

Chunks are matched to links event by event: the earliest arrival first, and of the chunks that are there by then the
rarest (:mod:`stretto.kernels.matching`; TACOS, Won et al., MICRO 2024, is the nearest relative). What ties leave open
is searched (:mod:`.search`). Sums are the same backwards in time. AllReduce is both, or an exchange (:mod:`.exchange`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from ...bounds import Bound, bounds, distances
from ...lower.alike import sums_alike
from ...model.collective import Collective, Workload
from ...model.errors import InputError
from ...model.kinds import EVERY_KIND
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.best import best, completion_s, preference_s
from ...schedule.cutting import BYTES_DECIDE, each_alone_s, messages_cost, powers_up_to, share_of_bytes
from ...schedule.dispatch import dispatch
from ...schedule.inversion import plan_in_phases
from ...schedule.moments import for_messages
from ...schedule.multicast import tree_work
from ...schedule.trees import divide
from ..registry import Candidate, Option, Request, register
from .costs import with_costs
from .exchange.circles import plan_circles
from .exchange.clusters import plan_clusters
from .exchange.crossings import PARTS, plan_crossings
from .exchange.hubs import MOST_RANKS, plan_hubs
from .exchange.products import plan_product
from .search import Search, deliveries_of_try, least_steps
from .tree_swap import plan_with_swapped_trees

MOST_DELIVERIES = 40_000
"""Deliveries of one try up to which chunks are cut further."""

LEAST_GAIN = 0.005
"""Share of the completion that one of the last two cuts must have gained for chunks to be cut further."""

QUICK_TRIES, QUICK_SHARE = 6, 20
"""Solutions that are tried with each number of parts, with one QUICK_SHARE-th of the search's work at most."""

MOST_LOOKS, QUICK_LOOKS_SHARE = 2e7, 60
"""Pipes that may be looked at to improve the order of deliveries where messages cost; of the first solutions with each
number of parts a QUICK_LOOKS_SHARE-th."""

LATENCY_COUNTS = 0.2
"""Share of the bound that the longest path's latency takes from which exchanges are tried before matchings."""

CROSSINGS_COUNT = 0.4
"""The same from which clusters also exchange sums of parts of themselves."""

HOPS_DECIDE = 0.5
"""The same from which the number of hops decides, so that walks and hubs are tried before clusters."""

NEAR = 1.02
"""Times the bound up to which an exchange is good enough where hops do not decide."""

NEAR_IN_HOPS = 1.05
"""The same where hops decide."""

CLUSTERS_ABOVE = 1.15
"""Times the bound: clusters that end later are tried beside other exchanges, and other exchanges beside clusters."""

SWAP_ABOVE = 1.05
"""Times the bound from which an AllReduce is also planned with other trees outward than inward."""

HOPEFUL = 1.1
"""Times the best completion so far up to which matchings (or matchings of finer parts) are searched further."""

HOPELESS = 1.4
"""Times the bound: an exchange that keeps some link busy for longer is dropped."""

LITTLE_GAIN_TIMES = 4.0
"""Times the steps of a finer matching that must be left if the last cut gained little and copies may overlap sums."""

CROSSING_TRANSFERS = 5 * PARTS
"""Transfers of an exchange by crossings for each rank."""

OPTIONS = (
    Option("parts", int, 0, "cut every chunk into this many parts; 0 chooses"),
    Option("work", int, 300_000, "how many deliveries the search may try"),
    Option("tries", int, 2_000, "how many solutions the search may try"),
)


def _unserved(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    if workload.chunk_reduces.any() and not topology.transit[topology.is_router].all():
        return "it sums over ways through switches and routers, and one of these may not be passed through"
    return None


@register(
    "greedy",
    collectives=EVERY_KIND,
    topologies="any without planes",
    paper="our own; greedy matching as in TACOS, MICRO 2024",
    options=OPTIONS,
    serves=_unserved,
    messages=True,
    cuts=True,
    auto=Candidate(least_steps, counts=True, leads=True, least_s=lambda r: each_alone_s(r.topology, r.workload)),
)
def greedy(request: Request, *, parts: int = 0, work: int = 300_000, tries: int = 2_000) -> Plan:
    """Chunks matched to links, earliest arrival first, and the order of what ties searched.

    Args:
        parts: into how many parts each chunk is cut, 0 to choose; the chunks of an AllReduce are first cut into a part
            for each rank.
        work, tries: deliveries and solutions that the search may try with the best number of parts.
    Returns:
        A timed plan.
    Raises:
        InputError: ``parts``, ``work`` or ``tries`` is negative. Infeasible: some rank has no path from a source.
    """
    for name, value in (("parts", parts), ("work", work), ("tries", tries)):
        if value < 0:
            raise InputError(f"{value} is below 0", f"option {name}")
    request = with_costs(request)
    _require_trees(request)
    search = Search(work, tries, request.seed, request.budget, MOST_LOOKS if messages_cost(request.topology) else 0.0)
    if parts:
        return _match(request, parts, search)
    return _Stages(request, search).plan()


def _require_trees(request: Request) -> None:
    """Refuse data that is not copied where growing a tree for each chunk takes too long.

    Raises:
        Unsupported: it does.
    """
    net, workload = request.topology, request.workload
    steps = tree_work(net, workload)
    if any(c.traits.copies or c.reduces for c in workload.collectives) or request.budget.allows(grow=steps):
        return
    if request.transfers > workload.chunk_count:  # some chunk must pass a node that does not want it
        request.budget.require(f"greedy's trees for {workload.title} on {net.name}", grow=steps)


@dataclass
class _Stages:
    """The stages of one request. A stage is skipped where the budget would not last for it, unless no plan is there."""

    request: Request
    search: Search  # with all of the work
    plans: list[Plan] = field(default_factory=list)  # of the other stages so far
    matchings: list[Plan] = field(default_factory=list)  # for each number of parts

    def plan(self) -> Plan:
        """The plan that ends first, of all stages that are worth trying."""
        if self.may_exchange and not self.bytes_decide:
            self.add(plan_circles(self.request))
        exchanges_first = self.may_exchange and self.latency_share >= LATENCY_COUNTS
        kept = self.steps_of_few_tries if self.bytes_decide else 0.0
        finer_pay = self.try_matchings(self.fewer_parts, kept)
        if exchanges_first:
            self.try_exchanges()
            if self.good_enough:
                return self.best
        if finer_pay:
            self.try_matchings(self.part_counts)
        if self.sums_for_all and (plan := self.hopeful_matching):
            self.try_overlap(plan)
            self.try_swapped_trees(plan)
        if self.may_exchange and not exchanges_first:
            self.try_exchanges()
            if self.good_enough:
                return self.best
        if plan := self.hopeful_matching:
            self.try_long_search(plan)
        return self.best

    def try_exchanges(self) -> None:
        """Exchanges of an AllReduce; where hops decide walks and hubs come first, else clusters do."""
        request, budget = self.request, self.request.budget
        if self.hops_decide:
            self.add(plan_product(request))
            if not self.later_than(NEAR_IN_HOPS):
                return
        clusters = None if self.hops_decide or budget.exhausted else plan_clusters(request)
        self.add(clusters)
        if self.hops_decide or clusters is None or self.later_than(CLUSTERS_ABOVE):
            ranks = len(request.workload.collectives[0].ranks)
            if self.latency_share >= CROSSINGS_COUNT and budget.allows(place=CROSSING_TRANSFERS * ranks):
                self.add(plan_crossings(request))
            self.add(plan_hubs(request, min(HOPELESS * self.bound_s, self.best_s)))
        if self.hops_decide and self.later_than(CLUSTERS_ABOVE) and not budget.exhausted:
            self.add(plan_clusters(request))

    def try_matchings(self, counts: Iterable[float], kept: float = 0.0) -> bool:
        """Matchings of these numbers of parts of each chunk as long as cutting pays, with few tries each.

        Args:
            kept: steps that are left for finer parts.
        Returns:
            Whether finer parts may still pay.
        """
        budget, others_s = self.request.budget, min([self.request.others_s, *map(completion_s, self.plans)])
        steps = self.steps_of_few_tries
        ends_s = [completion_s(plan) for plan in self.matchings]
        for count in counts:
            if not ends_s:
                steps *= min(count, 1.0)
            little = len(ends_s) > 1 and ends_s[-1] > ends_s[-2] * (1 - LEAST_GAIN)
            times = LITTLE_GAIN_TIMES if little and self.sums_for_all else 1.0
            if kept and times * steps + kept > budget.left:
                return True
            if (ends_s or self.plans) and times * steps > budget.left:
                return False
            self.request.tell(len(ends_s), len(ends_s) + 1, f"{count:g} parts")
            spent = budget.spent
            plan = _match(self.request, count, self.with_few_tries(QUICK_TRIES))
            steps = 2 * (budget.spent - spent)
            self.matchings.append(plan)
            ends_s.append(completion_s(plan))
            no_gain = len(ends_s) > 2 and min(ends_s[-2:]) > min(ends_s[:-2]) * (1 - LEAST_GAIN)
            if no_gain or ends_s[-1] <= self.request.enough_s:
                return False
            # where each rank has a part, cutting parts in two halves the time for which they wait for each other, only
            if count >= 1 and len(ends_s) > 1 and 2 * ends_s[-1] - ends_s[-2] > HOPEFUL * others_s:
                return False
        return True

    @property
    def fewer_parts(self) -> list[float]:
        """Where messages cost, fewer parts of sums that all want than there are ranks: 1, 2, 4, ... in all."""
        collectives = self.request.workload.collectives
        if not messages_cost(self.request.topology) or not all(c.traits.reduces_to_all for c in collectives):
            return []
        return powers_up_to(1.0, 1 / max(len(c.ranks) for c in collectives))

    @property
    def bytes_decide(self) -> bool:
        """Whether a message with a part for a rank costs less than its bytes, on half of the links at least."""
        return share_of_bytes(self.request.topology, self.request.workload) >= BYTES_DECIDE

    @property
    def part_counts(self) -> Iterator[float]:
        """1, 2, 4, ... parts of a chunk as far as bytes and work allow."""
        count = 1
        most = int(self.request.workload.chunk_bytes.max())
        while count == 1 or (self.least_work * count <= MOST_DELIVERIES and count <= most):
            yield count
            count *= 2

    @property
    def steps_of_few_tries(self) -> float:
        """About the steps of few tries with one part."""
        return self.request.budget.cost(match=QUICK_TRIES * self.least_work, lower=self.least_work)

    @cached_property
    def least_work(self) -> float:
        """The work of one try with one part."""
        return deliveries_of_try(self.request.topology, _cut(self.request.workload, 1))

    def try_overlap(self, plan: Plan) -> None:
        """The same transfers in an order in which copies need not wait for all sums."""
        if self.request.budget.allows(order=plan.transfer_count):
            position = np.zeros(plan.workload.chunk_count)
            self.add(dispatch(plan, position, self.request.budget, apart=False))

    def try_swapped_trees(self, plan: Plan) -> None:
        """Copies over other trees than sums, where a single AllReduce still ends much later than the bound."""
        if not self.may_exchange or not self.later_than(SWAP_ABOVE):
            return
        work, budget = deliveries_of_try(self.request.topology, plan.workload), self.request.budget
        if budget.allows(match=work, lower=2 * plan.transfer_count, order=plan.transfer_count):
            spread = self.with_few_tries(1)
            self.add(for_messages(
                self.request.topology, plan.workload, partial(plan_with_swapped_trees, spread=spread, budget=budget)
            ))  # fmt: skip

    def try_long_search(self, plan: Plan) -> None:
        """Matchings of as many parts, with all tries."""
        work = deliveries_of_try(self.request.topology, plan.workload)
        fits = work <= self.search.work and self.request.budget.allows(match=work, lower=plan.transfer_count)
        if fits and self.best_s > self.request.enough_s:
            longer = _match(self.request, plan.meta["parts"], self.search)
            self.add(longer)
            if self.sums_for_all and completion_s(longer) < completion_s(plan):
                self.try_overlap(longer)

    @property
    def best(self) -> Plan:
        return best([*self.matchings, *self.plans])

    @property
    def best_s(self) -> float:
        """The completion of the best plan so far, infinite while there is none."""
        return min(map(completion_s, [*self.plans, *self.matchings]), default=math.inf)

    @property
    def good_enough(self) -> bool:
        """Whether a plan is near the bound, or sooner than any way to one rank and from there to all."""
        near_s = (NEAR_IN_HOPS if self.hops_decide else NEAR) * self.bound_s
        return self.best_s <= max(
            near_s, _rooted_s(self.request.topology.delayed, self.request.workload.collectives[0])
        )

    @property
    def hopeful_matching(self) -> Plan | None:
        """The best matching, if there is one and no other plan is far ahead of it."""
        enough_s = HOPEFUL * min(self.best_s, self.request.others_s)
        return min((plan for plan in self.matchings if completion_s(plan) < enough_s), key=preference_s, default=None)

    @cached_property
    def sums_for_all(self) -> bool:
        """Whether several ranks want a sum: copies of it need not wait for all other sums."""
        workload = self.request.workload
        return bool((workload.chunk_reduces & (workload.chunk_wanted.lengths > 1)).any())

    @cached_property
    def bound_s(self) -> float:
        """The lower bound of a single AllReduce among few ranks; 0 for anything else, which cannot be an exchange."""
        first, *others = self.request.workload.collectives
        if others or not first.traits.reduces_to_all or len(first.ranks) > MOST_RANKS:
            return 0.0
        return self.certificates[0].seconds

    @cached_property
    def certificates(self) -> tuple[Bound, ...]:
        """The lower bounds of the request, the tightest first."""
        return bounds(self.request.topology, self.request.workload)

    @property
    def may_exchange(self) -> bool:
        return self.bound_s > 0

    @cached_property
    def latency_share(self) -> float:
        """The share of the bound that the latency of the longest path takes alone."""
        return next((b.seconds for b in self.certificates if b.kind == "latency path"), 0.0) / self.bound_s

    @property
    def hops_decide(self) -> bool:
        return self.may_exchange and self.latency_share >= HOPS_DECIDE

    def later_than(self, times: float) -> bool:
        """Whether every plan so far ends later than this many times the bound."""
        return self.best_s > times * self.bound_s

    def add(self, plan: Plan | None) -> None:
        if plan is not None and not (self.request.one_order and not sums_alike(plan)):
            self.plans.append(plan)

    def with_few_tries(self, tries: int) -> Search:
        search = self.search
        return replace(search, work=search.work // QUICK_SHARE, tries=tries, looks=search.looks / QUICK_LOOKS_SHARE)


def _rooted_s(topology: Topology, c: Collective) -> float:
    """The least latency from all ranks to one and from there to all: no plan that sums at one rank ends sooner."""
    far = distances(topology, 0.0)[np.ix_(c.ranks, c.ranks)]
    return float((far.max(axis=0) + far.max(axis=1)).min())


def _cut(workload: Workload, parts: float) -> Workload:
    """The workload with each chunk in ``parts`` parts; sums that all want in as many for each rank.

    Below 1 such sums are cut into fewer parts than there are ranks, and other chunks are not cut.
    """
    counts = [max(1, round(parts * (len(c.ranks) if c.traits.reduces_to_all else 1))) for c in workload.collectives]
    if max(counts) == 1:
        return workload
    return Workload(tuple(divide(c, count)[0] for c, count in zip(workload.collectives, counts, strict=True)))


def _match(request: Request, parts: float, search: Search) -> Plan:
    """The plan of the best matching with this number of parts of each chunk."""
    plan = for_messages(
        request.topology, _cut(request.workload, parts), partial(plan_in_phases, spread=search, mirrored=True)
    )
    request.budget.spend(lower=plan.transfer_count)
    plan.meta["parts"] = parts
    return plan
