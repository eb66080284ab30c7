"""Rounds of a plan, for libraries that only send and receive: the transfers of a round go together, rounds in turn.

A rank does its parts of the rounds one after another and waits for nothing else, so nothing can deadlock: of all rounds
that have not ended, all who have a part in the first have begun it.
"""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Int64
from ..model.messages import messages_of
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..simulate import simulate
from . import kernel_programs


def rounds_of(plan: Plan) -> Int64:
    """int64[transfers], the round of each transfer, from 0.

    A transfer comes after what it depends on, and after the transfers that use a link of its route before it as
    simulated. So chunks follow one another through the network as they do in the plan.
    """
    if (messages := messages_of(plan)) is not None:  # a message goes in one round
        return rounds_of(messages.merged)[messages.of]
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
    depends, route = plan.depends, plan.route
    order = np.argsort(simulate(plan).start_s, kind="stable").astype(np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    if (place[depends.values] > place[depends.owners]).any():  # a route may be cut through; rows are always in order
        order = np.arange(len(order), dtype=np.int64)
    run = at_speed(kernel_programs.rounds, len(depends.values) + len(route.values) + len(order))
    after, ways = depends.values.astype(np.int64), route.values.astype(np.int64)
    made: Int64 = run(order, depends.offsets, after, route.offsets, ways, plan.topology.link_count)
    return made
