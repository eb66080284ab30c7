"""A CSV of pairs: a row for what was measured, or installed, from one node to another.

src,dst,bandwidth_Gbps,rtt_ms
paris,tokyo,1.2,240

Names of columns and units are those of :mod:`tables`. A round-trip time is halved. Where no pair is given both ways,
rows are taken for both directions. Sites and what a node may send and receive in all are further columns (``src_site``,
``dst_site``, ``src_cap``, ``dst_cap``), or a second table of nodes (``?nodes=FILE``), which also has caps of sites.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

from ..model.errors import InputError
from ..model.topology import Topology
from ..model.units import parse_bandwidth
from . import check_size
from .caps import Ends, Network
from .tables import (
    BANDWIDTH,
    CAP,
    DOWNLINK,
    DST,
    LATENCY,
    NODE,
    RTT,
    SITE,
    SRC,
    UPLINK,
    Column,
    Table,
    known_columns,
    misspelt,
    quantity,
    read_table,
    single,
    unused,
)  # fmt: skip
from .values import one_line, read_text, shown

MEASURED = (BANDWIDTH, LATENCY, RTT)
CAPS = (UPLINK, DOWNLINK, CAP)
OF_PAIRS = frozenset(((SRC, SRC), (DST, DST), *product(MEASURED, ("",)), *product((SITE, *CAPS), (SRC, DST))))
OF_NODES = frozenset((what, "") for what in (NODE, SITE, *CAPS))
"""What is read of tables of pairs and of nodes: what a column holds, and of which end of a pair."""


def fits(table: Table) -> bool:
    """Whether the header names a source and a destination."""
    whats = {column.what for column in known_columns(table.header)}
    return {SRC, DST} <= whats


def parse(table: Table, settings: dict[str, Any]) -> Topology:
    """The topology of the rows.

    Args:
        settings: ``nodes`` (the path of a table of nodes), ``directed`` (whether rows are taken as they are), ``unit``
            (of bandwidths that have none), ``bandwidth`` and ``latency`` of all links, or None.
    """
    if "at_s" in table.header:
        raise InputError(
            "line 1: has a column at_s: it says how a topology's bandwidths change, and is none", table.where
        )
    columns = known_columns(table.header)
    if len(columns) < len(table.header) and (wrong := misspelt(table.header, OF_PAIRS)):
        raise InputError(wrong, table.where)
    ends = {end: single(columns, end, end, table) for end in (SRC, DST)}
    measured = {what: single(columns, what, "", table) for what in MEASURED}
    more = {(what, end): single(columns, what, end, table) for what in (SITE, *CAPS) for end in (SRC, DST)}
    if measured[LATENCY] and measured[RTT]:
        measured[RTT] = None
    if measured[BANDWIDTH] is None and settings["bandwidth"] is None:
        titles = ", ".join(map(shown, table.header))
        raise InputError(f"has no column of bandwidths, such as bandwidth_Gbps; its columns are {titles}", table.where)
    network = Network(table.where)
    seen: dict[tuple[str, str], int] = {}
    about = {end: {what: c for (what, e), c in more.items() if e == end and c is not None} for end in (SRC, DST)}
    for line, row in table.rows:
        table.check_width(line, row)
        a, b = (_name(table, row, line, ends[end]) for end in (SRC, DST))
        if (a, b) in seen:
            raise InputError(f"{shown(a)} to {shown(b)} stands in line {seen[a, b]} already", table.place(line))
        seen[a, b] = line
        values = {what: _value(table, row, line, column, settings) for what, column in measured.items()}
        for end, name in ((SRC, a), (DST, b)):
            if about[end]:
                _about(network, name, table, row, line, about[end], settings)
        width = settings["bandwidth"] or values[BANDWIDTH]
        rtt = values[RTT]
        network.add(a, b, width, rtt / 2 if rtt is not None else values[LATENCY])
    check_size(2 * len(network.nodes), 2 * len(network.pairs), table.where)
    _directions(network, settings["directed"])
    left = unused(table, ends | measured | {str(k): c for k, c in more.items()})
    if left:
        network.notes.append(f"columns left out: {one_line(', '.join(left))[:200]}")
    if measured[RTT] is not None:
        network.notes.append("latencies are half of the round-trip times")
    if settings["nodes"] is not None:
        read_nodes(network, settings["nodes"], settings)
    return network.topology(settings)


_clean = lru_cache(100_000)(one_line)


def _name(table: Table, row: list[str], line: int, column: Column | None) -> str:
    assert column is not None
    name = _clean(table.cell(row, column))
    if not name:
        raise InputError(f"the {column.what} is empty", table.place(line, column.title))
    return name


def _value(table: Table, row: list[str], line: int, column: Column | None, settings: dict[str, Any]) -> float | None:
    if column is None:
        return None
    unit = column.unit or (settings["unit"] or "" if column.what not in (LATENCY, RTT) else "")
    try:
        return quantity(table.cell(row, column), unit, column.what, None, table.delimiter == ";")
    except InputError as error:
        raise InputError(str(error), table.place(line, column.title)) from None


def _about(
    network: Network, name: str, table: Table, row: list[str], line: int, columns: dict[str, Column],
    settings: dict[str, Any],
) -> None:  # fmt: skip
    """Notes what a row says of a node besides its pairs; InputError where another row says otherwise.

    ``src_cap`` is what the source may send in all, ``dst_cap`` what the destination may receive.
    """
    ends = network.nodes.setdefault(name, Ends())
    for what, column in columns.items():
        place = table.place(line, column.title)
        if what == SITE:
            ends.set("site", one_line(table.cell(row, column)) or None, name, place)
        else:
            down = what == DOWNLINK or (what == CAP and column.end == DST)
            ends.set("down" if down else "up", _value(table, row, line, column, settings), name, place)


def _directions(network: Network, directed: bool | None) -> None:
    """Adds the way back where rows are taken for both directions: as asked, else where no row has a reverse."""
    both = sum((b, a) in network.pairs for a, b in network.pairs)
    if directed is False or (directed is None and not both):
        for (a, b), value in [*network.pairs.items()]:
            network.pairs.setdefault((b, a), value)
        why = ", since no pair is given both ways; else ?directed=true" if directed is None else ""
        network.notes.append("a row is taken for both directions" + why)
    elif 0 < both < len(network.pairs):
        network.notes.append(f"pairs given one way only: {len(network.pairs) - both}")


def read_nodes(network: Network, path: str, settings: dict[str, Any]) -> None:
    """Adds what a table of nodes says: ``node``, ``site``, ``uplink``, ``downlink``; without a node, the site's caps.

    Raises:
        InputError: the table cannot be read, names a node without a pair, or says two things of one.
    """
    table = read_table(read_text(path), path)
    columns = known_columns(table.header)
    if len(columns) < len(table.header) and (wrong := misspelt(table.header, OF_NODES)):
        raise InputError(wrong, path)
    node, site = single(columns, NODE, "", table), single(columns, SITE, "", table)
    if node is None and site is None:
        titles = ", ".join(map(shown, table.header))
        raise InputError(f"line 1: has no column node or site; its columns are {titles}", path)
    both = single(columns, CAP, "", table)
    sides = {"up": single(columns, UPLINK, "", table) or both, "down": single(columns, DOWNLINK, "", table) or both}
    for line, row in table.rows:
        table.check_width(line, row)
        name, group = (one_line(table.cell(row, c)) if c else "" for c in (node, site))
        if not name and not group:
            raise InputError("names neither a node nor a site", table.place(line))
        if name and name not in network.nodes:
            raise InputError(
                f"{shown(name)} has no pair in {network.where}", table.place(line, node.title if node else None)
            )
        about = network.nodes[name] if name else network.sites.setdefault(group, Ends())
        if name and group:
            about.set("site", group, name, table.place(line, site.title if site else None))
        for side, column in sides.items():
            if column is not None:
                value = _value(table, row, line, column, settings)
                about.set(side, value, name or group, table.place(line, column.title))


def parse_unit(text: str, where: str) -> str:
    """The setting ``unit``: a unit of bandwidths."""
    parse_bandwidth(f"1{text}", where)
    return text
