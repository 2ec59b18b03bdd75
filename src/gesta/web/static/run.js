// The page about one run: its conversation, loaded in pages, and the panel beside it. New entries are added live.
import * as api from "./api.js";
import { Children } from "./children.js";
import { Conversation, fold } from "./conversation.js";
import { announce, connection, count, el } from "./dom.js";
import { Glance } from "./glance.js";
import { Proof } from "./proof.js";
import { forms } from "./switch.js";
import { underlined, why } from "./why.js";
import { markdown } from "./markdown.js";
import { FILLED_IN, card } from "./waits.js";

const PAGE = 200, AT_ONCE = 25; // number of entries in one answer, and drawn at once
const SETTLES = 4; // number of frames after which the heights on a page are known
const SUMMED = 1000; // up to this number, child runs are loaded at once for their sums

export async function run(place, record, id, title) {
  const facts = await api.glance(record, id);
  const talk = el("div", { class: "talk" }), panel = el("aside", { class: "side-panel", "aria-label": "The run at a glance" });
  place.replaceChildren(el("div", { class: "run" }, el("div", {}, forms(record, facts.run, ""), talk), panel));
  const page = new Page(record, facts, talk, panel);
  title(facts);
  const hash = () => Number(location.hash.slice(1)) || 0, first = hash();
  const moved = () => page.conversation && page.go(hash());
  addEventListener("hashchange", moved);
  await page.load(first > PAGE ? first - 20 : 1);
  const wanted = hash(); // a person may have followed a link meanwhile
  if (wanted) {
    await page.go(wanted);
    for (let frame = 0; frame < SETTLES && page.here; frame += 1) { // items above it get their height when they are drawn
      await new Promise((done) => requestAnimationFrame(done));
      page.here?.scrollIntoView({ block: "center" }); // meanwhile the person may have followed another link
    }
  }
  const answer = page.lastAnswer();
  if (answer) page.why(answer);
  page.proof.load(page.id);
  let timer = 0;
  const refresh = async () => {
    try { page.glance(await api.glance(record, id)); } catch { return; } // the connection reports the error and reconnects
    title(page.facts);
  };
  page.refresh = refresh;
  const leave = api.follow(record, { run: facts.run }, "lines", (lines) => {
    if (page.hear(lines)) announce(count(lines.length, "new entry", "new entries"));
    clearTimeout(timer);
    timer = setTimeout(refresh, 120);
  }, (state) => { connection(state); if (state === "open") refresh(); });
  const keys = (event) => page.key(event);
  document.addEventListener("keydown", keys);
  const print = () => page.conversation.near.all();
  addEventListener("beforeprint", print);
  return () => { leave(); page.conversation.near.leave(); removeEventListener("beforeprint", print); document.removeEventListener("keydown", keys); removeEventListener("hashchange", moved); };
}

class Page {
  constructor(record, facts, talk, panel) {
    this.record = record; this.talk = talk;
    this.beside = new Glance(panel, record, (seq) => this.go(seq));
    this.end = el("div"); this.waits = el("div"); this.children = new Children(record, facts.run);
    this.proof = new Proof(record, (seq) => this.go(seq));
    panel.append(this.proof.place);
    this.watch = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) this.more(); }, { rootMargin: "800px" });
    this.glance(facts);
  }

  get id() { return this.facts.run; }
  get whole() { return this.to >= this.facts.head; }

  glance(facts) {
    this.facts = facts;
    this.beside.show(facts);
    this.proof.show(facts.head);
    this.conversation?.about(facts.turns);
    if (this.conversation && facts.below) this.children.again(facts.below).then((all) => { this.conversation.started(all); this.beside.below(this.children); }, () => {});
    this.asks().catch(() => {}); // the connection reports the error and reconnects
  }

  /** Show below the conversation what the run waits for, so that a person can answer there. */
  async asks() {
    const found = this.facts.waiting.length ? await api.waiting(this.record) : { waiting: [] };
    const own = found.waiting.filter((each) => each.wait.session === this.facts.session);
    if (this.waits.querySelector(FILLED_IN) && own.length) return;
    this.waits.replaceChildren(...own.map((each) => el("div", { class: "item" }, el("div", { class: "who" }, "waits"), el("div", { class: "said" }, card(this.record, each, found.by, () => this.refresh())))));
  }

  /** Show the lines from an entry on, in place of the lines shown so far. */
  async load(from) {
    this.from = from; this.to = from - 1;
    const before = from > 1 ? el("button", { class: "more", onclick: () => this.load(Math.max(1, from - PAGE)) }, "Show what came before") : "";
    this.talk.replaceChildren(...(before ? [before] : []), this.end, this.waits);
    this.conversation?.near.leave();
    this.here = this.explained = null;
    this.conversation = new Conversation(this.record, this.facts, this.end, (seq) => this.why(seq, true));
    await this.draw(await api.lines(this.record, this.id, this.to, PAGE));
    this.watch.unobserve(this.end);
    this.watch.observe(this.end);
  }

  async more() {
    if (this.loading || this.whole) return;
    this.loading = true;
    try {
      const lines = await api.lines(this.record, this.id, this.to, PAGE);
      await this.draw(lines);
      if (!lines.length) this.to = this.facts.head;
    } catch { /* the connection says so, and scrolling asks again */ } finally { this.loading = false; }
    this.watch.unobserve(this.end);
    this.watch.observe(this.end); // it reports again if it is still in sight
  }

  /** Add new lines, if all lines before them are shown. */
  hear(lines) {
    const next = lines.filter((line) => line.seq > this.to);
    if (!next.length || next[0].seq !== this.to + 1) return false;
    this.add(next);
    return true;
  }

  /** Add the lines of a page, some at a time, so that the page goes on scrolling meanwhile. */
  async draw(lines) {
    const conversation = this.conversation;
    for (let place = 0; place < lines.length && conversation === this.conversation; place += AT_ONCE) {
      if (place) await new Promise((done) => setTimeout(done));
      if (conversation === this.conversation) this.add(lines.slice(place, place + AT_ONCE));
    }
  }

  add(lines) {
    for (const line of lines) {
      if (line.seq <= this.to) continue;
      this.to = line.seq;
      this.conversation.draw({ text: "", who: "", ...line }); // the server leaves out empty members
    }
    const { conversation } = this;
    if (lines.length && this.facts.below) this.children.until(this.facts.below > SUMMED ? lines.at(-1).at : "9999", this.facts.below).then((all) => { conversation.started(all); this.beside.below(this.children); }, () => {});
    this.proof.mark(this.conversation, this.to);
  }

  /** Go to an entry: show it, mark it, and put its address into the browser. */
  async go(seq) {
    if (!seq) return;
    if (!this.find(seq) && (seq < this.from || seq > this.to) && seq <= this.facts.head) await this.load(Math.max(1, seq - 20));
    const found = this.find(seq) ?? this.following(seq);
    if (!found) return;
    this.here?.classList.remove("here");
    this.here = found;
    found.classList.add("here");
    this.conversation.near.show(found);
    fold(found, true);
    history.replaceState(null, "", `#${seq}`);
    const call = found.querySelector("details.call");
    if (call) call.open = true;
    found.tabIndex = -1;
    found.focus({ preventScroll: true }); // screen readers read it, and Tab continues from here
    found.scrollIntoView({ block: "center" });
  }

  find(seq) {
    const drawn = this.conversation.items.get(seq);
    return drawn?.isConnected ? drawn : this.talk.querySelector(`#e${Number(seq)}`) ?? drawn;
  }

  /** Return the next item after an entry that has no item of its own, such as the end of a span. */
  following(seq) {
    const after = [...this.conversation.items.keys()].filter((each) => each > seq);
    return after.length ? this.find(Math.min(...after)) : undefined;
  }

  /** Return the last answer on the page for which a tool was used; if there is none, the last answer. */
  lastAnswer() {
    const answers = this.conversation.answers, turn = this.facts.turns.findLast((each) => each.calls);
    const own = (seq) => this.facts.turns.findLast((each) => each.seq <= seq) === turn;
    return answers.findLast((seq) => turn && own(seq)) ?? answers.at(-1);
  }

  /** Show why an answer was given, and mark its words. */
  async why(seq, scroll = false) {
    const item = this.find(seq), panel = this.beside.why;
    const light = (id, on) => {
      for (const each of item?.querySelectorAll(".from") ?? []) if (each.dataset.id === id) each.classList.toggle("lit", on);
      panel.querySelector(`li[data-id="${CSS.escape(id)}"]`)?.classList.toggle("lit", on);
    };
    const passages = await why(panel, this.record, this.id, seq, (each) => this.go(each), light);
    const before = this.explained;
    this.explained = item;
    for (const each of new Set([before, item].filter(Boolean))) {
      each.classList.toggle("explained", each === item);
      const marked = each === item ? (part) => underlined(part, passages, light, (other) => this.go(other)) : undefined;
      each.words.replaceChildren(...markdown(each.line.text, marked));
    }
    if (scroll) panel.scrollIntoView({ block: "nearest" });
  }

  /** Keys: j and k go to the next and the previous item, f opens and folds all calls. */
  key(event) {
    if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
    const items = [...new Set(this.conversation.items.values())].filter((each) => each.matches(".item[id]")), here = items.indexOf(this.here);
    const step = { j: items[here + 1], k: items[Math.max(0, here - 1)] }[event.key];
    if (step) this.go(Number(step.id.slice(1)));
    else if (event.key === "f") {
      const calls = [...this.conversation.calls.values()].map((each) => each.box), open = calls.some((each) => !each.open);
      for (const each of calls) each.open = open;
    } else return;
    event.preventDefault();
  }
}
