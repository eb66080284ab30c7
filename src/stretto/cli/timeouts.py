"""What running a plan on one machine takes: whether its bytes fit into memory, and how long its processes may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.errors import InputError

if TYPE_CHECKING:
    from ..model.plan import Plan

LEAST_S = 60.0
"""Seconds of silence that any run allows, however small."""
RUN_BPS = 0.5e9
"""Bytes a second that one machine makes, sends and receives, all processes together. Measured on two cores:
`stretto run allreduce -t h100:2 --size 256MB` makes 8.2 GB of test data in 9 s, then sends 7.7 GB in 2.1 s. Half of it
is left for slower machines."""
MARGIN = 4.0
"""Times what a run should take after which it has failed: other programs may share its cores."""
PROCESS_BYTES = 30_000_000
"""Memory of a process besides its data, about: what Python and NumPy do not share."""


def check_memory(plan: Plan, shrink: float, subject: str) -> None:
    """Refuse a run whose test data and results do not fit into this machine's memory, before the kernel kills it.

    Args:
        shrink: divisor of all sizes in the run.
        subject: what the message names: the file or the option to change.
    Raises:
        InputError: says how much is needed and how much there is.
    """
    from ..model.memory import machine_bytes
    from ..model.units import format_size

    if _processes(plan) > _most():
        return  # the run refuses so many processes by itself, and a smaller size would not help
    need = data_bytes(plan) / shrink + PROCESS_BYTES * _processes(plan)
    if need > machine_bytes():
        words = f"test data and results of {_processes(plan)} processes need {format_size(need)} of memory"
        raise InputError(f"{words}, and this machine has {format_size(machine_bytes())}; use a smaller size", subject)


def timeout_s(plan: Plan, paced_s: float, shrink: float = 1.0) -> float:
    """Seconds after which a run has failed, where the command line says none: what it should take, times a margin.

    Args:
        paced_s: seconds of real time for which the processes or the emulated links keep to the plan's times.
        shrink: divisor of all sizes in the run.
    """
    if _processes(plan) > _most():
        return LEAST_S
    moved = float((plan.size_bytes * plan.dst.lengths).sum())
    return max(LEAST_S, MARGIN * (paced_s + (data_bytes(plan) + moved) / shrink / RUN_BPS))


def data_bytes(plan: Plan) -> float:
    """Bytes that all ranks hold at first, and those that they must end with."""
    if _processes(plan) > _most():
        return 0.0  # the run refuses so many processes by itself; the lists of their chunks would be long
    work = plan.workload
    return float((work.chunk_bytes * (work.chunk_holders.lengths + work.chunk_wanted.lengths)).sum())


def _processes(plan: Plan) -> int:
    """How many ranks take part, each of which is a process."""
    return len({int(rank) for c in plan.workload.collectives for rank in c.ranks})


def _most() -> int:
    from ..runtime.local import MOST_PROCESSES

    return MOST_PROCESSES
