"""What a drawing of a network is made of, and its SVG: marks, links by bandwidth, boxes, labels, a legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

import numpy as np

from ..model.topology import ROUTER, SWITCH, Topology
from ..model.units import format_bandwidth, format_time
from .labels import Box, Labels, text_box

MOST_TITLED = 400
"""Links and marks up to which each is an element of its own, with its name as a tooltip."""

MOST_LINES = 12_000
"""Links that are drawn; of more, evenly many are left out."""

MOST_CLASSES = 6
"""Bandwidths that the legend tells apart."""

LEGEND_ROW, MARGIN = 20.0, 16.0
THIN, WIDE = 0.9, 3.6
LIGHT, DARK = (165, 184, 208), (26, 71, 133)
RED, SOFT, INK = "#d1242f", "#5b6472", "#1b2330"
KIND_COLOURS = ("#1f6feb", "#b7791f", "#5b6472")


@dataclass(frozen=True)
class Mark:
    """A node: its place, kind and name; its radius."""

    x: float
    y: float
    kind: int
    name: str
    sums: bool = False
    radius: float = 6.0


@dataclass(frozen=True)
class Line:
    """A link in both directions, or several: its ends, the link of the topology that it stands for, how many more.

    ``bend`` moves its middle down, pixels; ``dashed`` stands for links of servers that are not drawn. ``ends`` are the
    numbers of what it joins: nodes, or places of the scene.
    """

    a: tuple[float, float]
    b: tuple[float, float]
    link: int = -1
    bend: float = 0.0
    dashed: bool = False
    ends: tuple[int, int] = (-1, -1)

    @property
    def way(self) -> str:
        (x, y), (to_x, to_y) = self.a, self.b
        if not self.bend:
            return f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"
        return f"M{x:.1f} {y:.1f}Q{(x + to_x) / 2:.1f} {max(y, to_y) + self.bend:.1f} {to_x:.1f} {to_y:.1f}"


@dataclass(frozen=True)
class Frame:
    """A box around a server, or a dashed one in the place of several."""

    box: Box
    dashed: bool = False


@dataclass
class Scene:
    """A drawing of ``width`` x ``height`` pixels, before its legend is added below."""

    width: float
    height: float
    marks: list[Mark] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    labels: Labels = field(default_factory=Labels)
    land: str = ""
    notes: list[str] = field(default_factory=list)
    counted: list[int] | None = None  # the links that the legend counts; all by default
    place: list[int] | None = None  # of each node the place that its mark stands for; each node its own by default

    @property
    def room(self) -> Box:
        """Where labels may be."""
        return 2.0, 2.0, self.width - 2.0, self.height - 2.0


def pairs_of(topology: Topology) -> list[tuple[int, int, int]]:
    """Each two nodes that links join: (a, b, link), of two directions the wider one."""
    best: dict[tuple[int, int], int] = {}
    width = topology.bandwidth.tolist()
    for i, (a, b) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        key = (a, b) if a < b else (b, a)
        if key not in best or width[i] > width[best[key]]:
            best[key] = i
    return [(a, b, i) for (a, b), i in best.items()]


@dataclass(frozen=True)
class Widths:
    """Classes of bandwidth: each has a width and a colour, and a row of the legend."""

    edges: tuple[float, ...]  # the upper end of each class but the last

    @classmethod
    def of(cls, bandwidth: Sequence[float]) -> Widths:
        """A class for each bandwidth, or classes of equally many ratios where there are too many."""
        values = sorted(set(bandwidth))
        if len(values) > MOST_CLASSES:
            ends = np.geomspace(values[0], values[-1], MOST_CLASSES + 1)[1:-1]
            return cls(tuple(float(e) for e in ends))
        return cls(tuple((a + b) / 2 for a, b in pairwise(values)))

    def place(self, bandwidth: float) -> int:
        return int(np.searchsorted(self.edges, bandwidth))

    def colour(self, k: int) -> str:
        """Darker the more bandwidth."""
        red, green, blue = (round(a + (b - a) * self._share(k)) for a, b in zip(LIGHT, DARK))
        return f"#{red:02x}{green:02x}{blue:02x}"

    def width(self, k: int) -> float:
        """Wider the more bandwidth, pixels."""
        return THIN + (WIDE - THIN) * self._share(k)

    def style(self, k: int) -> str:
        return f'stroke="{self.colour(k)}" stroke-width="{self.width(k):.2f}"'

    def _share(self, k: int) -> float:
        return k / len(self.edges) if self.edges else 0.5


def to_svg(scene: Scene, topology: Topology, red: frozenset[frozenset[int]] = frozenset()) -> str:
    """The SVG of a scene; links between the pairs of nodes in ``red`` are red."""
    links = [line.link for line in scene.lines if line.link >= 0]
    widths = Widths.of(topology.bandwidth[links].tolist())
    legend, bottom = _legend(scene, topology, widths, bool(red))
    view = f'viewBox="0 0 {scene.width:.0f} {bottom:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} font-family="system-ui,sans-serif" fill="{INK}">',
        f"<title>{escape(topology.name)}</title>",
        f'<rect width="{scene.width:.0f}" height="{bottom:.0f}" fill="#ffffff"/>',
        *_land(scene.land),
        *(_frame(frame) for frame in scene.frames),
        *_lines(scene, topology, widths, red),
        *_marks(scene.marks),
        '<g stroke="#ffffff" stroke-opacity=".8" stroke-width="3" stroke-linejoin="round" paint-order="stroke">',
        *scene.labels.texts,
        "</g>",
        *legend,
        "</svg>",
    ]) + "\n"  # fmt: skip


def _land(way: str) -> list[str]:
    return [f'<path fill="#eef1f4" stroke="#cfd6de" stroke-width=".6" d="{way}"/>'] if way else []


def _frame(frame: Frame) -> str:
    left, top, right, bottom = frame.box
    look = 'fill="none" stroke-dasharray="4 4"' if frame.dashed else 'fill="#f6f8fb"'
    size = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
    return f'<rect {size} rx="7" {look} stroke="#b9c3cf"/>'


def _lines(scene: Scene, topology: Topology, widths: Widths, red: frozenset[frozenset[int]]) -> list[str]:
    lines = scene.lines
    if len(lines) > MOST_LINES:
        lines = [lines[k] for k in np.linspace(0, len(lines) - 1, MOST_LINES).astype(int)]
        scene.notes.append(f"{MOST_LINES:,} of {len(scene.lines):,} links are drawn")
    out: list[str] = []
    ways: dict[int, list[str]] = {}
    for line in lines:
        if line.link < 0:
            out.append(f'<path d="{line.way}" fill="none" stroke="#8aa0bd" stroke-dasharray="5 4"/>')
            continue
        i = line.link
        k = widths.place(float(topology.bandwidth[i]))
        emphasised = frozenset((int(topology.src[i]), int(topology.dst[i]))) in red
        if len(lines) > MOST_TITLED and not emphasised:
            ways.setdefault(k, []).append(line.way)
            continue
        style = f'stroke="{RED}" stroke-width="3"' if emphasised else widths.style(k)
        what = f"{topology.link_name(i)} {format_bandwidth(float(topology.bandwidth[i]))}"
        out.append(f'<path d="{line.way}" fill="none" {style}><title>{escape(what)}</title></path>')
    for k in sorted(ways):
        out.insert(0, f'<path d="{"".join(ways[k])}" fill="none" stroke-opacity=".4" {widths.style(k)}/>')
    return out


def _marks(marks: Sequence[Mark]) -> list[str]:
    if len(marks) <= MOST_TITLED:
        return [shape(mark) for mark in marks]
    out = []
    for kind, colour in enumerate(KIND_COLOURS):
        way = "".join(f"M{m.x:.1f} {m.y:.1f}h0" for m in marks if m.kind == kind)
        cap = "square" if kind == SWITCH else "round"
        if way:
            out.append(f'<path d="{way}" stroke="{colour}" stroke-width="6" stroke-linecap="{cap}"/>')
    return out


def shape(mark: Mark) -> str:
    """A circle for an accelerator, a diamond for a router, a square for a switch, with a plus where it sums."""
    x, y, r, fill = mark.x, mark.y, mark.radius, f'fill="{KIND_COLOURS[mark.kind]}"'
    name = f"<title>{escape(mark.name)}</title>" if mark.name else ""
    if mark.kind == SWITCH:
        box = f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:g}" height="{2 * r:g}" {fill}>{name}</rect>'
        plus = f'<path d="M{x - 4:.1f} {y:.1f}h8M{x:.1f} {y - 4:.1f}v8" stroke="#fff" stroke-width="1.5"/>'
        return box + plus * mark.sums
    if mark.kind == ROUTER:
        d = 1.3 * r
        return f'<path d="M{x:.1f} {y - d:.1f}l{d:g} {d:g}-{d:g} {d:g}-{d:g}-{d:g}z" {fill}>{name}</path>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" {fill}>{name}</circle>'


def _legend(scene: Scene, topology: Topology, widths: Widths, red: bool) -> tuple[list[str], float]:
    """Rows below the drawing: what marks and widths mean, and what is not drawn; and where they end."""
    cells: list[tuple[str, str]] = []
    for kind in sorted({mark.kind for mark in scene.marks}):
        words = ("accelerator", "router", "switch")[kind]
        round_one = f'<path d="M6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0" fill="{KIND_COLOURS[kind]}"/>'
        cells.append((shape(Mark(12, 0, kind, "")) if kind else round_one, words))
    if any(mark.sums for mark in scene.marks):
        cells.append((shape(Mark(12, 0, SWITCH, "", True)), "switch that sums"))
    counts: Counter[int] = Counter()
    ranges: dict[int, list[int]] = {}
    for i in range(topology.link_count) if scene.counted is None else scene.counted:
        k = widths.place(float(topology.bandwidth[i]))
        counts[k] += 1
        ranges.setdefault(k, []).append(i)
    for k in sorted(ranges, reverse=True):
        sample = f'<path d="M0 0H24" fill="none" {widths.style(k)}/>'
        width, latency = topology.bandwidth[ranges[k]], topology.latency_s[ranges[k]]
        plural = "s" if counts[k] > 1 else ""
        words = f"{_range(width, format_bandwidth)}, {_range(latency, format_time)}: {counts[k]:,} link{plural}"
        cells.append((sample, words))
    if red:
        cells.append((f'<path d="M0 0H24" fill="none" stroke="{RED}" stroke-width="3"/>', "makes the bound"))
    cells += [("", note) for note in scene.notes]
    if scene.labels.left_out > 0:
        hover = "; hover over a mark for its name" if len(scene.marks) <= MOST_TITLED else ""
        cells.append(("", f"{scene.labels.left_out:,} labels have no room{hover}"))
    return _rows(cells, scene.width, scene.height)


def _rows(cells: Sequence[tuple[str, str]], width: float, top: float) -> tuple[list[str], float]:
    """Cells from left to right, in as many rows as they need; larger where the drawing is wide."""
    scale = min(max(width / 900.0, 1.0), 1.5)
    size, row = 11 * scale, LEGEND_ROW * scale
    out, x, y = [], MARGIN, top + row
    for sample, words in cells:
        taken = 32.0 * bool(sample) + text_box(0, 0, words, size)[2] + 18
        if x > MARGIN and x + taken > width:
            x, y = MARGIN, y + row
        out.append(f'<g transform="translate({x:.1f} {y:.1f})">{sample}</g>' * bool(sample))
        at = x + 32.0 * bool(sample)
        out.append(f'<text x="{at:.1f}" y="{y + 4:.1f}" font-size="{size:.4g}" fill="{SOFT}">{escape(words)}</text>')
        x += taken
    return [text for text in out if text], y + row


def _range(values: np.ndarray, text: object) -> str:
    ends = (text(float(values.min())), text(float(values.max())))  # type: ignore[operator]
    return " to ".join(dict.fromkeys(ends))
