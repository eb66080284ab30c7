"""The threads that ask sources: each by itself, on and on, whatever goes wrong."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

import pytest

from stretto.model.errors import InputError
from stretto.service.telemetry.intake import Receipt
from stretto.service.telemetry.samples import CARRIED, Sample
from stretto.service.telemetry.sources import Health, Poller, Reading, SourceFailed, ask_once, sources_of

SAMPLE = Sample("a", "b", CARRIED, 1.0, 100.0)


class Scripted:
    """A source that answers what it is told to."""

    def __init__(self, name, *answers, every_s=0.01):
        self.name, self.every_s, self.answers = name, every_s, list(answers)
        self.closed = threading.Event()

    def read(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            self.closed.wait()
            raise SourceFailed("it was closed")
        return answer

    def close(self):
        self.closed.set()


def test_a_source_that_hangs_holds_up_no_other_and_ends_with_the_poller():
    taken = SimpleQueue()

    def take(samples):
        taken.put(samples)
        return Receipt(len(samples), {})

    hanging, good = Scripted("hanging", None), Scripted("good", Reading([SAMPLE]))
    poller = Poller([hanging, good], take)
    poller.start()
    assert [taken.get(timeout=20) for _ in range(3)] == [[SAMPLE]] * 3
    poller.close()
    assert poller.health["good"].kept >= 3
    assert poller.health["hanging"].error == "it was closed"


def test_health_counts_samples_and_failures_and_names_the_last_error(caplog):
    source = Scripted("s", SourceFailed("no route"), SourceFailed("no route"), Reading([SAMPLE, SAMPLE]))
    health = Health()
    with caplog.at_level(logging.WARNING):
        assert not ask_once(source, None, health)
        assert health.error == "no route"
        assert not ask_once(source, None, health)
        assert ask_once(source, lambda samples: Receipt(1, {"doubled": 1}), health)
    assert (health.reads, health.failures, health.kept, health.refused) == (3, 2, 1, {"doubled": 1})
    assert health.error == ""
    assert health.read_at_s is not None
    assert [r.getMessage() for r in caplog.records] == ["telemetry of s: no route", "telemetry of s: it answers again"]


def test_what_is_wrong_with_some_links_is_shown_while_the_others_count():
    health = Health()
    assert ask_once(Scripted("s", Reading([SAMPLE], "no eth7")), lambda samples: Receipt(1, {}), health)
    assert (health.error, health.kept, health.failures) == ("no eth7", 1, 0)


def test_a_store_that_fails_is_the_sources_next_error_and_ends_nothing():
    def take(samples):
        raise OSError("the database is gone")

    health = Health()
    assert not ask_once(Scripted("s", Reading([SAMPLE])), take, health)
    assert health.error == "OSError: the database is gone"


def test_unknown_kinds_of_sources_are_refused():
    with pytest.raises(InputError, match="'snmp' is not known; there are prometheus, gnmi"):
        sources_of({"snmp": []}, {}, "network")
    assert sources_of({}, {}, "network") == []


def test_two_sources_at_one_address_have_names_of_their_own():
    asked = {"url": "http://10.0.0.9:9090", "links": []}
    names = [source.name for source in sources_of({"prometheus": [asked, asked]}, {}, "network")]
    assert names == ["Prometheus at 10.0.0.9:9090", "Prometheus at 10.0.0.9:9090 (prometheus 1)"]
