// What of a plan is shown: filters leave rows and transfers out, following dims all but what is followed.

// links that a text names: one link, or those of nodes or a site; by its letters where nothing has that name
function linksNamed(p, text) {
  const l = p.links, all = Array.from({ length: l.count }, (_, i) => i), said = text.trim().replace(/\s*(->|→)\s*/, "→");
  const exact = all.filter((i) => linkName(p, i) === said);
  if (exact.length) return exact;
  const ends = (test) => all.filter((i) => test(l.src[i]) || test(l.dst[i]));
  if (p.names.includes(said)) return ends((v) => p.names[v] === said);
  if (p.sites.includes(said)) return ends((v) => p.sites[v] === said);
  const low = said.toLowerCase();
  return all.filter((i) => linkName(p, i).toLowerCase().includes(low) || p.sites[l.src[i]].toLowerCase().includes(low) || p.sites[l.dst[i]].toLowerCase().includes(low));
}
// the numbers that a text such as "3, 8-11" names; null where it names none
function numbers(text) {
  const found = new Set();
  for (const part of text.split(",")) {
    const m = part.trim().match(/^(\d+)(?:\s*-\s*(\d+))?$/);
    if (m) for (let n = +m[1]; n <= Math.min(+(m[2] ?? m[1]), +m[1] + 1e5); n++) found.add(n);
  }
  return found.size ? found : null;
}
// links and transfers that the filters let through; kept until a filter changes
function filtered(p) {
  // two plans of one network have the same rows in the same order, by what the first one does
  const twins = panes().length > 1 && panes().every((q) => q.topology === p.topology && q.links.count === p.links.count) ? panes() : [p], lead = twins[0];
  const key = [state.plan, twins.length > 1 ? state.beside : -1, !!lead.h, state.where, state.chunk, state.phase, state.collective, state.sort, state.follow, !!p.h].join("|");
  if (p.filterKey === key) return p.filter;
  p.filterKey = key;
  const l = p.links, h = p.h, links = new Uint8Array(l.count), chunks = numbers(state.chunk);
  if (state.where.trim()) for (const i of linksNamed(p, state.where)) links[i] = 1; else links.fill(1);
  let pass = null;
  if (h && (chunks || state.phase || (state.collective && h.collective))) {
    pass = new Uint8Array(h.transfers);
    const sums = state.phase === "sums" ? 1 : 0, of = Number(state.collective);
    for (let t = 0; t < h.transfers; t++) pass[t] = (!chunks || chunks.has(h.chunk[t])) && (!state.phase || h.op[t] === sums) &&
      (!state.collective || !h.collective || h.collective[h.chunk[t]] === of) ? 1 : 0;
    for (let i = 0; i < l.count; i++) if (links[i]) {
      links[i] = 0;
      for (let j = h.at[i]; j < h.at[i + 1]; j++) if (pass[h.transfer[j]]) { links[i] = 1; break; }
    }
  }
  const rows = Array.from({ length: l.count }, (_, i) => i).filter((i) => links[i] && twins.some((q) => q.links.bytes[i] > 0));
  // rows that carry what is followed stand first
  const carrying = twins.map(followedLinks).filter((carried) => carried), other = (i) => carrying.some((carried) => carried[i] >= 0) ? 0 : 1, sorted = order(lead);
  rows.sort((a, b) => other(a) - other(b) || sorted(a, b) || a - b);
  p.filter = { links, pass, rows, narrow: rows.length < l.count && (pass !== null || state.where.trim() !== "") };
  return p.filter;
}
function order(p) {
  const l = p.links, h = p.h, used = (i) => h && h.at[i] < h.at[i + 1];
  const first = (i) => used(i) ? h.begin[h.at[i]] : Infinity, last = (i) => used(i) ? h.until[h.at[i + 1] - 1] : 0;
  return { use: (a, b) => l.use[b] - l.use[a], bytes: (a, b) => l.bytes[b] - l.bytes[a], first: (a, b) => first(a) < first(b) ? -1 : first(a) > first(b) ? 1 : 0, last: (a, b) => last(b) - last(a),
    from: (a, b) => l.src[a] - l.src[b], to: (a, b) => l.dst[a] - l.dst[b], bandwidth: (a, b) => l.bandwidth[b] - l.bandwidth[a] }[state.sort] || (() => 0);
}

// transfers that are followed: "chunk:7", "tree:7:sums", "chain:1234" (what a transfer waits for and what waits for it)
function followed(p) {
  const h = p.h;
  if (!h || !state.follow) { p.lit = null; p.litKey = ""; return null; }
  if (p.litKey === state.follow) return p.lit;
  p.litKey = state.follow;
  const [kind, number, phase] = state.follow.split(":"), n = Number(number), lit = new Uint8Array(h.transfers);
  if (kind === "chain") {
    if (!(n < h.transfers)) return p.lit = null;
    const waiting = [n]; lit[n] = 1;
    while (waiting.length) for (const d of waitsFor(h, waiting.pop())) if (!lit[d]) { lit[d] = 1; waiting.push(d); }
    const after = new Uint8Array(h.transfers); after[n] = 1;
    for (let t = n + 1; t < h.transfers; t++) for (let i = h.afterAt[t]; i < h.afterAt[t + 1]; i++) if (after[t - h.before[i]]) { after[t] = lit[t] = 1; break; }
  } else for (let t = 0; t < h.transfers; t++) lit[t] = h.chunk[t] === n && (kind !== "tree" || h.op[t] === (phase === "sums" ? 1 : 0)) ? 1 : 0;
  return p.lit = lit;
}
function followWords() {
  const [kind, n, phase] = state.follow.split(":");
  return kind === "chain" ? `transfer ${n}, what it waits for and what waits for it` : kind === "tree" ? `the ${phase} of chunk ${n}` : `chunk ${n}`;
}
// links that carry what is followed, with the class of the first such transfer; null where nothing is followed
function followedLinks(p) {
  const lit = followed(p), h = p.h;
  if (!lit) return null;
  if (p.litLinksKey !== state.follow) {
    p.litLinksKey = state.follow; p.litLinks = new Int32Array(p.links.count).fill(-1);
    for (let i = 0; i < p.links.count; i++) for (let j = h.at[i]; j < h.at[i + 1]; j++) if (lit[h.transfer[j]]) { p.litLinks[i] = j; break; }
  }
  return p.litLinks;
}
