"""Clusters by structure: servers as boxes in a row, leaves, rails and the spine as rows above them."""

from __future__ import annotations

import math

import numpy as np

from ..model.topology import ACCELERATOR, Topology
from .groups import Block, Layer, Structure
from .labels import around, text_box
from .scene import SOFT, Frame, Line, Mark, Scene, pairs_of

CELL, PAD, TITLE = 24.0, 12.0, 40.0
BLOCK_GAP, POD_GAP = 16.0, 44.0
LEFT, TOP, LAYER = 24.0, 40.0, 140.0
LABEL, SMALL = 14.0, 11.0
MOST_INSIDE = 96
"""Accelerators of a server that are drawn."""

Place = tuple[float, float]


def layered(topology: Topology, structure: Structure) -> Scene:
    """A row of servers below rows of switches; servers that are joined to each other alone in a circle."""
    boxes = [(block, *_inside(topology, block)) for pod in structure.pods for block in pod]
    if len(boxes) > 2 and not structure.layers:
        corners, width, height = _circle(boxes)
    else:
        corners, width, height = _row(structure, boxes)
    width = max(width, 420.0)
    scene = Scene(width, height)
    at: dict[int, Place] = {}
    for (block, inside, size, hidden), corner in zip(boxes, corners, strict=True):
        _add_block(scene, topology, block, inside, size, hidden, corner, at)
    _add_layers(scene, topology, structure, at)
    _add_links(scene, topology, at, {v: k for k, box in enumerate(boxes) for v in box[0].nodes}, bool(structure.layers))
    _add_dashed(scene, structure, boxes, corners, at)
    for layer in structure.layers:
        for v in layer.nodes:
            mark = Mark(*at[v], int(topology.kind[v]), topology.names[v], bool(topology.reduces[v]))
            scene.marks.append(mark)
            scene.labels.add(around(*at[v], LABEL, 9)[::-1], topology.names[v], LABEL, scene.room)
    return scene


def _inside(topology: Topology, block: Block) -> tuple[dict[int, Place], tuple[float, float], int]:
    """Where the nodes of a block are inside its box, its width and height, and how many nodes are not drawn."""
    if not block.nodes:
        return {}, (max(text_box(0, 0, block.what, LABEL)[2] + 2 * PAD, 90.0), 48.0), 0
    nodes = np.array(block.nodes)
    ranks = nodes[topology.kind[nodes] == ACCELERATOR].tolist()
    hidden, ranks = max(len(ranks) - MOST_INSIDE, 0), ranks[:MOST_INSIDE]
    rows = _rows_above(topology, block)
    title = max(text_box(0, 0, block.name, LABEL)[2], text_box(0, 0, _members(topology, block), SMALL)[2])
    direct = set(ranks)
    meshed = len(ranks) > 2 and any(
        a in direct and b in direct for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
    )
    columns = min(len(ranks), 8 if len(ranks) <= 32 else 12)
    radius = max(30.0, len(ranks) * CELL / (2 * math.pi)) if meshed else 0.0
    wide = 2 * radius + CELL if meshed else columns * CELL
    wide = max(wide, title, CELL * max((len(row) for row in rows), default=0))
    inside: dict[int, Place] = {}
    y = TITLE + PAD
    for row in rows:
        inside |= {v: (PAD + (k + 0.5) * wide / len(row), y) for k, v in enumerate(row)}
        y += 2 * CELL
    for k, v in enumerate(ranks):
        if meshed:
            angle = 2 * math.pi * (k + 0.5) / len(ranks)
            inside[v] = PAD + wide / 2 + radius * math.sin(angle), y + radius - radius * math.cos(angle)
        else:
            spare = (wide - columns * CELL) / 2
            inside[v] = PAD + spare + (k % columns + 0.5) * CELL, y + k // columns * CELL
    tall = 2 * radius if meshed else (-(-len(ranks) // max(columns, 1)) - 1) * CELL
    return inside, (wide + 2 * PAD, y + max(tall, 0.0) + PAD + LABEL * bool(hidden) + 6), hidden


def _rows_above(topology: Topology, block: Block) -> list[list[int]]:
    """The nodes of a server other than accelerators, by their distance from these, the farthest first."""
    left = {v for v in block.nodes if topology.kind[v] != ACCELERATOR}
    reached = set(block.nodes) - left
    rows: list[list[int]] = []
    pairs = [
        (a, b) for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True) if a in left or b in left
    ]
    while left:
        row = sorted(
            {a for a, b in pairs if a in left and b in reached} | {b for a, b in pairs if b in left and a in reached}
        )
        row = row or sorted(left)
        rows.insert(0, row)
        left -= set(row)
        reached = set(row)
    return rows


Boxed = tuple[Block, dict[int, Place], tuple[float, float], int]


def _row(structure: Structure, boxes: list[Boxed]) -> tuple[list[Place], float, float]:
    """The left upper corners of boxes in a row below the layers, and the size of the drawing."""
    top = TOP + LAYER * len(structure.layers)
    x, corners, k, tallest = LEFT, [], 0, max(size[1] for _, _, size, _ in boxes)
    for pod in structure.pods:
        for _ in pod:
            size = boxes[k][2]
            corners.append((x, top + (0.0 if boxes[k][0].nodes else (tallest - size[1]) / 2)))
            x += size[0] + BLOCK_GAP
            k += 1
        x += POD_GAP - BLOCK_GAP
    bend = 40.0 if not structure.layers else 24.0
    return corners, x - POD_GAP + LEFT, top + tallest + bend


def _circle(boxes: list[Boxed]) -> tuple[list[Place], float, float]:
    """The same of boxes around a circle."""
    wide, tall = (max(size[axis] for _, _, size, _ in boxes) for axis in (0, 1))
    count = len(boxes)
    radius = max(math.hypot(wide, tall) * 1.2 / (2 * math.sin(math.pi / count)), 0.7 * math.hypot(wide, tall))
    corners = []
    for k, (_, _, size, _) in enumerate(boxes):
        angle = 2 * math.pi * k / count
        x, y = radius * math.sin(angle), -radius * math.cos(angle)
        corners.append((LEFT + wide / 2 + radius + x - size[0] / 2, TOP + tall / 2 + radius + y - size[1] / 2))
    low = min(y for _, y in corners) - TOP
    corners = [(x, y - low) for x, y in corners]
    height = max(y + size[1] for (_, y), (_, _, size, _) in zip(corners, boxes))
    return corners, 2 * radius + wide + 2 * LEFT, height + TOP


def _add_block(
    scene: Scene, topology: Topology, block: Block, inside: dict[int, Place], size: tuple[float, float], hidden: int,
    corner: Place, at: dict[int, Place],
) -> None:  # fmt: skip
    x, y = corner
    box = x, y, x + size[0], y + size[1]
    scene.frames.append(Frame(box, dashed=not block.nodes))
    middle = (x + box[2]) / 2
    if not block.nodes:
        scene.labels.add([(middle, (y + box[3]) / 2 + 4, "middle")], block.what, LABEL, scene.room)
        scene.labels.reserve(box)
        return
    scene.labels.add([(middle, y + 18, "middle")], block.name, LABEL, box, ' font-weight="600"')
    if hidden:
        words = f"and {hidden:,} more"
        scene.labels.add([(middle, box[3] - 6, "middle")], words, LABEL, scene.room)
    for v, (dx, dy) in inside.items():
        at[v] = x + dx, y + dy
        name = topology.names[v]
        scene.marks.append(Mark(*at[v], int(topology.kind[v]), name, bool(topology.reduces[v])))
        scene.labels.reserve((at[v][0] - 6, at[v][1] - 6, at[v][0] + 6, at[v][1] + 6))
    scene.labels.add([(middle, y + 33, "middle")], _members(topology, block), SMALL, box, f' fill="{SOFT}"')
    for v, (x, y) in ((v, at[v]) for v in inside if topology.kind[v] != ACCELERATOR):
        scene.labels.add([(x + 9, y - 3, "start"), (x - 9, y - 3, "end")], _short(topology, block, v), SMALL, box)
    scene.labels.reserve(box)


def _short(topology: Topology, block: Block, v: int) -> str:
    """The name of a node without that of its server."""
    return topology.names[v].removeprefix(f"{block.name}.")


def _members(topology: Topology, block: Block) -> str:
    """``gpu0 to gpu7``: the first and the last accelerator of a server."""
    ranks = [v for v in block.nodes if topology.kind[v] == ACCELERATOR]
    return " to ".join(dict.fromkeys(_short(topology, block, v) for v in (ranks[0], ranks[-1]))) if ranks else ""


def _add_layers(scene: Scene, topology: Topology, structure: Structure, at: dict[int, Place]) -> None:
    """Places for the switches of each layer, near what they are joined to below, and a caption."""
    count = len(structure.layers)
    for k, layer in enumerate(structure.layers):
        y = TOP + LAYER * (count - 1 - k) + 24
        neighbours = {v: [] for v in layer.nodes}  # type: dict[int, list[float]]
        for ends in ((topology.src, topology.dst), (topology.dst, topology.src)):
            for i in np.flatnonzero(np.isin(ends[0], layer.nodes)).tolist():
                other = int(ends[1][i])
                if other in at:
                    neighbours[int(ends[0][i])].append(at[other][0])
        order = sorted(layer.nodes, key=lambda v: (sum(neighbours[v]) / max(len(neighbours[v]), 1), v))
        for place, v in enumerate(order):
            at[v] = LEFT + (place + 0.5) * (scene.width - 2 * LEFT) / len(order), y
        caption = _caption(topology, layer, k, count)
        scene.labels.add([(LEFT, y - 32, "start")], caption, LABEL, scene.room, f' fill="{SOFT}" font-style="italic"')
    for layer in structure.layers:
        for v in layer.nodes:
            x, y = at[v]
            scene.labels.reserve((x - 6, y - 6, x + 6, y + 6))


def _caption(topology: Topology, layer: Layer, k: int, count: int) -> str:
    name = "above the servers" if count == 1 else "leaves and rails" if k == 0 else f"layer {k + 1}"
    name = "spine" if k == count - 1 > 0 else name
    total = len(layer.nodes) + layer.more
    kinds = {int(topology.kind[v]) for v in layer.nodes}
    word = ("accelerator", "router", "switch")[kinds.pop()] if len(kinds) == 1 else "node"
    plural = {"switch": "switches"}.get(word, word + "s") if total > 1 else word
    drawn = f", {len(layer.nodes)} are drawn" if layer.more else ""
    return f"{name}: {total:,} {plural}{drawn}"


def _add_links(scene: Scene, topology: Topology, at: dict[int, Place], block: dict[int, int], above: bool) -> None:
    """All links between nodes that are drawn; between servers of a row they bend below the boxes."""
    row = above or len(set(block.values())) <= 2
    for a, b, i in pairs_of(topology):
        if a in at and b in at:
            across = a in block and b in block and block[a] != block[b]
            bend = 30.0 + 0.03 * abs(at[a][0] - at[b][0]) if across and row else 0.0
            scene.lines.append(Line(at[a], at[b], i, bend, ends=(a, b)))


def _add_dashed(
    scene: Scene, structure: Structure, boxes: list[Boxed], corners: list[Place], at: dict[int, Place]
) -> None:
    """Dashed lines from servers that are not drawn to the switches that they are joined to."""
    spine = structure.layers[1].nodes if len(structure.layers) > 1 else ()
    for (block, _, size, _), (x, y) in zip(boxes, corners, strict=True):
        if not block.nodes and structure.layers:
            for v in [w for w in block.below if w in at] or spine:
                scene.lines.append(Line((x + size[0] / 2, y), at[v], dashed=True))
