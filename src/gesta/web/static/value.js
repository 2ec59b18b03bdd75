// Shows values for a person: objects and lists of objects as tables, images as images, long values opened on demand.
import * as api from "./api.js";
import { count, el } from "./dom.js";
import { exact, nested, parse } from "./json.js";

const SHORT = 160, LONG = 600, LINES = 12, COLUMNS = 8, ROWS = 40, DEEP = 5, CELL = 70, ONE_LINE = 20, ALIKE = 0.75;

/** Return any JSON value as a table, a list or a text. */
export function shown(value, depth = 0) {
  if (value === null || value === undefined) return el("span", { class: "quiet" }, "nothing");
  if (value === "") return el("span", { class: "quiet" }, "an empty text");
  if (typeof value === "string") return text(value, depth);
  if (!nested(value)) return el("span", { class: "code" }, exact(value));
  const keys = Object.keys(value);
  if (!keys.length) return el("span", { class: "quiet" }, Array.isArray(value) ? "an empty list" : "empty");
  if (depth >= DEEP) return el("pre", {}, JSON.stringify(value, null, 1));
  if (Array.isArray(value)) return list(value, depth);
  const rows = alike(value, keys);
  if (rows) return rows(depth);
  const place = el("dl", { class: "value" });
  return inParts(place, keys, (key) => [el("dt", {}, key), el("dd", {}, shown(value[key], depth + 1))], "member");
}

function list(value, depth) {
  if (value.every((each) => !nested(each)) && JSON.stringify(value).length <= CELL) return el("ul", { class: "inline" }, value.map((each) => el("li", {}, exact(each))));
  const rows = value.every((each) => nested(each) && !Array.isArray(each)) ? value : [];
  const columns = [...new Set(rows.flatMap(Object.keys))];
  if (columns.length && columns.length <= COLUMNS && (rows.length > 1 || columns.every((name) => (JSON.stringify(rows[0][name]) ?? "").length <= CELL))) return table(rows, columns, depth);
  return inParts(el("ul", {}), value, (each) => el("li", {}, shown(each, depth + 1)), "item");
}

/** Return a function that draws a table of an object whose members are objects with mostly the same names; otherwise `null`. */
function alike(value, keys) {
  const inside = keys.map((key) => value[key]);
  if (keys.length < 2 || !inside.every((each) => nested(each) && !Array.isArray(each))) return null;
  const columns = [...new Set(inside.flatMap(Object.keys))], filled = inside.reduce((all, each) => all + Object.keys(each).length, 0);
  if (!columns.length || columns.length >= COLUMNS || filled < columns.length * keys.length * ALIKE) return null;
  return (depth) => table(inside, columns, depth, new Map(keys.map((key, place) => [inside[place], key])));
}

function table(rows, columns, depth, names = null) {
  const own = (row, name) => (Object.hasOwn(row, name) ? row[name] : undefined);
  const numbers = new Set(columns.filter((name) => rows.every((row) => own(row, name) === undefined || own(row, name) === null || typeof own(row, name) === "number")));
  const style = (name) => (numbers.has(name) ? "number" : undefined);
  const body = el("tbody");
  const made = el("table", { class: "values" }, el("thead", {}, el("tr", {}, names ? el("td", {}) : "", columns.map((name) => el("th", { scope: "col", class: style(name) }, name)))), body);
  const more = inParts(body, rows, (row) => el("tr", {}, names ? el("th", { scope: "row" }, names.get(row)) : "", columns.map((name) => el("td", { class: style(name) ?? fit(own(row, name)) }, cell(own(row, name), depth)))), "row");
  return el("div", {}, el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": count(rows.length, "row") }, made), more === body ? "" : more.lastChild);
}

function cell(value, depth) {
  if (value === undefined || value === null) return "";
  if (!nested(value)) return typeof value === "string" && value.length > LONG ? text(value, depth) : exact(value);
  return JSON.stringify(value).length <= CELL ? brief(value) : shown(value, depth + 2);
}

/** Return the CSS class of a cell: a short text stays on one line, and a text with a long word may break anywhere. */
function fit(value) {
  if (nested(value)) return "words";
  if (typeof value !== "string") return undefined;
  return value.length <= ONE_LINE ? "short" : /\S{30}/.test(value) ? "long" : undefined;
}

/** Return a small list or object as one line of text. */
function brief(value) {
  if (!nested(value)) return value === null ? el("span", { class: "quiet" }, "nothing") : exact(value);
  const parts = Array.isArray(value) ? value.map(brief) : Object.keys(value).map((key) => [el("span", { class: "quiet" }, `${key} `), brief(value[key])]);
  if (!parts.length) return el("span", { class: "quiet" }, Array.isArray(value) ? "none" : "empty");
  return el("span", {}, parts.map((each, place) => [place ? (Array.isArray(value) && value.some(nested) ? "; " : ", ") : "", each]));
}

/** Return `place` with an element for each item; if there are many, with a button that shows the next ones. */
function inParts(place, items, make, name) {
  let from = 0;
  const next = () => { place.append(...[items.slice(from, from += ROWS).map(make)].flat(2)); };
  next();
  if (from >= items.length) return place;
  const more = el("button", { class: "small", type: "button", onclick: () => { next(); more.textContent = left(); if (from >= items.length) more.remove(); } });
  const left = () => `show ${Math.min(ROWS, items.length - from)} more of ${count(items.length, name)}`;
  more.textContent = left();
  return el("div", {}, place, more);
}

/** Return a text as an element. JSON of a list or an object is shown as such, and a long text is folded. */
export function text(value, depth = 0) {
  const inside = depth < DEEP ? structure(value) : null;
  if (inside) return shown(inside, depth);
  const lines = value.split("\n", LINES + 1).length;
  if (value.length <= LONG && lines <= LINES) return value.includes("\n") ? el("pre", {}, value) : el("span", { class: "plain" }, value);
  const made = el("details", { class: "fold", ontoggle: () => { if (made.open && made.children.length < 2) made.append(el("pre", {}, value)); } },
    el("summary", {}, `${value.slice(0, 160).replace(/\s+/g, " ")}… (${count(value.length, "character")})`));
  return made;
}

function structure(value) {
  const head = value.trimStart()[0];
  if (head !== "{" && head !== "[") return null;
  try { return parse(value); } catch { return null; }
}

/** Return the arguments of a call in one line, in the notation of code. */
export function args(value) {
  if (!nested(value)) return value === undefined || value === null ? "" : exact(value);
  return Object.entries(value).map(([key, each]) => `${key}=${JSON.stringify(each)}`).join(", ");
}

/** Return the images and files of a line. Images of the record are shown; other files can be saved. */
export function files(record, run, line) {
  return (line.parts ?? []).map((file) => {
    const size = file.bytes === undefined ? "" : ` · ${bytes(file.bytes)}`;
    const words = `${file.name ?? (file.image ? "image" : "file")} · ${file.type}${size}`;
    if (file.url) return el("p", { class: "note" }, `${file.type} at ${file.url} (not on record, and not loaded)`);
    const address = api.file(record, run, line.seq, file.place), name = file.name ?? `file-${line.seq}-${file.place}`;
    const link = el("a", { href: address, download: name }, words);
    if (!file.image) return el("p", { class: "note file" }, link);
    const picture = el("img", { src: address, alt: file.name ?? "An image without a name", loading: "lazy", onerror: () => picture.remove() });
    return el("figure", { class: "picture" }, picture, el("figcaption", { class: "note" }, link));
  });
}

const bytes = (number) => (number < 1000 ? count(number, "byte") : number < 1e6 ? `${(number / 1000).toFixed(1)} kB` : `${(number / 1e6).toFixed(1)} MB`);

/** Put a value into `place`. A long value is one line with its size until a person opens it. */
export function folded(value, place, more = "") {
  const size = (JSON.stringify(value) ?? "").length;
  if (size <= SHORT) { place.append(shown(value)); return el("div", {}, place, more); }
  const what = Array.isArray(value) ? count(value.length, "item") : nested(value) ? count(Object.keys(value).length, "member") : "a text";
  const made = el("details", { class: "fold", ontoggle: () => { if (made.open && !place.hasChildNodes()) place.append(shown(value)); } },
    el("summary", {}, `${what}, ${more ? "more than " : ""}${count(size, "character")}`), place, more);
  return made;
}
