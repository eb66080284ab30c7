"""Datacenters joined by a WAN of border routers (SCALE-CCL, section 5)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from . import Family, Setting, bandwidth, check_size, numbers, seconds, whole

FIBRE_KM_PER_S = 200_000.0
"""The speed of light in fibre."""

WANS = ("full", "ring", "line", "star")
PEERS = ("all", "own")


def _share(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise InputError(f"{text!r} is not a share above 0 and up to 1", where)
    return value


def _kilometres(text: str, where: str) -> float:
    try:
        value = float(text.removesuffix("km"))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e6:
        raise InputError(f"{text!r} is not a distance in kilometres", where)
    return value


def _one_of(names: tuple[str, ...]) -> Callable[[str, str], str]:
    def parse(text: str, where: str) -> str:
        if text not in names:
            raise InputError(f"{text!r} is none of {', '.join(names)}", where)
        return text

    return parse


SETTINGS = (
    Setting("bandwidth", bandwidth, 50e9, "between accelerators of a site"),
    Setting("latency", seconds, 0.7e-6, "inside a site, routers included"),
    Setting("connectivity", _share, 1.0, "share of the pairs of a site's accelerators that are joined"),
    Setting("routers", lambda t, w: whole(t, w, 1), 1, "border routers a site"),
    Setting("router_bandwidth", bandwidth, 12.5e9, "between accelerators and routers"),
    Setting("attached", lambda t, w: whole(t, w, 1), None, "accelerators joined to each router; all by default"),
    Setting("wan", _one_of(WANS), "full", f"which sites are joined: {', '.join(WANS)}"),
    Setting("peers", _one_of(PEERS), "all", "each router serves all sites, or some of its own"),
    Setting("wan_bandwidth", bandwidth, 12.5e9, "between routers of different sites"),
    Setting("km", _kilometres, 100.0, "length of a WAN link, at 200,000 km/s"),
    Setting("wan_latency", seconds, None, "latency of a WAN link, instead of km"),
    Setting("seed", whole, 0, "of the random choice of pairs"),
)


def _sites(arguments: list[str], settings: dict[str, Any], spec: str) -> Topology:
    """S sites of G accelerators; every accelerator is joined to every router of its site.

    With ``attached=n`` router r is joined to n accelerators, from number r x n on, cyclically.
    Router r of a site is joined to router r of the site's neighbours in the WAN graph; with
    ``peers=own`` the neighbours are divided among the routers, one link for each pair of sites.
    """
    parts = numbers(arguments, spec, "sites:S,G", 1, most=2)
    if len(parts) != 2 or parts[0] * parts[1] < 2:
        raise InputError("write it as sites:S,G: S sites of G accelerators", spec)
    count, gpus = parts
    routers = settings["routers"] if count > 1 else 0
    wan_pairs = count * (count - 1) // 2 if settings["wan"] == "full" else count
    check_size(count * (gpus + routers), count * gpus * (gpus + 2 * routers) + 2 * wan_pairs * routers, spec)
    rng = random.Random(settings["seed"])
    stride = gpus + routers
    links: list[tuple[int, int, float, float]] = []
    names, xy = [], []

    def join(a: int, b: int, width: float, latency_s: float) -> None:
        links.extend(((a, b, width, latency_s), (b, a, width, latency_s)))

    for s in range(count):
        base = s * stride
        for a, b in _random_pairs(gpus, settings["connectivity"], rng):
            join(base + a, base + b, settings["bandwidth"], settings["latency"])
        for g, r in _attachments(gpus, routers, settings["attached"], spec):
            join(base + g, base + gpus + r, settings["router_bandwidth"], settings["latency"])
        angle = 2 * math.pi * s / count
        x, y = (4 * count / math.pi * f(angle) if count > 1 else 0.0 for f in (math.sin, math.cos))
        for i in range(stride):
            names.append(f"s{s}.gpu{i}" if i < gpus else f"s{s}.router{i - gpus}")
            turn = 2 * math.pi * i / max(gpus, 1)
            inner = (0.4 * (i - gpus), 0.0) if i >= gpus else (1.5 * math.sin(turn), 1.5 * math.cos(turn))
            xy.append((x + inner[0], y + inner[1]))
    wan_latency = settings["wan_latency"]
    if wan_latency is None:
        wan_latency = settings["km"] / FIBRE_KM_PER_S
    for a, b, r, q in _wan_links(_wan_pairs(count, settings["wan"]), routers, settings["peers"]):
        join(a * stride + gpus + r, b * stride + gpus + q, settings["wan_bandwidth"], wan_latency)
    kinds = ([ACCELERATOR] * gpus + [ROUTER] * routers) * count
    sites = [f"site{i // stride}" for i in range(count * stride)]
    return make_topology(spec, kinds, sorted(links), names=names, sites=sites, xy=xy, where=spec)


def _wan_pairs(count: int, graph: str) -> list[tuple[int, int]]:
    if graph == "full":
        return list(combinations(range(count), 2))
    if graph == "star":
        return [(0, s) for s in range(1, count)]
    line = [(s, s + 1) for s in range(count - 1)]
    return [*line, (0, count - 1)] if graph == "ring" and count > 2 else line


def _attachments(gpus: int, routers: int, attached: int | None, spec: str) -> list[tuple[int, int]]:
    """The (accelerator, router) pairs of a site that are joined."""
    if attached is None or attached == gpus:
        return [(g, r) for g in range(gpus) for r in range(routers)]
    if attached > gpus:
        raise InputError(f"attached={attached}: a site has {gpus} accelerators", spec)
    return sorted({((r * attached + i) % gpus, r) for r in range(routers) for i in range(attached)})


def _wan_links(pairs: list[tuple[int, int]], routers: int, peers: str) -> list[tuple[int, int, int, int]]:
    """(site, other site, router of the one, router of the other) for each link."""
    if peers == "all":
        return [(a, b, r, r) for a, b in pairs for r in range(routers)]
    met: Counter[int] = Counter()
    links = []
    for a, b in pairs:
        links.append((a, b, met[a] % routers, met[b] % routers))
        met.update((a, b))
    return links


def _random_pairs(n: int, share: float, rng: random.Random) -> list[tuple[int, int]]:
    """A connected graph of n nodes that has a given share of all pairs: a random tree, then random pairs."""
    everything = list(combinations(range(n), 2))
    if share == 1:
        return everything
    order = rng.sample(range(n), n)
    tree = {tuple(sorted((order[i], order[rng.randrange(i)]))) for i in range(1, n)}
    others = [pair for pair in everything if pair not in tree]
    wanted = max(round(share * len(everything)) - len(tree), 0)
    return sorted([*tree, *rng.sample(others, min(wanted, len(others)))])  # type: ignore[list-item]


FAMILIES = (
    Family(
        "sites", "sites:S,G", "S datacenters of G accelerators, border routers and a WAN", "sites:3,4", _sites, SETTINGS
    ),
)
