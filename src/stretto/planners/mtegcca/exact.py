"""The exact model of AllGather that MTEGCCA approximates: equations (1) to (14), for small cases.

Liu, Wang, Ma, Li, Li, Journal on Communications 2026, section 1.2. Time is in slots of a chunk on
the fastest link. Where the printed indexes disagree with the paper's own graph (figure 2, where a
chunk sent in slot t over a link of L slots is there when slot t + L begins) the graph is followed:
as printed, (5) and (6) charge one more slot a hop. (7) is read as it is meant, one chunk at a time
on a link: a link is busy until the slots since a chunk was sent have carried it (:mod:`.slots`). (14) is
read as a sum over t.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.collective import Workload
from ...model.errors import Infeasible, InputError
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Send, plan_of_sends
from ...schedule.multicast import MulticastTrees
from ...solvers import Model, affordable, solve
from .. import Option, Request, register
from .growth import Growth
from .slots import busy_slots

MOST_UNITS = 600.0
"""CP-SAT's deterministic units of work, about a second each, after which it gives up."""

COSTS = {"units": 1e6}
"""Steps of effort that a unit of CP-SAT's work costs, see :mod:`stretto.schedule.effort`."""

OPTIONS = (
    Option("slots", int, 0, "the horizon H; 0 for what MTEGCCA needs"),
    Option("solver", str, "cp-sat", "which solver", ("cp-sat", "highs", "gurobi")),
)


def _tell(request: Request, low: float, high: float | None) -> None:
    """Tell how far the solver is that the request waits for."""
    request.tell_solving(f"at least {low:g} slots" + (f", at most {high:g}" if high is not None else ""))


def _unserved(topology: Topology, workload: Workload) -> str | None:
    if topology.planes or not topology.is_accelerator.all():
        return "the paper's model has accelerators only, no switches, routers or planes"
    return None


@register(
    "milp-allgather",
    collectives=("allgather", "broadcast"),
    topologies="accelerators and links only",
    paper="Liu et al., Journal on Communications 2026, equations (1) to (14)",
    exact=True,
    options=OPTIONS,
    quick={},
    changes=True,
    serves=_unserved,
)
def milp_allgather(request: Request, *, slots: int = 0, solver: str = "cp-sat") -> Plan:
    """The fewest slots in which every rank has every chunk, proven.

    Args:
        slots: H, the horizon; with 0 MTEGCCA's plan in slots gives it, and the solver begins there.
    Returns:
        A timed plan, as early as the physics let its order. Its meta has ``slots``, ``slot_s``,
        ``reported_s`` (slots x slot), ``proven`` and ``gap``.
    Raises:
        Infeasible: H is too small, or the solver gave up with nothing.
    """
    if slots < 0:
        raise InputError(f"{slots} slots: give the horizon, or 0", "option slots")
    topology, workload = request.topology, request.workload
    grid = Slots.of(topology, workload)
    start: list[Send] = []
    if not slots:
        start = grid.sends(Growth("auto", "interleaved", -1, grid.seconds, 0.0, False, 0).trees(request)[0])
        slots = max(int(s.there) for s in start)
    program = Program(topology, workload, grid, slots)
    budget = request.budget.with_costs(COSTS)
    effort = min(MOST_UNITS, budget.units("units"))
    request.tell_solving(f"a program of {program.model.column_count} columns", effort)
    solution = solve(
        program.model, solver=solver, effort=effort, gap=0.0,
        time_limit_s=budget.stop.limit_s, start=program.point(start) if start else None, seed=request.seed,
        progress=None if request.progress is None else partial(_tell, request),
    )  # fmt: skip
    if solution.x is None:
        if solution.status == "infeasible":
            raise Infeasible(
                f"{slots} slots of {grid.seconds:.3g} s are too few; raise the option slots, or leave it at 0"
            )
        if not start:
            raise Infeasible("the solver gave up with nothing; raise the effort or the time limit, or take mtegcca")
    # if the solver gave up, MTEGCCA's plan, where the search began, is the answer
    last = slots if solution.x is None else round(float(solution.x[program.latest]))
    sends = start if solution.x is None else program.sends(solution.x)
    meta = {
        "slots": last, "slot_s": grid.seconds, "reported_s": last * grid.seconds, "gap": solution.gap,
        "proven": solution.status == "optimal", "attempts": [{"epochs": slots, **solution.facts}],
    }  # fmt: skip
    return plan_of_sends(topology, workload, sends, meta)


@dataclass(frozen=True)
class Slots:
    """A topology in slots (section 1.2, definitions 1 to 3)."""

    seconds: float  # tau, the largest chunk on the fastest link
    delta: Int64  # int64[links], slots of the latency
    release: Int64  # int64[chunks], the slot in which a chunk's collective starts

    @classmethod
    def of(cls, topology: Topology, workload: Workload) -> Slots:
        size = float(workload.chunk_bytes.max())
        tau = size / float(topology.bandwidth.max())
        delta = np.ceil(topology.latency_s / tau - 1e-9).astype(np.int64)
        return cls(tau, delta, np.ceil(workload.chunk_start_s / tau - 1e-9).astype(np.int64))

    def sends(self, trees: MulticastTrees) -> list[Send]:
        """What trees in slots send."""
        link = trees.route.values.astype(np.int64)  # no switches: a route is one link
        at, busy = (np.round(t / self.seconds).astype(np.int64) for t in (trees.start_s, trees.seconds))
        there = at + busy + self.delta[link]
        rows = zip(at.tolist(), there.tolist(), trees.chunk.tolist(), link.tolist(), strict=True)
        return [Send(*row) for row in rows]


class Program:
    """Equations (1) to (14) for a horizon of H slots; each block names its equations."""

    def __init__(self, topology: Topology, workload: Workload, grid: Slots, horizon: int) -> None:
        self.net, self.grid, self.horizon = topology, grid, horizon
        self.chunks, nodes, links = workload.chunk_count, topology.node_count, topology.link_count
        self.holder = workload.chunk_holders.values.astype(np.int64)
        model = self.model = Model()
        slots = horizon + 1
        affordable(self.chunks * (links + nodes) * slots, grid.seconds, integer=True)
        # int64[slots, links], l and L = delta + l: slots that a chunk sent in each slot keeps a link, and is under way
        self.busy = busy_slots(topology, float(workload.chunk_bytes.max()), grid.seconds, horizon)
        self.whole = self.busy + grid.delta
        t = np.arange(slots)
        # x[c, link, t], where the chunk is there by the horizon and has been released
        sendable = t[None, None] + self.whole.T[None] <= horizon
        sendable = sendable & (t[None, None] >= grid.release[:, None, None])
        sendable &= (topology.dst[None] != self.holder[:, None])[..., None]
        self.x = np.full((self.chunks, links, slots), -1)
        self.x[sendable] = model.columns(int(sendable.sum()), integer=True)
        held = np.arange(nodes)[None] == self.holder[:, None]
        # y[c, v, t]: the chunk is at v when slot t begins; (2) and (3) fix it at t = 0
        first = np.zeros((self.chunks, nodes, slots))
        first[held] = 1.0
        ceiling = np.ones_like(first)
        ceiling[:, :, 0] = held
        self.y = model.columns(first.size, lower=first.ravel(), upper=ceiling.ravel(), integer=True)
        self.y = self.y.reshape(first.shape)
        self._moves(sendable)
        self._capacity(sendable)
        self._first_receipts(workload, held)

    def _moves(self, sendable: Bool) -> None:
        net, model, horizon = self.net, self.model, self.horizon
        c, link, t = np.nonzero(sendable)
        x = self.x[c, link, t]
        # (4): each chunk leaves its source at least once
        leaves = net.src[link] == self.holder[c]
        model.rows(self.chunks, 1, np.inf, (c[leaves], x[leaves], 1.0))
        # (5): what is sent is there: x[t] <= y[t]
        each = np.arange(len(x))
        model.rows(len(x), -np.inf, 0.0, (each, x, 1.0), (each, self.y[c, net.src[link], t], -1.0))
        # (6): y[t] = y[t - 1] + what arrives when t begins
        later = self.y[:, :, 1:]
        number = np.arange(later.size).reshape(later.shape)
        there = t + self.whole[t, link]
        others = (np.arange(net.node_count)[None] != self.holder[:, None])[..., None] & (np.arange(horizon) >= 0)
        rows = number[others]
        fresh = np.full(later.size, -1)
        fresh[rows] = np.arange(len(rows))
        model.rows(
            len(rows), 0.0, 0.0,
            (np.arange(len(rows)), later[others], 1.0), (np.arange(len(rows)), self.y[:, :, :-1][others], -1.0),
            (fresh[number[c, net.dst[link], there - 1]], x, -1.0),
        )  # fmt: skip

    def _capacity(self, sendable: Bool) -> None:
        """(7): at most one chunk is on a link in any slot."""
        c, link, t = np.nonzero(sendable)
        rows: list[Int64] = []
        columns: list[Int64] = []
        held = self.busy[t, link]
        for shift in range(int(held.max())):
            busy = shift < held
            rows.append(link[busy] * (self.horizon + 1) + t[busy] + shift)
            columns.append(self.x[c, link, t][busy])
        names, at = np.unique(np.concatenate(rows), return_inverse=True)
        self.model.rows(len(names), -np.inf, 1.0, (at, np.concatenate(columns), 1.0))

    def _first_receipts(self, workload: Workload, held: Bool) -> None:
        model, horizon = self.model, self.horizon
        lists = workload.chunk_wanted
        wants = np.zeros_like(held)
        wants[lists.owners, lists.values] = True
        c, v = np.nonzero(wants & ~held)
        n, slots = len(c), horizon + 1
        y = self.y[c, v]
        z = model.columns(n * slots, integer=True).reshape(n, slots)
        pair, each = np.arange(n), np.arange(n * horizon).reshape(n, horizon)
        per_slot = np.repeat(pair, slots)
        model.rows(n, 1, np.inf, (per_slot, y.ravel(), 1.0))  # (8)
        model.rows(n, 1, 1, (np.repeat(pair, horizon), z[:, 1:].ravel(), 1.0))  # (9)
        model.rows(each.size, -np.inf, 0, (each, z[:, 1:], 1.0), (each, y[:, 1:], -1.0))  # (10)
        model.rows(each.size, -np.inf, 1, (each, z[:, 1:], 1.0), (each, y[:, :-1], 1.0))  # (11)
        model.rows(each.size, 0, np.inf, (each, z[:, 1:], 1.0), (each, y[:, 1:], -1.0), (each, y[:, :-1], 1.0))  # (12)
        model.rows(n, 0, 0, (pair, z[:, 0], 1.0), (pair, y[:, 0], -1.0))  # (13)
        delay = model.columns(n, upper=horizon, integer=True)
        moments = np.tile(np.arange(slots, dtype=np.float64), n)
        model.rows(n, 0, 0, (pair, delay, 1.0), (per_slot, z.ravel(), -moments))  # (14)
        self.latest = model.columns(1, upper=horizon, cost=1.0, integer=True)[0]
        model.rows(n, -np.inf, 0, (pair, delay, 1.0), (pair, self.latest, -1.0))  # (1)
        self.z, self.delay, self.wanted = z, delay, (c, v)

    def sends(self, x: Float64) -> list[Send]:
        """What a solution sends."""
        c, link, t = np.nonzero(self.x >= 0)
        on = x[self.x[c, link, t]] > 0.5
        rows = zip(c[on].tolist(), link[on].tolist(), t[on].tolist(), strict=True)
        return [Send(k, k + int(self.whole[k, i]), q, i) for q, i, k in rows]

    def point(self, sends: list[Send]) -> Float64:
        """The point of a schedule at hand, for the solver to begin with."""
        x = np.zeros(self.model.column_count)
        arrival: dict[tuple[int, int], int] = {}
        for s in sends:
            x[self.x[s.chunk, s.link, int(s.at)]] = 1.0
            arrival[s.chunk, int(self.net.dst[s.link])] = int(s.there)
        for q, v in enumerate(self.holder.tolist()):
            x[self.y[q, v]] = 1.0
        for (q, v), k in arrival.items():
            x[self.y[q, v, k:]] = 1.0
        for n, (q, v) in enumerate(zip(*(a.tolist() for a in self.wanted), strict=True)):
            x[self.z[n, arrival[q, v]]] = 1.0
            x[self.delay[n]] = arrival[q, v]
        x[self.latest] = max(arrival.values())
        return x
