// The time of a run as a tree of bars on one axis: turns, spans, model calls, tool calls, waits, and runs of sub-agents.
import * as api from "./api.js";
import { Children, cost, ended, lasted, money, sum } from "./children.js";
import { announce, broken, connection, count, el, took } from "./dom.js";
import { filled, hasTimes, length, scale, timed, toned } from "./scale.js";
import { path, query } from "./source.js";
import { forms } from "./switch.js";
import { NO_TIMES } from "./timeline.js";

const MANY = 8, AT_ONCE = 100, OPEN = 80, APART = 6;
const SAID = { fault: "failed", lost: "lost with its process", settled: "settled", waiting: "waited" };
const KINDS = { turn: "turn", span: "span", model: "model", tools: "tool", waiting: "wait" };

export async function lanes(place, record, id, title) {
  const page = new Lanes(record, await api.glance(record, id), await api.time(record, id));
  const made = el("div", { class: "lanes" });
  place.replaceChildren(forms(record, page.facts.run, "time"), made);
  page.place = made;
  title(page.facts);
  await page.start();
  const sized = new ResizeObserver(() => page.spaced());
  sized.observe(made);
  let timer = 0;
  const refresh = async () => { try { await page.again(); title(page.facts); } catch { /* the connection says so, and comes back */ } };
  const leave = api.follow(record, { run: page.facts.run }, "lines", (lines) => {
    announce(count(lines.length, "new entry", "new entries"));
    clearTimeout(timer); timer = setTimeout(refresh, 200 + page.time.bars.length); // all bars are loaded again, so a long run is refreshed less often
  }, (state) => { connection(state); if (state === "open") refresh(); });
  return () => { clearTimeout(timer); sized.disconnect(); leave(); };
}

/** The bars of one run as a tree. */
class Tree {
  constructor(facts, children) {
    this.run = facts.run; this.bars = timed(facts.bars); this.below = new Map(); this.children = new Map(); this.left = facts.left_out;
    const ids = new Set(this.bars.map((bar) => (bar.lane === "span" || bar.lane === "turn" ? bar.seq : 0)));
    for (const bar of this.bars) {
      if (bar.lane === "process" || bar.role === "import") continue;
      const above = ids.has(bar.span) && bar.span < bar.seq ? bar.span : 0; // in a broken record a span may claim to be inside a later one
      push(this.below, above, bar);
    }
    for (const own of this.below.values()) own.sort((a, b) => a.from - b.from || a.seq - b.seq);
    const calls = new Set(this.bars.map((bar) => bar.of).filter(Boolean));
    for (const each of children) {
      push(this.children, calls.has(each.call) ? each.call : ids.has(facts.edges[each.edge]) ? facts.edges[each.edge] : 0, each);
    }
  }

  /** Return the tokens and the cost of a span with all spans inside it. */
  costs(bar) {
    const all = { tokens_in: bar.tokens?.[0] ?? 0, cached: bar.tokens?.[1] ?? 0, tokens_out: bar.tokens?.[2] ?? 0, usd: bar.usd ?? null };
    for (const each of bar.lane === "span" || bar.lane === "turn" ? this.below.get(bar.seq) ?? [] : []) {
      const own = this.costs(each);
      for (const name of ["tokens_in", "cached", "tokens_out"]) all[name] += own[name];
      if (own.usd !== null) all.usd = (all.usd ?? 0) + own.usd;
    }
    return all;
  }
}

class Lanes {
  constructor(record, facts, time) {
    this.record = record; this.facts = facts; this.time = time;
    this.open = new Set(); this.more = new Map(); this.trees = new Map();
    this.only = Number(query().get("of")) || 0;
  }

  async start() {
    await this.read(this.facts.run, this.time);
    const { bars } = this.root, turns = bars.filter((bar) => bar.lane === "turn");
    const first = bars.length <= OPEN ? bars.filter((bar) => bar.lane === "turn" || bar.lane === "span") : [turns.findLast((bar) => bar.seq <= (Number(location.hash.slice(1)) || Infinity)) ?? turns.at(-1)];
    for (const bar of [...first, { seq: this.only }]) if (bar) this.open.add(`${this.facts.run}.${bar.seq}`);
    this.draw();
    this.place.querySelector(`[id="${CSS.escape(`t${location.hash.slice(1)}`)}"]`)?.scrollIntoView({ block: "center" });
  }

  get root() { return this.trees.get(this.facts.run); }

  async read(run, time) {
    const children = new Children(this.record, run), facts = time ?? (await api.time(this.record, run));
    this.trees.set(run, new Tree(facts, facts.below ? await children.until("9999", facts.below) : []));
  }

  async again() {
    [this.facts, this.time] = await Promise.all([api.glance(this.record, this.facts.run), api.time(this.record, this.facts.run)]);
    await Promise.all([...this.trees.keys()].map((run) => this.read(run, run === this.facts.run ? this.time : undefined)));
    this.draw();
  }

  draw() {
    const { bars } = this.root, own = this.only ? this.within(this.only) : bars;
    const frames = own.filter((bar) => bar.lane === "turn");
    this.axis = own.length && hasTimes(own) ? scale(own.filter((bar) => bar.lane !== "process" || own.length < 2), frames, { left: 0, width: 99.4, pause: 3 }) : null;
    const top = this.only ? own.slice(0, 1) : this.root.below.get(0) ?? [];
    const focus = document.activeElement?.dataset?.key;
    this.place.replaceChildren(this.head(own), this.axis ? "" : el("p", { class: "quiet" }, NO_TIMES, " The steps stand in their order."),
      el("div", { class: "rows" }, this.ruler(), this.processes(), this.rows(this.root, top, 0), this.only ? "" : this.runs(this.root, this.root.children.get(0) ?? [], 0, "0")),
      this.root.left ? el("p", { class: "quiet small" }, `${count(this.root.left, "bar")} before these are left out.`) : "");
    this.place.classList.toggle("timeless", !this.axis);
    for (const [name, column] of [["tokenless", 3], ["free", 4]]) this.place.classList.toggle(name, ![...this.place.querySelectorAll(".lane:not(.head)")].some((each) => each.children[column]?.textContent));
    this.spaced();
    if (focus) this.place.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  }

  /** Return the bars of a span, and of all spans in it. */
  within(seq) {
    const own = this.root.below.get(seq) ?? [], bar = this.root.bars.find((each) => each.seq === seq && each.lane !== "process");
    return [...(bar ? [bar] : []), ...own.flatMap((each) => (each.lane === "span" || each.lane === "turn" ? this.within(each.seq) : [each]))];
  }

  head(bars) {
    const { totals } = this.facts, here = `/r/${this.record}/run/${this.facts.run}`;
    const names = { model: "model", tools: "tools", waiting: "waiting" };
    const busy = this.only ? Object.fromEntries(Object.keys(names).map((name) => [name, filled(bars.filter((bar) => bar.lane === name))])) : this.time.busy_ms;
    const all = Object.keys(names).reduce((ms, name) => ms + (name === "waiting" ? 0 : busy[name]), 0) || 1;
    return el("div", { class: "bar" }, this.only ? el("a", { href: `${here}/time` }, "The whole run") : "",
      Object.keys(names).filter((name) => busy[name]).map((name) => el("span", { class: "key" }, el("i", { class: name, "aria-hidden": "true" }), `${names[name]} ${took(busy[name])}${name !== "waiting" && busy.model && busy.tools ? ` (${Math.round((busy[name] / all) * 100)} %)` : ""}`)),
      bars.some((bar) => bar.lane === "model") && !busy.model && this.axis ? el("span", { class: "quiet" }, "how long the model took is not on record") : "",
      totals.deaths && !this.only ? el("span", { class: "key warn" }, `✕ ${count(totals.deaths, "death")} of a process`) : "",
      el("span", { class: "quiet" }, cost(this.only && bars.length ? this.root.costs(bars[0]) : totals)));
  }

  ruler() {
    if (!this.axis) return "";
    const { parts } = this.axis, track = el("svg:svg", { class: "track ruler", "aria-hidden": "true" }), words = [];
    parts.forEach((part, place) => {
      const before = parts[place - 1];
      if (before) track.append(el("svg:rect", { class: "pause", x: `${before.x + before.width}%`, width: `${part.x - before.x - before.width}%`, y: 15, height: 3 }, el("svg:title", {}, `${took(part.from - before.to)} in which nothing was at work`)));
      words.push({ at: part.x, text: place ? `+${took(part.from - parts[0].from)}` : new Date(part.from).toLocaleTimeString("en-GB") });
    });
    for (const part of parts) for (const at of ticks(part)) words.push({ at: this.axis(at), text: `+${took(at - parts[0].from)}` });
    track.append(...words.map(({ at, text }) => el("svg:text", { x: `${at}%`, y: 13 }, text)));
    return el("div", { class: "lane head" }, el("span", { class: "what quiet" }, `from ${new Date(parts[0].from).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}`), track, el("span", { class: "num" }, "took"), el("span", { class: "num" }, "tokens"), el("span", { class: "num" }, "cost"));
  }

  /** Hide the words of the ruler that would cover others, or be cut off. Those that come first in it are kept. */
  spaced() {
    const track = this.place.querySelector(".ruler"), words = [...track?.querySelectorAll("text") ?? []], taken = [];
    for (const each of words) each.removeAttribute("display");
    const edge = track?.getBoundingClientRect().right, boxes = words.map((each) => each.getBoundingClientRect());
    boxes.forEach(({ left, right }, at) => {
      if (right > edge || taken.some((each) => left < each.right + APART && right + APART > each.left)) words[at].setAttribute("display", "none");
      else taken.push(boxes[at]);
    });
  }

  /** Return the row of the processes: each from its first to its last entry, and where one died. */
  processes() {
    const frame = this.only ? this.within(this.only)[0] : null;
    const own = this.root.bars.filter((bar) => bar.lane === "process" && (!frame || (bar.to >= frame.from && bar.from <= frame.to))), deaths = own.filter((bar) => bar.tone === "fault");
    if (!this.axis || !deaths.length) return "";
    const track = this.track(own, "process");
    let free = 0;
    for (const bar of deaths) {
      const at = Math.min(this.axis(bar.to) + 0.3, 94), word = at > free;
      track.append(el("svg:text", { class: "death", x: `${at}%`, y: 13 }, word ? "✕ died" : "✕"));
      if (word) free = at + 8;
    }
    return el("div", { class: "lane" }, el("span", { class: "what" }, el("span", { class: "turns" }), el("span", { class: "kind" }, "process"), el("span", {}, `${count(deaths.length, "process", "processes")} died`)), track, el("span", { class: "num" }), el("span", { class: "num" }), el("span", { class: "num" }));
  }

  track(bars, name) {
    const made = el("svg:svg", { class: "track time", "aria-hidden": "true" });
    if (!this.axis) return made;
    for (const bar of bars) {
      const x = this.axis(bar.from), width = Math.max(this.axis(bar.to) - x, 0.25);
      const thin = bar.lane === "turn" || bar.lane === "span" || name === "process";
      made.append(el("svg:rect", { class: name === "agent" && bar.lane === "tools" ? `agent-call ${toned(bar)}` : name ?? toned(bar), x: `${Math.min(x, 99.6)}%`, width: `${width}%`, y: thin ? 7 : 3, height: thin ? 4 : 12, rx: 2, "data-said": bar.said || undefined },
        el("svg:title", {}, [bar.label, length(bar), bar.tone].filter(Boolean).join(", "))));
    }
    return made;
  }

  /** Return the rows of some bars of one span. Many similar calls are one row until a person opens it. */
  rows(tree, bars, depth, key = "") {
    const groups = [];
    for (const bar of bars) {
      const last = groups.at(-1);
      if (last && bar.lane === "tools" && last[0].lane === "tools" && last[0].label === bar.label) last.push(bar);
      else groups.push([bar]);
    }
    const singles = groups.flatMap((group) => (group.length > MANY ? [group] : group.map((bar) => [bar])));
    const most = this.more.get(`${tree.run}.${bars[0]?.seq}.${key}`) ?? AT_ONCE;
    const made = singles.slice(0, most).map((group) => (group.length > 1 ? this.group(tree, group, depth) : this.row(tree, group[0], depth)));
    if (singles.length > most) made.push(this.rest(`${tree.run}.${bars[0].seq}.${key}`, singles.length, most, depth));
    return made;
  }

  rest(key, all, most, depth) {
    return el("div", { class: "lane" }, el("span", { class: `what d${Math.min(depth, 6)}` }, el("button", { class: "small", onclick: () => { this.more.set(key, most + AT_ONCE); this.draw(); } }, `${Math.min(all - most, AT_ONCE)} more of ${(all - most).toLocaleString("en")}`)));
  }

  group(tree, bars, depth) {
    const key = `${tree.run}.many.${bars[0].seq}`, children = bars.flatMap((bar) => tree.children.get(bar.of) ?? []);
    const from = Math.min(...bars.map((bar) => bar.from)), to = Math.max(...bars.map((bar) => bar.to));
    const facts = { tone: "", kind: "tools", label: `${bars[0].label} × ${bars.length}`, note: children.length ? sum(children) : wrong(bars), took: from === to ? "" : took(to - from), costs: children.length ? total(children) : null };
    return [this.line(tree, key, facts, this.track(bars), depth, true), this.open.has(key) ? bars.slice(0, this.more.get(key) ?? AT_ONCE).map((bar) => this.row(tree, bar, depth + 1)) : "",
      this.open.has(key) && bars.length > (this.more.get(key) ?? AT_ONCE) ? this.rest(key, bars.length, this.more.get(key) ?? AT_ONCE, depth + 1) : ""];
  }

  row(tree, bar, depth) {
    const key = `${tree.run}.${bar.seq}`, span = bar.lane === "span" || bar.lane === "turn";
    const below = span ? tree.below.get(bar.seq) ?? [] : [], children = tree.children.get(span ? bar.seq : bar.lane === "tools" ? bar.of : 0) ?? [];
    if (!span && children.length === 1) return this.runs(tree, children, depth, key, bar);
    const number = bar.lane === "turn" && tree === this.root ? `Turn ${this.facts.turns.find((turn) => turn.seq === bar.seq)?.number ?? ""} ` : "";
    const facts = { tone: bar.tone ?? "", kind: span && bar.role ? bar.role : KINDS[bar.lane], lane: bar.lane, label: `${number}${bar.label ?? ""}`, note: [bar.about, SAID[bar.tone] ?? ""].filter(Boolean).join(" · "), took: bar.from === bar.to ? "" : `${bar.said ? "≈ " : ""}${took(bar.to - bar.from)}`, costs: tree.costs(bar), seq: bar.of && bar.lane === "tools" ? bar.of : bar.seq, only: span && depth === 0 && tree === this.root && !this.only ? bar.seq : 0 };
    return [this.line(tree, key, facts, this.track([bar]), depth, below.length > 0 || (span && children.length > 0)),
      below.length && this.open.has(key) ? this.rows(tree, below, depth + 1) : "", !span || this.open.has(key) ? this.runs(tree, children, depth + 1, key) : ""];
  }

  /** Return the lanes of sub-agents, one each. A lane is folded; opened, it shows the bars of the sub-agent's run. */
  runs(tree, children, depth, key, call = null) {
    const most = this.more.get(`runs.${key}`) ?? AT_ONCE;
    const made = children.slice(0, most).map((each) => {
      const own = `${each.run}.run`, inner = this.trees.get(each.run);
      const bars = [...(call ? [call] : []), ...timed([{ lane: "turn", seq: 1, start: each.at, end: each.last_at }])];
      const facts = { tone: each.reason && each.reason !== "answered" ? "fault" : "", kind: "agent", label: each.name, note: [call?.about, ended(each), each.totals.deaths ? "a process died" : "", each.below ? `${count(each.below, "run")} below` : ""].filter(Boolean).join(", "), took: lasted(each), costs: each.totals, seq: call?.of ?? 1, at: call ? tree.run : each.run };
      const all = this.open.has(own) && inner ? this.rows(inner, inner.below.get(0)?.flatMap((one) => (one.lane === "turn" ? inner.below.get(one.seq) ?? [] : [one])) ?? [], depth + 1) : "";
      return [this.line({ run: each.run }, own, facts, this.track(bars, "agent"), depth, true), all, this.open.has(own) && inner ? this.runs(inner, inner.children.get(0) ?? [], depth + 1, own) : ""];
    });
    if (children.length > most) made.push(this.rest(`runs.${key}`, children.length, most, depth));
    return made;
  }

  line(tree, key, facts, track, depth, opens) {
    const to = facts.seq ? `/r/${this.record}/run/${facts.at ?? tree.run}#${facts.seq}` : undefined, { costs } = facts;
    const tokens = costs ? costs.tokens_in + costs.tokens_out : 0;
    const what = el("span", { class: `what d${Math.min(depth, 6)}` },
      opens ? el("button", { class: "turns", "data-key": key, "aria-expanded": this.open.has(key) ? "true" : "false", "aria-label": `${facts.kind} ${facts.label}`, onclick: () => this.turn(key, tree.run) }, "›") : el("span", { class: "turns" }),
      el("span", { class: `kind ${facts.lane ?? facts.kind}` }, facts.kind), el("span", { class: "named" }, to ? el("a", { href: to }, broken(facts.label || facts.kind)) : el("span", {}, broken(facts.label)),
      facts.note ? el("span", { class: `quiet small ${facts.tone === "fault" || facts.tone === "lost" ? "warn" : ""}` }, broken(facts.note)) : "",
      facts.only ? el("a", { class: "quiet small", href: `${path()}?of=${facts.only}` }, "only this") : ""));
    return el("div", { class: "lane", id: (facts.at ?? tree.run) === this.facts.run && facts.seq ? `t${facts.seq}` : undefined }, what, track, el("span", { class: "num" }, facts.took),
      el("span", { class: "num", title: costs && tokens ? `${costs.tokens_in.toLocaleString("en")} read, ${costs.cached.toLocaleString("en")} of them cached; ${costs.tokens_out.toLocaleString("en")} written` : undefined }, tokens ? tokens.toLocaleString("en") : "", costs?.cached ? el("small", { class: "quiet" }, ` ${costs.cached.toLocaleString("en")} cached`) : ""),
      el("span", { class: "num" }, costs && costs.usd !== null && costs.usd !== undefined ? money(costs.usd) : ""));
  }

  async turn(key, run) {
    if (!this.open.delete(key)) this.open.add(key);
    if (key.endsWith(".run") && !this.trees.has(run)) await this.read(run);
    this.draw();
  }
}

function push(map, key, value) { if (map.has(key)) map.get(key).push(value); else map.set(key, [value]); }
/** Return round times for the axis, as many as there is room for. */
function ticks(part) {
  if (part.width < 24 || part.to - part.from < 4) return [];
  const most = ((part.to - part.from) / part.width) * 14, power = 10 ** Math.floor(Math.log10(most));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= most), found = [];
  for (let at = part.from + step; at < part.to - step / 4; at += step) found.push(at);
  return found;
}

const wrong = (bars) => { const faults = bars.filter((bar) => bar.tone === "fault").length; return faults ? `${faults} failed` : ""; };
const total = (children) => children.reduce((all, { totals }) => ({ tokens_in: all.tokens_in + totals.tokens_in, cached: all.cached + totals.cached, tokens_out: all.tokens_out + totals.tokens_out, usd: totals.usd === null ? all.usd : (all.usd ?? 0) + totals.usd }), { tokens_in: 0, cached: 0, tokens_out: 0, usd: null });
