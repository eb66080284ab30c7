"""Trees are added to the linear program at the prices of its solutions (:mod:`.program`).

The dual values of its rows are prices of links in rounds. A tree that costs less than what its piece is worth makes
the solution better: such trees are added until there are none, or the effort is spent (column generation, as for
multicommodity flows by Ford and Fulkerson, 1958).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64, Int64
from ...schedule.best import chunk_s, surcharge
from ...schedule.effort import Budget
from . import kernel_growth
from .program import COSTS, Case, Program, RoundTrees

GAIN = 1e-3
"""Share of the time of all rounds that the trees of the last ``PATIENCE`` solutions must save together."""

PATIENCE = 8

SMOOTHING = 0.5
"""Share of the old prices in the prices at which trees grow: those of single solutions jump."""

FEW_BYTES = 1 / 64
"""Share of the largest message that a message is taken to have at least when its cost is divided among its bytes."""

SCALINGS = 3
"""Programs for one number of rounds where pipes share links: what a message costs is divided among the bytes that it
has in the solution of the program before."""

KEPT_TIMES, FEW = 2.0, 250
"""Trees up to which a program keeps those that carry nothing: as multiples of those that carry something, and in all.
Their columns make simplex iterations slow, and are seldom needed again. What is in the last basis is kept, too."""

LEAST_SHARE = 1 / 16
"""Least share of a piece that a tree carries, as a multiple of the mean one; smaller trees are left out."""

FEWER = 0.75
"""Share of the trees that are left where a plan with fewer trees is tried."""

RELATIVE = 1e-6
"""How much cheaper, relatively, a tree must be than what its piece is worth."""


class Solved(NamedTuple):
    """A solution.

    Attributes:
        rounds: how many there are.
        trees: that carry something.
        share: float64[trees], of its piece that each carries.
        end_s: when the last round ends, seconds, about.
    """

    rounds: int
    trees: RoundTrees
    share: Float64
    end_s: float


def preference_s(case: Case, solved: Solved) -> float:
    """What the plan of a solution is preferred by, seconds, about: its end, and what its chunks cost hosts."""
    tree, when, pipe = solved.trees.uses
    sent = np.unique(when * len(case.src) + pipe) % len(case.src)
    chunks, messages = (
        np.bincount(case.src[of], minlength=len(case.node)) + np.bincount(case.dst[of], minlength=len(case.node))
        for of in (pipe, sent)
    )
    return solved.end_s * surcharge(len(tree)) + chunk_s(case.network.topology) * int((chunks - messages).max())


def solve_rounds(case: Case, rounds: int, known: RoundTrees | None, budget: Budget) -> Solved | None:
    """The trees that end soonest in a number of rounds; None where these are too few.

    Args:
        known: trees for that many rounds to begin with.
        budget: with ``COSTS``.
    """
    net = case.network
    price = np.repeat((1.0 / net.topology.bandwidth)[None, :], rounds, axis=0)
    # what a message costs is divided among the bytes that it is likely to have
    likely = case.bytes_.sum() / max(len(case.bytes_), int(case.wanted.sum(axis=1).max()))
    extra_s = np.repeat((case.message_s / likely)[None, :], rounds, axis=0)
    trees = _grown(case, _of_pipes(case, price, extra_s), np.full(len(case.root), np.inf), budget)
    if trees is None:
        return None
    trees = trees if known is None else RoundTrees.concatenate([known, trees])
    answer: _Generated | None = None
    for left in range(SCALINGS if extra_s.any() else 1, 0, -1):
        now = _generated(case, rounds, trees, extra_s, budget.share(1 / left).with_costs(COSTS), answer)
        if now is None:
            break
        answer, trees = now, now.trees
        extra_s = (extra_s + _cost_of_bytes(case, rounds, trees, now.share)) / 2
    if answer is None:
        return None
    count = np.bincount(trees.piece[answer.share > 0], minlength=len(case.root))
    kept = np.flatnonzero(answer.share * count[trees.piece] >= LEAST_SHARE)
    return Solved(rounds, trees.take(kept), answer.share[kept], answer.end_s)


def with_fewer_trees(case: Case, solved: Solved, budget: Budget) -> Solved | None:
    """``FEWER`` of the trees of each piece, those that carry most, with other shares; None where the effort is spent.

    A host handles each chunk of a message. Fewer chunks go in the same rounds in nearly the same time.
    """
    order = np.lexsort((-solved.share, solved.trees.piece))
    count = np.bincount(solved.trees.piece, minlength=len(case.root))
    place = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    trees = solved.trees.take(order[place < FEWER * count[solved.trees.piece[order]]])
    if budget.exhausted or len(trees.piece) == len(order):
        return None
    program = Program(case, solved.rounds, _cost_of_bytes(case, solved.rounds, solved.trees, solved.share))
    program.add(trees)
    solution = program.solve(budget)
    if solution is None:
        return None
    used = np.flatnonzero(solution[0] > 0)
    return Solved(solved.rounds, trees.take(used), solution[0][used], solution[3])


class _Generated(NamedTuple):
    """What the last program of some has found.

    Attributes:
        trees: that carry something, or are in the last basis.
        share: float64[trees].
        end_s: the time of all rounds.
        program: with columns for these trees first.
    """

    trees: RoundTrees
    share: Float64
    end_s: float
    program: Program


def _generated(
    case: Case, rounds: int, trees: RoundTrees, extra_s: Float64, budget: Budget, last: _Generated | None
) -> _Generated | None:
    """The best of trees and those that are added to them.

    Args:
        last: of a program with the same trees, which had other costs.
    """
    program = Program(case, rounds, extra_s)
    program.add(trees)
    if last is not None:
        program.start(last.program)
    ends_s: list[float] = []
    smooth: Float64 | None = None
    share = np.zeros(0)
    while True:
        solution = program.solve(budget)
        if solution is None:  # the effort does not suffice for it
            break
        share, price, worth, end_s = solution
        ends_s.append(end_s)
        idle = len(ends_s) > PATIENCE and end_s > (1 - GAIN) * ends_s[-1 - PATIENCE]
        if idle or budget.exhausted:
            break
        smooth = price if smooth is None else SMOOTHING * smooth + (1 - SMOOTHING) * price
        exact, more = _of_pipes(case, price, extra_s), None
        for prices in (smooth, price) if smooth is not price else (price,):
            more = _grown(case, _of_pipes(case, prices, extra_s), worth, budget, exact)
            if more is not None:
                break
        if more is None:
            break
        if len(share) > max(FEW, KEPT_TIMES * np.count_nonzero(share > 0)):
            used = np.flatnonzero((share > 0) | program.basic)
            program.keep(used)
            trees, share = trees.take(used), share[used]
        program.add(more)
        trees = RoundTrees.concatenate([trees, more])
    if not ends_s:
        return None
    used = np.flatnonzero((share > 0) | program.basic[: len(share)])
    program.keep(used)
    return _Generated(trees.take(used), share[used], ends_s[-1], program)


def _of_pipes(case: Case, price: Float64, extra_s: Float64) -> Float64:
    """float64[rounds, pipes], what a byte costs by the prices of links, float64[rounds, links]."""
    net = case.network
    link, owner = net.hops.values, net.hops.owners
    shared = case.shares_link[link] & (net.topology.message_s[link] > 0)
    cost = price[:, link] / net.topology.bandwidth[link] + np.where(shared, price[:, link], 0.0) * extra_s[:, owner]
    return np.ascontiguousarray(np.add.reduceat(cost, net.hops.offsets[:-1], axis=1))


def _grown(
    case: Case, price: Float64, worth: Float64, budget: Budget, exact: Float64 | None = None
) -> RoundTrees | None:
    """Trees that cost less than what their pieces are worth; None if there are none.

    Args:
        price: float64[rounds, pipes], of a byte, at which trees grow.
        worth: float64[pieces].
        exact: float64[rounds, pipes], the price at which they are compared, if that is another one.
    """
    rounds, nodes = len(price), len(case.node)
    piece, root, middle = (column.ravel() for column in _places(case, rounds))
    none = np.full((len(piece), nodes), -1, dtype=np.int64), np.full((len(piece), nodes), rounds, dtype=np.int64)
    wanted = case.wanted[piece]
    work = float(wanted.sum()) * rounds * len(case.src)
    grow = at_speed(kernel_growth.grow_trees, work)
    up, down = none, none
    cost = np.zeros(len(piece))
    if case.sums:
        budget.spend(growth=work)
        back = np.ascontiguousarray(price[::-1])
        total, via, when = grow(case.dst, case.src, back, wanted, root, rounds - middle)
        up, cost = (via, np.where(via >= 0, rounds - 1 - when, rounds)), cost + total
    if case.copies:
        budget.spend(growth=work)
        total, via, when = grow(case.src, case.dst, price, wanted, root, middle)
        down, cost = (via, when), cost + total
    trees = RoundTrees(piece, root, *up, *down)
    reached = np.flatnonzero(np.isfinite(cost))
    trees, cost = trees.take(reached), cost[reached]
    if exact is not None:
        tree, when, pipe = trees.uses
        cost = np.bincount(tree, exact[when, pipe], len(reached)).astype(np.float64)
    better = np.flatnonzero(cost * case.bytes_[trees.piece] < worth[trees.piece] * (1 - RELATIVE))
    return trees.take(better) if len(better) else None


def _places(case: Case, rounds: int) -> tuple[Int64, Int64, Int64]:
    """For each tree that may grow its piece, its root, and the round before which all is summed there."""
    if case.sums and case.copies:
        root, middle = np.meshgrid(np.arange(len(case.node)), np.arange(1, rounds), indexing="ij")
        return np.zeros_like(root), root, middle
    piece = np.arange(len(case.root))
    return piece, case.root, np.full(len(piece), rounds if case.sums else 0)


def _cost_of_bytes(case: Case, rounds: int, trees: RoundTrees, share: Float64) -> Float64:
    """float64[rounds, pipes], what each message costs for a byte that it has."""
    tree, when, pipe = trees.uses
    carried = (share * case.bytes_[trees.piece])[tree]
    bytes_ = np.bincount(when * len(case.src) + pipe, carried, rounds * len(case.src)).reshape(rounds, -1)
    return case.message_s / np.maximum(bytes_, max(FEW_BYTES * bytes_.max(), 1.0))
