"""Tables of tuning as programs: each file keeps, as its runtime runs it, what the table says for its sizes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import groupby, pairwise
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from msccl_clock import seconds
from stretto.choose.exports import LARGEST_BYTES, write_table
from stretto.choose.programs import BrokenPromise, read_back, run_s
from stretto.choose.spans import TOLERANCE
from stretto.choose.tuning import Range, Tuning, digest_of, to_json, tune
from stretto.cli import app
from stretto.formats import Exporter, exporters
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from test_threads import link_of

NET = "ring:4"
KINDS = ("allreduce", "allgather")


def network():
    return assume_messages(load_topology(NET))


@pytest.fixture(scope="module")
def table():
    """Of a planner that cuts more finely the larger the buffer is: the same planner and chunks, and many programs."""
    return tune(NET, KINDS, [4_000, 256_000_000], planners=("greedy",), chunks=(1,))


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("exports")
    (path / "table.json").write_text(json.dumps(to_json(table)))
    command = ["export", str(path / "table.json"), "--to", "msccl", "-o", str(path / "out"), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    (path / "said.json").write_text(done.stdout)
    return path


@pytest.fixture
def files(folder):
    return json.loads((folder / "out" / "index.json").read_text())["files"]


def one_program(table, row, size: int) -> Callable[[int], float]:
    """What the program planned for one size takes at others, by a clock that shares nothing with stretto."""
    net = network()
    path = f"{os.environ.get('TMPDIR', '/tmp')}/one-{os.getpid()}.xml"
    exporters()["msccl"].write(simulate(table.plan_of(row, net, size)), path)
    with open(path) as file:
        text = file.read()
    os.unlink(path)
    return lambda other: seconds(text, other, link_of(net))


def test_one_program_for_all_sizes_of_a_row_would_not_do(table, files):
    """What was written before: one program for each planner of the table, planned for the middle of its sizes."""
    for row in table.ranges:
        takes = one_program(table, row, row.middle_bytes)
        late = [takes(s) / simulate(table.plan_of(row, network(), s)).completion_s for s in (1024, 256_000_000)]
        assert max(late) > 1 + TOLERANCE
        assert sum(f["collective"] == row.collective for f in files) > 1


def test_files_cover_all_sizes_up_to_the_largest_without_a_gap(files, folder):
    assert {f["collective"] for f in files} == set(KINDS)
    for _, group in groupby(files, key=lambda f: f["collective"]):
        own = list(group)
        assert own[0]["from_bytes"] == 0 and own[-1]["to_bytes"] == LARGEST_BYTES + 1
        assert all(a["to_bytes"] == b["from_bytes"] for a, b in pairwise(own))
    for f in files:
        algo = ElementTree.parse(folder / "out" / f["file"]).getroot()
        assert (int(algo.get("minBytes")), int(algo.get("maxBytes"))) == (f["from_bytes"], f["to_bytes"] - 1)


def test_each_file_takes_at_both_ends_what_the_index_says_by_a_clock_of_its_own(files, folder):
    for f in files:
        text = (folder / "out" / f["file"]).read_text()
        for end in (e for e in f["ends"] if e["size_bytes"] < LARGEST_BYTES):
            assert seconds(text, end["size_bytes"], link_of(network())) == pytest.approx(end["program_s"], rel=1e-3)


def test_each_file_keeps_at_both_ends_what_its_planner_takes_there(files):
    net = network()
    for f in files:
        for end in f["ends"]:
            collective = make_collective(f["collective"], net, end["size_bytes"], chunks=f["chunks"])
            planned = simulate(run_planner(f["planner"], net, Workload((collective,)))).completion_s
            assert planned == end["table_s"]
            assert end["program_s"] <= (1 + TOLERANCE) * planned


def test_the_index_says_what_was_printed_and_knows_each_file(files, folder):
    said = json.loads((folder / "said.json").read_text())
    assert said["files"] == files and said["format"] == "msccl"
    assert {f["file"] for f in files} | {"index.json"} == set(os.listdir(folder / "out"))
    for f in files:
        assert f["digest"] == sha256((folder / "out" / f["file"]).read_bytes()).hexdigest()


def damaging(damage: Callable[[str], str]) -> Exporter:
    """MSCCL's exporter, whose files something damages."""
    whole = exporters()["msccl"]

    def write(timeline, path, *sizes):
        notes = whole.write(timeline, path, *sizes)
        with open(path) as file:
            text = damage(file.read())
        with open(path, "w") as file:
            file.write(text)
        return notes

    return replace(whole, write=write)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace('type="rrc"', 'type="r"', 1), "not correct|uses|adds"),
        (lambda text: text.replace('depid="', 'depid="-1" was="'), "wait|where nothing is"),
        (lambda text: text.replace('type="s"', 'type="nop"', 1), "gets stuck|are not parts"),
        (lambda text: text[: len(text) // 2], "file for msccl"),
    ],
)
def test_a_file_that_is_wrong_makes_the_export_fail_and_leaves_nothing(table, damage, words, tmp_path):
    with pytest.raises(BrokenPromise, match=words) as raised:
        write_table(table, network(), damaging(damage), str(tmp_path))
    assert str(raised.value).startswith("allreduce from 0 B on, greedy: ")
    assert os.listdir(tmp_path) == []
    with pytest.raises(BrokenPromise):
        write_table(table, network(), damaging(damage), str(tmp_path / "new"))
    assert os.listdir(tmp_path) == [], "nor the folder, if it was not there"


def test_a_file_that_is_slow_makes_the_export_fail_and_names_the_row(table, folder, tmp_path, monkeypatch):
    """The program of another planner: correct, and not what the table says."""
    net, whole = network(), exporters()["msccl"]

    def write(timeline, path, *sizes):
        slow = run_planner("shortest-path", net, timeline.plan.workload)
        return whole.write(simulate(slow), path, *sizes)

    known = exporters() | {"msccl": replace(whole, write=write)}
    monkeypatch.setattr("stretto.formats.exporters", lambda: known)
    command = ["export", str(folder / "table.json"), "--to", "msccl", "-o", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert said["files"] == [] and said["failed"].startswith("allreduce from 0 B on, greedy: ")
    assert "% more than" in said["failed"] and os.listdir(tmp_path) == []


def test_files_of_an_earlier_export_are_removed_and_others_kept(table, tmp_path):
    small = replace(table, ranges=tuple(r for r in table.ranges if r.collective == "allgather"))
    (tmp_path / "old.xml").write_text("")
    (tmp_path / "mine.xml").write_text("")
    (tmp_path / "index.json").write_text(json.dumps({"files": [{"file": "old.xml"}, {"file": None}]}))
    written = write_table(small, network(), exporters()["msccl"], str(tmp_path))
    assert set(os.listdir(tmp_path)) == {"mine.xml", "index.json", *(f["file"] for f in written)}


def test_a_table_of_which_a_format_can_hold_nothing_says_why(tmp_path):
    table = tune(NET, ["scatter"], [10_000], planners=("shortest-path",), chunks=(1,))
    with pytest.raises(Unsupported, match=r"msccl can hold none of its plans: msccl does not run scatter"):
        write_table(table, network(), exporters()["msccl"], str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_other_formats_get_a_plan_for_the_middle_of_each_row(table, tmp_path):
    written = write_table(table, network(), exporters()["csv"], str(tmp_path))
    assert [f["from_bytes"] for f in written] == [r.from_bytes for r in table.ranges]
    assert [f["planned_bytes"] for f in written] == [r.middle_bytes for r in table.ranges]


def test_a_single_plan_says_how_long_its_program_takes(tmp_path):
    """On switches that send to several at once: a program sends to each of them."""
    runner, plan = CliRunner(), str(tmp_path / "plan.parquet")
    runner.invoke(app, ["plan", "allgather", "-t", "star:8", "--size", "1MB", "-p", "shortest-path", "-o", plan])
    done = runner.invoke(app, ["export", plan, "--to", "msccl", "-o", str(tmp_path / "plan.xml"), "--json"])
    said = json.loads(done.stdout)
    assert said["program_s"] > 1.5 * said["completion_s"]
    assert any("longer than the plan" in note for note in said["notes"])
    done = runner.invoke(app, ["export", plan, "--to", "csv", "-o", str(tmp_path / "plan.csv"), "--json"])
    assert "program_s" not in json.loads(done.stdout)


def row_of(net: str, kind: str, planner: str, begin: int, end: int | None) -> Tuning:
    """A table with one row."""
    measured = ((max(begin, 1000), 1.0), (end or 256_000_000, 1.0))
    spec = load_topology(net)
    row = Range(kind, begin, end, planner, 1, measured)
    return Tuning(net, digest_of(assume_messages(spec)), 0, 0, False, (row,))


def test_trees_with_unlike_shares_are_planned_for_the_target(tmp_path):
    """AllGather on dgx1 above 1 MB, which no file was written for: its chunks are not equal."""
    table = row_of("dgx1", "allgather", "forest", 2_000_000, 8_000_000)
    net = assume_messages(load_topology("dgx1"))
    written = write_table(table, net, exporters()["msccl"], str(tmp_path))
    assert all(f["file"] is not None for f in written)
    for f in written:
        for end in f["ends"]:
            assert 0.9 < end["program_s"] / end["table_s"] <= 1 + TOLERANCE


def test_a_table_for_the_target_says_what_its_programs_take(tmp_path):
    """Switches copy for plans and not for programs: one table promises too much, the other what there is."""
    sizes, net = [4_000, 1_000_000], assume_messages(load_topology("star:8"))
    plain, fitting = (
        tune("star:8", ["allgather"], sizes, planners=("shortest-path",), chunks=(1,), target=target)
        for target in (None, "msccl")
    )
    with pytest.raises(BrokenPromise, match=r"the program for msccl takes .* % more than"):
        write_table(plain, net, exporters()["msccl"], str(tmp_path))
    (told,) = fitting.ranges
    assert told.measured[0][1] > 1.4 * plain.ranges[0].measured[0][1]
    written = write_table(fitting, net, exporters()["msccl"], str(tmp_path))
    threads = read_back(str(tmp_path / written[0]["file"]), exporters()["msccl"], net)
    for size, seconds_ in told.measured:
        assert run_s(threads, size) == pytest.approx(seconds_, rel=TOLERANCE)


def test_a_table_for_another_target_is_refused(table, tmp_path):
    with pytest.raises(InputError, match="was made for torch; make one for msccl"):
        write_table(replace(table, target="torch"), network(), exporters()["msccl"], str(tmp_path))
