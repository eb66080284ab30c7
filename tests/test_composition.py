"""Servers of today, and clusters composed of servers under a fabric."""

from __future__ import annotations

import numpy as np
import pytest

import stretto as st
from stretto.model.errors import InputError
from stretto.model.reach import reachable_from
from stretto.model.topology import ROUTER
from stretto.symmetry import find_symmetry
from stretto.topologies import compose, load_topology
from stretto.topologies.fabrics import FABRICS


def into(net, v):
    """The bandwidth of each link that enters a node."""
    return net.bandwidth[net.dst == v]


def degree(net, v):
    return int((net.src == v).sum())


def named(net, part):
    return [v for v, name in enumerate(net.names) if part in name]


@pytest.mark.parametrize(
    ("spec", "ranks", "out"),
    [
        ("a100", 8, 300e9), ("h100", 8, 450e9), ("h200", 8, 450e9), ("b200", 8, 900e9), ("gb200", 72, 900e9),
        ("mi300x", 8, 7 * 64e9), ("mi325x", 8, 7 * 64e9), ("gaudi3", 8, 21 * 25e9), ("trn2", 16, 512e9),
        ("trn2u", 64, 640e9), ("tpuv4:4x4x4", 64, 6 * 45e9), ("tpuv5e:16x16", 256, 200e9), ("tpuv5p:4x4x4", 64, 600e9),
    ],
)  # fmt: skip
def test_an_accelerator_sends_what_its_maker_says(spec, ranks, out):
    net = load_topology(spec)
    assert len(net.accelerators) == ranks
    assert {float(net.bandwidth[net.src == v].sum()) for v in net.accelerators} == {out}


@pytest.mark.parametrize(("spec", "sums"), [("a100:2", False), ("h100:2", True), ("b200:2", True), ("gb200:2", True)])
def test_only_nvswitches_that_multicast_can_sum(spec, sums):
    if sums:
        assert load_topology(f"{spec}?sharp=sites").reduces.sum() == 2
    else:
        with pytest.raises(InputError, match="could sum"):
            load_topology(f"{spec}?sharp=sites")


@pytest.mark.parametrize(
    ("spec", "said"), [("h100:8", True), ("h100:8?nics=nodes", True), ("h100:8?sharp=sites", False), ("a100:8", False)]
)
def test_a_server_says_that_its_nvswitches_can_sum_and_how(spec, said):
    assert any("?sharp=sites" in note for note in load_topology(spec).notes) == said
    assert any("?sharp=sites" in note for note in compose(spec, 2, "wan").notes) == said


def test_nvswitches_may_be_nodes_of_their_own():
    net = load_topology("gb200?nvswitches=9&sharp=sites")
    assert net.reduces.sum() == 9 and set(net.bandwidth) == {100e9}


@pytest.mark.parametrize(
    ("spec", "links"),
    [
        ("tpuv4:4x4x8", 2 * 3 * 128), ("tpuv4:2x2x4", 2 * (8 + 8 + 12)), ("tpuv5e:8x16", 2 * (128 + 112)),
        ("tpuv5e:8x8", 2 * 112), ("tpuv5e:8x8?wrap=all", 2 * 128),
    ],
)  # fmt: skip
def test_slices_of_tpus_wrap_around_where_they_are_whole(spec, links):
    assert load_topology(spec).link_count == links


def test_the_nics_of_a_family_are_its_rails_or_nodes():
    assert set(load_topology("h100:4?rails=200Gbit/s").bandwidth) == {450e9, 25e9}
    net = load_topology("a100:2?nics=nodes")
    assert len(named(net, ".nic")) == 16 and len(named(net, ".pcie")) == 8
    assert {degree(net, v) for v in named(net, ".pcie")} == {4}
    assert not net.replicates[named(net, ".nic")].any()


def test_rails_have_a_leaf_switch_for_each_nic_and_an_oversubscribed_spine():
    net = compose("h100", 4, "rails", spines=2, oversubscription=2)
    rails, spines = named(net, "rail"), named(net, "spine")
    assert len(rails) == 8 and len(spines) == 2
    for v in rails:
        assert sorted(into(net, v)) == [50e9] * 6  # four NICs; two spines of 4 x 50 / 2 / 2
    assert {degree(net, v) for v in spines} == {8}


def test_a_rack_has_a_rail_for_each_nic_of_a_tray():
    net = load_topology("gb200:2")
    leaves = [v for v in np.flatnonzero(net.is_switch) if net.sites[v] == ""]
    assert [degree(net, v) for v in leaves] == [36] * 4
    net = compose("h100", 2, "rails", number=2)
    assert sorted(net.names[a] for a in net.src[net.dst == net.names.index("rail1")])[:4] == [
        "server0.gpu1", "server0.gpu3", "server0.gpu5", "server0.gpu7"
    ]  # fmt: skip


def test_pods_have_leaf_switches_of_their_own():
    net = compose("h100", 4, "rails", pod=2)
    assert len(named(net, "rail")) == 16 and len(named(net, "spine")) == 1
    net = compose("h100", 6, "leafspine", pod=4)
    assert sorted(degree(net, v) - 1 for v in named(net, "leaf")) == [16, 32]


def test_a_fat_tree_is_as_large_as_its_nics_need():
    net = compose("h100", 2, "fattree")  # 16 NICs: K = 4
    assert (len(named(net, "edge")), len(named(net, "aggregation")), len(named(net, "core"))) == (8, 8, 4)
    assert {degree(net, v) for v in named(net, "core")} == {4}


def test_every_two_groups_of_a_dragonfly_are_joined_alike():
    net = compose("h100", 9, "dragonfly", ports=2, group=4)  # 72 NICs, 9 groups of 4 switches with 2 + 3 + 2 links
    assert {degree(net, v) for v in named(net, "switch") if "group" in net.names[v]} == {7}
    group = np.array([int(name.split(".")[0][5:]) if name.startswith("group") else -1 for name in net.names])
    a, b = group[net.src], group[net.dst]
    pairs = list(zip(a[(a >= 0) & (b >= 0) & (a != b)].tolist(), b[(a >= 0) & (b >= 0) & (a != b)].tolist()))
    assert len(pairs) == len(set(pairs)) == 9 * 8


def test_a_site_has_border_routers_and_sites_are_joined_at_them():
    site = compose("mi300x", 2, "site", routers=2)
    world = compose([site, "gb200"], [2, 1], "wan", km=1000)
    assert (site.kind == ROUTER).sum() == 2 and (world.kind == ROUTER).sum() == 5
    far = world.latency_s == 1000 / 200_000
    assert far.sum() == 2 * 3 and set(world.bandwidth[far]) == {12.5e9}
    assert world.sites[named(world, "cluster1.server0.gpu0")[0]] == "cluster1.server0"


def test_a_cluster_without_routers_gets_them_at_its_topmost_switches():
    world = compose("h100:4", 2, "wan", router_bandwidth="100Gbit/s")
    routers = np.flatnonzero(world.is_router)
    assert [degree(world, v) for v in routers] == [9, 9]


def test_a_topology_as_the_fabric_has_a_place_for_each_server():
    net = compose("h100", 4, "ring:4?bandwidth=800Gbit/s")
    routers = np.flatnonzero(net.is_router)
    assert len(routers) == 4 and {degree(net, v) for v in routers} == {8 + 2}
    around = compose(["h100:2", "mi300x:2"], [6, 5], "zoo:Abilene")
    assert len(around.accelerators) == 6 * 16 + 5 * 16


def test_servers_take_the_places_of_hosts_in_a_fabric_of_slurm(tmp_path):
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=s0 Nodes=dgx[0-2]\nSwitchName=s1 Nodes=dgx[3-5]\nSwitchName=top Switches=s[0-1]\n")
    net = compose("h100", fabric=f"{file}?nics=8")
    assert len(net.accelerators) == 48 and not net.is_router.any()
    leaf = net.names.index("fabric.s0")
    assert sorted(into(net, leaf)) == [50e9] * 24 + [1.2e12]
    assert net.sites[net.names.index("dgx4.gpu7")] == "dgx4"
    assert not any("one accelerator" in note for note in net.notes)
    slower = compose("h100", fabric=f"{file}")  # hosts of one port: eight NICs share it
    assert slower.is_router.sum() == 6 and set(into(slower, slower.names.index("fabric.s1"))) == {50e9, 150e9}


def test_nics_are_dealt_out_to_the_links_of_a_host():
    hosts = st.topology({"nodes": [{"kind": "gpu"}, {"kind": "gpu"}, *[{"kind": "switch"}] * 4], "links": [
        {"src": a, "dst": b, "bandwidth_GBps": 100, "latency_us": 1}
        for h in (0, 1) for s in (2, 3, 4, 5) for a, b in ((h, s), (s, h))
    ]})  # fmt: skip
    net = compose("h100", 2, hosts)
    by_switch = [sorted(net.names[a] for a in net.src[net.dst == net.names.index(f"fabric.switch{k}")]) for k in (0, 3)]
    assert by_switch[0] == ["server0.gpu0", "server0.gpu4", "server1.gpu0", "server1.gpu4"]
    assert by_switch[1] == ["server0.gpu3", "server0.gpu7", "server1.gpu3", "server1.gpu7"]
    assert np.prod(find_symmetry(net).orders) == 16


def test_nics_whose_rate_nobody_said_carry_what_pcie_does_with_a_note():
    server = load_topology("h100?nics=nodes")  # no longer a family's name, which says the rate
    for nics, said in ((None, True), ("8", True), ("8x200Gbit/s", False)):
        assert any("what its PCIe link does" in note for note in compose(server, 2, nics=nics).notes) == said
    assert not any("PCIe link" in note for note in compose("h100?nics=nodes", 2).notes)


def test_the_rate_of_rails_is_that_of_the_nics():
    net = compose("h100?rails=200Gbit/s", 2, "leafspine")
    assert set(net.bandwidth) == {450e9, 25e9}


def test_fewer_nics_than_accelerators_are_nodes():
    net = compose("mi300x", 2, "leafspine", nics="4x400Gbit/s")
    assert {degree(net, v) for v in named(net, "nic")} == {3}
    assert len(named(net, "nic")) == 8


@pytest.mark.parametrize("fabric", [f.name for f in FABRICS] + ["torus:2x2"])
def test_every_fabric_joins_all_accelerators_and_is_symmetric(fabric):
    net = compose("h100", 4, fabric)
    assert reachable_from(net, [int(net.accelerators[0])])[net.accelerators].all()
    assert np.prod(find_symmetry(net).orders) >= 8


def test_a_large_cluster_is_planned_by_symmetry():
    cluster = st.compose("h100", 64, "rails", oversubscription=2)
    plan = st.plan("allreduce", cluster, size="1GB", planner="symmetric")
    assert plan.symmetry.size >= 256
    through_nics_s = 2 * 63 / 64 * 1e9 / (8 * 50e9)
    assert plan.verify() and through_nics_s < plan.simulate().completion_s < 1.1 * through_nics_s


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("h100", 4, "rail"), {}, "rail: is no fabric"),
        (("h100", 4, "rails?foo=1"), {}, "no option 'foo'"),
        (("h100:4", 2), {}, "h100:4: is a cluster already"),
        (("h100", 4, "torus:2x3"), {}, "has 6 places for 4"),
        (("h100", 2), {"nics": "12"}, "12 NICs cannot be shared"),
        (("h100", 2), {"nics": "8x4foo"}, "unknown unit"),
        (("h100?nics=nodes", 2), {"nics": "9"}, "has 8 NICs, and 9"),
        (("ring:8", 2), {}, "bandwidth of its NICs is unknown"),
        (("optical:8,2", 2), {"nics": "8x400Gbit/s"}, "optical planes"),
        (("h100", 0), {}, "at least 1"),
        ((3,), {}, "3: a server is a spec"),
        ((["h100", "b200"], [1, 2, 3]), {}, "2 kinds of servers"),
        (("h100", 300, "dragonfly"), {"ports": 1, "group": 2, "global": 1}, "2400 NICs are more than"),
        (("h100", 4, "fattree"), {"k": 4}, "k=4"),
        (("nothing.json", 4), {}, "nothing.json"),
        (("h100", 999_999_999), {}, "more than the"),
        (("h100", 8, "rails"), {"spines": 999_999_999}, "more than the"),
        (("h100", 8, "fattree"), {"k": 99_999_998}, "more than the"),
        (("h100", 8, "dragonfly"), {"group": 999_999_999}, "more than the"),
        (("h100:2", 2, "wan"), {"routers": 999_999_999}, "more than the"),
        (("h100", 50, "rails"), {"nics": "800000x1Gbit/s"}, "at most 4096"),
        (("h100", 9000, "rails"), {"nics": "4096x1Gbit/s"}, "more than the"),
        (("h100?nvswitches=999999999", 2), {}, "more than the"),
    ],
)
def test_what_cannot_be_composed_is_named(arguments, options, says):
    with pytest.raises(InputError, match=says):
        compose(*arguments, **options)
