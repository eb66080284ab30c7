"""What an order costs by its messages' loads on links, and a bound on what the simulator says of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Net(NamedTuple):
    """Machines and links.

    Attributes:
        gpu: int64[machines, GPUs of the largest], nodes; -1 where a machine has fewer.
        row: int64[nodes], the row of each accelerator in ``table``.
        table: int32[ranks, nodes], the link by which each node sends on what is for each accelerator.
        link_dst: int64[links]. bandwidth, latency_s, message_s: float64[links].
    """

    gpu: Int64
    row: Int64
    table: Int32
    link_dst: Int64
    bandwidth: Float64
    latency_s: Float64
    message_s: Float64


class Kinds(NamedTuple):
    """Messages of one pair of ranks and one size.

    Attributes:
        src, src_gpu, dst, dst_gpu: int64[kinds], the numbers of the machines, and of the GPUs in them.
        size_bytes: float64[kinds].
        sent: float64[kinds], how many of them are sent.
        stage: int64[stages + 1], the first kind of each stage.
    """

    src: Int64
    src_gpu: Int64
    dst: Int64
    dst_gpu: Int64
    size_bytes: Float64
    sent: Float64
    stage: Int64


class Rows(NamedTuple):
    """All messages, those of one stage next to each other.

    Attributes:
        kind: int64[messages].
        before: int64[messages], the same message the time before, -1 for none.
        offsets, depends: CSR, the earlier messages that each waits for.
        stage: int64[stages + 1], the first message of each stage.
    """

    kind: Int64
    before: Int64
    offsets: Int64
    depends: Int64
    stage: Int64


def link_s(link: int, size_bytes: float, net: Net) -> float:
    """The seconds that a message takes of a link."""
    seconds: float = size_bytes / net.bandwidth[link] + net.message_s[link]
    return seconds


def pass_route(src: int, dst: int, size_bytes: float, net: Net) -> tuple[float, float]:
    """The seconds that a message keeps its slowest link, and its latency."""
    seconds, latency = 0.0, 0.0
    row = net.row[dst]
    v = src
    while v != dst:
        link = net.table[row, v]
        seconds = max(seconds, link_s(link, size_bytes, net))
        latency += net.latency_s[link]
        v = net.link_dst[link]
    return seconds, latency


def load_bound(
    order: Int64, placed: int, kinds: Kinds, net: Net, seconds: Float64, latency: Float64, load: Float64, near: Float64
) -> float:
    """A bound by the loads of links, on the time of all stages one after the other.

    Args:
        order: int64[machines], the machine that has each number.
        placed: only messages between the first ``placed`` numbers count.
        seconds, latency: float64[kinds], filled in for these messages.
        load, near: float64[links], zeros and infinities; left as they were.
    """
    total = 0.0
    for s in range(len(kinds.stage) - 1):
        most = 0.0
        for k in range(kinds.stage[s], kinds.stage[s + 1]):
            if kinds.src[k] >= placed or kinds.dst[k] >= placed:
                continue
            a, b = net.gpu[order[kinds.src[k]], kinds.src_gpu[k]], net.gpu[order[kinds.dst[k]], kinds.dst_gpu[k]]
            seconds[k], latency[k] = pass_route(a, b, kinds.size_bytes[k], net)
            v, row = a, net.row[b]
            while v != b:
                link = net.table[row, v]
                load[link] += kinds.sent[k] * link_s(link, kinds.size_bytes[k], net)
                near[link] = min(near[link], latency[k])
                # what passes the link last must still arrive
                most = max(most, load[link] + near[link])
                v = net.link_dst[link]
        for k in range(kinds.stage[s], kinds.stage[s + 1]):
            if kinds.src[k] >= placed or kinds.dst[k] >= placed:
                continue
            a, b = net.gpu[order[kinds.src[k]], kinds.src_gpu[k]], net.gpu[order[kinds.dst[k]], kinds.dst_gpu[k]]
            v, row = a, net.row[b]
            while v != b:
                link = net.table[row, v]
                load[link], near[link] = 0.0, np.inf
                v = net.link_dst[link]
        total += most
    return total


def order_bound(
    order: Int64, kinds: Kinds, rows: Rows, net: Net, seconds: Float64, latency: Float64, load: Float64, near: Float64,
    finish: Float64,
) -> float:  # fmt: skip
    """A time that the simulator's is never below, for this order: by loads, and by chains of messages that wait.

    A message keeps its route no shorter than by itself. The same message of the next time has lower priority on the
    same route and is ready no sooner, so it has nothing of the route's fullest link until the one before has ended.

    Args:
        finish: float64[messages], room.
    """
    total = 0.0
    n = len(order)
    load_bound(order, n, kinds, net, seconds, latency, load, near)
    for s in range(len(rows.stage) - 1):
        last = 0.0
        for m in range(rows.stage[s], rows.stage[s + 1]):
            k = rows.kind[m]
            start = 0.0
            for i in range(rows.offsets[m], rows.offsets[m + 1]):
                d = rows.depends[i]
                start = max(start, finish[d] + latency[rows.kind[d]])
            if rows.before[m] >= 0:
                start = max(start, finish[rows.before[m]])
            finish[m] = start + seconds[k]
            last = max(last, finish[m] + latency[k])
        one = Kinds(
            kinds.src, kinds.src_gpu, kinds.dst, kinds.dst_gpu, kinds.size_bytes, kinds.sent, kinds.stage[s : s + 2]
        )
        total += max(last, load_bound(order, n, one, net, seconds, latency, load, near))
    return total


def order_bounds(orders: Int64, kinds: Kinds, rows: Rows, net: Net) -> Float64:
    """float64[orders], :func:`order_bound` of each."""
    seconds, latency = np.zeros(len(kinds.src)), np.zeros(len(kinds.src))
    load, near = np.zeros(len(net.bandwidth)), np.full(len(net.bandwidth), np.inf)
    finish = np.zeros(len(rows.kind))
    bounds = np.zeros(len(orders))
    for i in range(len(orders)):
        bounds[i] = order_bound(orders[i], kinds, rows, net, seconds, latency, load, near, finish)
    return bounds


def open_orders(
    below_s: float, same: Int64, shape: Int64, seats: Int64, fixed: int, kinds: Kinds, rows: Rows, net: Net, most: int,
    budget: float,
) -> tuple[Int64, Float64, float]:  # fmt: skip
    """All orders, but for equal ones, that the bounds do not show to take ``below_s`` or longer.

    Branch and bound: numbers are given from 0 on, and a beginning is left where the messages within it alone take as
    long.

    Args:
        same: int64[machines], the machine before each that is exchangeable with it, -1 for none: such machines get
            their numbers in this order.
        shape, seats: int64[machines], how many GPUs each machine has, and how many the machine of each number must
            have.
        fixed: a machine that has the number 0, since all numbers are alike; -1 for none.
        most: how many orders to return at most.
        budget: messages that may be followed; of further orders only the loads count.
    Returns:
        orders: int64[orders, machines]. bounds: float64[orders]. left: the least bound of an order that was left out
        since there were ``most``, infinite if there was none.
    """
    n = len(same)
    seconds, latency = np.zeros(len(kinds.src)), np.zeros(len(kinds.src))
    load, near = np.zeros(len(net.bandwidth)), np.full(len(net.bandwidth), np.inf)
    finish = np.zeros(len(rows.kind))
    orders, bounds = np.zeros((most, n), dtype=np.int64), np.zeros(most)
    count = 0
    left = np.inf
    order, used = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    tried = np.full(n, -1, dtype=np.int64)
    depth = 0
    while depth >= 0:
        if tried[depth] >= 0:
            used[tried[depth]] = False
        m = tried[depth] + 1
        while m < n and (
            used[m]
            or shape[m] != seats[depth]
            or (same[m] >= 0 and not used[same[m]])
            or (depth == 0 and fixed >= 0 and m != fixed)
        ):
            m += 1
        if m == n:
            tried[depth] = -1
            depth -= 1
            continue
        tried[depth], order[depth], used[m] = m, m, True
        if depth < n - 1:
            if load_bound(order, depth + 1, kinds, net, seconds, latency, load, near) < below_s:
                depth += 1
            continue
        bound = load_bound(order, n, kinds, net, seconds, latency, load, near)
        if bound < below_s and budget > 0:
            bound = order_bound(order, kinds, rows, net, seconds, latency, load, near, finish)
            budget -= len(finish)
        if bound < below_s:
            if count < most:
                orders[count], bounds[count] = order, bound
                count += 1
            else:
                left = min(left, bound)
    return orders[:count], bounds[:count], left
