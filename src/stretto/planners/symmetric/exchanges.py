"""AllToAll on networks that are almost symmetric: several orbits of ranks, and ranks that no element moves.

1. Which ways (:class:`Exchange`): the linear program over orbits of links of :mod:`.packing`, where a column is the
   cheapest ways from the first rank of an orbit to all other ranks.
2. Which piece goes by which of these ways (:mod:`.kernel_exchange`): pieces are cut into parts, and parts are dealt out
   so that links are busy for as long as the program says.
3. When (:mod:`.lanes`): as for trees.

The piece of a pair of ranks is represented by that of the first rank of an orbit and any other rank. If no element
moves the first one, by its piece for the first rank of each orbit; if none moves either, the piece is cut into a chunk
for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Bool, Float64, Int64, Ragged
from ...model.collective import Collective, Promised, Workload
from ...model.plan import COPY
from ...model.symmetry import Symmetry
from . import kernel_exchange
from .cuts import Cut, Hops
from .kernel_exchange import Options
from .packing import GROWING, Column, Packing, Tree

EVEN = 4.0
"""Power of its load, as a share of the largest, by which an orbit of links counts where ways are chosen."""

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples are spread evenly, modulo 1."""


class Pairs(NamedTuple):
    """The pieces of representatives.

    Attributes:
        owner: int64[pairs], the place of the sender among all owners.
        goal: int64[pairs], the node that receives.
        alone: bool[pairs], whether no element moves either.
    """

    owner: Int64
    goal: Int64
    alone: Bool


class Exchange(Packing):
    """The program of an AllToAll; a column is ways from an owner to all other ranks."""

    def __init__(self, symmetry: Symmetry, collective: Collective) -> None:
        super().__init__(symmetry, collective)
        self.ranks = collective.ranks.astype(np.int64)

    @cached_property
    def pairs(self) -> Pairs:
        """The pieces of representatives, those of each owner one after the other."""
        fixed_node = np.zeros(self.symmetry.topology.node_count, dtype=np.bool_)
        fixed_node[self.owners[self.fixed]] = True
        goals = [self.owners.astype(np.int64) if fixed else self.ranks for fixed in self.fixed]
        owner = np.repeat(np.arange(len(goals)), [len(own) for own in goals])
        goal = np.concatenate(goals)
        return Pairs(owner, goal, self.fixed[owner] & fixed_node[goal])

    @cached_property
    def wanted(self) -> Float64:
        """float64[owners, nodes], the bytes of the chunk that stands for an owner's piece for each node."""
        out = np.zeros((len(self.owners), self.symmetry.topology.node_count))
        owner, goal, alone = self.pairs
        out[owner, goal] = self.chunk_bytes[owner] / np.where(alone, self.symmetry.size, 1)
        out[np.arange(len(self.owners)), self.owners] = 0.0
        return out

    def _column(self, number: int, trees: dict[bool, Tree]) -> Column:
        tree = trees[False]
        below = at_speed(kernel_exchange.through, GROWING * len(tree.node))
        passing = below(tree.node, tree.before, self.wanted[number])
        links = tree.routes.values
        work_s = self.second_s[number, links] * passing[tree.routes.owners]
        return Column(number, None, tree, np.bincount(self.orbit[links], work_s, self.orbits).astype(np.float64))


def exchange_cuts(exchange: Exchange, mix: tuple[Float64, float]) -> tuple[int, Callable[[int], Cut | None], int]:
    """The transfers of one part, the cut into a given number of parts, and the number of columns.

    Args:
        mix: of all columns, as :meth:`Packing.solve` returns it.
    """
    ways = _Ways(exchange, *exchange.few(*mix))
    rows = int(ways.hops.lengths.sum() / max(ways.hops.rows, 1) * len(exchange.pairs.goal))
    return rows, lambda times: _cut(ways, exchange.collective, times), len(ways.columns)


class _Ways:
    """The ways of all pieces by the columns of their owners.

    Attributes:
        columns: int64[columns], those that are used; of each owner one after the other.
        hops: for each pair and each of its owner's columns the hops to its receiver, in order; none to its owner.
        begin: int64[pairs + 1], where the ways of each pair begin.
        node, before, routes: of each hop where it ends and begins, and its links.
    """

    def __init__(self, exchange: Exchange, shares: Float64, busy_s: float) -> None:
        self.exchange = exchange
        owners = np.array([c.owner for c in exchange.columns])
        used = np.flatnonzero(shares > 0)
        self.columns = used[np.argsort(owners[used], kind="stable")]
        known = [tree for k in self.columns if (tree := exchange.columns[k].outward) is not None]
        self.node, self.before = (np.concatenate([tree[k] for tree in known]) for k in (0, 1))
        self.routes = Ragged.concatenate([tree.routes for tree in known])
        share = shares[self.columns] / np.bincount(owners[self.columns], shares[self.columns])[owners[self.columns]]
        weight = np.minimum((shares @ exchange.load_s / busy_s) ** EVEN, 1.0) / exchange.unit_s**2
        self.weight = weight
        self._list(owners[self.columns], share, known)

    def _list(self, owners: Int64, share: Float64, trees: list[Tree]) -> None:
        """List the hops of all ways, pair after pair."""
        pairs, nodes = self.exchange.pairs, self.exchange.symmetry.topology.node_count
        first, listed = 0, []
        for column, tree in enumerate(trees):
            of = np.flatnonzero(pairs.owner == owners[column])
            listed.append((of, np.full(len(of), share[column]), _hops_to(tree, pairs.goal[of], nodes, first)))
            first += len(tree.node)
        pair = np.concatenate([of for of, _, _ in listed])
        order = np.argsort(pair, kind="stable")
        self.hops = Ragged.concatenate([hops for _, _, hops in listed]).take(order)
        self.share = np.concatenate([each for _, each, _ in listed])[order]
        self.begin = np.searchsorted(pair[order], np.arange(len(pairs.goal) + 1)).astype(np.int64)

    @cached_property
    def options(self) -> Options:
        """The ways as they are dealt out."""
        exchange, pairs = self.exchange, self.exchange.pairs
        links = self.routes.take(self.hops.values)
        lengths = np.bincount(self.hops.owners, links.lengths, self.hops.rows).astype(np.int64)
        of = np.repeat(np.arange(len(pairs.goal)), np.diff(self.begin))
        way = np.repeat(np.arange(self.hops.rows), lengths)
        owner = pairs.owner[of[way]]
        seconds = exchange.second_s[owner, links.values] * exchange.wanted[owner, pairs.goal[of[way]]]
        entries = np.append(0, np.cumsum(lengths)).astype(np.int64)
        return Options(self.begin, self.share, entries, exchange.orbit[links.values].astype(np.int64), seconds)


def _hops_to(tree: Tree, goals: Int64, nodes: int, first: int) -> Ragged:
    """For each goal the hops of a tree on the way to it, numbered from ``first``; none to the root."""
    by = np.full(nodes, -1, dtype=np.int64)
    by[tree.node] = np.arange(len(tree.node))
    hop, way, passed = by[goals], [], []
    while (hop >= 0).any():
        on = np.flatnonzero(hop >= 0)
        way.append(on)
        passed.append(hop[on])
        hop = np.where(hop >= 0, by[tree.before[hop]], -1)
    # from the goals back to the root: turned round
    ways, hops = np.concatenate(way[::-1]), np.concatenate(passed[::-1])
    order = np.argsort(ways, kind="stable")
    lengths = np.bincount(ways, minlength=len(goals))
    return Ragged.from_lengths(lengths, (first + hops[order]).astype(np.int32))


def _cut(ways: _Ways, c: Collective, times: int) -> Cut | None:
    """Each piece in the given number of parts; None if a part would have less than a byte."""
    exchange, pairs = ways.exchange, ways.exchange.pairs
    size = exchange.symmetry.size
    # the piece of two ranks that no element moves has a chunk for each element already
    few = -(-2 * times // size)
    if c.size_bytes < len(c.ranks) * max(times, few * size * bool(pairs.alone.any())):
        return None
    parts = np.where(pairs.alone, few, times)
    options = ways.options
    dealt = at_speed(kernel_exchange.deal, GROWING * float(parts.sum()))(parts, options, ways.weight)
    pair = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(pair)) - np.repeat(np.cumsum(parts) - parts, parts)
    hops = ways.hops.take(dealt)
    chunk, hop = hops.owners, hops.values
    follows = np.diff(chunk, prepend=-1) == 0
    depends = Ragged.from_lengths(follows.astype(np.int64), np.flatnonzero(follows) - 1)
    op = np.full(len(hop), COPY, dtype=np.int8)
    transfers = Hops(chunk, ways.before[hop], ways.node[hop], op, ways.routes.take(hop), depends)
    images = np.where(pairs.alone[pair], size, 1)
    cuts = _cuts(exchange, c, times, few * size)
    chunk_bytes = -(-c.size_bytes // (len(c.ranks) * parts[pair] * images))
    place = np.zeros(exchange.symmetry.topology.node_count)
    place[c.ranks] = np.arange(len(c.ranks)) * GOLDEN % 1.0
    turn = (number + place[pairs.goal[pair]]) / parts[pair]
    workload = Workload((Promised(c.kind, c.ranks, c.size_bytes, c.root, c.start_s, c.weight, cuts),))
    owner = np.stack((exchange.owners[pairs.owner[pair]].astype(np.int64), pairs.goal[pair]), axis=1)
    return Cut(workload, owner, number * images, transfers, chunk_bytes[chunk], turn[chunk])


def _cuts(exchange: Exchange, c: Collective, times: int, alone: int) -> int | Int64:
    """Into how many chunks each piece is cut.

    Args:
        alone: those of a piece of two ranks that no element moves.
    """
    fixed = np.isin(c.ranks, exchange.owners[exchange.fixed])
    if not fixed.any():
        return times
    return np.where(fixed[:, None] & fixed, alone, times).ravel().astype(np.int64)
