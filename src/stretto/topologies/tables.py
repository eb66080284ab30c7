"""Tables that people keep: CSV with commas, semicolons, tabs or spaces, whose header says what a column is.

A column is known by the words of its name, in any case and with any of ``_ - . space`` between them: ``src``, ``Source
node``, ``bandwidth_Gbps``, ``Throughput (MB/s)``, ``rtt_ms``. What is left of a name is its unit. A cell may carry a
unit of its own (``10 Gbps``), and must where the column has none.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from ..model.errors import InputError
from ..model.units import parse_bandwidth, parse_time
from .values import ALMOST, first_rows, parse_csv, shown

MOST_ROWS = 1_000_000
DELIMITERS = ",;\t"
LONGEST_TITLE = 100
NOTHING = ("", "-", "na", "n/a", "nan", "none", "null", "?", "x")
"""What people write where nothing was measured, in small letters."""

SRC, DST, BANDWIDTH, LATENCY, RTT = "source", "destination", "bandwidth", "latency", "round-trip time"
NODE, SITE, UPLINK, DOWNLINK, CAP = "node", "site", "uplink", "downlink", "cap"

_QUANTITIES = {
    BANDWIDTH: {"bandwidth", "bw", "throughput", "capacity", "goodput", "speed", "rate", "linkspeed"},
    LATENCY: {"latency", "lat", "delay", "alpha", "owd"},
    RTT: {"rtt", "ping", "roundtrip"},
    UPLINK: {"uplink", "egress", "upload"},
    DOWNLINK: {"downlink", "ingress", "download"},
    CAP: {"cap", "caps", "limit"},
}
_ENDS = {
    SRC: {"src", "source", "from", "sender"},
    DST: {"dst", "dest", "destination", "to", "target", "receiver"},
}
_SITE = {"site", "datacenter", "datacentre", "dc", "location", "cluster"}
_NODE = {
    "node",
    "host",
    "hostname",
    "name",
    "id",
    "rank",
    "gpu",
    "npu",
    "region",
    "vm",
    "machine",
    "server",
    "device",
    "zone",
}
_FILLERS = {"avg", "mean", "average", "median", "measured", "link", "time", "one", "way", "oneway", "value", "index"}

_TIME_WORDS = {"millisecond": "ms", "microsecond": "us", "nanosecond": "ns", "second": "s"}


@dataclass(frozen=True)
class Column:
    """What a column holds: its index, the words for messages, what it is, of which end of a pair, and in which unit."""

    index: int
    title: str
    what: str
    end: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """The rows below the header, each with the number of its line, and the character that parts the cells."""

    where: str
    header: list[str]
    rows: list[tuple[int, list[str]]]
    delimiter: str

    def place(self, line: int, title: str | None = None) -> str:
        """Where a cell is, for a message."""
        return f"{self.where}, line {line}" + (f", column {shown(title)}" if title is not None else "")

    def check_width(self, line: int, row: list[str]) -> None:
        """InputError for a row with more cells than the header, such as one with a comma in a number."""
        if any(row[len(self.header) :]):
            hint = "; write 1.5, or part cells by semicolons" if self.delimiter == "," else ""
            raise InputError(f"has {len(row)} cells for {len(self.header)} columns{hint}", self.place(line))

    def cell(self, row: list[str], column: Column) -> str:
        """A cell; empty where the row ends before it."""
        return row[column.index] if column.index < len(row) else ""


def delimiter(text: str) -> str:
    """The character that parts cells: what the first line that is not blank has most of, a space if it has none."""
    first = next((line for line in io.StringIO(text) if line.strip() and not line.startswith("#")), "").strip(" \r\n")
    mark = max(DELIMITERS, key=first.count)
    return mark if mark in first or " " not in first else " "


def read_table(text: str, where: str) -> Table:
    """The table of a text; lines that begin with ``#`` are comments.

    Raises:
        InputError: it is no CSV, or is empty.
        TooManyRows: it has more than :data:`MOST_ROWS` rows, comments among them.
    """
    mark = delimiter(text)
    if mark == " ":
        words = ((line, row.split()) for line, row in enumerate(io.StringIO(text), start=1))
        found = first_rows(((line, row) for line, row in words if row), where, MOST_ROWS)
    else:
        found = parse_csv(text, where, mark, MOST_ROWS)
    rows = [(line, row) for line, row in found if not row[0].startswith("#")]
    if not rows:
        raise InputError("is empty; a table begins with the names of its columns", where)
    return Table(where, rows[0][1], rows[1:], mark)


def known_columns(header: list[str]) -> list[Column]:
    """The columns whose names say what they are, in order."""
    found = (_column(index, title) for index, title in enumerate(header))
    return [column for column in found if column is not None]


def _column(index: int, title: str) -> Column | None:
    if len(title) > LONGEST_TITLE:
        return None
    inside = re.search(r"[(\[{]\s*([^()\[\]{}]*?)\s*[)\]}]", title)
    bare = title.replace(inside.group(0), " ") if inside else title
    words = _words(bare)
    low = [w.lower() for w in words]
    unit = inside.group(1) if inside else ""
    end = next((e for e, names in _ENDS.items() if names & {low[0], low[-1]}), "") if low else ""
    for what, names in _QUANTITIES.items():
        at = next((i for i, w in enumerate(low) if w in names), None)
        if at is None and what == RTT and {"round", "trip"} <= set(low):
            at = low.index("trip")
        if at is not None:
            rest = [w for w in words[at + 1 :] if w.lower() not in _FILLERS]
            before = {w for w in low[:at] if w not in _FILLERS | _NODE} - {"round"}
            if before <= _ENDS.get(end, set()):
                return Column(index, title, what, end, unit or _joined(rest))
            return None
    rest_words = set(low) - _ENDS.get(end, set())
    if low and rest_words <= _NODE | _SITE | _FILLERS and (end or rest_words):
        return Column(index, title, SITE if rest_words & _SITE else end or NODE, end)
    if _is_bandwidth(title):
        return Column(index, title, BANDWIDTH, "", title)
    return None


def _words(title: str) -> list[str]:
    return [w for w in re.split(r"[\s_.\-:]+|(?<=[a-z]{2})(?=[A-Z])", title) if w]


def misspelt(header: list[str], read: Collection[tuple[str, str]], almost: float = ALMOST) -> str | None:
    """What to say of the first column that is not known and has a word that is almost one that is; else None.

    Args:
        read: what is read of such a table, and of which end of a pair. What a known column gives is not looked for
            again: beside a ``dst``, a ``dist_km`` is a column of the user's own.
    """
    from difflib import get_close_matches  # of a table whose columns are all known it would be a load for nothing

    words = frozenset().union(_NODE, _SITE, *_QUANTITIES.values(), *_ENDS.values())
    columns = known_columns(header)
    known, lacking = {column.index for column in columns}, {*read} - {(column.what, column.end) for column in columns}
    for index, title in enumerate(header):
        for word in () if index in known else _words(title[:LONGEST_TITLE]):
            for near in () if word.lower() in words else get_close_matches(word.lower(), words, 1, almost):
                meant = title.replace(word, near)
                column = _column(index, meant)
                if column is not None and (column.what, column.end) in lacking:
                    return f"the column {shown(title)} is not known; did you mean {meant!r}?"
    return None


def _joined(words: list[str]) -> str:
    """The unit that the last words of a name spell: Gbit s, MB per sec, bits per second."""
    spelled = [w for w in words if w.lower() != "per"]
    if len(spelled) > 1 and spelled[-1].lower() in ("s", "sec", "second", "seconds"):
        return "".join(spelled[:-1]) + "/s"
    return "".join(spelled)


def _is_bandwidth(title: str) -> bool:
    """Whether a name is nothing but a unit, as in Gbps or bits_per_second."""
    try:
        parse_bandwidth("8" + bandwidth_unit(title))
    except InputError:
        return False
    return not title.isdigit()


@cache
def bandwidth_unit(text: str) -> str:
    """A unit as :func:`parse_bandwidth` knows it, from what people write: gbps, Mbits/sec, bits_per_second.

    Raises:
        InputError: letters are all large, as in GBPS, and so may be bits or bytes.
    """
    unit = re.sub(r"(?i)[\s_]*per[\s_]*|_(?=s(ec)?$)", "/", text.strip())
    unit = re.sub(r"(?i)/\s*(s|secs?|seconds?)$", "/s", unit)
    if unit.endswith("BPS"):
        raise InputError(f"{shown(text)} may be bits or bytes: write {unit[:-3]}bps or {unit[:-3]}Bps")
    return re.sub(r"(?i)bytes(/s)?$", "B/s", unit)


@cache
def time_unit(text: str) -> str:
    """A unit as :func:`parse_time` knows it: MS, msec, milliseconds are ms."""
    unit = text.strip().lower()
    return _TIME_WORDS.get(unit.removesuffix("s"), unit)


def quantity(text: str, unit: str, what: str, where: str | None, decimal_comma: bool = False) -> float | None:
    """A cell in bytes/s, or seconds where ``what`` is a latency or round-trip time; None where nothing was measured.

    Raises:
        InputError: no number, an unknown unit, none at all, or a value out of range.
    """
    cell = text.strip()
    if cell.lower() in NOTHING:
        return None
    if decimal_comma and re.fullmatch(r"[+-]?\d*,\d+\D*", cell):
        cell = cell.replace(",", ".")
    try:
        bare = float(cell)
    except ValueError:
        bare = math.nan
    is_number = not math.isnan(bare)
    if is_number and bare == 0 and what not in (LATENCY, RTT):
        return None
    if is_number and not unit:
        example = "ms" if what in (LATENCY, RTT) else "Gbit/s"
        raise InputError(f"{shown(text)} has no unit; write it in the header, as in {what} ({example})", where)
    try:
        if what in (LATENCY, RTT):
            return parse_time(f"{cell}{time_unit(unit)}" if is_number else cell)
        return parse_bandwidth(f"{cell}{bandwidth_unit(unit)}" if is_number else cell)
    except InputError as error:
        raise InputError(str(error), where) from None


def single(columns: list[Column], what: str, end: str, table: Table) -> Column | None:
    """The one column of a kind, None if there is none; InputError if there are two."""
    fitting = [c for c in columns if c.what == what and c.end == end]
    if len(fitting) > 1:
        titles = " and ".join(shown(c.title) for c in fitting[:2])
        raise InputError(f"{titles} both name the {end + ' ' if end else ''}{what}; keep one", table.where)
    return fitting[0] if fitting else None


def unused(table: Table, used: Mapping[str, Column | None]) -> list[str]:
    """The titles of the columns that were not read."""
    read = {column.index for column in used.values() if column is not None}
    return [title for index, title in enumerate(table.header) if index not in read and title]
