// One run as a conversation, with its time, its facts and why it answered so beside it.
import * as api from "./api.js";
import { announce, connection, count, el, time, took, when } from "./dom.js";
import { timeline } from "./timeline.js";
import { args, markdown, shown, text } from "./value.js";
import { why } from "./why.js";

const PAGE = 200;

export async function run(place, record, id, title) {
  let facts = await api.glance(record, id);
  const talk = el("div", { class: "talk" }), panel = el("aside", { class: "side-panel", "aria-label": "The run at a glance" });
  const at = { facts: el("div"), time: el("div"), why: el("div"), runs: el("div") };
  panel.append(at.facts, at.time, at.why, at.runs);
  place.replaceChildren(el("div", { class: "run" }, talk, panel));
  const page = new Page(record, facts, talk, at);
  title(facts);
  page.glance(facts);
  const wanted = Number(location.hash.slice(1)) || 0;
  await page.load(wanted > PAGE ? wanted - 20 : 1);
  if (wanted) page.go(wanted); else if (facts.head > page.to) page.more();
  const answer = page.lastAnswer();
  if (answer && !wanted) page.why(answer, false);
  let timer = 0;
  async function refresh() {
    try { facts = await api.glance(record, id); } catch { return; } // the connection says so, and comes back
    page.glance(facts);
    title(facts);
  }
  const leave = api.follow(record, { run: facts.run }, "lines", (lines) => {
    const new_ = lines.filter((line) => line.seq === page.to + 1 || (line.seq > page.to && page.whole));
    if (new_.length) { page.add(new_); announce(count(new_.length, "new entry", "new entries")); }
    clearTimeout(timer);
    timer = setTimeout(refresh, 120);
  }, (state) => { connection(state); if (state === "open") refresh(); });
  const keys = (event) => page.key(event);
  document.addEventListener("keydown", keys);
  return () => { leave(); document.removeEventListener("keydown", keys); };
}

class Page {
  constructor(record, facts, talk, at) {
    this.record = record; this.id = facts.run; this.facts = facts; this.talk = talk; this.at = at;
    this.from = 0; this.to = 0;
    this.items = new Map(); this.calls = new Map(); this.turns = new Map(); this.words = new Map(); this.spoken = new Set();
    this.answers = [];
    this.end = el("div");
    this.watch = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) this.more(); }, { rootMargin: "800px" });
    talk.append(this.end);
    this.watch.observe(this.end);
  }

  get whole() { return this.to >= this.facts.head; }

  /** Show the facts, the time and the runs of the session. */
  glance(facts) {
    this.facts = facts;
    const sum = (name) => facts.turns.reduce((all, turn) => all + (turn[name] ?? 0), 0);
    const usd = facts.turns.some((turn) => turn.usd !== null) ? sum("usd") : null;
    const effects = Object.entries(facts.totals.effects), fired = effects.reduce((all, [, each]) => all + each, 0);
    const tokens = sum("tokens_in") + sum("tokens_out");
    const cards = [
      [fired.toLocaleString("en"), effects.length === 1 ? `${effects[0][0]} happened` : fired === 1 ? "effect" : "effects happened"],
      facts.totals.doubts ? [`${facts.totals.settled} of ${facts.totals.doubts}`, "doubts settled"] : [facts.totals.errors.toLocaleString("en"), facts.totals.errors === 1 ? "error" : "errors"],
      [usd === null ? tokens.toLocaleString("en") : `$${usd.toFixed(usd < 1 ? 4 : 2)}`, usd === null ? "tokens" : `${tokens.toLocaleString("en")} tokens`],
    ];
    this.at.facts.replaceChildren(el("div", { class: "cards" }, cards.map(([number, name]) => el("div", {}, el("b", {}, number), el("span", {}, name)))));
    this.at.time.replaceChildren(el("h2", {}, "Time"), timeline(facts.bars, (seq) => this.go(seq)), facts.bars_left_out ? el("p", { class: "quiet small" }, `The last ${facts.bars.length} of ${facts.bars.length + facts.bars_left_out}.`) : "");
    this.at.runs.replaceChildren(...(facts.runs.length > 1 ? [el("h2", {}, "Runs of this session"), el("ul", { class: "runs" }, facts.runs.map((each) => el("li", {}, el("a", { href: `/r/${this.record}/run/${each.run}`, "aria-current": each.run === this.id ? "page" : undefined }, `${each.parent ? "↳ " : ""}${each.agent}`))))] : []));
    for (const turn of facts.turns) this.turns.get(turn.seq)?.facts(turn);
  }

  /** Show the lines from an entry on, and whatever was shown before no more. */
  async load(from) {
    this.items.clear(); this.calls.clear(); this.turns.clear(); this.words.clear(); this.spoken.clear(); this.answers = [];
    this.from = from; this.to = from - 1;
    const before = from > 1 ? el("button", { class: "more", onclick: async () => { await this.load(Math.max(1, from - PAGE)); } }, "Show what came before") : "";
    this.talk.replaceChildren(...(before ? [before] : []), this.end);
    this.add(await api.lines(this.record, this.id, this.to, PAGE));
  }

  async more() {
    if (this.loading || this.whole) return;
    this.loading = true;
    try {
      const lines = await api.lines(this.record, this.id, this.to, PAGE);
      this.add(lines);
      if (!lines.length) this.to = this.facts.head;
    } finally { this.loading = false; }
    this.watch.unobserve(this.end); this.watch.observe(this.end); // if it is still in sight, it says so again
  }

  add(lines) {
    for (const line of lines) {
      if (line.seq <= this.to) continue;
      this.to = line.seq;
      this.draw({ text: "", who: "", ...line }); // what is empty is not sent
    }
  }

  /** Go to an entry: show it, mark it, and give its address to the page. */
  async go(seq) {
    if (!this.find(seq) && seq <= this.facts.head) await this.load(Math.max(1, seq - 20));
    const found = this.find(seq);
    if (!found) return;
    this.talk.querySelector(".here")?.classList.remove("here");
    found.classList.add("here");
    history.replaceState(null, "", `#${seq}`);
    const behind = found.querySelector("details.call");
    if (behind) behind.open = true;
    found.scrollIntoView({ block: "center" });
  }

  find(seq) { return this.items.get(seq); }
  /** The last answer for which a tool was used, else the last one. */
  lastAnswer() {
    const turn = this.facts.turns.findLast((each) => each.calls);
    return this.answers.findLast((seq) => turn && seq > turn.seq && this.turnAt(seq) === turn.seq) ?? this.answers.at(-1);
  }

  turnAt(seq) { return this.facts.turns.findLast((each) => each.seq <= seq)?.seq; }

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
      case "note": return this.put(turn, line, line.who, el("div", { class: "note" }, line.text, line.value !== undefined ? shown(line.value) : "", this.files(line)));
      default: return;
    }
  }

  turnOf(line) {
    if (line.part === "turn" || !this.current) {
      const facts = this.facts.turns.findLast((each) => each.seq <= line.seq);
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
    if (line.kind !== "assistant") { this.put(turn, line, line.who, markdown(line.text), this.files(line), this.rest(line)); return; }
    if (line.spoken) { this.spoken.add(line.spoken); this.words.get(line.spoken)?.remove(); }
    const words = el("div", {}, markdown(line.text));
    const item = this.put(turn, line, turn.name, words, this.files(line), this.rest(line), el("div", { class: "actions" }, el("button", { onclick: () => this.why(line.seq, true) }, "why?")));
    item.classList.add("agent", "answer");
    item.words = words; item.line = line;
    this.answers.push(line.seq);
  }

  said(line, turn) {
    if (!line.text.trim() || this.spoken.has(line.seq)) return;
    const item = this.put(turn, line, turn.name, markdown(line.text), this.rest(line));
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
    const body = el("div", { class: "row" }, line.outcome !== "ok" ? el("span", { class: line.outcome === "error" ? "warn" : "quiet" }, `${line.outcome}: `) : "", line.value !== undefined ? shown(line.value) : text(line.text), this.rest(line));
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
    if (line.span !== turn.seq || line.outcome === "answered") return;
    this.put(turn, line, "", el("div", { class: `ended ${line.tone}` }, `The turn ended: ${line.outcome}.`, line.text ? ` ${line.text}` : ""));
  }

  /** Return a button that shows the whole entry, for a line that was cut. */
  rest(line) {
    if (!line.more) return "";
    const button = el("button", { class: "small", onclick: async () => {
      const entry = await api.entry(this.record, this.id, line.seq);
      button.replaceWith(el("pre", {}, JSON.stringify(entry.content, null, 1)));
    } }, "show all of it");
    return button;
  }

  files(line) { return (line.parts ?? []).map((part) => el("div", { class: "note" }, `${part.name ?? "file"} (${part.type})`)); }

  /** Show why an answer was given, and mark its words. */
  async why(seq, scroll) {
    const item = this.find(seq);
    const light = (id, on) => {
      for (const each of item?.querySelectorAll(".from") ?? []) if (each.dataset.id === id) each.classList.toggle("lit", on);
      this.at.why.querySelector(`li[data-id="${CSS.escape(id)}"]`)?.classList.toggle("lit", on);
    };
    try {
      const passages = await why(this.at.why, this.record, this.id, seq, (each) => this.go(each), light);
      for (const other of this.answers) {
        const each = this.find(other);
        each?.classList.remove("explained");
        each?.words.replaceChildren(...markdown(each.line.text));
      }
      item?.classList.add("explained");
      if (item?.words) item.words.replaceChildren(...markdown(item.line.text, (part) => underlined(part, passages, light, (id) => this.go(Number(id.split(".").at(-1))))));
      if (scroll) this.at.why.scrollIntoView({ block: "nearest" });
    } catch (error) { this.at.why.replaceChildren(el("p", { class: "warn" }, error.message)); }
  }

  /** Keys: j and k to the next and previous item, f folds, / finds, u up to the sessions. */
  key(event) {
    if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
    const items = [...this.talk.querySelectorAll(".item")], here = items.findIndex((each) => each.classList.contains("here"));
    const seqOf = (item) => Number(item.id.slice(1));
    if (event.key === "j" && items[here + 1]) this.go(seqOf(items[here + 1]));
    else if (event.key === "k" && items[Math.max(0, here - 1)]) this.go(seqOf(items[Math.max(0, here - 1)]));
    else if (event.key === "f") { const all = [...this.talk.querySelectorAll("details.call")], open = all.some((each) => !each.open); for (const each of all) each.open = open; }
    else return;
    event.preventDefault();
  }
}

class Turn {
  constructor(facts, line, page) {
    this.seq = facts.seq || line.seq; this.name = facts.name || line.who || "assistant"; this.calls = []; this.lastCall = null;
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

function underlined(part, passages, light, go) {
  const found = passages.filter((each) => each.text.trim().length > 1).sort((a, b) => b.text.length - a.text.length);
  const made = [];
  let left = part;
  while (left) {
    let best = null;
    for (const each of found) {
      const at = left.indexOf(each.text);
      if (at >= 0 && (!best || at < best.at)) best = { at, each };
    }
    if (!best) { made.push(left); break; }
    const { at, each } = best;
    const mark = el("span", { class: "from", "data-id": each.id, title: `from entry ${each.id.split(".").at(-1)}`, tabindex: 0, onclick: () => go(each.id),
      onmouseenter: () => light(each.id, true), onmouseleave: () => light(each.id, false), onfocus: () => light(each.id, true), onblur: () => light(each.id, false) }, each.text);
    made.push(left.slice(0, at), mark);
    left = left.slice(at + each.text.length);
  }
  return made;
}
