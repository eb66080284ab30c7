"""What is made of plans: of a plan by symmetry the same as of the plan that its images make."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stretto.bounds import bounds
from stretto.choose.replan import replan
from stretto.cli import app
from stretto.face.objects import of_model
from stretto.formats import exporters
from stretto.formats.native import write_plan
from stretto.model.errors import InputError, StrettoError
from stretto.model.plan import Plan
from stretto.model.telemetry import Telemetry
from stretto.report.columns import unpack_columns
from stretto.report.data import page_data
from stretto.runtime.local import run_local
from stretto.simulate import simulate
from symmetric_networks import h100
from symmetric_plans import examples, random_plan

EXAMPLES = {name: plan for name, plan in examples(0).items() if "h100" not in name}
FEW = ["allreduce on mesh", "alltoall on rails", "allgather of rails", "reducescatter with a rank that stays"]


def outcome(write, plan: Plan, folder: Path) -> object:
    """What is in the files that are written, or why there are none."""
    folder.mkdir()
    try:
        write(simulate(plan), str(folder / "out"))
    except StrettoError as error:
        return str(error).replace(str(folder), "")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("format", sorted({e.name for e in exporters().values()} - {"json", "parquet"}))
def test_exports_are_the_same(format, name, tmp_path):
    plan, write = EXAMPLES[name], exporters()[format].write
    assert outcome(write, plan, tmp_path / "a") == outcome(write, plan.expand(), tmp_path / "b")


@pytest.mark.parametrize("name", EXAMPLES)
def test_tables_and_pages_are_the_same(name):
    plan = EXAMPLES[name]
    ours, theirs = of_model(plan), of_model(plan.expand())
    assert ours.to_pandas().equals(theirs.to_pandas())
    pages = [page_data(p.simulate(), p._limits) for p in (ours, theirs)]
    # bytes of links count each chunk as its orbit's largest
    for page in pages:
        for column in ("bytes", "use"):
            page["links"].pop(column)
    assert pages[0] == pages[1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_summaries_are_the_same(name):
    plan = EXAMPLES[name]
    ours, theirs = of_model(plan).summary(), of_model(plan.expand()).summary()
    g = plan.symmetry
    facts = {"elements": g.size, "orders": g.orders.tolist(), "representatives": plan.part.transfer_count}
    assert ours.pop("symmetry") == facts
    assert ours.pop("digest") != theirs.pop("digest")
    cut_unevenly = len(np.unique([c.chunk_count // c.piece_count for c in plan.workload.collectives])) > 1
    assert ours == theirs or cut_unevenly


@pytest.mark.parametrize("name", FEW)
def test_the_rest_of_them_is_the_same(name):
    plan = EXAMPLES[name]
    news = Telemetry(at_s=simulate(plan).completion_s / 2, bandwidth={0: 0.5e9})
    ours, theirs = (replan(p, news, planner="greedy") for p in (plan, plan.expand()))
    assert ours.plan.digest() == theirs.plan.digest()
    assert ours.delivered == theirs.delivered


@pytest.mark.parametrize("name", ["allreduce on mesh", "alltoall on ring"])
def test_they_run_with_real_bytes(name):
    assert not run_local(EXAMPLES[name]).wrong


def test_commands_take_their_files(tmp_path):
    path, runner = tmp_path / "plan.parquet", CliRunner()
    plan = EXAMPLES["alltoall on rails"]
    write_plan(plan, str(path))
    for command in ("verify", "simulate", "show"):
        result = runner.invoke(app, [command, str(path), "--json"])
        assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["symmetry"]["elements"] == 6
    assert [row["transfer"] for row in shown["transfer_rows"]] == list(range(0, 60, 6))
    plain = plan.expand()
    for row in shown["transfer_rows"]:
        k = row["transfer"]
        assert row["chunk"] == plain.chunk[k] and row["depends"] == plain.depends[k].tolist()


def test_what_does_not_fit_into_memory_is_refused_in_one_line(monkeypatch):
    plan = random_plan(h100(4), "alltoall", 64_000, 1)
    monkeypatch.setattr("stretto.model.memory.memory_bytes", lambda: 10_000)
    for use, what in (
        (plan.expand, r"elements of the symmetry: .* need about"),
        (lambda: exporters()["csv"].write(simulate(plan), "/dev/null"), "need about .*; write those of some ranks"),
        (lambda: exporters()["mscclpp"].write(simulate(plan), "/dev/null"), "need about .*; plan in fewer chunks"),
    ):
        with pytest.raises(InputError, match=what) as error:
            use()
        assert "\n" not in str(error.value)


def unpacked(text: str, kind: type) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


@pytest.mark.parametrize("name", ["allreduce on rails", "alltoall on mesh", "allgather of rails"])
def test_pages_of_large_ones_show_a_link_of_each_orbit(name, monkeypatch):
    plan = EXAMPLES[name]
    work = plan.workload
    whole = page_data(simulate(plan.expand()), bounds(plan.topology, work))
    monkeypatch.setattr("stretto.report.by_orbits.MOST_EXPANDED", 0)
    monkeypatch.setattr(type(plan), "expand", None)
    page = page_data(simulate(plan), bounds(plan.topology, work))
    links = np.unique(plan.symmetry.link_orbits)
    bins = (unpacked(p["links"]["bins"], np.uint8).reshape(-1, p["binCount"]).astype(int) for p in (page, whole))
    ours, theirs = bins
    # bytes of links count each chunk as its orbit's largest
    assert np.abs(ours - theirs[links]).max() <= 1
    assert unpacked(page["links"]["src"], np.int32).tolist() == plan.topology.src[links].tolist()
    assert page["completion"] == whole["completion"]
    assert page["delivered"]["total"] == pytest.approx(whole["delivered"]["total"], rel=0.01)
    assert f"Each of the {len(links)} links shown" in page["notes"][0]
    # the network has all links, each in the colour of its row
    rows = np.concatenate((np.arange(len(links)), unpacked(page["alike"]["row"], np.int32)))
    ends = [np.concatenate([unpacked(page[k][end], np.int32) for k in ("links", "alike")]) for end in ("src", "dst")]
    drawn = sorted(zip(*(e.tolist() for e in ends), links[rows].tolist(), strict=True))
    net = plan.topology
    assert drawn == sorted(zip(net.src.tolist(), net.dst.tolist(), plan.symmetry.link_orbits.tolist(), strict=True))
    # a bar of the representatives is on its row when images are on that link
    for row, link in enumerate(links.tolist()):
        bars, images = begins_on(page, row), begins_on(whole, link)
        assert len(bars) * plan.symmetry.copies[link] == len(images)
        assert np.unique(bars.round(9)).tolist() == pytest.approx(np.unique(images.round(9)).tolist(), abs=2e-9)


def begins_on(page: dict, link: int) -> np.ndarray:
    """When the hops on a link begin, seconds."""
    hops = unpack_columns(page["hops"])
    begins = np.repeat(hops["start"], hops["hops"]) + hops["offset"]
    return begins[hops["link"] == link] * page["hops"]["tick"]
