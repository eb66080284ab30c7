"""AllReduce on circles, for when messages cost: a port sends one message at a time, whoever receives it.

Ranks get larger and larger sums on circles of near ranks, then of groups (:mod:`.arcs`). How wide circles are is tried,
and how many members of each group take part in the widest one: the others get copies of the result. The order of the
messages, and who sends each, is searched move by move (:mod:`..kernel_orders`): what nobody needs is left out, copies
go out while others still sum, and a sum may come as a copy from within a group instead of in pieces over slow links.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....kernels import at_speed
from ....kernels.chunks import Chunks
from ....kernels.pipes import Lists
from ....model.arrays import Int64, Ragged
from ....model.collective import Workload
from ....model.plan import COPY, REDUCE, Plan, make_plan
from ....model.variants import seen_by
from ....schedule.effort import Budget
from ....schedule.moments import charged, ends
from ....schedule.pipes import build_network
from ...registry import Request
from .. import kernel_orders
from ..kernel_orders import LACKS, Deliveries, copied
from .arcs import Circles, Group, Shape, Step

NEAR, ANY = 1.25, math.inf
SHAPES = (
    Shape(ANY, NEAR, NEAR), Shape(ANY, NEAR, ANY), Shape(2, NEAR, NEAR), Shape(4, NEAR, NEAR), Shape(ANY, ANY, ANY),
    Shape(2, ANY, ANY), Shape(4, ANY, ANY),
)  # fmt: skip
"""Shapes of circles that are tried."""

CROSSING = (1, 2, 4, 6)
"""Numbers of members of each group that take part in the widest circle, tried besides all members."""

SEARCHED = 3
"""How many orders are improved by moves, the best ones."""

MOST_LOOKS = 2e6
"""Pipes that may be looked at to improve an order. On the same networks five times as many end 0.02 % sooner."""

BUDGET_SHARE = 0.15
"""Share of the steps that are left which circles may spend. On 21 networks with uneven servers, leaves and rails 0.4
ends 0.2 % sooner, but leaves too little for trees among 100 ranks."""

LOOKS_SHARE = 0.2
"""Share of the steps that are left which one order may take to be improved."""


def plan_circles(request: Request) -> Plan | None:
    """A timed plan of a single AllReduce whose chunk is not cut; the budget has the planner's costs.

    Returns:
        None where pipes do not join all ranks both ways, or the chunk is cut.
    """
    topology, workload, budget = request.topology, request.workload, request.budget.share(BUDGET_SHARE)
    ranks, size = workload.collectives[0].ranks.tolist(), float(workload.chunk_bytes[0])
    if workload.chunk_count > 1:
        return None
    network = build_network(seen_by(topology, size), size, True, budget.units("look"))
    helpers = [v for v in topology.accelerators.tolist() if v not in ranks]
    orders: dict[tuple[Step, ...], _Order] = {}
    for shape in SHAPES:
        if orders and budget.exhausted:
            break
        circles = Circles.of(network, size, topology.bandwidth, request.one_order)
        whole = circles.join_all(ranks, helpers, shape)
        budget.spend(sum=len(circles.steps))
        for steps in _ways(circles, whole, ranks) if whole is not None else ():
            if steps not in orders:
                orders[steps] = _Order.of(circles, steps, ranks).improved(0.0, budget, request.seed)
    whole_sums = [order for order in orders.values() if order.end_s < np.inf]
    best = sorted(whole_sums, key=lambda order: order.end_s)[:SEARCHED]
    best = [order.improved(MOST_LOOKS, budget, request.seed) for order in best]
    if not best:
        return None
    return charged(min(best, key=lambda order: order.end_s).plan(workload), topology)


def _ways(circles: Circles, whole: Group, ranks: Collection[int]) -> Iterator[tuple[Step, ...]]:
    """Steps that give all ranks the whole sum: on the widest circle, by all ranks or by some of each group."""
    copies, groups = Counter[int](), defaultdict[int, list[tuple[float, int]]](list)
    for step in circles.steps[circles.widest :]:
        copies[step.node] += step.copy
        if step.total == whole.total and not step.copy and step.node in ranks:
            groups[step.before].append((float(circles.takes_s[step.sender, step.node]), step.node))
    nearest = [sorted((copies[v], seconds, v) for seconds, v in group) for group in groups.values()]
    yield _needed(circles, whole, [v for v in whole.members if v in ranks], ranks)
    for count in CROSSING if nearest else ():
        yield _needed(circles, whole, [v for group in nearest for _, _, v in group[:count]], ranks)


def _needed(circles: Circles, whole: Group, finals: Sequence[int], ranks: Collection[int]) -> tuple[Step, ...]:
    """The steps by which the ranks ``finals`` get the whole sum, and the other ranks then copies; in order of time."""
    needed, kept = {(v, whole.total) for v in finals}, list[Step]()
    for step in reversed(circles.steps):
        if (step.node, step.total) in needed:
            kept.append(step)
            needed |= {step.comes} if step.copy else {step.comes, (step.node, step.before)}
    at_s: dict[tuple[int, int], float] = {}
    for step in reversed(kept):
        come_s = at_s.get(step.comes, 0.0) + float(circles.takes_s[step.sender, step.node])
        at_s[step.node, step.total] = max(come_s, at_s.get((step.node, step.before), 0.0))
    copies = circles.spread(whole.members, {v: at_s.get((v, whole.total), 0.0) for v in finals})
    senders = {u for _, u, _ in copies}
    for v, u, seconds in copies:
        if v in ranks or v in senders:
            kept.append(Step(v, whole.total, sender=u))
            at_s[v, whole.total] = seconds
    return tuple(sorted(kept, key=lambda step: (at_s[step.node, step.total], step.total, step.node)))


@dataclass(frozen=True)
class _Order:
    """Deliveries of sums in an order, and how they are made."""

    circles: Circles
    made: Deliveries
    order: Int64  # int64[any], the deliveries that are made

    @classmethod
    def of(cls, circles: Circles, steps: Sequence[Step], ranks: Collection[int]) -> _Order:
        node, total, before, piece, _, _ = (np.array(column) for column in zip(*steps, strict=True))
        count, wanted = len(steps), (total == total.max()) & np.isin(node, list(ranks))
        made = Deliveries(
            total, node, wanted, np.full(count, -1), np.full(count, LACKS), np.zeros(count), np.zeros(count), before,
            piece, np.full(count, LACKS),
        )  # fmt: skip
        return cls(circles, made, np.arange(count))

    @property
    def end_s(self) -> float:
        """When the last rank has the whole sum, infinite where one never has."""
        return float(self.made.arrival_s[self.made.wanted].max())

    def improved(self, most_looks: float, budget: Budget, seed: int) -> _Order:
        """The order, improved by moving deliveries while that gains. With ``most_looks`` 0 the order stays, and each
        delivery gets its pipe and its time."""
        network, rank_of = self.circles.network, self.circles.rank_of
        most_looks = min(most_looks, budget.share(LOOKS_SHARE).units("look"))
        holders = Ragged.of([[v] if v >= 0 else [] for v in rank_of])
        chunks = Chunks(
            np.full(len(rank_of), self.circles.size), np.zeros(len(rank_of)), holders.offsets,
            holders.values.astype(np.int64),
        )  # fmt: skip
        made = copied(self.made)
        order, looks = at_speed(kernel_orders.improve, max(most_looks, 100.0 * len(self.order)))(
            network.columns, Lists(*network.into), network.topology.link_count, chunks,
            np.zeros(len(rank_of), dtype=np.int64), made, most_looks, seed & 0x7FFFFFFF,
        )  # fmt: skip
        budget.spend(look=looks, sum=len(self.order))
        return replace(self, made=made, order=order)

    def plan(self, workload: Workload) -> Plan:
        """A plan of the deliveries that the wanted ones need."""
        made, network = self.made, self.circles.network
        node, parent, onto = (column.tolist() for column in (made.node, made.parent, made.onto))
        needed = made.wanted.copy()
        for k in self.order[::-1].tolist():
            if needed[k]:
                needed[[j for j in (parent[k], onto[k]) if j >= 0]] = True
        rows = self.order[needed[self.order]]
        place = {k: t for t, k in enumerate(rows.tolist())}
        brought: dict[int, list[int]] = {}  # by delivery the transfers to its node that its sum is made of
        written, last_copy = defaultdict[int, list[int]](list), dict[int, list[int]]()  # by node
        after = []
        for k, t in place.items():
            v, before = node[k], brought.get(parent[k], [])
            if onto[k] == LACKS:
                after.append(sorted({*before, *written[v]}))
                last_copy[v], brought[k] = [t], [*written[v], t]
            else:
                after.append(sorted({*before, *last_copy.get(v, [])}))
                brought[k] = [*brought.get(onto[k], []), t]
            written[v].append(t)
        start_s, pipes = made.start_s[rows], made.pipe[rows]
        return make_plan(
            network.topology,
            workload,
            "timed",
            chunk=np.zeros(len(rows), dtype=np.int64),
            src=network.src[pipes],
            op=np.where(made.onto[rows] == LACKS, COPY, REDUCE),
            dst=Ragged.single(network.dst[pipes].astype(np.int32)),
            route=network.hops.take(pipes),
            depends=Ragged.of(after),
            start_s=start_s,
            finish_s=ends(start_s, self.circles.size * network.per_byte[pipes]),
        )
