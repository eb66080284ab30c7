"""NVIDIA topograph's JSON, and its labels of Kubernetes nodes."""

from __future__ import annotations

import json

import pytest

from stretto.model.errors import InputError
from stretto.topologies import load_topology
from test_pairs import links
from topology_samples import KUBERNETES, TOPOGRAPH


@pytest.fixture
def read(tmp_path):
    def from_text(text, query=""):
        (tmp_path / "graph.json").write_text(text)
        return load_topology(f"{tmp_path}/graph.json{query}")

    return from_text


def test_layers_are_switches_the_closest_first(read):
    net = read(TOPOGRAPH)
    ways = links(net)
    assert ways["i1", "leaf-a"] == (50e9, 1.3e-6) and ways["leaf-a", "spine"][0] == 100e9
    assert "accelerator domains left out: 2; ?blocks=nvlink joins their GPUs" in net.notes


def test_a_domain_may_be_nvlinks(read):
    ways = links(read(TOPOGRAPH, "?blocks=nvlink&gpus=2"))
    assert ("i1.gpu0", "nvl1.nvswitch") in ways and ("i2.gpu1", "nvl1.nvswitch") in ways
    assert ("i3.gpu0", "nvl2.nvswitch") in ways


def test_labels_of_kubernetes_nodes_say_the_same(read):
    net = read(KUBERNETES)
    assert [net.names[v] for v in net.accelerators] == ["n1", "n2"]
    assert ("leaf-b", "spine") in links(net) and "nodes without a switch above left out: 1" in net.notes


def test_domains_alone_are_groups(read):
    data = json.loads(TOPOGRAPH)
    for one in data["instances"]:
        one["network_layers"] = []
    ways = links(read(json.dumps(data)))
    assert ("i1", "nvl1") in ways and ("nvl2", "core") in ways


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOPOGRAPH.replace('"i2"', '"i1"'), "the instance 'i1' stands twice"),
        (TOPOGRAPH.replace('"i2"', "7"), "instance 1: 'id' must be a name, not 7"),
        (TOPOGRAPH.replace('["leaf-b", "spine"]', '"leaf-b"'), "instance 2: 'network_layers' must be a list"),
        (TOPOGRAPH.replace('["leaf-b", "spine"]', '["spine", "spine"]'), "instance 2: names a switch twice"),
        (TOPOGRAPH.replace('["leaf-b", "spine"]', '["spine", "leaf-a"]'), "is above itself"),
        (KUBERNETES.replace("tier-0", "tier-x"), "item 0: a tier must be a whole number"),
        (KUBERNETES.replace("tier-0", "tier---5"), "item 0: a tier must be a whole number"),
        (KUBERNETES.replace("fabric.", "f."), "none of its nodes has a switch above it"),
    ],
)
def test_what_is_wrong_is_named(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for topograph's JSON)")
