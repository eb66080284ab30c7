"""The fast search: a beam over the states of the planes, step by step.

A state is the end of the last step and for each plane its matching and how long it has been idle.
A plane's next turn is chosen lazily: idle time counts towards whatever turn comes next, so turning
ahead and bypassing steps cost nothing to model. In a step a state branches over

- how many of the planes that hold the matching carry a part, those idle for the shortest first,
- how many others turn to it, those that are ready first, or those whose matching is needed last,
- how many of the carrying planes leave a turn's length before the step ends, so that they have
  turned when it does ("early finishing of a plane's share buys its turn").

Then the end of the step has a closed form: all that stay end together. States are ranked by their
time less what their planes are worth: idle time up to a turn, or a matching that the next steps
need. No rank is right for all instances, so several run, and the best schedule is kept.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...model.arrays import Float64, Int64
from .instance import FREE, Instance, completion

WORTHS = ((1.0, 0.5), (0.6, 0.8), (0.3, 0.3))
"""Ways of ranking states: the worth of a second of idle time, and the factor by which the worth of a held matching
falls with each step until it is needed."""

KEPT_SCHEDULES = 3
"""Schedules that each way of ranking gives."""

COMPARED = 6
"""Best states, in multiples of the width, among which those that equal another one are dropped."""


def beam(instance: Instance, width: int) -> list[Float64]:
    """Schedules, the best first: for each way of ranking states its best few.

    Args:
        width: how many states are kept.
    """
    shares = [share for worth in WORTHS for share in _beam(instance, width, *worth)]
    return sorted(shares, key=lambda share: completion(instance, share))


def _next_uses(matching: Int64, kinds: int) -> Int64:
    """int64[steps + 1, kinds], the first step from each on that needs a matching; steps where none."""
    n = len(matching)
    table = np.full((n + 1, kinds), n, dtype=np.int64)
    for i in range(n - 1, -1, -1):
        table[i] = table[i + 1]
        table[i, matching[i]] = i
    return table


def _beam(instance: Instance, width: int, idle_worth: float, fading: float) -> list[Float64]:
    n, k = instance.steps, instance.planes
    kinds = instance.kinds
    matching = np.searchsorted(kinds, instance.matching)
    holds = np.where(instance.initial == FREE, len(kinds), np.searchsorted(kinds, instance.initial))[None, :]
    uses = _next_uses(matching, len(kinds) + 1)
    now, idle = np.zeros(1), np.zeros((1, k))
    idle[:, instance.initial == FREE] = instance.turn_s[instance.initial == FREE]
    trail: list[tuple[Int64, Float64]] = []
    for i in range(n):
        parent, share, span, leaves = _branch(
            instance, float(instance.volume[i]), int(matching[i]), holds, idle, uses[i]
        )
        serves = share > 0
        now = now[parent] + span
        idle = np.where(serves, leaves, np.minimum(instance.turn_s, idle[parent] + span[:, None]))
        holds = np.where(serves, matching[i], holds[parent])
        distance = uses[i + 1][holds] - (i + 1)
        held = np.where(uses[i + 1][holds] < n, instance.turn_s * fading**distance, 0.0)
        worth = (np.maximum(idle_worth * idle, held) * instance.bandwidth).sum(1) / instance.bandwidth.sum()
        rank = np.argsort(now if i == n - 1 else now - worth, kind="stable")
        rank = _distinct(rank[: COMPARED * width], now, holds, idle)[:width]
        trail.append((parent[rank], share[rank]))
        now, idle, holds = now[rank], idle[rank], holds[rank]
    schedules = []
    for row in range(min(KEPT_SCHEDULES, len(now))):
        share, at = np.zeros((n, k)), row
        for i in range(n - 1, -1, -1):
            parents, shares = trail[i]
            share[i], at = shares[at], parents[at]
        schedules.append(share)
    return schedules


def _distinct(rank: Int64, now: Float64, holds: Int64, idle: Float64) -> Int64:
    """The states of ``rank`` without those that equal an earlier one up to the order of planes."""
    key = np.sort(holds[rank] * 1e3 + idle[rank] / max(float(idle.max()), 1e-30), axis=1)
    rows = np.round(np.concatenate((now[rank, None] / max(float(now.max()), 1e-30), key), axis=1), 9)
    _, first = np.unique(rows, axis=0, return_index=True)
    return rank[np.sort(first)]


def _branch(
    instance: Instance, volume: float, matching: int, holds: Int64, idle: Float64, use: Int64
) -> tuple[Int64, Float64, Float64, Float64]:
    """All ways to carry one step from each state.

    Returns:
        For each way its state, float64[planes] of bytes, its duration, and float64[planes], for how long each
        carrying plane is idle at its end.
    """
    fits = holds == matching
    wait = np.where(fits, 0.0, instance.turn_s - idle)
    # places in the queues: of those that fit the least idle first; of the others by either rule
    slow = -instance.bandwidth
    by_idle = np.argsort(np.lexsort((idle, np.broadcast_to(slow, idle.shape), ~fits)))
    by_wait = np.argsort(np.lexsort((-use[holds], wait, fits)))
    by_use = np.argsort(np.lexsort((wait, -use[holds], fits)))
    most_fit, most_turn = int(fits.sum(1).max()), int((~fits).sum(1).max())
    orders = 1 if np.array_equal(by_wait, by_use) else 2
    ways = np.array(
        [
            (o, u, s, y)
            for u, s in product(range(most_fit + 1), range(most_turn + 1))
            for o in range(orders if s else 1)
            for y in range(max(u + s, 1))
            if u + s
        ]
    )
    stay, turn = ways[None, :, 1], ways[None, :, 2]
    possible = (stay <= fits.sum(1)[:, None]) & (turn <= (~fits).sum(1)[:, None])
    state, way = np.nonzero(possible)
    o, u, s, y = ways[way].T
    queue = np.where((o == 0)[:, None], by_wait[state], by_use[state])
    fit = fits[state]
    serves = np.where(fit, by_idle[state] < u[:, None], queue < s[:, None])
    place = np.where(fit, by_idle[state], u[:, None] + queue)
    leaves = np.where(serves & (place < y[:, None]), instance.turn_s, 0.0)
    begin = wait[state] + instance.latency_s + leaves
    width = serves * instance.bandwidth
    span = (volume + (width * begin).sum(1)) / width.sum(1)
    share = width * (span[:, None] - begin)
    sound = (share[:] >= 0).all(1) & ((share > 0) == serves).all(1)
    return state[sound], share[sound], span[sound], leaves[sound]
