"""WeightAlloc: shares by weight that hold when bandwidths vary (WAN paper, section III-D2, algorithm 1).

A group has one weight, and on each link its share of the weights of all groups that ever use it (eq. 11). The problem
is not convex. Algorithm 1 fixes the links' sums of weights D, solves for the weights, and repeats. With D fixed the
rate of a flow is w * min(C / D), so a group takes A / w with a constant A. The convex subproblem min sum T_k, T_k >=
A_n / w_n, sum w = 1 has a closed solution: all groups of a collective end together, w_n = A_n / T_k, and T_k is in
proportion to sqrt(sum of its A).
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64
from ...model.plan import Plan
from .. import Option, Request
from .flows import READING, Flows, flow_refiner, flows_of, with_meta, with_sharing

TOLERANCE = 1e-6
"""Relative change of the mean completion below which the iteration ends."""

ITERATIONS = 50
"""Most convex subproblems by default."""

OPTIONS = (READING, Option("iterations", int, ITERATIONS, "most convex subproblems to solve"))


@flow_refiner("weight-alloc", "Wang, Craps, Li, section III-D2", OPTIONS)
def weight_alloc(plan: Plan, request: Request, *, reading: str = "reserved", iterations: int = ITERATIONS) -> Plan:
    """One weight for each flow group, by successive convex approximation."""
    flows = flows_of(plan)
    weight, value = allocate(flows, iterations)
    sharing = "weights" if reading == "reserved" else "fair"
    return with_meta(with_sharing(plan, sharing, flows.group, weight=weight[flows.group]), surrogate_s=value)


def allocate(flows: Flows, iterations: int = ITERATIONS) -> tuple[Float64, float]:
    """float64[groups], the best weights of all iterations, and their mean completion by eq. (11), seconds."""
    narrow = np.full(flows.groups, np.inf)
    np.minimum.at(narrow, flows.group[flows.owner], flows.width[flows.link])
    weight = _normal(1.0 / narrow)
    best, least = weight, flows.surrogate(flows.proportional(weight))
    before = least
    for _ in range(iterations):
        weight = subproblem(flows, weight)
        now = flows.surrogate(flows.proportional(weight))
        if now < least:
            best, least = weight, now
        if abs(now - before) < TOLERANCE * before:
            break
        before = now
    return best, least


def subproblem(flows: Flows, weight: Float64) -> Float64:
    """float64[groups], line 5 of algorithm 1: the best weights while the links' sums stay those of ``weight``."""
    per_weight = flows.least((flows.width / flows.total_weight(weight))[flows.link])
    a = np.bincount(flows.group, weights=flows.size / per_weight)
    took = np.sqrt(np.bincount(flows.collective, weights=a))
    return _normal(a / took[flows.collective])


def _normal(weight: Float64) -> Float64:
    scaled: Float64 = weight / weight.sum()
    return scaled
