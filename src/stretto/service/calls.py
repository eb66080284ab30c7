"""A request as the routes see it, what they answer, and what errors come to over HTTP."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, insert

from ..model.errors import InputError, StrettoError
from ..topologies.values import count, parse_json, real, shown
from .access import Caller
from .database import DatabaseGone, NotLeader
from .instance import Instance
from .networks import Conflict, Missing
from .schema import audit

NUL = "a name has no NUL sign"
"""PostgreSQL keeps no text that has one."""


class Refused(StrettoError):
    """An answer that is an error: its status, a code that programs may rely on, and headers."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


@dataclass(frozen=True)
class Answer:
    """A status, an object to be sent as JSON or bytes of another type, and headers."""

    status: int = 200
    data: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    media: str = "application/json"

    @cached_property
    def body(self) -> bytes:
        if isinstance(self.data, bytes):
            return self.data
        return b"" if self.data is None else (json.dumps(self.data) + "\n").encode()


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        names: what stands in its path, by name.
        headers: by name in lower case.
    """

    instance: Instance
    caller: Caller
    action: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes

    @property
    def data(self) -> Any:
        """The JSON that was sent."""
        try:
            text = self.content.decode()
        except UnicodeDecodeError:
            raise InputError("must be UTF-8", "body") from None
        data = parse_json(text, "body")
        if "\\u0000" in text and _has_nul(data):
            raise Refused(422, "bad_name", NUL)
        return data

    @property
    def expected(self) -> int | None:
        """The version that ``If-Match`` names; None for any."""
        given = self.headers.get("if-match")
        if given is None or given == "*":
            return None
        found = re.fullmatch(r'"?(\d{1,9})"?', given.strip())
        if found is None:
            raise InputError('must be a version such as "3"', "If-Match")
        return int(found[1])

    def whole(self, key: str, least: int = 1, most: int = 10**9) -> int | None:
        """A whole number of the query; None if it is not given."""
        return count(self.query[key], f"{key!r}", "query", least, most) if key in self.query else None

    def seconds(self, key: str, most: float) -> float:
        """Seconds that the query gives, at most ``most``; 0 if it gives none."""
        return min(real(self.query.get(key, 0), f"{key!r}", "query"), most)

    def speak_for(self, job: str) -> None:
        """Refused if the caller's token is bound to other jobs."""
        if not self.caller.speaks_for(job):
            known = ", ".join(self.caller.jobs)
            raise Refused(403, "forbidden", f"{self.caller.name} speaks for the jobs {known}, not for {shown(job)}")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """The store as it is now."""
        with self.instance.database.read() as connection:
            yield connection

    @contextmanager
    def write(self, detail: str = "", noted: bool = True) -> Iterator[Connection]:
        """A transaction of the leader, which also notes the call in the audit log.

        Raises:
            NotLeader: this instance is not the leader.
        """
        term = self.instance.term
        if not term:
            raise NotLeader("this instance does not write")
        with self.instance.database.write(term) as connection:
            yield connection
            if noted:
                self.note(connection, 200, detail)
        self.instance.events.wake()

    def note(self, connection: Connection, status: int, detail: str) -> None:
        """Note the call in the audit log."""
        connection.execute(
            insert(audit).values(
                at=time.time(), who=self.caller.name, action=self.action, status=status, detail=detail[:500]
            )
        )


def _has_nul(data: Any) -> bool:
    """Whether a text in a JSON value has a NUL sign."""
    if isinstance(data, str):
        return "\0" in data
    if isinstance(data, dict):
        return any(map(_has_nul, (*data, *data.values())))
    return isinstance(data, list) and any(map(_has_nul, data))


def unless_known(call: Call, answer: Answer) -> Answer:
    """An answer; 304 without a body where ``If-None-Match`` names its version."""
    tag = answer.headers.get("ETag", "")
    known = call.headers.get("if-none-match", "").strip()
    return Answer(304, headers=answer.headers) if tag and known in (tag, tag.strip('"')) else answer


def refusal(error: Exception) -> Refused:
    """What an error comes to."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Missing):
        return Refused(404, "not_found", str(error))
    if isinstance(error, Conflict):
        return Refused(409, "conflict", str(error))
    if isinstance(error, DatabaseGone):
        return Refused(503, "database_gone", str(error), **{"Retry-After": "1"})
    if isinstance(error, StrettoError):
        return Refused(400, "bad_input", " ".join(str(error).split()))
    return Refused(500, "fault", f"{type(error).__name__} in the controller; its log says more")


def not_leader(instance: Instance) -> Refused:
    """The answer to a write at an instance that is not the leader: where the leader is, if that is known."""
    address = ""
    try:
        _, address = instance.database.leader()
    except DatabaseGone as error:
        return refusal(error)
    if not address or address == instance.address:
        return Refused(503, "no_leader", "there is no leader now; ask again", **{"Retry-After": "1"})
    return Refused(409, "not_leader", f"the leader is {address}", Leader=address)


def error_answer(error: Exception) -> Answer:
    """An error as it is sent: ``{"error": {"code", "message", "where"}}``, and ``leader`` where another one writes."""
    said = refusal(error)
    body: dict[str, Any] = {"code": said.code, "message": " ".join(str(said).split())}
    if isinstance(error, InputError) and error.where:
        body["where"] = error.where
    headers = dict(said.headers)
    if "Leader" in headers:
        body["leader"] = headers.pop("Leader")
    return Answer(said.status, {"error": body}, headers)


Handler = Callable[[Call], Answer]
