"""SCALE-CCL's published rules (``rules=paper``): what its kernels ask about a network."""

from __future__ import annotations

import numpy as np

from ...kernels import at_speed
from ...kernels.pipes import Lists
from . import kernel_published
from .kernel_forwarding import Reading, Sites
from .kernel_transmission import Sent
from .task import Task, complete


def as_published(task: Task, reading: Reading) -> Sent:
    """The transfers of the published algorithm."""
    collectives, network = task.workload.collectives, task.network
    first_piece = np.cumsum([0, *(len(c.piece_bytes) for c in collectives[:-1])])
    piece = np.concatenate([c.chunk_piece + first for c, first in zip(collectives, first_piece, strict=True)])
    sent, count, missing, _ = at_speed(kernel_published.synthesize, task.work)(
        network.columns, task.share, Lists(*network.into), Lists(*network.users), task.places, sites_of(task),
        task.chunks, piece.astype(np.int64), task.goals, reading,
    )  # fmt: skip
    return complete(task, sent, count, missing)


def sites_of(task: Task) -> Sites:
    """Where nodes are, as the published rules ask it. A router without accelerators is a site of its own."""
    network, goals, region = task.network, task.goals, task.network.region
    nodes, regions = task.topology.node_count, int(region.max()) + 1
    site = np.where(region >= 0, region, regions + np.arange(nodes))
    to_router = (region[network.src] >= 0) & (region[network.dst] < 0)
    np.minimum.at(site, network.dst[to_router], region[network.src[to_router]])
    leads_to: dict[int, set[int]] = {int(v): set() for v in np.flatnonzero(region < 0)}
    for u, v in zip(network.src.tolist(), network.dst.tolist(), strict=True):
        if u in leads_to and site[u] != site[v]:
            leads_to[u].add(int(site[v]))
    number: dict[frozenset[int], int] = {}
    family = np.zeros(nodes, dtype=np.int64)
    for v, others in leads_to.items():
        family[v] = number.setdefault(frozenset(others), len(number))
    reach = goals.distance.copy()
    for r in range(regions):
        members = np.flatnonzero(region == r)
        reach[: goals.single, members] = reach[: goals.single, members].min(axis=1, keepdims=True)
    pipe_of = np.full((nodes, nodes), -1, dtype=np.int64)
    back = np.arange(len(network.src))[::-1]
    pipe_of[network.src[back], network.dst[back]] = back
    return Sites(site, family, reach, pipe_of)
