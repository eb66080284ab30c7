"""The search for an order: local search from several starts, and for few machines all orders, by branch and bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Int64
from ..model.progress import Progress, silent, tell_at_most
from . import kernel_cost, kernel_local
from .bounds import any_order_bound
from .exchangeable import alike_numbers, all_orders_alike, exchangeable, network_moves, number_moves
from .judge import Judge
from .problem import MOST_EXACT, Problem
from .starts import starts

BUDGETS = {"quick": 3e5, "normal": 2e6, "thorough": 3e7}
"""By effort: messages that the local search may add to the loads or take out, about 0.25 us of CPU each."""

STARTS = 4
"""Orders from which the local search begins: the best of those that :mod:`.starts` has."""

COMPARED = 8
"""Orders of the local search that are compared by their bounds."""

JUDGED = 3
"""Those of them that the simulator compares, if it runs all messages; otherwise it runs the best one."""

MOST_OPEN = 200_000
"""Orders that are kept for the simulator, of those that the bounds leave open."""

MOST_FOLLOWED_ROWS = {"quick": 1e8, "normal": 6e8, "thorough": 6e9}
"""By effort: messages that the bounds of orders may follow, about 5 ns of CPU each; then loads alone bound an order."""

FOLLOWED_ROW_S = 5e-9
"""Seconds of CPU that following a message takes, about; by it is said how long the bounds take at most."""

MOST_EQUAL = 20_000
"""Orders that are left out as equal to one that was simulated, at most."""

MOST_ROWS = {"quick": 3e5, "normal": 3e6, "thorough": 3e7}
"""By effort: messages that the simulator may run for these orders, about 2 us of CPU each."""

TOLERANCE = 1e-9
"""Part of a time within which two times are the same."""


@dataclass(frozen=True, eq=False)
class Found:
    """The best order that a search found.

    Attributes:
        order: int64[machines], the machine that has each number.
        seconds: what the simulator says.
        bound_s: no order ends sooner.
        judged: orders that were simulated.
        exact: whether its time and the bound can be compared: all messages were simulated, or all orders are alike.
    """

    order: Int64
    seconds: float
    bound_s: float
    judged: int
    exact: bool

    @property
    def proven(self) -> bool:
        """Whether no order ends sooner."""
        return self.exact and self.bound_s >= self.seconds * (1 - TOLERANCE)


def find_order(
    problem: Problem, given: Int64, effort: str = "normal", judge: Judge | None = None, tell: Progress = silent
) -> Found:
    """The order that ends soonest of all that the search comes across; never later than the one given.

    Args:
        given: int64[machines], the order to be better than.
        effort: "quick", "normal" or "thorough".
        judge: of the problem; it keeps what it has simulated.
        tell: told how far the search is.
    """
    judge = judge or Judge(problem)
    if all_orders_alike(problem):
        seconds = judge.seconds(given)
        return Found(given, seconds, seconds, 1, True)
    found = local_search(problem, given, BUDGETS[effort], tell)
    tell(0, 0, "following the messages of the best orders")
    tried = [given, *_promising(problem, found)]
    for i, order in enumerate(tried):
        tell(i, len(tried), "simulating the best orders")
        judge.seconds(order)
    best = min(tried, key=judge.seconds)
    if judge.seconds(given) * (1 - TOLERANCE) <= judge.seconds(best):
        best = given  # nobody renumbers machines for nothing
    judged = len({o.tobytes() for o in tried})
    tell(0, 0, "bounding all orders")
    bound_s = any_order_bound(problem)
    if judge.exact and problem.machines.count <= MOST_EXACT and bound_s < judge.seconds(best) * (1 - TOLERANCE):
        return _exact(problem, judge, best, bound_s, judged, effort, tell)
    return Found(best, judge.seconds(best), min(bound_s, judge.seconds(best)), judged, judge.exact)


def _promising(problem: Problem, orders: list[Int64]) -> list[Int64]:
    """Those of the orders that the simulator compares: the best by their bounds, which also see who waits for whom."""
    one = problem.simulated
    rows, few = one.rows, np.array(orders[:COMPARED])
    work = float(len(rows.kind) * len(few))
    bounds = at_speed(kernel_cost.order_bounds, work)(few, one.kinds, rows, one.net)
    return [few[i] for i in np.argsort(bounds, kind="stable")[: JUDGED if one is problem else 1]]


def local_search(problem: Problem, given: Int64, budget: float, tell: Progress = silent) -> list[Int64]:
    """Orders that no exchange of two machines improves, the best first."""

    def tell_left(left: float) -> None:
        tell(max(0, int(budget - left)), int(budget), "exchanging machines")

    entries, phases = problem.entries
    net, n = problem.net, problem.machines.count
    links = problem.machines.topology.link_count
    rooms = len(phases.times)
    state = kernel_local.State(
        np.zeros((rooms, links)), np.zeros(rooms), np.zeros(rooms), np.ones(rooms),
        np.zeros(64 * len(entries.phase), np.int64), np.zeros(64 * len(entries.phase)), np.zeros(1, np.int64),
    )  # fmt: skip
    descend = at_speed(kernel_local.descend, budget)
    found: dict[bytes, tuple[float, Int64]] = {}
    random = np.random.default_rng(0)
    shape = problem.machines.counts
    for begin in (given, *starts(problem)):
        order = begin.copy()
        found[order.tobytes()] = descend(order, shape, entries, phases, net, state, 0.0)[0], order
    best_starts = sorted(found.values(), key=lambda entry: entry[0])[:STARTS]
    left = budget - 3.0 * len(entries.phase) * len(found)
    for number, (_, begin) in enumerate(best_starts):
        tell_left(left)
        order = begin.copy()
        cost, spent = descend(order, shape, entries, phases, net, state, left / (len(best_starts) - number + 1))
        left -= spent
        found.setdefault(order.tobytes(), (cost, order))
    # what is left goes into parts that are taken out of the best order and put in elsewhere
    while n > 3 and np.ptp(shape) == 0 and left > KICK_SHARE * budget:
        tell_left(left)
        best_cost, best = min(found.values(), key=lambda entry: entry[0])
        cuts = np.sort(random.choice(np.arange(1, n), 3, replace=False))
        a, b, c, d = np.split(best, cuts)
        order = np.concatenate((a, c, b, d))
        cost, spent = descend(order, shape, entries, phases, net, state, left)
        left -= max(spent, budget / MOST_KICKS)
        if cost < best_cost * (1 - TOLERANCE):
            found.setdefault(order.tobytes(), (cost, order))
    return [order for _, order in sorted(found.values(), key=lambda entry: entry[0])]


KICK_SHARE = 0.02
"""Part of the budget below which no further order is begun."""

MOST_KICKS = 50
"""Orders that are begun from the best one at most."""


def _exact(
    problem: Problem, judge: Judge, best: Int64, bound_s: float, judged: int, effort: str, tell: Progress
) -> Found:
    """Branch and bound over all orders; the simulator judges those that the bounds leave open, most promising first."""
    rows, kinds, net = problem.rows, problem.kinds, problem.net
    best_s = judge.seconds(best)
    same = exchangeable(problem)
    machine_moves, moves = network_moves(problem), number_moves(problem)
    machine_moves = machine_moves[: MOST_EQUAL // len(moves)]
    fixed = 0 if alike_numbers(moves) else -1
    below_s = best_s * (1 - TOLERANCE)
    work = float(len(rows.kind)) * 1000
    followed_s = MOST_FOLLOWED_ROWS[effort] * FOLLOWED_ROW_S
    tell_at_most(tell, "following all orders that may end sooner", followed_s)
    orders, bounds, left_s = at_speed(kernel_cost.open_orders, work)(
        below_s,
        same,
        problem.machines.counts,
        problem.seats,
        fixed,
        kinds,
        rows,
        net,
        MOST_OPEN,
        MOST_FOLLOWED_ROWS[effort],
    )
    least_s, spent = left_s, 0.0
    hopeful = int((bounds < below_s).sum())
    most = min(hopeful, int(MOST_ROWS[effort] / len(rows.kind)) + 1)
    done = 0
    equal: set[bytes] = set()
    for i in np.argsort(bounds, kind="stable"):
        if bounds[i] >= best_s * (1 - TOLERANCE):
            break
        if orders[i].tobytes() in equal:
            continue
        tell(done, most, "simulating orders that may end sooner")
        done += 1
        if spent > MOST_ROWS[effort]:
            least_s = min(least_s, float(bounds[i]))
            break
        seconds = judge.quick_seconds(orders[i])
        spent += len(rows.kind)
        judged += 1
        # the same machines after a move of the network, at numbers after a move of the traffic
        equal.update(order.tobytes() for order in machine_moves[:, orders[i]][:, moves].reshape(-1, len(same)))
        if seconds < best_s * (1 - TOLERANCE):
            best, best_s = orders[i].copy(), seconds
    return Found(best, judge.seconds(best), max(bound_s, min(least_s, judge.seconds(best))), judged, True)
