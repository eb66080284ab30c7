"""What messages add to bounds by bandwidth: a message of every piece takes room on each link that the piece crosses.

On a link a message counts as the bytes that the link carries in the message's cost, and no message carries bytes of two
pieces. Let w be the fewest bytes that a message counts as on any link. Take any plan, and let one chunk of every piece
be larger by w. Where messages cost nothing this plan needs no more time: each transfer of the larger chunk has had room
for w bytes more. So the bounds of pieces that are larger by w, where messages cost nothing, hold for the plan.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.collective import Collective, Workload
from ..model.topology import Topology

LEAST_SHARE = 1e-3
"""Bytes of messages, as a share of the mean piece, below which a second set of bounds is not worth computing."""


def without_messages(topology: Topology, workload: Workload) -> tuple[Topology, Workload] | None:
    """The network where messages cost nothing, and the workload with the bytes that they count as at least.

    None where that changes bounds by little.
    """
    if topology.planes or not topology.message_s.all():
        return None
    bytes_of_message = int((topology.message_s * topology.bandwidth).min(initial=np.inf))
    if bytes_of_message < LEAST_SHARE * np.mean([c.piece_bytes.mean() for c in workload.collectives]):
        return None
    heavier = Workload(tuple(_heavier(c, bytes_of_message) for c in workload.collectives))
    return replace(topology, message_s=np.zeros(topology.link_count)), heavier


def _heavier(c: Collective, more: int) -> Collective:
    """The collective with pieces that are larger by some bytes, and so the last chunk of each piece."""
    last = np.flatnonzero(c.chunk_offset + c.chunk_bytes == c.piece_bytes[c.chunk_piece])
    chunk_bytes = c.chunk_bytes.copy()
    chunk_bytes[last] += more
    # if pieces are alike, the buffer grows by that for each of them; if not, it is only known not to shrink
    alike = c.piece_bytes.max() - c.piece_bytes.min() <= 1
    size = c.size_bytes + more * (c.size_bytes // int(c.piece_bytes.max())) if alike else c.size_bytes
    return replace(c, piece_bytes=c.piece_bytes + more, chunk_bytes=chunk_bytes, size_bytes=size)
