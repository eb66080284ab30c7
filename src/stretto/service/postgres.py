"""Connections to PostgreSQL that do not wait for ever: a server that hangs counts as gone.

A server whose machine or process stands still keeps its connections open and answers nothing; TCP notices that late or
never. So each call has a limit, after which its connection is closed.
"""

from __future__ import annotations

import math
import time
from typing import Any

import psycopg
from psycopg.errors import _WaitTimeout
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL

from ..model.errors import InputError

OLDEST = 14
"""The oldest PostgreSQL that is served: it ends sessions of a leader that stands still (``idle_session_timeout``)."""

HANGS_S = 0.5
"""Seconds after a call without an answer in which no new connection is tried: the pool would make one at once, and the
caller would wait twice."""


def postgres_engine(url: URL, answer_s: float, **how: Any) -> Engine:
    """An engine whose connections fail where the server does not answer.

    Args:
        url: of the database.
        answer_s: seconds in which each statement, and a connection, must be answered.
        how: for SQLAlchemy's ``create_engine``.
    """

    hung_at = -math.inf  # when a call had no answer last, by the steady clock

    class Limited(psycopg.Connection[Any]):  # type: ignore[misc]
        """A connection that ends where the server does not answer."""

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, answer_s if timeout is None else timeout)
            except _WaitTimeout:
                nonlocal hung_at
                hung_at = time.monotonic()
                self.close()
                raise psycopg.OperationalError(f"it has not answered within {answer_s:g} s") from None

    engine = create_engine(url.set(drivername="postgresql+psycopg"), **how)

    def connect(_: object, __: object, words: list[Any], named: dict[str, Any]) -> Any:
        # tcp_user_timeout: what was sent is acknowledged by then; 2 s are the least that libpq takes for connecting
        if time.monotonic() < hung_at + HANGS_S:
            raise psycopg.OperationalError("it has just not answered another call")
        named = {"connect_timeout": max(2, math.ceil(answer_s)), "tcp_user_timeout": int(1000 * answer_s)} | named
        return Limited.connect(*words, **named)

    event.listen(engine, "do_connect", connect)
    return engine


def check_version(connection: Connection) -> None:
    """InputError if the server is older than :data:`OLDEST`."""
    number = int(connection.scalar(text("SHOW server_version_num")) or 0)
    if number < 10_000 * OLDEST:
        raise InputError(f"is PostgreSQL {number // 10_000}; the controller needs {OLDEST} or newer", "database")
