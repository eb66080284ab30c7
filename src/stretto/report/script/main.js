// What moves: drawing on demand, controls, pointers, keys, and the page's start.
function canvas(c) {
  const ratio = window.devicePixelRatio || 1, box = c.getBoundingClientRect();
  const w = Math.max(1, Math.round(box.width)), h = Math.max(1, Math.round(box.height));
  if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(h * ratio); }
  const g = c.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0); g.clearRect(0, 0, w, h); g.fillPath = (path) => g.fill(new Path2D(path));
  return [g, w, h, ratio];
}
const PANES = [["map", "rows", "scroller", "spacer"], ["map-b", "rows-b", "scroller-b", "spacer-b"]];
function drawTimelines() {
  if ($("rows-card").hidden) return;
  const key = `${panes().map((p) => p.filterKey)}${$("rows").clientWidth}`;
  if (drawTimelines.key !== key || !drawTimelines.key) { drawTimelines.key = key; layRows($("rows").getContext("2d"), $("rows").clientWidth); $("rows").dataset.label = LABEL; }
  panes().forEach((p, n) => {
    const c = $(PANES[n][1]), s = $(PANES[n][2]), total = AXIS + ROW * filtered(p).rows.length;
    c.style.height = Math.min(520, total + 4) + "px"; $(PANES[n][3]).style.height = total + 4 + "px";
    const [g, w, h, ratio] = canvas(c);
    drawRows(g, w, h, p, s.scrollTop, ratio);
  });
}
function draw() {
  const p = plan();
  $("now").textContent = state.whole ? `all ${time(horizon())}` : time(state.t * horizon());
  panes().forEach((q, n) => drawMap(...canvas($(PANES[n][0])).slice(0, 3), q));
  drawCurve(...canvas($("curve")).slice(0, 3));
  if (p.planes.length) drawPlanes(...canvas($("planes")).slice(0, 3), p);
  drawTimelines();
  $("time").value = Math.round(1000 * state.t); $("whole").checked = state.whole;
  keepAddress();
}
let pending = "";
const later = (what) => { if (!pending) requestAnimationFrame(() => { const now = pending; pending = ""; if (now === "all") draw(); else drawTimelines(); }); if (pending !== "all") pending = what; };
const redraw = () => later("all"), redrawRows = () => later("rows");
function setTime(t) { state.t = clamp(t, 0, 1); state.whole = false; redraw(); }
let lastFrame = 0;
function step(now) {
  if (!state.playing) return;
  const t = state.t + (lastFrame ? (now - lastFrame) / 8000 : 0); lastFrame = now;
  if (t >= 1) { setTime(1); play(false); } else { setTime(t); requestAnimationFrame(step); }
}
function play(on) { state.playing = on; lastFrame = 0; $("play").textContent = on ? "❚❚" : "▶"; $("play").setAttribute("aria-label", on ? "pause" : "play"); if (on) { if (state.t >= 1) state.t = 0; requestAnimationFrame(step); } }
function scheme(name) { document.documentElement.dataset.scheme = name; readColours(); if (plan().h) showLegend(); redraw(); }

// controls that say what is shown; what the plan does not have is not offered
function showChoices() {
  const p = plan(), h = p.h, fill = (id, entries, value) => { $(id).replaceChildren(...entries.map(([v, words]) => element("option", words, { value: v }))); $(id).value = value; };
  fill("colour", Object.entries(MODES).filter(([, m]) => !h || m.serves(h)).map(([key, m]) => [key, m.words]), colourMode(p));
  const kinds = p.collective.split(", ");
  fill("by-collective", [["", "all"], ...kinds.map((kind, i) => [i, `${i}: ${kind}`])], state.collective); $("by-collective").parentElement.hidden = kinds.length < 2;
  // of slices of time there is nothing to colour, to filter by or to follow
  for (const id of ["colour", "by-chunk", "follow"]) $(id).parentElement.hidden = !h && !p.hops;
  $("by-phase").parentElement.hidden = h ? !h.bothPhases : !p.hops; $("by-phase").value = state.phase;
  for (const [id, key] of [["where", "where"], ["by-chunk", "chunk"], ["sort", "sort"], ["tint", "tint"]]) if ($(id) !== document.activeElement) $(id).value = state[key];
  if ($("follow") !== document.activeElement) $("follow").value = state.follow.startsWith("chunk:") ? state.follow.slice(6) : "";
  $("witness").checked = state.witness; $("beside").value = state.beside; $("pick").value = state.plan;
  const names = [...new Set([...sitesOf(p), ...p.names.slice(0, 1000)])].concat(Array.from({ length: Math.min(p.links.count, 500) }, (_, i) => linkName(p, i)));
  if (p !== showChoices.of) { showChoices.of = p; $("places").replaceChildren(...names.map((name) => element("option", undefined, { value: name }))); }
  $("layout").parentElement.hidden = !p.scene; $("layout").value = state.layout || "servers";
  $("following").hidden = !state.follow; $("following-words").textContent = state.follow ? `following ${followWords()}` : "";
  const f = filtered(p); $("found").textContent = f.narrow ? `${count(f.rows.length)} of ${count(p.links.count)} links` : "";
  showLegend();
}
function changed() { showChoices(); showWords(plan()); $("scroller").scrollTop = $("scroller-b").scrollTop = 0; redraw(); }
function follow(what) { state.follow = what; changed(); }
function showPlan(row = 0) {
  const p = plan();
  if (page.plans.length < 2) state.beside = -1;
  showTiles(p); showWhy(p); showWords(p); showGains(); compareTable(); showChoices();
  $("notes-card").hidden = !p.notes.length; $("notes").replaceChildren(...p.notes.map((n) => whole(element("li"), n)));
  $("planes-card").hidden = !p.planes.length; $("planes").style.height = `${30 + p.planes.length * PLANE_ROW}px`;
  $("rows-card").hidden = $("choices").hidden = $("by-use").hidden = p.planes.length > 0 && !p.links.count;
  $("scroller").scrollTop = 0; redraw();
  const asked = panes();
  document.body.dataset.ready = "";
  Promise.all(asked.map(openHops)).then(() => { if (asked.every((q, n) => q === panes()[n])) { showChoices(); showWords(p); setView(state.from, state.to); draw(); $("scroller").scrollTop = row * ROW; document.body.dataset.ready = "yes"; } });
}
function choose(i) { state.plan = i; if (state.beside === i) state.beside = -1; state.follow = ""; showPlan(); }

// --- pointers: drag to pan, two fingers or ctrl and wheel to zoom, a click that does not move -----------------------
function gestures(e, { zoom, pan, click }) {
  const down = new Map(); let moved = 0, apart = 0;
  e.addEventListener("pointerdown", (event) => { if (event.button) return; down.set(event.pointerId, [event.clientX, event.clientY]); if (down.size === 1) moved = 0; });
  const spread = () => { const [a, b] = [...down.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
  e.addEventListener("pointermove", (event) => {
    const was = down.get(event.pointerId);
    if (!was) return;
    const dx = event.clientX - was[0], dy = event.clientY - was[1];
    if (down.size === 2) apart = spread();
    down.set(event.pointerId, [event.clientX, event.clientY]);
    moved += Math.abs(dx) + Math.abs(dy);
    if (down.size === 2 && apart) { const [a, b] = [...down.values()]; zoom(spread() / apart, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2); pan(dx / 2, dy / 2); }
    else if (moved > 5) { if (!e.hasPointerCapture(event.pointerId)) e.setPointerCapture(event.pointerId); tip(null); pan(dx, dy); }
  });
  for (const name of ["pointerup", "pointercancel"]) e.addEventListener(name, (event) => { down.delete(event.pointerId); });
  e.addEventListener("click", (event) => { if (moved <= 5) click(event); moved = 0; });
  e.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(Math.exp(-event.deltaY / (event.deltaMode ? 10 : 250)), event.clientX, event.clientY); }
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan(-(event.deltaX || event.deltaY), 0); }
  }, { passive: false });
}
const placeAt = (c, clientX) => { const box = c.getBoundingClientRect(); return state.from + clamp((clientX - box.left - LABEL) / (box.width - LABEL - 8), 0, 1) * (state.to - state.from); };
// maps of one network move together
function moveMap(n, move) {
  const shown = panes(), together = shown.length > 1 && shown[0].topology === shown[1].topology;
  for (const p of together ? shown : [shown[n]]) move(p.view || (p.view = { k: 1, x: 0, y: 0 }));
  redraw();
}
let led = -1;  // the timeline that is being scrolled along with the other one
PANES.forEach(([map, rows, scroller], n) => {
  const m = $(map), r = $(rows), own = () => panes()[n];
  const zoomMap = (factor, x, y) => moveMap(n, (v) => {
    const box = m.getBoundingClientRect(), k = clamp(v.k * factor, 1, 60), f = k / v.k, px = (x - box.left) / box.width - .5, py = (y - box.top) / box.height - .5;
    v.x = px - (px - v.x) * f; v.y = py - (py - v.y) * f; v.k = k; if (k === 1) v.x = v.y = 0;
    m.style.touchAction = k > 1 ? "none" : "pan-x pan-y";
  });
  gestures(m, { zoom: zoomMap, pan: (dx, dy) => moveMap(n, (v) => { if (v.k > 1) { v.x += dx / m.clientWidth; v.y += dy / m.clientHeight; } }),
    click: (event) => { const p = own(), box = m.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, v = nodeAt(p, x, y), l = v < 0 ? linkAt(p, x, y) : -1;
      const name = v >= 0 ? p.names[v] : l >= 0 ? linkName(p, p.links.row[l]) : ""; state.where = state.where === name ? "" : name; changed(); } });
  m.ondblclick = (event) => zoomMap(2, event.clientX, event.clientY);
  m.onmousemove = (event) => hoverMap(event, own(), m);
  gestures(r, { zoom: (factor, x) => zoomBy(factor, placeAt(r, x)), pan: (dx) => panBy(-dx / (r.clientWidth - LABEL - 8)),
    click: (event) => { const p = own(), box = r.getBoundingClientRect(), x = event.clientX - box.left, { hop, many } = hopsAt(p, x, event.clientY - box.top, box.width, $(scroller).scrollTop);
      if (x > LABEL) state.t = placeAt(r, event.clientX), state.whole = false;
      if (hop >= 0 && many < 2) { state.picked = p.h.transfer[hop]; state.follow = `chunk:${p.h.chunk[state.picked]}`; }
      showChoices(); redraw(); } });
  r.ondblclick = (event) => zoomBy(4, placeAt(r, event.clientX));
  r.onmousemove = (event) => { if (!event.buttons) hoverRows(event, own(), r, n); };
  for (const c of [m, r]) c.onmouseleave = () => { tip(null); if (state.hover >= 0) { state.hover = -1; redrawRows(); } };
  // the shorter of two timelines stays at its end while the longer one goes on
  $(scroller).onscroll = () => {
    const own = $(scroller), other = $(PANES[1 - n][2]), to = Math.min(own.scrollTop, other.scrollHeight - other.clientHeight);
    if (led === n) led = -1; else if (beside() && other.scrollTop !== to) { led = 1 - n; other.scrollTop = to; }
    tip(null); redrawRows(); keepAddress();
  };
  $(scroller).onkeydown = timelineKeys;
  m.onkeydown = (event) => { const box = m.getBoundingClientRect(), f = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 1e-9 }[event.key], [dx, dy] = { ArrowLeft: [.1, 0], ArrowRight: [-.1, 0], ArrowUp: [0, .1], ArrowDown: [0, -.1] }[event.key] || [0, 0];
    if (f) zoomMap(f, box.left + box.width / 2, box.top + box.height / 2);
    else if ((dx || dy) && own().view.k > 1) moveMap(n, (v) => { v.x += dx; v.y += dy; });
    else return;
    event.preventDefault(); };
});
function timelineKeys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key;
  if (key === "ArrowLeft" || key === "ArrowRight") panBy(key === "ArrowLeft" ? -.15 : .15);
  else if (key === "+" || key === "=") zoomBy(2); else if (key === "-") zoomBy(.5); else if (key === "0") setView(0, 1);
  else if (key === "," || key === ".") { setTime(state.t + (key === "," ? -1 : 1) * (state.to - state.from) / 100); }
  else if (key === " ") play(!state.playing); else if (key === "Escape") follow("");
  else return;
  event.preventDefault();
}

function start() {
  page.best = best();
  parted($("title"), page.title); document.title = `${page.title} · stretto`;
  page.plans.forEach((p, i) => { $("pick").append(element("option", planName(p), { value: i })); $("beside").append(element("option", planName(p), { value: i })); });
  $("pick-label").hidden = $("beside-label").hidden = page.plans.length < 2;
  $("pick").onchange = () => choose(+$("pick").value);
  $("beside").onchange = () => { state.beside = +$("beside").value; if (state.beside === state.plan) state.beside = -1; showPlan(); };
  $("time").oninput = () => setTime($("time").value / 1000);
  $("whole").onchange = () => { state.whole = $("whole").checked; redraw(); };
  $("witness").onchange = () => { state.witness = $("witness").checked; redraw(); };
  $("zoom").oninput = () => { const width = narrowest() ** ($("zoom").value / 100), middle = state.whole || state.from > state.t || state.to < state.t ? (state.from + state.to) / 2 : state.t; setView(middle - width / 2, middle + width / 2); };
  $("fit").onclick = () => { setView(0, 1); };
  $("play").onclick = () => play(!state.playing);
  $("scheme").onclick = () => { state.scheme = document.documentElement.dataset.scheme === "dark" ? "light" : "dark"; scheme(state.scheme); };
  $("colour").onchange = () => { state.colour = $("colour").value; changed(); };
  $("tint").onchange = () => { state.tint = $("tint").value; redraw(); };
  $("layout").onchange = () => { state.layout = $("layout").value === "nodes" ? "nodes" : ""; for (const p of page.plans) p.view = null; redraw(); };
  for (const [id, key] of [["where", "where"], ["by-chunk", "chunk"], ["by-phase", "phase"], ["by-collective", "collective"], ["sort", "sort"]]) $(id)[$(id).tagName === "SELECT" ? "onchange" : "oninput"] = () => { state[key] = $(id).value; changed(); };
  $("clear").onclick = () => { for (const key of ["where", "chunk", "phase", "collective"]) state[key] = ""; changed(); };
  $("unfollow").onclick = () => follow("");
  $("follow-tree").onclick = () => { const h = plan().h, t = state.picked; if (h && t < h.transfers) follow(`tree:${h.chunk[t]}:${h.op[t] ? "sums" : "copies"}`); };
  $("follow-chain").onclick = () => { if (state.picked >= 0) follow(`chain:${state.picked}`); };
  $("follow").onchange = () => { const n = $("follow").value.trim(); follow(/^\d+$/.test(n) ? `chunk:${n}` : ""); };
  for (const button of document.querySelectorAll("[data-save]")) button.onclick = () => save(...button.dataset.save.split(" "));
  $("planes").onmousemove = hoverPlanes; $("planes").onmouseleave = () => tip(null);
  new ResizeObserver(redraw).observe(document.body);
  const dark = matchMedia("(prefers-color-scheme: dark)"), prefer = () => scheme(state.scheme || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", prefer);
  const arrive = () => { readAddress(); state.picked = -1; document.documentElement.dataset.scheme = state.scheme || (dark.matches ? "dark" : "light"); readColours(); showPlan(state.row); };
  addEventListener("hashchange", () => { if (location.hash.slice(1) !== address()) arrive(); });
  arrive();
}
start();
