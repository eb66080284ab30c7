"""Datacenters joined by a WAN of border routers (SCALE-CCL, section 5)."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial
from itertools import combinations
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, ROUTER, Topology
from ..model.units import parse_bandwidth, parse_time
from . import Family, Setting, check_size, choice, decimal, numbers, whole
from .draft import Draft, circle

FIBRE_KM_PER_S = 200_000.0
"""The speed of light in fibre."""

WANS = ("full", "ring", "line", "star")

_share = decimal("a share above 0 and up to 1", lambda value: 0 < value <= 1)
_kilometres = decimal("a distance in kilometres", lambda value: 0 <= value <= 1e6)

SETTINGS = (
    Setting("bandwidth", parse_bandwidth, 50e9, "between accelerators of a site"),
    Setting("latency", parse_time, 0.7e-6, "inside a site, routers included"),
    Setting("connectivity", _share, 1.0, "share of the pairs of a site's accelerators that are joined"),
    Setting("routers", partial(whole, least=1), 1, "border routers a site"),
    Setting("router_bandwidth", parse_bandwidth, 12.5e9, "between accelerators and routers"),
    Setting("attached", partial(whole, least=1), None, "accelerators joined to each router; all by default"),
    Setting("wan", choice(dict(zip(WANS, WANS))), "full", f"which sites are joined: {', '.join(WANS)}"),
    Setting("peers", choice({"all": "all", "own": "own"}), "all", "each router serves all sites, or some of its own"),
    Setting("wan_bandwidth", parse_bandwidth, 12.5e9, "between routers of different sites"),
    Setting("km", lambda t, w: _kilometres(t.removesuffix("km"), w), 100.0, "length of a WAN link, at 200,000 km/s"),
    Setting("wan_latency", parse_time, None, "latency of a WAN link, instead of km"),
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
    between = count * (count - 1) // 2 if settings["wan"] == "full" else count
    check_size(count * (gpus + routers), count * gpus * (gpus + 2 * routers) + 2 * between * routers, spec)
    rng = random.Random(settings["seed"])
    stride = gpus + routers
    draft = Draft()
    centres = circle(count, radius=4 * count / math.pi if count > 1 else 0.0)
    for s, (x, y) in enumerate(centres):
        base = s * stride
        for g, xy in enumerate(circle(gpus, x, y, 1.5)):
            draft.node(ACCELERATOR, f"s{s}.gpu{g}", f"site{s}", xy)
        for r in range(routers):
            draft.node(ROUTER, f"s{s}.router{r}", f"site{s}", (x + 0.4 * r, y))
        for a, b in _random_pairs(gpus, settings["connectivity"], rng):
            draft.join(base + a, base + b, settings["bandwidth"], settings["latency"])
        for g, r in _attachments(gpus, routers, settings["attached"], spec):
            draft.join(base + g, base + gpus + r, settings["router_bandwidth"], settings["latency"])
    latency_s = settings["wan_latency"]
    latency_s = settings["km"] / FIBRE_KM_PER_S if latency_s is None else latency_s
    for a, b, r, q in wan_links(wan_pairs(count, settings["wan"]), routers, settings["peers"]):
        draft.join(a * stride + gpus + r, b * stride + gpus + q, settings["wan_bandwidth"], latency_s)
    return draft.topology(spec, ordered=True, where=spec)


def wan_pairs(count: int, graph: str) -> list[tuple[int, int]]:
    """The pairs of sites that a WAN joins; ``graph`` is one of :data:`WANS`."""
    if graph == "full":
        return list(combinations(range(count), 2))
    if graph == "star":
        return [(0, s) for s in range(1, count)]
    line = [(s, s + 1) for s in range(count - 1)]
    return [*line, (0, count - 1)] if graph == "ring" and count > 2 else line


def _attachments(gpus: int, routers: int, attached: int | None, spec: str) -> list[tuple[int, int]]:
    """The (accelerator, router) pairs of a site that are joined."""
    attached = gpus if attached is None else attached
    if attached > gpus:
        raise InputError(f"attached={attached}: a site has {gpus} accelerators", spec)
    return sorted({((r * attached + i) % gpus, r) for r in range(routers) for i in range(attached)})


def wan_links(pairs: list[tuple[int, int]], routers: int, peers: str) -> list[tuple[int, int, int, int]]:
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
