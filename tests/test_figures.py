"""Figures for print: one call each, equal files for equal plans, and what they show."""

from __future__ import annotations

import re
import sys

import pytest

import stretto as st
from stretto.report import figures
from stretto.report.figures import LABEL_POINTS, MAP_WIDTH_IN, MOST_ROWS, TURN, WIDTH_IN

colors = pytest.importorskip("matplotlib.colors", reason="matplotlib is missing: pip install 'stretto[figures]'")


@pytest.fixture(scope="module")
def plan():
    return st.plan("allreduce", "sites:2,2", size="4MB", effort="quick")


@pytest.mark.parametrize("ending", ["pdf", "svg", "png"])
def test_a_plan_is_written_as_its_ending_says_and_again_the_same(plan, tmp_path, ending):
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    plan.figure(first)
    plan.figure(second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith({"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[ending])


def test_the_links_that_carry_most_have_a_bar_for_each_transfer(plan):
    axes = plan.figure(kind="links").axes[0]
    timeline = plan.simulate()
    rows = [text.get_text().split(",")[0] for text in axes.get_yticklabels()]
    busiest = sorted(timeline.link_use.argsort(kind="stable")[::-1][:MOST_ROWS])
    assert rows == [plan.topology.link_name(i) for i in busiest if timeline.link_use[i] > 0]
    bars = sum(len(bar.get_paths()) for bar in axes.collections)
    assert bars == sum(int((plan.route.values == i).sum()) for i in busiest)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["copy", "sum", "no plan beats"]


def test_a_plan_over_optical_planes_has_a_row_a_plane_and_a_bar_a_turn():
    plan = st.plan("allreduce", "optical:8,2", size="16MB", planner="rabenseifner+swot")
    axes = plan.figure().axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["plane 0", "plane 1"]
    colours = [colors.to_hex(bar.get_facecolor()[0]) for bar in axes.collections]
    timeline = plan.simulate()
    assert colours.count(TURN) == (timeline.turn_end_s > timeline.turn_start_s).sum() > 0
    end = max(path.get_extents().x1 for bar in axes.collections for path in bar.get_paths())
    assert end == pytest.approx(1e6 * timeline.completion_s)


@pytest.mark.parametrize("kind", ["links", "timeline"])
def test_a_figure_is_as_wide_as_a_column(plan, tmp_path, kind):
    plan.figure(tmp_path / "a.svg", kind=kind)
    width = re.search(r'<svg [^>]*width="([\d.]+)pt"', (tmp_path / "a.svg").read_text())
    assert float(width[1]) <= 72 * WIDTH_IN + 15  # the margin around a saved figure


def test_the_curve_of_what_is_received_ends_at_the_completion_with_everything(plan):
    curve = plan.figure(kind="timeline").axes[0].lines[0]
    assert curve.get_xdata()[-1] == pytest.approx(1e3 * plan.simulate().completion_s)
    assert curve.get_ydata()[-1] == pytest.approx(100)


def test_a_line_has_the_ratio_of_each_size(tmp_path):
    table = st.compare("allgather", "ring:4", size=["1MB", "16KB"], planner=["ring", "shortest-path", "swot"])
    axes = table.figure(tmp_path / "sizes.pdf").axes[0]
    ring = next(line for line in axes.lines if line.get_label() == "ring")
    ratios = {row["size_bytes"]: row["completion_over_bound"] for row in table if row["planner"] == "ring"}
    assert dict(zip(ring.get_xdata().tolist(), ring.get_ydata().tolist())) == ratios
    assert [line.get_label() for line in axes.lines][:2] == ["ring", "shortest-path"]  # swot serves no links


def test_a_line_has_the_time_of_each_number_of_chunks():
    table = st.compare("allgather", "ring:4", size="1MB", planner=["mtegcca", "shortest-path"], chunks=[1, 2, 4])
    axes = table.figure(over="chunks", of="completion").axes[0]
    assert axes.get_xlabel() == "chunks"
    assert axes.get_ylabel() == "completion (us)"
    for name in ("mtegcca", "shortest-path"):
        line = next(line for line in axes.lines if line.get_label() == name)
        times = {row["chunks"]: pytest.approx(1e6 * row["completion_s"]) for row in table if row["planner"] == name}
        assert dict(zip(line.get_xdata().tolist(), line.get_ydata().tolist())) == times
        assert sorted(times) == [1, 2, 4]
    for over, of in (("colour", "ratio"), ("size", "joy")):
        with pytest.raises(st.StrettoError, match="a comparison is drawn"):
            table.figure(over=over, of=of)


def test_a_map_has_the_labels_of_the_drawing(tmp_path):
    figure = st.topology("zoo:Abilene").figure(tmp_path / "map.pdf")
    assert {"Denver", "Seattle"} <= {text.get_text() for text in figure.axes[0].texts}


@pytest.mark.parametrize("spec", ["sites:2,2", "h100:4", "zoo:Geant2012"])
def test_the_labels_of_a_map_fit_a_print_and_its_legend_fits_the_map(spec):
    figure = st.topology(spec).figure()
    axes = figure.axes[0]
    figure.draw_without_rendering()
    assert WIDTH_IN <= figure.get_figwidth() <= MAP_WIDTH_IN
    assert 4.0 < max(text.get_fontsize() for text in axes.texts) < LABEL_POINTS + 1e-9
    legend = axes.get_legend().get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width


def test_equal_lines_of_a_comparison_are_both_seen():
    axes = st.compare("allgather", "ndv2:2", size=["16KB", "1MB"], planner=["ring", "nccl"]).figure().axes[0]
    first, second = axes.lines[:2]
    assert first.get_ydata() == pytest.approx(second.get_ydata(), rel=0.01)
    assert first.get_linestyle() != second.get_linestyle()


def test_what_cannot_be_drawn_is_refused(plan, tmp_path, monkeypatch):
    with pytest.raises(st.InputError, match="written is"):
        plan.figure(tmp_path / "a.html")
    with pytest.raises(st.InputError, match="there are links, timeline, map"):
        plan.figure(kind="gantt")
    monkeypatch.setattr(figures, "MOST_BARS", 2)
    with pytest.raises(st.Unsupported, match="draws up to 2 transfers"):
        plan.figure()


def test_without_matplotlib_it_says_what_to_install(plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(st.Unsupported, match=r"pip install 'stretto\[figures\]'"):
        plan.figure()
