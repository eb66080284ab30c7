// Words and numbers: what the page says of times, sizes, links and axes.
const $ = (id) => document.getElementById(id);
const page = JSON.parse($("data").textContent);

const scaled = (v, steps) => { for (const [f, u] of steps) if (Math.abs(v) >= f * 0.9995) return `${+(v / f).toPrecision(4)} ${u}`;
  const [f, u] = steps[steps.length - 1]; return `${+(v / f).toPrecision(4)} ${u}`; };
const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]], HOUR = [3600, "h"];
const time = (s) => s === 0 ? "0 s" : scaled(s, [HOUR, ...SECONDS]);
const size = (b) => scaled(b, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]]);
const percent = (x) => `${(100 * x).toFixed(1)} %`;
const count = (n) => n.toLocaleString("en");
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
const letters = (n) => n < 26 ? String.fromCharCode(65 + n) : letters(Math.floor(n / 26) - 1) + String.fromCharCode(65 + n % 26);
const linkName = (p, i) => `${p.names[p.links.src[i]]}→${p.names[p.links.dst[i]]}`;
const some = (list, most = 6) => list.slice(0, most).join(", ") + (list.length > most ? ` and ${count(list.length - most)} more` : "");

// round moments from a to b, at most one for every 95 pixels
function ticks(a, b, width) {
  const most = Math.max(1, Math.floor(width / 95)), unit = b - a > 3 * 3600 ? 3600 : 1, power = unit * 10 ** Math.floor(Math.log10((b - a) / unit / most || 1));
  const step = power * [1, 2, 5, 10].find((m) => (b - a) / (power * m) <= most * 1.0001), found = [];
  for (let i = Math.ceil(a / step - 1e-9); i * step <= b + step * 1e-9; i++) found.push(i * step);
  return Object.assign(found, { step });
}
// a moment of an axis, with as many digits as tell it from the next one
function moment(t, step) {
  if (t === 0) return "0 s";
  const [f, u] = step >= 360 ? HOUR : SECONDS.find(([f]) => Math.abs(t) >= f * 0.9995) || SECONDS[3];
  return `${+(t / f).toFixed(Math.max(0, Math.ceil(-Math.log10(step / f) - 1e-9)))} ${u}`;
}
// moments along an axis, words kept within it, none over another one
function axis(g, moments, X, y, width) {
  let free = -Infinity; g.textAlign = "center";
  for (const t of moments) {
    const text = moment(t, moments.step), half = g.measureText(text).width / 2, x = clamp(X(t), half, width - half);
    if (x - half < free) continue;
    free = x + half + 8; g.fillText(text, x, y);
  }
}
function fit(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let low = 1, high = text.length;
  while (low < high) { const mid = (low + high + 1) >> 1; if (g.measureText(text.slice(0, mid) + "…").width <= width) low = mid; else high = mid - 1; }
  return text.slice(0, low) + "…";
}
// the beginning and the end of a name
function fitMiddle(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let low = 2, high = text.length;
  const cut = (n) => text.slice(0, Math.ceil(n / 2)) + "…" + text.slice(text.length - Math.floor(n / 2));
  while (low < high) { const mid = (low + high + 1) >> 1; if (g.measureText(cut(mid)).width <= width) low = mid; else high = mid - 1; }
  return cut(low);
}
// the name of a link; where it is too wide, its two ends share the room
function fitLink(g, p, i, width) {
  const name = linkName(p, i);
  if (g.measureText(name).width <= width) return name;
  const ends = name.split("→"), room = width - g.measureText("→").width, [a, b] = ends.map((end) => g.measureText(end).width);
  const first = clamp(a, 0, Math.max(room / 2, room - b));
  return `${fitMiddle(g, ends[0], first)}→${fitMiddle(g, ends[1], room - Math.min(a, first))}`;
}
function element(tag, text, attributes) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  return e;
}
// a text, as the spec of a network, that is broken where its parts end before it is broken within them
function parted(e, text, ends = /(?<=[?&=,+])/) {
  e.replaceChildren(...text.split(ends).flatMap((part, n) => n ? [element("wbr"), part] : [part]));
  return e;
}
// a text in which options such as ?message=0 are not broken
function whole(e, text) {
  e.replaceChildren(...text.split(/(\?[\w=&.]+)/).map((part, n) => n % 2 ? element("span", part, { class: "whole" }) : part));
  return e;
}
function tip(event, text) {
  const e = $("tip");
  if (!event) { e.style.opacity = 0; return; }
  if (Array.isArray(text)) e.replaceChildren(...text); else e.textContent = text;
  e.style.opacity = 1;
  const b = e.getBoundingClientRect();
  e.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - b.width - 8)) + "px";
  e.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - b.height - 8)) + "px";
}
