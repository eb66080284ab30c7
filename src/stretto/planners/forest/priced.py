"""Shallow trees by price: hubs that take turns, where splitting switches off gives deep trees.

Through a switch all ranks are next to each other, and a tree of least cost hangs all of them on the rank whose port is
cheapest. So trees are grown one after another, each of least price, where a link costs the more the more it carries
already (as with the exponential prices of Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional
packing and covering problems", Math. Oper. Res. 1995). Ranks are roots in turn; only as hubs do they differ. Then a
linear program gives each tree its share (:mod:`.division`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...bounds import distances
from ...kernels import at_speed
from ...model.arrays import Float64, Int64, Ragged
from ...model.collective import Collective
from ...model.topology import Topology
from ...schedule.trees import Trees
from . import kernel_arborescences
from .division import divide_data
from .forest import Forest
from .kernel_arborescences import Links, Nodes
from .relays import find_relays

MOST_TREES = 128
"""Trees that are grown at most."""

STEEPNESS = 0.1
"""How prices fall: a link less busy than the busiest one by what 1 / STEEPNESS trees take has a 16th of the price."""

LENGTH_PRICE = 0.3
"""What the mean length of a link costs, relative to the cheapest link: of trees of similar cost shallow ones are
taken."""

PRICING_STEPS = 0.005
"""Steps (:mod:`stretto.schedule.effort`) of a step of the kernel."""

LEAST_PRICE = 1e-3
"""Share of the highest price that each link costs at least."""

MOST_WORK = 2e8
"""Steps of the kernel's inner loop beyond which no trees are grown."""


def priced_forest(topology: Topology, c: Collective, like: Forest, part_bytes: float, most: int) -> Forest | None:
    """A forest of shallow trees for an AllReduce; None where no node passes bytes on, or there are no such trees.

    Args:
        like: a forest that tells how busy trees make links.
        part_bytes: what a tree carries at a time; the time that this takes on a link counts as length, as latency
            does.
        most: how many trees there may be.
    """
    if not (topology.transit.any() or find_relays(topology, c.ranks).any()):
        return None
    trees = priced_trees(topology, c, like, part_bytes, most, LENGTH_PRICE)
    return None if trees is None else divide_data(topology, trees, None)


def pricing_work(topology: Topology, c: Collective, most: int) -> float:
    """Steps of the kernel's inner loop that growing ``most`` trees takes, about."""
    nodes, inner = _nodes(topology, c)
    relays = len(nodes) - len(c.ranks)
    return 2.0 * most * (len(inner) * topology.node_count**2 + 10 * len(nodes) ** 2 * (1 + relays))


def priced_trees(
    topology: Topology, c: Collective, like: Forest, part_bytes: float, most: int, length_price: float
) -> Forest | None:
    """Trees of equal shares; None where ranks do not reach each other, or growing trees would be too much work.

    For an AllReduce pairs of trees, whose roots are the cheapest nodes in turn where there are relays, else all ranks;
    for other collectives trees of the roots of ``like`` in turn.
    """
    count = min(MOST_TREES, most)
    ground = _Ground.of(topology, c, part_bytes, count)
    if ground is None:
        return None
    both, nodes = c.traits.reduces_to_all, ground.nodes
    roots = ground.places(c.ranks.tolist() if both else [*like.root_share])
    chosen = np.full(count, -1) if both and len(nodes) > len(c.ranks) else roots[np.arange(count) % len(roots)]
    length_s = ground.length_s
    seconds = 1 / (topology.bandwidth[ground.used] * like.seconds_per_byte(topology))
    return ground.grown(chosen, seconds, length_price / length_s.mean(), STEEPNESS)


def trees_at(
    topology: Topology,
    c: Collective,
    roots: Sequence[int],
    part_bytes: float,
    price: Float64,
    prices_s: Sequence[float],
) -> Forest | None:
    """For each root and each price of length the tree of least price, of equal shares; None where no link costs
    anything, ranks do not reach each other, or growing trees would be too much work.

    Args:
        price: float64[links], what it costs that a link carries a tree; infinite where none should.
        prices_s: what each second of length costs.
    """
    ground = _Ground.of(topology, c, part_bytes, len(roots) * len(prices_s))
    if ground is None:
        return None
    price = price[ground.used]
    finite = np.isfinite(price)
    highest = price[finite].max(initial=0.0)
    if not highest:
        return None
    price = np.maximum(price, LEAST_PRICE * highest)
    price[~finite] = price[finite].sum() * len(price)
    chosen = ground.places(roots)
    grown = [ground.grown(chosen, price, each / price.min(), 0.0) for each in prices_s]
    return Forest.concatenate(grown)


@dataclass(frozen=True)
class _Ground:
    """Where trees of least price may grow.

    Attributes:
        nodes: int64[places], the nodes that trees are made of, first the ranks, then the relays.
        inner: int64[any], nodes that only pass bytes on.
        used: int64[any], the links that trees may use.
        length_s: float64[used links], what a part takes over each, seconds.
        far_s: float64[places, places], the same between nodes.
    """

    topology: Topology
    collective: Collective
    nodes: Int64
    inner: Int64
    used: Int64
    length_s: Float64
    far_s: Float64
    work: float

    @classmethod
    def of(cls, topology: Topology, c: Collective, part_bytes: float, count: int) -> _Ground | None:
        """None where ranks do not reach each other, or growing this many trees would be too much work."""
        work = pricing_work(topology, c, count)
        if work > MOST_WORK:
            return None
        nodes, inner = _nodes(topology, c)
        usable = np.zeros(topology.node_count, dtype=np.bool_)
        usable[nodes], usable[inner] = True, True
        used = np.flatnonzero(usable[topology.src] & usable[topology.dst])
        net = topology.with_links(used)
        far_s = distances(net, part_bytes)[np.ix_(nodes, nodes)]
        if not np.isfinite(far_s[: len(c.ranks), : len(c.ranks)]).all():
            return None
        return cls(topology, c, nodes, inner, used, net.latency_s + part_bytes / net.bandwidth, far_s, work)

    def places(self, roots: Sequence[int]) -> Int64:
        """int64[roots], the place of each node."""
        place = {v: k for k, v in enumerate(self.nodes.tolist())}
        return np.array([place[v] for v in roots], dtype=np.int64)

    def grown(self, chosen: Int64, seconds: Float64, price: float, steepness: float) -> Forest:
        """Trees, or pairs of trees, of equal shares.

        Args:
            chosen: int64[trees], the place of each root, see the kernel.
            seconds: float64[used links], for which a tree keeps each busy.
            price: what a second of length costs, as a multiple of what the cheapest link costs.
            steepness: see the kernel.
        """
        topology, c, nodes = self.topology, self.collective, self.nodes
        both, used = c.traits.reduces_to_all, self.used
        kinds = np.array([kind for kind in (0, 1) if both or kind == c.reduces])
        # else the kernel is compiled for both layouts
        far_s = np.ascontiguousarray(self.far_s.T) if c.reduces and not both else self.far_s
        src, dst = (ends[used].astype(np.int64) for ends in (topology.src, topology.dst))
        parents, offsets, links = at_speed(kernel_arborescences.priced_trees, self.work)(
            Links(src, dst, seconds, price * self.length_s),
            Nodes(nodes, len(c.ranks), self.inner, price * np.where(np.isfinite(far_s), far_s, 0.0)),
            chosen, kinds, steepness,
        )  # fmt: skip
        root, routes = nodes[np.argmax(parents[:, 0] == -1, axis=1)], Ragged(offsets, used[links].astype(np.int32))
        hops = np.arange(parents.size).reshape(parents.shape)
        ways, shape = list[Trees](), (len(chosen), topology.node_count)
        for k in range(len(kinds)):
            toward, hop = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
            toward[:, nodes], hop[:, nodes] = np.where(parents[:, k] >= 0, nodes[parents[:, k]], -1), hops[:, k]
            ways.append(Trees(root, toward, hop, routes))
        share = [Fraction(1, len(chosen))] * len(chosen)
        return Forest(ways[1], ways[0], share) if both else Forest.one_way(ways[0], c.reduces, share)


def _nodes(topology: Topology, c: Collective) -> tuple[Int64, Int64]:
    """The nodes that trees are made of, first the ranks, then the relays; and nodes that only pass bytes on."""
    nodes = np.concatenate((c.ranks, np.flatnonzero(find_relays(topology, c.ranks)))).astype(np.int64)
    return nodes, np.setdiff1d(np.flatnonzero(topology.transit), nodes)
