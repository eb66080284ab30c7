"""The charts of a study as data for its page: lines, bars or boxes of schemes, published values, a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .model import Figure, Row, grouped, without_result

AXES = {
    "size_bytes": ("buffer", "bytes"),
    "topology": ("", ""),
    "scheme": ("", ""),
    "completion_s": ("simulated completion", "time"),
    "planning_cpu_s": ("planning, CPU time", "time"),
    "completion_over_bound": ("completion / lower bound", "number"),
    "algorithm_bandwidth": ("algorithm bandwidth", "rate"),
    "ranks": ("ranks", "number"),
    "less_than_strawman": ("less time than strawman-icr", "share"),
    "overhead": ("part of the time that is not the ideal's", "share"),
    "collectives": ("concurrent collectives", "number"),
    "varying": ("bandwidths vary within this share of their mean", "share"),
    "over_baseline": ("mean completion / that of the baseline", "number"),
    "slowdown": ("mean completion / the same plan's at constant bandwidths", "number"),
}
"""For each column its title on an axis, and how the page writes its values."""
SCALES = {"size_bytes": "log", "ranks": "log", "topology": "category", "scheme": "category"}
COLOURS = 8
"""Classes of colours of the page. Schemes beyond share colours, with other marks."""
MARKS = 6
"""Shapes of marks of the page."""
GREY = -1
"""The colour of what is no scheme."""
BOUNDS = {"completion_s": "bound_s", "over_baseline": "bound_over_baseline"}


def chart_data(
    figure: Figure, rows: Sequence[Row], published: Mapping[str, Any], colours: dict[str, int]
) -> dict[str, Any]:
    """A figure as JSON.

    Args:
        colours: the number of each scheme's colour, the same in all charts of a page; new schemes are added.

    Returns:
        ``kind`` (lines, bars or boxes), axes ``x`` and ``y`` (``title, scale, form``), and ``series``: ``name, x, y``,
        ``error`` (standard deviations) or None, ``colour`` (a class of the page, -1 for grey), ``mark``, ``dash``, and
        ``kind``: line, bar, box, or mark, a short line across the bars of a place.
    """
    # a plan without a bound has no ratio
    shown = (r for r in rows if r.get(figure.y) is not None and without_result(r) is None)
    lines = grouped(shown, lambda r: ", ".join(str(r[column]) for column in figure.lines))
    marks: Counter[str] = Counter()
    kind = "box" if figure.boxes else "bar" if figure.bars else "line"
    series = []
    for name, own in lines.items():
        # the first column decides the colour, the other columns of a line decide the mark
        base = str(own[0][figure.lines[0]])
        colour = colours.setdefault(base, len(colours))
        mark = marks[base] + colour // COLOURS
        marks[base] += 1
        points = {"x": [r[figure.x] for r in own], "y": [r[figure.y] for r in own]}
        spread = [r[f"{figure.y}_spread"] for r in own if f"{figure.y}_spread" in r]
        series.append(_series(name, kind, points, colour, "solid", mark, spread))
    other = "mark" if figure.bars else kind
    for name, scheme, pairs in _published(figure, rows, published):
        colour = _colour_of(scheme, colours)
        series.append(_series(name, other, _columns(pairs), colour, "dot", max(colour, 0) // COLOURS))
    if bound := _bound(figure, rows):
        series.append(_series("lower bound", other, _columns([*bound.items()]), GREY, "dash"))
    scale = "linear" if figure.ratio else "log"
    return {
        "title": figure.title, "kind": "boxes" if figure.boxes else "bars" if figure.bars else "lines",
        "x": _axis(figure.x, SCALES.get(figure.x, "linear")), "y": _axis(figure.y, scale), "series": series,
    }  # fmt: skip


def _axis(column: str, scale: str) -> dict[str, str]:
    title, form = AXES[column]
    return {"title": title, "scale": scale, "form": form}


def _series(
    name: str, kind: str, points: Mapping[str, Any], colour: int, dash: str, mark: int = 0, error: Sequence[float] = ()
) -> dict[str, Any]:
    shown = {"colour": colour % COLOURS if colour >= 0 else colour, "dash": dash, "mark": mark % MARKS}
    return {"name": name, "kind": kind, **points, "error": [*error] or None, **shown}


def _columns(points: Sequence[tuple[Any, float]]) -> dict[str, Any]:
    xs, ys = zip(*sorted(points), strict=True)
    return {"x": [*xs], "y": [*ys]}


def _bound(figure: Figure, rows: Sequence[Row]) -> dict[Any, float]:
    """For each place of the x-axis the lowest bound of what contends there."""
    key = BOUNDS.get(figure.y, "")
    bound: dict[Any, float] = {}
    for r in rows:
        if r.get(key) and figure.x in r and r.get("contends", True):
            bound[r[figure.x]] = min(r[key], bound.get(r[figure.x], float("inf")))
    return bound


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
            if p.get(key) is not None and place in shown:
                lines.setdefault(p["scheme"], []).append((place[figure.x != "topology"], p[key]))
        for scheme, points in lines.items():
            yield f"{scheme} ({words})", scheme, points


def _colour_of(scheme: str, colours: dict[str, int]) -> int:
    """The colour of a scheme: that of its line, or of its variant ("teccl slow" for "teccl"), or a new one."""
    variants = (c for name, c in colours.items() if name.startswith((f"{scheme} ", f"{scheme},")))
    found = colours.get(scheme, next(variants, len(colours)))
    return colours.setdefault(scheme, found)
