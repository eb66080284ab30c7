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
        names = [_group(LINKS, "links"), _group(RANKS, "delivered")]
        names += [_track(LINKS, link, topology.link_name(link)) for link in map(int, np.unique(plan.route.values))]
        names += [_group(PLANES, "planes")] * bool(topology.planes)
        file.write(",\n".join(json.dumps(event) for event in names + _on_planes(timeline)))
        for k in range(plan.transfer_count):
            duration_us = (timeline.finish_s[k] - timeline.start_s[k]) * 1e6
            ends = {"src": topology.names[plan.src[k]], "dst": [topology.names[v] for v in plan.dst[k]]}
            if len(plan.sources[k]) > 1:
                ends["sources"] = [topology.names[v] for v in plan.sources[k]]
            content = {"bytes": int(plan.size_bytes[k]), "depends": plan.depends[k].tolist()}
            for i in range(int(plan.route.offsets[k]), int(plan.route.offsets[k + 1])):
                start_us = (timeline.start_s[k] + timeline.hop_offset_s[i]) * 1e6
                event = _slice(LINKS, int(plan.route.values[i]), f"chunk {plan.chunk[k]}", start_us, duration_us)
                file.write(",\n" + json.dumps(event | {"args": {"transfer": k} | ends | content}))
        order = np.argsort(timeline.arrival_s, kind="stable")
        arrived = np.cumsum(plan.size_bytes[plan.dst.owners][order])
        for i, total in zip(order, arrived, strict=True):
            event = {"ph": "C", "pid": RANKS, "name": "delivered bytes", "ts": timeline.arrival_s[i] * 1e6}
            file.write(",\n" + json.dumps(event | {"args": {"bytes": int(total)}}))
        file.write("\n]}\n")


def _on_planes(timeline: Timeline) -> list[dict[str, Any]]:
    """One track for each port of a plane with its transfers, and one for each plane with its turns."""
    plan = timeline.plan
    events: list[dict[str, Any]] = []
    width = plan.topology.node_count + 1
    for p, turn in enumerate(plan.topology.planes):
        events.append(_track(PLANES, p * width, f"plane {p} turns"))
        own = np.flatnonzero(plan.turns.plane == p)
        for i in own[1:] if (turn.matching < 0).all() else own:
            start_us = float(timeline.turn_start_s[i]) * 1e6
            events.append(_slice(PLANES, p * width, "turn", start_us, turn.reconfiguration_s * 1e6))
    for k, plane in enumerate(plan.plane.tolist() if plan.plane is not None else ()):
        if plane >= 0:
            track = plane * width + 1 + int(plan.src[k])
            duration_us = float(timeline.finish_s[k] - timeline.start_s[k]) * 1e6
            start_us = float(timeline.start_s[k]) * 1e6
            events.append(_slice(PLANES, track, f"chunk {plan.chunk[k]}", start_us, duration_us))
    return events


def _group(group: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": group, "name": "process_name", "args": {"name": name}}


def _track(group: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": group, "tid": track, "name": "thread_name", "args": {"name": name}}


def _slice(group: int, track: int, name: str, start_us: float, duration_us: float) -> dict[str, Any]:
    return {"ph": "X", "pid": group, "tid": track, "name": name, "ts": start_us, "dur": duration_us}
