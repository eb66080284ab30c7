"""SLURM's topology.conf and topology.yaml: host lists, trees, blocks, the options that give them bandwidths."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.topologies import compose, load_topology
from stretto.topologies.hostlist import expand
from test_pairs import links
from topology_samples import SLURM_BLOCKS, SLURM_TREE, SLURM_YAML


@pytest.fixture
def read(tmp_path):
    def from_text(text, query=""):
        (tmp_path / "topology.conf").write_text(text)
        return load_topology(f"{tmp_path}/topology.conf{query}")

    return from_text


def hosts(net):
    return [net.names[v] for v in net.accelerators]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tux[0-2,12]", ["tux0", "tux1", "tux2", "tux12"]),
        ("a[08-10],b", ["a08", "a09", "a10", "b"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ('"a,b"', ["a", "b"]),
    ],
)
def test_a_host_list_is_expanded(text, names):
    assert expand(text, "here") == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a[1-2", "brackets that do not close"),
        ("a]1", "brackets that do not close"),
        ("a[3-1]", "goes down"),
        ("a[0-999999999]", "too long"),
        ("a[0-9999]b[0-9999]", "more than 100000 hosts"),
        ("a,a", "1 names stand twice"),
        ("a,,b", "a name is empty"),
        ("a[x]", "'x' is no number or range"),
    ],
)
def test_a_wrong_host_list_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        expand(text, "here")


def test_a_tree_has_the_bandwidth_of_what_is_below(read):
    net = read(SLURM_TREE)
    ways = links(net)
    assert hosts(net) == ["tux01", "tux02", "login", "tux03", "tux05"]
    assert ways["tux01", "leaf1"] == (50e9, 1.3e-6)
    assert (ways["leaf1", "spine"][0], ways["spine", "leaf2"][0]) == (150e9, 100e9)
    assert any(note.startswith("LinkSpeed of 2 switches left out") for note in net.notes)


def test_oversubscription_divides_uplinks(read):
    assert links(read(SLURM_TREE, "?oversubscription=4&nic=100Gbit/s"))["leaf1", "spine"][0] == 3 * 12.5e9 / 4


def test_linkspeed_counts_where_its_unit_is_said(read):
    ways = links(read(SLURM_TREE, "?linkspeed=1Gbit/s"))
    assert (ways["leaf1", "spine"][0], ways["leaf2", "spine"][0]) == (25e9, 12.5e9)


def test_gpus_of_a_host_are_on_an_nvswitch_and_have_a_port_each(read):
    ways = links(read(SLURM_TREE, "?gpus=2&hosts=tux0[12],tux03"))
    assert ways["tux01.gpu1", "leaf1"][0] == 50e9 and ways["tux01.gpu0", "tux01.nvswitch"] == (450e9, 0.35e-6)
    assert not any("login" in end for way in ways for end in way)


def test_gpus_share_ports_where_there_are_fewer(read):
    net = read(SLURM_TREE, "?gpus=4&nics=2&inside=300GB/s")
    ways = links(net)
    assert ("tux01.gpu1", "tux01.nic0") in ways and ("tux01.gpu2", "tux01.nic1") in ways
    assert ("tux01.gpu0", "leaf1") not in ways and ways["tux01.nic1", "leaf1"][0] == 50e9
    assert not net.replicates[net.names.index("tux01.nic1")]
    assert ways["leaf1", "spine"][0] == 3 * 2 * 50e9


def test_servers_are_put_into_hosts(read, tmp_path):
    read(SLURM_TREE)
    net = compose("h100", 5, f"{tmp_path}/topology.conf?nics=8")
    assert len(net.accelerators) == 40
    assert sorted({w for (a, b), (w, _) in links(net).items() if b == "fabric.leaf1" and "gpu" in a}) == [50e9]


def test_a_block_is_a_network_switch_or_nvlinks(read):
    ways = links(read(SLURM_BLOCKS))
    assert ways["gb1", "block001"][0] == 50e9 and ways["block002", "core"][0] == 100e9
    fast = links(read(SLURM_BLOCKS, "?blocks=nvlink&gpus=4"))
    assert ("gb1.gpu0", "block001.nvswitch") in fast and ("gb2.gpu3", "block001.nvswitch") in fast
    assert ("gb3.gpu0", "core") in fast and ("gb3.gpu0", "block001.nvswitch") not in fast


def test_a_yaml_has_several_topologies(read):
    default, other = read(SLURM_YAML), read(SLURM_YAML, "?topology=blocks")
    assert ("s1", "root") in links(default) and ("b1", "core") in links(other)
    assert hosts(default) == hosts(other) == ["node1", "node2", "node3", "node4"]


def test_ports_are_dealt_out_among_the_switches_of_a_host(read):
    text = "SwitchName=rail0 Nodes=a,b\nSwitchName=rail1 Nodes=a,b\n"
    ways = links(read(text, "?gpus=4"))
    assert ("a.gpu0", "rail0") in ways and ("a.gpu1", "rail1") in ways and ("a.gpu1", "rail0") not in ways


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SLURM_TREE.replace("LinkSpeed=200", "LinkSped=200"), "line 3: 'LinkSped' is none of"),
        (SLURM_TREE.replace("[03,05]", "[03,05"), "line 4: 'tux\\[03,05' has brackets"),
        (SLURM_TREE.replace("leaf[1-2]", "leaf[1-3]"), "line 2: the switch 'leaf3' below 'spine' is not defined"),
        (SLURM_TREE.replace("= leaf2", "= leaf1"), "line 4: the switch 'leaf1' stands twice"),
        (SLURM_TREE.replace("LinkSpeed=200", "Switches=spine"), "is above itself"),
        (SLURM_TREE.replace("LinkSpeed=200", "LinkSpeed=fast"), "line 3: LinkSpeed must be a finite number"),
        (SLURM_TREE.partition("switchname")[0], "the switch 'leaf2' below 'spine' is not defined"),
        ("SwitchName=a Nodes=x\nSwitchName=b Nodes=y\n", "the network is not connected"),
        ("SwitchName=a\n", "has no hosts"),
        ("RingName=r Nodes=a[1-4]\n", "topology/ring is not read"),
        (SLURM_BLOCKS + SLURM_TREE, "of two plugins"),
    ],
)
def test_what_is_wrong_with_a_conf_is_named(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for SLURM's topology.conf)")


@pytest.mark.parametrize(
    ("text", "query", "words"),
    [
        (SLURM_YAML, "?topology=flat", "topology 'flat': is flat: only tree and block"),
        (SLURM_YAML, "?topology=none", "no topology 'none'; there are blocks, fabric, flat"),
        (SLURM_YAML.replace("s[1-2]", "[s1]"), "", "topology 'fabric': 'children' must be text"),
        (SLURM_YAML.replace("switches:", "switch:"), "", "'switches' must be a list of objects"),
        (SLURM_YAML.replace("- topology: flat", "- 5: x\n  topology: flat"), "?topology=flat", "is 5, flat: only tree"),
        *(
            (SLURM_YAML.replace("topology: flat", f"topology: {value}"), "", "not of its type")
            for value in ("!!int ''", "!!bool maybe", "!!timestamp now")
        ),
        (SLURM_YAML.replace("block: b1", "block: &b b1"), "", "anchors or aliases"),
        (SLURM_YAML.replace("cluster_default: true", "cluster_default: ["), "", "is no YAML"),
        (SLURM_YAML, "?hosts=x*", "none of its 4 hosts \\(node1, node2, node3, ...\\) fits x\\*"),
    ],
)
def test_what_is_wrong_with_a_yaml_is_named(read, text, query, words):
    with pytest.raises(InputError, match=words) as error:
        read(text, query)
    assert str(error.value).endswith("(taken for SLURM's topology.yaml)")
