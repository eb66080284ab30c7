"""Grids of one's own: the example of the docs, and what is wrong in a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import run_here
from stretto import cli
from stretto.model.errors import InputError, Unsupported
from stretto.studies import find_study, run_study, without_result, write_study
from stretto.studies.engines import here
from stretto.studies.grid import read_grid

DOCS = Path(__file__).parents[1] / "docs" / "reference" / "studies.md"
LEAST = 'topologies = ["ring:4"]\nsizes = ["4KB"]\nplanners = ["ring"]\n'


def grid(folder, text):
    (folder / "mine.toml").write_text(text)
    return read_grid(str(folder / "mine.toml"))


def test_the_example_of_the_docs_runs(tmp_path):
    study = grid(tmp_path, DOCS.read_text().partition("```toml\n")[2].partition("```")[0])
    assert len(study.cells) == 2 * 2 * 2 * 2 * 3
    assert {c.time_limit_s for c in study.cells if c.scheme == "teccl fast"} == {5.0}
    cells = [c for c in study.cells if c.topology == "ring:8" and c.size_bytes == 64_000]
    small = replace(study, cells=cells, warm_up=())
    result = run_study(small)
    assert [without_result(r) for r in result["rows"]] == [None] * 12
    write_study(result, small, str(tmp_path / "out"))
    page = (tmp_path / "out" / "index.html").read_text()
    assert all(f.title in page for f in study.figures) and 'src="http' not in page


def test_a_topology_file_lies_beside_the_grid(tmp_path):
    net = {"nodes": [{"id": 0}, {"id": 1}],
           "links": [{"src": a, "dst": 1 - a, "bandwidth_GBps": 1, "latency_us": 0} for a in (0, 1)]}  # fmt: skip
    (tmp_path / "net.json").write_text(json.dumps(net))
    study = grid(tmp_path, LEAST.replace("ring:4", "net.json"))
    assert run_study(replace(study, warm_up=()))["rows"][0]["verified"]


def test_several_seeds_are_one_row_with_their_mean(tmp_path):
    (row,) = run_study(replace(grid(tmp_path, LEAST + "seeds = 3\n"), warm_up=()))["rows"]
    assert len(row["by_seed"]["completion_s"]) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = [", "is not TOML"),
        (LEAST + "size = 1", "'size' is not known"),
        (LEAST.replace("ring:4", "rung:4"), "topologies: .*did you mean ring"),
        (LEAST.replace("4KB", "4XB"), "sizes"),
        (LEAST.replace('"ring"', '"rung"'), "no planner 'rung'"),
        (LEAST.replace('"ring"', '{planner = "ring", options = {a = 1}}'), "no option 'a'"),
        (LEAST.replace('"ring"', '{planner = "teccl", options = {mode = "slowly"}}'), "none of"),
        (LEAST.replace('"ring"', '"ring", "ring"'), "one name"),
        (LEAST.replace('"ring"', '{name = "x"}'), r"planners\[0\]"),
        (LEAST + 'collectives = ["all"]', "none of"),
        (LEAST + "seeds = 0", "seeds"),
        (LEAST + "time_limit = -1", "time_limit"),
        ('sizes = ["4KB"]\nplanners = ["ring"]\n', "topologies"),
    ],
)
def test_what_is_wrong_is_named(text, words, tmp_path):
    with pytest.raises(InputError, match=words):
        grid(tmp_path, text)


def test_all_studies_go_into_one_folder_with_a_page_that_leads_to_them(tmp_path, monkeypatch):
    def small(name):
        study = find_study(name)
        first = next(c for c in study.cells if c.planner in ("mtegcca", "scale-ccl", "pairwise+swot", "tcp-fair"))
        return replace(
            study, cells=[replace(first, why_full="", seeds=1)], warm_up=(), baseline="", tables=lambda rows: []
        )

    monkeypatch.setattr("stretto.studies.find_study", small)
    monkeypatch.setattr("stretto.studies.engines.Processes", lambda jobs: here)
    command = ["study", "all", "-o", str(tmp_path), "--json"]
    for run, found in ((4, 0), (0, 4)):
        done = CliRunner().invoke(cli.app, command)
        answer = json.loads(done.stdout)
        assert answer["cells"] == {"asked": 4, "found": found, "run": run, "failed": 0, "cannot": 0}
    page = (tmp_path / "index.html").read_text()
    for name, result in answer["studies"].items():
        assert f"{name}/index.html" in page and (tmp_path / name / "results.parquet").exists()
        assert {"rows", "tables", "published", "claims", "skipped", "notes", "versions", "files"} <= result.keys()


def run(monkeypatch, *words):
    """Run ``stretto study grid mine.toml WORDS``: the exit status, stdout and stderr."""
    monkeypatch.setattr("stretto.studies.engines.Processes", lambda jobs: here)
    done = run_here(["study", "grid", "mine.toml", *words], None)
    return done.returncode, done.stdout, done.stderr


def test_a_cell_that_its_scheme_cannot_serve_is_said_and_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid(tmp_path, LEAST.replace('"ring"', '"ring", "pairwise+swot"'))
    code, stdout, _ = run(monkeypatch)
    assert code == 0
    assert "pairwise+swot cannot serve 1 cell: pairwise does not serve allgather; it serves alltoall" in stdout
    assert "2 cells run, 0 there before; 0 failed, 1 that their schemes cannot serve" in stdout


def test_a_cell_that_failed_ends_the_command_with_1_now_and_when_it_is_there_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid(tmp_path, LEAST)

    def broken(*args, **options):
        raise ValueError("no such thing")

    with monkeypatch.context() as patch:
        patch.setattr("stretto.studies.cell.run_planner", broken)
        code, stdout, _ = run(patch)
    assert code == 1
    assert "ring failed in 1 cell: ValueError: no such thing" in stdout
    assert "1 cell run, 0 there before; 1 failed\n" in stdout
    assert run(monkeypatch, "--json")[0] == 1
    assert run(monkeypatch, "--retry-failed")[0] == 0


def test_a_log_has_the_folder_first_and_a_line_for_each_tenth_of_the_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid(tmp_path, LEAST.replace('["4KB"]', str([f"{k}KB" for k in range(1, 21)]).replace("'", '"')))
    _, stdout, stderr = run(monkeypatch)
    first, *others = [line for line in stderr.splitlines() if "compiling" not in line]
    assert first == "results, tables and page go to study-grid/"
    assert [line.partition(" (")[2].partition(",")[0] for line in others] == [f"{k}/20" for k in range(0, 20, 2)]
    assert others[1].startswith("study grid: ring on ring:4, 2 KB (2/20, ")
    assert "go to" not in stdout
    assert run(monkeypatch, "--json")[2] == ""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["study", "grid"], "takes a file"),
        (["study", "wan", "x.toml"], "takes a file"),
        (["study", "wan", "--engine", "cloud"], "none of local, ray"),
        (["study", "swot", "--emulate"], "sends no real bytes"),
        (["study", "grid", "none.toml"], "cannot be read"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_written(command, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, command)
    assert isinstance(done.exception, InputError) and words in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_cannot_emulate_says_why_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stretto.emulator.refusal", lambda: "emulation needs root: it makes network namespaces")
    done = CliRunner().invoke(cli.app, ["study", "wan", "--emulate"])
    assert isinstance(done.exception, Unsupported) and "needs root" in str(done.exception)
    assert list(tmp_path.iterdir()) == []
