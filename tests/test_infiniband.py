"""What ibnetdiscover and iblinkinfo print: hosts, switches, bandwidths of widths and speeds."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.topologies import load_topology
from test_pairs import links
from topology_samples import IB_LINES, IB_REPORT, IBLINKINFO, IBNETDISCOVER


@pytest.fixture
def read(tmp_path):
    def from_text(text, query=""):
        (tmp_path / "fabric").write_text(text)
        return load_topology(f"{tmp_path}/fabric{query}")

    return from_text


def test_ports_of_a_host_add_up_and_cables_between_switches_too(read):
    net = read(IBNETDISCOVER)
    ways = links(net)
    assert [net.names[v] for v in net.accelerators] == ["node01", "node02", "node03"]
    assert ways["node01", "leaf-1"] == (2 * 25e9, 1.3e-6)
    assert ways["node02", "leaf-1"][0] == 12.5e9 and ways["leaf-1", "spine-1"][0] == 50e9


def test_a_cable_without_a_speed_has_the_usual_one(read):
    net = read(IBNETDISCOVER)
    assert links(net)["node03", "spine-1"][0] == 25e9
    assert "cables without a speed, taken as 200 Gbit/s: 1" in net.notes


def test_aggregation_nodes_are_no_hosts(read):
    net = read(IBNETDISCOVER)
    assert not any("Aggregation" in name for name in net.names)
    assert any("SHARP's aggregation nodes" in note for note in net.notes)
    assert read(IBNETDISCOVER, "?sharp=true").reduces.sum() == 2


def test_gpus_are_dealt_out_to_ports(read):
    ways = links(read(IBNETDISCOVER, "?gpus=2&hosts=node0[12]"))
    assert ("node01.gpu0", "leaf-1") in ways and ("node01.gpu1", "leaf-1") in ways
    assert ways["node02.gpu1", "node02.nic0 mlx5_0"][0] == 12.5e9, "one port for two GPUs"


def test_iblinkinfo_says_the_same_with_headers_and_without(read):
    ways = links(read(IBLINKINFO))
    assert ways["node01", "sw"] == ways["node02", "sw"] == (12.5e9, 1.3e-6)
    assert ways["node03", "sw"][0] == 2 * 10e9 / 8, "FDR10 on two lanes"
    assert links(read(IB_LINES))["node03", "leaf-1"][0] == 25e9


def test_a_report_of_ports_says_the_same(read):
    assert links(read(IB_REPORT)) == dict.fromkeys(links(read(IB_REPORT)), (25e9, 1.3e-6))
    assert read(IB_REPORT).names == ("node01", "node02", "leaf-1")
    with pytest.raises(InputError, match=r"line 2: .* is no port as in"):
        read(IB_REPORT.replace("CA    10", "CA    ten"))


@pytest.mark.parametrize(
    ("speed", "gbit"),
    [("SDR", 2), ("QDR", 8), ("FDR10", 10), ("FDR", 13.636363), ("EDR", 25), ("NDR", 100), ("XDR", 200)],
)
def test_a_lane_carries_data_bits(read, speed, gbit):
    net = read(IBNETDISCOVER.replace("4xEDR", f"4x{speed}"))
    assert links(net)["node02", "leaf-1"][0] == pytest.approx(4 * gbit * 1e9 / 8)


def test_adapters_without_a_host_in_their_name_are_hosts_of_their_own(read):
    text = IBNETDISCOVER.replace("node01 mlx5_0", "MT27800 Family").replace("node01 mlx5_1", "MT27800 Family")
    names = read(text).names
    assert {"MT27800 Family H-0c42a10300a1b2c4", "MT27800 Family H-0c42a10300a1b2c8"} < set(names)


def test_two_adapters_may_be_joined_without_a_switch(read):
    text = (
        'Ca\t1 "H-1"\t\t# "a mlx5_0"\n[1](1) \t"H-2"[1] (2) \t\t# lid 1 lmc 0 "b mlx5_0" lid 2 4xEDR\n'
        'Ca\t1 "H-2"\t\t# "b mlx5_0"\n[1](2) \t"H-1"[1] (1) \t\t# lid 2 lmc 0 "a mlx5_0" lid 1 4xEDR\n'
    )
    assert links(read(text))["a", "cable a mlx5_0 to b mlx5_0"][0] == 12.5e9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (IBNETDISCOVER.replace('"S-b8cef60300e5d2b0"[2]', '"S-b8cef60300e5d2b0"'), "line 11: .* is not of the form"),
        (IBNETDISCOVER.replace('Switch\t40 "S-b8cef60300e5d2b0"', "Switch\tforty"), "line 14: .* is not of the form"),
        (IBNETDISCOVER.replace("4xHDR", "").replace("4xEDR", ""), "has no cable with a width and speed"),
        ('Ca\t1 "H-1"\t\t# "a mlx5_0"\n', "has no cable"),
        (IBNETDISCOVER.replace("node0", "Aggregation Node "), "no channel adapters of hosts"),
    ],
)
def test_what_is_wrong_with_ibnetdiscover_is_named(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for ibnetdiscover)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (IBLINKINFO.replace("2   17[  ]", "x   17[  ]", 1), "line 2: .* is no port"),
        (IBLINKINFO.replace("10.0 Gbps", "11.0 Gbps"), "line 8: '11.0' Gbps is the speed of no InfiniBand lane"),
        (IBLINKINFO.replace("4X      25.78125", "25.78125", 1), "line 2: .* is no width and speed"),
    ],
)
def test_what_is_wrong_with_iblinkinfo_is_named(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for iblinkinfo)")
