// The drawing of a network: marks, and for each line a stroke in each direction, coloured by what its links do.

import { classOf, worst } from "./links.js";
import { percent, shape } from "./words.js";

const LETTER = 0.6, NUMBERS = 14, LOUD = 0.75, LEAST = 0.72;

// a drawing of servers may be larger than its place, which then scrolls: its labels do not grow when it shrinks
const scaleOf = (drawing, room) => Math.min(1.25, Math.max(drawing.scales ? 0 : LEAST, Math.min(room / drawing.width, 580 / drawing.height)));
// the size of labels in a drawing that makes them 11 pixels on the screen, or a little more
export const labelSize = (drawing, room) => [9, 11, 13, 16, 20, 24, 28].find((size) => size * scaleOf(drawing, room) >= 10.5) || 32;

// Draws once; the object that comes back colours, and chooses links.
export function draw(drawing, room, on) {
  const scale = scaleOf(drawing, room);
  const svg = shape("svg", { viewBox: `0 0 ${drawing.width} ${drawing.height}`, width: Math.floor(drawing.width * scale), height: Math.floor(drawing.height * scale), role: "img" });
  if (drawing.land) svg.append(shape("path", { class: "land", d: drawing.land }));
  for (const [left, top, right, bottom, dashed] of drawing.frames)
    svg.append(shape("rect", { class: dashed ? "frame dashed" : "frame", x: left, y: top, width: right - left, height: bottom - top, rx: 7 }));
  const strokes = [], widths = bandwidths(drawing), thin = drawing.lines.length > 60 || !drawing.scales, apart = (thin ? 1.7 : 2.6) / scale;
  for (const line of drawing.lines) {
    if (!line.there) { svg.append(shape("path", { class: "frame dashed", d: way(line.from, line.to, line.bend, 0) })); continue; }
    const both = line.there.length > 0 && line.back.length > 0;
    for (const [from, to, links] of [[line.from, line.to, line.there], [line.to, line.from, line.back]]) {
      if (!links.length) continue;
      const off = both ? apart : 0, d = way(from, to, line.bend, off);
      const path = shape("path", { d, "stroke-width": ((thin ? 1.3 : 1.8) + 1.4 * widths(links)) / scale });
      const hit = shape("path", { class: "hit", d, pointermove: (e) => on.point(e, links), pointerleave: () => on.point(null), click: () => on.choose(links) });
      svg.append(path);
      strokes.push({ path, hit, links, from, to, bend: line.bend, off: both ? 9 / scale : 0 });
    }
  }
  svg.append(...strokes.map((s) => s.hit));
  const marks = drawing.marks.map(([x, y, kind, title, r]) => shape(kind === "switch" ? "rect" : kind === "router" ? "path" : "circle", { class: `mark ${kind}`,
    ...(kind === "switch" ? { x: x - r, y: y - r, width: 2 * r, height: 2 * r } : kind === "router" ? { d: `M${x} ${y - 1.3 * r}l${1.3 * r} ${1.3 * r}-${1.3 * r} ${1.3 * r}-${1.3 * r}-${1.3 * r}z` } : { cx: x, cy: y, r }) },
  shape("title", {}, title)));
  const texts = drawing.labels.map(([x, y, anchor, text, pixels]) => shape("text", { x, y, "text-anchor": anchor, "font-size": pixels }, text));
  const numbers = shape("g");
  svg.append(...marks, ...texts, numbers);
  const taken = [...drawing.marks.map(([x, y, , , r]) => [x - r, y - r, x + r, y + r]), ...drawing.labels.map(([x, y, anchor, text, pixels]) => box(x, y, anchor, text, pixels))];
  return { svg, colour: (links, by, chosen) => {
    const said = [], names = new Set();
    for (const stroke of strokes) {
      const known = stroke.links.map((i) => links[i]), link = worst(known, by), kind = classOf(link, by);
      const mine = known.some((l) => l.number === chosen);
      stroke.path.setAttribute("class", `way ${kind}${mine ? " chosen" : ""}`);
      stroke.path.dataset.link = `${link.src}→${link.dst}`;
      const text = link.down ? "down" : link.shares[by] === null ? "" : percent(link.shares[by]);
      const loud = link.down || mine || (by === "width" ? link.shares.width < 0.85 : link.shares[by] > LOUD);
      if (text && loud) said.push([mine ? Infinity : link.down ? 1e9 : by === "width" ? 1 - link.shares.width : link.shares[by], text, stroke]);
      if (loud) names.add(`${link.src} to ${link.dst}: ${text}`);
    }
    const room = [...taken];
    numbers.replaceChildren(...said.sort((a, b) => b[0] - a[0]).slice(0, NUMBERS).map(([, text, stroke]) => number(text, stroke, 11.5 / scale, room)).filter(Boolean));
    svg.setAttribute("aria-label", `The links of the network; the table below has all of them. ${[...names].slice(0, 8).join("; ")}`);
  } };
}

// from 0, the least bandwidth, to 1, the most, evenly by ratio
function bandwidths(drawing) {
  const all = drawing.links.map((l) => Math.log(l[2])), low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  return (links) => high - low < 1e-9 ? 0.5 : (Math.max(...links.map((i) => Math.log(drawing.links[i][2]))) - low) / (high - low);
}

// traffic keeps to the right of its line
function shifted([ax, ay], [bx, by], by_) {
  const far = Math.hypot(bx - ax, by - ay) || 1, x = -(by - ay) / far * by_, y = (bx - ax) / far * by_;
  return [[ax + x, ay + y], [bx + x, by + y]];
}
const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
function way(from, to, bend, off) {
  const [a, b] = shifted(from, to, off);
  return bend ? `M${point(a)}Q${point([(a[0] + b[0]) / 2, Math.max(a[1], b[1]) + bend])} ${point(b)}` : `M${point(a)}L${point(b)}`;
}
function box(x, y, anchor, text, pixels) {
  const width = LETTER * pixels * text.length, left = anchor === "end" ? x - width : anchor === "middle" ? x - width / 2 : x;
  return [left, y - 0.85 * pixels, left + width, y + 0.25 * pixels];
}
function number(text, stroke, pixels, room) {
  const [a, b] = shifted(stroke.from, stroke.to, stroke.off + (stroke.off ? 0.4 * pixels : 0));
  for (const share of [0.5, 0.38, 0.62, 0.28, 0.72]) {
    const x = a[0] + (b[0] - a[0]) * share, y = a[1] + (b[1] - a[1]) * share + stroke.bend / 2 + 0.35 * pixels, own = box(x, y, "middle", text, pixels);
    if (room.some((other) => own[0] < other[2] && other[0] < own[2] && own[1] < other[3] && other[1] < own[3])) continue;
    room.push(own);
    return shape("text", { class: "number", x, y, "text-anchor": "middle", "font-size": pixels }, text);
  }
  return null;
}

