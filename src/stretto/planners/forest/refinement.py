"""Data cut into parts, finer and finer while that gains, and the forest chosen by coarse plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...model.collective import Collective
from ...model.plan import COPY, REDUCE, Plan
from ...model.topology import Topology
from ...schedule.best import best, completion_s
from ...schedule.cutting import is_too_fine, messages_cost, powers_up_to
from ...schedule.dispatch import NEAR as CLOSE_TO_BUSIEST
from ...schedule.dispatch import busiest_link_s
from ...schedule.effort import Budget
from .. import Request
from .filling import TRANSFER_COUNTS
from .forest import Forest
from .lowering import pipeline

Forests = Sequence[Forest]
"""One for each collective."""

SMALLEST_PART_BYTES = 1024
"""Mean size of a part, below which data is not cut."""

NEAR = 1.003
"""Completion over the busiest link's time that is near enough; and the ratio by which a finer plan must gain."""

LATE = 0.01
"""Where the finest parts would still leave a plan later than this over the busiest link's time,"""

EXTRA_PARTS = 2.0
"""there are this many times as many parts."""

FINER = 1.5
"""Ratio of two numbers of parts, below which the finer plan is not worth making."""

HOPED_GAIN = 2.0
"""Finer plans are hoped to be less late, by up to this factor, than lateness in proportion to the size of parts."""

FIRST_FINE_SHARE = 0.35
"""Share of the effort that the first fine plan may use, even if finding trees has left less."""

FILL_SHARE = 0.0055
"""Share of the effort, for each rank, that a last plan may use whose pipelines are to fill in time. Broadcast of 1 GB
on torus:32x32 then ends at 1.02 of the bound instead of 12.9 (benchmarks/large.py); with a quarter of it at 1.21."""

FILLED = 0.1
"""Lateness, as a share of the busiest link's time, with which pipelines fill in time."""

FILL_GAIN = 0.05
"""Share of the completion that the last plan must promise to gain."""

COMPARISON_SHARE = 0.1
"""Once comparing forests has used this much of the effort that is left, only the best forest is refined."""

DROPPED = 1.3
"""A forest is dropped if its plan is this many times as late as the best plan with as many transfers."""


@dataclass
class Refinement:
    """A search for the best forest and the best number of parts.

    Attributes:
        topology: the network in which the trees were sought.
        tables: the forests to choose from.
        reference: the forests by whose edges transfers are counted.
        parts: into how many parts a segment is cut on average; 0 to choose.
        budget: with costs for "cut" and "transfer".
        apart, good_enough, ways: what :func:`stretto.schedule.dispatch.dispatch` need not try any more.
    """

    request: Request
    topology: Topology
    tables: list[Forests]
    reference: Forests
    parts: int
    budget: Budget
    apart: bool | None = None
    good_enough: float = CLOSE_TO_BUSIEST
    ways: Mapping[str, int] | None = None

    @cached_property
    def least_s(self) -> float:
        """How long the busiest link of some collective is busy at least, by any of the tables, seconds."""
        collectives = self.request.workload.collectives
        return min(
            max(f.seconds_per_byte(self.topology) * c.size_bytes for f, c in zip(table, collectives, strict=True))
            for table in self.tables
        )

    def best(self) -> Plan:
        """The plan that ends first, by one of the tables."""
        tables = self.tables
        plans: list[Plan] = []
        counts, last = self.part_counts(tables), 0.0
        # what a plan takes grows with its parts; the search may end before the finest ones
        transfers = [count * self.edges(self.reference) for count in counts]
        while counts:
            count, *counts = counts
            made = sum(transfers[: len(plans)])
            self.request.tell(
                round(made), round(sum(transfers)), f"a plan of {count * self.edges(self.reference):,.0f} transfers"
            )
            if plans and count > (affordable := self.affordable_parts(plans[-1])):
                if affordable < FINER * last:
                    break
                count, counts = affordable, []
            spent = self.budget.spent
            cut = [self.cut(table, count) for table in tables]
            plan = best(cut)
            table = tables[cut.index(plan)]
            plans.append(plan)
            late, last = _lateness(plan), count
            if late <= NEAR - 1 or (len(plans) > 1 and not self.is_worth_refining(plans)):
                break
            # plans of few transfers say little: deep trees are late until they are filled
            if 2 * plan.transfer_count >= TRANSFER_COUNTS[0]:
                tables = [t for t, p in zip(tables, cut, strict=True) if _lateness(p) <= DROPPED * late]
            if self.budget.spent - spent > COMPARISON_SHARE * self.budget.left:
                tables = [table]
            # the better way for some thousands of transfers is the better way for many
            if 2 * plan.transfer_count >= TRANSFER_COUNTS[1]:
                tables, self.apart, self.good_enough = [table], _may_be_apart(plan), 1 + late
                self.ways = plan.meta["ways"]
                late *= _filling(plan)
                if late <= NEAR - 1:
                    break
                if not self.messages_cost:
                    counts = self.useful(counts, late * count)
        return best([*plans, *self.filled(table, plans[-1], last)])

    def filled(self, table: Forests, plan: Plan, count: float) -> list[Plan]:
        """The plan of a forest in as many parts as fill its pipelines in time; none where that gains little.

        Args:
            plan: that of the forest in ``count`` parts. Finer parts shorten its lateness in proportion to their size.
        """
        ranks = sum(len(c.ranks) for c in self.request.workload.collectives)
        steps = self.budget.steps * FILL_SHARE * ranks
        if self.parts or self.budget.stop.fired:
            return []
        busy_s, end_s, messages_s = busiest_link_s(plan), completion_s(plan), _messages_s(plan)
        late_s = max(end_s - busy_s, 0.0) * _filling(plan)
        finer = late_s / (FILLED * busy_s)
        if messages_s > 0:
            finer = min(finer, math.sqrt(late_s / messages_s))
        affordable = steps / self.budget.costs["transfer"] / len(plan.route.values)
        finer = min(finer, affordable, self.most_parts / count)
        if finer < FINER or late_s * (1 - 1 / finer) - messages_s * (finer - 1) < FILL_GAIN * end_s:
            return []
        self.apart, self.good_enough, self.ways = _may_be_apart(plan), end_s / busy_s, plan.meta["ways"]
        return [self.cut(table, finer * count)]

    def is_worth_refining(self, plans: list[Plan]) -> bool:
        """Whether finer parts may gain: the last ones did or, where messages cost, did not lose much."""
        if not self.messages_cost:
            return _gains(plans[-2], plans[-1])
        return not is_too_fine(plans)

    def part_counts(self, tables: list[Forests]) -> list[float]:
        """Into how many parts to cut a segment, on average, ascending."""
        if self.parts:
            return [float(self.parts)]
        counts = [max(min(n / self.edges(self.reference), self.most_parts), 1.0) for n in TRANSFER_COUNTS]
        if self.messages_cost:
            # few large messages may be the best, and plans of few messages are soon made
            fewest = min(map(self.edges, tables)) / self.edges(self.reference)
            counts = [*powers_up_to(counts[0], fewest), *counts]
        return [count for k, count in enumerate(counts) if not k or count > FINER * counts[k - 1]]

    def affordable_parts(self, coarser: Plan) -> float:
        """Into how many parts the budget allows to cut a segment, on average."""
        if self.budget.stop.fired:
            return 0.0
        links = self.budget.units("transfer")
        if coarser.transfer_count < TRANSFER_COUNTS[1]:
            links = max(links, FIRST_FINE_SHARE * self.budget.steps / self.budget.costs["transfer"])
        return links * coarser.transfer_count / len(coarser.route.values) / self.edges(self.reference)

    def cut(self, table: Forests, count: float) -> Plan:
        """A plan with as many transfers as ``count`` parts of the reference have."""
        if not self.parts:
            count = max(count * self.edges(self.reference) / self.edges(table), 1.0)
        return pipeline(
            self.request.topology, self.request.workload, table, count, self.budget,
            apart=self.apart, good_enough=self.good_enough, ways=self.ways,
        )  # fmt: skip

    @property
    def messages_cost(self) -> bool:
        return messages_cost(self.request.topology)

    def edges(self, table: Forests) -> int:
        """Transfers where no segment is cut."""
        topology, of_tree = self.request.topology, self.chunks_of_tree
        return sum(forest.transfer_count(topology) * n for forest, n in zip(table, of_tree, strict=True))

    @property
    def chunks_of_tree(self) -> list[int]:
        """How many chunks of each collective follow a tree: all of an AllReduce, of other kinds those of a piece."""
        return [
            c.chunk_count if c.traits.reduces_to_all else c.chunk_count // len(np.unique(c.chunk_piece))
            for c in self.request.workload.collectives
        ]

    @property
    def most_parts(self) -> float:
        """Into how many parts there are bytes to cut."""
        segments = sum(len(f.share) * n for f, n in zip(self.reference, self.chunks_of_tree, strict=True))
        return sum(c.size_bytes for c in self.request.workload.collectives) / (SMALLEST_PART_BYTES * segments)

    def useful(self, counts: list[float], late_parts: float) -> list[float]:
        """The counts worth trying, if lateness falls in proportion to the size of parts.

        Args:
            late_parts: lateness times the number of parts.
        """
        # a count that would still leave the plan too late is left out, if a finer one follows
        while len(counts) > 1 and late_parts > HOPED_GAIN * (NEAR - 1) * counts[0]:
            counts = counts[1:]
        if len(counts) == 1 and late_parts > LATE * counts[0]:
            counts = [min(EXTRA_PARTS * counts[0], max(self.most_parts, counts[0]))]
        return counts


def finest_part_bytes(c: Collective, transfers: float) -> float:
    """Bytes of a part where data is cut into so many transfers."""
    edges = (len(c.ranks) - 1) * (2 if c.traits.reduces_to_all else 1)
    return max(edges * c.size_bytes / transfers, float(SMALLEST_PART_BYTES))


def _gains(coarse: Plan, fine: Plan) -> bool:
    """Whether a plan with more transfers ends sooner by a factor of ``NEAR``; True for one with no more transfers."""
    return fine.transfer_count <= coarse.transfer_count or completion_s(coarse) > NEAR * completion_s(fine)


def _lateness(plan: Plan) -> float:
    """How much later a plan ends than its busiest link has to, as a share."""
    return completion_s(plan) / busiest_link_s(plan) - 1


def _messages_s(plan: Plan) -> float:
    """What messages add to the time of the busiest link, seconds."""
    free = replace(plan.topology, message_s=np.zeros(plan.topology.link_count))
    return busiest_link_s(plan) - busiest_link_s(replace(plan, topology=free))


def _may_be_apart(plan: Plan) -> bool:
    """Whether copies come after sums, and this leaves no link idle however finely data is cut."""
    halves_s = [busiest_link_s(plan, np.flatnonzero(plan.op == op)) for op in (REDUCE, COPY)]
    return bool(plan.meta["apart"]) and sum(halves_s) <= NEAR * busiest_link_s(plan)


def _filling(plan: Plan) -> float:
    """Of the time in which pipelines fill, the share that finer parts shorten; the rest is latency."""
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    sending_s = float((plan.finish_s - plan.start_s).mean())
    latency_s = float(plan.topology.latency_s[plan.route.values].sum()) / plan.transfer_count
    return sending_s / (sending_s + latency_s)
