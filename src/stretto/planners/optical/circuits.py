"""Between plans in steps and schedules on planes: what SWOT refiners share.

:func:`instance_of` reads off a plan what each step must carry in which matching;
:func:`schedule_plan` makes the plan in which planes carry the shares of a schedule and turn between.
Each rank's bytes of a step are divided among the planes in the same proportions, chunks are cut
where a share ends, and everything happens as early as its plane and its step allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...model.arrays import Float64, Int32, Int64, Ragged, offsets_of
from ...model.collective import Workload
from ...model.errors import Unsupported
from ...model.plan import Plan, Turns, make_plan
from ...model.topology import Plane, Topology
from ...schedule.pairings import completed
from ...schedule.trees import split_chunks
from .instance import FREE, Instance, course, make_instance


def refusal(topology: Topology, workload: Workload) -> str | None:
    """Why no plan for this can be scheduled on planes, None if it can."""
    if not topology.planes:
        return "it has no optical planes; optical:N,K has"
    if len(workload.collectives) > 1 or workload.collectives[0].start_s:
        return "one collective that starts at zero can be scheduled on planes"
    for p, plane in enumerate(topology.planes):
        missing = np.setdiff1d(workload.collectives[0].ranks, plane.nodes)
        if len(missing):
            return f"{topology.names[missing[0]]} has no port on plane {p}"
    return None


def instance_of(plan: Plan) -> Instance:
    """What the steps of a plan (its groups) need.

    Raises:
        Unsupported: the plan is not in steps, or in some step a rank has several partners.
    """
    partners, volume = _steps(plan)
    numbers: dict[bytes, int] = {}
    matching = [numbers.setdefault(row.tobytes(), len(numbers)) for row in partners]
    initial = []
    for plane in plan.topology.planes:
        free = (plane.matching < 0).all()
        initial.append(FREE if free else numbers.setdefault(to_nodes(plan.topology, plane).tobytes(), len(numbers)))
    bandwidth, latency, turn = np.array([speeds_of(p) for p in plan.topology.planes]).T
    return make_instance(volume, matching, bandwidth, latency, turn, initial)


def speeds_of(plane: Plane) -> tuple[float, float, float]:
    """Bandwidth, latency, and the time of a turn."""
    return plane.bandwidth, plane.latency_s, plane.reconfiguration_s


def _steps(plan: Plan) -> tuple[Int32, Float64]:
    """int32[steps, nodes], whom each node could send to (-1 for none), and the most bytes that one sends."""
    if plan.group is None or (np.diff(plan.group) < 0).any() or (plan.dst.lengths != 1).any():
        raise Unsupported("the plan is not in steps; start from a fixed algorithm, such as ring+swot")
    nodes = plan.topology.node_count
    _, step = np.unique(plan.group, return_inverse=True)
    count = int(step.max(initial=-1)) + 1
    partners = np.full((count, nodes), -1, dtype=np.int32)
    partners[step, plan.src] = plan.dst.values
    senders = np.sort(partners, axis=1)
    if (partners[step, plan.src] != plan.dst.values).any() or (
        (np.diff(senders, axis=1) == 0) & (senders[:, 1:] >= 0)
    ).any():
        raise Unsupported("in some step a rank sends to several or receives from several; no plane can do that")
    sent = np.bincount(step * nodes + plan.src, weights=plan.size_bytes, minlength=count * nodes)
    return completed(partners), sent.reshape(count, nodes).max(axis=1)


def to_nodes(topology: Topology, plane: Plane) -> Int32:
    """int32[nodes], whom each node sends to over a plane at first."""
    to = np.full(topology.node_count, -1, dtype=np.int32)
    joined = plane.matching >= 0
    to[plane.nodes[joined]] = plane.nodes[plane.matching[joined]]
    return to


def schedule_plan(
    plan: Plan, share: Float64, meta: dict[str, Any], after: Sequence[Sequence[int]] | None = None
) -> Plan:
    """The timed plan in which planes carry the steps of ``plan`` as a schedule says.

    Args:
        share: float64[steps, planes], bytes; each rank's bytes are divided in these proportions.
        after: for each step those that end before it begins; where not given, a barrier follows every step.
    """
    if (plan.chunk[plan.depends.values] != plan.chunk[plan.depends.owners]).any():
        raise Unsupported("a transfer depends on another chunk's; its parts cannot be distinguished")
    planes = plan.topology.planes
    assert plan.group is not None
    _, step = np.unique(plan.group, return_inverse=True)
    low, ends = _places(plan, step, share)
    inside = ends - low[:, None]
    row, boundary = np.nonzero((inside > 0) & (inside < plan.size_bytes[:, None]))
    workload, first = split_chunks(plan.workload, plan.chunk[row].astype(np.int64), inside[row, boundary])

    # each transfer becomes one for each part of its chunk
    parts = np.diff(first)[plan.chunk]
    new_row = offsets_of(parts)
    old = np.repeat(np.arange(plan.transfer_count), parts)
    part = np.arange(new_row[-1]) - new_row[old]
    chunk = first[plan.chunk[old]] + part
    size = workload.chunk_bytes[chunk]
    place = low[old] + np.cumsum(size) - size - (np.cumsum(size) - size)[new_row[old]]
    plane = (place[:, None] >= ends[old, :-1]).sum(axis=1)
    begins = np.where(plane > 0, ends[old, plane - 1], 0)
    depends = plan.depends.take(old)
    step = step[old]

    # how long after its plane's beginning each transfer starts and ends
    width = np.array([p.bandwidth for p in planes])[plane]
    since, until = (place - begins) / width, (place + size - begins) / width
    span = np.zeros(share.shape)
    np.maximum.at(span, (step, plane), until)
    times, (partners, _) = course(instance_of(plan), span, after), _steps(plan)
    begin = times.start_s[step, plane]
    first_row = np.searchsorted(step, np.arange(len(partners)))
    turns = [(p, int(first_row[i]), at, to_ports(planes[p], partners[i])) for p, i, at in times.turns]
    return make_plan(
        plan.topology, workload, "timed", chunk=chunk, src=plan.src[old], op=plan.op[old],
        dst=plan.dst.take(old), route=Ragged.empty(len(old)),
        depends=depends.with_values(new_row[depends.values] + part[depends.owners]),
        start_s=begin + since, finish_s=begin + until,
        group=step, plane=plane, turns=Turns.of(turns), barriers=after is None, meta={**plan.meta, **meta},
    )  # fmt: skip


def _places(plan: Plan, step: Int64, share: Float64) -> tuple[Int64, Int64]:
    """Where each transfer begins among the bytes that its rank sends in its step, and where shares end there.

    Returns:
        int64[transfers], and int64[transfers, planes].
    """
    nodes = plan.topology.node_count
    key = step * nodes + plan.src
    order = np.argsort(key, kind="stable")
    run = np.cumsum(plan.size_bytes[order]) - plan.size_bytes[order]
    fresh = np.concatenate(([True], np.diff(key[order]) != 0))
    low = np.empty(len(key), dtype=np.int64)
    low[order] = run - run[np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))]
    total = np.bincount(key, weights=plan.size_bytes)[key]
    until = np.cumsum(share, axis=1) / share.sum(axis=1, keepdims=True)
    until[:, -1] = 1.0
    return low, np.rint(until[step] * total[:, None]).astype(np.int64)


def to_ports(plane: Plane, partners: Int32) -> Int32:
    """int32[ports], the port that each port sends to so that nodes reach their partners."""
    port = np.full(len(partners), -1, dtype=np.int32)
    port[plane.nodes] = np.arange(len(plane.nodes))
    to = partners[plane.nodes]
    return np.where(to >= 0, port[to], -1).astype(np.int32)
