// The smaller charts: what has been delivered, and optical planes.
function drawCurve(g, w, h) {
  const shown = panes(), [p] = shown, L = 40, R = 14, T = 10, B = 24, end = Math.max(...shown.flatMap((q) => [q.completion, q.bound])) || 1;
  const X = (t) => L + (w - L - R) * t / end, Y = (f) => h - B - (h - T - B) * f;
  g.font = "11px system-ui,sans-serif"; g.fillStyle = colours.soft; g.strokeStyle = colours.line; g.lineWidth = 1;
  for (const f of [0, .5, 1]) { g.beginPath(); g.moveTo(L, Y(f)); g.lineTo(w - R, Y(f)); g.stroke(); g.textAlign = "right"; g.textBaseline = "middle"; g.fillText(`${100 * f} %`, L - 6, Y(f)); }
  g.textBaseline = "top";
  axis(g, ticks(0, end, w - L - R), X, h - B + 7, w);
  g.strokeStyle = colours.mark; g.setLineDash([4, 4]); g.beginPath(); g.moveTo(L, Y(0)); g.lineTo(X(p.bound), Y(1)); g.lineTo(X(p.bound), Y(0)); g.stroke(); g.setLineDash([]);
  if (shown.length === 2) {  // between two curves: the colour of the plan that is ahead
    const width = (w - L - R) / 160, step = end / 160;
    for (let i = 0; i < 160; i++) {
      const [a, b] = shown.map((q) => deliveredBy(q, (i + .5) * step)), top = Y(Math.max(a, b));
      if (Math.abs(a - b) < 1e-6) continue;
      // whole pixels: what overlaps or leaves a part of a pixel free is seen as a line
      const left = Math.round(L + i * width), right = Math.round(L + (i + 1) * width);
      g.fillStyle = a > b ? colours.accent : colours.warm; g.globalAlpha = .3; g.fillRect(left, top, right - left, Y(Math.min(a, b)) - top); g.globalAlpha = 1;
    }
  }
  shown.forEach((q, n) => {
    const d = q.delivered; let y = Y(0);
    g.strokeStyle = n ? colours.warm : colours.accent; g.lineWidth = 2; g.beginPath(); g.moveTo(X(0), Y(0));
    for (let i = 0; i < d.t.length; i++) { if (d.t.length < 60) g.lineTo(X(d.t[i]), y); y = Y(d.bytes[i] / d.total); g.lineTo(X(d.t[i]), y); }
    g.stroke();
  });
  if (!state.whole) { g.strokeStyle = colours.ink; g.lineWidth = 1; g.beginPath(); g.moveTo(X(state.t * horizon()), T); g.lineTo(X(state.t * horizon()), h - B); g.stroke(); }
}
// the share of its bytes that a plan has delivered by a moment
function deliveredBy(p, t) {
  const d = p.delivered; let low = 0, high = d.t.length;
  while (low < high) { const mid = (low + high) >> 1; if (d.t[mid] <= t) low = mid + 1; else high = mid; }
  return low ? d.bytes[low - 1] / d.total : 0;
}

// the room for names of planes: that of links where links have rows, so that moments stand below each other
const planesLabel = (p) => p.links.count && !ABOVE ? LABEL : 84;
function drawPlanes(g, w, h, p) {
  const L = planesLabel(p), X = (t) => L + (w - L - 8) * t / (p.completion || 1);
  g.font = "11px system-ui,sans-serif"; g.textBaseline = "middle";
  p.planes.forEach((row, i) => {
    const y = 4 + i * PLANE_ROW;
    g.fillStyle = colours.soft; g.textAlign = "left"; g.fillText(row.name, 0, y + BAR_ROW / 2);
    for (const [begin, end, matching] of row.parts) {
      const x = X(begin), width = Math.max(X(end) - x, 1);
      g.fillStyle = matching < 0 ? colours.idle : hue(matching); g.fillRect(x, y, width, BAR_ROW);
      if (matching < 0) { g.save(); g.beginPath(); g.rect(x, y, width, BAR_ROW); g.clip(); g.strokeStyle = colours.card; g.beginPath();
        for (let a = x - BAR_ROW; a < x + width; a += 6) { g.moveTo(a, y + BAR_ROW); g.lineTo(a + BAR_ROW, y); } g.stroke(); g.restore(); }
      else if (width > 14) { g.fillStyle = inkOn(hue(matching)); g.textAlign = "center"; g.fillText(letters(matching), x + width / 2, y + BAR_ROW / 2); }
    }
  });
  g.fillStyle = colours.soft; g.textBaseline = "top"; const y = 8 + p.planes.length * PLANE_ROW;
  axis(g, ticks(0, p.completion, w - L - 8), X, y, w);
  if (!state.whole) { const x = X(Math.min(state.t * horizon(), p.completion)); g.strokeStyle = colours.ink; g.beginPath(); g.moveTo(x, 0); g.lineTo(x, y); g.stroke(); }
}
function hoverPlanes(event) {
  const p = plan(), box = $("planes").getBoundingClientRect(), row = p.planes[Math.floor((event.clientY - box.top - 4) / PLANE_ROW)];
  const L = planesLabel(p), t = (event.clientX - box.left - L) / (box.width - L - 8) * p.completion;
  const part = row && row.parts.find(([begin, end]) => begin <= t && t <= end);
  tip(part ? event : null, part && `${row.name}: ${part[3]}\n${part[2] < 0 ? "" : `matching ${letters(part[2])}\n`}${time(part[0])} to ${time(part[1])}`);
}
