"""The controller over HTTPS: what it answers, and to whom."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import pytest
from typer.testing import CliRunner

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

import stretto as st
from controller_process import Served
from stretto.cli import app
from stretto.formats.native import plan_from_text
from stretto.model.errors import InputError
from stretto.service.access import new_token
from stretto.service.client import Controller, ControllerRefused
from stretto.service.optical.driver import End, PortFailed
from stretto.service.optical.telling import tell_controller
from stretto.topologies.files import topology_from_json
from stretto.verify import verify
from waiting import until

NET = st.topology("ring:4", bandwidth="10GB/s")
JOB = {"network": "net", "collectives": [{"kind": "allreduce", "size": "4MB"}]}
WAIT_S = 120.0
"""Seconds to wait for a plan at most; it takes a few hundredths on a machine that does nothing else."""


class Answering(ThreadingHTTPServer):
    """Answers every query as Prometheus would that found 3 GB/s, and counts them."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.asked = SimpleQueue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            found = {"resultType": "vector", "result": [{"metric": {}, "value": [time.time(), "3e9"]}]}
            content = json.dumps({"status": "success", "data": found}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.server.asked.put(self.path)

        def log_message(self, *_):
            pass


class Cluster:
    """A leader with tokens and TLS."""

    def __init__(self, folder):
        self.data, self.tokens = folder / "data", folder / "tokens"
        self.cert, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
             "-out", self.cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        self.token = {role: new_token(str(self.tokens), role, f"{role}-1") for role in ("read", "job", "operator")}
        self.token["bound"] = new_token(str(self.tokens), "job", "bound-1", "bound-*,eval")
        self.token["host"] = new_token(str(self.tokens), "job", "host-1", "hosts-*", "gpu[01],x*")
        self.options = ("--tokens", self.tokens, "--tls-cert", self.cert, "--tls-key", key, "--hold", 0.1)
        self.prometheus = Answering()
        links = [{"src": NET.names[0], "dst": NET.names[1], "query": "up"}]
        asked = [{"url": f"http://127.0.0.1:{self.prometheus.server_port}", "every_s": 0.1, "links": links}]
        (folder / "sources.json").write_text(json.dumps({"asked": {"prometheus": asked}}))
        self.leader = Served(self.data, *self.options, "--most-bytes", 50_000, "--sources", folder / "sources.json")

    def client(self, role="operator", served=None):
        return (served or self.leader).client(self.token[role], self.cert)

    def send(self, method, path, body=None, role="operator", served=None, **headers):
        """(status, headers, content) of a request."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {key.replace("_", "-"): value for key, value in headers.items()}
        if role is not None:
            headers["Authorization"] = f"Bearer {self.token[role]}"
        request = urllib.request.Request((served or self.leader).url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=self.cert)) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("controller"))
    client = made.client()
    assert client.put_network("net", NET.to_json())["version"] == 1
    client.put_job("first", JOB)
    yield made
    made.leader.stop()
    made.prometheus.shutdown()


def test_a_job_gets_a_verified_plan_in_both_forms(cluster):
    client = cluster.client("read")
    said = client.plan("first", version=1, wait_s=WAIT_S)
    assert (said["version"], said["network"], said["why"]) == (1, "net", "the first plans on this network")
    plan = plan_from_text(client.plan_text(said["digest"]), "plan")
    assert verify(plan).ok and plan.workload.collectives[0].size_bytes == 4_000_000
    assert client.plan_parquet(said["digest"])[:4] == b"PAR1"
    assert client.job("first")["status"] == "planned"
    assert said["collectives"][0]["completion_s"] == pytest.approx(st.simulate(plan).completions_s[0])


def test_the_leader_asks_the_sources_of_a_network_once_it_is_there(cluster):
    client = cluster.client()
    assert cluster.prometheus.asked.empty()
    client.put_network("asked", NET.to_json())
    for _ in range(2):  # the second time what the first one found was kept
        assert cluster.prometheus.asked.get(timeout=WAIT_S) == "/api/v1/query"
    found = json.loads(cluster.send("GET", "/networks/asked/telemetry")[2])
    assert {(s["src"], s["dst"], s["kind"], s["rate"]) for s in found} == {(*NET.names[:2], "carried", 3e9)}
    (health,) = json.loads(cluster.send("GET", "/networks/asked/sources")[2])["sources"].values()
    assert health["kept"] >= 1 and (health["failures"], health["error"]) == (0, "")
    assert json.loads(cluster.send("GET", "/networks/net/sources")[2]) == {"sources": {}, "waiting": None}
    client.delete_network("asked")


def test_a_port_that_fails_is_told_and_the_network_loses_it(cluster):
    client, fabric = cluster.client(), st.topology("optical:4,2")
    client.put_network("fabric", fabric.to_json())
    failure = PortFailed(0, [End(2, "A")], ["3A"])
    assert tell_controller(client, "fabric", fabric, failure) == 2
    assert tell_controller(client, "fabric", fabric, failure) == 2  # it is known
    left = topology_from_json(client.network("fabric")["topology"], "fabric")
    assert [plane.nodes.tolist() for plane in left.planes] == [[0, 1, 3], [0, 1, 2, 3]]
    assert tell_controller(client, "fabric", fabric, PortFailed(0, [End(3, "B")], ["4B"])) == 3
    left = topology_from_json(client.network("fabric")["topology"], "fabric")
    assert left.planes[0].nodes.tolist() == [0, 1]
    with pytest.raises(InputError, match="network fabric: has 2 planes, and the fabric 3"):
        tell_controller(client, "fabric", st.topology("optical:4,3"), failure)
    client.delete_network("fabric")


def changed(client, name, status):
    """A job once it has another status."""
    until = time.monotonic() + WAIT_S
    while (said := client.job(name))["status"] == status:
        assert time.monotonic() < until, said
        time.sleep(0.05)
    return said


def test_a_job_that_is_held_no_more_leaves_planes_to_others(tmp_path):
    served = Served(tmp_path / "data", "--planner", "auto")
    try:
        client, job = served.client(), {"network": "fabric", "collectives": [{"kind": "alltoall", "size": "1MB"}]}
        client.put_network("fabric", st.topology("optical:4,2").to_json())
        client.put_job("holding", job)
        assert client.plan("holding", wait_s=WAIT_S)["planes"] == [0, 1]
        client.hold_job("holding")
        client.put_job("waiting", job)
        assert "these have them: 'holding' (2)" in changed(client, "waiting", "waiting")["reason"]
        client.accept_plan("holding")
        changed(client, "waiting", "refused")
        assert client.plan("waiting", wait_s=WAIT_S)["planes"] == [1] and client.plan("holding")["planes"] == [0]
    finally:
        served.stop()


def test_a_version_that_the_client_has_is_not_sent_again(cluster):
    cluster.client().plan("first", version=1, wait_s=WAIT_S)
    newest = cluster.client().plan("first")["version"]
    status, headers, content = cluster.send("GET", "/jobs/first/plan", If_None_Match=f'"{newest}"')
    assert (status, headers["ETag"], content) == (304, f'"{newest}"', b"")
    assert cluster.client().plan("first", known=newest, wait_s=0.05) is None


def test_who_waits_gets_the_next_version_when_it_is_published(cluster):
    client, found = cluster.client("job"), []
    client.put_job("waited", {**JOB, "weight": 2})
    first = client.plan("waited", wait_s=WAIT_S)["version"]
    asked = cluster.client("read")
    waiting = threading.Thread(target=lambda: found.append(asked.plan("waited", known=first, wait_s=WAIT_S)))
    waiting.start()
    client.put_job("waited", {**JOB, "collectives": [{"kind": "allgather", "size": "1MB"}]})
    waiting.join()
    assert found[0]["version"] > first and "changed jobs: waited" in found[0]["why"]
    assert found[0]["job_version"] == 2
    client.delete_job("waited")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "message"),
    [
        ("PUT", "/jobs/a", {**JOB, "collectives": [{"kind": "allredue", "size": "1MB"}]}, 400, "bad_input",
         "collectives[0]: collective: there is no collective 'allredue'; did you mean"),
        ("PUT", "/jobs/a", {**JOB, "sizes": 3}, 400, "bad_input", "job: 'sizes' is not known"),
        ("PUT", "/jobs/a", {**JOB, "collectives": [{"kind": "allreduce", "size": "1MB", "times": 0}]}, 400, "bad_input",
         "collectives[0]: 'times' must be a finite number, above zero, not 0"),
        ("PUT", "/jobs/a", {**JOB, "network": "other"}, 404, "not_found", "there is no network 'other'"),
        ("PUT", "/jobs/a", b"{", 400, "bad_input", "body: is no JSON"),
        ("PUT", "/jobs/a", b" " * 50_001, 413, "too_large", "a body has at most 50000 bytes"),
        ("PUT", "/jobs/%2Fx", JOB, 404, "not_found", "there is no such route"),
        ("PUT", "/networks/n", {"nodes": [], "links": [{"src": 0}]}, 400, "bad_input", "body"),
        ("DELETE", "/networks/net", None, 409, "conflict", "network 'net' has"),
        ("GET", "/jobs/nobody/plan", None, 404, "not_found", "there is no job 'nobody'"),
        ("GET", "/jobs/first/plan?version=99", None, 404, "no_plan_yet", "has no such plan yet"),
        ("GET", "/jobs/first/plan?wait=long", None, 400, "bad_input", "query: 'wait' must be a finite number"),
        ("GET", "/plans/abc", None, 404, "not_found", "there is no plan 'abc'"),
        ("POST", "/networks/net/telemetry", {"links": [{"src": "gpu0", "dst": "gpu2"}]}, 400, "bad_input",
         "telemetry, link 0: there is no link gpu0→gpu2"),
        ("GET", "/jobs/a%00b", None, 422, "bad_name", "a name has no NUL"),
        ("PUT", "/networks/n", {"nodes": [{"id": 0, "name": "a\0"}], "links": []}, 422, "bad_name", "a name has no NUL"),
        ("POST", "/networks/net/telemetry", {"time": "soon"}, 400, "bad_input", "'time' must be seconds since 1970"),
        ("POST", "/jobs/first/accept", {"proposal": 5}, 409, "conflict", "proposal 5 to job 'first' is no more: nothing"),
        ("POST", "/jobs/first/accept", {"hold": 1}, 400, "bad_input", "'hold' must be true or false, not 1"),
        ("POST", "/jobs/nobody/hold", None, 404, "not_found", "there is no job 'nobody'"),
        ("POST", "/jobs/first", {}, 405, "method_not_allowed", "there is no such route or method"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_that_says_what_and_where(cluster, method, path, body, status, code, message):
    found, _, content = cluster.send(method, path, body)
    error = json.loads(content)["error"]
    assert (found, error["code"]) == (status, code), error
    assert message in error["message"] and "\n" not in error["message"]


def test_roles_say_who_may_do_what_and_the_audit_log_who_has(cluster):
    assert cluster.send("GET", "/jobs", role=None)[0] == 401
    assert cluster.send("PUT", "/jobs/a", JOB, role="read")[0] == 403
    assert cluster.send("PUT", "/networks/other", NET.to_json(), role="job")[0] == 403
    assert cluster.send("POST", "/jobs/first/hold", role="job")[0] == 403
    assert cluster.send("GET", "/audit", role="job")[0] == 403
    assert cluster.send("GET", "/healthz", role=None)[0] == 200
    rows = json.loads(cluster.send("GET", "/audit")[2])
    assert ("read-1", "PUT /jobs/a", 403) in {(row["who"], row["action"], row["status"]) for row in rows}
    assert ("operator-1", "PUT /networks/net", 200) in {(row["who"], row["action"], row["status"]) for row in rows}


def test_telemetry_that_is_absurd_or_doubled_is_refused_and_a_slow_link_leads_to_a_new_version(cluster):
    client = cluster.client("job")
    before = client.plan("first", version=1, wait_s=WAIT_S) and client.plan("first")["version"]
    link = {"src": "gpu0", "dst": "gpu1"}
    assert client.report("net", {"links": [{**link, "bandwidth": "1e15B/s"}]}) == {"kept": 0, "refused": {"absurd": 1}}
    slow = {"links": [{**link, "bandwidth": "1GB/s"}], "time": client.job("first")["at"]}
    assert client.report("net", slow)["kept"] == 1
    assert client.report("net", slow)["refused"] == {"doubled": 1}
    found = client.plan("first", known=before, wait_s=WAIT_S)
    while found["network_version"] < 2:  # a version for a job that ended just before
        found = client.plan("first", known=found["version"], wait_s=WAIT_S)
    assert "gpu0→gpu1 has 1 GB/s instead of 10 GB/s" in found["why"] and found["network_version"] == 2
    assert client.decisions("net")[0]["published"]


def refusal(cluster, *words, **how):
    status, _, content = cluster.send(*words, **how)
    error = json.loads(content)["error"]
    return status, error["code"], error["message"]


def test_a_token_of_some_jobs_speaks_for_no_other(cluster):
    bound, client = cluster.client("bound"), cluster.client()
    path = "/networks/net/telemetry"
    said = "none of the jobs bound-*, eval is on network 'net'"
    assert refusal(cluster, "POST", path, {"links": []}, role="bound") == (403, "forbidden", said)
    bound.put_job("bound-a", {**JOB, "ranks": ["gpu0", "gpu1"]})
    said = "bound-1 speaks for the jobs bound-*, eval, not for 'first'"
    for method in ("PUT", "DELETE"):
        assert refusal(cluster, method, "/jobs/first", JOB, role="bound") == (403, "forbidden", said)
    rows = json.loads(cluster.send("GET", "/audit")[2])
    assert ("bound-1", "DELETE /jobs/first", 403) in {(row["who"], row["action"], row["status"]) for row in rows}
    links = [{"src": a, "dst": b, "carried": 1.0} for a, b in (("gpu0", "gpu1"), ("gpu2", "gpu1"), ("gpu2", "gpu3"))]
    assert bound.report("net", {"links": links}) == {"kept": 2, "refused": {"not the reporter's": 1}}
    reporter = {"job": "first", "rank": 0}
    assert refusal(cluster, "POST", path, {"reporter": reporter, "links": links}, role="bound")[2] == said
    client.delete_job("bound-a")


def test_a_token_of_some_nodes_names_no_rank_elsewhere(cluster):
    host, client, path = cluster.client("host"), cluster.client(), "/networks/net/telemetry"
    refused = (403, "forbidden", "host-1 speaks at the nodes gpu[01], x*, not at 'gpu2'")
    collective = JOB["collectives"][0]
    for given in ({**JOB}, {**JOB, "ranks": [0, 2]}, {**JOB, "collectives": [{**collective, "ranks": [1, 2]}]}):
        assert refusal(cluster, "PUT", "/jobs/hosts-a", given, role="host") == refused
    client.put_job("hosts-a", {**JOB, "ranks": ["gpu0", "gpu1", "gpu2"]})
    links = [{"src": a, "dst": b, "carried": 2.0} for a, b in (("gpu1", "gpu2"), ("gpu2", "gpu3"))]
    assert host.report("net", {"links": links}) == {"kept": 1, "refused": {"not the reporter's": 1}}
    lie = {"reporter": {"job": "hosts-a", "rank": 2}, "links": links}
    assert refusal(cluster, "POST", path, lie, role="host") == refused
    times = {"version": 1, "collectives": [{"number": 0, "calls": 1, "measured_s": 0.1}]}
    assert refusal(cluster, "POST", "/jobs/hosts-a/times", times, role="host") == refused
    assert refusal(cluster, "DELETE", "/jobs/hosts-a", role="host") == refused
    assert refusal(cluster, "PUT", "/jobs/hosts-a", {**JOB, "ranks": [0, 1]}, role="host") == refused  # has rank 2 now
    assert host.put_job("hosts-b", {**JOB, "ranks": [0, 1]})["version"] == 1
    for name in ("hosts-a", "hosts-b"):
        client.delete_job(name)


def test_a_rank_reports_of_its_own_links_alone(cluster):
    client, links = cluster.client("job"), [{"src": "gpu1", "dst": "gpu2", "latency": "5us"}]
    client.put_job("three", {**JOB, "ranks": ["gpu0", 1, "gpu3"]})
    report = {"reporter": {"job": "three", "rank": 2}, "links": links}
    assert client.report("net", report) == {"kept": 0, "refused": {"not the reporter's": 1}}
    assert client.report("net", {**report, "reporter": {"job": "three", "rank": 1}})["kept"] == 1
    path = "/networks/net/telemetry"
    assert refusal(cluster, "POST", path, {**report, "reporter": {"job": "three", "rank": 3}}, role="job") == (
        400, "bad_input", "telemetry, 'reporter': 'rank' must be a whole number from 0 to 2, not 3"
    )  # fmt: skip
    assert refusal(cluster, "POST", path, {**report, "reporter": {"job": "four", "rank": 0}}, role="job")[0] == 404
    client.delete_job("three")


@pytest.mark.parametrize(
    ("said", "at", "what"),
    [
        ({"bandwidth": 1e30}, 0, "link 0: 1e+30 is not a bandwidth from 1 B/s to 1e18 B/s"),
        ({"bandwidth": -1.0}, 0, "is not a bandwidth"),
        ({"bandwidth": float("nan")}, 0, "is not a bandwidth"),
        ({"carried": float("inf")}, 0, "'carried' must be"),
        ({"latency": -1e-6}, 0, "is not a time"),
        ({"bandwidth": "1e17B/s"}, 0, "absurd"),
        ({"latency": "90s"}, 0, "absurd"),
        ({"carried": 1.0}, 60, "from the future"),
        ({"carried": 1.0}, -3600, "late"),
        ({"carried": 1.0, "src": "gpu3", "dst": "gpu1"}, 0, "there is no link gpu3→gpu1"),
    ],
)
def test_telemetry_that_cannot_be_true_is_refused_with_a_word_and_counted(cluster, said, at, what):
    def counted():
        page = cluster.send("GET", "/metrics", role="read")[2].decode()
        reason = what if " " not in what or what.startswith("from") else "bad input"
        label = f'stretto_refused_telemetry_samples_total{{network="net",reason="{reason}"}}'
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(label))

    before, link = counted(), {"src": "gpu2", "dst": "gpu3"} | said
    report = {"time": time.time() + at, "links": [link]}
    status, _, content = cluster.send("POST", "/networks/net/telemetry", report, role="job")
    answer = json.loads(content)
    if status == 202:
        assert answer == {"kept": 0, "refused": {what: 1}}
    else:
        assert status == 400 and what in answer["error"]["message"]
    assert counted() == before + 1


def test_an_instance_that_is_not_the_leader_reads_and_says_who_writes(cluster):
    served = Served(cluster.data, *cluster.options)
    try:
        client = cluster.client(served=served)
        assert client.health()["leader"] is False
        said = client.plan("first", wait_s=WAIT_S)  # a newer one may be published at any time, for jobs that have ended
        assert said == cluster.client().plan("first", version=said["version"])
        status, _, content = cluster.send("PUT", "/jobs/second", JOB, served=served)
        assert (status, json.loads(content)["error"]["leader"]) == (409, cluster.leader.url)
        assert client.put_job("second", JOB)["version"] == 1  # the client goes on to the leader
        assert client.plan("second", wait_s=WAIT_S)["version"] == 1
        client.delete_job("second")
    finally:
        served.stop()


def test_where_two_instances_name_each_other_a_write_is_to_be_asked_again():
    class Follower(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            said = {"code": "not_leader", "message": "the leader is elsewhere", "leader": self.server.other}
            content = json.dumps({"error": said}).encode()
            self.send_response(409)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    pair = [ThreadingHTTPServer(("127.0.0.1", 0), Follower) for _ in range(2)]
    urls = [f"http://127.0.0.1:{server.server_port}" for server in pair]
    for server, other in zip(pair, reversed(urls), strict=True):
        server.other = other
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ControllerRefused, match=f"{urls[1]} has just ceased to be the leader") as refused:
            Controller(urls[0]).put_job("first", JOB)
        assert (refused.value.status, refused.value.code) == (503, "no_leader")
    finally:
        for server in pair:
            server.shutdown()
            server.server_close()


def leads(client) -> None:
    """Wait until an instance leads."""
    until = time.monotonic() + 60
    while not client.health()["leader"]:
        assert time.monotonic() < until, "it does not begin to lead"
        time.sleep(0.05)


def test_a_leader_that_stands_still_is_followed_on_sqlite_too(cluster):
    served = Served(cluster.data, *cluster.options, "--gone-after", 1)
    try:
        with cluster.leader.standing_still():
            leads(cluster.client(served=served))
            assert cluster.client(served=served).put_job("third", JOB)["version"] == 1
        status, _, content = cluster.send("PUT", "/jobs/third", {**JOB, "weight": 2})
        assert (status, json.loads(content)["error"]["leader"]) == (409, served.url)
        cluster.client().delete_job("third")  # by way of the new leader
        assert not cluster.client().health()["leader"]
    finally:
        served.stop()
    leads(cluster.client())


def test_the_api_says_what_it_is_and_counts_what_it_does(cluster):
    paths = json.loads(cluster.send("GET", "/openapi.json", role=None)[2])["paths"]
    assert {"/networks/{name}", "/networks/{name}/telemetry", "/jobs/{name}/plan", "/plans/{digest}"} <= {*paths}

    def page():
        return cluster.send("GET", "/metrics", role="read")[2].decode()

    until(lambda: 'stretto_store_rows{table="jobs"}' in page())  # its planner, another process, tells it
    metrics = page()
    stored = dict(line.split() for line in metrics.splitlines() if line.startswith("stretto_store_"))
    assert float(stored["stretto_store_bytes"]) > 10_000 and 'stretto_store_rows{table="jobs"}' in stored
    assert "stretto_leader 1.0" in metrics and 'route="/jobs/{name}"' in metrics


def test_the_command_line_asks_the_controller(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("STRETTO_CONTROLLER", cluster.leader.url)
    monkeypatch.setenv("STRETTO_CONTROLLER_TOKEN", cluster.token["operator"])
    monkeypatch.setenv("STRETTO_CONTROLLER_CA", str(cluster.cert))
    job, plan = tmp_path / "job.json", tmp_path / "plan.parquet"
    job.write_text(json.dumps({**JOB, "network": "mesh"}))

    def run(*words):
        done = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    assert run("networks", "put", "mesh", "-t", "mesh:2x2")["version"] == 1
    assert run("jobs", "put", "cli", job) == {"name": "cli", "version": 1, "network": "mesh", "plan": "/jobs/cli/plan"}
    assert run("jobs", "plan", "cli", "--wait", WAIT_S, "-o", plan)["file"] == str(plan)
    assert run("verify", plan)["verified"]
    assert run("jobs", "show", "cli")["status"] == "planned"
    assert run("jobs", "hold", "cli")["hold"]["who"] == "operator-1"
    assert run("jobs", "show", "cli")["hold"]["who"] == "operator-1"
    assert "planned, held" in CliRunner().invoke(app, ["jobs", "list"]).stdout
    assert run("jobs", "accept", "cli") == {"name": "cli", "published": None, "hold": None}
    assert "cli" in {each["name"] for each in run("jobs", "list")["jobs"]}
    assert run("networks", "show", "mesh")["decisions"][0]["published"]
    assert run("jobs", "delete", "cli")["deleted"] and run("networks", "delete", "mesh")["deleted"]
