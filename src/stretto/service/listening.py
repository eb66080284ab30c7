"""When telemetry counts: a link differs from what was planned by more than a threshold, for long enough.

A link begins to differ with a sample that is off by more than the threshold, and ceases with one that is off by less
than :data:`RELEASE` of it; samples between the two change nothing (hysteresis). Where it differs for the holding time
without a sample to the contrary, the median of what was reported meanwhile counts. A link that is said to be down
counts at once; one that was down counts again after the holding time. A cable is two links, and a switch many, which
are reported one after the other: so with the first link that counts those count that have differed for a shorter while.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..model.topology import Topology
from ..model.units import format_bandwidth, format_time
from .networks import links_by_name
from .telemetry import samples
from .telemetry.samples import Link, Sample

RELEASE = 0.5
"""Share of the threshold below which a link is as planned again."""

BESIDE = 0.5
"""Share of the holding time after which a link counts together with another one that counts. Else the first plan would
be for one direction of a cable, and the other one would have to wait for it (``benchmarks/controller_ddp.py``)."""

NOISE_S = 100e-6
"""Seconds by which a latency may differ besides the threshold."""

MOST_NAMED = 4
"""Links that a reason names."""

BANDWIDTH, LATENCY = "bandwidth_Bps", "latency_s"
QUANTITY = {samples.CAPACITY: BANDWIDTH, samples.UP: BANDWIDTH, samples.LATENCY: LATENCY}
Key = tuple[str, str, str]
"""Source, destination, and :data:`BANDWIDTH` or :data:`LATENCY`."""


@dataclass(frozen=True)
class Sensitivity:
    """How much and how long a link must differ.

    Attributes:
        threshold: share of the planned value.
        hold_s: seconds.
    """

    threshold: float = 0.15
    hold_s: float = 0.5

    def differs(self, planned: float, value: float, key: str, differed: bool) -> bool:
        """Whether a value is off, after samples that were (``differed``) or were not."""
        if planned == 0 or value == 0:
            return planned != value
        off = abs(value - planned) - (NOISE_S if key == LATENCY else 0.0)
        return off > self.threshold * planned * (RELEASE if differed else 1.0)


@dataclass(frozen=True)
class News:
    """What telemetry comes to.

    Attributes:
        overlay: the network's new overlay; None if nothing counts yet.
        why: the reason for people.
        again_at: when a link that differs now will count; infinite if there is none.
        expected: the overlay if all links that differ now come to count with what they give; None if none does.
    """

    overlay: list[dict[str, Any]] | None
    why: str
    again_at: float
    expected: list[dict[str, Any]] | None = None


def news_of(
    base: Topology, overlay: Sequence[Mapping[str, Any]], reported: Iterable[Sample], now: float, how: Sensitivity
) -> News:
    """What telemetry changes of a network.

    Args:
        base: as an operator gave it.
        overlay: what telemetry has changed so far.
        reported: by time; those of links that the base lacks are ignored.
        now: seconds since 1970.
    """
    number = links_by_name(base)
    planned = _planned(base, number, overlay)
    off: list[tuple[Key, float, float, float]] = []
    for key, values in _by_link(reported, number, base, planned).items():
        since, while_off = _off(values, planned[key], key[2], how)
        if while_off and while_off[-1] == 0:
            off.append((key, 0.0, since, since))
        elif while_off:
            off.append((key, median([v for v in while_off if v > 0]), since, since + how.hold_s))
    counts = any(now >= ripe_at for *_, ripe_at in off)
    changed: dict[Key, float] = {}
    differs: dict[Key, float] = {}
    words, again_at = [], math.inf
    for key, value, since, ripe_at in off:
        differs[key] = float(f"{value:.3g}")
        if now < ripe_at and not (counts and now >= since + BESIDE * how.hold_s):
            again_at = min(again_at, ripe_at)
            continue
        changed[key] = differs[key]
        words.append(_words(key, planned[key], changed[key], now - since))
    expected = _laid_over(base, number, planned | differs, how) if differs else None
    if not changed:
        return News(None, "", again_at, expected)
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    why = f"telemetry: {'; '.join(words[:MOST_NAMED])}{more}"
    return News(_laid_over(base, number, planned | changed, how), why, again_at, expected)


def _planned(base: Topology, number: Mapping[Link, int], overlay: Sequence[Mapping[str, Any]]) -> dict[Key, float]:
    """The value of each link that is planned with."""
    planned: dict[Key, float] = {}
    for (src, dst), link in number.items():
        planned[src, dst, BANDWIDTH] = float(base.bandwidth[link])
        planned[src, dst, LATENCY] = float(base.latency_s[link])
    for said in overlay:
        planned |= {(said["src"], said["dst"], key): said[key] for key in (BANDWIDTH, LATENCY) if key in said}
    return planned


def _by_link(
    reported: Iterable[Sample], number: Mapping[Link, int], base: Topology, planned: Mapping[Key, float]
) -> dict[Key, list[tuple[float, float]]]:
    """The (moment, value) of each link's samples, by time; what links carried says nothing of what they can.

    A port that is up says what its link can carry only where that was down: then it is what the base has.
    """
    found: dict[Key, list[tuple[float, float]]] = {}
    for sample in reported:
        if sample.link not in number or sample.kind not in QUANTITY:
            continue
        key, value = (*sample.link, QUANTITY[sample.kind]), sample.rate
        if sample.kind == samples.UP and value:
            before = found[key][-1][1] if key in found else planned[key]
            if before:
                continue
            value = float(base.bandwidth[number[sample.link]])
        found.setdefault(key, []).append((sample.at_s, value))
    return found


def _off(
    values: Sequence[tuple[float, float]], planned: float, key: str, how: Sensitivity
) -> tuple[float, list[float]]:
    """Since when the last samples are off to the same side, and these; none if the link is as planned."""
    since = math.inf
    while_off: list[float] = []
    for at, value in values:
        if while_off and (value > planned) != (while_off[-1] > planned):
            since, while_off = math.inf, []  # the median of both sides might be what is planned
        if not how.differs(planned, value, key, bool(while_off)):
            since, while_off = math.inf, []
            continue
        since = min(since, at)
        while_off.append(value)
    return since, while_off


def _laid_over(
    base: Topology, number: Mapping[Link, int], values: Mapping[Key, float], how: Sensitivity
) -> list[dict[str, Any]]:
    """The overlay that makes the base have these values; what is as in the base again is left out."""
    said: dict[tuple[str, str], dict[str, Any]] = {}
    for (src, dst, key), value in values.items():
        link = number[src, dst]
        given = float((base.bandwidth if key == BANDWIDTH else base.latency_s)[link])
        if value != given and how.differs(given, value, key, True):
            said.setdefault((src, dst), {"src": src, "dst": dst})[key] = value
    return [said[ends] for ends in sorted(said)]


def _words(key: Key, planned: float, value: float, for_s: float) -> str:
    src, dst, quantity = key
    if quantity == BANDWIDTH and value == 0:
        return f"{src}→{dst} is down"
    shown = format_bandwidth if quantity == BANDWIDTH else format_time
    was = "down" if quantity == BANDWIDTH and planned == 0 else shown(planned)
    return f"{src}→{dst} has {shown(value)} instead of {was} for {for_s:.1f} s"
