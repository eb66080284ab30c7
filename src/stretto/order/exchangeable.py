"""What leaves an order's time as it is: machines that the network cannot tell apart, and numbers that are alike."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int64
from .messages import Share
from .problem import Problem

MOST_MACHINES = 24
"""Machines up to which it is asked whether all are exchangeable: the work grows with the cube of their number."""

MOST_COMPARED = 300_000
"""Messages of all phases up to which traffic is compared with itself, about 2 us of CPU each."""


def exchangeable(problem: Problem) -> Int64:
    """int64[machines], the machine before each that can be exchanged with it, -1 for none.

    Two machines can be exchanged if the network looks the same afterwards to all messages that could be sent: if the
    links of all routes between GPUs are mapped one to one, to links of equal bandwidth, latency and cost.
    """
    m, k = problem.machines, problem.kinds
    t, n, gpu = m.topology, m.count, problem.net.gpu
    sends = sorted({*zip(k.src_gpu.tolist(), k.dst_gpu.tolist(), (k.src == k.dst).tolist())})
    routes: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for number, (a, b, inside) in enumerate(sends):
        ends = [(i, j) for i in range(n) for j in range(n) if (i == j) == inside and gpu[i, a] >= 0 and gpu[j, b] >= 0]
        if not ends:
            continue
        src, dst = gpu[[i for i, _ in ends], a], gpu[[j for _, j in ends], b]
        hops = m.pairs(src, dst, np.ones(len(src))).hops
        for (i, j), route in zip(ends, np.split(m.routes(src, dst, hops).values, np.cumsum(hops)[:-1])):
            routes[number, i, j] = tuple(route.tolist())
    look = list(zip(t.bandwidth.tolist(), t.latency_s.tolist(), t.message_s.tolist()))
    same = np.full(n, -1)
    for j in range(n):
        for i in range(j - 1, -1, -1):
            if m.counts[i] == m.counts[j] and _maps(routes, i, j, look):
                same[j] = i
                break
    return same


def _maps(
    routes: dict[tuple[int, int, int], tuple[int, ...]], i: int, j: int, look: list[tuple[float, float, float]]
) -> bool:
    """Whether exchanging two machines maps the links of all routes one to one to links that look alike."""
    swap = {i: j, j: i}
    image: dict[int, int] = {}
    origin: dict[int, int] = {}
    for (number, a, b), route in routes.items():
        other = routes.get((number, swap.get(a, a), swap.get(b, b)))
        if other is None or len(other) != len(route):
            return False
        for x, y in zip(route, other):
            if image.setdefault(x, y) != y or origin.setdefault(y, x) != x or look[x] != look[y]:
                return False
    return True


def alike_numbers(problem: Problem) -> bool:
    """Whether some moves of all numbers, which leave the traffic as it is, bring each number to each other one.

    Moves by one (rings) and exchanges by every bit (recursive doubling) are looked at.
    """
    n = len(problem.seats)
    if np.ptp(problem.seats):
        return False
    numbers = np.arange(n)
    if _keeps(problem, (numbers + 1) % n):
        return True
    bits = [1 << b for b in range(n.bit_length() - 1)]
    return 1 << len(bits) == n and all(_keeps(problem, numbers ^ bit) for bit in bits)


def all_orders_alike(problem: Problem) -> bool:
    """Whether every order takes as long: the network cannot tell the machines apart, or the traffic the numbers.

    For numbers it is enough that exchanging two, and moving all by one, leaves the traffic as it is.
    """
    n = len(problem.seats)
    if np.ptp(problem.seats):
        return False
    if n <= MOST_MACHINES and (exchangeable(problem)[1:] >= 0).all():
        return True
    numbers = np.arange(n)
    exchanged = np.concatenate(([1, 0], numbers[2:]))
    return _keeps(problem, exchanged) and _keeps(problem, (numbers + 1) % n)


def _keeps(problem: Problem, moved: Int64) -> bool:
    """Whether giving each number's machine another number leaves what is sent, and what waits for what, as it is."""
    if sum(len(p.src) for stage in problem.stages for s in stage.shares for p in s.traffic.phases) > MOST_COMPARED:
        return False
    size = int(problem.seats[0])
    ranks = (moved[:, None] * size + np.arange(size)).ravel()
    return all(
        sorted(_signature(share, None) for share in stage.shares)
        == sorted(_signature(share, ranks) for share in stage.shares)
        for stage in problem.stages
    )


def _signature(share: Share, moved: Int64 | None) -> tuple[tuple[object, ...], ...]:
    """A collective's messages and waits by rank numbers, in an order of their own."""
    signature = []
    for p in share.traffic.phases:
        ranks = share.ranks if moved is None else moved[share.ranks]
        messages = list(zip(ranks[p.src].tolist(), ranks[p.dst].tolist(), p.size_bytes.tolist()))
        waits = sorted(
            (messages[a], messages[b], lag) for a, b, lag in zip(p.waiting.tolist(), p.awaited.tolist(), p.lag.tolist())
        )
        signature.append((p.times, tuple(sorted(messages)), tuple(waits)))
    return tuple(signature)
