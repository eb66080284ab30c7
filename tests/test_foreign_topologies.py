"""Topology files of other tools: the facts in each, what is assumed, and what damage comes to."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from stretto.model.errors import InputError
from stretto.model.topology import KINDS
from stretto.topologies import compose, load_topology
from stretto.topologies.files import WRITERS
from topology_samples import SAMPLES

SMI = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV1\tNV2\tSYS\tPIX\t0-19\t0
GPU1\tNV1\t X \tSYS\tNV2\tPHB\t0-19\t0
GPU2\tNV2\tSYS\t X \tNV1\tSYS\t20-39\t1
GPU3\tSYS\tNV2\tNV1\t X \tSYS\t20-39\t1
NIC0\tPIX\tPHB\tSYS\tSYS\t X \t\t

Legend:
  X    = Self
"""
SMI_PCIE = """\tGPU0\tGPU1\tGPU2\tCPU Affinity
GPU0\t X \tPIX\tSYS\t0-19
GPU1\tPIX\t X \tSYS\t0-19
GPU2\tSYS\tSYS\t X \t20-39
"""
NCCL = """<system version="1">
 <cpu numaid="0" affinity="0" arch="x86_64">
  <pci busid="0000:01:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">
   <pci busid="0000:02:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
    <gpu dev="0" sm="70" rank="0" gdr="1"><nvlink target="0000:03:00.0" count="2" tclass="0x030200"/></gpu>
   </pci>
   <pci busid="0000:04:00.0" class="0x020000" link_speed="8.0 GT/s PCIe" link_width="16">
    <nic><net name="mlx5_0" dev="0" speed="100000" port="1"/></nic>
   </pci>
  </pci>
 </cpu>
 <cpu numaid="1">
  <pci busid="0000:03:00.0" class="0x030200" link_speed="" link_width="0">
   <gpu dev="1" sm="70" rank="1" gdr="1"><nvlink target="0000:02:00.0" count="2" tclass="0x030200"/></gpu>
  </pci>
 </cpu>
</system>"""
ASTRA = (
    "topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50.0, 25.0 ]  # GB/s\nlatency: [ 500.0, 1000 ]\n"
)
TACOS = "3\nSrc,Dest,Latency (ns),Bandwidth (GB/s)\n0,1,500,50\n1,2,500,50\n2,0,750,25\n"
TACCL = '{"name": "NDv2_1MB", "gpus_per_node": 8, "nics_per_node": 1, "alpha": 0.7, "node_betas_list": [20, 40], "node_invbws_list": [20, 40], "remote_invbw": 107, "remote_alpha": 2.6, "remote_beta": 105}'
TECCL = '{"TopologyParams": {"name": "NDv2", "chassis": 4, "chunk_size": 0.03125, "alpha": [0, 0]}}'
SNDLIB_XML = """<?xml version="1.0"?><network xmlns="http://sndlib.zib.de/network" version="1.0"><meta><unit>MBITPERSEC</unit></meta>
<networkStructure><nodes coordinatesType="geographical"><node id="A"><coordinates><x>0.0</x><y>0.0</y></coordinates></node>
<node id="B"><coordinates><x>0.0</x><y>9.0</y></coordinates></node></nodes><links><link id="L"><source>A</source><target>B</target>
<preInstalledModule><capacity>9920.0</capacity><cost>0</cost></preInstalledModule></link></links></networkStructure></network>"""
SNDLIB = """?SNDlib native format; type: network; version: 1.0
# a comment
META (
  unit = MBITPERSEC
)
NODES (
  A ( 0.00 0.00 )
  B ( 0.00 9.00 )
)
LINKS (
  L ( A B ) 0.00 0.00 0.00 0.00 ( 40.00 1000.00 155.00 3000.00 )
)
"""
FILES = {
    "smi.txt": SMI, "pcie.txt": SMI_PCIE, "nccl.xml": NCCL, "astra.yml": ASTRA, "tacos.csv": TACOS, "taccl.json": TACCL,
    "teccl.json": TECCL, "sndlib.xml": SNDLIB_XML, "sndlib.txt": SNDLIB, **SAMPLES,
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def from_text(name, text=None, query=""):
        path = tmp_path / name
        path.write_text(FILES[name] if text is None else text)
        return load_topology(f"{path}{query}")

    return from_text


def links(net):
    return {
        (net.names[a], net.names[b]): (w, t)
        for a, b, w, t in zip(net.src, net.dst, net.bandwidth.tolist(), net.latency_s.tolist())
    }


def test_nvidia_smi_counts_nvlinks(read):
    net = read("smi.txt")
    assert links(net)["GPU0", "GPU2"] == (50e9, 0.7e-6)
    assert links(net)["GPU0", "GPU1"] == (25e9, 0.7e-6)
    assert len([ends for ends in links(net) if all(name.startswith("GPU") for name in ends)]) == 8
    assert "ways over PCIe left out, since NVLinks join all GPUs" in net.notes


def test_nvidia_smi_keeps_nics_on_their_way(read):
    """NIC0 is on the PCIe switch of GPU0, on the host bridge of GPU1, and on the other socket for GPU2 and GPU3."""
    net = read("smi.txt")
    over_pcie = {ends for ends, (width, _) in links(net).items() if width == 15.754e9}
    ways = {("GPU0", "pix0"), ("nic0", "pix0"), ("pix0", "phb0"), ("GPU1", "phb0"), ("phb0", "sys0"), ("GPU2", "sys0"),
            ("GPU3", "sys0")}  # fmt: skip
    assert over_pcie == ways | {(b, a) for a, b in ways}
    assert links(read("smi.txt", query="?pcie=4"))["nic0", "pix0"] == (31.508e9, 0.5e-6)


def matrix_of(nearest, level, nics, nvlinks, legend="", far="SYS"):
    """A matrix of servers that people report: each GPU has one near NIC, and all others are far."""
    names = [f"GPU{i}" for i in range(len(nearest))] + [f"NIC{i}" for i in range(nics)]

    def cell(a, b):
        if a == b:
            return "X"
        if a[0] == b[0] == "G":
            return nvlinks
        near = {(f"GPU{g}", f"NIC{n}") for g, n in enumerate(nearest)}
        return level if (a, b) in near or (b, a) in near else far

    rows = [[name, *(cell(name, other) for other in names), "0-55", "0", "N/A"] for name in names]
    head = ["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    return "\n".join("\t".join(row) for row in (head, *rows)) + legend


H100 = matrix_of([0, 1, 2, 5, 6, 7, 8, 9], "PIX", 10, "NV18", "\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC5: mlx5_7\n")
"""As in github.com/NVIDIA/nccl/issues/1264."""


def test_an_h100_server_has_a_nic_on_the_pcie_switch_of_each_gpu(read):
    net = read("smi.txt", H100)
    assert (net.kind == KINDS.index("switch")).sum() == 1 + 8 + 8
    assert "nic0 mlx5_0" in net.names and "nic5 mlx5_7" in net.names and "nic9" in net.names
    assert links(net)["GPU3", "pix3"] == links(net)["nic5 mlx5_7", "pix3"] == (63.015e9, 0.5e-6)
    assert links(net)["GPU3", "nvswitch"] == (450e9, 0.35e-6)
    assert "NICs left out, since every GPU has a nearer one: NIC3, NIC4" in net.notes
    assert links(read("smi.txt", H100, "?nvlink=50GB/s"))["GPU3", "nvswitch"][0] == 900e9


def test_servers_of_a_matrix_are_composed(read):
    from stretto.symmetry import find_symmetry

    cluster = compose(read("smi.txt", H100), 4, "rails", nics="8x400Gbit/s")
    assert len(cluster.accelerators) == 32
    assert links(cluster)["server2.nic5 mlx5_7", "rail3"] == (50e9, 1.3e-6)
    assert find_symmetry(cluster).orders.tolist() == [4, 8]
    some = compose(read("smi.txt", H100), 2, "leafspine", nics="4x400Gbit/s")
    assert sum("nic" in name for name in some.names) == 8 and sum("pix" in name for name in some.names) == 8


def test_the_pcie_distances_of_a_dgx_a100_are_its_switches(read):
    """github.com/rapidsai/ucx-py/issues/749: two GPUs and two NICs on a PCIe switch, four NICs of the CPUs. No NVLinks told."""
    names = [f"GPU{i}" for i in range(8)] + [f"mlx5_{i}" for i in range(12)]
    part = [i // 2 for i in range(8)] + [i // 2 for i in range(8)] + [4, 4, 5, 5]
    rows = [
        [name, *("X" if i == j else "PXB" if part[i] == part[j] else "SYS" for j in range(20)), "112-127", "6-7"]
        for i, name in enumerate(names)
    ]
    net = read("smi.txt", "\n".join("\t".join(row) for row in (["", *names, "CPU Affinity"], *rows)), "?pcie=4")
    at = {name: [b for a, b in links(net) if a == name] for name in net.names}
    assert at["GPU2"] == at["GPU3"] == at["nic2 mlx5_2"] == at["nic3 mlx5_3"] == ["pxb1"]
    assert sorted(at["sys0"]) == ["pxb0", "pxb1", "pxb2", "pxb3"]
    assert "NICs left out, since every GPU has a nearer one: mlx5_8, mlx5_9, mlx5_10, mlx5_11" in net.notes


def test_nics_of_a_socket_are_told_from_nics_of_a_gpu(read):
    """github.com/NVIDIA/nccl/issues/933: each GPU has a NIC at PIX, NIC0 is at NODE of four of them."""
    net = read("smi.txt", matrix_of([2, 4, 6, 8, 1, 3, 5, 7], "PIX", 9, "NV8", far="NODE"))
    assert [name for name in net.names if name.startswith("nic")] == [f"nic{i}" for i in range(1, 9)]
    assert ("GPU4", "pix4") in links(net) and ("nic1", "pix4") in links(net)


def test_nics_that_all_gpus_share_hang_on_the_bridge_they_share(read):
    text = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\tX\tNV4\tNODE\t0\nGPU1\tNV4\tX\tNODE\t0\nmlx5_0\tNODE\tNODE\tX\n"
    net = read("smi.txt", text)
    assert net.names == ("GPU0", "GPU1", "nic0 mlx5_0", "node0")
    assert {("GPU0", "node0"), ("GPU1", "node0"), ("node0", "nic0 mlx5_0")} <= set(links(net))


def test_nvidia_smi_without_nvlinks_is_a_tree_of_switches(read):
    net = read("pcie.txt")
    assert net.names == ("GPU0", "GPU1", "GPU2", "pix0", "sys0")
    assert ("pix0", "sys0") in links(net) and ("GPU2", "sys0") in links(net)
    assert not net.replicates.any()


def test_many_nvlinks_to_every_peer_are_an_nvswitch(read):
    head = "\t".join(["", *(f"GPU{i}" for i in range(8)), "CPU Affinity"])
    rows = [f"GPU{i}\t" + "\t".join("X" if i == j else "NV18" for j in range(8)) + "\t0-1" for i in range(8)]
    net = read("smi.txt", "\n".join([head, *rows]))
    assert net.names[-1] == "nvswitch" and net.link_count == 16 and net.bandwidth[0] == 18 * 25e9


def test_nccl_counts_as_nccl_does(read):
    net = read("nccl.xml")
    assert links(net)["gpu0", "gpu1"] == (40e9, 0.7e-6)
    assert links(net)["cpu0", "cpu1"][0] == 10e9
    assert links(net)["gpu1", "cpu1"][0] == 12e9
    assert links(net)["nic0 mlx5_0", "pci 0000:01:00.0"] == (12e9, 0.5e-6)
    assert "network cards, which lead out of the server: 1" in net.notes
    assert net.names[:2] == ("gpu0", "gpu1")


def test_astra_sim_counts_gibibytes_in_every_dimension(read):
    net = read("astra.yml")
    assert (net.kind == KINDS.index("switch")).sum() == 4
    assert links(net)["gpu0", "gpu1"] == (50 * 2**30, 500e-9)
    assert links(net)["gpu0", "switch0"] == (25 * 2**30, 1e-6)
    assert net.link_count == 2 * 4 * 2 + 4 * 4


def test_tacos_is_directed(read):
    net = read("tacos.csv")
    assert links(net)["gpu2", "gpu0"] == (25e9, 750e-9)
    assert net.link_count == 3


def test_taccl_takes_betas_of_a_megabyte(read):
    net, built_in = read("taccl.json"), load_topology("dgx1")
    np.testing.assert_allclose(net.bandwidth, built_in.bandwidth)
    np.testing.assert_allclose(net.latency_s, built_in.latency_s)


def test_teccl_names_a_topology_of_the_catalogue(read):
    net, built_in = read("teccl.json"), load_topology("ndv2:4")
    assert links(net) == links(built_in)


@pytest.mark.parametrize(("name", "bandwidth"), [("sndlib.xml", 1.24e9), ("sndlib.txt", 155e6 / 8)])
def test_sndlib_has_capacities_and_distances(read, name, bandwidth):
    net = read(name)
    assert links(net)["A", "B"][0] == bandwidth
    assert net.latency_s[0] == pytest.approx(1000.75e3 / 2e8, rel=1e-3)


@pytest.mark.parametrize("name", FILES)
def test_settings_are_of_every_link(read, name):
    net = read(name, query="?bandwidth=1GB/s&latency=1us")
    assert set(net.bandwidth) == {1e9} and set(net.latency_s) == {1e-6}


@pytest.mark.parametrize("spec", ["ring:5", "fullmesh:4", "star:4"])
def test_what_astra_sim_can_say_survives(spec, tmp_path):
    net = load_topology(spec)
    path = tmp_path / "net.yml"
    path.write_text(WRITERS["astra-sim"](net, "here"))
    back = load_topology(str(path))
    a, b = sorted(zip(net.src, net.dst)), sorted(zip(back.src, back.dst))
    if spec != "star:4":  # its switch comes first in ours, last in ASTRA-sim's
        assert a == b
    assert len(a) == len(b)
    np.testing.assert_allclose(sorted(back.bandwidth), sorted(net.bandwidth))


@pytest.mark.parametrize("spec", ["torus:3x3", "ndv2:4", "zoo:Abilene"])
def test_what_astra_sim_cannot_say_is_refused(spec):
    with pytest.raises(InputError, match="no ring, full mesh or star"):
        WRITERS["astra-sim"](load_topology(spec), "here")


@pytest.mark.parametrize("spec", ["ndv2:4", "zoo:Abilene", "sites:2,3"])
def test_graphml_survives(spec, tmp_path):
    net = load_topology(spec)
    path = tmp_path / "net.graphml"
    path.write_text(WRITERS["graphml"](net, "here"))
    back = load_topology(str(path))
    assert links(back) == links(net)
    assert back.name == net.name and back.sites == net.sites and np.array_equal(back.kind, net.kind)


BOMB = '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;">]><system><cpu>&c;</cpu></system>'


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nccl.xml", BOMB, "not accepted"),
        ("nccl.xml", "<system/>", "no <gpu>"),
        ("nccl.xml", NCCL.replace('count="2"', 'count="-2"'), "nvlink count"),
        ("nccl.xml", NCCL.replace('target="0000:03', 'target="0000:77'), "no device"),
        ("astra.yml", "a: &a [1]\nb: [*a, *a]\n", "anchors"),
        ("astra.yml", "topology: [ Ring ]\nnpus_count: [ 1e30 ]\nbandwidth: [1]\nlatency: [1]\n", "npus_count"),
        ("astra.yml", ASTRA.replace("[ 4, 2 ]", "[ 90000, 90000 ]"), "more than"),
        ("astra.yml", ASTRA.replace("Ring", "Moebius"), "none of Ring"),
        ("astra.yml", ASTRA + "#" * 2**20, "characters"),
        ("astra.yml", ASTRA.replace("Ring", "FullyConnected").replace("[ 4, 2 ]", "[ 9000, 2 ]"), "links, more"),
        ("nccl.xml", "<system>" + '<cpu numaid="0"/>' * 65 + "</system>", "65 cpus"),
        ("astra.yml", "- 1\n- 2\n", "no network"),
        ("astra.yml", "a: [", "no YAML"),
        ("tacos.csv", "9999999999999\n0,1,1,1\n", "number of NPUs"),
        ("tacos.csv", TACOS.replace("750", "nan"), "latency"),
        ("tacos.csv", TACOS.replace("2,0", "2,7"), "destination"),
        ("smi.txt", SMI.replace("NV1", "NV2", 1), "one way"),
        ("smi.txt", "GPU0\n", "missing"),
        ("smi.txt", "hello", "neither"),
        ("taccl.json", TACCL.replace("[20, 40]", "[0, 40]"), "node_betas_list"),
        ("teccl.json", TECCL.replace("NDv2", "X"), "none of DGX1"),
        ("sndlib.txt", SNDLIB.replace("A B", "A Q"), "no node"),
        ("sndlib.txt", SNDLIB.split("LINKS")[0], "no section LINKS"),
    ],
)
def test_what_is_wrong_is_named(read, name, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(name, text)
    assert name in str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_read_or_refused(read, name):
    """Bit flips, cuts, doubled parts and huge numbers: never anything but an InputError."""
    rng = random.Random(name)
    whole = FILES[name]
    for _ in range(150):
        text = list(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            what = rng.random()
            if what < 0.4:
                text[at] = chr(ord(text[at]) ^ (1 << rng.randrange(7)))
            elif what < 0.6:
                text[at : at + rng.randrange(40)] = []
            elif what < 0.8:
                text[at:at] = text[at : at + rng.randrange(60)]
            else:
                text[at:at] = list(rng.choice(["1e999", "-1", "9" * 30, "nan", "\x00", "[" * 50, "é"]))
            text = text or ["x"]
        try:
            read(name, "".join(text))
        except InputError:
            continue


def test_the_command_writes_what_it_reads(tmp_path, capsys):
    from typer.testing import CliRunner

    from stretto.cli import app

    out = tmp_path / "ring.yml"
    done = CliRunner().invoke(app, ["topologies", "ring:4", "--to", "astra-sim", "-o", str(out), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["format"] == "astra-sim"
    assert load_topology(str(out)).link_count == 8
