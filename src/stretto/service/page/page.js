// The page of the controller: what it knows, live, and an operator's say in plans.

import { COLOURINGS, LEVELS, bestColouring, classOf, linksOf, words } from "./links.js";
import { draw, labelSize } from "./map.js";
import { showJobs } from "./jobs.js";
import { ask, follow, token } from "./stream.js";
import { ago, byId, command, duration, element, many, moment, percent, rate, refreshMoments, replace, sentence, setClock, shape } from "./words.js";

const SHOWN = 10, FEW_JOBS = 6, CLOCK_MS = 10000;
const known = { network: new Map(), links: new Map(), load: new Map(), job: new Map() };
const fresh = new Set();  // what was sent since the last "hello"
const drawings = new Map();
const state = { hello: null, ready: false, network: null, by: null, chosen: null, find: "", findJob: "", all: false, map: null, mapOf: "" };
const said = new Map();  // by job: what went wrong with an operator's wish

// --- the address of the page: the network, and how links are coloured
const address = new URLSearchParams(location.hash.slice(1));
state.network = address.get("network");
state.by = address.get("colour") in COLOURINGS ? address.get("colour") : null;
const keepAddress = () => {
  const now = new URLSearchParams({ ...(state.network ? { network: state.network } : {}), ...(state.by ? { colour: state.by } : {}) });
  history.replaceState(null, "", `#${now}`);
};

// --- light and dark
const wanted = localStorage.getItem("stretto.scheme"), dark = matchMedia("(prefers-color-scheme: dark)");
const setScheme = (scheme) => { document.documentElement.dataset.scheme = scheme; document.documentElement.style.colorScheme = scheme; };
setScheme(wanted || (dark.matches ? "dark" : "light"));
if (!wanted) dark.addEventListener("change", () => setScheme(dark.matches ? "dark" : "light"));
byId("scheme").addEventListener("click", () => {
  const scheme = document.documentElement.dataset.scheme === "dark" ? "light" : "dark";
  localStorage.setItem("stretto.scheme", scheme);
  setScheme(scheme);
});

// --- what is shown
let planned = false;
function show() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => { planned = false; if (state.ready) paint(); });
}

function paint() {
  const names = [...known.network.keys()].sort();
  if (!names.includes(state.network)) state.network = names[0] ?? null;
  byId("main").hidden = false;
  replace(byId("networks"), ...names.map((name) => element("button", { type: "button", "data-key": name, "aria-current": String(name === state.network), click: () => {
    Object.assign(state, { network: name, chosen: null, all: false }); keepAddress(); show(); } }, name)));
  byId("columns").hidden = !names.length;
  byId("tiles").hidden = !names.length;
  byId("empty").hidden = names.length > 0;
  if (!names.length && !byId("empty").firstChild) byId("empty").append(noNetwork());
  if (!names.length) return;
  const network = known.network.get(state.network), jobs = [...known.job.values()].filter((j) => j.network === state.network);
  const drawing = drawings.get(state.network);
  byId("network-name").textContent = state.network;
  showJobs(jobs, state.network, state.hello?.role === "operator", { hold, accept, said, find: state.findJob });
  byId("jobs-find").hidden = jobs.length <= FEW_JOBS && !state.findJob;
  showDecisions(network);
  if (drawing?.base !== network.base || drawing.label !== wantedLabel(drawing)) fetchDrawing(state.network, network.base);
  if (!drawing) return;
  const links = linksOf(drawing, network, known.links.get(state.network), known.load.get(state.network));
  const by = state.by ?? bestColouring(links);
  byId("network-about").replaceChildren(`${many(drawing.nodes.length, "node")}, ${many(links.length, "link")}. Version ${network.version} since `, moment(network.at), `. ${sentence(network.why)}.`);
  showTiles(network, links, jobs);
  showChoice(by);
  showMap(drawing, links, by);
  showLinks(links, by);
}

function noNetwork() {
  const may = state.hello?.role === "operator", here = `export STRETTO_CONTROLLER=${location.origin}`;
  return element("div", { class: "card empty" }, element("h2", {}, "No network yet"),
    element("p", {}, "A network is what the controller plans for: its nodes, and its links with bandwidth and latency. Add one from the catalogue:"),
    command(`${here}\nstretto networks put wan -t sites:3,4`),
    element("p", {}, "or your own, by a topology file:"), command(`${here}\nstretto networks put cluster -t topology.json`),
    element("p", {}, "or by HTTP:"), command(`curl -X PUT ${location.origin}/networks/cluster ${state.hello?.tokens ? "-H 'Authorization: Bearer TOKEN' " : ""}--data @topology.json`),
    element("p", { class: "sub" }, may ? "It appears here at once." : "That needs an operator's token. It appears here at once."));
}

function showTiles(network, links, jobs) {
  const off = links.filter((l) => l.differs || l.down).length, down = links.filter((l) => l.down).length, waiting = jobs.filter((j) => j.proposed).length, held = jobs.filter((j) => j.hold).length;
  const refused = jobs.filter((j) => j.reason).length, reports = links.filter((l) => l.at).length;
  const ratio = (j) => Math.max(...j.collectives.map((c) => c.bound_s ? (c.measured_s || c.completion_s || 0) / c.bound_s : 0));
  const worst = jobs.filter((j) => ratio(j) > 0).sort((a, b) => ratio(b) - ratio(a))[0], last = jobs.flatMap((j) => j.versions.slice(0, 1)).sort((a, b) => b.at - a.at)[0];
  const tile = (kind, what, value, about) => element("div", { class: `tile ${kind}` }, element("span", {}, what), element("b", {}, value), element("small", {}, about));
  byId("tiles").replaceChildren(
    tile(down ? "bad" : off ? "warn" : "", "links as given", links.length ? `${links.length - off} of ${links.length}` : "–", !links.length ? "nodes are joined by optical planes" : down ? `${down} down, ${off - down} of other bandwidth or latency` : off ? `${off} of other bandwidth or latency` : reports ? `${reports} with reports in the last 5 min` : "no reports in the last 5 min"),
    tile(refused ? "bad" : "", "jobs", String(jobs.length), refused ? `${refused} cannot be planned` : held ? `${held} held` : jobs.length ? "all get new plans as they come" : "none yet"),
    tile(waiting ? "warn" : "", "plans to accept", String(waiting), waiting ? "waiting for an operator" : "nothing waits for an operator"),
    tile("", "farthest from its bound", worst ? `${ratio(worst).toFixed(2)}×` : "–", worst ? worst.name : "no bounds known yet"),
    tile("", "last new plan", last ? ago(last.at) : "–", last ? `version ${last.version}` : "none yet"));
}

function showChoice(by) {
  const place = byId("colouring"), drawing = drawings.get(state.network), bare = drawing?.links.length === 0;
  place.hidden = byId("links-card").hidden = bare;
  if (!place.querySelector("input")) place.append(...Object.entries(COLOURINGS).map(([key, { title, about }]) => element("label", { title: about },
    element("input", { type: "radio", name: "colouring", value: key, change: () => { state.by = key; keepAddress(); show(); } }), title)));
  for (const input of place.querySelectorAll("input")) input.checked = input.value === by;
  const sample = (kind) => shape("svg", { width: 22, height: 6, "aria-hidden": "true" }, shape("path", { class: `swatch ${kind}`, d: "M1 3H21" }));
  const colours = bare ? [] : [element("span", {}, `${COLOURINGS[by].about}:`), ...LEVELS[by].map(([kind, text]) => element("span", {}, sample(kind), text)),
    element("span", {}, "wide: more bandwidth; each direction keeps right")];
  byId("legend").replaceChildren(...colours, ...(drawing?.notes || []).map((note) => element("span", {}, note)));
}

// --- the map
const wantedLabel = (drawing) => drawing?.scales ? labelSize(drawing, byId("drawing").clientWidth || 800) : 11;
async function fetchDrawing(name, base) {
  const label = wantedLabel(drawings.get(name)), key = `${name} ${base} ${label}`;
  if (state.asked === key || state.failed === key) return;
  Object.assign(state, { asked: key, failed: null });
  try {
    drawings.set(name, { ...await ask("GET", `/networks/${encodeURIComponent(name)}/drawing?label=${label}`), label });
  } catch (error) {
    state.failed = key;
    notice(`The drawing of ${name} cannot be had: ${error.message}.`);
  }
  state.asked = null;
  show();
}
function showMap(drawing, links, by) {
  const place = byId("drawing"), key = `${state.network} ${drawing.base} ${drawing.label} ${place.clientWidth}`;
  if (state.mapOf !== key) {
    state.map = draw(drawing, place.clientWidth, { point: (e, of) => tip(e, of), choose: (of) => { state.chosen = state.chosen === of[0] ? null : of[0]; show(); } });
    state.mapOf = key;
    place.replaceChildren(state.map.svg);
    const scrolls = place.scrollWidth > place.clientWidth + 1 || place.scrollHeight > place.clientHeight + 1;
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "map"]]) scrolls ? place.setAttribute(name, value) : place.removeAttribute(name);
  }
  state.known = links;
  state.map.colour(links, by, state.chosen);
}
function tip(event, of) {
  const place = byId("tip");
  if (!event) { place.style.opacity = "0"; return; }
  place.textContent = of.slice(0, 3).map((i) => words(state.known[i])).join("\n\n") + (of.length > 3 ? `\n\nand ${many(of.length - 3, "more link")}` : "");
  place.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - place.offsetWidth - 8))}px`;
  place.style.top = `${Math.max(8, Math.min(event.clientY + 14, innerHeight - place.offsetHeight - 8))}px`;
  place.style.opacity = "1";
}
new ResizeObserver(() => show()).observe(byId("drawing"));

// --- the table of links
function showLinks(links, by) {
  const share = (l) => l.down ? Infinity : l.shares[by] === null ? -Infinity : by === "width" ? -l.shares.width : l.shares[by];
  const found = links.filter((l) => !state.find || l.src.toLowerCase().includes(state.find) || l.dst.toLowerCase().includes(state.find));
  found.sort((a, b) => (b.number === state.chosen) - (a.number === state.chosen) || share(b) - share(a) || a.number - b.number);
  const shown = state.all ? found : found.slice(0, SHOWN);
  const value = (number, text = rate) => number === null ? element("span", { class: "soft" }, "–") : text(number);
  const rows = shown.map((l) => {
    const bar = element("i", { class: classOf(l, by) }), part = l.shares[by];
    bar.style.width = `${100 * Math.min(1, part ?? 0)}%`;
    const planned = l.planned === l.given ? rate(l.planned) : element("span", { class: l.planned < l.given ? "warn" : "good", title: `given ${rate(l.given)}` }, l.planned ? rate(l.planned) : "down");
    return element("tr", { class: l.number === state.chosen ? "on" : "", "data-link": `${l.src}→${l.dst}` },
      element("td", {}, element("button", { type: "button", class: "link", "data-key": `${l.src}→${l.dst}`, "aria-pressed": String(l.number === state.chosen), click: () => { state.chosen = state.chosen === l.number ? null : l.number; show(); } }, `${l.src} → ${l.dst}`)),
      element("td", {}, element("span", { class: "meter", "aria-hidden": "true" }, bar), l.down ? element("span", { class: "bad" }, "down") : part === null ? element("span", { class: "soft" }, "–") : percent(part)),
      element("td", {}, value(l.carried)), element("td", { class: "rare" }, value(l.measured, (v) => v ? rate(v) : element("span", { class: "bad" }, "down"))),
      element("td", {}, planned), element("td", { class: "rare" }, rate(l.given)), element("td", { class: "rare soft" }, duration(l.latency)));
  });
  const head = (text, title, kind) => element("th", { scope: "col", title, class: kind }, text);
  const table = element("table", {}, element("thead", {}, element("tr", {}, head("link"), head(COLOURINGS[by].title, COLOURINGS[by].about), head("carries", "as reported last, in the last 5 min"),
    head("reported", "bandwidth, as reported last, in the last 5 min", "rare"), head("planned", "the bandwidth that plans count on"), head("given", "bandwidth, by an operator", "rare"), head("latency", "that plans count on", "rare"))), element("tbody", {}, rows));
  replace(byId("links"), found.length ? table : element("p", { class: "sub" }, `No link has an end like “${state.find}”.`));
  const more = byId("all-links");
  more.hidden = found.length <= SHOWN;
  more.textContent = state.all ? `Show the first ${SHOWN}` : `Show all ${found.length}`;
}
byId("find").addEventListener("input", (e) => { state.find = e.target.value.trim().toLowerCase(); show(); });
byId("find-job").addEventListener("input", (e) => { state.findJob = e.target.value.trim().toLowerCase(); show(); });
byId("all-links").addEventListener("click", () => { state.all = !state.all; show(); });

function showDecisions(network) {
  const outcome = (d) => [d.published ? "new plans" : "", d.proposed.length ? `proposed to ${d.proposed.join(", ")}` : ""].filter(Boolean).join(", ") || "kept";
  const rows = network.decisions.map((d) => element("li", {}, element("span", { class: `tag ${d.published ? "good" : d.proposed.length ? "warn" : "soft"}` }, outcome(d)), moment(d.at),
    element("div", {}, `${sentence(d.why)}.`)));
  byId("decisions").replaceChildren(...rows.length ? rows : [element("li", { class: "sub" }, "None yet: nothing was planned on this network.")]);
}

// --- an operator's say
async function wish(job, path, body) {
  said.delete(job.name);
  try {
    await ask("POST", `/jobs/${encodeURIComponent(job.name)}/${path}`, body);
  } catch (error) {
    said.set(job.name, error.leader ? `This instance only reads. The leader is ${error.leader}.` : `It was not done: ${error.message}.`);
  }
  show();
}
const hold = (job) => wish(job, "hold");
const accept = (job, proposal, holds) => wish(job, "accept", { ...(proposal === null ? {} : { proposal }), hold: holds });

// --- who looks, and whether news come
const notice = (text) => { byId("notice").textContent = text ?? ""; byId("notice").hidden = !text; };
async function nameLeader() {
  const said = "This instance is not the leader: it shows everything; plans are held and accepted at ", { leader_address: leader } = await ask("GET", "/healthz").catch(() => ({}));
  if (state.hello?.leads !== false) return;
  notice(`${said}the leader.`);
  if (/^https?:\/\//.test(leader)) byId("notice").replaceChildren(said, element("a", { href: leader, rel: "noreferrer" }, leader), ".");
}
function showState(kind) {
  const place = byId("live"), [look, text] = { connecting: ["", "connecting"], live: ["good", "live"], lost: ["bad", "no connection"], old: ["warn", "no news"], denied: ["warn", "signed out"] }[kind];
  if (place.textContent !== text) place.textContent = text;
  place.className = `pill ${look}`;
}
function showIdentity() {
  const button = byId("identity"), { tokens, role, name } = state.hello ?? {};
  button.hidden = !tokens;
  button.textContent = role === "operator" ? `${name}: sign out` : `${name} reads: sign in`;
}
function signIn(why, mayClose) {
  byId("sign-in").hidden = false;
  byId("sign-in-why").textContent = why;
  byId("sign-in-close").hidden = !mayClose;
  byId("token").focus();
}
byId("sign-in").addEventListener("submit", (e) => {
  e.preventDefault();
  token.set(byId("token").value.trim());
  byId("token").value = "";
  byId("sign-in").hidden = true;
  begin();
});
byId("sign-in-close").addEventListener("click", () => { byId("sign-in").hidden = true; });
byId("identity").addEventListener("click", () => {
  if (state.hello.role !== "operator") { signIn("An operator's token lets you hold and accept plans.", true); return; }
  token.set(null);
  begin();
});

function on(kind, data) {
  if (kind === "hello") { setClock(data.now); state.hello = data; fresh.clear(); state.failed = null; byId("sign-in").hidden = true; showIdentity(); show(); }
  else if (kind === "ready") {
    setClock(data.now);
    if (!state.ready || !state.settled) for (const of of Object.keys(known)) for (const name of [...known[of].keys()]) if (!fresh.has(`${of} ${name}`)) known[of].delete(name);
    Object.assign(state, { ready: true, settled: true });
    if (state.hello.leads) notice(null); else nameLeader();
    showState("live");
    show();
  } else if (kind === "trouble") { notice(`What is shown may be old: ${data.message}.`); showState("old"); }
  else if (kind === "gone") { known[data.kind].delete(data.name); show(); }
  else if (kind in known) { fresh.add(`${kind} ${data.name}`); known[kind].set(data.name, data); show(); }
}
const begin = follow(on, (kind) => {
  showState(kind);
  if (kind !== "live") state.settled = false;
  if (kind !== "denied") return;
  state.ready = false;
  state.hello = null;
  byId("main").hidden = true;
  showIdentity();
  signIn(token.get() ? "The token that was given is not known." : "Any token lets you look; an operator's also lets you hold and accept plans.", false);
  token.set(null);
});
setInterval(() => { refreshMoments(); show(); }, CLOCK_MS);
