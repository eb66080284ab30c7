"""Timed and ready-order plans on links whose bandwidth changes with time."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Ragged
from ..model.changes import Changes
from ..model.errors import Infeasible
from ..model.plan import Plan
from ..model.timeline import Timeline
from . import kernel_changing, kernel_physics
from .completion import completions_s
from .kernel_physics import Links
from .planes import circuit_links, events
from .ready_order import padded, rounding_s_of, sources_of

STEPS_A_TRANSFER = 20.0
"""Steps of the event loop for each transfer, about."""


def run(plan: Plan, planned: Changes, barriers: bool) -> Timeline:
    """The timeline of a timed or ready-order plan on a topology with changes; see :func:`stretto.simulate.simulate`.

    Args:
        planned: the changes that the plan was made for.
    """
    timed = plan.sharing == "timed" and (barriers or not plan.barriers)
    if not timed or plan.start_s is None or plan.finish_s is None:
        return _run(plan, np.ones(plan.transfer_count), None, barriers, released=None, exclusive=True)
    route, links, load_bytes = _loads(plan)
    hop_s, _ = at_speed(kernel_physics.delays, float(len(route.values)))(
        plan.sources, plan.dst, route, links, plan.topology.node_count
    )
    share = at_speed(kernel_changing.shares, STEPS_A_TRANSFER * plan.transfer_count)(
        route, hop_s, load_bytes, plan.start_s, plan.finish_s, _steps(links, planned)
    )
    return _run(plan, share, plan.start_s, barriers, released=plan.start_s, exclusive=False)


def in_order(plan: Plan, turn: Float64) -> Timeline:
    """What happens if links serve the transfers of a plan one at a time, by turns, each as early and fast as can be.

    Args:
        turn: float64[transfers], the lowest is served first.
    """
    return _run(plan, np.ones(plan.transfer_count), turn, plan.barriers, released=None, exclusive=True)


def _run(
    plan: Plan, share: Float64, turn: Float64 | None, barriers: bool, released: Float64 | None, exclusive: bool
) -> Timeline:
    topology, n = plan.topology, plan.transfer_count
    route, links, load_bytes = _loads(plan)
    earliest_s = plan.workload.chunk_start_s[plan.chunk]
    if released is not None:
        earliest_s = np.maximum(earliest_s, released)
    extra = events(plan, plan.barriers and barriers, released is not None)
    count = len(extra.earliest_s)
    seconds = route.reduced(np.maximum, load_bytes / links.bandwidth[route.values])
    slack_s = rounding_s_of(earliest_s, earliest_s + seconds)
    transfers = kernel_changing.Moving(
        chunk=padded(plan.chunk, count, -1),
        sources=sources_of(plan, count),
        dst=Ragged(padded(plan.dst.offsets, count), plan.dst.values),
        route=Ragged(padded(route.offsets, count), route.values),
        depends=extra.depends,
        earliest_s=np.concatenate((earliest_s, extra.earliest_s)),
        seconds=np.concatenate((np.zeros(n), extra.seconds)),
        load_bytes=load_bytes,
        share=padded(share, count, 1.0),
        slack_s=np.full(n + count, slack_s),
    )
    turns = np.zeros(0) if turn is None else np.concatenate((turn, extra.earliest_s))
    start, finish, arrival, hop, done = at_speed(kernel_changing.run, STEPS_A_TRANSFER * (n + count))(
        transfers, links, _steps(links, topology.changes), turns, padded(topology.forwarding, 1), exclusive
    )
    if done < n + count or np.isinf(finish[:n]).any():
        raise never_ends(plan, start, finish)
    return Timeline(
        plan=plan,
        start_s=start[:n],
        finish_s=finish[:n],
        arrival_s=arrival,
        hop_offset_s=hop[route.values < topology.link_count],
        completions_s=completions_s(plan, arrival),
        turn_start_s=start[n : n + plan.turns.count],
    )


def _loads(plan: Plan) -> tuple[Ragged, Links, Float64]:
    """Routes, links, and float64[hops]: the bytes that each link carries, with those that a message counts as."""
    route, links = circuit_links(plan)
    message = links.message_s[route.values] * links.bandwidth[route.values]
    return route, links, plan.size_bytes[route.owners] + message


def _steps(links: Links, changes: Changes) -> kernel_changing.Steps:
    return kernel_changing.Steps(
        links.bandwidth, changes.offsets(len(links.bandwidth)), changes.at_s, changes.bandwidth
    )


def never_ends(plan: Plan, start: Float64, finish: Float64) -> Infeasible:
    """What to say where a transfer never ends because a link fails for good."""
    stuck = np.flatnonzero(np.isinf(finish[: plan.transfer_count]) & np.isfinite(start[: plan.transfer_count]))
    k = int(stuck[0]) if len(stuck) else 0
    last = {int(e): w for e, w in zip(plan.topology.changes.link, plan.topology.changes.bandwidth, strict=True)}
    dead = [int(e) for e in plan.route[k] if last.get(int(e)) == 0]
    name = plan.topology.link_name(dead[0] if dead else int(plan.route[k][0]))
    return Infeasible(f"{plan.describe(k)} never ends: link {name} fails and does not come back")
