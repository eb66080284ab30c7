"""A study's results as a folder: one row for each cell, on disk as soon as the cell is finished.

A finished cell is one small Parquet file in ``cells/``, written under a temporary name and renamed, so that
it exists whole or not at all, whenever the process dies. The files are merged into ``results.parquet`` at
the end, and whenever there are many; a row that is in both counts once.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ..formats import atomic_file, check_writable, make_folder
from ..model.errors import InputError
from ..model.extras import require
from .cell import Outcome
from .identity import PACKAGES
from .model import Row

NEEDED = ("ortools", "pyarrow")
"""Packages for the papers' programs, and the table."""
MOST_PARTS = 1000
TEXT = ("key", "study", "scheme", "topology", "where", "collective", "planner", "options", "failed", "cannot", "code",
        "row", "python", *PACKAGES)  # fmt: skip
WHOLE = ("size_bytes", "chunks", "seed", "ranks", "transfers")
NUMBERS = ("completion_s", "bound_s", "completion_over_bound", "reported_s", "algorithm_bandwidth", "planning_s",
           "planning_cpu_s", "wall_s", "cpu_s")  # fmt: skip
TRUTHS = ("proven", "verified")
"""Columns that are true or false. The table has the columns that all studies share, and the whole row as JSON."""


class Store:
    """The results in a folder; only one process may write to it at a time.

    Raises:
        Unsupported: a package that studies need is not installed.
        InputError: the folder cannot be made, another study writes to it, or its table cannot be read.
    """

    def __init__(self, folder: str, study: str) -> None:
        require("studies", "a study", *NEEDED)
        self.study = study
        self.folder = Path(folder)
        self.parts = self.folder / "cells"
        self.whole = self.folder / "results.parquet"
        make_folder(str(self.parts), folder)
        check_writable(str(self.parts / ".lock"))
        self._lock = (self.parts / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InputError("another study is writing here; wait for it or name another folder", folder) from None
        for torn in self.parts.glob(".*.parquet.*"):
            torn.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    def clear(self) -> None:
        """Delete all results."""
        for file in (*self._parts(), self.whole):
            file.unlink(missing_ok=True)

    def rows(self) -> dict[str, Row]:
        """The rows of all finished cells, by key."""
        return {key: json.loads(row) for table in self._tables() for key, row in _pairs(table)}

    def add(self, key: str, seed: int, outcome: Outcome) -> None:
        """Write a cell's result; many files of single cells become one table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        row = outcome.row
        known: Mapping[str, Any] = row | outcome.versions | {
            "key": key, "study": self.study, "seed": seed, "code": outcome.code, "wall_s": outcome.wall_s,
            "cpu_s": outcome.cpu_s, "options": json.dumps(row.get("options", {})), "row": json.dumps(row),
        }  # fmt: skip
        kinds = ((TEXT, pa.string()), (WHOLE, pa.int64()), (NUMBERS, pa.float64()), (TRUTHS, pa.bool_()))
        schema = pa.schema([(name, kind) for names, kind in kinds for name in names])
        table = pa.Table.from_pylist([{name: known.get(name) for name in schema.names}], schema)
        with atomic_file(str(self.parts / f"{key}.parquet"), "wb") as file:
            pq.write_table(table, file)
        if len(self._parts()) >= MOST_PARTS:
            self.compact()

    def compact(self) -> None:
        """Merge all rows into one table, then remove the files of single cells."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = self._parts()
        if not parts:
            return
        whole = pa.concat_tables(self._tables(), promote_options="default")
        last = {key: i for i, key in enumerate(whole["key"].to_pylist())}
        with atomic_file(str(self.whole), "wb") as file:
            pq.write_table(whole.take(list(last.values())), file)
        for part in parts:
            part.unlink()

    def _parts(self) -> list[Path]:
        return sorted(self.parts.glob("*.parquet"))

    def _tables(self) -> list[Any]:
        """The tables on disk; a torn file is ignored."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = []
        if self.whole.exists():
            try:
                tables.append(pq.read_table(self.whole))
                _pairs(tables[0])
            except (pa.ArrowInvalid, KeyError, OSError):
                raise InputError("is no table of a study's cells; move it away", str(self.whole)) from None
        for part in self._parts():
            with suppress(pa.ArrowInvalid):
                tables.append(pq.ParquetFile(part).read())
        return tables


def _pairs(table: Any) -> list[tuple[str, str]]:
    return list(zip(table["key"].to_pylist(), table["row"].to_pylist(), strict=True))
