"""Chrome trace events for ui.perfetto.dev: one track a link, one slice a transfer.

The format: "Trace Event Format", JSON object form. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..model.arrays import Float64
from ..model.rows import Moments, Rows, moments_of
from ..model.timeline import Timeline
from . import atomic_file
from .blocks import blocks_of

LINKS, RANKS, PLANES = 1, 2, 3


def write(timeline: Timeline, path: str, ranks: Sequence[int] | None = None) -> None:
    """Write the timeline of a plan, or of what some ranks send and receive, event by event."""
    plan = timeline.plan
    topology = plan.topology
    links = np.zeros(topology.link_count, dtype=np.bool_)
    arrived: list[tuple[Float64, Float64]] = []
    with atomic_file(path) as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        groups = [_group(LINKS, "links"), _group(RANKS, "delivered")]
        groups += [_group(PLANES, "planes")] * bool(topology.planes)
        file.write(",\n".join(map(json.dumps, groups)))
        for block in blocks_of(plan, ranks):
            moments = moments_of(timeline, block)
            for event in chain(_on_links(block, moments), _on_planes(block, moments)):
                file.write(",\n" + json.dumps(event))
            links[block.route.values] = True
            sizes = block.size_bytes[block.dst.owners]
            at_s, which = np.unique(moments.arrival_s, return_inverse=True)
            arrived.append((at_s, np.bincount(which, weights=sizes).astype(np.float64)))
        tracks = [_track(LINKS, link, topology.link_name(link)) for link in np.flatnonzero(links).tolist()]
        for event in chain(tracks, _turns(timeline), _delivered(arrived)):
            file.write(",\n" + json.dumps(event))
        file.write("\n]}\n")


def _on_links(block: Rows, moments: Moments) -> Iterator[dict[str, Any]]:
    """A slice for each link of each transfer."""
    names, route = block.plan.topology.names, block.route
    duration_us = ((moments.finish_s - moments.start_s) * 1e6).tolist()
    start_us = (moments.start_s[route.owners] + moments.hop_offset_s) * 1e6
    hops = list(zip(route.values.tolist(), start_us.tolist(), strict=True))
    for k, number in enumerate(block.number.tolist()):
        chunk = int(block.chunk[k])
        ends: dict[str, Any] = {"src": names[block.src[k]], "dst": [names[v] for v in block.dst[k]]}
        if len(block.sources[k]) > 1:
            ends["sources"] = [names[v] for v in block.sources[k]]
        content = {"bytes": int(block.size_bytes[k]), "depends": block.depends[k].tolist()}
        for link, at_us in hops[route.offsets[k] : route.offsets[k + 1]]:
            event = _slice(LINKS, link, f"chunk {chunk}", at_us, duration_us[k])
            yield event | {"args": {"transfer": number} | ends | content}


def _on_planes(block: Rows, moments: Moments) -> Iterator[dict[str, Any]]:
    """One track for each port of a plane, with its transfers."""
    plane = block.base.plane
    if plane is None:
        return
    width = block.plan.topology.node_count + 1
    for k, on in enumerate(plane[block.row].tolist()):
        if on >= 0:
            duration_us = float(moments.finish_s[k] - moments.start_s[k]) * 1e6
            start_us = float(moments.start_s[k]) * 1e6
            yield _slice(PLANES, on * width + 1 + int(block.src[k]), f"chunk {block.chunk[k]}", start_us, duration_us)


def _turns(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """One track for each plane, with its turns."""
    plan = timeline.plan
    width = plan.topology.node_count + 1
    for p in range(len(plan.topology.planes)):
        yield _track(PLANES, p * width, f"plane {p} turns")
    for p, start_s, end_s in zip(
        plan.turns.plane.tolist(), timeline.turn_start_s.tolist(), timeline.turn_end_s.tolist(), strict=True
    ):
        if end_s > start_s:
            yield _slice(PLANES, p * width, "turn", start_s * 1e6, (end_s - start_s) * 1e6)


def _delivered(arrived: list[tuple[Float64, Float64]]) -> Iterator[dict[str, Any]]:
    """A counter: at each moment of an arrival the bytes that have arrived by then.

    Args:
        arrived: for each block the moments, seconds, and the bytes that arrive at each.
    """
    at_s, which = np.unique(np.concatenate([moments for moments, _ in arrived]), return_inverse=True)
    total = np.cumsum(np.bincount(which, weights=np.concatenate([sizes for _, sizes in arrived])))
    for moment_s, sum_bytes in zip(at_s.tolist(), total.tolist(), strict=True):
        event = {"ph": "C", "pid": RANKS, "name": "delivered bytes", "ts": moment_s * 1e6}
        yield event | {"args": {"bytes": int(sum_bytes)}}


def _group(group: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": group, "name": "process_name", "args": {"name": name}}


def _track(group: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": group, "tid": track, "name": "thread_name", "args": {"name": name}}


def _slice(group: int, track: int, name: str, start_us: float, duration_us: float) -> dict[str, Any]:
    return {"ph": "X", "pid": group, "tid": track, "name": name, "ts": start_us, "dur": duration_us}
