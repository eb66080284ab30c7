"""Labels that do not overlap: a label is placed where it has room, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

WIDTH_OF_LETTER = 0.62
"""Width of a letter as a share of the size of the font, at most on average; system fonts have 0.5 to 0.6."""

CELL = 64.0
"""Side of the squares in which labels are looked up, pixels."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def text_box(x: float, y: float, text: str, size: float, anchor: str = "start") -> Box:
    """The room of a text whose baseline begins, ends or has its middle at (x, y)."""
    width = WIDTH_OF_LETTER * size * len(text)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return left, y - 0.85 * size, left + width, y + 0.25 * size


class Label(NamedTuple):
    """A text at a place; ``style`` is more of its attributes as SVG."""

    x: float
    y: float
    anchor: str
    text: str
    size: float
    style: str

    @property
    def svg(self) -> str:
        at = "" if self.anchor == "start" else f' text-anchor="{self.anchor}"'
        place = f'x="{self.x:.1f}" y="{self.y:.1f}" font-size="{self.size:g}"'
        return f"<text {place}{at}{self.style}>{escape(self.text)}</text>"


@dataclass
class Labels:
    """Texts of a drawing, none over another one or over a box that is reserved."""

    placed: list[Label] = field(default_factory=list)
    left_out: int = 0
    _cells: dict[tuple[int, int], list[Box]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The texts as SVG."""
        return [label.svg for label in self.placed]

    def reserve(self, box: Box) -> None:
        """Keep labels off a box."""
        for cell in _cells(box):
            self._cells.setdefault(cell, []).append(box)

    def free(self, box: Box) -> bool:
        """Whether a box touches no label and nothing that is reserved."""
        return not any(_overlap(box, other) for cell in _cells(box) for other in self._cells.get(cell, ()))

    def add(
        self, places: Sequence[tuple[float, float, str]], text: str, size: float, within: Box, style: str = ""
    ) -> bool:
        """Write a text at the first of some places (x, y, anchor) where it has room inside ``within``."""
        for x, y, anchor in places:
            box = text_box(x, y, text, size, anchor)
            inside = box[0] >= within[0] and box[1] >= within[1] and box[2] <= within[2] and box[3] <= within[3]
            if inside and self.free(box):
                self.reserve(box)
                self.placed.append(Label(x, y, anchor, text, size, style))
                return True
        self.left_out += 1
        return False


def around(x: float, y: float, size: float, gap: float) -> list[tuple[float, float, str]]:
    """Places for the label of a mark: right, left, below, above, and at the corners."""
    middle, low, high = y + 0.35 * size, y + gap + 0.6 * size, y - gap
    return [
        (x + gap, middle, "start"), (x - gap, middle, "end"),
        (x, y + gap + 0.9 * size, "middle"), (x, y - gap - 0.2 * size, "middle"),
        (x + gap, low, "start"), (x + gap, high, "start"), (x - gap, low, "end"), (x - gap, high, "end"),
    ]  # fmt: skip


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _cells(box: Box) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i in range(int(box[0] // CELL), int(box[2] // CELL) + 1)
        for j in range(int(box[1] // CELL), int(box[3] // CELL) + 1)
    ]
