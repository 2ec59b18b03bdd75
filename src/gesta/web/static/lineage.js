// The page about the lineage of one answer: a graph, and beside it the text of the answer and of the chosen entry.
import * as api from "./api.js";
import { announce, count, el } from "./dom.js";
import { Graph, excerpt } from "./graph.js";
import { href, path, query } from "./source.js";
import { named, plain } from "./why.js";

export async function lineage(place, record, id, seq, title) {
  const glance = await api.glance(record, id);
  title(glance);
  const page = new Page(record, glance.run, seq);
  place.replaceChildren(page.made);
  await page.load();
  const resized = () => { page.below(); page.graph.fit(page.whole); };
  addEventListener("resize", resized);
  return () => removeEventListener("resize", resized);
}

class Page {
  constructor(record, run, seq) {
    const asked = query();
    this.record = record; this.run = run; this.seq = seq;
    this.all = asked.get("all") === "1"; this.turned = new Set((asked.get("turned") ?? "").split(",").filter(Boolean));
    try { this.here = decodeURIComponent(location.hash.slice(1)); } catch { this.here = ""; } // an address that somebody cut
    this.canvas = el("div", { class: "canvas", tabindex: 0, role: "group", "aria-label": "The graph. Arrow keys walk from entry to entry, Enter goes to one in the conversation, f folds its turn. A list of the same follows.", onkeydown: (event) => this.key(event) });
    this.bar = el("div", { class: "bar" }); this.answer = el("div"); this.entry = el("div"); this.list = el("details", { class: "as-list" });
    this.graph = new Graph(this.canvas, { look: (each) => this.look(each, false), fold: (each) => this.turn(each) });
    this.made = el("div", { class: "lineage" }, el("section", { class: "drawing", "aria-label": "Why this answer" }, this.bar, el("div", { class: "sheet" }, this.canvas, this.graph.map.made), this.list),
      el("aside", { class: "side-panel", "aria-label": "The words" }, this.answer, this.entry));
  }

  /** Make the drawing fill the window below the top line, which is taller if a name is long. */
  below() { this.made.style.setProperty("--head", `${document.getElementById("top").offsetHeight}px`); }

  async load() {
    const asked = this.asked = {}, facts = await api.graph(this.record, this.run, this.seq, { all: this.all ? 1 : 0, turned: [...this.turned].join(",") });
    if (asked !== this.asked) return; // another request was made meanwhile
    this.facts = facts;
    this.seq = Number(this.facts.id.split(".").at(-1));
    const target = this.facts.nodes.find((each) => each.id === this.facts.id);
    this.isAnswer = !target || target.type === "Conclusion"; this.name = target ? named(target) : "";
    this.below();
    this.graph.draw(this.facts, this.run);
    this.graph.fit(this.whole);
    this.tools(); this.words(); this.told();
    const known = this.graph.cards.has(this.here) ? this.here : this.graph.cards.has(this.facts.id) ? this.facts.id : [...this.graph.cards.keys()].at(-1);
    this.look(known, true);
  }

  tools() {
    const { all, near } = this.facts, was = this.all, nodes = this.facts.nodes.length;
    const choose = (name, on, number) => el("button", { "aria-pressed": String(this.all === on), onclick: () => this.again(() => { this.all = on; }, () => { this.all = was; }) }, `${name} `, el("span", { class: "quiet" }, number.toLocaleString("en")));
    const folded = this.facts.groups.some((each) => each.folded) ? el("span", { class: "quiet small" }, `${count(nodes, "entry", "entries")} shown; the others are folded by turn.`) : "";
    const scale = (name, label, act) => el("button", { "aria-label": label, title: label, onclick: act }, name);
    this.bar.replaceChildren(
      el("h1", {}, this.isAnswer ? "Why this answer" : "Why this entry"), el("a", { href: `/r/${this.record}/run/${encodeURIComponent(this.run)}#${this.seq}` }, "in the conversation"),
      near < all ? el("span", { class: "choice" }, choose(this.facts.drawn.length ? "What it drew on" : "Without the steps between", false, near), choose("Everything before it", true, all)) : "", folded,
      this.facts.complete ? "" : el("span", { class: "warn" }, "No causes lead from it to its question: whoever wrote it down named none."),
      el("span", { class: "scale" }, scale("−", "Smaller", () => { this.graph.zoom(1 / 1.25); }), scale("+", "Larger", () => { this.graph.zoom(1.25); }),
        scale("All of it", "See all of it at once", () => { this.whole = !this.whole; this.graph.fit(this.whole); this.graph.see(this.here); })));
  }

  /** Show the answer, and mark the words that repeat an entry. */
  words() {
    const { text, drawn } = this.facts, cuts = [...new Set([0, text.length, ...drawn.flatMap((each) => [each.at, each.to])])].sort((a, b) => a - b);
    const parts = cuts.slice(0, -1).map((from, place) => {
      const to = cuts[place + 1], ids = drawn.filter((each) => each.at <= from && to <= each.to).map((each) => this.stands(each.id));
      if (!ids.length) return plain(text.slice(from, to), text, "\n");
      return el("span", { class: "from", role: "button", tabindex: 0, "data-ids": ids.join(" "), title: `from entry ${ids.map((each) => each.split(".").at(-1)).join(", ")}`,
        onmouseenter: () => this.graph.light(ids), onmouseleave: () => this.graph.light([]), onfocus: () => this.graph.light(ids), onblur: () => this.graph.light([]),
        onclick: () => this.next(ids), onkeydown: (event) => { if (event.key === "Enter") this.next(ids); } }, plain(text.slice(from, to), text, "\n"));
    });
    this.answer.replaceChildren(el("h2", {}, this.isAnswer ? "The answer" : this.name), el("p", { class: "whole said", dir: "auto" }, typeof parts[0] === "string" ? parts[0].trimStart() : parts[0], parts.slice(1)));
  }

  /** Return the id of the card that shows an entry: its own, or that of a folded turn, which the lines lead to. */
  stands(id) {
    if (this.graph.cards.has(id)) return id;
    const run = id.slice(0, id.lastIndexOf(".")), seq = Number(id.slice(run.length + 1));
    return this.facts.groups.filter((each) => each.folded && each.run === run && each.first <= seq).sort((a, b) => a.first - b.first).at(-1)?.id ?? id;
  }

  /** Go to the first source of some words; when called again, to the next one. */
  next(ids) { this.look(ids[(ids.indexOf(this.here) + 1) % ids.length], true); }

  look(id, go) {
    const card = this.graph.cards.get(id);
    if (!card) return;
    this.here = id;
    this.graph.mark(id);
    for (const each of this.answer.querySelectorAll(".from")) each.classList.toggle("lit", each.dataset.ids.split(" ").includes(id));
    const words = this.answer.querySelector(".from.lit"), box = words?.closest(".whole");
    if (box) box.scrollTop = words.offsetTop - box.offsetTop - box.clientHeight / 3; // scroll a long answer to the words
    const whole = id === this.facts.id ? [el("p", { class: "quiet small" }, `Point at an entry of the graph to read it${this.facts.drawn.length ? ", or at marked words to see where they come from" : ""}. The arrow keys walk along the lines, Enter goes to the entry in the conversation.`)] : card.type ? [el("h2", {}, named(card)), el("p", { class: "quiet small" }, card.inferred ? "An importer inferred what it was made from. " : "", el("a", { href: card.href }, "Go to it in the conversation")), el("p", { class: "whole said", dir: "auto" }, excerpt(card, 1000))]
      : [el("h2", {}, card.title), el("p", {}, card.text), el("button", { onclick: () => this.turn(id) }, "Open it")];
    this.entry.replaceChildren(...whole);
    if (!go) return;
    this.graph.see(id);
    history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  }

  key(event) {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const card = this.graph.cards.get(this.here);
    if (event.key.startsWith("Arrow")) {
      this.look(this.graph.beside(this.here, event.key), true);
      const now = this.graph.cards.get(this.here);
      announce(now.type ? `${named(now)}: ${now.text.slice(0, 160)}` : `${now.title}, folded: ${now.text}`);
    } else if (event.key === "Enter" && card) { if (card.href) location.assign(href(card.href)); else this.turn(card.id); }
    else if (event.key === "f" && card) this.turn(card.type ? this.around(card) : card.id);
    else if (event.key === "+" || event.key === "-") this.graph.zoom(event.key === "+" ? 1.25 : 0.8);
    else return;
    event.preventDefault();
  }

  /** Return the id of the innermost group around a card. */
  around(card) {
    const holds = (each) => !each.folded && each.x <= card.x && each.y <= card.y && each.x + each.width >= card.x + card.width && each.y + each.height >= card.y + card.height;
    return this.facts.groups.filter(holds).sort((a, b) => b.depth - a.depth)[0]?.id;
  }

  turn(id) {
    if (!id) return;
    const change = () => { if (!this.turned.delete(id)) this.turned.add(id); };
    if (!this.facts.groups.find((each) => each.id === id)?.folded) this.here = id;
    this.again(change, change);
  }

  /** Draw the graph with a change, and undo the change if the viewer does not answer. */
  async again(change, back) {
    const had = document.activeElement === this.canvas;
    change();
    try { await this.load(); } catch (error) {
      back();
      this.bar.querySelector(".failed")?.remove();
      this.bar.append(el("span", { class: "warn failed", role: "alert" }, error.message));
      return;
    }
    const facts = new URLSearchParams({ ...(this.all ? { all: "1" } : {}), ...(this.turned.size ? { turned: [...this.turned].join(",") } : {}) });
    history.replaceState(null, "", `${href(`${path()}${facts.size ? `?${facts}` : ""}`)}${location.hash}`);
    if (had) this.canvas.focus({ preventScroll: true });
  }

  /** Write the graph as a list for screen readers. */
  told() {
    const rows = [...this.graph.cards.values()].sort((a, b) => a.y - b.y || a.x - b.x).map((card) => {
      const above = this.facts.edges.filter((each) => each.to === card.id).map((each) => this.graph.cards.get(each.from)).filter(Boolean).map((each) => each.type ? named(each) : each.title);
      const from = above.length ? el("small", { class: "quiet" }, ` from: ${above.join("; ")}`) : "";
      return el("li", {}, card.href ? el("a", { href: card.href }, `${named(card)}: `, excerpt(card)) : el("button", { onclick: () => this.turn(card.id) }, `${card.title}: ${card.text}`), from);
    });
    this.list.replaceChildren(el("summary", {}, "The same as a list"), el("ol", {}, rows));
  }
}
