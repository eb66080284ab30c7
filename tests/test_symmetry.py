"""The noun of a network's symmetry: elements of the group, and what they do to nodes and links."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.symmetry import Symmetry
from stretto.topologies import load_topology
from symmetric_networks import full_mesh, rails, ring, star


@pytest.fixture(scope="module")
def torus() -> Symmetry:
    """torus:3x4 by its two shifts."""
    topology = load_topology("torus:3x4")
    row, column = np.divmod(np.arange(12), 4)
    shifts = [(row + 1) % 3 * 4 + column, row * 4 + (column + 1) % 4]
    return Symmetry(topology, np.array(shifts, dtype=np.int32), np.array([3, 4]))


def test_elements_are_numbered_by_their_exponents(torus):
    every = np.arange(12)
    assert torus.size == 12
    assert np.array_equal(torus.element(torus.exponents(every)), every)
    assert np.array_equal(torus.product(every, torus.inverse(every)), np.zeros(12))
    assert np.array_equal(torus.product(0, every), every)


def test_images_of_nodes_are_those_of_the_generators_one_after_the_other(torus):
    for element, (rows, columns) in enumerate(torus.exponents(np.arange(12)).tolist()):
        expected = np.arange(12)
        for generator, times in zip(torus.generators, (rows, columns), strict=True):
            for _ in range(times):
                expected = generator[expected]
        assert np.array_equal(torus.image(element, np.arange(12)), expected)


def test_links_follow_their_ends(torus):
    t = torus.topology
    links = torus.image_of_links(np.arange(12)[:, None], np.arange(t.link_count))
    assert np.array_equal(t.src[links], torus.image(np.arange(12)[:, None], t.src))
    assert np.array_equal(t.dst[links], torus.image(np.arange(12)[:, None], t.dst))
    assert torus.links_between(0, 0) == -1


def test_orbits_and_places(torus):
    assert (torus.node_orbits == 0).all()
    assert len(np.unique(torus.link_orbits)) == 4
    assert np.array_equal(torus.image(torus.place, 0), np.arange(12))


def test_a_node_that_some_element_keeps_has_no_place():
    topology = load_topology("star:4")
    turn = np.array([[1, 2, 3, 0, 4]], dtype=np.int32)
    symmetry = Symmetry(topology, turn, np.array([4]))
    assert symmetry.node_orbits.tolist() == [0, 0, 0, 0, 4]
    assert symmetry.place.tolist() == [0, 1, 2, 3, -1]
    assert sorted(np.unique(symmetry.link_orbits, return_counts=True)[1]) == [4, 4]


@pytest.mark.parametrize("make", [lambda: ring(6, 2), lambda: full_mesh(2, 3), lambda: star(4), lambda: rails(3, 2)])
def test_images_from_the_table_are_those_by_generators(make):
    few, many = make(), make()
    nodes, elements = np.meshgrid(np.arange(few.topology.node_count), np.arange(few.size))
    table = many.image(elements, nodes)  # every element maps every node: worth a table
    for element, images in enumerate(table):
        assert all(few.image(element, v) == image for v, image in enumerate(images.tolist()))
    assert "images_of_firsts" not in vars(few)
    assert "images_of_firsts" in vars(many)


@pytest.mark.parametrize("make", [lambda: ring(6, 2), lambda: full_mesh(2, 3), lambda: star(4), lambda: rails(3, 2)])
def test_elements_that_map_nodes_to_one_are_all_found(make):
    symmetry = make()
    count = symmetry.topology.node_count
    nodes = np.random.default_rng(0).integers(0, count, 9)
    for node in range(count):
        expected = [(i, e) for i, v in enumerate(nodes) for e in range(symmetry.size) if symmetry.image(e, v) == node]
        assert list(zip(*(column.tolist() for column in symmetry.elements_to(nodes, node)))) == expected
