"""Optical planes on the page: when each plane carries data, and when it turns."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.plan import Plan
from ..model.timeline import Timeline


def uses_planes(plan: Plan) -> bool:
    """Whether any transfer goes over an optical plane."""
    return plan.plane is not None and bool((plan.plane >= 0).any())


def planes_data(timeline: Timeline) -> dict[str, Any]:
    """``planes``, see :func:`plane_rows`, and ``matchings``: of each the nodes that its circuits join, from, to, ..."""
    rows, matchings = _read(timeline)
    return {"planes": rows, "matchings": [np.ravel(pairs).tolist() for pairs in matchings]}


def plane_rows(timeline: Timeline) -> list[dict[str, Any]]:
    """For each plane its transmissions and turns: ``[begin, end, matching, words]``, matching -1 for a turn.

    A transmission is everything that the plane carries of one group, latency included. Matchings are
    numbered in the order in which the plan first uses them.
    """
    return _read(timeline)[0]


def _read(timeline: Timeline) -> tuple[list[dict[str, Any]], list[Int64]]:
    """The rows of planes, and of each matching int64[circuits, 2] its nodes."""
    plan = timeline.plan
    rows: list[dict[str, Any]] = []
    numbers: dict[bytes, int] = {}
    pairs: list[Int64] = []
    for p, plane in enumerate(plan.topology.planes):
        carried = np.flatnonzero(plan.plane == p) if plan.plane is not None else np.zeros(0, dtype=np.int64)
        group = plan.group[carried] if plan.group is not None else carried
        turns = np.flatnonzero(plan.turns.plane == p)
        matchings = [plane.matching, *(plan.turns.matching[i] for i in turns)]
        parts: list[list[Any]] = []
        for g in np.unique(group):
            members = carried[group == g]
            now = matchings[int(np.searchsorted(plan.turns.before[turns], members[0], side="right"))]
            number = numbers.setdefault(now.tobytes(), len(numbers))
            if number == len(pairs):
                joined = np.flatnonzero(now >= 0)
                pairs.append(np.column_stack((plane.nodes[joined], plane.nodes[now[joined]])).astype(np.int64))
            total = int(plan.size_bytes[members].sum())
            begin = float(timeline.start_s[members].min())
            end = float(timeline.finish_s[members].max()) + plane.latency_s
            parts.append(
                [begin, end, number, f"step {g}, {total} bytes over {len(np.unique(plan.src[members]))} circuits"]
            )
        for begin, end in zip(timeline.turn_start_s[turns].tolist(), timeline.turn_end_s[turns].tolist(), strict=True):
            if end > begin:
                parts.append([begin, end, -1, "turns"])
        rows.append({"name": f"plane {p}", "parts": sorted(parts)})
    return rows, pairs


def chain_over_planes(timeline: Timeline) -> dict[str, Any]:
    """Where the time went in a plan on planes: step by step, along the plane that ends last.

    In the form of :func:`stretto.report.critical.critical_path`; idle is the time in which that plane waited for turns.
    """
    plan = timeline.plan
    assert plan.plane is not None
    latency_s = np.array([p.latency_s for p in plan.topology.planes])[plan.plane]
    ends = timeline.finish_s + latency_s
    spent = {"latency": 0.0, "busy": 0.0, "message": 0.0, "idle": 0.0}
    on_plane: defaultdict[int, Float64] = defaultdict(lambda: np.zeros(2))
    until = timeline.completion_s
    while until > 0:
        before = np.flatnonzero(ends <= until * (1 + 1e-9))
        if not len(before):
            break
        k = int(before[np.argmax(ends[before])])
        group = -1 if plan.group is None else plan.group[k]
        same = (plan.plane == plan.plane[k]) & ((plan.group == group) if plan.group is not None else ends == ends[k])
        begin = float(timeline.start_s[same].min())
        spent["idle"] += max(until - float(ends[k]), 0.0)
        busy, late = float(timeline.finish_s[k]) - begin, float(latency_s[k])
        spent["busy"] += busy
        spent["latency"] += late
        on_plane[int(plan.plane[k])] += [busy, late]
        until = begin
    spent["idle"] += until
    ranked = sorted(on_plane.items(), key=lambda item: -item[1][0])
    names = [{"link": f"plane {p}", "seconds": float(busy), "latency": float(late)} for p, (busy, late) in ranked[:12]]
    return {**spent, "links": names, "complete": True}
