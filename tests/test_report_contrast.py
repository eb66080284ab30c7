"""The contrast of all text on pages, in a real browser: WCAG AA, light and dark."""

from __future__ import annotations

import pytest

from drawn_pages import NETWORKS, resize
from page_browser import available, drawn, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="chromium or chromedriver is absent"),
]

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
def test_all_text_has_the_contrast_of_wcag_aa(browser, network_page, study_page, scheme):
    """4.5 for text, 3 for large text, WCAG 2.2, 1.4.3."""
    resize(browser, 1280)
    for path, address, least in (
        (network_page, f"beside=1&scheme={scheme}", 100),
        (study_page, f"scheme={scheme}", 30),
    ):
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
def test_text_on_the_canvases_has_the_contrast_of_wcag_aa(browser, network_page, scheme):
    """Against each pixel that a letter covers, as drawn: links, land, frames, bars of planes and the halo of the text."""
    resize(browser, 1280)
    for number, spec in enumerate(NETWORKS):
        visit(browser, network_page, f"plan={number}&scheme={scheme}")
        browser.execute_script(CANVAS_TEXT)
        drawn(browser)
        count, low = browser.execute_script("return [window.drawnTexts, window.low]")
        assert count > 8, spec
        assert low == [], spec
    said = [entry["message"] for entry in browser.get_log("browser")]  # of reading pixels back, as this test does
    assert all("willReadFrequently" in message for message in said), said
