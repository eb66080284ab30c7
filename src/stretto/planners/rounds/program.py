"""The linear program whose columns are trees, and whose rows are links in rounds.

In each round every pipe sends one message, with bytes of many trees. With x_k for the share of its piece that tree k
carries, and T_p for the length of round p,

    minimise the sum of all T_p, where the trees of each piece carry all of it, and for each link and round p
    what the messages of its pipes cost + latency + seconds of the bytes of all trees that use it in p <= T_p.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...model.arrays import Bool, Float64, Int64, distinct
from ...schedule.effort import Budget
from ...schedule.pipes import Network

COSTS = {"growth": 0.0006, "solution": 1000.0, "iteration": 12.0, "entry": 0.003}
"""Steps of a pipe in a round that is looked at while a tree grows, of a solution of a program and of what is added for
the next one, of a simplex iteration, and of an entry of the program's matrix in it."""

MOST_UNITS = 100.0
"""Units of time of a program that a message without bytes takes, at most: with 2 bytes and 20 us, which are a million
times as long as the bytes, HiGHS's simplex method may cycle."""

FIRST_ITERATIONS = 10.0
"""Iterations for each row and column within which a program has its first solution, or counts as having none: up to 9
were seen where the simplex method does not cycle."""


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


class Program:
    """The linear program. Its unit of time is what all bytes take over one link, unless messages take much longer;
    rows are added as trees first use a link in a round.

    Args:
        extra_s: float64[rounds, pipes], what a message costs for each of its bytes where pipes share links.
    """

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
        if len(new):
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

    @property
    def basic(self) -> Bool:
        """bool[trees], which are in the last basis."""
        return self._program.basic[0][self._rounds :]

    def keep(self, trees: Int64) -> None:
        """Leave out all trees but these."""
        self._program.keep(np.concatenate((np.arange(self._rounds), self._rounds + trees)))
        self._columns = len(trees)

    def start(self, other: Program) -> None:
        """Begin from the last basis of a program with the same trees."""
        columns, rows = other._program.basic
        known, basic = np.flatnonzero(self._row_of >= 0), np.ones(self._rows, dtype=np.bool_)
        both = known[other._row_of[known] >= 0]
        pieces = len(self._case.root)
        basic[:pieces], basic[self._row_of[both]] = rows[:pieces], rows[other._row_of[both]]
        self._program.start(columns, basic)

    def solve(self, budget: Budget) -> tuple[Float64, Float64, Float64, float] | None:
        """float64[trees], the shares; float64[rounds, links], the prices; float64[pieces], what pieces are worth; and
        the time of all rounds, seconds. None where the effort does not suffice; the first solution may take
        :data:`FIRST_ITERATIONS`."""
        size, entries = self._program.size, float(self._program.entries)
        most = budget.left / budget.cost(iteration=1.0, entry=entries) if self._solved else FIRST_ITERATIONS * size
        x = self._program.solve(most)
        budget.spend(solution=1, iteration=self._program.iterations, entry=self._program.iterations * entries)
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
