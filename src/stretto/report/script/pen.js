// A pen with the calls of a canvas that writes SVG, so that what is drawn can be saved as vectors.
const xml = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
class Pen {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [], path: "", dash: [], stack: [], move: "", clips: 0, clipped: "" });
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "11px sans-serif", textAlign: "left", textBaseline: "alphabetic", lineCap: "butt" });
    this.ruler = document.createElement("canvas").getContext("2d");
  }
  measureText(text) { this.ruler.font = this.font; return this.ruler.measureText(text); }
  n(v) { return +v.toFixed(2); }
  add(element) { this.parts.push(this.move || this.clipped ? `<g${this.move ? ` transform="${this.move}"` : ""}${this.clipped}>${element}</g>` : element); }
  alpha() { return this.globalAlpha < 1 ? ` opacity="${this.n(this.globalAlpha)}"` : ""; }
  setLineDash(list) { this.dash = list; }
  save() { this.stack.push([this.move, this.clipped, this.globalAlpha]); }
  restore() { [this.move, this.clipped, this.globalAlpha] = this.stack.pop(); }
  translate(x, y) { this.move += `translate(${this.n(x)} ${this.n(y)})`; }
  scale(x, y) { this.move += `scale(${x} ${y})`; }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${this.n(x)} ${this.n(y)}`; }
  lineTo(x, y) { this.path += `L${this.n(x)} ${this.n(y)}`; }
  quadraticCurveTo(a, b, x, y) { this.path += `Q${this.n(a)} ${this.n(b)} ${this.n(x)} ${this.n(y)}`; }
  closePath() { this.path += "Z"; }
  rect(x, y, w, h) { this.path += `M${this.n(x)} ${this.n(y)}h${this.n(w)}v${this.n(h)}h${this.n(-w)}Z`; }
  arc(x, y, r) { this.path += `M${this.n(x - r)} ${this.n(y)}a${this.n(r)} ${this.n(r)} 0 1 0 ${this.n(2 * r)} 0a${this.n(r)} ${this.n(r)} 0 1 0 ${this.n(-2 * r)} 0Z`; }
  clip() { const id = `clip${this.clips++}`; this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath>`); this.clipped = ` clip-path="url(#${id})"`; }
  fill() { this.fillPath(this.path); }
  fillPath(path) { this.add(`<path d="${path}" fill="${this.fillStyle}"${this.alpha()}/>`); }
  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    if (this.path) this.add(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.n(this.lineWidth)}" stroke-linecap="${this.lineCap}"${dash}${this.alpha()}/>`);
  }
  fillRect(x, y, w, h) { if (w > 0 && h > 0) this.add(`<rect x="${this.n(x)}" y="${this.n(y)}" width="${this.n(w)}" height="${this.n(h)}" fill="${this.fillStyle}"${this.alpha()}/>`); }
  strokeText(text, x, y) { this.text(text, x, y, ` fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-linejoin="round"`); }
  fillText(text, x, y) { this.text(text, x, y, ` fill="${this.fillStyle}"`); }
  text(text, x, y, style) {
    const [, weight = "", px] = this.font.match(/^(600 )?([\d.]+)px/) || [, "", "11"], anchor = { center: "middle", right: "end" }[this.textAlign];
    const down = { middle: .35, top: .8 }[this.textBaseline] || 0;
    this.add(`<text x="${this.n(x)}" y="${this.n(y + down * px)}" font-size="${px}"${weight ? ' font-weight="600"' : ""}${anchor ? ` text-anchor="${anchor}"` : ""}${style}${this.alpha()}>${xml(text)}</text>`);
  }
  // runs of equal pixels of a row, as rectangles
  runs(pixels, width, x, y, height, unit) {
    for (let a = 0; a < width;) {
      let z = a + 1;
      while (z < width && pixels[z] === pixels[a]) z++;
      if (pixels[a]) { const v = pixels[a]; this.fillStyle = "#" + [v & 255, v >> 8 & 255, v >> 16 & 255].map((c) => c.toString(16).padStart(2, "0")).join(""); this.fillRect(x + a * unit, y, (z - a) * unit, height); }
      a = z;
    }
  }
  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="system-ui,sans-serif">` +
      `<rect width="${this.width}" height="${this.height}" fill="${colours.card}"/>${this.parts.join("")}</svg>`;
  }
}

// What a card shows, drawn on a context of this size; without one the height that it needs.
function compose(g, what, width) {
  const shown = panes(), each = width / shown.length, height = what === "map" ? Math.round(Math.min(520, each * .7)) : AXIS + ROW * Math.min(60, Math.max(...shown.map((p) => filtered(p).rows.length)));
  let y = 6;
  if (!g) return height + 78;
  g.font = "600 14px system-ui,sans-serif"; g.textBaseline = "top"; g.textAlign = "left"; g.fillStyle = colours.ink;
  shown.forEach((p, n) => g.fillText(fit(g, `${p.planner} · ${p.topology} · ${p.collective} · ${size(p.size)}: ${time(p.completion)}`, each - 20), n * each + 10, y));
  y += 26;
  shown.forEach((p, n) => {
    g.save(); g.translate(n * each, y);
    if (what === "map") drawMap(g, each, height, p); else drawRows(g, each, height, p, $(n ? "scroller-b" : "scroller").scrollTop);
    g.restore();
  });
  y += height + 14; let x = 10;
  g.font = "11.5px system-ui,sans-serif"; g.textBaseline = "middle"; g.textAlign = "left";
  const entries = what === "map" && state.tint === "use" ? [[colours.cool, "links hardly used"], [colours.warm, "half used"], [colours.full, "fully used"]] : legend(plan());
  for (const [colour, name] of entries) { g.fillStyle = colour; g.fillRect(x, y - 5, 10, 10); g.fillStyle = colours.ink; g.fillText(name, x + 15, y); x += 30 + g.measureText(name).width; }
}
function hand(name, blob) {
  const a = element("a", undefined, { href: URL.createObjectURL(blob), download: name });
  a.click(); setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}
function drawing(what, width = 1400) {
  if (what === "rows") layRows($("rows").getContext("2d"), width / panes().length);
  const pen = new Pen(width, compose(null, what, width)); compose(pen, what, width);
  drawTimelines.key = ""; redraw(); return pen.toString();
}
function save(what, kind) {
  const name = `${page.title} ${what === "map" ? "network" : "timeline"}`.replace(/[^\w.+-]+/g, "-"), blob = new Blob([drawing(what)], { type: "image/svg+xml" });
  if (kind === "svg") return hand(`${name}.svg`, blob);
  const image = new Image(), url = URL.createObjectURL(blob);
  image.onload = () => {
    const c = document.createElement("canvas"), g = c.getContext("2d");
    c.width = 2 * image.width; c.height = 2 * image.height; g.drawImage(image, 0, 0, c.width, c.height); URL.revokeObjectURL(url);
    c.toBlob((png) => hand(`${name}.png`, png));
  };
  image.src = url;
}
