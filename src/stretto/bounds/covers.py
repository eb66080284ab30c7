"""A bound for AllReduce by prices that bytes pay when they cross: early bytes are not full sums, late ones serve few.

Let S1 be a set of nodes and S2 a part of it, U some ranks outside S1 and V some ranks inside S2. For each byte of the
buffer, every v of V gets what every u of U contributes by a chain of transfers. A chain enters S1 for the first time
over some link e1, and S2 for the last time over some link e2: the same link, or one that is entered later by at least
some delay. What is a crossing good for?

- What crosses a link into S1 at time t can *carry* the contributions of those u who can have come to the beginning of
  that link by t, on ways outside S1. (Where the link begins at a node that does not sum: of those whom one node has
  sent there.)
- What crosses a link into S2 at time t can *serve* those v who can be reached from there before the end T, on ways
  inside S2.

Choose a moment s. Crossings into S1 before s are *early*; crossings into S2 later than s and the delay are *late*.
Either the early crossings together carry all of U. Or there is a u whom no early first crossing carries: then its
chains to all v cross late, so that the late crossings together serve all of V.

Now give links into S1 prices by the time since the start, up to s, and links into S2 prices by the time that is left. A
*cover* is a set of early crossings that carries all of U, or of late ones that serves all of V. If every cover costs C
or more, each byte pays C or more, and so

    bytes x C <= sum over links of bandwidth x price, over time

for whoever ends at T: a lower bound on T.

A byte does not cross in fractions, so covers are sought in whole numbers. :mod:`stretto.bounds.reach` allows fractions,
and is weaker where no rank is near to all others but two ranks together are: what crosses by then must cross twice.

Prices are found by a linear program. Its rows are covers: the cheapest ones at the prices so far, added until none is
cheaper. This takes tenths of a second, or seconds among many ranks, so ``bounds`` does not ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from ..solvers import INFINITY, Model, solve
from .latency import distances
from .parts import partitions
from .reach import least

Written = tuple[list[float], dict[int, list[int]], list[int]]

MOST_RANKS = 256
"""Ranks up to which prices are looked for."""

MOST_ENDS = 8
"""The most ranks that are to be covered on each side; they are those that are farthest from the links."""

MOST_LEVELS = 12
"""The most moments at which prices change; a crossing between two counts as if it came as late as the next."""

MOST_PAIRS = 2
"""How many pairs of servers or sites are tried, for each way to tell servers or sites apart."""

MOST_TIMES = 20_000_000
"""The largest table of times at which links can carry contributions: links x nodes x ranks."""

ROUNDS = 60
"""How often at most cheaper covers are looked for."""

TINY = 1e-6
"""By what share covers may still be too cheap, and what is added to each price while covers are looked for."""

SAME_S = 1e-13
"""Moments less than this apart are the same."""

FINEST = 1 << 20
"""The price, in whole numbers, of what covers all by itself."""

DEAR = FINEST << 10
"""The cost of a cover where there is none."""


@dataclass(frozen=True)
class Prices:
    """Prices of links."""

    link: Int64  # int64[links]
    # float64[levels], from when on the prices of each level hold: seconds since the start, or before the end
    at_s: Float64
    price: Int64  # int64[links, levels]
    ranks: tuple[int, ...]  # those that are to be covered


@dataclass(frozen=True)
class Covers:
    """A bound by prices.

    Attributes:
        first, last: the nodes of S1 and of S2.
        early: the prices of links into S1; after the last moment nothing is paid.
        late: the prices of links into S2.
    """

    seconds: float
    first: tuple[int, ...]
    last: tuple[int, ...]
    early: Prices
    late: Prices

    @property
    def certificate(self) -> tuple[Written, Written]:
        """The moments, the prices of each link and the ranks to be covered, early and late, as plain numbers."""
        early, late = (
            (p.at_s.tolist(), dict(zip(p.link.tolist(), p.price.tolist(), strict=True)), list(p.ranks))
            for p in (self.early, self.late)
        )
        return early, late


def covers_bound(topology: Topology, collective: Collective, from_s: float = 0.0) -> Covers | None:
    """The best bound of this kind between two sites or servers.

    Args:
        from_s: seconds, another bound; only better ones are looked for.
    Returns:
        None where it says nothing, is no better, or there are too many ranks.
    """
    c = collective
    if not c.traits.reduces_to_all or topology.planes or len(c.ranks) > MOST_RANKS:
        return None
    near = distances(topology, 0.0)
    back = partitions(replace(topology, src=topology.dst, dst=topology.src), c.ranks)
    best: Covers | None = None
    for left, entered in zip(back, partitions(topology, c.ranks), strict=True):
        if len(left) != len(entered) or len(left) == len(c.ranks):
            continue
        pairs = list(permutations(range(len(left)), 2))
        pairs = [(a, b) for a, b in pairs if not (left[a] & entered[b]).any()]
        # of many pairs those that are farthest apart
        far = [-float(near[np.ix_(c.ranks[left[a][c.ranks]], c.ranks[entered[b][c.ranks]])].mean()) for a, b in pairs]
        for k in np.argsort(far, kind="stable")[:MOST_PAIRS].tolist():
            a, b = pairs[k]
            found = _between(topology, c, ~left[a], entered[b], near, from_s)
            if found is not None:
                best, from_s = found, found.seconds
    return best


def _between(topology: Topology, c: Collective, first: Bool, last: Bool, near: Float64, from_s: float) -> Covers | None:
    """The best bound for one pair of sets, if it is better than ``from_s``."""
    into_first = np.flatnonzero(~first[topology.src] & first[topology.dst])
    into_last = np.flatnonzero(~last[topology.src] & last[topology.dst])
    width = topology.bandwidth[into_last]
    if not len(into_first) or not len(into_last):
        return None
    if len(into_first) * topology.node_count * len(c.ranks) > MOST_TIMES:
        return None
    # before it first enters S1 nothing was inside, and after it last enters S2 nothing leaves
    senders, receivers = c.ranks[~first[c.ranks]], c.ranks[last[c.ranks]]
    come, holders = _farthest(_carried(topology, into_first, senders, _among(topology, ~first)), senders)
    way = _among(topology, last)[np.ix_(topology.dst[into_last], receivers)]
    reach = (topology.latency_s[into_last][:, None] + way)[:, None, :]
    serve, served = _farthest(reach, receivers)
    delay_s = least_delay(topology, into_first, into_last, near)
    # when some link can carry all, or all links can
    whole_s = come.max(axis=2).min(axis=1)
    once_s = c.size_bytes / float(width.sum())
    # the most that prices could prove: nothing is paid until all can be carried, or once all must be served
    if c.start_s + whole_s.max() + delay_s + once_s + serve.min(axis=1).max() <= from_s:
        return None
    late = _priced(serve, width, once_s)
    if late is None:
        return None
    late_s, late_price, serves = late
    best: Covers | None = None
    for until_s in np.unique([whole_s.min(), whole_s.max()]):
        early = _priced(np.minimum(come, until_s), topology.bandwidth[into_first], 0.0)
        if early is None:
            continue
        early_s, early_price, carries = early
        paid = float(topology.bandwidth[into_first] @ early_price[:, :-1] @ np.diff(early_s))
        needed = float(c.size_bytes) * min(carries, serves) - paid
        if needed <= 0:
            continue
        # links into S2 are paid from the last of the early moments on
        more = np.diff(late_price, axis=1, prepend=0)
        at = np.broadcast_to(early_s[-1] + delay_s + late_s, more.shape)
        seconds = c.start_s + least(at.ravel(), (width[:, None] * more).ravel(), needed)
        if seconds > from_s:
            from_s = seconds
            best = Covers(
                seconds,
                tuple(np.flatnonzero(first).tolist()),
                tuple(np.flatnonzero(last).tolist()),
                Prices(into_first, early_s, early_price, tuple(holders.tolist())),
                Prices(into_last, late_s, late_price, tuple(served.tolist())),
            )
    return best


def _among(topology: Topology, nodes: Bool) -> Float64:
    """float64[nodes, nodes]: least seconds from node to node, over links that join two of some nodes."""
    kept = nodes[topology.src] & nodes[topology.dst]
    return distances(topology.with_links(kept), 0.0)


def least_delay(topology: Topology, into_first: Int64, into_last: Int64, near: Float64) -> float:
    """Seconds from when anything begins to enter S1 until it can begin to enter S2, at the least."""
    if np.isin(into_first, into_last).any():
        return 0.0
    between = near[np.ix_(topology.dst[into_first], topology.src[into_last])]
    return float((topology.latency_s[into_first][:, None] + between).min())


def _carried(topology: Topology, links: Int64, ranks: Int32, near: Float64) -> Float64:
    """float64[links, senders, ranks]: when a link can carry a rank's contribution in what one sender has sent."""
    at = topology.src[links]
    stored = topology.adds[at]
    senders = np.flatnonzero(topology.adds)
    found = np.full((len(links), 1 if stored.all() else len(senders), len(ranks)), np.inf)
    # a node that adds can send a sum of all that came to it
    found[stored, 0] = near[np.ix_(ranks, at[stored])].T
    if not stored.all():
        found[~stored] = near[np.ix_(senders, at[~stored])].T[:, :, None] + near[np.ix_(ranks, senders)].T
    return found


def _farthest(times: Float64, ranks: Int32) -> tuple[Float64, Int32]:
    """The times, and the ranks, for those ranks only that all links together take longest to cover."""
    order = np.argsort(-times.min(axis=1).mean(axis=0), kind="stable")[:MOST_ENDS]
    return times[:, :, order], ranks[order]


def _priced(times: Float64, width: Float64, last_s: float) -> tuple[Float64, Int64, int] | None:
    """The prices that cost least for all links over time, and what the cheapest cover costs at these.

    Args:
        times: float64[links, senders, ranks], from when on a link covers a rank.
        width: float64[links], bytes/s.
        last_s: for how long the prices of the last moment hold; 0 if nothing is paid or covered then.
    Returns:
        The moments; the prices, int64[links, moments]; the cost. None if some link never covers some rank, or there is
        one moment only.
    """
    at_s = np.unique(np.round(times[np.isfinite(times)] / SAME_S)) * SAME_S
    if len(at_s) < 2 or not np.isfinite(times.min(axis=1)).all():
        return None
    if len(at_s) > MOST_LEVELS:
        at_s = np.unique(np.quantile(at_s, np.linspace(0.0, 1.0, MOST_LEVELS), method="nearest"))
    # which ranks a link covers before the next moment
    within = times[..., None] < np.append(at_s[1:] - SAME_S, np.inf)
    levels = len(at_s) if last_s > 0 else len(at_s) - 1
    bits = (within.transpose(0, 3, 1, 2) @ (1 << np.arange(times.shape[2])))[:, :levels]
    # links that cover the same at all times share their prices
    kinds, kind = np.unique(np.sort(bits, axis=2).reshape(len(bits), -1), axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    sets = kinds.reshape(len(kinds), levels, -1)
    seconds = np.append(np.diff(at_s), last_s)[:levels]
    weight = np.bincount(kind, width)[:, None] * seconds
    problem = _Covering.of(sets, times.shape[2])
    price = problem.prices(weight / weight.max())
    whole = np.minimum.accumulate(np.ceil(price * FINEST)[:, ::-1], axis=1)[:, ::-1].astype(np.int64)
    found = np.zeros((len(bits), len(at_s)), dtype=np.int64)
    found[:, :levels] = whole[kind]
    return at_s, found, int(min(problem.cheapest(whole.ravel().astype(np.float64))[0][-1], DEAR))


@dataclass(frozen=True)
class _Covering:
    """Sets of few elements, as bits; several sets may share one price."""

    sets: Int64  # int64[sets], the elements of each as bits
    owner: Int64  # int64[sets], the number of the price of each
    shape: tuple[int, int]  # that of the prices
    full: int  # the set of all elements

    @classmethod
    def of(cls, sets: Int64, elements: int) -> _Covering:
        owner = np.repeat(np.arange(sets.shape[0] * sets.shape[1]), sets.shape[2])
        each = np.unique(np.stack((sets.ravel(), owner)), axis=1)
        each = each[:, each[0] > 0]
        return cls(each[0], each[1], sets.shape[:2], (1 << elements) - 1)

    def cheapest(self, price: Float64) -> tuple[Float64, Int64]:
        """For each set of elements (as bits) what the cheapest sets that cover it cost, and the first of these sets."""
        cost = price[self.owner]
        least, by = np.zeros(self.full + 1), np.full(self.full + 1, -1)
        having = [np.flatnonzero(self.sets >> k & 1) for k in range(self.full.bit_length())]
        for state in range(1, self.full + 1):
            some = having[(state & -state).bit_length() - 1]
            paid = cost[some] + least[state & ~self.sets[some]]
            k = int(np.argmin(paid)) if len(paid) else -1
            least[state], by[state] = (paid[k], some[k]) if k >= 0 else (np.inf, -1)
        return least, by

    def prices(self, weight: Float64) -> Float64:
        """The prices of the least total weight at which every cover costs 1 or more, or nearly."""
        covers: list[Int64] = []
        price = np.zeros(weight.size)
        for _ in range(ROUNDS):
            # of equally cheap covers take those with the fewest sets
            least, by = self.cheapest(price + TINY)
            paid = price[self.owner] + least[self.full & ~self.sets]
            order = np.lexsort((paid, self.owner))
            firsts = order[np.flatnonzero(np.diff(self.owner[order], prepend=-1))]
            fresh = [self._cover(int(k), by) for k in firsts[paid[firsts] < 1.0 - TINY]]
            if not fresh:
                break
            covers += fresh
            model = Model()
            columns = model.columns(weight.size, 0.0, 1.0, weight.ravel())
            row = np.repeat(np.arange(len(covers)), [len(own) for own in covers])
            model.rows(len(covers), 1.0, INFINITY, (row, columns[np.concatenate(covers)], 1.0))
            found = solve(model)
            assert found.x is not None, "prices of 1 are enough"
            price = np.clip(found.x, 0.0, 1.0)
        return price.reshape(self.shape)

    def _cover(self, first: int, by: Int64) -> Int64:
        """Which prices the cheapest cover pays that one given set belongs to."""
        chosen, left = [int(self.owner[first])], self.full & ~int(self.sets[first])
        while left:
            k = int(by[left])
            chosen.append(int(self.owner[k]))
            left &= ~int(self.sets[k])
        return np.array(chosen, dtype=np.int64)
