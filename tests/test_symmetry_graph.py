"""A network as a coloured graph: which permutations are symmetries, and what colours tell apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Plane, Topology, make_topology
from stretto.symmetry import find_symmetry
from stretto.symmetry.graph import components, graph_of, mixed

TURN = np.array([1, 2, 3, 0, 4])
"""The accelerators of a star of four, each mapped to the next one."""

SECOND = np.arange(5) == 1


def star(**columns) -> Topology:
    """Four accelerators around a switch, with some columns of nodes or links replaced."""
    links = [(a, b, 1e9, 1e-6) for v in range(4) for a, b in ((v, 4), (4, v))]
    net = make_topology("star", [ACCELERATOR] * 4 + [SWITCH], links, message_s=[1e-6] * 8, transit=[True] * 5)
    return replace(net, **columns)


def test_a_turn_of_equal_accelerators_is_a_symmetry():
    assert graph_of(star()).is_automorphism(TURN)


@pytest.mark.parametrize("column", ["bandwidth", "latency_s", "message_s"])
def test_it_is_none_across_a_link_that_differs(column):
    values = getattr(star(), column).copy()
    values[3] *= 1.5
    net = star(**{column: values})
    assert not graph_of(net).is_automorphism(TURN)
    assert graph_of(net).is_automorphism(np.array([2, 1, 3, 0, 4]))
    symmetry = find_symmetry(net)
    assert symmetry.size == 3
    assert (symmetry.generators[:, [net.src[3], net.dst[3]]] == [net.src[3], net.dst[3]]).all()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("kind", np.where(SECOND, ROUTER, star().kind)),
        ("transit", ~SECOND),
        ("replicates", star().replicates ^ SECOND),
        ("reduces", SECOND),
    ],
)
def test_it_is_none_across_a_node_that_differs(column, values):
    assert not graph_of(star(**{column: values})).is_automorphism(TURN)


@pytest.mark.parametrize("image", [[1, 2, 3, 0, 0], [1, 1, 3, 0, 4], [-1, 2, 3, 0, 4], [1, 2, 3, 4, 0]])
def test_it_maps_every_node_and_every_link_once(image):
    assert not graph_of(star()).is_automorphism(np.array(image))


def test_one_link_more_is_a_difference():
    links = [(v, 4, 1e9, 1e-6) for v in range(4)]
    kinds = [ACCELERATOR] * 4 + [SWITCH]
    assert graph_of(make_topology("to a switch", kinds, links)).is_automorphism(TURN)
    assert not graph_of(make_topology("one back", kinds, [*links, (4, 1, 1e9, 1e-6)])).is_automorphism(TURN)


@pytest.mark.parametrize("turned", [False, True])
def test_colours_tell_links_apart_that_leave_and_that_enter(turned):
    ends = [(0, 4, 1e9), (1, 4, 2e9), (2, 4, 2e9), (3, 4, 2e9)]
    links = [(b, a, w, 1e-6) if turned else (a, b, w, 1e-6) for a, b, w in ends]
    graph = graph_of(make_topology("one way", [ACCELERATOR] * 4 + [SWITCH], links))
    colours = graph.refined(mixed(graph.node_kind))[0]
    assert colours[1] == colours[2] == colours[3]
    assert len({colours[0], colours[1], colours[4]}) == 3


def test_colours_are_equal_whatever_numbers_nodes_have():
    links = [(0, 1, 1e9, 1e-6), (1, 2, 2e9, 1e-6), (2, 3, 3e9, 1e-6)]
    to = np.array([2, 0, 3, 1])
    graph, other = (
        graph_of(make_topology("line", [ACCELERATOR] * 4, [(int(at[a]), int(at[b]), *w) for a, b, *w in links]))
        for at in (np.arange(4), to)
    )
    colours, rounds = graph.refined(mixed(graph.node_kind))
    assert np.array_equal(other.refined(mixed(other.node_kind), rounds)[0][to], colours)


def planes(second_reconfiguration_s: float) -> Topology:
    """Four accelerators, of which one plane joins 0 with 1 and 2 with 3 at first, another 1 with 2 and 3 with 0."""
    every = np.arange(4, dtype=np.int32)
    matchings = np.array([[1, 0, 3, 2], [3, 2, 1, 0]], dtype=np.int32)
    both = [
        Plane(every, 1e9, 1e-6, reconfiguration_s, matching)
        for reconfiguration_s, matching in zip((1e-3, second_reconfiguration_s), matchings, strict=True)
    ]
    return make_topology("planes", [ACCELERATOR] * 4, [], planes=both)


def test_planes_are_exchanged_where_they_are_equal_alone():
    turn = np.array([1, 2, 3, 0])
    for net, equal in ((planes(1e-3), True), (planes(2e-3), False)):
        graph = graph_of(net)
        # planes and their ports follow the accelerators: 4 and 5-8, 9 and 10-13
        image = np.concatenate((turn, [9], 10 + turn, [4], 5 + turn))
        assert graph.is_automorphism(image) is equal
        found = find_symmetry(net)
        for generator in found.generators:
            mapped = [{(int(generator[a]), int(generator[b])) for a, b in enumerate(p.matching)} for p in net.planes]
            first = [set(enumerate(p.matching.tolist())) for p in net.planes]
            assert mapped == first or (equal and mapped == first[::-1])


def test_a_matching_is_part_of_the_network():
    turn = np.array([1, 2, 3, 0])
    net = planes(1e-3)
    one = graph_of(replace(net, planes=net.planes[:1]))
    assert not one.is_automorphism(np.concatenate((turn, [4], 5 + turn)))
    unlit = replace(net.planes[0], matching=np.full(4, -1, dtype=np.int32))
    assert graph_of(replace(net, planes=(unlit,))).is_automorphism(np.concatenate((turn, [4], 5 + turn)))


def test_components_have_the_number_of_their_least_node():
    a, b = np.array([5, 3, 1]), np.array([3, 4, 0])
    assert components(7, a, b).tolist() == [0, 0, 2, 3, 3, 3, 6]


@pytest.mark.parametrize("kinds", [[ACCELERATOR] * 3, [ACCELERATOR] * 2 + [SWITCH]])
def test_accelerators_that_nothing_joins_have_no_symmetry_to_use(kinds):
    assert find_symmetry(make_topology("apart", kinds, [])) is None
