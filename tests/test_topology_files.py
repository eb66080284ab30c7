"""Topology files: what is read, and what is refused with which words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from stretto.model.errors import InputError
from stretto.model.topology import ACCELERATOR, Plane, Topology, make_topology
from stretto.topologies import load_topology
from stretto.topologies.files import topology_from_json

ZOO = Path(__file__).parents[2] / "shared" / "topologies" / "zoo"


def equal(a: Topology, b: Topology) -> bool:
    columns = ("kind", "replicates", "transit", "src", "dst", "bandwidth", "latency_s")
    same = all(np.array_equal(getattr(a, c), getattr(b, c)) for c in columns)
    same = same and np.array_equal(a.xy, b.xy, equal_nan=True)
    same = same and all(
        np.array_equal(p.nodes, q.nodes)
        and np.array_equal(p.matching, q.matching)
        and (p.bandwidth, p.latency_s, p.reconfiguration_s) == (q.bandwidth, q.latency_s, q.reconfiguration_s)
        for p, q in zip(a.planes, b.planes, strict=True)
    )
    texts = ("name", "names", "sites", "notes", "geographic")
    return same and all(getattr(a, t) == getattr(b, t) for t in texts)


@pytest.mark.parametrize("spec", ["ndv2:4", "amd:2", "zoo:HiberniaIreland", "sites:2,3", "torus:3x3"])
def test_a_topology_survives_json_bit_for_bit(spec):
    net = load_topology(spec)
    assert equal(net, topology_from_json(json.loads(json.dumps(net.to_json())), "here"))


def with_planes() -> Topology:
    plane = Plane(np.array([0, 1, 2], np.int32), 10.1 + 0.2, 1e-7, 1 / 3, np.array([1, 0, -1], np.int32))
    return make_topology(
        "odd  name",
        [ACCELERATOR] * 3,
        [(0, 1, 1e9 / 7, 1e-6 / 3)],
        names=["a  b", "Orléans", "c"],
        xy=[(0.1, -0.0), (np.nan, np.nan), (5e-324, 1e300)],
        transit=[True, False, False],
        replicates=[False, True, False],
        planes=[plane],
        notes=["two  spaces,\nand two lines"],
    )


def test_planes_and_odd_nodes_survive_json_bit_for_bit():
    net = with_planes()
    assert equal(net, topology_from_json(json.loads(json.dumps(net.to_json())), "here"))


def test_the_example_of_the_docs_is_read():
    page = (Path(__file__).parents[1] / "docs" / "reference" / "topologies.md").read_text()
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    assert topology_from_json(json.loads(example[1]), "docs").names == ("a", "b", "leaf")


def test_a_plane_joins_the_nodes_that_no_link_joins(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(with_planes().to_json()))
    assert len(load_topology(str(tmp_path / "p.json")).planes) == 1


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
        (set_(["links", 0, "mesage_us"], 1), "link 0: 'mesage_us' is not known; did you mean 'message_us'?"),
        (set_(["nodes", 1, "sit"], "a"), "node 1: 'sit' is not known; did you mean 'site'?"),
        (set_(["note"], "a"), "'note' is not known; did you mean 'notes'?"),
        (set_(["links", 0, "bandwidth_GBps"], 0), "from 1 B/s"),
        (set_(["links", 0, "bandwidth_GBps"], float("nan")), "from 1 B/s"),
        (set_(["links", 0, "bandwidth_GBps"], "fast"), "must be a number"),
        (set_(["links", 0, "bandwidth_GBps"], 10**400), "too large"),
        (set_(["links", 0, "latency_us"], -1), "from zero to a year"),
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
        (set_(["nodes", 1, "kind"], []), r"the kind \[\] is none"),
        (set_(["nodes", 1, "id"], 1.5), "neither a whole number nor text"),
        (set_(["nodes", 0, "x"], 1), "'x' is given without 'y'"),
        (set_(["nodes", 0], {"id": "a", "x": float("nan"), "y": 0}), "must be finite"),
        (set_(["nodes", 0, "name"], "two\nlines"), "one line"),
        (set_(["nodes", 0, "name"], "\ud800"), "one line"),
        (set_(["links", 0, "src"], 10**5000), "too large to show"),
        (set_(["links", 0, "bandwidth_Bps"], 1), "given twice"),
        (set_(["geographic"], "yes"), "true or false"),
        (set_(["name"], 3), "'name' must be text"),
        (set_(["notes"], [1]), "list of texts"),
        (set_(["planes"], 3), "list of objects"),
        (set_(["planes"], [{"nodes": [0, 1], "matching": [1]}]), "plane 0: 'matching' needs"),
        (set_(["planes"], [{"nodes": [0, 1], "matching": [1, 1]}]), "plane 0: 'matching' joins two"),
        (set_(["planes"], [{"nodes": [0, 9], "matching": [1, 0]}]), "plane 0: 'nodes' must be"),
        (set_(["planes"], [{"nodes": [0, 1], "matching": [1, 0]}]), "plane 0: the bandwidth is missing"),
    ],
)
def test_a_wrong_entry_is_named(change, words):
    with pytest.raises(InputError, match=words) as error:
        topology_from_json(change(small()), "t.json")
    assert "t.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_long_wrong_word_is_shown_in_part():
    data = load_topology("ring:3").to_json()
    data["nodes"][0]["kind"] = 100_000 * "gpu"
    with pytest.raises(InputError, match=r"'gpugpu\w+'\.\.\. is none of gpu, ") as refused:
        topology_from_json(data, "f.json")
    assert len(str(refused.value)) < 200


def test_a_key_of_the_file_s_own_is_compared_with_known_ones_once(monkeypatch):
    import difflib

    compared: list[str] = []
    compare = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", lambda key, *rest: compared.append(key) or compare(key, *rest))
    data = load_topology("fullmesh:4").to_json()
    for link in data["links"]:
        link |= {"cable": "copper", "owner": "we"}
    assert topology_from_json(data, "f.json").link_count == 12
    assert compared == ["cable", "owner"]


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


def test_an_option_is_of_every_link_and_not_added_up(tmp_path):
    (tmp_path / "g.gml").write_text(GML)
    assert set(load_topology(f"{tmp_path}/g.gml?bandwidth=5MB/s").bandwidth) == {5e6}


def read(folder: Path, name: str, text: str) -> Topology:
    (folder / name).write_text(text)
    return load_topology(str(folder / name))


def graphml(edge: str, keys: str = "", default: str = "undirected") -> str:
    nodes = '<node id="0"/><node id="1"/>'
    return f'<graphml>{keys}<graph edgedefault="{default}">{nodes}{edge}</graph></graphml>'


def gml(edge: str, first: str = "", second: str = "") -> str:
    return f"graph [ node [ id 0 {first} ] node [ id 1 {second} ] edge [ source 0 target 1 {edge} ] ]"


def test_a_graphml_key_may_have_a_default(tmp_path):
    keys = '<key id="b" for="edge" attr.name="bandwidth"><default>5GB/s</default></key>'
    assert set(read(tmp_path, "g.graphml", graphml('<edge source="0" target="1"/>', keys)).bandwidth) == {5e9}


def test_a_directed_edge_is_one_link(tmp_path):
    edges = '<edge source="0" target="1"/><edge source="1" target="0"/>'
    assert read(tmp_path, "g.graphml", graphml(edges, default="directed")).link_count == 2
    with pytest.raises(InputError, match="node1 cannot reach node0"):
        read(tmp_path, "h.graphml", graphml('<edge source="0" target="1" directed="true"/>'))


def test_where_a_drawing_puts_nodes_says_nothing_of_latency(tmp_path):
    net = read(tmp_path, "g.gml", gml("", "x 100 y 1", "graphics [ x 500 y 20 ]"))
    assert (net.geographic, set(net.latency_s)) == (False, {1e-3})
    assert net.xy.tolist() == [[100, 1], [500, 20]]


def test_letters_that_gml_escapes_are_read(tmp_path):
    assert read(tmp_path, "g.gml", gml("", 'label "Orl&eacute;ans"')).names == ("Orléans", "node1")


@pytest.mark.parametrize(
    ("attributes", "bandwidth", "latency_s"),
    [
        ("bandwidth 3e9 latency 0.5", 3e9, 0.5),
        ('bandwidth "40Gbit/s" latency "2ms"', 5e9, 2e-3),
        ("bandwidth_GBps 5 latency_us 2", 5e9, 2e-6),
        ("bandwidth_Gbps 8", 1e9, 1e-3),
        ("linkspeedraw 8000", 1e3, 1e-3),
        ("LinkSpeedRaw 0", 1.25e9, 1e-3),
    ],
)
def test_an_edge_says_its_bandwidth_and_latency(tmp_path, attributes, bandwidth, latency_s):
    net = read(tmp_path, "g.gml", gml(attributes))
    assert (set(net.bandwidth), set(net.latency_s)) == ({bandwidth}, {latency_s})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (gml("bandwidth_gbps 5"), "unclear"),
        (gml("bandwidth 5 bandwidth_GBps 5"), "twice"),
        (gml("bandwidth 0"), "from 1 B/s"),
        (gml("bandwidth nan"), "not a bandwidth"),
        (gml("latency -1"), "edge 0: '-1' is not a time"),
        (gml("LinkSpeedRaw -8"), "linkspeedraw .* not '-8'"),
        (gml("", "Latitude 91 Longitude 0"), "node '0': latitude '91'"),
        (gml("", "kind toaster"), "toaster"),
    ],
)
def test_a_wrong_attribute_is_named(tmp_path, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(tmp_path, "g.gml", text)
    assert "g.gml, " in str(error.value)


@pytest.mark.parametrize(
    ("inner", "words"),
    [("<hyperedge/>", "hyperedges"), ('<node id="2"><graph/></node>', "graphs in graphs"), ('<node id="1"/>', "twice")],
)
def test_graphml_that_is_no_network_is_refused(tmp_path, inner, words):
    with pytest.raises(InputError, match=words):
        read(tmp_path, "g.graphml", graphml(inner))


def test_an_edge_of_graphml_to_nowhere_is_named(tmp_path):
    with pytest.raises(InputError, match="edge 0: leads to '7'"):
        read(tmp_path, "g.graphml", graphml('<edge source="0" target="7"/>'))


def test_a_device_is_not_read_without_end(tmp_path):
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="device"):
        load_topology(str(tmp_path / "zero.json"))


def test_a_file_past_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("stretto.topologies.values.MOST_BYTES", 2**20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read(tmp_path, "t.json", " " * (2**20 + 1))


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
            "b cannot reach a: the network is not connected",
        ),
        ("t.graphml", "<graphml><graph>", "no XML"),
        ("t.graphml", "<a/>", "no <graph>"),
        ("t.graphml", '<!DOCTYPE x [<!ENTITY a "b">]><graphml>&a;</graphml>', "not accepted"),
        ("t.gml", "graph [ node [ id 0 ]", "ends in the middle"),
        ("t.gml", 'graph [ label "x', "not closed"),
        ("t.gml", "graph [ node [ id 0 ] node [ id 1 ] ]", "not connected"),
        ("t.gml", "graph [ node [ id 0 ] node [ id 0 ] ]", "given twice"),
        ("t.gml", "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 7 ] ]", "no node"),
        ("t.csv", "a,b", "number of NPUs"),
        ("t.xls", "a,b", "none of .json"),
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
