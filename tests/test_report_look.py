"""How pages look, in a real browser: panels where they stood, and the same pixels for the same address.

Pixels are compared with pixels of the same run, since fonts differ between machines; panels with a table.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from drawn_pages import pixels, resize, written_page, written_study
from page_browser import available, started, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]


def test_the_address_of_what_was_clicked_shows_the_same_pixels(browser, network_page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import Select

    resize(browser, 1280)
    visit(browser, network_page, "plan=2&scheme=light")
    plain = pixels(browser)
    visit(browser, network_page, "plan=2&scheme=light")
    assert pixels(browser) == plain
    Select(browser.find_element("id", "colour")).select_by_value("chunk")
    Select(browser.find_element("id", "sort")).select_by_value("from")
    Select(browser.find_element("id", "tint")).select_by_value("class")
    browser.find_element("id", "where").send_keys("Denver")
    browser.find_element("id", "witness").click()
    browser.find_element("id", "scroller").send_keys("+++")
    ActionChains(browser).move_by_offset(0, 0).perform()
    browser.execute_script("document.getElementById('rows').onmouseleave()")
    address = browser.execute_async_script("setTimeout(() => arguments[0](location.hash.slice(1)), 400)")
    clicked = pixels(browser)
    assert clicked != plain
    visit(browser, network_page, address)
    assert pixels(browser) == clicked


def test_the_address_holds_the_part_of_the_network_the_rows_and_the_order_of_plans(browser, network_page):
    from selenium.webdriver.support.ui import Select

    resize(browser, 1280)
    visit(browser, network_page, "plan=0&beside=4&scheme=light")
    before = pixels(browser)
    next(h for h in browser.find_elements("css selector", "#compare th") if h.text == "ratio").click()
    Select(browser.find_element("id", "layout")).select_by_value("nodes")
    browser.find_element("id", "map").send_keys("+++")
    browser.execute_script("document.getElementById('scroller').scrollTop = 160")
    address = browser.execute_async_script("setTimeout(() => arguments[0](location.hash.slice(1)), 400)")
    changed = pixels(browser)
    assert changed != before
    said = dict(pair.split("=") for pair in address.split("&"))
    assert said["row"] == "10"
    assert said["order"] == "ratio"
    assert said["layout"] == "nodes"
    assert said["map"].startswith("3.375")
    visit(browser, network_page, address)
    assert pixels(browser) == changed
    # a zoom out of range and a column that does not exist are left out
    visit(browser, network_page, "plan=0&map=900,0,0&order=beauty&row=x")
    left = browser.execute_async_script("setTimeout(() => arguments[0](location.hash.slice(1)), 400)")
    assert not {"map", "row"} & {pair.split("=")[0] for pair in left.split("&")}


BOXES = """
const main = document.querySelector('main').getBoundingClientRect(), style = getComputedStyle(document.querySelector('main'));
const left = main.left + parseFloat(style.paddingLeft), wide = main.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
return [...document.querySelectorAll('main > *, main .columns > *, #charts > *')].filter((e) => e.checkVisibility() && !e.matches('.columns'))
  .map((e) => { const b = e.getBoundingClientRect(), h = e.querySelector('h2'); return [h ? h.textContent : e.getAttribute('aria-label') || e.id, Math.round(100 * (b.left - left) / wide), Math.round(100 * b.width / wide)]; });
"""
EXACT = (
    "return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility())"
    ".map((e) => { const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })"
)
GOLDEN = Path(__file__).parent / "golden" / "panels.json"
PANELS = json.loads(GOLDEN.read_text())
"""For each page and width the panels from top to bottom: name, left edge and width in percent of the page.
``python tests/test_report_look.py`` writes them again."""


def panels(driver, place: str, page: Path, study: Path) -> list[list]:
    name, width = place.split()
    resize(driver, int(width))
    visit(driver, study if name == "study" else page, "" if name == "study" else "plan=0")
    return driver.execute_script(BOXES)


@pytest.mark.parametrize("place", PANELS)
def test_panels_stand_where_they_stood(browser, network_page, study_page, place):
    assert panels(browser, place, network_page, study_page) == PANELS[place]


def test_light_and_dark_differ_in_colour_alone(browser, network_page, study_page):
    resize(browser, 1280)
    for path in (network_page, study_page):
        found = []
        for scheme in ("light", "dark"):
            visit(browser, path, f"scheme={scheme}")
            found.append((browser.execute_script(EXACT), pixels(browser)))
        assert found[0][0] == found[1][0]
        assert found[0][1] != found[1][1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        here, driver = Path(folder), started(Path(folder) / "profile")
        files = written_page(here), written_study(here)
        found = {place: panels(driver, place, *files) for place in PANELS}
        driver.quit()
    rows = ",\n".join(
        f" {json.dumps(place)}: [\n" + ",\n".join(f"  {json.dumps(box)}" for box in boxes) + "\n ]"
        for place, boxes in found.items()
    )
    GOLDEN.write_text(f"{{\n{rows}\n}}\n")
