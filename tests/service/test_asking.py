"""Sources of networks that come and go."""

from __future__ import annotations

import json

import pytest

from stretto.model.errors import InputError
from stretto.service.telemetry import asking
from stretto.service.telemetry.asking import Asking, read_sources
from stretto.service.telemetry.intake import Intake

SOURCES = {"prometheus": [{"url": "http://127.0.0.1:1", "links": [{"src": "a", "dst": "b", "query": "up"}]}]}
NAME = "Prometheus at 127.0.0.1:1"


class Doors:
    """The doors of networks, as an instance of the controller has them."""

    def __init__(self):
        self.doors = {}

    def give(self, network, *links):
        self.doors[network] = Intake(dict.fromkeys(links, 1e9), lambda samples: None)

    def __call__(self, network):
        if network not in self.doors:
            raise LookupError(f"there is no network {network!r}")
        return self.doors[network]


@pytest.fixture
def doors():
    return Doors()


def test_a_network_is_asked_about_as_long_as_it_is_there(doors):
    asking = Asking({"wan": SOURCES, "lan": SOURCES}, doors)
    asking.look()
    assert asking.health() == {}
    assert asking.waiting["wan"] == "there is no network 'wan'"
    doors.give("wan", ("a", "b"))
    asking.look()
    assert {network: [*sources] for network, sources in asking.health().items()} == {"wan": [NAME]}
    assert [*asking.waiting] == ["lan"]
    del doors.doors["wan"]
    asking.look()
    assert asking.health() == {}
    asking.close()


def test_a_network_that_is_given_anew_begins_again_with_its_new_links(doors):
    doors.give("wan", ("a", "c"))
    asking = Asking({"wan": SOURCES}, doors)
    asking.look()
    assert asking.waiting == {"wan": "sources of wan, prometheus 0, link 0: there is no link 'a' to 'b'"}
    doors.give("wan", ("a", "b"))
    asking.look()
    assert asking.waiting == {}
    first = asking.health()["wan"]
    asking.look()
    assert asking.health()["wan"][NAME] is first[NAME]
    doors.give("wan", ("a", "b"), ("b", "a"))
    asking.look()
    assert asking.health()["wan"][NAME] is not first[NAME]
    asking.close()


def test_its_thread_looks_again_and_ends(doors, monkeypatch):
    monkeypatch.setattr(asking, "LOOK_S", 0.01)
    looked = []

    def door(network):
        looked.append(network)
        if len(looked) > 2:
            ended._ends.set()
        raise LookupError

    ended = Asking({"wan": SOURCES}, door)
    ended.start()
    ended._thread.join(20)
    ended.close()
    assert len(looked) == 3


def test_a_file_of_sources_is_read_by_network(tmp_path):
    path = tmp_path / "sources.json"
    path.write_text(json.dumps({"wan": SOURCES}))
    assert read_sources(str(path)) == {"wan": SOURCES}
    for text, words in (
        ('{"wan": {"snmp": []}}', "sources.json, wan: 'snmp' is not known; there are prometheus, gnmi"),
        ('{"wan": []}', "sources.json, wan: must be an object"),
        ("[]", "sources.json: must be an object"),
        ("3", "sources.json: must be an object"),
    ):
        path.write_text(text)
        with pytest.raises(InputError) as error:
            read_sources(str(path))
        assert words in str(error.value)
