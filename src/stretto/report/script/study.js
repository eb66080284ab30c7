// The charts of a study: lines, bars or boxes over axes, as SVG in the page's own colours, so that light and dark need no redraw.
const chartsOf = page.charts, HIGH = 330, FORMS = { time, bytes: size, rate: (v) => `${size(v)}/s`, share: (v) => `${+(100 * v).toPrecision(4)} %`, number: (v) => `${+v.toPrecision(4)}` };
const words = (axis, v) => typeof v === "number" ? FORMS[axis.form](v) : v;
// a value beside an axis: on a logarithmic one 10,000 s, which are no round number of hours
const onAxis = (axis, v) => axis.form === "time" && axis.scale === "log" && v >= 3600 && v % 3600 ? `${v.toLocaleString("en")} s` : words(axis, v);
const svg = (tag, attributes, text) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
};
const ruler = document.createElement("canvas").getContext("2d"); ruler.font = "12px system-ui,sans-serif";
const wide = (text) => ruler.measureText(text).width;
const colourOf = (s) => s.colour < 0 ? "var(--soft)" : `var(--c${s.colour})`;
// the dashes of a line; of a short one across bars, which has no marks, others where schemes share a colour
const dashesOf = (s) => s.kind === "mark" && s.mark > 0 ? "9 3 2 3" : DASHES[s.dash];
const DASHES = { solid: "", dot: "2 4", dash: "7 4" };
const MARKS = [  // shapes of the marks of lines, by their number
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`, (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (x, y, r) => `M${x} ${y - r * 1.3}l${r * 1.3} ${r * 1.3}l${-r * 1.3} ${r * 1.3}l${-r * 1.3} ${-r * 1.3}Z`, (x, y, r) => `M${x} ${y - r * 1.2}l${r * 1.2} ${r * 2.1}h${-r * 2.4}Z`,
  (x, y, r) => `M${x} ${y + r * 1.2}l${r * 1.2} ${-r * 2.1}h${-r * 2.4}Z`, (x, y, r) => `M${x - r} ${y - r * .4}h${r * .6}v${-r * .6}h${r * .8}v${r * .6}h${r * .6}v${r * .8}h${-r * .6}v${r * .6}h${-r * .8}v${-r * .6}h${-r * .6}Z`];

// a bar; one of a scheme that shares its colour with another one has stripes
function bar(s, x, y, width, height, more) {
  const e = svg("g"), share = s.kind === "bar" && s.mark > 0;
  e.append(svg("rect", { x, y, width, height, fill: colourOf(s), "fill-opacity": share ? .35 : 1, ...more }));
  if (share) e.append(svg("path", { d: `M${x + width / 2} ${y + height}v${-height}`, stroke: colourOf(s), "stroke-width": width, "stroke-dasharray": "3 3" }));
  return e;
}

// what the address holds: schemes that are hidden, light or dark
let hidden = new Set();
function keepHidden() {
  const said = new URLSearchParams();
  if (hidden.size) said.set("hide", [...hidden].join("|"));
  if (document.documentElement.dataset.chosen) said.set("scheme", document.documentElement.dataset.scheme);
  history.replaceState(null, "", `${said}` ? `#${said}` : location.pathname + location.search);
}

// a scale from values to pixels, with moments of its axis at most every `apart` pixels
function scaleOf(kind, values, from, to, apart, form, exact) {
  let lo = Math.min(...values), hi = Math.max(...values);
  const log = kind === "log", room = Math.max(1, Math.floor(Math.abs(to - from) / apart));
  if (log) { const spare = exact ? 1 : (hi / lo) ** .04 * 1.04; lo /= spare; hi *= spare; } else if (!exact) { const spare = .04 * (hi - lo || 1); lo = lo >= 0 && lo < .6 * hi ? 0 : lo - spare; hi += spare; }
  if (lo === hi) { lo = log ? lo / 2 : lo - .5; hi = log ? hi * 2 : hi + .5; }
  const share = log ? (v) => Math.log(v / lo) / Math.log(hi / lo) : (v) => (v - lo) / (hi - lo), at = (v) => from + (to - from) * share(v);
  const moments = log ? logMoments(lo, hi, room) : [...ticks(lo, hi, room * 95)].filter((v) => v >= lo && v <= hi);
  return { at, lo, hi, moments, of: (pixel) => log ? lo * (hi / lo) ** ((pixel - from) / (to - from)) : lo + (hi - lo) * (pixel - from) / (to - from) };
}
function logMoments(lo, hi, most) {
  const first = Math.floor(Math.log10(lo)), last = Math.ceil(Math.log10(hi)), decades = Array.from({ length: last - first + 1 }, (_, k) => first + k);
  for (const parts of [[1, 2, 5], [1, 3], [1]]) {
    const found = decades.flatMap((d) => parts.map((m) => +`${m}e${d}`)).filter((v) => v >= lo && v <= hi);
    if (found.length <= most && found.length > 2) return found;
  }
  const each = decades.filter((d) => 10 ** d >= lo && 10 ** d <= hi), skip = Math.ceil(each.length / most);
  return each.length > 2 ? each.filter((_, k) => k % skip === 0).map((d) => 10 ** d) : [...ticks(lo, hi, most * 95)];
}
// every how many moments of an axis have a label, so that none lies over the next one
function evenStep(labels) {
  for (let step = 1; step < labels.length; step++) {
    const named = labels.filter((_, k) => k % step === 0);
    if (named.every((l, k) => !k || named[k - 1].at + named[k - 1].half + 8 <= l.at - l.half)) return step;
  }
  return labels.length || 1;
}
const quantile = (sorted, q) => { const k = (sorted.length - 1) * q, i = Math.floor(k); return sorted[i] + (k - i) * ((sorted[i + 1] ?? sorted[i]) - sorted[i]); };
const shownOf = (chart) => chart.series.filter((s) => !hidden.has(s.name));
const usable = (axis, v) => typeof v !== "number" || axis.scale !== "log" || v > 0;

// --- lines and bars ------------------------------------------------------------------------------------------------
function drawLines(view) {
  const { chart, box } = view, { x, y } = chart, shown = shownOf(chart), w = box.clientWidth, category = x.scale === "category";
  const every = shown.flatMap((s) => s.x.map((v, i) => [v, s.y[i], s.error ? s.error[i] : 0])).filter(([a, b]) => usable(x, a) && usable(y, b));
  if (!every.length) return view.svg.replaceChildren();
  const within = view.zoom && !category ? every.filter(([a]) => a >= view.zoom[0] && a <= view.zoom[1]) : every, seen = within.length ? within : every;
  const spreads = seen.flatMap(([, b, e]) => [b - e > 0 || y.scale !== "log" ? b - e : b, b + e]);
  const top = 24, L = 12 + Math.max(...scaleOf(y.scale, spreads, HIGH - 60, top, 34).moments.map((v) => wide(onAxis(y, v)))), R = 14;
  const names = category ? [...new Set(chart.series.flatMap((s) => s.x))] : [], slot = (w - L - R) / (names.length || 1), turned = category && Math.max(...names.map(wide)) > slot - 8;
  const down = turned ? .6 * Math.min(170, Math.max(...names.map(wide))) + 14 : 22, B = down + (x.title ? 24 : 4), H = HIGH + (turned ? down - 22 : 0), bottom = H - B;
  const Y = scaleOf(y.scale, spreads, bottom, top, 34), X = category ? { at: (v) => L + (names.indexOf(v) + .5) * slot } : scaleOf(x.scale, view.zoom || every.map(([a]) => a), L, w - R, 70, x.form, !!view.zoom);
  const g = view.svg; g.setAttribute("viewBox", `0 0 ${w} ${H}`); g.setAttribute("height", H); g.replaceChildren();
  const text = (a, b, words, more) => g.append(svg("text", { x: a, y: b, fill: "var(--soft)", "font-size": 12, ...more }, words));
  text(0, 12, y.title);
  for (const v of Y.moments) { g.append(svg("path", { d: `M${L} ${Y.at(v)}H${w - R}`, stroke: "var(--line)" })); text(L - 6, Y.at(v) + 4, onAxis(y, v), { "text-anchor": "end" }); }
  if (category) names.forEach((name, n) => turned ? text(0, 0, cut(name, 170), { "text-anchor": "end", transform: `translate(${X.at(name) + 4} ${bottom + 14}) rotate(-36)` }) : text(X.at(name), bottom + 17, name, { "text-anchor": "middle" }));
  else {
    // the sizes that were asked for are the moments of the axis where there are few
    const asked = [...new Set(every.map(([a]) => a))].filter((a) => a >= X.lo && a <= X.hi).sort((a, b) => a - b), moments = asked.length <= 14 ? asked : X.moments;
    const labels = moments.map((v) => { const label = onAxis(x, v), half = wide(label) / 2; return { label, half, at: clamp(X.at(v), L + half - 20, w - half) }; });
    const step = evenStep(labels);
    moments.forEach((v, k) => {
      g.append(svg("path", { d: `M${X.at(v)} ${bottom}v4`, stroke: "var(--soft)" }));
      if (k % step === 0) text(labels[k].at, bottom + 17, labels[k].label, { "text-anchor": "middle" });
    });
  }
  text((L + w - R) / 2, H - 6, x.title, { "text-anchor": "middle" });
  g.append(svg("path", { d: `M${L} ${bottom}H${w - R}`, stroke: "var(--soft)" }));
  const clip = `clip${chartsOf.indexOf(chart)}`, inside = svg("g", { "clip-path": `url(#${clip})` }), edge = svg("clipPath", { id: clip });
  edge.append(svg("rect", { x: L - 6, y: top - 6, width: w - L - R + 12, height: bottom - top + 12 })); g.append(edge, inside);
  const bars = shown.filter((s) => s.kind === "bar"), thin = slot * .8 / (bars.length || 1);
  shown.forEach((s) => {
    const points = s.x.map((v, i) => [v, s.y[i], s.error ? s.error[i] : 0]).filter(([a, b]) => usable(x, a) && usable(y, b) && (category || (a >= X.lo / 1.0001 && a <= X.hi * 1.0001)));
    const colour = colourOf(s), shift = s.kind === "bar" ? (bars.indexOf(s) + .5) * thin - slot * .4 : 0;
    if (s.kind === "line") inside.append(svg("path", { d: points.map(([a, b], i) => `${i ? "L" : "M"}${X.at(a)} ${Y.at(b)}`).join(""), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[s.dash] }));
    for (const [a, b, e] of points) {
      const px = X.at(a) + shift, py = Y.at(b);
      if (s.kind === "bar") inside.append(bar(s, px - thin / 2, py, Math.max(1, thin - 1), Math.max(0, bottom - py)));
      else if (s.kind === "mark") inside.append(svg("path", { d: `M${px - slot * .38} ${py}h${slot * .76}`, stroke: colour, "stroke-width": 3, "stroke-dasharray": dashesOf(s) }));
      else inside.append(svg("path", { d: MARKS[s.mark](px, py, 3.5), fill: colour, stroke: "var(--card)" }));
      if (e > 0) inside.append(svg("path", { d: `M${px} ${Y.at(Math.max(b - e, y.scale === "log" ? Y.lo : b - e))}V${Y.at(b + e)}m-3 0h6`, stroke: "var(--ink)" }));
    }
  });
  const rule = svg("path", { stroke: "var(--soft)", "stroke-dasharray": "3 3" }); g.append(rule);
  const stops = category ? names : [...new Set(seen.map(([a]) => a))].sort((a, b) => a - b);
  Object.assign(view, { X, L, R, w, stops, rule, top, bottom, category });
}
function stopAt(view, px) { return view.stops.reduce((best, v) => Math.abs(view.X.at(v) - px) < Math.abs(view.X.at(best) - px) ? v : best, view.stops[0]); }
// what all shown schemes have at one place of the x-axis, the largest first
function tellStop(view, stop, event) {
  const { chart } = view, rows = shownOf(chart).flatMap((s) => { const i = s.x.indexOf(stop); return i < 0 ? [] : [[s, s.y[i], s.error && s.error[i]]]; }).sort((a, b) => b[1] - a[1]);
  view.at = stop; view.rule.setAttribute("d", `M${view.X.at(stop)} ${view.top}V${view.bottom}`);
  tip(event, [element("b", words(chart.x, stop)), ...rows.map(([s, v, e]) => said(s, `${s.name}: ${words(chart.y, v)}${e ? ` ± ${words(chart.y, e)}` : ""}`))]);
}
const said = (s, text) => { const row = element("div"); row.append(element("i", undefined, { style: `background:${colourOf(s)}` }), text); return row; };
const cut = (text, most) => { let end = text.length; if (wide(text) <= most) return text; while (end > 1 && wide(`${text.slice(0, end)}…`) > most) end--; return `${text.slice(0, end)}…`; };

// --- boxes: a row for each scheme -----------------------------------------------------------------------------------
const BOX_ROW = 30;
function drawBoxes(view) {
  const { chart, box } = view, axis = chart.y, shown = shownOf(chart).map((s) => ({ ...s, y: s.y.filter((v) => usable(axis, v)) })).filter((s) => s.y.length), w = box.clientWidth, every = shown.flatMap((s) => s.y);
  if (!every.length) return view.svg.replaceChildren();
  // names stand above their boxes where they would take too much of the width
  const widest = 16 + Math.max(...shown.map((s) => wide(s.name))), above = widest > w * .36 ? 14 : 0, pitch = BOX_ROW + above;
  const L = above ? 12 : widest, R = 20, top = 6, bottom = top + pitch * shown.length, H = bottom + 44;
  const X = scaleOf(axis.scale, every, L, w - R, 80), g = view.svg; g.setAttribute("viewBox", `0 0 ${w} ${H}`); g.setAttribute("height", H); g.replaceChildren();
  const text = (a, b, words, more) => g.append(svg("text", { x: a, y: b, fill: "var(--soft)", "font-size": 12, ...more }, words));
  let free = -Infinity;
  for (const v of X.moments) {
    const label = words(axis, v), half = wide(label) / 2;
    g.append(svg("path", { d: `M${X.at(v)} ${top}V${bottom}`, stroke: "var(--line)" }));
    if (X.at(v) - half < free) continue;
    free = X.at(v) + half + 8; text(clamp(X.at(v), half, w - half), bottom + 16, label, { "text-anchor": "middle" });
  }
  text((L + w - R) / 2, H - 6, axis.title, { "text-anchor": "middle" });
  view.rows = shown.map((s, n) => {
    const sorted = [...s.y].sort((a, b) => a - b), [q1, middle, q3] = [.25, .5, .75].map((q) => quantile(sorted, q)), reach = 1.5 * (q3 - q1), y = top + above + n * pitch + BOX_ROW / 2, colour = colourOf(s);
    const low = sorted.find((v) => v >= q1 - reach), high = sorted.findLast((v) => v <= q3 + reach);
    text(0, above ? y - BOX_ROW / 2 + 5 : y + 4, cut(s.name, above ? w : L - 8), { fill: "var(--ink)" });
    sorted.forEach((v, i) => g.append(svg("circle", { cx: X.at(v), cy: y + 8 * (((i * 7) % 11) / 10 - .5), r: 2, fill: colour, opacity: .45 })));
    g.append(svg("path", { d: `M${X.at(low)} ${y}H${X.at(q1)}M${X.at(q3)} ${y}H${X.at(high)}M${X.at(low)} ${y - 5}v10M${X.at(high)} ${y - 5}v10`, stroke: colour, "stroke-width": 1.5 }));
    g.append(svg("rect", { x: X.at(q1), y: y - 8, width: Math.max(1, X.at(q3) - X.at(q1)), height: 16, fill: colour, "fill-opacity": .25, stroke: colour, "stroke-width": 1.5 }));
    g.append(svg("path", { d: `M${X.at(middle)} ${y - 8}v16`, stroke: "var(--ink)", "stroke-width": 2 }));
    return [s, [["runs", sorted.length], ["least", sorted[0]], ["quarter", q1], ["median", middle], ["three quarters", q3], ["most", sorted.at(-1)]]];
  });
  Object.assign(view, { top, pitch });
}
function tellBox(view, event, py) {
  const found = view.rows && view.rows[Math.floor((py - view.top) / view.pitch)];
  tip(found ? event : null, found && [said(found[0], found[0].name), ...found[1].map(([name, v]) => element("div", `${name}: ${name === "runs" ? v : words(view.chart.y, v)}`))]);
}

// --- a card for each chart ------------------------------------------------------------------------------------------
const views = [];
function drawCharts() { for (const view of views) (view.chart.kind === "boxes" ? drawBoxes : drawLines)(view); }
function toggle(name, alone) {
  const names = [...new Set(chartsOf.flatMap((c) => c.series.map((s) => s.name)))];
  if (alone) hidden = hidden.size === names.length - 1 && !hidden.has(name) ? new Set() : new Set(names.filter((n) => n !== name));
  else if (!hidden.delete(name)) hidden.add(name);
  showKeys(); drawCharts(); keepHidden();
}
function showKeys() { for (const button of document.querySelectorAll(".keys button")) button.setAttribute("aria-pressed", !hidden.has(button.dataset.name)); }
function sample(s) {
  const e = svg("svg", { width: 26, height: 12, "aria-hidden": "true" }), colour = colourOf(s);
  if (s.kind === "bar" || s.kind === "box") e.append(bar(s, 7, 0, 12, 12, { rx: 3 }));
  else { e.append(svg("path", { d: "M0 6H26", stroke: colour, "stroke-width": 2, "stroke-dasharray": dashesOf(s) })); if (s.kind === "line") e.append(svg("path", { d: MARKS[s.mark](13, 6, 3.5), fill: colour })); }
  return e;
}
function addChart(chart) {
  const card = element("section", undefined, { class: "card chart" }), box = element("div", undefined, { class: "frame" }), keys = element("div", undefined, { class: "keys" }), bar = element("div", undefined, { class: "controls" });
  const g = svg("svg", { width: "100%", tabindex: 0, role: "img", "aria-label": chart.title }), whole = element("button", "whole chart", { type: "button", hidden: "" }), save = element("button", "SVG", { type: "button" }), png = element("button", "PNG", { type: "button" }), view = { chart, box, svg: g, zoom: null };
  const saving = element("span", "save ", { class: "save" }); saving.append(save, " ", png); bar.append(element("h2", chart.title), whole, saving);
  for (const s of chart.series) { const key = element("button", undefined, { type: "button", "data-name": s.name, title: "click: hide or show in all charts; double click: this one alone" }); key.append(sample(s), s.name); key.onclick = () => toggle(s.name); key.ondblclick = () => toggle(s.name, true); keys.append(key); }
  box.append(g); card.append(bar, box, keys); $("charts").append(card); views.push(view);
  const place = (event) => { const at = g.getBoundingClientRect(); return [event.clientX - at.left, event.clientY - at.top]; };
  const zoom = (range) => { view.zoom = range; whole.hidden = !range; drawLines(view); };
  let from = null;
  g.onpointermove = (event) => {
    const [px, py] = place(event);
    if (chart.kind === "boxes") return tellBox(view, event, py);
    if (!view.stops) return;
    if (from !== null) { tip(null); view.rule.setAttribute("d", `M${from} ${view.top}V${view.bottom}M${px} ${view.top}V${view.bottom}`); } else tellStop(view, stopAt(view, px), event);
  };
  g.onpointerdown = (event) => { if (event.pointerType === "mouse" && !event.button && chart.kind === "lines" && !view.category) { from = place(event)[0]; g.setPointerCapture(event.pointerId); } else g.onpointermove(event); };
  g.onpointerup = (event) => { const to = place(event)[0]; if (from !== null && Math.abs(to - from) > 12) zoom([from, to].sort((a, b) => a - b).map(view.X.of)); from = null; };
  g.onpointerleave = () => { tip(null); if (view.rule) view.rule.setAttribute("d", ""); };
  g.ondblclick = () => zoom(null); whole.onclick = () => zoom(null);
  g.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !view.stops) return;
    event.preventDefault();
    const at = g.getBoundingClientRect(), stop = view.stops[clamp(view.stops.indexOf(view.at) + step, 0, view.stops.length - 1)];
    tellStop(view, stop, { clientX: at.left + view.X.at(stop), clientY: at.top + 40 });
  };
  g.onblur = () => tip(null);
  const hand = (blob, ending) => { const a = element("a", undefined, { href: URL.createObjectURL(blob), download: `${chart.title.replace(/[^\w.+-]+/g, "-")}.${ending}` }); a.click(); setTimeout(() => URL.revokeObjectURL(a.href), 1000); };
  const drawn = () => {
    const css = getComputedStyle(document.documentElement), own = (_, name) => css.getPropertyValue(name).trim();
    return new Blob([new XMLSerializer().serializeToString(g).replace(/var\((--\w+)\)/g, own).replace("<svg ", '<svg font-family="system-ui,sans-serif" ')
      .replace('width="100%"', `width="${g.clientWidth}" style="background:${css.getPropertyValue("--card").trim()}"`)], { type: "image/svg+xml" });
  };
  save.onclick = () => hand(drawn(), "svg");
  png.onclick = () => {
    const image = new Image(), url = URL.createObjectURL(drawn());
    image.onload = () => {
      const c = document.createElement("canvas"); c.width = 2 * image.width; c.height = 2 * image.height;
      c.getContext("2d").drawImage(image, 0, 0, c.width, c.height); URL.revokeObjectURL(url); c.toBlob((blob) => hand(blob, "png"));
    };
    image.src = url;
  };
}
function startStudy() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)"), asked = new URLSearchParams(location.hash.slice(1));
  const scheme = () => { root.dataset.scheme = root.dataset.chosen || (dark.matches ? "dark" : "light"); };
  root.dataset.chosen = asked.get("scheme") || ""; hidden = new Set((asked.get("hide") || "").split("|").filter((n) => n));
  scheme(); dark.addEventListener("change", scheme);
  $("scheme").onclick = () => { root.dataset.chosen = root.dataset.scheme === "dark" ? "light" : "dark"; scheme(); keepHidden(); };
  chartsOf.forEach(addChart); showKeys(); drawCharts();
  let width = innerWidth; addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawCharts(); } });
  addEventListener("scroll", () => tip(null), { passive: true });
  document.body.dataset.ready = "yes";
}
startStudy();
