"""Following a chunk, a tree or a chain over the network and the timeline, filters, and the plan that a comparison opens:
in a real browser, against what the plan itself says."""

from __future__ import annotations

from pathlib import Path

import pytest

from page_browser import available, drawn, visit
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import REDUCE
from stretto.planners import run_planner
from stretto.report import write_page
from stretto.simulate import simulate
from stretto.topologies import load_topology

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]

SEEN = """
const P = CanvasRenderingContext2D.prototype, seen = window.seen = {rows: {}, map: []}, own = {};
for (const k of ['clearRect', 'fillText', 'beginPath', 'moveTo', 'lineTo', 'quadraticCurveTo', 'stroke']) own[k] = P[k];
let path = [], at = null;
P.clearRect = function (...a) { if (this.canvas.id === 'map') seen.map = []; if (this.canvas.id === 'rows') seen.rows = {}; return own.clearRect.apply(this, a); };
P.fillText = function (text, x, y) { if (this.canvas.id === 'rows' && text.includes('→')) seen.rows[text] = y; return own.fillText.call(this, text, x, y); };
P.beginPath = function () { path = []; return own.beginPath.call(this); };
P.moveTo = function (x, y) { at = [x, y]; return own.moveTo.call(this, x, y); };
P.lineTo = function (x, y) { path.push([(at[0] + x) / 2, (at[1] + y) / 2]); at = [x, y]; return own.lineTo.call(this, x, y); };
P.quadraticCurveTo = function (a, b, x, y) { path.push([(at[0] + 2 * a + x) / 4, (at[1] + 2 * b + y) / 4]); at = [x, y]; return own.quadraticCurveTo.call(this, a, b, x, y); };
P.stroke = function (...a) { if (this.canvas.id === 'map' && this.lineWidth === 3) seen.map.push(...path); return own.stroke.apply(this, a); };
const scheme = document.getElementById('scheme'); scheme.click(); scheme.click();
"""
"""Records the rows' names and the middles of the links that the network shows as followed."""

SHOWN = """
const c = document.getElementById('rows'), r = devicePixelRatio, copy = document.createElement('canvas'), style = getComputedStyle(document.documentElement);
copy.width = c.width; copy.height = c.height; const g = copy.getContext('2d', {willReadFrequently: true}); g.drawImage(c, 0, 0);
const full = new Set(Array.from({length: 8}, (_, k) => style.getPropertyValue('--c' + k).trim().match(/[0-9a-f]{2}/g).map((x) => parseInt(x, 16)).join()));
const rows = Object.entries(window.seen.rows).map(([name, y]) => {
  const left = +c.dataset.label, p = g.getImageData(left * r, Math.round(y * r), c.width - (left + 9) * r, 1).data; let lit = 0, dim = 0;
  for (let i = 0; i < p.length; i += 4) if (p[i + 3]) full.has([...p.slice(i, i + 3)].join()) ? lit++ : dim++;
  return [name, lit, dim]; });
const m = document.getElementById('map'), b = m.getBoundingClientRect(), tip = document.getElementById('tip');
const links = window.seen.map.map(([x, y]) => { m.onmousemove({clientX: b.left + x, clientY: b.top + y}); return tip.textContent.split('\\n')[0]; });
m.onmouseleave();
return [rows, links];
"""


def timeline_of(planner: str, *kinds: str):
    net = load_topology("sites:2,2")
    works = Workload(tuple(make_collective(kind, net, 4_000_000) for kind in kinds))
    return simulate(run_planner(planner, net, works)), bounds(net, works)


PLANS = {"one": ("ring", "allreduce"), "two": ("shortest-path", "allreduce", "allgather")}


@pytest.fixture(scope="module")
def plans():
    return {name: timeline_of(*asked) for name, asked in PLANS.items()}


@pytest.fixture(scope="module")
def page(plans, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("following")
    for name, (timeline, limits) in plans.items():
        write_page(str(folder / f"{name}.html"), [timeline], [limits])
    return {name: folder / f"{name}.html" for name in plans}


def links_of(timeline, transfers) -> set[str]:
    plan = timeline.plan
    return {plan.topology.link_name(int(i)) for t in transfers for i in plan.route[t]}


def shown(browser) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """For each row how many of its pixels have a full colour, and how many a faint one; and the links that are followed."""
    browser.execute_script(SEEN)
    drawn(browser)
    rows, links = browser.execute_script(SHOWN)
    return {name: (lit, dim) for name, lit, dim in rows}, set(links)


def chain_of(plan, first: int) -> set[int]:
    """A transfer, all that it waits for, and all that waits for it."""
    before, after = {first}, {first}
    for t in range(first, -1, -1):
        if t in before:
            before.update(map(int, plan.depends[t]))
    for t in range(first + 1, plan.transfer_count):
        if after & set(map(int, plan.depends[t])):
            after.add(t)
    return before | after


def followed(plan, what: str) -> set[int]:
    kind, number, *phase = what.split(":")
    if kind == "chain":
        return chain_of(plan, int(number))
    sums = plan.op == REDUCE
    return {
        t
        for t in range(plan.transfer_count)
        if plan.chunk[t] == int(number) and (kind == "chunk" or bool(sums[t]) == (phase == ["sums"]))
    }


@pytest.mark.parametrize("what", ["chunk:1", "tree:1:sums", "tree:1:copies", "chain:3"])
def test_what_is_followed_is_seen_on_the_links_and_rows_that_carry_it(browser, page, plans, what):
    timeline, _ = plans["one"]
    lit = followed(timeline.plan, what)
    assert 0 < len(lit) < timeline.plan.transfer_count
    visit(browser, page["one"], f"follow={what}")
    rows, links = shown(browser)
    expected = links_of(timeline, lit)
    assert links == expected
    assert {name for name, (full, _) in rows.items() if full} == expected
    assert set([*rows][: len(expected)]) == expected  # they stand first
    rest = set(range(timeline.plan.transfer_count)) - lit
    assert {name for name, (_, dim) in rows.items() if dim} == links_of(timeline, rest)


def test_a_bar_leads_to_its_chunk_its_tree_and_its_chain(browser, page, plans):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    timeline, _ = plans["one"]
    visit(browser, page["one"])
    words = browser.execute_script(
        "const c = document.getElementById('rows'), b = c.getBoundingClientRect(), t = document.getElementById('tip');"
        "for (let x = +c.dataset.label + 2; x < b.width - 10; x += 2) { const e = {clientX: b.left + x, clientY: b.top + 30, buttons: 0};"
        "c.onmousemove(e); if (t.textContent.startsWith('transfer')) { for (const kind of ['pointerdown', 'pointerup', 'click'])"
        "c.dispatchEvent(new PointerEvent(kind, {...e, pointerId: 1, bubbles: true})); return t.textContent; } }"
    )
    transfer = int(words.split()[1].strip(":"))
    chunk = int(timeline.plan.chunk[transfer])
    following = browser.find_element(By.ID, "following-words")
    assert following.text == f"following chunk {chunk}"
    browser.find_element(By.ID, "follow-tree").click()
    phase = "sums" if timeline.plan.op[transfer] == REDUCE else "copies"
    assert following.text == f"following the {phase} of chunk {chunk}"
    browser.find_element(By.ID, "follow-chain").click()
    assert following.text.startswith(f"following transfer {transfer}, what it waits for")
    browser.find_element(By.ID, "scroller").send_keys(Keys.ESCAPE)
    assert not following.is_displayed()


def test_filters_leave_the_links_that_are_asked_for(browser, page, plans):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    timeline, _ = plans["two"]
    plan, net = timeline.plan, timeline.plan.topology
    used = links_of(timeline, range(plan.transfer_count))
    ends = {net.link_name(i): {int(net.src[i]), int(net.dst[i])} for i in range(net.link_count)}
    node = net.names.index(sorted(used)[0].partition("→")[0])
    site = next(s for s in net.sites if s)
    at_site = {v for v, s in enumerate(net.sites) if s == site}
    one = sorted(used)[-1]
    sums = [t for t in range(plan.transfer_count) if plan.op[t] == REDUCE]
    second = [t for t in range(plan.transfer_count) if plan.workload.chunk_collective[plan.chunk[t]] == 1]
    asked = {
        net.names[node]: {name for name in used if node in ends[name]},
        site: {name for name in used if at_site & ends[name]},
        one: {one},
    }
    visit(browser, page["two"])
    for text, expected in asked.items():
        field = browser.find_element(By.ID, "where")
        field.clear()
        field.send_keys(text)
        drawn(browser)
        assert set(shown(browser)[0]) == expected, text
    browser.find_element(By.ID, "clear").click()
    whole, _ = shown(browser)
    for field, value, transfers in (("by-phase", "sums", sums), ("by-collective", "1", second)):
        Select(browser.find_element(By.ID, field)).select_by_value(value)
        rows, _ = shown(browser)
        assert set(rows) == links_of(timeline, transfers)
        # bars of other transfers are left out
        assert all(sum(pixels) <= sum(whole[name]) for name, pixels in rows.items())
        assert sum(map(sum, rows.values())) < 0.8 * sum(map(sum, whole.values()))
        browser.find_element(By.ID, "clear").click()
    assert set(shown(browser)[0]) == used


def test_a_comparison_opens_the_plan_that_ends_first(browser, tmp_path):
    made = [timeline_of(planner, "allgather") for planner in ("ring", "shortest-path", "forest")]
    completions = [timeline.completion_s for timeline, _ in made]
    soonest = completions.index(min(completions))
    assert soonest > 0 and len(set(completions)) > 1
    timelines, limits = zip(*made, strict=True)
    write_page(str(tmp_path / "index.html"), timelines, limits)
    visit(browser, tmp_path / "index.html")
    assert browser.execute_script("return +document.getElementById('pick').value") == soonest
    rows = browser.find_elements("css selector", "#compare tbody tr")
    marked = [{*row.get_attribute("class").split()} for row in rows]
    assert [k for k, classes in enumerate(marked) if "on" in classes] == [soonest]
    assert [k for k, classes in enumerate(marked) if "best" in classes] == [
        k for k, s in enumerate(completions) if s == min(completions)
    ]
    top = "return ['compare-card', 'tiles'].map((e) => document.getElementById(e).getBoundingClientRect().top)"
    table, tiles = browser.execute_script(top)
    assert table < tiles
