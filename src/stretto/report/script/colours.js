// Colours: of the page, of the use of links, and of classes of transfers, which the reader chooses.
const CLASSES = 8;
let colours = {};
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const mixed = (a, b, f) => a.map((v, c) => Math.round(v + (b[c] - v) * f));
const word = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;  // a pixel of ImageData, little-endian
function readColours() {
  const css = getComputedStyle(document.documentElement), value = (k) => css.getPropertyValue("--" + k).trim();
  colours = {};
  for (const k of ["bg", "card", "ink", "soft", "line", "accent", "idle", "cool", "warm", "full", "hot", "mark"]) colours[k] = value(k);
  const stops = [colours.cool, colours.warm, colours.full].map(rgb);
  const ramp = Array.from({ length: 256 }, (_, i) => { const u = i / 255 * 2, k = Math.min(Math.floor(u), 1); return mixed(stops[k], stops[k + 1], u - k); });
  colours.ramp = ramp.map((c) => `rgb(${c.join(",")})`); colours.rampWords = Uint32Array.from(ramp, word);
  colours.classes = Array.from({ length: CLASSES }, (_, i) => value(`c${i}`));
  // of each class the pixels from hardly busy to busy, and dimmed
  const card = rgb(colours.card);
  colours.shades = colours.classes.map((c) => Uint32Array.from({ length: 65 }, (_, i) => word(mixed(card, rgb(c), .25 + .75 * i / 64))));
  colours.dim = colours.classes.map((c) => word(mixed(card, rgb(c), .2)));
  colours.words = Object.fromEntries(["ink", "mark", "hot", "accent"].map((k) => [k, word(rgb(colours[k]))]));
}
// black or white, what is easier to read on a colour
function inkOn(hex) {
  const [r, g, b] = rgb(hex).map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b > .179 ? "#000000" : "#ffffff";
}
const hue = (n) => colours.classes[n % CLASSES];

const sitesOf = (p) => [...new Set(p.sites.filter((s) => s))];
// each way of colouring: its words, whether a plan has it, the class of each transfer, and the words of the legend
const MODES = {
  phase: { words: "phase", of: (h) => h.op, names: () => ["copies", "sums"], serves: () => true },
  origin: { words: "origin", serves: () => true, note: "the site or node that first holds the chunk, of a sum the one where it is complete",
    of: (h, p) => { const sites = sitesOf(p), own = sites.length > 1 ? p.sites.map((s) => Math.max(0, sites.indexOf(s))) : null;
      return Int32Array.from(h.chunk, (c) => own ? own[h.home[c]] : h.home[c]); },
    names: (p) => sitesOf(p).length > 1 ? sitesOf(p) : p.names },
  chunk: { words: "chunk or tree", of: (h) => h.chunk, names: (p, h) => Array.from({ length: h.home.length }, (_, c) => `chunk ${c}`), serves: () => true },
  step: { words: "step", of: (h) => h.step, names: (p, h) => Array.from({ length: lastOf(h.step) + 1 }, (_, c) => `step ${c}`), serves: (h) => !!h.step },
  collective: { words: "collective", of: (h) => Int32Array.from(h.chunk, (c) => h.collective[c]), names: (p) => p.collective.split(", ").map((kind, i) => `${i}: ${kind}`),
    serves: (h) => !!h.collective },
};
const lastOf = (column) => column.reduce((most, v) => v > most ? v : most, 0);

function colourMode(p) {
  if (MODES[state.colour] && p.h && MODES[state.colour].serves(p.h)) return state.colour;
  if (p.h && p.h.bothPhases) return "phase";
  return p.h && sitesOf(p).length < 2 && p.h.home.length < 2 ? "phase" : "origin";
}
// the class of each transfer, kept until the reader chooses another one
function classesOf(p) {
  const mode = colourMode(p);
  if (p.mode !== mode) {
    const of = MODES[mode].of(p.h, p);
    p.mode = mode; p.number = of; p.classes = new Uint8Array(of.length);
    for (let t = 0; t < of.length; t++) p.classes[t] = of[t] % CLASSES;
  }
  return p.classes;
}
// entries of the legend: for each class that is used its colour and the names that share it
function legend(p) {
  if (!p.h) return [];
  classesOf(p);
  const names = MODES[p.mode].names(p, p.h), used = new Uint8Array(names.length);
  for (const n of p.number) used[n] = 1;
  const shown = Array.from({ length: CLASSES }, () => []);
  names.forEach((name, n) => { if (used[n]) shown[n % CLASSES].push(name); });
  return shown.flatMap((list, c) => list.length ? [[colours.classes[c], some(list, 2)]] : []);
}
function showLegend() {
  const p = plan(), box = $("classes"); box.replaceChildren();
  for (const [colour, name] of legend(p)) { const item = element("span", undefined, { class: "key" }); item.append(element("i", undefined, { style: `background:${colour}` }), name); box.append(item); }
  if (p.h && MODES[p.mode].note) box.title = MODES[p.mode].note; else box.removeAttribute("title");
}
