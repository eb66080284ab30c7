"""Messages of several chunks in files for runtimes: they carry the right bytes, as few messages as the plan has."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations
from xml.etree import ElementTree

import numpy as np
import pytest

import mscclpp_executor
from examples import one_in
from msccl_executor import check
from stretto.choose.exportable import exportable
from stretto.choose.programs import program_s
from stretto.formats import Size, exporters, importers
from stretto.formats.protobuf import block, fields, messages, sized
from stretto.formats.step_messages import Carried, in_one_range
from stretto.formats.steps import parts_of
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.messages import message_count
from stretto.model.plan import COPY, REDUCE, Plan, make_plan
from stretto.model.rows import ends_at_nodes, messages_at_nodes
from stretto.model.targets import TARGETS
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.schedule.effort import Budget
from stretto.schedule.fitting import in_equal_parts_of
from stretto.schedule.kept import Kept
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

KINDS = ("allgather", "alltoall", "allreduce", "reducescatter", "broadcast", "reduce")
SIZES = (1_000, 64_000, 1_000_000)
NETS = ("sites:3,4", "ndv2:2", "ring:8?message=20us")


@cache
def asked(net: str, kind: str, size: int) -> tuple[Topology, Workload, Kept]:
    """A request, and what is kept of it from one target to the next: its bound, and the plans that suit both."""
    topology = assume_messages(load_topology(net))
    return topology, Workload((make_collective(kind, topology, size),)), Kept()


@cache
def planned(target: str, net: str, kind: str, size: int) -> Plan:
    """The default plan for a target, in the fewest messages that pay."""
    topology, work, others = asked(net, kind, size)

    def make(goal, kept):
        return run_planner("auto", topology, work, effort="0.05", target=goal, kept=kept)

    return exportable(make, TARGETS[target], others)


def steps(text: str) -> Counter:
    return Counter(step.get("type") for step in ElementTree.fromstring(text).iter("step"))


def two_ranks(kind: str, sent: list[list[tuple[int, int, int]]], chunks: int, size: int, back: bool = False) -> Plan:
    """A plan of two ranks: messages of (chunk, sender, op), one after another in each direction."""
    topology = load_topology("ring:2?message=20us")
    work = Workload((make_collective(kind, topology, size, chunks=chunks),))
    rows = [(*row, number) for number, message in enumerate(sent) for row in message]
    link = {(int(a), int(b)): e for e, (a, b) in enumerate(zip(topology.src, topology.dst))}
    plan = make_plan(
        topology, work, "ready-order", chunk=[r[0] for r in rows], src=[r[1] for r in rows], op=[r[2] for r in rows],
        dst=Ragged.single([1 - r[1] for r in rows]), route=Ragged.of([[link[r[1], 1 - r[1]]] for r in rows]),
        depends=Ragged.of([
            [j for j, e in enumerate(rows) if e[3] < r[3] and e[1] != r[1] and e[0] == r[0] and back] for r in rows
        ]),
        message=[r[3] for r in rows],
    )  # fmt: skip
    assert verify(plan).ok, verify(plan).finding
    return plan


def written(target: str, plan: Plan, tmp_path) -> str:
    path = tmp_path / "program"
    exporters()[target].write(simulate(plan), str(path))
    return path.read_text()


@pytest.mark.parametrize(("net", "kind", "size"), one_in(3, NETS, KINDS, SIZES))
def test_a_program_for_msccl_computes_its_collective(net, kind, size, tmp_path):
    plan = planned("msccl", net, kind, size)
    assert verify(plan).ok
    text = written("msccl", plan, tmp_path)
    c = plan.workload.collectives[0]
    for seed in range(2):
        check(text, kind, len(c.ranks), parts_of(c, TARGETS["msccl"]).number, seed)


@pytest.mark.parametrize("kind", ["allgather", "alltoall", "reducescatter"])
def test_so_does_one_among_many_ranks(kind, tmp_path):
    plan = planned("msccl", "amd:2", kind, 1_000)
    c = plan.workload.collectives[0]
    check(written("msccl", plan, tmp_path), kind, len(c.ranks), parts_of(c, TARGETS["msccl"]).number, 0)


@pytest.mark.parametrize(
    ("net", "kind"),
    [
        ("star:12?message=20us", "allgather"),
        ("star:12?message=20us", "alltoall"),
        ("star:12?message=20us", "reducescatter"),
        ("ndv2:2", "allgather"),
        ("ndv2:2", "alltoall"),
        ("ndv2:2", "reducescatter"),
        ("ring:8?message=20us", "alltoall"),
    ],
)
@pytest.mark.parametrize("target", ["msccl", "mscclpp"])
def test_a_program_takes_what_the_plan_takes(target, net, kind):
    plan = planned(target, net, kind, 64_000)
    assert message_count(plan) < plan.transfer_count
    line = simulate(plan)
    assert program_s(line, exporters()[target]) == pytest.approx(line.completion_s, rel=0.01)


def test_a_message_for_msccl_is_a_step_at_each_end(tmp_path):
    plan = planned("msccl", "ndv2:2", "alltoall", 64_000)
    found = steps(written("msccl", plan, tmp_path))
    assert found["s"] == found["r"] + found["rrc"] == message_count(plan) < plan.transfer_count
    back = importers()["msccl"].read(str(tmp_path / "program"), plan.topology, Size(64_000, None))
    assert verify(back).ok and message_count(back) == message_count(plan)
    assert simulate(back).completion_s <= 1.01 * simulate(plan).completion_s


@pytest.mark.parametrize(("net", "kind", "size"), one_in(3, NETS, KINDS, SIZES))
def test_a_plan_for_mscclpp_computes_its_collective(net, kind, size, tmp_path):
    plan = planned("mscclpp", net, kind, size)
    assert verify(plan).ok
    data = json.loads(written("mscclpp", plan, tmp_path))
    c = plan.workload.collectives[0]
    for seed in range(2):
        mscclpp_executor.check(data, kind, len(c.ranks), parts_of(c, TARGETS["mscclpp"]).number, seed)


def operations(data: dict) -> Counter:
    return Counter(op["name"] for gpu in data["gpus"] for block in gpu["threadblocks"] for op in block["ops"])


def test_a_message_for_mscclpp_is_one_put_and_one_signal(tmp_path):
    """Three chunks that stand apart at the receiver, behind the signals by which ranks say that they are ready."""
    plan = two_ranks(
        "allgather", [[(0, 0, COPY), (2, 0, COPY)], [(1, 0, COPY)], [(3, 1, COPY), (5, 1, COPY)], [(4, 1, COPY)]], 3, 96
    )
    data = json.loads(written("mscclpp", plan, tmp_path))
    found = operations(data)
    assert found["put"] == 4 and found["signal"] == 2 + 4 and found["copy"] == 2 * 3
    mscclpp_executor.check(data, "allgather", 2, 3, 0)


def test_a_put_takes_chunks_of_one_size_from_one_buffer_and_no_more_than_the_kernel_has_room_for(tmp_path):
    topology = load_topology("star:12?message=20us")
    plan = run_planner("bruck", topology, Workload((make_collective("alltoall", topology, 64_000, chunks=2),)))
    assert message_count(plan) == plan.transfer_count / 10
    data = json.loads(written("mscclpp", plan, tmp_path))
    puts = [op for gpu in data["gpus"] for block in gpu["threadblocks"] for op in block["ops"] if op["name"] == "put"]
    assert {len(op["src_buff"]) for op in puts} <= {*range(1, 9)} and max(len(op["src_buff"]) for op in puts) == 8
    assert all(len({(ref["type"], ref["size"]) for ref in op["src_buff"]}) == 1 for op in puts)
    for gpu in data["gpus"]:
        for own in gpu["threadblocks"]:
            names = [op["name"] for op in own["ops"]]
            assert ("put", "put") not in pairwise(names), "MSCCL++'s language would make one of both"
    mscclpp_executor.check(data, "alltoall", 12, 2, 0)


def test_a_put_of_the_cpu_takes_one_range(tmp_path):
    """Between sites, ranks put through ports. What stands apart is copied together, and taken apart at the receiver."""
    plan = planned("mscclpp", "sites:3,4", "alltoall", 64_000)
    sites = [plan.topology.sites[v] for v in plan.src], [plan.topology.sites[v] for v in plan.dst.values]
    away = {int(m) for m, a, b in zip(plan.message, *sites, strict=True) if a != b}
    assert len(away) < sum(a != b for a, b in zip(*sites, strict=True))
    found = operations(json.loads(written("mscclpp", plan, tmp_path)))
    assert found["pws"] + found["pwsf"] == len(away)


@pytest.mark.parametrize("kind", ["allgather", "alltoall", "reducescatter"])
@pytest.mark.parametrize("net", ["ndv2:2"])
def test_a_plan_for_mscclpp_is_read_back_with_its_messages(net, kind, tmp_path):
    plan = planned("mscclpp", net, kind, 64_000)
    data = json.loads(written("mscclpp", plan, tmp_path))
    chunks = max(data["gpus"][0]["input_chunks"], data["gpus"][0]["output_chunks"])
    size = -(-64_000 // (16 * chunks)) * 16 * chunks
    back = importers()["mscclpp"].read(str(tmp_path / "program"), plan.topology, Size(size, None))
    assert verify(back).ok, verify(back).finding
    assert message_count(back) == message_count(plan) < plan.transfer_count
    assert simulate(back).completion_s == pytest.approx(simulate(plan).completion_s, rel=0.05)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["allgather", "alltoall", "reducescatter"])
@pytest.mark.parametrize("net", NETS)
def test_traces_for_chakra_have_the_messages_of_the_plan(net, kind, size, tmp_path):
    plan = planned("chakra", net, kind, size)
    line = simulate(plan)
    exporters()["chakra"].write(line, str(tmp_path / "x"))
    back = importers()["chakra"].read(str(tmp_path / "x"), plan.topology, Size(size, None))
    assert verify(back).ok, verify(back).finding
    assert message_count(back) == message_count(plan) and back.transfer_count == plan.transfer_count
    assert sends(tmp_path, len(plan.workload.collectives[0].ranks)) == message_count(plan)


def sends(folder, ranks: int) -> int:
    """The nodes of traces that send."""
    nodes = (n for r in range(ranks) for n in list(messages((folder / f"x.{r}.et").read_bytes(), "here"))[1:])
    return sum(dict(fields(node, "here"))[3] == 5 for node in nodes)


@pytest.mark.parametrize("kind", ["allgather", "alltoall", "reducescatter"])
def test_traces_read_back_take_what_the_plan_takes(kind, tmp_path):
    plan = planned("chakra", "ring:8?message=20us", kind, 64_000)
    exporters()["chakra"].write(simulate(plan), str(tmp_path / "x"))
    back = importers()["chakra"].read(str(tmp_path / "x"), plan.topology, Size(64_000, None))
    assert simulate(back).completion_s <= 1.01 * simulate(plan).completion_s


@pytest.mark.parametrize(
    "damage", [b'"0": []', b'"0": [[1]]', b'"0": [[1, 2]]', b'"x": [[1, 0]]', b'"0": [[1, 0], [1, 0]]']
)
def test_a_trace_with_a_list_of_chunks_that_is_none_is_refused(damage, tmp_path):
    plan = two_ranks("allgather", [[(0, 0, COPY), (1, 0, COPY)], [(2, 1, COPY)], [(3, 1, COPY)]], 2, 64)
    exporters()["chakra"].write(simulate(plan), str(tmp_path / "x"))
    file = tmp_path / "x.0.et"
    (head, *nodes) = messages(file.read_bytes(), "here")
    (version, (_, fact)) = fields(head, "here")
    said = dict(fields(fact, "here"))[29]
    assert b'"0": [[0, 0], [1, 0]]' in said
    wrong = said.replace(b'"0": [[0, 0], [1, 0]]', damage)
    text = sized(block(version[0], version[1]) + block(2, block(1, b"stretto") + block(29, wrong)))
    file.write_bytes(text + b"".join(map(sized, nodes)))
    with pytest.raises(InputError):
        importers()["chakra"].read(str(tmp_path / "x"), plan.topology, Size(64, None))


def test_chunks_that_stand_side_by_side_are_not_copied(tmp_path):
    """A rank sends all its chunks of an AllGather in one message, in any order."""
    for order in permutations(range(3)):
        plan = two_ranks("allgather", [[(k, 0, COPY) for k in order], [(3 + k, 1, COPY) for k in order]], 3, 96)
        text = written("msccl", plan, tmp_path)
        assert steps(text) == {"s": 2, "r": 2, "cpy": 6}, "each rank copies its own three chunks to its output"
        check(text, "allgather", 2, 3, 0)


def test_chunks_that_stand_apart_are_packed_and_unpacked(tmp_path):
    plan = two_ranks(
        "allgather", [[(0, 0, COPY), (2, 0, COPY)], [(1, 0, COPY)], [(3 + k, 1, COPY) for k in range(3)]], 3, 96
    )
    text = written("msccl", plan, tmp_path)
    assert steps(text) == {"s": 3, "r": 3, "cpy": 6 + 2 + 2}, "two chunks are copied at either end"
    for seed in range(3):
        check(text, "allgather", 2, 3, seed)


def test_a_message_that_is_added_in_part_is_unpacked(tmp_path):
    """Chunk 1 of an AllReduce comes back as the sum, and in the same message chunk 0 is added."""
    there = [[(1, 0, REDUCE)], [(0, 1, REDUCE), (1, 1, COPY)], [(0, 0, COPY)]]
    plan = two_ranks("allreduce", there, 2, 64, back=True)
    text = written("msccl", plan, tmp_path)
    found = steps(text)
    assert found["s"] == 3 and found["re"] == 1 and found["rrc"] == 1
    for seed in range(5):
        check(text, "allreduce", 2, 2, seed)


def slots(*places: int, buffer: str = "i") -> list[tuple[str, int]]:
    return [(buffer, place) for place in places]


def carried(src: list, dst: list, adds: tuple[bool, ...] = (False,) * 9, parts: int = 1) -> list[Carried]:
    return [Carried(k, a, b, parts, add) for k, (a, b, add) in enumerate(zip(src, dst, adds))]


@pytest.mark.parametrize(
    ("src", "dst", "adds", "packs", "unpacks"),
    [
        (slots(2, 1, 0), slots(5, 4, 3, buffer="o"), (False,) * 3, False, False),
        (slots(2, 1, 0), [None] * 3, (False,) * 3, False, False),
        (slots(0, 2), slots(4, 5, buffer="o"), (False,) * 2, True, False),
        (slots(0, 1), slots(4, 6, buffer="o"), (False,) * 2, False, True),
        (slots(0, 1), slots(4, 5, buffer="o"), (False, True), False, True),
        (slots(0, 1), [("o", 4), None], (False, False), False, True),
        ([("i", 1), ("o", 2)], slots(4, 5, buffer="o"), (True, True), True, False),
        (slots(1, 0), slots(4, 5, buffer="o"), (False, False), True, False),
    ],
)
def test_a_message_is_copied_only_where_its_chunks_stand_apart(src, dst, adds, packs, unpacks):
    form = in_one_range(carried(src, dst, adds))
    assert (form.packs, form.unpacks) == (packs, unpacks)
    assert sorted(c.receiver for c in form.carried) == list(range(len(src)))
    if not packs:
        assert all(b.src[1] - a.src[1] == a.parts for a, b in pairwise(form.carried))


def test_chunks_of_several_parts_stand_side_by_side_where_their_parts_do():
    assert not in_one_range(carried(slots(0, 3), slots(6, 9), parts=3)).packs
    assert in_one_range(carried(slots(0, 2), slots(6, 9), parts=3)).packs


def test_messages_of_a_node_are_counted_as_messages():
    plan = planned("msccl", "ring:8?message=20us", "alltoall", 64_000)
    assert messages_at_nodes(plan).sum() == 2 * message_count(plan) < ends_at_nodes(plan).sum()


def test_a_plan_is_made_for_a_limit_of_messages_not_of_chunks():
    topology = load_topology("star:8?message=20us")
    work = Workload((make_collective("alltoall", topology, 64_000),))
    plan = run_planner("bruck", topology, work, target=replace(TARGETS["msccl"], messages=6))
    assert messages_at_nodes(plan).max() == 6 < ends_at_nodes(plan).max()


def test_parts_are_so_few_that_a_message_stays_one_step():
    """Chunks of 0.14, 0.13 and 0.73 of a piece: finer parts would be nearer to these, and a step carries 32 here."""
    topology = load_topology("ring:2?message=20us")
    whole = make_collective("broadcast", topology, 6_400)
    begin = np.array([0, 900, 1_700])
    cut = replace(whole, chunk_piece=np.zeros(3, dtype=np.int32), chunk_offset=begin,
                  chunk_bytes=np.array([900, 800, 4_700]))  # fmt: skip
    plan = make_plan(
        topology, Workload((cut,)), "ready-order", chunk=[0, 1, 2], src=[0] * 3, dst=Ragged.single([1] * 3),
        route=Ragged.of([[0]] * 3), depends=Ragged.of([[]] * 3), message=[0, 0, 0],
    )  # fmt: skip
    target = replace(TARGETS["msccl"], step_parts=32)
    fitted = in_equal_parts_of(plan, target, Budget())
    parts = parts_of(fitted.workload.collectives[0], target)
    assert parts.covered.sum() <= 32 and message_count(fitted) == 1


FORWARDED = ("ring:6?message=50us", "star:7?message=1us", "h100:2?message=1us", "h100:3?message=1us")
"""Networks on which ranks forward sums without what they have themselves."""


@cache
def forwarding(net: str) -> Plan:
    topology = load_topology(net)
    work = Workload((make_collective("allreduce", topology, 4_000),))
    if net.startswith("ring"):
        plan = run_planner("greedy", topology, work, target=TARGETS["torch"])
    else:
        plan = run_planner("hierarchical", topology, work)
    assert verify(plan).ok and plan.forwards is not None and plan.forwards.any()
    return plan


@pytest.mark.parametrize("net", FORWARDED)
def test_a_program_for_msccl_forwards_sums(net, tmp_path):
    plan = forwarding(net)
    text, c = written("msccl", plan, tmp_path), plan.workload.collectives[0]
    for seed in range(3):
        check(text, "allreduce", len(c.ranks), parts_of(c, TARGETS["msccl"]).number, seed)


@pytest.mark.parametrize("net", FORWARDED)
def test_a_plan_for_mscclpp_forwards_sums(net, tmp_path):
    plan = forwarding(net)
    data, c = json.loads(written("mscclpp", plan, tmp_path)), plan.workload.collectives[0]
    for seed in range(3):
        mscclpp_executor.check(data, "allreduce", len(c.ranks), parts_of(c, TARGETS["mscclpp"]).number, seed)


@pytest.mark.parametrize("target", ["msccl", "mscclpp", "chakra"])
@pytest.mark.parametrize("net", FORWARDED)
def test_files_of_forwarded_sums_are_read_back(target, net, tmp_path):
    plan = forwarding(net)
    exporters()[target].write(simulate(plan), str(tmp_path / "program"))
    back = importers()[target].read(str(tmp_path / "program"), plan.topology, Size(4_000, None))
    assert verify(back).ok and back.forwards is not None
    assert back.forwards.mean() == plan.forwards.mean()  # mscclpp counts the parts of a transfer


def test_sums_that_replace_what_a_rank_had_are_not_read_back_as_forwarded(tmp_path):
    """Ranks get sums in place of their own, and add to them: no plan says that, so these are messages."""
    net = load_topology("ring:6?message=50us")
    work = Workload((make_collective("allreduce", net, 4_096),))
    plan = run_planner("greedy", net, work, effort="quick", target=TARGETS["mscclpp"])
    exporters()["mscclpp"].write(simulate(plan), str(tmp_path / "program"))
    back = importers()["mscclpp"].read(str(tmp_path / "program"), net, Size(4_096, None))
    assert verify(back).ok and "no plan can name what a rank holds twice" in back.meta["notes"][1]
