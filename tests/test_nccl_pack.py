"""The NCCL pack: what its files say, what it refuses, and NCCL's own code and plugin as readers where NCCL_SOURCE is set."""

from __future__ import annotations

import csv
import os
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from nccl_pack import ask_plugin, choices_agree, graphs_agree, named
from stretto.formats import atomic_folder
from stretto.model.errors import InputError, Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.nccl.graphs import NVLS, RING, graphs_xml
from stretto.nccl.pack import GRAPH, README, SETTINGS, TOPOLOGY, TUNER, UNDO, make_pack, write_pack
from stretto.nccl.server import topology_xml
from stretto.nccl.tuner import HEADER, KINDS, MOST_BYTES
from stretto.topologies import load_topology, nccl_xml

CLUSTERS = ("dgx1", "dgx2:2", "ndv2:4", "a100:2?nics=nodes", "h100:1", "h100:2", "h100:3", "b200:2")
GB = 10**9


@pytest.fixture(scope="module")
def packs():
    return {spec: make_pack(load_topology(spec)) for spec in CLUSTERS}


def folder_of(pack, place: Path) -> Path:
    write_pack(pack, str(place / "pack"))
    return place / "pack"


def read_server(text: str):
    return nccl_xml.parse(ElementTree.fromstring(text), "the pack")


def widths(net) -> dict[tuple[str, str], float]:
    return {
        (net.names[a], net.names[b]): float(w) for a, b, w in zip(net.src, net.dst, net.bandwidth.tolist(), strict=True)
    }


# --- the topology file ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "gpus", "nics", "link"),
    [
        ("h100:2", 8, 8, 18 * 20.6e9),
        ("a100:4", 8, 8, 12 * 20e9),
        ("b200:1", 8, 0, 18 * 40.1e9),
        ("dgx2:2", 16, 8, 100e9),
    ],
)
def test_a_server_of_the_catalogue_is_read_back_as_nccl_counts_it(spec, gpus, nics, link):
    net = read_server(topology_xml(make_pack(load_topology(spec)).server))
    own = widths(net)
    assert len(net.accelerators) == gpus
    assert sum(name.startswith("nic") for name in net.names) == nics
    assert {w for (a, b), w in own.items() if b == "nvswitch"} == {link}


def test_the_cube_mesh_of_a_dgx1_is_read_back_link_by_link():
    catalogue, net = load_topology("dgx1"), read_server(topology_xml(make_pack(load_topology("dgx1")).server))
    between = {pair: w for pair, w in widths(net).items() if all(name.startswith("gpu") for name in pair)}
    assert between == {pair: w / 25e9 * 20e9 for pair, w in widths(catalogue).items()}


def test_a_dump_of_nccl_is_written_as_it_was_read(tmp_path):
    """A server with two sockets, PCIe switches, three kinds of links: read, written and read again, all links are the same."""
    first = read_server(DUMP)
    again = read_server(topology_xml(make_pack(first, "h100").server))
    assert (again.names, again.sites) == (first.names, first.sites)
    assert widths(again) == widths(first)
    assert '<pci busid="0000:16:00.0" class="0x060400"' in topology_xml(make_pack(first, "h100").server)


def _device(bus: str, kind: str, inside: str, speed: str = "32.0 GT/s PCIe") -> str:
    return f'<pci busid="{bus}" class="{kind}" link_speed="{speed}" link_width="16">{inside}</pci>'


def _gpu(bus: str, dev: int) -> str:
    nvlink = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    return _device(bus, "0x030200", f'<gpu dev="{dev}" sm="90" rank="{dev}">{nvlink}</gpu>')


def _nic(bus: str, dev: int) -> str:
    return _device(bus, "0x020700", f'<nic><net name="mlx5_{dev}" dev="{dev}" speed="200000"/></nic>', "16.0 GT/s PCIe")


DUMP = '<system version="1">{}</system>'.format(
    "".join(
        f'<cpu numaid="{s}">'
        + _device(f"0000:{s}6:00.0".replace("0000:0", "0000:1"), "0x060400", _gpu(f"0000:{s}7:00.0", 2 * s)
                  + _gpu(f"0000:{s}8:00.0", 2 * s + 1) + _nic(f"0000:{s}9:00.0", s))
        + "</cpu>"
        for s in (0, 1)
    )
).replace('busid="0000:16:00.0" class="0x060400"', 'busid="0000:26:00.0" class="0x060400"', 2).replace(
    'busid="0000:26:00.0" class="0x060400"', 'busid="0000:16:00.0" class="0x060400"', 1
)  # fmt: skip


# --- the graph file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", CLUSTERS)
def test_every_channel_passes_all_gpus_and_no_card_carries_more_than_it_can(packs, spec):
    pack = packs[spec]
    root = ElementTree.fromstring(graphs_xml(pack.found.graphs))
    assert (root.tag, root.get("version")) == ("graphs", "1")
    for graph in root:
        channels = [[int(g.get("dev"), 16) for g in c.iter("gpu")] for c in graph]
        assert len(channels) == int(graph.get("nchannels"))
        assert all("rank" not in g.attrib for g in graph.iter("gpu")), "a rank would tie the file to one server"
        if int(graph.get("pattern")) != NVLS:
            assert all(sorted(gpus) == list(range(len(pack.server.gpus))) for gpus in channels)
        if len(pack.machines) == 1:
            assert not list(graph.iter("net"))
            continue
        load = Counter()
        for c in graph:
            into, out = (int(n.get("dev"), 16) for n in c.iter("net"))
            load[into, "in"] += float(graph.get("speedinter"))
            load[out, "out"] += float(graph.get("speedinter"))
        assert all(gbps <= pack.server.nics[k].bandwidth / 1e9 + 1e-6 for (k, _), gbps in load.items())


@pytest.mark.parametrize("spec", CLUSTERS)
def test_rings_fit_the_links_of_the_server(packs, spec):
    """Each hop by its NVLink, or the two of an NVSwitch: no link carries more than NCCL counts for it."""
    pack = packs[spec]
    server, ring = pack.server, pack.found.graphs.ring
    assert ring.pattern == RING
    load = Counter()
    for c in ring.channels:
        closing = [(c.gpus[-1], c.gpus[0])] if not c.nets else []
        for a, b in [*pairwise(c.gpus), *closing]:
            ends = [(a, b)] if (a, b) in server.nvlinks else [(a, "up"), (b, "down")]
            load.update(dict.fromkeys(ends, ring.intra))
    counted = server.generation.counted / 1e9
    for (a, b), gbps in load.items():
        links = server.nvlinks[a, b] if (a, b) in server.nvlinks else server.to_switch[a]
        assert gbps <= links * counted + 1e-6


def test_in_an_even_number_of_servers_neighbouring_cards_take_turns_and_in_an_odd_one_rings_stay_on_theirs(packs):
    """NCCL swaps the channels of a pair in every second server. From the third to the first of three this would cross
    from rail to rail, where there is no way."""
    even, odd = packs["h100:2"], packs["h100:3"]
    assert even.found.graphs.ring.crossnic == 2 and not even.settings
    assert {c.nets for c in even.found.graphs.ring.channels} >= {(0, 1), (1, 0), (6, 7)}
    assert all(a == b for a, b in (c.nets for c in odd.found.graphs.ring.channels))
    assert odd.settings == {"NCCL_CROSS_NIC": "0"} and odd.found.by_nics.ring.crossnic == 2


def test_speeds_know_what_the_network_between_servers_leaves():
    pack = make_pack(load_topology("h100:4?pod=2&oversubscription=4"))
    assert pack.found.by_nics.ring.inter == 48 and not pack.found.by_nics.ring.latency_us
    assert pack.found.graphs.ring.inter == 25
    assert pack.found.graphs.ring.latency_us == pytest.approx(4 * 1.3 - 2.7)
    assert pack.changes and all(c.gain >= 1 for c in pack.changes)


# --- the tuner table --------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", CLUSTERS)
def test_the_rows_of_each_communicator_cover_all_sizes(packs, spec, tmp_path):
    pack = packs[spec]
    lines = (folder_of(pack, tmp_path) / TUNER).read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert comments[-1] == f"# {HEADER}"
    assert max(map(len, lines)) < 255, "the plugin reads 255 characters of a line"
    rows = list(csv.DictReader(lines[len(comments) :], fieldnames=HEADER.split(",")))
    groups = {(row["nNodes"], row["nRanks"]) for row in rows}
    assert {("-1", "-1"), (str(len(pack.machines)), str(pack.ranks))} <= groups
    for group in groups:
        for kind in KINDS:
            own = [r for r in rows if (r["nNodes"], r["nRanks"], r["collective_type"]) == (*group, kind)]
            for part in (own, [r for r in own if not r["algorithm"].startswith("nvls")]):
                ranges = sorted({(int(r["min_bytes"]), int(r["max_bytes"])) for r in part})
                reached = -1
                for least, most in ranges:
                    assert least <= reached + 1
                    reached = max(reached, most)
                assert reached == MOST_BYTES
    assert {r["channels"] for r in rows} == {"0"}, "-1 would mean one channel"
    assert {r["algorithm"] for r in rows} <= {"tree", "ring", "nvls", "nvls_tree", "pat"}
    assert {r["protocol"] for r in rows} <= {"ll", "ll128", "simple"}


# --- the folder -------------------------------------------------------------------------------------


def test_the_settings_are_set_and_taken_back(packs, tmp_path):
    folder = folder_of(packs["h100:3"], tmp_path)
    script = (
        f". {folder}/{SETTINGS}; env | grep ^NCCL | sort; echo --; . {folder}/{UNDO}; env | grep ^NCCL | sort; true"
    )
    plain = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}

    def said(**more: str) -> list[str]:
        return subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=plain | more, check=True
        ).stdout.split()

    assert said() == [
        "NCCL_CROSS_NIC=0", f"NCCL_TUNER_CONFIG_FILE={folder}/{TUNER}", "NCCL_TUNER_PLUGIN=example", "--",
    ]  # fmt: skip
    assert said(NCCL_TUNER_PLUGIN="mine of us", NCCL_CROSS_NIC="2")[-5:] == [
        "--", "NCCL_CROSS_NIC=2", "NCCL_TUNER_PLUGIN=mine", "of", "us",
    ]  # fmt: skip
    assert f"NCCL_GRAPH_FILE={folder}/{GRAPH}" in said(NCCL_PACK_USE="graph topology")
    assert f"NCCL_TOPO_FILE={folder}/{TOPOLOGY}" in said(NCCL_PACK_USE="graph topology")


def test_the_page_says_what_changes_and_where_nothing_does(packs, tmp_path):
    same = (folder_of(packs["h100:2"], tmp_path / "a") / README).read_text()
    other = (folder_of(packs["h100:3"], tmp_path / "b") / README).read_text()
    assert "you can leave it out" in same and "NCCL_CROSS_NIC" not in same
    assert "`NCCL_CROSS_NIC=0`" in other and "times as long" in other
    for number in (933, 776, 1008):
        assert f"nccl/issues/{number}" in same


@pytest.fixture(autouse=True)
def folders(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()


def test_a_folder_appears_when_it_is_complete_or_not_at_all(packs, tmp_path):
    with pytest.raises(InputError, match="there already"):
        write_pack(packs["h100:2"], str(folder_of(packs["h100:2"], tmp_path)))
    with pytest.raises(InputError, match="cannot be written: No such file"):
        write_pack(packs["h100:2"], str(tmp_path / "no" / "where"))
    with pytest.raises(ZeroDivisionError), atomic_folder(str(tmp_path / "torn")) as place:
        Path(place, "half").write_text("")
        raise ZeroDivisionError
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "pack"]


def test_servers_are_put_in_the_order_with_which_nccl_ends_sooner(tmp_path):
    """Four servers of two GPUs on two leaf switches, by turns, and a narrow spine."""
    kinds, links, sites = [SWITCH] * 3, [], ["", "", ""]
    for leaf in (1, 2):
        links += [(0, leaf, 3e9, 1e-6), (leaf, 0, 3e9, 1e-6)]
    for server in range(4):
        a, b = len(kinds), len(kinds) + 1
        kinds += [ACCELERATOR] * 2
        sites += [f"host{server}"] * 2
        links += [(a, b, 100e9, 1e-6), (b, a, 100e9, 1e-6)]
        links += [way for gpu in (a, b) for way in ((gpu, 1 + server % 2, 6e9, 1e-6), (1 + server % 2, gpu, 6e9, 1e-6))]
    net = make_topology("leaves", kinds, links, sites=sites)
    pack = make_pack(net, "a100", ordered=True)
    leaves = [int(name[-1]) % 2 for name in pack.machines]
    assert sum(a != b for a, b in pairwise([*leaves, leaves[0]])) == 2, "the ring crosses the spine once each way"
    assert pack.ordering is not None and pack.ordering.after_s < 0.7 * pack.ordering.before_s
    assert make_pack(net, "a100").found.graphs.ring.inter < pack.found.graphs.ring.inter
    folder = folder_of(pack, tmp_path)
    assert (folder / "order.slurm").read_text().split()[::2] == list(pack.machines)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "gpu", "why"),
    [
        ("mi300x:2", None, "mi300x has others"),
        ("gb200:1", None, "several hosts on one NVLink fabric"),
        ("optical:4,2", "h100", "optical planes"),
        ("sites:3,4", "h100", "routers that store and forward"),
        ("ring:8", "h100", "gpu0 is in no server"),
        ("fattree:4", None, "does not say which GPUs"),
        ("h100:2", "z80", "there is no GPU 'z80'"),
    ],
)
def test_what_nccl_could_not_run_on_is_refused(spec, gpu, why):
    with pytest.raises((InputError, Unsupported), match=why):
        make_pack(load_topology(spec), gpu)


def test_servers_that_differ_are_refused():
    net = load_topology("h100:2")
    slow = net.bandwidth.copy()
    slow[(net.src == 1) & (net.dst >= 18)] /= 2
    with pytest.raises(Unsupported, match="server1 is not built as server0"):
        make_pack(replace(net, bandwidth=slow))
    with pytest.raises(Unsupported, match="the same number in all"):
        make_pack(net, ranks=net.accelerators[:12].tolist())
    assert make_pack(net, ranks=np.concatenate((net.accelerators[:4], net.accelerators[8:12])).tolist()).ranks == 8


# --- NCCL's own code --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    from nccl_graph.readers import Missing, build_graph_reader, build_tuner, checkout

    if "NCCL_SOURCE" not in os.environ:
        pytest.skip("NCCL_SOURCE names no checkout of NVIDIA/nccl")
    folder = Path(os.environ.get("NCCL_BUILD") or tmp_path_factory.mktemp("nccl"))
    try:
        source = checkout(folder)
        return build_graph_reader(source, folder), build_tuner(source, folder)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("spec", CLUSTERS)
def test_nccls_own_code_reads_the_pack_as_it_is_meant(packs, spec, readers, tmp_path):
    from nccl_graph.readers import read_graphs

    program, library = readers
    pack, folder = packs[spec], folder_of(packs[spec], tmp_path)
    sizes = [2**k + 1 for k in range(0, 34, 2)]
    read, own = (
        read_graphs(program, folder / TOPOLOGY, graph, len(pack.machines), sizes) for graph in (folder / GRAPH, None)
    )
    assert graphs_agree(pack.found.graphs, read) == dict.fromkeys(named(pack.found.graphs), True)
    assert all(sorted(ring) == list(range(pack.ranks)) for ring in read["rings"])
    for graphs, answer in ((pack.found.graphs, read), (pack.found.by_nics, own)):
        same, compared, worst = choices_agree(pack, graphs, answer)
        assert same == compared == len(KINDS) * len(sizes)
        assert worst < 1e-5
    right, asked = ask_plugin(pack, library, folder / TUNER)
    assert right == asked > 100


@pytest.mark.parametrize(("spec", "crossings"), [("h100:2", 0), ("h100:3", 8)])
def test_nccls_own_rings_cross_rails_with_an_odd_number_of_servers(
    packs, spec, crossings, readers, tmp_path, monkeypatch
):
    """From the last server to the first, a hop of each of 8 channels; with NCCL_CROSS_NIC=0 rings stay on their cards."""
    from nccl_graph.readers import read_graphs

    pack, folder = packs[spec], folder_of(packs[spec], tmp_path)
    own = read_graphs(readers[0], folder / TOPOLOGY, None, len(pack.machines))
    assert own["ring"]["typeinter"] == "PIX", "the first and the last GPU have the cards that the channel uses"
    hops = [hop for ring in own["rings"] for hop in pairwise([*ring, ring[0]])]
    assert sum(a // 8 != b // 8 and a % 8 != b % 8 for a, b in hops) == crossings
    monkeypatch.setenv("NCCL_CROSS_NIC", "0")
    set_so = read_graphs(readers[0], folder / TOPOLOGY, None, len(pack.machines))
    assert all(a == b for a, b in (c["nets"] for c in set_so["ring"]["channels"]))
