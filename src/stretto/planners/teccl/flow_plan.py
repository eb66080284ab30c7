"""A plan without copies: TE-CCL's linear program at one horizon, or at the fewest epochs.

The paths of the flow share each piece, which is cut into the parts that they carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...model.arrays import Int64
from ...model.chunks import cut
from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.plan import Plan
from ...schedule.asap import Send, plan_of_sends
from ...schedule.trees import split_chunks
from .. import plan_by
from .epochs import Epochs, initial_state
from .flows import FlowModel, Path, without_windows
from .horizon import fewest_epochs_of_flow
from .problem import Problem


def plan_without_copies(problem: Problem, objective: str, epochs: str) -> Plan | None:
    """The LP at one horizon, or at the fewest epochs; then paths, parts and a timed plan; None where effort ends first.

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
    grid = without_windows(problem.epochs())
    arrival = grid.between[sources] + begins[:, None]

    refuted = 0  # the most epochs that were proved too few

    def attempt(horizon: int, early: bool) -> list[Path]:
        nonlocal refuted
        model = FlowModel(grid, sources, arrival, demand, horizon, early)
        solution = problem.solve(model.model, horizon, first=False) if model.possible else None
        if solution is None or solution.status == "infeasible":
            refuted = max(refuted, horizon)
        if solution is None or solution.x is None:
            return []
        paths = model.paths(solution.x)
        served = {(p.source, p.target) for p in paths}
        # what is too little for a solver's tolerance goes the fastest way
        return paths + [
            Path(s, v, float(demand[s, v]), _fastest(grid, int(sources[s]), v, int(begins[s])))
            for s, v in model.wanting
            if (s, v) not in served
        ]

    early = objective == "paper"
    low = fewest_epochs_of_flow(grid, arrival, sources, demand)
    refuted = low - 1
    high = int(epochs) if epochs.isdigit() else low
    if epochs.startswith("from-"):
        plan = plan_by(problem.start or "shortest-path", problem.request)
        high = max(low, math.ceil(_busiest_s(plan) / problem.seconds) + int(grid.delay.max()))
    paths = attempt(high, early)
    while not paths and not epochs.isdigit() and not problem.budget.exhausted:
        low, high = high + 1, high + high // 4 + 1
        paths = attempt(high, early)
    if not paths and not epochs.isdigit():
        return None
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
    finer, path_of = _cut_by_paths(problem, sources, begins, paths)
    sends = [
        Send(k, k + int(grid.delay[i]), chunk, i)
        for chunk, path in enumerate(path_of.tolist()) if path >= 0
        for i, k in paths[path].hops
    ]  # fmt: skip
    meta = {
        "epochs": last, "epoch_s": problem.seconds, "reported_s": last * problem.seconds, "objective": objective,
        "proven": refuted >= last - 1, "attempts": problem.attempts,
    }  # fmt: skip
    return plan_of_sends(topology, finer, sends, meta)


def _fastest(epochs: Epochs, source: int, target: int, begin: int) -> tuple[tuple[int, int], ...]:
    """The (link, epoch) of the fastest way from ``source``, begun in epoch ``begin``."""
    hops: list[tuple[int, int]] = []
    net, v, k = epochs.topology, source, begin
    ((_, after),) = epochs.places.landings
    while v != target:
        links = net.out_links[v]
        i = int(links[np.argmin(after[links] + epochs.between[net.dst[links], target])])
        hops.append((i, k))
        v, k = int(net.dst[i]), k + int(after[i])
    return tuple(hops)


def _cut_by_paths(
    problem: Problem, sources: Int64, begins: Int64, paths: Sequence[Path]
) -> tuple[Workload, Int64]:  # fmt: skip
    """Every piece cut into whole bytes as the paths share it, and int64[chunks], the path of each part, -1 for none."""
    whole = Workload(tuple(cut(c, 1) for c in problem.workload.collectives))
    # a pair: who holds a piece, who wants it, and the epoch in which it may start, which is what a flow stands for
    flows = [(int(sources[p.source]), p.target, int(begins[p.source])) for p in paths]
    release = initial_state(problem.topology, whole, problem.seconds).release
    pieces = np.stack([whole.chunk_holders.values, whole.chunk_wanted.values, release], axis=1)
    _, pair = np.unique(np.concatenate((flows, pieces)), axis=0, return_inverse=True)
    of_path, of_piece = pair[: len(paths)], pair[len(paths) :]
    # all bytes laid end to end, those of a pair, over all collectives, piece after piece
    order = np.argsort(of_piece, kind="stable")
    ends = np.cumsum(whole.chunk_bytes[order])
    starts = np.empty_like(ends)
    starts[order] = ends - whole.chunk_bytes[order]
    edges = np.empty(len(paths), dtype=np.int64)
    amount = np.array([p.amount for p in paths])
    for k in np.unique(of_path):  # where each path's share of the pair's bytes ends
        which, inside = of_path == k, of_piece == k
        share = np.cumsum(amount[which])
        edges[which] = starts[inside].min() + np.round(share / share[-1] * whole.chunk_bytes[inside].sum())
    by_place = np.lexsort((np.arange(len(paths)), of_path))
    edges = edges[by_place]
    inner = edges[edges < ends[-1]]
    at = order[np.searchsorted(ends, inner, side="right")]
    finer, first = split_chunks(whole, at, inner - starts[at])
    piece = np.repeat(np.arange(len(pieces)), np.diff(first))
    begin = starts[piece] + np.concatenate([c.chunk_offset for c in finer.collectives])
    path = by_place[np.minimum(np.searchsorted(edges, begin, side="right"), len(paths) - 1)]
    return finer, np.where(of_path[path] == of_piece[piece], path, -1)


def _busiest_s(plan: Plan) -> float:
    """The time that a plan keeps its busiest link at work: about what its traffic takes, spread over time."""
    sizes = np.repeat(plan.size_bytes, plan.route.lengths).astype(np.float64)
    work = np.bincount(plan.route.values, weights=sizes, minlength=plan.topology.link_count)
    return float((work / plan.topology.bandwidth).max())
