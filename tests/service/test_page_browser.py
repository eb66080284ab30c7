"""The controller's page in a real browser: what it shows, what changes on it by itself, and what an operator does."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

import stretto as st
from controller_process import Served
from stretto.service.access import new_token

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")), reason="chromium or chromedriver is absent"
    ),
]

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1300,1400",
)  # fmt: skip
WAIT_S = 60.0
HOSTILE = "<script>alert(1)</script>"
PLACES = (("Oslo", 10.7, 59.9), ("Rome", 12.5, 41.9), ("Lisbon", -9.1, 38.7), (HOSTILE, 21.0, 52.2))
LINKS = ((0, 1), (1, 2), (2, 0), (0, 3), (3, 1))
NET = {
    "name": "<b>four places</b>", "geographic": True,
    "nodes": [{"id": i, "name": name, "x": x, "y": y} for i, (name, x, y) in enumerate(PLACES)],
    "links": [{"src": a, "dst": b, "bandwidth_Bps": 1e9, "latency_s": 1e-3} for x, y in LINKS for a, b in ((x, y), (y, x))],
}  # fmt: skip
JOB = {"network": "wan", "collectives": [{"kind": "allgather", "size": "8MB", "times": 3}]}


class Page:
    """A controller with tokens, its page in a browser, and a client that does what programs do."""

    def __init__(self, folder, driver) -> None:
        tokens = str(folder / "tokens")
        self.token = {role: new_token(tokens, role, f"{role}-1") for role in ("read", "operator")}
        self.served = Served(folder / "data", "--tokens", tokens, "--hold", 0)
        self.client, self.driver = self.served.client(self.token["operator"]), driver
        self.role: str | None = None

    def sign_in(self, role: str) -> None:
        """Look at the page with a token of that role, which is asked for once."""
        if self.role == role:
            return
        if self.role is not None:
            self.driver.execute_script("sessionStorage.clear()")
            self.driver.refresh()
        self.until("!document.getElementById('sign-in').hidden")
        self.driver.find_element("id", "token").send_keys(self.token[role] + "\n")
        self.until("document.querySelector('#live').textContent === 'live'")
        self.role = role

    def until(self, condition: str):
        """Wait until a condition holds on the page, which is looked at at once and before each frame; its value."""
        script = (
            "const done = arguments[arguments.length - 1], holds = () => " + condition + ";"
            "const look = () => { const found = holds(); found ? done(found) : requestAnimationFrame(look); }; look();"
        )
        return self.driver.execute_async_script(script)

    def text(self, selector: str) -> str:
        """What an element shows, which the page may draw anew at any moment."""
        return self.driver.execute_script("return document.querySelector(arguments[0]).innerText", selector)

    def stroke(self, link: str) -> str:
        """The class of a link's stroke on the map."""
        script = (
            "return document.querySelector(`path[data-link=${JSON.stringify(arguments[0])}]`).getAttribute('class')"
        )
        return self.driver.execute_script(script, link)

    def press(self, key: str) -> None:
        """Press a button once it can be pressed; the page may draw it anew at any moment."""
        button = f"document.querySelector('button[data-key=\"{key}\"]')"
        self.until(f"{button}?.disabled === false && ({button}.click(), true)")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    from selenium import webdriver

    folder = tmp_path_factory.mktemp("page")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder / 'browser'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(WAIT_S)
    found = None
    try:
        found = Page(folder, driver)
        driver.get(found.served.url)
        yield found
        refused = "/events - Failed to load resource: the server responded with a status of 401"
        entries = [entry["message"] for entry in driver.get_log("browser")]
        assert [entry for entry in entries if refused not in entry] == []
    finally:
        driver.quit()
        if found is not None:
            found.served.stop()


@pytest.fixture(scope="module")
def planned(page) -> Page:
    """With a network, a job, its first plan, and what its collective took."""
    page.client.put_network("wan", NET)
    page.client.put_job("training", JOB)
    page.client.plan("training", version=1, wait_s=WAIT_S)
    page.client.report_times("training", 1, [{"number": 0, "calls": 5, "measured_s": 0.0345}])
    page.sign_in("read")
    page.until("document.querySelector('[data-job=training]')?.textContent.includes('34.5 ms')")
    page.until(
        "document.querySelector('path[data-link=\"Oslo→Rome\"]') && document.querySelector('tr[data-link=\"Oslo→Rome\"]')"
    )
    return page


def test_an_empty_controller_says_how_to_add_a_network_which_then_appears(page):
    page.sign_in("read")
    said = page.until("document.querySelector('#empty pre')?.textContent")
    assert said == f"export STRETTO_CONTROLLER={page.served.url}\nstretto networks put wan -t sites:3,4"
    page.client.put_network("first", st.topology("ring:4").to_json())
    page.until("document.querySelectorAll('#links tbody tr').length === 8 && document.querySelector('#drawing svg')")
    assert "No job uses first yet" in page.text("#jobs")
    page.client.delete_network("first")
    page.until("!document.getElementById('empty').hidden")


def test_who_may_read_sees_networks_jobs_times_and_versions_and_can_change_nothing(planned):
    planned.sign_in("read")
    assert "4 nodes, 10 links. Version 1 since" in planned.text("#network-about")
    job = planned.text('[data-job="training"]')
    assert "allgather\n8 MB × 3, 4 ranks" in job and "34.5 ms" in job and "version 1" in job
    bound_s = planned.client.job("training")["collectives"][0]["bound_s"]
    assert f"{0.0345 / bound_s:.2f}×" in job
    assert planned.driver.execute_script("return document.querySelector('[data-version=\"1\"]').textContent").endswith(
        "The first plans on this network."
    )
    assert not planned.driver.find_element("css selector", '[data-key="hold training"]').is_enabled()
    assert planned.text("#identity") == "read-1 reads: sign in"


def test_names_of_clients_are_text_and_the_page_may_run_no_script_but_its_own(planned):
    assert planned.driver.execute_script("return document.querySelectorAll('script').length") == 1
    assert HOSTILE in planned.text("#links") and HOSTILE in planned.driver.execute_script(
        "return document.querySelector('#drawing svg').textContent"
    )
    blocked = planned.driver.execute_script(
        "try { document.body.innerHTML = '<p>'; return 'written'; } catch (error) { return error.name; }"
    )
    assert blocked == "TypeError"
    with urllib.request.urlopen(planned.served.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy and "unsafe" not in policy
    planned.driver.get_log("browser")  # the browser complains of what was tried above


def test_reports_of_links_are_shown_as_they_come(planned):
    assert planned.stroke("Oslo→Rome").split()[1] in ("u0", "u1", "u2", "u3", "u4")  # by plans: nothing is reported yet
    row = "document.querySelector('tr[data-link=\"Oslo→Rome\"]')"
    for carried, said, colour in (("970MB/s", "97 %", "u4"), ("120MB/s", "12 %", "u0")):
        planned.client.report("wan", {"links": [{"src": "Oslo", "dst": "Rome", "carried": carried}]})
        assert carried[:3] in planned.until(f"{row}?.textContent.includes({json.dumps(said)}) && {row}.textContent")
        assert planned.stroke("Oslo→Rome") == f"way {colour}"
    assert planned.stroke("Rome→Oslo") == "way none"


def test_an_operator_holds_a_plan_and_accepts_a_new_one(planned):
    client = planned.client
    planned.sign_in("operator")
    planned.press("hold training")
    planned.until("document.querySelector('[data-job=training] .pill').textContent === 'held at version 1'")
    slow = [{"src": a, "dst": b, "bandwidth": "50MB/s"} for a, b in (("Oslo", "Rome"), ("Rome", "Lisbon"))]
    client.report("wan", {"links": slow})
    planned.until(
        "document.querySelector('[data-job=training] .offer')?.textContent.includes('50 MB/s instead of 1 GB/s')"
    )
    assert client.job("training")["plan_version"] == 1
    planned.until("document.querySelector('#decisions .tag').textContent === 'proposed to training'")
    planned.press("accept training")
    planned.until("document.querySelector('[data-job=training] .pill').textContent === 'held at version 2'")
    assert client.plan("training")["version"] == 2 and client.job("training")["hold"]["who"] == "operator-1"
    planned.press("release training")
    planned.until("document.querySelector('[data-job=training] .pill').textContent === 'version 2'")
    assert client.job("training")["hold"] is None


def test_the_table_of_links_names_the_three_bandwidths_of_a_link(planned):
    planned.sign_in("read")
    planned.until("document.querySelector('#links th')")
    heads = "return [...document.querySelectorAll('#links th')].slice(3, 6).map((e) => [e.textContent, e.title])"
    names, titles = zip(*planned.driver.execute_script(heads), strict=True)
    assert names == ("reported", "planned", "given")
    assert all("bandwidth" in title for title in titles)


def test_a_network_of_planes_alone_is_shown_without_links(planned):
    planned.client.put_network("planes", st.topology("optical:4,2").to_json())
    planned.until("[...document.querySelectorAll('nav button, nav a')].some((e) => e.textContent === 'planes')")
    choose = "[...document.querySelectorAll('nav button, nav a')].find((e) => e.textContent === arguments[0]).click()"
    planned.driver.execute_script(choose, "planes")
    planned.until("document.getElementById('links-card').hidden")
    assert planned.text("#legend") == "2 optical planes, whose circuits change while collectives run"
    planned.driver.execute_script(choose, "wan")
    planned.until("!document.getElementById('links-card').hidden && document.querySelector('#links tbody tr')")


def test_a_page_of_another_site_can_write_nothing(planned):
    headers = {"Authorization": f"Bearer {planned.token['operator']}", "Sec-Fetch-Site": "cross-site"}
    request = urllib.request.Request(planned.served.url + "/jobs/training/hold", b"", headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 403


CONTRASTS = """
const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b; };
const colour = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const ground = (e) => { for (; e; e = e.parentElement) { const c = colour(getComputedStyle(e).backgroundColor);
  if (c.length === 3) return c; } return [255, 255, 255]; };
const poor = [];
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('svg, #tip, .unseen, .skip') || !e.checkVisibility() || e.disabled) continue;
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const [a, b] = [light(colour(getComputedStyle(e).color).slice(0, 3)), light(ground(e))].sort((x, y) => y - x);
  if ((a + .05) / (b + .05) < 4.5) poor.push([e.textContent.slice(0, 40), ((a + .05) / (b + .05)).toFixed(2)]);
}
const grounds = [ground(document.querySelector('.card')), colour(getComputedStyle(document.querySelector('.land')).fill)];
for (const e of document.querySelectorAll('.swatch:not(.none)')) for (const behind of grounds) {
  const [a, b] = [light(colour(getComputedStyle(e).stroke)), light(behind)].sort((x, y) => y - x);
  if ((a + .05) / (b + .05) < 3) poor.push([e.getAttribute('class'), ((a + .05) / (b + .05)).toFixed(2)]);
}
return poor;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_telephone_and_can_be_read(planned, scheme):
    narrow = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    planned.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    planned.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        planned.until(f"document.documentElement.dataset.scheme === '{scheme}'")
        planned.until("document.querySelector('#drawing svg').clientWidth < 400")
        assert planned.driver.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        assert planned.driver.execute_script(CONTRASTS) == []
    finally:
        planned.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
