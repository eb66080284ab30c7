"""Which sums ranks get on circles: each is sent the sum of those that follow it.

On a circle each rank holds the sum of an *arc* that begins with itself. It is sent an arc that begins where its own
ends, and adds it: arcs that meet are disjoint, however many ranks there are, and every rank sends and receives all the
time. Arcs of 1, 2, 4, ... are recursive doubling. Where the number of ranks is no power of two, and where a rank can
send several messages before the first one comes, other lengths are better (:func:`choose_arcs`). Bar-Noy, Kipnis and
Schieber (Parallel Processing Letters 3, 1993) choose them for one message at a time.

Where all ranks must add up in one order (*aligned*), arcs that are sent do not overlap: a circle of n ranks is cut into
n / f stretches of f ranks, which swap until each rank has the sum of its stretch; then stretches take the places of
ranks, so that a rank swaps with those at its own place in others. With f = 2 all along this is recursive doubling, too.

Groups take the places of ranks: ranks that are near each other stand in a circle first, their groups in wider circles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....model.arrays import Float64, Int64
from ....schedule.pipes import Network

HISTORIES = 3
"""Sequences of arcs that :func:`choose_arcs` keeps for each length of the longest arc so far."""


class Shape(NamedTuple):
    """How circles are formed.

    Attributes:
        width: the largest number of groups in a circle.
        nearness: in the first circles ranks are at most this many times as far from each other as the nearest two are.
        later: ``nearness`` of groups in the wider circles.
    """

    width: float
    nearness: float
    later: float


class Group(NamedTuple):
    """Nodes that all get the sum of what the ranks among them contribute."""

    members: list[int]
    total: int  # the sum, -1 where there is no rank


class Step(NamedTuple):
    """A node that has the sum ``before`` gets the sum ``total`` by adding ``piece``, or gets a copy of ``total``."""

    node: int
    total: int
    before: int = -1
    piece: int = -1
    sender: int = -1  # from which it best comes
    copy: bool = True

    @property
    def comes(self) -> tuple[int, int]:
        """What comes, and from which node: (node, sum)."""
        return self.sender, self.total if self.copy else self.piece


_History = tuple[tuple[int, ...], tuple[float, ...], float, tuple[int, ...]]
"""Lengths of the arcs so far, when each came, when the next message may start, and the arcs that messages carried."""


@lru_cache(maxsize=256)
def choose_arcs(count: int, gap_s: float, takes_s: float, aligned: bool = False) -> tuple[int, ...]:
    """The arcs that each of ``count`` ranks of a circle is sent, by which it has the whole circle soonest.

    Args:
        gap_s: seconds between the starts of two messages to a rank, or from it.
        takes_s: seconds from the start of a message until it has come.
        aligned: whether arcs are the sums of stretches.
    Returns:
        For each message which of the sender's arcs it carries: 0 is the sender alone, k the arc after k messages.
    """
    best_s, best = np.inf, tuple[int, ...]()
    states: list[_History] = [((1,), (0.0,), 0.0, best)]
    while states:
        longer = defaultdict[int, list[_History]](list)
        for lengths, came_s, free_s, arcs in states:
            for k, length in enumerate(lengths):
                if aligned and not _is_stretch(count, lengths, arcs, k):
                    continue
                total, start_s = lengths[-1] + length, max(free_s, came_s[k])
                end_s = max(came_s[-1], start_s + takes_s)
                if total > count or end_s >= best_s:
                    break
                if total == count:
                    best_s, best = end_s, (*arcs, k)
                else:
                    longer[total].append(((*lengths, total), (*came_s, end_s), start_s + gap_s, (*arcs, k)))
        states = [s for found in longer.values() for s in sorted(found, key=lambda s: (s[2], s[1][::-1]))[:HISTORIES]]
    return best


def _is_stretch(count: int, lengths: Sequence[int], arcs: Sequence[int], k: int) -> bool:
    """Whether a next message may carry the arc after k messages: the same stretch as the last one carried, or all that
    ranks have by now where that divides the circle."""
    return count % lengths[-1] == 0 if k == len(arcs) else k == arcs[-1]


@dataclass
class Circles:
    """Sums, and the steps by which nodes get them, each after those it needs."""

    network: Network
    size: float  # bytes of a message
    takes_s: Float64  # float64[nodes, nodes], seconds of a message between nodes that a pipe joins, elsewhere infinite
    far_s: Float64  # float64[nodes, nodes], the seconds of its latency and its bytes, without the cost of the message
    pipe: Int64  # int64[nodes, nodes], the fastest pipe, -1 where there is none
    aligned: bool = False  # whether all ranks add up in one order
    rank_of: list[int] = field(default_factory=list)  # for each sum the rank that contributes it alone, else -1
    steps: list[Step] = field(default_factory=list)
    widest: int = 0  # the first step of the last circle

    @classmethod
    def of(cls, network: Network, size: float, bandwidth: Float64, aligned: bool = False) -> Circles:
        """No circles yet, among the nodes of a network; ``bandwidth`` of its links where messages cost nothing."""
        nodes, seconds = network.topology.node_count, network.latency_s + size * network.per_byte
        slowest_first = np.argsort(-seconds, kind="stable")
        least = network.hops.reduced(np.minimum, bandwidth[network.hops.values])
        takes_s, far_s = np.full((nodes, nodes), np.inf), np.full((nodes, nodes), np.inf)
        pipe = np.full((nodes, nodes), -1)
        ends = network.src[slowest_first], network.dst[slowest_first]
        takes_s[ends], pipe[ends] = seconds[slowest_first], slowest_first
        far_s[ends] = (network.latency_s + size / least)[slowest_first]
        return cls(network, size, takes_s, far_s, pipe, aligned)

    def add_sum(self, rank: int = -1) -> int:
        """The number of a new sum."""
        self.rank_of.append(rank)
        return len(self.rank_of) - 1

    def join_all(self, ranks: Sequence[int], helpers: Sequence[int], shape: Shape) -> Group | None:
        """Let all ranks stand in circles, near ranks first; None where pipes do not join all of them.

        Args:
            helpers: nodes outside the collective, which get copies and may send them on.
        """
        groups = [*(Group([v], self.add_sum(v)) for v in ranks), *(Group([v], -1) for v in helpers)]
        nearness = shape.nearness
        while len(groups) > 1:
            cliques = self.find_cliques(groups, shape.width, nearness)
            if len(cliques) == len(groups):
                return None
            groups = [self.join([groups[k] for k in clique]) for clique in cliques]
            nearness = shape.later
        return groups[0]

    def find_cliques(self, groups: Sequence[Group], width: float, nearness: float) -> list[list[int]]:
        """The numbers of all groups in lists: those in one list are near each other."""
        members = np.concatenate([group.members for group in groups])
        sizes = [len(group.members) for group in groups]
        first = np.cumsum([0, *sizes[:-1]])
        far_s = np.minimum.reduceat(self.far_s[np.ix_(members, members)], first, axis=0)
        far_s = np.minimum.reduceat(far_s, first, axis=1)
        far_s = np.maximum(far_s, far_s.T)
        np.fill_diagonal(far_s, np.inf)
        free, cliques = np.ones(len(groups), dtype=np.bool_), []
        for k in np.argsort(far_s.min(axis=1), kind="stable").tolist():
            if not free[k]:
                continue
            clique, free[k], farthest_s = [k], False, far_s[k]
            limit_s = nearness * far_s[k][free].min(initial=np.inf)
            while len(clique) < width:
                next_s = np.where(free, farthest_s, np.inf)
                j = int(next_s.argmin())
                if not (next_s[j] <= limit_s and next_s[j] < np.inf):
                    break
                clique.append(j)
                free[j], farthest_s = False, np.maximum(farthest_s, far_s[j])
            cliques.append(sorted(clique))
        return sorted(cliques)

    def join(self, groups: Sequence[Group]) -> Group:
        """Let groups stand in a circle; groups without ranks get copies of the whole sum."""
        helpers = [v for group in groups if group.total < 0 for v in group.members]
        groups = [group for group in groups if group.total >= 0]
        if not groups:
            return Group(helpers, -1)
        self.widest = len(self.steps)
        count, lengths, arcs = len(groups), [1], [[group.total for group in groups]]
        chosen = choose_arcs(count, *self.pace(groups), self.aligned) if count > 1 else ()
        for k in chosen:
            length, turn, stretch = lengths[-1] + lengths[k], count, 1
            if self.aligned:  # the ranks of a stretch swap, and have one sum before that and after
                turn = lengths[k] * (chosen.count(k) + 1)
                stretch = length if length == turn else lengths[k]
            sums = [self.add_sum() for _ in range(1 if length == count else count // stretch)]
            arcs.append([sums[i // stretch % len(sums)] for i in range(count)])
            for i, group in enumerate(groups):
                j = i - i % turn + (i + lengths[-1]) % turn
                self.extend(group, groups[j], Step(-1, arcs[-1][i], arcs[-2][i], arcs[k][j]))
            lengths.append(length)
        members = [v for group in groups for v in group.members]
        self.copy_to([*members, *helpers], dict.fromkeys(members, 0.0), Step(-1, arcs[-1][0]))
        return Group([*members, *helpers], arcs[-1][0])

    def extend(self, group: Group, other: Group, step: Step) -> None:
        """Add the steps by which the members of a group get a sum: the nearest members of another group send the piece.

        Equally near ones take turns. Members that are joined to none get copies.
        """
        takes_s = self.takes_s[np.ix_(other.members, group.members)]
        nearest_s = takes_s.min(axis=0)
        turn = (np.arange(len(other.members))[:, None] - np.arange(len(group.members))) % len(other.members)
        chosen = np.where(takes_s <= nearest_s * (1 + 1e-9), turn, len(turn)).argmin(axis=0)
        have = {}
        for v, u, seconds in zip(group.members, chosen.tolist(), nearest_s.tolist(), strict=True):
            if seconds < np.inf:
                have[v] = seconds
                self.steps.append(step._replace(node=v, sender=other.members[u], copy=False))
        self.copy_to(group.members, have, step)

    def copy_to(self, members: list[int], have_s: dict[int, float], step: Step) -> None:
        """Add copies of a sum to all members that the members in ``have_s``, which have it from then on, reach."""
        self.steps += [step._replace(node=v, sender=u) for v, u, _ in self.spread(members, have_s)]

    def spread(self, members: list[int], have_s: dict[int, float]) -> list[tuple[int, int, float]]:
        """(node, sender, seconds): who gets a copy from whom, and when; the earliest first.

        A sender sends one message at a time.
        """
        free_s = np.array([have_s.get(v, np.inf) for v in members])
        lacks, copies = free_s == np.inf, list[tuple[int, int, float]]()
        takes_s = np.where(lacks, self.takes_s[np.ix_(members, members)], np.inf)
        for _ in range(np.count_nonzero(lacks)):
            j, k = divmod(int((free_s[:, None] + takes_s).argmin()), len(members))
            come_s = float(free_s[j] + takes_s[j, k])
            if come_s == np.inf:
                break
            copies.append((members[k], members[j], come_s))
            free_s[j] += self.size * self.network.per_byte[self.pipe[members[j], members[k]]]
            free_s[k], takes_s[:, k] = come_s, np.inf
        return copies

    def pace(self, groups: Sequence[Group]) -> tuple[float, float]:
        """Seconds between two messages to a rank on a circle, 0 where they share no link, and that a message takes."""
        v = groups[0].members[0]
        pipes = np.array([self.pipe[min(g.members, key=lambda u: self.takes_s[u, v]), v] for g in groups[1:]])
        pipes = pipes[pipes >= 0]
        if not len(pipes):
            return 0.0, 1.0
        links, busy_s = self.network.hops.take(pipes).values, self.size * self.network.per_byte[pipes[0]]
        gap_s = float(busy_s) if len(np.unique(links)) < len(links) else 0.0
        return gap_s, float(self.network.latency_s[pipes[0]] + busy_s)
