// Numbers and moments for people, and elements of the page. Every text is set as text, never as markup.

const BYTES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]];
const scaled = (value, steps) => {
  const [factor, unit] = steps.find(([f]) => Math.abs(value) >= f * 0.9995) || steps[steps.length - 1], shown = value / factor;
  return [shown >= 999.5 ? String(Math.round(shown)) : shown === 0 ? "0" : shown.toPrecision(3), unit];
};
// three digits, so that columns align; a size as it was asked for
export const size = (bytes) => { const [digits, unit] = scaled(bytes, BYTES); return `${+digits} ${unit}`; };
export const rate = (perSecond) => `${scaled(perSecond, BYTES).join(" ")}/s`;
export const duration = (s) => s === 0 ? "0 s" : s >= 119.5 ? `${(s / 60).toPrecision(3)} min` : scaled(s, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]).join(" ");
export const percent = (share) => `${share > 0 && share < 0.095 ? (100 * share).toFixed(1) : Math.round(100 * share)} %`;
export const change = (before, after) => `${after <= before ? "−" : "+"}${percent(Math.abs(after / before - 1))}`;
export const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// the controller's clock: what it said, and how long ago by this machine's
let offset = 0;
export const setClock = (now) => { offset = now - Date.now() / 1000; };
export const now = () => Date.now() / 1000 + offset;

export function ago(at) {
  const s = Math.max(0, now() - at);
  if (s < 10) return "just now";
  if (s < 90) return `${Math.round(s / 10) * 10} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  return s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} days ago`;
}
export function moment(at) {
  const date = new Date((at - offset) * 1000), today = date.toDateString() === new Date().toDateString();
  const clock = date.toLocaleTimeString("en-GB");
  return element("time", { datetime: date.toISOString(), title: date.toLocaleString("en-GB"), "data-at": at, "data-clock": today ? clock : `${date.toLocaleDateString("en-GB")} ${clock}` },
    `${today ? clock : date.toLocaleDateString("en-GB")}, ${ago(at)}`);
}
export const refreshMoments = () => {
  for (const e of document.querySelectorAll("time[data-at]")) e.textContent = `${e.dataset.clock}, ${ago(+e.dataset.at)}`;
};

const SVG = "http://www.w3.org/2000/svg";
const filled = (e, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") e.addEventListener(key, value);
    else e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
};
export const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const shape = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

// other children for an element; what had the focus among them by its data-key keeps it
export function replace(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children);
  if (focused) [...place.querySelectorAll("[data-key]")].find((e) => e.dataset.key === focused)?.focus();
}
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// commands to copy
export function command(text) {
  const copy = element("button", { type: "button", click: async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "copied"; } catch { copy.textContent = "select it"; }
  } }, "copy");
  return element("div", { class: "command" }, element("pre", {}, text), copy);
}
