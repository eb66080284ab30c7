"""Kinds of events, nodes, and what each node knows of a chunk, in SCALE-CCL's two event loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.pipes import Int64

ARRIVED, SENT, AGAIN, BEGUN = 0, 1, 2, 3
"""Kinds of events: the receiver of a chunk can send it on; a transmission is complete; a pipe may try once more; a
chunk is at its first holder."""

LACKS_WANTED, LACKS, QUEUED_WANTED, QUEUED, HELD = -1, -2, -3, -4, -9
"""``came[chunk * nodes + node]``: the transfer that brings the chunk to the node, or one of these."""

ROUTER = 1
"""The kind of node that sends on as bytes come."""


class Places(NamedTuple):
    """The nodes."""

    kind: NDArray[np.int8]  # [nodes]
    region: Int64  # [nodes], the datacenter of each accelerator, -1 for routers
