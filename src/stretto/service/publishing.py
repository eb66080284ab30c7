"""Decides whether a new plan of a network's jobs replaces those that they have, and publishes it at once for all.

A job that is new, has changed, or whose network an operator has changed gets the new plan. Where nothing but telemetry
or more effort has led to it, the plans that jobs have are weighed against it on the network as it is now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row

from ..model.part_plans import part_of
from ..model.plan import Plan
from ..model.timeline import Timeline
from ..model.units import format_time
from ..simulate import simulate
from .database import Database
from .holding import held_jobs, propose, proposed_plans, withdraw
from .jobs import all_jobs
from .keeping import Keep, forget_versions
from .networks import Missing, network
from .published import (
    Stored,
    decide,
    find_plan,
    keep_plan,
    last_decision,
    note_outcome,
    plan_row,
    planes_of,
    publish,
    published_plan,
)
from .requests import digest_of, job_document, together_document
from .states import State, Task
from .together import job_part, plan_beside, plan_together
from .weighing import mean_s

MOST_NAMED = 5
"""Jobs that a reason names."""

MOST_USED = 2_000
"""Links whose use by a plan is kept."""


@dataclass(frozen=True, eq=False)
class Whole:
    """The plan of all jobs of a network that have one.

    Attributes:
        numbers: by job the numbers of its collectives in the plan.
        alone_s: float64[collectives], what each takes alone.
        bounds_s: what no plan of each alone can beat; None for those that were planned before bounds were kept.
    """

    plan: Plan
    digest: str
    request: dict[str, Any]
    numbers: dict[str, list[int]]
    alone_s: list[float]
    bounds_s: list[float | None]

    @cached_property
    def timeline(self) -> Timeline:
        """The course of the plan."""
        return simulate(self.plan)

    @property
    def link_use(self) -> list[tuple[str, str, float]]:
        """The share of each used link's bandwidth that the plan uses from its beginning to its end, the largest first.

        Of more than :data:`MOST_USED` links there are only the first.
        """
        net, use = self.plan.topology, self.timeline.link_use
        used = [int(i) for i in np.argsort(-use, kind="stable")[:MOST_USED] if use[i] > 0]
        return [(net.names[net.src[i]], net.names[net.dst[i]], round(float(use[i]), 4)) for i in used]


class Planned(NamedTuple):
    """The plan of one task alone: the digest of its request, the plan if it is still kept, and its bound, seconds."""

    digest: str
    plan: Plan | None
    bound_s: float | None


def plan_of_tasks(state: State, tasks: Sequence[Task], alone: Sequence[Planned], effort: str) -> Whole:
    """The plan of all tasks together.

    Args:
        alone: the plans of the tasks alone, all of which are kept.
    """
    plans = [each.plan for each in alone if each.plan is not None]
    digests = [each.digest for each in alone]
    collectives = [task.collective for task in tasks]
    numbers: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        numbers.setdefault(task.job, []).append(number)
    request = together_document(state.topology_digest, collectives, digests, effort, numbers)
    alone_s: dict[str, float] = {}
    for digest, plan in zip(digests, plans, strict=True):
        if digest not in alone_s:
            alone_s[digest] = float(simulate(plan).completions_s[0])
    if state.planes:
        plan = plan_beside(state.topology, collectives, plans, effort, numbers, state.planes)
    else:
        plan = plan_together(state.topology, collectives, plans, effort)
    times_s = [alone_s[digest] for digest in digests]
    return Whole(plan, digest_of(request), request, numbers, times_s, [each.bound_s for each in alone])


@dataclass(frozen=True)
class Verdict:
    """Whether a plan is published, and why; the mean completions that were weighed, if they were."""

    publishes: bool
    why: str
    before_s: float | None = None
    after_s: float | None = None


class Publishing:
    """Publishes plans in the term of a leader; see :class:`.planner.Planner` for its arguments."""

    def __init__(
        self, database: Database, term: int, least_gain: float, tell: Callable[[dict[str, Any]], None],
        clock: Callable[[], float], versions: int = Keep.versions,
    ) -> None:  # fmt: skip
        self._database, self._term, self._least_gain, self._versions = database, term, least_gain, versions
        self._tell, self._clock = tell, clock

    def decide(self, state: State, whole: Whole | None, refused: Mapping[str, str], effort: str, cpu_s: float) -> bool:
        """Decide on the plan of a network's jobs, and publish it or keep why not, in one transaction.

        Args:
            whole: None if no job has a plan.
            refused: by job why it has none.
            cpu_s: what putting it together took.
        Returns:
            False if the network has changed meanwhile; nothing has happened then.
        """
        name = state.network.name
        with self._database.read() as connection:
            verdict = self._verdict(connection, state, whole, effort)
            parts = self._parts(connection, state, whole) if whole is not None and verdict.publishes else {}
        stored = Stored.of(whole.plan) if whole is not None and verdict.publishes else None
        versions: dict[str, int] = {}
        proposed: dict[str, int] = {}
        with self._database.write(self._term) as connection:
            try:
                if network(connection, name).version != state.network.version:
                    return False
            except Missing:
                return False
            held, unchanged = held_jobs(connection), {job.name: job.version for job in all_jobs(connection, name)}
            if state.planes and (held.keys() & state.jobs.keys(), unchanged) != (state.held, state.versions):
                return False  # planes are dealt by who is there and who is held
            now, before = self._clock(), last_decision(connection, name, published=True)
            if whole is not None and stored is not None:
                facts = {"jobs": whole.numbers, "mean_completion_s": verdict.after_s, "link_use": whole.link_use}
                keep_plan(connection, whole.digest, whole.request, stored, facts, now)
            decision = decide(connection, {
                "network": name, "network_version": state.network.version, "state": state.digest, "effort": effort,
                "jobs": json.dumps({job: state.jobs[job].version for job in (whole.numbers if whole else ())}),
                "refused": json.dumps(refused), "digest": whole.digest if whole else "", "published": verdict.publishes,
                "before_s": verdict.before_s, "after_s": verdict.after_s, "why": verdict.why, "at": now,
            })  # fmt: skip
            waiting = proposed_plans(connection)
            for job in held.keys() & waiting.keys() & (whole.numbers.keys() if whole else {}) - parts.keys():
                # the plan that the job has would be proposed; or it is better than any, and nobody has this proposal's
                if verdict.publishes or before is None or waiting[job].decision > before.id:
                    withdraw(connection, job)
            for job, part in parts.items():
                job_version = state.jobs[job].version
                if unchanged.get(job) != job_version:
                    continue
                if job not in held or part.before_job_version != job_version:
                    versions[job] = part.publish(connection, decision, job_version, verdict.why, now)
                elif job not in waiting or waiting[job].content != part.stored.content:
                    part.propose(connection, decision, job_version, verdict.why, now)
                    proposed[job] = decision
            if parts:
                note_outcome(connection, decision, bool(versions), sorted(proposed))
            forget_versions(connection, name, self._versions)
        self._tell({
            "event": "published" if versions else "proposed" if proposed else "held", "network": name,
            "jobs": versions, "proposed": proposed, "why": verdict.why, "refused": dict(refused), "effort": effort,
            "cpu_s": cpu_s,
        })  # fmt: skip
        return True

    def _verdict(self, connection: Connection, state: State, whole: Whole | None, effort: str) -> Verdict:
        if whole is None:
            return Verdict(False, "no job has a plan" if state.jobs else "there are no jobs")
        after_s = float(whole.timeline.mean_completion_s)
        last = last_decision(connection, state.network.name, published=True)
        news, must = _news(connection, state, whole, last, effort)
        old = None if must or last is None else find_plan(connection, last.digest)
        if last is None or old is None:
            return Verdict(True, news, None, after_s)
        numbers = json.loads(plan_row(connection, last.digest).facts)["jobs"]
        kept = sorted(number for job in whole.numbers for number in numbers[job])
        before_s = mean_s(part_of(old, kept), state.topology)
        gain = 1 - after_s / before_s
        if not np.isfinite(before_s):
            return Verdict(True, f"{news}; the plans before need a link that is down", None, after_s)
        words = f"{news}; mean completion {format_time(after_s)} instead of {format_time(before_s)}"
        if gain < self._least_gain:
            least = f"the gain of {100 * max(gain, 0.0):.1f} % is below {100 * self._least_gain:.1f} %"
            return Verdict(False, f"{words}: {least}, so jobs keep their plans", before_s, after_s)
        return Verdict(True, f"{words}, a gain of {100 * gain:.1f} %", before_s, after_s)

    def _parts(self, connection: Connection, state: State, whole: Whole) -> dict[str, Part]:
        """By job its part of a plan, where that differs from what the job has."""
        completions_s = whole.timeline.completions_s
        parts = {}
        for job, numbers in whole.numbers.items():
            plan = job_part(whole.plan, numbers)
            before = published_plan(connection, job)
            planes = state.planes.get(job, ())
            had = planes_of(before, len(state.topology.planes))
            if before is not None and before.content == plan.digest() and had == planes:
                continue
            times_s = [float(completions_s[number]) for number in numbers]
            facts: dict[str, Any] = {
                "transfers": plan.transfer_count,
                "collectives": [
                    {"kind": c.kind, "size_bytes": c.size_bytes, "ranks": len(c.ranks), "start_s": c.start_s,
                     "weight": c.weight, "completion_s": time_s, "alone_s": whole.alone_s[number],
                     "bound_s": whole.bounds_s[number]}
                    for c, time_s, number in zip(plan.workload.collectives, times_s, numbers, strict=True)
                ],
            }  # fmt: skip
            if planes:
                facts |= {"planes": list(planes), "planes_in_all": len(state.topology.planes)}
            request, changed = job_document(whole.digest, numbers), _changed(before, times_s)
            was = None if before is None else int(before.job_version)
            parts[job] = Part(job, Stored.of(plan), request, facts, changed, was)
        return parts


@dataclass(frozen=True, eq=False)
class Part:
    """What one job gets: its plan, the request for that, facts about it, and what changed.

    Attributes:
        before_job_version: the version of the job for which the plan before was made; None if there is none.
    """

    job: str
    stored: Stored
    request: dict[str, Any]
    facts: dict[str, Any]
    changed: dict[str, Any]
    before_job_version: int | None

    def publish(self, connection: Connection, decision: int, job_version: int, why: str, now: float) -> int:
        """Keep the plan and make it the job's; the number of its version."""
        digest = self._keep(connection, now)
        return publish(connection, self.job, digest, decision, job_version, why, self.changed, now)

    def propose(self, connection: Connection, decision: int, job_version: int, why: str, now: float) -> None:
        """Keep the plan and propose it to the job."""
        propose(connection, self.job, self._keep(connection, now), decision, job_version, why, self.changed, now)

    def _keep(self, connection: Connection, now: float) -> str:
        digest = digest_of(self.request)
        keep_plan(connection, digest, self.request, self.stored, self.facts, now)
        return digest


def _changed(before: Row[Any] | None, times_s: Sequence[float]) -> dict[str, Any]:
    """What is new in a version: the completions as planned, before and now."""
    was = [] if before is None else [c["completion_s"] for c in json.loads(before.facts)["collectives"]]
    return {"completions_before_s": was, "completions_s": list(times_s)}


def _news(connection: Connection, state: State, whole: Whole, last: Row[Any] | None, effort: str) -> tuple[str, bool]:
    """What has changed since plans were published last, and whether new ones must be published."""
    if last is None:
        return "the first plans on this network", True
    before = json.loads(last.jobs)
    added = [job for job in whole.numbers if job not in before]
    changed = [job for job in whole.numbers if job in before and before[job] != state.jobs[job].version]
    without = [job for job in whole.numbers if not state.jobs[job].plan_version]
    gone = [job for job in before if job not in whole.numbers]
    words = [
        f"{what}: {', '.join(jobs[:MOST_NAMED])}"
        + (f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else "")
        for what, jobs in (("new jobs", added), ("changed jobs", changed), ("jobs without a plan any more", gone))
        if jobs
    ]
    given = False
    if last.network_version != state.network.version:
        try:
            given = network(connection, state.network.name, last.network_version).base != state.network.base
        except Missing:
            given = True
        words.append(f"version {state.network.version} of the network ({state.network.why})")
    newest = last_decision(connection, state.network.name)
    if not words or (newest is not None and newest.state == state.digest):  # another decision has told the rest
        words = [f"planned with the effort {effort}"]
    return "; ".join(words), bool(added or changed or without or given)
