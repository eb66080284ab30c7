// Reading the data of a plan: base64 arrays at once, the compressed columns of its hops when they are first shown.
const TYPES = { f: Float32Array, d: Float64Array, i: Int32Array, b: Uint8Array };
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
const unpack = (text, type) => new TYPES[type](bytesOf(text).buffer);

function open(p) {
  if (p.ready) return p;
  p.ready = true;
  p.x = unpack(p.x, "f"); p.y = unpack(p.y, "f");
  const l = p.links;
  for (const [key, type] of Object.entries({ src: "i", dst: "i", bandwidth: "d", latency: "d", message: "d", bytes: "d", use: "f", bins: "b" }))
    l[key] = unpack(l[key], type);
  l.count = l.src.length; l.row = Int32Array.from(l.src, (_, i) => i);
  if (p.alike) {  // links that a row stands for come after the rows
    const both = (a, b) => { const all = new Int32Array(a.length + b.length); all.set(a); all.set(b, a.length); return all; };
    l.src = both(l.src, unpack(p.alike.src, "i")); l.dst = both(l.dst, unpack(p.alike.dst, "i")); l.row = both(l.row, unpack(p.alike.row, "i"));
  }
  p.delivered.t = unpack(p.delivered.t, "d"); p.delivered.bytes = unpack(p.delivered.bytes, "d");
  p.steps = Array.from({ length: l.count }, () => []);
  if (p.changes) {
    const at = unpack(p.changes.at, "d"), to = unpack(p.changes.bandwidth, "d");
    unpack(p.changes.link, "i").forEach((link, i) => p.steps[link].push([at[i], to[i]]));
  }
  return p;
}

// the numbers of columns.py: planes of bytes, zigzag, differences
async function inflate(packed) {
  const stream = new Blob([bytesOf(packed.data)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer()), found = {};
  let at = 0;
  for (const [name, n, planes, byChange] of packed.columns) {
    const column = new Int32Array(n);
    for (let k = 0; k < planes; k++, at += n) for (let i = 0; i < n; i++) column[i] |= raw[at + i] << (8 * k);
    for (let i = 0, sum = 0; i < n; i++) { const u = column[i], v = (u >>> 1) ^ -(u & 1); sum = byChange ? sum + v : v; column[i] = sum; }
    found[name] = column;
  }
  return found;
}
// where the list of each row begins, from the lengths of lists
function offsets(lengths) {
  const at = new Int32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) at[i + 1] = at[i] + lengths[i];
  return at;
}

// The hops of a plan, those of a link side by side in the order in which they begin: `begin`, `end` in ticks, `until`
// the latest end on this link so far, by which a binary search finds the first hop of a window.
async function readHops(p) {
  const c = await inflate(p.hops), transfers = c.chunk.length, n = c.link.length, links = p.links.count;
  const h = { tick: p.hops.tick, sizes: p.hops.sizes, chunk: c.chunk, op: c.op, size: c.size, start: c.start, home: c.home, step: c.step,
    collective: c.collective, lasts: c.lasts, hopsAt: offsets(c.hops), link: c.link, offset: c.offset, sourceAt: offsets(c.sources), source: c.source,
    receiverAt: offsets(c.receivers), receiver: c.receiver, late: c.late, afterAt: offsets(c.after), before: c.before, transfers, count: n };
  const own = new Int32Array(n), perLink = new Int32Array(links);
  for (let t = 0; t < transfers; t++) for (let i = h.hopsAt[t]; i < h.hopsAt[t + 1]; i++) own[i] = t;
  for (let i = 0; i < n; i++) perLink[c.link[i]]++;
  h.at = offsets(perLink);
  const next = h.at.slice(), order = new Int32Array(n), begins = (i) => c.start[own[i]] + c.offset[i];
  for (let i = 0; i < n; i++) order[next[c.link[i]]++] = i;
  for (let l = 0; l < links; l++) {
    const a = h.at[l], z = h.at[l + 1]; let sorted = true;
    for (let j = a + 1; j < z && sorted; j++) sorted = begins(order[j - 1]) <= begins(order[j]);
    if (sorted) continue;
    const keys = Float64Array.from(order.subarray(a, z), (i, k) => begins(i) * (z - a) + k).sort(), old = order.slice(a, z);
    keys.forEach((key, k) => { order[a + k] = old[key % (z - a)]; });
  }
  h.transfer = new Int32Array(n); h.begin = new Int32Array(n); h.end = new Int32Array(n); h.until = new Int32Array(n);
  h.shortest = Infinity;
  for (let l = 0; l < links; l++) for (let j = h.at[l], until = 0; j < h.at[l + 1]; j++) {
    const i = order[j], t = own[i]; h.transfer[j] = t; h.begin[j] = begins(i); h.end[j] = h.begin[j] + c.lasts[t];
    h.until[j] = until = Math.max(until, h.end[j]);
    if (c.lasts[t] > 0) h.shortest = Math.min(h.shortest, c.lasts[t]);
  }
  h.order = order; h.bothPhases = c.op.includes(0) && c.op.includes(1);
  if (!isFinite(h.shortest)) h.shortest = 1;
  p.hops = null;  // the text is needed no more
  return h;
}
function openHops(p) {
  if (p.opened === undefined) { p.opened = p.hops ? readHops(p) : Promise.resolve(null); p.opened.then((h) => { p.h = h; }); }
  return p.opened;
}
// the first of a link's hops that may be seen from a moment on
function firstHop(h, link, from) {
  let low = h.at[link], high = h.at[link + 1];
  while (low < high) { const mid = (low + high) >> 1; if (h.until[mid] > from) high = mid; else low = mid + 1; }
  return low;
}
// transfers on which one waits
const waitsFor = (h, t) => Array.from(h.before.subarray(h.afterAt[t], h.afterAt[t + 1]), (back) => t - back);
