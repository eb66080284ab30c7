"""Trees by price: shallow ones, where splitting switches off gives deep trees, and few that fill many links.

Trees are grown one after another, each of little price, where a link costs the more the more it carries already, by
other trees and by the same one (as with the exponential prices of Plotkin, Shmoys and Tardos, "Fast approximation
algorithms for fractional packing and covering problems", Math. Oper. Res. 1995). Ranks are roots in turn, of an
AllReduce relays, too. Then linear programs give each tree its share (:mod:`.latency`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64, Int64, Ragged
from ...model.collective import Collective
from ...model.topology import Topology
from ...schedule.trees import Trees
from . import kernel_growth
from .forest import Forest
from .kernel_growth import Costs, Links
from .relays import find_relays

PRICING_STEPS = 0.3
"""Steps (:mod:`stretto.schedule.effort`) that a tree takes for each link."""

LEAST_PRICE = 1e-3
"""Share of the highest price that each link costs at least."""

KERNEL_STEPS = 20.0
"""Steps of the kernel's inner loops for each tree and link."""


def pricing_work(topology: Topology, c: Collective, most: int) -> float:
    """The work of growing ``most`` trees: for each tree and link a unit."""
    return most * topology.link_count * (2.0 if c.traits.reduces_to_all else 1.0)


def priced_trees(
    topology: Topology,
    c: Collective,
    like: Forest,
    part_bytes: float,
    count: int,
    length_price: float,
    steepness: float,
) -> Forest | None:
    """``count`` trees of equal shares, or fewer where some roots do not reach all ranks; None if none does.

    For an AllReduce pairs of trees, whose roots are all ranks and relays in turn; for other collectives trees of the
    roots of ``like`` in turn.

    Args:
        like: a forest that tells how busy trees make links.
        part_bytes: what a tree carries at a time; the time that this takes on a link counts as length, as latency
            does.
        length_price: what the mean length of a link costs, as a multiple of what the cheapest link costs.
        steepness: how prices rise: a link less busy than the busiest one by what 1 / ``steepness`` trees take has a
            16th of the price.
    """
    ground = _Ground.of(topology, c, part_bytes)
    roots = np.arange(len(ground.nodes))
    if not c.traits.reduces_to_all:
        roots = ground.places([*like.root_share])
    length_s = ground.length_s
    seconds = 1 / (topology.bandwidth[ground.used] * like.seconds_per_byte(topology))
    # roots in turn, or some of them from one end to the other
    turns = np.arange(count) * len(roots) // count if count < len(roots) else np.arange(count) % len(roots)
    return ground.grown(roots[turns], seconds, length_price / length_s.mean(), steepness)


def trees_at(
    topology: Topology,
    c: Collective,
    roots: Sequence[int],
    part_bytes: float,
    price: Float64,
    prices_s: Sequence[float],
) -> Forest | None:
    """For each root that reaches all ranks and each price of length a tree of little price, of equal shares; None where
    no link costs anything, or no root reaches all ranks.

    Args:
        price: float64[links], what it costs that a link carries a tree; infinite where none should.
        prices_s: what each second of length costs.
    """
    ground = _Ground.of(topology, c, part_bytes)
    price = price[ground.used]
    finite = np.isfinite(price)
    highest = price[finite].max(initial=0.0)
    if not highest:
        return None
    price = np.maximum(price, LEAST_PRICE * highest)
    price[~finite] = price[finite].sum() * len(price)
    chosen = ground.places(roots)
    grown = [ground.grown(chosen, price, each / price.min(), 0.0) for each in prices_s]
    trees = [forest for forest in grown if forest is not None]
    return Forest.concatenate(trees) if trees else None


@dataclass(frozen=True)
class _Ground:
    """Where trees may grow.

    Attributes:
        nodes: int64[places], the nodes that trees are made of, first the ranks, then the relays.
        used: int64[any], the links that trees may use.
        length_s: float64[used links], what a part takes over each, seconds.
    """

    topology: Topology
    collective: Collective
    nodes: Int64
    used: Int64
    length_s: Float64

    @classmethod
    def of(cls, topology: Topology, c: Collective, part_bytes: float) -> _Ground:
        relays = find_relays(topology, c.ranks)
        nodes = np.concatenate((c.ranks, np.flatnonzero(relays))).astype(np.int64)
        usable = relays | topology.transit
        usable[c.ranks] = True
        used = np.flatnonzero(usable[topology.src] & usable[topology.dst])
        return cls(topology, c, nodes, used, topology.latency_s[used] + part_bytes / topology.bandwidth[used])

    def places(self, roots: Sequence[int]) -> Int64:
        """int64[roots], the place of each node."""
        place = {v: k for k, v in enumerate(self.nodes.tolist())}
        return np.array([place[v] for v in roots], dtype=np.int64)

    def grown(self, chosen: Int64, seconds: Float64, price: float, steepness: float) -> Forest | None:
        """Trees, or pairs of trees, of equal shares, of the roots that reach all ranks; None if none does.

        Args:
            chosen: int64[trees], the place of each root.
            seconds: float64[used links], for which a tree keeps each busy.
            price: what a second of length costs, as a multiple of what the cheapest link costs.
            steepness: how prices rise.
        """
        c, nodes, topology = self.collective, self.nodes, self.topology
        both = c.traits.reduces_to_all
        kinds = np.array([kind for kind in (0, 1) if both or kind == c.reduces])
        src, dst = (ends[self.used].astype(np.int64) for ends in (topology.src, topology.dst))
        out, into = (
            (lists.offsets, lists.values.astype(np.int64))
            for lists in (Ragged.grouped(ends, np.arange(len(ends)), topology.node_count) for ends in (src, dst))
        )
        work = KERNEL_STEPS * len(chosen) * len(kinds) * len(self.used)
        parents, hops, offsets, links = at_speed(kernel_growth.grow, work)(
            (Links(src, dst, *out, *into), Links(dst, src, *into, *out)), nodes, len(c.ranks), chosen, kinds,
            Costs(seconds, price * self.length_s, steepness),
        )  # fmt: skip
        whole = ~(parents[:, :, : len(c.ranks)] == -2).any(axis=(1, 2))
        if not whole.any():
            return None
        parents, hops, chosen = parents[whole], hops[whole], chosen[whole]
        routes = Ragged(offsets, self.used[links].astype(np.int32))
        root, ways, shape = nodes[chosen], list[Trees](), (len(chosen), topology.node_count)
        for k in range(len(kinds)):
            toward, hop = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
            toward[:, nodes], hop[:, nodes] = np.where(parents[:, k] >= 0, nodes[parents[:, k]], -1), hops[:, k]
            ways.append(Trees(root, toward, hop, routes))
        share = [Fraction(1, len(chosen))] * len(chosen)
        return Forest(ways[1], ways[0], share) if both else Forest.one_way(ways[0], c.reduces, share)
