"""The catalogue: what each spec builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stretto.model.collective import make_collective
from stretto.model.errors import InputError, StrettoError
from stretto.model.reach import find_unreachable
from stretto.model.topology import ACCELERATOR, Topology
from stretto.topologies import catalogue, load_topology
from stretto.topologies.zoo import SIX

ZOO = Path(__file__).parents[2] / "shared" / "topologies" / "zoo"
DATA = Path(__file__).parent / "data" / "topologies"


def links(net: Topology) -> set[tuple[int, int, float, float]]:
    rows = zip(net.src, net.dst, net.bandwidth, net.latency_s, strict=True)
    return {(int(a), int(b), float(w), float(t)) for a, b, w, t in rows}


@pytest.mark.parametrize(
    ("spec", "file"),
    [
        ("dgx1", "dgx1"),
        ("dgx2:2", "dgx2_2chassis"),
        ("ndv2:1", "ndv2_1chassis"),
        ("ndv2:2", "ndv2_2chassis"),
        ("ndv2:2:teccl", "ndv2_2chassis_teccl_as_shipped"),
        ("ndv2:4", "ndv2_4chassis"),
        ("ndv2:8", "ndv2_8chassis"),
        ("ndv2:10", "ndv2_10chassis"),
        ("amd:1", "amd_1chassis"),
        ("amd:2", "amd_2chassis_intended"),
        ("amd:2:teccl", "amd_2chassis_teccl_as_shipped"),
        ("amd:4", "amd_4chassis_intended"),
    ],
)
def test_a_server_equals_its_table_link_for_link(spec, file):
    built, table = load_topology(spec), load_topology(str(DATA / f"{file}.json"))
    assert links(built) == links(table)
    assert built.kind.tolist() == table.kind.tolist()


@pytest.mark.parametrize(
    ("spec", "nodes", "directed_links"),
    [
        ("ring:8", 8, 16), ("ring:2", 2, 2), ("line:4", 4, 6), ("mesh:3x4", 12, 34), ("torus:4x4", 16, 64),
        ("torus:2x3", 6, 18), ("mesh:2x2x2", 8, 24), ("torus:3x3x3", 27, 162), ("hypercube:4", 16, 64),
        ("fullmesh:5", 5, 20), ("star:6", 7, 12), ("fattree:4", 36, 96), ("ndv2:3", 25, 102), ("dgx2:3", 59, 144),
        ("amd:3", 73, 312), ("ndv2:1:teccl", 9, 34), ("sites:3,4", 15, 66), ("sites:1,4", 4, 12),
    ],
)  # fmt: skip
def test_a_family_has_its_nodes_and_links(spec, nodes, directed_links):
    net = load_topology(spec)
    assert (net.node_count, net.link_count) == (nodes, directed_links)


@pytest.mark.parametrize(
    ("name", "nodes", "edges"),
    [
        ("Abilene", 11, 14),
        ("Cesnet", 10, 9),
        ("Gblnet", 8, 7),
        ("HiberniaIreland", 8, 8),
        ("Napnet", 6, 7),
        ("Arpanet", 4, 4),
    ],
)
def test_the_wan_papers_networks_are_whole(name, nodes, edges):
    net = load_topology(f"zoo:{name}")
    assert (net.node_count, net.link_count) == (nodes, 2 * edges)


@pytest.mark.parametrize("family", catalogue(), ids=lambda f: f.name)
def test_every_familys_example_joins_all_its_ranks(family):
    net = load_topology(family.example)
    assert find_unreachable(net, make_collective("allgather", net, shard_bytes=1)) is None


def test_distance_gives_latency_at_the_speed_of_light_in_fibre():
    net = load_topology("zoo:Abilene")
    names = list(net.names)
    link = next(
        i
        for i in range(net.link_count)
        if (net.src[i], net.dst[i]) == (names.index("New York"), names.index("Chicago"))
    )
    assert net.latency_s[link] == pytest.approx(1145e3 / 200e6, rel=0.01)


@pytest.mark.skipif(not ZOO.is_dir(), reason="the Topology Zoo's files are not here")
@pytest.mark.parametrize("name", [*SIX])
def test_the_own_tables_equal_the_zoos_files(name):
    own, file = load_topology(f"zoo:{name}"), load_topology(str(ZOO / f"{name}.graphml"))
    assert own.names == file.names
    assert links(own) == links(file)
    assert np.array_equal(own.xy, file.xy, equal_nan=True)


@pytest.mark.parametrize(
    ("short", "name"), [("abilene", "Abilene"), ("CESNET", "Cesnet1993"), ("arpanet", "Arpanet196912")]
)
def test_names_of_the_zoo_may_be_short_and_in_small_letters(short, name):
    assert load_topology(f"zoo:{short}").name == f"zoo:{name}"


def test_topohubs_networks_say_what_they_lack():
    assert any("leaves out nodes" in note for note in load_topology("zoo:Geant2012").notes)


def test_speeds_of_the_data_are_kept_and_gaps_are_noted():
    net = load_topology("zoo:Cesnet")
    assert sorted(set(net.bandwidth)) == [2500.0, 7500.0]
    assert any("without coordinates" in note for note in net.notes)


def test_all_of_topohubs_zoo_loads():
    from stretto.topologies.zoo import networks

    loaded = refused = 0
    for name in networks():
        try:
            load_topology(f"zoo:{name}")
            loaded += 1
        except StrettoError as error:
            assert "not connected" in str(error)
            refused += 1
    assert loaded >= 200
    assert refused <= 6


def test_options_set_every_link():
    net = load_topology("ring:4?bandwidth=400Gbit/s&latency=5us")
    assert set(net.bandwidth) == {50e9}
    assert set(net.latency_s) == {5e-6}


def test_a_wan_has_the_papers_links():
    net = load_topology("sites:2,3?km=200")
    wan = [i for i in range(net.link_count) if net.sites[net.src[i]] != net.sites[net.dst[i]]]
    assert len(wan) == 2
    assert set(net.bandwidth[wan]) == {12.5e9}
    assert set(net.latency_s[wan]) == {1e-3}


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_sparse_site_is_connected_and_the_same_for_a_seed(share):
    spec = f"sites:2,9?connectivity={share}&seed=5"
    one, two = load_topology(spec), load_topology(spec)
    assert links(one) == links(two)
    assert links(one) != links(load_topology(spec.replace("seed=5", "seed=6")))
    inside = [i for i in range(one.link_count) if (one.kind[[one.src[i], one.dst[i]]] == ACCELERATOR).all()]
    assert len(inside) == 2 * 2 * max(8, round(share * 36))
    assert find_unreachable(one, make_collective("allgather", one, shard_bytes=1)) is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rign:8", "did you mean ring"),
        ("ring", "write it as ring:N"),
        ("ring:1", "at least 2"),
        ("ring:two", "not a whole number"),
        ("h100:1000000000", "h100:SERVERS.*: 1000000000 is too large"),
        ("ring:" + "9" * 5000, "a number of 5000 digits is too large"),
        ("ring:8?speed=3", "no option 'speed'"),
        ("ring:8?bandwidth=-1B/s", "from 1 B/s"),
        ("ring:8?bandwidth=10", "has no unit: write 10GB/s"),
        ("ring:8?bandwidth=10 /s", "has no unit: write 10GB/s"),
        ("ring:8?bandwidth=1e308B/s", "from 1 B/s"),
        ("ring:8?bandwidth=nan", "not a bandwidth"),
        ("torus:4x4x4x4", "write it as"),
        ("torus:9999x9999", "more than"),
        ("fullmesh:99999", "more than"),
        ("fattree:3", "even"),
        ("hypercube:64", "too many"),
        ("sites:3", "sites:S,G"),
        ("sites:2,4?connectivity=2", "share"),
        ("sites:2,4?wan=triangle", "full, ring"),
        ("zoo:Abilen", "did you mean Abilene"),
        ("zoo:", "zoo:NAME"),
        ("ndv2:4:mscl", "write it as"),
        ("dgx2:2:teccl", "no teccl variant"),
        ("ring::8", "write it as"),
        ("ring:8?latency", "once, as latency=VALUE"),
        ("ring:8?latency=1us&latency=2us", "once, as latency=VALUE"),
        ("ring:8?latency=1us\n", "one line"),
        ("ring:8?latency=-1us", "from zero to a year"),
        ("dgx1:2", "write it as dgx1"),
        ("amd:1:teccl", "no switches"),
        ("zoo:Abilene?km=3", "no option 'km'"),
        ("missing.json", "cannot be read"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(spec, words):
    with pytest.raises(StrettoError, match=words) as error:
        load_topology(spec)
    assert "\n" not in str(error.value)


def test_every_node_has_a_place_to_be_drawn():
    for spec in ("dgx1", "dgx2:3", "ndv2:4", "amd:2", "torus:3x3", "fattree:4", "sites:2,3"):
        assert not np.isnan(load_topology(spec).xy).any()


def degrees(net: Topology) -> list[int]:
    out, into = np.bincount(net.src, minlength=net.node_count), np.bincount(net.dst, minlength=net.node_count)
    assert (out == into).all()
    return out.tolist()


def test_a_side_of_two_does_not_double_a_torus_link():
    assert degrees(load_topology("torus:2x2x2")) == [3] * 8


def test_a_torus_of_one_row_is_a_ring():
    assert links(load_topology("torus:1x5")) == links(load_topology("ring:5"))


def test_neighbours_in_a_hypercube_differ_in_one_bit():
    net = load_topology("hypercube:5")
    assert {(int(a) ^ int(b)).bit_count() for a, b in zip(net.src, net.dst, strict=True)} == {1}


def test_every_switch_of_a_fat_tree_has_k_ports():
    net = load_topology("fattree:6")
    assert set(np.array(degrees(net))[net.kind != ACCELERATOR]) == {6}
    assert len(net.accelerators) == 6**3 // 4


@pytest.mark.parametrize("spec", ["dgx2:5", "ndv2:7", "amd:3", "amd:5:teccl", "ndv2:3:teccl"])
def test_every_chassis_count_joins_all_ranks(spec):
    net = load_topology(spec)
    assert find_unreachable(net, make_collective("allgather", net, shard_bytes=1)) is None


def test_a_rail_switch_of_dgx2_joins_the_same_gpus_of_all_chassis_as_the_links_of_two():
    two, three = load_topology("dgx2:2"), load_topology("dgx2:3")

    def sends(net: Topology, gpu: int) -> float:
        return float(net.bandwidth[(net.src == gpu) & (net.bandwidth < 100e9)].sum())

    assert [sends(two, v) for v in range(17)] == [sends(three, v) for v in range(17)]


@pytest.mark.parametrize(("wan", "joined"), [("full", 10), ("ring", 5), ("line", 4), ("star", 4)])
def test_the_wan_graph_says_which_sites_are_joined(wan, joined):
    net = load_topology(f"sites:5,2?wan={wan}&routers=2")
    between = [i for i in range(net.link_count) if net.sites[net.src[i]] != net.sites[net.dst[i]]]
    assert len(between) == 2 * 2 * joined


def test_the_catalogue_costs_no_heavy_import():
    code = "import sys, stretto.topologies as t; t.catalogue(); print(*{'topohub', 'defusedxml', 'numba'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_sites_have_routers_of_their_own_for_each_other_site():
    net = load_topology("sites:3,4?routers=2&peers=own")
    between = sorted(net.link_name(i) for i in range(net.link_count) if net.sites[net.src[i]] < net.sites[net.dst[i]])
    assert between == ["s0.router0→s1.router0", "s0.router1→s2.router0", "s1.router1→s2.router1"]


def test_routers_of_sites_may_be_joined_to_some_accelerators_only():
    net = load_topology("sites:2,4?routers=2&attached=2")
    to_routers = [
        net.link_name(i) for i in range(net.link_count) if net.names[net.dst[i]] in ("s0.router0", "s0.router1")
    ]
    inside = [name for name in to_routers if "gpu" in name]
    assert inside == ["s0.gpu0→s0.router0", "s0.gpu1→s0.router0", "s0.gpu2→s0.router1", "s0.gpu3→s0.router1"]
    with pytest.raises(InputError, match="a site has 4"):
        load_topology("sites:2,4?attached=5")
