"""The page of a study: one chart for each figure (Plotly, embedded, works offline), tables, and what was skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from ..model.units import format_time
from . import Figure, Study

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
.main-svg :is(.infolayer, .xaxislayer-above, .yaxislayer-above) text { fill: CanvasText !important; }
.trend { margin: 0 0 2rem; } h2 { margin-top: 2.5rem; }
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
        charts.append(drawing + _trends([t for t in result["trends"] if t["figure"] == figure.name]))
    skipped = "".join(
        f"<li>{escape(s['scheme'])} on {escape(s['where'])}, {s['size_bytes']:,} bytes, {s['chunks']} chunk(s): "
        f"{escape(s['why'])}</li>"
        for s in result["skipped"]
    )
    notes = "".join(f"<li>{escape(n)}</li>" for n in result["notes"])
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(study.title)}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style></head><body>"
        f"<h1>{escape(study.title)}</h1><p>{escape(study.paper)}. "
        f"stretto {escape(result['versions']['stretto'])}, {'full' if result['full'] else 'short'} form, "
        f"{result['seconds']:.0f} s.</p><ul>{notes}</ul>{_sources(result['published'])}"
        "<p><a href='#tables'>Tables</a> · <a href='#cells'>every cell</a> · <a href='#skipped'>skipped</a></p>"
        f"{''.join(charts)}<div id='tables'>{''.join(_summary(t) for t in result['tables'])}</div>"
        f"<h2>Schemes</h2><div class='scroll'>{_html_table(SUMMARY, summary_rows(result['rows']))}</div>"
        f"<h2 id='cells'>Every cell</h2><div class='scroll'>{_table(result['rows'])}</div>"
        f"{_trends([t for t in result['trends'] if t['figure'] not in {f.name for f in study.figures}])}"
        f"<h2 id='skipped'>Skipped</h2><ul>{skipped or '<li>nothing</li>'}</ul>{NARROW}</body></html>\n"
    )


def index_page(results: Sequence[Mapping[str, Any]]) -> str:
    """The page with links to several studies."""
    rows = [
        f"<td><a href='{r['study']}/index.html'>{escape(r['study'])}</a></td><td>{escape(r['title'])}</td>"
        f"<td>{r['cells']['asked']}</td><td>{r['cells']['failed']}</td><td>{len(r['skipped'])}</td>"
        for r in results
    ]
    table = _rows(("study", "what", "cells", "failed", "left to the full form"), rows)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>stretto studies</title>"
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style></head><body>"
        f"<h1>Studies</h1><div class='scroll'>{table}</div></body></html>\n"
    )


def _chart(figure: Figure, rows: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> Any:
    import plotly.graph_objects as go

    chart = go.Figure()
    drawn: dict[str, list[Mapping[str, Any]]] = {}
    colours: dict[str, str] = {}
    for r in rows:
        if figure.y in r and "failed" not in r:
            drawn.setdefault(", ".join(str(r[column]) for column in figure.lines), []).append(r)
    marks: dict[str, int] = {}
    for line, own in drawn.items():
        # the first column decides the colour, the other columns of a line decide the marker
        base = str(own[0][figure.lines[0]])
        colour = colours.setdefault(base, PALETTE[len(colours) % len(PALETTE)])
        marks[base] = marks.get(base, -1) + 1
        if figure.boxes:
            chart.add_trace(go.Box(name=line, y=[r[figure.y] for r in own], boxpoints="all", marker_color=colour))
            continue
        spread = [r[f"{figure.y}_spread"] for r in own if f"{figure.y}_spread" in r]
        _add(chart, figure, line, [r[figure.x] for r in own], [r[figure.y] for r in own], spread=spread, colour=colour,
             symbol=SYMBOLS[marks[base] % len(SYMBOLS)])  # fmt: skip
    # published values: the schedule's own time, and planning on another machine
    key = {"completion_s": "reported_s", "planning_cpu_s": "solver_s"}.get(figure.y, "")
    shown = {(r["topology"], r["size_bytes"], r.get("chunks", 1)) for r in rows}
    for source in ("shipped", "paper"):
        points: dict[str, list[tuple[Any, float]]] = {}
        for p in published.get(source, ()):
            place = p["topology"].removesuffix(":teccl"), p.get("size_bytes", 10**9), p.get("chunks", 1)
            if key in p and place in shown:
                points.setdefault(p["scheme"], []).append((place[figure.x != "topology"], p[key]))
        for scheme, pairs in points.items():
            name = f"{scheme} (published{', as shipped' if source == 'shipped' else ''})"
            _add(chart, figure, name, [p[0] for p in sorted(pairs)], [p[1] for p in sorted(pairs)], dash="dot",
                 colour=_colour_of(scheme, colours))  # fmt: skip
    key = BOUNDS.get(figure.y, "")
    bound: dict[Any, float] = {}
    for r in rows:
        if r.get(key) and figure.x in r and r.get("contends", True):
            bound[r[figure.x]] = min(r[key], bound.get(r[figure.x], float("inf")))
    if bound:
        _add(chart, figure, "lower bound", list(bound), list(bound.values()), dash="dash", colour=GREY)
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


def _colour_of(scheme: str, colours: dict[str, str]) -> str:
    """The colour of a scheme: that of its line, or of its variant ("teccl slow" for "teccl"), or a new one."""
    variants = (c for name, c in colours.items() if name.startswith((f"{scheme} ", f"{scheme},")))
    found = colours.get(scheme) or next(variants, None)
    unused = (c for c in reversed(PALETTE) if c not in colours.values())
    return colours.setdefault(scheme, found or next(unused, GREY))


def _add(
    chart: Any, figure: Figure, name: str, x: list[Any], y: list[Any], dash: str = "solid",
    spread: Sequence[float] = (), colour: str | None = None, symbol: str = "circle",
) -> None:  # fmt: skip
    import plotly.graph_objects as go

    if not x:
        return
    error = {"array": list(spread)} if spread else None
    if figure.bars and dash == "solid":
        chart.add_trace(go.Bar(name=name, x=x, y=y, error_y=error, marker_color=colour))
    else:
        mode = "markers" if figure.bars else "lines+markers"
        marker = {
            "symbol": "line-ew-open" if figure.bars else symbol,
            "size": 12 if figure.bars else 6,
            "color": colour,
        }
        line = {"dash": dash, "color": colour}
        chart.add_trace(go.Scatter(name=name, x=x, y=y, mode=mode, line=line, marker=marker, error_y=error))


def _sources(published: Mapping[str, Any]) -> str:
    """The sources of the published values and trends."""
    items = "".join(f"<li>{escape(k)}: {escape(v)}</li>" for k, v in published.get("sources", {}).items())
    return f"<p>Published, dotted or under its figure:</p><ul>{items}</ul>" if items else ""


def _trends(trends: Sequence[Mapping[str, Any]]) -> str:
    """The published trends, and at how many points they came out here."""
    return "".join(
        f"<p class='trend'>Published, figure {escape(t['figure'])}: {escape(t['says'])} Ours, "
        f"{escape(TITLES.get(t.get('of', ''), 'completion'))}: {escape(' > '.join(t['slowest_first']))} "
        f"at {t['held']} of {t['points']} points.</p>"
        for t in trends
    )


COLUMNS = (
    "scheme", "topology", "collective", "bytes", "chunks", "completion", "/ bound", "/ best", "reported",
    "planning (CPU)", "proven", "verified",
)  # fmt: skip
SUMMARY = ("scheme", "cells", "failed", "/ bound: median", "worst", "<= 1.10", "<= 1.15", "planning: median", "most")


def summary_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """For each scheme how near it is to the bound over all its cells, and its planning cost; see :data:`SUMMARY`."""
    table = []
    for scheme in dict.fromkeys(r["scheme"] for r in rows):
        own = [r for r in rows if r["scheme"] == scheme]
        done = [r for r in own if "failed" not in r]
        start = scheme, str(len(own)), str(len(own) - len(done))
        if not done:
            table.append((*start, *[""] * 6))
            continue
        ratios = [r["completion_over_bound"] for r in done if r["completion_over_bound"]]
        costs = [r["planning_cpu_s"] for r in done]
        near = ("", "", "", "")
        if ratios:
            within = [f"{sum(x <= most for x in ratios) / len(ratios):.0%}" for most in (1.10, 1.15)]
            near = (f"{median(ratios):.3f}", f"{max(ratios):.3f}", within[0], within[1])
        table.append((*start, *near, format_time(median(costs)), format_time(max(costs))))
    return table


def _summary(table: Mapping[str, Any]) -> str:
    return f"<h2>{escape(table['title'])}</h2><div class='scroll'>{_html_table(table['columns'], table['rows'])}</div>"


def table_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The table of a study's rows as text, see :data:`COLUMNS`."""
    table: list[tuple[str, ...]] = []
    for r in rows:
        start = (r["scheme"], r.get("where", r["topology"]), r["collective"], f"{r['size_bytes']:,}",
                 str(r.get("chunks", "")))  # fmt: skip
        if "failed" in r:
            table.append((*start, r["failed"], "", "", "", format_time(r["planning_cpu_s"]), "", ""))
            continue
        over_best = "" if r["over_best"] is None else f"{r['over_best']:.3f}"
        proven = {True: "yes", False: "no", None: ""}[r["proven"]]
        spread = f" ± {format_time(r['completion_s_spread'])}" if "completion_s_spread" in r else ""
        over = f"{r['completion_over_bound']:.3f}" if r["completion_over_bound"] else ""
        table.append(
            (*start, format_time(r["completion_s"]) + spread, over, over_best,
             format_time(r["reported_s"]), format_time(r["planning_cpu_s"]), proven,
             "yes" if r["verified"] else "schedule")
        )  # fmt: skip
    return table


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return _rows(columns, ["".join(f"<td>{escape(c)}</td>" for c in row) for row in rows])


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for r, cells in zip(rows, table_rows(rows), strict=True):
        if "failed" in r:
            body.append(
                "".join(f"<td>{escape(c)}</td>" for c in cells[: len(COLUMNS) - 7])
                + f"<td class='failed' colspan='7'>{escape(cells[len(COLUMNS) - 7])}</td>"
            )
        else:
            body.append("".join(f"<td>{escape(c)}</td>" for c in cells))
    return _rows(COLUMNS, body)


def _rows(columns: Sequence[str], body: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{b}</tr>' for b in body)}</table>"
