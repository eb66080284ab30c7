"""Queries for links, asked of a real Prometheus; the configuration is that of docs/reference/controller-telemetry.md."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from prometheus_server import needs_prometheus, prometheus, query
from stretto.model.errors import InputError
from stretto.service.telemetry.prometheus import value_of
from stretto.service.telemetry.sources import SourceFailed, sources_of
from waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "controller-telemetry.md"
LINKS = dict.fromkeys([("host0", "tor0"), ("tor0", "host0"), ("host0", "host1"), ("tor0", "host1")], 1.25e9)

EXPORTED = """\
node_network_transmit_bytes_total{{instance="host0:9100",device="eth0"}} {sent} {at}
node_network_transmit_bytes_total{{instance="host0:9100",device="lo"}} 77 {at}
node_network_speed_bytes{{instance="host0:9100",device="eth0"}} 1.25e+09 {at}
node_network_up{{instance="host0:9100",device="eth0"}} 1 {at}
ifHCOutOctets{{instance="tor0",ifIndex="3",ifDescr="Ethernet1/1"}} {sent} {at}
ifHighSpeed{{instance="tor0",ifIndex="3",ifDescr="Ethernet1/1"}} 10000 {at}
ifOperStatus{{instance="tor0",ifIndex="3"}} 2 {at}
nccl_p2p_bus_bandwidth_gbs{{node="host0",gpu="GPU0",nranks="2",p2p_operation="Send",message_size="1-2MB"}} 0.4 {at}
nccl_p2p_bus_bandwidth_gbs{{node="host0",gpu="GPU0",nranks="2",p2p_operation="Send",message_size="8-9MB"}} 1.1 {at}
nccl_p2p_bus_bandwidth_gbs{{node="host0",gpu="GPU0",nranks="8",p2p_operation="Send",message_size="8-9MB"}} 3.0 {at}
odd{{case="none"}} NaN {at}
"""
COUNTER = 'ifHCOutOctets{instance="tor0"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with prometheus(tmp_path_factory.mktemp("prometheus")) as (url, exporter):
        for sent in (10**6, 2 * 10**6, 5 * 10**5):  # a restart at last, which rate() sees
            exporter.metrics = EXPORTED.format(sent=sent, at=int(time.time() * 1000))
            until(lambda sent=sent: [f"{sent}"] == [found["value"][1] for found in query(url, COUNTER, time.time())])
        yield url


def documented():
    text = re.search(r"<!-- tested: sources -->\n```json\n(.*?)```", PAGE.read_text(), re.S)
    return json.loads(text[1])


def source(url, links, **more):
    (source,) = sources_of({"prometheus": [{"url": url, "links": links} | more]}, LINKS, "network")
    return source


def asked(url, promql):
    return source(url, [{"src": "host0", "dst": "tor0", "query": promql}]).read()


def test_the_documented_configuration_is_read(monkeypatch):
    monkeypatch.setenv("STRETTO_GNMI_USER", "reader")
    monkeypatch.setenv("STRETTO_GNMI_PASSWORD", "secret")
    first, second = sources_of(documented(), LINKS, "network")
    assert (first.name, first.every_s) == ("Prometheus at 10.0.0.9:9090", 10.0)
    assert second.name == "gNMI at 10.0.0.20:57400"


@needs_prometheus
def test_the_documented_queries_give_the_rates_of_their_links(server):
    links = documented()["prometheus"][0]["links"]
    samples, wrong = source(server, links).read()
    assert not wrong
    by_kind = {(s.link, s.kind): s for s in samples}
    assert len(samples) == len(links) == 5
    assert by_kind[("host0", "tor0"), "capacity"].rate == 1.25e9
    assert by_kind[("tor0", "host0"), "capacity"].rate == 0.0  # its port is down
    assert by_kind[("host0", "host1"), "capacity"].rate == pytest.approx(1.1e9)
    for link, promql in ((("host0", "tor0"), links[0]["query"]), (("tor0", "host0"), links[2]["query"])):
        sample = by_kind[link, "carried"]
        (own,) = query(server, promql.replace("$src", link[0]), sample.at_s)
        assert sample.rate > 0
        assert (sample.at_s, sample.rate) == (own["value"][0], float(own["value"][1]))


@needs_prometheus
def test_a_moment_is_that_of_prometheus(server):
    before = time.time()
    ((sample,), _) = asked(server, "scalar(node_network_up)")
    assert before - 0.01 <= sample.at_s <= time.time() + 0.01
    assert sample.rate == 1.0


@needs_prometheus
def test_a_query_that_finds_nothing_or_no_number_gives_no_sample(server):
    assert asked(server, "nothing_of_this_name") == ([], "")
    assert asked(server, "odd") == ([], "")


@needs_prometheus
@pytest.mark.parametrize(
    ("promql", "says"),
    [
        ("sum(", "parse error"),
        ("node_network_transmit_bytes_total", "it gives 2 series, and one link has one rate; sum(...) adds them up"),
        ("node_network_up[1m]", "it gives a matrix"),
    ],
)
def test_a_wrong_query_is_named_by_its_link_and_spoils_no_other(server, promql, says):
    good = {"src": "tor0", "dst": "host0", "query": "sum(node_network_up)"}
    samples, wrong = source(server, [{"src": "host0", "dst": "tor0", "query": promql}, good]).read()
    assert [sample.link for sample in samples] == [("tor0", "host0")]
    assert wrong.startswith("the query of host0 to tor0: ")
    assert says in wrong


def test_a_server_that_is_gone_is_said():
    with pytest.raises(SourceFailed, match=r"it does not answer: .*refused"):
        asked("http://127.0.0.1:1", "up")


def test_the_token_goes_with_every_query_and_a_refusal_is_said(monkeypatch):
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append((self.path, self.headers["Authorization"]))
            self.send_error(401)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("STRETTO_PROMETHEUS_TOKEN", "abc")
        links = [{"src": "host0", "dst": "tor0", "query": "up"}]
        url = f"http://127.0.0.1:{server.server_port}/base/"
        with pytest.raises(SourceFailed, match="it answers 401 Unauthorized"):
            source(url, links, token_variable="STRETTO_PROMETHEUS_TOKEN").read()
    assert seen == [("/base/api/v1/query", "Bearer abc")]


def test_the_token_goes_to_no_server_that_another_one_names(monkeypatch):
    seen = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers["Authorization"])
            self.send_error(404)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()

        class Handler(Other):
            def do_POST(self):
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{other.server_port}/")
                self.end_headers()

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.handle_request, daemon=True).start()
            monkeypatch.setenv("STRETTO_PROMETHEUS_TOKEN", "abc")
            links = [{"src": "host0", "dst": "tor0", "query": "up"}]
            with pytest.raises(SourceFailed, match="it answers 302"):
                source(
                    f"http://127.0.0.1:{server.server_port}", links, token_variable="STRETTO_PROMETHEUS_TOKEN"
                ).read()
        other.shutdown()
    assert seen == []


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b"[]", b"{}", b'{"status":"success"}', b"null", b'{"status":"error"}']
)
def test_what_is_no_answer_of_the_api_is_said(text):
    with pytest.raises(ValueError, match="none of Prometheus' HTTP API"):
        value_of(text)


def test_infinite_values_are_no_rates():
    answer = {"status": "success", "data": {"resultType": "scalar", "result": [1.0, "+Inf"]}}
    assert math.isinf(float(answer["data"]["result"][1]))
    assert value_of(json.dumps(answer).encode()) is None


def test_names_of_nodes_cannot_leave_their_quotes():
    links = {('a"} or up{x="', "b"): 1e9}
    data = {"url": "http://127.0.0.1:1", "links": [{"src": 'a"} or up{x="', "dst": "b", "query": 'up{i="$src"}'}]}
    (made,) = sources_of({"prometheus": [data]}, links, "network")
    assert made.queries[0].query == 'up{i="a\\"} or up{x=\\""}'


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"url": "10.0.0.9:9090"}, "network, prometheus 0: 'url' must be one such as http://10.0.0.9:9090"),
        ({"url": "file:///etc/passwd"}, "'url' must be one such as"),
        ({"links": [{"src": "x", "dst": "y", "query": "up"}]}, "link 0: there is no link 'x' to 'y'"),
        ({"links": [{"src": "host0", "dst": "tor0"}]}, "'query' must be text"),
        ({"links": [{"src": "host0", "dst": "tor0", "query": "up", "kind": "free"}]}, "kind 'free' is none of"),
        ({"links": {}}, "'links' must be a list"),
        ({"every_s": "soon"}, "'every_s' must be a number of seconds"),
    ],
)
def test_a_wrong_configuration_is_named_with_its_place(said, words):
    data = {"url": "http://10.0.0.9:9090", "links": []} | said
    with pytest.raises(InputError) as error:
        sources_of({"prometheus": [data]}, LINKS, "network")
    assert words in str(error.value)
