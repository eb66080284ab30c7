"""Sizes of chunks by a linear program: transfers keep their routes and their order on each link, and chunks get the
bytes with which the last transfer ends soonest. Where routes share links side by side, each keeps its share.

A chunk's bytes delay what waits for it, and messages cost a fixed time besides. With the order given, every moment is a
sum of these along a chain of transfers, so the completion is the largest of finitely many linear functions of the
sizes: a linear program in the sizes and the starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int32, Int64
from ..model.chunks import weighted
from ..model.collective import Workload
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..simulate import simulate
from ..solvers import INFINITY, Model, solve
from .best import completion_s
from .effort import Budget
from .moments import delays, ends
from .scheduling_problem import route_numbers

MOST_CHUNKS = 100
"""Chunks of a piece that get sizes, at most: more fill pipelines well enough as they are."""

MOST_TRANSFERS = 2_000
"""Transfers of such a plan, at most: the program then takes up to 0.2 s of CPU."""

LEAST_SHARE = 1 / 16
"""Bytes of the smallest chunk, at least, in those of a chunk of mean size: what is smaller costs a message for little.
Twice or half as much changes nothing for Broadcast of 16 MB on sites:3,4, sites:2,8, dgx1, amd:1 and ndv2:4."""

WORTH = 0.998
"""Times the completion before that a plan with other sizes takes at most, for it to be preferred."""

EARLY = 1e-6
"""What a mean start adds to the completion in the program, so that transfers start early where that is free."""

UNITS = 1.0
"""Effort of a program at most, in units of :func:`stretto.solvers.solve`."""


def sized(plan: Plan, budget: Budget, worth: float = WORTH) -> Plan:
    """The plan with chunks of other sizes, where it takes at most ``worth`` times as long; else the plan itself."""
    if budget.exhausted or not _may_be_sized(plan):
        return plan
    (c,) = plan.workload.collectives
    solution = _solved(plan, budget.for_solvers(UNITS))
    cut = None if solution is None else weighted(c, solution.bytes_ / c.chunk_bytes)
    if solution is None or cut is None:
        return plan
    new = replace(plan, workload=Workload((cut,)), start_s=solution.start_s)
    seconds = plan.topology.route_s(new.route, new.size_bytes) * _slower(plan)
    line = simulate(replace(new, finish_s=ends(solution.start_s, seconds)))
    new = replace(new, start_s=line.start_s, finish_s=ends(line.start_s, seconds))
    return new if completion_s(new) <= worth * completion_s(plan) else plan


def _may_be_sized(plan: Plan) -> bool:
    """Whether a plan is timed, and transfers are as fast as their routes, or each route has a share of its links; and
    whether the program is small."""
    if plan.sharing != "timed" or isinstance(plan, SymmetricPlan) or len(plan.workload.collectives) > 1:
        return False
    if plan.other_src is not None or (plan.dst.lengths != 1).any() or plan.start_s is None or plan.finish_s is None:
        return False
    net, (c,) = plan.topology, plan.workload.collectives
    if net.planes or net.changes or not net.store_and_forward[plan.src].all():
        return False
    if not 0 < plan.transfer_count <= MOST_TRANSFERS or not 1 < np.bincount(c.chunk_piece).max() <= MOST_CHUNKS:
        return False
    slower = _slower(plan)
    return bool(np.allclose(slower, 1.0, rtol=1e-6) or _lanes(plan, slower) is not None)


def _slower(plan: Plan) -> Float64:
    """float64[transfers], how many times as long as alone on its route each takes, since it shares links."""
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    return (plan.finish_s - plan.start_s) / plan.topology.route_s(plan.route, plan.size_bytes)


def _lanes(plan: Plan, slower: Float64) -> Int64 | None:
    """int64[transfers], the route of each, if each route has one share of its links, and these fit into every link."""
    lane = route_numbers(plan.route).astype(np.int64)
    share = np.zeros(int(lane.max()) + 1)
    share[lane] = 1.0 / slower
    if not np.allclose(share[lane] * slower, 1.0, rtol=1e-4):
        return None
    net, transfer = plan.topology, plan.route.owners
    pair = np.unique(np.stack((plan.route.values, lane[transfer])), axis=1)
    least = plan.route.reduced(np.minimum, net.bandwidth[plan.route.values])
    width = np.zeros(len(share))
    width[lane] = least
    used = np.bincount(pair[0], (share * width)[pair[1]], net.link_count)
    return lane if (used <= net.bandwidth * (1 + 1e-4)).all() else None


class _Sizes(NamedTuple):
    """An answer of the program: float64[chunks] and float64[transfers]."""

    bytes_: Float64
    start_s: Float64


def _solved(plan: Plan, budget: Budget) -> _Sizes | None:
    """The sizes with which the plan ends soonest; None where no answer is found within the effort.

    Moments are in completions of the plan, sizes in shares of their pieces.
    """
    (c,) = plan.workload.collectives
    unit_s, piece = completion_s(plan), c.chunk_piece
    piece_bytes, count = c.piece_bytes[piece].astype(np.float64), np.bincount(piece)
    slower = _slower(plan)
    fixed_s, per_byte_s, lag_s = _costs(plan)
    fixed_s, per_byte_s = fixed_s * slower, per_byte_s * slower
    wait, slope, lag = fixed_s / unit_s, per_byte_s * piece_bytes[plan.chunk] / unit_s, lag_s / unit_s
    model = Model()
    release = c.start_s / unit_s
    start = model.columns(plan.transfer_count, lower=release, upper=INFINITY, cost=EARLY / plan.transfer_count)
    share = model.columns(c.chunk_count, lower=LEAST_SHARE / count[piece])
    end = model.columns(1, upper=INFINITY, cost=1.0)
    size = share[plan.chunk]
    last = np.setdiff1d(np.arange(plan.transfer_count), plan.depends.values)
    model.rows(c.piece_count, 1.0, 1.0, (piece.astype(np.int64), share, 1.0))
    model.rows(
        len(last), (wait + lag)[last], INFINITY, (end[np.zeros_like(last)], 1.0), (start[last], -1.0),
        (size[last], -slope[last]),
    )  # fmt: skip
    later, sooner = plan.depends.owners, plan.depends.values.astype(np.int64)
    for before, after, least in (
        (sooner, later, (wait + lag)[sooner]),
        _neighbours(plan, wait, unit_s),
    ):
        model.rows(
            len(before), least, INFINITY, (start[after], 1.0), (start[before], -1.0), (size[before], -slope[before])
        )
    answer = solve(model, effort=budget.units("units"))
    budget.spend(units=answer.effort)
    if answer.x is None or answer.status != "optimal":
        return None
    return _Sizes(np.maximum(answer.x[share] * piece_bytes, 1.0), np.maximum(answer.x[start] * unit_s, 0.0))


def _costs(plan: Plan) -> tuple[Float64, Float64, Float64]:
    """float64[transfers] each: seconds that a transfer takes besides its bytes, for each byte, and until it is there.

    Which link of its route is the slowest is taken from the sizes of the plan.
    """
    net, route = plan.topology, plan.route
    size = plan.size_bytes[route.owners].astype(np.float64)
    seconds = net.message_s[route.values] + size / net.bandwidth[route.values]
    order = np.lexsort((-seconds, route.owners))
    slowest = route.values[order[route.offsets[:-1]]]
    lag_s = delays(plan, np.arange(plan.transfer_count))[1]
    return net.message_s[slowest], 1.0 / net.bandwidth[slowest], lag_s


def _neighbours(plan: Plan, wait: Float64, unit_s: float) -> tuple[Int64, Int64, Float64]:
    """Pairs of transfers of which the second follows the first on a link, and how much later than the first it starts.

    That is in completions, at least, besides what the bytes of the first take. Where routes have shares of links, only
    transfers over the same route follow each other.
    """
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    transfer, hop_s, slower = plan.route.owners, delays(plan, np.arange(plan.transfer_count))[0], _slower(plan)
    link: Int32 | Int64 = plan.route.values
    if not np.allclose(slower, 1.0, rtol=1e-6):
        lane, first = _lanes(plan, slower), plan.route.offsets[:-1]
        assert lane is not None, "plans without such shares get no sizes"
        link, transfer, hop_s = lane, transfer[first], hop_s[first]
    begin_s, end_s = plan.start_s[transfer] + hop_s, plan.finish_s[transfer] + hop_s
    order = np.lexsort((begin_s, link))
    one, two = order[:-1], order[1:]
    follows = (link[one] == link[two]) & (end_s[one] <= begin_s[two] * (1 + 1e-9))
    one, two = one[follows], two[follows]
    return transfer[one], transfer[two], wait[transfer[one]] + (hop_s[one] - hop_s[two]) / unit_s
