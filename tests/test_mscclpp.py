"""MSCCL++ execution plans: what MSCCL++'s loader requires, and what they compute, run on NumPy buffers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from mscclpp_executor import check_loads, execute
from stretto.formats import Size, exporters
from stretto.formats.mscclpp_in import referee
from stretto.formats.mscclpp_json import read_program
from stretto.formats.steps import parts_of
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Fault, Unsupported
from stretto.model.targets import TARGETS
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


@pytest.mark.parametrize(
    ("planner", "kind", "net"),
    one_in(
        2,
        ["mtegcca", "shortest-path", "scale-ccl", "ring", "nccl", "forest"],
        ["allgather", "reducescatter", "allreduce", "alltoall"],
        ["dgx1", "ndv2:2", "torus:4x4"],
    ),
)
def test_the_plan_computes_its_collective(net, kind, planner, tmp_path):
    topology = load_topology(net)
    n = len(topology.accelerators)
    try:
        plan = run_planner(planner, topology, Workload((make_collective(kind, topology, 64 * n),)))
        path = tmp_path / "plan.json"
        exporters()["mscclpp"].write(simulate(plan), str(path))
    except Unsupported as refused:
        pytest.skip(str(refused))
    data = json.loads(path.read_text())
    assert data["min_message_size"] == 0 and data["max_message_size"] % (16 * data["gpus"][0]["input_chunks"]) == 0
    k = parts_of(plan.workload.collectives[0], TARGETS["mscclpp"]).number
    rows = {"allgather": k, "allreduce": k}.get(kind, n * k)
    copies, rest = divmod(data["gpus"][0]["input_chunks"], rows)  # a chunk is cut where the program runs several times
    assert rest == 0
    k, rows = k * copies, rows * copies
    inputs = [np.random.default_rng(r).integers(0, 10**6, (rows, 3)) for r in range(n)]
    total = sum(inputs)
    for r, output in enumerate(execute(data, inputs, 1)):
        wanted = {
            "allgather": lambda: np.concatenate(inputs),
            "allreduce": lambda: total,
            "reducescatter": lambda r=r: total[r * k : (r + 1) * k],
            "alltoall": lambda r=r: np.concatenate([i[r * k : (r + 1) * k] for i in inputs]),
        }[kind]()
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("net", ["star:4", "sites:2,2"])
@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
@pytest.mark.parametrize("planner", ["shortest-path", "ring"])
def test_notes_allow_one_buffer_where_the_addresses_of_the_executor_are_right_in_one(net, kind, planner, tmp_path):
    topology = load_topology(net)
    path = str(tmp_path / "plan.json")
    workload = Workload((make_collective(kind, topology, 4 << 20),))
    notes = exporters()["mscclpp"].write(simulate(run_planner(planner, topology, workload)), path)
    try:
        referee(replace(read_program(path), inplace=True), path, Size(4 << 20, None))
        right = True
    except Fault:
        right = False
    assert ("input and output may be one buffer" in notes) == right
    assert right == (net != "sites:2,2" or kind != "allgather"), "the executor adds no offset to sources of ports"


@pytest.mark.parametrize(("kind", "net"), [("broadcast", "dgx1"), ("reduce", "dgx1"), ("alltoall", "star:20")])
def test_ranks_without_input_or_output_and_many_peers_are_within_what_the_loader_takes(kind, net, tmp_path):
    topology = load_topology(net)
    plan = run_planner("shortest-path", topology, Workload((make_collective(kind, topology, 64 * 20),)))
    path = tmp_path / "plan.json"
    exporters()["mscclpp"].write(simulate(plan), str(path))
    check_loads(json.loads(path.read_text()))
