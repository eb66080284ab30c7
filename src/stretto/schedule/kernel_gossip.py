"""Beam search for the moves of :mod:`stretto.schedule.gossip`.

A *state* is what has been decided: when each cell is reached, and when each port is free again. The next decision is
always that of the port that is free first: which move it makes, or that it waits until the next cell is reached. States
after as many decisions are compared by how soon they could grow: a cell that is reached at time x counts
exp(-growth max(x, f)) for a port that is free at time f, weighted with the port's share of the growth.

A move takes along what its receiver lacks. Copies of blocks can be taken along one by one. Sums cannot be taken apart:
what came together goes on together or not at all, and a receiver may have none of it yet.
"""

from __future__ import annotations

from math import exp, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

AT_ONCE = 1e-9
"""Share of a time up to which another one is taken for the same."""

WAIT = -1
"""A port waits until the next cell is reached, or sends no more."""


class States(NamedTuple):
    """States after as many decisions."""

    reached_s: Float64  # float64[states, cells], infinite where no move leads to a cell yet
    by: Int64  # int64[states, cells], by which decision: its number times the moves, and the move
    whole: Int64  # int64[states, cells], a number for cells that go on together
    value: Float64  # float64[states, cells], exp(-growth x) of a cell that is reached at time x
    free_s: Float64  # float64[states, ports], infinite for a port that sends no more


def search(
    goal: Int64,
    takes: Bool,
    port: Int64,
    message_s: Float64,
    cell_s: Float64,
    latency_s: Float64,
    sums: bool,
    share: Float64,
    growth: float,
    most: int,
    alike: int,
    decisions: int,
    within_s: float,
) -> tuple[float, Int64]:
    """The decisions by which all cells are reached soonest from cell 0.

    Args:
        goal: int64[moves, cells], where each move leads from each cell.
        takes: bool[moves, cells], whether it may take along what has reached a cell.
        port: int64[moves].
        message_s, cell_s: float64[moves], for how long a message keeps its port busy, and how much longer for each cell
            that it reaches.
        latency_s: float64[moves], from then to its receiver.
        sums: whether what came together goes on together.
        share: float64[ports], of the growth.
        most: states that are kept after each decision, at most.
        alike: of states of equal worth as many are kept, at most.
        decisions: after which the search ends.
        within_s: by when all cells must be reached.
    Returns:
        When the last cell is reached, seconds, infinite if that is not before ``within_s``; and by which decision each
        cell is, as in :class:`States`.
    """
    moves, cells = goal.shape
    states, others = _states(most, cells, len(share)), _states(most, cells, len(share))
    states.reached_s[0, 0], states.value[0, 0] = 0.0, 1.0
    room = most * (moves + 1)
    worth, free_s = np.empty(room), np.empty(room)
    state, decided = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    ready, apart = np.empty(cells, dtype=np.int64), np.zeros(max(cells, decisions + 1), dtype=np.bool_)
    soonest_s, by, kept = within_s, np.full(cells, -1), 1
    for step in range(decisions):
        found = 0
        for k in range(kept):
            reached_s, whole, value, free = states.reached_s[k], states.whole[k], states.value[k], states.free_s[k]
            own = np.argmin(free)
            now_s = free[own]
            if now_s >= soonest_s:
                continue
            count, known, next_s, latest_s = _ready(reached_s, now_s, ready)
            others_worth = 0.0
            for q in range(len(share)):
                if q != own:
                    others_worth += share[q] * _worth(value, exp(-growth * free[q]))
            useful, sent_before_s, own_worth = False, -1.0, 0.0
            for move in range(moves):
                if port[move] != own:
                    continue
                new = _taken(move, goal, takes, reached_s, whole, sums, ready[:count], apart)
                if not new:
                    continue
                useful = True
                sent_s = now_s + message_s[move] + new * cell_s[move]
                come_s = sent_s + latency_s[move]
                if come_s >= soonest_s * (1 - AT_ONCE):
                    continue
                if known + new == cells:
                    if max(latest_s, come_s) < soonest_s * (1 - AT_ONCE):
                        soonest_s = max(latest_s, come_s)
                        for x in range(cells):
                            by[x] = states.by[k, x] if reached_s[x] < inf else step * moves + move
                    continue
                if sent_s != sent_before_s:
                    sent_before_s, own_worth = sent_s, share[own] * _worth(value, exp(-growth * sent_s))
                each = exp(-growth * come_s)
                gained = share[own] * each
                for q in range(len(share)):
                    if q != own:
                        gained += share[q] * min(each, exp(-growth * free[q]))
                worth[found], free_s[found] = others_worth + own_worth + new * gained, sent_s
                state[found], decided[found] = k, move
                found += 1
            if next_s < inf or not useful:
                worth[found] = others_worth + share[own] * _worth(value, exp(-growth * next_s))
                state[found], decided[found], free_s[found] = k, WAIT, next_s
                found += 1
        kept, same, before = 0, 0, -1.0
        for c in np.argsort(-worth[:found], kind="mergesort"):
            same = same + 1 if abs(worth[c] - before) <= AT_ONCE * before else 0
            before = worth[c]
            if same >= alike:
                continue
            k, move = state[c], decided[c]
            _copy(states, k, others, kept)
            own = np.argmin(others.free_s[kept])
            now_s = others.free_s[kept, own]
            others.free_s[kept, own] = free_s[c]
            if move != WAIT:
                reached_s, whole = states.reached_s[k], states.whole[k]
                count = _ready(reached_s, now_s, ready)[0]
                _taken(move, goal, takes, reached_s, whole, sums, ready[:count], apart)
                come_s = free_s[c] + latency_s[move]
                for x in ready[:count]:
                    y = goal[move, x]
                    if takes[move, x] and reached_s[y] == inf and not (sums and apart[whole[x]]):
                        others.reached_s[kept, y], others.value[kept, y] = come_s, exp(-growth * come_s)
                        others.by[kept, y], others.whole[kept, y] = step * moves + move, step + 1
            kept += 1
            if kept == most:
                break
        states, others = others, states
        if not kept:
            break
    return soonest_s if soonest_s < within_s else inf, by


def _states(count: int, cells: int, ports: int) -> States:
    return States(
        np.full((count, cells), inf), np.full((count, cells), -1), np.zeros((count, cells), dtype=np.int64),
        np.zeros((count, cells)), np.zeros((count, ports)),
    )  # fmt: skip


def _copy(states: States, k: int, others: States, at: int) -> None:
    others.reached_s[at], others.by[at], others.whole[at] = states.reached_s[k], states.by[k], states.whole[k]
    others.value[at], others.free_s[at] = states.value[k], states.free_s[k]


def _ready(reached_s: Float64, now_s: float, ready: Int64) -> tuple[int, int, float, float]:
    """Write the cells that are reached by now to ``ready``.

    Returns:
        How many these are; how many cells there are to which a move leads; and when the next one and the last one of
        them are reached.
    """
    count, known, next_s, latest_s = 0, 0, inf, 0.0
    for x in range(len(reached_s)):
        at_s = reached_s[x]
        if at_s <= now_s * (1 + AT_ONCE):
            ready[count] = x
            count += 1
        if at_s < inf:
            known += 1
            latest_s = max(latest_s, at_s)
            if at_s > now_s * (1 + AT_ONCE):
                next_s = min(next_s, at_s)
    return count, known, next_s, latest_s


def _taken(
    move: int, goal: Int64, takes: Bool, reached_s: Float64, whole: Int64, sums: bool, ready: Int64, apart: Bool
) -> int:
    """How many cells a move reaches.

    Args:
        ready: the cells that are reached by now.
        apart: changed for sums: for each number of ``whole`` whether these cells' sum stays behind.
    """
    new = 0
    if sums:
        for x in ready:
            apart[whole[x]] = False
        for x in ready:
            if not takes[move, x] or reached_s[goal[move, x]] < inf:
                apart[whole[x]] = True
    for x in ready:
        if sums:
            new += not apart[whole[x]]
        else:
            new += takes[move, x] and reached_s[goal[move, x]] == inf
    return new


def _worth(value: Float64, most: float) -> float:
    """The sum of all values, each ``most`` at the most."""
    total = 0.0
    for x in range(len(value)):
        total += min(value[x], most)
    return total
