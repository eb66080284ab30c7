"""Optical planes: circuits are in the matching of their moment, planes carry nothing while they turn, barriers hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.plan import Plan
from ..model.units import format_time
from .findings import Finding, about


class Circuits(NamedTuple):
    """The transfers of one plane."""

    plane: int  # its number
    rows: Int64  # int64[n], the transfers on it
    turns: Int64  # int64[m], its turns
    epoch: Int64  # int64[n], how many of its turns come before each transfer


def _circuits(plan: Plan) -> list[Circuits]:
    circuits = []
    for p in range(len(plan.topology.planes)):
        rows = np.flatnonzero(plan.plane == p) if plan.plane is not None else np.zeros(0, dtype=np.int64)
        turns = np.flatnonzero(plan.turns.plane == p)
        epoch = np.zeros(len(rows), dtype=np.int64)
        for before in plan.turns.before[turns]:
            epoch += rows >= before
        circuits.append(Circuits(p, rows, turns, epoch))
    return circuits


def wrong_circuit(plan: Plan) -> Finding | None:
    """The first turn to what is no matching, or transfer on a plane whose circuit the plane has not set up."""
    for i in range(plan.turns.count):
        joined = plan.turns.matching[i][plan.turns.matching[i] >= 0]
        if len(np.unique(joined)) != len(joined):
            words = f"turn {i} of plane {plan.turns.plane[i]} joins two ports to one"
            return Finding("matching", words, time_s=float(plan.turns.start_s[i]))
    for plane, rows, turns, epoch in _circuits(plan):
        several = np.flatnonzero(plan.dst.lengths[rows] != 1)
        if len(several):
            return about(plan, "no-circuit", int(rows[several[0]]), "has several receivers, and a circuit has one")
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
            return about(plan, "no-circuit", k, words, node=int(plan.src[k]))
    return None


def early_turn(plan: Plan, rounding_s: float) -> Finding | None:
    """The first turn of a timed plan while its plane carries something, or transfer while its plane turns."""
    assert plan.start_s is not None and plan.finish_s is not None
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
        np.maximum.at(quiet, epoch, plan.finish_s[rows] + own.latency_s)
        free = np.maximum.accumulate(np.concatenate((quiet[:1], np.maximum(quiet[1:], ends))))
        early = np.flatnonzero(begins < free[:-1] - rounding_s)
        if len(early):
            i = int(early[0])
            when = float(begins[i])
            words = (
                f"turn {turns[i]} of plane {plane} begins at {format_time(when)}, before what the plane carries "
                f"has arrived at {format_time(float(free[i]))}"
            )
            return Finding("turn", words, time_s=when)
        ready = np.concatenate(([0.0], ends))[epoch]
        early = np.flatnonzero(plan.start_s[rows] < ready - rounding_s)
        if len(early):
            k, when = int(rows[early[0]]), float(plan.start_s[rows[early[0]]])
            words = f"starts at {format_time(when)}, while plane {plane} still turns"
            return about(plan, "turn", k, words, time_s=when)
    return None


def broken_barrier(plan: Plan, arrival_s: Float64, rounding_s: float) -> Finding | None:
    """The first transfer of a timed plan with barriers that starts before all groups before its own have arrived.

    Args:
        arrival_s: float64[transfers], when each has arrived everywhere.
        rounding_s: by which rounding may miss a moment.
    """
    if not plan.barriers or plan.group is None or plan.start_s is None or not plan.transfer_count:
        return None
    first = np.searchsorted(plan.group, plan.group, side="left")
    so_far = np.concatenate(([0.0], np.maximum.accumulate(arrival_s)))[first]
    early = np.flatnonzero(plan.start_s < so_far - rounding_s)
    if not len(early):
        return None
    k = int(early[0])
    when = float(plan.start_s[k])
    words = f"of group {plan.group[k]} starts at {format_time(when)}, before the groups before it are done"
    return about(plan, "barrier", k, words, time_s=when)


def ports_of(plan: Plan) -> tuple[Int64, Int64, Float64]:
    """For each transfer on a plane its row and the number of its port, and each port's bandwidth.

    Ports are numbered plane after plane. A port sends to one peer at a time, so it is what a transfer occupies.
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


def circuit_latency_s(plan: Plan) -> Float64:
    """float64[transfers], the latency of each transfer's circuit, 0 over links."""
    latency = np.array([*(p.latency_s for p in plan.topology.planes), 0.0])
    if plan.plane is None:
        return np.zeros(plan.transfer_count)
    delay: Float64 = latency[plan.plane]
    return delay
