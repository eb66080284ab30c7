"""What no order can beat, for a library's traffic: relaxations of the search for an order.

Each holds for a stage (collectives that run at the same time); stages follow each other, so their bounds add up.

- *Ways out and in.* All that a number's GPU sends to other machines passes the machine's way out, whatever the order.
  Machines with narrow ways should have the numbers that send least; more cannot be hoped for.
- *Pairs.* The messages between two numbers are sent between some two machines. Where the same messages join all
  numbers, an order that ends in T can use only pairs of machines that carry them in T, and these pairs must join all
  machines: one after the other along a ring (each reaches each, and each has its own follower: a bottleneck matching),
  or in some tree.
- *Going round.* Where each time of a message waits for one before it on a ring, what the whole ring takes in turn is
  passed again and again. A ring takes at least what each machine's nearest follower takes, and what the shortest tree
  with prices takes (:mod:`.kernel_circles`).
- *Inside.* What every number sends between its own GPUs, the slowest machine sends, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64
from . import kernel_bounds, kernel_circles
from .problem import Problem, Stage

MOST_BUNDLES = 4
"""Bundles for which pairs are looked at: those between most numbers."""

Message = tuple[int, int, int, int]
"""GPU that sends, GPU that receives, bytes, how many are sent."""

INSIDE: Message = (-1, -1, 0, 0)
"""Marks a bundle that is sent inside machines."""


def any_order_bound(problem: Problem) -> float:
    """Seconds that every order takes, all stages after each other."""
    return sum(_stage_bound(problem, s) for s in range(len(problem.stages)))


def _stage_bound(problem: Problem, s: int) -> float:
    bundles = _bundles(problem, s)
    n = problem.machines.count
    bounds = [0.0, _ways_bound(problem, s)]
    between = {b: pairs for b, pairs in bundles.items() if pairs[0][0] != pairs[0][1]}
    inside = {b: pairs for b, pairs in bundles.items() if pairs[0][0] == pairs[0][1]}
    for bundle, pairs in inside.items():
        if len(pairs) == n:
            bounds.append(float(np.diag(_times(problem, bundle, True)[0]).max()))
    for bundle, pairs in sorted(between.items(), key=lambda entry: -len(entry[1]))[:MOST_BUNDLES]:
        most, through = _times(problem, bundle, False)
        bounds.append(_pairs_bound(most, pairs, n))
        bounds.append(_round_bound(problem, problem.stages[s], bundle, pairs, through))
    return max(bounds)


def _bundles(problem: Problem, s: int) -> dict[tuple[Message, ...], list[tuple[int, int]]]:
    """The bundles of a stage, and the pairs of numbers that have each."""
    k = problem.kinds
    own = range(int(k.stage[s]), int(k.stage[s + 1]))
    messages: dict[tuple[int, int], list[Message]] = {}
    for i in own:
        what = (int(k.src_gpu[i]), int(k.dst_gpu[i]), int(k.size_bytes[i]), int(k.sent[i]))
        messages.setdefault((int(k.src[i]), int(k.dst[i])), []).append(what)
    bundles: dict[tuple[Message, ...], list[tuple[int, int]]] = {}
    for pair, sent in messages.items():
        # a bundle inside and one between machines are never the same
        mark = [INSIDE] if pair[0] == pair[1] else []
        bundles.setdefault((*sorted(sent), *mark), []).append(pair)
    return bundles


def _times(problem: Problem, bundle: tuple[Message, ...], inside: bool) -> tuple[Float64, Float64]:
    src, dst, size, sent = (np.array(column) for column in zip(*(m for m in bundle if m != INSIDE)))
    n = problem.machines.count
    most, through = at_speed(kernel_bounds.bundle_times, 30.0 * n * n * len(src))(
        src.astype(np.int64), dst.astype(np.int64), size.astype(np.float64), sent.astype(np.float64), inside,
        problem.machines.counts, problem.net,
    )  # fmt: skip
    return most, through


def _ways_bound(problem: Problem, s: int) -> float:
    """The bound by each GPU's way out of its machine, and in."""
    k, net, n = problem.kinds, problem.net, problem.machines.count
    own = slice(int(k.stage[s]), int(k.stage[s + 1]))
    between = k.src[own] != k.dst[own]
    shape = problem.machines.counts
    bound = 0.0
    for g in range(int(shape.max())):
        narrow = None
        for numbers, gpus, way in ((k.src[own], k.src_gpu[own], 0), (k.dst[own], k.dst_gpu[own], 1)):
            mine = between & (gpus == g)
            sent = np.bincount(numbers[mine], weights=(k.size_bytes[own] * k.sent[own])[mine], minlength=n)
            if not sent.any() or (np.sort(sent)[0] == 0 and n > 1 and not np.sort(sent)[1:].any()):
                continue
            if narrow is None:
                work = 10.0 * n * n * shape.max()
                narrow = at_speed(kernel_bounds.narrowest_ways, work)(g, shape, net)
            for size in np.unique(shape):
                # the least bytes through the narrowest way, and so on
                least = np.sort(sent[problem.seats == size])
                ways = np.sort(narrow[way][shape == size])
                bound = max(bound, float((least / ways).max()))
    return bound


def _pairs_bound(most: Float64, pairs: list[tuple[int, int]], n: int) -> float:
    """The bound by pairs of machines that carry a bundle in time, where the bundle joins all numbers."""
    joined = np.zeros((n, n), dtype=np.bool_)
    for a, b in pairs:
        joined[a, b] = True
    work = float(n) ** 2 * 100
    reaches = at_speed(kernel_bounds.reaches_all, work)
    matched = bool((joined.sum(axis=0) >= 1).all() and (joined.sum(axis=1) == 1).all())
    if reaches(0, joined, True) and reaches(0, joined, False):
        return float(at_speed(kernel_bounds.least_open, work)(most, True, False, matched))
    if reaches(0, joined | joined.T, True):
        return float(at_speed(kernel_bounds.least_open, work)(most, False, True, False))
    return 0.0


def _round_bound(
    problem: Problem, stage: Stage, bundle: tuple[Message, ...], pairs: list[tuple[int, int]], through: Float64
) -> float:
    """The bound by phases that go round: each message waits for one message, and all of them are on one circle."""
    bound = 0.0
    if len(bundle) != 1 or len(pairs) != problem.machines.count:
        return bound
    number, place = problem.place
    for share in stage.shares:
        for p in share.traffic.phases:
            m = len(p.src)
            if p.times == 1 or len(p.waiting) != m or (np.sort(p.waiting) != np.arange(m)).any() or np.ptp(p.lag):
                continue
            a, b = share.ranks[p.src], share.ranks[p.dst]
            between = number[a] != number[b]
            kinds = {*zip(place[a][between].tolist(), place[b][between].tolist(), p.size_bytes[between].tolist())}
            ends = {*zip(number[a][between].tolist(), number[b][between].tolist())}
            if kinds != {bundle[0][:3]} or ends != set(pairs) or not _one_circle(p.waiting, p.awaited):
                continue
            inner = _inside_s(problem, a[~between], b[~between], p.size_bytes[~between])
            nearest = max(through.min(axis=1).sum(), through.min(axis=0).sum())
            either_way = np.minimum(through, through.T)
            np.fill_diagonal(either_way, 0.0)
            circle = at_speed(kernel_circles.shortest_circle_bound, kernel_circles.ROUNDS * len(through) ** 2.0)
            outer = max(nearest, circle(either_way) if np.isfinite(either_way).all() else 0.0)
            # the chain that begins at each message in turn: on the mean they take as many parts of the circle
            bound = max(bound, (p.times // int(p.lag[0])) * (inner + outer) / m)
    return bound


def _inside_s(problem: Problem, src: Int64, dst: Int64, size_bytes: Int64) -> float:
    """The seconds of messages inside machines added up, at least: each on the machine where it takes least."""
    number, place = problem.place
    net, machines = problem.net, problem.machines
    total = 0.0
    fits = {int(size): np.flatnonzero(machines.counts == size) for size in np.unique(machines.counts)}
    rows: Counter[tuple[int, int, int, int]] = Counter(
        zip(problem.seats[number[src]].tolist(), place[src].tolist(), place[dst].tolist(), size_bytes.tolist())
    )
    for (seats, a, b, size), count in rows.items():
        here = fits[seats]
        pairs = machines.pairs(net.gpu[here, a], net.gpu[here, b], np.full(len(here), float(size)))
        total += count * float((pairs.seconds + pairs.latency_s).min())
    return total


def _one_circle(waiting: Int64, awaited: Int64) -> bool:
    """Whether following who is awaited passes all messages and comes back."""
    after = np.empty_like(awaited)
    after[waiting] = awaited
    v, count = int(after[0]), 1
    while v != 0 and count <= len(after):
        v, count = int(after[v]), count + 1
    return v == 0 and count == len(after)
