"""A real Prometheus for tests: Debian's package `prometheus`, or the program that STRETTO_TEST_PROMETHEUS names.

It reads metrics that the test writes: the test serves them over HTTP, and Prometheus scrapes them from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = os.environ.get("STRETTO_TEST_PROMETHEUS") or shutil.which("prometheus")

needs_prometheus = pytest.mark.skipif(PROGRAM is None, reason="needs Prometheus (apt-get install prometheus)")


class Exporter:
    """Serves metrics as text. Those with moments of their own stay what they are in Prometheus, however late it reads
    them again.

    Attributes:
        metrics: what it serves.
    """

    def __init__(self) -> None:
        self.metrics = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                text = outer.metrics
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[tuple[str, Exporter]]:
    """The address of a Prometheus that scrapes an exporter five times a second."""
    assert PROGRAM is not None
    exporter = Exporter()
    job = {"job_name": "node", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{exporter.port}"]}]}
    config = {"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [job]}
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [PROGRAM, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               "--web.listen-address=127.0.0.1:0", "--log.level=info"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        yield f"http://127.0.0.1:{_port(process)}", exporter
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        exporter.server.shutdown()


def _port(process: subprocess.Popen[str]) -> int:
    """The port that it says it listens on, when it serves; it says the two in either order."""
    port, ready = None, False
    for line in process.stderr:
        if found := re.search(r"[Ll]istening on.*127\.0\.0\.1:(\d+)", line):
            port = int(found[1])
        ready = ready or "ready to receive" in line
        if ready and port is not None:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return port
    raise AssertionError("Prometheus did not start")


def query(url: str, promql: str, at_s: float) -> list[dict[str, object]]:
    """What Prometheus answers for a moment, without stretto."""
    asked = urllib.parse.urlencode({"query": promql, "time": at_s})
    with urllib.request.urlopen(f"{url}/api/v1/query?{asked}") as response:
        return json.load(response)["data"]["result"]
