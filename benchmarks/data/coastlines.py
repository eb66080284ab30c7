"""Make src/stretto/report/coastlines.txt, the outlines of land that maps of WANs are drawn over.

Source: Natural Earth 4.1.0, land 1:50m, public domain (naturalearthdata.com/about/terms-of-use), as TopoJSON in the npm
package world-atlas 2.0.2, file land-50m.json:

    npm pack world-atlas@2.0.2 && tar xzf world-atlas-2.0.2.tgz
    python benchmarks/data/coastlines.py package/land-50m.json src/stretto/report/coastlines.txt

Simplification: outlines (no lakes) by Ramer, Douglas and Peucker with a tolerance of 0.1 degrees; those that are
smaller than 0.4 degrees in both directions, and Antarctica, are left out. Coordinates are in units of 0.05 degrees: a
line has the first point of an outline, then the steps to the next ones, as pairs of whole numbers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

UNIT, TOLERANCE, LEAST = 0.05, 0.1, 0.4  # degrees


def outlines(data: dict) -> list[np.ndarray]:
    """The outer ring of each polygon, degrees."""
    scale, origin = (np.array(data["transform"][key]) for key in ("scale", "translate"))
    arcs = [np.cumsum(np.array(arc), axis=0) * scale + origin for arc in data["arcs"]]
    found = []
    for shape in data["objects"]["land"]["geometries"]:
        for rings in shape["arcs"]:
            parts = [arcs[a] if a >= 0 else arcs[~a][::-1] for a in rings[0]]
            ring = np.concatenate([parts[0], *(part[1:] for part in parts[1:])])
            # rings go on across the 180th meridian, where longitudes jump
            ring[:, 0] = np.unwrap(ring[:, 0], period=360)
            found.append(ring)
    return found


def simplified(points: np.ndarray) -> np.ndarray:
    """The points that are needed so that no left out one is farther than the tolerance from the line."""
    kept = np.zeros(len(points), dtype=bool)
    kept[[0, -1]] = True
    middle = len(points) // 2
    kept[middle] = True  # a ring ends where it begins
    stack = [(0, middle), (middle, len(points) - 1)]
    while stack:
        a, b = stack.pop()
        if b - a < 2:
            continue
        way, off = points[b] - points[a], points[a + 1 : b] - points[a]
        length = float(np.hypot(*way))
        far = np.abs(way[0] * off[:, 1] - way[1] * off[:, 0]) / length if length else np.hypot(*off.T)
        k = int(far.argmax())
        if far[k] > TOLERANCE:
            kept[a + 1 + k] = True
            stack += [(a, a + 1 + k), (a + 1 + k, b)]
    return points[kept]


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    lines = []
    for ring in sorted(outlines(json.loads(source.read_text())), key=len, reverse=True):
        if max(np.ptp(ring, axis=0)) < LEAST or ring[:, 1].max() < -60:
            continue
        steps = np.rint(simplified(ring) / UNIT).astype(int)
        steps = steps[np.r_[True, np.any(np.diff(steps, axis=0) != 0, axis=1)]]
        if len(steps) > 3:
            steps[1:] -= steps[:-1].copy()
            lines.append(" ".join(f"{x},{y}" for x, y in steps.tolist()))
    target.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} outlines, {sum(line.count(' ') + 1 for line in lines)} points, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
