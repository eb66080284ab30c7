"""A sample: what a link can carry, or what it carried, at a moment. All sources of telemetry make this one form.

Over HTTP, and in files, samples are :mod:`telemetry objects <stretto.formats.telemetry>`: one for each moment, with
``time``, and for each link a ``bandwidth``, ``down`` or ``carried``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

CAPACITY, CARRIED, LATENCY, UP = KINDS = ("capacity", "carried", "latency", "up")
"""What a rate is: what the link can carry (0: the link is down), or what it carried on average since the sample before,
which says nothing about what it could have; or a latency, in seconds; or whether it is up (1) or down (0), which says
nothing of what it can carry."""

Link = tuple[str, str]
"""A link by the names of its nodes: the one that sends, the one that receives."""


class Sample(NamedTuple):
    """One rate of one link.

    Attributes:
        src, dst: names of nodes of the network.
        kind: one of :data:`KINDS`.
        rate: bytes/s; of a latency, seconds; 1 or 0 for up or down.
        at_s: the moment it was measured, or the end of the interval, seconds since 1970.
    """

    src: str
    dst: str
    kind: str
    rate: float
    at_s: float

    @property
    def link(self) -> Link:
        """The link by the names of its nodes."""
        return self.src, self.dst


def telemetry_objects(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """The telemetry objects of samples, one for each moment, in the order of time."""
    ordered = sorted(samples, key=lambda s: s.at_s)
    return [
        {"time": _text(at_s), "links": [{"src": s.src, "dst": s.dst} | _value(s) for s in at_once]}
        for at_s, at_once in groupby(ordered, key=lambda s: s.at_s)
    ]


def _text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _value(sample: Sample) -> dict[str, Any]:
    if sample.kind == CARRIED:
        return {"carried": sample.rate}
    if sample.kind == LATENCY:
        return {"latency": sample.rate}
    if sample.kind == UP:
        return {"down": sample.rate == 0}
    return {"bandwidth": sample.rate} if sample.rate else {"down": True}
