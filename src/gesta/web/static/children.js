// The runs that a run started, each with its answer and cost, at the place where it was called.
// When a person opens one, its conversation is shown in place.
import * as api from "./api.js";
import { count, el, STATES, took } from "./dom.js";
import { text } from "./value.js";

const PAGE = 200, MANY = 6;

/** Return what a run cost, in words. `facts`: its `totals`. */
export function cost(facts) {
  const tokens = facts.tokens_in + facts.tokens_out;
  return [tokens ? count(tokens, "token") : "", facts.cached ? `${facts.cached.toLocaleString("en")} cached` : "", facts.usd !== null && facts.usd !== undefined ? money(facts.usd) : ""].filter(Boolean).join(" · ");
}

export const money = (usd) => `$${usd.toFixed(usd < 1 ? 4 : 2)}`;
export const lasted = (facts) => took(Date.parse(facts.last_at) - Date.parse(facts.at));
export const ended = (facts) => STATES[facts.reason] ?? facts.reason ?? "open";

/** Loads the runs that a run started, a page at a time, in the order in which they began. */
export class Children {
  constructor(record, run) { this.record = record; this.run = run; this.all = []; this.count = 0; this.before = Promise.resolve(); }

  /** Load the runs that began up to a time, and return all loaded ones. `number`: how many there are in all. */
  until(at, number) { return this.next(() => this.read(at, number)); }

  /** Run one task after another, so that no page is loaded twice. */
  next(work) {
    const done = this.before.then(work);
    this.before = done.catch(() => {});
    return done;
  }

  async read(at, number) {
    this.count = number;
    while (this.all.length < this.count && (!this.all.length || this.all.at(-1).at <= at)) {
      const page = await api.children(this.record, this.run, this.all.length);
      this.count = page.count;
      if (!page.children.length) break;
      this.all.push(...page.children);
    }
    return this.all;
  }

  /** Load again the runs that had not ended, and load new ones. */
  again(number) {
    return this.next(() => {
      const first = this.all.findIndex((each) => each.reason === null);
      if (first >= 0) this.all = this.all.slice(0, first - (first % PAGE));
      return this.read("9999", number);
    });
  }
}

/** Return the runs that one call started. `inside(place, facts)` draws the conversation of one of them. */
export function boxes(record, children, inside) {
  const made = children.map((each) => box(record, each, inside));
  if (made.length <= MANY) return el("div", { class: "children" }, made);
  return el("div", { class: "children" }, el("details", { class: "fold" }, el("summary", {}, count(made.length, "run"), `, ${sum(children)}`), made));
}

/** Return in words how several runs ended and what they cost. */
export function sum(children) {
  const ends = new Map(), effects = new Map(), all = { tokens_in: 0, tokens_out: 0, cached: 0, usd: null };
  for (const { totals, reason } of children) {
    ends.set(reason ?? "open", (ends.get(reason ?? "open") ?? 0) + 1);
    for (const name of ["tokens_in", "tokens_out", "cached"]) all[name] += totals[name];
    for (const [name, number] of Object.entries(totals.effects)) effects.set(name, (effects.get(name) ?? 0) + number);
    if (totals.usd !== null) all.usd = (all.usd ?? 0) + totals.usd;
  }
  return [...[...ends].map(([name, number]) => `${number} ${name}`), ...[...effects].map(([name, number]) => `${name} happened ${number === 1 ? "once" : `${number} times`}`), cost(all)].filter(Boolean).join(" · ");
}

function box(record, facts, inside) {
  const tone = facts.reason === "answered" ? "settled" : facts.reason === null ? "waiting" : "fault";
  const place = el("div", { class: "inside" });
  const words = facts.answer.replace(/\s+/g, " ").slice(0, 160);
  const opened = async () => {
    if (!made.open || place.firstChild) return;
    place.append(el("p", { class: "quiet small" }, "…"));
    try { await inside(place, facts); } catch (error) { place.replaceChildren(el("p", { class: "warn" }, error.message)); }
  };
  const made = el("details", { ontoggle: opened },
    el("summary", {}, el("b", {}, facts.name), el("span", { class: `chip ${tone}` }, ended(facts)), el("span", { class: "answered" }, words),
      el("span", { class: "took" }, [lasted(facts), cost(facts.totals), facts.below ? count(facts.below, "run") + " below" : "", facts.totals.deaths ? "a process died" : "", facts.totals.doubts > facts.totals.settled ? "in doubt" : ""].filter(Boolean).join(" · "))), place);
  return el("div", { class: "child" }, made, el("a", { class: "small", href: `/r/${record}/run/${facts.run}`, "aria-label": `Go to the run of ${facts.name}` }, "go to run"));
}

/** Draw a run inside another one: its first lines, and more on demand. `conversation(end, run)` returns the object that draws them. */
export async function drawn(place, record, facts, conversation) {
  const own = await api.glance(record, facts.run), end = el("div"), children = new Children(record, facts.run);
  place.replaceChildren(end);
  const page = conversation(end, own);
  let after = 0;
  const more = el("button", { class: "more", onclick: () => next() }, "Show more of this run");
  const next = async () => {
    const lines = await api.lines(record, facts.run, after, PAGE);
    for (const line of lines) page.draw({ text: "", who: "", ...line });
    if (own.below && lines.length) page.started(await children.until(lines.at(-1).at, own.below));
    after = lines.at(-1)?.seq ?? own.head;
    more.remove();
    if (after < own.head) place.append(more);
  };
  await next();
  if (!place.querySelector(".item")) place.append(text(facts.answer));
}
