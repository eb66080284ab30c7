"""Chrome trace events for ui.perfetto.dev: one track a link, one slice a transfer.

The format: "Trace Event Format", JSON object form. Times are microseconds.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..model.timeline import Timeline
from . import atomic_file

LINKS, RANKS, PLANES = 1, 2, 3


def write(timeline: Timeline, path: str) -> None:
    """Write the timeline of a plan, event by event."""
    plan = timeline.plan
    topology = plan.topology
    with atomic_file(path) as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        names = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": text}} for pid, text in
                 ((LINKS, "links"), (RANKS, "delivered"))]  # fmt: skip
        for link in map(int, np.unique(plan.route.values)):
            name = topology.link_name(link)
            names.append({"ph": "M", "pid": LINKS, "tid": link, "name": "thread_name", "args": {"name": name}})
        if topology.planes:
            names.append({"ph": "M", "pid": PLANES, "name": "process_name", "args": {"name": "planes"}})
        file.write(",\n".join(json.dumps(event) for event in names + _on_planes(timeline)))
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


def _on_planes(timeline: Timeline) -> list[dict[str, Any]]:
    """One track for each port of a plane with its transfers, and one for each plane with its turns."""
    plan = timeline.plan
    events: list[dict[str, Any]] = []

    def slice_of(track: int, name: str, start_s: float, seconds: float) -> None:
        events.append({"ph": "X", "pid": PLANES, "tid": track, "name": name, "ts": start_s * 1e6, "dur": seconds * 1e6})

    width = plan.topology.node_count + 1
    for p, turn in enumerate(plan.topology.planes):
        events.append(
            {"ph": "M", "pid": PLANES, "tid": p * width, "name": "thread_name", "args": {"name": f"plane {p} turns"}}
        )
        own = np.flatnonzero(plan.turns.plane == p)
        for i in own[1:] if (turn.matching < 0).all() else own:
            slice_of(p * width, "turn", float(timeline.turn_start_s[i]), turn.reconfiguration_s)
    for k in np.flatnonzero(plan.plane >= 0).tolist() if plan.plane is not None else ():
        assert plan.plane is not None
        track = int(plan.plane[k]) * width + 1 + int(plan.src[k])
        took = float(timeline.finish_s[k] - timeline.start_s[k])
        slice_of(track, f"chunk {plan.chunk[k]}", float(timeline.start_s[k]), took)
    return events
