"""What a run notes down as it goes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Trace:
    """When rows were under way at this node, seconds from the start of the run.

    Attributes:
        sent_s, gone_s: when the first and the last byte were given to the network.
        coming_s, arrived_s: when the first byte came, and when the row had arrived.
        by_kernel: whether the kernel paced connections.
    """

    sent_s: dict[int, float] = field(default_factory=dict)
    gone_s: dict[int, float] = field(default_factory=dict)
    coming_s: dict[int, float] = field(default_factory=dict)
    arrived_s: dict[int, float] = field(default_factory=dict)
    by_kernel: bool = False
