"""A topology as SVG."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from ..formats import atomic_file
from ..model.errors import InputError
from ..model.topology import Topology
from ..model.units import format_bandwidth
from .layout import positions

SIZE, MARGIN = 800, 60


def write_svg(topology: Topology, path: str, emphasised: Iterable[int] = ()) -> None:
    """Draw a topology to a file that ends in .svg, see :func:`svg`; ``emphasised`` links are red."""
    if not path.lower().endswith(".svg"):
        raise InputError("a drawing is written as .svg", path)
    with atomic_file(path) as file:
        file.write(svg(topology, emphasised))


def svg(topology: Topology, emphasised: Iterable[int] = (), label_size: int = 11) -> str:
    """A topology: nodes by kind, links as wide as the logarithm of their bandwidth, first circuits dashed."""
    at = MARGIN + positions(topology) * (SIZE - 2 * MARGIN)
    top = at[:, 1].min() - MARGIN
    height = at[:, 1].max() + MARGIN - top
    widest = topology.bandwidth.max(initial=0.0)
    view = f'viewBox="0 {top:.0f} {SIZE} {height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} font-family="system-ui,sans-serif">',
        f"<title>{escape(topology.name)}</title>",
        f'<rect y="{top:.0f}" width="{SIZE}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    drawn: set[tuple[int, int]] = set()
    red = {frozenset((int(topology.src[i]), int(topology.dst[i]))) for i in emphasised}
    for i, (a, b) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        if (b, a) in drawn:
            continue
        drawn.add((a, b))
        width = 0.8 + 2.2 / (1 + np.log2(widest / topology.bandwidth[i]))
        colour = "#d1242f" if frozenset((a, b)) in red else "#8aa0bd"
        lines.append(
            f'<line x1="{at[a, 0]:.1f}" y1="{at[a, 1]:.1f}" x2="{at[b, 0]:.1f}" y2="{at[b, 1]:.1f}" '
            f'stroke="{colour}" stroke-width="{width:.2f}"><title>{escape(topology.link_name(i))} '
            f"{format_bandwidth(float(topology.bandwidth[i]))}</title></line>"
        )
    for a, b in _circuits(topology):
        lines.append(
            f'<line x1="{at[a, 0]:.1f}" y1="{at[a, 1]:.1f}" x2="{at[b, 0]:.1f}" y2="{at[b, 1]:.1f}" '
            'stroke="#8aa0bd" stroke-dasharray="5 4"/>'
        )
    for v in range(topology.node_count):
        x, y = at[v]
        if topology.is_switch[v]:
            shape = f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" fill="#5b6472"/>'
            if topology.reduces[v]:
                shape += f'<path d="M{x - 4:.1f} {y:.1f}h8M{x:.1f} {y - 4:.1f}v8" stroke="#fff" stroke-width="1.5"/>'
        elif topology.is_router[v]:
            shape = f'<path d="M{x:.1f} {y - 8:.1f}l8 8-8 8-8-8z" fill="#b7791f"/>'
        else:
            shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="#1f6feb"/>'
        label = ""
        if topology.node_count <= 120:
            label = f'<text x="{x + 9:.1f}" y="{y + 4:.1f}" font-size="{label_size}">{escape(topology.names[v])}</text>'
        lines.append(shape + label)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _circuits(topology: Topology) -> list[tuple[int, int]]:
    """The pairs of nodes that the first matchings of optical planes join, each pair once."""
    joined = [(p.nodes[p.matching >= 0], p.nodes[p.matching[p.matching >= 0]]) for p in topology.planes]
    return sorted({(min(a, b), max(a, b)) for ends in joined for a, b in zip(*(v.tolist() for v in ends), strict=True)})
