// Values and texts as a person reads them: tables, lists, and the few marks of Markdown that models use.
import { el } from "./dom.js";

const LONG = 600;

/** Return any JSON value as a table, a list or a text. */
export function shown(value, depth = 0) {
  if (value === null || value === undefined) return el("span", { class: "quiet" }, "nothing");
  if (typeof value === "string") return text(value);
  if (typeof value !== "object") return el("span", { class: "code" }, String(value));
  const keys = Object.keys(value);
  if (!keys.length) return el("span", { class: "quiet" }, Array.isArray(value) ? "an empty list" : "empty");
  if (depth > 4) return el("pre", {}, JSON.stringify(value, null, 1));
  if (Array.isArray(value)) return list(value, depth);
  return el("dl", { class: "value" }, keys.map((key) => [el("dt", {}, key), el("dd", {}, shown(value[key], depth + 1))]));
}

function list(value, depth) {
  const rows = value.filter((each) => each && typeof each === "object" && !Array.isArray(each));
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const flat = rows.every((row) => Object.values(row).every((each) => typeof each !== "object" || each === null));
  if (rows.length === value.length && columns.length <= 8 && flat) {
    return el("div", { class: "scroll" }, el("table", { class: "values" },
      el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, value.map((row) => el("tr", {}, columns.map((name) => el("td", {}, plain(row[name]))))))));
  }
  return el("ul", {}, value.map((each) => el("li", {}, shown(each, depth + 1))));
}

const plain = (value) => (value === undefined || value === null ? "" : String(value));

/** Return a text as it is, folded if it is long. */
export function text(value) {
  if (value.length <= LONG && value.split("\n").length <= 12) return el("span", { style: undefined, class: "plain" }, value.includes("\n") ? el("pre", {}, value) : value);
  return el("details", { class: "fold" }, el("summary", {}, `${value.slice(0, 160).replace(/\s+/g, " ")}… (${value.length.toLocaleString("en")} characters)`), el("pre", {}, value));
}

/** Return the arguments of a call in one line, as in code. */
export function args(value) {
  if (!value || typeof value !== "object") return plain(value);
  return Object.entries(value).map(([key, each]) => `${key}=${JSON.stringify(each)}`).join(", ");
}

/** Return words with paragraphs, lists, headings, code and emphasis. `marked(text)` may split a text further. */
export function markdown(words, marked = (part) => [part]) {
  const made = [];
  const blocks = words.replace(/\r\n?/g, "\n").split(/\n{2,}(?![^`]*```(?:[^`]*```[^`]*```)*[^`]*$)/);
  for (const block of blocks) {
    const fence = block.match(/^\s*```[^\n]*\n([\s\S]*?)\n?```\s*$/);
    const rows = block.split("\n");
    if (fence) made.push(el("pre", {}, fence[1]));
    else if (rows.every((row) => /^\s*[-*] /.test(row))) made.push(el("ul", {}, rows.map((row) => el("li", {}, inline(row.replace(/^\s*[-*] /, ""), marked)))));
    else if (rows.every((row) => /^\s*\d+[.)] /.test(row))) made.push(el("ol", {}, rows.map((row) => el("li", {}, inline(row.replace(/^\s*\d+[.)] /, ""), marked)))));
    else if (/^#{1,6} /.test(block) && rows.length === 1) made.push(el("p", {}, el("b", {}, inline(block.replace(/^#+ /, ""), marked))));
    else made.push(el("p", {}, rows.map((row, place) => [place ? el("br") : "", inline(row, marked)])));
  }
  return made;
}

function inline(row, marked) {
  return row.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (/^`[^`]+`$/.test(part)) return el("code", {}, part.slice(1, -1));
    if (/^\*\*[^*]+\*\*$/.test(part)) return el("b", {}, marked(part.slice(2, -2)));
    return marked(part);
  });
}
