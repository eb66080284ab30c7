"""What a message costs the processes that run plans, as the ``message_s`` of a topology's links.

A message is one transfer to one receiver. Its two processes spend time on it however small it is: the sender takes it
from its queue and hands it to the kernel, the receiver is woken, finds the place of the bytes and releases what waits
for them. While they do so the link between them carries nothing for them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.topology import Topology

MESSAGE_S = 200e-6
"""Seconds that a message keeps a link busy besides its bytes when processes send it. Chosen by
``benchmarks/executor.py``. Planning with half or twice as much changes how finely plans are cut, not whether they are
right."""


def costed(topology: Topology, message_s: float = MESSAGE_S) -> Topology:
    """The network as processes see it: on each link a message costs at least ``message_s``.

    What the links themselves ask for is kept where it is more.
    """
    if (topology.message_s >= message_s).all():
        return topology
    return replace(topology, message_s=np.maximum(topology.message_s, message_s))
