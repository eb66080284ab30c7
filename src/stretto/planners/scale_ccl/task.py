"""A part of a request as SCALE-CCL's kernels take it, and whether what they sent is complete."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Goals
from ...model.arrays import Float64
from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.topology import Topology
from ...schedule.pipes import HELD, Network, build_network, set_goals
from .kernel_states import Places
from .kernel_transmission import LEAST_RATE, Sent


class Task(NamedTuple):
    """Chunks to be spread over the pipes of a network."""

    topology: Topology
    workload: Workload
    network: Network
    goals: Goals
    places: Places
    chunks: Chunks
    work: float  # chunks times links
    share: Float64  # [hops], how much of each link a pipe uses that is as fast as its slowest link

    @property
    def shares(self) -> bool:
        """Whether one pipe leaves room for another on some link."""
        return len(self.share) > 0 and bool(self.share.min() <= 1 - LEAST_RATE * self.share.min())


def task_of(topology: Topology, workload: Workload, through_routers: bool, shared: bool = True, ways: int = 1) -> Task:
    """The task of a workload.

    Args:
        through_routers: pipes pass through routers, which must not store (sums).
        shared: pipes slower than a link of theirs leave the rest of it to others; else they use it whole.
        ways: pipes from one accelerator to another through routers, at most, where chunks cannot choose there.
    """
    work = float(workload.chunk_count) * topology.link_count
    ways = ways if through_routers and topology.is_router.any() else 1
    network = build_network(topology, float(workload.chunk_bytes.mean()), through_routers, work, ways)
    held, sizes = workload.chunk_holders, workload.chunk_bytes.astype(np.float64)
    chunks = Chunks(sizes, workload.chunk_start_s, held.offsets, held.values.astype(np.int64))
    goals, places = set_goals(topology, network, workload, work), Places(topology.forwarding, network.region)
    share = network.share if shared else np.ones(len(network.hops.values))
    return Task(topology, workload, network, goals, places, chunks, work, share)


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
