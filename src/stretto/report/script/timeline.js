// The timeline: a row a link. Each row is one line of pixels, made from the hops in the window and repeated downwards: a
// hop that is wide enough becomes a bar; of hops narrower than a pixel the pixel shows for which share of it the link is
// busy (their union) and the class that keeps it busy longest.
const AXIS = 22, BAR_ROW = 16, NAME_LINE = 14, PLANE_ROW = BAR_ROW + 6;
let LABEL = 132, ROW = BAR_ROW, ABOVE = 0;
// Where names of links stand: beside the rows, as wide as the longest name; above them where that is too much of the width.
function layRows(g, width) {
  const names = panes().flatMap((p) => filtered(p).rows.map((i) => linkName(p, i))).sort((a, b) => b.length - a.length).slice(0, 12);
  g.font = "11.5px system-ui,sans-serif";
  const widest = Math.max(...names.map((name) => g.measureText(name).width), 0) + 10;
  ABOVE = widest > Math.max(clamp(width * (innerWidth < 560 ? .34 : .26), 84, 260), 84) ? NAME_LINE : 0;
  LABEL = ABOVE ? 12 : Math.round(Math.max(widest, 84)); ROW = BAR_ROW + ABOVE;
}
let lines = { width: 0 };  // the buffers of one line
function lineBuffers(width) {
  if (lines.width < width) lines = { width, pixels: new Uint32Array(width), busy: new Float32Array(width * CLASSES), touched: new Uint8Array(width) };
  return lines;
}

// the line of one row: pixels of a window [from, to] seconds; returns them, 0 where the link is idle
function rowPixels(p, link, from, to, width, bar) {
  const { pixels, busy, touched } = lineBuffers(width), h = p.h, classes = classesOf(p), { pass } = filtered(p), lit = followed(p);
  const a = from / h.tick, z = to / h.tick, scale = width / (z - a || 1), hover = p === panes()[state.pane] ? state.hover : -1;
  pixels.fill(0, 0, width); let crowded = false, covered = a;
  for (let j = firstHop(h, link, a); j < h.at[link + 1] && h.begin[j] < z; j++) {
    const t = h.transfer[j];
    if (pass && !pass[t]) continue;
    const begin = Math.max(h.begin[j], a), end = Math.min(h.end[j], z), x0 = (begin - a) * scale, x1 = (end - a) * scale;
    if (end <= a) continue;
    const c = classes[t];
    if (x1 - x0 >= bar || hover === t) {
      const first = Math.min(width - 1, Math.round(x0)), last = Math.max(first + 1, Math.round(x1) - (x1 - x0 > 3 * bar ? 1 : 0)), rel = hover < 0 ? -1 : related(h, hover, t);
      pixels.fill(rel > 0 ? [0, colours.words.ink, colours.words.mark, colours.words.hot][rel] : rel === 0 || (lit && !lit[t]) ? colours.dim[c] : colours.shades[c][64], first, last);
      covered = Math.max(covered, end);
      continue;
    }
    const low = (Math.max(begin, covered) - a) * scale;  // what is already covered is busy once
    covered = Math.max(covered, end);
    if (x1 <= low) continue;
    crowded = true;
    for (let x = Math.floor(low); x <= x1 && x < width; x++) {
      if (!touched[x]) { touched[x] = 1; busy.fill(0, x * CLASSES, (x + 1) * CLASSES); }
      busy[x * CLASSES + c] += (Math.min(x1, x + 1) - Math.max(low, x)) * (lit && lit[t] ? 1e3 : 1);
    }
  }
  if (crowded) for (let x = 0; x < width; x++) if (touched[x]) {
    touched[x] = 0;
    if (pixels[x]) continue;
    let sum = 0, top = 0;
    for (let c = 0; c < CLASSES; c++) { const v = busy[x * CLASSES + c]; sum += v; if (v > busy[x * CLASSES + top]) top = c; }
    const dark = (lit && sum < 1) || hover >= 0;
    pixels[x] = dark ? colours.dim[top] : colours.shades[top][Math.round(64 * Math.min(1, lit ? 1 : sum))];
  }
  return pixels;
}
// the same from the use of the link in slices of time
function slicePixels(p, link, from, to, width) {
  const { pixels } = lineBuffers(width); pixels.fill(0, 0, width);
  for (let x = 0; x < width; x++) {
    const b = Math.floor((from + (x + .5) / width * (to - from)) / p.completion * p.binCount), u = b < p.binCount ? p.links.bins[link * p.binCount + b] : 0;
    if (u) pixels[x] = colours.rampWords[u];
  }
  return pixels;
}
function related(h, hover, t) {
  if (t === hover) return 1;
  for (let i = h.afterAt[hover]; i < h.afterAt[hover + 1]; i++) if (hover - h.before[i] === t) return 2;
  for (let i = h.afterAt[t]; i < h.afterAt[t + 1]; i++) if (t - h.before[i] === hover) return 3;
  return 0;
}

// an empty picture of this size; the last one again where it fits, as a new one in each frame costs more than clearing it
let image = null;
function imageOf(g, width, height) {
  if (image && image.width === width && image.height === height) new Uint32Array(image.data.buffer).fill(0);
  else image = g.createImageData(width, height);
  return image;
}
// rows from `top` pixels on, on a context: a canvas, or a pen that writes SVG
function drawRows(g, w, h, p, top, ratio = 1) {
  const [from, to] = span(), room = Math.max(1, w - LABEL - 8), k = room / (to - from || 1), { rows } = filtered(p), X = (t) => LABEL + (t - from) * k;
  const first = Math.max(0, Math.floor(top / ROW)), last = Math.min(rows.length, Math.ceil((top + h - AXIS) / ROW)), wide = Math.round(room * ratio);
  const image = g.putImageData ? imageOf(g, wide, Math.max(1, Math.round(h * ratio))) : null, words = image && new Uint32Array(image.data.buffer);
  for (let row = first; row < last; row++) {
    const y = AXIS + row * ROW - top, pixels = p.h ? rowPixels(p, rows[row], from, to, wide, 1.5 * ratio) : slicePixels(p, rows[row], from, to, wide);
    if (!image) { g.runs(pixels, wide, LABEL, y + ABOVE + 2, BAR_ROW - 5, room / wide); continue; }
    const line = pixels.subarray(0, wide);
    for (let py = Math.max(0, Math.round((y + ABOVE + 2) * ratio)), end = Math.min(image.height, Math.round((y + ROW - 3) * ratio)); py < end; py++) words.set(line, py * wide);
  }
  if (image) g.putImageData(image, Math.round(LABEL * ratio), 0);
  g.font = "11.5px system-ui,sans-serif"; g.textBaseline = "middle"; g.textAlign = "left";
  for (let row = first; row < last; row++) {
    const i = rows[row], y = AXIS + row * ROW - top;
    g.fillStyle = colours.soft; g.textAlign = "left"; g.fillText(fitLink(g, p, i, ABOVE ? w - 10 : LABEL - 8), 2, y + (ABOVE ? ABOVE / 2 + 2 : ROW / 2));
    g.fillStyle = colours.line; g.fillRect(LABEL, y + ROW - 1, room, 1);
    p.steps[i].forEach(([at, width], n) => {
      const part = width / p.links.bandwidth[i], end = n + 1 < p.steps[i].length ? p.steps[i][n + 1][0] : Infinity;
      const x0 = X(Math.max(at, from)), x1 = X(Math.min(end, to));
      if (part === 1 || x1 <= x0) return;
      g.globalAlpha = .2 + .8 * Math.min(1, Math.abs(1 - part)); g.fillStyle = part < 1 ? colours.hot : colours.mark;
      g.fillRect(x0, y + ROW - 3, x1 - x0, 3); g.globalAlpha = 1;
    });
  }
  g.fillStyle = colours.card; g.fillRect(0, 0, w, AXIS); g.fillStyle = colours.soft;
  const moments = ticks(from, to, room);
  axis(g, moments, X, AXIS / 2, w); g.fillStyle = colours.line; for (const t of moments) g.fillRect(X(t), AXIS - 4, 1, 4);
  g.fillStyle = colours.soft; g.fillRect(LABEL, AXIS - 1, room, 1);
  const now = X(state.t * horizon());
  if (!state.whole && now >= LABEL && now <= w - 8) { g.fillStyle = colours.ink; g.fillRect(now, AXIS - 5, 1, h); }
}

// the hops at a place of the timeline: their row, the nearest one, and how many share its pixel
function hopsAt(p, x, y, width, top) {
  const { rows, pass } = filtered(p), row = Math.floor((y - AXIS + top) / ROW), link = y > AXIS && row >= 0 && row < rows.length ? rows[row] : -1;
  if (link < 0 || !p.h || x < LABEL) return { link, hop: -1, many: 0 };
  const [from, to] = span(), h = p.h, tick = (to - from) / (width - LABEL - 8) / h.tick, t = from / h.tick + (x - LABEL) * tick;
  let hop = -1, many = 0;
  for (let j = firstHop(h, link, t - tick); j < h.at[link + 1] && h.begin[j] < t + tick; j++) {
    if (h.end[j] <= t - tick || (pass && !pass[h.transfer[j]])) continue;
    if (h.end[j] - h.begin[j] < 1.5 * tick) many++;
    if (hop < 0 || (h.begin[j] <= t && (h.end[hop] < t || h.begin[j] > h.begin[hop]))) hop = j;
  }
  return { link, hop, many };
}
function transferWords(p, j) {
  const h = p.h, t = h.transfer[j], i = h.order[j], at = (ticks) => time(ticks * h.tick), ends = [];
  const starts = Array.from(h.source.subarray(h.sourceAt[t], h.sourceAt[t + 1]), (v) => p.names[v]);
  for (let r = h.receiverAt[t]; r < h.receiverAt[t + 1]; r++) ends.push(`${p.names[h.receiver[r]]} (${at(h.start[t] + h.lasts[t] + h.late[r])})`);
  const deps = waitsFor(h, t);
  return `transfer ${t}: chunk ${h.chunk[t]}, ${size(h.sizes[h.size[t]])}${h.op[t] ? ", a sum" : ""}\n${some(starts)} → ${some(ends)}\n` +
    `${at(h.begin[j])} to ${at(h.end[j])} on ${linkName(p, h.link[i])}\n` + (deps.length ? `after transfer ${some(deps)}` : "depends on nothing");
}
function hoverRows(event, p, canvas, pane) {
  const box = canvas.getBoundingClientRect(), { link, hop, many } = hopsAt(p, event.clientX - box.left, event.clientY - box.top, box.width, canvas.parentElement.scrollTop);
  const before = state.hover; state.hover = hop >= 0 && many < 2 ? p.h.transfer[hop] : -1; state.pane = pane;
  if (state.hover >= 0) tip(event, `${transferWords(p, hop)}\nclick: follow its chunk`);
  else if (link >= 0) tip(event, `${linkName(p, link)}\nused ${percent(p.links.use[link])}, carried ${size(p.links.bytes[link])}` + (many > 1 ? `\n${count(many)} transfers here: zoom in to tell them apart` : ""));
  else tip(null);
  if (before !== state.hover) redrawRows();
}
