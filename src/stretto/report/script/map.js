// The network: by servers and switches, on a map or node by node, its links coloured by use or by what they carry.
const LEVELS = 32;
function useNow(p, i) {
  if (state.whole) return p.links.use[i];
  const b = Math.floor(state.t * horizon() / p.completion * p.binCount);
  return b < p.binCount ? p.links.bins[i * p.binCount + b] / 255 : 0;
}
// the class that keeps a link busy longest over the whole run, or now; -1 for none
function classOnLink(p, i) {
  const h = p.h, classes = classesOf(p), pass = filtered(p).pass;
  if (!state.whole) {
    const now = state.t * horizon() / h.tick;
    for (let j = firstHop(h, i, now); j < h.at[i + 1] && h.begin[j] <= now; j++) if (h.end[j] > now && (!pass || pass[h.transfer[j]])) return classes[h.transfer[j]];
    return -1;
  }
  const key = p.mode + p.filterKey;
  if (p.mainKey !== key) {
    p.mainKey = key; p.main = new Int8Array(p.links.count).fill(-1);
    const sum = new Float64Array(CLASSES);
    for (let l = 0; l < p.links.count; l++) {
      sum.fill(0);
      for (let j = h.at[l]; j < h.at[l + 1]; j++) if (!pass || pass[h.transfer[j]]) sum[classes[h.transfer[j]]] += h.end[j] - h.begin[j];
      for (let c = 0, most = 0; c < CLASSES; c++) if (sum[c] > most) { most = sum[c]; p.main[l] = c; }
    }
  }
  return p.main[i];
}

// where nodes are on a canvas: the scene of servers and switches, or all nodes; moved and enlarged as the reader has it
function mapPoints(p, w, h) {
  const scene = p.scene && state.layout !== "nodes" ? p.scene : null, n = p.names.length, view = p.view || (p.view = { k: 1, x: 0, y: 0 });
  if (!p.places || p.placesOf !== scene) {
    p.placesOf = scene;
    p.places = scene ? new Float32Array(2 * n).fill(NaN) : new Float32Array(2 * n);
    if (scene) for (const [v, x, y] of scene.at) p.places.set([x, y], 2 * v);
    else for (let v = 0; v < n; v++) p.places.set([p.x[v], p.y[v]], 2 * v);
    p.bends = new Map(scene ? scene.bends.flatMap(([a, b, bend]) => [[`${a},${b}`, bend], [`${b},${a}`, bend]]) : []);
  }
  const m = scene ? 6 : w < 500 ? 26 : p.geographic ? 46 : 34; let loX = 0, hiX = 1, loY = 0, hiY = 1;
  if (scene) [hiX, hiY] = [scene.width, scene.height];
  else { loX = loY = Infinity; hiX = hiY = -Infinity;
    for (let v = 0; v < n; v++) { loX = Math.min(loX, p.x[v]); hiX = Math.max(hiX, p.x[v]); loY = Math.min(loY, p.y[v]); hiY = Math.max(hiY, p.y[v]); } }
  const fitted = Math.min((w - 2 * m) / Math.max(hiX - loX, 1e-6), (h - 2 * m) / Math.max(hiY - loY, 1e-6), scene ? 1.6 : 4 * Math.min(w, h));
  // rows of servers are wide: what room is left makes the drawing taller, but for two lines of words below it
  const k = fitted * view.k, ky = scene ? clamp((h - 60) / hiY, fitted, 3.6 * fitted) * view.k : k, left = w / 2 - (loX + hiX) / 2 * k + view.x * w, top = h / 2 - (loY + hiY) / 2 * ky + view.y * h;
  const at = (v) => [left + p.places[2 * v] * k, top + p.places[2 * v + 1] * ky];
  return Object.assign(at, { k, ky, left, top, scene, enlarged: view.k });
}
// a link's two ends beside those of its other direction, and its bend
function way(p, at, i, o) {
  const [ax, ay] = at(p.links.src[i]), [bx, by] = at(p.links.dst[i]), d = Math.hypot(bx - ax, by - ay) || 1;
  const ox = -(by - ay) / d * o, oy = (bx - ax) / d * o, bend = p.bends.size ? (p.bends.get(`${p.links.src[i]},${p.links.dst[i]}`) || 0) * at.ky : 0;
  return [ax + ox, ay + oy, bx + ox, by + oy, bend && Math.max(ay, by) + bend + 2 * oy];
}
function trace(g, [ax, ay, bx, by, low]) { g.moveTo(ax, ay); if (low) g.quadraticCurveTo((ax + bx) / 2, low, bx, by); else g.lineTo(bx, by); }

// where many links cross they are thinner; together they cover at most a part of the area in which they lie, so that
// lines can be told from each other however narrow the drawing is, and come apart as it is enlarged
const MOST_COVERED = .3, THINNEST = .25;
const weight = (p) => clamp(Math.sqrt(64 / (p.links.row.length || 1)), .3, 1);
function thinning(p, at, width) {
  let length = 0, loX = Infinity, hiX = -Infinity, loY = Infinity, hiY = -Infinity;
  for (let k = 0; k < p.links.row.length; k++) {
    const [ax, ay] = at(p.links.src[k]), [bx, by] = at(p.links.dst[k]), d = Math.hypot(bx - ax, by - ay);
    if (!(d > 0)) continue;
    length += d;
    loX = Math.min(loX, ax, bx); hiX = Math.max(hiX, ax, bx); loY = Math.min(loY, ay, by); hiY = Math.max(hiY, ay, by);
  }
  const across = hiX - loX, down = hiY - loY, area = Math.max(across, .2 * down) * Math.max(down, .2 * across);
  return length ? clamp(MOST_COVERED * area / (length * width), THINNEST / width, 1) : 1;
}
function drawLinks(g, p, at) {
  const l = p.links, many = p.names.length > 150, heavy = weight(p), fine = thinning(p, at, many ? 1.5 : .5 + 2.9 * heavy), o = fine * (many ? .8 : .6 + 2 * heavy), { links: shown } = filtered(p), lit = followedLinks(p), thin = fine * (many ? .7 : .5 + .7 * heavy);
  const inWitness = new Set(p.witness.links), byClass = p.h && state.tint === "class", groups = new Map();
  p.segments = Array(l.row.length);
  for (let k = 0; k < l.row.length; k++) {
    const line = way(p, at, k, o), i = l.row[k];
    if (!(line[0] === line[0]) || !(line[2] === line[2])) continue;  // an end that is not drawn
    p.segments[k] = line;
    const u = useNow(p, i), busy = u > 0.002, faint = state.witness && !inWitness.has(i) || !shown[i] || (lit && lit[i] < 0);
    let colour = colours.idle, width = thin, level = 0;
    if (lit && lit[i] >= 0) { colour = hue(classesOf(p)[p.h.transfer[lit[i]]]); width = many ? 1.6 : 3; level = LEVELS + 1; }
    else if (busy) {
      level = 1 + Math.round((LEVELS - 1) * Math.min(1, u)); width = thin + fine * (many ? .8 : 2.2 * heavy) * u;
      const c = byClass ? classOnLink(p, i) : -1;
      colour = c >= 0 ? colours.classes[c] : byClass ? colours.idle : colours.ramp[Math.round(255 * Math.min(1, u))];
    }
    if (!busy && !lit && byClass) colour = colours.idle;
    const alpha = faint ? .14 : level ? 1 : .55, quantum = level > LEVELS ? colour : byClass ? `${colour}${level >> 3}` : level, key = `${alpha} ${quantum}`;
    const group = groups.get(key) || groups.set(key, { colour, width, alpha, level, lines: [] }).get(key);
    group.lines.push(line);
  }
  g.lineCap = "round";
  for (const { colour, width, alpha, lines } of [...groups.values()].sort((a, b) => a.alpha - b.alpha || a.level - b.level)) {
    g.strokeStyle = colour; g.lineWidth = width; g.globalAlpha = alpha; g.beginPath();
    for (const line of lines) trace(g, line);
    g.stroke();
  }
  g.globalAlpha = 1;
  if (lit) for (let i = 0; i < l.count; i++) if (lit[i] >= 0 && p.segments[i]) arrow(g, p.segments[i], hue(classesOf(p)[p.h.transfer[lit[i]]]));
}
function arrow(g, [ax, ay, bx, by, low], colour) {
  const x = (ax + bx) / 2, y = low ? (ay + 2 * low + by) / 4 : (ay + by) / 2, d = Math.hypot(bx - ax, by - ay), ux = (bx - ax) / d * 5, uy = (by - ay) / d * 5;
  if (d < 14) return;
  g.fillStyle = colour; g.beginPath(); g.moveTo(x + ux, y + uy); g.lineTo(x - ux - uy * .8, y - uy + ux * .8); g.lineTo(x - ux + uy * .8, y - uy - ux * .8); g.closePath(); g.fill();
}
// Circuits of optical planes: those that carry data now, or all of the run, in the colours of their matchings.
const MOST_CIRCUITS = 4000;
function circuitsNow(p) {
  const on = new Set(), now = state.t * horizon();
  for (const { parts } of p.planes) for (const [begin, end, matching] of parts) if (matching >= 0 && (state.whole || (begin <= now && now <= end))) on.add(matching);
  let left = MOST_CIRCUITS; const shown = [];
  for (const k of [...on].sort((a, b) => a - b)) if ((left -= p.matchings[k].length / 2) >= 0) shown.push(k);
  return shown;
}
function drawCircuits(g, p, at) {
  g.lineCap = "round"; g.lineWidth = p.names.length > 64 ? .7 : 1.6;
  for (const k of circuitsNow(p).reverse()) {
    const ends = p.matchings[k]; g.strokeStyle = hue(k); g.beginPath();
    for (let i = 0; i < ends.length; i += 2) {
      const [ax, ay] = at(ends[i]), [bx, by] = at(ends[i + 1]), line = [ax, ay, bx, by, 0];
      p.chords.push(line); trace(g, line);
    }
    g.stroke();
  }
}
function drawNodes(g, p, at, r) {
  const nodesIn = new Set(p.witness.nodes), order = [...p.names.keys()];
  // accelerators lie over the switches of their place
  for (const v of [...order.filter((v) => p.kinds[v] !== "accelerator"), ...order.filter((v) => p.kinds[v] === "accelerator")]) {
    const [x, y] = at(v), kind = p.kinds[v];
    if (x !== x) continue;
    g.globalAlpha = state.witness && !nodesIn.has(v) ? .3 : 1;
    g.fillStyle = kind === "switch" ? colours.soft : kind === "router" ? colours.warm : colours.accent;
    g.strokeStyle = colours.card; g.lineWidth = r > 3 ? 1.5 : .6; g.beginPath();
    if (kind === "switch") g.rect(x - r, y - r, 2 * r, 2 * r);
    else if (kind === "router") { g.moveTo(x, y - r * 1.3); g.lineTo(x + r * 1.3, y); g.lineTo(x, y + r * 1.3); g.lineTo(x - r * 1.3, y); g.closePath(); }
    else g.arc(x, y, r, 0, 2 * Math.PI);
    g.fill(); g.stroke();
    if (p.sums[v]) { g.strokeStyle = colours.card; g.beginPath(); g.moveTo(x - r * .6, y); g.lineTo(x + r * .6, y); g.moveTo(x, y - r * .6); g.lineTo(x, y + r * .6); g.stroke(); }
  }
  g.globalAlpha = 1;
}
function drawScene(g, p, at) {
  if (p.land) {
    g.save(); g.translate(at.left, at.top); g.scale(at.k / 1000, at.k / 1000); g.fillStyle = colours.line; g.globalAlpha = .45;
    g.fillPath(p.land); g.restore();
  }
  if (!at.scene) return;
  g.lineWidth = 1; g.strokeStyle = colours.line;
  for (const [x0, y0, x1, y1, dashed] of at.scene.frames) {
    g.setLineDash(dashed ? [4, 4] : []); g.fillStyle = colours.bg; g.beginPath();
    g.rect(at.left + x0 * at.k, at.top + y0 * at.ky, (x1 - x0) * at.k, (y1 - y0) * at.ky); g.fill(); g.stroke();
  }
  g.setLineDash([3, 4]); g.beginPath();
  for (const [ax, ay, bx, by] of at.scene.dashed) { g.moveTo(at.left + ax * at.k, at.top + ay * at.ky); g.lineTo(at.left + bx * at.k, at.top + by * at.ky); }
  g.stroke(); g.setLineDash([]);
}
function drawMap(g, w, h, p) {
  const at = mapPoints(p, w, h), many = p.names.length > 150;
  const r = at.scene ? clamp(6 * at.k, 1.6, 9) : Math.min(9, (many ? 2.4 : 5.5) * Math.sqrt(at.enlarged));
  p.chords = []; drawScene(g, p, at); drawLinks(g, p, at); if (p.planes.length) drawCircuits(g, p, at); drawNodes(g, p, at, r); drawLabels(g, p, at, w, h, r);
  p.at = at;
}

function linkAt(p, x, y) {
  let best = 6, link = -1;
  const near = (ax, ay, bx, by) => { const dx = bx - ax, dy = by - ay, f = clamp(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1), 0, 1); return Math.hypot(ax + f * dx - x, ay + f * dy - y); };
  for (let i = 0; i < p.links.row.length; i++) {
    const s = p.segments[i];
    if (!s) continue;
    let d = Infinity;
    if (!s[4]) d = near(s[0], s[1], s[2], s[3]);
    else for (let k = 0, px = s[0], py = s[1]; k < 8; k++) {
      const f = (k + 1) / 8, e = 1 - f, qx = e * e * s[0] + e * f * (s[0] + s[2]) + f * f * s[2], qy = e * e * s[1] + 2 * e * f * s[4] + f * f * s[3];
      d = Math.min(d, near(px, py, qx, qy)); px = qx; py = qy;
    }
    if (d < best) { best = d; link = i; }
  }
  return link;
}
function nodeAt(p, x, y) { for (let v = 0; v < p.names.length; v++) { const [a, b] = p.at(v); if (Math.hypot(a - x, b - y) < 8) return v; } return -1; }
function hoverMap(event, p, canvas) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, v = nodeAt(p, x, y);
  if (v >= 0) return tip(event, `${p.names[v]}\n${p.kinds[v]}${p.sites[v] ? `, ${p.sites[v]}` : ""}\nclick: filter by this node`);
  const link = linkAt(p, x, y);
  if (link < 0) return tip(null);
  const l = p.links, row = l.row[link];
  tip(event, `${linkName(p, link)}${row === link ? "" : `, as ${linkName(p, row)}`}\n${size(l.bandwidth[row])}/s, ${time(l.latency[row])}` + (l.message[row] ? `, ${time(l.message[row])} a message\n` : "\n") +
    (state.whole ? `used ${percent(l.use[row])}, carried ${size(l.bytes[row])}` : `used ${percent(useNow(p, row))} at ${time(state.t * horizon())}`));
}
