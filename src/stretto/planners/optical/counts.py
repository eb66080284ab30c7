"""Exact where no matching comes twice: only how many planes carry each step matters.

Planes are alike and free at first. Then planes serve in turn, each serving by the plane whose last one
ended first: where p carries a step, and q, idle for longer, does not, they can exchange what they do
from then on (p had turned by then, so it is ready for whatever q does later); within a step the one
that begins first may end first, for the sum of their times stays. So serving r is of plane r mod k,
and x_1 .. x_n, the planes that carry each step, fix all but the times. All x are enumerated step by
step, and dropped by bounds that hold for given x. With w = m / B, latency L and a turn R:

    D_i >= L + w_i / x_i
    sum c_q D_q >= sum w_i + L X + R max(X - k, 0)          in every window, of X servings

where c_q planes are engaged in step q: between the first and the last step that they carry in the
window. Windows that follow each other add up, and so does the optimum of the steps that are left, on
planes that are free again. The x that remain are solved, the most promising first, by the dual of the
program in :mod:`.polish` (y of each step's volume, c_il planes going from i straight to l):

    max sum y_i (w_i + L x_i) + R sum c_il min(y_i, y_l),   y_q x_q + sum_{i<q<l} c_il min(y_i, y_l) <= 1

Its y bounds all other x as well: with A_q the left of the second and d_q the least of D_q, the D_q sum
up to no less than sum d_q + (value - sum A_q d_q) / max A_q. Limits count x and programs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.stop import Stop
from ...solvers import INFINITY, Model, solve
from .flow_program import CERTAIN, Answer
from .instance import FREE, Instance, completion
from .polish import polish

MOST_STEPS = 32
"""Steps of the longest instance whose x are enumerated."""

MOST_COUNTS = 200_000
"""Beginnings of x that are kept at most; with more the enumeration stops and gives a bound alone."""

MOST_LEFT = 5000
"""Whole x that are solved one by one at most; with more, the flow program is quicker."""

MOST_PROGRAMS = 6000
"""Dual programs that all parts of an instance may take together."""

QUICK_COUNTS, QUICK_PROGRAMS = 2000, 60
"""The same where only a bound is wanted, for a schedule that was found without programs: about 0.1 s of CPU."""


class _Setting(NamedTuple):
    """Times in turns: float64[steps] work of one plane, latency, and the planes."""

    work: Float64
    latency: float
    planes: int


def counts_decide(instance: Instance) -> bool:
    """Whether the numbers of planes decide, and the steps are few enough to try them."""
    distinct = len(np.unique(instance.matching)) == instance.steps <= MOST_STEPS
    return distinct and instance.alike and bool((instance.initial == FREE).all() and instance.turn_s[0] > 0)


def solve_by_counts(instance: Instance, share: Float64, stop: Stop | None = None, quick: bool = False) -> Answer:
    """The optimum of an instance that counts decide; at a limit, the best schedule and bound from ``share``."""
    rest, left, most = [0.0], QUICK_PROGRAMS if quick else MOST_PROGRAMS, QUICK_COUNTS if quick else MOST_COUNTS
    answer = Answer(share, 0.0)
    for first in range(instance.steps - 1, -1, -1):
        part = instance.part(first, instance.steps)
        answer, used = _solve(part, polish(part, share[first:]), rest, left, most, stop)
        left -= used
        rest.append(answer.bound_s / float(instance.turn_s[0]))
    return answer


def _solve(
    instance: Instance, share: Float64, rest: list[float], programs: int, counts: int, stop: Stop | None
) -> tuple[Answer, int]:
    """The answer for one instance, and how many programs it took.

    Args:
        rest: lower bounds of its last 0, 1, .. steps, in turns.
        programs, counts: how many programs may be solved, and how many beginnings of x may be kept.
    """
    turn = float(instance.turn_s[0])
    now = completion(instance, share)
    work = instance.volume / instance.bandwidth[0] / turn
    setting = _Setting(work, float(instance.latency_s[0]) / turn, instance.planes)
    served, bound, dropped = _enumerate(setting, now / turn * (1 - CERTAIN), rest, counts)
    if dropped < INFINITY:
        return Answer(share, min(dropped * turn, now)), 0
    if np.allclose(work, work[::-1], rtol=1e-12):
        once = _first_of_mirrored(served)
        served, bound = served[:, once], bound[once]
    if len(bound) > MOST_LEFT:
        return Answer(share, min(float(bound.min()) * turn, now)), 0
    going = _going(served, setting.planes)
    least = setting.latency + work[:, None] / served
    features = np.concatenate((served, going)).astype(np.float64)
    used = 0
    while len(bound) and used < programs and not (stop is not None and stop.fired):
        best = int(np.argmin(bound))
        y, value = _dual(setting, served[:, best], going[:, best])
        used += 1
        if value < now / turn * (1 - CERTAIN):
            other = polish(instance, _in_turn(instance, served[:, best]))
            if completion(instance, other) < now:
                share, now = other, completion(instance, other)
        bound = np.maximum(bound, _bounds_by_dual(setting, y, features, least))
        bound[best] = INFINITY
        keep = bound < now / turn * (1 - CERTAIN)
        served, going, least, features = served[:, keep], going[:, keep], least[:, keep], features[:, keep]
        bound = bound[keep]
    lowest = float(bound.min(initial=INFINITY)) * turn
    return Answer(share, min(lowest, now * (1 - CERTAIN))), used


def _first_of_mirrored(served: Int64) -> Bool:
    """bool[x], one of each x and its reverse: where volumes mirror themselves a schedule run backwards is one, too."""
    back = served[::-1]
    at, x = (served != back).argmax(axis=0), np.arange(served.shape[1])
    first: Bool = served[at, x] <= back[at, x]
    return first


def _enumerate(setting: _Setting, target: float, rest: list[float], most: int) -> tuple[Int64, Float64, float]:
    """All x whose bound is below ``target``: int64[steps, x], their bounds, and a bound where there are too many."""
    n, k = len(setting.work), setting.planes
    served = np.zeros((0, 1), dtype=np.int64)
    bound = np.zeros((1, 1))
    for i in range(n):
        many = served.shape[1]
        served = np.concatenate((np.repeat(served, k, axis=1), np.tile(np.arange(1, k + 1), many)[None]))
        bound = np.repeat(bound, k, axis=1)
        bound = np.concatenate((bound, _windows(setting, served, bound)[None]))
        promise = bound[-1] + rest[n - 1 - i]
        keep = promise < target
        if keep.sum() > most:
            return served[:, :0], bound[-1, :0], float(promise[keep].min())
        served, bound = served[:, keep], bound[:, keep]
    return served, bound[-1], INFINITY


def _windows(setting: _Setting, served: Int64, bound: Float64) -> Float64:
    """float64[x], the best sum of bounds of windows that follow each other, the last of which ends here.

    Args:
        bound: float64[steps, x], the same for the steps before.
    """
    i, many = served.shape[0] - 1, served.shape[1]
    work, latency, k = setting
    least = latency + work[: i + 1, None] / served
    best: Float64 = bound[i] + least[i]
    total, length = np.zeros(many, dtype=np.int64), np.zeros(many)
    for a in range(i, -1, -1):
        total, length = total + served[a], length + least[a]
        needed = work[a : i + 1].sum() + latency * total + np.maximum(total - k, 0)
        planes, begun, most = np.minimum(k, total), np.zeros_like(total), np.zeros_like(total)
        for q in range(a, i + 1):
            ended = np.maximum(0, planes - (total - begun))
            begun = begun + served[q]
            engaged = np.minimum(planes, begun) - ended
            needed -= engaged * least[q]
            most = np.maximum(most, engaged)
        best = np.maximum(best, bound[a] + length + np.maximum(needed, 0.0) / most)
    return best


def _going(served: Int64, k: int) -> Int64:
    """int64[pairs, x], how many planes go from step i straight to step l."""
    i, j = np.triu_indices(len(served), 1)
    until = np.cumsum(served, axis=0)
    since = until - served
    both: Int64 = np.minimum(until[i] + k, until[j]) - np.maximum(since[i] + k, since[j])
    return np.maximum(both, 0)


def _dual(setting: _Setting, served: Int64, going: Int64) -> tuple[Float64, float]:
    """y of one x, and its value: what no schedule with this x can beat."""
    work, latency, _ = setting
    n = len(work)
    used = np.flatnonzero(going)
    i, j = (ends[used] for ends in np.triu_indices(n, 1))
    count = going[used].astype(np.float64)
    model = Model()
    y = model.columns(n, 0.0, INFINITY, cost=-(work + latency * served))
    lesser = model.columns(len(used), 0.0, INFINITY, cost=-count)
    for end in (i, j):
        model.rows(len(used), -INFINITY, 0.0, (lesser, 1.0), (y[end], -1.0))
    step = np.arange(n)[:, None]
    q, pair = np.nonzero((step > i) & (step < j))
    model.rows(n, -INFINITY, 1.0, (y, served), (q, lesser[pair], count[pair]))
    solution = solve(model)
    if solution.x is None:
        return np.zeros(n), 0.0
    values: Float64 = solution.x[:n]
    return values, -solution.bound


def _bounds_by_dual(setting: _Setting, y: Float64, features: Float64, least: Float64) -> Float64:
    """float64[x], the bounds that the y of one x gives for others; ``features`` are their counts, steps then pairs."""
    work, latency, _ = setting
    n = len(work)
    i, j = np.triu_indices(n, 1)
    lesser = np.minimum(y[i], y[j])
    step = np.arange(n)[:, None]
    table = np.concatenate((np.diag(y), np.where((step > i) & (step < j), lesser, 0.0)), axis=1)
    value = np.concatenate((latency * y, lesser)) @ features + y @ work
    engaged = table @ features
    beyond = np.maximum(value - (engaged * least).sum(axis=0), 0.0)
    bound: Float64 = least.sum(axis=0) + beyond / engaged.max(axis=0)
    return bound


def _in_turn(instance: Instance, served: Int64) -> Float64:
    """Even shares with plane r mod k for serving r."""
    share = np.zeros((instance.steps, instance.planes))
    step = np.repeat(np.arange(instance.steps), served)
    share[step, np.arange(len(step)) % instance.planes] = (instance.volume / served)[step]
    return share
