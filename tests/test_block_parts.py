"""Partitions into blocks of a symmetric network, and their windows: as good as those of a search."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from blocks import NETWORKS, SEEDS, blocks_among, damaged_blocks, nodes_of
from stretto.bounds import best_parts, check_parts, check_windows
from stretto.bounds.block_parts import Partition, partitions
from stretto.bounds.block_windows import PartWindows
from stretto.bounds.parts import MOST_ALONE
from stretto.bounds.reach import least
from stretto.model.collective import make_collective
from stretto.model.topology import Topology
from stretto.topologies import load_topology


@pytest.mark.parametrize("spec", NETWORKS)
def test_the_images_of_one_block_are_the_best_partition(spec):
    topology = load_topology(spec)
    collective, blocks = blocks_among(topology, "allreduce", 720_000)
    found = partitions(blocks)[0]
    assert len(found.parts) == 1
    parts = [nodes_of(row) for row in found.inside]
    assert check_parts(topology, collective, parts) == best_parts(topology, collective).seconds


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_partition_of_several_orbits_is_that_of_a_search(seed):
    topology, collective, blocks = damaged_blocks(seed, "allreduce", 720_000)
    if blocks is not None:
        found = partitions(blocks)
        parts = [nodes_of(row) for row in found[0].inside]
        assert len(parts) == found[0].count
        assert check_parts(topology, collective, parts) == best_parts(topology, collective).seconds


def windows_of(partition: Partition, collective) -> float:
    """The bound by the windows of a partition, as :mod:`stretto.bounds.block_bounds` finds it."""
    windows, topology = PartWindows(partition), partition.blocks.topology
    entries = [(part.times, *windows.waits(number)) for number, part in enumerate(partition.parts)]
    width = np.concatenate([times * topology.bandwidth[links] for times, links, _ in entries])
    needed = 2.0 * (partition.count - 1) * collective.size_bytes
    return least(np.concatenate([waits for *_, waits in entries]), width, needed)


def firsts_of(partition: Partition) -> list[int]:
    """For each part the image of the rank that was taken for the part that stands for it, in the order of ``inside``."""
    windows, out = PartWindows(partition), []
    placed: dict[int, int] = {}
    for part, first in zip(partition.parts, windows.first, strict=True):
        begin = placed.get(part.lead, 0)
        placed[part.lead] = begin + part.times
        images = partition.elements(part.lead)[begin : begin + part.times]
        out += partition.blocks.symmetry.image(images, first).tolist()
    return out


@pytest.mark.parametrize("spec", ["h100:3", "star:6", "fattree:4", "fullmesh:5", "ring:6"])
def test_the_windows_of_one_part_are_those_of_all(spec):
    topology = load_topology(spec)
    collective, blocks = blocks_among(topology, "allreduce", 7200)
    for partition in partitions(blocks):
        seconds, first = windows_of(partition, collective), firsts_of(partition)
        again = check_windows(topology, collective, [nodes_of(row) for row in partition.inside], first, first)
        assert seconds <= again * (1 + 1e-9)
        assert seconds >= 0.8 * again


@pytest.mark.parametrize("seed", SEEDS)
def test_the_windows_of_a_few_parts_are_those_of_all(seed):
    topology, collective, blocks = damaged_blocks(seed, "allreduce", 720_000)
    for partition in partitions(blocks) if blocks is not None else []:
        first = firsts_of(partition)
        again = check_windows(topology, collective, [nodes_of(row) for row in partition.inside], first, first)
        assert windows_of(partition, collective) == pytest.approx(again, rel=1e-9)


@pytest.mark.parametrize("spec", ["h100:4", "h100:5"])
def test_accelerators_outside_the_collective_join_one_part(spec):
    topology = load_topology(spec)
    ranks = topology.accelerators[:-8].tolist()
    check_partitions(topology, *blocks_among(topology, "allreduce", 720_000, ranks))


def test_accelerators_outside_the_collective_join_the_part_of_their_server():
    topology = load_topology("h100:5")
    ranks = topology.accelerators.reshape(5, 8)[:, :4].ravel().tolist()
    collective, blocks = blocks_among(topology, "allreduce", 720_000, ranks)
    check_partitions(topology, collective, blocks)
    # five servers, each of eight NICs
    assert partitions(blocks)[0].seconds_per_unit == Fraction(
        4 * int(blocks.units.min()), 5 * 8 * int(blocks.units.min()) ** 2
    )


def check_partitions(topology: Topology, collective, blocks):
    for partition in partitions(blocks):
        parts = [nodes_of(row) for row in partition.inside]
        assert len(parts) == partition.count
        check_parts(topology, collective, parts)  # each node that adds is in one of them
        first = firsts_of(partition)
        assert windows_of(partition, collective) <= check_windows(topology, collective, parts, first, first) * (
            1 + 1e-9
        )


def test_partitions_of_a_large_symmetric_network_need_no_search():
    topology = load_topology("h100:16")
    collective = make_collective("allreduce", topology, 10**9)
    assert len(collective.ranks) >= MOST_ALONE
    found = best_parts(topology, collective)
    assert found.seconds == Fraction(30 * 10**9, 16 * 400 * 10**9)
    assert check_parts(topology, collective, [nodes_of(row) for row in found.inside]) == found.seconds
