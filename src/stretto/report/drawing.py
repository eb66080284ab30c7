"""A topology as SVG: a cluster by its servers and switches, a WAN on a map, any other network node by node.

The drawing is our own SVG: it needs rows, boxes, labels and paths, and no library among our dependencies lays out a
cluster by its structure (Graphviz would be a program to install).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..formats import atomic_file
from ..model.errors import InputError
from ..model.topology import Topology
from .flat import flat, on_map
from .groups import structure_of
from .layered import layered
from .maps import geographic, land_path
from .scene import Scene, to_svg


def write_svg(topology: Topology, path: str, emphasised: Iterable[int] = ()) -> None:
    """Draw a topology to a file that ends in .svg, see :func:`svg`; ``emphasised`` links are red."""
    if not path.lower().endswith(".svg"):
        raise InputError("a drawing is written as .svg", path)
    with atomic_file(path) as file:
        file.write(svg(topology, emphasised))


def svg(topology: Topology, emphasised: Iterable[int] = (), label_size: float = 11) -> str:
    """A topology: marks by kind, links wider and darker the more bandwidth, first circuits dashed, and a legend."""
    red = frozenset(frozenset((int(topology.src[i]), int(topology.dst[i]))) for i in emphasised)
    return to_svg(scene_of(topology, label_size), topology, red)


def page_scene(topology: Topology) -> dict[str, Any] | None:
    """The drawing of a cluster by its structure as data, which a page draws and colours; None for other networks.

    Returns:
        ``at``: the place of each node that is drawn. ``frames``: the boxes of servers. ``dashed``: lines that lead to
        servers which are not drawn. ``bends``: where links go around others. ``labels``: texts beside those of nodes.
    """
    structure = None if topology.planes or _on_earth(topology) else structure_of(topology)
    if structure is None:
        return None
    scene = layered(topology, structure)
    number = {name: v for v, name in enumerate(topology.names)}
    marks = {mark.name for mark in scene.marks}
    bold = {block.name for pod in structure.pods for block in pod}
    shorts = {name.rpartition(".")[2] for name in marks}
    return {
        "width": scene.width, "height": scene.height,
        "at": [[number[m.name], _short(m.x), _short(m.y)] for m in scene.marks],
        "frames": [[*map(_short, frame.box), int(frame.dashed)] for frame in scene.frames],
        "dashed": [[*map(_short, (*line.a, *line.b))] for line in scene.lines if line.dashed],
        "bends": [[*line.ends, _short(line.bend)] for line in scene.lines if line.bend and line.link >= 0],
        "labels": [
            [_short(t.x), _short(t.y), t.anchor, t.text, int(t.text in bold)]
            for t in scene.labels.placed if t.text not in marks | shorts
        ],
    }  # fmt: skip


def _short(value: float) -> float:
    return round(float(value), 1)


def page_land(topology: Topology) -> str:
    """The land behind the positions of :func:`.layout.positions`, in thousandths; nothing where there is no map."""
    if not _on_earth(topology):
        return ""
    project = geographic(topology)[1]
    return land_path(project, np.array([-1.0, -1.0]), np.array([2.0, 2.0]), 1000.0)


def _on_earth(topology: Topology) -> bool:
    return topology.geographic and bool((~np.isnan(topology.xy[:, 0])).any())


def scene_of(topology: Topology, label_size: float = 11) -> Scene:
    """What is drawn of a topology."""
    if _on_earth(topology):
        return on_map(topology, label_size)
    structure = None if topology.planes else structure_of(topology)
    return flat(topology, label_size) if structure is None else layered(topology, structure)
