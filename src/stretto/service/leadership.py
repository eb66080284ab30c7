"""Who of several instances is the leader: the one that holds a lock that ends with its process or its connection.

For SQLite the lock is on a file beside the database; for PostgreSQL it is an advisory lock of a session. A leader that
loses its connection without noticing is fenced by its term (:mod:`.database`). PostgreSQL ends the session of a leader
that stands still, which keeps its connection open, when nothing has come from it for a while.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from .database import Database

KEY = 0x73747274
"""The advisory lock of the leader in a PostgreSQL database."""


class Lock(Protocol):
    """A lock that at most one instance holds."""

    def take(self) -> bool:
        """Take it if it is free; whether it is held now."""

    def held(self) -> bool:
        """Whether it is still held."""

    def release(self) -> None:
        """Give it back, if it is held."""


def lock_of(database: Database) -> Lock:
    """The leader's lock of a database."""
    if database.is_sqlite:
        return FileLock(f"{database.engine.url.database}.leader")
    from .postgres import postgres_engine

    engine = postgres_engine(
        database.engine.url, database.gone_after_s, poolclass=NullPool, isolation_level="AUTOCOMMIT",
        connect_args={"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3},
    )  # fmt: skip
    return AdvisoryLock(engine, database.gone_after_s)


class FileLock:
    """A lock on a file; the kernel gives it back when the process ends."""

    def __init__(self, path: str) -> None:
        self._path, self._file = path, -1

    def take(self) -> bool:
        if self._file >= 0:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def held(self) -> bool:
        return self._file >= 0

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class AdvisoryLock:
    """An advisory lock of PostgreSQL, on a connection of its own; the server gives it back when that ends.

    Args:
        engine: makes that connection, which commits each statement.
        idle_s: seconds without a call of :meth:`held` after which the server ends it.
    """

    def __init__(self, engine: Engine, idle_s: float) -> None:
        self._engine = engine
        self._idle_ms = int(1000 * idle_s)
        self._connection: Connection | None = None

    def take(self) -> bool:
        if self.held():
            return True
        try:
            connection = self._engine.connect()
        except SQLAlchemyError:
            return False
        try:
            if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": KEY}):
                connection.execute(text(f"SET idle_session_timeout = {self._idle_ms}"))
                self._connection = connection
                return True
        except SQLAlchemyError:
            pass
        _close(connection)
        return False

    def held(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self.release()
            return False
        return True

    def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):  # the end of its session alone would give it back a little later
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": KEY})
            _close(connection)


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except SQLAlchemyError:
        connection.invalidate()
