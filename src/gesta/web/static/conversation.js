// The lines of a run as a conversation: who said what, each call with its result, and what happened to it, in sentences.
import * as api from "./api.js";
import { count, el, took, when } from "./dom.js";
import { markdown } from "./markdown.js";
import { args, files, shown, text } from "./value.js";

/** Draws lines in the order of the run. `why(seq)` is called for the answer that somebody asks about. */
export class Conversation {
  constructor(record, run, turns, end, why) {
    this.record = record; this.id = run; this.of = turns; this.end = end; this.why = why;
    this.items = new Map(); this.calls = new Map(); this.turns = new Map(); this.words = new Map(); this.spoken = new Set();
    this.answers = [];
  }

  /** Take in what is known of the turns by now. */
  about(turns) {
    this.of = turns;
    for (const turn of turns) this.turns.get(turn.seq)?.facts(turn);
  }

  draw(line) {
    const turn = this.turnOf(line);
    switch (line.part) {
      case "turn": return;
      case "message": return this.message(line, turn);
      case "words": return this.said(line, turn);
      case "thought": return this.put(turn, line, "thinks", el("details", { class: "thought" }, el("summary", {}, "thought"), markdown(line.text)));
      case "call": return this.call(line, turn);
      case "story": return this.story(line, turn);
      case "result": return this.result(line, turn);
      case "asked": return this.put(turn, line, line.outcome ? line.who : "asked", el("div", { class: "wait" }, line.text ? text(line.text) : shown(line.value)));
      case "end": return this.ended(line, turn);
      case "note": return this.note(line, turn);
      default: return;
    }
  }

  note(line, turn) {
    if (line.who === "agent" && line.kind === "begin") return; // its name stands beside what it says
    if (line.who === "import") {
      this.put(turn, line, "", el("details", { class: "fold" }, el("summary", {}, "what the importer was told"), shown(line.value)));
      return;
    }
    this.put(turn, line, line.who, el("div", { class: "note" }, line.text, line.value !== undefined ? shown(line.value) : "", this.files(line)));
  }

  turnOf(line) {
    if (line.part === "turn" || !this.current) {
      const facts = this.of.findLast((each) => each.seq <= line.seq);
      if (line.part === "turn" || !this.turns.has(facts?.seq ?? 0)) this.current = new Turn(facts ?? { seq: 0, number: 0 }, line, this);
    }
    return this.current;
  }

  put(turn, line, who, ...said) {
    const item = el("div", { class: "item", id: `e${line.seq}` }, el("div", { class: "who" }, who), el("div", { class: "said" }, said));
    this.items.set(line.seq, item);
    turn.body.append(item);
    return item;
  }

  message(line, turn) {
    const words = el("div", {}, markdown(line.text)), files = this.files(line);
    if (line.kind !== "assistant") { this.put(turn, line, line.who, words, this.rest(line, words), files); return; }
    if (line.spoken) { this.spoken.add(line.spoken); this.words.get(line.spoken)?.remove(); }
    const item = this.put(turn, line, line.who || turn.name, words, this.rest(line, words), files, el("div", { class: "actions" }, el("button", { onclick: () => this.why(line.seq) }, "why?")));
    item.classList.add("agent", "answer");
    item.words = words; item.line = line;
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
    const box = el("details", { class: `call ${line.text ? "fault" : ""}` },
      el("summary", {}, el("span", { class: "code" }, `${line.tool}(${args(line.value)})`), took_), rows);
    if (line.text) rows.append(el("div", { class: "row warn" }, line.text));
    for (const remark of line.remarks ?? []) rows.append(el("div", { class: "row warn" }, remark));
    const beside = turn.lastCall && turn.lastCall.spoken !== undefined && turn.lastCall.spoken === line.spoken ? turn.lastCall : null;
    if (beside) beside.label.textContent = "tools, at once";
    const item = this.put(turn, line, beside ? "" : "tool", box);
    const call = { line, box, rows, took: took_, item, stories: [], spoken: line.spoken, label: beside?.label ?? item.querySelector(".who"), open: true };
    turn.lastCall = call; turn.calls.push(call);
    this.calls.set(line.seq, call);
  }

  story(line, turn) {
    const call = this.calls.get(line.of);
    if (call) { this.tell(call, line); return; }
    const open = line.tone === "fault" && line.of === turn.seq ? turn.calls.filter((each) => each.open && each.began) : [];
    for (const each of open) this.tell(each, line);
    if (open.length) this.items.set(line.seq, open[0].item);
    else this.put(turn, line, "", el("div", { class: `ended ${line.tone === "fault" ? "fault" : ""}` }, line.text));
  }

  tell(call, line) {
    this.items.set(line.seq, call.item);
    call.stories.push(line);
    if (line.kind === "attempt") { call.began ??= Date.parse(line.at); call.effect = line.effect; if (line.effect && line.effect !== "pure") call.took.textContent = line.effect; }
    const notable = call.stories.some((each) => each.tone === "fault" || each.tone === "settled" && each.kind === "resolution") || call.stories.filter((each) => each.kind === "attempt").length > 1 || call.stories.some((each) => each.kind === "check" || each.outcome === "denied");
    if (!notable && line.kind === "approval") call.rows.append(el("div", { class: "row" }, el("dl", { class: "value" }, el("dt", {}, line.outcome), el("dd", {}, line.text))));
    if (line.kind === "approval-request" && !notable) call.took.textContent = "asks a person";
    if (!notable) return;
    call.box.open = true;
    const list = el("ol", {}, call.stories.map((each) => el("li", { class: each.tone }, each.text, el("span", { class: "quiet small" }, ` entry ${each.seq}`))));
    if (call.result) list.append(el("li", { class: call.result.outcome === "ok" ? "settled" : "" }, call.result.outcome === "ok" ? "The model was told the result. It happened once." : call.result.text || `The model was told: ${call.result.outcome}.`));
    const told = el("div", { class: "story" }, el("h3", {}, `What happened to this ${call.line.tool}`), list);
    call.story?.remove();
    call.story = told;
    call.item.querySelector(".said").append(told);
  }

  result(line, turn) {
    const call = this.calls.get(line.of);
    const value = el("div", {}, line.value !== undefined ? shown(line.value) : text(line.text));
    const body = el("div", { class: "row" }, line.outcome !== "ok" ? el("span", { class: line.outcome === "error" ? "warn" : "quiet" }, `${line.outcome}: `) : "", value, this.rest(line, value), this.files(line));
    if (!call) { this.put(turn, line, "result", body); return; }
    this.items.set(line.seq, call.item);
    call.open = false; call.result = line;
    if (line.outcome === "error") call.box.classList.add("fault");
    call.rows.append(body);
    const ms = call.began ? Date.parse(line.at) - call.began : 0;
    call.took.textContent = [call.effect && call.effect !== "pure" ? call.effect : "", line.outcome !== "ok" ? line.outcome : "", took(ms)].filter(Boolean).join(" · ");
    if (call.story) this.tell(call, { ...call.stories.pop() });
  }

  ended(line, turn) {
    if (!turn.number || line.span !== turn.seq || line.outcome === "answered") return;
    this.put(turn, line, "", el("div", { class: `ended ${line.tone}` }, `The turn ended: ${line.outcome}.`, line.text ? ` ${line.text}` : ""));
  }

  /** Return a button that shows the whole text or value of a line that was cut, in the place of its part. */
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

class Turn {
  constructor(facts, line, page) {
    this.seq = facts.seq || line.seq; this.number = facts.number; this.name = facts.name || line.who || "assistant"; this.calls = []; this.lastCall = null;
    this.body = el("div");
    this.head = el("header");
    this.facts(facts);
    const section = el("section", { class: "turn", id: `e${this.seq}`, "aria-label": `Turn ${facts.number ?? ""}` }, this.head, this.body);
    page.turns.set(this.seq, this);
    page.items.set(this.seq, section);
    page.end.before(section);
  }

  facts(turn) {
    if (!turn.at) return;
    const parts = [
      turn.key ? `key ${turn.key}` : "", count(turn.requests, "request"),
      turn.tokens_in + turn.tokens_out ? count(turn.tokens_in + turn.tokens_out, "token") : "",
      turn.usd !== null ? `$${turn.usd.toFixed(4)}` : "",
      turn.end ? took(Date.parse(turn.end) - Date.parse(turn.at)) : "open",
      turn.deaths ? `killed ${turn.deaths === 1 ? "once" : `${turn.deaths} times`}` : "",
      turn.reason && turn.reason !== "answered" ? turn.reason : "",
    ].filter(Boolean).join(" · ");
    this.head.replaceChildren(el("h2", {}, `Turn ${turn.number}`), when(turn.at), el("span", {}, parts));
  }
}
