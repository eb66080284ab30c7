"""Whatever suits: several planners on the same request, the plan that ends first by the simulator.

Which are tried depends on the collective, the topology and how many chunks there are, not on the clock, so equal
requests give equal plans; a time limit, where one is given, only keeps further candidates from being started.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic as clock

from ..collective import KINDS, Workload
from ..errors import Unsupported
from ..plan import Plan
from ..simulate import simulate
from ..topology import Topology
from . import Progress, register, run_planner

CANDIDATES = (
    "scale-ccl",
    "mtegcca",
    "shortest-path",
    "forest",
    "ring",
    "nccl-tree",
    "pairwise",
    "birkhoff",
    "by-dimension",
)
"""In the order in which they are tried: those first that answer soonest and serve most."""

ALL_UP_TO = 64
"""Ranks up to which all are tried; beyond, the first that serves and the trees that fill the network."""

LARGE = ("scale-ccl", "forest")


@register(
    "auto",
    collectives=(*KINDS, "multicast"),
    topologies="any that a candidate serves",
    paper="our own",
)
def auto(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The best of several planners, by the simulator.

    Returns:
        The plan; its ``meta`` says as ``chosen`` who made it, and as ``tried`` what each candidate gave.
    """
    names = CANDIDATES if len(topology.accelerators) <= ALL_UP_TO else LARGE
    began = clock()
    best: tuple[float, str, Plan] | None = None
    tried: list[dict[str, object]] = []
    for number, name in enumerate(names):
        if best is not None and time_limit_s is not None and clock() - began > time_limit_s:
            tried.append({"planner": name, "refused": "no time was left"})
            continue
        if progress is not None:
            progress(number, len(names), name)
        try:
            plan = run_planner(name, topology, workload, seed=seed)
        except Unsupported as refusal:
            tried.append({"planner": name, "refused": str(refusal)})
            continue
        completion = simulate(plan).completion_s
        tried.append({"planner": name, "completion_s": completion})
        if best is None or completion < best[0]:
            best = completion, name, plan
    if best is None:
        raise Unsupported(f"auto does not serve {topology.name}: " + "; ".join(str(t["refused"]) for t in tried))
    return replace(best[2], meta={**best[2].meta, "chosen": best[1], "tried": tried})
