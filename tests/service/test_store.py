"""What the controller knows: in SQLite and in PostgreSQL, written by one leader."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import stretto as st

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from stretto.model.errors import InputError
from stretto.service import jobs, networks
from stretto.service.database import Database, NotLeader
from stretto.service.documents import parse_job
from stretto.service.leadership import FileLock, lock_of
from stretto.service.networks import Conflict, Missing
from stretto.service.schema import TABLES
from stretto.service.telemetry.samples import CAPACITY, Sample

NET = st.topology("ring:4")
JOB = parse_job({"network": "wan", "collectives": [{"kind": "allreduce", "size": "1MB"}]})


def test_migrations_make_the_tables_that_the_code_knows(store):
    with store[0].read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), TABLES) == []


def test_one_instance_holds_the_lock_and_the_next_gets_it_when_it_is_given_back(store):
    first, second = lock_of(store[0]), lock_of(store[0])
    assert first.take() and first.held()
    assert not second.take() and not second.held()
    first.release()
    assert second.take()
    second.release()


def test_a_lock_file_that_its_holder_does_not_renew_is_replaced_and_he_knows_it(tmp_path):
    now = [0.0]
    still, next_one = (FileLock(str(tmp_path / "lock"), 5.0, lambda: now[0]) for _ in range(2))
    assert still.take()
    for now[0] in (1.0, 4.0, 5.9):
        assert not next_one.take()
    assert still.held()  # this renews it
    for now[0] in (6.1, 11.0, 11.2):
        assert not next_one.take()
    assert next_one.take() and next_one.held()
    assert not still.held() and not still.take()
    next_one.release()
    assert still.take()
    still.release()


def test_a_leader_whose_term_is_over_writes_nothing(store):
    database, term = store
    with database.write(term) as connection:
        networks.put_network(connection, "wan", NET, 1.0)
    later = database.begin_term("http://there", 2.0)
    with pytest.raises(NotLeader), database.write(term) as connection:
        networks.put_network(connection, "other", NET, 2.0)
    with database.read() as connection:
        assert networks.network_names(connection) == [("wan", 1)]
    assert later == term + 1 and database.leader() == (later, "http://there")


def test_a_leader_that_another_has_followed_does_not_say_that_it_leads(store):
    pytest.importorskip("fastapi")
    pytest.importorskip("prometheus_client")
    from stretto.service.routes import get_health

    database, term = store
    asked = SimpleNamespace(instance=SimpleNamespace(database=database, term=term))
    assert get_health(asked).data["leader"]
    database.begin_term("http://there", 2.0)  # while this instance stood still
    said = get_health(asked).data
    assert (said["leader"], said["leader_address"]) == (False, "http://there")


def test_a_network_gets_a_version_for_each_change_and_none_for_the_same_again(store):
    database, term = store
    with database.write(term) as connection:
        assert networks.put_network(connection, "wan", NET, 1.0) == (1, True)
        assert networks.put_network(connection, "wan", NET, 2.0) == (1, False)
        assert networks.put_network(connection, "wan", st.topology("ring:5"), 3.0, expected=1) == (2, True)
        with pytest.raises(Conflict, match="has version 2, not 1"):
            networks.put_network(connection, "wan", NET, 4.0, expected=1)
        with pytest.raises(Missing, match="has no version 7; the newest one is 2"):
            networks.network(connection, "wan", 7)
        assert networks.network(connection, "wan", 1).topology == NET.to_json()


def test_an_overlay_makes_a_version_without_the_link_that_is_down(store):
    database, term = store
    with database.write(term) as connection:
        networks.put_network(connection, "wan", NET, 1.0)
        current = networks.network(connection, "wan")
        down = {"src": "gpu0", "dst": "gpu1", "bandwidth_Bps": 0.0}
        slow = {"src": "gpu1", "dst": "gpu2", "bandwidth_Bps": 1e9, "latency_s": 3e-6}
        assert networks.lay_over(connection, current, [down, slow], "telemetry", 2.0) == 2
        found = networks.network(connection, "wan")
    assert (found.base, found.overlay) == (1, [down, slow])
    assert len(found.topology["links"]) == NET.link_count - 1
    link = next(each for each in found.topology["links"] if (each["src"], each["dst"]) == (1, 2))
    assert (link["bandwidth_Bps"], link["latency_s"]) == (1e9, 3e-6)


def test_jobs_have_versions_and_a_network_with_jobs_stays(store):
    database, term = store
    with database.write(term) as connection:
        networks.put_network(connection, "wan", NET, 1.0)
        assert jobs.put_job(connection, "a", JOB, 1.0) == (1, True)
        assert jobs.put_job(connection, "a", JOB, 1.0) == (1, False)
        with pytest.raises(Conflict, match="has the job 'a'; delete first what uses it"):
            networks.delete_network(connection, "wan")
        jobs.delete_job(connection, "a")
        networks.delete_network(connection, "wan")
        with pytest.raises(Missing):
            jobs.job(connection, "a")
        assert networks.put_network(connection, "wan", NET, 2.0) == (2, True)
        assert jobs.put_job(connection, "a", JOB, 2.0) == (2, True)


def test_old_samples_are_forgotten_but_for_the_last_of_each_link(store):
    database, term = store
    samples = [Sample("gpu0", "gpu1", CAPACITY, 1e9 + at, float(at)) for at in range(5)]
    samples.append(Sample("gpu1", "gpu2", CAPACITY, 2e9, 0.5))
    with database.write(term) as connection:
        networks.put_network(connection, "wan", NET, 1.0)
        networks.keep_samples(connection, "wan", samples)
        assert [s.at_s for s in networks.samples_since(connection, "wan", 3.0)] == [0.5, 2.0, 3.0, 4.0]
        assert networks.forget_samples(connection, "wan", -1.0, 10.0) == 4
        assert [s.at_s for s in networks.samples_since(connection, "wan", 0.0)] == [0.5, 4.0]
        assert networks.latest_samples(connection, "wan")[("gpu0", "gpu1"), CAPACITY] == 4.0


def test_tables_of_a_later_version_are_refused(store):
    database, _ = store
    with database.engine.begin() as connection:
        newest = connection.scalar(text("SELECT version_num FROM alembic_version"))
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(InputError, match="not of this version of stretto"):
        Database(database.url)
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :newest"), {"newest": newest})


def test_a_database_of_another_kind_is_refused():
    with pytest.raises(InputError, match="mysql is not served"):
        Database("mysql://somewhere/db")


def test_a_transaction_that_fails_leaves_nothing(store):
    database, term = store
    with pytest.raises(RuntimeError), database.write(term) as connection:
        networks.put_network(connection, "half", NET, 1.0)
        raise RuntimeError
    with database.read() as connection:
        assert json.dumps(networks.network_names(connection)) == "[]"
