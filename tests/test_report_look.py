"""How pages look, in a real browser: labels, contrast, panels, and the same pixels for the same address.

Pixels are compared with pixels of the same run, since fonts differ between machines; panels with a table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest

from page_browser import available, drawn, started, visit
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.report import study_html, write_page
from stretto.simulate import simulate
from stretto.topologies import load_topology

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]

REGIONS = "aws:us-east-1,aws:us-west-2,aws:eu-west-1,gcp:europe-west4-a,azure:uksouth,aws:sa-east-1"
NETWORKS = {
    "h100:4": "ring",
    f"cloud:{REGIONS}": "ring",
    "zoo:Abilene": "mtegcca",
    "torus:4x4": "ring",
    "ndv2:4": "ring",
    "optical:8,2": "pairwise+swot",
}


def plan_of(spec: str, planner: str):
    net = load_topology(spec)
    kind = "alltoall" if net.planes else "allgather"
    work = Workload((make_collective(kind, net, 16_000_000 // net.node_count * net.node_count),))
    return simulate(run_planner(planner, net, work)), bounds(net, work)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return written_page(tmp_path_factory.mktemp("look"))


def written_page(folder: Path, networks: dict[str, str] = NETWORKS) -> Path:
    """A page with a plan for each network."""
    path = folder / "index.html"
    timelines, limits = zip(*(plan_of(*item) for item in networks.items()), strict=True)
    write_page(str(path), timelines, limits)
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return written_study(tmp_path_factory.mktemp("study"))


def written_study(folder: Path) -> Path:
    """A page of a study with lines, bars and boxes."""

    def axis(title: str, scale: str, form: str) -> dict[str, str]:
        return {"title": title, "scale": scale, "form": form}

    time = axis("simulated completion", "log", "time")
    places = {
        "lines": (axis("buffer", "log", "bytes"), [10**6, 10**7, 10**9]),
        "bars": (axis("", "category", ""), ["dgx2:2", "sites:3,4?connectivity=0.5&km=150", "zoo:Abilene"]),
        "boxes": (axis("", "category", ""), ["a", "a", "a"]),
    }
    charts = []
    for kind, (x, at) in places.items():
        series = [
            {"name": f"{name} by the rules of a paper", "kind": kind.removesuffix("s").replace("boxe", "box"), "x": at,
             "y": [1e-3 * (n + 1), 3e-3 * (n + 1), 0.2], "error": None, "colour": n, "mark": n % 6, "dash": "solid"}
            for n, name in enumerate(("greedy", "ring", "forest", "mtegcca"))
        ]  # fmt: skip
        charts.append({"title": f"{kind} of a study", "kind": kind, "x": x, "y": time, "series": series})
    path = folder / "study.html"
    words = "<section class='card'><p>A paper. <a href='#cells'>every cell</a></p><ul><li>a note</li></ul></section>"
    table = "<table><thead><tr><th>scheme</th></tr></thead><tbody><tr><td class='other'>ring</td></tr></tbody></table>"
    path.write_text(study_html("A study", charts, words, f"<section class='card' id='cells'>{table}</section>"))
    return path


def resize(driver, width: int) -> None:
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    drawn(driver)


# --- labels ---------------------------------------------------------------------------------------

RECORD = """
const P = CanvasRenderingContext2D.prototype, own = {}, seen = window.seen = {};
for (const k of ['clearRect', 'fillText', 'beginPath', 'moveTo', 'lineTo', 'quadraticCurveTo', 'closePath', 'rect', 'arc', 'stroke']) own[k] = P[k];
let path = [], at = null, shape = false;
P.clearRect = function (...a) { seen[this.canvas.id] = {texts: [], lines: [], size: [this.canvas.width, this.canvas.height]}; return own.clearRect.apply(this, a); };
P.fillText = function (text, x, y) {
  const m = this.measureText(text);
  seen[this.canvas.id].texts.push([text, x - m.actualBoundingBoxLeft, y - m.actualBoundingBoxAscent, x + m.actualBoundingBoxRight, y + m.actualBoundingBoxDescent]);
  return own.fillText.call(this, text, x, y); };
P.beginPath = function () { path = []; shape = false; return own.beginPath.call(this); };
P.moveTo = function (x, y) { at = [x, y]; return own.moveTo.call(this, x, y); };
P.lineTo = function (x, y) { path.push([...at, x, y]); at = [x, y]; return own.lineTo.call(this, x, y); };
P.quadraticCurveTo = function (a, b, x, y) {
  let [px, py] = at;
  for (let k = 1; k <= 16; k++) { const f = k / 16, e = 1 - f, qx = e * e * at[0] + 2 * e * f * a + f * f * x, qy = e * e * at[1] + 2 * e * f * b + f * f * y; path.push([px, py, qx, qy]); px = qx; py = qy; }
  at = [x, y]; return own.quadraticCurveTo.call(this, a, b, x, y); };
for (const k of ['closePath', 'rect', 'arc']) P[k] = function (...a) { shape = true; return own[k].apply(this, a); };
P.stroke = function (...a) { if (!shape && !this.getLineDash().length) seen[this.canvas.id].lines.push(...path); return own.stroke.apply(this, a); };
document.getElementById('scheme').click();
"""

Box = list[float]


def overlap(a: Box, b: Box) -> bool:
    return a[0] + 0.5 < b[2] and b[0] + 0.5 < a[2] and a[1] + 0.5 < b[3] and b[1] + 0.5 < a[3]


def crosses(line: Box, box: Box) -> bool:
    """Whether a line has a part inside a box (Liang and Barsky, 1984)."""
    (x, y, to_x, to_y), first, last = line, 0.0, 1.0
    for start, way, low, high in ((x, to_x - x, box[0], box[2]), (y, to_y - y, box[1], box[3])):
        if abs(way) < 1e-9:
            if not low < start < high:
                return False
            continue
        enter, leave = sorted(((low - start) / way, (high - start) / way))
        first, last = max(first, enter), min(last, leave)
    return first < last


@pytest.mark.parametrize("width", [1280, 400])
def test_labels_do_not_overlap_and_lie_on_no_line(browser, page, width):
    resize(browser, width)
    check_labels(browser, page, NETWORKS)


def check_labels(browser, page: Path, networks: Iterable[str]) -> None:
    """Fail if labels of a page's plans overlap, leave the canvas or lie on a line."""
    for number, spec in enumerate(networks):
        visit(browser, page, f"plan={number}")
        browser.execute_script(RECORD)
        drawn(browser)
        seen = browser.execute_script("return window.seen")
        assert {"map", "curve"} <= set(seen), spec
        for canvas, drawing in seen.items():
            texts = drawing["texts"]
            for (one, *a), (other, *b) in combinations(texts, 2):
                assert not overlap(a, b), (spec, canvas, one, other)
            assert canvas != "rows" or [text for text, *_ in texts if "…" in text] == [], spec
            for text, *box in texts:
                assert box[0] >= -1 and box[2] <= drawing["size"][0] + 1, (spec, canvas, text)
        labels, lines = seen["map"]["texts"], seen["map"]["lines"]
        assert labels and lines, spec
        crossed = [text for text, *box in labels if any(crosses(line, box) for line in lines)]
        assert crossed == [], spec


def test_names_apart_from_their_nodes_have_a_line_that_leads_there(browser, page):
    number = list(NETWORKS).index("zoo:Abilene")
    for width in (1280, 400):
        resize(browser, width)
        visit(browser, page, f"plan={number}")
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


def test_names_above_the_rows_are_those_of_the_bars_below(browser, page):
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
        visit(browser, page, address)
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


def test_text_of_a_studys_charts_does_not_overlap(browser, study):
    script = (
        "return [...document.querySelectorAll('.chart svg[role=img]')].map(g => [...g.querySelectorAll('text')]"
        ".map(t => [t.textContent, t.getAttribute('transform') || '', ...(({left, top, right, bottom}) => [left, top, right, bottom])"
        "(t.getBoundingClientRect())]));"
    )
    for width in (1280, 400):
        resize(browser, width)
        visit(browser, study)
        for texts in browser.execute_script(script):
            assert texts
            level = [t for t in texts if not t[1]]  # boxes of turned text are larger than the text
            for (one, _, *a), (other, _, *b) in combinations(level, 2):
                assert not overlap(a, b), (width, one, other)
            assert all(t[2] >= -1 and t[4] <= width + 1 for t in level)
        assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0


def test_names_of_a_studys_boxes_are_whole_on_a_telephone(browser, study):
    resize(browser, 400)
    visit(browser, study)
    texts = browser.execute_script(
        "return [...document.querySelectorAll('.chart svg[role=img]')[2].querySelectorAll('text')].map((t) => t.textContent);"
    )
    assert [t for t in texts if "rules" in t] == [
        f"{name} by the rules of a paper" for name in ("greedy", "ring", "forest", "mtegcca")
    ]


def test_a_studys_charts_are_saved_as_svg_and_png(browser, study):
    resize(browser, 1280)
    visit(browser, study)
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


def test_a_studys_bars_have_the_heights_of_their_values(browser, study):
    resize(browser, 1280)
    visit(browser, study)
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


def test_the_title_has_room_and_the_comparison_is_seen_whole(browser, page):
    script = (
        "const at = (e) => e.getBoundingClientRect(), table = document.getElementById('compare');"
        "return [at(document.querySelector('h1')), at(document.querySelector('header'))].map((b) => [b.width, b.height])"
        ".concat([[table.parentElement.scrollWidth - table.parentElement.clientWidth,"
        " [...table.querySelectorAll('th')].filter((e) => e.checkVisibility()).map((e) => e.textContent)]]);"
    )
    for width, tallest in ((1280, 200), (400, 350)):
        resize(browser, width)
        visit(browser, page, "beside=1")
        title, header, (hidden, columns) = browser.execute_script(script)
        assert title[0] > 200
        assert header[1] < tallest
        assert hidden == 0
        assert {"planner", "topology", "completion", "ratio"} <= set(columns)


# --- contrast -------------------------------------------------------------------------------------

CONTRAST = """
const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true}); c.canvas.width = c.canvas.height = 1;
const parts = (css) => { c.clearRect(0, 0, 1, 1); c.fillStyle = css; c.fillRect(0, 0, 1, 1); const [r, g, b, a] = c.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
const over = (top, low) => [0, 1, 2].map((i) => top[i] * top[3] + low[i] * (1 - top[3])).concat(1);
const behind = (e) => { const chain = []; for (; e; e = e.parentElement) chain.push(parts(getComputedStyle(e).backgroundColor)); return chain.reverse().reduce((low, top) => over(top, low), [255, 255, 255, 1]); };
const light = (p) => p.slice(0, 3).map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const low = [];  let count = 0;
for (const e of document.querySelectorAll('body *')) {
  if (e.matches('[type=range], [type=checkbox]') || !e.checkVisibility({opacityProperty: true, visibilityProperty: true}) || e.closest('script, style, option, datalist') || (e.closest('#tip') && e.closest('#tip').style.opacity !== '1')) continue;
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && e.tagName !== 'SELECT' && e.tagName !== 'INPUT') continue;
  const style = getComputedStyle(e), back = behind(e), svg = e instanceof SVGElement, front = over(parts(svg ? style.fill : style.color), back);
  const [dark, bright] = [light(front), light(back)].sort((a, b) => a - b), ratio = (bright + .05) / (dark + .05); count++;
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) low.push([e.tagName, e.id || e.className, (e.textContent || '').slice(0, 40), +ratio.toFixed(2)]);
}
return [count, low];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_wcag_aa(browser, page, study, scheme):
    """4.5 for text, 3 for large text, WCAG 2.2, 1.4.3."""
    resize(browser, 1280)
    for path, address, least in ((page, f"beside=1&scheme={scheme}", 100), (study, f"scheme={scheme}", 30)):
        visit(browser, path, address)
        count, low = browser.execute_script(CONTRAST)
        assert count > least
        assert low == []


CANVAS_TEXT = """
const P = CanvasRenderingContext2D.prototype, fill = P.fillText, one = document.createElement('canvas').getContext('2d', {willReadFrequently: true}); one.canvas.width = one.canvas.height = 1;
const parts = (css, low) => { one.globalAlpha = 1; one.clearRect(0, 0, 1, 1); if (low) { one.fillStyle = low; one.fillRect(0, 0, 1, 1); } one.fillStyle = css; one.fillRect(0, 0, 1, 1); return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3); };
const light = (p) => p.map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const card = getComputedStyle(document.documentElement).getPropertyValue('--card').trim(), low = window.low = []; window.drawnTexts = 0;
P.fillText = function (text, x, y) {
  const m = this.measureText(text), r = this.getTransform().a, w = Math.ceil((m.actualBoundingBoxLeft + m.actualBoundingBoxRight) * r), h = Math.ceil((m.actualBoundingBoxAscent + m.actualBoundingBoxDescent) * r);
  if (!this.canvas.isConnected || w < 1 || h < 1) return fill.call(this, text, x, y);
  const at = this.getTransform().transformPoint({x: x - m.actualBoundingBoxLeft, y: y - m.actualBoundingBoxAscent}), own = [Math.floor(at.x), Math.floor(at.y), w, h];
  const before = this.getImageData(...own).data; fill.call(this, text, x, y); const after = this.getImageData(...own).data;
  const front = light(parts(this.fillStyle, card)); window.drawnTexts++;
  let least = 99;
  for (let i = 0; i < before.length; i += 4) {
    if ([0, 1, 2, 3].every((k) => before[i + k] === after[i + k])) continue;
    const a = before[i + 3] / 255, back = light([0, 1, 2].map((k) => before[i + k] * a + parts(card)[k] * (1 - a)));
    const [d, b] = [front, back].sort((p, q) => p - q); least = Math.min(least, (b + .05) / (d + .05));
  }
  if (least < 4.5) low.push([this.canvas.id, text, +least.toFixed(2)]);
};
document.getElementById('time').dispatchEvent(new Event('input'));
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_the_canvases_has_the_contrast_of_wcag_aa(browser, page, scheme):
    """Against each pixel that a letter covers, as drawn: links, land, frames, bars of planes and the halo of the text."""
    resize(browser, 1280)
    for number, spec in enumerate(NETWORKS):
        visit(browser, page, f"plan={number}&scheme={scheme}")
        browser.execute_script(CANVAS_TEXT)
        drawn(browser)
        count, low = browser.execute_script("return [window.drawnTexts, window.low]")
        assert count > 8, spec
        assert low == [], spec
    said = [entry["message"] for entry in browser.get_log("browser")]  # of reading pixels back, as this test does
    assert all("willReadFrequently" in message for message in said), said


# --- pixels and panels ----------------------------------------------------------------------------


def pixels(driver) -> bytes:
    driver.execute_script("document.activeElement && document.activeElement.blur(); scrollTo(0, 0);")
    drawn(driver)
    return driver.get_screenshot_as_png()


def test_the_address_of_what_was_clicked_shows_the_same_pixels(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import Select

    resize(browser, 1280)
    visit(browser, page, "plan=2&scheme=light")
    plain = pixels(browser)
    visit(browser, page, "plan=2&scheme=light")
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
    visit(browser, page, address)
    assert pixels(browser) == clicked


def test_the_address_holds_the_part_of_the_network_the_rows_and_the_order_of_plans(browser, page):
    from selenium.webdriver.support.ui import Select

    resize(browser, 1280)
    visit(browser, page, "plan=0&beside=4&scheme=light")
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
    visit(browser, page, address)
    assert pixels(browser) == changed
    # a zoom out of range and a column that does not exist are left out
    visit(browser, page, "plan=0&map=900,0,0&order=beauty&row=x")
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
def test_panels_stand_where_they_stood(browser, page, study, place):
    assert panels(browser, place, page, study) == PANELS[place]


def test_light_and_dark_differ_in_colour_alone(browser, page, study):
    resize(browser, 1280)
    for path in (page, study):
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
