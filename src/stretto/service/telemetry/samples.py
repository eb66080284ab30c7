"""A sample: what a link can carry, or what it carried, at a moment. The one form in which telemetry comes in.

Over HTTP (``POST /networks/{name}/telemetry``) samples are a JSON object::

    {"samples": [{"src": "gpu0", "dst": "gpu1", "kind": "capacity", "rate_Bps": 2.5e9, "time_s": 1795447321.5}]}

``rate_Bps`` is in bytes/s, ``time_s`` in seconds since 1970 (UTC).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...topologies.values import check_keys, entry, shown

CAPACITY, CARRIED = KINDS = ("capacity", "carried")
"""What a rate is: what the link can carry (0: the link is down), or what it carried on average since the sample before,
which says nothing about what it could have."""

ENTRIES = ("src", "dst", "kind", "rate_Bps", "time_s")

MOST = sys.float_info.max

Link = tuple[str, str]
"""A link by the names of its nodes: the one that sends, the one that receives."""


class Sample(NamedTuple):
    """One rate of one link.

    Attributes:
        src, dst: names of nodes of the network.
        kind: one of :data:`KINDS`.
        rate: bytes/s.
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


def samples_of(document: Any, where: str) -> list[Sample]:
    """The samples of a JSON object.

    Raises:
        InputError: it is not of the form of the module's text; names the place.
    """
    check_keys(document, ("samples",), where)
    return [_sample(data, f"{where}, sample {i}") for i, data in enumerate(entry(document, "samples", list, where))]


def _sample(data: Any, where: str) -> Sample:
    check_keys(data, ENTRIES, where)
    kind = entry(data, "kind", str, where)
    if kind not in KINDS:
        raise InputError(f"kind {shown(kind)} is none of {', '.join(KINDS)}", where)
    rate, at_s = (_number(data.get(name), name, where) for name in ("rate_Bps", "time_s"))
    return Sample(entry(data, "src", str, where), entry(data, "dst", str, where), kind, rate, at_s)


def _number(value: object, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
        raise InputError(f"{name!r} must be a finite number, not {shown(value)}", where)
    return float(value)


def document_of(samples: Iterable[Sample]) -> dict[str, Any]:
    """The JSON object of samples."""
    return {
        "samples": [{"src": s.src, "dst": s.dst, "kind": s.kind, "rate_Bps": s.rate, "time_s": s.at_s} for s in samples]
    }
