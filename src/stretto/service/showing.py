"""What the page shows of every network and job, as objects of JSON that are sent when they change (:mod:`.events`).

network     version, what telemetry has changed, and the last decisions with why
links       what was reported of its links of late
load        how much the plans of all jobs use each link
job         what it calls, its plan, the versions before, who holds it, and what is proposed
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, and_, func, select

from .holding import held_jobs, proposed_plans
from .jobs import JobVersion, all_jobs
from .networks import network_names
from .published import last_decision
from .schema import collective_times, decisions, jobs, network_versions, plan_versions, plans, telemetry
from .telemetry.intake import OLDEST_S

NETWORK, LINKS, LOAD, JOB = "network", "links", "load", "job"
Key = tuple[str, str]
"""A kind of object, and the name of the network or job."""

MOST_DECISIONS, MOST_VERSIONS = 12, 8
"""Decisions of a network and versions of a plan that are shown, the newest ones."""


@dataclass
class Showing:
    """Reads what is shown, and keeps what has not changed."""

    _loads: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def read(self, connection: Connection, now: float) -> dict[Key, Any]:
        """All objects.

        Args:
            now: seconds since 1970; reports that are older than this by :data:`.telemetry.intake.OLDEST_S` say nothing
                of the network as it is.
        """
        shown: dict[Key, Any] = {}
        refused: dict[str, dict[str, str]] = {}
        for name, version in network_names(connection):
            last = last_decision(connection, name)
            refused[name] = {} if last is None else json.loads(last.refused)
            shown[NETWORK, name] = _network(connection, name, version)
            shown[LINKS, name] = _reports(connection, name, now - OLDEST_S)
            shown[LOAD, name] = self._load(connection, name)
        shown |= {(JOB, each["name"]): each for each in _jobs(connection, refused)}
        return shown

    def _load(self, connection: Connection, name: str) -> Any:
        """How much the last plan of all jobs of a network uses each link: [from, to, share], by their names."""
        last = last_decision(connection, name, published=True)
        digest = "" if last is None else str(last.digest)
        if name not in self._loads or self._loads[name][0] != digest:
            facts = connection.scalar(select(plans.c.facts).where(plans.c.digest == digest))
            self._loads[name] = digest, [] if facts is None else json.loads(facts).get("link_use", [])
        return {"name": name, "use": self._loads[name][1]}


def _network(connection: Connection, name: str, version: int) -> dict[str, Any]:
    columns = (network_versions.c.base, network_versions.c.overlay, network_versions.c.why, network_versions.c.at)
    newest = (network_versions.c.network == name) & (network_versions.c.version == version)
    row = connection.execute(select(*columns).where(newest)).one()
    return {
        "name": name, "version": version, "base": row.base, "overlay": json.loads(row.overlay), "why": row.why,
        "at": row.at, "decisions": [*_decisions(connection, name)],
    }  # fmt: skip


def _decisions(connection: Connection, name: str) -> Iterator[dict[str, Any]]:
    keys = ("network_version", "effort", "published", "proposed", "before_s", "after_s", "why", "at")
    asked = select(*(decisions.c[key] for key in keys)).where(decisions.c.network == name)
    for row in connection.execute(asked.order_by(decisions.c.id.desc()).limit(MOST_DECISIONS)):
        yield row._asdict() | {"proposed": json.loads(row.proposed)}


def _reports(connection: Connection, name: str, since: float) -> dict[str, Any]:
    """The newest sample of each link and kind since a moment."""
    of_network = (telemetry.c.network == name) & (telemetry.c.at >= since)
    keys = (telemetry.c.src, telemetry.c.dst, telemetry.c.kind)
    newest = select(*keys, func.max(telemetry.c.at).label("at")).where(of_network).group_by(*keys).subquery()
    same = [telemetry.c[key] == newest.c[key] for key in ("src", "dst", "kind", "at")]
    asked = select(*keys, telemetry.c.rate, telemetry.c.at).join(newest, and_(*same)).where(of_network)
    return {"name": name, "samples": sorted([*row] for row in connection.execute(asked))}


def _jobs(connection: Connection, refused: dict[str, dict[str, str]]) -> Iterator[dict[str, Any]]:
    """All jobs; ``refused`` says by network and job why there is no plan."""
    known, held, proposed = all_jobs(connection), held_jobs(connection), proposed_plans(connection)
    versions, measured = _versions(connection), _measured(connection)
    for job in known:
        reason = refused.get(job.network, {}).get(job.name)
        own = versions.get(job.name, [])
        hold = held.get(job.name)
        yield {
            "name": job.name, "version": job.version, "network": job.network, "at": job.at,
            "weight": job.document.get("weight", 1), "reason": reason, "plan_version": job.plan_version,
            "status": job.status(reason),
            "collectives": _with_measured(
                _collectives(job, _facts(own[0]) if own else []), own, measured.get(job.name, [])
            ),
            "versions": [_version(row) for row in own],
            "hold": None if hold is None else vars(hold),
            "proposed": _proposed(job, proposed[job.name]) if job.name in proposed else None,
        }  # fmt: skip


def _versions(connection: Connection) -> dict[str, list[Row[Any]]]:
    """By job the newest versions of its plan, the newest first."""
    asked = (
        select(plan_versions, plans.c.facts, decisions.c.network_version, decisions.c.effort)
        .join(plans, plans.c.digest == plan_versions.c.digest)
        .join(decisions, decisions.c.id == plan_versions.c.decision)
        .join(jobs, jobs.c.name == plan_versions.c.job)
        .where(~jobs.c.deleted, plan_versions.c.version > jobs.c.plan_version - MOST_VERSIONS)
        .order_by(plan_versions.c.job, plan_versions.c.version.desc())
    )
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(asked):
        found.setdefault(row.job, []).append(row)
    return found


def _version(row: Row[Any]) -> dict[str, Any]:
    keys = ("version", "why", "at", "network_version", "effort", "digest")
    changed: dict[str, Any] = json.loads(row.changed)
    return {key: getattr(row, key) for key in keys} | changed


def _facts(version: Row[Any]) -> list[dict[str, Any]]:
    """What is said of the collectives of a version of a plan."""
    found: list[dict[str, Any]] = json.loads(version.facts)["collectives"]
    return found


def _measured(connection: Connection) -> dict[str, list[Row[Any]]]:
    """By job how long its collectives took when that was reported last."""
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(select(collective_times)):
        found.setdefault(row.job, []).append(row)
    return found


def _with_measured(
    shown: list[dict[str, Any]], versions: list[Row[Any]], measured: list[Row[Any]]
) -> list[dict[str, Any]]:
    """Collectives with what was measured, where the plan of then had the same one at that number."""
    facts = {row.version: row for row in versions}
    for report in measured:
        if report.number >= len(shown) or report.version not in facts:
            continue
        now, then = shown[report.number], _facts(facts[report.version])[report.number]
        if (now["kind"], now["size_bytes"]) == (then["kind"], then["size_bytes"]):
            now |= {"measured_s": report.measured_s, "measured_version": report.version, "measured_at": report.at}
    return shown


def _proposed(job: JobVersion, row: Row[Any]) -> dict[str, Any]:
    facts = json.loads(row.facts)["collectives"]
    return {"proposal": row.decision, "why": row.why, "at": row.at, "collectives": _collectives(job, facts)}


def _collectives(job: JobVersion, facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a job calls, and how long its plan says that each takes."""
    said = job.document["collectives"]
    found = []
    for number, of in enumerate(said):
        planned = facts[number] if number < len(facts) and facts[number]["kind"] == of["kind"] else {}
        known = {key: planned.get(key) for key in ("size_bytes", "ranks", "completion_s", "alone_s", "bound_s")}
        found.append(
            {"kind": of["kind"], "size": of.get("size", of.get("shard")), "times": of.get("times", 1), **known}
        )
    return found
