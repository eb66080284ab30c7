// What is known of each link of a network: as an operator gave it, as it is planned with, as it was reported, and how
// much plans use it. Links are known by the names of their ends; of parallel ones the reports are of all alike.

import { percent, rate } from "./words.js";

export const COLOURINGS = {
  now: { title: "use now", about: "the rate reported, as a share of the planned bandwidth" },
  plan: { title: "use by plans", about: "share of a link's bandwidth that the jobs' plans use, from their beginning to their end" },
  width: { title: "bandwidth", about: "the bandwidth reported, else planned, as a share of what an operator gave" },
};
const name = (a, b) => `${a}\n${b}`;

export function linksOf(drawing, network, reports, load) {
  const overlay = new Map((network?.overlay || []).map((said) => [name(said.src, said.dst), said]));
  const found = new Map();
  for (const [src, dst, kind, value, at] of reports?.samples || []) {
    const key = name(src, dst);
    if (!found.has(key)) found.set(key, {});
    found.get(key)[kind] = { value, at };
  }
  const use = new Map();
  for (const [src, dst, share] of load?.use || []) use.set(name(src, dst), Math.max(share, use.get(name(src, dst)) || 0));
  return drawing.links.map(([a, b, given, latency], number) => {
    const src = drawing.nodes[a], dst = drawing.nodes[b], key = name(src, dst), report = found.get(key) || {}, said = overlay.get(key);
    const planned = said?.bandwidth_Bps ?? given, measured = report.capacity?.value ?? null, carried = report.carried?.value ?? null;
    return { number, src, dst, given, planned, latency: said?.latency_s ?? latency, measured, carried, differs: said !== undefined,
      down: (measured ?? planned) === 0, at: Math.max(report.capacity?.at ?? 0, report.carried?.at ?? 0),
      shares: { now: carried === null ? null : carried / (planned || given), plan: use.get(key) ?? (load?.use.length ? 0 : null), width: (measured ?? planned) / given } };
  });
}

// the class of a share, 0 to 4; a narrow link is as remarkable as a full one
export function level(share, by) {
  if (share === null) return "none";
  const steps = by === "width" ? [[0.95, 1], [0.85, 0], [0.6, 2], [0.3, 3]] : null;
  if (steps) return `u${(steps.find(([least]) => share >= least) || [0, 4])[1]}`;
  return `u${share <= 0.25 ? 0 : share <= 0.5 ? 1 : share <= 0.75 ? 2 : share <= 0.9 ? 3 : 4}`;
}
export const classOf = (link, by) => link.down ? "down" : level(link.shares[by], by);
export const LEVELS = {
  width: [["u1", "95 % or more"], ["u0", "85 to 95 %"], ["u2", "60 to 85 %"], ["u3", "30 to 60 %"], ["u4", "less"], ["down", "down"]],
  now: [["u0", "up to 25 %"], ["u1", "50 %"], ["u2", "75 %"], ["u3", "90 %"], ["u4", "more"], ["down", "down"], ["none", "no report"]],
  plan: [["u0", "up to 25 %"], ["u1", "50 %"], ["u2", "75 %"], ["u3", "90 %"], ["u4", "more"], ["down", "down"], ["none", "no plan"]],
};

// of the links of one stroke the one that stands out: down, else with the largest use, or the least bandwidth
export function worst(links, by) {
  const rank = (l) => l.down ? Infinity : l.shares[by] === null ? -1 : by === "width" ? 1e3 - l.shares[by] : l.shares[by];
  return links.reduce((a, b) => rank(b) > rank(a) ? b : a);
}

export function words(link) {
  const lines = [`${link.src} → ${link.dst}`];
  if (link.down) lines.push("down");
  else if (link.carried !== null) lines.push(`carries ${rate(link.carried)}, ${percent(link.shares.now)} of ${rate(link.planned)}`);
  if (link.measured !== null && !link.down) lines.push(`bandwidth ${rate(link.measured)}, as reported`);
  lines.push(`planned with ${link.planned === 0 ? "no traffic" : rate(link.planned)}${link.planned === link.given ? "" : `, given ${rate(link.given)}`}`);
  if (link.shares.plan !== null) lines.push(`plans use ${percent(link.shares.plan)}`);
  return lines.join("\n");
}

// the colouring that has something to say
export function bestColouring(links) {
  if (links.some((l) => l.carried !== null)) return "now";
  return links.some((l) => l.differs || l.measured !== null) ? "width" : "plan";
}
