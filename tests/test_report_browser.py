"""The page in a real browser: it draws, answers to the pointer, and complains of nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from page_browser import available, drawn, visit
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.report import write_page
from stretto.simulate import simulate
from stretto.studies import find_study, run_study, write_study
from stretto.topologies import load_topology

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    timelines, limits = [], []
    for spec, chunks in (("ndv2:4", 1), ("zoo:Abilene", 4), ("torus:12x12", 1)):
        net = load_topology(spec)
        work = Workload((make_collective("allgather", net, shard_bytes=10**6, chunks=chunks),))
        timelines.append(simulate(run_planner("mtegcca", net, work)))
        limits.append(bounds(net, work))
    write_page(str(path), timelines, limits)
    return path


@pytest.fixture(scope="module")
def study_page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    study = find_study("scale-ccl")
    cells = tuple(c for c in study.cells if c.scheme in ("scale-ccl", "shortest path") and "table 1, 1" in c.figures)
    study = replace(study, cells=cells)
    write_study(run_study(study), study, str(folder))
    return folder / "index.html"


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Two plans of one AllGather, the first of 123,552 transfers."""
    path = tmp_path_factory.mktemp("large") / "index.html"
    net = load_topology("torus:12x12")
    works = [Workload((make_collective("allgather", net, shard_bytes=10**6, chunks=chunks),)) for chunks in (6, 1)]
    timelines = [simulate(run_planner("mtegcca", net, work)) for work in works]
    assert timelines[0].plan.transfer_count == 123_552
    write_page(str(path), timelines, [bounds(net, work) for work in works])
    return path


@pytest.fixture
def browser(chromium, page: Path) -> Iterator:
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.get("about:blank")
    chromium.get_log("performance")
    visit(chromium, page)
    yield chromium
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


def picture(driver, canvas: str) -> str:
    """What is on a canvas, "" if nothing is."""
    drawn(driver)
    script = (
        "const c = document.getElementById(arguments[0]), blank = document.createElement('canvas');"
        "blank.width = c.width; blank.height = c.height;"
        "const shown = c.toDataURL(); return shown === blank.toDataURL() ? '' : shown;"
    )
    return driver.execute_script(script, canvas)


def hover(driver, canvas: str, x: float, y: float) -> str:
    """Move the pointer over a canvas, to (x, y) from its corner; what the page says there."""
    from selenium.webdriver.common.action_chains import ActionChains

    element = driver.find_element("id", canvas)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    size = element.size
    ActionChains(driver).move_to_element_with_offset(element, x - size["width"] / 2, y - size["height"] / 2).perform()
    tip = driver.find_element("id", "tip")
    return tip.text if driver.execute_script("return arguments[0].style.opacity", tip) == "1" else ""


def select(driver, number: int) -> None:
    from selenium.webdriver.support.ui import Select

    Select(driver.find_element("id", "pick")).select_by_index(number)


def test_everything_is_drawn_and_nothing_is_fetched(browser, page):
    for canvas in ("map", "curve", "rows"):
        assert picture(browser, canvas) != ""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert page.as_uri() in sent
    assert {url.partition(":")[0] for url in sent} <= {"file", "data", "chrome"}  # chrome: its own empty first tab


def test_moving_the_slider_moves_the_picture(browser):
    from selenium.webdriver.common.keys import Keys

    before = picture(browser, "map")
    slider = browser.find_element("id", "time")
    for _ in range(3):
        slider.send_keys(Keys.PAGE_UP)
    assert picture(browser, "map") != before
    assert browser.find_element("id", "now").text.endswith("s")
    assert not browser.find_element("id", "whole").is_selected()


def test_hovering_a_bar_tells_of_its_transfer(browser):
    select(browser, 1)
    drawn(browser)
    x, y = browser.execute_script(
        # some bar of the first row, found by its colour on a copy of the canvas
        "const c = document.getElementById('rows'), r = devicePixelRatio, y = 30, copy = document.createElement('canvas');"
        "copy.width = c.width; copy.height = c.height; const g = copy.getContext('2d', {willReadFrequently: true});"
        "g.drawImage(c, 0, 0); const p = g.getImageData(0, y * r, c.width, 1).data;"
        "for (let x = +c.dataset.label + 4; x < c.width / r; x++) if (p[4 * Math.round(x * r) + 3] > 200) return [x + 2, y]; return [0, 0];"
    )
    text = hover(browser, "rows", x, y)
    assert "chunk" in text
    assert "→" in text
    assert "depends on nothing" in text or "after transfer" in text


def test_hovering_the_map_names_a_node_or_link(browser):
    select(browser, 1)
    drawn(browser)
    found = browser.execute_script(
        "const c = document.getElementById('map').getBoundingClientRect();"
        "const say = []; for (let y = 10; y < c.height; y += 6) for (let x = 10; x < c.width; x += 6) {"
        "document.getElementById('map').onmousemove({clientX: c.left + x, clientY: c.top + y});"
        "const t = document.getElementById('tip'); if (t.style.opacity === '1') say.push(t.textContent.split('\\n')[0]); }"
        "return say;"
    )
    assert "Denver" in found
    assert any("→" in name for name in found)


def test_one_plan_is_not_offered_for_choice(browser, page, tmp_path):
    net = load_topology("ring:4")
    work = Workload((make_collective("allgather", net, 4000),))
    write_page(str(tmp_path / "one.html"), [simulate(run_planner("ring", net, work))], [bounds(net, work)])
    assert browser.find_element("id", "pick").is_displayed()
    browser.get((tmp_path / "one.html").as_uri())
    assert not browser.find_element("id", "pick").is_displayed()


def test_another_plan_and_scheme_can_be_chosen(browser):
    first = browser.find_element("id", "tiles").text
    select(browser, 2)
    assert browser.find_element("id", "tiles").text != first
    assert "Aggregated" in browser.find_element("id", "rows-sub").text
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.find_element("id", "scheme").click()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    assert picture(browser, "rows") != ""


def test_the_comparison_sorts_and_selects(browser):
    table = browser.find_element("id", "compare")
    names = [row.find_elements("tag name", "td")[1].text for row in table.find_elements("css selector", "tbody tr")]
    assert names == ["ndv2:4", "zoo:Abilene", "torus:12x12"]
    next(h for h in table.find_elements("tag name", "th") if h.text == "transfers").click()
    rows = table.find_elements("css selector", "tbody tr")
    counts = [int(row.find_elements("tag name", "td")[5].text.replace(",", "")) for row in rows]
    assert counts == sorted(counts)
    rows[0].click()
    assert "440" in browser.find_element("id", "tiles").text


NARROW = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}


def wider_than_the_screen(driver) -> int:
    return driver.execute_script("return document.documentElement.scrollWidth - innerWidth")


def test_pages_fit_a_telephone(browser, study_page):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
    for number in range(3):
        select(browser, number)
        drawn(browser)
        assert wider_than_the_screen(browser) <= 0
    browser.get(study_page.as_uri())
    drawn(browser)
    assert wider_than_the_screen(browser) <= 0
    legend_ends, chart_ends = browser.execute_script(
        "const chart = document.querySelector('.chart'), legend = chart.querySelector('.keys');"
        "return [legend, chart].map(e => e.getBoundingClientRect().bottom);"
    )
    assert legend_ends <= chart_ends


def test_hovering_a_chart_of_a_study_compares_with_what_was_published(browser, study_page):
    from selenium.webdriver.common.action_chains import ActionChains

    visit(browser, study_page)
    chart = browser.find_element("css selector", ".chart svg[role=img]")
    ActionChains(browser).move_to_element(chart).perform()
    said = browser.find_element("id", "tip").text
    assert "shortest path (published)" in said
    assert "scale-ccl: " in said
    assert said.splitlines()[0].endswith("MB")


def test_a_scheme_is_hidden_in_all_charts_of_a_study_and_the_address_says_so(browser, study_page):
    shapes = "return [...document.querySelectorAll('.chart svg[role=img]')].map(e => e.querySelectorAll('path').length)"
    visit(browser, study_page)
    before = browser.execute_script(shapes)
    assert len(before) > 1
    browser.find_element("css selector", ".keys button[data-name='scale-ccl']").click()
    after = browser.execute_script(shapes)
    assert all(a < b for a, b in zip(after, before, strict=True))
    said = browser.execute_script("return location.hash.slice(1)")
    assert said == "hide=scale-ccl"
    visit(browser, study_page, said)
    assert browser.execute_script(shapes) == after


def test_the_charts_of_a_study_need_no_package(study_page):
    text = study_page.read_text(encoding="utf-8")
    assert "plotly" not in text.lower()
    assert len(text) < 200_000


# --- the timeline of a large plan -----------------------------------------------------------------

COLOURS = (  # how many pixels of each colour the middles of the rows have
    "const c = document.getElementById('rows'), r = devicePixelRatio, copy = document.createElement('canvas'), all = {};"
    "copy.width = c.width; copy.height = c.height; const g = copy.getContext('2d', {willReadFrequently: true});"
    "g.drawImage(c, 0, 0); for (let y = 22 + 7; y < c.height / r; y += 16) {"
    "const left = +c.dataset.label, p = g.getImageData(left * r, y * r, c.width - (left + 9) * r, 1).data;"
    "for (let i = 0; i < p.length; i += 4) if (p[i + 3]) { const k = [...p.slice(i, i + 3)].join(); all[k] = (all[k] || 0) + 1; } }"
    "return all;"
)


def test_a_plan_of_123552_transfers_is_zoomed_to_single_ones(browser, large):
    from selenium.webdriver.common.keys import Keys

    visit(browser, large)
    assert "Aggregated" in browser.find_element("id", "rows-sub").text
    timeline = browser.find_element("id", "scroller")
    for _ in range(40):
        timeline.send_keys("+")
    for _ in range(3):
        timeline.send_keys(Keys.ARROW_RIGHT)
    drawn(browser)
    script = (  # the tooltips of the first row, from left to right
        "const c = document.getElementById('rows'), b = c.getBoundingClientRect(), said = [];"
        "for (let x = 140; x < b.width - 10; x += 4) { c.onmousemove({clientX: b.left + x, clientY: b.top + 30, buttons: 0});"
        "const t = document.getElementById('tip').textContent; if (t.startsWith('transfer') && !said.includes(t)) said.push(t); }"
        "return said;"
    )
    said = browser.execute_script(script)
    assert 1 <= len(said) <= 60
    assert all("chunk" in text and "→" in text for text in said)
    browser.find_element("id", "fit").click()
    drawn(browser)
    crowd = browser.execute_script(script)
    assert len(crowd) != len(said)


def test_filters_leave_rows_out_and_following_dims_the_others(browser, large):
    visit(browser, large, "colour=chunk")
    all_colours = browser.execute_script(COLOURS)
    field = browser.find_element("id", "where")
    field.send_keys("gpu5→gpu6")
    drawn(browser)
    assert browser.find_element("id", "found").text == "1 of 576 links"
    browser.find_element("id", "clear").click()
    browser.find_element("id", "by-chunk").send_keys("8, 16-16")
    drawn(browser)
    # chunks 8 and 16 have the first class's colour, alone or blended with the card
    filtered = browser.execute_script(COLOURS)
    first = browser.execute_script("return getComputedStyle(document.documentElement).getPropertyValue('--c0')")
    rgb = [int(first.strip()[k : k + 2], 16) for k in (1, 3, 5)]
    assert 0 < len(filtered) < len(all_colours)
    for text in filtered:
        shares = [(255 - v) / (255 - c) for v, c in zip(map(int, text.split(",")), rgb, strict=True) if c < 250]
        assert max(shares) - min(shares) < 0.03, text
    browser.find_element("id", "clear").click()
    visit(browser, large, "colour=chunk&follow=chunk:8")
    assert "following chunk 8" in browser.find_element("id", "following-words").text
    dimmed = browser.execute_script(COLOURS)
    bright = sum(n for text, n in dimmed.items() if text == ",".join(map(str, rgb)))
    assert 0 < bright < 0.2 * sum(dimmed.values())


def touch(driver, element: str, ways: list[tuple[tuple[float, float], tuple[float, float]]]) -> dict[str, str]:
    """Move fingers over an element, each from one place to another in ten steps; what the address then says."""
    box = driver.execute_script(
        "const e = document.getElementById(arguments[0]); e.scrollIntoView({block: 'center'});"
        "const b = e.getBoundingClientRect(); return [b.left, b.top];",
        element,
    )
    for step in range(12):
        points = [
            {"x": box[0] + a[0] + (b[0] - a[0]) * step / 10, "y": box[1] + a[1] + (b[1] - a[1]) * step / 10, "id": n}
            for n, (a, b) in enumerate(ways)
        ]
        kind = "touchStart" if step == 0 else "touchEnd" if step == 11 else "touchMove"
        driver.execute_cdp_cmd(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [] if kind == "touchEnd" else points}
        )
    said = driver.execute_async_script("setTimeout(() => arguments[0](location.hash.slice(1)), 400)")
    return dict(pair.split("=") for pair in said.split("&") if pair)


def test_fingers_zoom_and_move_the_timeline_and_the_network(browser, page):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    try:
        visit(browser, page, "plan=1")
        wide = touch(browser, "rows", [((180, 60), (140, 60)), ((220, 60), (300, 60))])
        start, end = float(wide["from"]), float(wide["to"])
        assert 0 < start < end < 1
        assert end - start < 0.5  # 160 pixels where 40 were: a quarter
        moved = touch(browser, "rows", [((200, 60), (150, 60))])
        assert float(moved["from"]) > start
        assert float(moved["to"]) - float(moved["from"]) == pytest.approx(end - start, rel=1e-3)
        zoomed = touch(browser, "map", [((150, 120), (110, 120)), ((190, 120), (270, 120))])["map"].split("%2C")
        assert 3 < float(zoomed[0]) < 5
        before = float(zoomed[1])
        assert float(touch(browser, "map", [((150, 120), (200, 120))])["map"].split("%2C")[1]) > before
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_the_address_holds_what_is_seen(browser, large):
    from selenium.webdriver.support.ui import Select, WebDriverWait

    address = "plan=0&beside=1&t=0.25&whole=0&from=0.2&to=0.3&colour=chunk&sort=first&where=gpu7&follow=chunk%3A3"
    visit(browser, large, address)
    # another colour: the page writes it into its address, and keeps the rest
    Select(browser.find_element("id", "colour")).select_by_value("origin")
    WebDriverWait(browser, 10, 0.05).until(lambda b: "colour=origin" in b.execute_script("return location.hash"))
    said = browser.execute_script("return location.hash.slice(1)")
    first = picture(browser, "rows")
    now = dict(pair.split("=") for pair in said.split("&"))
    before = dict(pair.split("=") for pair in address.split("&"))
    assert {
        key: now.get(key) for key in ("beside", "t", "from", "to", "sort", "where", "follow")
    }.items() <= before.items()
    assert picture(browser, "rows-b") != ""
    assert "sooner than" in browser.find_element("id", "gains-sub").text
    visit(browser, large, said)
    assert picture(browser, "rows") == first


def test_drawings_are_saved_as_svg(browser):
    for number in (0, 1):
        select(browser, number)
        drawn(browser)
        for what in ("map", "rows"):
            text = browser.execute_async_script(
                "const [what, done] = arguments, make = URL.createObjectURL;"
                "URL.createObjectURL = (blob) => { blob.text().then(done); return make(blob); };"
                "HTMLAnchorElement.prototype.click = () => {};"
                "document.querySelector(`[data-save='${what} svg']`).click(); URL.createObjectURL = make;",
                what,
            )
            root = ElementTree.fromstring(text)
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert len(root.findall(".//{*}rect" if what == "rows" else ".//{*}path")) > 5
            assert any("→" in (e.text or "") for e in root.iter()) or what == "map"


def test_drawings_are_saved_as_png_of_twice_their_size(browser):
    for what in ("map", "rows"):
        kind, name, size, colours = browser.execute_async_script(
            "const [what, done] = arguments; HTMLAnchorElement.prototype.click = function () {"
            "fetch(this.href).then((r) => r.blob()).then((b) => createImageBitmap(b).then((i) => {"
            "const c = document.createElement('canvas'); c.width = i.width; c.height = i.height;"
            "const g = c.getContext('2d', {willReadFrequently: true}); g.drawImage(i, 0, 0);"
            "const seen = new Set(new Uint32Array(g.getImageData(0, 0, i.width, i.height).data.buffer));"
            "done([b.type, this.download, [i.width, i.height], seen.size]); })); };"
            "document.querySelector(`[data-save='${what} png']`).click();",
            what,
        )
        assert kind == "image/png"
        assert name.endswith(f"{'network' if what == 'map' else 'timeline'}.png")
        assert size[0] == 2800
        assert size[1] > 300
        assert colours > 20
