"""``stretto study``: a paper's evaluation, or one of your own."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import JsonOption, SeedOption
from .output import answer, print_line, print_table
from .work import show_progress

MOST_ROWS = 200
"""A study of more cells prints one row a scheme; the page has the rest."""


def study(
    name: Annotated[str, typer.Argument(help="mtegcca, scale-ccl, swot or wan")],
    full: Annotated[bool, typer.Option("--full", help="Every cell, hours of solving included.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", help="The folder for results and page.")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a paper's evaluation again: tables, JSON and a page of figures."""
    from ..studies import find_study, run_study, write_study
    from ..studies.page import COLUMNS, SUMMARY, summary_rows, table_rows

    chosen = find_study(name)
    result = run_study(chosen, full=full, seed=seed, progress=show_progress)
    files = write_study(result, chosen, output or f"study-{name}")

    def print_it() -> None:
        if len(result["rows"]) <= MOST_ROWS:
            print_table(chosen.title, COLUMNS, table_rows(result["rows"]))
        print_table(chosen.title, SUMMARY, summary_rows(result["rows"]))
        for table in result["tables"]:
            print_table(table["title"], table["columns"], table["rows"])
        if result["skipped"]:
            reasons = sorted({s["why"] for s in result["skipped"]})
            print_line(f"{len(result['skipped'])} cells skipped ({'; '.join(reasons)}); --full runs them")
        for t in result["trends"]:
            order = " > ".join(t["slowest_first"])
            print_line(f"figure {t['figure']}, published order {order}: at {t['held']} of {t['points']} points")
        print_line(f"written: {', '.join(files)}")

    answer(as_json, result | {"files": files}, print_it)
