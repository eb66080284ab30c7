"""Who of several instances is the leader: the one that holds a lock that ends with its process or its connection.

For SQLite the lock is on a file beside the database; for PostgreSQL it is an advisory lock of a session. A leader that
loses its lock without noticing is fenced by its term (:mod:`.database`). A leader that stands still would keep either
lock: PostgreSQL ends its session when nothing has come from it for a while, and the file, whose time the leader renews,
is replaced by an instance that has seen the same time on it for as long.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
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
        return FileLock(f"{database.engine.url.database}.leader", database.gone_after_s)
    from .postgres import postgres_engine

    engine = postgres_engine(
        database.engine.url, database.gone_after_s, poolclass=NullPool, isolation_level="AUTOCOMMIT",
        connect_args={"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3},
    )  # fmt: skip
    return AdvisoryLock(engine, database.gone_after_s)


class FileLock:
    """A lock on a file: the kernel gives it back when its holder ends, others take it when he stands still.

    Args:
        path: of the file. Whoever holds the lock holds it on the file that is there now.
        idle_s: seconds without a call of :meth:`held` after which another instance puts a new file in its place.
        clock: steady seconds.
    """

    def __init__(self, path: str, idle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._idle_s, self._clock, self._file = path, idle_s, clock, -1
        self._renewed, self._seen_at = (0, 0), 0.0  # what was seen of the holder last, and since when

    def take(self) -> bool:
        if self.held():
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._watch(os.fstat(file))
            os.close(file)
            return False
        self._file = file
        return self.held()

    def held(self) -> bool:
        """Whether it is still held; renews it."""
        if self._file < 0:
            return False
        with suppress(OSError):  # the file is gone
            if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                os.utime(self._file)
                return True
        self.release()
        return False

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _watch(self, found: os.stat_result) -> None:
        """Remove the file if its holder has not renewed it for too long; :meth:`take` makes another."""
        renewed, now = (found.st_ino, found.st_mtime_ns), self._clock()
        if renewed != self._renewed:
            self._renewed, self._seen_at = renewed, now
        elif now - self._seen_at > self._idle_s:
            with suppress(OSError):  # another instance has done it
                if os.path.samestat(found, os.stat(self._path)):
                    os.unlink(self._path)


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
