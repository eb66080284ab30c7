"""Cells that run with real bytes: each instance's plan between network namespaces of this machine (root).

Bandwidths are divided plan by plan, since a scheme that is 25 times slower than another must not take 25 times as
long: by what makes the plan take ``LEAST_S``, or ``TRANSFER_S`` for each of its transfers. Times are those of the
network itself again: measured seconds over the divisor.
"""

from __future__ import annotations

import numpy as np

from ..emulator import WIDEST, Emulated, Scaling, emulate
from ..model.errors import StrettoError
from ..model.plan import Plan
from ..simulate import simulate
from .cell import over_seeds, planned, request_columns
from .model import Cell, Row

LEAST_S = 5.0
"""Seconds that an emulated plan takes at least: a process may wait milliseconds for its turn on a core."""

TRANSFER_S = 3e-3
"""Seconds for each transfer of a plan, at least: two cores handle some thousand transfers a second."""

TIMEOUT_FACTOR = 5.0
"""A run is given up after this many times what it should take."""


def run_emulated(cell: Cell, seed: int = 0) -> Row:
    """The row of a cell whose ``completion_s`` is measured, seed by seed; ``simulated_s`` is beside it.

    Raises:
        StrettoError: the planner does not serve the request, its plan does not verify, or bytes arrived wrong.
    """
    return request_columns(cell) | over_seeds([_measured(cell, s) for s in range(seed, seed + cell.seeds)])


def _measured(cell: Cell, seed: int) -> Row:
    """The results of one instance."""
    topology, workload = cell.request(seed)
    plan = planned(cell, topology, workload, seed)
    line = simulate(plan)
    takes_s = max(LEAST_S, TRANSFER_S * plan.transfer_count)
    scale = max(takes_s / line.completion_s, float(topology.bandwidth.max()) / WIDEST)
    run = emulate(plan, Scaling(scale), timeout_s=60.0 + TIMEOUT_FACTOR * scale * line.completion_s, seed=seed)
    if run.outcome.wrong:
        raise StrettoError(f"wrong bytes arrived: {run.outcome.wrong[:5]}")
    measured_s = mean_completion_s(plan, run) / scale
    return {
        "ranks": len(workload.collectives[0].ranks),
        "transfers": plan.transfer_count,
        "bound_s": plan.meta.get("objective_bound_s"),
        "completion_s": measured_s,
        "simulated_s": line.mean_completion_s,
        "over_simulated": measured_s / line.mean_completion_s,
        "reported_s": line.mean_completion_s,
        "completion_over_bound": None,
        "algorithm_bandwidth": cell.size_bytes / measured_s,
        "planning_s": plan.meta["planning_s"],
        "planning_cpu_s": plan.meta["planning_cpu_s"],
        "proven": None,
        "verified": True,
    }


def mean_completion_s(plan: Plan, run: Emulated) -> float:
    """When each collective had all its bytes where they must be, on average, seconds of this machine."""
    last = np.zeros(len(plan.workload.collectives))
    for k, _, _, measured_s in run.arrivals:
        collective = plan.workload.chunk_collective[plan.chunk[k]]
        last[collective] = max(last[collective], measured_s)
    return float(last.mean())
