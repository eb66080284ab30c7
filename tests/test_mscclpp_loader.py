"""MSCCL++'s own loader and language read what we export. Runs where MSCCLPP_SOURCE names a clone of microsoft/mscclpp."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stretto.formats import exporters, mscclpp
from stretto.formats.mscclpp_of_plan import plan_of
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

SPEC = importlib.util.spec_from_file_location(
    "mscclpp_loader", Path(__file__).parents[1] / "benchmarks/mscclpp_loader.py"
)
assert SPEC is not None and SPEC.loader is not None
mscclpp_loader = importlib.util.module_from_spec(SPEC)
sys.modules["mscclpp_loader"] = mscclpp_loader
SPEC.loader.exec_module(mscclpp_loader)


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    try:
        return mscclpp_loader.build(tmp_path_factory.mktemp("loader"))
    except mscclpp_loader.Missing as missing:
        pytest.skip(str(missing))


def timeline(net: str, kind: str, planner: str):
    topology = load_topology(net)
    collective = make_collective(kind, topology, len(topology.accelerators) << 20)
    return simulate(run_planner(planner, topology, Workload((collective,))))


CASES = [
    ("ring:4", "allreduce", "ring"),
    ("ring:4", "alltoall", "shortest-path"),
    ("dgx1", "reduce", "nccl"),
    ("ndv2:2", "allgather", "mtegcca"),
    ("star:20", "allreduce", "shortest-path"),
]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_loader_makes_of_a_plan_what_was_meant_and_the_language_the_same_plan(case, loader, tmp_path):
    row = mscclpp_loader.row_of(loader, tmp_path, *case)
    assert row["difference"] is None and row["language"]


def test_a_damaged_plan_is_told_from_the_one_that_was_meant(loader, tmp_path):
    plan, _, _ = plan_of(timeline("ring:4", "allreduce", "ring"))
    form = mscclpp.to_json(plan)
    form["gpus"][2]["threadblocks"][0]["ops"][3]["dst_buff"][0]["index"] += 1
    (tmp_path / "plan.json").write_text(json.dumps(form))
    said = mscclpp_loader.difference(plan, mscclpp_loader.load(loader, tmp_path / "plan.json", plan))
    assert "rank 2, threadblock 0, operation 3" in said


def test_sizes_beyond_what_a_plan_says_are_refused(loader, tmp_path):
    plan, _, _ = plan_of(timeline("ring:4", "allreduce", "ring"))
    plan = replace(plan, most_bytes=plan.gpus[0].inputs << 10)
    (tmp_path / "plan.json").write_text(json.dumps(mscclpp.to_json(plan)))
    first = [mscclpp_loader.load(loader, tmp_path / "plan.json", plan, size)[0] for size in (1 << 10, 1 << 11, 24)]
    assert ["refused" in rank for rank in first] == [False, True, True]


SELECT = """
import runpy, sys, types
package = types.ModuleType("mscclpp")
package.__path__ = [sys.argv[1]]
sys.modules["mscclpp"] = package
own = runpy.run_path(sys.argv[2])
known = {own["COLLECTIVE"]: {own["SPEC"].name: "ours"}}
mode = types.SimpleNamespace(name="OUT_OF_PLACE")
def ask(**more):
    facts = dict(collective="allreduce", world_size=4, message_size=own["UNIT"], input_buffer=1, output_buffer=1)
    return own["select"](known, types.SimpleNamespace(buffer_mode=lambda: mode, **(facts | more)))
print([ask(), ask(world_size=8), ask(collective="allgather"), ask(message_size=own["UNIT"] + 16)])
"""


def test_the_selector_takes_what_the_plan_is_for(loader, tmp_path):
    exporters()["mscclpp-dsl"].write(timeline("ring:4", "allreduce", "ring"), str(tmp_path / "program.py"))
    folder = mscclpp_loader.source() / "python/mscclpp"
    command = [sys.executable, "-c", SELECT, str(folder), str(tmp_path / "program.py")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.stdout == "['ours', None, None, None]\n", made.stderr
