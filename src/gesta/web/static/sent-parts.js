// The parts of a model request: the changes in it, its messages, and its bytes. Long parts are loaded on demand.
import * as api from "./api.js";
import { count, el } from "./dom.js";
import { shown } from "./value.js";

const CHANGES = { added: ["+", "added"], changed: ["~", "changed"], again: ["=", "the same, behind a change"], gone: ["−", "no longer sent"] };
const PAGE = 50, FOLDED = 4;
const NAMES = { tools_in: "where calls stand", prompt: "the prompt of the formatter" };

export class Parts {
  constructor(place, record, run, seq, way, facts) {
    this.place = place; this.record = record; this.run = run; this.facts = facts; this.drawn = 0;
    this.read = api.sentPart(record, run, seq, way); this.body = api.sentBody(record, run, seq, way);
  }

  /** Show elements, unless another request was made meanwhile. */
  put(drawn, ...made) { if (drawn === this.drawn) this.place.replaceChildren(...made.flat(Infinity)); }

  async changes() {
    const drawn = ++this.drawn, { facts } = this, first = facts.before === null;
    const head = facts.changed.length ? el("div", { class: "wait" }, el("b", {}, "Changed before the first message, so no cache helps: "), facts.changed.map((each) => NAMES[each] ?? each).join(", ")) : "";
    const kept = facts.kept ? this.fold(`${count(facts.kept, "message")} as before`, (inside) => this.more(inside, 0, facts.kept)) : "";
    const added = facts.steps.filter((each) => each.change === "added").length, nothing = !facts.steps.length && !facts.changed.length;
    this.put(drawn, el("h2", { class: "unseen" }, "What changed"),
      el("p", { class: "quiet" }, first ? `The first request of this run: ${count(facts.messages, "message")}.` : nothing ? "The same request again: nothing was added, changed or left out." : `Compared with the request ${facts.exchange?.on_record === false ? "that led to" : "in"} entry ${facts.before}: ${summary(facts)}.`),
      head, kept, this.steps(facts.steps),
      facts.steps_total > facts.steps.length ? el("p", { class: "note" }, `The first ${facts.steps.length} of ${facts.steps_total.toLocaleString("en")} changed messages. “All of it” shows the others.`) : "",
      first && added && facts.tools ? el("p", { class: "note" }, `${count(facts.tools, "tool")} and the instructions go with it: see “All of it”.`) : "");
  }

  /** Return the changed messages. Equal messages after a change are folded into one row. */
  steps(steps) {
    const rows = [];
    for (const step of steps) if (step.change === "again" && rows.at(-1)?.[0].change === "again") rows.at(-1).push(step); else rows.push([step]);
    return rows.map((row) => row.length < FOLDED ? row.map((step) => this.step(step)) : this.fold(`${count(row.length, "message")} the same, but behind a change`, (inside) => inside.append(...row.map((step) => this.step(step)))));
  }

  step(step) {
    const [sign, words] = CHANGES[step.change], { left_out_by: by } = this.facts;
    const why = step.change === "gone" && by.length ? [", left out by ", by.map((seq, place) => [place ? ", " : "", this.entry(seq)])] : "";
    const before = step.change === "changed" ? el("details", { class: "fold" }, el("summary", {}, "what it was"), this.words(step.before, true)) : "";
    const message = step.change === "gone" ? step.before : step.message;
    const said = step.change === "added" ? this.words(message) : step.change === "changed" ? [this.words(message), before] : el("details", { class: "fold" }, el("summary", {}, excerpt(message)), this.words(message, step.change === "gone"));
    return this.item(message, said, step.change, sign, [words, why]);
  }

  /** Return a message with its role in the margin. */
  item(message, said, change = "", sign = "", words = "") {
    const from = message.sources.length ? [" from ", message.sources.map((seq, place) => [place ? ", " : "", this.entry(seq)])] : "";
    return el("div", { class: `item message ${change}` }, el("div", { class: "who" }, sign ? el("span", { class: "sign", "aria-hidden": "true" }, sign) : "", message.role, message.tool ? el("small", {}, message.tool) : ""),
      el("div", { class: "said" }, el("p", { class: "quiet small about" }, words, words && from ? " ·" : "", from, ` · ${message.bytes.toLocaleString("en")} bytes`, message.failed ? " · an error" : ""), said));
  }

  entry(seq) { return el("a", { href: `/r/${this.record}/run/${encodeURIComponent(this.run)}#${seq}` }, `entry ${seq}`); }

  /** Return the text, the files and the calls of a message. `old`: whether it belongs to the request before. */
  words(message, old = false) {
    const box = el("div", { class: "plain", dir: "auto" }, message.text ? el("div", { class: "as-is" }, message.text) : "", message.parts.map((part) => el("div", { class: "note" }, part)),
      message.calls.map((call) => el("div", { class: "called" }, el("span", { class: "code" }, `calls ${call.name}`), call.args && Object.keys(call.args).length ? shown(call.args) : "")));
    if (!message.text && !message.parts.length && !message.calls.length) box.append(el("span", { class: "quiet" }, "an empty text"));
    if (!message.more) return box;
    const button = el("button", { class: "small", onclick: async () => {
      button.disabled = true;
      try { box.replaceChildren(el("pre", {}, (await this.read(`/messages/${message.place}`, { before: old ? 1 : 0 })).text)); } catch (error) { button.disabled = false; button.textContent = error.message; }
    } }, `show all ${message.characters > message.text.length ? count(message.characters, "character") : "of it"}`);
    box.append(el("div", {}, button));
    return box;
  }

  /** Return a fold whose content is made when it is first opened. */
  fold(words, make) {
    const inside = el("div"), fold = el("details", { class: "fold kept" }, el("summary", {}, words), inside);
    fold.addEventListener("toggle", () => { if (fold.open && !inside.childElementCount) make(inside); });
    return fold;
  }

  /** Add messages to an element, a page at a time. */
  async more(inside, from, to) {
    const limit = Math.min(PAGE, to - from);
    let found;
    try { found = await this.read("/messages", { after: from, limit }); } catch (error) { inside.append(el("p", { class: "warn" }, error.message)); return; }
    inside.append(...found.map((each) => this.item(each, this.words(each))));
    const next = from + found.length;
    if (!found.length || next >= to) return;
    const button = el("button", { class: "more", onclick: () => { button.remove(); this.more(inside, next, to); } }, `Show ${count(Math.min(PAGE, to - next), "more message", "more messages")} of ${(to - next).toLocaleString("en")}`);
    inside.append(button);
  }

  async all() {
    const drawn = ++this.drawn, header = await this.read("/header"), { meta } = header, messages = el("div");
    const rest = Object.fromEntries(Object.entries({ settings: meta.settings, ...Object.fromEntries(Object.entries(meta).filter(([name]) => !["instructions", "settings", "model"].includes(name))) }).filter(([, value]) => value !== undefined && value !== null));
    this.put(drawn, section("Instructions", meta.instructions ? el("div", { class: "as-is", dir: "auto" }, String(meta.instructions)) : el("p", { class: "quiet" }, "none")),
      section(count(header.tools.length, "tool"), header.tools.map((tool) => el("details", { class: "call" }, el("summary", {}, el("span", { class: "code" }, String(tool.name ?? "")), el("span", { class: "took brief" }, String(tool.description ?? "").split("\n")[0].slice(0, 90))),
        el("div", { class: "row" }, tool.description ? el("p", { class: "as-is", dir: "auto" }, String(tool.description)) : "", shown(tool.args_schema ?? {}))))),
      header.output ? section("Schema of the answer", shown(header.output)) : "",
      Object.keys(rest).length ? section("Settings", shown(rest)) : "",
      section(count(this.facts.messages, "message"), messages));
    await this.more(messages, 0, this.facts.messages);
  }

  async wire() {
    const drawn = ++this.drawn, facts = await this.read("/wire"), body = el("pre", { class: "wire", dir: "ltr", tabindex: 0, "aria-label": "The body" }), button = el("button", { class: "more" });
    let shown_ = 0;
    const add = (part, of) => {
      body.append(part.body); shown_ += [...part.body].length;
      button.hidden = shown_ >= of || !part.body; button.textContent = `Show more: ${(of - shown_).toLocaleString("en")} characters are left`;
    };
    button.addEventListener("click", async () => {
      button.disabled = true;
      try { add(await this.read("/wire", { after: shown_ }), facts.characters); } catch (error) { button.textContent = error.message; }
      button.disabled = false;
    });
    add(facts, facts.characters);
    this.put(drawn, facts.url ? [el("p", { class: "code" }, `${facts.method} ${facts.url}`), el("dl", { class: "value headers" }, Object.entries(facts.headers).map(([name, value]) => [el("dt", { class: "code" }, name), el("dd", { class: "code" }, value)]))] : el("p", { class: "note" }, "This model has no address: it answered in the process, or through a server that is not on record."),
      el("p", { class: "small quiet" }, `SHA-256 ${facts.digest}`, facts.as_sent ? ", as on record. " : ". ", el("a", { href: this.body, download: "" }, `Save the exact ${count(this.facts.bytes, "byte")}`), ". Below they are indented."),
      body, button);
  }
}

function section(name, ...inside) { return el("section", { class: "part" }, el("h2", {}, name), inside); }

function excerpt(message) { return (message.text || message.calls.map((call) => `calls ${call.name}`).join(", ") || message.parts.join(" ") || "an empty text").replace(/\s+/g, " ").slice(0, 110); }

function summary(facts) {
  const of = (name) => facts.steps.filter((each) => each.change === name).length, more = facts.steps_total > facts.steps.length ? " or more" : "";
  const parts = [["added", "added"], ["changed", "changed"], ["gone", "no longer sent"], ["again", "the same, but behind a change"]].filter(([name]) => of(name)).map(([name, words]) => `${count(of(name), "message")}${more} ${words}`);
  return parts.length ? parts.join(", ") : "the same messages";
}
