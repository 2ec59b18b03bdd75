// What an answer was made from: a panel with its source entries. Words that the answer repeats are marked in both.
import * as api from "./api.js";
import { count, el } from "./dom.js";
import { parse } from "./json.js";
import { args } from "./value.js";

const NAMES = { Question: "question", Observation: "result", ToolUse: "call", Analysis: "model", Approval: "approval", Resolution: "settled", Conclusion: "answer", Retrieval: "passages", Instructions: "instructions", Thought: "thought", PatternDecision: "decision" };
const NEAR = 160, BEFORE = 40, AFTER = 24, WINDOWS = 4, LONGEST = 220;

/** Return the name of an entry's type in words; without a seq, the name of all such entries. */
export function named(node, number = 1) {
  const name = NAMES[node.type] ?? node.type.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();
  if (node.seq === undefined && node.type === "Analysis") return number === 1 ? "reply of the model" : "replies of the model";
  if (node.seq === undefined) return number === 1 || name.endsWith("s") ? name : `${name}s`;
  return `${name}${node.status ? ` · ${node.status}` : ""} · entry ${node.seq}`;
}

/** Show in `panel` why an entry was written. Returns the passages of the answer: `{text, ids}`. */
export async function why(panel, record, run, seq, go, light) {
  panel.replaceChildren(el("h2", {}, "Why this answer"), el("p", { class: "quiet small" }, "Looking…"));
  let found;
  try { found = await api.why(record, run, seq); } catch (error) { panel.replaceChildren(el("p", { class: "warn" }, error.message)); return []; }
  const target = found.nodes.at(-1);
  const passages = found.drawn.map((each) => ({ text: target.text.slice(each.at, each.to), id: each.id, start: each.start, end: each.end }));
  let all = false;
  const draw = () => {
    const nodes = found.nodes.filter((node) => node !== target && (all || (node.near && node.type !== "Thought" && (node.type !== "Analysis" || target.derived_from?.includes(node.id)))));
    const left = found.nodes.length - 1 - nodes.length;
    panel.replaceChildren(
      el("h2", {}, "Why this answer"),
      found.complete ? "" : el("p", { class: nodes.length ? "warn" : "quiet small" }, "No causes lead from it to its question: whoever wrote it down named none."),
      nodes.length || !found.complete ? "" : el("p", { class: "quiet small" }, "It rests on nothing else on record."),
      el("div", { class: "why" }, el("ol", {}, nodes.map((node) => row(node, passages.filter((each) => each.id === node.id), run, record, go, light)))),
      left || all ? el("button", { class: "small", onclick: () => { all = !all; draw(); } }, all ? "Only what it drew on" : `${count(left, "entry", "entries")} more`) : "",
      found.nodes.length > 1 ? el("p", { class: "small" }, el("a", { href: `/r/${record}/run/${encodeURIComponent(run)}/why/${seq}` }, "See it drawn")) : "");
  };
  draw();
  return passages;
}

function row(node, own, run, record, go, light) {
  const made = el("li", { class: node.type, "data-id": node.id },
    el("a", { href: node.run === run ? `#${node.seq}` : `/r/${record}/run/${encodeURIComponent(node.run)}#${node.seq}`, onclick: (event) => { if (node.run === run) { event.preventDefault(); go(node.seq); } } },
      marked(readable(node, own), own), el("small", {}, `${named(node)}${node.run === run ? "" : ` of ${node.run.slice(0, 8)}`}${node.inferred ? " · inferred" : ""}`)));
  for (const [event, on] of [["mouseenter", true], ["mouseleave", false], ["focusin", true], ["focusout", false]]) made.addEventListener(event, () => light(node.id, on));
  return made;
}

/** Return the text of an entry. A call without marks is returned in the notation of code. */
export function readable(node, own) {
  const found = node.type === "ToolUse" && !own.length ? /^([^\s{]+) (\{[^]*\})$/.exec(node.text) : null;
  if (!found) return node.text;
  try { return `${found[1]}(${args(parse(found[2]))})`; } catch { return node.text; } // the JSON was cut off
}

/** Return a part of a text; if it is JSON, without the marks of JSON, so that its words can be read. */
export const plain = (text, whole, line = " ") => (/^\s*(?:by [^{}]{1,90}: )?(?:\{\s*["}]|\[\s*(?:[[{"]|-?[\d.]+\s*,))/.test(whole) ? text.replace(/\\u([0-9a-f]{4})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16))).replace(/\\n/g, line).replace(/\\?"|[[\]{}]/g, "") : text);

/** Return the beginning of a text; of a long text with marked words, the parts around them. */
function marked(text, own) {
  const spans = own.map((each) => [each.start, each.end]).sort((a, b) => a[0] - b[0]), made = [];
  if (!spans.length) return [plain(text.slice(0, NEAR), text), text.length > NEAR ? "…" : ""];
  let at = 0, windows = 0, long = 0;
  for (const [start, end] of spans) {
    if (start < at) continue; // it is inside the one before
    const from = Math.max(at, start - BEFORE), far = from > at + 2 * AFTER;
    if (far && ++windows > WINDOWS || long > LONGEST) break;
    if (far || !made.length && from) made.push(made.length ? `${after(text, at)} … ` : "…");
    made.push(plain(far || !made.length && from ? text.slice(from, start).replace(/^\S+(?=\s)/, "") : text.slice(at, start), text), el("mark", {}, plain(text.slice(start, end), text)));
    long += end - from;
    at = end;
  }
  made.push(after(text, at), at + AFTER < text.length ? "…" : "");
  return made;
}

/** Return the whole words after a place in the text. */
function after(text, at) {
  const words = text.slice(at, at + AFTER);
  return plain(at + AFTER < text.length ? words.replace(/(?<=\s)\S+$/, "").trimEnd() : words, text);
}

/** Return a part of an answer with its passages underlined. */
export function underlined(part, passages, light, go) {
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
    const mark = el("span", { class: "from", "data-id": each.id, title: `from entry ${each.id.split(".").at(-1)}`, tabindex: 0, role: "link", onkeydown: (event) => { if (event.key === "Enter") event.target.click(); }, onclick: () => go(Number(each.id.split(".").at(-1))),
      onmouseenter: () => light(each.id, true), onmouseleave: () => light(each.id, false), onfocus: () => light(each.id, true), onblur: () => light(each.id, false) }, each.text);
    made.push(left.slice(0, at), mark);
    left = left.slice(at + each.text.length);
  }
  return made;
}
