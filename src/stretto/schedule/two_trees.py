"""Two binary trees over the same ranks: inner ranks of one are leaves of the other, and each carries half of the data.

Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 2009; laid as NCCL 2.20 does (src/graph/trees.cc). Edges have two colours, so that
in each step, whose colours alternate, a rank sends to one partner and receives from one. Chunks
follow each other two steps apart.
"""

from __future__ import annotations

import math

import numpy as np

from ..model.arrays import Int64

STEP_BYTES = 4 * 2**20 // 8
"""Bytes of a step of a channel's buffer: NCCL_BUFFSIZE divided into NCCL_STEPS, by default (protocol Simple)."""

HALVINGS = ((8, 128 * 2**10), (4, 64 * 2**10), (1, 32 * 2**10))
"""Slices a level, and least bytes: a slice is halved while there are fewer slices than that (src/enqueue.cc)."""


def slice_count(share_bytes: float, depth: int) -> int:
    """Into how many slices NCCL cuts the share of a tree, so that all levels of the tree are busy."""
    size = STEP_BYTES
    for level, least in HALVINGS:
        while share_bytes / size < level * depth and size > least:
            size //= 2
    return max(1, math.ceil(share_bytes / size))


def parents(n: int, second: bool, rooted: bool) -> list[int]:
    """The parent of each of n in the first or second tree, -1 for the root.

    The second is the mirror of the first, or for odd n shifted by one. Where the root is given, 0 is
    that of both, and the others are shifted.
    """
    place = list(range(n))
    if second:
        if rooted:
            place = [0, *place[2:], *place[1:2]]
        else:
            place = place[1:] + place[:1] if n % 2 else place[::-1]
    above = [-1] * n
    for i in range(1, n):
        # the lowest bit of i says its level: one up is the next multiple of twice that bit, or the last if beyond
        bit = i & -i
        up = (i - bit) | 2 * bit
        above[place[i]] = place[up if up < n else i - bit]
    return above


def descent(n: int, chunks: int) -> list[tuple[Int64, Int64, Int64]]:
    """The steps in which the roots' chunks come down both trees.

    Returns:
        For each step chunk, sender and receiver; chunks from ``chunks`` on are the second tree's.
    """
    trees = [parents(n, second, rooted=False) for second in (False, True)]
    tree = np.repeat((0, 1), n - 1)
    dst = np.concatenate([[v for v in range(n) if above[v] >= 0] for above in trees])
    src = np.array([trees[t][v] for t, v in zip(tree, dst, strict=True)])
    first = _first_steps(trees, _colours(src, dst), {(int(t), int(v)): e for e, (t, v) in enumerate(zip(tree, dst))})
    steps = []
    for step in range(int(first.max()) + 2 * chunks - 1):
        since = step - first
        moves = (since >= 0) & (since % 2 == 0) & (since < 2 * chunks)
        if moves.any():
            steps.append((tree[moves] * chunks + since[moves] // 2, src[moves], dst[moves]))
    return steps


def _first_steps(trees: list[list[int]], colour: Int64, edge: dict[tuple[int, int], int]) -> Int64:
    """int64[edges], when each edge carries its tree's first chunk: the next step of its colour."""
    first = np.full(len(colour), -1)

    def arrival(t: int, v: int) -> int:
        if trees[t][v] < 0:
            return -1
        e = edge[t, v]
        if first[e] < 0:
            soonest = arrival(t, trees[t][v]) + 1
            first[e] = soonest + (soonest + int(colour[e])) % 2
        return int(first[e])

    for t, v in edge:
        arrival(t, v)
    return first


def _colours(src: Int64, dst: Int64) -> Int64:
    """int64[edges], 0 or 1: edges of one colour share no sender and no receiver, each of which has at most two."""
    rivals: list[list[int]] = [[] for _ in src]
    for ends in (src, dst):
        last: dict[int, int] = {}
        for e, v in enumerate(ends.tolist()):
            if v in last:
                rivals[e].append(last[v])
                rivals[last[v]].append(e)
            last[v] = e
    colour = np.full(len(src), -1)
    for begin in range(len(src)):
        stack = [begin] if colour[begin] < 0 else []
        colour[stack] = 0
        while stack:
            e = stack.pop()
            for other in rivals[e]:
                if colour[other] < 0:
                    colour[other] = 1 - colour[e]
                    stack.append(other)
    return colour
