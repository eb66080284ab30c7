"""Networks that tests share: small, odd and random ones."""

from __future__ import annotations

import heapq
import random

import numpy as np

from stretto.model.arrays import Ragged
from stretto.model.chunks import cut
from stretto.model.collective import Collective
from stretto.model.kinds import split_evenly
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology


def ring(n: int, bandwidth: float = 1e9, latency_s: float = 1e-6) -> Topology:
    """n accelerators, each joined to its two neighbours."""
    pairs = sorted({(a, b % n) for a in range(n) for b in (a + 1, a - 1)})
    return make_topology(f"ring{n}", [ACCELERATOR] * n, [(a, b, bandwidth, latency_s) for a, b in pairs])


def star(n: int, replicates: bool = True) -> Topology:
    """n accelerators around one switch."""
    links = [(a, b, 1e9, 1e-6) for v in range(n) for a, b in ((v, n), (n, v))]
    return make_topology("star", [ACCELERATOR] * n + [SWITCH], links, replicates=[False] * n + [replicates])


def chassis() -> Topology:
    """Two chassis of four dies on a ring of direct links; each two dies on a leaf switch, all leaves on a core switch."""
    kinds, sites, links = [SWITCH], [""], []
    for site in ("chassis0", "chassis1"):
        first = len(kinds)
        kinds += [ACCELERATOR] * 4 + [SWITCH] * 2
        sites += [site] * 6
        pairs = [(first + v, first + (v + 1) % 4, (50e9, 100e9)[v % 2], 0.6e-6) for v in range(4)]
        pairs += [(first + v, first + 4 + v // 2, 25e9, 1.3e-6) for v in range(4)]
        pairs += [(first + leaf, 0, 25e9, 1.3e-6) for leaf in (4, 5)]
        links += [(*ends, *rest) for a, b, *rest in pairs for ends in ((a, b), (b, a))]
    return make_topology("chassis", kinds, links, sites=sites)


def random_network(seed: int, switches: bool = True, routers: bool = True, plain: bool = False) -> Topology:
    """A strongly connected network of 3 to 7 accelerators with uneven links; equal seeds, equal networks.

    Where ``plain``, switches join accelerators only, by links that are all alike.
    """
    rng = random.Random(seed)
    n = rng.randint(3, 7)
    kinds = [ACCELERATOR] * n
    links: dict[tuple[int, int], tuple[float, float]] = {}

    def join(a: int, b: int) -> None:
        if a != b:
            links.setdefault((a, b), (rng.choice([31e6, 43e6, 67e6, 97e6, 101e6]), rng.randint(0, 9) * 1e-6))

    for v in range(n):
        join(v, (v + 1) % n)
    for _ in range(n):
        join(rng.randrange(n), rng.randrange(n))
    for kind, wanted in ((SWITCH, switches), (ROUTER, routers)):
        for _ in range(rng.randint(0, 2) if wanted else 0):
            middle = len(kinds)
            kinds.append(kind)
            for v in rng.sample(range(n if plain else middle), min(n, rng.randint(2, 5))):
                bandwidth = 50e6 if plain else rng.choice([31e6, 50e6])
                links[v, middle] = links[middle, v] = (bandwidth, rng.randint(0, 5) * 1e-6)
    return make_topology(f"random{seed}", kinds, [(a, b, *w) for (a, b), w in sorted(links.items())])


def partial_sums(net: Topology, size: int, chunks: int = 1, nodes: list[int] | None = None) -> Collective:
    """Three pieces, each to be summed over some ranks for some ranks, as in the middle of a collective."""
    ranks = np.array(net.accelerators if nodes is None else nodes, dtype=np.int32)
    n = len(ranks)
    holders = [[r for r in range(n) if n < 3 or (r + piece) % 3] for piece in range(3)]
    wanted = [[r for r in range(n) if (r + piece) % 2 == 0] for piece in range(3)]
    sizes = split_evenly(size, 3)
    return cut(Collective.uncut("partial-sums", ranks, size, sizes, Ragged.of(holders), Ragged.of(wanted)), chunks)


def unlike_pieces(net: Topology, size: int, chunks: int = 1, nodes: list[int] | None = None) -> Collective:
    """A piece of each rank but the second, the larger the later the rank, which all ranks want."""
    ranks = np.array(net.accelerators if nodes is None else nodes, dtype=np.int32)
    n, holders = len(ranks), np.delete(np.arange(len(ranks)), 1)
    sizes = np.diff(np.cumsum(np.append(0, 1 + holders)) * size // int((1 + holders).sum()))
    every = Ragged.from_lengths(np.full(n - 1, n), np.tile(np.arange(n), n - 1))
    return cut(Collective.uncut("remainder", ranks, size, sizes, Ragged.single(holders), every), chunks)


def soonest_broadcast_s(ranks: int, hop_s: float, gap_s: float) -> float:
    """Karp, Sahay, Santos and Schauser, SPAA 1993: each node that has the message sends it on every ``gap_s``."""
    free_s, came_s = [0.0], 0.0
    for _ in range(ranks - 1):
        sends_s = heapq.heappop(free_s)
        came_s = sends_s + hop_s
        heapq.heappush(free_s, sends_s + gap_s)
        heapq.heappush(free_s, came_s)
    return came_s
