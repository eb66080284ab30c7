"""When a value counts as changed while a network is watched.

A cycle of watching sends few bytes, so its rates may be too low: a short stream has hardly left TCP's slow start. They
are compared with those of the same few bytes sent before. Only what a full measurement confirms is a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.measurements import Measured
from ..runtime.probe import Effort
from ..topologies.measured import Link

LIGHT_S = 0.25
"""Seconds that a stream of a cycle lasts at most."""
LIGHT_ECHOES = 5
ACCURACY = 0.05
"""A value within this share of its range has not changed."""
LIGHT_ACCURACY = 0.15
"""The same of a light measurement; more suspicions cost more bytes, fewer overlook smaller changes."""
NOISE_S = 100e-6
"""Seconds that a latency may differ by without having changed."""


def light_of(effort: Effort, load_bytes: int) -> Effort:
    """The effort of a cycle."""
    return replace(
        effort, echoes=LIGHT_ECHOES, batches=0, seconds=min(effort.seconds, LIGHT_S),
        most_bytes=min(effort.most_bytes, load_bytes), trials=1, connections=effort.connections[:1],
    )  # fmt: skip


def suspicious(before: Sequence[Link], now: Sequence[Link]) -> bool:
    """Whether two light measurements differ by more than they do by chance."""
    return any(_differs(a, b, LIGHT_ACCURACY) for a, b in zip(before, now, strict=True))


def changed(before: Sequence[Link], now: Sequence[Link]) -> list[Link]:
    """The links, as they are now, of which a value has left the range that it was in. What messages cost is kept."""
    return [replace(b, message_s=a.message_s) for a, b in zip(before, now, strict=True) if _differs(a, b, ACCURACY)]


def _differs(before: Link, now: Link, accuracy: float) -> bool:
    rate = _left(before.bandwidth, now.bandwidth, accuracy, 0.0)
    return rate or _left(before.latency_s, now.latency_s, accuracy, NOISE_S)


def _left(before: Measured, now: Measured, share: float, noise: float) -> bool:
    """Whether a value lies outside of the range that it had, and the ranges have nothing in common."""
    low = before.low * (1 - share) - noise
    high = None if before.high is None else before.high * (1 + share) + noise
    outside = now.value < low or (high is not None and now.value > high)
    return outside and not before.overlaps(now)
