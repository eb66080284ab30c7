"""Times for plans of steps in which messages share links: those of a step go side by side, each as fast as all need.

In ready-order a message has each link of its route alone, and is as fast as the slowest one. Where messages of a step
meet between switches, they go there one after another, and most ports are idle. Here every message of a step takes as
long as the step's busiest link is busy, and of each link only the share that this needs. So a step takes as long as its
busiest link.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.messages import messages_of
from ..model.plan import Plan
from .effort import Budget
from .moments import settled
from .scheduling_problem import COSTS, LEAST_S, SchedulingProblem


def timed_in_steps(plan: Plan) -> Plan:
    """A plan in ready-order, whose groups are its steps, with times; messages start as soon as links have room."""
    messages = messages_of(plan)
    sent = plan if messages is None else messages.merged
    assert sent.group is not None, "the groups are the steps"
    rows = np.arange(sent.transfer_count)
    alone = SchedulingProblem.of(sent, rows)
    step, link, owner = sent.group.astype(np.int64), sent.route.values, sent.route.owners
    busy_s = alone.seconds[owner] * alone.hop_share
    of_step, use = np.unique(step[owner] * plan.topology.link_count + link, return_inverse=True)
    load_s = np.bincount(use.ravel(), busy_s)
    step_s = np.zeros(int(step.max()) + 1)
    np.maximum.at(step_s, of_step // plan.topology.link_count, load_s)
    seconds = step_s[step]
    problem = replace(alone, seconds=seconds, hop_share=busy_s / np.maximum(seconds, LEAST_S)[owner])
    start = problem.list_schedule(rows, plan.workload.chunk_start_s[sent.chunk], Budget().with_costs(COSTS))
    timed = settled(sent, start, seconds)
    assert timed.start_s is not None and timed.finish_s is not None, "settled"
    of = rows if messages is None else messages.of
    return replace(plan, sharing="timed", start_s=timed.start_s[of], finish_s=timed.finish_s[of])
