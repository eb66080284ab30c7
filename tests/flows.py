"""Flows by hand: chains over named links, as the WAN paper draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stretto.model.arrays import Ragged
from stretto.model.changes import Changes
from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan, make_plan
from stretto.model.timeline import Timeline
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners.wan.bound import FlowBound, flow_bound
from stretto.planners.wan.flows import flows_of
from stretto.simulate import simulate


def lines(*bandwidths: float) -> Topology:
    """Link i from node i to node i + 1, and a way back that nobody uses; every node may be passed."""
    n = len(bandwidths)
    links = [(i, i + 1, float(w), 0.0) for i, w in enumerate(bandwidths)] + [(n, 0, 1.0, 0.0)]
    return make_topology("lines", [ACCELERATOR] * (n + 1), links, transit=[True] * (n + 1))


def over_routers(routers: Sequence[int], chunk_bytes: int, bandwidths: Sequence[float] = (5e6, 3e6)) -> Plan:
    """Chunks from rank 0 to rank 1, each over one of these routers, which are nodes 2, 3, ... and have a bandwidth each."""
    links = [(a, b, w, 0.0) for r, w in enumerate(bandwidths, 2) for v in (0, 1) for a, b in ((v, r), (r, v))]
    kinds = [ACCELERATOR, ACCELERATOR, *([SWITCH] * len(bandwidths))]
    net = make_topology("routers", kinds, links, replicates=[False] * len(kinds))
    at = {pair: i for i, pair in enumerate(zip(net.src.tolist(), net.dst.tolist()))}
    n = len(routers)
    return make_plan(
        net, Workload((alltoallv(net, [[0, n * chunk_bytes], [0, 0]], chunks=n),)), "ready-order", chunk=range(n),
        src=[0] * n, op=[0] * n, dst=Ragged.single([1] * n), depends=Ragged.of([[]] * n),
        route=Ragged.of([[at[0, r], at[r, 1]] for r in routers]),
    )  # fmt: skip


def chains(net: Topology, *collectives: list[list[tuple[int, list[int]]]], starts: tuple[float, ...] = ()) -> Plan:
    """A plan of collectives, each a list of chains, each a list of flows (bytes, links).

    What is carried makes no sense as data: a flow is one chunk of a multicast to its last node.
    """
    made: list[Collective] = []
    rows: list[tuple[int, int, int, list[int], list[int], int]] = []
    group = chunk = 0
    for k, collective in enumerate(collectives):
        for chain in collective:
            for i, (size, links) in enumerate(chain):
                a, b = int(net.src[links[0]]), int(net.dst[links[-1]])
                ranks = [a, b]
                start = starts[k] if starts else 0.0
                made.append(make_collective("multicast", net, size, ranks=ranks, receivers=[1], start_s=start))
                rows.append((chunk, a, b, links, [len(rows) - 1] if i else [], group))
                chunk += 1
            group += 1
    return make_plan(
        net,
        Workload(tuple(made)),
        "ready-order",
        chunk=[r[0] for r in rows],
        src=[r[1] for r in rows],
        dst=Ragged.single([r[2] for r in rows]),
        route=Ragged.of([r[3] for r in rows]),
        depends=Ragged.of([r[4] for r in rows]),
        group=[r[5] for r in rows],
    )


def run(plan: Plan, sharing: str, *, changes: Changes | None = None, **columns) -> Timeline:
    from dataclasses import replace

    arrays = {name: np.asarray(value, dtype=float) for name, value in columns.items()}
    return simulate(replace(plan, sharing=sharing, **arrays), changes)


def bound_of(plan: Plan) -> FlowBound:
    """The bound of wan for the flows of a plan."""
    return flow_bound(flows_of(plan))
