"""Trees and lengths of rounds by one linear program, whose columns are trees that grow at the prices of its solutions.

In each round every pipe sends one message, with bytes of many trees. With x_k for the share of its piece that tree k
carries, and T_p for the length of round p,

    minimise the sum of all T_p, where the trees of each piece carry all of it, and for each link and round p
    what the messages of its pipes cost + latency + seconds of the bytes of all trees that use it in p <= T_p.

The dual values of these rows are prices of links in rounds. A tree that costs less than what its piece is worth makes
the solution better: such trees are added until there are none, or the effort is spent (column generation, as for
multicommodity flows by Ford and Fulkerson, 1958).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Bool, Float64, Int64, distinct
from ...schedule.best import CHUNK_SHARE, surcharge
from ...schedule.effort import Budget
from ...schedule.pipes import Network
from . import kernel_growth

COSTS = {"growth": 0.0006, "iteration": 12.0, "entry": 0.003}
"""Steps of a pipe in a round that is looked at while a tree grows, of a simplex iteration, and of an entry of the
program's matrix in it."""

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

LEAST_SHARE = 1 / 16
"""Least share of a piece that a tree carries, as a multiple of the mean one; smaller trees are left out."""

FEWER = 0.75
"""Share of the trees that are left where a plan with fewer trees is tried."""

MOST_UNITS = 100.0
"""Units of time of a program that a message without bytes takes, at most: with 2 bytes and 20 us, which are a million
times as long as the bytes, HiGHS's simplex method may cycle."""

FIRST_ITERATIONS = 10.0
"""Iterations for each row and column within which a program has its first solution, or counts as having none: up to 9
were seen where the simplex method does not cycle."""

RELATIVE = 1e-6
"""How much cheaper, relatively, a tree must be than what its piece is worth."""


@dataclass(frozen=True, eq=False)
class Case:
    """What is to be spread or summed. Nodes are those that store, numbered from 0.

    Attributes:
        network: pipes between the nodes.
        node: int64[nodes], their numbers in the topology.
        src, dst: int64[pipes], the nodes that each pipe joins.
        root: int64[pieces], the node from which each piece spreads or at which it is summed, -1 for any.
        wanted: bool[pieces, nodes], to which nodes it spreads, or of which it is summed.
        bytes_: int64[pieces].
        sums, copies: whether pieces are summed, and whether they are copied.
    """

    network: Network
    node: Int64
    src: Int64
    dst: Int64
    root: Int64
    wanted: Bool
    bytes_: Int64
    sums: bool
    copies: bool

    @property
    def shares_link(self) -> Bool:
        """bool[links], whether several pipes lead over a link."""
        net = self.network
        return np.bincount(net.hops.values, minlength=net.topology.link_count) > 1

    @property
    def message_s(self) -> Float64:
        """float64[pipes], what a message costs where several pipes lead over a link."""
        net, cost = self.network, np.zeros(len(self.src))
        shared_s = np.where(self.shares_link, net.topology.message_s, 0.0)
        np.maximum.at(cost, net.hops.owners, shared_s[net.hops.values])
        return cost


@dataclass(frozen=True, eq=False)
class RoundTrees:
    """Trees, each a row.

    Attributes:
        piece, root: int64[trees].
        up, up_round: int64[trees, nodes], the pipe by which each node sends its sum, -1 for none, and in which round.
        down, down_round: int64[trees, nodes], the pipe by which each node gets its copy, -1 for none, and the round.
    """

    piece: Int64
    root: Int64
    up: Int64
    up_round: Int64
    down: Int64
    down_round: Int64

    @classmethod
    def concatenate(cls, parts: list[RoundTrees]) -> RoundTrees:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def take(self, rows: Int64) -> RoundTrees:
        return RoundTrees(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @property
    def uses(self) -> tuple[Int64, Int64, Int64]:
        """The tree, the round and the pipe of each message in which a tree's bytes go."""
        columns = []
        for via, when in ((self.up, self.up_round), (self.down, self.down_round)):
            tree, node = np.nonzero(via >= 0)
            columns.append((tree, when[tree, node], via[tree, node]))
        tree, when, pipe = (np.concatenate(each) for each in zip(*columns, strict=True))
        return tree, when, pipe

    def later(self, first: int) -> RoundTrees:
        """The trees with an idle round before round ``first``."""
        return replace(
            self,
            up_round=self.up_round + (self.up_round >= first),
            down_round=self.down_round + (self.down_round >= first),
        )


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
    costs_s = case.network.topology.message_s
    message_s = float(costs_s[costs_s > 0].mean()) if costs_s.any() else 0.0
    return solved.end_s * surcharge(len(tree)) + CHUNK_SHARE * message_s * int((chunks - messages).max())


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
    answer: tuple[RoundTrees, Float64, float] | None = None
    for left in range(SCALINGS if extra_s.any() else 1, 0, -1):
        now = _generated(case, rounds, trees, extra_s, budget.share(1 / left).with_costs(COSTS))
        if now is None:
            break
        answer = trees, share, _ = now
        extra_s = (extra_s + _cost_of_bytes(case, rounds, trees, share)) / 2
    if answer is None:
        return None
    trees, share, end_s = answer
    count = np.bincount(trees.piece[share > 0], minlength=len(case.root))
    kept = np.flatnonzero(share * count[trees.piece] >= LEAST_SHARE)
    return Solved(rounds, trees.take(kept), share[kept], end_s)


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
    program = _Program(case, solved.rounds, _cost_of_bytes(case, solved.rounds, solved.trees, solved.share))
    program.add(trees)
    solution = program.solve(budget)
    if solution is None:
        return None
    used = np.flatnonzero(solution[0] > 0)
    return Solved(solved.rounds, trees.take(used), solution[0][used], solution[3])


def _generated(
    case: Case, rounds: int, trees: RoundTrees, extra_s: Float64, budget: Budget
) -> tuple[RoundTrees, Float64, float] | None:
    """The trees with those that were added, the share of each, and the time of all rounds."""
    program = _Program(case, rounds, extra_s)
    program.add(trees)
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
        program.add(more)
        trees = RoundTrees.concatenate([trees, more])
    return (trees.take(np.arange(len(share))), share, ends_s[-1]) if ends_s else None


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


class _Program:
    """The linear program. Its unit of time is what all bytes take over one link, unless messages take much longer;
    rows are added as trees first use a link in a round."""

    def __init__(self, case: Case, rounds: int, extra_s: Float64) -> None:
        from ...solvers import INFINITY, Model
        from ...solvers.highs import Growing

        self._case, self._rounds, self._extra_s = case, rounds, extra_s
        topology = case.network.topology
        late_s = np.zeros(topology.link_count)
        hops = case.network.hops
        np.maximum.at(late_s, hops.values, case.network.latency_s[hops.owners])
        fixed_s = np.where(case.shares_link, 0.0, topology.message_s) + late_s
        bytes_s = float(case.bytes_.sum() / np.median(topology.bandwidth))
        self._unit_s = max(bytes_s, float((topology.message_s + late_s).max(initial=0.0)) / MOST_UNITS)
        self._fixed = fixed_s / self._unit_s
        self._row_of = np.full(rounds * topology.link_count, -1)
        self._rows, self._columns, self._solved = len(case.root), 0, False
        model = Model()
        model.columns(rounds, 0.0, INFINITY, 1.0)
        model.rows(len(case.root), 1.0, 1.0)
        self._program, self._model = Growing(model, by_columns=True), Model

    def add(self, trees: RoundTrees) -> None:
        """Add trees, and the rows of links in rounds that no tree used before."""
        case, topology = self._case, self._case.network.topology
        tree, when, pipe = trees.uses
        hops = case.network.hops.take(pipe)
        tree, when, pipe, link = tree[hops.owners], when[hops.owners], pipe[hops.owners], hops.values
        place = when * topology.link_count + link
        new = distinct(place[self._row_of[place] < 0])
        rows = self._model(self._rounds + self._columns)
        rows.rows(len(new), self._fixed[new % topology.link_count], np.inf, (new // topology.link_count, 1.0))
        self._program.add(rows)
        self._row_of[new] = self._rows + np.arange(len(new))
        self._rows += len(new)
        shared = case.shares_link[link] & (topology.message_s[link] > 0)
        seconds = 1.0 / topology.bandwidth[link] + np.where(shared, self._extra_s[when, pipe], 0.0)
        count, size = len(trees.piece), case.bytes_[trees.piece]
        column = np.concatenate((np.arange(count), tree))
        row = np.concatenate((trees.piece, self._row_of[place]))
        value = np.concatenate((np.ones(count), -seconds * size[tree] / self._unit_s))
        # a tree may use a link twice in a round, up and down or by two pipes
        entries, at = np.unique(column * self._rows + row, return_inverse=True)
        self._program.add_columns(
            np.zeros(count),
            (entries // self._rows, entries % self._rows, np.bincount(at.ravel(), value).astype(np.float64)),
        )
        self._columns += count

    def solve(self, budget: Budget) -> tuple[Float64, Float64, Float64, float] | None:
        """float64[trees], the shares; float64[rounds, links], the prices; float64[pieces], what pieces are worth; and
        the time of all rounds, seconds. None where the effort does not suffice; the first solution may take
        :data:`FIRST_ITERATIONS`."""
        size, entries = self._program.size, float(self._program.entries)
        most = budget.left / budget.cost(iteration=1.0, entry=entries) if self._solved else FIRST_ITERATIONS * size
        x = self._program.solve(most)
        budget.spend(iteration=self._program.iterations, entry=self._program.iterations * entries)
        if x is None:
            return None
        self._solved = True
        duals = self._program.duals
        price = np.zeros(len(self._row_of))
        known = self._row_of >= 0
        price[known] = np.maximum(duals[self._row_of[known]], 0.0)
        worth = duals[: len(self._case.root)] * self._unit_s
        share = np.maximum(x[self._rounds :], 0.0)
        return share, price.reshape(self._rounds, -1), worth, float(x[: self._rounds].sum() * self._unit_s)
