"""Scale a plan so that this machine can emulate it: slower links, smaller chunks, other times, by declared factors.

A transfer of s bytes at rate r takes s / r. With bandwidths divided by B and sizes by D it takes B / D times as long.
Latencies, costs of messages, starts and rates are scaled to match, so the proportions of the plan stay. What a message
costs the processes themselves (:mod:`stretto.runtime.cost`) does not scale, and comes on top where it is more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Float64
from ..model.collective import Collective, Workload
from ..model.errors import InputError
from ..model.messages import messages_of
from ..model.plan import Plan
from ..model.topology import Topology
from ..simulate import simulate

WIDEST, TOTAL = 20e6, 60e6
"""Bytes/s that this machine can fill: of the fastest link, and of all links together for each core."""
SHORT_S, STRETCHED_S = 2.0, 5.0
"""A plan that takes less than ``SHORT_S`` is stretched to ``STRETCHED_S``: at every step of a plan a process may wait
milliseconds for its turn on a core."""
MOST_S = 600.0
"""Seconds that an emulation takes at most, if chunks are large enough."""
TRANSFER_BYTES = 1 << 16
"""Bytes that transfers keep on average, if they have as many in the plan: each transfer costs about 0.1 ms of work."""


@dataclass(frozen=True)
class Scaling:
    """The divisors of bandwidths and sizes."""

    bandwidth: float
    size: float = 1.0

    @property
    def time(self) -> float:
        """The factor of all times; 1 keeps the plan's own time."""
        return self.bandwidth / self.size


def fitting_scale(topology: Topology) -> float:
    """The divisor of bandwidths with which this machine can fill the links, at least 1."""
    circuits = np.repeat([p.bandwidth for p in topology.planes], [len(p.nodes) for p in topology.planes])
    widths = np.concatenate((topology.bandwidth, circuits))
    widest, total = float(widths.max(initial=0.0)), float(widths.sum())
    return max(1.0, widest / WIDEST, total / (TOTAL * (os.cpu_count() or 1)))


def fitting(plan: Plan, bandwidth: float | None = None, size: float | None = None) -> Scaling:
    """How to scale a plan for this machine: to its own time, if that is neither too short nor too long to emulate and
    leaves transfers large enough to be measured.

    Args:
        bandwidth: a divisor of bandwidths to use instead of a fitting one.
        size: the same of sizes.
    Raises:
        InputError: with this divisor of sizes a chunk would have no bytes.
    """
    slower = fitting_scale(plan.topology) if bandwidth is None else bandwidth
    least = float(plan.workload.chunk_bytes.min(initial=np.iinfo(np.int64).max, where=plan.workload.chunk_bytes > 0))
    if size is not None:
        if size > least:
            raise InputError(f"divides a chunk of {least:g} bytes by {size:g}, which leaves none of it", "size")
        return Scaling(slower, size)
    completion_s = simulate(plan).completion_s
    mean = float(plan.size_bytes.mean()) if plan.transfer_count else 0.0
    slowed_s = completion_s * slower
    target_s = completion_s if completion_s >= SHORT_S else STRETCHED_S
    divisor = max(min(slowed_s / target_s, mean / TRANSFER_BYTES), slowed_s / MOST_S)
    return Scaling(slower, max(1.0, min(divisor, least)))


def scaled(plan: Plan, by: Scaling) -> Plan:
    """The plan over slower links with smaller chunks, and all times to match.

    Sizes are whole bytes; the duration of a timed transfer follows the rounding of its bytes.
    """
    workload = Workload(tuple(_smaller(c, by) for c in plan.workload.collectives))
    start_s = finish_s = None
    if plan.start_s is not None and plan.finish_s is not None:
        start_s = plan.start_s * by.time
        finish_s = start_s + (plan.finish_s - plan.start_s) * by.time * _rounded(plan, workload, by)
    net = plan.topology
    planes = tuple(
        replace(
            plane, bandwidth=plane.bandwidth / by.bandwidth, latency_s=plane.latency_s * by.time,
            reconfiguration_s=plane.reconfiguration_s * by.time,
        )
        for plane in net.planes
    )  # fmt: skip
    topology = replace(
        net, planes=planes, bandwidth=net.bandwidth / by.bandwidth, latency_s=net.latency_s * by.time,
        message_s=net.message_s * by.time, changes=net.changes.scaled(by.time, 1 / by.bandwidth),
    )  # fmt: skip
    rate = None if plan.rate is None else plan.rate / by.bandwidth
    turns = replace(plan.turns, start_s=plan.turns.start_s * by.time)
    return replace(
        plan, topology=topology, workload=workload, start_s=start_s, finish_s=finish_s, rate=rate, turns=turns
    )


def _rounded(plan: Plan, workload: Workload, by: Scaling) -> Float64:
    """float64[transfers], how many times as many bytes each has by rounding, or the message of which it is a part."""
    before, after = plan.size_bytes, workload.chunk_bytes[plan.chunk]
    if (messages := messages_of(plan)) is not None:
        before, after = (np.bincount(messages.of, each)[messages.of] for each in (before, after))
    times: Float64 = after * by.size / np.maximum(before, 1)
    return times


def _smaller(c: Collective, by: Scaling) -> Collective:
    """A collective with divided sizes. Offsets are rounded down, so that chunks still cover their pieces."""
    begin = np.floor(c.chunk_offset / by.size).astype(np.int64)
    end = np.floor((c.chunk_offset + c.chunk_bytes) / by.size).astype(np.int64)
    piece_bytes = np.floor(c.piece_bytes / by.size).astype(np.int64)
    return replace(
        c, size_bytes=int(c.size_bytes / by.size), start_s=c.start_s * by.time, piece_bytes=piece_bytes,
        chunk_offset=begin, chunk_bytes=end - begin,
    )  # fmt: skip
