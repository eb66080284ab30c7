"""In which order parts of the buffer cross between clusters, where, and how long each may take before and after.

One rank of every cluster, *counterparts*, sum up a part each, swap their sums and spread the whole. What joins clusters
is idle until the first sums are there, and after the last that can still be spread in time. So what crosses first
crosses where all contributions come soonest, what crosses last where it is spread soonest: the turns are told from both
ends, each to the counterparts whose links are done with it first. Parts are finer at both ends, where all wait for
them, than in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....schedule.pipes import Network
from .trees import Ways

Int64 = NDArray[np.int64]

COARSE = 2
"""So many times as large as the others are the parts that hold the half of all bytes that crosses in between. What is
carried then ends when the others do: other sizes leave gaps on the links that are too short for anything."""


@dataclass(frozen=True)
class Counterparts:
    """One rank of each cluster.

    Attributes:
        hubs: the ranks.
        ways: over which they swap.
        busy: seconds a byte for each link that a swap uses.
        late_s: from hub to hub.
        gather_s, spread_s: from the farthest rank of a cluster to its hub, and back.
    """

    hubs: tuple[int, ...]
    ways: Ways
    busy: dict[int, float]
    late_s: float
    gather_s: float
    spread_s: float

    @classmethod
    def of(
        cls, network: Network, hops: list[list[int]], hubs: tuple[int, ...], gather_s: float, spread_s: float
    ) -> Counterparts | None:
        """None if some are not joined."""
        nodes = np.array(hubs, dtype=np.int32)
        ways = Ways.of(network, nodes, network.cost_s, np.arange(len(network.src)))
        if not np.isfinite(ways.far[np.ix_(nodes, nodes)]).all():
            return None
        pipes = [p for p in ways.usable.tolist() if network.src[p] in hubs and network.dst[p] in hubs]
        busy: dict[int, float] = {}
        for p in pipes:
            for link in hops[p]:
                busy[link] = busy.get(link, 0.0) + 1.0 / float(network.topology.bandwidth[link])
        return cls(hubs, ways, busy, float(network.latency_s[pipes].max()), gather_s, spread_s)

    @property
    def per_byte(self) -> float:
        return max(self.busy.values())


@dataclass(frozen=True)
class Turn:
    """When a part crosses.

    Attributes:
        who: the number of its counterparts.
        size: bytes.
        at_s, by_s: seconds from the start until it begins to cross, and has crossed.
        left_s: seconds from then to the end.
    """

    who: int
    size: int
    at_s: float
    by_s: float
    left_s: float


def part_sizes(total: int, parts: int, each: int) -> list[int]:
    """Bytes of at most about so many parts, those of each end a multiple of ``each``, where there are enough."""
    ends = max(parts * COARSE // (2 * COARSE + 2), 1)
    ends = ends // each * each or ends
    weight = np.repeat([1, COARSE, 1], [ends, 2 * ends // COARSE, ends])
    last = np.cumsum(weight) * total // weight.sum()
    return [size for size in np.diff(last, prepend=0).tolist() if size]


def turns(who: list[Counterparts], sizes: list[int]) -> list[Turn]:
    """The turns of parts of these sizes, in their order: told from both ends, as if nothing else were in the way."""
    half = len(sizes) // 2
    first = _told(who, sizes[:half], [c.gather_s for c in who])
    last = _told(who, sizes[half:][::-1], [c.spread_s for c in who])
    ends = [max((end for _, _, end in told), default=0.0) for told in (first, last)]
    whole = sum(ends) + max(c.late_s for c in who)
    found = []
    for size, (k, begin, end) in zip(sizes[:half], first, strict=True):
        found.append(Turn(k, size, begin, end + who[k].late_s, whole - end - who[k].late_s))
    for size, (k, begin, end) in zip(sizes[half:], last[::-1], strict=True):
        found.append(Turn(k, size, whole - end - who[k].late_s, whole - begin, begin))
    return found


def _told(who: list[Counterparts], sizes: list[int], ready_s: list[float]) -> list[tuple[int, float, float]]:
    """Whose turn each part is, and when it begins and ends, each time where it ends first."""
    free: dict[int, float] = {}
    used = [0] * len(who)
    found = []
    for size in sizes:
        choices = []
        for k, c in enumerate(who):
            begin = max(ready_s[k], *(free.get(link, 0.0) for link in c.busy))
            choices.append((round(begin + size * c.per_byte, 15), ready_s[k], used[k], k, begin))
        *_, k, begin = min(choices)
        used[k] += 1
        for link, per_byte in who[k].busy.items():
            free[link] = begin + size * per_byte
        found.append((k, begin, begin + size * who[k].per_byte))
    return found
