"""How long a forest takes, without making a plan: its busiest route, and the time in which its pipelines fill.

Where routes share links, each has a share of them in proportion to what it carries, and is a link of its own
(:mod:`stretto.schedule.dispatch`). So a tree that carries little over routes that no other tree uses needs as many
parts as one that carries much, and forests of many small trees, or of deep ones, fill late. A tree is cut into parts
that are equal in the time that they take to its root and out again, not in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.changes import NO_CHANGES
from ...model.collective import Collective
from ...model.topology import Topology
from ...schedule.cutting import messages_cost, powers_up_to
from ...schedule.effort import Budget
from ...schedule.scheduling_problem import route_numbers
from ...schedule.trees import Trees, sums_to_root
from .forest import Forest
from .windows import LinkUses

TRANSFER_COUNTS = (3_000, 12_000, 60_000, 150_000)
"""Numbers of transfers for which parts are cut, coarse to fine. A finer plan is made where the last one is not yet near
the busiest link's time, and the last refinement gained."""

WITHIN = 1.1
"""Forests that are estimated to take up to this many times as long as the best one are compared by plans. Where
messages cost, estimates say less, and all are."""

MOST_COMPARED = 4
"""Forests that are compared by plans, at most."""


@dataclass(frozen=True)
class Hops:
    """The edges of trees, which take routes of several links.

    Attributes:
        tree: int64[edges].
        routes: the links of each edge.
        number: int64[edges], the same for edges over the same links.
    """

    forest: Forest
    tree: Int64
    routes: Ragged
    number: Int64

    @classmethod
    def of(cls, forest: Forest) -> Hops:
        ways = (forest.up, forest.down)
        tree = np.concatenate([np.nonzero(way.toward >= 0)[0] for way in ways])
        routes = Ragged.concatenate([way.routes.take(way.hop[way.toward >= 0]) for way in ways])
        return cls(forest, tree, routes, route_numbers(routes).astype(np.int64))

    @property
    def by_way(self) -> list[tuple[Trees, Int64]]:
        """The trees for sums and those for copies, each with the numbers of the routes of its edges."""
        numbers = np.split(self.number, [int((self.forest.up.toward >= 0).sum())])
        return list(zip((self.forest.up, self.forest.down), numbers, strict=True))

    def seconds_per_byte(self, topology: Topology, share: Float64) -> Float64:
        """float64[edges], how long a byte takes over each edge, where routes have their shares of links.

        Args:
            share: float64[trees], what each carries of all data.
        """
        links, owners = self.routes.values, self.routes.owners
        load = np.bincount(links, share[self.tree][owners], topology.link_count)
        carried = np.bincount(self.number, share[self.tree])
        busy = load[links] / topology.bandwidth[links]
        seconds: Float64 = self.routes.reduced(np.maximum, busy) / carried[self.number]
        return seconds

    def paces(self, seconds: Float64) -> Float64:
        """float64[trees], seconds from the farthest leaf to the root and on to the farthest leaf.

        Args:
            seconds: float64[edges].
        """
        pace, begin = np.zeros(len(self.forest.share)), 0
        for way, numbers in self.by_way:
            over = np.zeros(way.toward.shape)
            over[way.toward >= 0] = seconds[begin : begin + len(numbers)]
            pace += sums_to_root(way, over).max(axis=1)
            begin += len(numbers)
        return pace


@dataclass(frozen=True)
class Filling:
    """A forest on the network in which each of its routes is a link, with its share of what it leads over.

    Attributes:
        pace: float64[trees], seconds per byte of a part from the farthest leaf to the root and on to the farthest leaf.
    """

    topology: Topology
    forest: Forest
    share: Float64
    pace: Float64

    @classmethod
    def of(cls, topology: Topology, forest: Forest) -> Filling:
        hops, share = Hops.of(forest), np.array(forest.share, dtype=np.float64)
        seconds = hops.seconds_per_byte(topology, share)
        net = _routes_as_links(topology, hops, seconds)
        up, down = (_over_links(way, numbers, net.link_count) for way, numbers in hops.by_way)
        return cls(net, Forest(up, down, forest.share), share, hops.paces(seconds))

    @cached_property
    def weights(self) -> Float64:
        """float64[trees], into how many parts to cut what each tree carries, relative to the mean."""
        weights: Float64 = self.share * self.pace
        return weights / float(weights.mean())

    def parts(self, count: float) -> Int64:
        """int64[trees], into how many parts to cut what each tree carries if it is ``count`` on average.

        The fewest parts, which are taken where messages cost, are equal in bytes.
        """
        weights = self.weights if count > 1 else self.share / self.share.mean()
        parts: Int64 = np.maximum(np.round(count * weights), 1.0).astype(np.int64)
        return parts

    def estimated_s(self, c: Collective, transfers: float) -> float:
        """About when the best plan with up to ``transfers`` transfers ends, seconds."""
        edges: Int64 = sum((way.toward >= 0).sum(axis=1) for way in (self.forest.up, self.forest.down))
        finest = max(transfers / float(self.weights @ edges), 1.0)
        counts = [*powers_up_to(finest), finest] if messages_cost(self.topology) else [finest]
        return min(self.cut_s(c, count) for count in counts)

    def cut_s(self, c: Collective, count: float) -> float:
        """The same with ``count`` parts a tree, on average."""
        parts, size = self.parts(count), c.size_bytes * self.share
        uses = LinkUses.of(self.topology, self.forest, size / parts)
        carried_s = size[uses.tree] / self.topology.bandwidth[uses.link]
        needed_s = uses.needed_s(carried_s + parts[uses.tree] * self.topology.message_s[uses.link])
        return max(needed_s, float(uses.through_s.max()))


def _routes_as_links(topology: Topology, hops: Hops, seconds: Float64) -> Topology:
    """The network whose links are the routes of a forest's edges.

    Args:
        seconds: float64[edges], how long a byte takes over each.
    """
    first = np.unique(hops.number, return_index=True)[1]
    routes, links = hops.routes, hops.routes.values
    message_bytes = topology.message_s[links] * topology.bandwidth[links]
    return replace(
        topology,
        src=topology.src[links[routes.offsets[:-1]]][first],
        dst=topology.dst[links[routes.offsets[1:] - 1]][first],
        bandwidth=1 / seconds[first],
        latency_s=topology.route_latency_s(routes)[first],
        message_s=routes.reduced(np.maximum, message_bytes * seconds[routes.owners])[first],
        changes=NO_CHANGES,
    )


def _over_links(way: Trees, number: Int64, count: int) -> Trees:
    """Trees whose routes are links, by their numbers; those of the edges in the order of trees and nodes."""
    hop = np.full_like(way.hop, -1)
    hop[way.toward >= 0] = number
    return replace(way, hop=hop, routes=Ragged.single(np.arange(count)))


def most_promising(topology: Topology, c: Collective, forests: list[Forest], budget: Budget) -> list[Forest]:
    """Of these forests those that may end soonest, in the order of their estimates; all of them where messages cost.

    Args:
        budget: with costs for "estimate" and "transfer".
    """
    if messages_cost(topology):
        return forests
    transfers = min(TRANSFER_COUNTS[-1], budget.units("transfer"))
    budget.spend(estimate=sum(len(forest.uses[0]) for forest in forests))
    ends_s = [(Filling.of(topology, forest).estimated_s(c, transfers), forest) for forest in forests]
    # forests that end together are mostly the same trees
    different = {round(end_s / ends_s[0][0], 6): forest for end_s, forest in reversed(ends_s)}
    order = sorted(different)
    return [different[end] for end in order[:MOST_COMPARED] if end <= WITHIN * order[0]]
