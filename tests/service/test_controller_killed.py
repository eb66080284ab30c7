"""What outlives ``kill -9`` of a controller."""

from __future__ import annotations

import random
import threading

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

import stretto as st
from controller_process import Served
from ports import free_port
from stretto.formats.native import plan_from_text
from stretto.service import jobs, networks, published
from stretto.service.client import Controller, ControllerGone
from stretto.service.database import Database, sqlite_url
from stretto.verify import verify
from waiting import until

NET = st.topology("ring:4", bandwidth="10GB/s")
JOB = {"network": "net", "collectives": [{"kind": "allreduce", "size": "4MB"}]}
WAIT_S = 120.0
"""Seconds to wait for a plan at most; it takes a few hundredths on a machine that does nothing else."""


def test_nothing_that_was_acknowledged_is_lost_when_it_is_killed(tmp_path):
    """Killed at random moments while clients write, the planner publishes, and a job asks for its plan."""
    draw, known, port, asking = random.Random(5), {}, free_port(), None
    for _ in range(2):
        served = Served(tmp_path, "--port", port)
        client = served.client()
        client.put_network("net", NET.to_json())
        before = client.job("job0")["plan_version"] if known else 0
        known["job0"] = client.put_job("job0", {**JOB, "weight": draw.randint(1, 10**6)})["version"]
        client.plan("job0", known=before, wait_s=WAIT_S)
        asking = asking or Asking(served.url, "job0")
        asking.wait_for_one_after(before)  # it goes on after the restart
        ended = threading.Timer(draw.uniform(0.0, 0.7), served.process.kill)
        ended.start()
        try:
            for number in range(1000):
                name = f"job{number % 5}"
                known[name] = client.put_job(name, {**JOB, "weight": draw.randint(1, 10**6)})["version"]
                client.plan("job0", known=client.plan("job0")["version"], wait_s=0.02)
        except ControllerGone:
            pass
        ended.join()
        served.kill()
        _check(Database(sqlite_url(tmp_path)), known)
    versions = asking.end()
    assert versions == sorted({*versions})
    assert asking.failures == {"ControllerGone"}


class Asking:
    """A job that waits for each new version of its plan and fetches it, whatever becomes of the controller."""

    def __init__(self, url, job):
        self.client, self.job, self.failures = Controller(url, timeout_s=WAIT_S), job, set()
        self.versions, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        while not self.ended.is_set():
            try:
                said = self.client.plan(self.job, known=self.versions[-1] if self.versions else None, wait_s=5.0)
                if said is not None:
                    assert verify(plan_from_text(self.client.plan_text(said["digest"]), "plan")).ok
                    self.versions.append(said["version"])
            except Exception as error:
                self.failures.add(type(error).__name__)
                self.ended.wait(0.05)

    def wait_for_one_after(self, version):
        until(lambda: self.versions[-1:] > [version])

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.versions


def _check(database, known):
    """The database has what was acknowledged, and of each plan that was published all."""
    with database.read() as connection:
        assert networks.network(connection, "net").version == 1
        for name, version in known.items():
            job = jobs.job(connection, name)
            assert job.version >= version
            versions = [row.version for row in published.plan_history(connection, name)]
            assert versions == [*range(job.plan_version, job.plan_version - len(versions), -1)]
            row = published.published_plan(connection, name)
            if row is not None:
                plan = published.find_plan(connection, row.digest)
                assert plan.digest() == row.content and verify(plan).ok
    database.close()
