"""What tests of how pages look share: pages with much on them, what a page draws, and its pixels."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

from page_browser import drawn, visit
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.report import study_html, write_page
from stretto.simulate import simulate
from stretto.topologies import load_topology

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


def written_page(folder: Path, networks: dict[str, str] = NETWORKS) -> Path:
    """A page with a plan for each network."""
    path = folder / "index.html"
    timelines, limits = zip(*(plan_of(*item) for item in networks.items()), strict=True)
    write_page(str(path), timelines, limits)
    return path


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


def pixels(driver) -> bytes:
    """The page as it is seen, all of it painted anew: corners that were painted before what is near them differ in their
    last bits."""
    driver.execute_script("document.activeElement && document.activeElement.blur(); scrollTo(0, 0);")
    for layer in ("transform", ""):
        driver.execute_script("document.body.style.willChange = arguments[0]", layer)
        drawn(driver)
    return driver.get_screenshot_as_png()


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
