"""Opens the database: SQLite, one file with a write-ahead log, or PostgreSQL by a URL.

A write is one transaction that begins with the fence: it locks the leader's row and compares its term with that of the
instance that writes. So the writes of all instances follow one another, and an instance that is no longer the leader
writes nothing, whatever it believes.

While the database is gone transactions fail at once. Whether it is back is tried once a second: by the next
transaction, or where :meth:`Database.probe` is called for that, by this alone, so that no request waits for a server
that hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from ..model.errors import InputError, StrettoError
from . import schema

GONE_AFTER_S = 5.0
"""Seconds after which a database that does not answer is gone; in SQLite to wait for another writer."""

AGAIN_S = 1.0
"""Seconds after which a database that is gone is tried again."""

CONNECTIONS = 16
"""Connections to the database that an instance keeps."""

MIGRATION_KEY = 0x73747265
"""The advisory lock of PostgreSQL under which tables are migrated."""


class NotLeader(StrettoError):
    """Another instance is the leader: it alone writes."""


class DatabaseGone(StrettoError):
    """The database cannot be reached now."""


class Database:
    """A database whose tables are those of this version of stretto.

    Args:
        url: ``sqlite:////folder/file`` or ``postgresql://user@host/name``.
        gone_after_s: seconds in which each statement must be answered.
    Raises:
        InputError: the URL is of no database that is served, or its tables are newer than this stretto.
        DatabaseGone: it cannot be reached.
    """

    def __init__(self, url: str, gone_after_s: float = GONE_AFTER_S) -> None:
        self.url, self.gone_after_s = url, gone_after_s
        self.engine = _engine(url, gone_after_s)
        self._outage = Outage()
        with failures():
            _migrate(self.engine)
        reads = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reads = self.engine.execution_options(**reads)
        self._writes = self.engine.execution_options(writes=True)

    @property
    def is_sqlite(self) -> bool:
        return bool(self.engine.dialect.name == "sqlite")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of all tables."""
        with self._outage.noted(), failures(), self._reads.begin() as connection:
            yield connection

    @contextmanager
    def write(self, term: int) -> Iterator[Connection]:
        """A transaction of the leader; it has happened, on disk, once the block has ended without an error.

        Raises:
            NotLeader: the term is over; nothing was written.
        """
        with self._outage.noted(), failures(), self._writes.begin() as connection:
            leader = schema.leader
            if connection.scalar(select(leader.c.term).where(leader.c.id == 1).with_for_update()) != term:
                raise NotLeader("another instance is the leader")
            yield connection

    def begin_term(self, address: str, now: float) -> int:
        """Make the caller, who holds the leader's lock, the leader: the number of its term.

        Args:
            address: URL at which others reach it.
        """
        leader = schema.leader
        with self._outage.noted(), failures(), self._writes.begin() as connection:
            term = int(connection.scalar(select(leader.c.term).where(leader.c.id == 1).with_for_update()) or 0) + 1
            connection.execute(update(leader).values(term=term, address=address, since=now))
        return term

    def leader(self) -> tuple[int, str]:
        """The number of the newest term, and where its leader is, or was; 0 and empty if there was none."""
        with self.read() as connection:
            row = connection.execute(select(schema.leader.c.term, schema.leader.c.address)).one()
        return int(row.term), str(row.address)

    def probe(self) -> None:
        """Try whether a database that was gone is back; from the first call on nothing else tries."""
        self._outage.probed = True
        if self._outage.due:
            with suppress(DatabaseGone), self._outage.noted(tries=True), failures(), self._reads.begin() as connection:
                connection.execute(select(schema.leader.c.term))

    def close(self) -> None:
        self.engine.dispose()


class Outage:
    """Whether the database is gone, as transactions find it.

    Attributes:
        probed: whether only those who say that they try whether it is back may.
    """

    def __init__(self) -> None:
        self.probed = False
        self._reason = ""  # why it cannot be used now; "" while it can
        self._again_at, self._trying = 0.0, threading.Lock()

    @property
    def due(self) -> bool:
        """Whether it is gone and to be tried again."""
        return bool(self._reason) and time.monotonic() >= self._again_at

    @contextmanager
    def noted(self, tries: bool = False) -> Iterator[None]:
        """Note whether what is inside reaches the database.

        Args:
            tries: whether it is there to try that.
        Raises:
            DatabaseGone: it did not; or it is gone, and somebody else tries or has just tried.
        """
        reason = self._reason
        may = self.due and (tries or not self.probed)
        if reason and not (may and self._trying.acquire(blocking=False)):
            raise DatabaseGone(reason)
        try:
            yield
            self._reason = ""
        except DatabaseGone as error:
            self._reason, self._again_at = str(error), time.monotonic() + AGAIN_S
            raise
        except BaseException:
            self._reason = ""
            raise
        finally:
            if reason:
                self._trying.release()


@contextmanager
def failures() -> Iterator[None]:
    """Name the loss of the database as such."""
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
        raise DatabaseGone(f"the database cannot be used now: {reason}") from None
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise DatabaseGone("the connection to the database has ended") from None


def sqlite_url(folder: Path) -> str:
    """The URL of the database in a folder."""
    return f"sqlite:///{folder.absolute() / 'controller.sqlite'}"


def _engine(url: str, gone_after_s: float) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InputError(f"{url!r} is no URL such as postgresql://user@host/name", "database") from None
    name = parsed.get_backend_name()
    if name == "sqlite":
        engine = create_engine(
            parsed, pool_size=CONNECTIONS, max_overflow=2,
            connect_args={"timeout": gone_after_s, "check_same_thread": False},
        )  # fmt: skip
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if name != "postgresql":
        raise InputError(f"{name} is not served; there are sqlite and postgresql", "database")
    from .postgres import postgres_engine

    return postgres_engine(parsed, gone_after_s, pool_size=CONNECTIONS, max_overflow=2, pool_pre_ping=True)


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _migrate(engine: Engine) -> None:
    """Bring the tables to the newest version; of several instances one does it."""
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.execution_options(writes=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            from .postgres import check_version

            check_version(connection)
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_KEY})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise InputError(f"its tables are not of this version of stretto: {error}", "database") from None
