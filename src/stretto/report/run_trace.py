"""A run on optical planes as a trace for ui.perfetto.dev: what each plane joined and carried, and what each rank did.

The rows of planes are figure 5 of the SWOT paper, with measured times: from when to when each plane had which matching
(``C1``, ``C2``, ..., in the order of their first use), the steps that it carried, and its turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..formats import atomic_file
from ..model.plan import Plan
from ..model.timeline import Timeline
from .planes import plane_rows

PLANES, RANKS = 1, 2

Wait = tuple[int, float, float]
"""A transfer that waited for its circuit, from when to when, seconds."""


def write_run(timeline: Timeline, waits: Iterable[Wait], path: str) -> None:
    """Write the course of a run over optical planes as Chrome trace events.

    Args:
        timeline: with measured times.
        waits: the transfers that waited for nothing but their circuits.
    Raises:
        InputError: the file cannot be written.
    """
    events = [_named(PLANES, None, "planes"), _named(RANKS, None, "ranks")]
    events += [*_planes(timeline), *_ranks(timeline, waits)]
    with atomic_file(path) as file:
        json.dump({"displayTimeUnit": "ms", "traceEvents": events}, file)
        file.write("\n")


def _planes(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """One track for each plane: its matchings, in them the steps that it carries, and its turns."""
    plan = timeline.plan
    for p, row in enumerate(plane_rows(timeline)):
        yield _named(PLANES, p, row["name"])
        own = np.flatnonzero(plan.turns.plane == p)
        edges = [0.0, *timeline.turn_start_s[own].tolist(), timeline.completion_s]
        ups = [0.0, *timeline.turn_end_s[own].tolist()]
        steps = [part for part in row["parts"] if part[2] >= 0]
        for up_s, down_s in zip(ups, edges[1:], strict=True):
            held = [part for part in steps if up_s <= part[0] < down_s]
            if held:
                yield _slice(PLANES, p, f"C{held[0][2] + 1} up", up_s, max(down_s, held[-1][1]))
            for begin_s, end_s, _, words in held:
                yield _slice(PLANES, p, words, begin_s, end_s)
        for begin_s, end_s, matching, _ in row["parts"]:
            if matching < 0:
                yield _slice(PLANES, p, "turns", begin_s, end_s)


def _ranks(timeline: Timeline, waits: Iterable[Wait]) -> Iterator[dict[str, Any]]:
    """For each rank and plane what it sent, and when it waited for a circuit."""
    plan, names = timeline.plan, timeline.plan.topology.names
    assert plan.plane is not None
    spans: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    for k in np.flatnonzero(plan.plane >= 0).tolist():
        to = ", ".join(names[v] for v in plan.dst[k].tolist())
        words = f"chunk {plan.chunk[k]} to {to}, {plan.size_bytes[k]} bytes"
        port = int(plan.src[k]), int(plan.plane[k])
        spans.setdefault(port, []).append((float(timeline.start_s[k]), float(timeline.finish_s[k]), words))
    for (v, p), since, until in merged(plan, waits):
        spans.setdefault((v, p), []).append((since, until, "waits for its circuit"))
    tracks = 0
    for (v, p), of_port in sorted(spans.items()):
        for lane in _lanes(of_port):
            yield _named(RANKS, tracks, f"{names[v]} on plane {p}")
            for begin_s, end_s, words in lane:
                yield _slice(RANKS, tracks, words, begin_s, end_s)
            tracks += 1


def merged(plan: Plan, waits: Iterable[Wait]) -> list[tuple[tuple[int, int], float, float]]:
    """For each node and plane, by these, the times in which some transfer waited for its circuit there."""
    assert plan.plane is not None
    waiting = sorted((int(plan.src[k]), int(plan.plane[k]), since, until) for k, since, until in waits)
    found: list[tuple[tuple[int, int], float, float]] = []
    for v, p, since, until in waiting:
        if found and found[-1][0] == (v, p) and since <= found[-1][2]:
            found[-1] = (v, p), found[-1][1], max(found[-1][2], until)
        else:
            found.append(((v, p), since, until))
    return found


def _lanes(spans: Sequence[tuple[float, float, str]]) -> list[list[tuple[float, float, str]]]:
    """Spans of time in rows in which none overlap."""
    lanes: list[list[tuple[float, float, str]]] = []
    for span in sorted(spans):
        lane = next((lane for lane in lanes if lane[-1][1] <= span[0]), None)
        if lane is None:
            lanes.append([span])
        else:
            lane.append(span)
    return lanes


def _named(group: int, track: int | None, name: str) -> dict[str, Any]:
    if track is None:
        return {"ph": "M", "pid": group, "name": "process_name", "args": {"name": name}}
    return {"ph": "M", "pid": group, "tid": track, "name": "thread_name", "args": {"name": name}}


def _slice(group: int, track: int, name: str, begin_s: float, end_s: float) -> dict[str, Any]:
    return {"ph": "X", "pid": group, "tid": track, "name": name, "ts": begin_s * 1e6, "dur": (end_s - begin_s) * 1e6}
