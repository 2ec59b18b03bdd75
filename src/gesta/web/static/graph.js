// Draws the lineage of an answer as SVG: groups, lines, and a card for each entry. The server computed their places.
import { el } from "./dom.js";
import { Map_ } from "./map.js";
import { path } from "./source.js";
import { named, plain, readable } from "./why.js";

const MOST = 2, LEAST = 0.01, READABLE = 0.7, READABLE_NARROW = 0.85, ROUND = 8;

export class Graph {
  /** `hear`: an object whose functions get the id of a card: `look(id)`, `open(id)`, `fold(id)`. */
  constructor(canvas, hear) {
    this.canvas = canvas; this.hear = hear; this.scale = 1; this.map = new Map_(canvas);
    canvas.addEventListener("wheel", (event) => { if (event.ctrlKey) { event.preventDefault(); this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event); } }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.drag(event));
    canvas.addEventListener("dragstart", (event) => event.preventDefault());
  }

  draw(facts, run) {
    this.facts = facts; this.cards = new Map(); this.lines = [];
    const order = [...facts.groups].sort((a, b) => a.depth - b.depth);
    this.svg = el("svg:svg", { class: "graph", viewBox: `0 0 ${facts.width} ${facts.height}`, "aria-hidden": "true" },
      el("svg:defs", {}, ["", "lit", "drawn"].map((name) => el("svg:marker", { id: `arrow${name}`, class: name, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, el("svg:path", { d: "M0 0L8 4L0 8z" })))),
      order.filter((each) => !each.folded).map((each) => this.group(each)),
      facts.edges.map((each) => this.line(each)),
      facts.nodes.map((each) => this.card(each, run, facts.id)),
      order.filter((each) => each.folded).map((each) => this.folded(each)));
    this.canvas.replaceChildren(this.svg);
  }

  group(each) {
    return el("svg:g", { class: `group ${each.depth ? "inner" : ""}` },
      el("svg:rect", { x: each.x, y: each.y, width: each.width, height: each.height, rx: 12 }),
      written(each.x, each.y, each.width, 34, el("button", { class: "title", tabindex: -1, title: "Fold", onclick: () => this.hear.fold(each.id) }, "▾ ", each.title)));
  }

  line(each) {
    const made = el("svg:path", { class: `line ${each.kind}`, d: way(each.points), "marker-end": arrow(each) });
    this.lines.push({ ...each, made });
    return made;
  }

  card(node, run, target) {
    const href = `${path().replace(/\/run\/.*/, "")}/run/${encodeURIComponent(node.run)}#${node.seq}`;
    const made = el("svg:a", { class: `card ${node.type} ${node.id === target ? "target" : ""}`, href, tabindex: -1, onpointermove: (event) => this.point(event, node.id), onclick: (event) => this.press(event, node.id) },
      el("svg:rect", { x: node.x, y: node.y, width: node.width, height: node.height, rx: 8 }),
      el("svg:rect", { class: "edge", x: node.x, y: node.y + 6, width: 4, height: node.height - 12, rx: 2 }),
      written(node.x + 4, node.y, node.width - 4, node.height, el("div", { class: "inside" },
        el("small", {}, named(node), node.run === run ? "" : ` of ${node.run.slice(0, 8)}`), node.text ? el("p", { dir: "auto" }, excerpt(node)) : el("p", { class: "quiet" }, "no words"))));
    this.cards.set(node.id, { ...node, made, href });
    return made;
  }

  folded(each) {
    const counts = Object.entries(each.counts).map(([type, number]) => `${number} ${named({ type }, number)}`).join(", ");
    const made = el("svg:g", { class: "card folded", onpointermove: (event) => this.point(event, each.id), onclick: () => { if (!this.dragged) this.hear.fold(each.id); } },
      el("svg:rect", { class: "under", x: each.x + 5, y: each.y + 5, width: each.width, height: each.height, rx: 8 }),
      el("svg:rect", { x: each.x, y: each.y, width: each.width, height: each.height, rx: 8 }),
      written(each.x + 4, each.y, each.width - 4, each.height, el("div", { class: "inside" }, el("b", {}, "▸ ", each.title), el("p", {}, counts))));
    this.cards.set(each.id, { ...each, made, text: counts });
    return made;
  }

  /** Show the card under the pointer if the pointer was moved, and not if the card was scrolled below it. */
  point(event, id) {
    if (event.pointerType === "touch") return;
    const at = `${event.clientX} ${event.clientY}`;
    if (at !== this.at && !this.cards.get(id).made.classList.contains("here")) this.hear.look(id);
    this.at = at;
  }

  /** Go from a card to its entry, unless it was dragged. With a finger, the first tap only shows the card. */
  press(event, id) {
    const first = event.pointerType === "touch" && !this.cards.get(id).made.classList.contains("here");
    if (this.dragged || first) event.preventDefault();
    if (first) this.hear.look(id);
  }

  /** Mark a card and its lines, and dim all others. */
  mark(id) {
    for (const [each, card] of this.cards) card.made.classList.toggle("here", each === id);
    for (const each of this.lines) {
      const lit = each.from === id || each.to === id;
      each.made.classList.toggle("lit", lit);
      each.made.setAttribute("marker-end", arrow(each, lit));
    }
  }

  /** Mark the cards that contain some words of the answer. */
  light(ids) { for (const [each, card] of this.cards) card.made.classList.toggle("lit", ids.includes(each)); }

  /** Return the id of the card that an arrow key leads to: along a line if there is one, otherwise the nearest on that side. */
  beside(id, key) {
    const here = this.cards.get(id);
    if (!here) return this.facts.id;
    const along = { ArrowUp: this.lines.filter((each) => each.to === id).map((each) => each.from), ArrowDown: this.lines.filter((each) => each.from === id).map((each) => each.to) }[key] ?? [];
    const side = [...this.cards.values()].filter((each) => each !== here && towards(here, each, key));
    const linked = side.filter((each) => along.includes(each.id));
    const level = key === "ArrowLeft" || key === "ArrowRight" ? side.filter((each) => Math.abs(each.y - here.y) < each.height) : side;
    const found = linked.length ? linked : level;
    return found.sort((a, b) => far(here, a, key) - far(here, b, key))[0]?.id ?? id;
  }

  see(id) {
    const card = this.cards.get(id);
    if (!card) return;
    const { canvas, scale } = this, left = card.x * scale, top = card.y * scale, pad = 60;
    const bring = (from, size, at, long) => at < from + pad ? at - pad : at + long > from + size - pad ? at + long - size + pad : from;
    canvas.scrollLeft = bring(canvas.scrollLeft, canvas.clientWidth, left, card.width * scale);
    canvas.scrollTop = bring(canvas.scrollTop, canvas.clientHeight, top, card.height * scale);
  }

  /** Fit the picture into the canvas: all of it, or only its width if it would be too small to read. */
  fit(whole) {
    for (let twice = 0; twice < 2; twice += 1) { // the map, if there is one, takes a part of the width
      const across = (this.canvas.clientWidth - 4) / this.facts.width, down = (this.canvas.clientHeight - 4) / this.facts.height;
      const least = this.canvas.clientWidth < 700 ? READABLE_NARROW : READABLE;
      this.resize(whole ? Math.min(across, down, 1) : Math.min(1, Math.max(across, least)));
    }
  }

  zoom(by, event) {
    const box = this.canvas.getBoundingClientRect(), x = event ? event.clientX - box.left : box.width / 2, y = event ? event.clientY - box.top : box.height / 2;
    const at = [(this.canvas.scrollLeft + x) / this.scale, (this.canvas.scrollTop + y) / this.scale];
    this.resize(this.scale * by);
    this.canvas.scrollTo(at[0] * this.scale - x, at[1] * this.scale - y);
  }

  resize(scale) {
    this.scale = Math.min(MOST, Math.max(LEAST, scale));
    this.svg.setAttribute("width", this.facts.width * this.scale);
    this.svg.setAttribute("height", this.facts.height * this.scale);
    this.map.draw(this.facts, this.scale);
  }

  /** Move the picture when a person drags the background or a card. */
  drag(event) {
    this.dragged = false;
    if (event.button !== 0 || event.pointerType !== "mouse") return;
    const { canvas } = this, from = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop];
    const move = (now) => {
      if (Math.abs(now.clientX - event.clientX) + Math.abs(now.clientY - event.clientY) > 4) this.dragged = true;
      if (this.dragged) canvas.scrollTo(from[0] - now.clientX, from[1] - now.clientY);
    };
    const end = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", end); };
    addEventListener("pointermove", move); addEventListener("pointerup", end);
    if (!event.target.closest("button")) this.canvas.focus({ preventScroll: true });
  }
}

const arrow = (each, lit) => `url(#arrow${each.kind === "drawn" ? "drawn" : lit ? "lit" : ""})`;
const written = (x, y, width, height, ...inside) => el("svg:foreignObject", { x, y, width, height }, inside);

/** Return the part of a text around the first words that the answer repeats. */
export function excerpt(node, long = 130) {
  const marks = node.marks ?? [], text = readable(node, marks), first = marks[0]?.[0] ?? 0;
  let from = first > 30 && long < text.length ? Math.max(0, first - 20) : 0;
  const end = Math.min(text.length, from + long), made = [from || node.cut?.[0] ? "…" : ""];
  for (const [start, stop] of marks) {
    if (start < from || start >= end) continue;
    made.push(plain(text.slice(from, start), text), el("mark", {}, plain(text.slice(start, Math.min(stop, end)), text)));
    from = Math.min(stop, end);
  }
  return [...made, plain(text.slice(from, end), text), end < text.length || node.cut?.[1] ? "…" : ""];
}

function towards(here, each, key) {
  const x = each.x + each.width / 2 - here.x - here.width / 2, y = each.y - here.y;
  return { ArrowUp: y < -1, ArrowDown: y > 1, ArrowLeft: x < -1, ArrowRight: x > 1 }[key];
}

function far(here, each, key) {
  const x = Math.abs(each.x + each.width / 2 - here.x - here.width / 2), y = Math.abs(each.y - here.y);
  return key === "ArrowUp" || key === "ArrowDown" ? y + x / 4 : x + y * 4;
}

/** Return the SVG path of a line: a curve between layers, or along a lane with round corners. */
function way(points) {
  const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  if (!points.length) return "";
  if (points.length === 2) {
    const [[x, y], [to, end]] = points, middle = (y + end) / 2;
    return `M${at([x, y])}C${at([x, middle])} ${at([to, middle])} ${at([to, end])}`;
  }
  const made = [`M${at(points[0])}`];
  for (let place = 1; place < points.length - 1; place += 1) {
    const [before, corner, after] = [points[place - 1], points[place], points[place + 1]];
    made.push(`L${at(near(corner, before))}Q${at(corner)} ${at(near(corner, after))}`);
  }
  return `${made.join("")}L${at(points.at(-1))}`;
}

function near(corner, other) {
  const x = other[0] - corner[0], y = other[1] - corner[1], long = Math.hypot(x, y) || 1, part = Math.min(ROUND, long / 2) / long;
  return [corner[0] + x * part, corner[1] + y * part];
}
