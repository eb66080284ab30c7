"""The drawing of a network as data, for a page that colours its links by what they carry now.

A drawing has marks for nodes, or for the regions of a map, and lines. A line stands for links in both directions; the
page draws a stroke for each direction, beside each other, and asks which links each of them stands for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.topology import KINDS, Topology
from .drawing import scene_of
from .scene import Line, Scene

MOST_LINES = 1_500
"""Lines that are drawn; of more, evenly many are left out. Each is two elements of the page."""

LABEL = 11.0
"""Size of labels beside marks, of the drawing's pixels."""


def live_drawing(topology: Topology, label_size: float = LABEL) -> dict[str, Any]:
    """The drawing of a network, as JSON.

    Args:
        label_size: of names on maps, of the drawing's pixels; where the drawing is made smaller they must be larger.
    """
    scene = scene_of(topology, label_size)
    lines, notes = _shown(scene)
    links = _links_of_ends(topology, scene)
    return {
        "width": scene.width, "height": scene.height, "land": scene.land, "scales": not scene.frames,
        "frames": [[*map(_short, frame.box), frame.dashed] for frame in scene.frames],
        "lines": [_line(line, links) for line in lines],
        "marks": [[_short(m.x), _short(m.y), KINDS[m.kind], m.name, m.radius] for m in scene.marks],
        "labels": [[_short(t.x), _short(t.y), t.anchor, t.text, t.size] for t in scene.labels.placed],
        "notes": [*scene.notes, *notes, *_planes(topology)],
    }  # fmt: skip


def _shown(scene: Scene) -> tuple[list[Line], list[str]]:
    """The lines that are drawn, and a note where some are not."""
    lines = scene.lines
    if len(lines) <= MOST_LINES:
        return lines, []
    kept = np.linspace(0, len(lines) - 1, MOST_LINES).astype(int)
    return [lines[k] for k in kept], [f"{MOST_LINES:,} of {len(lines):,} lines are drawn"]


def _planes(topology: Topology) -> list[str]:
    count = len(topology.planes)
    return [f"{count} optical plane{'s' * (count > 1)}, whose circuits change while collectives run"] if count else []


def _links_of_ends(topology: Topology, scene: Scene) -> dict[tuple[int, int], list[int]]:
    """The links from one mark to another one, by the two."""
    place = scene.place
    found: dict[tuple[int, int], list[int]] = {}
    for link, (a, b) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        ends = (a, b) if place is None else (place[a], place[b])
        found.setdefault(ends, []).append(link)
    return found


def _line(line: Line, links: dict[tuple[int, int], list[int]]) -> dict[str, Any]:
    said: dict[str, Any] = {"from": [*map(_short, line.a)], "to": [*map(_short, line.b)], "bend": _short(line.bend)}
    a, b = line.ends
    return said | {"there": links.get((a, b), []), "back": links.get((b, a), [])} if line.link >= 0 else said


def _short(value: float) -> float:
    return round(float(value), 1)
