"""Which of a network's optical planes each job has: a plane serves one job.

Each job turns its planes by itself, and a turn darkens the whole plane, so two jobs on one plane would end each other's
circuits. A job takes the plane's time, not a part of its bandwidth, so k planes make its collectives about k times as
fast as one: the planes that each gets are those with which the sum of ``load / planes`` is least. Jobs keep the planes
that they have where their number allows it, and a job that is held keeps all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
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
    return {name: tuple(sorted(planes)) for name, planes in (held | _deal_free(others, free)).items()}


def _deal_free(jobs: Sequence[Applicant], free: frozenset[int]) -> dict[str, tuple[int, ...]]:
    """Deal planes that no job keeps. How many each gets does not depend on what jobs have, so it stays as it is."""
    first = _one_each(jobs, free, prefers=False)
    jobs = [job for job in jobs if job.name in first]
    dealt = _more(jobs, first, free, prefers=False)
    numbers = _lengths(dealt)
    own = {job.name: job.has for job in jobs}
    used = [plane for planes in own.values() for plane in planes]
    fit = all(job.may.issuperset(job.has) for job in jobs) and free.issuperset(used) and len({*used}) == len(used)
    if fit and _lengths(own) == numbers:
        return own
    nearer = _more(jobs, _one_each(jobs, free, prefers=True), free, prefers=True)
    return nearer if _lengths(nearer) == numbers else dealt


def _lengths(dealt: Mapping[str, Sequence[int]]) -> dict[str, int]:
    return {name: len(planes) for name, planes in dealt.items()}


def _one_each(jobs: Sequence[Applicant], free: Set[int], prefers: bool) -> dict[str, list[int]]:
    """One plane for each job, as far as there are planes: those before it may have to take another one (Kuhn 1955).

    Args:
        prefers: as of :func:`_more`.
    """
    user: dict[int, Applicant] = {}

    def give(job: Applicant, tried: set[int]) -> bool:
        for plane in sorted(free & job.may, key=lambda plane: (prefers and plane not in job.has, plane in user, plane)):
            if plane not in tried:
                tried.add(plane)
                if plane not in user or give(user[plane], tried):
                    user[plane] = job
                    return True
        return False

    for job in jobs:
        give(job, set())
    return {job.name: [plane] for plane, job in user.items()}


def _more(
    jobs: Sequence[Applicant], first: Mapping[str, Sequence[int]], free: Set[int], prefers: bool
) -> dict[str, tuple[int, ...]]:
    """Deal what is left, each plane to the job that gains the most by it.

    Args:
        prefers: whether jobs take planes that they have before others.
    """
    dealt = {name: list(planes) for name, planes in first.items()}
    left = set(free).difference(*dealt.values())
    others_have = {job.name: {plane for other in jobs if other is not job for plane in other.has} for job in jobs}
    while takers := [job for job in jobs if left & job.may]:
        gain = {job.name: job.load / (n * (n + 1)) for job in takers for n in [len(dealt[job.name])]}
        job = max(takers, key=lambda job: gain[job.name])
        plane = min(
            left & job.may,
            key=lambda plane: (plane not in job.has, plane in others_have[job.name], plane) if prefers else plane,
        )
        dealt[job.name].append(plane)
        left.remove(plane)
    return {name: tuple(planes) for name, planes in dealt.items()}
