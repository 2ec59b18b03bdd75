// The entries of a run as a conversation: who said what, each call with its result, and in sentences what happened to it.
import * as api from "./api.js";
import { boxes, drawn, money } from "./children.js";
import { broken, count, el, saidAt, STATES, took, when } from "./dom.js";
import { markdown } from "./markdown.js";
import { Near } from "./near.js";
import { notable, story } from "./story.js";
import { asked } from "./switch.js";
import { args, files, folded, shown, text } from "./value.js";

const BATCH = 8, THOUGHT = 90, WIDE = 90;

/** Draws lines in the order of the run. `why(seq)` is called for the answer that somebody asks about; without it, the
 * conversation stands inside another one, and its entries have no address on this page. */
export class Conversation {
  constructor(record, facts, end, why) {
    this.record = record; this.id = facts.run; this.agent = facts.agent; this.of = facts.turns; this.end = end; this.why = why; this.costs = new Map(); this.below = new Map(); this.placed = new Map();
    this.items = new Map(); this.calls = new Map(); this.turns = new Map(); this.words = new Map(); this.spoken = new Set();
    this.answers = []; this.near = new Near();
  }

  /** Use newer facts about the turns. */
  about(turns) {
    this.of = turns;
    for (const turn of turns) this.turns.get(turn.seq)?.facts(turn);
  }

  draw(line) {
    const turn = this.turnOf(line);
    this.cost(line);
    switch (line.part) {
      case "turn": return;
      case "message": return this.message(line, turn);
      case "words": return this.said(line, turn);
      case "thought": return this.put(turn, line, "thinks", thought(line.text));
      case "call": return this.call(line, turn);
      case "story": return this.story(line, turn);
      case "result": return this.result(line, turn);
      case "asked": return this.put(turn, line, line.outcome ? line.who : "asked", el("div", { class: "wait" }, line.text ? text(line.text) : shown(line.value), saidAt(line)));
      case "end": return this.ended(line, turn);
      case "note": return this.note(line, turn);
      default: return;
    }
  }

  note(line, turn) {
    if (line.who === "agent" && line.kind === "begin") return; // its name is shown beside its words
    if (line.kind === "edge" && this.calls.has(line.of)) { this.items.set(line.seq, this.calls.get(line.of).item); return; } // the run stands at the call
    if (line.who === "import") {
      this.put(turn, line, "", el("details", { class: "fold" }, el("summary", {}, "What its source says of it: outcome, score, price"), shown(line.value)));
      return;
    }
    this.put(turn, line, line.who === line.text ? "span" : line.who, el("div", { class: "note" }, line.text, line.value !== undefined ? this.value(line) : "", this.files(line), this.source(line)));
  }

  /** Return a link to the entry that a note is about, unless that is the entry directly above. */
  source(line) {
    if (line.kind !== "key-value" || !line.of || line.of === line.seq - 1) return "";
    return el("p", {}, el("a", { href: this.why ? `#${line.of}` : `/r/${this.record}/run/${encodeURIComponent(this.id)}#${line.of}` }, `about entry ${line.of}`));
  }

  value(line) {
    const place = el("div");
    return folded(line.value, place, this.rest(line, place));
  }

  /** Show in the margin of a step what it cost. The cost is recorded only after the step. */
  cost(line) {
    if (line.part === "words") {
      const tokens = line.tokens ? line.tokens[0] + line.tokens[1] : 0, cached = line.cached ?? 0;
      const spent = [tokens ? `${tokens.toLocaleString("en")} tok` : "", line.latency_ms ? took(line.latency_ms) : ""].filter(Boolean).map((each, place) => [place ? " · " : "", el("bdi", {}, each)]);
      const parts = [spent, cached ? `${cached.toLocaleString("en")} cached` : ""].filter((each) => each.length);
      const title = tokens ? `${line.model ?? "The model"}: ${line.tokens[0].toLocaleString("en")} tokens read${cached ? `, ${cached.toLocaleString("en")} of them from the cache` : ""}, ${line.tokens[1].toLocaleString("en")} written${line.latency_ms ? `, in ${took(line.latency_ms)}` : ""}` : undefined;
      const made = el("small", { class: "cost", title }, parts.map((each) => el("span", {}, each)));
      this.costs.set(line.seq, made);
      if (line.of) this.costs.set(`of ${line.of}`, made);
    } else if (line.kind === "budget" && typeof line.value?.usd === "number") this.costs.get(`of ${line.of}`)?.append(el("span", {}, money(line.value.usd)));
  }

  /** Show each run that this one started, at its call, or at its edge if it has no call. */
  started(children) {
    const place = (each) => (this.calls.get(each.call)?.line.tool === each.name ? this.calls.get(each.call).item : this.items.get(each.edge));
    const fresh = new Set(children.filter((each) => this.placed.get(each.run) !== each.head).map(place).filter(Boolean)), at = new Map();
    if (!fresh.size) return;
    for (const each of children) { const item = place(each); if (fresh.has(item)) at.set(item, [...(at.get(item) ?? []), each]); }
    for (const [item, own] of at) {
      const before = this.below.get(item);
      if (before?.querySelector("details[open]")) continue; // a person has it open
      const made = boxes(this.record, own, (inside, facts) => this.inside(inside, facts));
      if (before) before.replaceWith(made);
      else item.querySelector(".said").append(made);
      this.below.set(item, made);
      for (const each of own) this.placed.set(each.run, each.head);
    }
  }

  /** Draw the conversation of a run that this one started. */
  inside(place, facts) {
    return drawn(place, this.record, facts, (end, own) => new Conversation(this.record, own, end));
  }

  turnOf(line) {
    if (line.part === "turn" || !this.current) {
      const facts = this.of.findLast((each) => each.seq <= line.seq);
      if (line.part === "turn" || !this.turns.has(facts?.seq ?? 0)) this.current = new Turn(facts ?? { seq: 0, number: 0 }, line, this);
    }
    return this.current;
  }

  put(turn, line, who, ...said) {
    const spent = this.costs.get(line.part === "words" ? line.seq : line.spoken), own = spent && (line.part === "message" || !spent.parentNode) ? spent : "";
    const item = el("div", { class: "item", id: this.why ? `e${line.seq}` : undefined }, el("div", { class: "who" }, typeof who === "string" ? broken(who) : who, own), el("div", { class: "said" }, said), this.why ? el("a", { class: "at", href: `#${line.seq}`, tabindex: -1, "aria-label": `Entry ${line.seq}` }, line.seq) : "");
    this.items.set(line.seq, item);
    if (turn.batch) { turn.batch.append(item); item.stretch = turn.batch.stretch; } else this.near.add(turn.body, item);
    return item;
  }

  message(line, turn) {
    const words = el("div", {}, markdown(line.text)), files = this.files(line);
    if (line.kind !== "assistant") { this.put(turn, line, line.who, words, this.rest(line, words), files); return; }
    const reply = line.differs ? null : line.spoken; // a reply with the same words is not drawn twice
    if (reply) { this.spoken.add(reply); if (this.words.has(reply)) this.near.remove(this.words.get(reply)); }
    const item = this.put(turn, line, line.who || turn.name, words, this.rest(line, words), files, this.why ? el("div", { class: "actions" }, el("button", { onclick: () => this.why(line.seq) }, "why?"), asked(this.record, this.id, line.spoken)) : "");
    item.classList.add("agent", "answer");
    item.words = words; item.line = line;
    if (reply) this.items.set(reply, item); // the model's words are now in this item
    this.answers.push(line.seq);
  }

  said(line, turn) {
    if (!line.text.trim() || this.spoken.has(line.seq)) return;
    const words = el("div", {}, markdown(line.text));
    const item = this.put(turn, line, line.who || turn.name, words, this.rest(line, words));
    item.classList.add("agent");
    this.words.set(line.seq, item);
  }

  call(line, turn) {
    const took_ = el("span", { class: "took" }, "…"), rows = el("div");
    const words = args(line.value), wide = words.length > WIDE || /\\n(?!"$)/.test(words);
    const box = el("details", { class: `call ${line.text ? "fault" : ""} ${wide ? "wide" : ""}` },
      el("summary", {}, el("span", { class: "code" }, `${line.tool}(${words})`), took_), rows);
    if (wide) rows.append(el("div", { class: "row given", "aria-label": "Arguments", role: "group" }, shown(line.value)));
    if (line.text) rows.append(el("div", { class: "row warn" }, line.text));
    for (const remark of line.remarks ?? []) rows.append(el("div", { class: "row warn" }, remark));
    if (line.spoken) rows.append(el("div", { class: "row last" }, asked(this.record, this.id, line.spoken)));
    const beside = turn.lastCall && turn.lastCall.spoken !== undefined && turn.lastCall.spoken === line.spoken ? turn.lastCall : null;
    if (beside) beside.label.textContent = "tools, at once";
    this.batch(turn, beside);
    const label = el("span", {}, beside ? "" : "tool"), item = this.put(turn, line, label, box);
    turn.batch = null;
    const call = { line, box, rows, took: took_, item, stories: [], results: [], spoken: line.spoken, label: beside?.label ?? label, number: (beside?.number ?? 0) + 1, fold: beside?.fold };
    if (call.fold) { call.fold.calls += 1; this.number(call); }
    turn.lastCall = call; turn.calls.push(call);
    this.calls.set(line.seq, call);
  }

  /** If a model made many calls at once, put all but the first ones into a fold. */
  batch(turn, beside) {
    if (!beside || beside.number < BATCH) return;
    if (!beside.fold) {
      const said = el("span"), box = el("details", { class: "fold batch" }, el("summary", {}, said));
      this.near.add(turn.body, box);
      beside.fold = { box, said, calls: 0, told: new Set() };
    }
    turn.batch = beside.fold.box;
  }

  story(line, turn) {
    const call = this.calls.get(line.of), flight = (line.calls ?? []).map((seq) => this.calls.get(seq)).filter(Boolean);
    if (call) { this.tell(call, line); return; }
    for (const each of flight) this.tell(each, line);
    if (flight.length) this.items.set(line.seq, flight[0].item);
    else this.put(turn, line, "", el("div", { class: `ended ${line.tone === "fault" ? "fault" : ""}` }, line.text));
  }

  tell(call, line) {
    this.items.set(line.seq, call.item);
    call.stories.push(line);
    if (line.kind === "attempt") { call.began ??= Date.parse(line.at); call.effect = line.effect; if (line.effect && line.effect !== "pure") call.took.textContent = line.effect; }
    const much = notable(call.stories);
    if (!much && line.kind === "approval") call.rows.append(call.approval = el("div", { class: "row" }, el("dl", { class: "value" }, el("dt", {}, line.outcome), el("dd", {}, line.text, saidAt(line)))));
    if (line.kind === "approval-request" && !much) call.took.textContent = "asks a person";
    if (much) this.retell(call);
  }

  retell(call) {
    call.box.open = call.effect !== "pure" || call.box.open;
    call.approval?.remove(); // the story contains it
    const told = story(call);
    if (call.chosen) told.open = call.story.open; // a person opened or folded it
    if (call.story) call.story.replaceWith(told);
    else call.item.querySelector(".said").append(told);
    call.story = told;
    if (call.fold) call.fold.told.add(call);
    this.number(call);
  }

  /** Write on the fold of a batch its number of calls, and how many of them have a story. */
  number(call) {
    if (call.fold) call.fold.said.textContent = [count(call.fold.calls, "more call"), call.fold.told.size ? `${call.fold.told.size} with a story` : ""].filter(Boolean).join(", ");
  }

  result(line, turn) {
    const call = this.calls.get(line.of);
    const value = el("div", {}, line.value !== undefined ? shown(line.value) : text(line.text));
    const body = el("div", { class: "row" }, line.outcome !== "ok" ? el("span", { class: line.outcome === "error" ? "outcome warn" : "outcome quiet" }, `${line.outcome}: `) : "", value, this.rest(line, value), this.files(line));
    if (!call) { this.put(turn, line, "result", body); return; }
    this.items.set(line.seq, call.item);
    call.results.push(line);
    if (line.outcome === "error") call.box.classList.add("fault");
    call.rows.append(body);
    const ms = Date.parse(line.at) - (call.began ?? Date.parse(call.line.at));
    call.took.textContent = [call.effect && call.effect !== "pure" ? call.effect : "", line.outcome !== "ok" ? line.outcome : "", call.began || (ms && line.outcome !== "denied") ? took(ms) : ""].filter(Boolean).join(" · ");
    if (call.story || line.outcome === "late" || line.outcome === "unknown") this.retell(call);
  }

  ended(line, turn) {
    if (!turn.number || line.span !== turn.seq || line.outcome === "answered") return;
    this.put(turn, line, "", el("div", { class: `ended ${line.tone}` }, STATES[line.outcome] && line.text ? "" : `The turn ${STATES[line.outcome] ?? `ended: ${line.outcome}`}.`, line.text ? ` ${line.text}` : ""));
  }

  /** Return a button that replaces the cut text or value of a line by the whole one. */
  rest(line, place) {
    if (!line.more) return "";
    const button = el("button", { class: "small", type: "button", onclick: async () => {
      const { content } = await api.entry(this.record, this.id, line.seq), words = content.output ?? content.value;
      const told = line.part !== "result" && typeof words === "string";
      if (told) line.text = words;
      place.replaceChildren(...(told ? markdown(words) : [shown(content.tool_result ?? content.tool_args ?? content)]));
      button.remove();
    } }, "show all of it");
    return button;
  }

  files(line) { return files(this.record, this.id, line); }
}

function thought(words) {
  const short = words.trim().replace(/\s+/g, " ");
  return short.length <= THOUGHT ? el("div", { class: "thought" }, markdown(words)) : el("details", { class: "thought" }, el("summary", {}, `${short.slice(0, THOUGHT)}…`), markdown(words));
}

/** Open or fold the folds around an element. */
export function fold(element, open) {
  for (let box = element.parentElement?.closest("details"); box; box = box.parentElement?.closest("details")) box.open = open;
}

class Turn {
  constructor(facts, line, page) {
    this.seq = facts.seq || line.seq; this.number = facts.number; this.name = facts.name || page.agent; this.calls = []; this.lastCall = null;
    this.body = el("div");
    this.head = el("header");
    this.facts(facts);
    const section = el("section", { class: "turn", id: page.why ? `e${this.seq}` : undefined, "aria-label": page.why ? `Turn ${facts.number ?? ""}` : undefined }, this.head, this.body);
    page.turns.set(this.seq, this);
    page.items.set(this.seq, section);
    page.end.before(section);
  }

  facts(turn) {
    if (!turn.at) return;
    const parts = [
      turn.key ? `key ${turn.key}` : "", turn.requests ? count(turn.requests, "request") : "",
      turn.tokens_in + turn.tokens_out ? count(turn.tokens_in + turn.tokens_out, "token") : "",
      turn.cached ? `${turn.cached.toLocaleString("en")} cached` : "",
      turn.usd !== null ? money(turn.usd) : "",
      turn.end === turn.at ? "" : turn.end ? took(Date.parse(turn.end) - Date.parse(turn.at)) : "open",
      turn.deaths ? `killed ${turn.deaths === 1 ? "once" : `${turn.deaths} times`}` : "",
      turn.reason && turn.reason !== "answered" ? STATES[turn.reason] ?? turn.reason : "",
    ].filter(Boolean).join(" · ");
    this.head.replaceChildren(el("h2", {}, `Turn ${turn.number}`), when(turn.at), ...(parts ? [el("span", {}, parts)] : []));
  }
}
