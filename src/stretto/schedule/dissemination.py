"""Exchanges with ranks at distances that are powers of a radix: few steps, and what goes to one rank goes together.

Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 1997: AllToAll without its local rotations, which chunks do not need,
and AllGather with distances that shrink, so that most is sent to near ranks. In a step of radix r a rank sends r - 1
messages one after the other, and has r times as much as before. Radix 2 has the fewest messages. A larger one has fewer
steps, which is better where a message is on its way for longer than it occupies links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..model.arrays import Int64

Copies = tuple[Int64, Int64, Int64]
"""int64[rows] each: blocks that are sent in a step, the ranks that send them, and those that receive them."""

MOST_RADIX = 32


def halving_gather(radix: int) -> Callable[[int], list[Copies]]:
    """AllGather: rank v has the blocks v + k d r for a distance d, and gets the blocks v + j d + k d r, 0 < j < r, from
    rank v + j d."""

    def steps(n: int) -> list[Copies]:
        made = []
        for distance in reversed(_powers(radix, n)):
            place = np.arange(-(-n // distance))  # of the blocks that a rank has after this step
            v, came = (a.ravel() for a in np.meshgrid(np.arange(n), place[place % radix > 0], indexing="ij"))
            made.append(((v + came * distance) % n, (v + came % radix * distance) % n, v))
        return made

    return steps


def bruck(radix: int) -> Callable[[int], list[Copies]]:
    """AllToAll: a block goes on by j d if its distance from origin to goal, written with the radix, has the digit j at
    the power d."""

    def steps(n: int) -> list[Copies]:
        origin, way = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
        made = []
        for distance in _powers(radix, n):
            digit = way // distance % radix
            a, r, j = (each[digit > 0] for each in (origin, way, digit))
            v = (a + r % distance) % n
            made.append((a * n + (a + r) % n, v, (v + j * distance) % n))
        return made

    return steps


def exchanges(factors: Sequence[int]) -> Callable[[int], list[Copies]]:
    """AllReduce of a single block: in each step the ranks of a group send each other the whole sums that they have.

    Args:
        factors: how many ranks a group of each step has; their product is the number of ranks, which are numbered with
            those of the first step next to each other.
    """

    def steps(n: int) -> list[Copies]:
        made, distance = [], 1
        for count in factors:
            v, j = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(1, count), indexing="ij"))
            place = v // distance % count
            made.append((0 * v, v, v + ((place + j) % count - place) * distance))
            distance *= count
        return made

    return steps


def factorisations(n: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as a product of numbers from ``least`` on, none larger than the next."""
    if least <= n <= MOST_RADIX:
        yield (n,)
    for factor in range(least, math.isqrt(n) + 1):
        if n % factor == 0:
            yield from ((factor, *rest) for rest in factorisations(n // factor, factor))


def radices(n: int) -> Iterator[int]:
    """The least radix for each number of steps among ``n`` ranks, from 2 on."""
    found = {next(r for r in range(2, n + 2) if r**steps >= n) for steps in range(1, n.bit_length() + 1)}
    return (radix for radix in sorted(found) if radix <= MOST_RADIX)


def messages_in_steps(radix: int, n: int) -> list[int]:
    """How many messages each rank sends in each step."""
    return [min(radix, -(-n // distance)) - 1 for distance in _powers(radix, n)]


def blocks_moved(radix: int, n: int) -> int:
    """How many blocks each rank sends in an AllToAll, its own and others."""
    return sum(int(np.count_nonzero(np.arange(n) // distance % radix)) for distance in _powers(radix, n))


def _powers(radix: int, n: int) -> list[int]:
    """The powers of a radix below ``n``."""
    powers = [1]
    while powers[-1] * radix < n:
        powers.append(powers[-1] * radix)
    return powers if n > 1 else []
