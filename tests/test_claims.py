"""Claims of the papers: every one is measured, judged by its numbers, and what the file says still comes out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stretto import cli
from stretto.model.errors import InputError
from stretto.studies import STUDIES, Cell, Study, find_study, run_study
from stretto.studies.claims import (
    KEYS,
    UNITS,
    cells_of,
    claims_of_run,
    command_of,
    is_clock,
    shown,
    verdict_of,
    with_claimed_cells,
)
from stretto.studies.claims_page import file_of, file_text, page_text
from stretto.studies.measures import COMPARED, TAKEN, is_count, measured
from stretto.studies.measures import KEYS as MEASURE
from stretto.studies.model import NET_S

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "contributors" / "reproducing.md"
CLAIMS = [(name, claim) for name in STUDIES for claim in find_study(name).claims]
MEASURED = [(name, claim) for name, claim in CLAIMS if "measure" in claim]


def ids(given):
    return [f"{name}-{claim['id']}" for name, claim in given]


@pytest.mark.parametrize("name", STUDIES)
def test_no_number_of_a_claim_hangs_on_a_clock(name):
    study = find_study(name)
    clocked = [
        c for c in study.cells if c.time_limit_s not in (None, NET_S) or (c.time_limit_s and c.effort == "thorough")
    ]
    numbers = [claim for claim in study.claims if not is_clock(claim)]
    assert [claim["id"] for claim in numbers if cells_of(claim, replace(study, cells=clocked))] == []


# --- the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "claim"), CLAIMS, ids=ids(CLAIMS))
def test_a_claim_is_whole_and_its_verdict_follows_from_its_numbers(name, claim):
    assert set(claim) <= set(KEYS)
    assert all(claim[key] for key in ("id", "section", "claim", "printed"))
    assert claim.get("unit", "") in UNITS and claim.get("better", "less") in ("less", "more")
    assert claim["verdict"] == verdict_of(claim, claim.get("ours"))
    if claim["verdict"] in ("differs", "unknown"):
        assert claim.get("because"), "a verdict other than same or better needs its reason"
    if "test" in claim:
        file, _, test = claim["test"].partition("::")
        assert "measure" not in claim and f"def {test}(" in (ROOT / file).read_text()
    if "measure" not in claim:
        return
    measure = claim["measure"]
    assert set(measure) <= set(MEASURE)
    assert (
        measure.get("take", "only") in (*TAKEN, "only", "each", "min", "max") and measure.get("as", "less") in COMPARED
    )
    assert is_count(measure) or "value" in claim
    cells = cells_of(claim, find_study(name))
    assert command_of(claim, find_study(name)), "no cell of the study meets the conditions"
    if measure.get("take", "only") == "only" and "over" not in measure and not is_count(measure):
        assert len(cells) == 1


def test_claims_have_names_of_their_own_and_the_files_are_as_the_writer_writes_them():
    for name in STUDIES:
        study = find_study(name)
        assert len({claim["id"] for claim in study.claims}) == len(study.claims)
        text = file_of(study).read_text()
        assert text == file_text(json.loads(text))


def test_the_page_is_that_of_the_files():
    assert PAGE.read_text() == page_text({name: find_study(name) for name in STUDIES}), "python benchmarks/claims.py"


# --- the claims come out ------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_what_the_files_say_of_fast_claims_still_comes_out(name):
    study = find_study(name)
    fast = [claim for claim in study.claims if claim.get("fast")]
    few = replace(with_claimed_cells(study, fast), warm_up=(), tables=lambda rows: [])
    found = {f.claim["id"]: f for f in claims_of_run(study, run_study(few, full=True)["rows"])}
    for claim in fast:
        assert found[claim["id"]].whole
        assert found[claim["id"]].agrees, f"{claim['id']}: {found[claim['id']].ours}, the file has {claim['ours']}"
        assert is_clock(claim) or found[claim["id"]].verdict == claim["verdict"]


# --- measuring ----------------------------------------------------------------------------------


def row(scheme, size=1, completion_s=1.0, **more):
    return {"scheme": scheme, "topology": "net", "where": "net", "collective": "allgather", "size_bytes": size,
            "chunks": 1, "figures": ["1"], "completion_s": completion_s, **more}  # fmt: skip


ROWS = [row("a", 1, 2.0), row("b", 1, 4.0), row("a", 2, 3.0), row("b", 2, 3.0), row("c", 2, 6.0),
        {key: value for key, value in row("c", 1).items() if key != "completion_s"} | {"cannot": "no time"}]  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "ours"),
    [
        ({"rows": {"scheme": "a", "size_bytes": 2}}, 3.0),
        ({"rows": {"scheme": "a"}, "take": "each"}, [2.0, 3.0]),
        ({"rows": {"scheme": "a"}, "take": "mean"}, 2.5),
        ({"rows": {"scheme": "b"}, "take": "spread"}, pytest.approx(4 / 3)),
        ({"rows": {"size_bytes": {"least": 2}}, "take": "max"}, 6.0),
        ({"rows": {"scheme": ["a", "c"], "figures": ["1", "2"]}, "take": "min"}, 2.0),
        ({"rows": {"scheme": "a"}, "over": {"scheme": "b"}, "take": "each"}, [0.5, 1.0]),
        ({"rows": {"scheme": "a"}, "over": {"scheme": "b"}, "as": "less", "take": "max"}, 0.5),
        ({"rows": {"scheme": "a"}, "over": {"scheme": "b"}, "as": "gain", "take": "max"}, 1.0),
        ({"rows": {"scheme": "a"}, "over": {"scheme": ["b", "c"]}, "as": "speedup", "take": "each"}, [2.0, 1.0]),
        ({"rows": {"scheme": "a", "size_bytes": 2}, "over": {"size_bytes": 1}, "as": "more"}, 0.5),
        ({"rows": {}, "value": "cannot", "take": "mean"}, pytest.approx(1 / 6)),
        ({"rows": {"scheme": "a"}, "value": "completion_s / size_bytes", "take": "each"}, [2.0, 1.5]),
        ({"rows": {"scheme": "a"}, "over": {"scheme": "b"}, "within": [0.9, None]}, [1, 2]),
        ({"rows": {"figures": "1"}, "order": ["b", "a"]}, [2, 2]),
        ({"rows": {}, "order": ["c", "b", "a"]}, [1, 1]),
        ({"rows": {}, "order": ["a", "b"]}, [1, 2]),
        ({"rows": {}, "order": ["a", "b"], "by": 1.0}, [2, 2]),
        ({"rows": {}, "rises": "size_bytes"}, [1, 2]),
        ({"rows": {}, "falls": "size_bytes", "by": 0.5}, [2, 2]),
        ({"rows": {"size_bytes": 2, "scheme": ["b", "c"]}, "rises": "scheme"}, [1, 1]),
        ({"rows": {"size_bytes": 2}, "flattens": "scheme"}, [0, 1]),
        ({"rows": {"size_bytes": 2}, "falls": "scheme", "by": 0.5}, [1, 1]),
        ({"rows": {"scheme": "d"}, "take": "max"}, None),
    ],
)
def test_a_measure_is_computed_from_rows(measure, ours):
    assert measured(measure, ROWS)[0] == ours


def test_an_extreme_value_says_where_it_is():
    assert measured({"rows": {}, "take": "max"}, ROWS) == (6.0, "net, 2 B")


def test_a_claim_about_one_row_refuses_several():
    with pytest.raises(ValueError, match="2 rows"):
        measured({"rows": {"scheme": "a"}}, ROWS)


TIME = {"rows": {"scheme": "a"}}
CLOCK = {"rows": {"scheme": "a"}, "value": "planning_cpu_s"}
COUNT = {"rows": {"scheme": "a"}, "within": [None, 0.1]}


@pytest.mark.parametrize(
    ("claim", "ours", "verdict"),
    [
        ({"measure": TIME, "value": 2.0}, None, "unknown"),
        ({"measure": TIME, "value": 2.0}, 2.03, "same"),
        ({"measure": TIME, "value": 2.0}, 2.05, "differs"),
        ({"measure": TIME, "value": 2.0, "better": "less"}, 2.05, "differs"),
        ({"measure": TIME, "value": 2.0, "better": "less"}, 1.9, "better"),
        ({"measure": TIME, "value": 2.0, "better": "more"}, 1.9, "differs"),
        ({"measure": TIME, "value": 2.0, "tolerance": 0.1}, 2.1, "same"),
        ({"measure": TIME, "value": {"most": 0.15}}, 0.01, "same"),
        ({"measure": TIME, "value": {"most": 0.15}}, 0.2, "differs"),
        ({"measure": TIME, "value": {"most": 0.15}, "tolerance": 0}, 0.15, "same"),
        ({"measure": TIME, "value": {"least": 0.15}, "tolerance": 0}, 0.15, "same"),
        ({"measure": TIME, "value": {"least": 0.07, "most": 0.09}, "better": "more"}, 0.11, "better"),
        ({"measure": TIME | {"take": "each"}, "value": [1.0, 2.0], "better": "less"}, [1.0, 1.0], "better"),
        ({"measure": TIME | {"take": "each"}, "value": [1.0, 2.0], "better": "less"}, [1.5, 1.0], "differs"),
        ({"measure": TIME | {"take": "each"}, "value": [1.0, 2.0], "better": "less"}, [1.0], "unknown"),
        ({"measure": CLOCK, "value": 0.5, "better": "less"}, 0.9, "same"),
        ({"measure": CLOCK, "value": 0.5, "better": "less"}, 0.01, "better"),
        ({"measure": CLOCK, "value": 0.5, "better": "less"}, 50.0, "differs"),
        ({"measure": COUNT, "value": [12, 15], "better": "more"}, [12, 15], "same"),
        ({"measure": COUNT, "value": [12, 15], "better": "more"}, [15, 15], "better"),
        ({"measure": COUNT, "value": [12, 15], "better": "more"}, [11, 15], "differs"),
        ({"measure": COUNT}, [3, 3], "same"),
        ({"measure": COUNT}, [2, 3], "differs"),
        ({"test": "tests/papers/test_wan.py::test_it"}, None, "same"),
        ({}, None, "unknown"),
    ],
)
def test_a_verdict_is_that_of_the_numbers(claim, ours, verdict):
    assert verdict_of(claim, ours) == verdict


@pytest.mark.parametrize(
    ("claim", "ours", "text"),
    [
        ({"measure": TIME, "unit": "s"}, 0.0902521, "90.25 ms"),
        ({"measure": TIME, "unit": "%"}, 0.0889, "8.89 %"),
        ({"measure": TIME, "unit": "x"}, 3.768, "3.768 x"),
        ({"measure": TIME, "unit": "GB/s"}, 22.86e9, "22.86 GB/s"),
        ({"measure": CLOCK, "unit": "s"}, 0.0042, "about 10 ms"),
        ({"measure": COUNT}, [12, 15], "12 of 15"),
        ({"measure": TIME | {"take": "each"}, "unit": "s"}, [1.0, 0.5], "1 s, 500 ms"),
        ({"measure": CLOCK | {"take": "each"}, "unit": "s"}, [0.0011, 0.0009], "about 1 ms each"),
    ],
)
def test_a_number_is_shown_in_its_unit(claim, ours, text):
    assert shown(claim, ours) == text


# --- a run --------------------------------------------------------------------------------------


def small_study(ours):
    cells = [Cell(name, "ring:4", size, "ring", ("1",)) for name in ("a", "b", "c") for size in (4000, 8000)]
    claim = {"id": "x", "section": "1", "claim": "b takes as long as a", "printed": "yes", "value": 1.0, "unit": "x",
             "measure": {"rows": {"scheme": "b"}, "over": {"scheme": "a"}, "take": "max"}, "ours": ours,
             "verdict": "same"}  # fmt: skip
    return Study("mtegcca", "Two rings", "Nobody", cells, (), {"claims": [claim]})


def test_a_claim_of_a_run_with_some_of_its_cells_says_so_and_agrees_with_anything():
    study = small_study(ours=7.0)
    (some,) = claims_of_run(
        study, run_study(replace(study, cells=[c for c in study.cells if c.size_bytes == 4000]))["rows"]
    )
    assert (some.ours, some.whole, some.agrees, some.verdict) == (1.0, False, True, "unknown")
    (none,) = claims_of_run(study, [])
    assert (none.ours, none.verdict) == (None, "unknown")


def test_a_claim_may_compare_with_published_results():
    shipped = {"scheme": "c", "topology": "ring:4", "size_bytes": 4000, "reported_s": 0.5, "solver_s": 8.0}
    measure = {"rows": {"scheme": "b", "size_bytes": 4000}, "over": {"scheme": "c, shipped"}}
    study = small_study(ours=2.0)
    (claim,) = study.claims
    published = {"sources": {"shipped": "elsewhere"}, "shipped": [shipped], "claims": [claim | {"measure": measure}]}
    rows = [row("b", 4000, 1.0, topology="ring:4", where="ring:4", figures=["1"], planner="ring", options={})]
    (found,) = claims_of_run(replace(study, published=published), rows)
    assert (found.ours, found.whole, found.agrees) == (2.0, True, True)


def test_rows_of_one_request_in_two_figures_are_two():
    cells = [Cell("a", "ring:4", 4000, "ring", (figure,)) for figure in ("1", "2")]
    claim = {
        "measure": {"rows": {"figures": "1"}},
        "id": "x",
        "section": "1",
        "claim": "a",
        "printed": "1",
        "value": 1.0,
    }
    study = Study("mtegcca", "A ring", "Nobody", cells, (), {"claims": [claim]})
    only = row("a", 4000, 1.0, topology="ring:4", where="ring:4", figures=["2"], planner="ring", options={})
    (found,) = claims_of_run(study, [only])
    assert (found.ours, found.whole) == (None, False)


def test_check_is_for_studies_with_claims(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["study", "mtegcca", "-t", "ring:4", "--check"])
    assert isinstance(done.exception, InputError) and "claims" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("known", "agrees"), [(1.0005, True), (1.05, False)])
def test_a_number_agrees_with_the_file_within_what_rounding_changes(known, agrees):
    study = small_study(ours=known)
    (found,) = claims_of_run(study, run_study(study)["rows"])
    assert (found.ours, found.agrees) == (1.0, agrees)


@pytest.mark.parametrize(("ours", "code"), [(1.0, 0), (7.0, 1)])
def test_check_exits_with_1_if_a_claim_is_not_what_the_file_says(ours, code, tmp_path, monkeypatch):
    monkeypatch.setattr("stretto.studies.find_study", lambda name: small_study(ours))
    done = CliRunner().invoke(cli.app, ["study", "mtegcca", "-o", str(tmp_path), "--check"])
    assert done.exit_code == code, done.output
    result = json.loads((tmp_path / "results.json").read_text())
    (claim,) = result["claims"]
    assert {row["scheme"] for row in result["rows"]} == {"a", "b"}
    assert (claim["ours"], claim["verdict"].partition(" ")[0], claim["agrees"]) == (1.0, "same", code == 0)
    assert "b takes as long as a" in done.output and "b takes as long as a" in (tmp_path / "index.html").read_text()
