"""Switch removal: a network of ranks alone in which trees reach the same rates, and the way back.

At a switch w an edge (u, w) and an edge (w, t) can be split off together: both lose an amount and (u, t) gains it,
as a path through w. Where what enters w equals what leaves it, this can go on until nothing is left of w without
narrowing any cut that matters (Mader 1978; Bang-Jensen, Frank and Jackson 1995; for AllGather Zhao et al.,
"ForestColl"). How much may be split off is found by min-cuts: all of it is tried, and a cut that has become too
narrow by d says that d less is possible, since no cut loses more than the amount.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...bounds.exact import Arcs
from ...kernels import at_speed
from ...kernels import maxflow as maxflow_kernel
from ...model.errors import Unsupported

Int64 = NDArray[np.int64]
Path = tuple[int, ...]


@dataclass
class Direct:
    """Edges between ranks, each with the paths that make it up.

    Attributes:
        src, dst: the ends of links.
        paths: for an edge (u, t) a list of (amount, links).
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    paths: dict[tuple[int, int], deque[tuple[int, Path]]]

    def capacity(self, edge: tuple[int, int]) -> int:
        """What an edge has left."""
        return sum(amount for amount, _ in self.paths.get(edge, ()))

    def take(self, edge: tuple[int, int], amount: int) -> list[tuple[int, Path]]:
        """Remove an amount from an edge: paths that add up to it, one alone if any is wide enough."""
        paths = self.paths[edge]
        if paths[0][0] > amount and len(paths) == 1:
            width, path = paths[0]
            paths[0] = width - amount, path
            return [(amount, path)]
        whole = next((p for p in paths if p[0] == amount), None) or next((p for p in paths if p[0] > amount), None)
        if whole is not None:
            paths.remove(whole)
            if whole[0] > amount:
                paths.append((whole[0] - amount, whole[1]))
            return [(amount, whole[1])]
        taken = []
        while amount:
            width, path = paths.popleft()
            used = min(width, amount)
            if width > used:
                paths.appendleft((width - used, path))
            taken.append((used, path))
            amount -= used
        return taken

    def give(self, edge: tuple[int, int], amount: int, path: Path) -> None:
        """Add a path to an edge."""
        self.paths.setdefault(edge, deque()).append((amount, self._straight(path)))

    def _straight(self, path: Path) -> Path:
        """The path without the ways around that lead back to a node that it has passed."""
        ahead = {int(self.src[link]): link for link in path}  # from each node the last time that it is left
        end, node = int(self.dst[path[-1]]), int(self.src[path[0]])
        links = []
        while node != end:
            links.append(ahead[node])
            node = int(self.dst[ahead[node]])
        return tuple(links)


def without_switches(
    src: NDArray[np.int32], dst: NDArray[np.int32], capacity: Int64, roots: dict[int, int], ranks: list[int], nodes: int
) -> Direct:
    """Split off every node that is no rank.

    Args:
        capacity: int64[links], of which as much enters a node that is no rank as leaves it.
        roots: what each root sends; trees for it must exist in the network given.
    """
    direct = Direct(src, dst, {})
    for link in np.flatnonzero(capacity).tolist():
        direct.give((int(src[link]), int(dst[link])), int(capacity[link]), (link,))
    among = set(ranks)
    for w in range(nodes):
        if w not in among:
            _remove(direct, w, roots, ranks, nodes)
    return direct


def _remove(direct: Direct, w: int, roots: dict[int, int], ranks: list[int], nodes: int) -> None:
    into = sorted(u for u, t in direct.paths if t == w and direct.capacity((u, w)))
    out = sorted(t for u, t in direct.paths if u == w and direct.capacity((w, t)))
    check = _Check(direct, [(u, t) for u in into for t in out if u != t], roots, ranks, nodes)
    # last those that lead back where they came from: they carry nothing
    turns = [(u, t) for u in into for t in sorted(out, key=lambda t: (t - u) % nodes) if u != t]
    for u, t in [*turns, *((u, u) for u in into if u in out)]:
        amount = min(direct.capacity((u, w)), direct.capacity((w, t)))
        if amount:
            amount = check.most(w, u, t, amount)
        if not amount:
            continue
        first, second = deque(direct.take((u, w), amount)), deque(direct.take((w, t), amount))
        while first and u != t:
            (a, p), (b, q) = first.popleft(), second.popleft()
            direct.give((u, t), min(a, b), p + q)
            if a > b:
                first.appendleft((a - b, p))
            elif b > a:
                second.appendleft((b - a, q))
    if any(direct.capacity((u, w)) for u in into) or any(direct.capacity((w, t)) for t in out):
        raise Unsupported("a switch that gets more or less than it sends cannot be split off")
    for edge in [edge for edge in direct.paths if w in edge]:
        del direct.paths[edge]


class _Check:
    """Whether trees still exist when something has been split off at one node."""

    def __init__(
        self, direct: Direct, new: list[tuple[int, int]], roots: dict[int, int], ranks: list[int], nodes: int
    ) -> None:
        edges = sorted({edge for edge in direct.paths if direct.capacity(edge)} | set(new))
        self.place = {edge: i for i, edge in enumerate(edges)}
        self.sinks = np.array(ranks, dtype=np.int64)
        self.need, self.target = sum(roots.values()), nodes
        tails = np.array([t for _, t in edges] + ranks)
        heads = np.array([u for u, _ in edges] + [nodes] * len(ranks))
        self.arcs = Arcs.of(tails, heads, nodes + 1)
        held = [roots.get(v, 0) for v in ranks]
        self.capacity = self.arcs.capacities(np.array([direct.capacity(e) for e in edges] + held, dtype=np.int64))
        self.kernel_steps = 20.0 * len(ranks) * len(tails) * len(new)

    def most(self, w: int, u: int, t: int, amount: int) -> int:
        """The largest amount up to the one given that can be split off; it is."""
        arcs, place = self.arcs, self.place
        lose = [arcs.forward[place[u, w]], arcs.forward[place[w, t]]]
        gain = [arcs.forward[place[u, t]]] if u != t else []
        begin = 0
        while amount > 0:
            trial = self.capacity.copy()
            trial[lose] -= amount
            trial[gain] += amount
            found, _, flow = at_speed(maxflow_kernel.first_violated, self.kernel_steps)(
                arcs.offsets, arcs.to, arcs.pair, trial, self.sinks, begin, self.target, self.need, self.need
            )
            if found == len(self.sinks):
                self.capacity[lose] -= amount
                self.capacity[gain] += amount
                return amount
            amount -= self.need - int(flow)
        return 0
