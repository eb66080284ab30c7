"""What the store forgets, and when: all that grows has a limit, and what is in use is never forgotten.

In use are: the newest version of each network and what lies under it, of each job and its plan, each proposal, each
plan that one of these names, the decision behind it, and the last report of each link. The leader's planner forgets
the rest, in small transactions, so that nobody waits long for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, or_, select, text

from .database import Database
from .networks import forget_samples
from .requests import ALONE, JOB, TOGETHER
from .schema import (
    TABLES,
    audit,
    decisions,
    job_versions,
    jobs,
    network_versions,
    networks,
    plan_versions,
    plans,
    proposals,
    refusals,
    telemetry,
)

DAY_S, HOUR_S = 86400.0, 3600.0

MOST_ROWS = 100_000
"""Rows of the audit log, and decisions, that are kept whatever their age."""

MOST_SAMPLES = 1_000_000
"""Samples of one network that are kept; each has about 100 bytes."""

MOST_ALONE = 2_000
"""Plans of single collectives that are kept for jobs to come, the newest ones; each has about 20 KB."""

PART_ROWS = 10_000
"""Rows that one transaction forgets at most."""


@dataclass(frozen=True)
class Keep:
    """For how long is kept what is not in use.

    Attributes:
        days: the audit log, decisions, and versions of networks, jobs and ended jobs' plans.
        telemetry_hours: samples of links.
        versions: of a job's plan, how many.
    """

    days: float = 30.0
    telemetry_hours: float = 24.0
    versions: int = 20


def forget(database: Database, term: int, keep: Keep, now: float) -> dict[str, int]:
    """Forget what has been kept long enough: by table how many rows.

    Args:
        term: of the leader.
        now: seconds since 1970.
    """
    before = now - keep.days * DAY_S
    gone: dict[str, int] = {}
    for table, where in (
        (audit, or_(audit.c.at < before, audit.c.id <= _last(audit) - MOST_ROWS)),
        (refusals, refusals.c.at < before),
        (plan_versions, and_(plan_versions.c.at < before, plan_versions.c.job.in_(_ended()))),
        (decisions, _old_decisions(before)),
        (job_versions, _old_job_versions(before)),
        (network_versions, _old_network_versions(before)),
    ):
        gone[table.name] = sum(_in_parts(database, term, table, where))
    gone[telemetry.name] = sum(_samples(database, term, now - keep.telemetry_hours * HOUR_S))
    with database.write(term) as connection:
        gone[plans.name] = forget_plans(connection)
    return {name: count for name, count in gone.items() if count}


def forget_versions(connection: Connection, network: str, most: int) -> None:
    """Forget all but some versions of the plans of a network's jobs, and then plans that nothing refers to any more."""
    of_network = select(jobs.c.name).where(jobs.c.network == network)
    newest = select(jobs.c.plan_version).where(jobs.c.name == plan_versions.c.job).scalar_subquery()
    connection.execute(
        delete(plan_versions).where(plan_versions.c.job.in_(of_network), plan_versions.c.version <= newest - most)
    )
    forget_plans(connection)


def forget_plans(connection: Connection) -> int:
    """Forget plans that nothing refers to any more; how many."""

    def gone(where: Iterable[ColumnElement[bool]]) -> int:
        return int(connection.execute(delete(plans).where(*where)).rowcount)

    used = select(plan_versions.c.digest).where(plan_versions.c.digest == plans.c.digest).exists()
    proposed = select(proposals.c.digest).where(proposals.c.digest == plans.c.digest).exists()
    count = gone((plans.c.part == JOB, ~used, ~proposed))
    last = select(decisions.c.digest).where(decisions.c.id.in_(_last_decisions(decisions.c.published)))
    count += gone((plans.c.part == TOGETHER, plans.c.digest.not_in(last)))
    of_alone = plans.c.part == ALONE
    if (connection.scalar(select(func.count()).where(of_alone)) or 0) <= MOST_ALONE:
        return count
    together = connection.scalars(select(plans.c.request).where(plans.c.part == TOGETHER))
    used_alone = {digest for request in together for digest in json.loads(request)["alone"]}
    by_age = connection.scalars(select(plans.c.digest).where(of_alone).order_by(plans.c.at.desc(), plans.c.digest))
    old = [digest for digest in [*by_age][MOST_ALONE:] if digest not in used_alone][:PART_ROWS]
    return count + sum(gone((plans.c.digest == digest,)) for digest in old)


def sizes(database: Database) -> dict[str, Any]:
    """The rows of each table, and the bytes of the database."""
    with database.read() as connection:
        rows = {name: connection.scalar(select(func.count()).select_from(t)) for name, t in TABLES.tables.items()}
        if database.is_sqlite:
            pages = [int(connection.scalar(text(f"PRAGMA {what}")) or 0) for what in ("page_count", "page_size")]
            return {"rows": rows, "bytes": pages[0] * pages[1]}
        return {"rows": rows, "bytes": int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)}


def _in_parts(database: Database, term: int, table: Table, where: ColumnElement[bool]) -> Iterator[int]:
    """Delete rows, at most ``PART_ROWS`` in each transaction; gives how many each time."""
    keys = [*table.primary_key.columns]
    while True:
        with database.write(term) as connection:
            some = connection.execute(select(*keys).where(where).limit(PART_ROWS)).all()
            for row in some:
                connection.execute(delete(table).where(*(key == value for key, value in zip(keys, row, strict=True))))
        yield len(some)
        if len(some) < PART_ROWS:
            return


def _samples(database: Database, term: int, before: float) -> Iterator[int]:
    """Delete samples of each network from before a moment, and those that are too many."""
    with database.read() as connection:
        names = connection.scalars(select(networks.c.name)).all()
    for name in names:
        by_age = select(telemetry.c.at).where(telemetry.c.network == name)
        with database.read() as connection:
            crowded = connection.scalar(by_age.order_by(telemetry.c.at.desc()).limit(1).offset(MOST_SAMPLES - 1))
        end, since = max(before, crowded or before), -1.0
        while since < end:
            with database.write(term) as connection:
                later = by_age.where(telemetry.c.at > since, telemetry.c.at < end).order_by(telemetry.c.at)
                until = connection.scalar(later.limit(1).offset(PART_ROWS)) or end
                yield forget_samples(connection, name, since, until)
            since = until


def _last(table: Table) -> Any:
    return select(func.coalesce(func.max(table.c.id), 0)).scalar_subquery()


def _ended() -> Any:
    """The names of jobs that have ended."""
    return select(jobs.c.name).where(jobs.c.deleted)


def _last_decisions(*where: ColumnElement[bool]) -> Any:
    return select(func.max(decisions.c.id)).where(*where).group_by(decisions.c.network)


def _old_decisions(before: float) -> ColumnElement[bool]:
    named = [
        select(each.c.decision).where(each.c.decision == decisions.c.id).exists() for each in (plan_versions, proposals)
    ]
    many = decisions.c.id <= _last(decisions.alias()) - MOST_ROWS
    return and_(
        or_(decisions.c.at < before, many), *(~each for each in named), decisions.c.id.not_in(_last_decisions()),
        decisions.c.id.not_in(_last_decisions(decisions.c.published)),
    )  # fmt: skip


def _old_job_versions(before: float) -> ColumnElement[bool]:
    newest = select(jobs.c.version).where(jobs.c.name == job_versions.c.job).scalar_subquery()
    return and_(job_versions.c.at < before, job_versions.c.version != newest)


def _old_network_versions(before: float) -> ColumnElement[bool]:
    """Versions but the newest, what lies under it, and those on which published plans were decided last."""
    own, newest = network_versions, network_versions.alias()
    current = select(networks.c.version).where(networks.c.name == own.c.network).scalar_subquery()
    joined = newest.join(networks, and_(networks.c.name == newest.c.network, networks.c.version == newest.c.version))
    under = select(newest.c.base).select_from(joined).where(newest.c.network == own.c.network)
    base = under.correlate(own).scalar_subquery()
    decided = select(decisions.c.id).where(
        decisions.c.network == own.c.network, decisions.c.network_version == own.c.version,
        decisions.c.id.in_(_last_decisions(decisions.c.published)),
    )  # fmt: skip
    return and_(own.c.at < before, own.c.version != current, own.c.version != base, ~decided.exists())
