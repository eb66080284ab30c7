"""What messages add to bounds by bandwidth: a message takes room on each link that it crosses.

On link e, of bandwidth b, a message counts as w_e bytes, and no message carries bytes of two collectives. Let w be
the smallest w_e, s the bytes of all pieces of the largest collective, and p the most pieces that one has. A message of
L <= s bytes takes room for

    L + w_e  >=  (L + w) (s + w_e) / (s + w)

bytes, and carries chunks of p pieces at most. Take any plan, let one chunk of every piece be larger by w / p, and let
link e have the bandwidth b (s + w) / (s + w_e). Where messages cost nothing this plan needs no more time there. So the
bounds of these pieces on these links, where messages cost nothing, hold for the plan.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.collective import Collective, Workload
from ..model.topology import Topology

LEAST_SHARE = 1e-3
"""Bytes of messages, as a share of the mean piece, below which a second set of bounds is not worth computing."""


def cost_at_ends(topology: Topology) -> bool:
    """Whether messages cost on all links at an end of which a node stores, if there are any.

    False where routes may pass through accelerators, which send on what still comes.
    """
    stores = topology.store_and_forward
    ends = stores[topology.src] | stores[topology.dst]
    passed = topology.is_accelerator & topology.transit
    return bool(ends.any() and topology.message_s[ends].all() and not passed.any())


def without_messages(topology: Topology, workload: Workload) -> tuple[Topology, Workload] | None:
    """The network and the workload whose bounds hold for the given ones, and where messages cost nothing.

    None where that changes bounds by little.
    """
    if topology.planes:
        return None
    counted = topology.message_bytes
    if counted.max(initial=0.0) < LEAST_SHARE * np.mean([c.piece_bytes.mean() for c in workload.collectives]):
        return None
    least = int(counted.min())
    pieces = max(len(c.piece_bytes) for c in workload.collectives)
    if least < pieces and counted.max() == counted.min():
        return None
    heavier = Workload(tuple(_heavier(c, least // pieces) for c in workload.collectives))
    largest = float(max(c.piece_bytes.sum() for c in workload.collectives))
    slower = topology.bandwidth * (largest + least) / (largest + counted)
    return replace(topology, bandwidth=slower, message_s=np.zeros(topology.link_count)), heavier


def _heavier(c: Collective, more: int) -> Collective:
    """The collective with pieces that are larger by some bytes, and so the last chunk of each piece."""
    last = np.flatnonzero(c.chunk_offset + c.chunk_bytes == c.piece_bytes[c.chunk_piece])
    chunk_bytes = c.chunk_bytes.copy()
    chunk_bytes[last] += more
    # if pieces are alike, the buffer grows by that for each of them; if not, it is only known not to shrink
    alike = c.piece_bytes.max() - c.piece_bytes.min() <= 1
    size = c.size_bytes + more * (c.size_bytes // int(c.piece_bytes.max())) if alike else c.size_bytes
    return replace(c, piece_bytes=c.piece_bytes + more, chunk_bytes=chunk_bytes, size_bytes=size)
