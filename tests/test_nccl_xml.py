"""NCCL's and RCCL's topology XML: network cards, several servers on one NVLink fabric, AMD's links, files of clouds."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.topologies import load_topology
from test_pairs import links
from topology_samples import NCCL_FABRIC


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        (tmp_path / "n.xml").write_text(text)
        return load_topology(f"{tmp_path}/n.xml")

    return from_text


def server(*devices: str) -> str:
    return f'<system version="1"><cpu numaid="0">{"".join(devices)}</cpu></system>'


def pci(bus: str, inside: str = "", kind: str = "0x030200", speed: str = "16.0 GT/s PCIe") -> str:
    return f'<pci busid="{bus}" class="{kind}" link_speed="{speed}" link_width="16">{inside}</pci>'


def test_a_dump_of_several_servers_keeps_each(read):
    net = read(NCCL_FABRIC)
    ways = links(net)
    assert [net.names[v] for v in net.accelerators] == ["server0.gpu0", "server1.gpu0", "server0.gpu1", "server1.gpu1"]
    assert ways["server0.gpu0", "nvswitch"] == ways["server1.gpu1", "nvswitch"] == (18 * 40.1e9, 0.35e-6)
    assert ("server0.cpu0", "server1.cpu0") not in ways and ("server0.cpu0", "server0.cpu1") in ways
    sites = dict(zip(net.names, net.sites))
    assert (sites["server1.nic0 mlx5_0"], sites["nvswitch"], sites["server1.gpu0"]) == ("server1", "", "server1")


def test_a_network_card_has_the_smaller_of_its_port_and_its_pcie_link(read):
    card = '<nic><net name="mlx5_0" dev="0" speed="{}" port="1"/></nic>'
    gpu = pci("0000:01:00.0", '<gpu dev="0" sm="90" rank="0"/>')
    for speed, width in (("100000", 12.5e9), ("400000", 24e9), ("1111", 138.875e6), ("-1", 1.25e9)):
        net = read(
            server(gpu, gpu.replace("01:00", "02:00").replace('"0"', '"1"'), pci("0000:03:00.0", card.format(speed)))
        )
        assert links(net)["nic0 mlx5_0", "cpu0"][0] == width
        at = net.names.index("nic0 mlx5_0")
        assert net.is_switch[at] and not net.replicates[at] and net.sites[at] == "server0"


def test_links_of_amd_count_as_rccl_counts_them(read):
    gpus = [
        pci(f"0000:0{i}:00.0", f'<gpu dev="{i}" sm="304" gcn="gfx942" rank="{i}"><xgmi target="0000:0{1 - i}:00.0" count="1"/></gpu>')
        for i in range(2)
    ]  # fmt: skip
    assert links(read(server(*gpus)))["gpu0", "gpu1"] == (48e9, 0.7e-6)


def test_classes_say_what_is_a_gpu_where_nothing_is_called_one(read):
    both = pci("0001:00:00.0") + pci("0101:00:00.0", kind="0x020700") + pci("0002:00:00.0")
    net = read(server(pci("ffff:ff:01.0", both, "0x060400")))
    assert net.names == ("gpu0", "gpu1", "pci ffff:ff:01.0", "nic0")
    assert any("PCI classes" in note for note in net.notes)


def test_an_nvlink_to_itself_is_left_out(read):
    text = server(*(
        pci(f"0000:0{i}:00.0", f'<gpu dev="{i}" sm="80" rank="{i}"><nvlink target="0000:0{i}:00.0" count="12" tclass="0x03"/></gpu>')
        for i in range(2)
    ))  # fmt: skip
    assert "NVLinks of a GPU to itself left out: 2" in read(text).notes


def test_a_gpu_may_be_joined_to_its_cpu(read):
    gpu = '<gpu dev="{0}" sm="100" rank="{0}"><c2c bw="44712" count="5"/></gpu>'
    net = read(server(*(pci(f"0000:0{i}:00.0", gpu.format(i)) for i in range(2))))
    assert links(net)["gpu0", "cpu0"][0] == pytest.approx(24e9 + 5 * 44.712e9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NCCL_FABRIC.replace('rank="3"', 'rank="x"'), "gpu rank"),
        (NCCL_FABRIC.replace('speed="400000"', 'speed="fast"'), "net 'mlx5_0': speed"),
        (NCCL_FABRIC.replace('dev="0" speed', 'dev="first" speed'), "net 'mlx5_0': net dev"),
    ],
)
def test_what_is_wrong_is_named(read, text, words):
    with pytest.raises(InputError, match=words) as error:
        read(text)
    assert str(error.value).endswith("(taken for NCCL's topology XML)")


def test_bus_ids_of_bridges_may_repeat(read):
    gpus = "".join(pci(f"0000:0{i}:00.0", f'<gpu dev="{i}" sm="80" rank="{i}"/>') for i in range(4))
    half = gpus.index('<pci busid="0000:02')
    text = server(pci("0000:aa:00.0", gpus[:half], "0x060400"), pci("0000:aa:00.0", gpus[half:], "0x060400"))
    assert [name for name in read(text).names if "aa" in name] == ["pci 0000:aa:00.0", "pci 0000:aa:00.0 (2)"]
    with pytest.raises(InputError, match="the busid is missing or given twice"):
        read(server(gpus, gpus))
