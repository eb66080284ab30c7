"""The page of a study: one chart for each figure, tables, what was skipped, and the paper's claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from ..model.units import format_size, format_time
from ..report import study_html
from .charts import chart_data
from .claims import TABLE, claim_rows
from .model import Row, Study, grouped, without_result


def study_page(result: Mapping[str, Any], study: Study) -> str:
    """The whole page as HTML text."""
    colours: dict[str, int] = {}
    charts = [
        chart_data(figure, [r for r in result["rows"] if figure.name in r["figures"]], result["published"], colours)
        for figure in study.figures
    ]
    empty = _list(chart["title"] for chart in charts if not chart["series"])
    without = f"<section class='card'><h2>Figures without cells in this run</h2><ul>{empty}</ul></section>"
    shown = [chart for chart in charts if chart["series"]]
    return study_html(study.title, shown, _head(result, study), f"{without if empty else ''}{_tables(result)}")


def _head(result: Mapping[str, Any], study: Study) -> str:
    """What stands above the charts: paper, notes, where published values come from, links to the tables."""
    published = _list(f"{name}: {source}" for name, source in result["published"].get("sources", {}).items())
    return (
        f"<section class='card'><p>{escape(study.paper)}. "
        f"stretto {escape(result['versions']['stretto'])}, {'full' if result['full'] else 'short'} form, "
        f"{result['seconds']:.0f} s.</p><ul>{_list(result['notes'])}</ul>"
        f"{f'<p>Published, dotted or under its figure:</p><ul>{published}</ul>' if published else ''}"
        "<p><a href='#tables'>Tables</a> · <a href='#cells'>every cell</a> · <a href='#skipped'>skipped</a>"
        f"{' · <a href=#claims>what the paper claims</a>' if result['claims'] else ''}</p></section>"
    )


def _tables(result: Mapping[str, Any]) -> str:
    """What stands below the charts: the study's tables, every cell, what was skipped, the paper's claims."""
    own = "".join(_card(t["title"], _html_table(t["columns"], map(_cells, t["rows"]))) for t in result["tables"])
    skipped = _list(
        f"{s['scheme']} on {s['where']}, {format_size(s['size_bytes'])}, {s['chunks']} chunk(s): "
        f"{s['why']} ({s['flag']})"
        for s in result["skipped"]
    )
    return (
        f"<div id='tables' class='stack'>{own}</div>"
        f"{_card('Schemes', _html_table(SUMMARY, map(_cells, summary_rows(result['rows']))))}"
        f"{_card('Every cell', _table(result['rows']), 'cells')}"
        f"<section class='card' id='skipped'><h2>Skipped</h2><ul>{skipped or '<li>nothing</li>'}</ul></section>"
        f"{_claims(result['claims'])}"
    )


def _card(title: str, table: str, name: str = "") -> str:
    """A table in a card, which scrolls where it is larger than the screen."""
    at = f" id='{name}'" if name else ""
    return (
        f"<section class='card'{at}><h2>{escape(title)}</h2><div class='wide tall' tabindex='0'>{table}</div></section>"
    )


def index_page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page with links to several studies."""
    rows = [
        f"<td><a href='{r['study']}/index.html'>{escape(r['study'])}</a></td>"
        + _cells(
            [r["title"], *(str(r["cells"][count]) for count in ("asked", "cannot", "failed")), str(len(r["skipped"]))]
        )
        for r in results
    ]
    table = _html_table(("study", "what", "cells", "cannot", "failed", "left to the full form"), rows)
    return study_html("Studies", [], f"<section class='card'><div class='wide'>{table}</div></section>", "")


def _list(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    """The table of claims; a value that is not as documented stands out."""
    if not claims:
        return ""
    body = [
        f"<td{'' if c['agrees'] else ' class=other'}>{escape(cells[0])}</td>{_cells(cells[1:])}"
        for c, cells in zip(claims, claim_rows(claims), strict=True)
    ]
    return _card("What the paper claims, and ours", _html_table(TABLE, body, "prose"), "claims")


COLUMNS = (
    "scheme", "topology", "collective", "size", "chunks", "completion", "/ bound", "/ best", "reported",
    "planning (CPU)", "proven", "verified",
)  # fmt: skip
SUMMARY = (
    "scheme", "cells", "cannot", "failed", "/ bound: median", "worst", "<= 1.10", "<= 1.15", "planning: median", "most",
)  # fmt: skip


def summary_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """For each scheme how near it is to the bound over all its cells, and its planning cost; see :data:`SUMMARY`."""
    table: list[tuple[str, ...]] = []
    for scheme, own in grouped(rows, lambda r: r["scheme"]).items():
        done = [r for r in own if without_result(r) is None]
        ratios = [r["completion_over_bound"] for r in done if r["completion_over_bound"]]
        costs = [r["planning_cpu_s"] for r in done]
        near = [""] * 4
        if ratios:
            within = [f"{sum(x <= most for x in ratios) / len(ratios):.0%}" for most in (1.10, 1.15)]
            near = [f"{median(ratios):.3f}", f"{max(ratios):.3f}", *within]
        cost = [format_time(median(costs)), format_time(max(costs))] if costs else [""] * 2
        without = [str(sum(reason in r for r in own)) for reason in ("cannot", "failed")]
        table.append((scheme, str(len(own)), *without, *near, *cost))
    return table


def table_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table of a study's rows as text, see :data:`COLUMNS`."""
    table: list[tuple[str, ...]] = []
    for r in rows:
        start = (r["scheme"], r["where"], r["collective"], format_size(r["size_bytes"]), str(r["chunks"]))
        if reason := without_result(r):
            table.append((*start, reason, "", "", "", format_time(r["planning_cpu_s"]), "", ""))
            continue
        spread = f" ± {format_time(r['completion_s_spread'])}" if "completion_s_spread" in r else ""
        table.append((
            *start,
            format_time(r["completion_s"]) + spread,
            f"{r['completion_over_bound']:.3f}" if r["completion_over_bound"] else "",
            "" if r["over_best"] is None else f"{r['over_best']:.3f}",
            format_time(r["reported_s"]),
            format_time(r["planning_cpu_s"]),
            "" if r["proven"] is None else "yes" if r["proven"] else "no",
            "yes" if r["verified"] else "schedule",
        ))  # fmt: skip
    return table


def _table(rows: Sequence[Row]) -> str:
    """The table of a study's rows; the reason why there is no result has all columns after the request's."""
    body = [
        f"{_cells(cells[:5])}<td class='failed' colspan='7'>{escape(cells[5])}</td>"
        if without_result(r)
        else _cells(cells)
        for r, cells in zip(rows, table_rows(rows), strict=True)
    ]
    return _html_table(COLUMNS, body)


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _html_table(columns: Sequence[str], body: Iterable[str], look: str = "") -> str:
    """A table with a heading; ``body`` has the cells of each row."""
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    rows = "".join(f"<tr>{b}</tr>" for b in body)
    return f"<table{f' class={look}' if look else ''}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
