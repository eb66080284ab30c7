"""WeightAlloc: shares by weight that hold when bandwidths vary (WAN paper, section III-D2, algorithm 1).

A group has one weight, and on each link its share of the weights of all groups that ever use it
(eq. 11). That is not convex; algorithm 1 fixes the sums of weights D, solves for the weights, and
repeats. With D fixed a flow's rate is w * min(C / D), so a group takes A / w with a constant A, and
the convex subproblem min sum T_k, T_k >= A_n / w_n, sum w = 1 has a closed solution: all groups of a
collective end together, w_n = A_n / T_k, and T_k is in proportion to sqrt(sum of its A).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...model.plan import Plan
from .. import Option, Progress, over_links, refiner
from .flows import KINDS, READING, Flows, flows_of, noted

Float64 = NDArray[np.float64]

TOLERANCE = 1e-6
OPTIONS = (READING, Option("iterations", int, 50, "at most so many convex subproblems"))


@refiner(
    name="weight-alloc",
    collectives=KINDS,
    topologies="any without planes",
    paper="Wang, Craps, Li, section III-D2",
    alone=("ring",),
    options=OPTIONS,
    serves=over_links,
)
def weight_alloc(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    reading: str = "reserved", iterations: int = 50,
) -> Plan:  # fmt: skip
    """One weight a flow group, by successive convex approximation."""
    flows = flows_of(plan)
    weight, value = allocate(flows, iterations)
    sharing = "weights" if reading == "reserved" else "fair"
    refined = replace(
        plan, sharing=sharing, weight=weight[flows.group], group=flows.group.astype(np.int32),
        start_s=None, finish_s=None, rate=None,
    )  # fmt: skip
    return noted(refined, surrogate_s=value)


def allocate(flows: Flows, iterations: int) -> tuple[Float64, float]:
    """float64[groups], the best weights met, and their mean completion by (11), seconds."""
    owners, links = flows.route.owners, flows.route.values
    narrow = np.full(flows.groups, np.inf)
    np.minimum.at(narrow, flows.group[owners], flows.width[links])
    weight = _normal(1.0 / narrow)
    best, value = weight, flows.surrogate(flows.proportional(weight))
    before = value
    for _ in range(iterations):
        weight = subproblem(flows, weight)
        now = flows.surrogate(flows.proportional(weight))
        if now < value:
            best, value = weight, now
        if abs(now - before) < TOLERANCE * before:
            break
        before = now
    return best, value


def subproblem(flows: Flows, weight: Float64) -> Float64:
    """float64[groups], line 5 of algorithm 1: the best weights while the links' sums stay those of ``weight``."""
    total = np.bincount(flows.pair_link, weights=weight[flows.pair_group], minlength=len(flows.width))
    per_weight = flows.least((flows.width / np.where(total > 0, total, 1.0))[flows.route.values])
    a = np.bincount(flows.group, weights=flows.size / per_weight)
    took = np.sqrt(np.bincount(flows.collective, weights=a))
    return _normal(a / took[flows.collective])


def _normal(weight: Float64) -> Float64:
    scaled: Float64 = weight / weight.sum()
    return scaled
