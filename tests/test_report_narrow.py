"""Rail networks on the page, and the page on a telephone, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from drawn_pages import NETWORKS, RECORD, check_labels, plan_of, resize, written_page
from page_browser import available, drawn, visit
from stretto.report import write_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]

RAILS = {"h100:8": "ring", "h100:16?pod=8&spines=2": "ring"}


@pytest.fixture(scope="module")
def rails(tmp_path_factory) -> Path:
    return written_page(tmp_path_factory.mktemp("rails"), RAILS)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return written_page(tmp_path_factory.mktemp("narrow"), dict([*NETWORKS.items()][:2]))


@pytest.mark.parametrize("width", [1280, 400])
def test_labels_of_rails_do_not_overlap_and_lie_on_no_line(browser, rails, width):
    resize(browser, width)
    check_labels(browser, rails, RAILS)


@pytest.mark.parametrize("width", [1280, 400])
def test_a_cluster_says_what_it_does_not_draw(browser, rails, width):
    resize(browser, width)
    visit(browser, rails, "plan=1")
    browser.execute_script(RECORD)
    drawn(browser)
    named = [text for text, *_ in browser.execute_script("return window.seen.map.texts")]
    said = browser.find_element("id", "map-unnamed").text
    for words in ("6 more like these", "leaves and rails: 16 switches", "spine: 2 switches"):
        assert words in said or words in named, words
    visit(browser, rails, "plan=0")
    assert browser.find_element("id", "map-unnamed").text == ""


LONGEST = 20
"""Characters of a word up to which it is never broken; names of links and regions are longer."""
BROKEN = """
const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
for (let n; n = texts.nextNode();) {
  if (!n.parentElement.checkVisibility() || n.parentElement.closest('script, style, option, datalist, #tip')) continue;
  for (const m of n.textContent.matchAll(/\\S+/g)) {
    range.setStart(n, m.index); range.setEnd(n, m.index + m[0].length);
    if (m[0].length <= arguments[0] && !/[→:-]/.test(m[0]) && new Set([...range.getClientRects()].map((b) => Math.round(b.top))).size > 1) broken.push(m[0]);
  }
}
return broken;
"""


def test_no_word_is_broken_on_a_telephone(browser, page, rails):
    resize(browser, 400)
    for path, address in ((page, "plan=0"), (page, "plan=1"), (rails, "plan=0"), (rails, "plan=1&beside=0")):
        visit(browser, path, address)
        assert browser.execute_script(BROKEN, LONGEST) == [], address


@pytest.mark.parametrize("width", [1280, 400])
def test_what_all_compared_plans_have_alike_is_said_once(browser, tmp_path, width):
    spec = "sites:2,2?connectivity=0.5&km=1500"
    path = tmp_path / "index.html"
    plans = [plan_of(spec, planner) for planner in ("ring", "shortest-path", "shortest-path+weight-alloc")]
    timelines, limits = zip(*plans, strict=True)
    write_page(str(path), timelines, limits)
    resize(browser, width)
    visit(browser, path)
    script = (
        "const t = document.getElementById('compare'), seen = (e) => e.checkVisibility();"
        "return [[...t.querySelectorAll('th')].filter(seen).map((e) => e.textContent), document.getElementById('alike').textContent,"
        " [...document.querySelectorAll('#pick option')].map((e) => e.textContent), t.parentElement.scrollWidth - t.parentElement.clientWidth];"
    )
    columns, alike, names, hidden = browser.execute_script(script)
    assert not {"topology", "collective"} & set(columns) and {"planner", "completion", "ratio"} <= set(columns)
    assert alike == f" All plans: allgather on {spec}." and hidden == 0
    assert [name.split(" · ")[0] for name in names] == ["ring", "shortest-path", "shortest-path+weight-alloc"]
    assert not any(spec in name for name in names)


def test_a_long_name_of_a_network_is_broken_where_its_parts_end(browser, tmp_path):
    path = written_page(tmp_path, {"sites:2,2?connectivity=0.5&km=1500&bandwidth=25GB/s": "ring"})
    resize(browser, 400)
    visit(browser, path)
    script = (
        "const range = document.createRange(), lines = new Map();"
        "for (const node of document.getElementById('title').childNodes) if (node.nodeType === 3) for (let i = 0; i < node.length; i++) {"
        "range.setStart(node, i); range.setEnd(node, i + 1); const y = Math.round(range.getBoundingClientRect().top);"
        "lines.set(y, (lines.get(y) || '') + node.data[i]); } return [...lines.values()];"
    )
    lines = browser.execute_script(script)
    assert len(lines) > 1 and all(line[-1] in "?&=," for line in lines[:-1])


CUT = """
const cut = [], range = document.createRange();
for (const cell of document.querySelectorAll('#busiest td, #gains td, #gains-links td, #gains th, #gains-links th')) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let n; n = texts.nextNode();) for (const m of n.textContent.matchAll(/[^\\s→:+-]+/g)) {
    range.setStart(n, m.index); range.setEnd(n, m.index + m[0].length);
    if (new Set([...range.getClientRects()].map((b) => Math.round(b.top))).size > 1) cut.push(m[0]);
  }
}
const hidden = [...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.firstElementChild.id);
return [cut, hidden, document.querySelectorAll('#gains td').length, document.getElementById('gains-sub').textContent];
"""
"""Parts of names that are broken in tables of links, tables that are not seen whole, and what is said of two plans."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> dict[str, Path]:
    """Pages with two plans each: of links with long names, and of optical planes."""
    folder = tmp_path_factory.mktemp("compared")
    pages = {}
    for name, spec, planners in (
        ("wan", "zoo:Abilene", ("forest", "shortest-path+weight-alloc")),
        ("clouds", "cloud:gcp:europe-west4-a,gcp:asia-northeast1-a,aws:ap-southeast-2", ("ring", "forest")),
        ("planes", "optical:8,2", ("pairwise+swot", "pairwise+strawman-icr")),
    ):
        pages[name] = folder / f"{name}.html"
        timelines, limits = zip(*(plan_of(spec, planner) for planner in planners), strict=True)
        write_page(str(pages[name]), timelines, limits)
    return pages


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["wan", "clouds", "planes"])
def test_tables_of_two_plans_are_seen_whole_and_break_names_where_their_parts_end(browser, compared, name, width):
    resize(browser, width)
    visit(browser, compared[name], "beside=1")
    cut, hidden, cells, _ = browser.execute_script(CUT)
    assert (cut, hidden) == ([], []) and cells > 8
    keys = browser.find_elements("css selector", "#curve-key .key")
    assert [key.text for key in keys] == [
        browser.find_element("class name", end).text for end in ("name-a", "name-b")
    ]  # which curve is whose
    assert browser.find_element("id", "why").text.startswith(f"{keys[0].text}. ")


def test_what_no_plan_sends_over_links_is_no_row(browser, compared):
    resize(browser, 1280)
    visit(browser, compared["planes"], "beside=1")
    rows = [e.text for e in browser.find_elements("css selector", "#gains tr td:first-child")]
    assert rows[:2] == ["completion", "transfers"] and "bytes over all links" not in rows


def test_two_plans_of_one_planner_are_told_apart_by_what_differs(browser, tmp_path):
    path = written_page(tmp_path, {"ring:4": "ring", "ring:6": "ring"})
    resize(browser, 1280)
    visit(browser, path, "beside=1")
    said = browser.execute_script(CUT)[-1]
    assert said.startswith("ring · ring:4 · ") and " sooner than ring · ring:6 · " in said
