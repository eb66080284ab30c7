"""Sizes, bandwidths and times: read from text, and written for people.

Inside the library everything is bytes, bytes per second and seconds. KB, MB and GB are powers of 1000, KiB, MiB and GiB
powers of 1024. ``bit`` is an eighth of a byte, so ``400Gbit/s`` (or ``400Gbps``) is 50 GB/s. In a bandwidth a small b
is a bit, as in ``400Gb/s``; in a size it may be either, and is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .errors import InputError

_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_PREFIX |= {f"{p}i": 1024.0**n for n, p in enumerate("kmgtp", start=1)}
_PER_SECOND = {"": 1.0, "s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "μs": 1e6, "ns": 1e9}
_PER_SECOND |= {f"{p}sec": 10.0**n for p, n in (("", 0), ("m", 3), ("u", 6), ("n", 9))}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d]*(?:/\s*\w+)?)\s*")
_MAX_BYTES = 2**60

SIZES = ("KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "B")
"""Units of sizes that errors name."""
SPEEDS = ("GB/s", "MB/s", "Gbit/s", "Mbit/s", "Gbps", "Mbps")
"""Units of bandwidths that errors name."""

BANDWIDTHS = (1.0, 1e18)
"""The slowest and the fastest link, bytes/s."""

LONGEST_S = 366 * 86400.0
"""A year: the longest latency, and the latest start, seconds."""


def _split(text: str, what: str, where: str | None) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not a {what}", where)
    return float(match[1]), match[2]


def _like(unit: str, units: Sequence[str]) -> str:
    """What to say of an unknown unit: the units with its prefix, else all. Two units with different prefixes differ in
    one letter, so that :func:`~stretto.model.errors.nearest` would name wrong ones."""
    same = [each for each in units if each[0].lower() == unit[0].lower()]
    return f"did you mean {' or '.join(same)}?" if same else f"there are {', '.join(units)}"


def _bytes_factor(unit: str) -> float | None:
    """How many bytes a unit has ("MB", "Gbit", "KiB", "" for bytes); None if it is no unit of size."""
    lower = unit.lower()
    for suffix, factor in (("bits", 0.125), ("bit", 0.125), ("b", 1.0), ("", 1.0)):
        prefix = lower.removesuffix(suffix) if suffix else lower
        if lower.endswith(suffix) and prefix in _PREFIX:
            return _PREFIX[prefix] * factor
    return None


def parse_size(text: str | int | float, where: str | None = None) -> int:
    """Bytes, a whole number of at least 1, from ``64KB``, ``1MiB``, ``1e6`` or a number.

    Raises:
        InputError: not a size, bits or bytes, not positive, or not a whole number of bytes.
    """
    if "," in str(text):
        raise InputError(f"{text!r} is not one size; `stretto compare` and `stretto tune` take several", where)
    number, unit = _split(str(text), "size (try 64KB, 1MiB or 1e6)", where)
    if unit.endswith("b"):
        word = unit[:-1].upper().replace("I", "i")
        raise InputError(f"{text!r} may be bits or bytes: write {word}B or {word}bit", where)
    factor = _bytes_factor(unit)
    if factor is None:
        raise InputError(f"{text!r} has an unknown unit {unit!r}; {_like(unit, SIZES)}", where)
    size = number * factor
    if not math.isfinite(size) or size < 1:
        raise InputError(f"{text!r} must be at least one byte", where)
    if size > _MAX_BYTES:
        raise InputError(f"{text!r} is more than 2^60 bytes", where)
    if abs(size - round(size)) > 1e-6:
        raise InputError(f"{text!r} is not a whole number of bytes", where)
    return round(size)


def parse_bandwidth(text: str | int | float, where: str | None = None) -> float:
    """Bytes per second from ``25GB/s``, ``400Gbit/s``, ``400Gbps``, ``400Gb/s``, or a number (not text) of bytes/s.

    Raises:
        InputError: not a bandwidth, text without a unit, or outside :data:`BANDWIDTHS`.
    """
    number, unit = _split(str(text), "bandwidth (try 25GB/s or 400Gbit/s)", where)
    name = unit.replace(" ", "").replace("/sec", "/s")
    if name in ("", "/s") and isinstance(text, str):
        digits = text.strip().removesuffix(unit).strip()
        raise InputError(f"{text!r} has no unit: write {digits}GB/s, or {digits}B/s for bytes", where)
    if name.lower().endswith("bps"):
        factor = _PREFIX.get(name[:-3].lower())
        factor = None if factor is None else factor * (1.0 if name[-3] == "B" else 0.125)
    else:
        name = name.removesuffix("/s")
        factor = _bytes_factor(name + "it" if name.endswith("b") else name)
    if factor is None:
        raise InputError(f"{text!r} has an unknown unit {unit!r}; {_like(unit, SPEEDS)}", where)
    bandwidth = number * factor
    if not BANDWIDTHS[0] <= bandwidth <= BANDWIDTHS[1]:
        raise InputError(f"{text!r} is not a bandwidth from 1 B/s to 1e18 B/s", where)
    return bandwidth


def parse_time(text: str | int | float, where: str | None = None) -> float:
    """Seconds, from zero to a year, from ``5us``, ``0.7 ms``, ``1s`` or a number of seconds."""
    number, unit = _split(str(text), "time (try 5us, 0.7ms or 1s)", where)
    if unit not in _PER_SECOND:
        raise InputError(f"{text!r} has an unknown unit {unit!r}; there are s, ms, us and ns", where)
    seconds = number / _PER_SECOND[unit]
    if not 0 <= seconds <= LONGEST_S:
        raise InputError(f"{text!r} is not a time from zero to a year", where)
    return seconds


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    factor, unit = next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])
    return f"{_digits(value / factor)} {unit}"


def _digits(value: float) -> str:
    """Four digits of a number, and all of those before its point; never an exponent."""
    if abs(value) >= 9999.5:
        return f"{value:,.0f}"
    text = f"{value:.4g}"
    if "e" not in text:
        return text
    places = 3 - int(text.partition("e")[2])
    return f"{value:.{places}f}".rstrip("0")


def format_size(size_bytes: float) -> str:
    """Bytes for people, such as ``31.25 MB``."""
    return _scaled(size_bytes, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")))


def format_usd(usd: float) -> str:
    """``0.0875 USD``."""
    return f"{_digits(usd)} USD"


def format_bandwidth(bytes_per_s: float) -> str:
    """A bandwidth for people, such as ``12.5 GB/s``."""
    return format_size(bytes_per_s) + "/s"


def format_time(seconds: float) -> str:
    """A time for people, such as ``62.51 ms`` or ``20.8 h``."""
    if seconds == 0:
        return "0 s"
    return _scaled(seconds, ((3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))
