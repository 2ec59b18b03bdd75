// A small map of a large graph. A frame marks the visible part; a click or a drag moves it.
import { el } from "./dom.js";

const LARGE = 2.5;

export class Map_ {
  constructor(canvas) {
    this.canvas = canvas; this.made = el("div", { class: "map", hidden: true, "aria-hidden": "true" });
    canvas.addEventListener("scroll", () => this.frame());
    this.made.addEventListener("pointerdown", (event) => { this.made.setPointerCapture(event.pointerId); this.go(event); });
    this.made.addEventListener("pointermove", (event) => { if (event.buttons) this.go(event); });
  }

  /** Draw the map if the graph is much taller than its visible part. */
  draw(facts, scale) {
    this.facts = facts; this.scale = scale;
    this.made.hidden = facts.height * scale < this.canvas.clientHeight * LARGE;
    if (this.made.hidden) return;
    const words = new Set(facts.drawn.map((each) => each.id)), rect = (each, name) => el("svg:rect", { class: name, x: each.x, y: each.y, width: each.width, height: each.height });
    this.seen = el("svg:rect", { class: "seen" });
    this.made.replaceChildren(el("svg:svg", { viewBox: `0 0 ${facts.width} ${facts.height}`, preserveAspectRatio: "none" },
      facts.groups.map((each) => rect(each, each.folded ? "shut" : "box")), facts.nodes.map((each) => rect(each, words.has(each.id) || each.id === facts.id ? "words" : "")), this.seen));
    this.frame();
  }

  frame() {
    if (this.made.hidden || !this.seen) return;
    const { canvas, scale, facts } = this;
    this.seen.setAttribute("x", 0); this.seen.setAttribute("width", facts.width);
    this.seen.setAttribute("y", canvas.scrollTop / scale); this.seen.setAttribute("height", canvas.clientHeight / scale);
  }

  go(event) {
    const box = this.made.getBoundingClientRect(), part = (event.clientY - box.top) / box.height;
    this.canvas.scrollTop = part * this.facts.height * this.scale - this.canvas.clientHeight / 2;
  }
}
