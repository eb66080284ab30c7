"""Which trees carry how much where the group leaves several orbits of ranks: a linear program over orbits of links.

Where one NIC is slow, or servers are of two kinds, no group maps every rank to every other. Each orbit of ranks then
has trees of its own. A column of the program is a tree over all ranks from (or, for sums, to) the first rank of an
orbit, its images included; a row is an orbit of links. The program minimises the time for which the busiest orbit
works. Of a buffer that is summed it also decides how much each orbit of ranks owns.

Where there is a root, all trees begin or end at it. What one other rank wants or holds goes by a path, a tree of which
the rest is left out.

Columns are found as they are needed. At the prices that the program has for orbits of links (its dual, which is solved
in its place) the cheapest tree is grown (:mod:`.kernel_trees`) from each owner, until no tree is cheaper than those
known by more than :data:`NEAR`. Of all mixes of these that take hardly longer that one is chosen whose ways are short.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Bool, Float64, Int64, Ragged
from ...model.collective import Collective
from ...model.errors import Unsupported
from ...model.symmetry import Symmetry
from ...solvers import INFINITY, Model, solve
from ...solvers.highs import Growing
from . import kernel_trees
from .kernel_trees import Ways

NEAR = 0.003
"""Share by which known trees may be worse than the best mix."""

MOST_ROUNDS = 40
"""Times that trees are grown from all owners, at most."""

BRIEF_ROUNDS = 3
"""The same where little is to be tried, as for the first plan of a running process; then all trees are shallow."""

CAUTION = 0.5
"""Weight of the best prices so far in those of the next round: the program's own jump about."""

FLOOR = 0.01
"""Price of an orbit of links that is never busy, as part of the mean price: of equal trees that of least work wins."""

LONGER = 1.01
"""Times the least time that links may work for the sake of short ways."""

FEWER = 1.004
"""Times the least time that fewer trees, or fewer chunks of each piece, may take."""

LEAST_SHARES = (0.4, 0.2, 0.1, 0.05, 0.02)
"""Of an owner's data, shares below which trees are left out, where the rest takes hardly longer."""

AWAYS = (2, 1 << 40)
"""The price of a way from the root of a tree is divided by this where a rank at its end sends on. The first makes
shallow trees. Cheaper ones by the second are looked for when no shallow one is cheaper than those known: without them
a broadcast on leaves and spines takes 1.25 of the bound."""

MOST_RELAYS = 64
"""Orbits of accelerators outside the collective up to which sums may meet there."""

GROWING = 100.0
"""Steps of the kernel's inner loops for each link."""

FINEST = float(1 << 40)
"""What the dearest link costs, in whole numbers."""


class Tree(NamedTuple):
    """A tree over all ranks and some relays, or over those on the way to one of them.

    Attributes:
        node: int64[hops], in an order in which each comes after the one before it on the way from the root.
        before: int64[hops], the rank or relay next to each on the way to the root.
        routes: the links between, in the order in which bytes pass them.
    """

    node: Int64
    before: Int64
    routes: Ragged

    def way_to(self, rank: int) -> Tree:
        """The part of the tree on the way from its root to a rank."""
        place = dict(zip(self.node.tolist(), range(len(self.node)), strict=True))
        way: list[int] = []
        while rank in place:
            way.append(place[rank])
            rank = int(self.before[way[-1]])
        kept = np.array(way[::-1], dtype=np.int64)
        return Tree(self.node[kept], self.before[kept], self.routes.take(kept))


class Column(NamedTuple):
    """All data of an owner's orbit by one tree, or summed over one and copied over another.

    Attributes:
        owner: the place of the owner among all owners.
        load_s: float64[orbits of links], for how long it keeps each.
    """

    owner: int
    inward: Tree | None
    outward: Tree | None
    load_s: Float64


class Packing:
    """The program of one collective.

    Attributes:
        collective: what is planned.
        owners: int32[owners], the first rank of each orbit that owns data. Where a root has the whole buffer, or gets
            it, the data is dealt out to one orbit: which one makes no difference.
        root: the root, -1 where there is none.
        chunk_bytes: float64[owners], the bytes of a representative if one orbit of chunks holds all that its
            owners may own.
        columns: those found.
    """

    def __init__(self, symmetry: Symmetry, collective: Collective) -> None:
        traits, ranks, size_bytes = collective.traits, collective.ranks, float(collective.size_bytes)
        self.symmetry, self.collective, self.traits = symmetry, collective, traits
        self.root = int(ranks[collective.root]) if traits.rooted else -1
        t = symmetry.topology
        orbit_size = np.bincount(symmetry.node_orbits, minlength=t.node_count)
        firsts = np.unique(symmetry.node_orbits[ranks])
        if traits.whole:
            firsts = firsts[orbit_size[firsts] == symmetry.size][: 1 if traits.rooted else None]
        self.owners = firsts.astype(np.int32)
        pieces = 1 if traits.whole else len(ranks)
        shared = traits.whole | ((orbit_size[firsts] < symmetry.size) & (traits.pieces != "pair"))
        self.chunk_bytes = size_bytes / pieces / np.where(shared, symmetry.size, 1)
        self.orbit = np.unique(symmetry.link_orbits, return_inverse=True)[1].reshape(-1)
        self.fixed = orbit_size[firsts] < symmetry.size
        """bool[owners], whether no element moves an owner."""
        one = self.chunk_bytes / (len(firsts) if traits.whole else 1)
        self.message_s = symmetry.copies * t.message_s
        """float64[links], for how long a message and its images keep a link."""
        self.second_s = symmetry.copies / t.bandwidth + self.message_s / one[:, None]
        """float64[owners, links], for how long a byte and its images keep a link, what one message costs included."""
        joins = np.zeros(t.node_count, dtype=np.bool_)
        joins[ranks] = True
        self.ways = [self._ways(joins, into) for into in (False, True)]
        self.columns: list[Column] = []

    def _ways(self, joins: Bool, into: bool) -> Ways:
        t = self.symmetry.topology
        links = t.in_links if into else t.out_links
        tail, head = (t.dst, t.src) if into else (t.src, t.dst)
        return Ways(
            links.offsets.astype(np.int64), links.values.astype(np.int64), tail.astype(np.int64),
            head.astype(np.int64), joins, t.transit, t.is_accelerator & ~joins,
        )  # fmt: skip

    @cached_property
    def orbits(self) -> int:
        return int(self.orbit.max()) + 1

    @cached_property
    def relays(self) -> Int64:
        """int64[relays], of an AllReduce the first of each orbit of accelerators outside, if these are few."""
        outside = np.unique(self.symmetry.node_orbits[self.ways[0].relays]).astype(np.int64)
        return outside if self.traits.reduces_to_all and len(outside) <= MOST_RELAYS else outside[:0]

    @cached_property
    def unit_s(self) -> float:
        """What times are measured in: the least time that the first columns take alone, if they take any."""
        return min(float(c.load_s.max()) for c in self.columns if c.load_s.any())

    def grow(self, price: Float64, aways: tuple[int, ...]) -> list[Column]:
        """A cheap column for each owner and each of ``aways`` at prices of orbits of links, float64[orbits]."""
        priced = (price + FLOOR * price.mean())[self.orbit]
        inward = self.traits.reduces or self.traits.wanted == "root"
        outward = not inward or self.traits.reduces_to_all
        # owners whose chunks are alike share the trees of a root
        grown: dict[tuple[int, float, bool, int], Tree] = {}
        out = []
        starts = [(k, owner, owner if self.root < 0 else self.root) for k, owner in enumerate(self.owners.tolist())]
        # sums may meet at relays as well, whoever owns them
        starts += [(0, int(self.owners[0]), relay) for relay in self.relays.tolist()]
        for number, owner, start in starts:
            each = priced * self.second_s[number]
            whole = np.maximum(np.rint(each * (FINEST / each.max())), 1.0).astype(np.int64)
            for away in aways:
                trees: dict[bool, Tree] = {}
                for into in [True] * inward + [False] * outward:
                    key = start, float(self.chunk_bytes[number]), into, away
                    if key not in grown:
                        grown[key] = self._tree(start, whole, into, away)
                    trees[into] = grown[key].way_to(owner) if self.alone else grown[key]
                out.append(self._column(number, trees))
        return out

    @property
    def alone(self) -> bool:
        """Whether there is one other rank that wants or holds what an owner gets from the root, or sends there."""
        return self.root >= 0 and not self.traits.whole

    @property
    def aways(self) -> tuple[int, ...]:
        """See :data:`AWAYS`; 1 where nothing is copied, so that the cheapest ways are cheapest trees."""
        return (1,) if self.alone or self.traits.pieces == "pair" else AWAYS

    def _column(self, number: int, trees: dict[bool, Tree]) -> Column:
        """A column of an owner.

        Args:
            trees: the one that leads to the root (True), the one that leads from it (False), or both.
        """
        passed = np.concatenate([tree.routes.values for tree in trees.values()])
        work_s = np.bincount(self.orbit[passed], self.second_s[number, passed], self.orbits) * self.chunk_bytes[number]
        return Column(number, trees.get(True), trees.get(False), work_s)

    def _tree(self, root: int, price: Int64, into: bool, away: int) -> Tree:
        ways = self.ways[into]
        node, before, ends, route = at_speed(kernel_trees.grow, GROWING * len(price))(root, price, away, ways)
        if int(ways.joins[node].sum()) < int(ways.joins.sum()) - ways.joins[root]:
            raise Unsupported("symmetric does not serve this: not all ranks can reach each other without others")
        routes = Ragged(ends, route.astype(np.int32))
        return Tree(node, before, routes.reversed() if into else routes)

    def solve(self, brief: bool = False) -> tuple[Float64, float]:
        """Find columns, and how much goes by each, float64[columns], and for how many seconds the busiest link works.

        The shares of an owner's columns add up to 1; where the buffer is one piece, those of all columns.

        Args:
            brief: whether few columns are to be found.
        """
        centre, master = np.full(self.orbits, 1.0 / self.orbits), self._master()
        self._add(master, self.grow(centre, self.aways[:1]))
        for stage in range(1 if brief else len(self.aways)):
            centre = self._generate(master, self.aways[: stage + 1], centre, BRIEF_ROUNDS if brief else MOST_ROUNDS)
        every = np.arange(len(self.columns))
        shares, busy_s = self.mixed(every)
        busy = shares @ self.load_s / busy_s
        return self.mixed(every, LONGER * busy_s, np.array([self._stages(c, busy) for c in self.columns]))

    def few(self, shares: Float64, busy_s: float) -> tuple[Float64, float]:
        """Few columns that together keep no link much longer than the best mix does, as :meth:`solve` returns it."""
        mean = 1.0 / (len(self.owners) if self.traits.whole else 1)
        for part in LEAST_SHARES:
            chosen = np.flatnonzero(shares >= part * mean)
            owners = {self.columns[k].owner for k in chosen}
            if len(owners) < (1 if self.traits.whole else len(self.owners)):
                continue
            fewer, seconds = self.mixed(chosen)
            if seconds <= FEWER * busy_s:
                return fewer, seconds
        return shares, busy_s

    def _generate(self, master: Growing, aways: tuple[int, ...], centre: Float64, most: int) -> Float64:
        """Add columns while cheaper ones are grown than those known.

        Args:
            aways: see :data:`AWAYS`.
            centre: float64[orbits], the best prices so far.
            most: rounds.
        Returns:
            the best prices.
        """
        best = 0.0
        for _ in range(most):
            answer = master.solve()
            if answer is None:
                break
            price, worth = np.maximum(answer[: self.orbits], 0.0), float(answer[self.orbits :].sum())
            price = CAUTION * centre + (1 - CAUTION) * price / price.sum()
            fresh = self.grow(price, aways)
            cost = np.array([c.load_s @ price for c in fresh]) / self.unit_s
            cheapest = np.full(self._kinds, np.inf)
            np.minimum.at(cheapest, [self._kind(c) for c in fresh], cost)
            least = float(cheapest.sum())
            if least > best:
                centre, best = price, least
            if worth - best <= NEAR * worth:
                break
            self._add(master, fresh)
        return centre

    def _add(self, master: Growing, fresh: list[Column]) -> None:
        self.columns += fresh
        master.add(self._rows(fresh))

    @property
    def load_s(self) -> Float64:
        """float64[columns, orbits]."""
        return np.stack([c.load_s for c in self.columns])

    @property
    def of_messages_s(self) -> Float64:
        """float64[columns, orbits], for how long a message of one chunk by each column keeps each orbit of links."""
        passed = [
            np.concatenate([tree.routes.values for tree in (c.inward, c.outward) if tree is not None])
            for c in self.columns
        ]
        found = [np.bincount(self.orbit[links], self.message_s[links], self.orbits) for links in passed]
        return np.stack(found).astype(np.float64)

    def _master(self) -> Growing:
        """The dual: prices of orbits of links that add up to 1, at which the cheapest ways cost most."""
        model = Model()
        price = model.columns(self.orbits, upper=INFINITY)
        model.columns(self._kinds, lower=-INFINITY, upper=INFINITY, cost=-1.0)
        model.rows(1, 1.0, 1.0, (np.zeros(self.orbits, dtype=np.int64), price, 1.0))
        return Growing(model)

    @property
    def _kinds(self) -> int:
        return 1 if self.traits.whole else len(self.owners)

    def _kind(self, column: Column) -> int:
        """Which sum of shares a column is in."""
        return 0 if self.traits.whole else column.owner

    def _rows(self, columns: list[Column]) -> Model:
        rows = Model(column_count=self.orbits + self._kinds)
        load = np.stack([c.load_s for c in columns]) / self.unit_s
        of, orbit = np.nonzero(load)
        kind = np.array([self.orbits + self._kind(c) for c in columns])
        rows.rows(len(columns), -INFINITY, 0.0, (kind, 1.0), (of, orbit, -load[of, orbit]))
        return rows

    def mixed(self, chosen: Int64, most_s: float = INFINITY, length: Float64 | None = None) -> tuple[Float64, float]:
        """The best mix of some columns, float64[columns], and for how many seconds the busiest link works.

        Args:
            most_s: for how many seconds links may work.
            length: float64[columns]; where it is given, the mix of least length is the best one.
        """
        load_s = self.load_s
        column, orbit = np.nonzero(load_s[chosen])
        model = Model()
        busiest = model.columns(1, upper=most_s / self.unit_s, cost=1.0 if length is None else 0.0)
        share = model.columns(len(chosen), upper=INFINITY, cost=0.0 if length is None else length[chosen])
        loaded = load_s[chosen[column], orbit] / self.unit_s
        model.rows(self.orbits, -INFINITY, 0.0, (orbit, share[column], loaded), (np.repeat(busiest, self.orbits), -1.0))
        row = np.array([self._kind(self.columns[k]) for k in chosen])
        model.rows(self._kinds, 1.0, 1.0, (row, share, 1.0))
        answer = solve(model)
        assert answer.x is not None, "each owner has a column"
        shares = np.zeros(len(self.columns))
        shares[chosen] = np.maximum(answer.x[share], 0.0)
        return shares, float((shares @ load_s).max())

    def _stages(self, column: Column, busy: Float64) -> float:
        """How many hops a chunk passes one after another, each counted by how busy the orbits of its links are."""
        total = 0.0
        for tree in (column.inward, column.outward):
            if tree is not None and len(tree.node):
                hop = tree.routes.reduced(np.maximum, busy[self.orbit[tree.routes.values]])
                longest = at_speed(kernel_trees.longest_way, GROWING * len(hop))
                total += longest(tree.node, tree.before, hop, len(self.ways[0].joins))
        return total
