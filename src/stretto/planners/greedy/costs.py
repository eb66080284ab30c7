"""Steps of counted work (:mod:`stretto.schedule.effort`) of the greedy planner and its exchanges.

Calibrated on ten networks of the grid at 1 KB and 256 KB a rank: AllGather, AllReduce and AllToAll.
"""

from __future__ import annotations

from dataclasses import replace

from ..registry import Request

COSTS = {
    "match": 1.0,  # a delivery of one try of a matching
    "grow": 0.1,  # a step of the kernel that grows trees
    "look": 0.01,  # a pipe that is looked at to improve an order
    "lower": 4.0,  # a delivery that becomes a transfer of a plan
    "message": 20.0,  # a message of an exchange, as the trees of the exchange grow
    "sum": 6.0,  # a sum that a node gets, as circles form or their order is tried
    "place": 3.0,  # a message of an exchange that becomes a transfer of one part
    "order": 3.0,  # a transfer that is put in order, an estimate: list schedules count themselves
}


def with_costs(request: Request) -> Request:
    """The request with a budget that knows these costs."""
    return replace(request, budget=request.budget.with_costs(COSTS))
