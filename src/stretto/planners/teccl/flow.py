"""TE-CCL's linear program: fractions of chunks, never copied (AllToAll, Scatter, Gather).

Liu et al., SIGCOMM 2024, section 4.1: without copying, the chunks of one source are one commodity,
flows may be fractional, and the program is linear. Capacities are fractional, too: an epoch may
be shorter than a chunk's time on a link. The solution is taken apart into paths, and each piece is
cut into the parts that the paths carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...model.collective import Collective, Workload
from ...model.errors import Infeasible
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Send, plan_of_sends
from ...solvers import Model, affordable
from .. import run_planner
from .horizon import fewest_epochs_of_flow
from .job import Job
from .model import NEVER, Epochs, Int64, distances, initial

Float64 = NDArray[np.float64]
DUST = 1e-6
"""A share of a chunk that is taken for a rounding error."""


@dataclass(frozen=True)
class Path:
    """A share of what ``target`` wants of ``source``, in chunks, and the (link, epoch) by which it goes."""

    source: int
    target: int
    amount: float
    hops: tuple[tuple[int, int], ...]


def without_windows(topology: Topology, epochs: Epochs) -> Epochs:
    """The epochs of the linear program: fractions need not wait until a whole chunk has passed."""
    freed = topology.is_switch[topology.src] & ~topology.is_switch[topology.dst]
    delay = epochs.delay - np.where(freed, 0, epochs.window - 1)
    return replace(epochs, delay=delay)


class FlowModel:
    """The linear program for a fixed number of epochs.

    Args:
        epochs: of :func:`without_windows`.
        sources: int64[sources], nodes; a node is a source for each epoch in which something of it starts.
        there_first: int64[sources, nodes], the first epoch in which anything of a source can be at a node.
        demand: float64[sources, nodes], chunks that each node wants of each source.
        horizon: K; what is read by the beginning of epoch K counts.
        early: reward reading early, 1 / (k + 1) a chunk (the public code's objective).

    Attributes:
        possible: False where some demand cannot be met even by the fastest path alone.
    """

    def __init__(
        self, topology: Topology, epochs: Epochs, between: Int64, sources: Int64, there_first: Int64, demand: Float64,
        horizon: int, early: bool,
    ) -> None:  # fmt: skip
        self.net, self.horizon, self.sources = topology, horizon, sources
        self.model, self.delay = Model(), epochs.delay
        net = topology
        self.there_first = there_first
        wanting = demand > 0
        self.possible = bool((self.there_first[wanting] <= horizon).all())
        if not self.possible:
            return
        # F[s, link, k]: what is put on the link in epoch k
        useful = np.where(wanting[:, None, :], between[None], NEVER).min(axis=2)
        self.sent_first = self.there_first[:, net.src]
        self.sent_count = np.maximum(0, horizon - epochs.delay[None] - useful[:, net.dst] - self.sent_first + 1)
        self.sent_count[net.dst[None] == sources[:, None]] = 0
        affordable(int(self.sent_count.sum()), epochs.seconds)
        self.sent_base, self.source, self.link, self.epoch = _windows(self.sent_count, self.sent_first)
        self.flow = self.model.columns(len(self.link), upper=np.inf)
        # S[s, n, k]: what is left at a node when epoch k ends; R[s, n, k]: what is read there in it
        stores = ~net.is_switch[None] & (np.arange(net.node_count)[None] != sources[:, None])
        span = np.where(stores, np.maximum(0, horizon - self.there_first + 1), 0)
        self.left_base, owner, node, at = _windows(span, self.there_first)
        self.left = self.model.columns(len(at), upper=np.inf)
        reads = wanting[owner, node]
        self.read_of = np.where(reads, np.cumsum(reads) - 1, -1)
        cost = -1.0 / (1.0 + at[reads]) if early else 0.0
        self.read = self.model.columns(int(reads.sum()), upper=np.inf, cost=cost)
        self._balance(owner, node, at, reads)
        self._switches()
        names, where = np.unique(self.link * (horizon + 1) + self.epoch, return_inverse=True)
        self.model.rows(len(names), -np.inf, epochs.per_epoch[names // (horizon + 1)], (where, self.flow, 1.0))
        s, v = np.nonzero(wanting)
        number = np.full(wanting.shape, -1, dtype=np.int64)
        number[s, v] = np.arange(len(s))
        self.model.rows(len(s), demand[s, v], demand[s, v], (number[owner[reads], node[reads]], self.read, 1.0))
        self.wanting = list(zip(s.tolist(), v.tolist(), strict=True))

    def _balance(self, owner: Int64, node: Int64, at: Int64, reads: NDArray[np.bool_]) -> None:
        """What was left and what arrives is read, sent on, or left."""
        net, rows = self.net, np.arange(len(at))
        again = rows[at > self.there_first[owner, node]]
        there, begin, end = self.epoch + self.delay[self.link], net.src[self.link], net.dst[self.link]
        lands = ~net.is_switch[end] & (there <= self.horizon)
        sends = self.left_base[self.source, begin] >= 0

        def row(flows: NDArray[np.bool_], place: NDArray[np.int32], when: Int64) -> Int64:
            s, v = self.source[flows], place[flows]
            found: Int64 = self.left_base[s, v] + when[flows] - self.there_first[s, v]
            return found

        self.model.rows(
            len(at), 0.0, 0.0,
            (rows, self.left, -1.0), (again, self.left[again - 1], 1.0), (rows[reads], self.read, -1.0),
            (row(lands, end, there), self.flow[lands], 1.0), (row(sends, begin, self.epoch), self.flow[sends], -1.0),
        )  # fmt: skip

    def _switches(self) -> None:
        """What enters a switch leaves it in the epoch in which it is there."""
        net, span = self.net, self.horizon + 1
        out, into = net.is_switch[net.src[self.link]], net.is_switch[net.dst[self.link]]
        place = self.source * net.node_count
        leaving = ((place + net.src[self.link]) * span + self.epoch)[out]
        entering = ((place + net.dst[self.link]) * span + self.epoch + self.delay[self.link])[into]
        names, where = np.unique(np.concatenate([leaving, entering]), return_inverse=True)
        self.model.rows(
            len(names), 0.0, 0.0,
            (where[: len(leaving)], self.flow[out], 1.0), (where[len(leaving) :], self.flow[into], -1.0),
        )  # fmt: skip

    def paths(self, x: Float64) -> list[Path]:
        """The solution as paths from each source to where and when it is read."""
        flow, left, read = x[self.flow].copy(), x[self.left].copy(), x[self.read]
        into: list[list[int]] = [[] for _ in range(self.net.node_count)]
        for i, v in enumerate(self.net.dst.tolist()):
            into[v].append(i)
        found: list[Path] = []
        for s, v in self.wanting:
            for k in range(int(self.there_first[s, v]), self.horizon + 1):
                rest = float(read[self.read_of[self.left_base[s, v] + k - self.there_first[s, v]]])
                while rest > DUST:
                    path = self._back(s, v, k, into, flow, left, rest)
                    if path is None:
                        break
                    rest -= path.amount
                    found.append(path)
        return found

    def _back(
        self, s: int, target: int, k: int, into: list[list[int]], flow: Float64, left: Float64, amount: float
    ) -> Path | None:
        """One path that ends in epoch k, found against the flow; its share is taken out of it.

        None where only rounding errors are left of the flow.
        """
        hops: list[tuple[int, int]] = []
        used: list[tuple[Float64, int]] = []
        v = target
        while v != self.sources[s]:
            best: tuple[float, Float64, int, int, int] = (0.0, left, -1, -1, 0)
            if self.left_base[s, v] >= 0 and k > self.there_first[s, v]:
                at = int(self.left_base[s, v] + k - 1 - self.there_first[s, v])
                best = max(best, (float(left[at]), left, at, -1, k - 1), key=lambda o: o[0])
            for i in into[v]:
                sent = k - int(self.delay[i])
                offset = sent - int(self.sent_first[s, i])
                if 0 <= offset < self.sent_count[s, i]:
                    at = int(self.sent_base[s, i]) + offset
                    best = max(best, (float(flow[at]), flow, at, i, sent), key=lambda o: o[0])
            share, column, at, i, k = best
            if share <= DUST / 10:
                return None
            amount = min(amount, share)
            used.append((column, at))
            if i >= 0:
                hops.append((i, k))
                v = int(self.net.src[i])
        for column, at in used:
            column[at] -= amount
        return Path(s, target, amount, _direct(self.net, hops[::-1]))


def _direct(net: Topology, hops: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Hops without the detours that come back to a node that stores: what is there waits instead."""
    kept: list[tuple[int, int]] = []
    for i, k in hops:
        stores = ~net.is_switch[net.dst[i]]
        home = [n for n, (j, _) in enumerate(kept) if stores and net.src[j] == net.dst[i]]
        kept = kept[: home[0]] if home else [*kept, (i, k)]
    return tuple(kept)


def _windows(count: Int64, first: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Columns of a table of time windows: where each begins (-1: none), and row, place, epoch of each column."""
    row, place = np.nonzero(count)
    counts = count[row, place]
    starts = np.cumsum(counts) - counts
    base = np.full(count.shape, -1, dtype=np.int64)
    base[row, place] = starts
    epoch = np.repeat(first[row, place] - starts, counts) + np.arange(int(counts.sum()))
    return base, np.repeat(row, counts), np.repeat(place, counts), epoch


def plan_without_copies(job: Job, objective: str, epochs: str) -> Plan:
    """The LP at one horizon, or at the fewest epochs; then paths, parts and a timed plan.

    ``epochs="auto"`` starts from a bound on the epochs and raises it by a quarter until a flow
    exists: the public code's search in coarse epochs is for the integer program, and its linear
    programs are degenerate (dgx1: 65 s instead of 0.1 s).
    """
    topology, workload = job.topology, job.workload
    unit = float(workload.chunk_bytes.max())
    release = initial(topology, workload, job.seconds).release
    holder, target = workload.chunk_holders.values, workload.chunk_wanted.values
    moves = holder != target
    if not moves.any():  # everyone holds what is wanted
        nothing = {"epochs": 0, "epoch_s": job.seconds, "reported_s": 0.0, "objective": objective, "proven": True}
        return plan_of_sends(topology, workload, [], nothing)
    names, number = np.unique(np.stack([holder, release])[:, moves], axis=1, return_inverse=True)
    sources, begins = names.astype(np.int64)
    demand = np.zeros((len(sources), topology.node_count))
    np.add.at(demand, (number, target[moves]), workload.chunk_bytes[moves] / unit)
    grid = without_windows(topology, job.epochs())
    between = distances(topology, grid)
    there_first = between[sources] + begins[:, None]

    refuted = 0  # the most epochs that are known not to do

    def attempt(horizon: int, early: bool) -> list[Path]:
        nonlocal refuted
        model = FlowModel(topology, grid, between, sources, there_first, demand, horizon, early)
        found = job.solve(model.model, horizon, first=False) if model.possible else None
        if found is None or found.status == "infeasible":
            refuted = max(refuted, horizon)
        if found is None or found.x is None:
            return []
        paths = model.paths(found.x)
        served = {(p.source, p.target) for p in paths}
        # what is too little for a solver's tolerance goes the fastest way
        return paths + [
            Path(s, v, float(demand[s, v]), fastest(topology, grid, between, int(sources[s]), v, int(begins[s])))
            for s, v in model.wanting
            if (s, v) not in served
        ]

    early = objective == "paper"
    low = fewest_epochs_of_flow(topology, grid, there_first, sources, demand)
    refuted = low - 1
    high = int(epochs) if epochs.isdigit() else low
    if epochs == "from-heuristic":
        plan = run_planner("shortest-path", topology, workload, seed=job.seed)
        high = max(low, math.ceil(_busiest_s(plan) / job.seconds) + int(grid.delay.max()))
    paths = attempt(high, early)
    while not paths and not epochs.isdigit() and job.left_s > 0:
        low, high = high + 1, high + high // 4 + 1
        paths = attempt(high, early)
    if not paths:
        raise Infeasible(
            f"no flow of {high} epochs of {job.seconds:.3g} s was found (at least {low} are needed); raise "
            "--option epochs, or leave it at auto; or raise --time-limit"
        )
    while not early and low < high and job.left_s > 0:
        middle = (low + high) // 2
        found = attempt(middle, early)
        if found:
            paths, high = found, middle
        else:
            low = middle + 1
    last = max(k + int(grid.delay[i]) for p in paths for i, k in p.hops[-1:])
    cut, parts = _cut_by_paths(workload, sources, begins, job.seconds, paths)
    sends = [Send(k, k + int(grid.delay[i]), chunk, i) for chunk, path in parts for i, k in paths[path].hops]
    meta = {
        "epochs": last, "epoch_s": job.seconds, "reported_s": last * job.seconds, "objective": objective,
        "proven": refuted >= last - 1, "attempts": job.attempts,
    }  # fmt: skip
    return plan_of_sends(topology, cut, sends, meta)


def fastest(
    topology: Topology, epochs: Epochs, between: Int64, source: int, target: int, begin: int
) -> tuple[tuple[int, int], ...]:
    """The (link, epoch) of the fastest way from ``source``, begun in epoch ``begin``."""
    hops: list[tuple[int, int]] = []
    v, k = source, begin
    offsets, links = topology.out_links
    while v != target:
        i = min(
            map(int, links[offsets[v] : offsets[v + 1]]),
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
