"""What the store forgets, and that nothing in use is among it; in SQLite and in PostgreSQL."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from sqlalchemy import insert, select

import stretto as st
from stretto.service import holding, jobs, keeping, networks, published
from stretto.service.documents import parse_job
from stretto.service.keeping import DAY_S, Keep, forget, sizes
from stretto.service.published import Stored
from stretto.service.requests import ALONE, JOB, TOGETHER
from stretto.service.schema import TABLES, audit, plans, refusals
from stretto.service.telemetry.samples import CAPACITY, Sample

NET = st.topology("ring:4")
KEEP = Keep(days=1.0, telemetry_hours=1.0, versions=3)
NOW = 10 * DAY_S
OLD = NOW - 2 * DAY_S


def document(weight):
    return parse_job({"network": "net", "collectives": [{"kind": "allreduce", "size": "1MB"}], "weight": weight})


def decided(connection, number, at, job_versions, part="a"):
    """A decision at a moment that publishes a plan for a job."""
    for digest, kind in ((f"{part}{number}", JOB), (f"t{part}{number}", TOGETHER), (f"n{part}{number}", ALONE)):
        request = {"part": kind, "alone": [f"n{part}{number}"]}
        published.keep_plan(connection, digest, request, Stored(b"x", b"x", digest), {}, at)
    version = networks.network(connection, "net").version
    made = published.decide(connection, {
        "network": "net", "network_version": version, "state": "", "effort": "quick", "jobs": json.dumps(job_versions),
        "refused": "{}", "digest": f"t{part}{number}", "published": True, "why": "", "at": at,
    })  # fmt: skip
    published.publish(connection, part, f"{part}{number}", made, 1, "", {}, at)
    return made


def grown(store):
    """A store in which all was old when it was made, and much of it is in use."""
    database, term = store
    with database.write(term) as connection:
        networks.put_network(connection, "net", NET, OLD)
        for number in range(1, 4):
            current = networks.network(connection, "net")
            slow = {"src": "gpu0", "dst": "gpu1", "bandwidth_Bps": 1e9 + number}
            networks.lay_over(connection, current, [slow], "telemetry", OLD)
        for weight in (1, 2, 3):
            jobs.put_job(connection, "a", document(weight), OLD)
        jobs.put_job(connection, "ended", document(1), OLD)
        for number in range(1, 7):
            last = decided(connection, number, OLD, {"a": 3})
        decided(connection, 1, OLD, {"ended": 1}, "ended")
        decided(connection, 7, OLD, {"a": 3})
        jobs.delete_job(connection, "ended")
        samples = [Sample("gpu0", "gpu1", CAPACITY, 1e9, OLD + at) for at in range(5)]
        networks.keep_samples(connection, "net", [*samples, Sample("gpu0", "gpu1", CAPACITY, 1e9, NOW - 60)])
        networks.keep_samples(connection, "net", [Sample("gpu1", "gpu2", CAPACITY, 2e9, OLD)])
        connection.execute(insert(refusals), [{"digest": f"r{at}", "reason": "", "at": at} for at in (OLD, NOW)])
        row = {"who": "a", "action": "", "status": 200, "detail": ""}
        connection.execute(insert(audit), [row | {"at": OLD}] * 3 + [row | {"at": NOW}] * 2)
        keeping.forget_versions(connection, "net", KEEP.versions)
    return last


def test_what_is_old_goes_and_what_is_in_use_stays(store, monkeypatch):
    monkeypatch.setattr(keeping, "PART_ROWS", 2)  # several transactions
    database, term = store
    grown(store)
    gone = forget(database, term, KEEP, NOW)
    assert gone == {"audit": 3, "refusals": 1, "plan_versions": 1, "decisions": 5, "job_versions": 2,
                    "network_versions": 2, "telemetry": 5, "plans": 1}  # fmt: skip
    with database.read() as connection:
        found = networks.network(connection, "net")
        assert (found.version, found.base) == (4, 1)
        assert networks.base_of(connection, found).to_json() == NET.to_json()
        assert jobs.job(connection, "a").version == 3
        assert [row.version for row in published.plan_history(connection, "a")] == [7, 6, 5]
        assert published.published_plan(connection, "a").digest == "a7"
        kept = {*connection.scalars(select(plans.c.digest))}
        assert kept == {"a5", "a6", "a7", "ta7", *(f"na{n}" for n in range(1, 8)), "nended1"}
        samples = networks.samples_since(connection, "net", 0.0)
        assert [(s.src, s.at_s) for s in samples] == [("gpu1", OLD), ("gpu0", NOW - 60)]
    assert forget(database, term, KEEP, NOW) == {}
    found = sizes(database)
    assert found["rows"].keys() == TABLES.tables.keys() and found["rows"]["audit"] == 2 and found["bytes"] > 10_000


def test_what_is_too_much_goes_before_it_is_old_and_a_proposal_stays(store, monkeypatch):
    database, term = store
    last = grown(store)
    for name, most in (("MOST_ROWS", 1), ("MOST_SAMPLES", 2), ("MOST_ALONE", 1)):
        monkeypatch.setattr(keeping, name, most)
    with database.write(term) as connection:
        holding.propose(connection, "a", "a6", last, 3, "", {}, NOW)
    long = Keep(days=100.0, telemetry_hours=10_000.0)
    assert forget(database, term, long, NOW) == {"audit": 4, "decisions": 4, "telemetry": 4, "plans": 6}
    with database.read() as connection:
        assert holding.proposed_plans(connection)["a"].digest == "a6"
        kept = {*connection.scalars(select(plans.c.digest).where(plans.c.part == ALONE))}
        assert kept == {"na1", "na7"}  # that of the plan in use, and the first of those that are as old
