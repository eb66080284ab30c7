"""Networks that no grid has, drawn by a seed: each kind is a way in which real ones are irregular.

Every function draws one network from a generator; equal generators, equal networks. ``KINDS`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stretto.model.collective import make_collective
from stretto.model.reach import find_unreachable
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology
from stretto.topologies import load_topology, zoo
from stretto.topologies.cloud import GBIT, VM_GBIT, measured_regions

FAMILIES = (
    "mesh:5x7", "mesh:3x11", "mesh:3x3x3", "torus:3x5", "torus:4x6", "torus:3x3x3", "ring:5", "ring:13", "line:6",
    "hypercube:4", "fullmesh:7", "star:12", "fattree:4", "sites:4,3", "sites:2,5", "sites:3,6?routers=2", "dgx2:1",
    "ndv2:3", "amd:4",
)  # fmt: skip
SEEN = ("Abilene", "Arpanet", "Cesnet", "Gblnet", "HiberniaIreland", "Napnet")
"""The networks of the Topology Zoo that benchmarks/grid.py has."""

WHOLE = ("torus:4x5", "torus:3x3x3", "mesh:5x5", "hypercube:4", "dgx1", "fullmesh:8", "amd:1", "fattree:4")
"""What links or nodes fail in."""

LARGEST_ZOO = 40
FIBRE = 2e8  # metres a second
Rng = np.random.Generator
Links = dict[tuple[int, int], tuple[float, float]]


def member(rng: Rng) -> Topology:
    """Another member of a family."""
    return load_topology(str(rng.choice(FAMILIES)))


def zoo_network(rng: Rng) -> Topology:
    """Another network of the Topology Zoo, of up to 40 places."""
    others = sorted(set(zoo.networks()) - set(SEEN))
    while True:
        net = load_topology(f"zoo:{rng.choice(others)}")
        if 4 <= len(net.accelerators) <= LARGEST_ZOO:
            return net


def uneven_graph(rng: Rng) -> Topology:
    """4 to 24 accelerators, joined both ways at random by links that are unlike, and by up to two switches."""
    n, switches = int(rng.integers(4, 25)), int(rng.integers(0, 3))
    joined = _tree(n, rng)
    joined |= {(int(a), int(b)) for a, b in rng.integers(0, n, (n, 2)) if a != b}
    joined |= {
        (w, int(v))
        for w in range(n, n + switches)
        for v in rng.choice(n, int(rng.integers(2, n + 1)), replace=False)
    }  # fmt: skip
    links: Links = {}
    for a, b in sorted(joined):
        width, latency = float(rng.choice([5e9, 12.5e9, 25e9, 50e9])), float(rng.choice([0.5e-6, 1e-6, 5e-6]))
        links[a, b] = links[b, a] = (width, latency)
    return _made("graph", [ACCELERATOR] * n + [SWITCH] * switches, links)


def waxman(rng: Rng) -> Topology:
    """A WAN of 6 to 20 places on a map of 4,000 x 3,000 km: near ones are likelier to be joined (Waxman, IEEE JSAC
    1988), by 1 to 400 Gbit/s that are no round numbers and differ by direction, at the speed of light in fibre."""
    n = int(rng.integers(6, 21))
    xy = rng.random((n, 2)) * [4e6, 3e6]
    distance = np.hypot(*(xy[:, None] - xy[None]).transpose(2, 0, 1))
    near = rng.random((n, n)) < 0.6 * np.exp(-distance / (0.2 * distance.max()))
    joined = _tree(n, rng) | {(int(a), int(b)) for a, b in np.argwhere(near) if a < b}
    links: Links = {}
    for a, b in sorted(joined):
        width = float(np.exp(rng.uniform(np.log(1), np.log(400)))) * GBIT
        latency = float(distance[a, b]) / FIBRE
        links[a, b], links[b, a] = (width, latency), (width * float(rng.uniform(0.5, 1)), latency)
    return _made("waxman", [ACCELERATOR] * n, links)


def unequal_sites(rng: Rng) -> Topology:
    """2 to 5 sites of 1 to 8 accelerators on a switch, whose routers form a chain, a star or a tree of unlike links."""
    count, shape = int(rng.integers(2, 6)), int(rng.integers(0, 3))
    kinds: list[int] = []
    links: Links = {}
    routers: list[int] = []
    for _ in range(count):
        size = int(rng.integers(1, 9))
        first = len(kinds)
        kinds += [ACCELERATOR] * size + [SWITCH, ROUTER]
        for v in range(first, first + size):
            _join(links, v, first + size, (50e9, 0.5e-6))
            _join(links, v, first + size + 1, (12.5e9, 1e-6))
        routers.append(first + size + 1)
    for k in range(1, count):
        other = (k - 1, 0, int(rng.integers(0, k)))[shape]
        _join(links, routers[k], routers[other], (float(rng.uniform(2e9, 20e9)), float(rng.uniform(10e-6, 5e-3))))
    return _made("unequal sites", kinds, links)


def half_servers(rng: Rng) -> Topology:
    """2 to 6 servers of 4 or 8 accelerators on a switch; each has one NIC or two, some of half the speed."""
    count, size = int(rng.integers(2, 7)), int(rng.choice([4, 8]))
    kinds = [SWITCH]
    links: Links = {}
    for _ in range(count):
        first = len(kinds)
        kinds += [ACCELERATOR] * size + [SWITCH]
        for v in range(first, first + size):
            _join(links, v, first + size, (150e9, 0.5e-6))
        for v in rng.choice(size, int(rng.integers(1, 3)), replace=False):
            _join(links, first + int(v), 0, (float(rng.choice([12.5e9, 25e9])), 1.3e-6))
    return _made("servers", kinds, links)


def leaves_and_spines(rng: Rng) -> Topology:
    """2 to 5 leaf switches of 2 to 6 accelerators, each joined to 2 or 3 spines by less than what is below it."""
    leaves, spines = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    kinds = [SWITCH] * (leaves + spines)
    links: Links = {}
    for leaf in range(leaves):
        size = int(rng.integers(2, 7))
        for _ in range(size):
            _join(links, len(kinds), leaf, (25e9, 0.7e-6))
            kinds.append(ACCELERATOR)
        for spine in range(leaves, leaves + spines):
            share = float(rng.choice([0.25, 0.5, 1.0]))
            _join(links, leaf, spine, (25e9 * size * share / spines, 0.7e-6))
    return _made("leaves", kinds, links)


def damaged(rng: Rng) -> Topology:
    """A regular network without some links, of which some fail one way only, or without a node."""
    while True:
        net = load_topology(str(rng.choice(WHOLE)))
        if rng.random() < 0.3:
            gone = int(rng.choice(net.accelerators))
            kept = (net.src != gone) & (net.dst != gone)
            nodes = np.arange(net.node_count) != gone
        else:
            failed = rng.choice(net.link_count, max(1, net.link_count // 12), replace=False)
            both = rng.random(len(failed)) < 0.7
            lost = set(zip(net.dst[failed[both]].tolist(), net.src[failed[both]].tolist(), strict=True))
            kept = np.array([(a, b) not in lost for a, b in zip(net.src.tolist(), net.dst.tolist(), strict=True)])
            kept[failed] = False
            nodes = np.ones(net.node_count, dtype=np.bool_)
        part = _part(net, nodes, kept)
        if find_unreachable(part, make_collective("allgather", part, shard_bytes=1)) is None:
            return part


def slow_links(rng: Rng) -> Topology:
    """A regular network in which a fifth of the links has a half, a third or a tenth of its width, each way its own."""
    net = load_topology(str(rng.choice(WHOLE)))
    slow = rng.random(net.link_count) < 0.2
    return replace(
        net, name=f"{net.name} slowed", bandwidth=net.bandwidth * np.where(slow, rng.choice([0.5, 0.33, 0.1]), 1.0)
    )


def metro_sites(rng: Rng) -> Topology:
    """2 to 6 uneven sites that are 50 to 1,000 us from each other."""
    return _uneven_sites("metro", rng, 50e-6, 1e-3)


def far_sites(rng: Rng) -> Topology:
    """2 to 6 uneven sites that are 10 to 150 ms from each other."""
    return _uneven_sites("far", rng, 10e-3, 150e-3)


def _uneven_sites(name: str, rng: Rng, near_s: float, far_s: float) -> Topology:
    """2 to 6 sites of 2 to 16 GPUs. GPUs are joined by a switch or directly, and to one border router or two over links
    that are unlike; most pairs of sites are joined by WAN links that are unlike in bandwidth and latency."""
    count = int(rng.integers(2, 7))
    kinds: list[int] = []
    links: Links = {}
    borders: list[list[int]] = []
    for _ in range(count):
        size, first = int(rng.integers(2, 17)), len(kinds)
        gpus = range(first, first + size)
        kinds += [ACCELERATOR] * size
        if rng.random() < 0.5:
            kinds.append(SWITCH)
            for v in gpus:
                _join(links, v, first + size, (150e9, 0.5e-6))
        else:
            for a in gpus:
                for b in range(a + 1, first + size):
                    _join(links, a, b, (25e9, 0.7e-6))
        borders.append(list(range(len(kinds), len(kinds) + int(rng.integers(1, 3)))))
        kinds += [ROUTER] * len(borders[-1])
        for router in borders[-1]:
            width = float(rng.uniform(5e9, 25e9))
            for v in gpus:
                _join(links, v, router, (width * float(rng.choice([0.5, 1.0])), 1e-6))
    tree = _tree(count, rng)
    for a in range(count):
        for b in range(a):
            if (a, b) in tree or rng.random() < 0.6:
                latency_s = float(np.exp(rng.uniform(np.log(near_s), np.log(far_s))))
                ends = int(rng.choice(borders[a])), int(rng.choice(borders[b]))
                _join(links, *ends, (float(np.exp(rng.uniform(np.log(1e9), np.log(25e9)))), latency_s))
    return _made(name, kinds, links)


def rails(rng: Rng) -> Topology:
    """4 to 64 servers of 1 to 8 GPUs on an NVSwitch. GPUs of equal number meet at a switch, their rail; with a spine,
    rails have several switches for 4 or 8 servers each, joined by half the bandwidth that is below them."""
    servers, size = int(np.exp(rng.uniform(np.log(4), np.log(65)))), int(rng.choice([1, 2, 4, 8]))
    pod = int(rng.choice([4, 8])) if rng.random() < 0.5 else 0
    kinds: list[int] = []
    links: Links = {}
    gpus = []
    for _ in range(servers):
        inside = len(kinds) + size
        gpus.append(range(len(kinds), inside))
        kinds += [ACCELERATOR] * size + [SWITCH] * (size > 1)
        if size > 1:
            for v in gpus[-1]:
                _join(links, v, inside, (450e9, 0.35e-6))
    spine = len(kinds)
    kinds += [SWITCH] * bool(pod)
    for rail in range(size):
        for first in range(0, servers, pod or servers):
            below = gpus[first : first + (pod or servers)]
            for server in below:
                _join(links, server[rail], len(kinds), (50e9, 1.3e-6))
            if pod:
                _join(links, len(kinds), spine, (50e9 * len(below) / 2, 1.3e-6))
            kinds.append(SWITCH)
    return _made("rails", kinds, links)


def cloud_regions(rng: Rng) -> Topology:
    """4 to 12 regions of three clouds, of 1 to 8 GPUs each, behind a port with what a VM may send in all."""
    bandwidth, rtt_s, names = _cloud_table()
    chosen = rng.choice(len(names), int(rng.integers(4, 13)), replace=False).tolist()
    size, of_best_pair = int(rng.choice([1, 2, 4, 8])), rng.random() < 0.5
    kinds: list[int] = []
    links: Links = {}
    borders = []
    for a in chosen:
        first, others = len(kinds), [b for b in chosen if b != a]
        port, border = first + size, first + size + 1
        kinds += [ACCELERATOR] * size + [SWITCH, ROUTER]
        borders.append(border)
        for v in range(first, port):
            _join(links, v, port, (50e9, 1e-6))
        cap = VM_GBIT[names[a].partition(":")[0]][0] * GBIT
        links[port, border] = (max(bandwidth[a, others]) if of_best_pair else cap, 5e-6)
        links[border, port] = (max(bandwidth[others, a]) if of_best_pair else cap, 5e-6)
    for a, source in zip(chosen, borders, strict=True):
        for b, target in zip(chosen, borders, strict=True):
            if a != b:
                links[source, target] = (float(bandwidth[a, b]), float(rtt_s[a, b]) / 2)
    return _made("regions", kinds, links)


@cache
def _cloud_table() -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
    """Bytes a second and round-trip seconds between the regions whose round trips were measured, and their names."""
    table = measured_regions()
    known = np.flatnonzero(~np.isnan(table.rtt_ms).all(axis=1))
    both = np.ix_(known, known)
    return (
        np.nan_to_num(table.gbit[both]) * GBIT,
        np.nan_to_num(table.rtt_ms[both]) * 1e-3,
        [table.names[k] for k in known],
    )


def chips(rng: Rng) -> Topology:
    """A grid of 1 to 3 dimensions of 8 to 128 chips. In each dimension the ends of lines are joined or not, and links
    have a width and a latency of their own, both ways alike."""
    while True:
        sides = tuple(map(int, rng.integers(2, 9, int(rng.integers(1, 4)))))
        if 8 <= np.prod(sides) <= 128:
            break
    links: Links = {}
    places = np.array(np.unravel_index(np.arange(np.prod(sides)), sides))
    for d, side in enumerate(sides):
        link = float(rng.choice([12.5e9, 25e9, 50e9, 100e9])), float(rng.choice([0.5e-6, 0.7e-6, 2e-6]))
        around = rng.random() < 0.75 and side > 2
        for v in np.flatnonzero(places[d] < side - (not around)).tolist():
            to = places[:, v].copy()
            to[d] = (to[d] + 1) % side
            _join(links, v, int(np.ravel_multi_index(to, sides)), link)
    return _made("chips", [ACCELERATOR] * places.shape[1], links)


def datacenters(rng: Rng) -> Topology:
    """4 to 8 datacenters of 8 to 24 GPUs on a switch, half of the time equally many. Each has a border router with a
    port of 5 to 50 GB/s; each two are joined by 1 to 25 GB/s, 0.1 to 20 ms from each other."""
    count, equal = int(rng.integers(4, 9)), int(rng.integers(8, 25))
    sizes = [equal] * count if rng.random() < 0.5 else rng.integers(8, 25, count).tolist()
    kinds: list[int] = []
    links: Links = {}
    borders = []
    for size in sizes:
        first = len(kinds)
        kinds += [ACCELERATOR] * size + [SWITCH, ROUTER]
        for v in range(first, first + size):
            _join(links, v, first + size, (150e9, 0.5e-6))
        borders.append(first + size + 1)
        _join(links, first + size, borders[-1], (float(rng.uniform(5e9, 50e9)), 1e-6))
    for a in range(count):
        for b in range(a):
            latency_s = float(np.exp(rng.uniform(np.log(0.1e-3), np.log(20e-3))))
            _join(links, borders[a], borders[b], (float(np.exp(rng.uniform(np.log(1e9), np.log(25e9)))), latency_s))
    return _made("datacenters", kinds, links)


KINDS: dict[str, Callable[[Rng], Topology]] = {
    "family": member,
    "zoo": zoo_network,
    "graph": uneven_graph,
    "waxman": waxman,
    "unequal": unequal_sites,
    "servers": half_servers,
    "leaves": leaves_and_spines,
    "damaged": damaged,
    "slowed": slow_links,
    "metro": metro_sites,
    "far": far_sites,
    "rails": rails,
    "regions": cloud_regions,
    "chips": chips,
    "datacenters": datacenters,
}


def some_ranks(net: Topology, rng: Rng) -> NDArray[np.int32]:
    """Two thirds of the accelerators, at least two."""
    nodes = net.accelerators
    chosen: NDArray[np.int32] = np.sort(rng.choice(nodes, max(2, 2 * len(nodes) // 3), replace=False))
    return chosen


def _tree(n: int, rng: Rng) -> set[tuple[int, int]]:
    return {(v, int(rng.integers(0, v))) for v in range(1, n)}


def _join(links: Links, a: int, b: int, link: tuple[float, float]) -> None:
    links[a, b] = links[b, a] = link


def _made(name: str, kinds: list[int], links: Links) -> Topology:
    return make_topology(name, kinds, [(a, b, *w) for (a, b), w in sorted(links.items())])


def _part(net: Topology, nodes: NDArray[np.bool_], links: NDArray[np.bool_]) -> Topology:
    """The nodes and links that are left."""
    number = np.cumsum(nodes) - 1
    rows = zip(
        number[net.src[links]].tolist(), number[net.dst[links]].tolist(),
        net.bandwidth[links].tolist(), net.latency_s[links].tolist(), strict=True,
    )  # fmt: skip
    return make_topology(
        f"{net.name} damaged", net.kind[nodes].tolist(), list(rows),
        replicates=net.replicates[nodes].tolist(), transit=net.transit[nodes].tolist(),
    )  # fmt: skip
