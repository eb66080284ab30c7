"""Compile the kernels that the command line uses: ``python -m stretto.cli.compiling``.

Plans small requests with compiled kernels, and Numba keeps the code on disk. ``make setup`` runs this once, so that the
first plan on a machine takes no longer than the next.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import Process

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


def main() -> None:
    """Compile in two processes that begin at either end of the list; neither compiles what the other has."""
    os.environ["STRETTO_KERNELS"] = "compiled"
    processes = [Process(target=plan_all, args=(requests,)) for requests in (REQUESTS, REQUESTS[::-1])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


if __name__ == "__main__":
    main()
