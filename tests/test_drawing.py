"""Drawings of networks: servers, rails and spine are seen, maps have coastlines, labels do not overlap."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.report.drawing import page_land, page_scene, svg
from stretto.report.groups import structure_of
from stretto.report.labels import Labels, text_box
from stretto.report.layout import positions
from stretto.report.live import MOST_LINES, live_drawing
from stretto.report.maps import geographic, outlines
from stretto.report.notebook import topology_html
from stretto.topologies import catalogue, load_topology

LARGE = [
    "h100:64",
    "h100:512",
    "torus:32x32",
    "fattree:16",
    "cloud:aws,gcp,azure",
    "zoo:Tatanld",
    "sites:24,16",
    "dgx2:32",
]
SPECS = [family.example for family in catalogue()] + LARGE
SVG = "{http://www.w3.org/2000/svg}"


def texts(root: ElementTree.Element) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Each text of a drawing, and its box."""
    found = []
    for text in root.iter(f"{SVG}text"):
        x, y, size = (float(text.get(key)) for key in ("x", "y", "font-size"))
        found.append((text.text, text_box(x, y, text.text, size, text.get("text-anchor", "start"))))
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_labels_do_not_overlap_and_a_drawing_is_small(spec):
    text = svg(load_topology(spec))
    assert len(text) < 450_000
    boxes = texts(ElementTree.fromstring(text))
    assert boxes
    for (one, a), (other, b) in combinations(boxes, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, other)


def rails(servers: int, pod: int = 0):
    """Servers of four GPUs on a switch, a rail for each GPU; with pods a rail for each pod, and a spine."""
    kinds, links, gpus = [], [], []
    for _ in range(servers):
        inside = len(kinds) + 4
        gpus.append(range(len(kinds), inside))
        kinds += [ACCELERATOR] * 4 + [SWITCH]
        links += [(v, inside, 450e9, 1e-6) for v in gpus[-1]]
    spine = len(kinds)
    kinds += [SWITCH] * bool(pod)
    for rail in range(4):
        for first in range(0, servers, pod or servers):
            links += [(server[rail], len(kinds), 50e9, 2e-6) for server in gpus[first : first + (pod or servers)]]
            links += [(len(kinds), spine, 200e9, 2e-6)] * bool(pod)
            kinds.append(SWITCH)
    return make_topology("rails", kinds, [row for a, b, *w in links for row in ((a, b, *w), (b, a, *w))])


def test_servers_without_names_are_found_by_their_links_and_equal_ones_are_collapsed():
    found = structure_of(rails(64))
    ((*drawn, rest),) = found.pods
    assert [len(block.nodes) for block in drawn] == [5, 5, 5] and rest.more == 61
    assert [(len(layer.nodes), layer.more) for layer in found.layers] == [(4, 0)]
    text = svg(rails(64))
    assert "61 more like these" in text and "above the servers: 4 switches" in text


def test_pods_with_their_own_leaves_are_told_apart_below_a_spine():
    found = structure_of(rails(64, pod=8))
    assert [len(pod) for pod in found.pods] == [3, 3, 1]
    assert found.pods[-1][0].more == 48
    assert [(len(layer.nodes), layer.more) for layer in found.layers] == [(8, 24), (1, 0)]
    assert "spine: 1 switch" in svg(rails(64, pod=8))


def test_a_server_that_differs_is_drawn_by_itself():
    net = rails(32)
    slow = net.bandwidth.copy()
    slow[np.flatnonzero((net.src == 150) | (net.dst == 150))] /= 2  # GPU 0 of server 30
    named = [block.name for block in structure_of(replace(net, bandwidth=slow)).pods[0] if block.nodes]
    assert "server 30" in named


def test_ways_out_and_in_of_a_node_with_a_cap_are_drawn_with_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "src,dst,Gbps,src_cap_Gbps,dst_cap_Gbps\na,b,1,5,5\nb,c,2,5,5\nc,a,3,5,5\nb,a,1,5,5\nc,b,2,5,5\na,c,3,5,5\n"
    )
    net = load_topology(str(path))
    structure = structure_of(net)
    assert structure is not None and not structure.layers
    servers = [{net.names[v] for v in block.nodes} for pod in structure.pods for block in pod]
    assert servers == [{n, f"{n} out", f"{n} in"} for n in "abc"]


def test_the_legend_says_what_red_links_are():
    net = load_topology("ring:4")
    assert "makes the bound" in svg(net, [0])
    assert "makes the bound" not in svg(net)


def test_few_servers_are_all_drawn_node_by_node():
    net = load_topology("dgx2:2")
    text = svg(net)
    assert all(f"<title>{name}</title>" in text for name in net.names)


def test_links_are_wider_the_more_bandwidth_and_the_legend_names_each():
    text = svg(load_topology("h100:2"))
    wide, narrow = (
        float(re.search(rf'stroke-width="([\d.]+)"><title>[^<]* {width}</title>', text)[1])
        for width in ("450 GB/s", "50 GB/s")
    )
    assert wide > 2 * narrow
    assert "450 GB/s, 350 ns: 32 links" in text and "50 GB/s, 1.3 us: 32 links" in text


def test_a_map_has_the_coast_where_the_places_are():
    """Galway and Dublin are on the island of Ireland, the middle between Dublin and Liverpool is not on land."""
    (ireland,) = [ring for ring in outlines() if (abs(ring.mean(axis=0) - [-8, 53.4]) < 1).all() and len(ring) > 30]
    low, high = ireland.min(axis=0), ireland.max(axis=0)
    assert (low < [-9.9, 51.7]).all() and (high > [-6.1, 55.1]).all() and high[0] < -5
    assert 'stroke="#cfd6de"' in svg(load_topology("zoo:HiberniaIreland"))
    assert page_land(load_topology("zoo:HiberniaIreland")) and not page_land(load_topology("ring:4"))


def test_a_map_is_cut_where_no_place_is():
    net = load_topology("cloud:aws:ap-northeast-1,aws:us-west-2,aws:us-east-1")
    degrees, project = geographic(net)
    x = dict(zip(net.sites, project(degrees)[:, 0], strict=True))
    assert x["aws:ap-northeast-1"] < x["aws:us-west-2"] < x["aws:us-east-1"]
    assert np.allclose(positions(net), project(degrees))


def test_regions_on_a_map_are_one_mark_each():
    text = svg(load_topology("cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope?gpus=8"))
    assert text.count("<circle") == 3
    assert "aws:us-east-1 (8)" in text


def test_the_page_draws_clusters_by_structure_too():
    scene = page_scene(load_topology("h100:64"))
    assert scene is not None
    assert any("61 more like these" in text for *_, text, _ in scene["labels"])
    assert len(scene["frames"]) == 4 and scene["dashed"]
    assert page_scene(load_topology("ring:8")) is page_scene(load_topology("zoo:Abilene")) is None


def test_a_label_goes_where_there_is_room_or_is_left_out():
    labels, room = Labels(), (0.0, 0.0, 100.0, 30.0)
    assert labels.add([(10, 12, "start")], "first", 10, room)
    assert labels.add([(10, 12, "start"), (60, 12, "start")], "other", 10, room)
    assert not labels.add([(12, 14, "start"), (90, 12, "start")], "third", 10, room)
    assert len(labels.texts) == 2 and labels.left_out == 1


@pytest.mark.parametrize(("spec", "file"), [("h100:64?pod=16&spines=4", "cluster.svg"), ("zoo:Geant2012", "map.svg")])
def test_the_pictures_of_the_docs_are_what_make_picture_draws(spec, file):
    assert svg(load_topology(spec)) == (Path(__file__).parents[1] / "docs" / "pictures" / file).read_text()


def test_notebooks_draw_large_clusters_and_leave_out_drawings_that_are_long():
    assert "<svg" in topology_html(load_topology("h100:512"))
    assert "<svg" not in topology_html(load_topology("torus:32x32"))


@pytest.mark.parametrize("spec", ["zoo:Abilene", "cloud:aws", "sites:3,4", "dgx2:2", "torus:4x4"])
def test_each_stroke_of_a_live_drawing_stands_for_the_links_of_its_direction(spec):
    net = load_topology(spec)
    drawing = live_drawing(net)
    at = {(mark[0], mark[1]): mark[3] for mark in drawing["marks"]}
    places = dict.fromkeys(range(net.node_count))
    strokes = []
    for line in drawing["lines"]:
        strokes += [(line["from"], line["to"], line["there"]), (line["to"], line["from"], line["back"])]
    for start, end, links in strokes:
        for link in links:
            for node, place in ((int(net.src[link]), tuple(start)), (int(net.dst[link]), tuple(end))):
                assert at[place].split(" (")[0] in (net.names[node], net.sites[node])
                assert places[node] in (None, place)
                places[node] = place
    shown = [link for *_, links in strokes for link in links]
    # a node of which no stroke tells is joined to others of its region alone
    ends = [(places[int(a)], places[int(b)]) for a, b in zip(net.src, net.dst, strict=True)]
    assert sorted(shown) == [link for link, (a, b) in enumerate(ends) if a != b and None not in (a, b)]


def test_a_live_drawing_of_a_large_network_is_small():
    drawing = live_drawing(load_topology("torus:32x32"))
    assert len(drawing["lines"]) == MOST_LINES and "1,500 of 2,048 lines are drawn" in drawing["notes"]
