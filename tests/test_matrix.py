"""CSV matrices of bandwidths, and of latencies beside them."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.topologies import load_topology
from test_pairs import links
from topology_samples import MATRIX

LATENCIES = "rtt (ms),texas,paris,tokyo\nparis,110,0,240\ntokyo,150,236,\ntexas,,110,150\n"


@pytest.fixture
def read(tmp_path):
    def from_text(text, latencies=None, query=""):
        path = tmp_path / "m.csv"
        path.write_text(text)
        if latencies is not None:
            (tmp_path / "l.csv").write_text(latencies)
            query = f"?latency={tmp_path}/l.csv"
        return load_topology(f"{path}{query}")

    return from_text


def test_a_cell_is_what_goes_from_the_row_to_the_column(read):
    net = read(MATRIX)
    assert net.names == ("paris", "tokyo", "texas") and net.link_count == 6
    assert links(net)["paris", "texas"] == (0.25e9, 1e-3)
    assert "pairs without a latency, taken as 1 ms: 6" in net.notes


def test_latencies_are_a_second_matrix_in_any_order(read):
    ways = links(read(MATRIX, LATENCIES))
    assert ways["paris", "tokyo"] == (1.2e9 / 8, 0.12) and ways["tokyo", "paris"][1] == 0.118


def test_the_unit_may_be_an_option_or_in_the_cells(read):
    bare = MATRIX.replace("Gbit/s", "")
    assert links(read(bare, query="?unit=Gbit/s")) == links(read(MATRIX))
    assert links(read("\ta\tb\na\t\t1GB/s\nb\t2GB/s\t\n"))["b", "a"][0] == 2e9


def test_a_table_of_nodes_caps_a_matrix_too(read, tmp_path):
    (tmp_path / "n.csv").write_text("region,cap_Gbps\nparis,1\n")
    ways = links(read(MATRIX, query=f"?nodes={tmp_path}/n.csv"))
    assert ways["paris", "paris out"][0] == ways["paris in", "paris"][0] == 0.125e9


def test_a_cell_without_a_measurement_is_no_link(read):
    assert read("GB/s,a,b,c\na,,1,1\nb,1,,\nc,1,NA,0\n").link_count == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MATRIX.replace("Gbit/s", "to"), "line 2, column 'tokyo': '1.2' has no unit"),
        (MATRIX.replace("1.1", "fast"), "line 3, column 'paris': 'fast' is not a bandwidth"),
        (MATRIX.replace("\t2\n", "\n"), "line 2: has 2 values for 3 columns"),
        (MATRIX.replace("texas\t1.9", "rome\t1.9"), "line 4, column '1': the name 'rome' is none of line 1's 3"),
        (MATRIX.replace("texas\t1.9", "tokyo\t1.9"), "the name 'tokyo' stands in line 3 already"),
        (MATRIX.replace("texas\n", "tokyo\n", 1), "line 1, column 4: the name 'tokyo' stands twice"),
        (MATRIX.rpartition("texas")[0], "has a column 'texas' and no such row"),
        (MATRIX.replace("Gbit/s", "ms"), "is a matrix of latencies"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_column(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for a CSV matrix)")


@pytest.mark.parametrize(
    ("latencies", "words"),
    [
        (LATENCIES.replace("texas", "rome"), "l.csv: has 'rome', which is not in"),
        (LATENCIES.replace("rtt (ms)", "GB/s"), "'GB/s' is no unit of latencies"),
        (LATENCIES.replace("236", "slow"), "l.csv, line 3, column 'paris': 'slow' is not a time"),
        ("a,b\n", "l.csv: is no matrix"),
    ],
)
def test_what_is_wrong_with_the_latencies_is_named(read, latencies, words):
    with pytest.raises(InputError, match=words):
        read(MATRIX, latencies)
