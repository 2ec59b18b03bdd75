// The result of `verify` for one run: a summary in the panel, and a red mark at each entry that was changed.
import * as api from "./api.js";
import { announce, count, el, when } from "./dom.js";
import { copy } from "./source.js";

const WORDS = { digest: "changed", blob: "changed", missing: "missing", place: "moved", base: "without its base", anew: "replaced", cut: "cut off", late: "added later", bytes: "not readable" };
const SHOWN = 6;

/** Return a flaw in words. The first word says what happened to the entry. */
export const flaw = (each) => [el("b", {}, `${WORDS[each.how] ?? "not as it was written"}: `), each.what];

export class Proof {
  constructor(record, go) { this.record = record; this.go = go; this.place = el("section", { "aria-label": "Evidence" }); this.marked = new WeakMap(); }

  /** Check a run. Its conversation is marked then, and again when lines are added. */
  async load(run) {
    this.run = run;
    try { this.facts = await api.evidence(this.record, run); } catch (error) { this.place.replaceChildren(el("h2", {}, "Evidence"), el("p", { class: "warn" }, error.message)); return; }
    this.show(this.facts.entries);
  }

  /** Show the result; `head` is the seq of the last entry so far. */
  show(head) {
    if (!this.facts) return;
    const { flaws, checked, at, entries, covered, heads } = this.facts, later = head - entries;
    const said = !checked ? el("p", {}, "This run is long: it is checked with the whole record.")
      : flaws.length ? el("div", { class: "flaws", role: "alert" }, el("p", {}, `✕ ${count(flaws.length, "place")} of this run ${flaws.length === 1 ? "is" : "are"} not as written:`), el("ul", {}, flaws.slice(0, SHOWN).map((each) => el("li", {}, this.link(each)))), flaws.length > SHOWN ? el("p", {}, `and ${flaws.length - SHOWN} more`) : "")
      : el("p", { class: "whole-chain" }, `✓ All ${count(entries, "entry", "entries")} fit their digests.`);
    const against = !heads ? "No head that was kept elsewhere was given: a chain that somebody worked out anew would fit too." : covered === null ? "None of the heads that were given is of this run." : `Compared with a head that was kept elsewhere, of entry ${covered}${covered < entries ? `; the ${count(entries - covered, "entry", "entries")} after it no head covers` : ""}.`;
    this.place.replaceChildren(el("h2", {}, "Evidence"), said,
      el("p", { class: "quiet small" }, checked ? [copy ? "Checked when this copy was made, " : "Checked ", when(at), later > 0 ? `; ${count(later, "entry", "entries")} came since. ` : ". ", against] : ""),
      this.facts.head ? el("details", { class: "fold small" }, el("summary", {}, "The head of this run"), el("p", { class: "code head" }, this.facts.head), el("p", { class: "quiet" }, "Kept where nobody can write who can write this record, it shows later whether the run was cut off or worked out anew.")) : "",
      copy ? "" : el("p", { class: "small" }, el("button", { class: "small", type: "button", onclick: () => this.again() }, "Check again"), " ", el("a", { href: `/r/${this.record}/evidence` }, "The whole record")));
    if (this.conversation) this.mark(this.conversation, this.to);
  }

  async again() {
    for (const made of this.marked.get(this.conversation)?.values() ?? []) made();
    this.marked.delete(this.conversation);
    await this.load(this.run);
    announce(this.facts?.flaws.length ? `${count(this.facts.flaws.length, "place")} not as written` : "Nothing was changed");
  }

  link(each) {
    if (!each.seq) return flaw(each);
    return el("a", { href: `#${each.seq}`, onclick: (event) => { event.preventDefault(); this.go(each.seq); } }, flaw(each));
  }

  /** Mark the lines of a conversation, which shows entries up to `to`. */
  mark(conversation, to) {
    this.conversation = conversation; this.to = to;
    if (!this.facts) return;
    if (!this.marked.has(conversation)) this.marked.set(conversation, new Map());
    const marked = this.marked.get(conversation), { flaws, covered, entries } = this.facts;
    const put = (seq, key, made, exact) => {
      if (marked.has(key) || seq > to && !(seq > entries && to >= entries)) return;
      const drawn = conversation.items.get(seq), shows = conversation.answers.map((each) => conversation.items.get(each)).find((each) => each.line.spoken === seq);
      const item = drawn?.isConnected ? drawn : shows; // an answer is shown in place of its completion
      const place = exact && item ? item.querySelector(":scope > .said") ?? item.querySelector(":scope > header") : null;
      if (place?.matches("header")) place.after(made); else if (place) place.prepend(made); else this.after(conversation, seq, made);
      if (exact && item) item.classList.add("flawed");
      marked.set(key, () => { made.remove(); item?.classList.remove("flawed"); });
    };
    for (const each of flaws) if (each.seq) put(each.seq, `${each.seq} ${each.how}`, el("p", { class: "flaw", id: conversation.items.get(each.seq)?.isConnected ? undefined : `e${each.seq}` }, "✕ ", flaw(each)), true);
    if (covered !== null && covered < entries) put(covered, "covered", el("p", { class: "covered" }, "A head that was kept elsewhere covers all up to here."), false);
  }

  /** Put a mark after the last item before an entry without an item, such as one that only Gesta needs. */
  after(conversation, seq, made) {
    const shown = ([each, item]) => each <= seq && item.isConnected && !item.matches("section");
    const before = Math.max(0, ...[...conversation.items].filter(shown).map(([each]) => each)), turn = Math.max(0, ...[...conversation.turns.keys()].filter((each) => each <= seq));
    let place = before > turn ? conversation.items.get(before) : conversation.turns.get(turn)?.head;
    while (place?.nextElementSibling?.matches(".flaw, .covered")) place = place.nextElementSibling; // after marks of earlier entries
    if (place) place.after(made);
    else conversation.end.parentElement?.prepend(made);
  }
}
