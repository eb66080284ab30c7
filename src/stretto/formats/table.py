"""CSV: one row for each receiver of a transfer, with the simulated times."""

from __future__ import annotations

import csv
from typing import Any

from ..model.timeline import Timeline
from . import atomic_file


def write(timeline: Timeline, path: str) -> None:
    """Write the transfers of a plan; a multicast has one row for each receiver."""
    table = columns(timeline)
    with atomic_file(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(table)
        rows.writerows(zip(*table.values(), strict=True))


def columns(timeline: Timeline) -> dict[str, list[Any]]:
    """By name the columns of the table, each with a value for each receiver of each transfer."""
    plan, net = timeline.plan, timeline.plan.topology
    transfer = plan.dst.owners
    each = transfer.tolist()
    links = [net.link_name(link) for link in range(net.link_count)]
    routes = [" ".join(links[link] for link in plan.route[k]) for k in range(plan.transfer_count)]
    depends = [" ".join(map(str, plan.depends[k])) for k in range(plan.transfer_count)]
    senders = [" ".join(net.names[v] for v in plan.sources[k]) for k in range(plan.transfer_count)]
    return {
        "transfer": each,
        "chunk": plan.chunk[transfer].tolist(),
        "op": [("copy", "reduce")[op] for op in plan.op[transfer].tolist()],
        "src": [senders[k] for k in each],
        "dst": [net.names[v] for v in plan.dst.values.tolist()],
        "size_bytes": plan.size_bytes[transfer].tolist(),
        "route": [routes[k] for k in each],
        "depends": [depends[k] for k in each],
        "start_s": timeline.start_s[transfer].tolist(),
        "finish_s": timeline.finish_s[transfer].tolist(),
        "arrival_s": timeline.arrival_s.tolist(),
    }
