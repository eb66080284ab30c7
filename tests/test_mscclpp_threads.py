"""What MSCCL++ takes for its execution plans."""

from __future__ import annotations

import json

import pytest

from stretto.choose.exports import write_table
from stretto.choose.programs import read_back, run_s
from stretto.choose.tuning import Range, Tuning, digest_of, plan_one
from stretto.formats import exporters
from stretto.formats.mscclpp_json import read_program
from stretto.formats.mscclpp_threads import copies_of
from stretto.model.collective import make_collective
from stretto.model.errors import InputError
from stretto.model.targets import TARGETS
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology

MSCCLPP = exporters()["mscclpp"]


def written(net: str, kind: str, planner: str, size: int, folder):
    topology = assume_messages(load_topology(net))
    plan = plan_one(planner, topology, make_collective(kind, topology, size), 0, target=TARGETS["mscclpp"])
    path = str(folder / "plan.json")
    timeline = simulate(plan)
    MSCCLPP.write(timeline, path)
    return timeline.completion_s, path, plan.topology


@pytest.mark.parametrize(
    ("net", "kind", "planner", "size"),
    [("ring:4", "allreduce", "ring", 1 << 20), ("fullmesh:3", "alltoall", "pairwise", 3 << 16),
     ("ring:3", "reducescatter", "ring", 3 << 16)],
)  # fmt: skip
def test_where_nothing_waits_for_anything_else_it_takes_what_the_plan_takes(net, kind, planner, size, tmp_path):
    takes_s, path, topology = written(net, kind, planner, size, tmp_path)
    threads = read_back(path, MSCCLPP, topology)
    assert run_s(threads, size) == pytest.approx(takes_s, rel=1e-3)
    assert run_s(threads, 16 * size) > 1.5 * run_s(threads, size)


def test_threadblocks_side_by_side_count_as_one(tmp_path):
    """A ring of two ranks with wide links: the exporter lets each threadblock stand several times."""
    takes_s, path, topology = written("ring:2?bandwidth=200GB/s", "allgather", "ring", 1 << 20, tmp_path)
    program = read_program(path)
    assert copies_of(program) > 1
    threads = read_back(path, MSCCLPP, topology)
    assert threads.plan.transfer_count == 2
    assert run_s(threads, 1 << 20) == pytest.approx(takes_s, rel=1e-3)


def test_sizes_that_the_file_is_not_for_cannot_run(tmp_path):
    _, path, topology = written("ring:3", "allgather", "ring", 3 << 10, tmp_path)
    threads = read_back(path, MSCCLPP, topology)
    assert run_s(threads, 16) == run_s(threads, 1 << 40) == float("inf")


def test_a_file_that_waits_for_nothing_is_found(tmp_path):
    _, path, topology = written("line:3", "allgather", "shortest-path", 3 << 10, tmp_path)
    with open(path) as file:
        data = json.load(file)
    for gpu in data["gpus"]:
        for block in gpu["threadblocks"]:
            block["ops"] = [{"name": "nop"} if op["name"] == "wait" else op for op in block["ops"]]
    with open(path, "w") as file:
        json.dump(data, file)
    with pytest.raises(InputError):
        read_back(path, MSCCLPP, topology)


def test_a_table_becomes_plans_for_ranges_of_message_sizes(tmp_path):
    net = assume_messages(load_topology("ring:3"))
    row = Range("allreduce", 0, None, "ring", 1, ((4_000, 1.0), (1_000_000, 1.0)))
    table = Tuning("ring:3", digest_of(net), 0, 0, False, (row,), "mscclpp")
    for entry in write_table(table, net, MSCCLPP, str(tmp_path)):
        program = read_program(str(tmp_path / entry["file"]))
        assert program.least_bytes == entry["from_bytes"] and program.most_bytes <= entry["to_bytes"] - 1
        assert all(end["program_s"] <= 1.05 * end["table_s"] for end in entry["ends"])
    assert entry["to_bytes"] == (2 << 30) + 1
