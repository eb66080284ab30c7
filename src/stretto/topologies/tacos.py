"""TACOS's CSV: the number of NPUs, a header, then a row a directed link.

4
Src,Dest,Latency (ns),Bandwidth (GB/s)
0,1,500,50
"""

from __future__ import annotations

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, Topology, make_topology
from . import MOST_NODES
from .tables import Table
from .values import count, parse_csv, real

MOST_ROWS = 1_000_000


def fits(table: Table) -> bool:
    """Whether the first line is one whole number."""
    return table.header[0].isdigit() and not any(table.header[1:])


def parse(text: str, where: str) -> Topology:
    """The topology of the rows."""
    lines = parse_csv(text, where, most_rows=MOST_ROWS)
    if not lines:
        raise InputError("is empty; TACOS's CSV begins with the number of NPUs", where)
    nodes = count(lines[0][1][0], "the number of NPUs in line 1", where, 2, MOST_NODES)
    body = lines[2:] if len(lines) > 1 and not lines[1][1][0].isdigit() else lines[1:]
    links = []
    for line, row in body:
        place = f"{where}, line {line}"
        if len(row) < 4:
            raise InputError("needs four values: source, destination, latency in ns, bandwidth in GB/s", place)
        a, b = (count(cell, what, place, 0, nodes - 1) for cell, what in zip(row, ("source", "destination")))
        links.append((a, b, real(row[3], "bandwidth", place, above=True) * 1e9, real(row[2], "latency", place) / 1e9))
    return make_topology("tacos", [ACCELERATOR] * nodes, links, where=where)
