"""Two instances of the controller on one PostgreSQL: the database goes, leaders stand still and are killed."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")
pytest.importorskip("psycopg")

import stretto as st
from controller_process import Served
from postgres_cluster import installed, running
from stretto.service.client import Controller, ControllerRefused

pytestmark = pytest.mark.skipif(not installed(), reason="PostgreSQL is not installed: apt-get install postgresql")

NET = st.topology("ring:4", bandwidth="10GB/s")
WAIT_S = 120.0
"""Seconds to wait for a plan at most; it takes a few hundredths on a machine that does nothing else."""
GONE_S = 2
"""Seconds after which the database, or a leader, counts as gone in these tests."""


def job(weight):
    return {"network": "net", "collectives": [{"kind": "allreduce", "size": "4MB"}], "weight": weight}


class Pair:
    """Two instances on one database; one that was killed is started again when it is needed."""

    def __init__(self, postgres):
        self.postgres, self.weight = postgres, 0
        self.served = [Served(postgres.url, "--gone-after", GONE_S) for _ in range(2)]
        self.leader().client().put_network("net", NET.to_json())

    @property
    def both(self):
        return Controller(",".join(served.url for served in self.served), timeout_s=WAIT_S)

    def leader(self):
        for number, served in enumerate(self.served):
            if served.process.poll() is not None:
                self.served[number] = Served(self.postgres.url, "--gone-after", GONE_S)
        return self.leader_of(self.served)

    def leader_of(self, instances):
        """The one of these that leads, once one does."""
        while True:
            for served in instances:
                try:
                    if served.client().health()["leader"]:
                        return served
                except ControllerRefused as refused:
                    assert (refused.status, refused.code) == (503, "database_gone")
            time.sleep(0.05)

    def other(self, leader):
        (other,) = (served for served in self.served if served is not leader)
        return other

    def planned(self, client):
        """Change the job as soon as that is possible, and wait for its plan."""
        self.weight += 1
        while True:
            try:
                version = client.put_job("job", job(self.weight))["version"]
                break
            except ControllerRefused as refused:
                assert refused.status == 503
                time.sleep(0.05)
        known = None
        while True:
            try:
                said = client.plan("job", known=known, wait_s=WAIT_S)
            except ControllerRefused as refused:
                assert refused.status in (404, 503)
                time.sleep(0.05)
                continue
            if said["job_version"] >= version:
                return said
            known = said["version"]


@pytest.fixture(scope="module")
def pair():
    with running() as postgres:
        made = Pair(postgres)
        yield made
        for served in made.served:
            served.kill()


def refused_write(client, weight=0.5):
    """The answer to a write, which is one that says: later, or elsewhere."""
    with pytest.raises(ControllerRefused) as refused:
        client._send("PUT", "/jobs/job", json.dumps(job(weight)).encode(), {}, 0.0)
    return refused.value


def test_while_the_database_is_gone_plans_are_served_writes_are_refused_and_planning_goes_on_afterwards(pair):
    client = pair.leader().client()
    said = pair.planned(client)
    text = client.plan_text(said["digest"])

    def check_gone():
        assert (refused_write(client).status, refused_write(client).code) == (503, "database_gone")
        assert client.plan("job") == said and client.plan_text(said["digest"]) == text
        assert client.plan("job", known=said["version"], wait_s=0.1) is None
        with pytest.raises(ControllerRefused, match="the database cannot be used now"):
            client.networks()  # which this instance was never asked for

    with pair.postgres.standing_still():
        check_gone()
    pair.postgres.stop()
    check_gone()
    pair.postgres.start()
    assert pair.planned(pair.both)["version"] > said["version"]
    page = client._bytes("/metrics", "*/*").decode()
    assert 'stretto_remembered_answers_total{route="/plans/{digest}"} 2.0' in page


def test_a_leader_that_stands_still_is_followed_and_writes_nothing_when_it_goes_on(pair):
    leader = pair.leader()
    before = pair.planned(leader.client())
    with leader.standing_still():
        assert pair.leader_of([pair.other(leader)]) is pair.other(leader)
    refused = refused_write(leader.client())
    assert (refused.status, refused.code, refused.leader) == (409, "not_leader", pair.other(leader).url)
    after = pair.planned(leader.client())  # by way of the new leader
    assert after["version"] == before["version"] + 1
    assert not leader.client().health()["leader"]


def test_another_instance_takes_over_when_the_leader_is_killed(pair):
    leader = pair.leader()
    said, other, both = pair.planned(leader.client()), pair.other(leader), pair.both
    assert other.client().plan("job") == said and not other.client().health()["leader"]
    leader.kill()
    assert both.plan("job") == said
    while not other.client().health()["leader"]:
        assert other.client().plan("job", known=said["version"], wait_s=0.3) is None  # reads go on
    assert pair.planned(both)["version"] == said["version"] + 1
