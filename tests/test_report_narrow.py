"""Rail networks on the page, and the page on a telephone, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from drawn_pages import NETWORKS, RECORD, check_labels, resize, written_page
from page_browser import available, drawn, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
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
