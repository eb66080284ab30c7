"""Chrome trace events: a track a link and a slice a transfer, as ui.perfetto.dev opens them.

The format: "Trace Event Format", JSON object form. Times are microseconds.
"""

from __future__ import annotations

import json

import numpy as np

from ..timeline import Timeline
from . import written_whole

LINKS, RANKS = 1, 2


def write(timeline: Timeline, path: str) -> None:
    """Write the course of a plan, event by event."""
    plan = timeline.plan
    topology = plan.topology
    with written_whole(path) as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        names = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": text}} for pid, text in
                 ((LINKS, "links"), (RANKS, "delivered"))]  # fmt: skip
        for link in map(int, np.unique(plan.route.values)):
            name = topology.link_name(link)
            names.append({"ph": "M", "pid": LINKS, "tid": link, "name": "thread_name", "args": {"name": name}})
        file.write(",\n".join(json.dumps(event) for event in names))
        for k in range(plan.transfer_count):
            duration_us = (timeline.finish_s[k] - timeline.start_s[k]) * 1e6
            arguments = {
                "transfer": k,
                "src": topology.names[plan.src[k]],
                "dst": [topology.names[v] for v in plan.dst[k]],
                "bytes": int(plan.size_bytes[k]),
                "depends": plan.depends[k].tolist(),
            }
            for i in range(int(plan.route.offsets[k]), int(plan.route.offsets[k + 1])):
                event = {
                    "ph": "X",
                    "pid": LINKS,
                    "tid": int(plan.route.values[i]),
                    "name": f"chunk {plan.chunk[k]}",
                    "ts": (timeline.start_s[k] + timeline.hop_offset_s[i]) * 1e6,
                    "dur": duration_us,
                    "args": arguments,
                }
                file.write(",\n" + json.dumps(event))
        order = np.argsort(timeline.arrival_s, kind="stable")
        arrived = np.cumsum(plan.size_bytes[plan.dst.owners][order])
        for i, total in zip(order, arrived, strict=True):
            event = {
                "ph": "C",
                "pid": RANKS,
                "name": "delivered bytes",
                "ts": timeline.arrival_s[i] * 1e6,
                "args": {"bytes": int(total)},
            }
            file.write(",\n" + json.dumps(event))
        file.write("\n]}\n")
