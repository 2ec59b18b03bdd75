// The panel beside a run: what happened, what it cost, its time, why an answer was given, and the runs around it.
import { count, el } from "./dom.js";
import { timeline } from "./timeline.js";

export class Glance {
  constructor(place, record, go) {
    this.record = record; this.go = go;
    this.facts = el("div"); this.time = el("div"); this.why = el("div"); this.runs = el("div");
    place.append(this.facts, this.time, this.why, this.runs);
  }

  show(run) {
    this.facts.replaceChildren(cards(run));
    const left = run.bars_left_out ? el("p", { class: "quiet small" }, `The last ${run.bars.length} of ${count(run.bars.length + run.bars_left_out, "bar")}.`) : "";
    this.time.replaceChildren(el("h2", {}, "Time"), timeline(run.bars, this.go), left);
    this.runs.replaceChildren(...(run.runs.length > 1 ? [el("h2", {}, "Runs of this session"), el("ul", { class: "runs" }, tree(run, this.record))] : []));
  }
}

function cards(run) {
  const sum = (name) => run.turns.reduce((all, turn) => all + (turn[name] ?? 0), 0);
  const effects = Object.entries(run.totals.effects), happened = effects.reduce((all, [, each]) => all + each, 0);
  const tokens = sum("tokens_in") + sum("tokens_out"), usd = run.turns.some((turn) => turn.usd !== null) ? sum("usd") : null;
  const { doubts, settled, errors } = run.totals;
  const shown = [
    [happened.toLocaleString("en"), effects.length === 1 ? `${effects[0][0]} happened` : happened === 1 ? "effect" : "effects happened"],
    doubts ? [`${settled} of ${doubts}`, "doubts settled"] : [errors.toLocaleString("en"), errors === 1 ? "error" : "errors"],
    usd === null ? [tokens.toLocaleString("en"), "tokens"] : [`$${usd.toFixed(usd < 1 ? 4 : 2)}`, `${tokens.toLocaleString("en")} tokens`],
  ];
  return el("div", { class: "cards" }, shown.map(([number, name]) => el("div", {}, el("b", {}, number), el("span", {}, name))));
}

/** Return the runs of a session, each below the run that started it. */
function tree(run, record, above = null) {
  const ids = new Set(run.runs.map((each) => each.run));
  return run.runs.filter((each) => (ids.has(each.parent) ? each.parent : null) === above).map((each) => {
    const below = tree(run, record, each.run);
    return el("li", {}, el("a", { href: `/r/${record}/run/${each.run}`, "aria-current": each.run === run.run ? "page" : undefined }, each.agent || each.run), below.length ? el("ul", { class: "runs below" }, below) : "");
  });
}
