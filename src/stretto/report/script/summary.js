// What the page says in words and tables: tiles, where the time went, plans compared, where one of two gains.
const overBound = (p) => p.bound ? (p.completion / p.bound).toFixed(3) : "–";
// what tells a plan from the others: its planner, and of the rest what not all plans have alike
const planName = (p) => [p.planner, ...[["topology"], ["collective"], ["size", size], ["chunks", (n) => `${n} chunk${n > 1 ? "s" : ""}`]]
  .filter(([key]) => page.plans.length < 2 || page.plans.some((q) => q[key] !== page.plans[0][key])).map(([key, words]) => words ? words(p[key]) : p[key])].join(" · ");
const linkCell = (name) => parted(element("td"), name, /(?<=[→:])/);
const row = (cells, attributes, tag = "td") => { const tr = element("tr", undefined, attributes); tr.append(...cells.map((c) => c instanceof Node ? c : element(tag, c))); return tr; };

function showTiles(p) {
  const tiles = $("tiles"); tiles.replaceChildren();
  for (const [value, label, more] of [
    [time(p.completion), "completion", `${p.planner}, ${p.collective}`],
    [time(p.bound), "no plan can beat", `${p.bounds[0].kind}: ${p.bounds[0].witness}${p.turnsCounted ? "" : "; turns not counted"}`],
    [overBound(p), "completion / bound", ""],
    ...(p.mean == null ? [] : [[time(p.mean), "mean completion", p.meanBound ? `${(p.mean / p.meanBound).toFixed(3)} times its bound: ${p.meanWitness}` : ""]]),
    [size(p.size / p.completion) + "/s", "algorithm bandwidth", `${size(p.size)} among ${p.ranks} ranks`],
    [count(p.transfers), "transfers", (p.messages < p.transfers ? `in ${count(p.messages)} messages; ` : "") + `${p.chunks} chunk${p.chunks > 1 ? "s" : ""} a piece` + (p.message ? `; a message costs ${p.message}` : "")],
    ...(p.cost == null ? [] : [[`${+p.cost.toPrecision(4)} USD`, "cost", "bytes over each link times its price"]]),
    ...(p.planning == null ? [] : [[time(p.planning), "planning", ""]])]) {
    const tile = element("div", undefined, { class: "tile" });
    tile.append(element("span", label), element("b", value), whole(element("small"), more || "")); tiles.append(tile);
  }
}
function showWhy(p) {
  const w = p.path, whole = w.latency + w.busy + w.message + w.idle || 1, top = w.links[0], used = [...p.links.use.keys()].filter((i) => p.links.bytes[i] > 0);
  const busiest = used.reduce((a, b) => a < 0 || p.links.use[b] > p.links.use[a] ? b : a, -1);
  $("why").textContent = (beside() ? `${planName(p)}. ` : "") + (busiest < 0 ? "" : `Busiest link: ${linkName(p, busiest)}, used ${percent(p.links.use[busiest])} of the time. `) +
    `Along the chain that ends last: ${percent(w.busy / whole)} sending, ` + (w.message ? `${percent(w.message / whole)} costs of messages, ` : "") + `${percent(w.latency / whole)} latency, ${percent(w.idle / whole)} ${p.planes.length ? "turning or waiting" : "idle"}` + (top ? `; most of it on ${top.link}.` : ".");
  $("spent").replaceChildren(...SPENT.map(([key, name, colour]) => element("div", undefined, { style: `flex:${w[key] / whole};background:var(${colour})`, title: `${name}: ${time(w[key])}` })));
  $("spent-key").replaceChildren(...SPENT.filter(([key]) => w[key] > 1e-4 * whole).map(([, name, colour]) => keyOf(name, colour)));
  $("busiest").replaceChildren(row(["on the chain", "sending", "latency", "share"], {}, "th"),
    ...w.links.slice(0, 6).map((r) => row([linkCell(r.link), time(r.seconds), time(r.latency), percent((r.seconds + r.latency) / whole)])));
}
function keyOf(name, colour) { const e = element("span", undefined, { class: "key" }); e.append(element("i", undefined, { style: `background:var(${colour})` }), name); return e; }
const SPENT = [["busy", "sending", "--accent"], ["message", "costs of messages", "--toll"], ["latency", "latency", "--warm"], ["idle", "idle", "--idle"]];

function showWords(p) {
  whole($("map-sub"), `${count(p.names.length)} nodes` + (p.links.all || !p.planes.length ? `, ${count(p.links.all)} directed links` : "") + (p.planes.length ? `, ${p.planes.length} optical plane${p.planes.length > 1 ? "s" : ""}` : "") + (p.alike ? `; ${count(p.links.count)} rows stand for links that are alike` : p.links.count < p.links.all ? `; the busiest ${count(p.links.count)} are drawn` : "") + (p.changes ? `; bandwidths change ${count(p.steps.reduce((n, s) => n + s.length, 0))} times` : "") + (p.message ? `; a message costs ${p.message}` : "") + `. Circles are accelerators, diamonds routers, squares switches${p.sums.length ? ", with a plus where they sum" : ""}.${p.planes.length ? " Lines between nodes are circuits, coloured by matching as under Planes." : ""}`);
  $("curve-sub").textContent = beside() ? "Bytes that ranks have received, of all; the area between the curves has the colour of the plan that is ahead."
    : `Bytes that ranks have received, of ${size(p.delivered.total)}; dashed: an even delivery that ends at the bound.`;
  $("curve-key").replaceChildren(...(beside() ? [keyOf(planName(p), "--accent"), keyOf(planName(beside()), "--warm")] : []));
  const many = p.h && p.h.count > 20000;
  $("rows-sub").textContent = (p.h ? "One row for each link, one bar for each transfer. Hover over a bar to see what it waits for (green) and what waits for it (red)." +
    (p.messages < p.transfers ? " The chunks of a message stand side by side; all of them arrive at its end." : "") +
    (many ? ` Aggregated where several of the ${count(p.h.count)} hops fall on one pixel: the fuller its colour, the busier the link. Zoom in to see each transfer.` : "")
    : p.hops ? "Reading the transfers …" : `Aggregated: ${count(p.transfers)} transfers are too many for bars, so each row shows how busy its link is in ${p.binCount} slices of time.`) +
    (p.changes ? " A strip below a row: the link's bandwidth is lower than at first (red, the stronger the less is left) or higher (green)." : "");
}

// --- plans compared -------------------------------------------------------------------------------
const COLUMNS = [["planner", (p) => p.planner], ["topology", (p) => p.topology], ["collective", (p) => p.collective], ["size", (p) => p.size, size], ["chunks", (p) => p.chunks],
  ["transfers", (p) => p.transfers, count], ["completion", (p) => p.completion, time], ["bound", (p) => p.bound, time], ["ratio", (p) => p.completion / p.bound, (v) => v.toFixed(3)],
  ["algorithm bandwidth", (p) => p.size / p.completion, (v) => size(v) + "/s"], ["planning", (p) => p.planning ?? 0, time]];
const DETAILS = ["chunks", "transfers", "bound", "algorithm bandwidth", "planning"];
const asked = (p) => [p.topology, p.collective, p.size].join("|");
// the plan that is opened: where all answer requests for one topology and collective, the best one of the largest size
function best() {
  const same = new Set(page.plans.map((p) => `${p.topology}|${p.collective}`)).size === 1, most = Math.max(...page.plans.map((p) => p.size));
  return same ? page.plans.reduce((a, p, i) => p.size === most && (a < 0 || p.completion < page.plans[a].completion) ? i : a, -1) : 0;
}
function compareTable() {
  $("compare-card").hidden = page.plans.length < 2;
  const table = $("compare"), head = element("tr"), order = page.plans.map((_, i) => i), longest = {}, least = {};
  for (const p of page.plans) { longest[asked(p)] = Math.max(p.completion, longest[asked(p)] || 0); least[asked(p)] = Math.min(p.completion, least[asked(p)] ?? Infinity); }
  // where the screen is narrow, what all plans have alike is left out, and so is what the tiles say of the open plan
  const alike = (c) => c > 0 && page.plans.every((p) => COLUMNS[c][1](p) === COLUMNS[c][1](page.plans[0]));
  // the network and the collective of all plans are said once
  const once = [1, 2].filter(alike);
  $("alike").textContent = once.length ? ` All plans: ${once.map((c) => COLUMNS[c][1](page.plans[0])).reverse().join(" on ")}.` : "";
  const kind = (c) => once.includes(c) ? { class: "once" } : DETAILS.includes(COLUMNS[c][0]) ? { class: "detail" } : alike(c) ? { class: "same" } : {};
  const by = COLUMNS.find(([name]) => name === state.order.replace(/^-/, "")), falling = state.order.startsWith("-");
  COLUMNS.forEach(([name], c) => { const th = element("th", name + (by && by[0] === name ? (falling ? " ▼" : " ▲") : ""), { tabindex: 0, ...kind(c) });
    th.onclick = () => { state.order = by && by[0] === name && !falling ? `-${name}` : name; compareTable(); keepAddress(); };
    th.onkeydown = (e) => { if (e.key === "Enter") th.onclick(); }; head.append(th); });
  head.append(element("th", "")); const thead = element("thead"); thead.append(head);
  if (by) order.sort((a, b) => { const x = by[1](page.plans[a]), y = by[1](page.plans[b]); return (falling ? -1 : 1) * (x < y ? -1 : x > y ? 1 : 0); });
  const body = element("tbody");
  for (const i of order) {
    const p = page.plans[i], tr = element("tr", undefined, { tabindex: 0, class: (i === state.plan ? "on" : i === state.beside ? "with" : "") + (p.completion === least[asked(p)] ? " best" : "") });
    COLUMNS.forEach(([, value, words], c) => tr.append(parted(element("td", undefined, kind(c)), words ? words(value(p)) : String(value(p)))));
    const cell = element("td"), b = element("div", undefined, { class: "bar", style: `width:${Math.max(1, 130 * p.completion / longest[asked(p)])}px;min-width:0` });
    b.append(element("i", undefined, { style: `left:${Math.min(100, 100 * p.bound / p.completion)}%` })); cell.append(b); tr.append(cell);
    tr.onclick = () => choose(i); tr.onkeydown = (e) => { if (e.key === "Enter") choose(i); }; body.append(tr);
  }
  table.replaceChildren(thead, body);
}

// --- two plans ------------------------------------------------------------------------------------
function showGains() {
  const q = beside(), p = plan();
  $("gains-card").hidden = !q; document.body.classList.toggle("two", !!q);
  for (const e of document.querySelectorAll(".name-a,.name-b")) e.textContent = e.classList.contains("name-a") ? planName(p) : q ? planName(q) : "";
  if (!q) return;
  // two plans of one planner differ in something else, which their names say
  const [a, b] = p.planner === q.planner ? [planName(p), planName(q)] : [p.planner, q.planner], called = (r) => r === p ? a : b;
  const heads = (title) => row([title, a, b, "difference"].map((name) => parted(element("th"), name)), {}, "th");
  const less = (a, b, words) => {
    const td = element("td", undefined, { class: "difference" });
    td.append(...(Math.abs(a - b) <= 1e-9 * Math.max(a, b) ? ["equal"] : [element("span", words(Math.abs(a - b)), { class: "whole" }), a < b ? " less" : " more"]));
    return td;
  }, sum = (r) => r.links.bytes.reduce((x, y) => x + y, 0);
  const [short, long] = p.completion <= q.completion ? [p, q] : [q, p], gain = 1 - short.completion / long.completion;
  let ahead = 0, when = 0;
  for (let i = 1; i < 400; i++) { const t = i / 400 * long.completion, d = deliveredBy(short, t) - deliveredBy(long, t); if (Math.abs(d) > Math.abs(ahead)) [ahead, when] = [d, t]; }
  $("gains-sub").textContent = gain < 1e-9 ? "Both plans end at the same time." : `${called(short)} ends ${percent(gain)} sooner than ${called(long)}. ` +
    (Math.abs(ahead) < 1e-6 ? "" : `The difference in what has been delivered is largest at ${time(when)}: ${called(ahead > 0 ? short : long)} is ${percent(Math.abs(ahead))} of all bytes ahead.`);
  const facts = [["completion", p.completion, q.completion, time], ["transfers", p.transfers, q.transfers, count], ...(sum(p) + sum(q) ? [["bytes over all links", sum(p), sum(q), size]] : []),
    ...SPENT.map(([key, name]) => [`${name}, along the chain that ends last`, p.path[key], q.path[key], time]).filter(([, a, b]) => Math.max(a, b) > 1e-6 * long.completion)];
  $("gains").replaceChildren(heads(""), ...facts.map(([name, a, b, words]) => row([name, words(a), words(b), less(a, b, words)])));
  const own = new Map(Array.from({ length: q.links.count }, (_, i) => [linkName(q, i), i]));
  const both = p.topology === q.topology ? Array.from({ length: p.links.count }, (_, i) => [i, own.get(linkName(p, i))]).filter(([, j]) => j !== undefined) : [];
  both.sort(([a, b], [c, d]) => Math.abs(p.links.bytes[c] - q.links.bytes[d]) - Math.abs(p.links.bytes[a] - q.links.bytes[b]));
  const apart = both.filter(([i, j]) => p.links.bytes[i] !== q.links.bytes[j]).slice(0, 8);
  $("gains-links").replaceChildren(...(apart.length ? [heads("links that differ most"),
    ...apart.map(([i, j]) => row([linkCell(linkName(p, i)), size(p.links.bytes[i]), size(q.links.bytes[j]), less(p.links.bytes[i], q.links.bytes[j], size)]))] : []));
}
