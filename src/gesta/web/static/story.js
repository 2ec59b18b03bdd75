// What happened to a tool call besides its result: attempts, process deaths, doubts, who resolved them, and skipped repeats.
// A doubt is a call that may or may not have had its effect.
import { el, saidAt, time } from "./dom.js";
import { shown } from "./value.js";

const TOLD = new Set(["attempt", "fault", "resolution", "approval-request", "approval", "check"]);

/** Return whether anything happened to a call except that it ran once, perhaps after an approval. */
export function notable(lines) {
  return lines.some((each) => each.kind === "fault" || each.kind === "resolution" || each.kind === "check" || each.outcome === "denied" || (each.kind === "approval" && each.value !== undefined))
    || lines.filter((each) => each.kind === "attempt").length > 1;
}

/** Return the story of a call as a list of sentences, each with its time. */
export function story(call) {
  const steps = call.stories.filter((each) => TOLD.has(each.kind));
  const list = el("ol", {}, steps.map((each) => el("li", { class: each.tone }, each.text, changed(call.line, each), after(each))));
  for (const each of call.results) list.append(el("li", { class: each.outcome === "ok" ? "settled" : "" }, each.concluded || each.text || `The model was told: ${each.outcome}.`, after(each)));
  const doubt = call.effect === "once" && steps.at(-1)?.kind === "fault" && steps.at(-1).tone !== "";
  if (!call.results.length) list.append(el("li", { class: "waiting" }, doubt ? "Nobody has said yet whether it happened. Until then it is not made again." : "It has no result yet."));
  return el("details", { class: "story", open: call.effect !== "pure" || !call.results.length }, el("summary", { onclick: () => { call.chosen = true; } }, `What happened to this ${call.line.tool}`), list);
}

const after = (line) => el("span", { class: "quiet small" }, saidAt(line), line.said_at ? ", written down at" : "", ` ${time(line.at)}, entry ${line.seq}`);

/** Return the arguments that a person approved instead of the model's, as a table of both. */
function changed(call, line) {
  if (line.kind !== "approval" || line.value === undefined) return "";
  if (line.outcome !== "approved") return shown(line.value);
  const own = call.value ?? {}, names = Object.keys({ ...own, ...line.value }).filter((name) => JSON.stringify(own[name]) !== JSON.stringify(line.value[name]));
  const cell = (value) => el("td", {}, value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));
  return el("table", { class: "values" },
    el("thead", {}, el("tr", {}, ["argument", "the model wrote", "it ran with"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, names.map((name) => el("tr", {}, el("td", {}, name), cell(own[name]), cell(line.value[name])))));
}
