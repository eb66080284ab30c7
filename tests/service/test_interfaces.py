"""Counters of interfaces over gNMI, asked of a small target."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import gnmi_target
import tls_files
from gnmi_target import GnmiTarget, Said, grpc
from stretto.model.errors import InputError, Unsupported
from stretto.service import gnmi
from stretto.service.gnmi import GnmiClient, GnmiFailed, Target
from stretto.service.telemetry.sources import SourceFailed, sources_of

LINKS = {("a", "b"): 1e9, ("b", "a"): 1e9}
COUNTERS = "/interfaces/interface[name=Ethernet1/1]/state/counters"
SECOND = 10**9


class Device:
    """An interface whose counters and clock a test sets."""

    def __init__(self):
        self.said = []

    def say(self, at_s, **leaves):
        values = {name.replace("_", "-"): value for name, value in leaves.items()}
        self.said = [Said(COUNTERS, values, int(at_s * SECOND))]

    def __call__(self, path):
        if path != COUNTERS:
            raise KeyError(path)
        return self.said


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def target(device):
    with GnmiTarget(device) as target:
        yield target


def source(target, **more):
    links = [{"src": "a", "dst": "b", "interface": "Ethernet1/1"}]
    document = {"gnmi": [{"target": f"127.0.0.1:{target.port}", "insecure": True, "links": links} | more]}
    (source,) = sources_of(document, LINKS, "network")
    return source


def read(source):
    samples, wrong = source.read()
    assert not wrong
    return [(sample.link, sample.kind, sample.rate) for sample in samples]


def test_a_link_carried_what_its_interface_counted_by_the_clock_of_the_device(device, target):
    asked = source(target)
    device.say(100, out_octets="5000")  # JSON writes 64 bits as text
    assert read(asked) == []
    device.say(110, out_octets="25000")
    before = time.time()
    ((sample,), _) = asked.read()
    assert (sample.link, sample.kind, sample.rate) == (("a", "b"), "carried", 2000.0)
    assert before <= sample.at_s <= time.time()
    asked.close()


def test_leaves_that_come_one_by_one_are_read_too(device, target):
    asked = source(target)
    device.said = [Said(f"{COUNTERS}/in-octets", 7, SECOND), Said(f"{COUNTERS}/out-octets", 1000, SECOND)]
    assert read(asked) == []
    device.said = [Said(f"/openconfig:{COUNTERS[1:]}/openconfig-interfaces:out-octets", 3000, 3 * SECOND)]
    assert read(asked) == [(("a", "b"), "carried", 1000.0)]
    asked.close()


def test_counters_that_were_cleared_tell_no_rate(device, target):
    asked = source(target)
    device.say(100, out_octets=5000, last_clear="1")
    read(asked)
    device.say(110, out_octets=6000, last_clear="105")
    assert read(asked) == []
    device.say(120, out_octets=6500, last_clear="105")
    assert read(asked) == [(("a", "b"), "carried", 50.0)]
    asked.close()


def test_a_port_that_is_down_is_said_at_once_and_said_to_be_up_when_it_is(target, device):
    status, device.said = ["UP"], [Said(COUNTERS, {"out-octets": 1}, SECOND)]
    path = COUNTERS.replace("counters", "oper-status")
    target.answer = lambda text: [Said(path, status[0])] if text == path else device(text)
    asked = source(target)
    said = []
    for status[0] in ("UP", "UP", "LOWER_LAYER_DOWN", "DOWN", "UP"):
        said.append([s.rate for s in asked.read()[0] if s.kind == "up"])
    assert said == [[1.0], [], [0.0], [], [1.0]]
    asked.close()


def test_ports_side_by_side_are_one_link(target):
    octets, status = {"1": 0, "2": 0}, {"1": "DOWN", "2": "UP"}

    def answer(text):
        name = text.partition("name=")[2][0]
        if text.endswith("status"):
            return [Said(text, status[name])]
        return [Said(text, {"out-octets": octets[name]}, octets["1"] * SECOND // 100 + SECOND)]

    target.answer = answer
    asked = source(target, links=[{"src": "a", "dst": "b", "interface": name} for name in octets])
    assert read(asked) == [(("a", "b"), "up", 1.0)]
    octets |= {"1": 1000, "2": 500}
    assert read(asked) == [(("a", "b"), "carried", 150.0)]
    status["2"] = "DOWN"
    assert [s.rate for s in asked.read()[0] if s.kind == "up"] == [0.0]
    asked.close()


@pytest.mark.parametrize("value", ["many", -1, True, 1.5, None, "9" * 21])
def test_what_is_no_counter_is_said(device, target, value):
    device.said = [Said(COUNTERS, {"out-octets": value}, SECOND)]
    asked = source(target)
    assert asked.read() == ([], f"it has no out-octets at {COUNTERS}")
    asked.close()


def test_another_path_and_counter_can_be_named(target, device):
    path = "/sonic-db:COUNTERS_DB/localhost/COUNTERS/Ethernet0"
    octets = [1000]
    target.answer = lambda text: [
        Said(path, {"SAI_PORT_STAT_IF_OUT_OCTETS": str(octets[0])}, octets[0] * SECOND // 100)
    ]
    links = [{"src": "a", "dst": "b", "interface": "Ethernet0", "counter": "SAI_PORT_STAT_IF_OUT_OCTETS"}]
    asked = source(target, path=path.replace("Ethernet0", "$interface"), links=links)
    read(asked)
    octets[0] = 2000
    assert read(asked) == [(("a", "b"), "carried", 100.0)]
    asked.close()


def test_a_target_that_refuses_says_why(target):
    asked = source(target, path="/elsewhere[name=$interface]")
    with pytest.raises(SourceFailed, match=r"127.0.0.1:\d+: .*there is nothing at /elsewhere\[name=Ethernet1/1\]"):
        asked.read()
    asked.close()


def test_a_target_that_does_not_answer_in_time_is_given_up_and_asked_anew(device, target):
    client = GnmiClient(Target("127.0.0.1", target.port, insecure=True), timeout_s=0.3)
    device.say(1, out_octets=5)
    target.held.clear()
    with pytest.raises(GnmiFailed, match=r"did not answer within 0.3 s"):
        client.get([COUNTERS])
    target.held.set()
    client.timeout_s = 5.0
    assert [notice.value for notice in client.get([COUNTERS])] == [{"out-octets": 5}]
    client.close()
    with pytest.raises(GnmiFailed, match="closed"):
        client.get([COUNTERS])


def test_a_target_that_starts_again_is_connected_to_again(device, target):
    device.say(1, out_octets=5)
    asked = source(target)
    read(asked)
    port = target.port
    target.server.stop(grace=None).wait()
    with pytest.raises(SourceFailed):
        asked.read()
    with GnmiTarget(device, port=port):
        device.say(11, out_octets=105)
        assert read(asked) == [(("a", "b"), "carried", 10.0)]
    asked.close()


def test_a_target_is_asked_over_tls_by_a_name_and_a_password(device, monkeypatch):
    files = tls_files.files()
    key, certificate, authority = (Path(f).read_bytes() for f in (files.key, files.certificate, files.authority))
    server = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    monkeypatch.setenv("STRETTO_GNMI_USER", "reader")
    monkeypatch.setenv("STRETTO_GNMI_PASSWORD", "secret")
    device.say(1, out_octets=5)
    with GnmiTarget(device, credentials=server) as target:
        tls = {"insecure": False, "ca": files.authority, "certificate": files.certificate, "key": files.key}
        names = {"username_variable": "STRETTO_GNMI_USER", "password_variable": "STRETTO_GNMI_PASSWORD"}
        asked = source(target, status="", **tls, **names)
        read(asked)
        asked.close()
        assert target.users == ["reader"]


def test_without_pygnmi_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygnmi", None)
    client = GnmiClient(Target("127.0.0.1", 1, insecure=True), timeout_s=1.0)
    with pytest.raises(Unsupported, match=r"pip install 'stretto\[gnmi\]'"):
        client.get([COUNTERS])


LINK = {"src": "a", "dst": "b", "interface": "Ethernet0"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"target": "leaf1"}, "network, gnmi 0: 'target' must be HOST:PORT"),
        ({"target": "leaf1:99999"}, "'target' must be HOST:PORT"),
        ({"insecure": False}, "give 'ca', the file of the authority of its certificate, or else 'insecure': true"),
        ({"ca": "ca.pem"}, "give 'ca'"),
        ({"certificate": "c.pem"}, "give 'certificate' and 'key' both"),
        ({"every_s": 0}, "'every_s' must be a number of seconds from 0.1, not 0"),
        ({"path": "/counters"}, "'path' needs $interface"),
        ({"password_variable": "HOME"}, "must name an environment variable STRETTO_"),
        ({"password_variable": "STRETTO_NONE"}, "STRETTO_NONE is not set"),
        ({"links": [LINK | {"dst": "c"}]}, "network, gnmi 0, link 0: there is no link 'a' to 'c'"),
        ({"links": [LINK | {"bits": 32}]}, "a counter of 32 bits can go round in 0.429 s, and is read every 10 s"),
        ({"links": [LINK | {"bits": 8}]}, "'bits' must be a whole number from 16 to 64"),
        ({"colour": "red"}, "'colour' is not known"),
    ],
)
def test_a_wrong_configuration_is_named_with_its_place(said, words):
    data = {"target": "leaf1:57400", "insecure": True, "links": [LINK]} | said
    with pytest.raises(InputError) as error:
        sources_of({"gnmi": [data]}, LINKS, "network")
    assert words in str(error.value)


def test_an_address_of_ipv6_keeps_its_brackets_where_grpc_wants_them():
    target = gnmi.target_of({"target": "[::1]:57400", "insecure": True}, "", "", "here")
    assert (target.host, target.port) == ("::1", 57400)
    assert gnmi_target.path_of("/sonic-db:A/b").origin == "sonic-db"
