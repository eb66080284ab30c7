"""What a plan leads one rank to expect of its links, to be held against what they give."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..model.plan import Plan
from ..model.topology import Topology
from ..simulate import simulate
from .library import Recipe

LEAST_BYTES = 1 << 18
"""From fewer bytes of a rank nothing is concluded: the latency and the processes decide how long they take."""
LEAST_BYTES_AFTER = 1 << 16
"""The least bytes of those that must come after a rank has read all that was there (:class:`.recorded.Trace`). The
kernel may have up to 128 KiB of a transfer before it wakes the process."""
MOST_TRANSFERS = 1 << 16
"""Plans of more transfers are not compared: their simulation would delay the call."""

SOONER = 0.95
"""A new plan must take at most this share of the old plan's time to be worth a change."""


class Expected(NamedTuple):
    """What the simulator says of a plan: seconds that it takes, and bytes/s from each node while its bytes come to this
    rank. Nothing of plans with too many transfers."""

    seconds: float | None
    rates: dict[int, float]


def planned_rates(recipe: Recipe) -> dict[int, float]:
    """Bytes/s from each node while its bytes come, as the simulator has it."""
    return expected(recipe).rates


def expected(recipe: Recipe) -> Expected:
    """What a plan leads to expect."""
    plan = recipe.program.plan
    if plan.transfer_count > MOST_TRANSFERS:
        return Expected(None, {})
    timeline = simulate(plan)
    first = plan.dst.offsets[:-1]
    arrival_s = timeline.arrival_s[first]
    coming_s = timeline.start_s + arrival_s - timeline.finish_s
    chunk_bytes = plan.workload.collectives[0].chunk_bytes
    rates = rates_of(
        (receive.source, int(chunk_bytes[receive.chunk]), float(coming_s[row]), float(arrival_s[row]))
        for row, receive in recipe.program.steps.receives.items()
    )
    return Expected(float(timeline.completion_s), rates)


def rates_of(came: Iterable[tuple[int, int, float, float]], least: int = LEAST_BYTES) -> dict[int, float]:
    """Bytes/s of each source of ``least`` bytes, of transfers given as (source, bytes, from when, until when)."""
    of: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for source, size, begin_s, end_s in came:
        of[source].append((begin_s, end_s, size))
    rates = {}
    for source, spans in of.items():
        busy_s, until_s = 0.0, -math.inf
        for begin_s, end_s, _ in sorted(spans):
            busy_s += max(0.0, end_s - max(begin_s, until_s))
            until_s = max(until_s, end_s)
        size = sum(bytes_ for _, _, bytes_ in spans)
        if size >= least and busy_s > 0:
            rates[source] = size / busy_s
    return rates


def narrowest_link(plan: Plan, source: int, sink: int) -> int | None:
    """The narrowest link of the routes by which a plan sends from one node to another."""
    rows = np.flatnonzero((plan.src == source) & (plan.dst.values[plan.dst.offsets[:-1]] == sink))
    links = sorted({int(link) for row in rows for link in plan.route[int(row)]})
    return min(links, key=lambda link: float(plan.topology.bandwidth[link]), default=None)


def pair_count(plan: Plan) -> int:
    """How many pairs of nodes a plan sends between, counted by direction."""
    return len({*zip(plan.src[plan.dst.owners].tolist(), plan.dst.values.tolist())})


def ends_sooner(new: Plan, old: Plan, share: float = SOONER) -> bool:
    """Whether a plan ends clearly sooner on its network than an older one would there: in less than ``share`` of its
    time."""
    return simulate(new).completion_s < share * time_on(old, new.topology)


def time_on(plan: Plan, topology: Topology) -> float:
    """When a plan ends on a network that has its links with other numbers, seconds."""
    late = replace(plan, topology=topology)
    if plan.sharing == "timed":  # its times are those of its own network
        late = replace(late, sharing="ready-order", start_s=None, finish_s=None)
    return simulate(late).completion_s
