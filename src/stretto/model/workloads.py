"""Workloads as papers generate them: several AllReduces over one uneven WAN, and the AllToAll of experts.

Wang, Craps, Li, "Optimizing Wide-Area Collective Communication via Flow-Dependency-Aware Rate
Allocation", section IV-B: flow sizes and capacities from normal distributions, truncated to
stay positive; a WAN link is two directed links of equal capacity.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .arrays import Float64, Int32, Int64
from .collective import Collective, Workload, make_collective
from .errors import InputError
from .topology import Topology

MEAN_BYTES, SPREAD_BYTES = 5e6, 2.5e6
"""Mean and standard deviation of a chunk's size, bytes."""

MEAN_WIDTH, SPREAD_WIDTH = 22.5e6, 2.5e6
"""Mean and standard deviation of a link's bandwidth, bytes/s."""


def wan_workload(
    topology: Topology,
    collectives: int,
    ranks: int | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    shuffled: bool = True,
    gap_s: float = 0.0,
) -> tuple[Topology, Workload]:
    """Concurrent AllReduces over a WAN, each with as many chunks as ranks.

    The paper leaves open which nodes take part, in which order they are on the ring, and how sizes of flows and chunks
    relate. Here the nodes are drawn anew for each collective, their order is ``shuffled``, and a flow is as large as
    its chunk, so that the flows of a group are of one size.

    Args:
        topology: gives the links; bandwidths are drawn anew, latencies become 0 and routes may pass through any node.
        ranks: nodes of each collective; all accelerators by default.
        scale: factor on the sizes of 5 +- 2.5 MB.
        shuffled: False leaves ranks in the order of nodes.
        gap_s: collective k starts at k * gap_s.
    Raises:
        InputError: fewer than two ranks or more than there are nodes.
    """
    rng = np.random.default_rng(seed)
    nodes = topology.accelerators
    m = len(nodes) if ranks is None else ranks
    if not 2 <= m <= len(nodes):
        raise InputError(f"{m} ranks: {topology.name} has room for 2 to {len(nodes)}", "ranks")
    a, b = np.minimum(topology.src, topology.dst), np.maximum(topology.src, topology.dst)
    cables, cable = np.unique(a.astype(np.int64) * topology.node_count + b, return_inverse=True)
    wan = replace(
        topology,
        bandwidth=_positive(rng, MEAN_WIDTH, SPREAD_WIDTH, len(cables))[cable],
        latency_s=np.zeros(topology.link_count),
        transit=np.ones(topology.node_count, dtype=np.bool_),
    )
    drawn = []
    for k in range(collectives):
        chosen = rng.permutation(nodes)[:m]
        sizes = np.maximum(np.rint(_positive(rng, MEAN_BYTES, SPREAD_BYTES, m) * scale), 1).astype(np.int64)
        drawn.append(uneven_allreduce(wan, chosen if shuffled else np.sort(chosen), sizes, k * gap_s))
    return wan, Workload(tuple(drawn))


def uneven_allreduce(topology: Topology, ranks: Int32, sizes: Int64, start_s: float) -> Collective:
    """An AllReduce whose buffer is cut into chunks of these sizes, bytes."""
    whole = make_collective("allreduce", topology, int(sizes.sum()), ranks=[int(v) for v in ranks], start_s=start_s)
    piece, offset = np.zeros(len(sizes), dtype=np.int32), np.cumsum(sizes) - sizes
    return replace(whole, chunk_piece=piece, chunk_offset=offset.astype(np.int64), chunk_bytes=sizes.astype(np.int64))


def expert_demand(ranks: int, tokens: int, token_bytes: int, *, skew: float = 1.0, seed: int = 0) -> Int64:
    """The bytes that a layer of experts sends, with one expert on each rank: a matrix for
    :func:`stretto.model.demand.alltoallv`.

    The popularity of experts falls with their place to the power ``skew`` (Zipf). Each rank routes its tokens by
    popularities drawn around these (Dirichlet).

    Args:
        tokens: how many each rank has.
        token_bytes: size of one token's activations.
    """
    rng = np.random.default_rng(seed)
    popularity = rng.permutation(np.arange(1, ranks + 1) ** -float(skew))
    shares = rng.dirichlet(ranks * popularity / popularity.sum(), ranks)
    return np.array([rng.multinomial(tokens, share) for share in shares], dtype=np.int64) * token_bytes


def _positive(rng: np.random.Generator, mean: float, spread: float, count: int) -> Float64:
    """Normal draws; those that are not positive are drawn again."""
    drawn = rng.normal(mean, spread, count)
    while (bad := drawn <= 0).any():
        drawn[bad] = rng.normal(mean, spread, int(bad.sum()))
    return drawn
