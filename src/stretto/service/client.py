"""A client of the controller that needs nothing but Python's standard library.

    controller = Controller("https://controller:8642", token=...)
    controller.put_network("wan", topology.to_json())
    controller.put_job("training", {"network": "wan", "collectives": [{"kind": "allreduce", "size": "64MB"}]})
    plan = controller.plan("training", wait_s=30)
    text = controller.plan_text(plan["digest"])

An object serves one thread at a time.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from ..model.errors import InputError, StrettoError

URL_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE = "STRETTO_CONTROLLER", "STRETTO_CONTROLLER_TOKEN", "STRETTO_CONTROLLER_CA"
"""Environment variables: the URLs, separated by commas; the token; a file with the authorities of its certificates."""

TIMEOUT_S = 10.0
"""Seconds without an answer, besides those that a call waits for news, after which a controller counts as gone."""

BEAT_S = 15.0
"""Seconds after which a controller that has no news sends a line of its stream of events nevertheless."""

Answer = TypeVar("Answer")


class ControllerGone(StrettoError):
    """No instance of the controller answers."""


class ControllerRefused(StrettoError):
    """The controller's answer is an error.

    Attributes:
        status: of HTTP.
        code: what is wrong, for programs: ``bad_input``, ``not_found``, ``refused``, ...
        where: the place in what was sent, if it names one.
    """

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        self.status, self.code = status, str(error.get("code", ""))
        self.where, self.leader = error.get("where"), error.get("leader")
        super().__init__(str(error.get("message", f"HTTP status {status}")))


class Controller:
    """Asks a controller.

    Args:
        urls: of one instance, or of several separated by commas: the first one that answers serves. Writes go on to
            the leader.
        token: bearer token, if the controller wants one.
        authorities: file of the authorities that certificates are checked by; those of the system by default.
    """

    def __init__(
        self, urls: str, token: str | None = None, authorities: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._urls = [_checked(url.strip()) for url in urls.split(",") if url.strip()]
        if not self._urls:
            raise InputError("name the URL of a controller", "controller")
        self._token, self._timeout_s = token, timeout_s
        self._context: ssl.SSLContext | None = None
        if any(url.startswith("https:") for url in self._urls):
            try:
                self._context = ssl.create_default_context(cafile=authorities)
            except OSError as error:  # ssl.SSLError is one
                raise InputError(f"cannot be used: {error.strerror or error}", authorities) from None
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._left = False

    @classmethod
    def from_environment(cls) -> Controller | None:
        """The controller that the environment names; None if it names none."""
        urls = os.environ.get(URL_VARIABLE)
        return cls(urls, os.environ.get(TOKEN_VARIABLE), os.environ.get(CA_VARIABLE)) if urls else None

    def health(self) -> Any:
        """Whether the instance is well, and who is the leader."""
        return self._ask("GET", "/healthz")

    def networks(self) -> Any:
        """All networks: name and version."""
        return self._ask("GET", "/networks")

    def network(self, name: str, version: int | None = None) -> Any:
        """A network, by default its newest version: its topology, and what telemetry has changed."""
        asked = "" if version is None else f"?version={version}"
        return self._ask("GET", f"/networks/{quote(name, '')}{asked}")

    def put_network(self, name: str, topology: Mapping[str, Any], expected: int | None = None) -> Any:
        """Make or replace a network by the object of a topology file.

        Args:
            expected: the version that this replaces; where it is another one by now, the code is ``conflict``.
        """
        headers = {} if expected is None else {"If-Match": f'"{expected}"'}
        return self._ask("PUT", f"/networks/{quote(name, '')}", topology, headers)

    def delete_network(self, name: str) -> None:
        """Forget a network that no job uses."""
        self._ask("DELETE", f"/networks/{quote(name, '')}")

    def decisions(self, name: str) -> Any:
        """Why plans of a network's jobs were published or not, the newest first."""
        return self._ask("GET", f"/networks/{quote(name, '')}/decisions")

    def report(self, name: str, telemetry: Mapping[str, Any]) -> Any:
        """Report what links of a network give: the object of a telemetry file, with the ``time`` of measuring."""
        return self._ask("POST", f"/networks/{quote(name, '')}/telemetry", telemetry)

    def jobs(self) -> Any:
        """All jobs: name, version, network, and version of the plan."""
        return self._ask("GET", "/jobs")

    def job(self, name: str) -> Any:
        """A job: what was said of it, its status, and the versions of its plan."""
        return self._ask("GET", f"/jobs/{quote(name, '')}")

    def put_job(self, name: str, job: Mapping[str, Any], expected: int | None = None) -> Any:
        """Make or replace a job; ``expected`` as of :meth:`put_network`."""
        headers = {} if expected is None else {"If-Match": f'"{expected}"'}
        return self._ask("PUT", f"/jobs/{quote(name, '')}", job, headers)

    def report_times(self, name: str, version: int, collectives: Sequence[Mapping[str, Any]]) -> Any:
        """Report how long a job's collectives took by a version of its plan.

        Args:
            collectives: for each its ``number`` in the plan, how many ``calls``, and their median ``measured_s``.
        """
        said = {"version": version, "collectives": list(collectives)}
        return self._ask("POST", f"/jobs/{quote(name, '')}/times", said)

    def delete_job(self, name: str) -> None:
        """End a job."""
        self._ask("DELETE", f"/jobs/{quote(name, '')}")

    def hold_job(self, name: str) -> Any:
        """Let a job keep the version of its plan; newer ones are proposed."""
        return self._ask("POST", f"/jobs/{quote(name, '')}/hold")

    def accept_plan(self, name: str, proposal: int | None = None, hold: bool = False) -> Any:
        """Publish the plan that is proposed to a job.

        Args:
            proposal: the one that the caller has seen; where another one has taken its place, the code is
                ``conflict``.
            hold: whether the job stays held; else it gets later plans without being asked.
        """
        said = {"hold": hold} | ({} if proposal is None else {"proposal": proposal})
        return self._ask("POST", f"/jobs/{quote(name, '')}/accept", said)

    def plan(
        self, name: str, *, version: int | None = None, known: int | None = None, wait_s: float = 0.0
    ) -> dict[str, Any] | None:
        """What is published of a job's plan: version, digest, why, what each collective takes.

        Args:
            version: which one; by default the newest.
            known: the version that the caller has.
            wait_s: how long to wait for that version, or for another one than the known.
        Returns:
            None, if the newest one is known.
        Raises:
            ControllerRefused: there is none (yet: code ``no_plan_yet``), or the job cannot be planned (``refused``).
        """
        query = {key: value for key, value in (("version", version), ("wait", wait_s or None)) if value is not None}
        path = f"/jobs/{quote(name, '')}/plan" + (f"?{urlencode(query)}" if query else "")
        headers = {} if known is None else {"If-None-Match": f'"{known}"'}
        found: dict[str, Any] | None = self._ask("GET", path, headers=headers, wait_s=wait_s)
        return found

    def plan_text(self, digest: str) -> str:
        """A plan as JSON text."""
        return self._bytes(f"/plans/{quote(digest, '')}", "application/json").decode()

    def plan_parquet(self, digest: str) -> bytes:
        """A plan as Parquet."""
        return self._bytes(f"/plans/{quote(digest, '')}", "application/vnd.apache.parquet")

    def events(self) -> Iterator[tuple[str, Any]]:
        """The kind and the object of each event: what the controller's page shows, ``ready``, and then what changes.

        Raises:
            ControllerGone: no instance answers, or the one that did has ended.
        """
        headers = {"Accept": "text/event-stream"} | self._authorization
        stream = self._first(lambda c: _asked(c, "GET", "/events", None, headers), BEAT_S)
        kind = ""
        try:
            for line in stream:
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)
        except (OSError, http.client.HTTPException) as error:
            raise ControllerGone(f"the controller sends no more: {error or type(error).__name__}") from None
        finally:
            stream.close()
        raise ControllerGone("the controller has ended its stream of events")

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def leave(self) -> None:
        """End the call that another thread waits in, which raises ControllerGone, and all later ones."""
        self._left = True
        for connection in [*self._connections.values()]:
            if (sock := connection.sock) is not None:
                with suppress(OSError):  # it has ended
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _ask(
        self, method: str, path: str, said: Any = None, headers: Mapping[str, str] | None = None, wait_s: float = 0.0
    ) -> Any:
        """The object of an answer; None where it has none."""
        body = None if said is None else json.dumps(said).encode()
        try:
            content = self._send(method, path, body, headers or {}, wait_s)
        except ControllerRefused as refused:
            if refused.code != "not_leader" or not refused.leader:
                raise
            content = self._ask_leader(method, path, body, headers or {}, wait_s, str(refused.leader))
        return json.loads(content) if content else None

    def _ask_leader(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], wait_s: float, leader: str
    ) -> bytes:
        """The answer of the instance that was named as the leader."""
        try:
            return self._send(method, path, body, headers, wait_s, [self._trusted(leader)])
        except ControllerRefused as refused:
            if refused.code != "not_leader":
                raise
        said = {"code": "no_leader", "message": f"{leader} has just ceased to be the leader; ask again"}
        raise ControllerRefused(503, said)

    def _bytes(self, path: str, accepts: str) -> bytes:
        return self._send("GET", path, None, {"Accept": accepts, "Accept-Encoding": "gzip"}, 0.0)

    def _trusted(self, leader: str) -> str:
        """The leader's address, unless the token would go there without TLS and came here with it."""
        if self._urls[0].startswith("https:") and not leader.startswith("https:"):
            raise ControllerGone(f"the leader {leader} has no TLS")
        return _checked(leader)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], wait_s: float,
        urls: list[str] | None = None,
    ) -> bytes:  # fmt: skip
        """The body of the answer of the first instance that answers."""
        every = {"Accept": "application/json", **headers}
        every |= ({"Content-Type": "application/json"} if body is not None else {}) | self._authorization
        return self._first(lambda c: _content(_asked(c, method, path, body, every)), wait_s, urls)

    @property
    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _first(
        self, ask: Callable[[http.client.HTTPConnection], Answer], wait_s: float, urls: list[str] | None = None
    ) -> Answer:
        """What is asked over a connection to the first instance that answers."""
        reasons, start = [], "; `stretto serve` starts one"
        for url in urls or self._urls:
            for fresh in (False, True):  # a connection that was kept may have ended meanwhile
                if not fresh and url not in self._connections:
                    continue
                if self._left:
                    raise ControllerGone("this client has left")
                try:
                    return ask(self._connection(url, fresh, wait_s))
                except (OSError, http.client.HTTPException) as error:
                    if fresh:
                        start = start if isinstance(error, ConnectionRefusedError) else ""
                        reasons.append(f"{url}: {getattr(error, 'strerror', None) or error or type(error).__name__}")
        raise ControllerGone(f"no controller answers: {'; '.join(reasons)}{start}")

    def _connection(self, url: str, fresh: bool, wait_s: float) -> http.client.HTTPConnection:
        if fresh:
            self._connections.pop(url, http.client.HTTPConnection("")).close()
            parts = urlsplit(url)
            self._connections[url] = (
                http.client.HTTPSConnection(parts.netloc, context=self._context)
                if parts.scheme == "https"
                else http.client.HTTPConnection(parts.netloc)
            )
        connection = self._connections[url]
        connection.timeout = self._timeout_s + wait_s
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        return connection


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """The answer before it is read; ControllerRefused if it is an error."""
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    if answer.status >= 400:
        raise ControllerRefused(answer.status, _error(_content(answer)))
    return answer


def _content(answer: http.client.HTTPResponse) -> bytes:
    content = answer.read()
    return gzip.decompress(content) if answer.headers.get("Content-Encoding") == "gzip" else content


def _error(content: bytes) -> Mapping[str, Any]:
    """What the controller says of an error; nothing, where something else has answered."""
    try:
        said = json.loads(content)["error"]
    except (ValueError, LookupError, TypeError):
        return {}
    return said if isinstance(said, dict) else {}


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise InputError(f"{url!r} is no URL such as https://controller:8642", "controller")
    return f"{parts.scheme}://{parts.netloc}"
