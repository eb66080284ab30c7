"""A topology as SVG: a cluster by its servers and switches, a WAN on a map, any other network node by node.

The drawing is our own SVG: it needs rows, boxes, labels and paths, and no library among our dependencies lays out a
cluster by its structure (Plotly draws charts; Graphviz would be a program to install).
"""

from __future__ import annotations

from collections.abc import Iterable

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


def page_drawing(topology: Topology) -> str:
    """The drawing of a cluster by its structure, for a page beside the map of all nodes; nothing for other networks."""
    if _on_earth(topology) or topology.planes or structure_of(topology) is None:
        return ""
    return svg(topology)


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
