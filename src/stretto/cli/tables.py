"""Lines and tables that fit a terminal: no word is broken, and a number stays with its unit.

A table that is too wide leaves out the columns that its command can spare and says which; where that is not enough,
or rows would be taller than the same as a list, each row is a table of its own. With ``STRETTO_TABLES=markdown`` in the
environment tables are whole, in Markdown.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

from . import progress

PIPE_COLUMNS = 160
"""Columns of a table that is printed into a file or a pipe."""
TALLEST = 4
"""Lines of a cell beyond which a column is left out, if it can be spared."""

_AROUND = 3  # columns between two columns of a table
_UNIT = re.compile(r"(?<=[\d.]) (?=(?:[KMGT]?(?:B|bit)(?:/s)?|[mun]?s|h|min|km|USD|%)(?![\w/]))")
_JOINT = re.compile(r"(?<=[→,=&?])(?=\S)")
"""Where a word may be broken that is wider than its place: within routes, lists and specs."""

Row = Sequence[str]


def print_line(text: str) -> None:
    """Print lines; on a terminal, broken between words."""
    progress.clear()
    sys.stdout.write(to_terminal(text, sys.stdout) + "\n")


def to_terminal(text: str, stream: TextIO) -> str:
    """Text as a stream shows it: where that is a terminal, lines are broken between words."""
    if not stream.isatty():
        return text
    columns = progress.columns_of(stream)
    return "\n".join(line for each in text.split("\n") for line in _lines_of(each, columns))


def _lines_of(line: str, columns: int) -> list[str]:
    """A line in lines of this width; what follows its first line is indented as far as its last column of words."""
    if len(line) <= columns or "\t" in line:
        return [line]
    lead = re.match(r" *(?:\S+(?: \S+)* {2,})*", line)
    indent = " " * (lead.end() if lead is not None and lead.end() < columns // 2 else 0)
    first, *others = wrapped(line[len(indent) :], columns - len(indent))
    return [line[: len(indent)] + first, *(indent + other for other in others)]


def wrapped(text: str, columns: int) -> list[str]:
    """Text in lines of this width, broken between words; words that are wider are broken where parts of them end,
    and a part that is wider still is left as it is."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = indent = " " * (len(paragraph) - len(paragraph.lstrip(" ")))
        for word in _words(paragraph):
            for k, part in enumerate([word] if len(word) <= columns else _JOINT.split(word)):
                between = " " if line != indent and k == 0 else ""
                if line != indent and len(line) + len(between) + len(part) > columns:
                    lines.append(line)
                    line = indent + part
                else:
                    line += between + part
        lines.append(line)
    return lines


def _words(text: str) -> list[str]:
    """The words of a text; a number and its unit are one."""
    return [word.replace("\0", " ") for word in _UNIT.sub("\0", text).split()]


def print_table(title: str, header: Row, rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
    """Print a table that fits the terminal.

    Args:
        header: names of the columns; two empty ones for a table of names and values.
        spare: columns that are left out where there is too little room, the first one first.
    """
    progress.clear()
    if os.environ.get("STRETTO_TABLES") == "markdown":
        sys.stdout.write(markdown(title, header, rows))
        return
    columns = progress.columns_of(sys.stdout) if sys.stdout.isatty() else PIPE_COLUMNS
    kept, left_out = _fitting(header, rows, spare, columns)
    shown = [[row[k] for k in kept] for row in rows]
    head = [header[k] for k in kept]
    widths = _widths(head, shown, columns)
    if len(head) > 2 and (widths is None or _height(shown, widths) > _height_turned(header, rows, columns)):
        for i, row in enumerate(rows):
            cells = [(name, cell) for name, cell in zip(header, row, strict=True) if cell]
            _draw("" if i else title, ("", ""), cells, columns)
        return
    _draw(title, head, shown, columns)
    if left_out:
        print_line(f"left out here: {', '.join(left_out)} (a wider terminal or --json shows all)")


def print_below(text: str) -> None:
    """Print a line that says something of the table above it; among tables in Markdown it is a paragraph."""
    if os.environ.get("STRETTO_TABLES") != "markdown":
        return print_line(text)
    progress.clear()
    sys.stdout.write(paragraph(text))


def paragraph(text: str) -> str:
    """A line as a paragraph of Markdown, also where it begins like a list or a heading."""
    return re.sub(r"^(?=[*+#>-])", r"\\", text) + "\n\n"


def markdown(title: str, header: Row, rows: Sequence[Row]) -> str:
    """A table in Markdown, its title above it; without one it stands apart from the text above."""
    above = f"**{title}**\n\n" if title else "\n"
    head, *body = ("| " + " | ".join(map(_in_markdown, row)) + " |\n" for row in (header, *rows))
    return f"{above}{head}{'|---' * len(header)}|\n{''.join(body)}\n"


def _in_markdown(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", "<br>")


def _fitting(header: Row, rows: Sequence[Row], spare: Sequence[str], columns: int) -> tuple[list[int], list[str]]:
    """The columns that are shown, and the names of those that are left out."""
    kept = [*range(len(header))]
    left_out: list[str] = []
    for name in (name for name in spare if name in header):
        shown = [[row[k] for k in kept] for row in rows]
        widths = _widths([header[k] for k in kept], shown, columns)
        if widths is not None and max((_row_height(row, widths) for row in shown), default=0) <= TALLEST:
            return kept, left_out
        kept.remove(header.index(name))
        left_out.append(name)
    if _widths([header[k] for k in kept], [[row[k] for k in kept] for row in rows], columns) is None:
        return [*range(len(header))], []  # turned, it has room for all
    return kept, left_out


def _widths(header: Row, rows: Sequence[Row], columns: int) -> list[int] | None:
    """Widths of columns: what they need, and where that is too much the widest ones less; None if words would break."""
    cells = list(zip(header, *rows, strict=True))
    wanted = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
    named = len(header) > 2
    least = [max(_longest_word(cell) for cell in column) if named else 1 for column in cells]
    room = columns - _AROUND * len(cells) - 1
    if sum(least) > room and named:
        return None
    widths = [0] * len(cells)
    for place, k in enumerate(order := sorted(range(len(cells)), key=wanted.__getitem__)):
        still = sum(least[j] for j in order[place + 1 :])
        share = max(room // (len(cells) - place), least[k])
        widths[k] = max(1, min(wanted[k], share, max(room - still, least[k])))
        room -= widths[k]
    return widths


def _longest_word(cell: str) -> int:
    return max(map(len, _words(cell)), default=0)


def _row_height(row: Row, widths: Sequence[int]) -> int:
    return max(len(wrapped(cell, width)) for cell, width in zip(row, widths, strict=True))


def _height(rows: Sequence[Row], widths: Sequence[int]) -> int:
    return sum(_row_height(row, widths) for row in rows)


def _height_turned(header: Row, rows: Sequence[Row], columns: int) -> int:
    """Lines of the same rows as tables of their own, and the two between them."""
    room = max(1, columns - max(map(len, header)) - 2 * _AROUND - 1)
    return sum(2 + sum(len(wrapped(cell, room)) for cell in row if cell) for row in rows)


def _draw(title: str, header: Row, rows: Sequence[Row], columns: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=columns, highlight=False, markup=False, emoji=False)
    for line in wrapped(title, columns) if title else ():
        console.print(Text(line, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, show_header=any(header))
    widths = _widths(header, rows, columns) or [columns] * len(header)
    for name, width in zip(header, widths, strict=True):
        table.add_column("\n".join(wrapped(name, width)), width=width, overflow="fold")
    for row in rows:
        table.add_row(*(Text("\n".join(wrapped(cell, width))) for cell, width in zip(row, widths, strict=True)))
    console.print(table)
