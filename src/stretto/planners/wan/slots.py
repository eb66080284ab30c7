"""Whether flows can be sent within their windows at all: a linear program over slots of time.

Narrowing (:mod:`.wan_proof`) looks at one link at a time. This program sees that a flow crosses all
links of its route at once: what part of each flow is sent in each slot, no link and no chain
being busy longer than the slot, and no flow ahead of one that it waits for. That a flow waits for
*X"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...model.plan import Plan
from ...solvers import Model, solve
from .flows import Flows

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

SLOTS = 8
"""Ends of windows divide time, and so many equal parts of it do."""

SLACK = 1e-6
"""By how much more than a slot everything may be busy, against the solver's tolerance."""


@dataclass(frozen=True)
class Fluid:
    """Flows of a plan whose routes have no latency, so that all links see a flow's bytes at once."""

    plan: Plan
    flows: Flows

    def sending(self, ready: Float64, due: Float64) -> tuple[int, float] | None:
        """How all is sent if no flow begins before ``ready`` and none ends after ``due`` (float64[flows] each).

        Returns:
            None if it cannot be; else the flow of which most is missing when as much is sent of one
            that waits for it, and that time, seconds (flow 0 at 0 s where there is none).
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
                cuts - 1, -np.inf, np.diff(point) * (1 + SLACK),
                (row, sent[k, row + 1], each), (row, sent[k, row], -each),
            )  # fmt: skip
        row, k = np.arange(count * (cuts - 1)), np.repeat(np.arange(count), cuts - 1)
        t = np.tile(slot, count)
        model.rows(len(row), 0.0, np.inf, (row, sent[k, t + 1], 1.0), (row, sent[k, t], -1.0))
        after, before = np.repeat(waits.owners, cuts), np.repeat(waits.values.astype(np.int64), cuts)
        row, t = np.arange(len(after)), np.tile(np.arange(cuts), len(waits.values))
        model.rows(len(row), 0.0, np.inf, (row, sent[before, t], 1.0), (row, sent[after, t], -1.0))
        found = solve(model)
        if found.x is None or not len(waits.values):
            return None if found.status == "infeasible" else (0, 0.0)  # nothing to ask further
        part = found.x[sent]
        early = np.minimum(1.0 - part[waits.values], part[waits.owners])
        pair, at = np.unravel_index(int(early.argmax()), early.shape)
        return int(waits.values[pair]), float(point[at])

    def _machines(self) -> list[tuple[Int64, Float64]]:
        """What is busy with one thing at a time: links, and chains; the flows of each and their seconds on it."""
        flows = self.flows
        owners, links = flows.route.owners, flows.route.values
        order = np.argsort(links, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(links[order])) + 1)
        found = [(owners[p], flows.size[owners[p]] / flows.width[links[p]]) for p in parts]
        order = np.argsort(flows.group, kind="stable")
        chains = np.split(order, np.flatnonzero(np.diff(flows.group[order])) + 1)
        return [*found, *((c, flows.seconds[c]) for c in chains)]
