"""A bound that no schedule can beat: a linear program over windows of steps, for long instances too.

Let x_i planes carry step i, which lasts D_i. Planes are alike, with bandwidth B and latency L, and a
turn takes R. Then

    D_i >= L + m_i / (B x_i)                         a step ends no earlier than all its planes allow
    k sum D_i >= sum (m_i / B + L x_i) + R turns     in every window of steps, k planes' time

where a window in which sum x_i servings happen has at least sum x_i - k - saved turns inside: each
plane's first serving needs none there, nor does one whose plane still holds its matching. Those
are at most s_l for step l, and planes that hold through step q do not carry it: s_l + x_q <= k.

In the program x_i may be fractions, and turns are shared by all planes. But planes are whole: of the matchings that
differ in a window some plane carries at least an equal share, rounded up, and turns between two of them. So

    sum D_i >= c L + (c - 1) R,   c = ceil(different matchings / k)

For a schedule at hand whole numbers are tried, too, within a count: all x where no matching comes twice
(:mod:`.counts`), else those of the program in :mod:`.flow_program` where the instance is small. This proves most optima
of small instances.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64, Int64
from ...schedule.effort import Budget
from ...solvers import INFINITY, Model, solve
from .baselines import ideal
from .counts import counts_decide, solve_by_counts
from .flow_program import solve_by_flow
from .instance import FREE, Instance, completion, mirrored_half

MOST_STEPS_ALL_WINDOWS = 40
"""Steps up to which every window is a row of the program; beyond, short windows, beginnings and ends are."""

SHORT_WINDOW = 6
"""Steps of the longest short window."""

MOST_FLOWS = 12
"""Steps times planes up to which the flow program is solved for a bound, in 0.02 s on average."""

MOST_UNITS = 0.1
"""Units of effort that this program may take, see :func:`stretto.solvers.solve`; about as many seconds of CPU."""

PIECE_STEPS = 128
"""Steps of a piece. An instance of four pieces or more is bounded piece by piece, with planes free at first."""


def lower_bound(instance: Instance, share: Float64 | None = None) -> float:
    """Seconds before which no schedule completes.

    Args:
        share: a good schedule; with it whole numbers of planes are tried.
    """
    floor = ideal(instance)
    if not instance.alike or len(instance.kinds) < 2:
        return floor
    half = mirrored_half(instance)
    if half is not None:
        return max(floor, 2 * lower_bound(half, None if share is None else share[: half.steps]))
    if share is not None and floor < completion(instance, share):
        floor = max(floor, _by_whole_numbers(instance, share))
    if instance.steps < 4 * PIECE_STEPS:
        return max(floor, _windows(instance))
    # OPT(1..n) >= OPT(1..a) + OPT(a+1..n); equal pieces are bounded once
    bounds: dict[tuple[bytes, bytes], float] = {}
    total = 0.0
    for first in range(0, instance.steps, PIECE_STEPS):
        piece = instance.part(first, first + PIECE_STEPS)
        key = (piece.volume.tobytes(), piece.matching.tobytes())
        if key not in bounds:
            bounds[key] = lower_bound(piece)
        total += bounds[key]
    return max(floor, total)


def _by_whole_numbers(instance: Instance, share: Float64) -> float:
    if counts_decide(instance):
        return solve_by_counts(instance, share, quick=True).bound_s
    if instance.steps * instance.planes <= MOST_FLOWS:
        return solve_by_flow(instance, share, Budget().for_solvers(MOST_UNITS)).bound_s
    return 0.0


def _windows(instance: Instance) -> float:
    n, k = instance.steps, instance.planes
    latency, turn = float(instance.latency_s[0]), float(instance.turn_s[0])
    work = instance.volume / instance.bandwidth[0]
    unit = max(turn, float(work.sum()) / n, 1e-12)
    latency, turn, work = latency / unit, turn / unit, work / unit
    model = Model()
    # running sums, so that a window is four entries: time, servings
    time = model.columns(n + 1, 0.0, np.where(np.arange(n + 1) == 0, 0.0, INFINITY), cost=np.arange(n + 1) == n)
    served = model.columns(n + 1, 0.0, np.where(np.arange(n + 1) == 0, 0.0, INFINITY))
    model.rows(n, 1.0, float(k), (served[1:], 1.0), (served[:-1], -1.0))
    # D >= L + m / (B x) at whole x: the lines through neighbouring points
    for q in range(1, max(k, 2)):
        slope = work / q - work / (q + 1)
        model.rows(
            n, latency + work / q + slope * q, INFINITY,
            (time[1:], 1.0), (time[:-1], -1.0), (served[1:], slope), (served[:-1], -slope),
        )  # fmt: skip
    model.rows(n, latency + work / k, INFINITY, (time[1:], 1.0), (time[:-1], -1.0))
    earlier = [np.flatnonzero(instance.matching[:i] == matching) for i, matching in enumerate(instance.matching)]
    previous = np.array([max(steps, default=-1) for steps in earlier])
    saved = _savings(model, k, served, earlier)
    carried = np.concatenate(([0.0], np.cumsum(work)))
    for a, b in _chosen_windows(n):
        first = k
        if a == 0:
            first = int(((instance.initial == FREE) | np.isin(instance.initial, instance.matching[:b])).sum())
        kept = saved[a:b][previous[a:b] >= a]
        model.rows(
            1, carried[b] - carried[a] - turn * first, INFINITY,
            (time[b], k), (time[a], -k), (served[b], -latency - turn), (served[a], latency + turn),
            (kept[None], turn),
        )  # fmt: skip
        of_one = -(-len(np.unique(instance.matching[a:b])) // k)
        model.rows(1, of_one * (latency + turn) - turn, INFINITY, (time[b], 1.0), (time[a], -1.0))
    solution = solve(model)
    return solution.bound * unit if solution.status == "optimal" else 0.0


def _savings(model: Model, k: int, served: Int64, earlier: list[Int64]) -> Int64:
    """int64[steps], columns: how many of ``k`` planes still hold the matching of a step from an earlier serving.

    Args:
        earlier: for each step those before it of the same matching.
    """
    saved = model.columns(len(earlier), 0.0, [float(k) if len(steps) else 0.0 for steps in earlier])
    for i, same in enumerate(earlier):
        if not len(same):
            continue
        if len(same) < k:  # each was carried by a plane at least
            model.rows(1, -INFINITY, 0.0, (saved[i], 1.0), (served[None, same + 1], -1.0), (served[None, same], 1.0))
        model.rows(1, -INFINITY, 0.0, (saved[i], 1.0), (served[i + 1], -1.0), (served[i], 1.0))
        between = np.arange(same[-1] + 1, i)
        model.rows(
            len(between), -INFINITY, float(k),
            (saved[i], 1.0), (served[between + 1], 1.0), (served[between], -1.0),
        )  # fmt: skip
    return saved


def _chosen_windows(n: int) -> list[tuple[int, int]]:
    if n <= MOST_STEPS_ALL_WINDOWS:
        return [(a, b) for a in range(n) for b in range(a + 1, n + 1)]
    short = [(a, a + m) for m in range(1, SHORT_WINDOW + 1) for a in range(n - m + 1)]
    return sorted({*short, *((0, b) for b in range(1, n + 1)), *((a, n) for a in range(n))})
