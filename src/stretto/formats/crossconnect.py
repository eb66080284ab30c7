"""Cross-connect lists: which ports each optical circuit switch joins when, for the people who run it.

JSON holds for each switch its turns in order, with the circuits that each makes, breaks and keeps, and its slack: how
late it could be before a transfer waits for it. CSV has one row for each circuit that is made or broken. A circuit has
one direction: from the sender's port to the receiver's.
"""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np

from ..model.circuits import change, circuits_of
from ..model.errors import InputError
from ..model.timeline import Timeline
from . import atomic_file

FORMAT, VERSION = "stretto-cross-connects", 1
HEADER = ("switch", "turn", "start_s", "end_s", "slack_s", "action", "in_port", "out_port", "from", "to")


def switches_of(timeline: Timeline, path: str) -> list[dict[str, Any]]:
    """For each plane of a simulated plan its ports, its first circuits and its turns, in order."""
    plan = timeline.plan
    if not plan.topology.planes:
        raise InputError("the plan has no optical planes, so there is nothing to cross-connect", path)
    found = []
    for p, plane in enumerate(plan.topology.planes):
        now = plane.matching
        turns = []
        for i in np.flatnonzero(plan.turns.plane == p).tolist():
            then = np.asarray(plan.turns.matching[i], dtype=np.int32)
            start, end = float(timeline.turn_start_s[i]), float(timeline.turn_end_s[i])
            breaks, makes, keeps = change(now, then)
            ends = {"start_s": start, "end_s": end, "slack_s": _slack(timeline, p, i, end)}
            turns.append({**ends, "break": breaks, "make": makes, "keep": keeps})
            now = then
        ports = [plan.topology.names[v] for v in plane.nodes]
        initial = circuits_of(plane.matching)
        found.append({"switch": p, "ports": ports, "reconfiguration_s": plane.reconfiguration_s, "initial": initial,
                      "turns": turns})  # fmt: skip
    return found


def _slack(timeline: Timeline, plane: int, turn: int, ends_s: float) -> float | None:
    """Seconds by which a turn could end later without delaying a transfer; None if no transfer needs it."""
    plan = timeline.plan
    assert plan.plane is not None
    after = plan.plane == plane
    after[: plan.turns.before[turn]] = False
    return max(0.0, float(timeline.start_s[after].min()) - ends_s) if after.any() else None


def write_json(timeline: Timeline, path: str) -> None:
    """Write the cross-connects of every switch."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "topology": timeline.plan.topology.name,
        "completion_s": timeline.completion_s,
        "switches": switches_of(timeline, path),
    }
    with atomic_file(path) as file:
        json.dump(document, file)
        file.write("\n")


def write_csv(timeline: Timeline, path: str) -> None:
    """Write one row for each circuit that is made or broken, by switch and time."""
    with atomic_file(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(HEADER)
        for switch in switches_of(timeline, path):
            names = switch["ports"]
            for number, turn in enumerate(switch["turns"]):
                for action in ("break", "make"):
                    for a, b in turn[action]:
                        when = (repr(turn["start_s"]), repr(turn["end_s"]), turn["slack_s"])
                        rows.writerow((switch["switch"], number, *when, action, a, b, names[a], names[b]))
