"""Plans in which the dimensions of a grid work at the same time, in few messages.

The data is cut into slices, and each step of an algorithm into waves (:mod:`.waves`). What a step sends of one wave of
one slice is a job: a message from each rank, or one for each part of what it sends, where parts go different ways
(:mod:`.ways`). More jobs overlap better, and more parts take less time, but both cost more messages. So several
algorithms, numbers of waves, of parts and of slices, and shares of slices are compared by list schedules of jobs, of
which there are few, however many ranks there are (:mod:`.job_loads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..model.arrays import Float64, Int64, Ragged
from ..model.chunks import cut, weighted
from ..model.collective import Collective, Workload
from ..model.messages import messages_of, numbered
from ..model.plan import Plan, make_plan
from ..model.topology import Topology
from ..simulate import simulate
from .best import best as best_plan
from .best import chunk_s, surcharge
from .cutting import GIVE_UP
from .effort import Budget
from .in_steps import timed_in_steps
from .job_loads import SLICES, SPLITS, Candidate, JobLoads, Loads, lanes_of
from .moments import ends, settled
from .scheduling_problem import COSTS, Limits, route_numbers
from .waves import Jobs
from .ways import Ways

MOST_TRANSFERS = 100_000
"""Transfers of a plan in slices, at most."""

MOST_JOBS = 300
"""Jobs of a list schedule in several slices, at most."""

FEWEST_BYTES = 8
"""Bytes of a block of a slice, at least, if slices are equal: so the smallest of unlike ones has a byte, too."""

REFINED = 2
"""Algorithms whose slices are given other shares: those of which a schedule is preferred."""

STARTS = 3
"""List schedules that are improved of the jobs that end first; of others only the best one is."""

ROUNDS = 3
"""Rounds of justification of a list schedule, at most."""


@dataclass(frozen=True)
class Overlap:
    """Jobs of slices, and when they start."""

    case: JobLoads
    jobs: Jobs
    loads: Loads
    split: int  # into how many parts each message is divided
    shares: Float64  # float64[slices], their sum is 1
    start_s: Float64  # float64[slices * jobs]
    seconds: Float64  # float64[slices * jobs]
    end_s: float

    @cached_property
    def preference_s(self) -> float:
        """What schedules are compared by: their end, how many messages there are and what hosts do for further chunks
        of these (as ``auto`` compares its last plans)."""
        case, lowered, parts = self.case, self.case.waves.lowered, self.split * len(self.shares)
        _, first = np.unique(self.jobs.of * case.pairs + case.pair, return_index=True)
        times = case.alone[SPLITS.index(self.split), self.lanes].sum(axis=0)[case.pair[first]]
        further = np.zeros(case.topology.node_count)  # chunks of a message besides its first one
        for end in (lowered.src, lowered.dst):
            further += parts * np.bincount(end, minlength=len(further))
            further -= np.bincount(end[first], times, len(further))
        return self.end_s * surcharge(int(times.sum())) + int(further.max()) * chunk_s(case.topology)

    @property
    def lanes(self) -> Int64:
        """int64[slices * split], the lane of each part of a slice."""
        return lanes_of(len(self.shares), self.split, len(self.case.lanes))

    @property
    def summary(self) -> str:
        count = len(self.shares)
        summary = f"{self.case.summary}, in {self.loads.jobs} jobs of {count} slice{'s' if count > 1 else ''}"
        return summary + f" over {self.split} ways each" * (self.split > 1)

    def plan(self, workload: Workload) -> Plan:
        """The plan: in ready-order, or with times where these end earlier. Its groups are the jobs."""
        case, lowered, parts = self.case, self.case.waves.lowered, self.split * len(self.shares)
        jobs, rows = len(self.start_s) // len(self.shares), len(lowered.chunk)
        turn = np.argsort(self.start_s, kind="stable")
        part, row = np.divmod(np.arange(parts * rows), rows)
        group = _places(turn)[part // self.split * jobs + self.jobs.of[row]]
        routes = Ragged.concatenate(case.lanes)
        at = self.lanes[part] * case.pairs + case.pair[row]
        way = route_numbers(routes)[at] if self.split > 1 else 0 * at  # parts that go the same way are one message
        order = np.lexsort((way, group))
        place = _places(order)
        part, row, at, way, group = (each[order] for each in (part, row, at, way, group))
        depends = lowered.depends.take(row)
        depends = depends.with_values(place[part[depends.owners] * rows + depends.values])
        src, dst = lowered.src[row], lowered.dst[row]
        (c,) = workload.collectives
        shares = np.repeat(self.shares / self.split, self.split)
        plan = make_plan(
            case.topology, Workload((_in_slices(c, case.blocks, shares),)), "ready-order",
            chunk=(lowered.chunk[row] * parts + part).astype(np.int32), src=src, dst=Ragged.single(dst),
            op=lowered.op[row], route=routes.take(at), depends=depends, group=group.astype(np.int32),
            message=numbered(group, src, dst, way), forwards=None if case.forwards is None else case.forwards[row],
        )  # fmt: skip
        return best_plan([self._timed(plan, turn[group]), timed_in_steps(plan), plan])

    def _timed(self, plan: Plan, job: Int64) -> Plan:
        """The plan where all messages of a job start with it, or as soon as links have room.

        Args:
            job: int64[transfers].
        """
        messages = messages_of(plan)
        rows = np.arange(plan.transfer_count)
        sent, first, of = (plan, rows, rows) if messages is None else (messages.merged, messages.first, messages.of)
        seconds = self.seconds[job[first]]
        start_s = simulate(settled(sent, self.start_s[job[first]], seconds)).start_s
        return replace(plan, sharing="timed", start_s=start_s[of], finish_s=ends(start_s, seconds)[of])


def overlapped(
    topology: Topology, c: Collective, candidates: Iterable[Candidate], ways: Ways, within_s: float
) -> Overlap | None:
    """The jobs that are preferred; None if none end by ``within_s``."""
    least: dict[tuple[float, str], Candidate] = {}
    for candidate in candidates:  # of several that look alike the first one
        least.setdefault((candidate.least_s(topology, c, ways), candidate.algorithm.summary), candidate)
    found: list[Overlap] = []
    end_s = within_s
    for (least_s, _), candidate in sorted(least.items(), key=lambda each: each[0]):
        if least_s >= end_s:
            break
        case, waves = JobLoads.of(topology, candidate, c, ways), 1
        while waves == 1 or waves < 2 * case.waves.count:
            jobs, loads = case.joined(min(waves, case.waves.count))
            for split in loads.splits:
                for made in _in_more_slices(case, jobs, loads, split, end_s):
                    if made.end_s < within_s:
                        found.append(made)
                        end_s = min(end_s, made.end_s)
            waves *= 2
    best: dict[int, Overlap] = {}  # of each algorithm
    for each in sorted(found, key=lambda each: each.preference_s):
        best.setdefault(id(each.case), each)
    refined = map(_refined, [*best.values()][:REFINED])
    return min(refined, key=lambda each: each.preference_s, default=None)


def _in_more_slices(case: JobLoads, jobs: Jobs, loads: Loads, split: int, within_s: float) -> Iterator[Overlap]:
    """Jobs in more and more slices: until they end later, or all numbers if slices go other ways."""
    last_s = np.inf
    for slices in _slices(case, loads, split):
        if loads.busiest_s(slices, split) >= within_s:
            if len(case.lanes) == 1:
                break
            continue  # further slices go other ways
        made = _scheduled(case, jobs, loads, split, np.full(slices, 1 / slices), within_s, 1)
        yield made
        if made.end_s > last_s and len(case.lanes) == 1:
            break
        last_s, within_s = made.end_s, min(made.end_s, within_s)


def _refined(found: Overlap) -> Overlap:
    """What is preferred of other shares of slices."""
    case, slices = found.case, len(found.shares)
    jobs, loads = found.jobs, found.loads
    for count in _slices(case, loads, found.split):
        if slices <= count <= 2 * slices:
            for shares in _shares(count):
                made = _scheduled(case, jobs, loads, found.split, shares / shares.sum(), found.end_s, STARTS)
                found = min(found, made, key=lambda each: each.preference_s)
    return found


def _slices(case: JobLoads, loads: Loads, split: int) -> Iterator[int]:
    """Numbers of slices that are not too many."""
    for count in SLICES:
        parts = count * split
        few = parts * len(case.pair) <= MOST_TRANSFERS and count * loads.jobs <= MOST_JOBS
        if parts == 1 or (few and parts * FEWEST_BYTES <= case.block_bytes):
            yield count


def _shares(slices: int) -> Iterator[Float64]:
    """Shares of slices: pipelines fill sooner if the first slice is smaller, and empty sooner if the last one is."""
    place, equal = np.arange(slices), np.ones(slices)
    yield equal
    if slices > 1:
        yield np.where(place == 0, 0.5, equal)
    if slices > 2:
        yield np.where(np.isin(place, (0, slices - 1)), 0.5, equal)
    if slices > 3:
        yield np.minimum(place + 1.0, slices - place)


def _scheduled(
    case: JobLoads, jobs: Jobs, loads: Loads, split: int, shares: Float64, within_s: float, most: int
) -> Overlap:
    """The shortest of some list schedules.

    Args:
        within_s: schedules that end much later are not improved, if any other is.
        most: schedules that are improved, at most.
    """
    problem, budget = loads.problem(shares, split), Budget().with_costs(COSTS)
    turn, free = np.repeat(np.arange(len(shares)), loads.jobs), np.zeros(len(shares) * loads.jobs)
    starts = [problem.by_chain(turn, backward) for backward in (False, True)]
    if len(shares) > 1:
        starts.append(problem.by_urgency(turn / len(shares), free, budget))
    starts = sorted((each for each in starts if problem.end_s(each) < GIVE_UP * within_s), key=problem.end_s) or starts
    improved = [problem.justified(each, free, 0.0, Limits(ROUNDS, budget)) for each in starts[:most]]
    start_s = min(improved, key=problem.end_s)
    return Overlap(case, jobs, loads, split, shares, start_s, problem.seconds, problem.end_s(start_s))


def _in_slices(c: Collective, blocks: int, shares: Float64) -> Collective:
    """The collective with every block of a piece in slices."""
    even = cut(c, blocks * len(shares))
    if np.ptp(shares) == 0:
        return even
    # even chunks differ by a byte, which a weight would multiply
    unlike = weighted(even, np.tile(shares, even.chunk_count // len(shares)) / even.chunk_bytes)
    assert unlike is not None, "there are enough bytes for every slice"
    return unlike


def _places(order: Int64) -> Int64:
    """The place of each value of a permutation."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places
