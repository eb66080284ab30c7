"""Files of some ranks, and of plans by symmetry that are not expanded for them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from stretto.formats import blocks, exporters
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, StrettoError, Unsupported
from stretto.model.symmetric import SymmetricPlan
from stretto.model.targets import TARGETS
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from symmetric_networks import h100
from symmetric_plans import examples, random_plan

EXAMPLES = examples(0)
BY_RANK = ("chakra", "csv", "trace")


def fresh(plan: SymmetricPlan) -> SymmetricPlan:
    """The same plan, not yet expanded."""
    return SymmetricPlan(plan.part, plan.orbits, plan.meta)


def written(folder, timeline, name: str, **how) -> dict[str, str | bytes]:
    """The files that an exporter writes, by name; or why it writes none."""
    folder.mkdir()
    try:
        exporters()[name].write(timeline, str(folder / "x"), **how)
    except StrettoError as error:
        return {"refused": str(error)}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", EXAMPLES)
def test_files_of_plans_by_symmetry_are_those_of_the_expanded_plan(name, tmp_path, monkeypatch):
    plan = EXAMPLES[name]
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 50)
    course = simulate(plan.expand())
    for to in BY_RANK:
        ours = fresh(plan)
        whole, by_symmetry = written(tmp_path / f"{to} whole", course, to), written(tmp_path / to, simulate(ours), to)
        assert by_symmetry.keys() == whole.keys()
        if to == "trace":
            by_symmetry, whole = ({"x": events(files["x"])} for files in (by_symmetry, whole))
        assert by_symmetry == whole
        assert "expanded" not in vars(ours)


def events(text: bytes) -> list[str]:
    return sorted(map(json.dumps, json.loads(text)["traceEvents"]))


def plan_on(spec: str, kind: str, planner: str):
    net = load_topology(spec)
    return run_planner(planner, net, Workload((make_collective(kind, net, 72_000),)))


@pytest.mark.parametrize("case", [("torus:3x3", "allreduce", "scale-ccl"), ("dgx1", "alltoall", "shortest-path")])
def test_traces_of_some_ranks_are_among_those_of_all(case, tmp_path):
    timeline = simulate(plan_on(*case))
    whole = written(tmp_path / "whole", timeline, "chakra")
    some = written(tmp_path / "some", timeline, "chakra", ranks=[2, 5])
    assert some == {name: whole[name] for name in ("x.2.et", "x.5.et")}


@pytest.mark.parametrize(
    "plan",
    [plan_on("torus:3x3", "allreduce", "scale-ccl"), EXAMPLES["allgather on rails"], EXAMPLES["alltoall on mesh"]],
)
def test_tables_of_some_ranks_have_what_these_send_and_receive(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 7)
    timeline, names = simulate(plan), plan.topology.names
    for ranks in (None, [1, 3]):
        exporters()["csv"].write(timeline, str(tmp_path / f"{ranks}"), ranks=ranks)
    whole, some = (list(csv.DictReader((tmp_path / name).open())) for name in ("None", "[1, 3]"))
    chosen = {names[plan.workload.collectives[0].ranks[rank]] for rank in (1, 3)}
    touched = {row["transfer"] for row in whole if chosen & {*row["src"].split(), row["dst"]}}
    assert some == [row for row in whole if row["transfer"] in touched]
    assert 0 < len(some) < len(whole)


def test_interpreted_and_compiled_kernels_write_one_trace(tmp_path, monkeypatch):
    timeline, found = simulate(EXAMPLES["allreduce on rails"]), []
    for mode in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", mode)
        found.append(written(tmp_path / mode, timeline, "chakra"))
    assert len(found[0]) == 6
    assert found[0] == found[1]


def test_a_trace_of_some_ranks_has_their_slices(tmp_path):
    timeline = simulate(plan_on("torus:3x3", "allreduce", "scale-ccl"))
    exporters()["trace"].write(timeline, str(tmp_path / "t"), ranks=[4])
    found = json.loads((tmp_path / "t").read_text())["traceEvents"]
    slices = [e["args"] for e in found if e["ph"] == "X"]
    assert slices
    assert all("gpu4" in (e["src"], *e["dst"]) for e in slices)
    tracks = {e["tid"] for e in found if e["ph"] == "M" and e["name"] == "thread_name"}
    assert tracks == {e["tid"] for e in found if e["ph"] == "X"}


def test_a_plan_without_optical_planes_is_not_expanded_to_say_so(tmp_path):
    plan = fresh(EXAMPLES["allreduce on rails"])
    with pytest.raises(InputError, match="no optical planes"):
        exporters()["cross-connects"].write(simulate(plan), str(tmp_path / "x"))
    assert "expanded" not in vars(plan)


def test_tables_that_are_too_large_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    plan = fresh(random_plan(h100(4), "alltoall", 64_000, 1))
    monkeypatch.setattr("stretto.model.memory.memory_bytes", lambda: 10_000)
    for to in ("csv", "trace"):
        with pytest.raises(InputError, match=r"transfers need about .*; write those of some ranks") as error:
            exporters()[to].write(simulate(plan), str(tmp_path / "x"))
        assert "\n" not in str(error.value)
        assert list(tmp_path.iterdir()) == []
    exporters()["csv"].write(simulate(plan), str(tmp_path / "x"), ranks=[3])


def test_more_messages_than_tags_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("stretto.formats.chakra.MOST_MESSAGES", 30)
    with pytest.raises(Unsupported, match="messages, and tags go up to 30; use fewer chunks"):
        exporters()["chakra"].write(simulate(fresh(EXAMPLES["allreduce on rails"])), str(tmp_path / "x"))


def test_a_program_that_msccl_cannot_hold_is_refused_before_its_steps_are_made(tmp_path, monkeypatch):
    plan = fresh(EXAMPLES["allreduce on rails"])
    monkeypatch.setattr("stretto.formats.msccl.TARGET", replace(TARGETS["msccl"], elements=20))
    with pytest.raises(Unsupported, match=r"rank 0 has more than the 20 .*; use fewer chunks or ranks: it sends"):
        exporters()["msccl"].write(simulate(plan), str(tmp_path / "x"))
    assert "expanded" not in vars(plan)
