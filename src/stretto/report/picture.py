"""Plans of one request as a picture: for each plan a map of its links by use, and when the busiest links carry.

An SVG of a few kilobytes, light or dark as the reader's screen. Equal plans give equal pictures, since planning time is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ..formats import atomic_file
from ..model.arrays import Float64, Int64
from ..model.errors import InputError
from ..model.timeline import Timeline
from ..model.topology import ROUTER, SWITCH, Topology
from ..model.units import format_bandwidth, format_size, format_time
from .data import use_by_bin
from .layout import positions
from .planes import plane_rows, uses_planes

if TYPE_CHECKING:
    from ..bounds import Bound

WIDTH, HEAD, BAND, FOOT = 880, 44, 186, 26
MAP_WIDTH, MAP_HEIGHT = 232, 150
ROW, MOST_ROWS = 15, 9
LEFT, RIGHT = 372, WIDTH - 22
MOST_LEFT, MAP_RIGHT, LETTER = 560, 228, 5.6
"""Where the rows begin at most, where the map ends, and the width of a letter of a label, pixels."""

MOST_TITLE = 64
"""Letters of the heading, beside the legend."""

PLANES_LEFT, MOST_PLANES = 110, 32
LEVELS = 5
"""Shades of use beside none: up to a fifth, two fifths, ... of the bandwidth of a link."""

Colours = Mapping[str, str | tuple[str, ...]]
LIGHT: Colours = {
    "card": "#ffffff", "edge": "#dfe4ea", "ink": "#1b2330", "soft": "#5c6878", "node": "#1f6feb", "mark": "#0b8a5f",
    "use": ("#d5dbe3", "#a9c8f5", "#6ea4ee", "#e9a45c", "#dd6b2c", "#c2261c"),
}  # fmt: skip
DARK: Colours = {
    "card": "#171d26", "edge": "#2a3340", "ink": "#e6ebf2", "soft": "#98a5b6", "node": "#6aa6ff", "mark": "#3ecf9a",
    "use": ("#333e4c", "#2f5688", "#4a86d8", "#c9863f", "#f0883e", "#ff6b57"),
}  # fmt: skip


def write_picture(path: str, timelines: Sequence[Timeline], bounds: Sequence[Bound]) -> None:
    """Draw plans of one request on one time scale; one plan over optical planes by its planes.

    Args:
        path: the SVG file.
        timelines: the course of each plan, at least one.
        bounds: the best lower bound of each.
    Raises:
        InputError: several plans are not of one request over links, or the file cannot be written.
    """
    bound_s = max(bound.seconds for bound in bounds)
    over_planes = len(timelines) == 1 and uses_planes(timelines[0].plan)
    text = planes_picture(timelines[0], bound_s) if over_planes else picture(timelines, bound_s, path)
    with atomic_file(path) as file:
        file.write(text)


def picture(timelines: Sequence[Timeline], bound_s: float, where: str | None = None) -> str:
    """The SVG of plans of one request over links, beside the time that no plan can beat; ``where`` for errors."""
    net, work = timelines[0].plan.topology, timelines[0].plan.workload
    plans = [t.plan for t in timelines]
    if len({(p.topology.name, *((c.kind, c.size_bytes) for c in p.workload.collectives)) for p in plans}) > 1:
        raise InputError("a picture shows plans for one collective, size and topology; give an .html file", where)
    if not net.link_count:
        raise InputError(
            "a picture shows links, and these plans use planes alone; give one plan, or an .html file", where
        )
    height = HEAD + BAND * len(timelines) + FOOT
    kinds = " and ".join(f"{c.kind} of {format_size(c.size_bytes)}" for c in work.collectives)
    title = f"{kinds} among {len(work.collectives[0].ranks)} ranks of {net.name}"
    longest = max(t.completion_s for t in timelines)
    rows = _busiest(timelines)
    summary = f"<title>{escape(title)}: {', '.join(_name(t) for t in timelines)}</title>"
    left = _left([_label(net, link) for link in rows])
    parts = [*_head(height, _cut(title, MOST_TITLE), summary), _legend()]
    for i, timeline in enumerate(timelines):
        parts += _band(timeline, HEAD + BAND * i, rows, longest, bound_s, left)
    return "\n".join([*parts, *_axis(longest, bound_s, height, left), "</svg>"]) + "\n"


def planes_picture(timeline: Timeline, mark_s: float, mark: str = "no plan beats") -> str:
    """The SVG of a plan over optical planes: for each plane when it carries, by matching, and when it turns.

    Args:
        mark_s: a moment to mark. mark: what it is.
    """
    rows = plane_rows(timeline)[:MOST_PLANES]
    height = HEAD + ROW * (len(rows) + 2) + FOOT
    scale = (RIGHT - PLANES_LEFT) / (timeline.completion_s or 1.0)
    parts = _head(height, f"{_name(timeline)}: {format_time(timeline.completion_s)}")
    for r, row in enumerate(rows):
        y = HEAD + ROW * (r + 1)
        parts.append(f'<text class="soft" x="22" y="{y + 4}" font-size="11">{escape(row["name"])}</text>')
        for begin, end, matching, words in row["parts"]:
            level, width = (0, 3) if matching < 0 else (1 + matching % LEVELS, 11)
            way = f"M{PLANES_LEFT + begin * scale:.1f} {y}h{(end - begin) * scale:.1f}"
            title = f"<title>{escape(words)}</title>"
            parts.append(f'<path class="u{level}" stroke-width="{width}" d="{way}">{title}</path>')
    return "\n".join([*parts, *_axis(timeline.completion_s, mark_s, height, PLANES_LEFT, mark), "</svg>"]) + "\n"


def _head(height: int, heading: str, *more: str) -> list[str]:
    """The beginning of a picture: the element, ``more`` elements, the colours, and the card with its heading."""
    box = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" class="stretto" style="max-width:100%"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="system-ui,sans-serif" font-size="12">',
        *more,
        # the colours are for this drawing alone: a notebook shows it beside others
        f"<style>{_rules(LIGHT)}@media(prefers-color-scheme:dark){{{_rules(DARK)}}}</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="ink" x="22" y="28" font-size="15" font-weight="600">{escape(heading)}</text>',
    ]


def _name(timeline: Timeline) -> str:
    return escape(str(timeline.plan.meta.get("planner", "plan")))


def _rules(of: Colours) -> str:
    fills = {"ink": of["ink"], "soft": of["soft"], "node": of["node"], "label": of["mark"]}
    strokes = {"line": of["edge"], "mark": of["mark"], **{f"u{i}": colour for i, colour in enumerate(of["use"])}}
    rules = [f".card{{fill:{of['card']};stroke:{of['edge']}}}"]
    rules += [f".{name}{{fill:{colour}}}" for name, colour in fills.items()]
    rules += [f".{name}{{stroke:{colour}}}" for name, colour in strokes.items()]
    return "".join(f".stretto {rule}" for rule in rules)


def _legend() -> str:
    x = RIGHT - 46 - 16 * (LEVELS + 1)
    steps = "".join(f'<path class="u{i}" d="M{x + 16 * i} 24h16" stroke-width="8"/>' for i in range(LEVELS + 1))
    return (
        f'<text class="soft" x="{x - 8}" y="28" text-anchor="end">link use 0 %</text>{steps}'
        f'<text class="soft" x="{RIGHT}" y="28" text-anchor="end">100 %</text>'
    )


def _busiest(timelines: Sequence[Timeline]) -> list[int]:
    """The links that are busiest in a plan, in the order of their numbers."""
    use = np.max([t.link_use for t in timelines], axis=0)
    chosen = np.argsort(-use, kind="stable")[:MOST_ROWS]
    return sorted(int(i) for i in chosen if use[i] > 0)


def _label(net: Topology, link: int) -> str:
    return f"{net.link_name(link)}, {format_bandwidth(float(net.bandwidth[link]))}"


def _left(labels: Sequence[str]) -> int:
    """Where the rows begin, so that their labels have room beside the map."""
    return min(max([LEFT, *(round(MAP_RIGHT + 6 + LETTER * len(label)) for label in labels)]), MOST_LEFT)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _levels(use: Float64) -> Int64:
    return np.ceil(np.clip(use, 0, 1) * LEVELS - 1e-3).astype(np.int64)


def _band(timeline: Timeline, top: int, rows: list[int], longest: float, bound_s: float, left: int) -> list[str]:
    """One plan: its title, its map and its rows."""
    net = timeline.plan.topology
    over = f", {timeline.completion_s / bound_s:.2f} times the lower bound" if bound_s else ""
    completion = format_time(timeline.completion_s)
    title = f'{_name(timeline)}: {completion}<tspan class="soft" font-weight="400">{over}</tspan>'
    scale = (RIGHT - left) / (longest or 1.0)
    end = left + timeline.completion_s * scale
    bins = max(1, round((end - left) / 3))
    level = _levels(use_by_bin(timeline, np.array(rows, dtype=np.int64), bins))
    parts = [
        f'<path class="line" d="M22 {top + 2}H{RIGHT}"/>',
        f'<text class="ink" x="22" y="{top + 22}" font-size="14" font-weight="600">{title}</text>',
        *_map(net, timeline.link_use, 22, top + 30),
    ]
    first = top + 44
    shades: dict[int, list[str]] = {}
    for r, link in enumerate(rows):
        y = first + ROW * r
        parts.append(
            f'<text class="soft" x="{left - 6}" y="{y + 4}" text-anchor="end" font-size="11">'
            f"{escape(_cut(_label(net, link), int((left - 6 - MAP_RIGHT) / LETTER)))}</text>"
        )
        edges = np.flatnonzero(np.diff(level[r])) + 1
        for a, b in zip([0, *edges.tolist()], [*edges.tolist(), bins], strict=True):
            x0, x1 = (left + (end - left) * e / bins for e in (a, b))
            shades.setdefault(int(level[r, a]), []).append(f"M{x0:.1f} {y}h{x1 - x0:.1f}")
    parts += [f'<path class="u{k}" stroke-width="11" d="{"".join(shades[k])}"/>' for k in sorted(shades)]
    return parts


def _map(net: Topology, use: Float64, left: int, top: int) -> list[str]:
    """The network, with links coloured by their use over the whole run; the two directions lie side by side."""
    at = positions(net)
    low, high = at.min(axis=0), at.max(axis=0)
    k = min((MAP_WIDTH - 60) / max(high[0] - low[0], 1e-9), (MAP_HEIGHT - 40) / max(high[1] - low[1], 1e-9))
    xy = (at - (low + high) / 2) * k + [left + MAP_WIDTH / 2, top + MAP_HEIGHT / 2]
    shades: dict[int, list[str]] = {}
    for i in np.argsort(use, kind="stable"):
        a, b = xy[net.src[i]], xy[net.dst[i]]
        along = (b - a) / (float(np.hypot(*(b - a))) or 1.0)
        a, b = (p + 2.2 * np.array([-along[1], along[0]]) for p in (a, b))
        shades.setdefault(int(_levels(use[i : i + 1])[0]), []).append(f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}")
    parts = [f'<path class="u{s}" stroke-width="3" d="{"".join(shades[s])}"/>' for s in sorted(shades)]
    for v in range(net.node_count):
        x, y = xy[v]
        if net.kind[v] in (SWITCH, ROUTER):
            parts.append(f'<path class="soft" d="M{x - 4:.1f} {y - 4:.1f}h8v8h-8z"/>')
        else:
            parts.append(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    for site in sorted({s for s in net.sites if s}):
        members = xy[[s == site for s in net.sites]]
        x, y = float(members[:, 0].mean()), float(members[:, 1].max()) + 16
        if y > top + MAP_HEIGHT:
            y = float(members[:, 1].min()) - 8
        parts.append(f'<text class="soft" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(site)}</text>')
    return parts


def _axis(longest: float, mark_s: float, height: int, left: int = LEFT, words: str = "no plan beats") -> list[str]:
    """The time scale, and a moment on it that words name."""
    scale, y = (RIGHT - left) / (longest or 1.0), height - 12
    step = round_step(longest, 5)
    ticks = np.arange(0, longest * (1 + 1e-9), step) if step else np.zeros(1)
    x = left + mark_s * scale
    parts = [
        f'<text class="soft" x="{left + t * scale:.1f}" y="{y}" text-anchor="middle" font-size="11">'
        f"{format_time(float(t))}</text>"
        for t in ticks
        if abs(left + t * scale - x) > 60
    ]
    text = f"{words} {format_time(mark_s)}"
    return [
        *parts,
        f'<path class="mark" stroke-width="1.5" stroke-dasharray="4 3" d="M{x:.1f} {HEAD + 30}V{y - 14}"/>',
        f'<text class="label" x="{x:.1f}" y="{y}" text-anchor="middle" font-size="11">{text}</text>',
    ]


def round_step(longest: float, most: int) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that divides ``longest`` into at most ``most`` parts."""
    if longest <= 0:
        return 0.0
    power = 10.0 ** np.floor(np.log10(longest / most))
    return float(next(power * m for m in (1, 2, 5, 10) if longest <= power * m * most * (1 + 1e-9)))
