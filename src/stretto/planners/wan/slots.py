"""Whether flows can be sent within their windows: a linear program over slots of time.

Narrowing (:mod:`.proof`) looks at one link at a time. This program accounts for a flow crossing all links of its route
at once: it decides which part of each flow is sent in each slot, such that no link and no chain is busy for longer than
the slot, and no flow is ahead of one that it waits for. It relaxes the wait for the end of a flow, so a solution may
send part of a flow before the flow that it waits for has ended.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64
from ...solvers import Model, solve
from .flows import Flows

SLOTS = 8
"""Time is divided at the ends of all windows, and at this many points at equal distances."""

TOLERANCE = 1e-6
"""Part of a slot by which everything may be busy for longer, against the solver's tolerance."""


def largest_overlap(flows: Flows, ready: Float64, due: Float64) -> tuple[int, float] | None:
    """How flows are sent if none begins before ``ready`` and none ends after ``due``, float64[flows] each.

    Routes have no latency here, so that all links carry a flow's bytes at once.

    Returns:
        None if they cannot be sent. Otherwise, of all flows that another flow waits for and points in time, those at
        which the largest part of the flow is missing while as large a part of the other is sent: the flow, and the
        point in seconds (flow 0 and 0 s where no flow waits).
    """
    waits = flows.plan.depends
    point = np.unique(np.concatenate((ready, due, np.linspace(0.0, float(due.max()), SLOTS))))
    count, slots = len(ready), len(point) - 1
    model = Model()
    # sent[k, t]: the part of flow k that is sent by point t
    sent = model.columns(
        count * len(point), lower=(point >= due[:, None]).ravel(), upper=(point > ready[:, None]).ravel()
    ).reshape(count, -1)
    # each link serves one flow at a time, and each chain
    links, link = np.unique(flows.link, return_inverse=True)
    machine, machines = np.concatenate((link, len(links) + flows.group)), len(links) + flows.groups
    served = sent[np.concatenate((flows.owner, np.arange(count)))]
    seconds = np.concatenate((flows.hop_seconds, flows.seconds))[:, None]
    row = machine[:, None] * slots + np.arange(slots)
    room = np.tile(np.diff(point) * (1 + TOLERANCE), machines)
    model.rows(len(room), -np.inf, room, (row, served[:, 1:], seconds), (row, served[:, :-1], -seconds))
    row = np.arange(count * slots).reshape(count, slots)
    model.rows(row.size, 0.0, np.inf, (row, sent[:, 1:], 1.0), (row, sent[:, :-1], -1.0))
    before, after = sent[waits.values], sent[waits.owners]
    row = np.arange(before.size).reshape(before.shape)
    model.rows(row.size, 0.0, np.inf, (row, before, 1.0), (row, after, -1.0))
    answer = solve(model)
    if answer.x is None or not len(waits.values):
        return None if answer.status == "infeasible" else (0, 0.0)
    overlap = np.minimum(1.0 - answer.x[before], answer.x[after])
    pair, at = np.unravel_index(int(overlap.argmax()), overlap.shape)
    return int(waits.values[pair]), float(point[at])
