"""The record of a run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Trace:
    """When each row was sent or received at this node, seconds from the start of the run.

    Attributes:
        sent_s, gone_s: when the first and the last byte were given to the network.
        coming_s, arrived_s: when the first byte arrived, and when the whole row had.
        by_kernel: whether the kernel paced connections.
    """

    sent_s: dict[int, float] = field(default_factory=dict)
    gone_s: dict[int, float] = field(default_factory=dict)
    coming_s: dict[int, float] = field(default_factory=dict)
    arrived_s: dict[int, float] = field(default_factory=dict)
    by_kernel: bool = False
