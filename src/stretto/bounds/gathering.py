"""A bound for ranks that want data of many holders where messages cost: few messages hold little, so bytes come late.

Take a rank v that wants B bytes which others hold, each holder at most a of them. Let F(t) be how many of these bytes
any one node can have by time t. What a node has beyond its own came in messages over the links into it. Let e be one of
these, of bandwidth b, latency l, and m for each message. A message of L bytes keeps e busy for m + L / b, and its
sender had all of them when it began: L <= F(x - d), where e begins to carry them at x and d is the least latency from
any node that sends to e. So what messages bring that have left e by time t is at most

    P_e(t) = max over x and L of P_e(x) + L,  where x + m + L / b <= t and L <= F(x - d)
    F(t) <= a + the largest, over nodes, of the sum over links e into it of P_e(t - l)

and v has B bytes no sooner than these sums for v allow. Messages that share e at a time take no less of it together: in
the order in which they begin, the last ones fill the time from the first of them on. One port alone gives
log n (m + l) + B / b for pieces of equal size, where each message may carry as much as its receiver has already.

In AllReduce and Reduce what counts is contributions: F(t) is the sum over all bytes of how many contributions to it a
node has. Let C(t) be how many contributions to one byte any node can have by time t, which is the same bound for
messages without bytes. A message of L bytes then brings L C(x - d) at most, and no more than F(x - d). A byte holds
many contributions only late, and then few messages make all bytes hold them.

Backwards in time the same holds of a rank whose data goes to many ranks (ReduceScatter, AllToAll, Scatter), if no
switch copies: F is then of how many pieces, in bytes, a node can still deliver in the rest of the time, and only these
are worth sending to it. A message holds a sum of several contributions in the bytes of one.

Where routers pass data on before it has come whole, nothing is said.

Time is cut into steps, and for a whole step the largest values are taken that occur in it. So nothing is too small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_size, format_time
from .latency import distances
from .messages import cost_at_ends
from .model import Bound

STEPS = 600
"""Steps of time. Twice as many raise the bound by 1 to 2 % and take four times as long."""

ROOM = 1.6
"""The steps cover this many times the other bounds: bytes and messages, one after the other, at most double them."""

LEAST_STEPS = 4
"""Steps of the shortest message, at least; else messages are so short that the bound says nothing new."""

MOST_KINDS = 4
"""Kinds of links that are told apart; where there are more, each counts as good as the best in every respect."""


def gathering_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The bound for each collective whose pieces have one holder, or one rank that wants them, or which is one sum.

    None if it says nothing.

    Args:
        from_s: seconds, another bound; this one is given only if it is larger.
    """
    if topology.planes or topology.changes or topology.is_router.any() or not cost_at_ends(topology):
        return None
    found = [_of(topology, c, from_s - c.start_s) for c in workload.collectives]
    best = max((each for each in found if each is not None), key=lambda bound: bound.seconds, default=None)
    return best if best is not None and best.seconds > from_s else None


def _of(topology: Topology, c: Collective, from_s: float) -> Bound | None:
    ends = []
    if c.reduces and len(c.piece_bytes) == 1 and not topology.reduces.any():
        held = np.zeros((len(c.ranks),) * 2)
        held[np.ix_(c.holders.values, c.wanted.values)] = c.piece_bytes[0]
        ends.append(_end(topology, c, held, from_s, turned=False))
    if not c.reduces and (c.holders.lengths == 1).all():
        ends.append(_end(topology, c, _held(c), from_s, turned=False))
    if (c.wanted.lengths == 1).all() and not topology.replicates.any() and not topology.reduces.any():
        backwards = replace(topology, src=topology.dst, dst=topology.src)
        ends.append(_end(backwards, c, _held(c).T, from_s, turned=True))
    best = max((end for end in ends if end is not None), default=None)
    if best is None:
        return None
    seconds, v, size = best
    cost = format_time(float(topology.message_s[topology.message_s > 0].min()))
    words = f"{format_size(size)} between {topology.names[v]} and many ranks, in messages of {cost} and their bytes"
    if c.reduces and len(c.piece_bytes) == 1:
        words = f"all contributions come to each byte at {topology.names[v]}, in messages of {cost} and their bytes"
    return Bound(c.start_s + seconds, "messages", words, (v,), ())


def _held(c: Collective) -> Float64:
    """float64[ranks, ranks], the bytes that the first one holds, or adds to, and the second one wants, where each piece
    has one holder or one rank that wants it."""
    if (c.holders.lengths == 1).all():
        piece, wants = c.wanted.owners, c.wanted.values
        has = c.holders.values[piece]
    else:
        piece, has = c.holders.owners, c.holders.values
        wants = c.wanted.values[piece]
    n = len(c.ranks)
    held = np.zeros(n * n)
    np.add.at(held, has.astype(np.int64) * n + wants, c.piece_bytes[piece])
    return held.reshape(n, n)


def _end(
    topology: Topology, c: Collective, held: Float64, from_s: float, turned: bool
) -> tuple[float, int, float] | None:
    """The bound in seconds after the start, the node that it is for, and the bytes that this needs of others.

    Args:
        held: float64[ranks, ranks], what the first one has for the second one; of a sum, what it contributes.
        turned: whether time runs backwards.
    """
    own = np.diagonal(held)
    needs = held.sum(axis=0) - own
    links = np.flatnonzero(topology.store_and_forward[topology.dst])
    if (held > 0).sum(axis=0).max() < 3 or not len(links) or from_s <= 0:
        return None
    steps, found = STEPS, None
    while steps == STEPS:  # all of them are not enough
        step_s = ROOM * from_s / STEPS
        if topology.message_s[links].min() < LEAST_STEPS * step_s:
            break
        model = _Model.of(topology, links, step_s, turned)
        grown = model.grown(len(c.ranks)) if c.reduces and not turned else np.ones(STEPS)
        came = model.come(float(held.max()), float(held.sum(axis=0).max()), grown)[:, c.ranks]
        enough = came >= needs * (1 - 1e-9)
        soonest = np.where(enough.any(axis=0), enough.argmax(axis=0), STEPS)
        k = int(soonest.argmax())
        steps, from_s = int(soonest[k]), STEPS * step_s
        found = max(steps - 1, 0) * step_s, int(c.ranks[k]), float(needs[k])
    return found


@dataclass(frozen=True)
class _Model:
    """Links into nodes that store, by their kind, in steps of time."""

    step_s: float
    kinds: Float64  # float64[kinds, 4]: m, b, l and d of each kind
    counts: Float64  # float64[nodes, kinds], how many links of each kind lead to a node

    @classmethod
    def of(cls, topology: Topology, links: Int64, step_s: float, turned: bool) -> _Model:
        sends = np.flatnonzero(topology.store_and_forward)
        near_s = distances(topology, 0.0)[np.ix_(sends, topology.src[links])]
        near_s[sends[:, None] == topology.dst[links]] = np.inf
        usable = np.isfinite(near_s.min(axis=0))
        links, near_s = links[usable], near_s[:, usable].min(axis=0)
        latency_s = topology.latency_s[links]
        # backwards a message fills its link after its latency, not before
        after_s, before_s = (0 * latency_s, near_s + latency_s) if turned else (latency_s, near_s)
        columns = topology.message_s[links], topology.bandwidth[links], after_s, before_s
        kinds, kind = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        if len(kinds) > MOST_KINDS:
            kinds = np.array([[kinds[:, 0].min(), kinds[:, 1].max(), kinds[:, 2].min(), kinds[:, 3].min()]])
            kind = np.zeros(len(links), dtype=np.int64)
        counts = np.zeros((topology.node_count, len(kinds)))
        np.add.at(counts, (topology.dst[links], kind.ravel()), 1.0)
        return cls(step_s, kinds, counts)

    def grown(self, ranks: int) -> Float64:
        """float64[steps]: how many contributions to one byte any node can have by the end of each step."""
        grown: Float64 = np.minimum(1.0 + self.come(1.0, ranks, None).max(axis=1), ranks)
        return grown

    def come(self, own: float, most: float, grown: Float64 | None) -> Float64:
        """float64[steps, nodes]: what messages can have brought to each node by the end of each step, in bytes (of
        sums: bytes times contributions).

        Args:
            own: what a node has at first, at most. most: what there is, of which a node can have any.
            grown: float64[steps], what each byte counts as, at most; None for messages that hold what their sender has,
                whatever bytes that takes.
        """
        message_s, bandwidth, latency_s, near_s = self.kinds.T
        # a message that ends in a step began this many steps before at the latest, and so on
        ago = np.ceil(message_s / self.step_s - 1e-9).astype(np.int64)
        late, near = (np.clip(s / self.step_s - 1e-9, 0, STEPS).astype(np.int64) for s in (latency_s, near_s))
        span_s = np.arange(STEPS + 1) * self.step_s
        left = np.zeros((len(ago), STEPS))  # P of each kind
        shown = np.zeros((len(ago), STEPS))  # F(x - d) for each kind
        counts_as = np.ones((len(ago), STEPS))  # C(x - d)
        came = np.zeros((STEPS, len(self.counts)))
        any_node = np.unique(self.counts, axis=0)
        for k in range(STEPS):
            for e in range(len(ago)):
                count = k + 2 - ago[e]
                if count > 0:
                    brought = shown[e, :count]
                    if grown is not None:
                        room = (span_s[ago[e] : k + 2][::-1] - message_s[e]) * bandwidth[e]
                        brought = np.minimum(brought, room[:count] * counts_as[e, :count])
                    left[e, k] = (left[e, :count] + brought).max()
            seen = np.array([left[e, k - late[e]] if k >= late[e] else 0.0 for e in range(len(ago))])
            came[k] = self.counts @ seen
            known = min(own + float((any_node @ seen).max()), most)
            for e in range(len(ago)):
                if k + near[e] < STEPS:
                    shown[e, k + near[e]] = known
                    counts_as[e, k + near[e]] = 1.0 if grown is None else grown[k]
        return came
