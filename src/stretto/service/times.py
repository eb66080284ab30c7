"""How long the collectives of jobs take, as their groups report it, beside what was planned and what no plan can beat.

Of each collective the last report is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from ..model.errors import InputError
from ..topologies.values import check_keys, count, entry, objects, real
from .documents import MOST_COLLECTIVES
from .jobs import job
from .networks import Missing
from .published import published_plan
from .schema import collective_times

KEYS = ("number", "calls", "measured_s")


@dataclass(frozen=True)
class Times:
    """A report: the version of the plan, and for each collective its number in it, its calls, and their median time."""

    version: int
    collectives: tuple[tuple[int, int, float], ...]


def parse_times(data: Any) -> Times:
    """A report from its object.

    Raises:
        InputError: an entry is missing, unknown, doubled or of the wrong form; names it.
    """
    check_keys(data, ("version", "collectives"), "times")
    version = count(entry(data, "version", int, "times"), "'version'", "times", 1, 10**9)
    rows: dict[int, tuple[int, int, float]] = {}
    for i, said in enumerate(objects(data, "collectives", "times")):
        place = f"collectives[{i}]"
        check_keys(said, KEYS, place)
        number = count(entry(said, "number", int, place), "'number'", place, 0, MOST_COLLECTIVES - 1)
        if number in rows:
            raise InputError(f"collective {number} is there twice", place)
        calls = count(entry(said, "calls", int, place), "'calls'", place, 1, 10**9)
        rows[number] = number, calls, real(said.get("measured_s"), "'measured_s'", place, above=True)
    return Times(version, tuple(rows.values()))


def keep_times(connection: Connection, name: str, times: Times, now: float) -> None:
    """Keep a report in the place of the last one.

    Raises:
        Missing: there is no such job, or it has no such version of its plan, or no such collective.
    """
    job(connection, name)
    facts = _facts(connection, name, times.version)
    for number, calls, measured_s in times.collectives:
        if number >= len(facts):
            raise Missing(f"version {times.version} of the plan of {name!r} has no collective {number}")
        own = (collective_times.c.job == name) & (collective_times.c.number == number)
        connection.execute(delete(collective_times).where(own))
        values = {"job": name, "number": number, "version": times.version, "calls": calls, "measured_s": measured_s}
        connection.execute(insert(collective_times).values(**values, at=now))


def times_of(connection: Connection, name: str) -> list[dict[str, Any]]:
    """The collectives of a job's newest plan: what each takes as measured last, as planned alone, and at least.

    ``version`` is that by which it was measured, with the times that were planned and bounded then; where nothing is
    measured yet, ``measured_s`` is None and the version the newest.
    """
    newest = published_plan(connection, name)
    if newest is None:
        return []
    reports = {r.number: r for r in connection.execute(select(collective_times).where(collective_times.c.job == name))}
    known = {newest.version: json.loads(newest.facts)["collectives"]}
    said = []
    for number, facts in enumerate(known[newest.version]):
        report, version = reports.get(number), newest.version
        measured: dict[str, Any] = {"measured_s": None, "calls": 0, "at": None}
        if report is not None:
            if report.version not in known:
                row = published_plan(connection, name, report.version)
                known[report.version] = [] if row is None else json.loads(row.facts)["collectives"]
            of = known[report.version][number : number + 1]
            if of and (of[0]["kind"], of[0]["size_bytes"]) == (facts["kind"], facts["size_bytes"]):
                facts, version = of[0], report.version  # else the job has other collectives by now
                measured = {"measured_s": report.measured_s, "calls": report.calls, "at": report.at}
        planned = {"planned_s": facts["alone_s"], "bound_s": facts.get("bound_s")}
        said.append(
            {"kind": facts["kind"], "size_bytes": facts["size_bytes"], **measured, **planned, "version": version}
        )
    return said


def _facts(connection: Connection, name: str, version: int) -> list[dict[str, Any]]:
    """What is said of the collectives of a version of a job's plan."""
    row = published_plan(connection, name, version)
    if row is None:
        raise Missing(f"there is no version {version} of the plan of {name!r}")
    found: list[dict[str, Any]] = json.loads(row.facts)["collectives"]
    return found
