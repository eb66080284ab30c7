"""Jobs that an operator holds: they keep the version of their plan, and newer plans are proposed to them.

Plans are made, weighed and decided on as for all other jobs; for a job that is held the result is a proposal instead of
a version. Accepting it publishes it at once. A job without a plan, or whose client has changed it, gets its plan even
if it is held: the version that it has is of no use to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from .jobs import job as stored_job
from .networks import Conflict
from .published import note_outcome, publish
from .schema import holds, plans, proposals


@dataclass(frozen=True)
class Hold:
    """Who holds a job, and since when, seconds since 1970."""

    who: str
    at: float


def hold_job(connection: Connection, name: str, who: str, now: float) -> Hold:
    """Make a job keep the version of its plan: who holds it since when. Missing if there is no such job."""
    stored_job(connection, name)
    held = held_jobs(connection).get(name)
    if held is None:
        held = Hold(who, now)
        connection.execute(insert(holds).values(job=name, who=who, at=now))
    return held


def held_jobs(connection: Connection) -> dict[str, Hold]:
    """The jobs that are held, by name."""
    return {row.job: Hold(row.who, row.at) for row in connection.execute(select(holds))}


def propose(
    connection: Connection, job: str, digest: str, decision: int, job_version: int, why: str,
    changed: Mapping[str, Any], now: float,
) -> None:  # fmt: skip
    """Propose a plan to a job that is held, in place of what was proposed before."""
    values = {"digest": digest, "decision": decision, "job_version": job_version, "why": why,
              "changed": json.dumps(changed), "at": now}  # fmt: skip
    if connection.execute(update(proposals).where(proposals.c.job == job).values(**values)).rowcount == 0:
        connection.execute(insert(proposals).values(job=job, **values))


def proposed_plans(connection: Connection) -> dict[str, Row[Any]]:
    """What is proposed, by job: the rows of :data:`.schema.proposals` with the plan's ``content`` and ``facts``."""
    asked = select(proposals, plans.c.content, plans.c.facts).join(plans, plans.c.digest == proposals.c.digest)
    return {row.job: row for row in connection.execute(asked)}


def proposals_by_job(connection: Connection) -> dict[str, int]:
    """By job the number of what is proposed to it."""
    return {row.job: row.decision for row in connection.execute(select(proposals.c.job, proposals.c.decision))}


def withdraw(connection: Connection, job: str) -> None:
    """Propose nothing to a job any more."""
    connection.execute(delete(proposals).where(proposals.c.job == job))


def accept_plan(connection: Connection, name: str, seen: int | None, holds_on: bool, now: float) -> int | None:
    """Publish what is proposed to a job.

    Args:
        seen: the proposal that the operator has seen, by the number of its decision; None for any, or for none.
        holds_on: whether the job stays held; else it gets later plans without being asked.
    Returns:
        the version that was published; None if nothing was proposed.
    Raises:
        Conflict: another plan is proposed by now, or none. Missing: there is no such job.
    """
    stored_job(connection, name)
    row = connection.execute(select(proposals).where(proposals.c.job == name)).one_or_none()
    if seen is not None and (row is None or row.decision != seen):
        now_there = "nothing is proposed" if row is None else f"proposal {row.decision} has taken its place"
        raise Conflict(f"proposal {seen} to job {name!r} is no more: {now_there}")
    if not holds_on:
        connection.execute(delete(holds).where(holds.c.job == name))
    if row is None:
        return None
    changed = json.loads(row.changed)
    note_outcome(connection, row.decision, published=True)
    return publish(connection, name, row.digest, row.decision, row.job_version, row.why, changed, now)
