"""A plan without copies: TE-CCL's linear program at one horizon, or at the fewest epochs.

The paths of the flow share each piece, which is cut into the parts that they carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...model.arrays import Int64
from ...model.collective import Collective, Workload
from ...model.errors import Infeasible
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Send, plan_of_sends
from .. import plan_by
from .epochs import Epochs, distances, initial_state
from .flows import FlowModel, Path, without_windows
from .horizon import fewest_epochs_of_flow
from .problem import Problem


def plan_without_copies(problem: Problem, objective: str, epochs: str) -> Plan:
    """The LP at one horizon, or at the fewest epochs; then paths, parts and a timed plan.

    ``epochs="auto"`` starts from a bound on the epochs and raises it by a quarter until a flow
    exists: the public code's search in coarse epochs is for the integer program, and its linear
    programs are degenerate (dgx1: 65 s instead of 0.1 s).
    """
    topology, workload = problem.topology, problem.workload
    unit = float(workload.chunk_bytes.max())
    release = initial_state(topology, workload, problem.seconds).release
    holder, target = workload.chunk_holders.values, workload.chunk_wanted.values
    moves = holder != target
    if not moves.any():  # everyone holds what is wanted
        nothing = {"epochs": 0, "epoch_s": problem.seconds, "reported_s": 0.0, "objective": objective, "proven": True}
        return plan_of_sends(topology, workload, [], nothing)
    names, number = np.unique(np.stack([holder, release])[:, moves], axis=1, return_inverse=True)
    sources, begins = names.astype(np.int64)
    demand = np.zeros((len(sources), topology.node_count))
    np.add.at(demand, (number, target[moves]), workload.chunk_bytes[moves] / unit)
    grid = without_windows(topology, problem.epochs())
    between = distances(topology, grid)
    arrival = between[sources] + begins[:, None]

    refuted = 0  # the most epochs that were proved too few

    def attempt(horizon: int, early: bool) -> list[Path]:
        nonlocal refuted
        model = FlowModel(topology, grid, between, sources, arrival, demand, horizon, early)
        solution = problem.solve(model.model, horizon, first=False) if model.possible else None
        if solution is None or solution.status == "infeasible":
            refuted = max(refuted, horizon)
        if solution is None or solution.x is None:
            return []
        paths = model.paths(solution.x)
        served = {(p.source, p.target) for p in paths}
        # what is too little for a solver's tolerance goes the fastest way
        return paths + [
            Path(s, v, float(demand[s, v]), fastest(topology, grid, between, int(sources[s]), v, int(begins[s])))
            for s, v in model.wanting
            if (s, v) not in served
        ]

    early = objective == "paper"
    low = fewest_epochs_of_flow(topology, grid, arrival, sources, demand)
    refuted = low - 1
    high = int(epochs) if epochs.isdigit() else low
    if epochs == "from-heuristic":
        plan = plan_by("shortest-path", problem.request)
        high = max(low, math.ceil(_busiest_s(plan) / problem.seconds) + int(grid.delay.max()))
    paths = attempt(high, early)
    while not paths and not epochs.isdigit() and not problem.budget.exhausted:
        low, high = high + 1, high + high // 4 + 1
        paths = attempt(high, early)
    if not paths:
        raise Infeasible(
            f"no flow of {high} epochs of {problem.seconds:.3g} s was found (at least {low} are needed); raise "
            "the option epochs, or leave it at auto; raise the effort or the time limit"
        )
    while not early and low < high and not problem.budget.exhausted:
        middle = (low + high) // 2
        fewer = attempt(middle, early)
        if fewer:
            paths, high = fewer, middle
        else:
            low = middle + 1
    last = max(k + int(grid.delay[i]) for p in paths for i, k in p.hops[-1:])
    cut, parts = _cut_by_paths(workload, sources, begins, problem.seconds, paths)
    sends = [Send(k, k + int(grid.delay[i]), chunk, i) for chunk, path in parts for i, k in paths[path].hops]
    meta = {
        "epochs": last, "epoch_s": problem.seconds, "reported_s": last * problem.seconds, "objective": objective,
        "proven": refuted >= last - 1, "attempts": problem.attempts,
    }  # fmt: skip
    return plan_of_sends(topology, cut, sends, meta)


def fastest(
    topology: Topology, epochs: Epochs, between: Int64, source: int, target: int, begin: int
) -> tuple[tuple[int, int], ...]:
    """The (link, epoch) of the fastest way from ``source``, begun in epoch ``begin``."""
    hops: list[tuple[int, int]] = []
    v, k = source, begin
    links = topology.out_links
    while v != target:
        i = min(
            map(int, links[v]),
            key=lambda i: (epochs.delay[i] + between[topology.dst[i], target], i),
        )
        hops.append((i, k))
        v, k = int(topology.dst[i]), k + int(epochs.delay[i])
    return tuple(hops)


def _cut_by_paths(
    workload: Workload, sources: Int64, begins: Int64, seconds: float, paths: Sequence[Path]
) -> tuple[Workload, list[tuple[int, int]]]:
    """Every piece cut into whole bytes as the paths share it, and (chunk, path) of each part."""

    def pair(c: Collective, piece: int) -> tuple[int, int, int]:
        """Who holds a piece, who wants it, and the epoch in which it may start: what a flow stands for."""
        epoch = math.ceil(c.start_s / seconds - 1e-9)
        return int(c.ranks[c.holders[piece][0]]), int(c.ranks[c.wanted[piece][0]]), epoch

    total: dict[tuple[int, int, int], int] = {}
    for c in workload.collectives:
        for piece, size in enumerate(c.piece_bytes.tolist()):
            total[pair(c, piece)] = total.get(pair(c, piece), 0) + size
    by_pair: dict[tuple[int, int, int], list[int]] = {}
    for k, p in enumerate(paths):
        by_pair.setdefault((int(sources[p.source]), p.target, int(begins[p.source])), []).append(k)
    ends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for name, which in by_pair.items():  # where each path's share of the pair's bytes ends
        share = np.cumsum([paths[k].amount for k in which])
        edges = np.round(share / share[-1] * total[name]).astype(np.int64).tolist()
        ends[name] = list(zip(edges, which, strict=True))
    # the bytes of a pair, over all collectives, are shared out piece after piece
    done = dict.fromkeys(ends, 0)
    cut: list[Collective] = []
    parts: list[tuple[int, int]] = []
    first = 0
    for c in workload.collectives:
        rows: list[tuple[int, int, int]] = []
        for piece, size in enumerate(c.piece_bytes.tolist()):
            name, offset = pair(c, piece), 0
            if name not in ends:
                rows.append((piece, 0, size))
                continue
            while offset < size:
                end, path = next(e for e in ends[name] if e[0] > done[name])
                part = min(size - offset, end - done[name])
                parts.append((first + len(rows), path))
                rows.append((piece, offset, part))
                offset += part
                done[name] += part
        table = np.array(rows, dtype=np.int64)
        cut.append(
            replace(c, chunk_piece=table[:, 0].astype(np.int32), chunk_offset=table[:, 1], chunk_bytes=table[:, 2])
        )
        first += len(rows)
    return Workload(tuple(cut)), parts


def _busiest_s(plan: Plan) -> float:
    """The time that a plan keeps its busiest link at work: about what its traffic takes, spread over time."""
    sizes = np.repeat(plan.size_bytes, plan.route.lengths).astype(np.float64)
    work = np.bincount(plan.route.values, weights=sizes, minlength=plan.topology.link_count)
    return float((work / plan.topology.bandwidth).max())
