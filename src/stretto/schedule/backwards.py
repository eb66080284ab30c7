"""A plan backwards in time: what spreads data from a root over links that are turned round brings data in to it.

Each copy goes in the other direction, and what waited for it is now what it waits for. Every message keeps its links
for as long, so the plan ends when the one that it was made from ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.messages import messages_of
from ..model.plan import REDUCE, Plan, make_plan
from ..model.topology import Topology
from ..simulate import simulate
from .moments import SHORT, settled


def backwards(plan: Plan, topology: Topology, workload: Workload) -> Plan:
    """A plan of copies with one receiver each, backwards in time, with times.

    Args:
        plan: for the network with every link turned round, of copies for the mirror of each collective.
        topology: the network.
        workload: the collectives, with the chunks that the plan has.
    """
    line, rows = simulate(plan), np.arange(plan.transfer_count)[::-1]
    waits = plan.depends
    message = None if plan.message is None else plan.message[-1] - plan.message[rows]
    turned = make_plan(
        topology, workload, "ready-order", chunk=plan.chunk[rows], src=plan.dst.values[rows],
        op=np.where(workload.chunk_reduces[plan.chunk[rows]], REDUCE, plan.op[rows]), dst=Ragged.single(plan.src[rows]),
        route=plan.route.take(rows).reversed(),
        depends=Ragged.grouped(len(rows) - 1 - waits.values, len(rows) - 1 - waits.owners, len(rows)), message=message,
    )  # fmt: skip
    messages = messages_of(turned)
    sent = turned if messages is None else messages.merged
    of = np.arange(len(rows)) if messages is None else messages.of
    start_s, seconds = np.zeros(sent.transfer_count), topology.route_s(sent.route, sent.size_bytes)
    start_s[of] = np.maximum(line.arrival_s.max() - line.arrival_s[rows], 0.0)
    kept_s = (line.finish_s - line.start_s)[rows]
    seconds[of] = np.where(kept_s > seconds[of] * (1 + SHORT), kept_s, seconds[of])
    timed = settled(sent, start_s, seconds)
    assert timed.start_s is not None and timed.finish_s is not None, "settled"
    return replace(turned, sharing="timed", start_s=timed.start_s[of], finish_s=timed.finish_s[of])
