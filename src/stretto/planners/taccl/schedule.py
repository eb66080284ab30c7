"""TACCL, stages 2 and 3: the order in which a link serves its chunks, then exact times.

Shah, Chidambaram et al., NSDI 2023, sections 4.2 and 4.3. Stage 2 orders greedily: a chunk with
the longest way still to go goes first, then one with the shortest way behind it. Stage 3 keeps
that order and decides, by a small integer program, which neighbours on a link between sites travel
as one message (alpha once, but none is there before all are), and when everything starts.
"""

from __future__ import annotations

import heapq

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Workload
from ...solvers import Model
from .hops import Hops


def order_sends(
    workload: Workload, hops: Hops, chosen: list[list[int]]
) -> tuple[list[tuple[int, int]], list[int], Float64]:
    """Stage 2: all sends in the order in which a greedy run makes them.

    In TACCL's accounting a hop is occupied for alpha + beta.

    Args:
        chosen: for each chunk its hops, from the holder outwards.
    Returns:
        (chunk, hop) of each send; the send that fed it, -1 for what was held; and when it starts.
    """
    sends = [(q, h) for q, taken in enumerate(chosen) for h in taken]
    number = {s: k for k, s in enumerate(sends)}
    took = np.array([hops.latency_s[h] + workload.chunk_bytes[q] / hops.bandwidth[h] for q, h in sends])
    parent, depth, tail = [-1] * len(sends), [0.0] * len(sends), list(took)
    for q, taken in enumerate(chosen):
        bringer = {int(hops.dst[h]): number[q, h] for h in taken}
        for h in taken:
            k = number[q, h]
            parent[k] = bringer.get(int(hops.src[h]), -1)
            if parent[k] >= 0:
                depth[k] = depth[parent[k]] + took[parent[k]]
        for h in reversed(taken):
            k = number[q, h]
            if parent[k] >= 0:
                tail[parent[k]] = max(tail[parent[k]], took[parent[k]] + tail[k])
    children: dict[int, list[int]] = {}
    for k, p in enumerate(parent):
        children.setdefault(p, []).append(k)
    free = np.zeros(int(hops.route.values.max(initial=-1)) + 1)
    start = np.zeros(len(sends))

    def entry(k: int, ready: float) -> tuple[float, float, float, int]:
        at = max(ready, free[hops.route[sends[k][1]]].max())
        return at, -tail[k], depth[k], k

    ready = {k: float(workload.chunk_start_s[sends[k][0]]) for k in children.get(-1, [])}
    queue = [entry(k, r) for k, r in ready.items()]
    heapq.heapify(queue)
    order: list[int] = []
    while queue:
        at, _, _, k = heapq.heappop(queue)
        again = entry(k, ready[k])
        if again[0] > at:
            heapq.heappush(queue, again)
            continue
        start[k] = at
        order.append(k)
        free[hops.route[sends[k][1]]] = at + took[k]
        for c in children.get(k, ()):
            ready[c] = at + took[k]
            heapq.heappush(queue, entry(c, ready[c]))
    rank = {k: n for n, k in enumerate(order)}
    return (
        [sends[k] for k in order],
        [rank[parent[k]] if parent[k] >= 0 else -1 for k in order],
        start[order],
    )


class Scheduling:
    """Stage 3: when each send starts, which sends are joined with the one before on their hop, and the time T.

    Times are in units of ``scale`` seconds.
    """

    def __init__(
        self, workload: Workload, hops: Hops, sends: list[tuple[int, int]], parent: list[int], start_s: Float64
    ) -> None:
        self.sends, n = sends, len(sends)
        alpha = np.array([hops.latency_s[h] for _, h in sends])
        beta = np.array([workload.chunk_bytes[q] / hops.bandwidth[h] for q, h in sends])
        self.scale = float((alpha + beta).min()) if n else 1.0
        alpha, beta = alpha / self.scale, beta / self.scale
        self.beta = beta
        begin = np.array([workload.chunk_start_s[q] for q, _ in sends]) / self.scale
        horizon = float((start_s / self.scale + alpha + beta).max(initial=0.0)) * 1.01 + 1.0
        model = Model()
        self.start = model.columns(n, lower=begin, upper=horizon)
        self.arrival = model.columns(n, upper=horizon)
        self.finish = model.columns(1, upper=np.inf, cost=1.0)[0]
        # the work of a message up to this send: its beta, and those of the sends that it is joined with
        self.work = model.columns(n, lower=beta, upper=horizon)
        # arrival >= start + alpha + work
        model.rows(n, alpha, np.inf, (self.arrival, 1.0), (self.start, -1.0), (self.work, -1.0))
        model.rows(n, -np.inf, 0.0, (self.arrival, 1.0), (self.finish, -1.0))
        by = np.array(parent, dtype=np.int64)
        fed = np.flatnonzero(by >= 0)
        model.rows(len(fed), 0.0, np.inf, (self.start[fed], 1.0), (self.arrival[by[fed]], -1.0))
        self.joined: dict[int, int] = {}
        self._orders(model, hops, horizon)
        self.model = model

    def _orders(self, model: Model, hops: Hops, horizon: float) -> None:
        """One send after the other on every link; on a remote hop it may join the one before."""
        last: dict[int, int] = {}
        after: list[tuple[int, int]] = []
        maybe: list[tuple[int, int]] = []
        for n, (_, h) in enumerate(self.sends):
            before = {last[i] for i in hops.route[h].tolist() if i in last}
            for one in before:
                same = self.sends[one][1] == h and hops.remote[h] and len(before) == 1
                (maybe if same else after).append((n, one))
            last.update(dict.fromkeys(hops.route[h].tolist(), n))
        k, b = np.array(after, dtype=np.int64).reshape(-1, 2).T
        model.rows(len(k), 0.0, np.inf, (self.start[k], 1.0), (self.arrival[b], -1.0))
        k, b = np.array(maybe, dtype=np.int64).reshape(-1, 2).T
        joined: Int64 = model.columns(len(k), integer=True)
        self.joined = dict(zip(k.tolist(), joined.tolist(), strict=True))
        # joined sends start together and arrive together; others go one after the other
        model.rows(len(k), 0.0, np.inf, (self.start[k], 1.0), (self.arrival[b], -1.0), (joined, horizon))
        for sign in (1.0, -1.0):
            model.rows(len(k), -np.inf, horizon, (self.start[k], sign), (self.start[b], -sign), (joined, horizon))
        model.rows(len(k), -horizon, np.inf, (self.arrival[b], 1.0), (self.arrival[k], -1.0), (joined, -horizon))
        least = self.beta[k] - horizon
        model.rows(len(k), least, np.inf, (self.work[k], 1.0), (self.work[b], -1.0), (joined, -horizon))
