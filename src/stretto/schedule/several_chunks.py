"""How many chunks a message carries: those of a step go to one peer in one message, or in several that are pipelined.

One message for all chunks of a step costs least. Several let the next step begin while the rest of this one is under
way. So one, two, four messages and so on are tried, until more of them make the plan later.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.arrays import Int32
from ..model.messages import numbered
from ..model.plan import Plan
from .best import best
from .cutting import is_too_fine, messages_cost, powers_up_to
from .in_steps import timed_in_steps
from .scheduling_problem import route_numbers

MOST_TRIED = 200_000
"""Transfers up to which every number of messages is tried; of longer plans only one message a step, and one a chunk.
The simulator takes 0.1 s of CPU for 200,000 transfers."""


def in_messages(plan: Plan, timed: bool = False) -> Plan:
    """A plan in ready-order with the chunks that a step sends from one rank to another in as few messages as pay.

    Args:
        plan: its groups are the steps; in a step, what goes from one rank to another stands together.
        timed: whether messages may have times, too, with which those of a step share links (:mod:`.in_steps`).
    """
    if plan.group is None or plan.topology.planes or not messages_cost(plan.topology) or not plan.transfer_count:
        return plan
    timed = timed and bool((plan.route.lengths > 1).any())
    stores, row = plan.topology.store_and_forward, np.arange(plan.transfer_count)
    # a node through which routes may pass sends on what still comes, so its messages have one chunk each
    alone = np.where(stores[plan.src] & plan.dst.reduced(np.logical_and, stores[plan.dst.values]), -1, row)
    run = numbered(plan.group, plan.src, route_numbers(plan.dst), alone)
    longest = int(np.bincount(run).max())
    counts = powers_up_to(longest) if plan.transfer_count <= MOST_TRIED else [1.0][: longest - 1]
    plans: list[Plan] = []
    for count in map(int, counts):
        several = replace(plan, message=_in_parts(run, count))
        plans.append(best([several, timed_in_steps(several)]) if timed else several)
        if is_too_fine(plans):
            break
    if timed and longest == 1:
        plans.append(timed_in_steps(plan))
    return best([*plans, plan])


def _in_parts(run: Int32, count: int) -> Int32:
    """int32[transfers], the message of each: a run has so many messages, but no more than transfers."""
    length = np.bincount(run)
    place = np.arange(len(run)) - np.repeat(np.cumsum(length) - length, length)
    parts = np.minimum(count, length)[run]
    return numbered(run, place * parts // length[run])
