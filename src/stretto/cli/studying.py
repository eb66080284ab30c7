"""``stretto study``: the evaluations of the papers, or a grid of your own."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from ..model.errors import InputError, Unsupported, none_of
from . import arguments
from .output import answer
from .progress import doing, say, show_tenths
from .tables import print_below, print_line, print_table

if TYPE_CHECKING:
    from ..studies import Study
    from ..studies.engines import Engine

MOST_ROWS = 60
"""A study of more cells prints one row a scheme; the page has the rest."""

SPARE = ("proven", "verified", "reported", "planning (CPU)", "chunks", "/ bound", "collective")
"""Columns of cells that a narrow terminal can do without, the first one first."""
SUMMARY_SPARE = ("<= 1.15", "<= 1.10", "most", "planning: median")
"""The same of the schemes."""
MOST_REASONS = 12
"""Reasons of cells without a result that are printed."""


def study(
    name: Annotated[str, Argument(help="mtegcca, scale-ccl, swot or wan; all; or grid, with a FILE.")],
    file: Annotated[str | None, Argument(help="The TOML file of a grid of your own.")] = None,
    topology: Annotated[
        str | None,
        Option(
            "-t",
            "--topology",
            help="A network of your own, by its spec or file: the paper's schemes, sizes and figures on it.",
            autocompletion=arguments.complete_topology,
        ),
    ] = None,
    full: Annotated[bool, Option("--full", help="Run every cell, also those that take hours to solve.")] = False,
    emulate: Annotated[
        bool, Option("--emulate", help="Run the cells with real bytes, too, between network namespaces (needs root).")
    ] = False,
    engine: Annotated[str, Option(help="local, ray (RAY_ADDRESS, else this machine) or ray://HOST:PORT")] = "local",
    jobs: Annotated[
        int | None, Option(help="Number of cells to run at once. Default: 1 locally, all CPUs on Ray.", min=1)
    ] = None,
    output: Annotated[
        str | None,
        Option("-o", "--output", help="Folder for results and page. Cells that it holds are not run again."),
    ] = None,
    seed: arguments.Seed = 0,
    fresh: Annotated[bool, Option("--fresh", help="Discard the results in the folder and run all cells.")] = False,
    retry_failed: Annotated[bool, Option("--retry-failed", help="Run cells without a result again.")] = False,
    check: Annotated[
        bool,
        Option("--check", help="Run only what the paper's claims are about; exit with 1 if one is not as documented."),
    ] = False,
    as_json: arguments.Json = False,
) -> None:
    """Run the evaluation of a paper, or a grid of your own, into tables, JSON, Parquet and a page of figures.

    Exits with 1 if a cell failed; that a scheme cannot serve a cell is a result.
    """
    from ..studies import Store, run_study, write_index, write_study

    chosen, unsuited = _chosen(name, file, topology)
    if check:
        chosen = [_claimed(one) for one in chosen]
    home = output or f"study-{name}{_suffix(topology)}"
    if emulate:
        _check_emulation(chosen)
    runner = _engine(engine, jobs)
    results, written = [], []
    for one in chosen:
        folder = os.path.join(home, one.name) if name == "all" else home
        with Store(folder, one.name) as store:
            if one is chosen[0]:
                say(f"results, tables and page go to {os.path.join(home, '')}")
            if fresh:
                store.clear()
            result = run_study(
                one, full=full, emulate=emulate, seed=seed, progress=show_tenths(f"study {one.name}"), engine=runner,
                store=store, retry_failed=retry_failed,
            )  # fmt: skip
            doing(f"writing the page of {one.name}")
            files = [*write_study(result, one, folder), str(store.whole)]
        results.append(result | {"files": files})
        written += files
        if not as_json:
            _show(result, one, files)
    if name == "all":
        written += write_index(results, home)
        totals = {k: sum(r["cells"][k] for r in results) for k in ("asked", "found", "run", "failed", "cannot")}
        data = {"studies": {r["study"]: r for r in results}, "cells": totals, "unsuited": unsuited, "files": written}
        answer(as_json, data, lambda: print_line("\n".join([*unsuited.values(), f"all studies: {written[-1]}"])))
    elif as_json:
        answer(as_json, results[0], lambda: None)
    failed = any(result["cells"]["failed"] for result in results)
    if failed or (check and not all(claim["agrees"] for result in results for claim in result["claims"])):
        raise Exit(1)


def _claimed(one: Study) -> Study:
    """The study with only the cells on which claims are measured; InputError if it has no claims."""
    from ..studies.claims import with_claimed_cells

    if not one.claims:
        raise InputError("the papers' studies on the papers' networks have claims; this one has none", "--check")
    return with_claimed_cells(one)


def _check_emulation(chosen: list[Study]) -> None:
    """Raise the reason why nothing can be run with real bytes, before anything runs."""
    from ..emulator import refusal

    if not any(cell.emulated for one in chosen for cell in one.cells):
        raise InputError(f"the study {chosen[0].name} sends no real bytes; wan does", "--emulate")
    if (reason := refusal()) is not None:
        raise Unsupported(reason)


def _chosen(name: str, file: str | None, topology: str | None) -> tuple[list[Study], dict[str, str]]:
    """The studies to run, and why others do not suit the topology, by name.

    Raises:
        InputError: a file for a study that takes none, or none for a grid. Unsupported: no study suits the topology.
    """
    from ..studies import STUDIES, find_study, find_study_on
    from ..studies.grid import read_grid

    if (name == "grid") != (file is not None):
        raise InputError("`stretto study grid FILE.toml` takes a file, and no other study does", "FILE")
    if file is not None:
        if topology is not None:
            raise InputError("a grid names its topologies in its file", "--topology")
        return [read_grid(file)], {}
    if topology is None:
        return [find_study(each) for each in (STUDIES if name == "all" else [name])], {}
    if name != "all":
        return [find_study_on(name, topology)], {}
    chosen: list[Study] = []
    unsuited: dict[str, str] = {}
    for each in STUDIES:
        try:
            chosen.append(find_study_on(each, topology))
        except Unsupported as reason:
            unsuited[each] = str(reason)
    if not chosen:
        raise Unsupported("; ".join(unsuited.values()))
    return chosen, unsuited


def _suffix(topology: str | None) -> str:
    """What the default folder of a study on a network of one's own ends with."""
    if topology is None:
        return ""
    return "-" + re.sub(r"[^\w.,=-]+", "-", os.path.splitext(os.path.basename(topology))[0]).strip("-")


def _engine(text: str, jobs: int | None) -> Engine:
    """The engine that ``--engine`` names."""
    if text == "local":
        from ..studies.engines import Processes

        return Processes(jobs or 1)
    if text == "ray" or text.startswith("ray://"):
        from ..studies.on_ray import OnRay

        return OnRay(None if text == "ray" else text, jobs)
    raise InputError(none_of(text, ("local", "ray", "ray://HOST:PORT")), "--engine")


def _show(result: dict[str, Any], one: Study, files: list[str]) -> None:
    """The tables for people."""
    from ..studies import without_result
    from ..studies.claims import TABLE, claim_rows
    from ..studies.page import COLUMNS, SUMMARY, summary_rows, table_rows

    if len(result["rows"]) <= MOST_ROWS:
        done = [r for r in result["rows"] if without_result(r) is None]
        several = any(r["over_best"] is not None and r["over_best"] > 1.0 for r in done)
        marks = [" *" if several and r["over_best"] == 1.0 else "" for r in done]
        cells = [(scheme + mark, *cells) for (scheme, *cells), mark in zip(table_rows(done), marks, strict=True)]
        print_table(one.title, COLUMNS, cells, SPARE)
        if several:
            print_below("* ends soonest")
    print_table(one.title, SUMMARY, summary_rows(result["rows"]), SUMMARY_SPARE)
    for table in result["tables"]:
        print_table(table["title"], table["columns"], table["rows"])
    if result["skipped"]:
        reasons = sorted({s["why"] for s in result["skipped"]})
        flags = " and ".join(sorted({s["flag"] for s in result["skipped"]}))
        print_below(f"{len(result['skipped'])} cells skipped ({'; '.join(reasons)}); {flags} to run them")
    without = Counter(
        (f"{r['scheme']} {'failed in' if 'failed' in r else 'cannot serve'}", why)
        for r in sorted(result["rows"], key=lambda r: "failed" not in r)
        if (why := without_result(r))
    )
    for (who, why), count in list(without.items())[:MOST_REASONS]:
        print_below(f"{who} {count} cell{'s' if count > 1 else ''}: {why}")
    if len(without) > MOST_REASONS:
        print_below(f"and {len(without) - MOST_REASONS} more reasons, on the page")
    if result["claims"]:
        whole = sum(c["whole"] for c in result["claims"])
        print_table("What the paper claims, and ours", TABLE[:-1], [c[:-1] for c in claim_rows(result["claims"])])
        others = [c["id"] for c in result["claims"] if not c["agrees"]]
        print_below(f"{whole} of {len(result['claims'])} claims measured whole; not as "
                   f"docs/contributors/reproducing.md has it: {', '.join(others) or 'none'}")  # fmt: skip
    cells = result["cells"]
    again = "; --fresh runs them again" if cells["found"] else ""
    cannot = f", {cells['cannot']} that their schemes cannot serve" if cells["cannot"] else ""
    many = "1 cell" if cells["run"] == 1 else f"{cells['run']} cells"
    print_below(f"{many} run, {cells['found']} there before{again}; {cells['failed']} failed{cannot}")
    print_below(f"written: {', '.join(files)}")
