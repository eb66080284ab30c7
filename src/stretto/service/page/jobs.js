// Jobs: what each calls, how long that takes against the bound, the versions of its plan, and an operator's buttons.

import { byId, change, command, duration, element, many, moment, replace, sentence, size } from "./words.js";

const open = new Set();  // jobs whose versions are shown

// the sum over a step of a job, each collective after the other; null where one is not known
function step(collectives, key) {
  return collectives.reduce((sum, c) => sum === null || (c[key] ?? null) === null ? null : sum + c.times * c[key], 0);
}
const pill = (kind, text) => element("span", { class: `pill ${kind}` }, text);

function status(job) {
  if (job.status === "refused") return pill("bad", "cannot be planned");
  if (job.status === "waiting") return pill("", "is being planned");
  return job.hold ? pill("warn", `held at version ${job.plan_version}`) : pill("good", `version ${job.plan_version}`);
}

export function jobCard(job, may, on) {
  const steps = Object.fromEntries(["completion_s", "bound_s", "measured_s"].map((key) => [key, step(job.collectives, key)]));
  const button = job.hold
    ? job.proposed ? null : element("button", { type: "button", "data-key": `release ${job.name}`, disabled: !may, click: () => on.accept(job, null, false) }, "Stop holding")
    : element("button", { type: "button", "data-key": `hold ${job.name}`, disabled: !may, title: "keep this version; newer plans are proposed", click: () => on.hold(job) }, "Hold");
  return element("article", { class: "card job", "data-job": job.name, "aria-label": `job ${job.name}` },
    element("div", { class: "row" }, element("div", {}, element("h3", {}, job.name), status(job)), element("div", { class: "actions" }, button)),
    stepWords(steps),
    job.reason && element("p", { class: "said" }, job.reason),
    on.said.get(job.name) && element("p", { class: "said", role: "alert" }, on.said.get(job.name)),
    job.hold && element("p", { class: "sub" }, job.hold.who === "anybody" ? "Held since " : `${job.hold.who} holds it since `, moment(job.hold.at), job.proposed ? "." : ". No newer plan is proposed."),
    job.proposed && offer(job, may, on),
    collectives(job),
    versions(job));
}

function stepWords({ completion_s: planned, bound_s: bound, measured_s: measured }) {
  if (planned === null) return null;
  const parts = [measured !== null && `${duration(measured)} measured`, `${duration(planned)} planned`, bound !== null && `${duration(bound)} at least`].filter(Boolean);
  const over = bound ? `, ${(planned / bound).toFixed(2)} times the bound` : "";
  return element("p", { class: "step sub" }, `A step's collectives, one after the other: ${parts.join(", ")}${over}`);
}

function offer(job, may, on) {
  const now = step(job.collectives, "completion_s"), then = step(job.proposed.collectives, "completion_s");
  const times = now !== null && then !== null && ` It plans ${duration(then)} for a step; version ${job.plan_version} planned ${duration(now)} for the network as it was then.`;
  const accept = (holds, key, text, kind) => element("button", { type: "button", class: kind, "data-key": `${key} ${job.name}`, disabled: !may, click: () => on.accept(job, job.proposed.proposal, holds) }, text);
  return element("div", { class: "offer" },
    element("p", {}, element("b", {}, `A new plan is proposed. `), `${sentence(job.proposed.why)}.`, times),
    element("div", { class: "actions" }, accept(true, "accept", "Accept this plan", "main"), accept(false, "all", "Accept, and stop holding")),
    !may && element("p", { class: "sub" }, "An operator can accept it."));
}

function collectives(job) {
  const all = job.collectives, longest = Math.max(...all.flatMap((c) => [c.completion_s || 0, c.measured_s || 0]));
  const measured = all.some((c) => (c.measured_s ?? null) !== null), bounded = all.some((c) => c.bound_s);
  const cell = (value, kind = "", title) => element("td", { class: kind, title }, value === null || value === undefined ? "–" : duration(value));
  const rows = all.map((c) => element("tr", {},
    element("td", {}, c.kind, element("span", { class: "what" }, `${c.size_bytes ? size(c.size_bytes) : c.size}${c.times === 1 ? "" : ` × ${c.times}`}${c.ranks ? `, ${c.ranks} ranks` : ""}`)),
    element("td", { class: "rare" }, c.completion_s ? race(c, longest) : "–"),
    measured && cell(c.measured_s, "", c.measured_s && c.measured_version !== job.plan_version ? `by version ${c.measured_version} of the plan` : undefined), cell(c.completion_s), cell(c.alone_s, "rare soft"), bounded && cell(c.bound_s, measured ? "rarer" : ""),
    bounded && element("td", {}, c.bound_s && (c.measured_s || c.completion_s) ? `${((c.measured_s || c.completion_s) / c.bound_s).toFixed(2)}×` : "–")));
  const head = (text, title, kind) => element("th", { scope: "col", title, class: kind }, text);
  return element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, head("collective"), head("", "bar: planned; line: bound; dot: measured", "rare"),
      measured && head("measured", "median of the last calls that were reported"), head("planned", "beside the other jobs"), head("alone", "planned as if it had the network for itself", "rare"),
      bounded && head("bound", "no plan can be quicker", measured ? "rarer" : ""), bounded && head("of bound", measured ? "measured, else planned, of the bound" : "planned, of the bound"))),
    element("tbody", {}, rows)));
}

function race(c, longest) {
  const at = (value) => `${(100 * value / longest).toFixed(1)}%`, bar = element("i"), all = element("span", { class: "race", "aria-hidden": "true" }, bar);
  bar.style.width = at(c.completion_s);
  if (c.bound_s) { const mark = element("b"); mark.style.left = at(c.bound_s); all.append(mark); }
  if (c.measured_s) { const dot = element("u"); dot.style.left = at(c.measured_s); all.append(dot); }
  return all;
}

function versions(job) {
  if (!job.versions.length) return null;
  const total = (times) => times?.length === job.collectives.length ? times.reduce((sum, t, i) => sum + t * job.collectives[i].times, 0) : null;
  const rows = job.versions.map((v) => {
    const now = total(v.completions_s), was = total(v.completions_before_s);
    return element("li", { "data-version": v.version }, element("span", { class: "tag" }, `Version ${v.version}`), moment(v.at),
      now !== null && element("div", {}, `${duration(now)} for a step${was ? `; the plan before ${duration(was)}, for the network as it was then (${change(was, now)})` : ""}`),
      element("div", { class: "soft" }, `${sentence(v.why)}.`));
  });
  const shown = element("details", { open: open.has(job.name), toggle: (e) => e.target.open ? open.add(job.name) : open.delete(job.name) },
    element("summary", { "data-key": `versions ${job.name}` }, `${many(job.versions.length, "version")} of its plan, the last at `, moment(job.versions[0].at)), element("ol", { class: "events" }, rows));
  return shown;
}

const cards = new Map();  // by job: what it was made of, and its card

// what waits for an operator comes first
const urgency = (job) => job.proposed ? 0 : job.reason ? 1 : 2;

export function showJobs(all, network, may, on) {
  const jobs = all.filter((j) => j.name.toLowerCase().includes(on.find)).sort((a, b) => urgency(a) - urgency(b) || (a.name < b.name ? -1 : 1));
  const place = byId("jobs"), names = new Set(jobs.map((j) => j.name));
  for (const [name] of cards) if (!names.has(name)) cards.delete(name);
  for (const job of jobs) {
    const text = JSON.stringify([job, may, on.said.get(job.name)]);
    if (cards.get(job.name)?.text !== text) cards.set(job.name, { text, card: jobCard(job, may, on) });
  }
  const wanted = jobs.length ? jobs.map((j) => cards.get(j.name).card) : all.length ? [element("p", { class: "sub" }, `No job is called “${on.find}”.`)] : [element("div", { class: "card" },
    element("p", {}, `No job uses ${network} yet. A job says which collectives it calls; the controller plans them together with those of other jobs.`), element("br"),
    command(`export STRETTO_CONTROLLER=${location.origin}\necho '{"network": "${network}", "collectives": [{"kind": "allreduce", "size": "64MB"}]}' \\\n  | stretto jobs put training -`))];
  if (wanted.length !== place.children.length || wanted.some((card, i) => place.children[i] !== card)) replace(place, ...wanted);
}
