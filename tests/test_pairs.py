"""CSV of pairs: names of columns, units, directions, sites and caps, and what is wrong by row and column."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest

from stretto.model.errors import InputError
from stretto.model.topology import SWITCH
from stretto.topologies import load_topology
from stretto.topologies.tables import (
    BANDWIDTH,
    CAP,
    DST,
    LATENCY,
    NODE,
    RTT,
    SITE,
    SRC,
    UPLINK,
    bandwidth_unit,
    known_columns,
    quantity,
)  # fmt: skip
from topology_samples import CAPPED, PAIRS

REGIONS = Path(__file__).parents[2] / "shared" / "networks" / "cloud-regions-2022.csv"


@pytest.fixture
def read(tmp_path):
    def from_text(text, query="", nodes=None):
        path = tmp_path / "t.csv"
        path.write_text(text)
        if nodes is not None:
            (tmp_path / "n.csv").write_text(nodes)
            query += f"{'&' if query else '?'}nodes={tmp_path}/n.csv"
        return load_topology(f"{path}{query}")

    return from_text


def links(net):
    return {
        (net.names[a], net.names[b]): (w, t)
        for a, b, w, t in zip(net.src, net.dst, net.bandwidth.tolist(), net.latency_s.tolist())
    }


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("src", (SRC, SRC, "")), ("Source Node", (SRC, SRC, "")), ("from_region", (SRC, SRC, "")), ("to", (DST, DST, "")),
        ("destination", (DST, DST, "")), ("bandwidth_Gbps", (BANDWIDTH, "", "Gbps")), ("BW [MB/s]", (BANDWIDTH, "", "MB/s")),
        ("throughput_mbits_per_sec", (BANDWIDTH, "", "mbits/s")), ("Mbits/sec", (BANDWIDTH, "", "Mbits/sec")),
        ("bandwidthMbps", (BANDWIDTH, "", "Mbps")), ("capacity", (BANDWIDTH, "", "")), ("rtt_ms", (RTT, "", "ms")),
        ("round_trip_time_ms", (RTT, "", "ms")), ("avg latency (us)", (LATENCY, "", "us")), ("delay", (LATENCY, "", "")),
        ("src_site", (SITE, SRC, "")), ("dst_dc", (SITE, DST, "")), ("src_cap_gbps", (CAP, SRC, "gbps")),
        ("uplink_Gbps", (UPLINK, "", "Gbps")), ("hostname", (NODE, "", "")), ("comment", None), ("1", None),
        ("min_bandwidth", None), ("bits_per_second", (BANDWIDTH, "", "bits_per_second")),
    ],
)  # fmt: skip
def test_a_column_says_what_it_holds(title, wanted):
    columns = [(c.what, c.end, c.unit) for c in known_columns([title])]
    assert columns == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    ("cell", "unit", "what", "value"),
    [
        ("8", "Gbps", BANDWIDTH, 1e9), ("8", "gbit/s", BANDWIDTH, 1e9), ("8", "Mbits/sec", BANDWIDTH, 1e6),
        ("80", "bits_per_second", BANDWIDTH, 10), ("5", "MBytes/sec", BANDWIDTH, 5e6), ("1 GB/s", "Gbps", BANDWIDTH, 1e9),
        ("0", "GB/s", BANDWIDTH, None), ("NA", "", RTT, None), ("2", "MS", LATENCY, 2e-3), ("2", "usec", LATENCY, 2e-6),
        ("0", "ms", LATENCY, 0), ("3 ms", "", RTT, 3e-3), ("2", "milliseconds", LATENCY, 2e-3),
    ],
)  # fmt: skip
def test_a_cell_has_the_unit_of_its_column_or_its_own(cell, unit, what, value):
    assert quantity(cell, unit, what, "here") == (value if value is None else pytest.approx(value, rel=1e-15))


def test_large_letters_do_not_say_bits_or_bytes():
    with pytest.raises(InputError, match="write Gbps or GBps"):
        bandwidth_unit("GBPS")


def test_round_trips_are_halved_and_a_gap_takes_the_way_back(read):
    net = read(PAIRS)
    assert links(net)["paris", "tokyo"] == (1.2e9 / 8, 0.12)
    assert links(net)["tokyo", "texas"] == (0.8e9 / 8, 0.075)
    assert "latencies are half of the round-trip times" in net.notes
    assert "pairs without a latency, which is that of the way back or the shortest known way: 1" in net.notes


def test_a_gap_takes_the_shortest_known_way_or_the_median(read):
    net = read("from,to,Gbps,latency_ms\na,b,1,10\nb,c,1,20\na,c,1,\nc,d,1,\n")
    assert links(net)["a", "c"][1] == pytest.approx(0.030)
    assert links(net)["c", "d"][1] == pytest.approx(0.015)


def test_rows_are_both_directions_where_none_has_a_reverse(read):
    rows = "a,b,bandwidth\n0,1,1GB/s\n1,2,2GB/s\n2,0,3GB/s\n".replace("a,b,", "src,dst,")
    both, one = read(rows), read(rows, "?directed=true")
    assert both.link_count == 6 and links(both)["1", "0"] == links(both)["0", "1"]
    assert one.link_count == 3
    assert any("both directions" in note for note in both.notes) and not any("both" in note for note in one.notes)


def test_a_way_back_may_be_missing_or_filled_in(read):
    rows = "src,dst,GB/s\na,b,1\nb,a,2\nb,c,3\nc,a,4\n"
    net = read(rows)
    assert "pairs given one way only: 2" in net.notes and net.link_count == 4
    asked = read(rows, "?directed=false")
    assert links(asked)["c", "b"][0] == 3e9 and "a row is taken for both directions" in asked.notes


def test_numbered_nodes_are_ranks(read):
    assert read("src,dst,GB/s\n10,2,1\n2,0,1\n").names == ("0", "2", "10")


@pytest.mark.parametrize("mark", [",", ";", "\t", "   "])
def test_cells_are_parted_by_what_line_1_has_most_of(read, mark):
    text = PAIRS.replace(",\n", ",-\n")
    assert links(read(text.replace(",", mark))) == links(read(text))


def test_a_decimal_comma_is_read_where_semicolons_part_cells(read):
    net = read("src;dst;Gbps\na;b;4,5\n")
    assert links(net)["a", "b"][0] == 4.5e9 / 8


def test_a_cap_is_a_link_that_all_pairs_of_a_node_pass(read):
    net = read(CAPPED)
    ways = links(net)
    assert ways["a1", "a1 out"] == (10e9 / 8, 0) and ways["b1 in", "b1"] == (4e9 / 8, 0)
    assert ways["a1 out", "b1 in"] == (500e6, 900e-6)
    assert ways["b1", "a1"] == (500e6, 900e-6), "a1 may receive what it likes"
    switches = [i for i, kind in enumerate(net.kind) if kind == SWITCH]
    assert not net.replicates[switches].any()
    assert dict(zip(net.names, net.sites))["a2"] == "east"


def test_nothing_passes_the_switches_of_a_cap_on_its_way_to_others(read):
    net = read(CAPPED)
    into = {net.names[b] for a, b in zip(net.src, net.dst) if net.names[a].endswith(" in")}
    assert into == {"a2", "b1"}


def test_a_table_of_nodes_caps_nodes_and_sites(read):
    rows = "src,dst,Gbps\n" + "".join(f"{a},{b},8\n" for a in "abc" for b in "abc" if a != b)
    nodes = "node,site,uplink_Gbps,downlink_Gbps\na,east,4,\nb,east,,\nc,west,,2\n,east,6,\n"
    ways = links(read(rows, nodes=nodes))
    assert ways["a", "a out"][0] == 0.5e9 and ways["c in", "c"][0] == 0.25e9
    assert ways["east up", "east out"][0] == 0.75e9
    assert ways["east out", "c in"][0] == 2e9, "of a and of b"
    assert ways["a out", "b"][0] == 1e9, "inside the site its cap does not count"
    assert ways["c", "a"][0] == 1e9


@pytest.mark.parametrize("mark", [",", " "])
def test_a_table_of_too_many_rows_is_refused_before_all_are_kept(read, monkeypatch, mark):
    monkeypatch.setattr("stretto.topologies.tables.MOST_ROWS", 3)
    rows = [f"{a},{b},1Gbit/s" for a, b in permutations("abc", 2)]
    text = "\n".join(["src,dst,bandwidth", *rows]).replace(",", mark)
    assert read("\n".join(text.splitlines()[:3])).link_count == 4
    with pytest.raises(InputError, match="has more than 3 rows"):
        read(text)


def test_a_site_may_have_the_name_of_its_node(read):
    rows = "src,dst,Gbps\na,b,8\nb,a,8\n"
    ways = links(read(rows, nodes="node,site,uplink_Gbps,downlink_Gbps\na,a,4,4\nb,b,,\n,a,2,2\n"))
    to_b = [("a", "a out"), ("a out", "site a up"), ("site a up", "site a out"), ("site a out", "b")]
    to_a = [("b", "site a in"), ("site a in", "site a down"), ("site a down", "a in"), ("a in", "a")]
    assert {*ways} == {*to_b, *to_a}
    assert [ways[way][0] * 8e-9 for way in to_b] == [4, 8, 2, 8]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PAIRS.replace("0.8", "quick"), "line 4, column 'bandwidth_Gbps': 'quick' is not a bandwidth"),
        (PAIRS.replace(",150", ",-150"), "line 5, column 'rtt_ms': '-150ms' is not a time"),
        (PAIRS.replace("tokyo,paris", "tokyo,"), "line 6, column 'dst': the destination is empty"),
        (PAIRS.replace("tokyo,paris", "texas,tokyo"), "line 6: 'texas' to 'tokyo' stands in line 5 already"),
        (PAIRS.replace("bandwidth_Gbps", "bandwidth"), "line 2, column 'bandwidth': '1.2' has no unit"),
        (PAIRS.replace("bandwidth_Gbps", "size"), "no column of bandwidths.*'src', 'dst', 'size', 'rtt_ms'"),
        (PAIRS.replace("rtt_ms", "throughput"), "'bandwidth_Gbps' and 'throughput' both name the bandwidth"),
        ("src,dst,Gbps\na,a,1\n", "no pair of two nodes"),
        ("at_s,src,dst,bandwidth_Bps\n0.1,a,b,1\n", "says how a topology's bandwidths change"),
        ("src,dst,Gbps\na,b,1\nc,d,1\n", "cannot reach"),
        (CAPPED.replace("a1;b1;500;900;east;west;10", "a1;b1;500;900;east;west;11"), "a1.*11|1.375 GB/s here and 1.25"),
        (PAIRS.replace("1.2", "1,2"), "line 2: has 5 cells for 4 columns; write 1.5, or part cells by semicolons"),
        ("src,dst,Gbps\n" + '"a,b,1\n', "column 'dst': the destination is empty"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_column(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for a CSV of pairs)")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("node,uplink_Gbps\nq,1\n", "n.csv, line 2, column 'node': 'q' has no pair"),
        ("a,b\n1,2\n", "line 1: has no column node or site; its columns are 'a', 'b'"),
        ("node,site,uplink\nparis,eu,5\n", "n.csv, line 2, column 'uplink': '5' has no unit"),
        ("node,site,uplink_Gbps\n,eu,5\n", "the site 'eu' has a cap and no node"),
        ("node,uplink_Gbps\nparis,1,5\n", "n.csv, line 2: has 3 cells for 2 columns"),
        ("node,site,uplink_Gbps\n,,5\n", "line 2: names neither a node nor a site"),
    ],
)
def test_what_is_wrong_with_a_table_of_nodes_is_named(read, nodes, words):
    with pytest.raises(InputError, match=words):
        read(PAIRS, nodes=nodes)


def test_damaged_tables_of_nodes_are_read_or_refused(read):
    rng = random.Random(7)
    whole = "node,site,uplink_Gbps,downlink_Gbps\nparis,eu,5,10\ntokyo,asia,4,\n,eu,3,3\n"
    for _ in range(200):
        at, length = rng.randrange(len(whole)), rng.randrange(12)
        text = whole[:at] + rng.choice(["", "1e999", "\x00", ",", '"', "nan", "-1", "paris"]) + whole[at + length :]
        try:
            read(PAIRS, nodes=text)
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.skipif(not REGIONS.is_file(), reason="the file of cloud regions is not here")
def test_measured_cloud_regions_are_read():
    net = load_topology(str(REGIONS))
    assert (len(net.accelerators), net.link_count) == (63, 3906)
    assert links(net)["aws:af-south-1", "aws:ap-east-1"] == (2.5657e9 / 8, pytest.approx(0.12439))
