"""Symmetry is found whatever numbers nodes and links have, and nothing is claimed that does not hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from stretto.model.changes import make_changes
from stretto.model.symmetry import Symmetry
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.symmetry import find_symmetry
from stretto.symmetry.coordinates import Shift, free_shifts
from stretto.symmetry.graph import graph_of
from stretto.symmetry.grow import Group, _joined
from stretto.topologies import load_topology
from stretto.verify.symmetric import wrong_group


def shuffled(topology: Topology, seed: int) -> Topology:
    """The same network with its nodes and links numbered at random."""
    rng = np.random.default_rng(seed)
    to, order = rng.permutation(topology.node_count), rng.permutation(topology.link_count)
    kind, columns = np.empty(topology.node_count, dtype=np.int8), ("bandwidth", "latency_s", "message_s")
    kind[to] = topology.kind
    links = np.stack([to[topology.src], to[topology.dst], *(getattr(topology, c) for c in columns[:2])], axis=1)
    flags = {}
    for name in ("replicates", "transit", "reduces"):
        flags[name] = np.empty(topology.node_count, dtype=np.bool_)
        flags[name][to] = getattr(topology, name)
    planes = [replace(plane, nodes=to[plane.nodes].astype(np.int32)) for plane in topology.planes]
    return make_topology(topology.name, kind, links[order], message_s=topology.message_s[order], planes=planes, **flags)


def network(joined: list[tuple[int, int, float]], kinds: list[int]) -> Topology:
    """A network of joined pairs, with bandwidths in GB/s, 1 us a hop."""
    links = [(*ends, width * 1e9, 1e-6) for a, b, width in joined for ends in ((a, b), (b, a))]
    return make_topology("network", kinds, links)


def clusters(servers: list[int], gpus: int = 8, nics: tuple[float, ...] = (50.0,), spines: int = 0) -> Topology:
    """Kinds of servers on common rails: how many of each kind, and the bandwidth of a NIC of each kind."""
    total, joined = sum(servers), []
    server = np.arange(total * gpus) // gpus
    nic = np.repeat(nics, servers)[server]
    first = total * gpus
    for v in range(total * gpus):
        joined += [(v, first + int(server[v]), 450.0), (v, first + total + v % gpus, float(nic[v]))]
    for spine in range(spines):
        joined += [(first + total + rail, first + total + gpus + spine, 100.0) for rail in range(gpus)]
    return network(joined, [ACCELERATOR] * first + [SWITCH] * (total + gpus + spines))


def tree(*sides: int, widths: tuple[float, ...] = (50.0, 100.0, 100.0)) -> Topology:
    """Accelerators under levels of switches, one below a root, ``sides`` children each from the root down."""
    kinds, joined, level = [SWITCH], [], [0]
    for depth, side in enumerate(sides):
        below = []
        for parent in level:
            for _ in range(side):
                below.append(len(kinds))
                kinds.append(SWITCH if depth + 1 < len(sides) else ACCELERATOR)
                joined.append((parent, below[-1], widths[len(sides) - 1 - depth]))
        level = below
    return network(joined, kinds)


def dragonfly(groups: int, gpus: int) -> Topology:
    """A switch for each group, each joined to all others."""
    hub = groups * gpus
    joined = [(v, hub + v // gpus, 50.0) for v in range(hub)]
    joined += [(hub + a, hub + b, 25.0) for b in range(groups) for a in range(b)]
    return network(joined, [ACCELERATOR] * hub + [SWITCH] * groups)


def torus_of_servers(rows: int, columns: int, gpus: int) -> Topology:
    """Servers in a torus; GPUs of equal number are joined to those of the servers beside."""
    joined, count = [], rows * columns
    for server in range(count):
        row, column = divmod(server, columns)
        for gpu in range(gpus):
            joined.append((server * gpus + gpu, count * gpus + server, 450.0))
            for other in ((row + 1) % rows * columns + column, row * columns + (column + 1) % columns):
                joined.append((server * gpus + gpu, other * gpus + gpu, 50.0))
    return network(joined, [ACCELERATOR] * (count * gpus) + [SWITCH] * count)


def crossbars(side: int) -> Topology:
    """A grid of GPUs with a switch for each row and each column, all alike."""
    gpu = np.arange(side * side)
    joined = [(int(v), side * side + int(v) // side, 50.0) for v in gpu]
    joined += [(int(v), side * side + side + int(v) % side, 50.0) for v in gpu]
    return network(joined, [ACCELERATOR] * (side * side) + [SWITCH] * (2 * side))


def twisted_dragonfly(groups: int, routers: int, links: int) -> Topology:
    """Routers of a group all joined, and link ``j`` of a group leads to the group ``j + 1`` further on."""
    count = groups * routers
    joined = [(v, count + v, 100.0) for v in range(count)]
    for group in range(groups):
        first = count + group * routers
        joined += [(first + a, first + b, 50.0) for b in range(routers) for a in range(b)]
        for j in range(routers * links):
            back = routers * links - 1 - j
            if j < back or (j == back and 2 * group < groups):
                other = (group + j + 1) % groups
                joined.append((first + j // links, count + other * routers + back // links, 25.0))
    return network(joined, [ACCELERATOR] * count + [SWITCH] * count)


def holds(symmetry: Symmetry) -> None:
    """Compare every generator with the network, link by link, and count orbits."""
    t = symmetry.topology
    columns = list(zip(t.bandwidth.tolist(), t.latency_s.tolist(), t.message_s.tolist(), strict=True))
    ends = list(zip(t.src.tolist(), t.dst.tolist(), strict=True))
    links = dict(zip(ends, columns, strict=True))
    nodes = list(zip(t.kind, t.transit, t.replicates, t.reduces, strict=True))
    images = [generator.tolist() for generator in symmetry.generators]
    for image, order in zip(images, symmetry.orders.tolist(), strict=True):
        assert sorted(image) == list(range(t.node_count))
        assert [nodes[v] for v in image] == nodes
        assert {(image[a], image[b]): links[a, b] for a, b in ends} == links
        assert all(image[other[v]] == other[image[v]] for other in images for v in range(t.node_count))
        at = list(range(t.node_count))
        for step in range(1, order + 1):
            at = [image[v] for v in at]
            assert (at == list(range(t.node_count))) == (step == order)
    sizes = np.bincount(symmetry.node_orbits)[symmetry.node_orbits[t.accelerators]]
    assert {*sizes.tolist()} <= {1, symmetry.size}


SYMMETRIC = {
    "h100:2": [2, 8], "h100:16": [16, 8], "star:8": [8], "fullmesh:6": [6], "sites:3,4": [3, 4],
    "fattree:4": [4, 2, 2], "fattree:8": [8, 4, 4], "ndv2:4": [4], "dgx2:4": [4, 8], "optical:8,2": [8],
}  # fmt: skip
BUILT = {
    "rails with a spine": (clusters([12], spines=1), [12, 8]),
    "rails with spines": (clusters([6], gpus=4, spines=3), [6, 4]),
    "leaf and spine": (tree(6, 8), [6, 8]),
    "three levels": (tree(4, 3, 5), [4, 3, 5]),
    "oversubscribed": (tree(4, 2, 8, widths=(50.0, 200.0, 100.0)), [4, 2, 8]),
    "dragonfly": (dragonfly(9, 4), [9, 4]),
    "two kinds of servers": (clusters([6, 6], nics=(50.0, 25.0)), [6, 8]),
    "two kinds, one of half as many": (clusters([8, 4], gpus=4, nics=(50.0, 25.0)), [4, 4]),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("spec", SYMMETRIC)
def test_the_catalogue_in_any_numbering(spec, seed):
    symmetry = find_symmetry(shuffled(load_topology(spec), seed))
    assert symmetry.orders.tolist() == SYMMETRIC[spec]
    holds(symmetry)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", BUILT)
def test_networks_with_switches_in_any_numbering(name, seed):
    topology, orders = BUILT[name]
    symmetry = find_symmetry(shuffled(topology, seed))
    assert symmetry.orders.tolist() == orders
    holds(symmetry)


WITHOUT_SWITCHES = {
    "ring:7": 7, "torus:4x4": 16, "torus:3x5": 15, "torus:4x5x3": 60, "hypercube:4": 16, "hypercube:6": 64, "mesh:4x6": 4, "line:6": 2, "dgx1": 4,
    "amd:1": 4, "amd:3": 12, "sites:4,4?wan=ring": 16,
}  # fmt: skip
GROWN = {
    "a torus of servers": (torus_of_servers(3, 4, 4), 48),
    "a grid of crossbars": (crossbars(5), 25),
    "a twisted dragonfly": (twisted_dragonfly(9, 4, 2), 9),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", [*WITHOUT_SWITCHES, *GROWN])
def test_groups_that_are_grown_have_an_element_for_each_place(name, seed):
    topology, size = GROWN[name] if name in GROWN else (load_topology(name), WITHOUT_SWITCHES[name])
    symmetry = find_symmetry(shuffled(topology, seed))
    holds(symmetry)
    assert symmetry.size == size


def test_networks_without_symmetry():
    assert find_symmetry(load_topology("zoo:Abilene")) is None
    star = load_topology("star:8")
    assert find_symmetry(replace(star, bandwidth=star.bandwidth * (1 + np.arange(star.link_count)))) is None


@given(st.sampled_from([*SYMMETRIC, *BUILT, *WITHOUT_SWITCHES, *GROWN]), st.integers(0, 2**31), st.data())
@settings(max_examples=examples(15), deadline=None)
def test_no_symmetry_is_claimed_across_a_slower_link(name, seed, data):
    built = BUILT | GROWN
    topology = shuffled(built[name][0] if name in built else load_topology(name), seed)
    if not topology.link_count:
        return
    link = data.draw(st.integers(0, topology.link_count - 1))
    slow = np.ones(topology.link_count)
    slow[link] = 0.99
    symmetry = find_symmetry(replace(topology, bandwidth=topology.bandwidth * slow))
    if symmetry is not None:
        holds(symmetry)
        assert (symmetry.generators[:, topology.src[link]] == topology.src[link]).all()
        assert (symmetry.generators[:, topology.dst[link]] == topology.dst[link]).all()


def test_a_root_stays_where_it_is_and_other_servers_still_turn():
    topology = shuffled(load_topology("h100:16"), 5)
    colours = np.zeros(topology.node_count, dtype=np.int64)
    root = int(topology.accelerators[3])
    colours[root] = 1
    symmetry = find_symmetry(topology, colours)
    holds(symmetry)
    assert symmetry.orders.tolist() == [15]
    assert symmetry.generators[0, root] == root


def test_only_the_accelerators_that_count_must_move_freely():
    topology = clusters([7, 1], gpus=4, nics=(50.0, 25.0))
    assert find_symmetry(topology).orders.tolist() == [7]
    counted = np.zeros(topology.node_count, dtype=np.bool_)
    counted[: 7 * 4] = True
    assert find_symmetry(topology, counted=counted).orders.tolist() == [7, 4]


TURN_OF_RING, FLIP_OF_RING = np.array([1, 2, 3, 4, 5, 0]), np.array([0, 5, 4, 3, 2, 1])


def test_shifts_that_do_not_commute_are_not_taken_together():
    graph = graph_of(load_topology("ring:6"))
    half_turn = np.roll(np.arange(6), -3)
    turn, flip, half = Shift(TURN_OF_RING, 6, 0), Shift(FLIP_OF_RING, 2, 1), Shift(half_turn, 2, 1)
    every = np.ones(6, dtype=np.bool_)
    assert free_shifts(graph, [turn, flip], every) == [turn]
    third = Shift(np.roll(np.arange(6), -2), 3, 0)
    assert free_shifts(graph, [third, half], every) == [third, half]


def test_shifts_of_which_one_leaves_nodes_that_the_other_moves_are_not_taken_together():
    graph = graph_of(load_topology("star:5"))
    three, two = Shift(np.array([1, 2, 0, 3, 4, 5]), 3, 0), Shift(np.array([0, 1, 2, 4, 3, 5]), 2, 1)
    every = np.ones(6, dtype=np.bool_)
    assert free_shifts(graph, [three, two], every) == [three]
    assert free_shifts(graph, [three, two], np.arange(6) != 3) == [three]
    assert free_shifts(graph, [three, two], np.isin(np.arange(6), [3, 4])) == [two]


def test_a_root_leaves_the_rails_beside_its_own_where_orbits_may_have_any_size():
    topology = load_topology("h100:8")
    colours = np.zeros(topology.node_count, dtype=np.int64)
    colours[topology.accelerators[3]] = 1
    assert find_symmetry(topology, colours).orders.tolist() == [7]
    both = find_symmetry(topology, colours, partly=True)
    assert both.orders.tolist() == [7, 7]
    assert wrong_group(both) is None
    sizes = np.bincount(both.node_orbits[topology.accelerators])
    assert sorted(sizes[sizes > 0].tolist()) == [1, 7, 7, 49]


@pytest.mark.parametrize(
    ("known", "found", "order"),
    [
        ([], TURN_OF_RING, 6),
        ([], np.array([1, 0, 2, 3, 4, 5]), None),  # no symmetry
        ([], FLIP_OF_RING, None),  # leaves 0 and 3 where they are, and moves others
        ([], np.array([1, 0, 5, 4, 3, 2]), 2),
        ([(np.roll(np.arange(6), -3), 2)], np.roll(np.arange(6), -2), 3),
        ([(np.roll(np.arange(6), -3), 2)], TURN_OF_RING, 3),  # its third power is known: a root of that is undone
        ([(np.roll(np.arange(6), -2), 3)], np.array([1, 0, 5, 4, 3, 2]), None),  # does not commute
        ([(TURN_OF_RING, 6)], np.roll(np.arange(6), -2), None),  # is known
    ],
)
def test_only_a_symmetry_that_commutes_and_moves_freely_joins_a_group(known, found, order):
    graph = graph_of(load_topology("ring:6"))
    group = Group(graph, [image for image, _ in known], [order for _, order in known])
    joined = _joined(group, graph.accelerators, 0, found)
    assert (joined is None) == (order is None)
    if joined is not None:
        holds(Symmetry(load_topology("ring:6"), np.array([*group.images, joined[0]]), np.array([*group.orders, order])))
        assert joined[1] == order


def test_a_symmetry_of_accelerators_that_count_must_be_of_their_order_for_all_others_too():
    graph = graph_of(load_topology("star:5"))
    image = np.array([1, 0, 3, 4, 2, 5])
    assert _joined(Group(graph, [], []), np.array([0, 1]), 0, image) is None
    assert _joined(Group(graph, [], []), np.array([0, 1]), 0, np.array([1, 0, 2, 3, 4, 5]))[1] == 2


def test_nothing_is_looked_for_where_bandwidths_change():
    star = load_topology("star:4")
    changes = make_changes([(1e-6, 0, 1e9)], star.link_count)
    assert find_symmetry(star) is not None
    assert find_symmetry(replace(star, changes=changes)) is None


def test_generators_come_from_the_outermost_to_the_innermost():
    # servers are joined by narrow links over as many hops as lead to a GPU beside: a switch in each server, and rails
    topology = shuffled(clusters([6], gpus=4), 3)
    symmetry = find_symmetry(topology)
    assert symmetry.orders.tolist() == [6, 4]
    # two wide links or two narrow ones
    assert find_symmetry(shuffled(clusters([6], gpus=4, nics=(900.0,)), 3)).orders.tolist() == [4, 6]


@pytest.mark.parametrize("seed", range(6))
def test_groups_are_mapped_to_groups(seed):
    topology = shuffled(load_topology("h100:6"), seed)
    servers = np.array([min(topology.dst[topology.out_links[v]]) for v in range(topology.node_count)])
    groups = np.full(topology.node_count, -1)
    groups[topology.accelerators] = servers[topology.accelerators] if seed % 2 else np.arange(48) % 6
    symmetry = find_symmetry(topology, groups=groups)
    if symmetry is not None:
        holds(symmetry)
        for image in symmetry.generators:
            for number in np.unique(groups[groups >= 0]):
                assert len(np.unique(groups[image[groups == number]])) == 1
    assert symmetry is not None or not seed % 2


def test_two_halves_of_a_switch_turn_and_change_places():
    groups = np.array([0, 1, 0, 0, 1, 1, 0, 1, -1])
    symmetry = find_symmetry(load_topology("star:8"), groups=groups)
    assert symmetry.orders.tolist() == [2, 4]
    holds(symmetry)
