"""Topology files: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.errors import InputError, StrettoError
from stretto.topologies import load_topology
from stretto.topologies.files import topology_from_json
from stretto.topology import Topology

ZOO = Path(__file__).parents[2] / "shared" / "topologies" / "zoo"


def equal(a: Topology, b: Topology) -> bool:
    columns = ("kind", "replicates", "transit", "src", "dst", "bandwidth", "latency_s")
    same = all(np.array_equal(getattr(a, c), getattr(b, c)) for c in columns)
    same = same and np.array_equal(a.xy, b.xy, equal_nan=True)
    return same and (a.name, a.names, a.sites, a.notes) == (b.name, b.names, b.sites, b.notes)


@pytest.mark.parametrize("spec", ["ndv2:4", "amd:2", "zoo:HiberniaIreland", "sites:2,3", "torus:3x3"])
def test_a_topology_survives_json_bit_for_bit(spec):
    net = load_topology(spec)
    assert equal(net, topology_from_json(json.loads(json.dumps(net.to_json())), "here"))


def small() -> dict:
    return {
        "nodes": [{"id": "a", "kind": "gpu"}, {"id": "b", "kind": "accelerator", "site": "x"}],
        "links": [
            {"src": "a", "dst": "b", "bandwidth_GBps": 1.5, "latency_us": 2},
            {"src": "b", "dst": "a", "bandwidth_Bps": 7, "latency_s": 0.5},
        ],
    }


def test_ids_may_be_text_and_units_either():
    net = topology_from_json(small(), "t.json")
    assert net.bandwidth.tolist() == [1.5e9, 7.0]
    assert net.latency_s.tolist() == [2e-6, 0.5]
    assert net.sites == ("", "x")


def set_(path: list, value):
    def change(data: dict) -> dict:
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        if value is None:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        return data

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_(["links", 0, "bandwidth_GBps"], None), "link 0: the bandwidth is missing"),
        (set_(["links", 0, "bandwidth_GBps"], 0), "must be positive"),
        (set_(["links", 0, "bandwidth_GBps"], float("nan")), "must be positive"),
        (set_(["links", 0, "bandwidth_GBps"], "fast"), "must be a number"),
        (set_(["links", 0, "bandwidth_GBps"], 10**400), "too large"),
        (set_(["links", 0, "latency_us"], -1), "zero or more"),
        (set_(["links", 0, "latency_us"], None), "latency is missing"),
        (set_(["links", 0, "dst"], "c"), "'c' is no node"),
        (set_(["links", 0, "dst"], None), "'dst' is missing"),
        (set_(["links", 0, "dst"], "a"), "joins a node to itself"),
        (set_(["links", 1], {"src": "a", "dst": "b", "bandwidth_Bps": 1, "latency_s": 0}), "given twice"),
        (set_(["nodes", 1, "id"], "a"), "given twice"),
        (set_(["nodes", 1, "kind"], "toaster"), "toaster"),
        (set_(["nodes", 1, "site"], 3), "must be text"),
        (set_(["nodes"], 3), "list of objects"),
        (set_(["links"], None), "list of objects"),
        (set_(["nodes", 1, "transit"], 2), "true or false"),
    ],
)
def test_a_wrong_entry_is_named(change, words):
    with pytest.raises(InputError, match=words) as error:
        topology_from_json(change(small()), "t.json")
    assert "t.json" in str(error.value)


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="LinkSpeedRaw" for="edge" id="s"/><key attr.name="label" for="node" id="l"/>
<graph edgedefault="undirected"><node id="0"><data key="l">X</data></node><node id="1"><data key="l">X</data></node>
<edge source="0" target="1"><data key="s">8000.0</data></edge><edge source="1" target="0"><data key="s">800</data></edge>
<edge source="0" target="0"/></graph></graphml>"""

GML = """graph [ label "G" node [ id 0 label "X" Longitude 1.0 Latitude 2.0 ] node [ id 1 label "X" ]
edge [ source 0 target 1 LinkSpeedRaw 8000 ] edge [ source 1 target 0 LinkSpeedRaw 800 ] edge [ source 0 target 0 ] ]"""


@pytest.mark.parametrize(("name", "text"), [("g.graphml", GRAPHML), ("g.gml", GML)])
def test_doubled_labels_parallel_edges_and_loops_are_mended(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    net = load_topology(str(tmp_path / name))
    assert net.names == ("X", "X (2)")
    assert net.bandwidth.tolist() == [1100.0, 1100.0]
    assert any("itself" in n for n in net.notes)
    assert any("parallel" in n for n in net.notes)


def test_options_after_a_file_name_fill_its_gaps(tmp_path):
    (tmp_path / "g.gml").write_text("graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]")
    net = load_topology(f"{tmp_path}/g.gml?bandwidth=3GB/s&latency=2ms")
    assert (set(net.bandwidth), set(net.latency_s)) == ({3e9}, {2e-3})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.json", '{"nodes": [', "no JSON: .* line 1"),
        ("t.json", "[" * 100_000, "no JSON"),
        ("t.json", "[]", "an object"),
        (
            "t.json",
            json.dumps(small() | {"links": small()["links"][:1]}),
            "gpu1 cannot reach gpu0: the network is not connected",
        ),
        ("t.graphml", "<graphml><graph>", "no XML"),
        ("t.graphml", "<a/>", "no <graph>"),
        ("t.graphml", '<!DOCTYPE x [<!ENTITY a "b">]><graphml>&a;</graphml>', "not accepted"),
        ("t.gml", "graph [ node [ id 0 ]", "ends in the middle"),
        ("t.gml", 'graph [ label "x', "not closed"),
        ("t.gml", "graph [ node [ id 0 ] node [ id 1 ] ]", "not connected"),
        ("t.gml", "graph [ node [ id 0 ] node [ id 0 ] ]", "given twice"),
        ("t.gml", "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 7 ] ]", "no node"),
        ("t.csv", "a,b", "no such file or family|neither"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=words) as error:
        load_topology(str(path))
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_not_text_is_refused(tmp_path):
    (tmp_path / "t.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_topology(str(tmp_path / "t.json"))


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "d.json").mkdir()
    with pytest.raises(InputError, match="folder"):
        load_topology(str(tmp_path / "d.json"))


def loads_or_says_why(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        assert isinstance(load_topology(str(path)), Topology)
    except StrettoError as error:
        assert str(error)


damage = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4)


@pytest.mark.parametrize("name", ["f.json", "f.graphml", "f.gml"])
@given(changes=damage, keep=st.floats(0.3, 1))
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path_factory, name, changes, keep):
    valid = {"f.json": json.dumps(random_network(3).to_json()), "f.graphml": GRAPHML, "f.gml": GML}[name]
    content = bytearray(valid.encode()[: max(1, round(len(valid) * keep))])
    for at, value in changes:
        content[at % len(content)] = value
    loads_or_says_why(tmp_path_factory.mktemp("fuzz") / name, bytes(content))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "links", "id", "kind", "src", "dst", "bandwidth_GBps", "latency_us", "planes", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(value=json_values)
def test_any_json_is_a_topology_or_refused(value):
    try:
        topology_from_json(value, "f.json")
    except StrettoError as error:
        assert str(error)


@pytest.mark.skipif(not ZOO.is_dir(), reason="the Topology Zoo's files are not here")
def test_the_whole_zoo_is_read_or_refused_with_a_reason():
    files = sorted(ZOO.glob("*.graphml"))
    reasons = []
    for file in files:
        try:
            load_topology(str(file))
        except StrettoError as error:
            reasons.append(str(error))
    assert len(files) == 276
    assert all("not connected" in reason for reason in reasons)
    assert len(reasons) == 23


@given(spec=st.text(st.sampled_from("ringtosze:x?&=,0123456789.-/%Ab"), max_size=24) | st.text(max_size=12))
def test_any_spec_is_a_topology_or_refused(spec):
    try:
        load_topology(spec)
    except StrettoError as error:
        assert str(error)


@given(
    family=st.sampled_from(["ring", "torus", "mesh", "sites", "ndv2", "dgx2", "amd", "fattree", "hypercube", "zoo"]),
    arguments=st.text(st.sampled_from("0123456789x,:tecl-"), max_size=6),
    query=st.sampled_from(
        ["", "?bandwidth=1", "?latency=1us", "?latency=-1", "?km=x", "?seed=1&routers=2", "?=", "?a=b"]
    ),
)
def test_any_arguments_of_a_family_are_a_topology_or_refused(family, arguments, query):
    try:
        load_topology(f"{family}:{arguments}{query}")
    except StrettoError as error:
        assert str(error)
