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

from .. import kernels
from ..collective import Ragged, Workload
from ..errors import Infeasible, InputError
from ..plan import Plan, make_plan
from ..topology import Topology
from . import Option, Progress, register

RULES = {"earliest": (0.0, 0.0), "nearest": (1.0, 0.0), "thrifty": (0.0, 2.0), "balanced": (0.5, 2.0)}
"""How a tree grows: (nearness, thrift), see :func:`stretto.kernels.trees.grow_trees`."""

AUTO = (("earliest", "interleaved"), ("thrifty", "interleaved"), ("balanced", "interleaved"), ("thrifty", "rank"))
"""What ``tree=auto`` tries, in this order; the first of the best is kept."""

OPTIONS = (
    Option(
        "graph", str, "implicit", "search the graph implicitly, or build it (small cases)", ("implicit", "explicit")
    ),
    Option("tree", str, "auto", "which destination a tree attaches next; auto tries several", ("auto", *RULES)),
    Option("time", str, "continuous", "exact times, or the paper's slots, rounded up", ("continuous", "slots")),
    Option(
        "order", str, "interleaved", "tasks of equal size: round the ranks, or rank after rank", ("interleaved", "rank")
    ),
    Option("restarts", int, 0, "with tree=auto, how many random orders of equal tasks to try too"),
    Option("slots", int, 0, "H of the explicit graph; 0 for as many as it takes"),
)


@register(
    "mtegcca",
    collectives=("allgather", "broadcast", "multicast"),
    topologies="any without planes",
    paper="Liu et al., Journal on Communications 2026, section 2",
    options=OPTIONS,
    serves=lambda topology, workload: "it plans over links, not optical planes" if topology.planes else None,
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
    restarts: int = 0,
    slots: int = 0,
) -> Plan:
    """Multicast trees on a time-expanded graph, one task after the other.

    Args:
        seed: of the random orders that ``restarts`` asks for; nothing else is random.
        time_limit_s: no new try is begun after it.
        graph: "implicit", or "explicit" to build the graph (needs ``time="slots"``).
        tree: "earliest" attaches the destination that is reached first, "nearest" the one with
            the shortest path from the tree (the paper's words), "thrifty" and "balanced" also
            count link time as a cost; "auto" grows several and keeps the plan that ends first.
        time: "continuous", or "slots" of the duration of a chunk on the fastest link.
        order: how tasks of equal size take turns ("auto" tries both).
        restarts: with ``tree="auto"``, random orders of equal tasks to try as well.
        slots: H of the explicit graph, 0 for as many as it takes.
    Returns:
        A timed plan.
    Raises:
        Infeasible: some rank has no path from the source.
    """
    slot = slot_seconds(topology, workload) if time == "slots" else None
    if graph == "explicit":
        from . import mteg

        if slot is None or tree not in ("earliest", "nearest"):
            raise InputError("the explicit graph needs time=slots and tree=earliest or nearest", "--option graph")
        grown, _ = mteg.grow_trees(topology, workload, task_order(workload, order), slot, tree == "nearest", slots)
        return trees_to_plan(topology, workload, grown, {"tree": tree, "order": order})
    best: tuple[float, Grown, dict[str, Any]] | None = None
    started = clock()
    tries = _tries(workload, tree, order, restarts, seed)
    for i, (rule, turns, tasks) in enumerate(tries):
        if best is not None and time_limit_s is not None and clock() - started > time_limit_s:
            break
        if progress is not None:
            progress(i, len(tries), f"{rule} trees")
        grown, finish = grow_implicitly(topology, workload, tasks, slot, *RULES[rule])
        if best is None or finish < best[0]:
            best = finish, grown, {"tree": rule, "order": turns}
    assert best is not None
    return trees_to_plan(topology, workload, best[1], best[2])


def _tries(
    workload: Workload, tree: str, order: str, restarts: int, seed: int
) -> list[tuple[str, str, NDArray[np.int64]]]:
    """What to grow: (rule, name of the order, tasks in order)."""
    if tree != "auto":
        return [(tree, order, task_order(workload, order))]
    whole = all(len(c.piece_bytes) == c.chunk_count for c in workload.collectives)
    tries = [(rule, turns, task_order(workload, turns)) for rule, turns in AUTO if turns == "interleaved" or not whole]
    rng = np.random.default_rng(seed)
    for i in range(restarts):
        tasks = task_order(workload, "random", rng)
        tries += [(rule, f"random {i}", tasks) for rule in ("thrifty", "balanced")]
    return tries


def task_order(workload: Workload, order: str, rng: np.random.Generator | None = None) -> NDArray[np.int64]:
    """int64[chunks], step 2: chunks by the data of their task, largest first.

    Tasks of equal size take turns chunk by chunk (``interleaved``), come one after the other
    (``rank``), or in any order (``random``, which needs ``rng``).
    """
    sizes: list[NDArray[Any]] = []
    turns: list[NDArray[Any]] = []
    for c in workload.collectives:
        sizes.append(c.piece_bytes[c.chunk_piece])
        index = np.arange(c.chunk_count)
        starts = np.searchsorted(c.chunk_piece, c.chunk_piece)
        if rng is not None:
            turns.append(rng.random(c.chunk_count))
            continue
        turns.append(index - starts if order == "interleaved" else np.zeros_like(index))
    return np.lexsort((np.arange(workload.chunk_count), np.concatenate(turns), -np.concatenate(sizes)))


def slot_seconds(topology: Topology, workload: Workload) -> float:
    """The paper's slot: the largest chunk on the fastest link (section 1.2, definition 1)."""
    return float(workload.chunk_bytes.max() / topology.bandwidth.max())


Grown = tuple[Any, ...]


def grow_implicitly(
    topology: Topology, workload: Workload, tasks: NDArray[np.int64], slot: float | None, nearness: float, thrift: float
) -> tuple[Grown, float]:
    """Trees for tasks in order, by the kernel, and when the last wanted chunk has arrived.

    Args:
        slot: the slot in seconds, None for continuous time.
        nearness, thrift: see :func:`stretto.kernels.trees.grow_trees`.
    Returns:
        What the kernel does, in seconds, and the finish.
    """
    work = float(len(tasks)) * topology.link_count
    kernel = kernels.load("trees", work)
    out_offsets, out_links = topology.out_links
    unit = slot or 1.0
    latency = topology.latency_s / unit
    start = workload.chunk_start_s / unit
    if slot is not None:
        latency, start = np.ceil(latency - 1e-9), np.ceil(start - 1e-9)
    holders, wanted = workload.chunk_holders, workload.chunk_wanted
    passes, times, hits, hops, unreached, finish = kernel.grow_trees(
        out_offsets, out_links.astype(np.int64), topology.src.astype(np.int64), topology.dst.astype(np.int64),
        1.0 / (topology.bandwidth * unit), latency, topology.kind, topology.replicates,
        tasks, workload.chunk_bytes.astype(np.float64), start,
        holders.offsets, holders.values.astype(np.int64), wanted.offsets, wanted.values.astype(np.int64),
        slot is not None, nearness, thrift,
    )  # fmt: skip
    if unreached[0] >= 0:
        source, missed = int(holders[unreached[0]][0]), unreached[1]
        raise Infeasible(f"{topology.names[source]} cannot reach {topology.names[missed]}")
    return (passes, (times[0] * unit, times[1] * unit), hits, hops), finish * unit


def trees_to_plan(topology: Topology, workload: Workload, grown: Grown, meta: dict[str, Any]) -> Plan:
    """The passes of all trees as a timed plan, in the order in which they start.

    Args:
        grown: what :func:`stretto.kernels.trees.grow_trees` returns, times in seconds.
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
    slowest = np.minimum.reduceat(topology.bandwidth[route.values], route.offsets[:-1])
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
