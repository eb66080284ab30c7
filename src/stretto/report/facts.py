"""Requests, plans and topologies in numbers: what ``--json``, summaries, comparisons and notebooks say of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Int64
from ..model.collective import Collective, Workload
from ..model.messages import message_count
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan, SymmetricTimeline
from ..model.timeline import Timeline
from ..model.topology import ASSUMED, KINDS, Topology
from ..model.units import format_time

if TYPE_CHECKING:
    from ..bounds import Bound

META_FACTS = (
    "reported_s", "epochs", "epoch_s", "proven", "gap", "objective", "attempts",
    "objective_s", "objective_bound_s", "objective_over_bound", "non_concurrent_bound_s",
    "non_concurrent_optimal", "optimal",
    "chosen", "tried", "stopped", "target",
)  # fmt: skip
"""What planners say of their answer in a plan's meta: those that solve a program, or that choose among others."""

BOUNDS_WITHOUT_TURNS = "bounds do not count the turns of planes"
"""What is said below a table of bounds where planes take time to turn."""


def request_facts(net: Topology, workload: Workload) -> dict[str, Any]:
    """What was asked: topology, collectives, ranks, sizes."""
    collectives = workload.collectives
    first = collectives[0]
    several = {"jobs": [job_facts(c) for c in collectives]} if len(collectives) > 1 else {}
    return (
        {
            "topology": net.name,
            "collective": ",".join(c.kind for c in collectives),
            "ranks": len(first.ranks),
            "size_bytes": first.size_bytes,
            "shard_bytes": first.shard_bytes,
            "chunks": first.chunk_count // first.piece_count,
        }
        | several
        | message_facts(net)
    )


def job_facts(c: Collective) -> dict[str, Any]:
    """One of several collectives."""
    return {
        "collective": c.kind,
        "ranks": len(c.ranks),
        "size_bytes": c.size_bytes,
        "start_s": c.start_s,
        "weight": c.weight,
    }


def message_facts(net: Topology) -> dict[str, Any]:
    """What a message costs: the least and the most of all links, and whether that is assumed."""
    cost_s = [float(net.message_s.min(initial=math.inf)), float(net.message_s.max(initial=0.0))]
    return {"message_s": cost_s if net.link_count else [0.0, 0.0], "message_assumed": net.message_basis == ASSUMED}


def message_text(facts: dict[str, Any]) -> str:
    """``1 us to 50 us a message (assumed; ?message=0 for none)``; nothing where messages cost nothing."""
    least_s, most_s = facts["message_s"]
    if most_s == 0:
        return ""
    cost = " to ".join(dict.fromkeys((format_time(least_s), format_time(most_s))))
    return cost + (" (assumed; ?message=0 for none)" if facts["message_assumed"] else "")


def time_facts(timeline: Timeline, limits: Sequence[Bound]) -> dict[str, Any]:
    """How long a plan takes, beside the best of its lower bounds."""
    from ..bounds import mean_bound

    best = limits[0].seconds

    workload = timeline.plan.workload
    completion = timeline.completion_s
    total = sum(c.size_bytes for c in workload.collectives)
    data: dict[str, Any] = {
        "completion_s": completion,
        "bound_s": best,
        "bound_kind": limits[0].kind,
        "bound_witness": limits[0].witness,
        "bound_counts_turns": not turning(timeline.plan.topology),
        "completion_over_bound": completion / best if best else None,
        "algorithm_bandwidth": total / completion if completion else None,
    }
    if timeline.plan.topology.usd_per_byte.any():
        data["cost_usd"] = timeline.cost_usd
    if len(workload.collectives) > 1:
        mean = mean_bound(timeline.plan.topology, workload)
        data["mean_completion_s"] = timeline.mean_completion_s
        data["mean_bound_s"] = mean.seconds
        data["mean_bound_witness"] = mean.witness
        data["mean_completion_over_bound"] = timeline.mean_completion_s / mean.seconds if mean.seconds else None
        data["completions_s"] = timeline.completions_s.tolist()
    return data


def turning(net: Topology) -> bool:
    """Whether there are planes that take time to turn. Lower bounds do not count this time."""
    return any(plane.reconfiguration_s for plane in net.planes)


def bound_text(facts: dict[str, Any]) -> str:
    """``420 us (node ingress: 40 MB over 100 GB/s into gpu0)``, and whether turns of planes are counted."""
    without = "" if facts["bound_counts_turns"] else "; turns not counted"
    return f"{format_time(facts['bound_s'])} ({facts['bound_kind']}: {facts['bound_witness']}{without})"


def symmetry_facts(plan: Plan) -> dict[str, Any]:
    """The group of a plan by symmetry, and how many transfers of representatives it has; nothing for other plans."""
    if not isinstance(plan, SymmetricPlan):
        return {}
    g = plan.symmetry
    return {"symmetry": {"elements": g.size, "orders": g.orders.tolist(), "representatives": plan.part.transfer_count}}


def plan_facts(timeline: Timeline, limits: Sequence[Bound], verified: bool | None) -> dict[str, Any]:
    """A plan: what was asked, how long it takes, what planning took, and what its planner says of it.

    ``limits`` has lower bounds, the best first; ``verified`` is None if the verifier was not asked.
    """
    subject = timeline.plan
    meta = subject.meta
    return (
        {"planner": meta.get("planner", "unknown")}
        | request_facts(subject.topology, subject.workload)
        | {"transfers": subject.transfer_count}
        | ({} if subject.message is None else {"messages": message_count(subject)})
        | symmetry_facts(subject)
        | time_facts(timeline, limits)
        | _steps(meta.get("schedule"))
        | {
            "planning_s": meta.get("planning_s"),
            "planning_cpu_s": meta.get("planning_cpu_s"),
            "loading_s": meta.get("loading_s"),
            "verified": verified,
            "digest": subject.digest(),
        }
        | {key: meta[key] for key in META_FACTS if key in meta}
    )


def _steps(schedule: Any) -> dict[str, Any]:
    """What a refiner of steps says of its schedule: a bound that no other schedule of the same steps can beat."""
    if not isinstance(schedule, dict) or not schedule.get("completion_s"):
        return {}
    completion_s, bound_s = schedule["completion_s"], schedule["bound_s"]
    return {"steps_bound_s": bound_s, "steps_gap": (completion_s - bound_s) / completion_s}


def topology_facts(net: Topology) -> dict[str, Any]:
    """Nodes, links and planes by kind, sites, and notes."""
    links = Counter(zip(net.bandwidth.tolist(), net.latency_s.tolist(), strict=True))
    planes = Counter((len(p.nodes), p.bandwidth, p.latency_s, p.reconfiguration_s) for p in net.planes)
    return (
        {
            "topology": net.name,
            "nodes": {KINDS[k]: int((net.kind == k).sum()) for k in range(3) if (net.kind == k).any()},
            "reducing_switches": int(net.reduces.sum()),
            "links": net.link_count,
            "link_kinds": [
                {"bandwidth": w, "latency_s": t, "links": count}
                for (w, t), count in sorted(links.items(), reverse=True)
            ],
            "sites": [s for s in dict.fromkeys(net.sites) if s],
            "planes": len(net.planes),
            "plane_kinds": [
                {"ports": ports, "bandwidth": w, "latency_s": t, "reconfiguration_s": turn, "planes": count}
                for (ports, w, t, turn), count in sorted(planes.items(), reverse=True)
            ],
            "changes": len(net.changes),
            "changed_links": len(set(net.changes.link.tolist())),
            "notes": list(net.notes),
        }
        | message_facts(net)
        | _prices(net)
    )


def _prices(net: Topology) -> dict[str, Any]:
    """The lowest and the highest price of a GB over a link that has one; nothing where no link has."""
    priced = net.usd_per_byte[net.usd_per_byte > 0] * 1e9
    return (
        {"usd_per_GB": [float(priced.min()), float(priced.max())], "priced_links": len(priced)} if len(priced) else {}
    )


def listed(timeline: Timeline) -> tuple[Int64, NDArray[Any], Timeline]:
    """The transfers that ``show`` lists: all, or of a plan by symmetry those of the representatives.

    Returns:
        int64[transfers], their numbers in the plan; int[transfers], their chunks; and their course.
    """
    if not isinstance(timeline, SymmetricTimeline):
        return np.arange(timeline.plan.transfer_count), timeline.plan.chunk, timeline
    plan, part = timeline.plan, timeline.part
    identity = np.array(0)
    return (
        np.arange(part.plan.transfer_count) * plan.symmetry.size,
        plan.orbits.chunks(part.plan.chunk, identity),
        part,
    )
