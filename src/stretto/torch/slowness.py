"""Which links give less than was planned, seen by what collectives receive over them.

A rank compares, for each rank that it receives from, the bytes/s while a collective's bytes came with those of the
plan's simulation. A link is slow if it gave less than ``SLOW`` of what was planned in ``IN_A_ROW`` collectives, one
after the other: a few slow calls are noise. Where all that a rank receives is slow alike, the rank itself is slow (its
other work, or its own port), and no link is blamed.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..choose.library import Recipe
from ..model.plan import Plan
from ..runtime.recorded import Trace
from ..simulate import simulate

SLOW = 0.7
"""Share of the planned rate below which a link is slow. Quick measurements are right up to 0.8 on a busy machine."""
IN_A_ROW = 10
"""Collectives in a row for which a link must be slow."""
LEAST_BYTES = 1 << 18
"""From fewer bytes of a rank nothing is concluded: the latency and the processes decide how long they take."""

MOST_TRANSFERS = 1 << 16
"""Plans of more transfers are not compared: their simulation would delay the call."""

SOONER = 0.95
"""A new plan must take at most this share of the old plan's time to be worth a change."""


class Slow(NamedTuple):
    """What comes from a node is slow: ``ratio`` is what it gave over what was planned, in the median."""

    source: int
    ratio: float


class Slowness:
    """What one rank has seen."""

    def __init__(self) -> None:
        self._digest = 0
        self._planned: dict[int, float] = {}
        self._rows: dict[int, list[float]] = defaultdict(list)

    def look(self, recipe: Recipe, sizes: Any, trace: Trace) -> list[Slow]:
        """Take note of a collective; returns the nodes from which the last ten came slowly, each once.

        Args:
            sizes: bytes of each chunk.
        """
        if recipe.digest != self._digest:
            self._digest, self._planned = recipe.digest, planned_rates(recipe)
            self._rows.clear()
        given = received_rates(recipe, sizes, trace)
        ratios = {v: rate / self._planned[v] for v, rate in given.items() if v in self._planned}
        found = []
        for source in slow_sources(ratios):
            row = self._rows[source]
            row.append(ratios[source])
            if len(row) == IN_A_ROW:
                found.append(Slow(source, statistics.median(row)))
                row.clear()
        for source in ratios.keys() - slow_sources(ratios):
            self._rows[source].clear()
        return found


def slow_sources(ratios: Mapping[int, float]) -> set[int]:
    """The nodes whose bytes were slow, but for those of a rank that is slow itself."""
    least, most = min(ratios.values(), default=1.0), max(ratios.values(), default=1.0)
    if len(ratios) > 1 and least >= SLOW * most:
        return set()
    return {source for source, ratio in ratios.items() if ratio < SLOW}


def received_rates(recipe: Recipe, sizes: Any, trace: Trace) -> dict[int, float]:
    """Bytes/s from each node while its bytes came."""
    came = [
        (receive.source, int(sizes[receive.chunk]), trace.coming_s[row], trace.arrived_s[row])
        for row, receive in recipe.program.steps.receives.items()
        if row in trace.coming_s
    ]
    return _rates(came)


def planned_rates(recipe: Recipe) -> dict[int, float]:
    """The same as the simulator has it."""
    plan = recipe.program.plan
    if plan.transfer_count > MOST_TRANSFERS:
        return {}
    timeline = simulate(plan)
    first = plan.dst.offsets[:-1]
    arrival_s = timeline.arrival_s[first]
    coming_s = timeline.start_s + arrival_s - timeline.finish_s
    chunk_bytes = plan.workload.collectives[0].chunk_bytes
    return _rates(
        (receive.source, int(chunk_bytes[receive.chunk]), float(coming_s[row]), float(arrival_s[row]))
        for row, receive in recipe.program.steps.receives.items()
    )


def _rates(came: Iterable[tuple[int, int, float, float]]) -> dict[int, float]:
    """Bytes/s of each source, of transfers given as (source, bytes, from when, until when)."""
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
        if size >= LEAST_BYTES and busy_s > 0:
            rates[source] = size / busy_s
    return rates


def narrowest_link(plan: Plan, source: int, sink: int) -> int | None:
    """The narrowest link of the routes by which a plan sends from one node to another."""
    rows = np.flatnonzero((plan.src == source) & (plan.dst.values[plan.dst.offsets[:-1]] == sink))
    links = sorted({int(link) for row in rows for link in plan.route[int(row)]})
    return min(links, key=lambda link: float(plan.topology.bandwidth[link]), default=None)


def ends_sooner(new: Plan, old: Plan) -> bool:
    """Whether a plan ends clearly sooner on its network than an older one would there."""
    late = replace(old, topology=new.topology)
    if old.sharing == "timed":  # its times are those of the other network
        late = replace(late, sharing="ready-order", start_s=None, finish_s=None)
    return simulate(new).completion_s < SOONER * simulate(late).completion_s
