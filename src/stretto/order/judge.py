"""How long a step takes in some order: the messages of its stages as plans, run by the simulator.

Of a stage with very many messages the simulator runs the first times of each phase. The rest is followed by the bound
of the order (:func:`.kernel_cost.order_bound`), which leaves out only what messages of different ranks take from each
other on links that they share: the stage's time is the bound's, times what the simulator says over what the bound says
of the first times. Where no links are shared, both say the same, and the bound alone is followed.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from ..model.collective import Collective, Workload
from ..model.plan import Plan, make_plan
from ..simulate import Pattern, simulate
from . import kernel_cost
from .messages import Messages, Share
from .network import Machines
from .problem import MOST_FOLLOWED, Problem

RUNS = 1000
"""Orders that a search simulates, about."""


def plan_of(machines: Machines, messages: Messages, nodes: Int64) -> Plan:
    """The plan that a library carries out: every message a chunk that its sender has and its receiver wants.

    Links serve the earlier time first and divide what is left equally. The plan's network has the links in use alone.
    """
    src, dst = nodes[messages.src], nodes[messages.dst]
    first, kind = messages.kinds
    hops = machines.pairs(src[first], dst[first], messages.size_bytes[first].astype(np.float64)).hops
    route = machines.routes(src[first], dst[first], hops)
    used, renamed = np.unique(route.values, return_inverse=True)
    topology = machines.topology.with_links(used.astype(np.int64))
    counts = np.bincount(messages.collective)
    collectives, chunk = [], []
    for begin, end in zip((np.cumsum(counts) - counts).tolist(), np.cumsum(counts).tolist()):
        collective, numbers = _promise(machines, src[begin:end], dst[begin:end], messages.size_bytes[begin:end])
        collectives.append(collective)
        chunk.append(begin + numbers)
    return make_plan(
        topology, Workload(tuple(collectives)), "priorities", chunk=np.concatenate(chunk), src=src,
        dst=Ragged.single(dst), route=route.with_values(renamed.ravel()).take(kind), depends=messages.depends,
        weight=-messages.round.astype(np.float64), group=messages.round,
    )  # fmt: skip


def _promise(machines: Machines, src: Int64, dst: Int64, size_bytes: Int64) -> tuple[Collective, Int64]:
    """What messages bring, as an AllToAll of uneven parts with a chunk for each; and int64[messages], these chunks."""
    n, row = len(machines.nodes), machines.row
    pairs, pair = np.unique(row[src] * n + row[dst], return_inverse=True)
    order = np.argsort(pair, kind="stable")
    sizes, pieces = size_bytes[order], pair.ravel()[order]
    ends = np.cumsum(sizes)
    piece_bytes = np.bincount(pieces, weights=sizes.astype(np.float64)).astype(np.int64)
    offset = ends - sizes - (np.cumsum(piece_bytes) - piece_bytes)[pieces]
    chunk = np.empty(len(order), dtype=np.int64)
    chunk[order] = np.arange(len(order))
    most = int(np.bincount(pairs // n, weights=piece_bytes.astype(np.float64)).max())
    return Collective(
        "alltoallv", machines.nodes.astype(np.int32), most, -1, 0.0, piece_bytes, Ragged.single(pairs // n),
        Ragged.single(pairs % n), False, pieces.astype(np.int32), offset, sizes,
    ), chunk  # fmt: skip


class Judge:
    """The simulator's times of a problem's orders."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._known: dict[bytes, list[Float64]] = {}
        self._parts: dict[tuple[int, int, int | None], Problem] = {}

    @property
    def exact(self) -> bool:
        """Whether all messages are simulated one by one."""
        return self.problem.simulated is self.problem

    def seconds(self, order: Int64) -> float:
        """The time of all stages, one after the other."""
        return float(sum(ends_s.max() for ends_s in self.stages_s(order)))

    def stages_s(self, order: Int64) -> list[Float64]:
        """For each stage float64[collectives], when each of its collectives has ended."""
        key = order.tobytes()
        if key not in self._known:
            self._known[key] = [self._stage_s(number, order) for number in range(len(self.problem.stages))]
        return self._known[key]

    @cached_property
    def _patterns(self) -> list[tuple[Messages, Pattern]]:
        messages = [stage.messages for stage in self.problem.stages]
        return [(m, Pattern(m.src, m.dst, m.depends, m.round, runs=RUNS)) for m in messages]

    def quick_seconds(self, order: Int64) -> float:
        """The same where all messages are simulated, without a plan: for many orders."""
        machines, nodes, total = self.problem.machines, self.problem.nodes(order), 0.0
        for messages, pattern in self._patterns:
            first, kind = messages.kinds
            src, dst = nodes[messages.src[first]], nodes[messages.dst[first]]
            hops = machines.pairs(src, dst, messages.size_bytes[first].astype(np.float64)).hops
            route = machines.routes(src, dst, hops).take(kind)
            total += float(pattern.arrivals_s(machines.topology, route, messages.size_bytes).max())
        return total

    def _stage_s(self, number: int, order: Int64) -> Float64:
        """float64[collectives], when each collective of a stage has ended."""
        stage = self.problem.stages[number]
        short = self._part(number, stage.simulated_times(self.problem.most_simulated))
        messages, nodes = short.stages[0].messages, self.problem.nodes(order)
        if short.stages[0] is not stage and len(stage.shares) == 1 and _apart(self.problem.machines, messages, nodes):
            return np.array([self._followed_s(number, order)])
        ends_s = _run(self.problem.machines, messages, nodes)
        if short.stages[0] is stage:
            return ends_s
        return ends_s * (self._followed_s(number, order) / _bound_s(short, order))

    def _followed_s(self, number: int, order: Int64) -> float:
        """The bound of a stage in some order; of very long phases by their first times, and the pace of these."""
        stage = self.problem.stages[number]
        most = stage.most_times(MOST_FOLLOWED)
        first_s = total_s = _bound_s(self._part(number, most), order)
        for p in range(max(len(share.traffic.phases) for share in stage.shares) if most else 0):
            left = max(_times(share, p) for share in stage.shares) - most
            if left > 0:
                half_s = _bound_s(self._part(number, most, p), order)
                total_s += left * (first_s - half_s) / (most - most // 2)
        return total_s

    def _part(self, number: int, most_times: int, halved: int | None = None) -> Problem:
        """One stage with no phase sent more than so often; kept, since its messages are the same in all orders."""
        key = number, most_times, halved
        if key not in self._parts:
            self._parts[key] = self.problem.of_stage(self.problem.stages[number].cut(most_times, halved))
        return self._parts[key]


def _bound_s(one: Problem, order: Int64) -> float:
    """The bound of one order."""
    rows = one.rows
    bounds = at_speed(kernel_cost.order_bounds, float(len(rows.kind)))(order[None], one.kinds, rows, one.net)
    return float(bounds[0])


def _times(share: Share, p: int) -> int:
    """How often a collective's phase is sent, 0 where it has no such phase."""
    phases = share.traffic.phases
    return phases[p].times if p < len(phases) else 0


def _apart(machines: Machines, messages: Messages, nodes: Int64) -> bool:
    """Whether messages of different pairs of ranks share no links."""
    first, _ = messages.kinds
    ranks = np.unique(np.stack((messages.src[first], messages.dst[first])), axis=1)
    src, dst = nodes[ranks[0]], nodes[ranks[1]]
    links = machines.routes(src, dst, machines.pairs(src, dst, np.ones(len(src))).hops).values
    return len(np.unique(links)) == len(links)


def _run(machines: Machines, messages: Messages, nodes: Int64) -> Float64:
    completions_s: Float64 = simulate(plan_of(machines, messages, nodes)).completions_s
    return completions_s
