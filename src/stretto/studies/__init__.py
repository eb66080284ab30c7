"""Studies: the evaluation of a paper, or your own, as a list of cells and a page of results.

- ``model``: the nouns (cell, figure, table, study); ``grid``: reads your own study from a TOML file.
- ``cell`` runs one cell, ``emulated`` one with real bytes; ``engines`` and ``on_ray`` run many.
- ``store`` keeps results; ``identity`` names them.
- ``comparison`` compares the rows; ``claims`` has what the papers print and ``measures`` finds it in rows.
- ``page`` draws; ``claims_page`` writes claims into files and documentation.
- ``elsewhere`` puts a paper's study on a network of one's own.
- ``mtegcca``, ``scale_ccl``, ``swot``, ``wan``: the papers' studies, with ``scale_ccl_tables``, ``swot_tables`` and
  ``wan_tables``.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..formats import atomic_file, make_folder
from ..model.errors import InputError, nearest
from ..model.units import format_size
from .cell import Outcome, run_cell
from .claims import claim_columns, claims_of_run, printed_points
from .comparison import compare_rows
from .engines import Engine, here
from .identity import code_digest, key_of, versions
from .model import Cell, Figure, Progress, Row, Shared, Study, Table, without_result
from .store import Store

__all__ = [
    "STUDIES", "Cell", "Figure", "Progress", "Row", "Shared", "Store", "Study", "Table",
    "find_study", "find_study_on", "published", "run_cell", "run_study", "without_result", "write_index", "write_study",
]  # fmt: skip

STUDIES = ("mtegcca", "scale-ccl", "swot", "wan")
"""The studies that come with stretto, each a module of this package with a ``STUDY``."""


def find_study(name: str) -> Study:
    """The study of that name; InputError names the ones there are."""
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}; {nearest(name, (*STUDIES, 'all', 'grid'))}", "study")
    study: Study = importlib.import_module(f".{name.replace('-', '_')}", __name__).STUDY
    return study


def find_study_on(name: str, topology: str) -> Study:
    """The study of that name on a network of one's own, see :func:`.elsewhere.study_on`."""
    from .elsewhere import study_on

    find_study(name)
    return study_on(name, topology)


def published(name: str, cells: Sequence[Cell] = ()) -> dict[str, Any]:
    """The published values of a study: data with their sources, and as ``paper`` what is claimed of single cells."""
    data: dict[str, Any] = json.loads((resources.files(__name__) / "published" / f"{name}.json").read_text())
    points = printed_points(data["claims"], cells)
    return data | ({"paper": [*data.get("paper", ()), *points]} if points else {})


def run_study(
    study: Study,
    *,
    full: bool = False,
    emulate: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    engine: Engine = here,
    store: Store | None = None,
    retry_failed: bool = False,
) -> dict[str, Any]:
    """Run the cells of a study whose results are not in ``store`` yet.

    Args:
        emulate: whether to run cells with real bytes too, after the others and one at a time in this process.
        progress: called with the number of finished cells, the number of all, and the last finished cell.
        engine: runs the cells; in this process by default.
        retry_failed: whether to run cells again that have no result according to the store: they failed, or their
            schemes cannot serve them.
    Returns:
        An object of plain data: ``rows`` (one for each cell), ``tables``, ``published``, ``claims`` (what the
        paper prints, ours in this run, and a verdict), ``skipped`` (cells that were left out, why, and the
        flag that runs them), ``cells`` (how many were asked for, found, run, failed, and how many their schemes
        cannot serve), ``versions``, ``seconds`` and ``cpu_s`` (of the cells run).
    """
    cells = [c for c in study.cells if not any(c.skipped(full, emulate))]
    started = time.perf_counter()
    kept = {} if store is None else store.rows()
    keys = [key_of(c, seed) for c in cells] if store is not None else [str(i) for i in range(len(cells))]
    done = {k: kept[k] for k in keys if k in kept and not (retry_failed and without_result(kept[k]))}
    todo = [i for i, k in enumerate(keys) if k not in done]
    found, spent = len(cells) - len(todo), 0.0

    def tell(what: str) -> None:
        if progress is not None:
            progress(found + ran, len(cells), what)

    ran = 0
    tell("the first cell" if found == 0 else "the next cell")
    for i, outcome in _outcomes(cells, todo, seed, engine, study.warm_up):
        if outcome.code != code_digest():  # a machine of a cluster may have another version
            theirs = f"{outcome.versions['stretto']}, source {outcome.code}"
            raise InputError(f"a node runs another stretto ({theirs}) than this process", "engine")
        if store is not None:
            store.add(keys[i], seed, outcome)
        done[keys[i]] = outcome.row
        ran += 1
        spent += outcome.cpu_s
        tell(f"{cells[i].scheme} on {cells[i].where}, {format_size(cells[i].size_bytes)}")
    if store is not None:
        store.compact()
    rows = [done[k] for k in keys]
    compare_rows(rows, study.baseline)
    return {
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "full": full,
        "seed": seed,
        "rows": rows,
        "tables": [table._asdict() for table in study.tables([r for r in rows if without_result(r) is None])],
        "published": {k: v for k, v in study.published.items() if k != "claims"},
        "claims": [claim_columns(result) for result in claims_of_run(study, rows)],
        "skipped": [
            {
                "scheme": c.scheme,
                "where": c.where,
                "size_bytes": c.size_bytes,
                "chunks": c.chunks,
                "why": why,
                "flag": flag,
            }
            for c in study.cells
            for why, flag in [c.skipped(full, emulate)]
            if why
        ],
        "cells": {"asked": len(cells), "found": found, "run": ran}
        | {reason: sum(reason in r for r in rows) for reason in ("failed", "cannot")},
        "notes": list(study.notes),
        "versions": versions(),
        "seconds": time.perf_counter() - started,
        "cpu_s": spent,
    }


def _outcomes(
    cells: Sequence[Cell], todo: Sequence[int], seed: int, engine: Engine, warm_up: Sequence[Cell]
) -> Iterator[tuple[int, Outcome]]:
    """The cells ``todo`` as they finish, with their numbers: those that send real bytes last, with nothing beside."""
    for run, emulated in ((engine, False), (here, True)):
        own = [i for i in todo if cells[i].emulated == emulated]
        for position, outcome in run([(cells[i], seed) for i in own], warm_up) if own else ():
            yield own[position], outcome


def write_study(result: Mapping[str, Any], study: Study, folder: str) -> list[str]:
    """Write ``results.json`` and ``index.html`` into a folder; returns their paths."""
    from .page import study_page

    return _written({"results.json": json.dumps(result, indent=1), "index.html": study_page(result, study)}, folder)


def write_index(results: Sequence[Mapping[str, Any]], folder: str) -> list[str]:
    """Write the page with links to several studies, each in a folder of its name; returns its path."""
    from .page import index_page

    return _written({"index.html": index_page(results)}, folder)


def _written(texts: Mapping[str, str], folder: str) -> list[str]:
    place = Path(folder)
    make_folder(folder)
    for name, text in texts.items():
        with atomic_file(str(place / name)) as file:
            file.write(text)
    return [str(place / name) for name in texts]
