"""The charts of a study's page, in a real browser."""

from __future__ import annotations

import itertools
from itertools import combinations

import pytest

from drawn_pages import overlap, resize
from page_browser import available, visit
from stretto.report import study_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]


def test_text_of_a_studys_charts_does_not_overlap(browser, study_page):
    script = (
        "return [...document.querySelectorAll('.chart svg[role=img]')].map(g => [...g.querySelectorAll('text')]"
        ".map(t => [t.textContent, t.getAttribute('transform') || '', ...(({left, top, right, bottom}) => [left, top, right, bottom])"
        "(t.getBoundingClientRect())]));"
    )
    for width in (1280, 400):
        resize(browser, width)
        visit(browser, study_page)
        for texts in browser.execute_script(script):
            assert texts
            level = [t for t in texts if not t[1]]  # boxes of turned text are larger than the text
            for (one, _, *a), (other, _, *b) in combinations(level, 2):
                assert not overlap(a, b), (width, one, other)
            assert all(t[2] >= -1 and t[4] <= width + 1 for t in level)
        assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0


def test_names_of_a_studys_boxes_are_whole_on_a_telephone(browser, study_page):
    resize(browser, 400)
    visit(browser, study_page)
    texts = browser.execute_script(
        "return [...document.querySelectorAll('.chart svg[role=img]')[2].querySelectorAll('text')].map((t) => t.textContent);"
    )
    assert [t for t in texts if "rules" in t] == [
        f"{name} by the rules of a paper" for name in ("greedy", "ring", "forest", "mtegcca")
    ]


def test_a_studys_charts_are_saved_as_svg_and_png(browser, study_page):
    resize(browser, 1280)
    visit(browser, study_page)
    script = (
        "const [number, done] = arguments, make = URL.createObjectURL; let blob;"
        "URL.createObjectURL = (b) => { blob = b; return make(b); };"
        "HTMLAnchorElement.prototype.click = function () { URL.createObjectURL = make;"
        "createImageBitmap(blob).then((i) => [i.width, i.height], () => null).then((size) => blob.text().then((t) => done([this.download, blob.type, size, t.slice(0, 400)]))); };"
        "document.querySelectorAll('.chart .save button')[number].click();"
    )
    name, kind, _, text = browser.execute_async_script(script, 0)
    assert (name, kind) == ("lines-of-a-study.svg", "image/svg+xml")
    assert "var(" not in text
    wide, high = browser.execute_script(
        "const e = document.querySelector('.chart svg[role=img]'); return [e.clientWidth, e.clientHeight];"
    )
    name, kind, size, _ = browser.execute_async_script(script, 1)
    assert (name, kind) == ("lines-of-a-study.png", "image/png")
    assert size == [2 * wide, 2 * high]


def test_a_studys_bars_have_the_heights_of_their_values(browser, study_page):
    resize(browser, 1280)
    visit(browser, study_page)
    script = (
        "return [...document.querySelectorAll('.chart svg[role=img]')[1].querySelectorAll('g rect')]"
        ".map(e => [+e.getAttribute('y'), +e.getAttribute('height')]);"
    )
    bars = browser.execute_script(script)
    assert len(bars) == 12
    assert len({round(top + height, 6) for top, height in bars}) == 1  # all stand on the axis
    heights = [height for _, height in bars]
    lowest, second, third = heights[:3]
    assert 0 < lowest < second < third
    # the axis is logarithmic: from 1 to 3 ms is as far as from 3 to 9 ms, which the third scheme has
    assert second - lowest == pytest.approx(heights[7] - second, abs=0.01)


@pytest.fixture(scope="module")
def long_page(tmp_path_factory):
    """A page of a study over eleven sizes that takes hours, and of two schemes that share a colour."""
    path = tmp_path_factory.mktemp("long") / "study.html"
    time = {"title": "planning", "scale": "log", "form": "time"}
    buffer = {"title": "buffer", "scale": "log", "form": "bytes"}
    place = {"title": "", "scale": "category", "form": ""}
    shown = {"error": None, "colour": 0, "dash": "solid"}
    sizes = [1000 * 4**k for k in range(11)]
    lines = [
        {"name": "slow", "kind": "line", "x": sizes, "y": [10.0 ** (k / 2) for k in range(-1, 10)], "mark": 0, **shown}
    ]
    bars = [{"name": f"{m}", "kind": "bar", "x": ["a"], "y": [2.0 + m], "mark": m, **shown} for m in range(2)]
    charts = [
        {"title": "lines", "kind": "lines", "x": buffer, "y": time, "series": lines},
        {"title": "bars", "kind": "lines", "x": place, "y": time, "series": bars},
    ]
    path.write_text(study_html("A study", charts, "", ""))
    return path


def texts_of(browser, number: int) -> list[str]:
    script = "return [...document.querySelectorAll('.chart svg[role=img]')[arguments[0]].querySelectorAll('text')].map((t) => t.textContent);"
    return browser.execute_script(script, number)


@pytest.mark.parametrize("width", [1280, 400])
def test_labels_of_an_axis_are_equally_far_apart_and_its_times_are_round(browser, long_page, width):
    resize(browser, width)
    visit(browser, long_page)
    texts = texts_of(browser, 0)
    sizes = ["1 KB", "4 KB", "16 KB", "64 KB", "256 KB"] + ["1.024 MB", "4.096 MB", "16.38 MB", "65.54 MB"]
    named = [sizes.index(text) for text in texts if text in sizes]
    assert len({b - a for a, b in itertools.pairwise(named)}) == 1
    assert "10,000 s" in texts and not [text for text in texts if text.endswith(" h")]


def test_bars_of_schemes_that_share_a_colour_differ_by_stripes(browser, long_page):
    resize(browser, 1280)
    visit(browser, long_page)
    for part in ("svg[role=img] g g", ".keys svg g"):
        script = f"return [...document.querySelectorAll('.chart')][1].querySelectorAll('{part}').length"
        assert browser.execute_script(script) == 2
        striped = f"return [...document.querySelectorAll('.chart')][1].querySelectorAll('{part} path').length"
        assert browser.execute_script(striped) == 1
