"""A part of a request as SCALE-CCL's kernels take it, and whether what they sent is complete."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Goals
from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.topology import Topology
from ...schedule.pipes import HELD, Network, build_network, set_goals
from .kernel_states import Places
from .kernel_transmission import Sent


class Task(NamedTuple):
    """Chunks to be spread over the pipes of a network; ``work`` is chunks times links."""

    topology: Topology
    workload: Workload
    network: Network
    goals: Goals
    places: Places
    chunks: Chunks
    work: float


def task_of(topology: Topology, workload: Workload, through_routers: bool) -> Task:
    """The task of a workload; pipes pass through routers where these must not store (sums)."""
    work = float(workload.chunk_count) * topology.link_count
    network = build_network(topology, float(workload.chunk_bytes.mean()), through_routers, work)
    held, sizes = workload.chunk_holders, workload.chunk_bytes.astype(np.float64)
    chunks = Chunks(sizes, workload.chunk_start_s, held.offsets, held.values.astype(np.int64))
    goals = set_goals(topology, network, workload, work)
    return Task(topology, workload, network, goals, Places(topology.forwarding, network.region), chunks, work)


def complete(task: Task, sent: Sent, count: int, missing: int) -> Sent:
    """The rows of transfers alone.

    Raises:
        Infeasible: wanted deliveries are missing.
    """
    sent = Sent(*(column[:count] for column in sent))  # type: ignore[arg-type]
    if missing:
        has = task.goals.came.reshape(task.workload.chunk_count, -1) == HELD
        has[sent.chunk, task.network.dst[sent.pipe]] = True
        wanted = task.workload.chunk_wanted
        k = int(np.flatnonzero(~has[wanted.owners, wanted.values])[0])
        node = task.topology.names[int(wanted.values[k])]
        raise Infeasible(f"{node} cannot be reached from where chunk {int(wanted.owners[k])} is")
    return sent
