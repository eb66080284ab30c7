"""What pages are sent: all that is known, then what changes, until they may not look any more."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

import stretto as st
from stretto.service import holding, jobs, networks
from stretto.service.database import Database
from stretto.service.documents import parse_job
from stretto.service.events import Events
from stretto.service.telemetry.samples import CARRIED, Sample

NET = st.topology("ring:4")
JOB = parse_job({"network": "net", "collectives": [{"kind": "allreduce", "size": "1MB", "times": 2}]})


def events_of(text: str) -> list[tuple[str, dict]]:
    """(kind, data) of the events in what was sent."""
    found = []
    for part in text.split("\n\n"):
        if part.startswith("event: "):
            kind, data = part.split("\n")
            found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


class Store:
    def __init__(self, path):
        self.database = Database(f"sqlite:///{path}/c.sqlite")
        self.term = self.database.begin_term("", 1.0)
        self.leads = True
        self.events = Events(self.database, lambda: self.leads)

    def write(self, function, *arguments):
        with self.database.write(self.term) as connection:
            function(connection, *arguments)
        self.events.wake()


def test_a_page_is_sent_everything_and_then_what_changes(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr("stretto.service.events.GAP_S", 0.0)
    monkeypatch.setattr("stretto.service.showing.OLDEST_S", 1e12)  # samples of 1970 are of late
    store.write(networks.put_network, "net", NET, 1.0)
    store.write(jobs.put_job, "a", JOB, 1.0)

    async def listened() -> None:
        may = [{"role": "read"}]
        stream = store.events.listen(lambda: may[-1] and may[-1] | {"leads": store.leads})
        first = events_of(await anext(stream))
        assert [kind for kind, _ in first] == ["hello", "network", "links", "load", "job", "ready"]
        job = dict(first)["job"]
        assert (job["status"], job["hold"], job["collectives"][0]["times"]) == ("waiting", None, 2)

        store.write(networks.keep_samples, "net", [Sample("gpu0", "gpu1", CARRIED, 2e9, 5.0)])
        assert events_of(await anext(stream))[0] == (
            "links",
            {"name": "net", "samples": [["gpu0", "gpu1", CARRIED, 2e9, 5.0]]},
        )
        store.write(holding.hold_job, "a", "alice", 6.0)
        (kind, held), (last, _) = events_of(await anext(stream))
        assert (kind, held["hold"], last) == ("job", {"who": "alice", "at": 6.0}, "ready")
        store.write(jobs.delete_job, "a")
        assert events_of(await anext(stream))[0] == ("gone", {"kind": "job", "name": "a"})

        store.leads = False
        store.events.wake()
        assert events_of(await anext(stream))[0][1]["leads"] is False
        other = store.events.listen(lambda: {"role": "operator"})
        assert [kind for kind, _ in events_of(await anext(other))] == ["hello", "network", "links", "load", "ready"]
        may.append(None)  # the token was revoked
        store.write(jobs.put_job, "b", JOB, 7.0)
        assert events_of(await anext(other))[0][1]["name"] == "b"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        store.events.close()
        with pytest.raises(StopAsyncIteration):
            await anext(other)

    asyncio.run(listened())
    store.database.close()


def test_pages_are_told_that_the_database_is_gone_and_that_it_is_back(tmp_path, monkeypatch):
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    store = Store(home)
    monkeypatch.setattr("stretto.service.events.GAP_S", 0.0)
    monkeypatch.setattr("stretto.service.events.LOOK_S", 0.01)

    async def listened() -> None:
        stream = store.events.listen(dict)
        await anext(stream)
        store.database.engine.dispose()
        home.rename(away)
        store.events.wake()
        ((kind, said),) = events_of(await anext(stream))
        assert kind == "trouble" and "the database cannot be used now" in said["message"]
        away.rename(home)
        assert [kind for kind, _ in events_of(await anext(stream))] == ["ready"]
        await stream.aclose()

    asyncio.run(listened())
    store.database.close()


def test_a_client_with_too_many_pages_shuts_out_nobody_else(tmp_path, monkeypatch):
    store = Store(tmp_path)
    monkeypatch.setattr("stretto.service.events.MOST_OF_CLIENT", 2)
    monkeypatch.setattr("stretto.service.events.MOST_LISTENERS", 4)

    async def listened() -> None:
        pages = {}
        for name, client in (("first", "a"), ("second", "a"), ("other", "b")):
            assert not store.events.full(client)
            pages[name] = store.events.listen(dict, client)
            await anext(pages[name])
        assert store.events.full("a") and not store.events.full("b") and not store.events.full("c")
        await pages["first"].aclose()
        assert not store.events.full("a")
        for name in ("c", "d"):
            pages[name] = store.events.listen(dict, name)
            await anext(pages[name])
        assert store.events.full("a") and store.events.full("new")  # the instance has all that it serves
        store.events.close()
        for page in pages.values():
            await page.aclose()

    asyncio.run(listened())
    store.database.close()
