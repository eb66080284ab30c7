"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const page = JSON.parse($("data").textContent);
  const state = { plan: 0, t: 0, whole: true, witness: false, zoom: 1, playing: false, hover: -1, sort: null };

  // --- reading the data -------------------------------------------------------------------------
  const TYPES = { f: Float32Array, d: Float64Array, i: Int32Array, b: Uint8Array };
  function unpack(text, type) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new TYPES[type](bytes.buffer);
  }
  function open(p) {
    if (p.ready) return p;
    p.ready = true;
    p.x = unpack(p.x, "f"); p.y = unpack(p.y, "f");
    const l = p.links;
    for (const [key, type] of Object.entries({ src: "i", dst: "i", bandwidth: "d", latency: "d", message: "d", bytes: "d", use: "f", bins: "b" }))
      l[key] = unpack(l[key], type);
    l.count = l.src.length;
    p.delivered.t = unpack(p.delivered.t, "d"); p.delivered.bytes = unpack(p.delivered.bytes, "d");
    if (p.bars) {
      for (const [key, type] of Object.entries({ transfer: "i", link: "i", begin: "d", end: "d", chunk: "i", from: "i", srcOffsets: "i", src: "i",
        size: "d", start: "d", dstOffsets: "i", dst: "i", arrival: "d", depOffsets: "i", dep: "i" })) p.bars[key] = unpack(p.bars[key], type);
      p.bars.byLink = Array.from({ length: l.count }, () => []);
      for (let i = 0; i < p.bars.link.length; i++) p.bars.byLink[p.bars.link[i]].push(i);
    }
    p.steps = Array.from({ length: l.count }, () => []);
    if (p.changes) {
      const at = unpack(p.changes.at, "d"), to = unpack(p.changes.bandwidth, "d");
      unpack(p.changes.link, "i").forEach((link, i) => p.steps[link].push([at[i], to[i]]));
    }
    p.rows = Array.from({ length: l.count }, (_, i) => i).filter((i) => l.bytes[i] > 0).sort((a, b) => l.use[b] - l.use[a] || a - b);
    return p;
  }

  // --- words ------------------------------------------------------------------------------------
  const scaled = (v, steps) => { for (const [f, u] of steps) if (Math.abs(v) >= f * 0.9995) return `${+(v / f).toPrecision(4)} ${u}`;
    const [f, u] = steps[steps.length - 1]; return `${+(v / f).toPrecision(4)} ${u}`; };
  const time = (s) => s === 0 ? "0 s" : scaled(s, [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]]);
  const size = (b) => scaled(b, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"], [1, "B"]]);
  // round moments from a to b, at most one for every 95 pixels
  function ticks(a, b, width) {
    const most = Math.max(1, Math.floor(width / 95)), power = 10 ** Math.floor(Math.log10((b - a) / most || 1));
    const step = power * [1, 2, 5, 10].find((m) => (b - a) / (power * m) <= most), found = [];
    for (let i = Math.ceil(a / step - 1e-9); i * step <= b * (1 + 1e-12); i++) found.push(i * step);
    return found;
  }
  // moments along an axis, words kept within it
  function axis(g, moments, X, y, width) {
    for (const t of moments) { const text = time(t), half = g.measureText(text).width / 2; g.textAlign = "center";
      g.fillText(text, Math.min(Math.max(X(t), half), width - half), y); }
  }
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  const linkName = (p, i) => `${p.names[p.links.src[i]]}→${p.names[p.links.dst[i]]}`;
  function element(tag, text, attributes) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    return e;
  }

  // --- colours ----------------------------------------------------------------------------------
  let colours = {};
  function readColours() {
    const css = getComputedStyle(document.documentElement);
    for (const k of ["bg", "card", "ink", "soft", "line", "accent", "idle", "cool", "warm", "hot", "mark"]) colours[k] = css.getPropertyValue("--" + k).trim();
    const rgb = (h) => [1, 3, 5].map((i) => parseInt(h.slice(i, i + 2), 16));
    const stops = [colours.cool, colours.warm, colours.hot].map(rgb);
    colours.ramp = Array.from({ length: 256 }, (_, i) => {
      const u = i / 255 * 2, a = stops[Math.min(Math.floor(u), 1)], b = stops[Math.min(Math.floor(u), 1) + 1], f = u - Math.min(Math.floor(u), 1);
      return `rgb(${a.map((v, c) => Math.round(v + (b[c] - v) * f)).join(",")})`;
    });
  }
  const hue = (n) => `hsl(${(n * 137.508) % 360} 58% ${document.documentElement.dataset.scheme === "dark" ? 58 : 50}%)`;

  function canvas(id) {
    const c = $(id), ratio = window.devicePixelRatio || 1, box = c.getBoundingClientRect();
    const w = Math.max(1, Math.round(box.width)), h = Math.max(1, Math.round(box.height));
    if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(h * ratio); }
    const g = c.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0); g.clearRect(0, 0, w, h);
    return [g, w, h];
  }

  // --- the network ------------------------------------------------------------------------------
  function useNow(p, i) {
    if (state.whole) return p.links.use[i];
    const b = Math.min(p.binCount - 1, Math.floor(state.t * p.binCount));
    return p.links.bins[i * p.binCount + b] / 255;
  }
  function mapPoints(p, w, h) {
    const m = 34, s = Math.min(w - 2 * m, h - 2 * m);
    let loX = 1, hiX = 0, loY = 1, hiY = 0;
    for (let v = 0; v < p.x.length; v++) { loX = Math.min(loX, p.x[v]); hiX = Math.max(hiX, p.x[v]); loY = Math.min(loY, p.y[v]); hiY = Math.max(hiY, p.y[v]); }
    const k = Math.min((w - 2 * m) / Math.max(hiX - loX, 1e-6), (h - 2 * m) / Math.max(hiY - loY, 1e-6), 4 * s);
    const at = (v) => [w / 2 + (p.x[v] - (loX + hiX) / 2) * k, h / 2 + (p.y[v] - (loY + hiY) / 2) * k];
    return Object.assign(at, { k, left: w / 2 - (loX + hiX) / 2 * k, top: h / 2 - (loY + hiY) / 2 * k });
  }
  function drawMap() {
    const p = plan(), [g, w, h] = canvas("map"), at = mapPoints(p, w, h), l = p.links;
    const many = p.names.length > 150, inWitness = new Set(p.witness.links), nodesIn = new Set(p.witness.nodes);
    if (p.land) { g.save(); g.translate(at.left, at.top); g.scale(at.k / 1000, at.k / 1000); g.fillStyle = colours.line; g.globalAlpha = .45; g.fill(new Path2D(p.land)); g.restore(); }
    p.segments = new Float32Array(4 * l.count);
    g.lineCap = "round";
    for (let pass = 0; pass < 2; pass++) for (let i = 0; i < l.count; i++) {
      const u = useNow(p, i), busy = u > 0.002;
      if (busy !== (pass === 1)) continue;
      const [ax, ay] = at(l.src[i]), [bx, by] = at(l.dst[i]), d = Math.hypot(bx - ax, by - ay) || 1, o = many ? .8 : 2.6;
      const ox = -(by - ay) / d * o, oy = (bx - ax) / d * o;
      p.segments.set([ax + ox, ay + oy, bx + ox, by + oy], 4 * i);
      g.strokeStyle = busy ? colours.ramp[Math.round(255 * Math.min(1, u))] : colours.idle;
      g.lineWidth = (many ? .7 : 1.2) + (busy ? (many ? .8 : 2.2) * u : 0);
      g.globalAlpha = state.witness && !inWitness.has(i) ? .18 : busy ? 1 : .55;
      g.beginPath(); g.moveTo(ax + ox, ay + oy); g.lineTo(bx + ox, by + oy); g.stroke();
    }
    g.globalAlpha = 1;
    const r = many ? 2.4 : 5.5;
    g.font = "11.5px system-ui,sans-serif"; g.textBaseline = "middle";
    for (let v = 0; v < p.names.length; v++) {
      const [x, y] = at(v), kind = p.kinds[v];
      g.globalAlpha = state.witness && !nodesIn.has(v) ? .3 : 1;
      g.fillStyle = kind === "switch" ? colours.soft : kind === "router" ? colours.warm : colours.accent;
      g.strokeStyle = colours.card; g.lineWidth = 1.5; g.beginPath();
      if (kind === "switch") g.rect(x - r, y - r, 2 * r, 2 * r);
      else if (kind === "router") { g.moveTo(x, y - r * 1.3); g.lineTo(x + r * 1.3, y); g.lineTo(x, y + r * 1.3); g.lineTo(x - r * 1.3, y); g.closePath(); }
      else g.arc(x, y, r, 0, 7);
      g.fill(); g.stroke();
      if (p.sums[v]) { g.strokeStyle = colours.card; g.beginPath(); g.moveTo(x - r * .6, y); g.lineTo(x + r * .6, y); g.moveTo(x, y - r * .6); g.lineTo(x, y + r * .6); g.stroke(); }
    }
    g.globalAlpha = 1;
    const taken = []; drawSites(g, p, at, w, taken);
    g.font = "11.5px system-ui,sans-serif"; g.fillStyle = colours.ink;
    for (let v = 0; v < p.names.length && p.names.length <= 48; v++) {
      const [x, y] = at(v), place = p.geographic && p.sites[v] ? p.sites[v] : p.names[v], wide = g.measureText(place).width;
      const right = x + 12 + wide > w; g.textAlign = right ? "right" : "left";
      label(g, place, x + (right ? -9 : 9), y, right ? x - 9 - wide : x + 9, wide, taken);
    }
    p.at = at;
  }
  // a text where no other one is; else none
  function label(g, text, x, y, left, wide, taken) {
    const box = [left, y - 7, left + wide, y + 7];
    if (taken.some((b) => b[0] < box[2] && box[0] < b[2] && b[1] < box[3] && box[1] < b[3])) return;
    taken.push(box); g.strokeStyle = colours.card; g.lineWidth = 3; g.strokeText(text, x, y); g.fillText(text, x, y);
  }
  function drawSites(g, p, at, w, taken) {
    const sites = [...new Set(p.sites.filter((s) => s))];
    if (sites.length < 2 || sites.length > 24 || p.geographic) return;
    g.font = "600 11.5px system-ui,sans-serif"; g.textAlign = "center"; g.fillStyle = colours.soft;
    for (const site of sites) {
      const own = p.sites.flatMap((s, v) => s === site ? [at(v)] : []), half = g.measureText(site).width / 2 + 2;
      const x = Math.min(Math.max(own.reduce((sum, q) => sum + q[0], 0) / own.length, half), w - half), y = Math.min(...own.map((q) => q[1])) - 15;
      label(g, site, x, y, x - half, 2 * half, taken);
    }
  }
  function hoverMap(event) {
    const p = plan(), box = $("map").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    for (let v = 0; v < p.names.length; v++) { const [a, b] = p.at(v); if (Math.hypot(a - x, b - y) < 8)
      return tip(event, `${p.names[v]}\n${p.kinds[v]}${p.sites[v] ? `, ${p.sites[v]}` : ""}`); }
    let best = 6, link = -1;
    for (let i = 0; i < p.links.count; i++) {
      const [ax, ay, bx, by] = p.segments.subarray(4 * i, 4 * i + 4), dx = bx - ax, dy = by - ay, n = dx * dx + dy * dy || 1;
      const f = Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / n)), d = Math.hypot(ax + f * dx - x, ay + f * dy - y);
      if (d < best) { best = d; link = i; }
    }
    if (link < 0) return tip(null);
    const l = p.links;
    tip(event, `${linkName(p, link)}\n${size(l.bandwidth[link])}/s, ${time(l.latency[link])}` + (l.message[link] ? `, ${time(l.message[link])} a message\n` : "\n") +
      (state.whole ? `used ${percent(l.use[link])}, carried ${size(l.bytes[link])}` : `used ${percent(useNow(p, link))} at ${time(state.t * p.completion)}`));
  }

  // --- delivered --------------------------------------------------------------------------------
  function drawCurve() {
    const p = plan(), [g, w, h] = canvas("curve"), L = 40, R = 14, T = 10, B = 24, end = Math.max(p.completion, p.bound) || 1;
    const X = (t) => L + (w - L - R) * t / end, Y = (f) => h - B - (h - T - B) * f;
    g.font = "11px system-ui,sans-serif"; g.fillStyle = colours.soft; g.strokeStyle = colours.line; g.lineWidth = 1;
    for (const f of [0, .5, 1]) { g.beginPath(); g.moveTo(L, Y(f)); g.lineTo(w - R, Y(f)); g.stroke(); g.textAlign = "right"; g.textBaseline = "middle"; g.fillText(`${100 * f} %`, L - 6, Y(f)); }
    g.textBaseline = "top";
    axis(g, ticks(0, end, w - L - R), X, h - B + 7, w);
    g.strokeStyle = colours.mark; g.setLineDash([4, 4]); g.beginPath(); g.moveTo(L, Y(0)); g.lineTo(X(p.bound), Y(1)); g.lineTo(X(p.bound), Y(0)); g.stroke(); g.setLineDash([]);
    const d = p.delivered;
    g.strokeStyle = colours.accent; g.lineWidth = 2; g.beginPath(); g.moveTo(X(0), Y(0)); let y = Y(0);
    for (let i = 0; i < d.t.length; i++) { if (d.t.length < 60) g.lineTo(X(d.t[i]), y); y = Y(d.bytes[i] / d.total); g.lineTo(X(d.t[i]), y); }
    g.stroke();
    if (!state.whole) { g.strokeStyle = colours.ink; g.lineWidth = 1; g.beginPath(); g.moveTo(X(state.t * p.completion), T); g.lineTo(X(state.t * p.completion), h - B); g.stroke(); }
  }

  // --- the timeline -----------------------------------------------------------------------------
  const ROW = 16, LABEL = 132, AXIS = 22;
  const span = (p) => { const width = 1 / state.zoom, from = Math.max(0, Math.min(1 - width, state.t - width / 2)); return [from * p.completion, (from + width) * p.completion]; };
  function drawRows() {
    const p = plan(), s = $("scroller"), total = AXIS + ROW * p.rows.length, c = $("rows");
    c.style.height = Math.min(520, total + 4) + "px"; $("spacer").style.height = total + 4 + "px";
    const [g, w, h] = canvas("rows"), [from, to] = span(p), k = (w - LABEL - 8) / (to - from || 1), top = s.scrollTop;
    g.font = "11.5px system-ui,sans-serif"; g.textBaseline = "middle";
    const first = Math.max(0, Math.floor(top / ROW)), last = Math.min(p.rows.length, Math.ceil((top + h) / ROW));
    p.drawn = [];
    for (let row = first; row < last; row++) {
      const i = p.rows[row], y = AXIS + row * ROW - top;
      g.fillStyle = colours.soft; g.textAlign = "left"; g.fillText(fit(g, linkName(p, i), LABEL - 8), 2, y + ROW / 2);
      g.fillStyle = colours.line; g.fillRect(LABEL, y + ROW - 1, w - LABEL - 8, 1);
      p.steps[i].forEach(([at, width], n) => {
        const part = width / p.links.bandwidth[i], end = n + 1 < p.steps[i].length ? p.steps[i][n + 1][0] : Infinity;
        const x0 = LABEL + (Math.max(at, from) - from) * k, x1 = LABEL + (Math.min(end, to) - from) * k;
        if (part === 1 || x1 <= x0) return;
        g.globalAlpha = .2 + .8 * Math.min(1, Math.abs(1 - part)); g.fillStyle = part < 1 ? colours.hot : colours.mark;
        g.fillRect(x0, y + ROW - 3, x1 - x0, 3); g.globalAlpha = 1;
      });
      if (p.bars) {
        for (const b of p.bars.byLink[i]) {
          const x0 = LABEL + (Math.max(p.bars.begin[b], from) - from) * k, x1 = LABEL + (Math.min(p.bars.end[b], to) - from) * k;
          if (x1 <= LABEL || x0 >= w - 8 || x1 <= x0) continue;
          const t = p.bars.transfer[b], rel = related(p, t);
          g.globalAlpha = state.hover < 0 || rel ? 1 : .22;
          g.fillStyle = rel === 1 ? colours.ink : rel === 2 ? colours.mark : rel === 3 ? colours.hot : hue(p.bars.from[t]);
          g.fillRect(x0, y + 2, Math.max(1, x1 - x0 - .6), ROW - 5);
          p.drawn.push([x0, y + 1, Math.max(x1, x0 + 2), y + ROW - 2, b]);
        }
        g.globalAlpha = 1;
      } else {
        const a = Math.floor(from / p.completion * p.binCount), z = Math.min(p.binCount, Math.ceil(to / p.completion * p.binCount));
        for (let b = a; b < z; b++) {
          const u = p.links.bins[i * p.binCount + b]; if (!u) continue;
          const x0 = LABEL + (b / p.binCount * p.completion - from) * k, x1 = x0 + p.completion / p.binCount * k;
          g.fillStyle = colours.ramp[u]; g.fillRect(Math.max(LABEL, x0), y + 2, Math.max(.5, x1 - Math.max(LABEL, x0) + .3), ROW - 5);
        }
      }
    }
    g.fillStyle = colours.card; g.fillRect(0, 0, w, AXIS); g.fillStyle = colours.soft;
    const moments = ticks(from, to, w - LABEL - 8), X = (t) => LABEL + (t - from) * k;
    axis(g, moments, X, AXIS / 2, w); g.fillStyle = colours.line; for (const t of moments) g.fillRect(X(t), AXIS - 4, 1, 4);
    g.fillStyle = colours.soft;
    g.fillRect(LABEL, AXIS - 1, w - LABEL - 8, 1);
    if (!state.whole) { const x = LABEL + (state.t * p.completion - from) * k; g.fillStyle = colours.ink; g.fillRect(x, AXIS - 5, 1, h); }
  }
  function fit(g, text, width) { if (g.measureText(text).width <= width) return text; while (text.length > 4 && g.measureText(text + "…").width > width) text = text.slice(0, -1); return text + "…"; }
  function related(p, t) {
    const h = state.hover; if (h < 0) return 0; if (t === h) return 1;
    const b = p.bars;
    for (let i = b.depOffsets[h]; i < b.depOffsets[h + 1]; i++) if (b.dep[i] === t) return 2;
    for (let i = b.depOffsets[t]; i < b.depOffsets[t + 1]; i++) if (b.dep[i] === h) return 3;
    return 0;
  }
  function hoverRows(event) {
    const p = plan(), box = $("rows").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const before = state.hover; state.hover = -1;
    if (y > AXIS && p.bars) for (const [x0, y0, x1, y1, b] of p.drawn) if (x >= x0 && x <= x1 && y >= y0 && y <= y1) {
      const t = p.bars.transfer[b], o = p.bars, ends = [], some = (list) => list.slice(0, 6).join(", ") + (list.length > 6 ? ` and ${list.length - 6} more` : "");
      const starts = Array.from(o.src.subarray(o.srcOffsets[t], o.srcOffsets[t + 1]), (v) => p.names[v]);
      for (let i = o.dstOffsets[t]; i < o.dstOffsets[t + 1]; i++) ends.push(`${p.names[o.dst[i]]} (${time(o.arrival[i])})`);
      const deps = Array.from(o.dep.subarray(o.depOffsets[t], o.depOffsets[t + 1]));
      state.hover = t;
      tip(event, `transfer ${t}: chunk ${o.chunk[t]}, ${size(o.size[t])}\n${some(starts)} → ${some(ends)}\n` +
        `${time(o.begin[b])} to ${time(o.end[b])} on ${linkName(p, o.link[b])}\n` + (deps.length ? `after transfer ${deps.join(", ")}` : "depends on nothing"));
      break;
    }
    if (state.hover < 0) {
      const row = Math.floor((y - AXIS + $("scroller").scrollTop) / ROW);
      if (y > AXIS && row >= 0 && row < p.rows.length) { const i = p.rows[row]; tip(event, `${linkName(p, i)}\nused ${percent(p.links.use[i])}, carried ${size(p.links.bytes[i])}`); } else tip(null);
    }
    if (before !== state.hover) drawRows();
  }

  // --- words and tables -------------------------------------------------------------------------
  // --- the planes -------------------------------------------------------------------------------
  const letters = (n) => n < 26 ? String.fromCharCode(65 + n) : letters(Math.floor(n / 26) - 1) + String.fromCharCode(65 + n % 26);
  function drawPlanes() {
    const p = plan();
    if (!p.planes.length) return;
    const [g, w] = canvas("planes"), X = (t) => LABEL + (w - LABEL - 8) * t / (p.completion || 1);
    g.font = "11px system-ui,sans-serif"; g.textBaseline = "middle";
    p.planes.forEach((row, i) => {
      const y = 4 + i * (ROW + 6);
      g.fillStyle = colours.soft; g.textAlign = "left"; g.fillText(row.name, 0, y + ROW / 2);
      for (const [begin, end, matching] of row.parts) {
        const x = X(begin), width = Math.max(X(end) - x, 1);
        g.fillStyle = matching < 0 ? colours.idle : hue(matching); g.fillRect(x, y, width, ROW);
        if (matching < 0) { g.save(); g.beginPath(); g.rect(x, y, width, ROW); g.clip(); g.strokeStyle = colours.card; g.beginPath();
          for (let a = x - ROW; a < x + width; a += 6) { g.moveTo(a, y + ROW); g.lineTo(a + ROW, y); } g.stroke(); g.restore(); }
        else if (width > 14) { g.fillStyle = "#fff"; g.textAlign = "center"; g.fillText(letters(matching), x + width / 2, y + ROW / 2); }
      }
    });
    g.fillStyle = colours.soft; g.textBaseline = "top"; const y = 8 + p.planes.length * (ROW + 6);
    axis(g, ticks(0, p.completion, w - LABEL - 8), X, y, w);
    if (!state.whole) { g.strokeStyle = colours.ink; g.beginPath(); g.moveTo(X(state.t * p.completion), 0); g.lineTo(X(state.t * p.completion), y); g.stroke(); }
  }
  function hoverPlanes(event) {
    const p = plan(), box = $("planes").getBoundingClientRect(), row = p.planes[Math.floor((event.clientY - box.top - 4) / (ROW + 6))];
    const t = (event.clientX - box.left - LABEL) / (box.width - LABEL - 8) * p.completion;
    const part = row && row.parts.find(([begin, end]) => begin <= t && t <= end);
    tip(part ? event : null, part && `${row.name}: ${part[3]}\n${part[2] < 0 ? "" : `matching ${letters(part[2])}\n`}${time(part[0])} to ${time(part[1])}`);
  }

  function tip(event, text) {
    const e = $("tip");
    if (!event) { e.style.opacity = 0; return; }
    e.textContent = text; e.style.opacity = 1;
    const b = e.getBoundingClientRect();
    e.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - b.width - 8)) + "px";
    e.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - b.height - 8)) + "px";
  }
  const ratio = (p) => p.bound ? (p.completion / p.bound).toFixed(3) : "–";
  function showPlan() {
    const p = plan(), tiles = $("tiles");
    tiles.replaceChildren();
    for (const [value, label, more] of [
      [time(p.completion), "completion", `${p.planner}, ${p.collective}`],
      [time(p.bound), "no plan can beat", `${p.bounds[0].kind}: ${p.bounds[0].witness}`],
      [ratio(p), "completion / bound", ""],
      ...(p.mean == null ? [] : [[time(p.mean), "mean completion", p.meanBound ? `${(p.mean / p.meanBound).toFixed(3)} times its bound: ${p.meanWitness}` : ""]]),
      [size(p.size / p.completion) + "/s", "algorithm bandwidth", `${size(p.size)} among ${p.ranks} ranks`],
      [p.transfers.toLocaleString("en"), "transfers", `${p.chunks} chunk${p.chunks > 1 ? "s" : ""} a piece` + (p.message ? `; a message costs ${p.message}` : "")],
      ...(p.cost == null ? [] : [[`${+p.cost.toPrecision(4)} USD`, "cost", "bytes over each link times its price"]]),
      ...(p.planning == null ? [] : [[time(p.planning), "planning", ""]])]) {
      const tile = element("div", undefined, { class: "tile" });
      tile.append(element("span", label), element("b", value), element("small", more)); tiles.append(tile);
    }
    $("map-sub").textContent = `${p.names.length} nodes` + (p.links.all || !p.planes.length ? `, ${p.links.all} directed links` : "") + (p.planes.length ? `, ${p.planes.length} optical plane${p.planes.length > 1 ? "s" : ""}` : "") + (p.links.count < p.links.all ? `; the busiest ${p.links.count} are drawn` : "") + (p.changes ? `; bandwidths change ${p.steps.reduce((n, s) => n + s.length, 0).toLocaleString("en")} times` : "") + (p.message ? `; a message costs ${p.message}` : "") + `. Circles are accelerators, diamonds routers, squares switches${p.sums.length ? ", with a plus where they sum" : ""}.`;
    $("structure").hidden = !p.drawing; $("structure-drawing").innerHTML = p.drawing;
    $("curve-sub").textContent = `Bytes that ranks have received, of ${size(p.delivered.total)}; dashed: an even delivery that ends at the bound.`;
    $("rows-sub").textContent = p.bars ? "One row for each link, the busiest first; one bar for each transfer, coloured by the node that holds the chunk first. Hover over a bar to see what it waits for (green) and what waits for it (red)."
      : `Aggregated: ${p.transfers.toLocaleString("en")} transfers are too many for bars, so each row shows how busy its link is in ${p.binCount} slices of time.`;
    if (p.changes) $("rows-sub").textContent += " A strip below a row: the link's bandwidth is lower than at first (red, the stronger the less is left) or higher (green).";
    const w = p.path, whole = w.latency + w.busy + w.message + w.idle || 1, top = w.links[0], busiest = p.rows[0];
    $("why").textContent = (busiest === undefined ? "" : `Busiest link: ${linkName(p, busiest)}, used ${percent(p.links.use[busiest])} of the time. `) +
      `Along the chain that ends last: ${percent(w.busy / whole)} sending, ` + (w.message ? `${percent(w.message / whole)} costs of messages, ` : "") + `${percent(w.latency / whole)} latency, ${percent(w.idle / whole)} ${p.planes.length ? "turning or waiting" : "idle"}` + (top ? `; most of it on ${top.link}.` : ".");
    const bar = $("spent"); bar.replaceChildren();
    for (const [key, colour] of [["busy", "--accent"], ["message", "--cool"], ["latency", "--warm"], ["idle", "--idle"]]) bar.append(element("div", undefined, { style: `flex:${w[key] / whole};background:var(${colour})`, title: `${key}: ${time(w[key])}` }));
    const table = $("busiest"); table.replaceChildren();
    const head = element("tr"); for (const t of ["on the chain", "sending", "latency", "share"]) head.append(element("th", t)); table.append(head);
    for (const row of w.links.slice(0, 6)) { const tr = element("tr"); tr.append(element("td", row.link), element("td", time(row.seconds)), element("td", time(row.latency)), element("td", percent((row.seconds + row.latency) / whole))); table.append(tr); }
    $("notes-card").hidden = !p.notes.length; $("notes").replaceChildren(...p.notes.map((n) => element("li", n)));
    $("planes-card").hidden = !p.planes.length; $("planes").style.height = `${30 + p.planes.length * (ROW + 6)}px`;
    $("rows-card").hidden = p.planes.length > 0 && !p.links.count;
    $("pick").value = state.plan; compareTable();
    $("scroller").scrollTop = 0; draw();
  }
  const COLUMNS = [["planner", (p) => p.planner], ["topology", (p) => p.topology], ["collective", (p) => p.collective], ["size", (p) => p.size, size], ["chunks", (p) => p.chunks],
    ["transfers", (p) => p.transfers], ["completion", (p) => p.completion, time], ["bound", (p) => p.bound, time], ["ratio", (p) => p.completion / p.bound, (v) => v.toFixed(3)],
    ["algorithm bandwidth", (p) => p.size / p.completion, (v) => size(v) + "/s"], ["planning", (p) => p.planning ?? 0, time]];
  function compareTable() {
    $("compare-card").hidden = page.plans.length < 2;
    const table = $("compare"); table.replaceChildren();
    const head = element("tr"), order = page.plans.map((_, i) => i), asked = (p) => [p.topology, p.collective, p.size].join("|"), longest = {};
    for (const p of page.plans) longest[asked(p)] = Math.max(p.completion, longest[asked(p)] || 0);
    COLUMNS.forEach(([name], c) => { const th = element("th", name + (state.sort && state.sort[0] === c ? (state.sort[1] > 0 ? " ▲" : " ▼") : ""), { tabindex: 0 });
      th.onclick = () => { state.sort = [c, state.sort && state.sort[0] === c ? -state.sort[1] : 1]; compareTable(); };
      th.onkeydown = (e) => { if (e.key === "Enter") th.onclick(); }; head.append(th); });
    head.append(element("th", "")); const thead = element("thead"); thead.append(head); table.append(thead);
    if (state.sort) { const [c, way] = state.sort, value = COLUMNS[c][1]; order.sort((a, b) => { const x = value(page.plans[a]), y = value(page.plans[b]); return way * (x < y ? -1 : x > y ? 1 : 0); }); }
    const body = element("tbody");
    for (const i of order) { const p = page.plans[i], tr = element("tr", undefined, i === state.plan ? { class: "on" } : {});
      for (const [, value, words] of COLUMNS) tr.append(element("td", words ? words(value(p)) : String(value(p))));
      const cell = element("td"), b = element("div", undefined, { class: "bar", style: `width:${Math.max(1, 130 * p.completion / longest[asked(p)])}px;min-width:0` });
      b.append(element("i", undefined, { style: `left:${Math.min(100, 100 * p.bound / p.completion)}%` })); cell.append(b); tr.append(cell);
      tr.onclick = () => { state.plan = i; showPlan(); }; body.append(tr); }
    table.append(body);
  }

  // --- what moves -------------------------------------------------------------------------------
  const plan = () => open(page.plans[state.plan]);
  function draw() { $("now").textContent = state.whole ? `all ${time(plan().completion)}` : time(state.t * plan().completion); drawMap(); drawCurve(); drawPlanes(); drawRows(); }
  let asked = false;
  const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } };
  function setTime(t) { state.t = Math.max(0, Math.min(1, t)); state.whole = false; $("whole").checked = false; $("time").value = Math.round(1000 * state.t); redraw(); }
  let lastFrame = 0;
  function step(now) {
    if (!state.playing) return;
    const t = state.t + (lastFrame ? (now - lastFrame) / 8000 : 0); lastFrame = now;
    if (t >= 1) { setTime(1); play(false); } else { setTime(t); requestAnimationFrame(step); }
  }
  function play(on) { state.playing = on; lastFrame = 0; $("play").textContent = on ? "❚❚" : "▶"; $("play").setAttribute("aria-label", on ? "pause" : "play"); if (on) { if (state.t >= 1) state.t = 0; requestAnimationFrame(step); } }
  function scheme(name) { document.documentElement.dataset.scheme = name; readColours(); redraw(); }

  $("title").textContent = page.title; document.title = `${page.title} · stretto`;
  page.plans.forEach((p, i) => $("pick").append(element("option", `${p.planner} · ${p.topology} · ${p.collective} · ${size(p.size)} · ${p.chunks} chunk${p.chunks > 1 ? "s" : ""}`, { value: i })));
  $("pick-label").hidden = page.plans.length < 2;
  $("pick").onchange = () => { state.plan = +$("pick").value; showPlan(); };
  $("time").oninput = () => setTime($("time").value / 1000);
  $("whole").onchange = () => { state.whole = $("whole").checked; redraw(); };
  $("witness").onchange = () => { state.witness = $("witness").checked; redraw(); };
  $("zoom").oninput = () => { state.zoom = Math.pow(200, $("zoom").value / 100); redraw(); };
  $("play").onclick = () => play(!state.playing);
  $("scheme").onclick = () => scheme(document.documentElement.dataset.scheme === "dark" ? "light" : "dark");
  $("map").onmousemove = hoverMap; $("rows").onmousemove = hoverRows;
  $("planes").onmousemove = hoverPlanes;
  for (const id of ["map", "rows", "planes"]) $(id).onmouseleave = () => { tip(null); if (state.hover >= 0) { state.hover = -1; redraw(); } };
  $("rows").onclick = (event) => { const p = plan(), box = $("rows").getBoundingClientRect(), [from, to] = span(p), x = event.clientX - box.left;
    if (x > LABEL) setTime((from + (x - LABEL) / (box.width - LABEL - 8) * (to - from)) / p.completion); };
  $("scroller").onscroll = () => { tip(null); redraw(); };
  new ResizeObserver(redraw).observe(document.body);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => scheme(dark.matches ? "dark" : "light"));
  document.documentElement.dataset.scheme = dark.matches ? "dark" : "light";
  readColours(); showPlan();
})();
