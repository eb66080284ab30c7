"""TE-CCL: collectives as multi-commodity flow in epochs, by integer or linear programming.

Liu, Arzani, Kakarla et al., "Rethinking machine learning collective communication as a
multi-commodity flow problem", SIGCOMM 2024, on open solvers. Epochs, rounding, switch rules, the
search for a horizon, its three modes and its A* rounds follow what its public code does; where
MTEGCCA's paper compares with TE-CCL it means these modes. With copying the program is
:class:`.teccl_model.CopyModel`, without :class:`.teccl_flow.FlowModel`. Sums are its programs
inverted, AllReduce one after the other (:mod:`.inversion`).

What TE-CCL reports is epochs x epoch length (``reported_s`` in the plan's meta); what its schedule
takes is what the simulator says. Both are kept, and they differ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...model.collective import Workload
from ...model.errors import Infeasible, InputError
from ...model.plan import Plan
from ...model.topology import ROUTER, SWITCH, Topology
from ...schedule.asap import Send, passes_of, plan_of_sends
from ...schedule.inversion import Transfers, plan_in_phases, transfers_of
from ...solvers import Solution
from .. import Option, Progress, over_links, register
from .flow import plan_without_copies
from .horizon import fewest_epochs, schedule_of
from .job import Job
from .model import CopyModel, Epochs, Int64, distances, epoch_seconds, initial, longest_passage

EARLY_GAP = 0.3
"""The gap at which ``mode=early-stop`` is content."""

ROUND_EPOCHS = 15
"""An A* round has at least so many epochs."""

OPTIONS = (
    Option("mode", str, "fast", "epoch of the fastest or slowest link; early-stop is fast with a gap of 30 %",
           ("fast", "slow", "early-stop")),
    Option("objective", str, "auto", "fewest epochs, or the paper's sum of met demand over epochs; auto: paper for "
           "early-stop and makespan otherwise", ("auto", "makespan", "paper")),
    Option("copy", str, "auto", "whether nodes may copy chunks; auto: unless every chunk has one destination",
           ("auto", "true", "false")),
    Option("epochs", str, "auto", "the horizon: auto (TE-CCL's search), a number, or from-heuristic (MTEGCCA's plan)"),
    Option("astar", bool, False, "solve in rounds of some epochs, each nearer to the goal (A*)"),
    Option("epoch_multiplier", float, 1.0, "lengthens the epoch"),
    Option("switch_copy", bool, True, "a switch may send one chunk over several links"),
    Option("gap", float, -1.0, "relative gap of the paper's objective; -1 for 1e-4, or 0.3 with early-stop"),
    Option("solver", str, "auto", "auto: CP-SAT, then HiGHS where it gives up", ("auto", "highs", "cp-sat", "gurobi")),
)  # fmt: skip

KINDS = (
    "allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce", "scatter", "gather", "multicast",
)  # fmt: skip


@register(
    "teccl",
    collectives=KINDS,
    topologies="any without planes",
    paper="Liu et al., SIGCOMM 2024",
    options=OPTIONS,
    quick={"mode": "slow", "epochs": "from-heuristic"},
    serves=over_links,
)
def teccl(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    mode: str = "fast",
    objective: str = "auto",
    copy: str = "auto",
    epochs: str = "auto",
    astar: bool = False,
    epoch_multiplier: float = 1.0,
    switch_copy: bool = True,
    gap: float = -1.0,
    solver: str = "auto",
) -> Plan:
    """TE-CCL's program in epochs, on HiGHS or CP-SAT, retimed as early as the physics let it.

    Args:
        time_limit_s: for all solves together; without it, 600 s.
        mode: the epoch is a chunk's time on the fastest link ("fast"), on the slowest ("slow"),
            or the fastest and any schedule within 30 % of the best ("early-stop").
        objective: "makespan" looks for the fewest epochs, one horizon after the other; "paper"
            solves once for the most demand met, summed over the epochs (average completion).
        epochs: "auto" searches as the public code does, from 3 x (most hops) coarse epochs; a
            number is taken as it is; "from-heuristic" starts from MTEGCCA's plan.
        gap: of the paper's objective.
    Returns:
        A timed plan. Its meta has ``epochs``, ``epoch_s``, ``reported_s``, ``proven`` (no fewer
        epochs do), ``gap`` and ``attempts``: each solve with its status and CPU seconds. With sums
        these are of all phases, which follow each other; no switch copies in them.
    Raises:
        Infeasible: the horizon given is too short (says what would do), or no schedule was found
            in time.
        InputError: ``epochs`` is no number, or a time or gap that is none.
    """
    if not 0 < epoch_multiplier <= 1e6:
        raise InputError(f"{epoch_multiplier} is not above 0 and at most a million", "--option epoch_multiplier")
    if gap != -1.0 and not 0 <= gap < math.inf:
        raise InputError(f"{gap} is no gap; give 0 or more", "--option gap")
    if astar and (epochs != "auto" or objective != "auto"):
        raise InputError("A* rounds have epochs and an objective of their own", "--option astar")
    if epochs not in ("auto", "from-heuristic") and not (epochs.isascii() and epochs.isdigit() and int(epochs)):
        raise InputError(f"{epochs!r} is neither auto, from-heuristic nor a number of epochs", "--option epochs")
    single = bool((workload.chunk_wanted.lengths == 1).all())
    sums = bool(workload.chunk_reduces.any())
    if objective == "auto":
        objective = "paper" if mode == "early-stop" else "makespan"
    job = Job(
        topology, workload, seconds=epoch_seconds(
            topology, float(workload.chunk_bytes.max()), "slow" if mode == "slow" else "fast", epoch_multiplier
        ),
        seed=seed, deadline=time.monotonic() + (600.0 if time_limit_s is None else time_limit_s),
        progress=progress, switch_copy=switch_copy and not sums, solver=solver,
        gap=gap if gap >= 0 else EARLY_GAP if mode == "early-stop" else 1e-4,
    )  # fmt: skip
    if copy == "false" and (sums or not single):
        raise InputError("without copying every chunk must have one destination, and sums need it", "--option copy")
    if copy != "true" and single and not sums:
        return plan_without_copies(job, objective, epochs)

    def scheduled(part: Job) -> Schedule:
        return _in_rounds(part) if astar else _with_copies(part, objective, epochs)

    return _with_sums(job, scheduled) if sums else scheduled(job).plan()


@dataclass
class Schedule:
    """What a program came to: the sends, and what it says of itself (``meta``)."""

    job: Job
    sends: list[Send]
    meta: dict[str, Any]

    def __post_init__(self) -> None:
        net = self.job.topology
        lands = ~net.is_switch[net.dst]
        last = max((int(s.there) for s in self.sends if lands[s.link]), default=0)
        known = {"epochs": last, "epoch_s": self.job.seconds, "reported_s": last * self.job.seconds}
        self.meta = known | {"attempts": self.job.attempts} | self.meta

    def plan(self) -> Plan:
        """The schedule as a plan, with what TE-CCL would report."""
        return plan_of_sends(self.job.topology, self.job.workload, self.sends, self.meta)


def _with_sums(job: Job, scheduled: Callable[[Job], Schedule]) -> Plan:
    """Phases of copies, inverted where they sum, each as a job of its own."""
    phases: list[dict[str, Any]] = []
    sums = job.workload.chunk_reduces
    count = 1 + int(not sums.all()) + int((job.workload.chunk_wanted.lengths[sums] > 1).any())

    def spread(topology: Topology, workload: Workload, pipes: bool) -> Transfers:
        first = min(c.start_s for c in workload.collectives)
        begun = Workload(tuple(replace(c, start_s=c.start_s - first) for c in workload.collectives))
        if pipes:  # routers replicate but do not sum, so what is inverted passes through them
            topology = replace(topology, kind=np.where(topology.forwarding == ROUTER, SWITCH, topology.kind))
        deadline = time.monotonic() + job.left_s / (count - len(phases))
        part = replace(job, topology=topology, workload=begun, deadline=deadline)
        found = scheduled(part)
        phases.append(found.meta)
        sent = transfers_of(topology, begun, passes_of(topology, begun, found.sends))
        return replace(sent, start_s=sent.start_s + first, arrival_s=sent.arrival_s + first)

    plan = plan_in_phases(job.topology, job.workload, spread)
    proven = [p.get("proven") for p in phases]
    plan.meta.update(
        {key: sum(p[key] for p in phases) for key in ("epochs", "reported_s")},
        epoch_s=job.seconds, phases=len(phases), objective=phases[-1]["objective"], attempts=job.attempts,
        proven=None if None in proven else all(proven),
        gap=max((p["gap"] for p in phases if p.get("gap") is not None), default=None),
    )  # fmt: skip
    return plan


def _with_copies(job: Job, objective: str, epochs: str) -> Schedule:
    """The MILP: one solve at a horizon, or the fewest epochs."""
    grid = job.epochs()
    between = distances(job.topology, grid)
    least = fewest_epochs(job.topology, grid, between, job.state, job.wanted)

    def attempt(
        k: int, goal: str, hint: list[Send], grid: Epochs = grid, between: Int64 = between
    ) -> tuple[Solution | None, list[Send]]:
        state = initial(job.topology, job.workload, grid.seconds)
        model = CopyModel(
            job.topology, job.workload, grid, k, state, job.wanted, between,
            objective=goal, switch_copies=job.switch_copy,
        )  # fmt: skip
        if not model.possible:
            return None, []
        start = model.start_from(hint) if hint else None
        found = job.solve(model.model, k, first=goal == "feasible", start=start)
        return found, model.sends(found.x) if found.x is not None else []

    def meets(seconds: float, k: int) -> bool:
        coarse = job.epochs(seconds)
        return bool(attempt(k, "feasible", [], coarse, distances(job.topology, coarse))[1])

    known: list[Send] = []
    if epochs.isdigit():
        horizon = int(epochs)
    elif epochs == "from-heuristic":
        known = schedule_of(job.heuristic(), grid)
        horizon = _end(known)
    else:
        horizon = job.search_horizon(meets)

    if objective == "paper":
        found, sends = attempt(max(horizon, 1), "paper", known)
        while not sends and epochs == "auto" and job.left_s > 0:
            horizon = math.ceil(horizon * 1.25) + 1  # the coarse search promised too much
            found, sends = attempt(horizon, "paper", [])
        if not sends and known:  # out of time: MTEGCCA's plan is at hand
            return Schedule(job, known, {"horizon": horizon, "gap": None, "objective": "paper", "proven": False})
        if not sends:
            raise _too_few(job, horizon, least, found)
        gap = found.gap if found else None
        return Schedule(job, sends, {"horizon": horizon, "gap": gap, "objective": "paper"})
    best = known
    if not best:
        found, best = attempt(horizon, "feasible", [])
        while not best and epochs == "auto" and job.left_s > 0:
            if found is None or found.status == "infeasible":
                least = max(least, horizon + 1)
            horizon = math.ceil(horizon * 1.25) + 1  # the coarse search promised too much
            found, best = attempt(horizon, "feasible", [])
        if not best:
            raise _too_few(job, horizon, least, found)
    low, high = least, _end(best)
    while low < high and job.left_s > 0:
        middle = (low + high) // 2
        found, sends = attempt(middle, "feasible", best if known else [])
        if sends:
            best, high = sends, _end(sends)
            continue
        low = middle + 1  # refuted, or not found in time
        if found is None or found.status == "infeasible":
            least = low
    return Schedule(job, best, {"proven": least >= high, "least_epochs": least, "objective": "makespan"})


def _end(sends: list[Send]) -> int:
    return max(int(s.there) for s in sends)


def _too_few(job: Job, horizon: int, least: int, found: Solution | None) -> Infeasible:
    """Why there is no plan, and what to do."""
    if found is not None and found.status != "infeasible":
        return Infeasible(
            f"no schedule of {horizon} epochs of {job.seconds:.3g} s was found in time; raise --time-limit, or try "
            "longer epochs (mode=slow) or a start from MTEGCCA's plan (epochs=from-heuristic)"
        )
    enough = _end(schedule_of(job.heuristic(), job.epochs()))
    return Infeasible(
        f"{horizon} epochs of {job.seconds:.3g} s are too few: at least {max(least, horizon + 1)} are needed, "
        f"and {enough} do; raise --option epochs by {max(least, horizon + 1) - horizon} to {enough - horizon}"
    )


def _in_rounds(job: Job) -> Schedule:
    """A*: some epochs at a time, each round nearer to the goal than the one before."""
    grid = job.epochs()
    between = distances(job.topology, grid)
    horizon = max(ROUND_EPOCHS, longest_passage(job.topology, grid, between) + 1, int(grid.window.max()) + 1)
    state, wanted, first, sends = job.state, job.wanted.copy(), 0, []
    while wanted.any():
        model = CopyModel(
            job.topology, job.workload, grid, horizon, state, wanted, between,
            objective="astar", switch_copies=job.switch_copy,
        )  # fmt: skip
        found = job.solve(model.model, horizon, first=False)
        fresh = model.sends(found.x) if found.x is not None else []
        if not fresh and not state.coming:
            raise Infeasible(f"A* is stuck after {first} epochs; raise --time-limit or solve without rounds")
        sends += [Send(s.at + first, s.there + first, s.chunk, s.link) for s in fresh]
        state, first = state.after(fresh, job.topology, horizon), first + horizon
        wanted &= ~state.held
        for q, v, _ in state.coming:
            wanted[q, v] = False
    return Schedule(job, sends, {"objective": "astar", "rounds": first // horizon})
