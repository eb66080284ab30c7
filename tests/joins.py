"""Plans by hand in which switches sum: AllReduce in one pass over a tree of switches."""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology


def two_levels(**flags: Any) -> Topology:
    """Four accelerators on two leaf switches and a root switch; 1 GB/s, and 1, 2, 3 and 4 us to the leaves."""
    ends = [(0, 4, 1), (1, 4, 2), (2, 5, 3), (3, 5, 4), (4, 6, 10), (5, 6, 10)]
    links = [(a, b, 1e9, us * 1e-6) for u, v, us in ends for a, b in ((u, v), (v, u))]
    kinds = [ACCELERATOR] * 4 + [SWITCH] * 3
    return make_topology("levels", kinds, links, **{"reduces": [False] * 4 + [True] * 3} | flags)


def in_one_pass(net: Topology, parts: int = 4, sharing: str = "timed", size: int = 10**6, **columns: Any) -> Plan:
    """AllReduce over all of the network's tree, which has one root: the last node."""
    up: list[int] = []
    reached = [net.node_count - 1]
    for v in reached:
        for link in net.in_links[v].tolist():
            if int(net.src[link]) not in reached:
                reached.append(int(net.src[link]))
                up.insert(0, link)
    back = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}
    down = [back[int(net.dst[link]), int(net.src[link])] for link in up[::-1]]
    ranks = net.accelerators.tolist()
    workload = Workload((make_collective("allreduce", net, size, chunks=parts),))
    n = workload.chunk_count
    seconds = workload.chunk_bytes / net.bandwidth[0] + net.message_s[0]
    finish = np.cumsum(seconds)
    given: dict[str, Any] = {"start_s": finish - seconds, "finish_s": finish} if sharing == "timed" else {}
    return make_plan(
        net, workload, sharing, chunk=np.arange(n), src=np.full(n, ranks[0]), other_src=Ragged.of([ranks[1:]] * n),
        dst=Ragged.of([ranks] * n), route=Ragged.of([up + down] * n), depends=Ragged.empty(n), **given | columns,
    )  # fmt: skip


def in_two_steps() -> Plan:
    """AllReduce over two levels of switches: node 0 adds to node 1, and the others sum all with node 1."""
    net = two_levels()
    workload = Workload((make_collective("allreduce", net, 10**6),))
    links = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}
    pairs = [(1, 4), (4, 6), (2, 5), (3, 5), (5, 6), (6, 4), (4, 0), (4, 1), (6, 5), (5, 2), (5, 3)]
    start = np.array([0.0, 1.003e-3 - 0.0])
    return make_plan(
        net, workload, "timed", chunk=[0, 0], src=[0, 1], op=[1, 0], other_src=Ragged.of([[], [2, 3]]),
        dst=Ragged.of([[1], [0, 1, 2, 3]]), depends=Ragged.of([[], [0]]), start_s=start, finish_s=start + 1e-3,
        route=Ragged.of([[links[0, 4], links[4, 1]], [links[pair] for pair in pairs]]),
    )  # fmt: skip
