"""Whether flows can be sent within their windows: a linear program over slots of time.

Narrowing (:mod:`.proof`) looks at one link at a time. This program accounts for a flow crossing all links of its route
at once: it decides which part of each flow is sent in each slot, such that no link and no chain is busy for longer than
the slot, and no flow is ahead of one that it waits for. It relaxes the wait for the end of a flow, so a solution may
send part of a flow before the flow that it waits for has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.plan import Plan
from ...solvers import Model, solve
from .flows import Flows

SLOTS = 8
"""Time is divided at the ends of all windows, and at this many points at equal distances."""

TOLERANCE = 1e-6
"""Part of a slot by which everything may be busy for longer, against the solver's tolerance."""


@dataclass(frozen=True)
class SlotProgram:
    """Flows of a plan whose routes have no latency, so that all links carry a flow's bytes at once."""

    plan: Plan
    flows: Flows

    def largest_overlap(self, ready: Float64, due: Float64) -> tuple[int, float] | None:
        """How flows are sent if none begins before ``ready`` and none ends after ``due``, float64[flows] each.

        Returns:
            None if they cannot be sent. Otherwise, of all flows that another flow waits for and points in time, those
            at which the largest part of the flow is missing while as large a part of the other is sent: the flow, and
            the point in seconds (flow 0 and 0 s where no flow waits).
        """
        waits = self.plan.depends
        point = np.unique(np.concatenate((ready, due, np.linspace(0.0, float(due.max()), SLOTS))))
        count, cuts = len(ready), len(point)
        model = Model()
        # sent[k, t]: the part of flow k that is sent by point t
        sent = model.columns(
            count * cuts, lower=(point >= due[:, None]).ravel(), upper=(point > ready[:, None]).ravel()
        ).reshape(count, cuts)
        slot = np.arange(cuts - 1)
        for users, seconds in self._machines():
            row, k = np.tile(slot, len(users)), np.repeat(users, cuts - 1)
            each = np.repeat(seconds, cuts - 1)
            model.rows(
                cuts - 1, -np.inf, np.diff(point) * (1 + TOLERANCE),
                (row, sent[k, row + 1], each), (row, sent[k, row], -each),
            )  # fmt: skip
        row, k = np.arange(count * (cuts - 1)), np.repeat(np.arange(count), cuts - 1)
        t = np.tile(slot, count)
        model.rows(len(row), 0.0, np.inf, (row, sent[k, t + 1], 1.0), (row, sent[k, t], -1.0))
        after, before = np.repeat(waits.owners, cuts), np.repeat(waits.values.astype(np.int64), cuts)
        row, t = np.arange(len(after)), np.tile(np.arange(cuts), len(waits.values))
        model.rows(len(row), 0.0, np.inf, (row, sent[before, t], 1.0), (row, sent[after, t], -1.0))
        answer = solve(model)
        if answer.x is None or not len(waits.values):
            return None if answer.status == "infeasible" else (0, 0.0)
        part = answer.x[sent]
        overlap = np.minimum(1.0 - part[waits.values], part[waits.owners])
        pair, at = np.unravel_index(int(overlap.argmax()), overlap.shape)
        return int(waits.values[pair]), float(point[at])

    def _machines(self) -> list[tuple[Int64, Float64]]:
        """What serves one flow at a time, links and chains: the flows of each, and their seconds on it."""
        flows = self.flows
        hops = Ragged.grouped(flows.route.values, np.arange(len(flows.route.values)))
        chains = Ragged.grouped(flows.group, np.arange(len(flows.size)))
        owners, links = flows.route.owners, flows.route.values
        on_links = [hops[e] for e in range(hops.rows) if len(hops[e])]
        return [
            *((owners[h], flows.size[owners[h]] / flows.width[links[h]]) for h in on_links),
            *((chains[g].astype(np.int64), flows.seconds[chains[g]]) for g in range(chains.rows)),
        ]
