// What the reader has chosen, and the address that holds it: whoever opens the address sees the same.
const DEFAULTS = { plan: null, beside: -1, t: 0, whole: true, from: 0, to: 1, colour: "", tint: "use", sort: "use", where: "", chunk: "", phase: "",
  collective: "", follow: "", witness: false, scheme: "", layout: "", map: "", order: "", row: 0 };
const state = { ...DEFAULTS, playing: false, hover: -1, pane: 0 };
const short = (x) => +x.toPrecision(9);

// the part of the network that is seen, as "enlarged,right,down" for each plan that is shown; "" for all of it
const viewOf = (p) => p.view && p.view.k > 1 ? [p.view.k, p.view.x, p.view.y].map((x) => +x.toPrecision(5)).join(",") : "";
function viewFrom(text) {
  const [k, x, y] = (text || "").split(",").map(Number);
  return k > 1 && k <= 60 && Number.isFinite(x) && Number.isFinite(y) ? { k, x, y } : { k: 1, x: 0, y: 0 };
}
function address() {
  const said = new URLSearchParams();
  const views = panes().map(viewOf);
  state.map = views.some((text) => text) ? views.join(" ") : ""; state.row = Math.round($("scroller").scrollTop / ROW);
  for (const [key, value] of Object.entries(DEFAULTS)) {
    const now = state[key];
    if (key === "plan" ? now !== page.best : now !== value) said.set(key, typeof now === "number" ? short(now) : typeof now === "boolean" ? +now : now);
  }
  return said.toString();
}
function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1)), known = (i) => Number.isInteger(i) && i >= 0 && i < page.plans.length;
  for (const [key, value] of Object.entries(DEFAULTS)) {
    const text = said.get(key);
    state[key] = text === null ? value : typeof value === "boolean" ? text === "1" : typeof value === "number" ? Number(text) : text;
  }
  state.plan = known(Number(said.get("plan"))) && said.has("plan") ? Number(said.get("plan")) : page.best;
  if (!known(state.beside)) state.beside = -1;
  for (const [n, p] of panes().entries()) p.view = viewFrom(state.map.split(" ")[n]);
  const within = (x, other) => Number.isFinite(x) ? clamp(x, 0, 1) : other;
  [state.t, state.from, state.to] = [within(state.t, 0), within(state.from, 0), within(state.to, 1)];
  state.row = Number.isFinite(state.row) ? Math.max(0, state.row) : 0;
  if (state.from >= state.to) [state.from, state.to] = [0, 1];
}
let writing = 0;
// the address is written once the reader rests, as browsers limit how often it may change
function keepAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const said = address(), there = location.hash.slice(1);
    if (said !== there) history.replaceState(null, "", said ? `#${said}` : location.pathname + location.search);
  }, 250);
}

const plan = () => open(page.plans[state.plan]);
const beside = () => state.beside < 0 ? null : open(page.plans[state.beside]);
const panes = () => beside() ? [plan(), beside()] : [plan()];
// the seconds that the page's clock and timelines span: of two plans the longer one's
const horizon = () => Math.max(...panes().map((p) => p.completion)) || 1;
const span = () => [state.from * horizon(), state.to * horizon()];
// the share of the horizon of the narrowest window: the shortest hop is some 60 pixels wide
function narrowest() {
  const least = Math.min(...panes().map((p) => p.h ? 20 * p.h.shortest * p.h.tick : p.completion / 200));
  return clamp(least / horizon(), 1e-8, 1);
}
function setView(from, to) {
  const width = clamp(to - from, narrowest(), 1), left = clamp((from + to - width) / 2, 0, 1 - width);
  state.from = left; state.to = Math.min(1, left + width);
  if (width === 1) [state.from, state.to] = [0, 1];
  $("zoom").value = 100 * Math.log(width) / Math.log(narrowest() * 0.9999);
  redraw();
}
// zoom by a factor, keeping a moment (share of the horizon) where it is
function zoomBy(factor, about = (state.from + state.to) / 2) {
  const width = clamp((state.to - state.from) / factor, narrowest(), 1), part = (about - state.from) / (state.to - state.from);
  setView(about - part * width, about + (1 - part) * width);
}
const panBy = (share) => { const d = share * (state.to - state.from), room = clamp(d, -state.from, 1 - state.to); setView(state.from + room, state.to + room); };
