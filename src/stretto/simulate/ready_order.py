"""Timed and ready-order plans: links serve transfers in the order in which these become ready."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.arrays import Float64, Ragged
from ..model.plan import Plan
from ..model.symmetry import Symmetry
from ..model.timeline import Timeline
from . import kernel_ready_order
from .completion import completions_s
from .kernel_physics import Links
from .planes import circuit_links, events

ULPS = 64
"""Units in the last place of a plan's last moment by which rounding may make transfers overlap on a link."""

DRIFT = 1e-12
"""Share of the time that a plan takes to which its roundings may add up."""

STEPS_A_TRANSFER = 40.0
"""Steps of the event loop for each transfer, about: interpreted it takes 15 to 50 microseconds."""


def run(plan: Plan, barriers: bool, symmetry: Symmetry | None = None, follows: Ragged | None = None) -> Timeline:
    """The timeline of a timed or ready-order plan; see :func:`stretto.simulate.simulate`.

    Args:
        follows: as of :func:`stretto.simulate.simulate`.
        symmetry: the group whose images of a timed plan share the links. All links of an orbit carry what each does.
    """
    topology, n = plan.topology, plan.transfer_count
    timed = plan.sharing == "timed" and (barriers or not plan.barriers)
    route, links = circuit_links(plan)
    seconds, rate = _durations(plan, route, links, timed)
    served = route.values
    if symmetry is not None:
        served, rate = symmetry.link_orbits[route.values], rate * symmetry.copies[route.values]
    earliest_s = plan.workload.chunk_start_s[plan.chunk]
    if timed and plan.start_s is not None:
        earliest_s = np.maximum(earliest_s, plan.start_s)
    extra = events(plan, plan.barriers and barriers, timed)
    count = len(extra.earliest_s)
    rounding_s = rounding_s_of(earliest_s, earliest_s + seconds)
    transfers = kernel_ready_order.Transfers(
        chunk=padded(plan.chunk, count, -1),
        sources=sources_of(plan, count),
        dst=Ragged(padded(plan.dst.offsets, count), plan.dst.values),
        route=Ragged(padded(route.offsets, count), route.values),
        depends=extra.depends,
        follows=Ragged.empty(n + count) if follows is None else Ragged(padded(follows.offsets, count), follows.values),
        served=served,
        earliest_s=np.concatenate((earliest_s, extra.earliest_s)),
        seconds=np.concatenate((seconds, extra.seconds)),
        rate=rate,
        slack_s=padded(np.minimum(rounding_s, seconds / 4), count, 0.0),
    )
    work = STEPS_A_TRANSFER * (n + count)
    start, arrival, hop, done = at_speed(kernel_ready_order.run, work)(
        transfers, links, padded(topology.forwarding, 1), not timed
    )
    assert done == n + count, "a plan's dependencies are acyclic by construction"
    return Timeline(
        plan=plan,
        start_s=start[:n],
        finish_s=start[:n] + seconds,
        arrival_s=arrival,
        hop_offset_s=hop[route.values < topology.link_count],
        completions_s=completions_s(plan, arrival),
        turn_start_s=start[n : n + plan.turns.count],
    )


def sources_of(plan: Plan, events: int) -> Ragged:
    """Who sends each transfer, and for each event the node after the last."""
    nobody = Ragged.single(np.full(events, plan.topology.node_count))
    return Ragged.concatenate([plan.sources, nobody]) if events else plan.sources


def rounding_s_of(start_s: Float64, end_s: Float64) -> float:
    """Seconds by which rounding may make right transfers with these times overlap on a link."""
    return float(ULPS * np.spacing(end_s.max()) + DRIFT * (end_s.max() - start_s.min())) if len(end_s) else 0.0


def padded(column: NDArray[Any], count: int, value: Any = None) -> NDArray[Any]:
    """A column with ``count`` more rows of ``value``, by default of its last value."""
    return np.concatenate((column, np.full(count, column[-1] if value is None else value, dtype=column.dtype)))


def _durations(plan: Plan, route: Ragged, links: Links, timed: bool) -> tuple[Float64, Float64]:
    """float64[transfers], the seconds for which each keeps its links, and float64[hops], its load on them meanwhile."""
    width = links.bandwidth[route.values]
    load_bytes = plan.size_bytes[route.owners] + links.message_s[route.values] * width
    if timed and plan.start_s is not None and plan.finish_s is not None:
        seconds = plan.finish_s - plan.start_s
        meanwhile = seconds[route.owners]
        with np.errstate(divide="ignore"):
            rate = load_bytes / meanwhile
        # a transfer that only the rounding of its two times makes too fast has the speed of the link
        full = width * (meanwhile + 4 * np.spacing(plan.finish_s)[route.owners]) >= load_bytes
        return seconds, np.where(full, np.minimum(rate, width), rate)
    seconds = route.reduced(np.maximum, load_bytes / width)
    return seconds, load_bytes / seconds[route.owners]
