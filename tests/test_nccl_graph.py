"""NCCL's graphs as plans: rings joined server after server, double binary trees over servers, and what is wrong named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stretto.formats import Size, importers
from stretto.formats.nccl_graph import read_graph, rings_of, servers_of, trees_of
from stretto.formats.nccl_joins import passable
from stretto.model.errors import Fault, InputError
from stretto.nccl.pack import make_pack, write_pack
from stretto.schedule.two_trees import parents
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify
from test_mscclpp_in import run

ONE = "star:4?bandwidth=100GB/s&latency=1us&message=0"
SERVERS = "h100:{}?pod=1&spines=1&message=0"


def xml(*channels, id=0, pattern=4, intra=20, inter=20, said=None, by="rank", crossnic=0):
    """A file with one graph; channels are GPUs in their order, named by rank (as in dumps) or by device."""
    rows = "".join(
        "<channel><net dev='0'/>" + "".join(_gpu(g, by) for g in channel) + "<net dev='0'/></channel>"
        for channel in channels
    )
    facts = f"id='{id}' pattern='{pattern}' crossnic='{crossnic}' nchannels='{len(channels) if said is None else said}'"
    speeds = f"speedintra='{intra}' speedinter='{inter}' typeintra='NVL' typeinter='PIX' samechannels='0'"
    return f"<graphs version='1'><graph {facts} {speeds}>{rows}</graph></graphs>"


def _gpu(g, by):
    return f"<gpu dev='{g:#x}' rank='{g}'/>" if by == "rank" else f"<gpu dev='{g:#x}'/>"


def read(text, net, tmp_path, kind="allreduce", source="nccl-graph", size_bytes=1_600_000):
    path = tmp_path / "graph.xml"
    path.write_text(text)
    return importers()[source].read(str(path), load_topology(net), Size(size_bytes, None), kind)


@pytest.mark.parametrize(("kind", "steps"), [("allreduce", 6), ("allgather", 3), ("reducescatter", 3)])
@pytest.mark.parametrize("by", ["rank", "dev"])
def test_a_ring_takes_its_steps(kind, steps, by, tmp_path):
    plan = read(xml([2, 0, 3, 1], by=by), ONE, tmp_path, kind)
    assert verify(plan).ok
    sent = set(zip(plan.src.tolist(), plan.dst.values.tolist()))
    assert sent == {(2, 0), (0, 3), (3, 1), (1, 2)}
    # a step: a quarter of 1.6 MB at 100 GB/s, and two links of 1 us
    assert simulate(plan).completion_s == pytest.approx(steps * (4e-6 + 2e-6))


def test_channels_take_equal_parts(tmp_path):
    plan = read(xml([0, 1, 2, 3], [3, 2, 1, 0]), ONE, tmp_path)
    assert verify(plan).ok and set(plan.size_bytes.tolist()) == {200_000}
    assert simulate(plan).completion_s == pytest.approx(6 * (4e-6 + 2e-6))


def test_rings_go_from_server_to_server(tmp_path):
    net = load_topology(SERVERS.format(3))
    servers = servers_of(net, "x")
    path = tmp_path / "graph.xml"
    path.write_text(xml([1, 0, 2, 3, 4, 5, 6, 7]))
    rank = {int(v): r for r, v in enumerate(net.accelerators)}
    ring = [rank[v] for v in rings_of(read_graph(str(path), 0, 8), servers)[0]]
    assert ring == [1, 0, *range(2, 8), 9, 8, *range(10, 16), 17, 16, *range(18, 24)]
    plan = read(path.read_text(), SERVERS.format(3), tmp_path)
    pairs = set(zip(plan.src.tolist(), plan.dst.values.tolist()))
    between = {(rank[a], rank[b]) for a, b in pairs if net.sites[a] != net.sites[b]}
    assert verify(plan).ok and between == {(7, 9), (15, 17), (23, 1)}


def test_every_second_server_may_have_its_channels_the_other_way_round(tmp_path):
    """Rails: what leaves a server by its second card comes into the next by the second."""
    path = tmp_path / "graph.xml"
    path.write_text(xml([0, 2, 1], [1, 2, 0], crossnic=2))
    servers = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    rings = rings_of(read_graph(str(path), 0, 3), servers)
    assert rings == [[0, 2, 1, 4, 5, 3, 6, 8, 7], [1, 2, 0, 3, 5, 4, 7, 8, 6]]


@pytest.mark.parametrize(
    ("net", "gpu"), [("h100:2", "h100"), ("h100:3?pod=1&spines=1", "h100"), ("dgx1", "v100"), ("h100:3", "h100")]
)
def test_the_graphs_that_we_write_for_nccl_are_sound(net, gpu, tmp_path):
    topology = load_topology(net)
    write_pack(make_pack(topology, gpu), str(tmp_path / "pack"))
    path = str(tmp_path / "pack" / "graph.xml")
    for kind in ("allreduce", "allgather"):
        plan = importers()["nccl-graph"].read(path, topology, Size(64_000_000, None), kind)
        assert verify(plan).ok and simulate(plan).completion_s > 0


def test_a_ring_may_leave_by_the_card_of_a_gpu_beside(tmp_path):
    """Rails join GPUs of one number alone; GPU 7 reaches GPU 0 of the next server through GPU 0 of its own (PXN)."""
    net = load_topology("h100:3?message=0")
    text = xml(range(8), inter=10).replace("typeinter='PIX'", "typeinter='PXN'")
    plan = read(text, "h100:3?message=0", tmp_path, size_bytes=480_000_000)
    assert verify(plan).ok
    past = [e for e in range(plan.topology.link_count) if plan.topology.link_name(e) == "gpu0 in→gpu0 out"]
    passed = plan.route.owners[np.isin(plan.route.values, past)]
    servers = servers_of(net, "x")
    assert {*zip(plan.src[passed], plan.dst.values[passed])} == {(servers[0][7], servers[1][0])}
    # 46 steps, each with 20 MB over a rail of 50 GB/s
    assert simulate(plan).completion_s == pytest.approx(46 * 20e6 / 50e9, rel=0.01)
    with pytest.raises(Fault, match="graph 0, channel 0: goes from gpu23 to gpu0"):
        read(xml(range(8)), "h100:3?message=0", tmp_path)


def test_what_passes_a_gpu_shares_its_links():
    net = load_topology("ring:3?bandwidth=1GB/s&latency=1us&message=1us")
    wider, passing = passable(net, [1])
    assert wider.node_count == 5 and wider.link_count == net.link_count + 3
    inner = passing[1]
    assert wider.link_name(inner) == "gpu1 in→gpu1 out" and wider.bandwidth[inner] >= 2e9
    assert {wider.names[wider.dst[e]] for e in net.in_links[1]} == {"gpu1 in"}
    assert {wider.names[wider.src[e]] for e in net.out_links[1]} == {"gpu1 out"}
    assert wider.message_s[net.link_count :].tolist() == [0, 0, 0]
    assert wider.accelerators.tolist() == net.accelerators.tolist()


@pytest.mark.parametrize("servers", range(1, 15))
def test_servers_are_joined_as_two_binary_trees(servers, tmp_path):
    path = tmp_path / "graph.xml"
    path.write_text(xml([0, 1, 2], id=1, pattern=1))
    graph = read_graph(str(path), 1, 3)
    trees = trees_of(graph, [[3 * s, 3 * s + 1, 3 * s + 2] for s in range(servers)])
    for tree, second in zip(trees, (False, True)):
        above = parents(servers, second, rooted=False)
        assert [tree[3 * s] // 3 if tree[3 * s] >= 0 else -1 for s in range(servers)] == above
        assert all(tree[3 * s + i + 1] == 3 * s + i for s in range(servers) for i in (0, 1))


@pytest.mark.parametrize(("pattern", "first", "second"), [(1, 1, 0), (2, 1, 1), (3, 0, 0)])
def test_the_pattern_says_which_gpu_has_which_child(pattern, first, second, tmp_path):
    """In a tree over 3 servers server 2 is the second child of 0, and 1 the first of 2."""
    path = tmp_path / "graph.xml"
    path.write_text(xml([0, 1], id=1, pattern=pattern))
    tree = trees_of(read_graph(str(path), 1, 2), [[0, 1], [2, 3], [4, 5]])[0]
    assert (tree[2], tree[4]) == (4 + first, 0 + second)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_trees_sum_and_copy(servers, tmp_path):
    plan = read(xml(range(8), id=1, pattern=1), SERVERS.format(servers), tmp_path, source="nccl-graph-trees")
    ranks = 8 * servers
    assert verify(plan).ok and plan.transfer_count == 2 * (ranks - 1) * len(plan.workload.chunk_bytes)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (xml([0, 1, 2, 3], [0, 1, 1, 3]), "ring", "graph 0, channel 1: visits gpu 1 2 times and never visits gpu 2"),
        (xml([0, 1, 2, 3], said=2), "channels", "graph 0: says 2 channels and has 1"),
        (xml([0, 1, 2, 3], [0, 1, 2]), "ring", "channel 1: never visits gpu 3"),
    ],
)
def test_a_ring_that_misses_a_rank_is_a_fault(text, code, words, tmp_path):
    with pytest.raises(Fault, match=words) as caught:
        read(text, ONE, tmp_path)
    assert caught.value.code == code


def test_a_ring_over_links_that_are_not_there_is_a_fault(tmp_path):
    with pytest.raises(
        Fault, match=r"channel 1: goes from gpu[01] to gpu[23], which ring:4.* joins only through"
    ) as caught:
        read(xml([0, 1, 2, 3], [0, 2, 1, 3]), "ring:4", tmp_path)
    assert caught.value.code == "link"


@pytest.mark.parametrize(("speed", "words"), [(20, "40% of it"), (80, "more than there is")])
def test_what_channels_claim_is_held_against_links(speed, words, tmp_path):
    plan = read(xml([0, 1, 2, 3], [3, 2, 1, 0], intra=speed), ONE, tmp_path)
    assert plan.meta["notes"][0].startswith("2 channels claim ") and words in plan.meta["notes"][0]


@pytest.mark.parametrize(
    ("text", "net", "words"),
    [
        ("<system/>", ONE, "has no <graphs>"),
        (xml([0, 1, 2, 3], id=1), ONE, "has no graph with id 0"),
        (xml([0, 1, 2]), ONE, "has 3 gpus, and a server of the topology has 4"),
        (xml([0, 1, 2, 3]).replace("rank='1'", "rank='x'"), ONE, "is no number"),
    ],
)
def test_what_is_no_graph_is_no_fault(text, net, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        read(text, net, tmp_path)
    assert not isinstance(caught.value, Fault)


def test_the_command_line_takes_a_collective(tmp_path):
    path = tmp_path / "graph.xml"
    path.write_text(xml([0, 1, 2, 3]))
    command = ["import", str(path), "--from", "nccl-graph", "-t", ONE, "--size", "1MB", "--json"]
    for more, kind in ([], "allreduce"), (["--collective", "allgather"], "allgather"):
        code, text = run(*command, *more)
        data = json.loads(text)
        assert (code, data["collective"], data["verified"]) == (0, kind, True) and data["completion_over_bound"] >= 1
    path.write_text(xml([0, 1, 1, 3]))
    code, text = run(*command)
    finding = json.loads(text)["finding"]
    assert (code, finding["code"], finding["graph"], finding["channel"]) == (1, "ring", 0, 0)
