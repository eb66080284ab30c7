"""Schedules of others, read as plans: what they say, how long they take, and what damage comes to."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from stretto import cli
from stretto.formats import Size, exporters, importers
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, StrettoError, Unsupported
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

THREE_MB = Size(3_000_000, None)
TECCL = {
    "1-Epoch_Duration": 1e-3,
    "4-Collective_Finish_Time": 0.004,
    "6-Demand_Met": {f"GPU {d}": {f"GPU {s}": {"Chunk 0": 0.001} for s in range(3) if s != d} for d in range(3)},
    "7-Flows": [
        "Chunk 0 from 0 traveled over 0->1 in epoch 0",
        "Chunk 0 from 1 traveled over 1->2 in epoch 0",
        "Chunk 0 from 2 traveled over 2->1 in epoch 0",
        "Chunk 0 from 0 traveled over 1->2 in epoch 1",
        "Chunk 0 from 1 traveled over 1->0 in epoch 0",
        "Chunk 0 from 2 traveled over 1->0 in epoch 1",
    ],
}
SWITCHED = {
    "6-Demand_Met": TECCL["6-Demand_Met"],
    "7-Flows": [
        f"Chunk 0 from {s} traveled over {s}->{d} in epoch {s} via switches 3"
        for s in range(3)
        for d in range(3)
        if s != d
    ],
}
# two ranks, in place: both send their sum of the other's half, then the halves back
XML = """<algo name="x" nchannels="1" nchunksperloop="2" proto="Simple" ngpus="2" coll="allreduce" inplace="1">
<gpu id="0" i_chunks="2" o_chunks="0" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
<gpu id="1" i_chunks="2" o_chunks="0" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu></algo>"""


def read(text, source, net, tmp_path, size=THREE_MB):
    path = tmp_path / "schedule"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return importers()[source].read(str(path), load_topology(net), size)


def test_a_schedule_of_teccl_is_timed_again(tmp_path):
    plan = read(TECCL, "teccl", "line:3?bandwidth=1GB/s&latency=0us", tmp_path)
    assert verify(plan).ok and plan.workload.collectives[0].kind == "allgather"
    assert simulate(plan).completion_s == pytest.approx(2e-3)


def test_what_leaves_together_through_a_switch_is_one_transfer(tmp_path):
    net = {"name": "star", "nodes": [{"id": i} for i in range(3)] + [{"id": 3, "kind": "switch"}],
           "links": [{"src": a, "dst": b, "bandwidth_GBps": 1, "latency_us": 0} for i in range(3) for a, b in ((i, 3), (3, i))]}  # fmt: skip
    file = tmp_path / "star.json"
    file.write_text(json.dumps(net))
    plan = read(SWITCHED, "teccl", str(file), tmp_path)
    assert plan.transfer_count == 3 and verify(plan).ok
    queued = read(SWITCHED, "teccl-queued", str(file), tmp_path)
    assert queued.transfer_count == 9 and verify(queued).ok
    assert simulate(queued).completion_s == pytest.approx(2e-3)


@pytest.mark.parametrize(("solver", "ms"), [("Fast", 62.51), ("Fast_Early_Stop", 73.76), ("Slow", 63.75)])
def test_the_shipped_schedules_take_what_they_should(solver, ms):
    """Of microsoft/TE-CCL, where TECCL_SCHEDULES names its folder output_provided."""
    folder = os.environ.get("TECCL_SCHEDULES")
    if not folder:
        pytest.skip("TECCL_SCHEDULES does not name a folder with TE-CCL's schedules")
    path = Path(folder) / "NDv2_output" / "4_chassis" / "AllGather" / solver / "1GB.json"
    plan = importers()["teccl-queued"].read(str(path), load_topology("ndv2:4"), Size(None, 31_250_000))
    assert verify(plan).ok
    assert simulate(plan).completion_s * 1e3 == pytest.approx(ms, abs=0.006)


def test_msccl_in_place_with_fused_steps(tmp_path):
    plan = read(XML, "msccl", "ring:2?bandwidth=1GB/s&latency=0us", tmp_path, Size(2_000_000, None))
    assert verify(plan).ok
    assert plan.op.tolist() == [1, 1, 0, 0]
    assert simulate(plan).completion_s == pytest.approx(2e-3)


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce"])
@pytest.mark.parametrize("net", ["dgx1", "torus:3x3"])
@pytest.mark.parametrize("planner", ["mtegcca", "shortest-path", "scale-ccl", "ring", "nccl"])
def test_what_we_export_we_read(kind, net, planner, tmp_path):
    topology = load_topology(net)
    workload = Workload((make_collective(kind, topology, 72_000, chunks=2),))
    try:
        plan = run_planner(planner, topology, workload)
    except Unsupported as refused:
        pytest.skip(str(refused))
    path = tmp_path / "plan.xml"
    exporters()["msccl"].write(simulate(plan), str(path))
    back = importers()["msccl"].read(str(path), topology, Size(72_000, None))
    assert verify(back).ok
    assert back.transfer_count == len(plan.dst.values)
    assert sorted(back.chunk.tolist()) == sorted(plan.chunk[plan.dst.owners].tolist())


@pytest.mark.parametrize(
    ("source", "text", "words"),
    [
        ("teccl", [], "no list"),
        ("teccl", {**TECCL, "7-Flows": ["x"]}, "flow 0"),
        ("teccl", {**TECCL, "7-Flows": ["Chunk 0 from 0 traveled over 0->1 with volume 0.5 in epoch 0"]}, "0.5 of a chunk"),
        ("teccl", {**TECCL, "7-Flows": ["Chunk 0 from 0 traveled over 0->2 in epoch 0"]}, "does not have"),
        ("teccl", {**TECCL, "7-Flows": ["Chunk 0 from 0 traveled over 1->2 in epoch 0"]}, "before it has it"),
        ("teccl", {**TECCL, "7-Flows": ["Chunk 7 from 0 traveled over 1->2 in epoch 0"]}, "nobody wants"),
        ("teccl", {"7-Flows": []}, "who gets what"),
        ("msccl", "<x/>", "no <algo>"),
        ("msccl", XML.replace("allreduce", "all"), "none of"),
        ("msccl", XML.replace('type="rrcs"', 'type="rrcs" '.replace("rrcs", "r")), "stuck"),
        ("msccl", XML.replace('depid="-1" deps="-1"', 'depid="0" deps="2"', 1), "stuck"),
        ("msccl", XML.replace('cnt="1"', 'cnt="999999999"', 1), "moves more than"),
        ("msccl", XML.replace('nchunksperloop="2"', 'nchunksperloop="1000000000000"'), "nchunksperloop"),
        ("msccl", XML.replace('srcoff="1"', 'srcoff="7"', 1), "nothing is"),
        ("msccl", '<!DOCTYPE b [<!ENTITY a "a"><!ENTITY b "&a;&a;">]><algo>&b;</algo>', "not accepted"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(source, text, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read(text, source, "line:3" if source == "teccl" else "ring:2", tmp_path)


def test_a_way_through_accelerators_is_refused(tmp_path):
    text = XML.replace('ngpus="2"', 'ngpus="3"').replace("</algo>", '<gpu id="2"/></algo>')
    net = {"nodes": [{"id": i} for i in range(3)],
           "links": [{"src": a, "dst": b, "bandwidth_GBps": 1, "latency_us": 0} for a, b in ((0, 2), (2, 0), (1, 2), (2, 1))]}  # fmt: skip
    file = tmp_path / "net.json"
    file.write_text(json.dumps(net))
    with pytest.raises(InputError, match="only through other accelerators"):
        read(text, "msccl", str(file), tmp_path)


@pytest.mark.parametrize(("source", "whole", "net"), [("teccl", json.dumps(TECCL), "line:3"), ("msccl", XML, "ring:2")])
def test_damaged_schedules_are_read_or_refused(source, whole, net, tmp_path):
    """Bit flips, cuts, doubled parts and huge numbers: a plan that the verifier judges, or an InputError."""
    rng = random.Random(source)
    for _ in range(300):
        text = list(whole)
        for _ in range(rng.randint(1, 3)):
            at, what = rng.randrange(len(text)), rng.random()
            if what < 0.4:
                text[at] = chr(ord(text[at]) ^ (1 << rng.randrange(7)))
            elif what < 0.6:
                text[at : at + rng.randrange(60)] = []
            elif what < 0.8:
                text[at:at] = text[at : at + rng.randrange(200)]
            else:
                text[at:at] = list(rng.choice(["1e999", "-1", "9" * 30, "nan", "\x00", "[" * 50]))
            text = text or ["x"]
        try:
            verify(read("".join(text), source, net, tmp_path))
        except StrettoError:
            continue


def test_the_command_imports(tmp_path):
    from typer.testing import CliRunner

    from stretto.cli import app

    path, out = tmp_path / "x.xml", tmp_path / "plan.parquet"
    path.write_text(XML)
    asked = ["import", str(path), "--from", "msccl", "-t", "ring:2", "--size", "2MB", "-o", str(out), "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0 and json.loads(done.stdout)["verified"] is True
    assert CliRunner().invoke(app, ["verify", str(out)]).exit_code == 0


def test_a_program_that_gets_stuck_ends_with_1(tmp_path, capsys):
    path = tmp_path / "stuck.xml"
    path.write_text(XML.replace('type="s"', 'type="nop"'))
    command = ["import", str(path), "--from", "msccl", "-t", "ring:2", "--size", "2MB", "--json"]
    assert cli.app(command, standalone_mode=False) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verified"], data["finding"]["code"]) == (False, "deadlock")
    assert "gpu 0, tb 0" in data["finding"]["message"]
    path.write_text(XML)
    assert not cli.app(command, standalone_mode=False)
    data = json.loads(capsys.readouterr().out)
    assert data["verified"] and data["completion_s"] == pytest.approx(data["bound_s"] * data["completion_over_bound"])
