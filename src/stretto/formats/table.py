"""CSV: one row for each receiver of a transfer, with the simulated times."""

from __future__ import annotations

import csv

from ..model.timeline import Timeline
from . import atomic_file

HEADER = ("transfer", "chunk", "op", "src", "dst", "size_bytes", "route", "depends", "start_s", "finish_s", "arrival_s")


def write(timeline: Timeline, path: str) -> None:
    """Write the transfers of a plan; a multicast has one row for each receiver."""
    plan = timeline.plan
    names = plan.topology.names
    with atomic_file(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(HEADER)
        for k in range(plan.transfer_count):
            route = " ".join(plan.topology.link_name(link) for link in plan.route[k])
            depends = " ".join(map(str, plan.depends[k]))
            op = ("copy", "reduce")[plan.op[k]]
            for i in range(int(plan.dst.offsets[k]), int(plan.dst.offsets[k + 1])):
                times = (timeline.start_s[k], timeline.finish_s[k], timeline.arrival_s[i])
                rows.writerow(
                    (k, plan.chunk[k], op, names[plan.src[k]], names[plan.dst.values[i]], plan.size_bytes[k], route)
                    + (depends, *(repr(float(t)) for t in times))
                )
