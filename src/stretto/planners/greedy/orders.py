"""Deliveries in a better order: the solution of a matching, or of growing trees, improved move by move.

A delivery keeps the links of its way busy, so who sends to how many, and in which order, decides when the last one has
its chunk. Where messages cost this is most of the time: Karp, Sahay, Santos and Schauser, "Optimal broadcast and
summation in the LogP model" (SPAA 1993) have the best trees on equal links; here links are unlike and shared.
"""

from __future__ import annotations

import numpy as np

from ...kernels import at_speed
from ...kernels.chunks import Chunks
from ...kernels.pipes import Lists
from ...model.arrays import Int64
from ...model.collective import Workload
from ...schedule.effort import Budget
from ...schedule.inversion import Transfers
from ...schedule.pipes import Network
from . import kernel_orders
from .kernel_orders import HELD, LACKS, Deliveries

LEAST_TRIES = 16
"""Orders for which there must be work, or none is tried."""


def improve_order(
    network: Network, workload: Workload, sent: Transfers, most_looks: float, seed: int, budget: Budget
) -> Transfers:
    """The same chunks delivered in a better order, where one is found; ``sent`` itself where none is.

    Args:
        network: the pipes; all transfers end where it stores.
        most_looks: how many pipes may be looked at, about.
        budget: with a cost for "look".
    """
    lengths = np.diff(network.into[0])
    one_try = float(lengths[sent.dst].sum())
    most_looks = min(most_looks, budget.units("look"))
    if most_looks < LEAST_TRIES * one_try or not one_try:
        return sent
    count, chunk = len(sent.chunk), sent.chunk.astype(np.int64)
    wants = np.zeros((workload.chunk_count, network.topology.node_count), dtype=np.bool_)
    wants[workload.chunk_wanted.owners, workload.chunk_wanted.values] = True
    holders = workload.chunk_holders
    chunks = Chunks(
        workload.chunk_bytes.astype(np.float64), workload.chunk_start_s, holders.offsets,
        holders.values.astype(np.int64),
    )  # fmt: skip
    made = Deliveries(
        chunk, sent.dst.astype(np.int64), wants[chunk, sent.dst], np.full(count, -1), np.full(count, LACKS),
        np.zeros(count), np.zeros(count), np.full(count, -1), np.full(count, -1), np.full(count, LACKS),
    )  # fmt: skip
    order, looks = at_speed(kernel_orders.improve, most_looks)(
        network.columns, Lists(*network.into), network.topology.link_count, chunks,
        np.arange(workload.chunk_count), made, most_looks, seed & 0x7FFFFFFF,
    )  # fmt: skip
    budget.spend(look=looks)
    if made.arrival_s[order].max() >= sent.arrival_s.max():
        return sent
    return _transfers(network, workload, made, order)


def _transfers(network: Network, workload: Workload, made: Deliveries, order: Int64) -> Transfers:
    """The deliveries that somebody needs, in the order of their starts."""
    needed = made.wanted.copy()
    for k in order[::-1].tolist():
        if needed[k] and made.parent[k] != HELD:
            needed[made.parent[k]] = True
    rows = order[needed[order]]
    rows = rows[np.argsort(made.start_s[rows], kind="stable")]
    place = np.full(len(made.chunk), -1)
    place[rows] = np.arange(len(rows))
    pipe, chunk, parent = made.pipe[rows], made.chunk[rows], made.parent[rows]
    seconds = workload.chunk_bytes[chunk] * network.per_byte[pipe]
    return Transfers(
        chunk, network.src[pipe], network.dst[pipe], network.hops.take(pipe),
        np.where(parent >= 0, place[np.maximum(parent, 0)], -1), made.start_s[rows], seconds, made.arrival_s[rows],
    )  # fmt: skip
