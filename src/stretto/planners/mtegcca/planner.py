"""MTEGCCA: AllGather, Broadcast and multicast by trees on a multicast time-expanded graph.

Liu, Wang, Ma, Li, Li, "Multicast time-expanded graph-based collective communication scheduling
algorithm", Journal on Communications 2026, section 2. A collective is a set of multicast tasks
(step 1), sorted by data, largest first (step 2). For each task a tree is grown on the
time-expanded graph by Takahashi-Matsuyama (step 3), and the link-slots that it uses are gone for
those after it (step 4).

The graph is searched implicitly, by a compiled kernel for any size; :mod:`.mteg` builds it
explicitly for small cases, to look at and to compare.
"""

from __future__ import annotations

from time import monotonic as clock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...model.arrays import Ragged
from ...model.collective import Workload
from ...model.errors import InputError
from ...model.plan import Plan, make_plan
from ...model.topology import Topology
from ...schedule.multicast import Grown, grow_implicitly, slot_seconds, task_order, tree_steps
from .. import Candidate, Option, Progress, over_links, per_delivery, register

RULES = {"earliest": (0.0, 0.0), "nearest": (1.0, 0.0), "thrifty": (0.0, 2.0), "balanced": (0.5, 2.0)}
"""How a tree grows: (nearness, thrift), see :func:`stretto.schedule.kernel_multicast.grow_trees`."""

AUTO = (("earliest", "interleaved"), ("thrifty", "interleaved"), ("balanced", "interleaved"), ("thrifty", "rank"))
"""What ``tree=auto`` tries, in this order; the first of the best is kept."""

REPRICED = (("thrifty", "interleaved"), ("balanced", "interleaved"))
"""What later rounds grow again at new prices, in turn."""

REPRICING = 0.5
"""How strongly a link's use changes its price from round to round; measured, 2 is worse."""

MOST_ROUNDS, ROUNDS_WORK, ONE_ROUND_WORK = 32, 50_000, 150_000
"""As many rounds as fit the work, at most 32; one where that many steps are not exceeded."""

OPTIONS = (
    Option(
        "graph", str, "implicit", "search the graph implicitly, or build it (small cases)", ("implicit", "explicit")
    ),
    Option("tree", str, "auto", "which destination a tree attaches next; auto tries several", ("auto", *RULES)),
    Option("time", str, "continuous", "exact times, or the paper's slots, rounded up", ("continuous", "slots")),
    Option(
        "order", str, "interleaved", "tasks of equal size: round the ranks, or rank after rank", ("interleaved", "rank")
    ),
    Option("rounds", int, -1, "how often to grow again with busy links dearer; -1 for as often as is quick"),
    Option("slots", int, 0, "H of the explicit graph; 0 for as many as it takes"),
)


@register(
    "mtegcca",
    collectives=("allgather", "broadcast", "multicast"),
    topologies="any without planes",
    paper="Liu et al., Journal on Communications 2026, section 2",
    options=OPTIONS,
    serves=over_links,
    auto=Candidate(70, per_delivery(15, first=10_000)),
    tune=20,
)
def mtegcca(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    graph: str = "implicit",
    tree: str = "auto",
    time: str = "continuous",
    order: str = "interleaved",
    rounds: int = -1,
    slots: int = 0,
) -> Plan:
    """Multicast trees on a time-expanded graph, one task after the other.

    Args:
        seed: taken for uniformity; nothing is random.
        time_limit_s: no new try is begun after it.
        graph: "implicit", or "explicit" to build the graph (needs ``time="slots"``).
        tree: "earliest" attaches the destination that is reached first, "nearest" the one with
            the shortest path from the tree (the paper's words), "thrifty" and "balanced" also
            count link time as a cost; "auto" grows several and keeps the plan that ends first.
        time: "continuous", or "slots" of the duration of a chunk on the fastest link.
        order: how tasks of equal size take turns ("auto" tries both).
        rounds: how often to grow all trees again at prices that make busy links dearer; -1 for as
            often as is quick (with ``tree="auto"``, else never). The best plan of all is kept.
        slots: H of the explicit graph, 0 for as many as it takes.
    Returns:
        A timed plan.
    Raises:
        Infeasible: some rank has no path from the source.
    """
    slot = slot_seconds(topology, workload) if time == "slots" else None
    if graph == "explicit":
        from . import expanded as mteg

        if slot is None or tree not in ("earliest", "nearest"):
            raise InputError("the explicit graph needs time=slots and tree=earliest or nearest", "--option graph")
        grown, _ = mteg.grow_trees(topology, workload, task_order(workload, order), slot, tree == "nearest", slots)
        return trees_to_plan(topology, workload, grown, {"tree": tree, "order": order})
    tries: tuple[tuple[str, str], ...] = AUTO if tree == "auto" else ((tree, order),)
    if tree == "auto" and all(len(c.piece_bytes) == c.chunk_count for c in workload.collectives):
        tries = tuple(t for t in tries if t[1] == "interleaved")
    work = tree_steps(topology, workload)
    if rounds < 0:
        rounds = min(MOST_ROUNDS, max(ROUNDS_WORK // work, int(work <= ONE_ROUND_WORK))) if tree == "auto" else 0
    started = clock()
    best: tuple[float, Grown, dict[str, Any]] | None = None
    prices: dict[str, NDArray[np.float64]] = {}
    for i in range(len(tries) + rounds):
        if best is not None and time_limit_s is not None and clock() - started > time_limit_s:
            break
        again = i - len(tries)
        rule, turns = tries[i] if again < 0 else REPRICED[again % len(REPRICED)]
        nearness, thrift = RULES[rule]
        flat = np.full(topology.link_count, thrift)
        price = flat if again < 0 else prices.get(rule, flat)
        if progress is not None:
            progress(i, len(tries) + rounds, f"{rule} trees")
        tasks = task_order(workload, turns)
        grown, finish = grow_implicitly(topology, workload, tasks, slot, nearness, price, work * (len(tries) + rounds))
        if best is None or finish < best[0]:
            best = finish, grown, {"tree": rule, "order": turns, "round": max(again + 1, 0)}
        if (rule, turns) in REPRICED:
            prices[rule] = _repriced(topology, workload, price, grown, finish)
    assert best is not None
    return trees_to_plan(topology, workload, best[1], best[2])


def _repriced(
    topology: Topology, workload: Workload, price: NDArray[np.float64], grown: Grown, finish: float
) -> NDArray[np.float64]:
    """float64[links]: links dearer the more they were used, cheaper the less; the mean price stays.

    Trees grown at these prices leave the bottleneck where another way is near as good: the
    multiplicative weights of fractional packing.
    """
    if finish <= 0:
        return price
    (chunk, *_), _, _, (hop_pass, hop) = grown
    busy = np.bincount(hop, weights=workload.chunk_bytes[chunk[hop_pass]], minlength=topology.link_count)
    use = busy / topology.bandwidth / finish
    changed = price * np.exp(REPRICING * (use - use.mean()))
    scaled: NDArray[np.float64] = changed * (price.mean() / changed.mean())
    return scaled


def trees_to_plan(topology: Topology, workload: Workload, grown: Grown, meta: dict[str, Any]) -> Plan:
    """The passes of all trees as a timed plan, in the order in which they start.

    Args:
        grown: what :func:`stretto.schedule.kernel_multicast.grow_trees` returns, times in seconds.
    """
    (chunk, src, parent), (start_s, _), (hit_pass, hit), (hop_pass, hop) = grown
    n = len(chunk)
    # a child starts no earlier than its parent, and has the higher index at equal times
    order = np.argsort(start_s, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    parent = parent[order]
    has_parent = parent >= 0
    depends = Ragged(
        np.concatenate(([0], np.cumsum(has_parent))).astype(np.int64),
        rank[parent[has_parent]].astype(np.int32),
    )
    dst, route = _by_pass(rank[hit_pass], hit, n), _by_pass(rank[hop_pass], hop, n)
    # bytes that the slots leave idle are not sent slower: a transfer runs at the route's own speed
    slowest = topology.route_bandwidth(route)
    chunk = chunk[order]
    start_s = start_s[order]
    return make_plan(
        topology,
        workload,
        "timed",
        chunk=chunk,
        src=src[order],
        dst=dst,
        route=route,
        depends=depends,
        start_s=start_s,
        finish_s=start_s + workload.chunk_bytes[chunk] / slowest,
        meta=meta,
    )


def _by_pass(passes: NDArray[Any], values: NDArray[Any], n: int) -> Ragged:
    """Ragged lists of ``values`` by their pass, each in its given order."""
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(passes, minlength=n), out=offsets[1:])
    return Ragged(offsets, values[np.argsort(passes, kind="stable")].astype(np.int32))
