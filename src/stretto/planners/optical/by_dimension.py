"""Collectives on optical planes that are divided by dimension: ``optical:N,K?dims=AxB``.

Every plane of a dimension is a switch for each line of it. They are planned as one: a plane that joins
all nodes, in matchings that stay inside lines, and then divided. The steps are those of
:mod:`stretto.schedule.grid_steps`; SWOT's search schedules each dimension's on the dimension's planes, and a phase
begins when its data has come out of the phase before. No barrier is needed: what a transfer waits for
are its dependencies, its switch's turns and the start that is planned.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int32, Int64, Ragged
from ...model.collective import Workload
from ...model.errors import Unsupported
from ...model.plan import Plan, Turns, make_plan
from ...model.topology import Plane, Topology
from ...schedule.algorithms import lower
from ...schedule.grid_steps import HALVES, Phased, line_algorithms, on_grid
from .. import Candidate, Option, Request, per_delivery, register
from .bound import lower_bound
from .circuits import instance_of, schedule_plan, speeds_of, to_nodes
from .search import find_schedule


class Grid(NamedTuple):
    """Planes divided by dimension."""

    dims: tuple[int, ...]  # nodes along each dimension, the last one fastest
    dimension: Int64  # [wide planes], which one each serves
    switches: list[Int64]  # for each wide plane int64[lines], its switches among the topology's planes
    wide: Topology  # the same nodes, with each wide plane as one plane


def grid_of(topology: Topology) -> Grid | str:
    """The grid that a topology's planes make up, or why they make up none."""
    lines: dict[tuple[int, int], dict[tuple[int, ...], list[int]]] = {}
    for p, plane in enumerate(topology.planes):
        steps = np.unique(np.diff(plane.nodes))
        if len(steps) != 1 or steps[0] < 1:
            return f"plane {p} does not join a line of nodes; optical:N,K?dims=AxB has planes divided by dimension"
        lines.setdefault((int(steps[0]), len(plane.nodes)), {}).setdefault(tuple(plane.nodes.tolist()), []).append(p)
    strides = sorted(lines, reverse=True)
    dims = tuple(n for _, n in strides)
    count = topology.node_count
    fits = prod(dims) == count and all(s == prod(dims[d + 1 :]) for d, (s, _) in enumerate(strides))
    if not fits or len(dims) < 2:
        return "its planes are not divided by the dimensions of a grid; optical:N,K?dims=AxB has such"
    dimension, switches, planes = [], [], []
    for d, key in enumerate(strides):
        copies = {len(planes_of_line) for planes_of_line in lines[key].values()}
        if len(lines[key]) != count // dims[d] or len(copies) != 1:
            return f"some line of dimension {d} has no plane, or fewer than others"
        for wide in zip(*lines[key].values(), strict=True):
            members = [topology.planes[p] for p in wide]
            if any(speeds_of(m) != speeds_of(members[0]) for m in members):
                return f"planes {wide[0]} and others of dimension {d} differ"
            dimension.append(d)
            switches.append(np.array(wide))
            to = np.stack([to_nodes(topology, m) for m in members]).max(axis=0)
            planes.append(Plane(np.arange(count, dtype=np.int32), *speeds_of(members[0]), to))
    return Grid(dims, np.array(dimension), switches, replace(topology, planes=tuple(planes)))


def _refuses(topology: Topology, workload: Workload) -> str | None:
    grid = grid_of(topology) if topology.planes else "it has no optical planes; optical:N,K?dims=AxB has"
    if isinstance(grid, str):
        return grid
    if len(workload.collectives) > 1 or workload.collectives[0].start_s:
        return "one collective that starts at zero can be scheduled on planes"
    c = workload.collectives[0]
    if len(c.ranks) != topology.node_count:
        return f"{len(c.ranks)} ranks do not fill the grid of {topology.node_count} nodes"
    if c.kind in HALVES and not line_algorithms(c.kind, grid.dims):
        return f"no algorithm serves {c.kind} in lines of {'x'.join(map(str, grid.dims))}"
    return None


@register(
    "by-dimension",
    collectives=HALVES,
    topologies="optical planes divided by dimension",
    paper="SWOT, section 6, asks for it; multi-dimensional rings: Sack and Gropp, PPoPP 2012",
    options=(
        Option("line", str, "auto", "the algorithm in a line; auto takes the best",
               ("auto", "ring", "recursive-doubling", "rabenseifner", "pairwise", "bruck")),
        Option("rotate", str, "auto", "parts of the data begin with different dimensions; auto takes the better",
               ("auto", "yes", "no")),
    ),
    serves=_refuses,
    auto=Candidate(per_delivery(100, first=20_000)),
)  # fmt: skip
def by_dimension(request: Request, *, line: str = "auto", rotate: str = "auto") -> Plan:
    """Dimension by dimension, parts of the data along different ones at the same time."""
    topology, workload = request.topology, request.workload
    grid = grid_of(topology)
    assert not isinstance(grid, str)
    c = workload.collectives[0]
    rank = np.argsort(c.ranks)
    pieces = len(rank) if c.traits.reduces_to_all else 1
    most = min(len(grid.dims), max(int(c.piece_bytes.min()) // pieces, 1))
    serving = line_algorithms(c.kind, grid.dims)
    if line not in ("auto", *serving):
        raise Unsupported(f"{line} does not serve {c.kind} in lines of {'x'.join(map(str, grid.dims))}")
    names = serving if line == "auto" else [line]
    parts = {"auto": sorted({1, most}), "yes": [most], "no": [1]}[rotate]
    phased = (on_grid(c.kind, grid.dims, rank, p, name) for name, p in product(names, parts))
    plans = (_on_wide_planes(grid, request, way) for way in phased)
    return _divide(min(plans, key=lambda plan: float(plan.meta["schedule"]["completion_s"])), grid, topology)


def _on_wide_planes(grid: Grid, request: Request, phased: Phased) -> Plan:
    """The timed plan on planes that join all nodes."""
    lowered = lower(phased.algorithm, request.workload)
    count = len(lowered.chunk)
    plan = make_plan(
        grid.wide, lowered.workload, "ready-order", chunk=lowered.chunk, src=lowered.src, op=lowered.op,
        dst=Ragged.single(lowered.dst), route=Ragged.empty(count), depends=lowered.depends,
        group=lowered.group, plane=np.zeros(count, dtype=np.int32),
    )  # fmt: skip
    whole = instance_of(plan)
    share = np.zeros((whole.steps, whole.planes))
    bound = 0.0
    for d in range(len(grid.dims)):
        steps, planes = np.flatnonzero(phased.dimension == d), np.flatnonzero(grid.dimension == d)
        if len(steps):
            part = whole.only(steps, planes)
            share[np.ix_(steps, planes)] = find_schedule(part, stop=request.budget.stop)
            bound = max(bound, lower_bound(part))
    plan = schedule_plan(plan, share, {}, phased.after)
    assert plan.finish_s is not None and plan.plane is not None
    latency = np.array([p.latency_s for p in grid.wide.planes])
    end_s = float((plan.finish_s + latency[plan.plane]).max(initial=0.0))
    return replace(plan, meta={"schedule": {"completion_s": end_s, "bound_s": min(bound, end_s)}})


def _divide(plan: Plan, grid: Grid, topology: Topology) -> Plan:
    """The same plan with every wide plane's transfers and turns on the switches of its lines."""
    assert plan.plane is not None
    switch = np.full((len(grid.switches), topology.node_count), -1, dtype=np.int32)
    port = np.zeros((len(grid.switches), topology.node_count), dtype=np.int32)
    for wide, switches in enumerate(grid.switches):
        for p in switches.tolist():
            nodes = topology.planes[p].nodes
            switch[wide, nodes], port[wide, nodes] = p, np.arange(len(nodes))
    turns = []
    for i in range(plan.turns.count):
        wide = int(plan.turns.plane[i])
        to: Int32 = np.asarray(plan.turns.matching[i], dtype=np.int32)
        ports = np.where(to >= 0, port[wide, to], -1).astype(np.int32)
        turns += [
            (p, int(plan.turns.before[i]), float(plan.turns.start_s[i]), ports[topology.planes[p].nodes])
            for p in grid.switches[wide].tolist()
        ]
    return replace(plan, topology=topology, plane=switch[plan.plane, plan.src], turns=Turns.of(turns))
