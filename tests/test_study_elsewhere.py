"""The papers' studies on a network of one's own: ``stretto study NAME -t NETWORK``."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stretto import cli
from stretto.model.errors import InputError
from stretto.studies import STUDIES, elsewhere, find_study, find_study_on, run_study
from stretto.studies.engines import here
from stretto.topologies import load_topology

THREE_SITES = str(Path(__file__).parents[1] / "examples" / "three_sites.json")
SUITED = {"mtegcca": THREE_SITES, "scale-ccl": THREE_SITES, "swot": "optical:8,4", "wan": THREE_SITES}


def stretto(*words: str) -> tuple[int, str, str]:
    """Run ``stretto WORDS`` in this process: the exit status, stdout and stderr."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", ["stretto", *words])
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            cli.main()
    return int(end.value.code or 0), stdout.getvalue(), stderr.getvalue()


def few_cells(monkeypatch) -> None:
    """Let studies have the first cell of the planner that each is of, at its largest size, and run it here."""

    def small(name, topology):
        study = elsewhere.study_on(name, topology)
        own = [c for c in study.cells if name in c.planner.split("+") and not c.why_full]
        cell = max(own, key=lambda c: c.size_bytes)
        return replace(study, cells=[replace(cell, seeds=1)], warm_up=(), baseline="", tables=lambda rows: [])

    monkeypatch.setattr("stretto.studies.find_study_on", small)
    monkeypatch.setattr("stretto.studies.engines.Processes", lambda jobs: here)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_elsewhere_has_the_paper_schemes_and_sizes_in_figures_with_cells(name):
    papers, ours = find_study(name), find_study_on(name, SUITED[name])
    assert {c.topology for c in ours.cells} == {SUITED[name]}
    assert {c.scheme for c in ours.cells} == {c.scheme for c in papers.cells}
    assert {f for c in ours.cells for f in c.figures} == {f.name for f in ours.figures}
    assert load_topology(SUITED[name]).name in ours.title
    # nothing that was published for other networks stands beside it
    assert not ours.published


def test_mtegcca_elsewhere_draws_figures_3_to_9_over_the_paper_sizes():
    study = find_study_on("mtegcca", THREE_SITES)
    assert {f.name for f in study.figures} == set("3456789")
    for figure in "345":
        assert {c.size_bytes for c in study.cells if figure in c.figures} == {
            c.size_bytes for c in find_study("mtegcca").cells
        }
    assert {c.size_bytes for c in study.cells if "6" in c.figures} == {10**9}
    assert "three sites" in study.figures[0].title and "NDv2" not in study.figures[0].title


def test_scale_ccl_elsewhere_counts_the_paper_size_for_each_gpu_of_the_network():
    study = find_study_on("scale-ccl", THREE_SITES)
    ranks = len(load_topology(THREE_SITES).accelerators)
    sizes = {c.size_bytes for c in study.cells}
    assert sizes == {c.size_bytes // 12 * ranks for c in find_study("scale-ccl").cells}
    assert {c.chunks for c in study.cells} == {1, 2, 4, 8}
    # links between sites change where there are some
    ring = find_study_on("scale-ccl", "ring:4")
    assert {f.name for f in study.figures} - {f.name for f in ring.figures} == {"varying", "failing"}
    changing = next(c for c in study.cells if c.unsteady is not None and c.scheme == "scale-ccl, changes known")
    (row,) = run_study(replace(study, cells=[replace(changing, seeds=2)], warm_up=(), tables=lambda rows: []))["rows"]
    assert row["verified"] and row["completion_over_bound"] >= 1


def test_the_wan_study_elsewhere_shares_the_network_as_it_is():
    study = find_study_on("wan", THREE_SITES)
    net = load_topology(THREE_SITES)
    for cell in (c for c in study.cells if c.scheme == "tcp-fair"):
        topology, workload = cell.request(3)
        assert np.array_equal(topology.bandwidth, net.bandwidth)
        assert np.array_equal(topology.latency_s, net.latency_s)
        assert len(workload.collectives) == cell.shared.collectives
    drawn, _ = replace(cell, shared=replace(cell.shared, own_links=False)).request(3)
    assert not np.array_equal(drawn.bandwidth, net.bandwidth)


def test_swot_elsewhere_leaves_out_algorithms_that_do_not_serve_the_ranks_and_says_so():
    study = find_study_on("swot", "optical:6,2")
    assert {f.name for f in study.figures} == {"7b", "7c", "7d", "8a", "8b", "9a", "9b", "10", "11"}
    assert any("Figure 7a" in note and "left out" in note for note in study.notes)
    shown = [c for c in study.cells if "8b" in c.figures and c.scheme == "swot" and not c.why_full]
    (row,) = run_study(replace(study, cells=shown, tables=lambda rows: []))["rows"]
    assert row["verified"] and row["planes"] == 2 and row["ranks"] == 6


def test_values_published_for_the_network_itself_stand_beside_it():
    published = find_study_on("mtegcca", "ndv2:4").published
    assert {p["topology"] for source in ("shipped", "paper") for p in published[source]} == {"ndv2:4"}
    assert set(published["sources"]) == {"shipped", "paper"}


@pytest.mark.parametrize("name", STUDIES)
def test_the_command_runs_it_and_names_its_folder_after_the_network(name, tmp_path, monkeypatch):
    few_cells(monkeypatch)
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = stretto("study", name, "-t", SUITED[name], "--json")
    assert code == 0, stderr
    data = json.loads(stdout)
    assert data["cells"] == {"asked": 1, "found": 0, "run": 1, "failed": 0, "cannot": 0}
    assert data["rows"][0]["topology"] == SUITED[name]
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"study-{name}-{'optical-8,4' if name == 'swot' else 'three_sites'}"
    assert (folder / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["swot", "-t", "ring:4"], "the study swot does not suit ring:4: swot does not serve ring:4: it has no"),
        (["mtegcca", "-t", "optical:8,2"], "the study mtegcca does not suit"),
        (["scale-ccl", "-t", "optical:8,2"], "it plans over links, not optical planes"),
        (["wan", "-t", "optical:8,2"], "it plans over links, not optical planes"),
        (["mtegcca", "-t", "none.json"], "none.json: cannot be read"),
        (["grid", "mine.toml", "-t", "ring:4"], "a grid names its topologies in its file"),
        (["nothing", "-t", "ring:4"], "there is no study 'nothing'"),
    ],
)
def test_an_unsuited_network_is_refused_in_one_line(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = stretto("study", *words)
    assert code == 2 and stdout == ""
    assert says in stderr and stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_all_studies_elsewhere_run_where_they_suit_and_say_why_others_do_not(tmp_path, monkeypatch):
    few_cells(monkeypatch)
    code, stdout, _ = stretto("study", "all", "-t", "optical:8,4", "-o", str(tmp_path), "--json")
    data = json.loads(stdout)
    assert code == 0 and set(data["studies"]) == {"swot"}
    assert set(data["unsuited"]) == {"mtegcca", "scale-ccl", "wan"}
    assert all("not optical planes" in why for why in data["unsuited"].values())
    with pytest.raises(InputError, match="no such file or family"):
        find_study_on("mtegcca", "nowhere")
