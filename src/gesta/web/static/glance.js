// The panel beside a run: what happened, what it cost, its time, why an answer was given, and the runs around it.
import { Children, cost, ended, lasted, sum } from "./children.js";
import { count, el, took } from "./dom.js";
import { timeline } from "./timeline.js";

export class Glance {
  constructor(place, record, go) {
    this.record = record; this.go = go;
    this.facts = el("div", { class: "facts" }); this.time = el("div", { class: "time-of" }); this.why = el("div"); this.runs = el("div"); this.story = el("div", { class: "story-of" }); this.sums = el("p", { class: "quiet small started" });
    place.append(this.facts, this.sums, this.time, this.story, this.why, this.runs);
  }

  show(run) {
    this.facts.replaceChildren(cards(run));
    const left = run.bars_left_out ? el("p", { class: "quiet small" }, `The last ${run.bars.length} of ${count(run.bars.length + run.bars_left_out, "bar")}.`) : "";
    this.time.replaceChildren(el("h2", {}, "Time"), timeline(run.bars, run.turns, this.go), left, busy(run, this.record));
    this.story.replaceChildren(...story(run, this.go));
    const children = run.runs.length > 1 || run.below;
    if (this.seen === JSON.stringify([run.runs, run.below])) return;
    this.seen = JSON.stringify([run.runs, run.below]);
    this.runs.replaceChildren(...(children ? [el("h2", {}, "Runs of this session"), el("ul", { class: "runs" }, tree(run, this.record))] : []));
  }

  /** Show the sums of the runs that this one started, once all of them are loaded. */
  below({ all, count: number }) {
    if (number && all.length >= number) this.sums.textContent = `${number === 1 ? "The run" : `The ${number.toLocaleString("en")} runs`} that it started: ${sum(all)}`;
  }
}

function cards(run) {
  const effects = Object.entries(run.totals.effects), happened = effects.reduce((all, [, each]) => all + each, 0);
  const tokens = run.totals.tokens_in + run.totals.tokens_out, { usd } = run.totals;
  const { doubts, settled, errors } = run.totals;
  const shown = [
    !effects.length ? [run.totals.calls.toLocaleString("en"), run.totals.calls === 1 ? "tool call" : "tool calls"] : [happened.toLocaleString("en"), effects.length === 1 ? `${effects[0][0]} happened` : happened === 1 ? "effect" : "effects happened"],
    doubts ? [`${settled} of ${doubts}`, "doubts settled"] : [errors.toLocaleString("en"), errors === 1 ? "error" : "errors"],
    !tokens && usd === null ? [run.totals.requests.toLocaleString("en"), run.totals.requests === 1 ? "model call" : "model calls"] : usd === null ? [tokens.toLocaleString("en"), "tokens"] : [`$${usd.toFixed(usd < 1 ? 4 : 2)}`, `${tokens.toLocaleString("en")} tokens`],
  ];
  return el("div", { class: "cards" }, shown.map(([number, name]) => el("div", {}, el("b", {}, number), el("span", {}, name))));
}

/** Return how long models and tools were at work, and how many tokens were read and written. */
function busy(run, record) {
  const { busy_ms: ms, totals } = run;
  const times = Object.entries(ms).filter(([, each]) => each).map(([lane, each]) => `${lane} ${took(each)}`).join(" · ");
  const tokens = totals.tokens_in ? `${totals.tokens_in.toLocaleString("en")} tokens read${totals.cached ? ` (${totals.cached.toLocaleString("en")} cached)` : ""}, ${totals.tokens_out.toLocaleString("en")} written` : "";
  return el("p", { class: "quiet small" }, [times, tokens].filter(Boolean).join(" · "), times || tokens ? el("br") : "", el("a", { href: `/r/${record}/run/${run.run}/time` }, "See each step"));
}

const LISTED = 6;
const VERDICTS = { done: "it had happened", failed: "it had not happened", retry: "it may be tried again", late: "it came after all" };
/** Return the deaths of processes and the doubts, each with a link to its entry. */
function story(run, go) {
  const link = (seq, text) => el("a", { href: `#${seq}`, onclick: (event) => { event.preventDefault(); go(seq); } }, text);
  const deaths = run.deaths.map((each) => [each.seq, el("li", { class: "fault" }, link(each.seq, "A process died"), each.tools.length ? `: ${each.tools.join(", ")} in flight` : each.request ? ": a request to the model in flight" : ": nothing in flight")]);
  const doubts = run.doubts.map((each) => [each.seq, el("li", { class: each.settled ? "settled" : "waiting" }, link(each.call, each.tool || "a call"), each.settled ? ` was in doubt for ${took(Date.parse(each.settled_at) - Date.parse(each.at))}; ${each.by} settled it: ${VERDICTS[each.verdict] ?? each.verdict}` : " is in doubt")]);
  const all = [...deaths, ...doubts].sort((a, b) => a[0] - b[0]).map(([, each]) => each), rest = all.splice(LISTED);
  const more = rest.length ? el("details", { class: "fold" }, el("summary", {}, `${rest.length} more`), el("ul", { class: "events" }, rest)) : "";
  return all.length ? [el("h2", {}, "Crash and doubt"), el("ul", { class: "events" }, all), more] : [];
}

/** Return the top runs of a session and the parents of this run, each run below the one that started it. */
function tree(run, record, above = null) {
  const ids = new Set(run.runs.map((each) => each.run));
  return run.runs.filter((each) => (ids.has(each.parent) ? each.parent : null) === above).map((each) => {
    const below = each.run === run.run ? started(run, record) : el("ul", { class: "runs below" }, tree(run, record, each.run));
    return el("li", {}, el("a", { href: `/r/${record}/run/${each.run}`, "aria-current": each.run === run.run ? "page" : undefined }, each.agent || each.run), below);
  });
}

/** Return the runs that this one started: folded, and loaded when they are opened. */
function started(run, record) {
  if (!run.below) return "";
  const list = el("ul", { class: "runs below" }), children = new Children(record, run.run);
  const more = el("button", { class: "small", type: "button", onclick: () => next() });
  const next = async () => {
    const before = children.all.length;
    await children.until(children.all.at(-1)?.at ?? "", run.below);
    list.append(...children.all.slice(before).map((each) => el("li", {}, el("a", { href: `/r/${record}/run/${each.run}` }, each.name), el("small", { class: "quiet" }, ` ${[ended(each), lasted(each), cost(each.totals)].filter(Boolean).join(" · ")}`))));
    said.textContent = children.all.length < children.count ? "" : sum(children.all);
    more.textContent = `show ${Math.min(200, children.count - children.all.length)} more`;
    if (children.all.length < children.count) box.append(more); else more.remove();
  };
  const said = el("p", { class: "quiet small" });
  const box = el("details", { class: "fold", ontoggle: () => { if (box.open && !children.all.length) next(); } }, el("summary", {}, count(run.below, "run"), " below"), said, list);
  if (run.below <= 8) box.open = true;
  return box;
}
