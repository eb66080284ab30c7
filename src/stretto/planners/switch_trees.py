"""Trees that fork in switches, all at once at fixed rates: what is copied where no accelerator need pass anything on.

Where switches (or routers that cut through) copy, a rank's data can go to all others as one fluid pipe that forks, so
that nothing waits to be stored and sent on: all begin together, end together, and only the latency of one way is lost,
at any size. Each rank's data is divided among trees so that the busiest link is busy for the least time: a linear
program over trees (fractional packing of Steiner trees: Jain, Mahdian and Salavatipour, SODA 2003), which are grown by
Takahashi and Matsuyama's heuristic (1980), again and again at prices that rise with what links carry already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.plan import Plan, make_plan
from ..model.topology import Topology
from ..schedule.trees import split_chunks
from . import Progress, register

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

ROUNDS, WORK = 16, 50_000
"""How often each rank's trees are grown; at least twice, else as often as so many steps allow."""

MOST_WORK = 100_000
"""Steps of one round beyond which it is not tried: what is sent apart times links."""

STEEP = 4.0
"""The price of a link's time grows by e to this power from none to the most that links carry."""

LEAST = 1e-6
"""A tree that would carry a smaller share of a rank's data carries nothing."""


@dataclass(frozen=True)
class _Demands:
    """What is sent: chunks of one source for the same receivers are one demand.

    Attributes:
        of: int64[chunks], the demand of each, -1 of those that nobody else wants.
        root, goals, size: each demand's source, receivers and bytes.
    """

    of: Int64
    root: list[int]
    goals: list[frozenset[int]]
    size: Float64

    @classmethod
    def among(cls, workload: Workload) -> _Demands:
        number: dict[tuple[int, frozenset[int]], int] = {}
        of = np.full(workload.chunk_count, -1, dtype=np.int64)
        for chunk in range(workload.chunk_count):
            root = int(workload.chunk_holders[chunk][0])
            goals = frozenset(workload.chunk_wanted[chunk].tolist()) - {root}
            if goals:
                of[chunk] = number.setdefault((root, goals), len(number))
        size = np.zeros(len(number))
        np.add.at(size, of[of >= 0], workload.chunk_bytes[of >= 0])
        return cls(of, [root for root, _ in number], [goals for _, goals in number], size)


def _unserved(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "it plans over links, not optical planes"
    if (topology.transit & ~topology.replicates).any():
        return "a node that passes data on cannot copy it"
    if len(np.unique(workload.chunk_start_s)) > 1:
        return "all must begin together"
    demands, grown = _Demands.among(workload), _Grower(topology)
    if len(demands.root) * topology.link_count > MOST_WORK:
        return "so many trees would take long to grow"
    for root, goals in zip(demands.root, demands.goals, strict=True):
        if grown.tree(root, goals, topology.latency_s) is None:
            return f"from {topology.names[root]} some rank is reached only through accelerators"
    return None


@register(
    "switch-trees",
    collectives=("allgather", "broadcast", "multicast"),
    topologies="any in which switches that copy join all ranks",
    paper="our own; trees by Takahashi and Matsuyama, 1980",
    serves=_unserved,
)
def switch_trees(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Trees that fork in switches, all at once, at rates that end together.

    Args:
        seed, time_limit_s, progress: taken for uniformity; nothing is random or long.
    Returns:
        A timed plan of one transfer for each tree and chunk (and each link by which a tree leaves its root).
    """
    demands = _Demands.among(workload)
    trees = _grown(topology, demands)
    share = _shares(topology, demands, trees)
    rows = list(_cut(workload, demands, trees, share))
    chunk, at = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    finer, first = split_chunks(workload, chunk, at)
    number = first[chunk] + np.array([row[2] for row in rows], dtype=np.int64)
    sent = [
        (int(n), tree.root, *branch) for n, (_, _, _, tree) in zip(number, rows, strict=True) for branch in tree.sent
    ]
    chunks = np.array([s[0] for s in sent], dtype=np.int64)
    route = Ragged.of([s[3] for s in sent])
    load = np.bincount(route.values, finer.chunk_bytes[chunks[route.owners]], topology.link_count)
    seconds = float((load / topology.bandwidth).max())
    start = finer.chunk_start_s[chunks]
    return make_plan(
        topology, finer, "timed",
        chunk=chunks, src=[s[1] for s in sent], dst=Ragged.of([s[2] for s in sent]), route=route,
        depends=Ragged.of([[] for _ in sent]),
        start_s=start, finish_s=start + seconds, meta={"trees": int((share > 0).sum())},
    )  # fmt: skip


@dataclass(frozen=True)
class _Tree:
    """One demand's way: links in an order in which each begins where one before it ended, or at the root."""

    demand: int
    root: int
    links: tuple[int, ...]
    ends: tuple[tuple[int, int], ...]
    goals: frozenset[int]

    @cached_property
    def sent(self) -> list[tuple[list[int], list[int]]]:
        """Receivers and links of what leaves the root by each link."""
        into: dict[int, tuple[list[int], list[int]]] = {}
        parts: list[tuple[list[int], list[int]]] = []
        for link, (tail, head) in zip(self.links, self.ends, strict=True):
            if tail == self.root:
                parts.append(([], []))
            part = into[head] = parts[-1] if tail == self.root else into[tail]
            part[1].append(link)
            if head in self.goals:
                part[0].append(head)
        return parts


def _grown(topology: Topology, demands: _Demands) -> list[_Tree]:
    """Trees of all demands, each once."""
    grower = _Grower(topology)
    load = np.zeros(topology.link_count)
    found: dict[tuple[int, tuple[int, ...]], _Tree] = {}
    for _ in range(int(np.clip(WORK // max(len(demands.root) * topology.link_count, 1), 2, ROUNDS))):
        for k, (root, goals) in enumerate(zip(demands.root, demands.goals, strict=True)):
            seconds = demands.size[k] / topology.bandwidth
            price = topology.latency_s + seconds * np.exp(STEEP * load / max(float(load.max()), np.finfo(float).tiny))
            links = grower.tree(root, goals, price)
            assert links is not None, "looked at before"
            load[links] += seconds[links]
            ends = zip(topology.src[links].tolist(), topology.dst[links].tolist(), strict=True)
            found.setdefault((k, tuple(sorted(links))), _Tree(k, root, tuple(links), tuple(ends), goals))
    return list(found.values())


def _shares(topology: Topology, demands: _Demands, trees: list[_Tree]) -> Float64:
    """float64[trees], the share of its demand that each carries, so that the busiest link is least busy."""
    from ..solvers import INFINITY, Model, solve

    if not trees:
        return np.zeros(0)
    of = np.array([tree.demand for tree in trees], dtype=np.int64)
    links = Ragged.of([tree.links for tree in trees])
    seconds = demands.size[of[links.owners]] / topology.bandwidth[links.values]
    model = Model()
    end, share = model.columns(1, 0.0, INFINITY, 1.0), model.columns(len(trees), 0.0, 1.0)
    model.rows(len(demands.root), 1.0, 1.0, (of, share, 1.0))
    every = np.arange(topology.link_count)
    model.rows(
        len(every), -INFINITY, 0.0, (links.values, share[links.owners], seconds / seconds.max()), (every, end, -1.0)
    )
    found = solve(model)
    assert found.x is not None, "any tree is a solution"
    carried = np.where(found.x[share] < LEAST, 0.0, found.x[share])
    even: Float64 = carried / np.bincount(of, carried)[of]
    return even


def _cut(
    workload: Workload, demands: _Demands, trees: list[_Tree], share: Float64
) -> Iterator[tuple[int, int, int, _Tree]]:
    """Each chunk, where in it a part begins, which part of it that is, and its tree."""
    used: list[list[tuple[_Tree, float]]] = [[] for _ in demands.root]
    for tree, part in zip(trees, share.tolist(), strict=True):
        if part > 0:
            used[tree.demand].append((tree, part))
    for chunk in np.flatnonzero(demands.of >= 0).tolist():
        parts = used[demands.of[chunk]]
        ends = np.rint(int(workload.chunk_bytes[chunk]) * np.cumsum([part for _, part in parts])).astype(np.int64)
        low, count = 0, 0
        for (tree, _), high in zip(parts, ends.tolist(), strict=True):
            if high > low:
                yield chunk, low, count, tree
                low, count = high, count + 1


class _Grower:
    """Grows Steiner trees, by Takahashi and Matsuyama's heuristic: the nearest receiver joins next."""

    def __init__(self, topology: Topology) -> None:
        self.transit: list[bool] = topology.transit.tolist()
        self.src: list[int] = topology.src.tolist()
        offsets, out = topology.out_links
        heads = topology.dst[out].tolist()
        rows = list(zip(heads, out.tolist(), strict=True))
        self.out = [rows[low:high] for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def tree(self, root: int, goals: frozenset[int], price: Float64) -> list[int] | None:
        """The links, those nearer to the root first; None where a receiver is not reached through what passes on."""
        cost: list[float] = price.tolist()
        far, joined = {root: 0.0}, {root}
        via: dict[int, int] = {}
        near = [(0.0, root)]
        links: list[int] = []
        left = set(goals)
        while left and near:
            distance, v = heappop(near)
            if distance > far[v]:
                continue
            if v in left:
                left.remove(v)
                way = []
                while v not in joined:
                    joined.add(v)
                    way.append(via[v])
                    far[v] = 0.0
                    if self.transit[v]:
                        heappush(near, (0.0, v))
                    v = self.src[via[v]]
                links += reversed(way)
                continue
            if v == root or self.transit[v]:
                for w, link in self.out[v]:
                    there = distance + cost[link]
                    if w not in joined and there < far.get(w, np.inf):
                        far[w], via[w] = there, link
                        heappush(near, (there, w))
        return None if left else links
