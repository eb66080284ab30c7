// Labels of the network: where they stand, and the lines that lead to those that stand apart.

// Where lines are, in cells of 4 pixels: how many cells of a box they cross, and of a way; a line can be added.
const CELL = 4;
function linesOn(p, w, h) {
  const across = Math.ceil(w / CELL), down = Math.ceil(h / CELL), cells = new Uint8Array(across * down);
  const mark = (x, y) => { if (x >= 0 && x < w && y >= 0 && y < h) cells[Math.floor(y / CELL) * across + Math.floor(x / CELL)] = 1; };
  const add = ([ax, ay, bx, by, low]) => {
    const steps = Math.min(2000, Math.ceil(Math.hypot(bx - ax, by - ay) / 3) + (low ? 40 : 1));
    for (let i = 0; i <= steps; i++) {
      const f = i / steps, e = 1 - f, y = low ? e * e * ay + 2 * e * f * low + f * f * by : e * ay + f * by;
      mark(e * ax + f * bx, y);
    }
  };
  for (const line of [...p.segments, ...p.chords]) if (line) add(line);
  const along = ([ax, ay, bx, by]) => {
    let sum = 0;
    for (let i = 0, steps = Math.ceil(Math.hypot(bx - ax, by - ay) / CELL); i <= steps; i++) sum += cells[Math.floor((ay + (by - ay) * i / steps) / CELL) * across + Math.floor((ax + (bx - ax) * i / steps) / CELL)] || 0;
    return sum;
  };
  const inside = (left, top, right, bottom) => {
    let sum = 0;
    for (let y = Math.floor(top / CELL); y <= bottom / CELL && y < down; y++) for (let x = Math.floor(left / CELL); x <= right / CELL && x < across; x++) sum += cells[y * across + x];
    return sum;
  };
  return { add, along, inside };
}
// Places around a mark: beside it, above and below, then at all angles, near and farther away.
function around(x, y, d) {
  const places = [[x + d, y, "start"], [x - d, y, "end"], [x, y - d - 5, "middle"], [x, y + d + 5, "middle"]];
  for (const far of [d, d + 7, d + 14]) for (let k = 1; k < 24; k++) {
    const turn = Math.PI * (k % 2 ? k + 1 : -k) / 24, across = Math.cos(turn), down = Math.sin(turn);
    places.push([x + far * across, y + (far + 6) * down, "start"], [x - far * across, y + (far + 6) * down, "end"]);
  }
  return places;
}
// places farther away, for labels with a line that leads to them
const FAR = [26, 38, 52, 70, 92].flatMap((far) => Array.from({ length: 16 }, (_, k) => {
  const across = Math.cos(Math.PI * k / 8), down = Math.sin(Math.PI * k / 8);
  return [far * across, far * down, across > .3 ? "start" : across < -.3 ? "end" : "middle"];
}));
// the line from a mark of radius r to a box; null where they are beside each other
function leaderTo(x, y, r, [left, top, right, bottom]) {
  const tx = clamp(x, left, right), ty = clamp(y, top, bottom), length = Math.hypot(tx - x, ty - y), start = 1.5 * r + 1;
  const at = (far) => [x + (tx - x) * far / length, y + (ty - y) * far / length];
  return length > start + 5 ? [...at(start), ...at(length - 1.5)] : null;
}
function meets([ax, ay, bx, by], [left, top, right, bottom]) {
  for (let i = 0, steps = Math.ceil(Math.hypot(bx - ax, by - ay) / 2); i < steps; i++) {
    const x = ax + (bx - ax) * i / steps, y = ay + (by - ay) * i / steps;
    if (x > left && x < right && y > top && y < bottom) return true;
  }
  return false;
}
// Labels take room in turn: captions of servers and layers, sites, nodes. Of the places where one has room it takes the
// one that the fewest lines cross, and is nearest to its own mark. Where none beside the mark is free, a node's label stands
// farther away, with a line that leads to it. What has no room is left out, and so is a server's node where lines cross all places.
function drawLabels(g, p, at, w, h, r) {
  // labels stay where they are until the drawing moves
  const key = [w, h, at.left, at.top, at.k, at.ky, !!at.scene, p.chords.length && (state.whole || state.t)].join("|");
  if (p.labelsKey !== key) { p.labelsKey = key; p.labels = placeLabels(g, p, at, w, h, r); }
  const aside = $(`${g.canvas?.id}-unnamed`), said = p.labels.unnamed.length ? `Not named in the drawing: ${[...new Set(p.labels.unnamed)].join("; ")}.` : "";
  if (aside && aside.textContent !== said) aside.textContent = said;
  g.textBaseline = "middle"; g.textAlign = "left"; g.strokeStyle = colours.soft; g.lineWidth = 1; g.beginPath();
  for (const { leader } of p.labels) if (leader) { g.moveTo(leader[0], leader[1]); g.lineTo(leader[2], leader[3]); }
  g.stroke(); g.strokeStyle = colours.card; g.lineWidth = 3;
  for (const { text, font, fill, left, y } of p.labels) { g.font = font; g.fillStyle = colours[fill]; g.strokeText(text, left, y); g.fillText(text, left, y); }
}
function placeLabels(g, p, at, w, h, r) {
  const placed = [], taken = [], nodes = [], lines = linesOn(p, w, h), hit = (box) => taken.some((b) => b[0] < box[2] && box[0] < b[2] && b[1] < box[3] && box[1] < b[3]);
  let fill = "soft";
  for (let v = 0; v < p.names.length; v++) { const [x, y] = at(v); if (x > -20 && x < w + 20 && y > -20 && y < h + 20) { nodes.push([v, x, y]); taken.push([x - r, y - r, x + r, y + r]); } }
  const boxOf = ([x, y, anchor], wide) => { const left = anchor === "start" ? x : anchor === "end" ? x - wide : x - wide / 2; return [left - 2, y - 7, left + wide + 2, y + 7]; };
  const free = (box) => box[0] >= 0 && box[2] <= w && box[1] >= 0 && box[3] <= h && !hit(box);
  const gap = (x, y, box) => Math.hypot(clamp(x, box[0], box[2]) - x, clamp(y, box[1], box[3]) - y);
  // whether a reader would take a label for that of another mark
  const strange = (box, [x, y]) => { const own = gap(x, y, box); return nodes.some(([, a, b]) => Math.hypot(a - x, b - y) > 8 && gap(a, b, box) < 1.5 * own + 2); };
  const clear = (leader) => !taken.some((box) => meets(leader, box));
  const put = (text, places, even = true, mark = null) => {
    const wide = g.measureText(text).width; let best = null, leader = null, least = even ? Infinity : 9;
    for (const place of places) {
      const box = boxOf(place, wide);
      if (!free(box)) continue;
      const cost = 9 * lines.inside(...box) + (mark && strange(box, mark) ? 4 : 0);
      if (cost < least) { best = box; least = cost; }
      if (!cost) break;
    }
    if (mark && best && !least) { leader = leaderTo(...mark, r, best); if (leader && !clear(leader)) leader = null; }
    if (mark && least && nodes.length <= 150) {
      let shortest = Infinity;
      for (const [dx, dy, anchor] of FAR) {
        const box = boxOf([mark[0] + dx, mark[1] + dy, anchor], wide), line = free(box) && !lines.inside(...box) ? leaderTo(...mark, r, box) : null;
        if (!line) continue;
        const cost = Math.hypot(line[2] - line[0], line[3] - line[1]) + 12 * lines.along(line);
        if (cost < shortest && clear(line)) { shortest = cost; best = box; leader = line; }
      }
    }
    if (!best) return false;
    taken.push(best); placed.push({ text, font: g.font, fill, left: best[0] + 2, y: best[1] + 7, leader });
    if (leader) lines.add(leader);
    return true;
  };
  placed.unnamed = [];
  if (at.scene) {
    for (const [x, y, anchor, text, bold] of [...at.scene.labels].sort((a, b) => b[4] - a[4])) {
      const X = at.left + x * at.k, Y = at.top + y * at.ky - 4, box = at.scene.frames.find(([x0, y0, x1, y1]) => x >= x0 && x <= x1 && y >= y0 && y <= y1); g.font = `${bold ? "600 " : ""}11.5px system-ui,sans-serif`;
      const below = box ? [9, 23, ...(box[4] ? [37] : [])].map((d) => [X, at.top + box[3] * at.ky + d, anchor]) : [];
      // what stands for servers that are not drawn, and what a row of switches is, is said below the drawing otherwise
      if (!put(text, [[X, Y, anchor], [X, Y - 6, anchor], [X, Y + 6, anchor], ...below], bold) && (!box || box[4])) placed.unnamed.push(text);
    }
  } else if (!p.geographic) {
    const sites = sitesOf(p); g.font = "600 11.5px system-ui,sans-serif";
    if (sites.length > 1 && sites.length <= 64) for (const site of sites) {
      const own = p.sites.flatMap((s, v) => s === site ? [at(v)] : []), x = own.reduce((sum, q) => sum + q[0], 0) / own.length, half = g.measureText(site).width / 2 + 3;
      const middle = clamp(x, half, w - half);
      put(site, [[middle, Math.min(...own.map((q) => q[1])) - 15, "middle"], [middle, Math.max(...own.map((q) => q[1])) + 15, "middle"]]);
    }
  }
  g.font = "11.5px system-ui,sans-serif"; fill = "ink";
  if (nodes.length > 400 || (at.scene && at.k < .5)) return placed;
  const named = new Map();  // of each text where its label is: nodes of one place have one label
  const short = (v) => at.scene && p.sites[v] && p.names[v].startsWith(`${p.sites[v]}.`) ? p.names[v].slice(p.sites[v].length + 1) : p.names[v];
  const serverOf = (x, y) => at.scene ? at.scene.frames.findIndex(([x0, y0, x1, y1]) => x >= at.left + x0 * at.k && x <= at.left + x1 * at.k && y >= at.top + y0 * at.ky && y <= at.top + y1 * at.ky) : -1;
  const servers = new Map();  // the accelerators of a server have names all or none
  for (const [v, x, y] of nodes) {
    const text = p.geographic && p.sites[v] ? p.sites[v] : short(v), d = r + 4, other = named.get(text);
    if (!at.scene && other && Math.hypot(other[0] - x, other[1] - y) < 40) continue;
    const server = p.kinds[v] === "accelerator" ? serverOf(x, y) : -1;
    if (server >= 0) { (servers.get(server) || servers.set(server, []).get(server)).push([text, x, y, d]); continue; }
    named.set(text, [x, y]);
    put(text, around(x, y, d), !at.scene, at.scene ? null : [x, y]);
  }
  for (const own of servers.values()) {
    const before = placed.length, room = taken.length;
    if (!own.every(([text, x, y, d]) => put(text, around(x, y, d), false))) { placed.length = before; taken.length = room; }
  }
  return placed;
}
