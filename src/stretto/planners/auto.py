"""Whatever suits: several planners on the same request, the plan that ends first.

Which are tried depends on the collective, the topology and the sizes, not on the clock, so equal requests give equal
plans; and none further once a plan is within ``NEAR`` of the lower bound. A time limit, where one is given, keeps
further candidates from being started, and those that heed it from searching on: a slow machine may then miss the best
of them, and the answer says so. It is of CPU time, without the loading of code, so that a busy machine gives the plans
of a quiet one, and a new process those of an old one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..bounds import Bound, bounds
from ..model.collective import Workload
from ..model.errors import InputError, Unsupported
from ..model.kinds import KINDS
from ..model.plan import Plan
from ..model.topology import Topology
from ..schedule.budget import Pace
from ..schedule.dispatch import completion
from ..simulate import simulate
from . import Progress, register, registered, run_planner

CANDIDATES = (
    *("switch-trees", "swot", "paths", "nccl-tree", "shortest-path", "greedy", "mtegcca", "scale-ccl", "ring"),
    *("pairwise", "birkhoff", "by-dimension", "forest"),
)
"""In the order in which they are tried, as far as they are there: those first that answer soonest."""

QUICK = {"switch-trees": 32, "nccl-tree": 16, "shortest-path": 32}
"""Among how many accelerators these answer in less than a third of a second, mostly in hundredths; among more they come
last."""

SLOW_S = 0.25
"""So many seconds of CPU they may take among more, and are not begun in less."""

ALL_UP_TO = 64
"""Ranks up to which all are tried; beyond, the trees that fill the network, and the first other that serves."""

WIDE = 0.8
"""Where bandwidth makes up such a share beside latency, the trees and paths that fill the network are tried first, and
nothing is searched beside paths."""

CLOSE, SPLIT = 0.98, 0.5
"""Where bandwidth makes up less than the first of these, a search may still find better than the trees, which are then
cut in this part of the time, and what is left is for the search."""

SERVED = 0.75
"""And in this part where accelerators that are no ranks may add and fork, which only trees make use of."""

IN_PHASES = 1.2
"""A search sums before it copies, at first. Where the links of some node would be busy so many times as long as the
bound with the one after the other, it has no chance beside trees, which then have all of the time."""

MIXED = 0.5
"""Where bandwidth makes up such a share, but not ``WIDE``, searches leave time for trees."""

TREES_S, TREES_OF_LINKS_S = 0.05, 6e-5
"""What the first trees take at most, seconds of CPU, and what more for each rank and link."""

TREES, ROOM = 0.2, 1.3
"""What the first trees take may be such a part of the time limit, if so many times as much is to be left for them; they
are begun where what is left is so many times less."""

NEAR = 1.005
"""A plan that takes at most so many times the lower bound is good enough."""

FAIR, FEW = 1.05, 16
"""Of an AllReduce where bandwidth decides among more ranks than so few, a plan that takes at most so many times the
lower bound is: what remains to be tried are searches for short ways, and patterns that fill fewer links."""

NO_TIME = "no time was left"
"""Why a candidate was not tried that might have served."""

SEARCH = 0.9
"""The part of a time limit that candidates may take; the rest is for what they gave to be compared."""

FIRST = 0.7
"""The part of it that the first candidate may take in any case, even if the bound has left less."""

LIMIT_S = 1.0
"""The time limit of people who give none."""


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
    """The best of several planners.

    Returns:
        The plan; its ``meta`` says as ``chosen`` who made it, and as ``tried`` what each candidate gave.
    """
    pace = Pace.within(None if time_limit_s is None else SEARCH * time_limit_s, {})
    found = bounds(topology, workload)
    bound = found[0].seconds
    bandwidth = _bandwidth(found)
    wide = not topology.planes and bandwidth >= WIDE
    names = _candidates(topology, wide)
    served = _is_served(topology, workload)
    shares = _Shares.of(topology, workload, bandwidth if not topology.planes else 0.0, bound, served, time_limit_s)
    if served:
        names.sort(key=lambda name: name not in QUICK and name != "forest")
    enough = bound * (FAIR if wide and _is_large(workload) else NEAR)
    best: tuple[float, str, Plan] | None = None
    tried: list[dict[str, object]] = []
    wrong: InputError | None = None
    for number, name in enumerate(names):
        if best is not None and best[0] <= enough:
            break
        if best is not None and pace.left_s < shares.least_s(name):
            tried.append({"planner": name, "refused": NO_TIME})
            continue
        if best is not None and len(topology.accelerators) > ALL_UP_TO and name != "forest":
            continue
        if wide and name == "greedy" and best is not None and best[1] == "paths":
            continue
        if progress is not None:
            progress(number, len(names), name)
        try:
            left_s = shares.given_s(name, pace.left_s, best is None)
            plan = run_planner(name, topology, workload, seed=seed, time_limit_s=left_s)
        except (Unsupported, InputError) as refusal:
            tried.append({"planner": name, "refused": str(refusal)})
            wrong = refusal if isinstance(refusal, InputError) else wrong
            continue
        end_s = _completion(plan)
        tried.append({"planner": name, "completion_s": end_s})
        if best is None or end_s < best[0]:
            best = end_s, name, plan
    if best is None and wrong is not None:
        raise wrong
    if best is None:
        raise Unsupported(f"auto does not serve {topology.name}: " + "; ".join(str(t["refused"]) for t in tried))
    return replace(best[2], meta={**best[2].meta, "chosen": best[1], "tried": tried})


@dataclass(frozen=True)
class _Shares:
    """How candidates share a time limit.

    Attributes:
        limit_s: None if there is none.
        slow: those that are not quick here.
        trees_s: what the first trees take at most.
        of_trees: the part of what is left that trees may take; the rest is for a search after them.
        after_s: what a search leaves for trees after it.
    """

    limit_s: float | None
    slow: frozenset[str]
    trees_s: float
    of_trees: float
    after_s: float

    @classmethod
    def of(
        cls, topology: Topology, workload: Workload, bandwidth: float, bound: float, served: bool, limit_s: float | None
    ) -> _Shares:
        """For a request of which bandwidth makes up such a share of the bound, seconds.

        Args:
            served: whether trees come first, for accelerators that are no ranks.
        """
        trees_s = TREES_S + TREES_OF_LINKS_S * sum(len(c.ranks) for c in workload.collectives) * topology.link_count
        split = WIDE <= bandwidth < CLOSE and _in_phases_s(topology, workload) <= IN_PHASES * bound
        of_trees = SERVED if served and bandwidth < CLOSE else SPLIT if split else 1.0
        mixed = MIXED <= bandwidth < WIDE and limit_s is not None and trees_s <= TREES * limit_s
        slow = frozenset(name for name, most in QUICK.items() if len(topology.accelerators) > most)
        return cls(limit_s, slow, trees_s, of_trees, ROOM * trees_s if mixed else 0.0)

    def least_s(self, name: str) -> float:
        """With less time left a candidate is not begun."""
        return self.trees_s / ROOM if name == "forest" else SLOW_S if name in self.slow else 0.0

    def given_s(self, name: str, left_s: float, first: bool) -> float | None:
        """The time limit of a candidate, where so much is left; the first one has most of it in any case."""
        if self.limit_s is None:
            return None
        left_s = max(left_s, FIRST * self.limit_s if first else 0.0)
        return left_s * self.of_trees if name == "forest" else left_s - (self.after_s if name == "greedy" else 0.0)


def _in_phases_s(topology: Topology, workload: Workload) -> float:
    """Seconds for which the links of some node are busy with what it sends, and then of some with what it gets, if all
    is summed before it is copied; 0 where not all is."""
    if any(c.kind != "allreduce" for c in workload.collectives):
        return 0.0
    bandwidth = topology.bandwidth
    into, out = (np.bincount(ends, bandwidth, topology.node_count) for ends in (topology.dst, topology.src))
    most = 0.0
    for c in workload.collectives:
        each = c.size_bytes * (1 - 1 / len(c.ranks))
        most = max(most, each / float(into[c.ranks].min()) + each / float(out[c.ranks].min()))
    return most


def _completion(plan: Plan) -> float:
    """When it ends: as it says, where it says when each transfer arrives at its one receiver, else by the simulator."""
    timed = plan.sharing == "timed" and not plan.topology.planes
    if timed and plan.transfer_count and (plan.dst.lengths == 1).all():
        return completion(plan)
    return simulate(plan).completion_s


def _candidates(topology: Topology, wide: bool) -> list[str]:
    names = [name for name in CANDIDATES if name in registered()]
    if "scale-ccl" in names and not _is_wan(topology):
        # its event loop is for networks of datacenters; elsewhere it can take minutes
        names.remove("scale-ccl")
    if "switch-trees" in names and not (topology.transit & topology.replicates).any():
        names.remove("switch-trees")
    if wide:
        names.sort(key=lambda name: {"switch-trees": 0, "forest": 1, "paths": 2}.get(name, 3))
    names.sort(key=lambda name: name in QUICK and len(topology.accelerators) > QUICK[name])
    return names


def _is_wan(topology: Topology) -> bool:
    """Whether there are routers, or neither switches nor many nodes."""
    routers, switches = topology.is_router.any(), topology.is_switch.any()
    return bool(routers or (not switches and len(topology.accelerators) <= ALL_UP_TO // 4))


def _is_large(workload: Workload) -> bool:
    """Whether a search would have both to sum and to copy among many."""
    return all(c.kind == "allreduce" and len(c.ranks) > FEW for c in workload.collectives)


def _is_served(topology: Topology, workload: Workload) -> bool:
    """Whether there are accelerators beside the ranks that could add and fork for them; only trees make use of that."""
    kinds = registered()["forest"].collectives if "forest" in registered() else ()
    return all(c.kind in kinds and len(c.ranks) < len(topology.accelerators) for c in workload.collectives)


def _bandwidth(found: tuple[Bound, ...]) -> float:
    """The part of the bound that is not latency."""
    longest = next((b.seconds for b in found if b.kind == "latency path"), 0.0)
    return 1 - longest / found[0].seconds if longest else 1.0
