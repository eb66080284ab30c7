"""A CSV that is a matrix: names in the first row and in the first column, and what goes from the row's to the column's.

Gbit/s,paris,tokyo,texas
paris,,1.2,0.9
tokyo,1.1,,2
texas,0.9,2,

The unit stands in the corner, in every cell, or in ``?unit=``. Latencies are a second matrix, ``?latency=FILE``, whose
corner says ms, or ``rtt (ms)``, which is halved.
"""

from __future__ import annotations

from typing import Any

from ..model.errors import InputError
from ..model.topology import Topology
from . import check_size
from .caps import Names, Network
from .pairs import read_nodes
from .tables import BANDWIDTH, LATENCY, RTT, Table, known_columns, quantity, read_table, time_unit
from .values import one_line, read_text, shown

_TIMES = ("s", "ms", "us", "ns", "µs", "sec", "msec", "usec", "nsec")


def fits(table: Table) -> bool:
    """Whether the names of the rows are those of the columns, or at least two of them."""
    names = set(table.header[1:])
    rows = {row[0] for _, row in table.rows}
    return len(names) > 1 and len(names & rows) > 1


def parse(table: Table, settings: dict[str, Any]) -> Topology:
    """The topology of a matrix of bandwidths.

    Args:
        settings: ``latency`` (seconds of every link, or the path of a matrix of latencies), ``nodes``, ``unit`` and
            ``bandwidth`` as for pairs.
    """
    what, unit = _corner(table)
    if what in (LATENCY, RTT):
        hint = f"give one of bandwidths, and this as ?latency={table.where}"
        raise InputError(f"line 1: is a matrix of latencies, as {shown(table.header[0])} says; {hint}", table.where)
    widths = _cells(table, BANDWIDTH, unit or settings["unit"] or "")
    network = Network(table.where)
    latency = settings["latency"]
    delays: dict[Names, float] = {}
    if isinstance(latency, str):
        delays = _latencies(latency, {name for pair in widths for name in pair}, table.where)
        settings = settings | {"latency": None}
    for (a, b), width in widths.items():
        if a != b:
            network.add(a, b, settings["bandwidth"] or width, delays.get((a, b)))
    check_size(len(network.nodes), len(network.pairs), table.where)
    if settings["nodes"] is not None:
        read_nodes(network, settings["nodes"], settings)
    return network.topology(settings)


def _corner(table: Table) -> tuple[str, str]:
    """What the first cell says that the numbers are, and in which unit; a bandwidth without one if it says nothing."""
    title = table.header[0]
    if time_unit(title) in _TIMES:
        return LATENCY, title
    columns = [c for c in known_columns([title]) if c.what in (BANDWIDTH, LATENCY, RTT)]
    return (columns[0].what, columns[0].unit) if columns else (BANDWIDTH, "")


def _cells(table: Table, what: str, unit: str) -> dict[Names, float | None]:
    """The value of each pair, None where nothing was measured.

    Raises:
        InputError: a name stands twice or in a row alone, a row is too short or too long, or a cell is no number.
    """
    columns = [one_line(name) for name in table.header[1:]]
    while columns and not columns[-1]:
        columns.pop()
    check_size(len(columns), len(columns) ** 2, table.where)
    for i, name in enumerate(columns):
        if not name or name in columns[:i]:
            wrong = f"the name {shown(name)} stands twice" if name else "a name is missing"
            raise InputError(f"line 1, column {i + 2}: {wrong}", table.where)
    values: dict[Names, float | None] = {}
    seen: dict[str, int] = {}
    for line, row in table.rows:
        name = one_line(row[0])
        if name not in columns or name in seen:
            known = f"stands in line {seen[name]} already" if name in seen else f"is none of line 1's {len(columns)}"
            raise InputError(f"the name {shown(name)} {known}", table.place(line, "1"))
        seen[name] = line
        cells = row[1:]
        if len(cells) < len(columns) or any(cells[len(columns) :]):
            raise InputError(f"has {len(cells)} values for {len(columns)} columns", table.place(line))
        for other, cell in zip(columns, cells, strict=False):
            place = table.place(line, other)
            values[name, other] = None if name == other else quantity(cell, unit, what, place, table.delimiter == ";")
    lacking = next((name for name in columns if name not in seen), None)
    if lacking is not None:
        raise InputError(f"has a column {shown(lacking)} and no such row", table.where)
    return values


def _latencies(path: str, names: set[str], where: str) -> dict[Names, float]:
    """The latencies of a second matrix, seconds; InputError if it is of other names or of bandwidths."""
    table = read_table(read_text(path), path)
    if not fits(table):
        raise InputError("is no matrix: names in the first row and the first column", path)
    what, unit = _corner(table)
    if what == BANDWIDTH and unit:
        raise InputError(f"line 1: {shown(table.header[0])} is no unit of latencies (ms, us, rtt (ms))", path)
    what = LATENCY if what == BANDWIDTH else what
    values = _cells(table, what, unit)
    other = next((name for pair in values for name in pair if name not in names), None)
    if other is not None:
        raise InputError(f"has {shown(other)}, which is not in {where}", path)
    return {pair: value / 2 if what == RTT else value for pair, value in values.items() if value is not None}
