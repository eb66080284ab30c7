"""What the verifier asks of optical planes: matchings, ports, turns, and barriers between groups.

Each check returns the first violation as (code, words, place), None where there is none. The code
is one of :data:`stretto.verify.CODES`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model.plan import Plan
from ..model.units import format_time

Float64 = NDArray[np.float64]
Wrong = tuple[str, str, dict[str, Any]]

TOLERANCE = 1e-9


class Circuits(NamedTuple):
    """The transfers of one plane, and how many turns it made before each."""

    plane: int
    rows: NDArray[np.int64]
    turns: NDArray[np.int64]
    epoch: NDArray[np.int64]


def _circuits(plan: Plan) -> list[Circuits]:
    found = []
    for p in range(len(plan.topology.planes)):
        rows = np.flatnonzero(plan.plane == p) if plan.plane is not None else np.zeros(0, dtype=np.int64)
        turns = np.flatnonzero(plan.turns.plane == p)
        made = np.zeros(len(rows), dtype=np.int64)
        for before in plan.turns.before[turns]:
            made += rows >= before
        found.append(Circuits(p, rows, turns, made))
    return found


def wrong_circuit(plan: Plan) -> Wrong | None:
    """Is every matching one, and does each transfer on a plane go from a port to the port matched to it?"""
    for i in range(plan.turns.count):
        joined = plan.turns.matching[i][plan.turns.matching[i] >= 0]
        if len(np.unique(joined)) != len(joined):
            words = f"turn {i} of plane {plan.turns.plane[i]} joins two ports to one"
            return "matching", words, {"time_s": float(plan.turns.start_s[i])}
    for plane, rows, turns, epoch in _circuits(plan):
        several = np.flatnonzero(plan.dst.lengths[rows] != 1)
        if len(several):
            return "no-circuit", "has several receivers, and a circuit has one", {"transfer": int(rows[several[0]])}
        if not len(rows):
            continue
        own = plan.topology.planes[plane]
        port = np.full(plan.topology.node_count, -1, dtype=np.int64)
        port[own.nodes] = np.arange(len(own.nodes))
        matchings = np.stack([own.matching, *(plan.turns.matching[t] for t in turns)])
        sends, receives = port[plan.src[rows]], port[plan.dst.values[plan.dst.offsets[rows]]]
        bad = np.flatnonzero((sends < 0) | (receives < 0) | (matchings[epoch, sends] != receives))
        if len(bad):
            k = int(rows[bad[0]])
            words = f"uses plane {plane}, which does not join these two after {epoch[bad[0]]} turns"
            return "no-circuit", words, {"transfer": k, "node": int(plan.src[k])}
    return None


def wrong_turn(plan: Plan, start_s: Float64, finish_s: Float64) -> Wrong | None:
    """In a timed plan: does a plane carry nothing while it turns?"""
    for plane, rows, turns, epoch in _circuits(plan):
        if not len(turns):
            continue
        own = plan.topology.planes[plane]
        takes = np.full(len(turns), own.reconfiguration_s)
        if (own.matching < 0).all():
            takes[0] = 0.0
        begins = plan.turns.start_s[turns]
        ends = begins + takes
        quiet = np.zeros(len(turns) + 1)
        np.maximum.at(quiet, epoch, finish_s[rows] + own.latency_s)
        free = np.maximum.accumulate(np.concatenate((quiet[:1], np.maximum(quiet[1:], ends))))
        early = np.flatnonzero(begins < free[:-1] * (1 - TOLERANCE))
        if len(early):
            i = int(early[0])
            when = float(begins[i])
            words = (
                f"turn {turns[i]} of plane {plane} begins at {format_time(when)}, before what the plane carries "
                f"has arrived at {format_time(float(free[i]))}"
            )
            return "turn", words, {"time_s": when}
        ready = np.concatenate(([0.0], ends))[epoch]
        early = np.flatnonzero(start_s[rows] < ready * (1 - TOLERANCE))
        if len(early):
            k, when = int(rows[early[0]]), float(start_s[rows[early[0]]])
            words = f"starts at {format_time(when)}, while plane {plane} still turns"
            return "turn", words, {"transfer": k, "time_s": when}
    return None


def broken_barrier(plan: Plan, start_s: Float64, arrival_s: Float64) -> Wrong | None:
    """In a timed plan with barriers: does each group start after all before it have arrived?

    Args:
        arrival_s: float64[transfers], when each has arrived everywhere.
    """
    if not plan.barriers or plan.group is None or not plan.transfer_count:
        return None
    first = np.searchsorted(plan.group, plan.group, side="left")
    so_far = np.concatenate(([0.0], np.maximum.accumulate(arrival_s)))[first]
    early = np.flatnonzero(start_s < so_far * (1 - TOLERANCE))
    if not len(early):
        return None
    k = int(early[0])
    words = f"of group {plan.group[k]} starts at {format_time(float(start_s[k]))}, before the groups before it are done"
    return "barrier", words, {"transfer": k, "time_s": float(start_s[k])}


def as_links(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64], Float64]:
    """For each transfer on a plane its row and the number of its port, and each port's bandwidth.

    Ports are numbered plane after plane: a port sends to one peer at a time, so it is what a
    transfer occupies.
    """
    widths, rows, ports = [np.zeros(0)], [], []
    base = 0
    for p, plane in enumerate(plan.topology.planes):
        widths.append(np.full(len(plane.nodes), plane.bandwidth))
        if plan.plane is not None:
            number = np.zeros(plan.topology.node_count, dtype=np.int64)
            number[plane.nodes] = np.arange(len(plane.nodes))
            own = np.flatnonzero(plan.plane == p)
            rows.append(own)
            ports.append(base + number[plan.src[own]])
        base += len(plane.nodes)
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate((empty, *rows)), np.concatenate((empty, *ports)), np.concatenate(widths)


def delays(plan: Plan) -> Float64:
    """float64[transfers], the latency of each transfer's circuit, 0 over links."""
    latency = np.array([*(p.latency_s for p in plan.topology.planes), 0.0])
    if plan.plane is None:
        return np.zeros(plan.transfer_count)
    delay: Float64 = latency[plan.plane]
    return delay
