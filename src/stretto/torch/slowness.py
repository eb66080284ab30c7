"""Which links give less than was planned, seen by what collectives receive over them.

A rank compares, for each rank that it receives from, the bytes/s while a collective's bytes came with those of the
plan's simulation. A link is slow if it gave less than ``SLOW`` of what was planned in ``IN_A_ROW`` collectives, one
after the other: a few slow calls are noise. Where all that a rank receives is slow alike, the rank itself is slow (its
other work, or its own port), and no link is blamed. Nor is one where most links are slow: then the machines are, or the
network is not the one that was named, and a plan around one link would help nobody. A link is fast if it gave more than
``FAST`` times what was planned as often in a row: that says something of a link that is planned for as a slow one.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from ..choose.expected import LEAST_BYTES_AFTER, planned_rates, rates_of
from ..choose.library import Recipe
from ..runtime.recorded import Trace

SLOW = 0.7
"""Share of the planned rate below which a link is slow. Quick measurements are right up to 0.8 on a busy machine."""
FAST = 1 / SLOW
"""Times the planned rate above which a link is fast. What lies between these two changes no plan, so that a link whose
rate wavers does not either."""
IN_A_ROW = 10
"""Collectives in a row for which a link must be slow, or fast."""
PAUSE_S = 0.0005
"""Seconds between the end of a transfer and the first bytes of the next one from the same node from which on the link
was idle: what has come already is read in less."""
SUSPECTED = 5
"""Those after which rank 0 hears of it, so that it knows how many others are slow when it is time to act."""


class Unlike(NamedTuple):
    """What comes from a node is slow or fast: ``ratio`` is what it gave over what was planned, in the median of
    ``calls``."""

    source: int
    ratio: float
    calls: int


class Slowness:
    """What one rank has seen.

    Attributes:
        ratios: of the last collective by node, how fast its bytes came over what was planned.
    """

    def __init__(self) -> None:
        self.ratios: dict[int, float] = {}
        self._digest = 0
        self._planned: dict[int, float] = {}
        self._rows: dict[int, list[float]] = defaultdict(list)
        self._fast: dict[int, list[float]] = defaultdict(list)

    def look(self, recipe: Recipe, sizes: Any, trace: Trace) -> list[Unlike]:
        """Take note of a collective; returns the nodes from which the last five, or ten, came slowly, and those from
        which the last ten came fast.

        Args:
            sizes: bytes of each chunk.
        """
        if recipe.digest != self._digest:
            self._digest, self._planned = recipe.digest, planned_rates(recipe)
            self._rows.clear()
            self._fast.clear()
        given = received_rates(recipe, sizes, trace)
        self.ratios = ratios = {v: rate / self._planned[v] for v, rate in given.items() if v in self._planned}
        found = []
        for source in slow_sources(ratios):
            row = self._rows[source]
            row.append(ratios[source])
            if len(row) in (SUSPECTED, IN_A_ROW):
                found.append(Unlike(source, statistics.median(row), len(row)))
            if len(row) == IN_A_ROW:
                row.clear()
        for source in ratios.keys() - slow_sources(ratios):
            self._rows[source].clear()
        for source, ratio in ratios.items():
            row = self._fast[source]
            row.append(ratio)
            if ratio <= FAST:
                row.clear()
            if len(row) == IN_A_ROW:
                found.append(Unlike(source, statistics.median(row), IN_A_ROW))
                row.clear()
        return found


class Suspects:
    """The links of which rank 0 has heard that they are slow."""

    def __init__(self) -> None:
        self._calls: dict[tuple[Hashable, int, int], int] = {}

    def note(self, shape: Hashable, source: int, sink: int, call: int) -> None:
        """What ``sink`` gets from ``source`` is slow; rank 0 has begun ``call`` calls of the shape."""
        self._calls[shape, source, sink] = call

    def stand_out(self, shape: Hashable, links: int, call: int) -> bool:
        """Whether at most half of the links that a plan uses were slow lately."""
        lately = sum(s == shape and call - told < 2 * IN_A_ROW for (s, _, _), told in self._calls.items())
        return 2 * lately <= links


def slow_sources(ratios: Mapping[int, float]) -> set[int]:
    """The nodes whose bytes were slow, but for those of a rank that is slow itself."""
    least, most = min(ratios.values(), default=1.0), max(ratios.values(), default=1.0)
    if len(ratios) > 1 and least >= SLOW * most:
        return set()
    return {source for source, ratio in ratios.items() if ratio < SLOW}


def received_rates(recipe: Recipe, sizes: Any, trace: Trace) -> dict[int, float]:
    """Bytes/s from each node while its bytes came.

    What comes first after a pause may have waited in the kernel, as for a sum whose turn had not come, and would make a
    slow link look fast. So bytes count from when this rank has read all that was there.
    """
    receives, came = recipe.program.steps.receives, []
    until: dict[int, float] = {}
    flows: set[int] = set()
    for row in sorted(trace.coming_s, key=lambda row: (trace.coming_s[row], trace.arrived_s[row])):
        source, size = receives[row].source, int(sizes[receives[row].chunk])
        begin_s, arrived_s = until.get(source, -math.inf), trace.arrived_s[row]
        if trace.coming_s[row] - begin_s > PAUSE_S:
            flows.discard(source)
        if source in flows:
            came.append((source, size, begin_s, arrived_s))
        elif row in trace.dry:
            dry_s, count = trace.dry[row]
            came.append((source, size - count, dry_s, arrived_s))
            flows.add(source)
        until[source] = max(begin_s, arrived_s)
    return rates_of(came, LEAST_BYTES_AFTER)
