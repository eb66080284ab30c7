"""Jobs and their versions in the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from ..model.errors import absent
from .documents import Job, parse_job
from .networks import Missing, check_version
from .schema import collective_times, holds, job_versions, jobs, proposals


@dataclass(frozen=True)
class JobVersion:
    """A job as it is stored.

    Attributes:
        plan_version: the newest version of its plan, 0 if there is none.
    """

    name: str
    version: int
    network: str
    document: dict[str, Any]
    plan_version: int
    at: float

    @property
    def job(self) -> Job:
        return parse_job(self.document)

    def status(self, refused: str | None) -> str:
        """How far its plan is; ``refused`` says why it has none."""
        return "refused" if refused else "planned" if self.plan_version else "waiting"


def job(connection: Connection, name: str) -> JobVersion:
    """The newest version of a job; Missing if there is no such job."""
    row = connection.execute(_newest().where(jobs.c.name == name)).one_or_none()
    if row is None:
        raise Missing(absent("job", name, connection.scalars(select(jobs.c.name).where(~jobs.c.deleted))))
    return _job(row)


def all_jobs(connection: Connection, network: str | None = None) -> list[JobVersion]:
    """All jobs, or those of one network, by name."""
    asked = _newest() if network is None else _newest().where(jobs.c.network == network)
    return sorted(map(_job, connection.execute(asked)), key=lambda each: each.name)


def put_job(connection: Connection, name: str, given: Job, now: float, expected: int | None = None) -> tuple[int, bool]:
    """Make a job what a client gives: its version, and whether that is new (an equal document gives none).

    Raises:
        Conflict: the newest version is another one than expected.
    """
    row = connection.execute(select(jobs).where(jobs.c.name == name)).one_or_none()
    check_version(f"job {name!r}", 0 if row is None or row.deleted else row.version, expected)
    if row is not None and not row.deleted and job(connection, name).document == given.document:
        return int(row.version), False
    version = 1 if row is None else row.version + 1
    values = {"network": given.network, "version": version, "deleted": False}
    if row is None:
        connection.execute(insert(jobs).values(name=name, plan_version=0, **values))
    else:
        connection.execute(update(jobs).where(jobs.c.name == name).values(**values))
    connection.execute(delete(proposals).where(proposals.c.job == name))  # they were for the job as it was
    connection.execute(
        insert(job_versions).values(job=name, version=version, document=json.dumps(given.document), at=now)
    )  # fmt: skip
    return version, True


def delete_job(connection: Connection, name: str) -> None:
    """End a job. The versions of its plan stay for those that still run them."""
    job(connection, name)
    for table in (holds, proposals, collective_times):
        connection.execute(delete(table).where(table.c.job == name))
    connection.execute(update(jobs).where(jobs.c.name == name).values(deleted=True))


def _newest() -> Select[Any]:
    return (
        select(jobs, job_versions.c.document, job_versions.c.at)
        .join(job_versions, (job_versions.c.job == jobs.c.name) & (job_versions.c.version == jobs.c.version))
        .where(~jobs.c.deleted)
    )


def _job(row: Any) -> JobVersion:
    return JobVersion(row.name, row.version, row.network, json.loads(row.document), row.plan_version, row.at)
