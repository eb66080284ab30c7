"""Running one cell: plan, verify, simulate and bound. :func:`attempt` makes an error a row with the reason: ``cannot``
if the scheme refuses the request or finds no plan within its limits, ``failed`` for all else."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from ..bounds import bounds
from ..model.changes import Changes, changes_of_table
from ..model.collective import Workload
from ..model.errors import Infeasible, NotInstalled, StrettoError, Unsupported
from ..model.plan import Plan
from ..model.topology import Topology
from ..planners import run_planner
from ..simulate import simulate
from ..verify import verify
from .identity import code_digest, versions
from .model import Cell, Row
from .unsteady import unsteady

REQUEST = ("scheme", "topology", "where", "collective", "size_bytes", "chunks", "planner", "options", "time_limit_s",
           "figures", "contends")  # fmt: skip
"""The columns that describe the request of a cell."""


class Outcome(NamedTuple):
    """The result of running a cell."""

    row: Row
    versions: dict[str, str]
    code: str  # code_digest() in the process that ran the cell
    wall_s: float  # that the whole cell took: planning, verifying and simulating
    cpu_s: float


def attempt(cell: Cell, seed: int) -> Outcome:
    """Run a cell in its own way; an error is a row with ``cannot`` or ``failed``, its reason."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        row = (cell.run or run_cell)(cell, seed)
    except Exception as error:  # whatever is wrong with a cell, the others are run
        answered = isinstance(error, Unsupported | Infeasible) and not isinstance(error, NotInstalled)
        reason = {"cannot" if answered else "failed": message_of(error)}
        row = request_columns(cell) | reason | {"planning_cpu_s": time.process_time() - cpu}
    return Outcome(row, versions(), code_digest(), time.perf_counter() - wall, time.process_time() - cpu)


def lost_cell(cell: Cell, why: str) -> Outcome:
    """The outcome of a cell whose process died."""
    row = request_columns(cell) | {"failed": why, "planning_cpu_s": 0.0}
    return Outcome(row, versions(), code_digest(), 0.0, 0.0)


def message_of(error: Exception) -> str:
    """An error in words, with its type if it is not one of stretto's."""
    return str(error) if isinstance(error, StrettoError) else f"{type(error).__name__}: {error}"


def request_columns(cell: Cell) -> Row:
    """The part of a row that describes the request."""
    row: Row = {name: getattr(cell, name) for name in REQUEST}
    row |= {"options": dict(cell.options), "figures": list(cell.figures)}
    if cell.shared is not None:
        row |= {"collectives": cell.shared.collectives, "varying": cell.shared.varying}
    return row


def run_cell(cell: Cell, seed: int = 0) -> Row:
    """Plan, verify, simulate and bound one cell, seed by seed.

    Raises:
        StrettoError: the planner does not serve the request, or its plan does not verify.
    """
    found = [_instance(cell, s) for s in range(seed, seed + cell.seeds)]
    return request_columns(cell) | (found[0] if cell.seeds == 1 else over_seeds(found))


def _instance(cell: Cell, seed: int) -> Row:
    """The results of one instance of a cell."""
    given, workload = cell.request(seed)
    topology = given if cell.unsteady is None else unsteady(given, workload, cell.unsteady.kind, seed)
    told = topology if cell.unsteady is None or cell.unsteady.known else given
    plan = planned(cell, told, workload, seed)
    timeline = simulate(plan, topology.changes)
    meta = plan.meta
    completion = timeline.completion_s if cell.shared is None else timeline.mean_completion_s
    bound = bounds(topology, workload)[0].seconds if cell.shared is None else meta.get("objective_bound_s")
    row: Row = {
        "ranks": len(workload.collectives[0].ranks),
        "transfers": plan.transfer_count,
        "bound_s": bound,
        "completion_s": completion,
        "reported_s": meta.get("reported_s", completion),
        "completion_over_bound": completion / bound if bound else None,
        "algorithm_bandwidth": cell.size_bytes / completion if completion else None,
        "planning_s": meta["planning_s"],
        "planning_cpu_s": meta["planning_cpu_s"],
        "proven": meta.get("proven"),
        "gap": meta.get("gap"),
        "solves": len(meta.get("attempts", meta.get("stages", ()))),
        "verified": True,
    }
    if cell.shared is not None and cell.shared.varying:
        varied = simulate(plan, _varying(plan, cell.shared.varying, 3 * completion, seed)).mean_completion_s
        row["slowdown"] = varied / completion
    return row


def planned(cell: Cell, topology: Topology, workload: Workload, seed: int) -> Plan:
    """The plan of an instance; StrettoError if there is none or if it does not verify."""
    plan = run_planner(
        cell.planner, topology, workload, seed=seed, effort=cell.effort, time_limit_s=cell.time_limit_s,
        options=dict(cell.options),
    )  # fmt: skip
    verdict = verify(plan)
    if not verdict.ok:
        raise StrettoError(f"the plan does not verify: {verdict.finding.message if verdict.finding else ''}")
    return plan


def _varying(plan: Plan, amount: float, until_s: float, seed: int) -> Changes:
    """Bandwidths that are drawn anew every second, uniformly within ``amount`` of each link's mean."""
    net = plan.topology
    rng = np.random.default_rng(1000 + seed)
    at = np.arange(1.0, max(until_s, 2.0))
    return changes_of_table(at, net.bandwidth * (1 + amount * rng.uniform(-1, 1, (len(at), net.link_count))))


def over_seeds(found: list[Row]) -> Row:
    """One row for several seeds: means, the spread of the figures' columns, and the completions and bounds by seed."""
    row: Row = {}
    for key, first in found[0].items():
        values = [f[key] for f in found]
        if first is None or isinstance(first, bool):
            row[key] = first if all(v == first for v in values) else False
        elif all(v is not None for v in values):
            row[key] = float(np.mean(values)) if isinstance(first, float) else max(values)
    for key in ("completion_s", "slowdown"):
        if key in row:
            row[f"{key}_spread"] = float(np.std([f[key] for f in found]))
    return row | {"by_seed": {key: [f[key] for f in found] for key in ("completion_s", "bound_s")}}
