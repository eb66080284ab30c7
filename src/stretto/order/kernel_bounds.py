"""What messages between each two machines take at least, and the links that all of a machine's messages pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .kernel_cost import Net, link_s, pass_route

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def bundle_times(
    src_gpu: Int64, dst_gpu: Int64, size_bytes: Float64, sent: Float64, inside: bool, shape: Int64, net: Net
) -> tuple[Float64, Float64]:
    """What a bundle of messages takes between each two machines: on its fullest link, and message after message.

    Args:
        src_gpu, dst_gpu: int64[messages], GPUs by their numbers in the machines.
        size_bytes, sent: float64[messages], the size of each, and how many of it are sent.
        inside: whether the bundle is sent inside each machine, and not from one to another.
        shape: int64[machines], GPUs of each.
    Returns:
        float64[machines, machines] twice: seconds until the bundle has passed the fullest link and arrived, infinite
        where it cannot be sent; and the seconds of one message each with latency, added up.
    """
    n = len(shape)
    most, through = np.full((n, n), np.inf), np.full((n, n), np.inf)
    load = np.zeros(len(net.bandwidth))
    for i in range(n):
        for j in range(n):
            if (i == j) != inside or src_gpu.max() >= shape[i] or dst_gpu.max() >= shape[j]:
                continue
            fullest, total, nearest = 0.0, 0.0, np.inf
            for k in range(len(src_gpu)):
                a, b = net.gpu[i, src_gpu[k]], net.gpu[j, dst_gpu[k]]
                seconds, latency = pass_route(a, b, size_bytes[k], net)
                total += seconds + latency
                nearest = min(nearest, latency)
                v, row = a, net.row[b]
                while v != b:
                    link = net.table[row, v]
                    load[link] += sent[k] * link_s(link, size_bytes[k], net)
                    fullest = max(fullest, load[link])
                    v = net.link_dst[link]
            for k in range(len(src_gpu)):
                v, b = net.gpu[i, src_gpu[k]], net.gpu[j, dst_gpu[k]]
                row = net.row[b]
                while v != b:
                    link = net.table[row, v]
                    load[link] = 0.0
                    v = net.link_dst[link]
            most[i, j], through[i, j] = fullest + nearest, total
    return most, through


def narrowest_ways(gpu_number: int, shape: Int64, net: Net) -> tuple[Float64, Float64]:
    """The bandwidth of the narrowest link on all ways from a GPU to other machines, and on all ways to it.

    Args:
        gpu_number: of the GPU in each machine.
    Returns:
        float64[machines] twice, bytes/s, out and in; infinite where there is no such link, or no such GPU.
    """
    n = len(shape)
    out, into = np.full(n, np.inf), np.full(n, np.inf)
    # links that all ways so far have passed, and the last way that passed each
    common = np.zeros(len(net.bandwidth), dtype=np.int64)
    last = np.full(len(net.bandwidth), -1, dtype=np.int64)
    way = 0
    for i in range(n):
        if gpu_number >= shape[i]:
            continue
        here = net.gpu[i, gpu_number]
        for outward in range(2):
            count = -1
            for j in range(n):
                for g in range(shape[j]):
                    if j == i or count == 0:
                        continue
                    there = net.gpu[j, g]
                    v, end = (here, there) if outward == 0 else (there, here)
                    row = net.row[end]
                    way += 1
                    while v != end:
                        link = net.table[row, v]
                        last[link] = way
                        if count < 0:
                            common[-count - 1] = link
                            count -= 1
                        v = net.link_dst[link]
                    if count < 0:
                        count = -count - 1
                        continue
                    kept = 0
                    for k in range(count):
                        if last[common[k]] == way:
                            common[kept] = common[k]
                            kept += 1
                    count = kept
            for k in range(max(count, 0)):
                if outward == 0:
                    out[i] = min(out[i], net.bandwidth[common[k]])
                else:
                    into[i] = min(into[i], net.bandwidth[common[k]])
    return out, into


def reaches_all(start: int, open_pairs: Bool, forward: bool) -> bool:
    """Whether a machine reaches all others over open pairs, or (not ``forward``) all others reach it."""
    n = len(open_pairs)
    seen = np.zeros(n, dtype=np.bool_)
    queue = np.empty(n, dtype=np.int64)
    queue[0], seen[start] = start, True
    count, at = 1, 0
    while at < count:
        v = queue[at]
        at += 1
        for w in range(n):
            if not seen[w] and (open_pairs[v, w] if forward else open_pairs[w, v]):
                seen[w] = True
                queue[count] = w
                count += 1
    return count == n


def matches_all(open_pairs: Bool, partner: Int64) -> bool:
    """Whether each machine can have another one after it, each a different one, over open pairs (Kuhn).

    Args:
        partner: int64[machines], for each machine the one before it, -1 for none: what is matched already; filled in.
    """
    n = len(open_pairs)
    has = np.zeros(n, dtype=np.bool_)
    for w in range(n):
        if partner[w] >= 0 and open_pairs[partner[w], w]:
            has[partner[w]] = True
        else:
            partner[w] = -1
    came, queue = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for root in range(n):
        if has[root]:
            continue
        came[:] = -1
        queue[0] = root
        count, at, end = 1, 0, -1
        while at < count and end < 0:
            v = queue[at]
            at += 1
            for w in range(n):
                if came[w] < 0 and open_pairs[v, w]:
                    came[w] = v
                    if partner[w] < 0:
                        end = w
                        break
                    queue[count] = partner[w]
                    count += 1
        if end < 0:
            return False
        # turn the alternating path round
        while end >= 0:
            v = came[end]
            following = -1
            for w in range(n):
                if partner[w] == v:
                    following = w
                    break
            partner[end] = v
            end = following if v != root else -1
        has[root] = True
    return True


def least_open(time: Float64, forward: bool, both: bool, matched: bool) -> float:
    """The least time within which pairs of machines join all of them.

    Args:
        time: float64[machines, machines], seconds of each pair, infinite where there is none.
        forward: whether each machine must reach each other one along pairs.
        both: whether a pair may be passed either way, if ``forward`` is not asked for.
        matched: whether each machine must also have another one after it, each a different one.
    """
    n = len(time)
    values = np.unique(time)
    values = values[np.isfinite(values)]
    partner = np.full(n, -1, dtype=np.int64)
    low, high = 0, len(values) - 1
    if high < 0:
        return 0.0
    while low < high:
        middle = (low + high) // 2
        open_pairs = time <= values[middle]
        if both and not forward:
            open_pairs = open_pairs | open_pairs.T
        good = reaches_all(0, open_pairs, True)
        if good and forward:
            good = reaches_all(0, open_pairs, False)
        if good and matched:
            partner[:] = -1
            good = matches_all(open_pairs, partner)
        if good:
            high = middle
        else:
            low = middle + 1
    return float(values[low])
