"""MSCCL++ plans refereed: each operation in a program that is correct, and each way to be wrong named at its step."""

from __future__ import annotations

import contextlib
import copy
import io
import json

import pytest

from execution_plans import DONE, MEET, NOP, PLANS, gather, op, other, over, own, plan, shared
from stretto import cli
from stretto.formats import Size, exporters, importers
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Fault, InputError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

SIZE = Size(4096, None)


def read(data, tmp_path, size=SIZE, net=None):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    importer = importers()["mscclpp"]
    return importer.read(str(path), load_topology(net or importer.topology(str(path))), size)


def fault_of(data, tmp_path, size=SIZE):
    with pytest.raises(Fault) as caught:
        read(data, tmp_path, size)
    return caught.value


@pytest.mark.parametrize("name", PLANS)
def test_each_operation_does_its_part_of_a_collective(name, tmp_path):
    found = read(PLANS[name], tmp_path)
    assert verify(found).ok and simulate(found).completion_s > 0
    assert "deadlocks or races: proved" in found.meta["notes"][0]


@pytest.mark.parametrize("root", range(3))
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_a_collective_with_a_root_is_checked_for_the_root_that_it_has(kind, root, tmp_path):
    """An exported Broadcast or Reduce does not say who the root is."""
    net = load_topology("ring:3")
    workload = Workload((make_collective(kind, net, 4096, root=root, chunks=2),))
    path = tmp_path / "plan.json"
    exporters()["mscclpp"].write(simulate(run_planner("shortest-path", net, workload)), str(path))
    found = importers()["mscclpp"].read(str(path), net, SIZE)
    assert f"contents are right for a {kind} with rank {root} as root" in found.meta["notes"][1]
    data = json.loads(path.read_text())
    sends = [
        op
        for gpu in data["gpus"]
        for block in gpu["threadblocks"]
        for op in block["ops"]
        if op["name"].startswith("put")
    ]
    sends[0]["src_buff"][0]["index"] ^= 1
    path.write_text(json.dumps(data))
    with pytest.raises(Fault):
        importers()["mscclpp"].read(str(path), net, SIZE)


def test_a_collective_whose_outputs_no_file_says_is_not_called_checked(tmp_path):
    data = PLANS["threadblock group"] | {"collective": "custom"}
    found = read(data, tmp_path, Size(96, None))
    assert "of the collective 'custom' the file does not say what outputs must hold" in found.meta["notes"][1]


def test_threadblocks_in_a_group_move_the_whole_between_them(tmp_path):
    """A chunk of three vectors of 16 bytes: the first of two threadblocks takes two of them."""
    found = read(PLANS["threadblock group"], tmp_path, Size(96, None))
    assert sorted(found.size_bytes.tolist()) == [16] * 4 + [32] * 4


def test_a_loop_moves_on_by_its_unit(tmp_path):
    found = read(PLANS["pipeline"], tmp_path, Size(4096, None))
    assert found.size_bytes.tolist() == [256] * 16


def through_scratch(held_back):
    """A loop that copies to shared scratch, and one that sends from there; chunks of scratch are 1 KiB apart at most."""

    def loop(*ops):
        return {"name": "pipeline", "iter_context": {"unit_size": 256, "num_chunks": 1}, "ops": list(ops)}

    def blocks(r):
        free, filled = ({"semaphore_ids": [i]} for i in range(2))
        before = [{"name": "sem_acquire"} | free, NOP] if held_back else []
        after = [NOP, {"name": "sem_release"} | free] if held_back else []
        copy = op("copy", own("i"), own("s"))
        send = op("put", own("s"), other("o", r))
        return [
            [loop(*before, copy, NOP, {"name": "sem_release"} | filled)],
            [
                op("copy", own("i"), own("o", r)),
                *MEET,
                loop({"name": "sem_acquire"} | filled, NOP, send, *after),
                *DONE,
            ],
        ]

    return plan("allgather", (1, 2, 1 << 16), blocks, semaphores=(4, 0), reuse_resources=True)


def test_a_loop_comes_round_in_shared_scratch(tmp_path):
    """What fits into the chunk of scratch is not overwritten; what does not must be held back."""
    assert read(through_scratch(False), tmp_path, Size(2048, None)).transfer_count == 8
    fault = fault_of(through_scratch(False), tmp_path, Size(4096, None))
    assert fault.code == "race" and "buffer s of rank" in fault.message
    assert verify(read(through_scratch(True), tmp_path, Size(4096, None))).ok


def test_packets_are_compared_element_by_element(tmp_path):
    """Threads of two operations take the same elements in the same order, and others do not."""
    same = plan("alltoall", (2, 2, 3), lambda r: [[
        op("copy", own("i", r), own("o", r)), op("ppkt", own("i", 1 - r), other("s")), op("upkt", own("s"), own("o", 1 - r)),
        op("cpkt", own("o", 1 - r), own("s", 1)), op("upkt", own("s", 1), own("o", 1 - r)),
    ]], protocol="LL")  # fmt: skip
    assert "element by element" in read(same, tmp_path).meta["notes"][0]
    ops = same["gpus"][1]["threadblocks"][0]["ops"]
    ops[3]["tbg_info"], ops[4]["tbg_info"] = ({"tb_id": 1, "tbg_size": 2} for _ in range(2))
    fault = fault_of(same, tmp_path)
    assert (fault.code, fault.place[:3]) == ("race", (1, 0, 3))


def test_what_a_rank_adds_and_sends_on_as_it_came_is_a_forwarded_sum(tmp_path):
    """Rank 0 adds what came to its own data, and sends it back as it came."""
    back = copy.deepcopy(PLANS["re"])
    for gpu, more in zip(back["gpus"], ([op("put", own("s"), other("s", 1)), *DONE], DONE)):
        gpu["scratch_chunks"] = 2
        gpu["threadblocks"][0]["ops"] += more
    found = read(back, tmp_path)
    assert verify(found).ok and found.workload.collectives[0].kind == "reducescatter"
    assert found.forwards is not None and found.forwards.tolist() == [0, 0, 1]


def test_a_rank_waits_for_what_its_threadblock_waited_for(tmp_path):
    """Rank 1 sends on a signal of rank 0, which comes after what rank 0 sends: two messages one after the other."""
    blocks = {
        0: [[op("copy", own("i"), own("o", 0)), *MEET, op("put", own("i"), other("o", 0)), *DONE]],
        1: [[op("copy", own("i"), own("o", 1)), *MEET, over("wait"), NOP, op("put", own("i"), other("o", 1)), NOP,
             over("signal")]],
    }  # fmt: skip
    found = read(plan("allgather", (1, 2, 0), blocks.get), tmp_path)
    assert [list(d) for d in (found.depends[0], found.depends[1])] == [[], [0]]
    blocks[1] = blocks[0][:]
    blocks[1] = [[op("copy", own("i"), own("o", 1)), *MEET, op("put", own("i"), other("o", 1)), *DONE]]
    together = read(plan("allgather", (1, 2, 0), blocks.get), tmp_path)
    assert simulate(found).completion_s == pytest.approx(2 * simulate(together).completion_s, rel=1e-3)


def changed(name, change):
    """A plan that is correct but for what ``change`` does to the operations of rank 1's first threadblock."""
    data = json.loads(json.dumps(PLANS[name]))  # no operation is one object twice
    change(data["gpus"][1]["threadblocks"][0]["ops"])
    return data


def with_rank_1(ops):
    blocks = [PLANS["put"]["gpus"][0]["threadblocks"][0]["ops"], ops]
    return plan("allgather", (1, 2, 0), lambda r: [blocks[r]])


FAULTS = {
    # name: plan, code, place, words
    "a signal is missing": (changed("put", lambda ops: ops.pop(6)), "deadlock", (0, 0, 7), "no signal comes from rank 1"),
    "a signal is too many": (
        changed("put", lambda ops: ops.append(over("signal"))), "left-over", None, "1 signals over memory channel 0",
    ),
    "two signals, one wait": (
        changed("put", lambda ops: ops.insert(7, over("signal"))), "left-over", None, "the next run goes on too early",
    ),
    "nobody waits before reading": (
        changed("re", lambda ops: (ops.pop(6), ops.append(over("wait")))), "race", (0, 0, 3),
        "rank 1, threadblock 0, operation 7 (re) use the same bytes of buffer s of rank 1",
    ),
    "nothing was written": (
        changed("re", lambda ops: ops.pop(3)), "contents", (0, 0, 8),
        "reads scratch of rank 0, bytes 0 to 2047, where nothing was written",
    ),
    "threads do not meet before they pass on": (
        changed("get", lambda ops: ops.pop(7)), "race", (1, 0, 6), "in no certain order",
    ),
    "a part goes to the wrong place": (
        changed("put", lambda ops: ops[4]["dst_buff"][0].update(index=0)), "contents", (1, 0, 4), "belong there",
    ),
    "a part comes from the wrong place": (
        changed("alltoall", lambda ops: ops[0]["src_buff"][0].update(index=0)), "contents", (1, 0, 0),
        "brings to the output of rank 1",
    ),
    "a contribution is left out": (
        changed("re", lambda ops: ops[8].update(name="copy")), "contents", (1, 0, 8), "a sum without rank 0",
    ),
    "a contribution counts twice": (
        changed("re", lambda ops: ops[8]["src_buff"].append(own("i", 1))), "contents", (1, 0, 8), "counts rank 1 twice",
    ),
    "parts of two sums are added": (
        changed("re", lambda ops: ops[8]["src_buff"][0].update(index=0)), "contents", (1, 0, 8), "to bytes from 0 on",
    ),
    "sums where nothing is summed": (
        changed("put", lambda ops: ops.__setitem__(0, op("re", [own("i"), own("i")], own("o", 1)))), "contents", (1, 0, 0),
        "in a collective that sums nothing",
    ),
    "an output is never written": (
        changed("put", lambda ops: ops.pop(0)), "contents", (1,), "nothing is written to the output of rank 1",
    ),
    "bytes that are not there": (
        changed("put", lambda ops: ops[0]["dst_buff"][0].update(index=2)), "bounds", (1, 0, 0),
        "uses bytes 4096 to 6143 of the output of rank 1, which has 4096",
    ),
    "get adds the offsets the other way round": (
        plan("allgather", (1, 2, 0), lambda r: gather(r, op("get", other("i"), own("o", 1 - r)), *DONE)), "bounds",
        (0, 0, 4), "uses bytes 2048 to 4095 of the input of rank 1",
    ),
    "pws over memory does not signal": (
        plan("allgather", (1, 2, 0), lambda r: gather(r, op("pws", own("i"), other("o", r)), over("wait"), NOP)), "deadlock",
        (0, 0, 5), "no signal comes from rank 1",
    ),
    "a port is not flushed before the end": (
        plan("sendrecv", (1, 1, 0), lambda r: [[*[over(o["name"], "port") if "channel_ids" in o else o for o in MEET],
                                                op("pws", own("i"), other("o"), "port", channel_ids=[0]),
                                                over("wait", "port"), NOP]]),
        "race", (0, 0, 3), "the application between two runs",
    ),
    "a channel leads elsewhere": (
        {"gpus": [{**g, "channels": [{"channel_type": "port", "connected_to": [0, 0]} if c["channel_type"] == "port" else c
                                     for c in g["channels"]]} if g["id"] == 0 else g for g in PLANS["pwsf"]["gpus"]],
         **{k: v for k, v in PLANS["pwsf"].items() if k != "gpus"}},
        "channel", (0, 0, 4), "leads to rank 0",
    ),
    "a barrier of three, and two come": (
        changed("barrier", lambda ops: ops[3].update(num_threadblocks=3)), "deadlock", (1, 0, 3), "threadblocks come to barrier 0",
    ),
    "a semaphore that nobody releases": (
        changed("semaphores", lambda ops: ops.insert(5, {"name": "sem_acquire", "semaphore_ids": [0]})), "deadlock",
        (1, 0, 5), "nobody releases semaphore 0",
    ),
    "a semaphore that ends otherwise": (
        changed("semaphores", lambda ops: ops.append({"name": "sem_release", "semaphore_ids": [0]})), "left-over", (1,),
        "begins with 0 and ends with 1",
    ),
    "a wait for two signals over one channel, and one comes": (
        changed("put", lambda ops: ops[7].update(channel_ids=[0, 0])), "deadlock", (1, 0, 7), "no signal comes from rank 0",
    ),
    "packets that nobody sends": (
        changed("ppkt", lambda ops: ops.pop(1)), "deadlock", (0, 0, 2), "packets do not come to bytes 0 to 2047",
    ),
    "packets over those of the run before": (
        {**PLANS["gstorepkt"], "use_double_scratch_buffer": False}, "race", (0, 0, 1), "packets in scratch",
    ),
    "two wait for each other": (
        plan("allgather", (1, 2, 0), lambda r: gather(r, op("put", own("i"), other("o", r)), NOP, over("wait"),
                                                      over("signal"), NOP)),
        "deadlock", (0, 0, 6), "in a circle",
    ),
    "a reduction that the loader does not know": (
        plan("allreduce", (2, 2, 0), lambda r: [[op("glre", shared(r), own("i", r), "switch")]]), "load", (0, 0, 0),
        "knows no operation 'glre'",
    ),
    "a reduction that is no sum": (
        changed("rres", lambda ops: ops[3].update(reduce_op="max")), "sum", (1, 0, 3), "asks for max",
    ),
    "more entries than there is room for": (
        changed("put", lambda ops: ops[4].update(src_buff=[own("i")] * 11, dst_buff=[other("o", 1)] * 11)), "limit",
        (1, 0, 4), "has 11 entries of src_buff, and the executor's arrays hold 10",
    ),
    "more operations than there is room for": (
        changed("put", lambda ops: ops.extend([NOP] * 60)), "limit", (1, 0), "the executor's arrays hold 64",
    ),
    "no chunks": (plan("allreduce", (2, 0, 0), lambda r: []), "load", (0,), "divides by output_chunks"),
    "packets in a buffer that is not scratch": (
        changed("ppkt", lambda ops: ops[1]["dst_buff"][0].update(buffer_id=1)), "packets", (1, 0, 1), "not scratch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_at_its_step(name, tmp_path):
    data, code, place, words = FAULTS[name]
    fault = fault_of(data, tmp_path)
    assert (fault.code, words in fault.message) == (code, True), fault
    assert "\n" not in str(fault)
    if place is not None:
        assert tuple(fault.place)[: len(place)] == place


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": 3}, "'gpus' must be a list of objects"),
        ({"collective": None}, "'collective' must be text"),
        ({"gpus": []}, "has 0 gpus"),
        ({"min_message_size": 1 << 20}, "takes messages of 1048576"),
        ({"inplace": 1}, "'inplace' must be true or false"),
    ],
)
def test_what_is_no_plan_is_no_fault(change, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        read(PLANS["put"] | change, tmp_path)
    assert not isinstance(caught.value, Fault)


def test_sizes_are_those_that_the_loader_takes(tmp_path):
    with pytest.raises(InputError, match="must be a multiple of 32 bytes, and 4097 is none"):
        read(PLANS["put"], tmp_path, Size(4097, None))
    with pytest.raises(InputError, match="below 4 GiB"):
        read(PLANS["put"], tmp_path, Size(1 << 34, None))


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "alltoall"])
def test_what_we_export_we_find_correct(kind, tmp_path):
    net = load_topology("fullmesh:3")
    planner = "ring" if kind != "alltoall" else "pairwise"
    original = run_planner(planner, net, Workload((make_collective(kind, net, 4608),)))
    path = tmp_path / "plan.json"
    exporters()["mscclpp"].write(simulate(original), str(path))
    found = importers()["mscclpp"].read(str(path), net, Size(4608, None))
    assert verify(found).ok and "deadlocks or races: proved" in found.meta["notes"][0]
    assert found.size_bytes.sum() == original.size_bytes.sum()


def run(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.app([*arguments], standalone_mode=False) or 0
    return code, out.getvalue()


def test_the_command_line_says_time_bound_and_distance(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLANS["rres"]))
    code, text = run("import", str(path), "--from", "mscclpp", "--size", "4096", "--json")
    data = json.loads(text)
    assert code == 0 and data["verified"] and data["completion_over_bound"] >= 1
    assert data["completion_s"] == pytest.approx(data["bound_s"] * data["completion_over_bound"])
    assert data["topology"].startswith("star:2?bandwidth=450GB/s")


def test_the_command_line_ends_with_1_and_the_step(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(FAULTS["a signal is missing"][0]))
    code, text = run("import", str(path), "--from", "mscclpp", "--size", "4096", "--json")
    data = json.loads(text)
    assert (code, data["verified"], data["finding"]["code"]) == (1, False, "deadlock")
    assert (data["finding"]["rank"], data["finding"]["threadblock"], data["finding"]["operation"]) == (0, 0, 7)
    code, text = run("import", str(path), "--from", "mscclpp", "--size", "4096")
    assert code == 1 and text.count("\n") == 1 and "rank 0, threadblock 0, operation 7: waits for ever" in text
