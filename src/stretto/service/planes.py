"""Which of a network's optical planes each job has: a plane serves one job.

Each job turns its planes by itself, and a turn darkens the whole plane, so two jobs on one plane would end each other's
circuits. A job takes the plane's time, not a part of its bandwidth, so k planes make its collectives about k times as
fast as one: the planes that each gets are those with which the sum of ``load / planes`` is least. Jobs keep the planes
that they have where their number allows it, and a job that is held keeps all of them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from ..model.collective import Collective
from ..model.topology import Topology


@dataclass(frozen=True)
class Applicant:
    """A job that needs planes.

    Attributes:
        may: the planes that join all ranks of one of its collectives.
        load: bytes of its collectives by weight.
        has: the planes for which its newest plan was made.
        keeps: whether it keeps exactly these, for it is held.
    """

    name: str
    may: frozenset[int]
    load: float
    has: tuple[int, ...] = ()
    keeps: bool = False

    @classmethod
    def of(
        cls, name: str, collectives: Sequence[Collective], topology: Topology, has: tuple[int, ...], keeps: bool
    ) -> Applicant:
        """A job by its collectives."""
        joins = [any(np.isin(c.ranks, plane.nodes).all() for c in collectives) for plane in topology.planes]
        load = sum(c.weight * c.size_bytes for c in collectives)
        return cls(name, frozenset(np.flatnonzero(joins).tolist()), load, has, keeps)


def deal(applicants: Sequence[Applicant], count: int) -> dict[str, tuple[int, ...]]:
    """The planes of each job; a job for which there is none is left out.

    Where no plane joins all ranks of a job, as where each is a line of a grid, it needs all planes, and has none while
    a held job keeps some.

    Args:
        applicants: those that come first have planes first.
        count: of the planes.
    """
    held = {job.name: job.has for job in applicants if job.keeps}
    if applicants and not applicants[0].may and not held:
        return {applicants[0].name: tuple(range(count))}
    others = [job for job in applicants if job.may and not job.keeps]
    free = frozenset().union(*(job.may for job in others)).difference(*held.values())
    return held | _deal_free(others, free)


def _deal_free(jobs: Sequence[Applicant], free: frozenset[int]) -> dict[str, tuple[int, ...]]:
    """Deal planes that no job keeps. How many each gets does not depend on what jobs have, so it stays as it is."""
    dealt = _dealt(jobs, free)
    served = [job for job in jobs if job.name in dealt]
    used = [plane for job in served for plane in job.has]
    fit = free.issuperset(used) and len({*used}) == len(used)
    fit = fit and all(job.may.issuperset(job.has) and len(job.has) == len(dealt[job.name]) for job in served)
    return {job.name: job.has for job in served} if fit else dealt


def _dealt(jobs: Sequence[Applicant], free: Set[int]) -> dict[str, tuple[int, ...]]:
    """One plane for each job, as far as there are planes, and each further one to the job that gains the most by it.

    Those that have planes may have to take others for it (Kuhn 1955). So whether a job can get one more depends on the
    numbers alone, and the greedy choice is the best one (Federgruen and Groenevelt 1986). Of several planes a job takes
    one that it has, then one that needs no change, then one that nobody else has.
    """
    user: dict[int, Applicant] = {}
    others_have = {job.name: {plane for other in jobs if other is not job for plane in other.has} for job in jobs}

    def give(job: Applicant, tried: set[int]) -> bool:
        def cost(plane: int) -> tuple[object, ...]:
            return plane not in job.has, plane in user, plane in others_have[job.name], plane

        for plane in sorted(free & job.may, key=cost):
            if plane not in tried and user.get(plane) is not job:
                tried.add(plane)
                if plane not in user or give(user[plane], tried):
                    user[plane] = job
                    return True
        return False

    def gain(job: Applicant) -> float:
        n = sum(each is job for each in user.values())
        return job.load / (n * (n + 1))

    admitted = [job for job in jobs if give(job, set())]
    takers = list(admitted)
    while takers:
        job = max(takers, key=gain)
        if not give(job, set()):
            takers.remove(job)
    return {job.name: tuple(sorted(plane for plane, each in user.items() if each is job)) for job in admitted}
