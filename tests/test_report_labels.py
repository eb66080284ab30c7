"""Labels and lines of the report's page, in a real browser, at the width of a screen and of a telephone."""

from __future__ import annotations

import pytest

from drawn_pages import NETWORKS, RECORD, check_labels, resize, written_page
from page_browser import available, drawn, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]


@pytest.fixture(scope="module")
def rails_page(tmp_path_factory):
    return written_page(tmp_path_factory.mktemp("rails"), {"h100:8": "symmetric"})


@pytest.mark.parametrize("width", [1280, 400])
def test_labels_do_not_overlap_and_lie_on_no_line(browser, network_page, width):
    resize(browser, width)
    check_labels(browser, network_page, NETWORKS)


def test_names_apart_from_their_nodes_have_a_line_that_leads_there(browser, network_page):
    number = list(NETWORKS).index("zoo:Abilene")
    for width in (1280, 400):
        resize(browser, width)
        visit(browser, network_page, f"plan={number}")
        browser.execute_script(RECORD)
        drawn(browser)
        seen = browser.execute_script("return window.seen")["map"]
        places = browser.execute_script(
            "const c = document.getElementById('map'), b = c.getBoundingClientRect(), t = document.getElementById('tip'), at = {};"
            "for (let y = 2; y < b.height; y += 4) for (let x = 2; x < b.width; x += 4) {"
            "c.onmousemove({clientX: b.left + x, clientY: b.top + y}); const name = t.textContent.split('\\n');"
            "if (t.style.opacity === '1' && name[1] && name[1].startsWith('accelerator')) (at[name[0]] ||= []).push([x, y]); }"
            "c.onmouseleave(); return Object.fromEntries(Object.entries(at).map(([n, l]) => [n, [0, 1].map((k) => l.reduce((s, q) => s + q[k], 0) / l.length)]));"
        )
        names = {text: box for text, *box in seen["texts"]}
        assert set(names) == set(places)
        gaps = {
            name: max(0, box[0] - x, x - box[2]) + max(0, box[1] - y, y - box[3])
            for name, box in names.items()
            for x, y in [places[name]]
        }
        apart = [name for name, gap in gaps.items() if gap > 30]
        assert "Washington DC" in apart
        for name in apart:
            (x, y), box = places[name], names[name]
            near = [box[0] - 6, box[1] - 6, box[2] + 6, box[3] + 6]
            assert any(
                abs(line[0] - x) + abs(line[1] - y) < 16 and near[0] < line[2] < near[2] and near[1] < line[3] < near[3]
                for line in seen["lines"]
            ), name


def test_names_above_the_rows_are_those_of_the_bars_below(browser, network_page):
    """Names that would take too much of the width stand above their rows: of a telephone, and of two timelines."""
    script = (
        "const c = document.getElementById('rows'), b = c.getBoundingClientRect(), said = new Set();"
        "for (let y = arguments[0]; y < b.height; y += arguments[1]) for (let x = 12; x < b.width - 8; x += 2) {"
        "c.onmousemove({clientX: b.left + x, clientY: b.top + y, buttons: 0});"
        "const t = document.getElementById('tip').textContent; if (t.startsWith('transfer')) { said.add(t.split('\\n')[2].split(' on ')[1]); break; } }"
        "c.onmouseleave(); return [...said];"
    )
    for width, address in ((400, "plan=1"), (1280, "plan=1&beside=2")):
        resize(browser, width)
        visit(browser, network_page, address)
        browser.execute_script(RECORD)
        drawn(browser)
        texts = browser.execute_script("return window.seen.rows.texts")
        names = [text for text, *_ in texts if "→" in text]
        assert names
        assert max(box[2] for text, *box in texts if "→" in text) > 200
        below = browser.execute_script(script, 22 + 20, 30)
        assert below == names[: len(below)]
        assert len(names) - len(below) <= 1  # the last row may be cut by the card
        if "beside" in address:
            tops = (
                "return ['scroller', 'scroller-b'].map((e) => document.getElementById(e).getBoundingClientRect().top)"
            )
            assert len(set(browser.execute_script(tops))) == 1


def test_the_title_has_room_and_the_comparison_is_seen_whole(browser, network_page):
    script = (
        "const at = (e) => e.getBoundingClientRect(), table = document.getElementById('compare');"
        "return [at(document.querySelector('h1')), at(document.querySelector('header'))].map((b) => [b.width, b.height])"
        ".concat([[table.parentElement.scrollWidth - table.parentElement.clientWidth,"
        " [...table.querySelectorAll('th')].filter((e) => e.checkVisibility()).map((e) => e.textContent)]]);"
    )
    for width, tallest in ((1280, 200), (400, 350)):
        resize(browser, width)
        visit(browser, network_page, "beside=1")
        title, header, (hidden, columns) = browser.execute_script(script)
        assert title[0] > 200
        assert header[1] < tallest
        assert hidden == 0
        assert {"planner", "topology", "completion", "ratio"} <= set(columns)


COVERED = """
const c = document.getElementById('map'), top = Math.round(arguments[0] * c.height), high = Math.round(arguments[1] * c.height) - top;
const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true}); copy.drawImage(c, 0, 0);
const {data} = copy.getImageData(0, top, c.width, high); let covered = 0;
for (let i = 3; i < data.length; i += 4) covered += data[i] > 127;
return covered / (c.width * high);
"""
"""The part of the network's drawing, between two heights, on which something is drawn."""


@pytest.mark.parametrize("width", [1280, 400])
def test_lines_that_cross_leave_room_between_them(browser, rails_page, width):
    """64 accelerators, each with a link up to a rail: between rails and servers the card can be seen."""
    resize(browser, width)
    visit(browser, rails_page, "scheme=light")
    assert 0.05 < browser.execute_script(COVERED, 0.35, 0.6) < 0.4


def test_links_of_two_ranks_are_seen_though_they_lie_in_one_line(browser, tmp_path):
    resize(browser, 1280)
    visit(browser, written_page(tmp_path, {"ring:2": "ring"}), "scheme=light")
    assert browser.execute_script(COVERED, 0.35, 0.6) > 0.005
