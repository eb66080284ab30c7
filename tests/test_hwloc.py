"""hwloc's XML: which devices are GPUs and network cards, what joins them, and what is wrong."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.topologies import load_topology
from test_pairs import links
from topology_samples import HWLOC


@pytest.fixture
def read(tmp_path):
    def from_text(text):
        (tmp_path / "lstopo.xml").write_text(text)
        return load_topology(f"{tmp_path}/lstopo.xml")

    return from_text


def test_gpus_are_numbered_as_the_driver_numbers_them(read):
    net = read(HWLOC)
    assert net.name == "node17" and net.names[:2] == ("gpu0", "gpu1")
    ways = links(net)
    assert ways["gpu0", "pci 0000:16:00.0"] == (31.507692e9, 0.5e-6) and ways["gpu1", "package1"] == (15.754e9, 0.5e-6)
    assert "PCI devices without a speed, taken as 15.75 GB/s: 1" in net.notes


def test_bridges_that_only_lead_on_are_one_link(read):
    net = read(HWLOC)
    assert [name for name in net.names if name.startswith("pci")] == ["pci 0000:16:00.0"]
    assert links(net)["pci 0000:16:00.0", "package0"][0] == 31.507692e9
    assert links(net)["package0", "package1"] == (10e9, 1e-6)


def test_network_cards_of_fabrics_come_first(read):
    net = read(HWLOC)
    ways = links(net)
    assert ways["nic0 mlx5_0", "pci 0000:16:00.0"][0] == 15.753846e9
    assert ways["nic1 eth0", "package1"][0] == 2e9
    at = net.names.index("nic0 mlx5_0")
    assert net.is_switch[at] and not net.replicates[at] and set(net.sites) == {"server0"}


def test_nvlinks_have_the_bandwidths_of_the_matrix(read):
    ways = links(read(HWLOC))
    assert ways["gpu0", "gpu1"] == (25e9, 0.7e-6)
    assert ways["gpu0", "nvswitch"] == ways["nvswitch", "gpu1"] == (300e9, 0.35e-6)


def test_without_a_matrix_gpus_are_joined_over_pcie(read):
    text = HWLOC.replace("NVLinkBandwidth", "Other")
    assert "it has no matrix of NVLinks: GPUs are joined over PCIe only" in read(text).notes


def test_a_matrix_of_one_kind_lists_bare_numbers(read):
    """Version 2 writes ``type`` once where all objects are of one type, as RSMI's GPUs are."""
    start, end = HWLOC.index(" <distances2hetero"), HWLOC.index("</topology>")
    table = (
        ' <distances2 type="OSDev" nbobjs="2" kind="25" name="XGMIBandwidth" indexing="gp">\n'
        '  <indexes length="6">15 33 </indexes><u64values length="9">0 50000 50000 0 </u64values>\n </distances2>\n'
    )
    assert links(read(HWLOC[:start] + table + HWLOC[end:]))["gpu1", "gpu0"][0] == 50e9


def test_devices_of_no_package_are_joined_to_the_machine(read):
    text = HWLOC.replace('<object type="Package" os_index="1"', '<object type="Group"')
    ways = links(read(text))
    assert ("gpu1", "machine") in ways and ("machine", "package0") in ways


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HWLOC.replace("0302", "0300").replace("nvml", "x").replace("cuda", "x"), "has no GPU"),
        (HWLOC.replace('speed="2.000000"', 'speed="fast"'), "PCIDev '0000:b1:00.0': pci_link_speed"),
        (HWLOC.replace("OSDev:33", "OSDev:99"), "NVLinkBandwidth: is of OSDev:99, which is no GPU"),
        (HWLOC.replace("0 300000 300000 300000 0", "0 300000"), "has 6 values for 3 objects"),
        (HWLOC.replace(">0 25000", ">0 much"), "NVLinkBandwidth: a bandwidth must be a finite number"),
        (HWLOC.replace('SYSTEM "hwloc2.dtd"', '[<!ENTITY a "b">]'), "not accepted: it declares XML entities"),
    ],
)
def test_what_is_wrong_is_named(read, text, words):
    with pytest.raises(InputError, match=words):
        read(text)
