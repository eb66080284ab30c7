"""The page of a study: one chart for each figure (Plotly, embedded, works offline), tables, what was skipped, and the
paper's claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from ..model.units import format_time
from .claims import TABLE, claim_rows
from .model import Figure, Row, Study, grouped

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
.main-svg :is(.infolayer, .xaxislayer-above, .yaxislayer-above) text { fill: CanvasText !important; }
h2 { margin-top: 2.5rem; }
.wide td { text-align: left; vertical-align: top; } .other { border-left: 4px solid #ef553b; }
.scroll { overflow-x: auto; } .failed { opacity: .7; text-align: left; }
"""

TITLES = {
    "size_bytes": "buffer, bytes",
    "topology": "topology",
    "scheme": "",
    "completion_s": "simulated completion, s",
    "planning_cpu_s": "planning, CPU seconds",
    "completion_over_bound": "completion / lower bound",
    "algorithm_bandwidth": "algorithm bandwidth, bytes/s",
    "ranks": "ranks",
    "less_than_strawman": "less time than strawman-icr",
    "overhead": "part of the time that is not the ideal's",
    "collectives": "concurrent collectives",
    "varying": "bandwidths vary within this share of their mean",
    "over_baseline": "mean completion / that of the baseline",
    "slowdown": "mean completion / the same plan's at constant bandwidths",
}
SCALES = {"size_bytes": "log", "ranks": "log", "topology": "category"}
PALETTE = ("#636efa", "#ef553b", "#00b386", "#ab63fa", "#e8853d", "#0fa5c9", "#e0427f", "#7f9c2d", "#c957d6", "#b8860b",
           "#5a7d9a", "#a0522d", "#e0a800", "#2a9d8f", "#8e44ad", "#d35400")  # fmt: skip
"""Colours of schemes, readable on light and dark; published values have their scheme's colour, dotted."""
SYMBOLS = ("circle", "square", "diamond", "x", "triangle-up", "cross")
LEGEND_ROW, AROUND = 20, 190
"""Height in pixels of a line in a legend, and of the space above and below the legend."""
NARROW = """<script>if (innerWidth < 700) for (const chart of document.querySelectorAll(".js-plotly-plot")) {
const height = chart.offsetHeight + 20 * chart.data.length; chart.parentElement.style.height = height + "px";
Plotly.relayout(chart, {"legend.orientation": "h", "legend.y": -0.3, "margin.l": 50, "margin.r": 10, height});
}</script>"""
"""On a telephone the legend goes under its chart."""
CONFIG = {"displaylogo": False, "responsive": True}
LABEL = {"bgcolor": "#1b2330", "font_color": "#fff", "namelength": -1}
CLEAR, GREY = "rgba(0,0,0,0)", "#888"
BOUNDS = {"completion_s": "bound_s", "over_baseline": "bound_over_baseline"}


def study_page(result: Mapping[str, Any], study: Study) -> str:
    """The whole page as HTML text."""
    import plotly.io as pio

    charts = []
    for i, figure in enumerate(study.figures):
        rows = [r for r in result["rows"] if figure.name in r["figures"]]
        chart = _chart(figure, rows, result["published"])
        drawing = pio.to_html(chart, full_html=False, include_plotlyjs=i == 0, config=CONFIG)
        charts.append(drawing)
    published = _list(f"{name}: {source}" for name, source in result["published"].get("sources", {}).items())
    tables = "".join(
        f"<h2>{escape(t['title'])}</h2><div class='scroll'>{_html_table(t['columns'], map(_cells, t['rows']))}</div>"
        for t in result["tables"]
    )
    skipped = _list(
        f"{s['scheme']} on {s['where']}, {s['size_bytes']:,} bytes, {s['chunks']} chunk(s): {s['why']} ({s['flag']})"
        for s in result["skipped"]
    )
    return _page(
        study.title,
        f"<h1>{escape(study.title)}</h1><p>{escape(study.paper)}. "
        f"stretto {escape(result['versions']['stretto'])}, {'full' if result['full'] else 'short'} form, "
        f"{result['seconds']:.0f} s.</p><ul>{_list(result['notes'])}</ul>"
        f"{f'<p>Published, dotted or under its figure:</p><ul>{published}</ul>' if published else ''}"
        "<p><a href='#tables'>Tables</a> · <a href='#cells'>every cell</a> · <a href='#skipped'>skipped</a>"
        f"{' · <a href=#claims>what the paper claims</a>' if result['claims'] else ''}</p>"
        f"{''.join(charts)}<div id='tables'>{tables}</div>"
        f"<h2>Schemes</h2><div class='scroll'>{_html_table(SUMMARY, map(_cells, summary_rows(result['rows'])))}</div>"
        f"<h2 id='cells'>Every cell</h2><div class='scroll'>{_table(result['rows'])}</div>"
        f"<h2 id='skipped'>Skipped</h2><ul>{skipped or '<li>nothing</li>'}</ul>{_claims(result['claims'])}{NARROW}",
    )


def index_page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page with links to several studies."""
    rows = [
        f"<td><a href='{r['study']}/index.html'>{escape(r['study'])}</a></td>"
        + _cells([r["title"], str(r["cells"]["asked"]), str(r["cells"]["failed"]), str(len(r["skipped"]))])
        for r in results
    ]
    table = _html_table(("study", "what", "cells", "failed", "left to the full form"), rows)
    return _page("stretto studies", f"<h1>Studies</h1><div class='scroll'>{table}</div>")


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _chart(figure: Figure, rows: Sequence[Row], published: Mapping[str, Any]) -> Any:
    import plotly.graph_objects as go

    chart = go.Figure()
    shown = (r for r in rows if figure.y in r and "failed" not in r)
    lines = grouped(shown, lambda r: ", ".join(str(r[column]) for column in figure.lines))
    colours: dict[str, str] = {}
    marks: Counter[str] = Counter()
    for name, own in lines.items():
        # the first column decides the colour, the other columns of a line decide the marker
        base = str(own[0][figure.lines[0]])
        colour = colours.setdefault(base, PALETTE[len(colours) % len(PALETTE)])
        symbol = SYMBOLS[marks[base] % len(SYMBOLS)]
        marks[base] += 1
        x, y = [r[figure.x] for r in own], [r[figure.y] for r in own]
        spread = [r[f"{figure.y}_spread"] for r in own if f"{figure.y}_spread" in r]
        error = {"array": spread} if spread else None
        if figure.boxes:
            chart.add_trace(go.Box(name=name, y=y, boxpoints="all", marker_color=colour))
        elif figure.bars:
            chart.add_trace(go.Bar(name=name, x=x, y=y, error_y=error, marker_color=colour))
        else:
            chart.add_trace(_line(figure, name, x, y, "solid", colour, symbol, error))
    for name, scheme, points in _published(figure, rows, published):
        xs, ys = zip(*sorted(points), strict=True)
        chart.add_trace(_line(figure, name, xs, ys, "dot", _colour_of(scheme, colours)))
    key = BOUNDS.get(figure.y, "")
    bound: dict[Any, float] = {}
    for r in rows:
        if r.get(key) and figure.x in r and r.get("contends", True):
            bound[r[figure.x]] = min(r[key], bound.get(r[figure.x], float("inf")))
    if bound:
        chart.add_trace(_line(figure, "lower bound", [*bound], [*bound.values()], "dash", GREY))
    grey = "rgba(128,128,128,.3)"
    chart.update_layout(
        title=figure.title, xaxis_title=TITLES[figure.x], yaxis_title=TITLES[figure.y],
        hovermode="closest" if figure.boxes else "x unified", hoverlabel=LABEL,
        paper_bgcolor=CLEAR, plot_bgcolor=CLEAR, modebar={"bgcolor": CLEAR}, font_color=GREY,
        height=max(460, AROUND + LEGEND_ROW * len(chart.data)),
        xaxis={"type": SCALES.get(figure.x, "category" if figure.boxes else "linear"), "gridcolor": grey},
        yaxis={"type": "linear" if figure.ratio else "log", "gridcolor": grey, "exponentformat": "SI",
               "hoverformat": ".4~g"}
        | ({"tickformat": ".0%"} if figure.ratio else {}),
    )  # fmt: skip
    return chart


def _published(
    figure: Figure, rows: Sequence[Row], published: Mapping[str, Any]
) -> Iterator[tuple[str, str, list[tuple[Any, float]]]]:
    """Name, scheme and points of each published line: the schedule's own time, and planning on another machine."""
    key = {"completion_s": "reported_s", "planning_cpu_s": "solver_s"}.get(figure.y, "")
    shown = {(r["topology"], r["size_bytes"], r.get("chunks", 1)) for r in rows}
    for source, words in (("shipped", "published, as shipped"), ("paper", "published")):
        lines: dict[str, list[tuple[Any, float]]] = {}
        for p in published.get(source, ()):
            place = p["topology"].removesuffix(":teccl"), p.get("size_bytes", 10**9), p.get("chunks", 1)
            if key in p and place in shown:
                lines.setdefault(p["scheme"], []).append((place[figure.x != "topology"], p[key]))
        for scheme, points in lines.items():
            yield f"{scheme} ({words})", scheme, points


def _colour_of(scheme: str, colours: dict[str, str]) -> str:
    """The colour of a scheme: that of its line, or of its variant ("teccl slow" for "teccl"), or a new one."""
    variants = (c for name, c in colours.items() if name.startswith((f"{scheme} ", f"{scheme},")))
    found = colours.get(scheme) or next(variants, None)
    unused = (c for c in reversed(PALETTE) if c not in colours.values())
    return colours.setdefault(scheme, found or next(unused, GREY))


def _line(
    figure: Figure, name: str, x: Sequence[Any], y: Sequence[float], dash: str, colour: str, symbol: str = "circle",
    error: dict[str, list[float]] | None = None,
) -> Any:  # fmt: skip
    """A line with markers; among bars markers alone."""
    import plotly.graph_objects as go

    mode, symbol, size = ("markers", "line-ew-open", 12) if figure.bars else ("lines+markers", symbol, 6)
    look = {"line": {"dash": dash, "color": colour}, "marker": {"symbol": symbol, "size": size, "color": colour}}
    return go.Scatter(name=name, x=x, y=y, mode=mode, error_y=error, **look)


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
    title = "<h2 id='claims'>What the paper claims, and ours</h2>"
    return f"{title}<div class='scroll wide'>{_html_table(TABLE, body)}</div>"


COLUMNS = (
    "scheme", "topology", "collective", "bytes", "chunks", "completion", "/ bound", "/ best", "reported",
    "planning (CPU)", "proven", "verified",
)  # fmt: skip
SUMMARY = ("scheme", "cells", "failed", "/ bound: median", "worst", "<= 1.10", "<= 1.15", "planning: median", "most")


def summary_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """For each scheme how near it is to the bound over all its cells, and its planning cost; see :data:`SUMMARY`."""
    table: list[tuple[str, ...]] = []
    for scheme, own in grouped(rows, lambda r: r["scheme"]).items():
        done = [r for r in own if "failed" not in r]
        ratios = [r["completion_over_bound"] for r in done if r["completion_over_bound"]]
        costs = [r["planning_cpu_s"] for r in done]
        near = [""] * 4
        if ratios:
            within = [f"{sum(x <= most for x in ratios) / len(ratios):.0%}" for most in (1.10, 1.15)]
            near = [f"{median(ratios):.3f}", f"{max(ratios):.3f}", *within]
        cost = [format_time(median(costs)), format_time(max(costs))] if costs else [""] * 2
        table.append((scheme, str(len(own)), str(len(own) - len(done)), *near, *cost))
    return table


def table_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table of a study's rows as text, see :data:`COLUMNS`."""
    table: list[tuple[str, ...]] = []
    for r in rows:
        start = (r["scheme"], r["where"], r["collective"], f"{r['size_bytes']:,}",
                 str(r["chunks"]))  # fmt: skip
        if "failed" in r:
            table.append((*start, r["failed"], "", "", "", format_time(r["planning_cpu_s"]), "", ""))
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
    """The table of a study's rows; the reason of a failure has all columns after the request's."""
    body = [
        f"{_cells(cells[:5])}<td class='failed' colspan='7'>{escape(cells[5])}</td>" if "failed" in r else _cells(cells)
        for r, cells in zip(rows, table_rows(rows), strict=True)
    ]
    return _html_table(COLUMNS, body)


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _html_table(columns: Sequence[str], body: Iterable[str]) -> str:
    """A table with a heading; ``body`` has the cells of each row."""
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{b}</tr>' for b in body)}</table>"
