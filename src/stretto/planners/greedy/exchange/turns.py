"""In which order parts of the buffer cross between clusters, where, and how long each may take before and after.

One rank of each cluster, together *counterparts*, sum up a part each, swap their sums and spread the whole. What joins
the clusters is idle until the first sums are there, and after the last sum that can still be spread in time. So what
crosses first crosses where all contributions come soonest, and what crosses last where it is spread soonest: turns are
assigned from both ends, each to the counterparts whose links are done with it first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counterparts:
    """One rank of each cluster.

    Attributes:
        hubs: the ranks.
        tree: (hub, next hub) up a tree over which they swap, from its root on; empty where each sends to every other.
        link_per_byte: for each link that a swap uses, seconds a byte.
        latency_s: from hub to hub.
        gather_s, spread_s: from the farthest rank of a cluster to its hub, and back.
    """

    hubs: tuple[int, ...]
    tree: list[tuple[int, int]]
    link_per_byte: dict[int, float]
    latency_s: float
    gather_s: float
    spread_s: float

    @property
    def per_byte(self) -> float:
        """Seconds a byte of the busiest link."""
        return max(self.link_per_byte.values())


@dataclass(frozen=True)
class Turn:
    """When a part crosses.

    Attributes:
        number: of its counterparts.
        size: bytes.
        begin_s, crossed_s: when it begins to cross, and has crossed.
        left_s: seconds from then to the end.
    """

    number: int
    size: int
    begin_s: float
    crossed_s: float
    left_s: float


def assign_turns(counterparts: list[Counterparts], total: int, parts: int) -> list[Turn]:
    """The turns of equal parts of ``total`` bytes, assigned from both ends as if nothing else used the links."""
    sizes = [total * (k + 1) // parts - total * k // parts for k in range(parts)]
    half = len(sizes) // 2
    first = _from_one_end(counterparts, sizes[:half], [c.gather_s for c in counterparts])
    last = _from_one_end(counterparts, sizes[half:][::-1], [c.spread_s for c in counterparts])
    ends = [max((end for _, _, end in turns), default=0.0) for turns in (first, last)]
    whole_s = sum(ends) + max(c.latency_s for c in counterparts)
    turns = []
    for size, (k, begin, end) in zip(sizes[:half], first, strict=True):
        crossed_s = end + counterparts[k].latency_s
        turns.append(Turn(k, size, begin, crossed_s, whole_s - end - counterparts[k].latency_s))
    for size, (k, begin, end) in zip(sizes[half:], last[::-1], strict=True):
        turns.append(Turn(k, size, whole_s - end - counterparts[k].latency_s, whole_s - begin, begin))
    return turns


def _from_one_end(
    counterparts: list[Counterparts], sizes: list[int], ready_s: list[float]
) -> list[tuple[int, float, float]]:
    """For each part the counterparts with which it ends first, and when it begins and ends."""
    free: dict[int, float] = {}
    used = [0] * len(counterparts)
    turns = []
    for size in sizes:
        choices = []
        for k, c in enumerate(counterparts):
            begin = max(ready_s[k], *(free.get(link, 0.0) for link in c.link_per_byte))
            choices.append((round(begin + size * c.per_byte, 15), ready_s[k], used[k], k, begin))
        *_, k, begin = min(choices)
        used[k] += 1
        for link, per_byte in counterparts[k].link_per_byte.items():
            free[link] = begin + size * per_byte
        turns.append((k, begin, begin + size * counterparts[k].per_byte))
    return turns
