"""What leaves an order's time as it is: machines that the network cannot tell apart, and numbers that are alike."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int64
from .messages import Share
from .problem import Problem

MOST_MACHINES = 24
"""Machines up to which it is asked whether all are exchangeable: the work grows with the cube of their number."""

MOST_MOVES = 2000
"""Permutations of machines, or of numbers, that are looked for: three pods of three machines have 1296."""

MOST_COMPARED = 300_000
"""Messages of all phases up to which traffic is compared with itself, about 2 us of CPU each."""


def exchangeable(problem: Problem) -> Int64:
    """int64[machines], the machine before each that can be exchanged with it, -1 for none.

    Two machines can be exchanged if the network looks the same afterwards to all messages that could be sent: if the
    links of all routes between GPUs are mapped one to one, to links of equal bandwidth, latency and cost.
    """
    m = problem.machines
    routes, look = _routes(problem)
    same = np.full(m.count, -1)
    for j in range(m.count):
        for i in range(j - 1, -1, -1):
            swap = np.arange(m.count)
            swap[[i, j]] = j, i
            if m.counts[i] == m.counts[j] and _maps(routes, swap.tolist(), look):
                same[j] = i
                break
    return same


def network_moves(problem: Problem) -> Int64:
    """int64[moves, machines], all permutations of the machines after which the network looks the same to all messages.

    Machines of a pod, or whole pods, change places. The search maps machine after machine; a beginning is left where
    the routes between its machines are not mapped one to one to links that look alike. It ends at :data:`MOST_MOVES`.
    """
    m = problem.machines
    routes, look = _routes(problem)
    between: dict[int, list[tuple[tuple[int, int, int], tuple[int, ...]]]] = {}
    for key, route in routes.items():
        between.setdefault(max(key[1:]), []).append((key, route))
    moves: list[list[int]] = []
    image: list[int] = []

    def extend(links: dict[int, int], origins: dict[int, int]) -> None:
        depth = len(image)
        if depth == m.count:
            moves.append(image.copy())
            return
        for machine in range(m.count):
            if machine in image or m.counts[machine] != m.counts[depth] or len(moves) >= MOST_MOVES:
                continue
            image.append(machine)
            more, back = dict(links), dict(origins)
            if all(
                _joins(route, routes.get((number, image[a], image[b])), more, back, look)
                for (number, a, b), route in between.get(depth, ())
            ):
                extend(more, back)
            image.pop()

    extend({}, {})
    return np.array(moves, dtype=np.int64)


def number_moves(problem: Problem) -> Int64:
    """int64[moves, machines], permutations of the numbers that leave the traffic as it is.

    Moves by one (rings) and exchanges by every bit (recursive doubling) are looked at, and what they make together.
    """
    n = len(problem.seats)
    numbers = np.arange(n)
    makers = [] if np.ptp(problem.seats) else [m for m in _simple_moves(n) if _keeps(problem, m)]
    moves = {numbers.tobytes(): numbers}
    new = [numbers]
    while new and len(moves) < MOST_MOVES:
        together = [maker[move] for move in new for maker in makers]
        new = [move for move in together if move.tobytes() not in moves]
        moves.update((move.tobytes(), move) for move in new)
    return np.array(list(moves.values()))


def _simple_moves(n: int) -> list[Int64]:
    """All numbers moved by one; and, where they are a power of two, exchanged by each bit."""
    numbers = np.arange(n)
    bits = [1 << b for b in range(n.bit_length() - 1)]
    return [(numbers + 1) % n, *([numbers ^ bit for bit in bits] if 1 << len(bits) == n else [])]


Routes = dict[tuple[int, int, int], tuple[int, ...]]
"""By message (GPUs at both ends) and two machines: the links from one to the other."""

Look = list[tuple[float, float, float]]
"""Bandwidth, latency and cost of each link."""


def _routes(problem: Problem) -> tuple[Routes, Look]:
    m, k = problem.machines, problem.kinds
    t, n, gpu = m.topology, m.count, problem.net.gpu
    sends = sorted({*zip(k.src_gpu.tolist(), k.dst_gpu.tolist(), (k.src == k.dst).tolist())})
    routes: Routes = {}
    for number, (a, b, inside) in enumerate(sends):
        ends = [(i, j) for i in range(n) for j in range(n) if (i == j) == inside and gpu[i, a] >= 0 and gpu[j, b] >= 0]
        if not ends:
            continue
        src, dst = gpu[[i for i, _ in ends], a], gpu[[j for _, j in ends], b]
        hops = m.pairs(src, dst, np.ones(len(src))).hops
        for (i, j), route in zip(ends, np.split(m.routes(src, dst, hops).values, np.cumsum(hops)[:-1])):
            routes[number, i, j] = tuple(route.tolist())
    return routes, list(zip(t.bandwidth.tolist(), t.latency_s.tolist(), t.message_s.tolist()))


def _maps(routes: Routes, image: list[int], look: Look) -> bool:
    """Whether moving machines maps the links of all routes one to one to links that look alike."""
    links: dict[int, int] = {}
    origins: dict[int, int] = {}
    return all(
        _joins(route, routes.get((number, image[a], image[b])), links, origins, look)
        for (number, a, b), route in routes.items()
    )


def _joins(
    route: tuple[int, ...], other: tuple[int, ...] | None, links: dict[int, int], origins: dict[int, int], look: Look
) -> bool:
    """Whether mapping a route to another one fits what is mapped; the maps both ways get its links."""
    if other is None or len(other) != len(route):
        return False
    return all(
        links.setdefault(x, y) == y and origins.setdefault(y, x) == x and look[x] == look[y]
        for x, y in zip(route, other)
    )


def alike_numbers(moves: Int64) -> bool:
    """Whether :func:`number_moves` bring each number to each other one."""
    return set(moves[:, 0].tolist()) == set(moves[0].tolist())


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
