"""Blocks of symmetric networks, and of some in which NICs, a rail or a switch are slower, for tests of bounds."""

from __future__ import annotations

import numpy as np

from stretto.bounds.block_bounds import blocks_of
from stretto.bounds.blocks import rank_symmetry
from stretto.model.collective import make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.symmetry import find_symmetry
from stretto.topologies import load_topology

NETWORKS = ["h100:2", "h100:4", "star:6", "fattree:4", "fullmesh:5", "ring:6", "h100:3?message=3us", "sites:3,4"]


def blocks_among(topology: Topology, kind: str, size: int, ranks: list[int] | None = None):
    collective = make_collective(kind, topology, size, ranks=ranks)
    return collective, blocks_of(topology, collective, rank_symmetry(topology, collective))


def nodes_of(mask) -> set[int]:
    return set(np.flatnonzero(mask).tolist())


def named_blocks(spec: str, kind: str, size: int):
    topology = load_topology(spec)
    return topology, *blocks_among(topology, kind, size)


def almost_symmetric(servers: int, gpus: int, seed: int) -> Topology:
    """Servers of GPUs on rails. One or two NICs of the first server, or of the first two, are slower; sometimes one rail
    is, or the switch in the first server."""
    rng = np.random.default_rng(seed)
    count = servers * gpus
    fast, nic = rng.choice([100e9, 200e9, 450e9]), rng.choice([20e9, 50e9])
    hit = rng.choice(gpus * rng.integers(1, 3), rng.integers(1, 3), replace=False)
    rail, weak = rng.integers(-1, 1), rng.integers(0, 2)
    links = []
    for v in range(count):
        s, g = divmod(v, gpus)
        out = nic * (0.5 if v in hit else 1.0) * (0.7 if g == rail else 1.0)
        wide = fast * (0.5 if s == 0 and weak else 1.0)
        links += [(v, count + s, wide, 3e-7), (count + s, v, wide, 3e-7)]
        links += [(v, count + servers + g, out, 1e-6), (count + servers + g, v, out, 1e-6)]
    kinds = [ACCELERATOR] * count + [SWITCH] * (servers + gpus)
    return make_topology(f"servers-{servers}x{gpus}-{seed}", kinds, links)


def damaged_blocks(seed: int, kind: str, size: int):
    """The blocks of an almost symmetric network; None where no symmetry is left."""
    topology = almost_symmetric(4 + seed % 4, 2 + seed % 2, seed)
    collective = make_collective(kind, topology, size)
    symmetry = find_symmetry(topology)
    return topology, collective, None if symmetry is None else blocks_of(topology, collective, symmetry)


SEEDS = range(12)
