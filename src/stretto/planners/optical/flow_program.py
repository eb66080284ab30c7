"""A mixed-integer flow program for SWOT's exact mode, which counts planes and does not name them.

Planes that are alike are interchangeable, so what matters is how many, x_i, carry step i, and how
many, y_il, go from step i straight to step l: an integral flow of at most k planes through the
steps. On an arc between different matchings (a *turn*) each plane gives up a at the end of step i
and b at the beginning of step l, a + b + (the time between) >= R. With A, B the sums over the
planes of an arc, D_i the length of a step and t = 1..k:

    A_il + B_il + t sum_{i<q<l} D_q >= t R [y_il >= t]
    x_i (D_i - L) - sum_l A_il - sum_h B_hi >= m_i / B

and sum D_i is to be least. x_i D_i is made linear by the choice z_iq = [x_i = q]. Windows of steps
(see :mod:`.bound`) tighten it. What one plane can give up is not limited here, so the optimum is a
lower bound; the flow, decoded to planes and polished, is a schedule. Where they meet it is optimal.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...schedule.effort import Budget
from ...solvers import INFINITY, Model, Solution, solve
from .instance import FREE, Instance, completion
from .polish import polish

CERTAIN = 1e-6
"""Relative difference up to which a schedule and a bound are taken to meet."""


class Answer(NamedTuple):
    """A schedule and what none can beat, seconds."""

    share: Float64
    bound_s: float


class Arcs(NamedTuple):
    """The arcs on which planes go from step to step."""

    tail: Int64  # [arcs], the step that a plane comes from; -1 - c for planes whose first matching is that of class c
    head: Int64  # [arcs], the step that it goes to; ``steps`` is the end
    turns: Bool  # [arcs], whether it turns on the way


def solve_by_flow(instance: Instance, share: Float64, budget: Budget | None = None) -> Answer:
    """The optimum of an instance whose planes are alike, or from ``share`` the best within the budget, with a bound."""
    assert instance.alike
    given_s = completion(instance, share)
    arcs = _arcs(instance)
    model, flow = _program(instance, arcs, given_s, given_s / instance.steps)
    solution = solve_within(budget, model, gap=1e-7, prove=True)
    other = None if solution.x is None else _decode(instance, arcs, np.rint(solution.x[flow]).astype(np.int64))
    return answer_of(instance, share, solution, other)


def answer_of(instance: Instance, share: Float64, solution: Solution, other: Float64 | None) -> Answer:
    """The better of two schedules, and the bound of a program that seeks one better than ``share``.

    Args:
        solution: of the program, with the time of ``share`` over the number of steps as its unit.
        other: its schedule, not yet polished.
    """
    given_s = completion(instance, share)
    if other is not None:
        share = min(share, polish(instance, other), key=partial(completion, instance))
    unit, beaten = given_s / instance.steps, given_s * (1 - CERTAIN)
    bound = beaten if solution.status == "infeasible" else min(solution.bound * unit, beaten)
    return Answer(share, min(max(bound, 0.0), completion(instance, share)))


def solve_within(budget: Budget | None, model: Model, **options: Any) -> Solution:
    """Solve a program with what is left of a budget in units of solvers' effort, and spend on it."""
    if budget is None:
        return solve(model, **options)
    solution = solve(model, effort=budget.units("units"), time_limit_s=budget.stop.limit_s, **options)
    budget.spend(units=solution.effort)
    return solution


def _arcs(instance: Instance) -> Arcs:
    n = instance.steps
    kinds = np.unique(instance.initial)
    rows = [(i, j, instance.matching[i] != instance.matching[j]) for i in range(n) for j in range(i + 1, n)]
    rows += [(-1 - c, j, kind not in (FREE, instance.matching[j])) for c, kind in enumerate(kinds) for j in range(n)]
    rows += [(i, n, False) for i in range(n)]
    tail, head, turns = zip(*rows, strict=True)
    return Arcs(np.array(tail), np.array(head), np.array(turns, dtype=np.bool_))


def _program(instance: Instance, arcs: Arcs, given_s: float, unit: float) -> tuple[Model, Int64]:
    """The program, times in ``unit``, and the columns of y."""
    n, k = instance.steps, instance.planes
    latency, turn = instance.latency_s[0] / unit, instance.turn_s[0] / unit
    work = instance.volume / instance.bandwidth[0] / unit
    # only what is better than the schedule at hand is looked for: finding nothing proves it
    target = given_s / unit * (1 - CERTAIN)
    shortest = latency + work / k
    longest = np.maximum(target - shortest.sum() + shortest, shortest)
    model = Model()
    length = model.columns(n, shortest, longest, cost=1.0)
    q = np.arange(1, k + 1)
    chosen = model.columns(n * k, 0, 1, integer=True).reshape(n, k)
    part = model.columns(n * k, 0.0, np.repeat(longest, k)).reshape(n, k)
    model.rows(n, 1, 1, (chosen, 1.0))
    model.rows(n, 0, 0, (part, 1.0), (length, -1.0))
    least = (latency + work[:, None] / q).ravel()
    model.rows(n * k, 0, INFINITY, (part.ravel(), 1.0), (chosen.ravel(), -least))
    model.rows(n * k, -INFINITY, 0, (part.ravel(), 1.0), (chosen.ravel(), -np.repeat(longest, k)))
    model.rows(1, -INFINITY, target, (length[None], 1.0))

    flow = model.columns(len(arcs.tail), 0, k, integer=True)
    for ends in (arcs.head, arcs.tail):
        inner = np.flatnonzero((ends >= 0) & (ends < n))
        model.rows(n, 0, 0, (ends[inner], flow[inner], 1.0), (chosen, -q))
    for c, planes in enumerate(np.unique(instance.initial, return_counts=True)[1]):
        model.rows(1, -INFINITY, planes, (flow[None, arcs.tail == -1 - c], 1.0))

    turning = np.flatnonzero(arcs.turns)
    tails, heads = arcs.tail[turning], arcs.head[turning]
    late = model.columns(len(turning), 0.0, turn * k)
    early = model.columns(len(turning), 0.0, np.where(tails >= 0, turn * k, 0.0))
    for number, arc in enumerate(turning.tolist()):
        at_least = model.columns(k, 0, 1, integer=True)
        model.rows(1, 0, 0, (at_least[None], 1.0), (flow[arc], -1.0))
        model.rows(k - 1, -INFINITY, 0, (at_least[1:], 1.0), (at_least[:-1], -1.0))
        between = length[max(int(tails[number]), -1) + 1 : heads[number]]
        model.rows(
            k, 0, INFINITY,
            (at_least, -turn * q), (late[number], 1.0), (early[number], 1.0), (np.tile(between, (k, 1)), q[:, None]),
        )  # fmt: skip
    model.rows(
        n, work, INFINITY, (part, q), (chosen, -latency * q), (heads, late, -1.0),
        (np.maximum(tails, 0), np.where(tails >= 0, early, -1), -1.0),
    )  # fmt: skip
    for a in range(n):
        for b in range(a + 1, n + 1):
            inside = turning[(heads < b) & ((tails >= a) | (a == 0))]
            model.rows(
                1, work[a:b].sum(), INFINITY,
                (length[None, a:b], k), (chosen[None, a:b], -latency * q), (flow[None, inside], -turn),
            )  # fmt: skip
    return model, flow


def _decode(instance: Instance, arcs: Arcs, flow: Int64) -> Float64:
    """Name the planes of a flow: follow it from each plane's first matching."""
    left = flow.copy()
    kinds = np.unique(instance.initial)
    serves = np.zeros((instance.steps, instance.planes))
    for p in range(instance.planes):
        at = -1 - int(np.searchsorted(kinds, instance.initial[p]))
        while at < instance.steps:
            ways = np.flatnonzero((arcs.tail == at) & (left > 0))
            if not len(ways):
                break
            left[ways[0]] -= 1
            at = int(arcs.head[ways[0]])
            if at < instance.steps:
                serves[at, p] = 1.0
    even = serves * instance.bandwidth
    share: Float64 = even * (instance.volume / np.maximum(even.sum(1), 1e-300))[:, None]
    return share
