"""Regions of AWS, Azure and Google Cloud, by measured bandwidths and round trips, with prices of what leaves a region.

Each region has GPUs behind a switch, and behind it a VM's way out and its way in: switches that neither store nor
replicate, since a VM sends each region its own bytes. A pair of regions is joined by what was measured between two VMs;
the links to the way out and from the way in carry what a VM may send and receive in all, also of what it passes on.
Data: ``cloud_regions.csv``, whose head names its source and licence; prices: :mod:`.cloud_prices`.
"""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np

from ..model.arrays import Float64
from ..model.errors import InputError, nearest
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import parse_bandwidth, parse_time
from . import Family, Setting, check_size, whole
from .cloud_prices import usd_per_gb
from .draft import Draft
from .sites import FIBRE_KM_PER_S
from .wan import Place, kilometres

GBIT = 1e9 / 8
OUT, IN = ".out", ".in"

VM_GBIT = {"aws": (5.0, 10.0), "gcp": (7.0, 16.0), "azure": (16.0, 16.0)}
"""What a VM of 32 cores may send and receive in all, Gbit/s: the limits of Skyplane's planner (``planner/solver.py``),
which are the providers' published ones; what was measured inside a cloud reaches them."""

CONNECTIONS = 64
"""TCP connections of the measurement."""

WINDOW_BYTES = 3 * 2**20
"""What one TCP connection has on its way at most: half of what Linux allows a receive buffer by default (6 MiB). With
fewer than 64 connections a pair of regions has at most this a connection and round trip."""

DETOUR = 1.74
"""Round trips over those at 200,000 km/s along great circles: the median of 3,386 measured pairs farther apart than
500 km. It stands in for the round trips of the three regions that have none."""

SETTINGS = (
    Setting("gpus", partial(whole, least=1), 1, "accelerators a region"),
    Setting("vms", partial(whole, least=1), 1, "VMs a region; each has the measured bandwidth, and its own limits"),
    Setting("connections", partial(whole, least=1), CONNECTIONS, "TCP connections between two VMs; measured with 64"),
    Setting("egress", parse_bandwidth, None, "what a VM sends in all; else 5 Gbit/s of AWS, 7 of Google, 16 of Azure"),
    Setting("bandwidth", parse_bandwidth, 50e9, "between GPUs and the switch of a region"),
    Setting("latency", parse_time, 1e-6, "inside a region"),
)


@dataclass(frozen=True)
class Regions:
    """The table: names and places in its order, Gbit/s and milliseconds from each region to each, NaN where unknown."""

    names: tuple[str, ...]
    places: tuple[Place, ...]
    gbit: Float64
    rtt_ms: Float64


@cache
def measured_regions() -> Regions:
    """The regions of the package's table, as measured."""
    text = (files(__package__) / "cloud_regions.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))
    places = tuple(Place(row[1], float(row[2]), float(row[3])) for row in rows)
    table = np.array([[float(cell or "nan") for cell in row[4:]] for row in rows])
    return Regions(tuple(row[0] for row in rows), places, table[:, : len(rows)], table[:, len(rows) :])


def _cloud(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """Regions of which every pair is joined both ways."""
    table = measured_regions()
    chosen = _chosen(":".join(arguments), table.names, spec)
    size, count = settings["gpus"], len(chosen)
    if count * size < 2:
        raise InputError("one GPU has nobody to talk to; name two regions, or more gpus", spec)
    check_size(count * (size + 3), count * (2 * size + 2) + count * (count - 1), spec)
    draft, ways, estimated = Draft(), [], 0
    for r in chosen:
        ways.append(_add_region(draft, table, r, settings))
    usd: dict[tuple[int, int], float] = {}
    for a, (source, _) in zip(chosen, ways):
        for b, (_, target) in zip(chosen, ways):
            if a != b:
                rtt_s = float(table.rtt_ms[a, b]) * 1e-3
                if rtt_s != rtt_s:
                    estimated += 1
                    rtt_s = 2 * DETOUR * (kilometres(table.places[a], table.places[b]) or 0.0) / FIBRE_KM_PER_S
                width = settings["vms"] * _pair_bandwidth(float(table.gbit[a, b]), rtt_s, settings["connections"])
                draft.link(source, target, width, rtt_s / 2)
                usd[source, target] = usd_per_gb(table.names[a], table.names[b]) * 1e-9
    notes = ["bandwidths and round trips measured in January 2022 (Skyplane, Apache-2.0)",
             "prices of what leaves a region: list prices of January 2024, first terabytes a month"]  # fmt: skip
    if estimated:
        notes.append(f"links whose round trip was not measured, taken by distance: {estimated}")
    if settings["connections"] < CONNECTIONS:
        notes.append(f"bandwidths with {settings['connections']} connections are estimated by a window of 3 MiB each")
    return draft.topology(
        spec, ordered=True, geographic=True, notes=notes, where=spec,
        replicates=[k == SWITCH and not name.endswith((OUT, IN)) for k, name in zip(draft.kinds, draft.names)],
        usd_per_byte=[usd.get(ends, 0.0) for ends in sorted(draft.links)],
    )  # fmt: skip


def _add_region(draft: Draft, table: Regions, region: int, settings: dict[str, Any]) -> tuple[int, int]:
    """Add the GPUs and the switches of a region; returns the numbers of its VM's way out and way in."""
    name, place = table.names[region], table.places[region]
    at = (place.lon or 0.0, place.lat or 0.0)
    gpus = [draft.node(ACCELERATOR, f"{name}.gpu{g}", name, at) for g in range(settings["gpus"])]
    switch = draft.node(SWITCH, f"{name}.switch", name, at)
    ways = draft.node(SWITCH, name + OUT, name, at), draft.node(SWITCH, name + IN, name, at)
    for gpu in gpus:
        draft.join(gpu, switch, settings["bandwidth"], settings["latency"])
    sends, receives = (gbit * GBIT for gbit in VM_GBIT[name.partition(":")[0]])
    sends = settings["egress"] or sends
    draft.link(switch, ways[0], settings["vms"] * sends, settings["latency"])
    draft.link(ways[1], switch, settings["vms"] * receives, settings["latency"])
    return ways


def _pair_bandwidth(gbit: float, rtt_s: float, connections: int) -> float:
    """Bytes/s between two VMs: as measured, with fewer connections at most a window of each a round trip."""
    if connections >= CONNECTIONS:
        return gbit * GBIT
    return min(gbit * GBIT, connections * WINDOW_BYTES / max(rtt_s, 1e-6))


def _chosen(text: str, names: tuple[str, ...], spec: str) -> list[int]:
    """The numbers of the regions of a list; a cloud's name alone stands for all of its regions."""
    chosen: list[int] = []
    for part in filter(None, text.split(",")):
        asked = part.strip().lower()
        found = [k for k, name in enumerate(names) if asked in (name, name.partition(":")[0])]
        found = found or [k for k, name in enumerate(names) if name.startswith("gcp:") and name[:-2] == asked]
        if not found:
            raise InputError(f"there is no region {part!r}; {_hint(asked, names)}", spec)
        twice = next((names[k] for k in found if k in chosen), None)
        if twice is not None:
            raise InputError(f"the region {twice} is named twice", spec)
        chosen += found
    if not chosen:
        raise InputError("write it as cloud:REGION,REGION..., such as cloud:aws:us-east-1,gcp:us-central1-a", spec)
    return chosen


def _hint(asked: str, names: tuple[str, ...]) -> str:
    """The regions whose names are nearest, with or without the name of the cloud."""
    bare = {name.partition(":")[2]: name for name in names}
    near = difflib.get_close_matches(asked.rpartition(":")[2], bare, n=3)
    listed = "`stretto topologies cloud` lists them"
    return nearest(asked, names, f"did you mean {' or '.join(bare[n] for n in near)}?" if near else listed, most=3)


FAMILIES = (
    Family(
        "cloud", "cloud:REGION,REGION...", "regions of AWS, Azure and Google Cloud as measured in 2022, with prices",
        "cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope", _cloud, SETTINGS,
    ),
)  # fmt: skip
