"""CSV: one row for each receiver of a transfer, with the simulated times.

Rows are made and written block by block, so a plan by symmetry is never expanded.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..model.arrays import Ragged
from ..model.rows import Rows, moments_of
from ..model.timeline import Timeline
from . import atomic_file
from .blocks import blocks_of


def write(timeline: Timeline, path: str, ranks: Sequence[int] | None = None) -> None:
    """Write the transfers of a plan, or those of some ranks; a multicast has one row for each receiver."""
    with atomic_file(path) as file:
        lines = csv.writer(file, lineterminator="\n")
        for number, block in enumerate(blocks_of(timeline.plan, ranks)):
            table = columns(timeline, block)
            if not number:
                lines.writerow(table)
            lines.writerows(zip(*table.values(), strict=True))


def columns(timeline: Timeline, rows: Rows) -> dict[str, list[Any]]:
    """By name the columns of the table for some transfers, each with a value for each receiver of each transfer."""
    net, moments = rows.plan.topology, moments_of(timeline, rows)
    transfer = rows.dst.owners
    each = transfer.tolist()
    link_name = {link: net.link_name(link) for link in np.unique(rows.route.values).tolist()}
    routes = _texts(rows.route, link_name.__getitem__)
    depends = _texts(rows.depends, str)
    senders = _texts(rows.sources, net.names.__getitem__)
    message = rows.base.message
    numbers = {} if message is None else {"message": message[rows.row[transfer]].tolist()}
    return {
        "transfer": rows.number[transfer].tolist(),
        "chunk": rows.chunk[transfer].tolist(),
        "op": [("copy", "reduce")[op] for op in rows.op[transfer].tolist()],
        "src": [senders[k] for k in each],
        "dst": [net.names[v] for v in rows.dst.values.tolist()],
        "size_bytes": rows.size_bytes[transfer].tolist(),
        "route": [routes[k] for k in each],
        "depends": [depends[k] for k in each],
        "start_s": moments.start_s[transfer].tolist(),
        "finish_s": moments.finish_s[transfer].tolist(),
        "arrival_s": moments.arrival_s.tolist(),
        **numbers,
    }


def _texts(lists: Ragged, name: Callable[[int], str]) -> list[str]:
    """The names of the values of each list, with a space between two."""
    names = list(map(name, lists.values.tolist()))
    return [" ".join(names[a:b]) for a, b in pairwise(lists.offsets.tolist())]
