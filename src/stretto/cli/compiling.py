"""``stretto warm``: compile the kernels once, so that the first plan on a machine is as quick as the next.

Plans small requests with compiled kernels, and Numba keeps the code on disk. ``make setup`` runs this.
"""

from __future__ import annotations

import os
import time
from multiprocessing import Process

from ..model.errors import StrettoError
from . import arguments
from .output import answer, print_line

REQUESTS = (
    ("forest", "allreduce", "dgx2:2"),
    ("greedy", "alltoall", "torus:3x3"),
    ("scale-ccl", "allgather", "sites:2,2"),
    ("wan", "allreduce", "zoo:Abilene"),
    ("forest", "allgather", "zoo:Abilene"),
    ("forest", "allreduce", "dgx2:1"),
    ("mtegcca", "allgather", "ndv2:2"),
    ("greedy", "allreduce", "dgx2:2"),
    ("paths", "alltoall", "ndv2:2"),
    ("switch-trees", "allgather", "star:4"),
    ("auto", "allreduce", "dgx1"),
    ("non-concurrent", "allreduce", "zoo:Abilene"),
    ("tcp-fair", "allreduce", "zoo:Abilene"),
    ("ring", "allreduce", "dgx1"),
    ("swot", "allreduce", "optical:4,2"),
    ("scale-ccl", "allgather", "sites:2,2", "rules=paper"),
)
"""Planner, collective, topology and options; together they call each kernel that a plan of some planner needs."""

SIZE_BYTES = 1 << 20


def plan_all(requests: tuple[tuple[str, ...], ...]) -> None:
    """Plan, verify, simulate and bound each request, as ``stretto plan`` does."""
    from ..bounds import bounds
    from ..model.collective import Workload, make_collective
    from ..planners import run_planner
    from ..simulate import simulate
    from ..topologies import load_topology
    from ..verify import verify

    for planner, kind, spec, *options in requests:
        topology = load_topology(spec)
        workload = Workload((make_collective(kind, topology, SIZE_BYTES),))
        plan = run_planner(
            planner, topology, workload, effort="quick", options=dict(option.split("=") for option in options)
        )
        verify(plan)
        simulate(plan)
        bounds(topology, workload)


def warm(as_json: arguments.Json = False) -> None:
    """Compile what makes plans, once after an installation: about a minute, or nothing if that was done before."""
    began = time.monotonic()
    os.environ["STRETTO_KERNELS"] = "compiled"
    # two processes begin at either end of the list, and neither compiles what the other has
    processes = [Process(target=plan_all, args=(requests,)) for requests in (REQUESTS, REQUESTS[::-1])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise StrettoError("the kernels could not be compiled; plans are made without, more slowly")
    data = {"wall_s": time.monotonic() - began}
    answer(as_json, data, lambda: print_line(f"all kernels are compiled ({data['wall_s']:.0f} s)"))
