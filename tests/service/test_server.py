"""How the controller listens."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

import stretto as st
import tls_files
from controller_process import Served
from stretto.cli import app
from stretto.model.errors import InputError
from stretto.service.server import Address, _listen

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "controller.md"


def test_nothing_that_is_sent_waits_for_an_acknowledgement():
    async def asked() -> bool:
        async def answer(_, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            writer.close()

        found = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(answer, sock=_listen(Address(port=0)))
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.close()
            return await found

    assert asyncio.run(asked())


def test_a_port_that_is_taken_is_said_with_the_option_that_names_another():
    with _listen(Address(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(InputError, match="cannot be used: Address already in use"):
            _listen(Address(port=port))
        done = CliRunner().invoke(app, ["serve", "--port", str(port)])
    assert "; --port names another one" in str(done.exception)


@pytest.fixture(scope="module")
def started():
    """The controller that runs; one at most."""
    found: list[Served] = []
    yield found
    for made in found:
        made.stop()


@pytest.fixture
def log(tmp_path_factory):
    return tmp_path_factory.getbasetemp() / "served.log"


@pytest.fixture
def served(started, log, tmp_path):
    """A controller without tokens, which the tests share until one stops it."""
    if not started:
        with log.open("w") as file:
            started.append(Served(tmp_path, "--allow-host", "controller.lan", log=file))
    return started[0]


def connection(served):
    return http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60.0)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8642", 200), ("127.0.0.1", 200), ("[::1]:8642", 200), ("10.1.2.3", 200), ("page.localhost", 200),
        ("controller.lan:8642", 200), ("Controller.LAN.", 200), (socket.gethostname(), 200),
        ("site.example:8642", 421), ("127.0.0.1.site.example", 421), ("", 421), ("[", 421),
    ],
)  # fmt: skip
def test_without_tokens_a_page_of_another_site_whose_name_leads_here_is_refused(served, host, status):
    asked = connection(served)
    asked.request("GET", "/jobs", headers={"Host": host})
    answer = asked.getresponse()
    content = json.loads(answer.read())
    assert answer.status == status
    if status != 200:
        assert content["error"]["code"] == "unknown_host" and "--allow-host" in content["error"]["message"]


def test_who_waits_or_listens_is_let_go_when_it_is_stopped(started, served, log):
    client, page, answers = served.client(), connection(served), []
    client.put_network("net", st.topology("ring:4").to_json())
    client.put_job("job", {"network": "net", "collectives": [{"kind": "allreduce", "size": "4MB"}]})
    page.request("GET", "/events")
    stream = page.getresponse()
    assert stream.readline() == b"event: hello\n"

    def wait() -> None:
        asked = connection(served)
        asked.request("GET", "/jobs/job/plan?version=99&wait=60")
        answers.append(asked.getresponse().status)

    waiting = threading.Thread(target=wait)
    waiting.start()
    metrics = connection(served)
    while True:
        metrics.request("GET", "/metrics")
        if b"stretto_waiting_requests 1.0" in metrics.getresponse().read():
            break
        threading.Event().wait(0.02)
    started.pop().stop()
    waiting.join()
    assert answers == [404]  # as at the end of its time
    assert stream.read().endswith(b"\n\n")  # whole events, and the end of the stream
    assert "Traceback" not in log.read_text()


def test_an_idle_client_over_tls_does_not_hold_up_its_end_and_a_request_under_way_is_answered(tmp_path):
    files, log, answers = tls_files.files(), tmp_path / "log", []
    trusting = ssl._create_unverified_context()
    with log.open("w") as file:
        served = Served(tmp_path / "data", "--tls-cert", files.certificate, "--tls-key", files.key, log=file)

    def connect() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(urlsplit(served.url).netloc, timeout=60.0, context=trusting)

    def ask(client, method: str, path: str, content: object = None) -> tuple[int, bytes]:
        client.request(method, path, None if content is None else json.dumps(content))
        answer = client.getresponse()
        return answer.status, answer.read()

    idle, waiter = connect(), connect()
    job = {"network": "net", "collectives": [{"kind": "allreduce", "size": "4MB"}]}
    assert ask(idle, "PUT", "/networks/net", st.topology("ring:4").to_json())[0] < 300
    assert ask(idle, "PUT", "/jobs/job", job)[0] < 300
    waiting = threading.Thread(
        target=lambda: answers.append(ask(waiter, "GET", "/jobs/job/plan?version=99&wait=60")[0])
    )
    waiting.start()
    while b"stretto_waiting_requests 1.0" not in ask(idle, "GET", "/metrics")[1]:
        threading.Event().wait(0.02)
    served.stop()
    waiting.join()
    idle.close()
    assert answers == [404]
    assert "timeout graceful shutdown exceeded" not in log.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_documented_unit_is_one_that_systemd_takes(tmp_path):
    text = re.search(r"<!-- tested: unit -->\n```ini\n(.*?)```", PAGE.read_text(), re.S)[1]
    (tmp_path / "stretto").touch(0o755)
    (tmp_path / "stretto.service").write_text(text.replace("/opt/stretto/bin/stretto", f"{tmp_path}/stretto"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "stretto.service"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
