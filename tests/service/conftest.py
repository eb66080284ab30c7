"""Stores for tests of the controller: an empty one in SQLite and, where that is installed, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from postgres_cluster import cluster, installed

if TYPE_CHECKING:
    from stretto.service.database import Database


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store')}/controller.sqlite"
        return
    if not installed():
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    pytest.importorskip("psycopg")
    with cluster() as found:
        yield found


@pytest.fixture
def store(url: str) -> Iterator[tuple[Database, int]]:
    """A leader's database without rows, and its term."""
    from stretto.service.database import Database
    from stretto.service.schema import TABLES

    database = Database(url)
    term = database.begin_term("http://here", 1.0)
    with database.write(term) as connection:
        for table in reversed(TABLES.sorted_tables):
            if table.name != "leader":
                connection.execute(table.delete())
    yield database, term
    database.close()
