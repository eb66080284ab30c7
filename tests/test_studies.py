"""Studies: cells, their rows, and the page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stretto.errors import InputError
from stretto.studies import Cell, find_study, run_cell, run_study, write_study


def few(study, keep):
    return replace(study, cells=[c for c in study.cells if keep(c)])


def test_a_cell_is_planned_verified_simulated_and_bounded():
    row = run_cell(Cell("mtegcca", "ring:4", 4000, "mtegcca", ("3",)))
    assert row["verified"] and row["completion_s"] >= row["bound_s"] > 0
    assert row["completion_over_bound"] == row["completion_s"] / row["bound_s"]


def test_a_cell_that_fails_says_why():
    row = run_cell(Cell("teccl", "ring:4", 4000, "teccl", ("3",), options={"epochs": "1"}))
    assert "too few" in row["failed"]


def test_mtegcca_is_within_5_percent_of_the_best_at_every_size_of_figure_3():
    study = find_study("mtegcca")
    quick = {"mtegcca", "nccl ring", "shortest path", "taccl", "teccl slow, from MTEGCCA"}
    result = run_study(few(study, lambda c: "3" in c.figures and c.scheme in quick), full=True)
    rows = [r for r in result["rows"] if r["scheme"] == "mtegcca"]
    assert len(rows) == 11
    assert all(r["over_best"] <= 1.05 for r in rows)
    assert not any("failed" in r for r in result["rows"])


def test_the_short_form_lists_what_it_skips():
    study = find_study("mtegcca")
    result = run_study(few(study, lambda c: c.topology == "dgx1" and c.planner in ("mtegcca", "teccl")))
    assert {s["scheme"] for s in result["skipped"]} == {"teccl fast", "teccl slow", "teccl early-stop"}
    assert all(s["why"] for s in result["skipped"])
    assert {r["scheme"] for r in result["rows"]} >= {"mtegcca", "teccl fast, from MTEGCCA"}


def test_every_figure_of_the_paper_has_cells_and_published_values_name_their_source():
    study = find_study("mtegcca")
    assert {f for c in study.cells for f in c.figures} == set("3456789") == {f.name for f in study.figures}
    assert set(study.published["sources"]) == {"shipped", "paper"}


def test_the_page_and_the_data_are_written_whole(tmp_path):
    study = few(find_study("mtegcca"), lambda c: c.topology == "dgx1" and c.planner == "mtegcca")
    files = write_study(run_study(study), study, str(tmp_path / "out"))
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert data["rows"][0]["scheme"] == "mtegcca"
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Figure 6" in page and 'src="http' not in page
    assert len(files) == 2


def on_arpanet(study, *schemes):
    return few(study, lambda c: c.topology == "zoo:Arpanet" and c.scheme in schemes)


def test_generated_cells_have_the_mean_and_spread_of_five_seeds():
    result = run_study(on_arpanet(find_study("wan"), "tcp-fair", "wan", "rate-alloc"))
    rows = {r["scheme"]: r for r in result["rows"]}
    assert all(len(r["by_seed"]["completion_s"]) == 5 and r["completion_s_spread"] > 0 for r in rows.values())
    assert rows["tcp-fair"]["over_baseline"] == 1
    assert rows["wan"]["over_best"] == 1
    assert rows["wan"]["bound_over_baseline"] < rows["wan"]["over_baseline"] < 0.78
    assert rows["rate-alloc"]["over_baseline"] > 2


def test_the_published_order_stands_beside_ours(tmp_path):
    study = on_arpanet(find_study("wan"), "out-of-order", "equal-alloc", "data-aware", "weight-alloc", "rate-alloc")
    result = run_study(study)
    trend = next(t for t in result["trends"] if t["figure"] == "5")
    assert (trend["points"], trend["held"]) == (1, 1)
    write_study(result, study, str(tmp_path))
    assert "at 1 of 1 points" in (tmp_path / "index.html").read_text()


def test_bandwidths_that_vary_are_the_same_at_every_call_and_slow_rates_more_than_weights():
    cells = [
        c for c in find_study("wan").cells if c.shared.varying == 0.3 and c.scheme in ("rate-alloc", "weight-alloc")
    ]
    rates, weights = (run_cell(replace(c, seeds=2)) for c in sorted(cells, key=lambda c: c.scheme))
    assert rates["slowdown"] > weights["slowdown"] > 1
    assert run_cell(replace(cells[0], seeds=2))["slowdown"] in (rates["slowdown"], weights["slowdown"])


def test_the_wan_study_has_every_figure_of_its_paper_and_says_what_the_short_form_skips():
    study = find_study("wan")
    assert {f for c in study.cells for f in c.figures} == {f.name for f in study.figures} == {*"45678", "varying"}
    assert {c.shared.collectives for c in study.cells if "4" in c.figures} == set(range(2, 9))
    assert all(c.seeds >= 5 for c in study.cells)
    assert all(c.why_full for c in study.cells if c.topology == "ring:40")


def test_an_unknown_study_names_those_there_are():
    with pytest.raises(InputError, match="there are mtegcca"):
        find_study("nothing")
