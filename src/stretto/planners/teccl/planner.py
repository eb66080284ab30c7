"""TE-CCL: collectives as multi-commodity flow in epochs, by integer or linear programming.

Epochs, rounding, switch rules, the search for a horizon, its three modes and its A* rounds follow what its public code
does; where MTEGCCA's paper compares with TE-CCL it means these modes. Sums are its programs run backwards, AllReduce a
sum and then copies (:mod:`stretto.schedule.inversion`).

What TE-CCL reports is epochs x epoch length (``reported_s`` in the plan's meta); what its schedule
takes is what the simulator says. Both are kept, and they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...model.collective import Workload
from ...model.errors import Infeasible, InputError
from ...model.kinds import EVERY_KIND
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Send, passes_of, plan_of_sends
from ...schedule.inversion import Transfers, plan_in_phases, transfers_of
from .. import Option, Request, over_links, register
from .copies import CopyModel
from .epochs import Epochs, epoch_seconds, initial_state
from .flow_plan import plan_without_copies
from .horizon import fewest_epochs, most_hops
from .problem import MOST_UNITS, Problem
from .routers import HOW, routers_as

EARLY_GAP = 0.3
"""Relative gap at which ``mode=early-stop`` takes a schedule, as in the public code."""

TIGHT_GAP = 1e-4
"""Relative gap at which the other modes take a schedule for optimal."""

MOST_COARSE_SOLVES = 11
"""Solves of the search for a horizon in coarse epochs, as in the public code."""

COARSE_HORIZON = 3
"""Coarse epochs for each hop of the longest shortest path, as in the public code."""

COARSE_GAP = 0.05
"""Relative gap between a total time that does and one that does not at which the coarse search ends."""

COLUMN_STEPS = 100.0
"""Steps (:mod:`stretto.schedule.effort`) of building and starting to solve a program, for each column."""

STARTS = {"from-heuristic": "", "from-scale-ccl": "scale-ccl"}
"""Values of ``epochs`` that start from another planner's plan, and that planner; "": see :meth:`.Problem.heuristic`."""

ROUND_EPOCHS = 15
"""Epochs of an A* round, at least."""

OPTIONS = (
    Option("mode", str, "fast", "epoch of the fastest or slowest link; early-stop is fast with a gap of 30 %",
           ("fast", "slow", "early-stop")),
    Option("objective", str, "auto", "fewest epochs, or the paper's sum of met demand over epochs; auto: paper for "
           "early-stop and makespan otherwise", ("auto", "makespan", "paper")),
    Option("copy", str, "auto", "whether nodes may copy chunks; auto: unless every chunk has one destination",
           ("auto", "true", "false")),
    Option("epochs", str, "auto", "the horizon: auto (TE-CCL's search), a number, from-heuristic (MTEGCCA's plan), or "
           "from-scale-ccl"),
    Option("astar", bool, False, "solve in rounds of some epochs, each nearer to the goal (A*)"),
    Option("epoch_multiplier", float, 1.0, "lengthens the epoch"),
    Option("routers", str, "cut-through", "what a router that cuts through is: that, and what it has it keeps; or "
           "TE-CCL's node that stores, or its switch", HOW),
    Option("switch_copy", bool, True, "a switch may send one chunk over several links"),
    Option("gap", float, -1.0, "relative gap of the paper's objective; -1 for 1e-4, or 0.3 with early-stop"),
    Option("solver", str, "auto", "auto: CP-SAT, then HiGHS where it gives up", ("auto", "highs", "cp-sat", "gurobi")),
)  # fmt: skip


@register(
    "teccl",
    collectives=EVERY_KIND,
    topologies="any without planes",
    paper="Liu et al., SIGCOMM 2024",
    options=OPTIONS,
    quick={"mode": "slow", "epochs": "from-heuristic"},
    serves=over_links,
)
def teccl(
    request: Request,
    *,
    mode: str = "fast",
    objective: str = "auto",
    copy: str = "auto",
    epochs: str = "auto",
    astar: bool = False,
    epoch_multiplier: float = 1.0,
    routers: str = "cut-through",
    switch_copy: bool = True,
    gap: float = -1.0,
    solver: str = "auto",
) -> Plan:
    """TE-CCL's program in epochs, on HiGHS or CP-SAT, retimed as early as the physics let it.

    Returns:
        A timed plan; MTEGCCA's where ``epochs=auto`` finds none within the effort. Its meta has ``epochs``,
        ``epoch_s``, ``reported_s``, ``proven`` (no fewer epochs do), ``gap`` and ``attempts``: each solve with its
        status and CPU seconds. With sums these are of all phases, which follow each other; no switch copies in them.
    Raises:
        Infeasible: the horizon given is too short (says what would do), or A* rounds get stuck.
        InputError: ``epochs`` is no number, or a time or gap that is none.
    """
    if not 0 < epoch_multiplier <= 1e6:
        raise InputError(f"{epoch_multiplier} is not above 0 and at most a million", "option epoch_multiplier")
    if gap != -1.0 and not 0 <= gap < math.inf:
        raise InputError(f"{gap} is no gap; give 0 or more", "option gap")
    if astar and (epochs != "auto" or objective != "auto"):
        raise InputError("A* rounds have epochs and an objective of their own", "option astar")
    if epochs not in ("auto", *STARTS) and not (epochs.isascii() and epochs.isdigit() and int(epochs)):
        known = ", ".join(("auto", *STARTS))
        raise InputError(f"{epochs!r} is neither {known} nor a number of epochs", "option epochs")
    topology, workload = routers_as(request.topology, routers), request.workload
    single = bool((workload.chunk_wanted.lengths == 1).all())
    sums = bool(workload.chunk_reduces.any())
    if objective == "auto":
        objective = "paper" if mode == "early-stop" else "makespan"
    problem = Problem(
        replace(request, topology=topology, budget=request.budget.for_solvers(MOST_UNITS)),
        seconds=epoch_seconds(
            topology, float(workload.chunk_bytes.max()), "slow" if mode == "slow" else "fast", epoch_multiplier
        ),
        switch_copy=switch_copy and not sums,
        solver=solver,
        gap=gap if gap >= 0 else EARLY_GAP if mode == "early-stop" else TIGHT_GAP,
        start=STARTS.get(epochs, ""),
    )
    if copy == "false" and (sums or not single):
        raise InputError("without copying every chunk must have one destination, and sums need it", "option copy")

    def schedule(part: Problem) -> Schedule:
        return _in_rounds(part) if astar else _with_copies(part, objective, epochs)

    if copy != "true" and single and not sums:
        plan = plan_without_copies(problem, objective, epochs)
        plan = plan or Schedule(problem, problem.heuristic(), {"objective": objective, "proven": False}).plan()
    else:
        plan = _with_sums(problem, schedule) if sums else schedule(problem).plan()
    return replace(plan, topology=request.topology)


@dataclass
class Schedule:
    """The sends of a solution, and what the plan's meta says of it."""

    problem: Problem
    sends: list[Send]
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        net = self.problem.topology
        lands = ~net.is_switch[net.dst]
        last = max((int(s.there) for s in self.sends if lands[s.link]), default=0)
        facts = {"epochs": last, "epoch_s": self.problem.seconds, "reported_s": last * self.problem.seconds}
        self.meta = facts | {"attempts": self.problem.attempts} | self.meta

    def plan(self) -> Plan:
        """The schedule as a plan, with what TE-CCL would report."""
        return plan_of_sends(self.problem.topology, self.problem.workload, self.sends, self.meta)


def _with_sums(problem: Problem, schedule: Callable[[Problem], Schedule]) -> Plan:
    """Phases of copies, run backwards where they sum, each as a problem of its own."""
    phases: list[dict[str, Any]] = []
    sums = problem.workload.chunk_reduces
    count = 1 + int(not sums.all()) + int((problem.workload.chunk_wanted.lengths[sums] > 1).any())

    def spread(topology: Topology, workload: Workload, pipes: bool) -> Transfers:
        first = min(c.start_s for c in workload.collectives)
        begun = Workload(tuple(replace(c, start_s=c.start_s - first) for c in workload.collectives))
        if pipes:  # routers replicate but do not sum, so what is inverted passes through them
            topology = routers_as(topology, "switch")
        budget = problem.budget.share(1 / (count - len(phases)))
        part = replace(problem, request=replace(problem.request, topology=topology, workload=begun, budget=budget))
        phase = schedule(part)
        phases.append(phase.meta)
        sent = transfers_of(topology, begun, passes_of(topology, begun, phase.sends))
        return replace(sent, start_s=sent.start_s + first, arrival_s=sent.arrival_s + first)

    plan = plan_in_phases(problem.topology, problem.workload, spread)
    proven = [p.get("proven") for p in phases]
    plan.meta.update(
        {key: sum(p[key] for p in phases) for key in ("epochs", "reported_s")},
        epoch_s=problem.seconds, phases=len(phases), objective=phases[-1]["objective"], attempts=problem.attempts,
        proven=None if None in proven else all(proven),
        gap=max((p["gap"] for p in phases if p.get("gap") is not None), default=None),
    )  # fmt: skip
    return plan


class _CopyingSearch:
    """The integer program of a problem, at one horizon after the other.

    Attributes:
        least: a number of epochs that every schedule needs.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        net, workload = problem.topology, problem.workload
        columns = float(workload.chunk_count * net.link_count * COARSE_HORIZON * most_hops(net))
        costs = problem.budget.with_costs({"columns": COLUMN_STEPS})
        costs.require(f"teccl's program for {workload.title} on {net.name}", columns=columns)
        self.grid = problem.epochs()
        self.least = fewest_epochs(self.grid, problem.state, problem.wanted)

    def attempt(
        self, horizon: int, objective: str, hint: list[Send], grid: Epochs | None = None
    ) -> tuple[str, list[Send]]:
        """Solve at one horizon, by default in the problem's own epochs: the status, and the sends."""
        problem, grid = self.problem, grid or self.grid
        state = initial_state(problem.topology, problem.workload, grid.seconds)
        model = CopyModel(
            grid, horizon, state, problem.wanted, objective=objective, switch_copies=problem.switch_copy
        )  # fmt: skip
        if not model.possible:
            return "infeasible", []
        start = model.start_from(hint) if hint else None
        solution = problem.solve(model.model, horizon, first=objective == "feasible", start=start)
        return solution.status, model.sends(solution.x) if solution.x is not None else []

    def attempt_longer(self, horizon: int, objective: str) -> tuple[int, list[Send]]:
        """Solve at a horizon and at longer ones until there is a schedule, or the effort ends."""
        while True:
            status, sends = self.attempt(horizon, objective, [])
            if sends or self.problem.budget.exhausted:
                return horizon, sends
            if status == "infeasible":
                self.least = max(self.least, horizon + 1)
            horizon = math.ceil(horizon * 1.25) + 1  # the coarse search promised too much

    def horizon(self) -> int:
        """A number of epochs that should do, as the public code finds it; 0 where it finds none.

        The horizon is 3 x the most hops between two nodes, and what is searched, by bisection in at
        most 11 solves, is the total time in which that many epochs do; then that time is counted in
        epochs of the length asked for.
        """
        problem, coarse = self.problem, COARSE_HORIZON * most_hops(self.problem.topology)
        low, high, met = 0.0, coarse * problem.seconds, False
        for _ in range(MOST_COARSE_SOLVES):
            middle = (low + high) / 2 if met else high
            if self.attempt(coarse, "feasible", [], problem.epochs(middle / coarse))[1]:
                met, high = True, middle
            elif met:
                low = middle
            else:
                low, high = high, high * 2
            if problem.budget.exhausted or (met and high - low < COARSE_GAP * high):
                break
        return math.ceil(high / problem.seconds - 1e-9) if met else 0


def _with_copies(problem: Problem, objective: str, epochs: str) -> Schedule:
    """The integer program: one solve at a horizon, or the fewest epochs."""
    search = _CopyingSearch(problem)
    goal = "paper" if objective == "paper" else "feasible"
    hint: list[Send] = []
    best: list[Send] = []
    if epochs.isdigit():
        horizon = int(epochs)
        status, best = search.attempt(horizon, goal, [])
        if not best:
            raise _too_few(problem, horizon, search.least, status)
    elif epochs == "auto" and (horizon := search.horizon()):
        horizon, best = search.attempt_longer(horizon, goal)
    if not best:  # the other planner's plan is at hand
        hint = problem.heuristic()
        horizon = max(_end(hint), 1)
        if goal == "paper" and not problem.budget.exhausted:
            _, best = search.attempt(horizon, goal, hint)
    if goal == "paper":
        facts = {"gap": problem.attempts[-1]["gap"]} if best else {"gap": None, "proven": False}
        return Schedule(problem, best or hint, {"horizon": horizon, "objective": "paper", **facts})
    best = best or hint
    low, high = search.least, _end(best)
    while low < high and not problem.budget.exhausted:
        middle = (low + high) // 2
        status, sends = search.attempt(middle, "feasible", best if hint else [])
        if sends:
            best, high = sends, _end(sends)
            continue
        low = middle + 1  # refuted, or the solver gave up
        if status == "infeasible":
            search.least = low
    meta = {"proven": search.least >= high, "least_epochs": search.least, "objective": "makespan"}
    return Schedule(problem, best, meta)


def _end(sends: list[Send]) -> int:
    return max((int(s.there) for s in sends), default=0)


def _too_few(problem: Problem, horizon: int, least: int, status: str) -> Infeasible:
    """Why there is no plan, and what to do about it."""
    if status != "infeasible":
        return Infeasible(
            f"no schedule of {horizon} epochs of {problem.seconds:.3g} s was found; try longer epochs (mode=slow) or a "
            "start from MTEGCCA's plan (epochs=from-heuristic), or raise the effort or the time limit"
        )
    enough = _end(problem.heuristic())
    return Infeasible(
        f"{horizon} epochs of {problem.seconds:.3g} s are too few: at least {max(least, horizon + 1)} are needed, "
        f"and {enough} do; raise the option epochs by {max(least, horizon + 1) - horizon} to {enough - horizon}"
    )


def _in_rounds(problem: Problem) -> Schedule:
    """A*: some epochs at a time, each round nearer to the goal than the one before."""
    grid = problem.epochs()
    horizon = max(ROUND_EPOCHS, grid.longest_passage + 1, int(grid.window.max()) + 1)
    state, wanted, first, sends = problem.state, problem.wanted.copy(), 0, []
    while wanted.any():
        model = CopyModel(grid, horizon, state, wanted, objective="astar", switch_copies=problem.switch_copy)
        solution = problem.solve(model.model, horizon, first=False)
        fresh = model.sends(solution.x) if solution.x is not None else []
        if not fresh and not state.coming:
            raise Infeasible(f"A* is stuck after {first} epochs; solve without rounds, or raise the effort")
        sends += [Send(s.at + first, s.there + first, s.chunk, s.link) for s in fresh]
        state, first = state.after(fresh, grid, horizon), first + horizon
        wanted &= ~state.held
        for q, v, _, _ in state.coming:
            wanted[q, v] = False
    return Schedule(problem, sends, {"objective": "astar", "rounds": first // horizon})
