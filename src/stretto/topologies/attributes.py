"""The attributes of nodes and edges in GraphML and GML.

The Topology Zoo's names are known (label, Longitude, Latitude, LinkSpeedRaw in bit/s), and stretto's
(name, kind, site, x, y, bandwidth, latency, message). Case does not matter, except in a unit that is part of the
name: ``bandwidth_GBps`` is bytes, ``bandwidth_Gbps`` bits.
"""

from __future__ import annotations

import math

from ..model.errors import InputError
from ..model.units import parse_bandwidth, parse_time
from .values import one_line, parse_kind, real, single
from .wan import Cable, Place

UNKNOWN = ("", "None", "?", "null")
_BANDWIDTHS = {"bandwidth": "", "bandwidth_Bps": "B/s", "bandwidth_GBps": "GB/s", "bandwidth_Gbps": "Gbit/s"}
_LATENCIES = {"latency": "", "latency_s": "s", "latency_ms": "ms", "latency_us": "us"}
_MESSAGES = {"message": "", "message_s": "s", "message_us": "us"}


def place(attributes: dict[str, str], where: str) -> Place:
    """A node from its attributes."""
    known = {key.lower(): value for key, value in attributes.items() if value not in UNKNOWN}
    lon, lat = _number(known, ("longitude", "lon"), where, 360), _number(known, ("latitude", "lat"), where, 90)
    x, y = _number(known, ("x",), where), _number(known, ("y",), where)
    return Place(
        one_line(known.get("label") or known.get("name") or ""),
        lon,
        lat,
        kind=parse_kind(known.get("kind", "gpu"), where),
        site=one_line(known.get("site", "")),
        drawn=None if x is None or y is None else (x, y),
    )


def cable(a: int, b: int, attributes: dict[str, str], directed: bool, where: str) -> Cable:
    """An edge from its attributes."""
    known = {key: value for key, value in attributes.items() if value not in UNKNOWN}
    width = _quantity(known, _BANDWIDTHS, where)
    times = (_quantity(known, units, where) for units in (_LATENCIES, _MESSAGES))
    latency_s, message_s = (None if time is None else parse_time(time, where) for time in times)
    if width is not None:
        return Cable(a, b, _bandwidth(width, where), latency_s, directed, message_s)
    speeds = {key.lower(): value for key, value in known.items()}
    bits = real(speeds["linkspeedraw"], "linkspeedraw", where) if "linkspeedraw" in speeds else 0.0
    return Cable(a, b, bits / 8 if bits else None, latency_s, directed, message_s)


def _bandwidth(text: str, where: str) -> float:
    """Bytes/s; a number without a unit is in bytes/s, as in our JSON."""
    try:
        return parse_bandwidth(float(text), where)
    except ValueError:
        return parse_bandwidth(text, where)


def _quantity(known: dict[str, str], units: dict[str, str], where: str) -> str | None:
    """The value of the one attribute of these names, with its unit."""
    lowered = {name.lower() for name in units}
    key = single([key for key in known if key.lower() in lowered], where)
    if key is None:
        return None
    name = key if key in units else key.lower()
    if name not in units:
        raise InputError(f"{key!r} is unclear; write {', '.join(units)}", where)
    return known[key] + units[name]


def _number(known: dict[str, str], keys: tuple[str, ...], where: str, most: float = math.inf) -> float | None:
    """The first of these coordinates that is given, from ``-most`` to ``most``."""
    key = next((key for key in keys if key in known), None)
    if key is None:
        return None
    try:
        value = float(known[key])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > most:
        within = "" if math.isinf(most) else f" from {-most:g} to {most:g}"
        raise InputError(f"{key} {known[key][:40]!r} is not a number{within}", where)
    return value
