"""Plans by the digest of their request, the versions of jobs' plans, and the decisions behind them, in the store."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from ..formats.native import plan_from_text, plan_to_text, write_parquet_into
from ..model.plan import Plan
from .networks import Missing
from .schema import decisions, jobs, plan_versions, plans, proposals, refusals


@dataclass(frozen=True, eq=False)
class Stored:
    """A plan as it is stored: both of its forms, and a digest of what it says."""

    parquet: bytes
    json_gz: bytes
    content: str

    @classmethod
    def of(cls, plan: Plan) -> Stored:
        """The bytes of a plan."""
        file = io.BytesIO()
        write_parquet_into(file, plan)
        return cls(file.getvalue(), gzip.compress(plan_to_text(plan).encode(), 6, mtime=0), plan.digest())


def keep_plan(
    connection: Connection,
    digest: str,
    request: Mapping[str, Any],
    stored: Stored,
    facts: Mapping[str, Any],
    now: float,
) -> None:
    """Keep a plan, unless there is one for this request."""
    if connection.scalar(select(plans.c.content).where(plans.c.digest == digest)) is None:
        connection.execute(
            insert(plans).values(
                digest=digest,
                part=request["part"],
                request=json.dumps(request),
                content=stored.content,
                facts=json.dumps(facts),
                parquet=stored.parquet,
                json_gz=stored.json_gz,
                at=now,
            )
        )


def plan_row(connection: Connection, digest: str) -> Row[Any]:
    """The row of a plan; Missing if there is none."""
    row = connection.execute(select(plans).where(plans.c.digest == digest)).one_or_none()
    if row is None:
        raise Missing(f"there is no plan {digest!r}")
    return row


def find_plan(connection: Connection, digest: str) -> Plan | None:
    """The plan of a request, None if it is not kept."""
    data = connection.scalar(select(plans.c.json_gz).where(plans.c.digest == digest))
    return None if data is None else plan_from_text(gzip.decompress(data).decode(), f"plan {digest[:12]}")


def bounds_of(connection: Connection, digests: list[str]) -> dict[str, float]:
    """By request the seconds that no plan can beat, where that is known."""
    rows = connection.execute(select(plans.c.digest, plans.c.facts).where(plans.c.digest.in_(digests)))
    facts = {row.digest: json.loads(row.facts) for row in rows}
    return {digest: float(of["bound_s"]) for digest, of in facts.items() if "bound_s" in of}


def has_plans(connection: Connection, digests: list[str]) -> set[str]:
    """Those of some requests for which there is a plan."""
    found: set[str] = set()
    for first in range(0, len(digests), 500):
        some = digests[first : first + 500]
        found |= {*connection.scalars(select(plans.c.digest).where(plans.c.digest.in_(some)))}
    return found


def refusal_reasons(connection: Connection, digests: list[str]) -> dict[str, str]:
    """By request why there is no plan, for those of some requests that were refused."""
    found: dict[str, str] = {}
    for first in range(0, len(digests), 500):
        rows = connection.execute(select(refusals).where(refusals.c.digest.in_(digests[first : first + 500])))
        found |= {row.digest: row.reason for row in rows}
    return found


def keep_refusal(connection: Connection, digest: str, reason: str, now: float) -> None:
    """Keep why a request has no plan."""
    if connection.scalar(select(refusals.c.reason).where(refusals.c.digest == digest)) is None:
        connection.execute(insert(refusals).values(digest=digest, reason=reason, at=now))


def last_decision(connection: Connection, network: str, published: bool = False) -> Row[Any] | None:
    """The last decision on a network; if ``published``, the last one whose plans were published."""
    asked = select(decisions).where(decisions.c.network == network)
    if published:
        asked = asked.where(decisions.c.published)
    return connection.execute(asked.order_by(decisions.c.id.desc()).limit(1)).one_or_none()


def network_decisions(connection: Connection, network: str, most: int) -> list[Row[Any]]:
    """The last decisions on a network, the newest first."""
    asked = select(decisions).where(decisions.c.network == network).order_by(decisions.c.id.desc()).limit(most)
    return [*connection.execute(asked)]


def decide(connection: Connection, values: Mapping[str, Any]) -> int:
    """Keep a decision; its number."""
    return int(connection.execute(insert(decisions).values(**values)).inserted_primary_key[0])


def note_outcome(connection: Connection, decision: int, published: bool, proposed: list[str] | None = None) -> None:
    """Note whether jobs have got the plan of a decision, and to which ones it was proposed instead."""
    named = {} if proposed is None else {"proposed": json.dumps(proposed)}
    connection.execute(update(decisions).where(decisions.c.id == decision).values(published=published, **named))


def publish(
    connection: Connection, job: str, digest: str, decision: int, job_version: int, why: str,
    changed: Mapping[str, Any], now: float,
) -> int:  # fmt: skip
    """Make a plan the newest version of a job's plan, whatever was proposed to it; its number."""
    connection.execute(delete(proposals).where(proposals.c.job == job))
    version = int(connection.scalar(select(jobs.c.plan_version).where(jobs.c.name == job)) or 0) + 1
    connection.execute(
        insert(plan_versions).values(
            job=job,
            version=version,
            digest=digest,
            decision=decision,
            job_version=job_version,
            why=why,
            changed=json.dumps(changed),
            at=now,
        )
    )
    connection.execute(update(jobs).where(jobs.c.name == job).values(plan_version=version))
    return version


def published_plan(connection: Connection, job: str, version: int | None = None) -> Row[Any] | None:
    """A version of a job's plan, by default the newest, with what is said of the plan; None if there is none."""
    asked = (
        select(plan_versions, plans.c.facts, plans.c.content, decisions.c.network, decisions.c.network_version,
               decisions.c.effort)
        .join(plans, plans.c.digest == plan_versions.c.digest)
        .join(decisions, decisions.c.id == plan_versions.c.decision)
        .join(jobs, jobs.c.name == plan_versions.c.job)
        .where(plan_versions.c.job == job, ~jobs.c.deleted)
    )  # fmt: skip
    wanted = jobs.c.plan_version if version is None else version
    return connection.execute(asked.where(plan_versions.c.version == wanted)).one_or_none()


def planes_of(row: Row[Any] | None, count: int) -> tuple[int, ...]:
    """The optical planes for which a published plan was made; none if that was for a network of another number."""
    said = {} if row is None else json.loads(row.facts)
    return tuple(said["planes"]) if said.get("planes_in_all") == count else ()


def plan_history(connection: Connection, job: str) -> list[Row[Any]]:
    """The versions of a job's plan that are kept, the newest first."""
    asked = select(plan_versions).where(plan_versions.c.job == job).order_by(plan_versions.c.version.desc())
    return [*connection.execute(asked)]


def newest_versions(connection: Connection) -> dict[str, int]:
    """By job the newest version of its plan."""
    return {row.name: row.plan_version for row in connection.execute(select(jobs.c.name, jobs.c.plan_version))}
