"""Studies: a paper's evaluation as a list of cells, run one by one, and one page about them.

A *cell* is one request: a scheme on a topology at a size. A study names its cells (the short form,
and those that only the full form runs), the published values beside which they stand, and how its
figures are drawn. Running a cell plans, verifies, simulates and bounds; a cell that fails says why
and does not stop the others.
"""

from __future__ import annotations

import importlib
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

from ..bounds import bounds
from ..collective import Workload, make_collective
from ..errors import InputError, StrettoError
from ..formats import written_whole
from ..planners import run_planner
from ..simulate import simulate
from ..topologies import load_topology
from ..verify import verify

STUDIES = ("mtegcca", "scale-ccl", "swot")
"""The studies that come with stretto, each a module of this package with a ``STUDY``."""

Row = dict[str, Any]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Cell:
    """One request of a study.

    Attributes:
        scheme: as tables and figures name it.
        figures: which of the study's figures show it.
        size_bytes: the full buffer.
        why_full: why only the full form runs it; empty if the short form does, too.
        contends: whether others on the same request are measured against it; not where it runs on a
            network that cannot be had.
        run: what makes its row of it and a seed, where that is not :func:`run_cell` alone.
    """

    scheme: str
    topology: str
    size_bytes: int
    planner: str
    figures: tuple[str, ...]
    collective: str = "allgather"
    chunks: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    time_limit_s: float | None = None
    why_full: str = ""
    contends: bool = True
    run: Callable[[Cell, int], Row] | None = None


@dataclass(frozen=True)
class Figure:
    """A chart of the rows: ``y`` over ``x``: a line a scheme over numbers, bars over topologies, a box a scheme
    over ``scheme``.

    Attributes:
        lines: the columns that tell lines apart.
        ratio: whether ``y`` is a ratio and has a linear axis; others are logarithmic.
    """

    name: str
    title: str
    x: str
    y: str
    lines: tuple[str, ...] = ("scheme",)
    ratio: bool = False

    @property
    def bars(self) -> bool:
        return self.x == "topology"

    @property
    def boxes(self) -> bool:
        return self.x == "scheme"


class Table(NamedTuple):
    """What the rows come to, as text."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Study:
    """A paper's evaluation.

    Attributes:
        warm_up: cells that run first and are not shown, so large that kernels are compiled and stay
            so: the planning times are then those of a warm process.
        tables: what is read off the rows that could be run.
    """

    name: str
    title: str
    paper: str
    cells: Sequence[Cell]
    figures: Sequence[Figure]
    published: Mapping[str, Any] = field(default_factory=dict)
    warm_up: Sequence[Cell] = ()
    notes: Sequence[str] = ()
    tables: Callable[[Sequence[Row]], list[Table]] = lambda rows: []


def find_study(name: str) -> Study:
    """The study of that name; InputError names the ones there are."""
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}; there are {', '.join(STUDIES)}", "study")
    study: Study = importlib.import_module(f".{name.replace('-', '_')}", __name__).STUDY
    return study


def published(name: str) -> dict[str, Any]:
    """The published values of a study: data with their sources."""
    data: dict[str, Any] = json.loads((resources.files(__name__) / "published" / f"{name}.json").read_text())
    return data


def run_study(study: Study, *, full: bool = False, seed: int = 0, progress: Progress | None = None) -> dict[str, Any]:
    """Run the cells of a study.

    Returns:
        An object of plain data: ``rows`` (one a cell), ``tables``, ``published``, ``skipped`` (what the short
        form leaves out, and why), ``versions`` and ``seconds``.
    """
    cells = [c for c in study.cells if full or not c.why_full]
    started = time.perf_counter()
    rows = []
    for cell in study.warm_up:
        run_cell(cell, seed)
    for i, cell in enumerate(cells):
        if progress is not None:
            progress(i, len(cells), f"{cell.scheme} on {cell.topology}, {cell.size_bytes:,} bytes")
        rows.append((cell.run or run_cell)(cell, seed))
    if progress is not None:
        progress(len(cells), len(cells), "done")
    _against_the_best(rows)
    return {
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "full": full,
        "seed": seed,
        "rows": rows,
        "tables": [table._asdict() for table in study.tables([r for r in rows if "failed" not in r])],
        "published": dict(study.published),
        "skipped": [
            {
                "scheme": c.scheme,
                "topology": c.topology,
                "size_bytes": c.size_bytes,
                "chunks": c.chunks,
                "why": c.why_full,
            }
            for c in study.cells
            if c.why_full and not full
        ],
        "notes": list(study.notes),
        "versions": {"stretto": metadata.version("stretto"), "python": platform.python_version()},
        "seconds": time.perf_counter() - started,
    }


def run_cell(cell: Cell, seed: int = 0) -> Row:
    """Plan, verify, simulate and bound one cell; a failure is a row with ``failed``."""
    row: Row = {
        "scheme": cell.scheme,
        "topology": cell.topology,
        "collective": cell.collective,
        "size_bytes": cell.size_bytes,
        "chunks": cell.chunks,
        "planner": cell.planner,
        "options": dict(cell.options),
        "time_limit_s": cell.time_limit_s,
        "figures": list(cell.figures),
        "contends": cell.contends,
    }
    spent = time.process_time()
    try:
        topology = load_topology(cell.topology)
        workload = Workload((make_collective(cell.collective, topology, cell.size_bytes, chunks=cell.chunks),))
        row["bound_s"] = bounds(topology, workload)[0].seconds
        plan = run_planner(
            cell.planner, topology, workload, seed=seed, time_limit_s=cell.time_limit_s, options=dict(cell.options)
        )
        verdict = verify(plan)
        if not verdict.ok:
            raise StrettoError(f"the plan does not verify: {verdict.finding.message if verdict.finding else ''}")
    except StrettoError as error:
        return row | {"failed": str(error), "planning_cpu_s": time.process_time() - spent}
    completion = simulate(plan).completion_s
    meta = plan.meta
    return row | {
        "ranks": len(workload.collectives[0].ranks),
        "transfers": plan.transfer_count,
        "completion_s": completion,
        "reported_s": meta.get("reported_s", completion),
        "completion_over_bound": completion / row["bound_s"] if row["bound_s"] else None,
        "algorithm_bandwidth": cell.size_bytes / completion if completion else None,
        "planning_s": meta["planning_s"],
        "planning_cpu_s": meta["planning_cpu_s"],
        "proven": meta.get("proven"),
        "gap": meta.get("gap"),
        "solves": len(meta.get("attempts", meta.get("stages", ()))),
        "verified": True,
    }


def _against_the_best(rows: list[Row]) -> None:
    """Add ``over_best``: completion over the best of all schemes on the same request."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if "completion_s" in row and row["contends"]:
            key = _request(row)
            best[key] = min(best.get(key, float("inf")), row["completion_s"])
    for row in rows:
        if "completion_s" in row:
            key = _request(row)
            row["over_best"] = row["completion_s"] / best[key] if key in best else None


def _request(row: Row) -> tuple[Any, ...]:
    return row["topology"], row["collective"], row["size_bytes"], row.get("chunks", 1)


def write_study(result: Mapping[str, Any], study: Study, folder: str) -> list[str]:
    """Write ``results.json`` and ``index.html`` into a folder; the paths written."""
    from .page import study_page

    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", folder) from None
    texts = {"results.json": json.dumps(result, indent=1), "index.html": study_page(result, study)}
    for name, text in texts.items():
        with written_whole(str(place / name)) as file:
            file.write(text)
    return [str(place / name) for name in texts]
