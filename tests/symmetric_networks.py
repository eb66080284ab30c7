"""Networks with symmetries that are known: for each a group of permutations of its nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stretto.model.symmetry import Symmetry
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.topologies import load_topology


def group(topology: Topology, *generators: Callable[[int], int], orders: list[int]) -> Symmetry:
    images = [[generator(v) for v in range(topology.node_count)] for generator in generators]
    return Symmetry(topology, np.array(images, dtype=np.int32), np.array(orders))


def ring(n: int, turn: int = 1) -> Symmetry:
    return group(load_topology(f"ring:{n}?latency=1us"), lambda v: (v + turn) % n, orders=[n // turn])


def full_mesh(a: int, b: int) -> Symmetry:
    """``a * b`` accelerators, as a grid whose rows and columns are shifted."""
    return group(
        load_topology(f"fullmesh:{a * b}"),
        lambda v: (v // b + 1) % a * b + v % b,
        lambda v: v // b * b + (v + 1) % b if v % b < b - 1 else v // b * b,
        orders=[a, b],
    )


def torus(a: int, b: int) -> Symmetry:
    """Shifted along its two sides."""
    return group(
        load_topology(f"torus:{a}x{b}"),
        lambda v: (v // b + 1) % a * b + v % b,
        lambda v: v // b * b + (v % b + 1) % b,
        orders=[a, b],
    )


def star(n: int, **flags: bool) -> Symmetry:
    """Around one switch, that every element maps to itself."""
    links = [(*ends, 1e9, 1e-6) for v in range(n) for ends in ((v, n), (n, v))]
    each = {name: [False] * n + [does] for name, does in flags.items()}
    topology = make_topology("star", [ACCELERATOR] * n + [SWITCH], links, **each)
    return group(topology, lambda v: v if v == n else (v + 1) % n, orders=[n])


def rails(servers: int, gpus: int, *, shift_gpus: bool = True, mixed: bool = False) -> Symmetry:
    """Servers with a switch, a leaf switch for each place in a server, and a spine that joins the leaves.

    Args:
        shift_gpus: whether the group also shifts the places in a server; else each place is an orbit of ranks.
        mixed: whether the rails are of several speeds.
    """
    ranks = servers * gpus
    inside = [(s * gpus + g, ranks + s, 4e9, 3e-7, 0.0) for s in range(servers) for g in range(gpus)]
    leaf, spine = ranks + servers, ranks + servers + gpus
    out = [
        (s * gpus + g, leaf + g, 1e9 * (1 + mixed * g), 1e-6, 2e-6 * mixed) for s in range(servers) for g in range(gpus)
    ]
    up = [(leaf + g, spine, 1.5e9, 1e-6, 0.0) for g in range(gpus)]
    links = [link for a, b, *more in (*inside, *out, *up) for link in ((a, b, *more), (b, a, *more))]
    kinds = [ACCELERATOR] * ranks + [SWITCH] * (servers + gpus + 1)
    cost = [link[4] for link in links] if mixed else None
    topology = make_topology("rails", kinds, [link[:4] for link in links], message_s=cost)

    def next_server(v: int) -> int:
        if v < ranks:
            return (v + gpus) % ranks
        return ranks + (v - ranks + 1) % servers if v < leaf else v

    def next_gpu(v: int) -> int:
        if v < ranks:
            return v // gpus * gpus + (v + 1) % gpus if v % gpus < gpus - 1 else v // gpus * gpus
        return leaf + (v - leaf + 1) % gpus if leaf <= v < spine else v

    generators = [next_server, next_gpu] if shift_gpus else [next_server]
    return group(topology, *generators, orders=[servers, gpus][: len(generators)])


def h100(servers: int) -> Symmetry:
    """The catalogue's servers of eight, without a spine."""
    last = 9 * servers

    def next_server(v: int) -> int:
        return (v + 9) % last if v < last else v

    def next_gpu(v: int) -> int:
        if v >= last:
            return last + (v - last + 1) % 8
        return v if v % 9 == 0 else v - v % 9 + v % 9 % 8 + 1

    return group(load_topology(f"h100:{servers}"), next_server, next_gpu, orders=[servers, 8])
