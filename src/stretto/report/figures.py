"""Figures that a paper can print, by matplotlib: PDF, SVG or PNG of one column's width, text as text.

    map_figure          a topology: as :mod:`.drawing` draws it, by servers and switches or on a map
    links_figure        when each of the busiest links carries, sums and copies told apart
    planes_figure       when each optical plane carries, by matching, and when it turns
    delivered_figure    what ranks have received over time, beside the lower bound
    comparison_figure   completion or its ratio to the bound, over sizes or numbers of chunks, a line a planner

Each returns a :class:`matplotlib.figure.Figure`, which notebooks show and callers may change. Equal plans give equal
files: dates are left out. The colours are Okabe and Ito's, which people who are colour-blind tell apart. Lines differ
by their marks and dashes, too, so they can be told apart in grey, and where one lies on another.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats import atomic_file, check_ending
from ..model.errors import InputError, Unsupported
from ..model.extras import require
from ..model.messages import chunk_by_chunk
from ..model.timeline import Timeline
from ..model.topology import Topology
from ..model.units import format_bandwidth, format_size, format_time
from .critical import hop_times
from .data import delivered
from .drawing import scene_of
from .planes import plane_rows
from .scene import KIND_COLOURS, Scene, Widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 3.5
"""Width of a figure, inches: a column of most journals."""

MAP_WIDTH_IN = 7.0
"""Width of a map, inches: both columns, so that its labels have 5 points or more."""

LEGEND_IN = 0.3
"""Height of a map's legend, inches."""

LABEL_POINTS = 8.0
"""Points of the largest label of a map: a map of few nodes is narrower, so that its labels are not larger."""

MOST_ROWS = 16
"""Links that :func:`links_figure` shows, the busiest, and planes that :func:`planes_figure` shows."""

MOST_BARS = 20_000
"""Bars that :func:`links_figure` draws: a PDF of more takes seconds to open."""

ENDINGS = ("pdf", "svg", "png")
STYLE = {
    "font.size": 7, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 1.0,
    "lines.markersize": 3.5, "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "stretto", "savefig.dpi": 300,
}  # fmt: skip
COPY, SUM, MARK, LAND, EDGE, TURN = "#0072b2", "#d55e00", "#009e73", "#eef1f4", "#cfd6de", "#c3cad3"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure as its ending says: .pdf, .svg or .png.

    Raises:
        InputError: another ending, or the file cannot be written.
    """
    name = os.fspath(path)
    check_ending(name, ENDINGS)
    ending = os.path.splitext(name)[1][1:].lower()
    if ending not in ENDINGS:
        raise InputError(f"a figure is written as .{', .'.join(ENDINGS)}", name)
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[ending]
    with _style(), atomic_file(name, "wb") as file:
        figure.savefig(file, format=ending, bbox_inches="tight", metadata=metadata)


def map_figure(topology: Topology) -> Figure:
    """A topology as :func:`.drawing.svg` draws it; links wider and darker the more bandwidth."""
    scene = scene_of(topology)
    with _style():
        from matplotlib.lines import Line2D

        largest = max((label.size for label in scene.labels.placed), default=LABEL_POINTS)
        points = min(72 * MAP_WIDTH_IN / scene.width, LABEL_POINTS / largest)  # of print in a pixel of the drawing
        width = max(WIDTH_IN, points * scene.width / 72)
        figure, axes = _axes(width, points * scene.height / 72 + LEGEND_IN)
        axes.set(xlim=(0, scene.width), ylim=(scene.height, 0), aspect="equal")
        axes.axis("off")
        _draw_land(axes, scene.land)
        classes = _draw_links(axes, scene, topology, points)
        _draw_marks(axes, scene, points)
        lines = [Line2D([], [], color=c, linewidth=w, label=words) for words, c, w in classes]
        axes.legend(
            handles=lines, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=6 if width > 1.5 * WIDTH_IN else 3
        )
    return figure


def links_figure(timeline: Timeline, bound_s: float) -> Figure:
    """A row for each of the busiest links, a bar for each transfer that it carries.

    Args:
        bound_s: the time that no plan can beat, which is marked.
    Raises:
        Unsupported: there are more bars than can be drawn.
    """
    plan, net = timeline.plan, timeline.plan.topology
    use = timeline.link_use
    rows = [int(i) for i in np.sort(np.argsort(-use, kind="stable")[:MOST_ROWS]) if use[i] > 0]
    begin, end = hop_times(chunk_by_chunk(timeline))
    unit, _ = _unit(timeline.completion_s)
    sums = plan.op[plan.route.owners] != 0
    if (count := int(np.isin(plan.route.values, rows).sum())) > MOST_BARS:
        raise Unsupported(f"a figure of links draws up to {MOST_BARS:,} transfers, and there are {count:,}")
    with _style():
        from matplotlib.patches import Patch

        figure, axes = _axes(WIDTH_IN, 0.7 + 0.13 * len(rows))
        for y, link in enumerate(rows):
            for chosen, colour in ((~sums, COPY), (sums, SUM)):
                here = (plan.route.values == link) & chosen
                bars = np.column_stack([begin[here], (end - begin)[here]]) * unit
                axes.broken_barh(bars.tolist(), (y - 0.36, 0.72), facecolors=colour, edgecolor="white", linewidth=0.2)
        labels = [f"{net.link_name(i)}, {format_bandwidth(float(net.bandwidth[i]))}" for i in rows]
        kinds = [(COPY, "copy", ~sums), (SUM, "sum", sums)]
        drawn = np.isin(plan.route.values, rows)
        handles = [Patch(color=colour, label=words) for colour, words, some in kinds if (some & drawn).any()]
        _finish_rows(axes, labels, handles, timeline.completion_s, bound_s)
    return figure


def planes_figure(timeline: Timeline, bound_s: float) -> Figure:
    """A row for each optical plane: a bar for each step that it carries, and one for each turn.

    Steps over the same matching have the same colour; colours are used again after seven matchings.

    Args:
        bound_s: the time that no plan can beat, which is marked.
    """
    rows = plane_rows(timeline)[:MOST_ROWS]
    unit, _ = _unit(timeline.completion_s)
    with _style():
        from matplotlib.patches import Patch

        figure, axes = _axes(WIDTH_IN, 0.7 + 0.16 * len(rows))
        for y, row in enumerate(rows):
            for begin, end, matching, _ in row["parts"]:
                colour, half = (TURN, 0.18) if matching < 0 else (COLOURS[matching % len(COLOURS)], 0.36)
                bar = [(begin * unit, (end - begin) * unit)]
                axes.broken_barh(bar, (y - half, 2 * half), facecolors=colour, edgecolor="white", linewidth=0.2)
        handles = [Patch(color=COLOURS[0], label="carries, by matching"), Patch(color=TURN, label="turns")]
        _finish_rows(axes, [row["name"] for row in rows], handles, timeline.completion_s, bound_s)
    return figure


def _finish_rows(axes: Axes, labels: Sequence[str], handles: list[Any], completion_s: float, bound_s: float) -> None:
    """Label the rows and the axis of time, mark the lower bound, and explain the colours."""
    unit, name = _unit(completion_s)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(ylim=(len(labels) - 0.4, -0.6), xlim=(0, completion_s * unit * 1.02), xlabel=f"time ({name})")
    axes.tick_params(axis="y", length=0)
    mark = axes.axvline(bound_s * unit, color=MARK, linestyle="--", label="no plan beats")
    axes.legend(handles=[*handles, mark], loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)


def delivered_figure(timeline: Timeline, bound_s: float) -> Figure:
    """The share of all wanted bytes that ranks have received, over time.

    Args:
        bound_s: the time that no plan can beat; the dashed line is an even delivery that ends then.
    """
    moments, amounts, total = delivered(timeline)
    unit, name = _unit(timeline.completion_s)
    with _style():
        figure, axes = _axes(WIDTH_IN, WIDTH_IN * 0.6)
        planner = str(timeline.plan.meta.get("planner", "plan"))
        share = 100 * np.concatenate(([0.0], amounts)) / total
        axes.plot(np.concatenate(([0.0], moments)) * unit, share, color=COPY, drawstyle="steps-post", label=planner)
        axes.plot([0, bound_s * unit], [0, 100], color=MARK, linestyle="--", label="evenly until the bound")
        axes.set(xlabel=f"time ({name})", ylabel="received (%)", ylim=(0, 103), xlim=(0, None))
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return figure


OVER: dict[str, tuple[str, Callable[[int], str]]] = {"size": ("size_bytes", format_size), "chunks": ("chunks", str)}
"""What a comparison can be drawn over: the column of its rows, and how a value is written."""

OF = {"ratio": ("completion_over_bound", "completion / lower bound"), "completion": ("completion_s", "completion")}
"""What a comparison can be drawn of: the column of its rows, and its words."""


def comparison_figure(rows: Sequence[Mapping[str, Any]], title: str, over: str = "size", of: str = "ratio") -> Figure:
    """A line a planner over sizes or numbers of chunks; of several rows for one place of the axis the best counts.

    Args:
        rows: those of :class:`stretto.Comparison`; rows of planners that do not serve a request are left out.
        over: a name of :data:`OVER`.
        of: a name of :data:`OF`.
    Raises:
        InputError: ``over`` or ``of`` has another name.
        Unsupported: no row has a plan.
    """
    for name, value, known in (("over", over, OVER), ("of", of, OF)):
        if value not in known:
            raise InputError(f"a comparison is drawn {name} {' or '.join(known)}, not {value!r}", name)
    served = [row for row in rows if "failed" not in row]
    if not served:
        raise Unsupported("a figure of a comparison needs a plan, and no planner serves this request")
    (place, words), (column, axis) = OVER[over], OF[of]
    factor, unit = _unit(max(row["completion_s"] for row in served)) if of == "completion" else (1.0, "")
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in served:
        lines.setdefault(row["planner"], []).append(row)
    with _style():
        figure, axes = _axes(WIDTH_IN, WIDTH_IN * 0.62)
        for k, (planner, own) in enumerate(lines.items()):
            best: dict[int, float] = {}
            for row in own:
                best[row[place]] = min(row[column] * factor, best.get(row[place], math.inf))
            colour, mark = COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]
            dash = DASHES[k % len(DASHES)]
            values = [best[at] for at in sorted(best)]
            axes.plot(sorted(best), values, color=colour, linestyle=dash, marker=mark, label=planner)
        places = sorted({row[place] for row in served})
        axes.set_xscale("log")
        axes.set_xticks(places, [words(at) for at in places])
        axes.minorticks_off()
        if of == "ratio":
            axes.axhline(1.0, color="#5b6472", linewidth=0.6, linestyle=":")
        else:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
        axes.set(xlabel=over, ylabel=f"{axis} ({unit})" if unit else axis, title=title)
        axes.legend()
    return figure


@contextmanager
def _style() -> Iterator[None]:
    """The style of all figures, while one is drawn or written."""
    require("figures", "a figure", "matplotlib")
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _unit(longest: float) -> tuple[float, str]:
    """Units of time in a second, and their name, of what the longest time is written in."""
    name = format_time(longest).split()[-1]
    return {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}.get(name, 1.0), name if name in ("ms", "us", "ns") else "s"


def _draw_land(axes: Axes, way: str) -> None:
    """The land behind a map; ``way`` is the path of an SVG: M, L and Z with absolute numbers."""
    rings = [re.findall(r"(-?[\d.]+) (-?[\d.]+)", ring) for ring in way.split("Z") if ring]
    for ring in rings:
        x, y = zip(*((float(a), float(b)) for a, b in ring), strict=True)
        axes.fill(x, y, facecolor=LAND, edgecolor=EDGE, linewidth=0.3, zorder=0)


def _draw_links(axes: Axes, scene: Scene, topology: Topology, points: float) -> list[tuple[str, str, float]]:
    """Draw all links; what the legend says of each class of bandwidth: words, colour, width."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    widths = Widths.of(topology.bandwidth[[line.link for line in scene.lines if line.link >= 0]].tolist())
    classes: dict[int, list[float]] = {}
    for line in scene.lines:
        k = 0
        if line.link >= 0:
            k = widths.place(float(topology.bandwidth[line.link]))
            classes.setdefault(k, []).append(float(topology.bandwidth[line.link]))
        colour, width = widths.colour(k), widths.width(k)
        middle = ((line.a[0] + line.b[0]) / 2, max(line.a[1], line.b[1]) + line.bend)
        way = [line.a, middle, line.b] if line.bend else [line.a, line.b]
        codes = [Path.MOVETO, Path.CURVE3, Path.CURVE3] if line.bend else [Path.MOVETO, Path.LINETO]
        dash = (0, (3, 2)) if line.dashed else "solid"
        axes.add_patch(PathPatch(
            Path(way, codes), fill=False, edgecolor=colour, linewidth=width * points, linestyle=dash, zorder=1
        ))  # fmt: skip
    words = {
        k: " to ".join(dict.fromkeys(format_bandwidth(end(of)) for end in (min, max))) for k, of in classes.items()
    }
    return [(words[k], widths.colour(k), widths.width(k) * points) for k in sorted(classes)]


def _draw_marks(axes: Axes, scene: Scene, points: float) -> None:
    """Servers, nodes and labels."""
    from matplotlib.patches import Rectangle

    for frame in scene.frames:
        left, top, right, bottom = frame.box
        dash = "--" if frame.dashed else "-"
        axes.add_patch(Rectangle(
            (left, top), right - left, bottom - top, fill=False, edgecolor="#9aa4b2", linewidth=0.4, linestyle=dash
        ))  # fmt: skip
    for kind in sorted({mark.kind for mark in scene.marks}):
        some = [mark for mark in scene.marks if mark.kind == kind]
        sides = [(2 * points * mark.radius) ** 2 for mark in some]
        shape = "o" if kind == 0 else "s"
        x, y = [mark.x for mark in some], [mark.y for mark in some]
        axes.scatter(x, y, s=sides, c=KIND_COLOURS[kind], marker=shape, linewidths=0, zorder=2)
    for label in scene.labels.placed:
        side = {"start": "left", "middle": "center", "end": "right"}[label.anchor]
        axes.text(label.x, label.y, label.text, fontsize=points * label.size, ha=side, va="baseline", zorder=3)
