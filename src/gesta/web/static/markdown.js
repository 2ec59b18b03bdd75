// Shows Markdown as models write it: first the blocks, then the words in them. Markup of HTML stays text.
// Images are never loaded, and a link shows its address. Anything that is not understood is shown as it was written.
import { el } from "./dom.js";
import { parse } from "./json.js";

const DEEP = 6, FEW = 8, LONGEST = 100_000, ADDRESS = 90;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/, HEADING = /^ {0,3}(#{1,6}) +(.*)$/, RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ITEM = /^( *)([-*+•]|\d{1,3}[.)])( +|$)(.*)$/, QUOTE = /^ {0,3}> ?(.*)$/, DELIMITER = /^ {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

/** Return the elements of a text. `marked(words)` may split plain words further. */
export function markdown(words, marked = (part) => [part]) {
  if (words.length > LONGEST) return [el("pre", {}, words)];
  if (/^\s*[[{][^]*[\]}]\s*$/.test(words) && json(words)) return object(words, marked);
  return blocks(words.replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n"), marked, 0);
}

/** Return a text that is JSON: an object with few texts as these texts, with the JSON in a fold; anything else unchanged. */
function object(words, marked) {
  const found = json(words), keys = Object.keys(found);
  if (Array.isArray(found) || !keys.length || keys.length > FEW || !keys.every((key) => typeof found[key] === "string")) return [code(marked(words), "json")];
  const inside = (key) => blocks(found[key].replace(/\r\n?/g, "\n").split("\n"), marked, 1);
  return [keys.length === 1 ? el("div", { class: "member" }, el("small", { class: "quiet" }, keys[0]), inside(keys[0])) : el("dl", { class: "value members" }, keys.map((key) => [el("dt", {}, key), el("dd", {}, inside(key))])),
    el("details", { class: "fold small" }, el("summary", {}, "as it was written, in JSON"), code(words, "json"))];
}

function json(words) {
  try { return parse(words); } catch { return null; }
}

function blocks(lines, marked, depth) {
  const made = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    if (!line.trim()) { at += 1; continue; }
    const [element, next] = fence(lines, at) ?? heading(lines, at, marked) ?? (depth < DEEP ? quote(lines, at, marked, depth) ?? list(lines, at, marked, depth) : null) ?? table(lines, at, marked) ?? indented(lines, at) ?? paragraph(lines, at, marked);
    made.push(element); at = next;
  }
  return made;
}

const begins = (lines, at) => FENCE.test(lines[at]) || HEADING.test(lines[at]) || RULE.test(lines[at]) || QUOTE.test(lines[at]) || listed(lines[at]) || headed(lines, at);
const listed = (line) => { const found = ITEM.exec(line); return found && found[4] !== "" && !/^(?!1\D)\d/.test(found[2]); }; // “2024. Then” does not begin a list

function fence(lines, at) {
  const found = FENCE.exec(lines[at]);
  if (!found) return null;
  const [, ticks, language] = found, inset = left(lines[at]), own = [];
  for (at += 1; at < lines.length; at += 1) {
    const trimmed = lines[at].trim();
    if (trimmed.length >= ticks.length && trimmed === ticks[0].repeat(trimmed.length) && left(lines[at]) < 4) { at += 1; break; }
    own.push(lines[at].slice(Math.min(inset, left(lines[at]))));
  }
  return [code(own.join("\n"), language.trim().split(/[\s{]/)[0]), at];
}

const code = (words, language) => el("figure", { class: "block" }, language ? el("figcaption", {}, language) : "", el("pre", {}, el("code", {}, words)));

function heading(lines, at, marked) {
  if (RULE.test(lines[at])) return [el("hr"), at + 1];
  const found = HEADING.exec(lines[at]);
  return found ? [titled(found[1].length, found[2].trim().replace(/ #+$/, ""), marked), at + 1] : null;
}

const titled = (level, words, marked) => el(`h${Math.min(6, level + 2)}`, { class: `size${Math.min(4, level)}` }, inline(words, marked)); // below the heading of the turn

function quote(lines, at, marked, depth) {
  const own = [];
  for (; at < lines.length && QUOTE.test(lines[at]); at += 1) own.push(QUOTE.exec(lines[at])[1]);
  return own.length ? [el("blockquote", {}, blocks(own, marked, depth + 1)), at] : null;
}

function list(lines, at, marked, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const ordered = /\d/.test(first[2]), items = [], inset = first[1].length;
  let loose = false;
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || /\d/.test(found[2]) !== ordered || found[1].length > inset + 3 || found[1].length < inset - 1 || RULE.test(lines[at])) break;
    const deep = found[1].length + found[2].length + 1, own = [found[4]], below = (line) => line.trim() && (left(line) >= deep || (ITEM.test(line) && left(line) > inset + 1));
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at], blank = !line.trim();
      if (blank ? !below(lines[at + 1] ?? "") : !below(line) && (!lines[at - 1].trim() || ITEM.test(line) || begins(lines, at))) break;
      own.push(blank ? "" : line.slice(Math.min(left(line), deep)));
    }
    items.push(own);
    let next = at;
    while (next < lines.length && !lines[next].trim()) next += 1;
    if (next > at && ITEM.test(lines[next] ?? "")) { loose = true; at = next; }
  }
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  return [el(ordered ? "ol" : "ul", { class: loose ? "loose" : undefined, start: start === 1 ? undefined : start }, items.map((own) => item(own, marked, depth))), at];
}

const left = (line) => line.search(/\S|$/);

function item(own, marked, depth) {
  const task = /^\[([ xX])\] +/.exec(own[0]);
  if (task) own[0] = own[0].slice(task[0].length);
  const inside = blocks(own, marked, depth + 1), tight = inside[0]?.localName === "p";
  return el("li", { class: task ? "task" : undefined }, task ? el("span", { role: "img", "aria-label": task[1] === " " ? "open" : "done" }, task[1] === " " ? "☐ " : "☑ ") : "", tight ? [...inside[0].childNodes] : inside[0] ?? "", inside.slice(1));
}

const headed = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && lines[at + 1].includes("|") && DELIMITER.test(lines[at + 1]) && cells(lines[at]).length === cells(lines[at + 1]).length;

function table(lines, at, marked) {
  if (!headed(lines, at)) return null;
  const sides = cells(lines[at + 1]).map((each) => (/^:-*:$/.test(each) ? "middle" : each.endsWith(":") ? "number" : undefined));
  const row = (line, name) => { const own = cells(line); return el("tr", {}, sides.map((side, place) => el(name, { class: side, scope: name === "th" ? "col" : undefined }, inline(own[place] ?? "", marked)))); };
  const head = row(lines[at], "th"), rows = [];
  for (at += 2; at < lines.length && lines[at].trim() && (lines[at].includes("|") || !begins(lines, at)); at += 1) rows.push(row(lines[at], "td"));
  return [el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { class: "values lined" }, el("thead", {}, head), el("tbody", {}, rows))), at];
}

/** Return the cells of a row. A bar after a backslash or in code does not separate cells. */
function cells(line) {
  const found = line.trim().replace(/^\|/, "").match(/(?:\\.|`[^`]*`|[^|\\])+|\||\\/g) ?? [], own = [""];
  for (const each of found) if (each === "|") own.push(""); else own[own.length - 1] += each;
  if (own.length > 1 && !own.at(-1).trim()) own.pop();
  return own.map((each) => each.trim().replaceAll("\\|", "|"));
}

function indented(lines, at) {
  const own = [];
  for (; at < lines.length && (/^ {4}/.test(lines[at]) || own.length && !lines[at].trim() && /^ {4}/.test(lines[at + 1] ?? "")); at += 1) own.push(lines[at].slice(4));
  return own.length ? [code(own.join("\n"), ""), at] : null;
}

function paragraph(lines, at, marked) {
  const own = [lines[at]];
  for (at += 1; at < lines.length && lines[at].trim(); at += 1) {
    const under = own.length === 1 && /^ {0,3}(={2,}|-{3,}) *$/.exec(lines[at]);
    if (under && (under[1][0] === "=" || !/[.:;!?]\s*$/.test(own[0]))) return [titled(under[1][0] === "=" ? 1 : 2, own[0].trim(), marked), at + 1];
    if (begins(lines, at)) break;
    own.push(lines[at]);
  }
  const words = own.map((each, place) => (place ? each : each.trimStart()).trimEnd()).join("\n");
  return [el("p", { class: /\n {2}/.test(words) ? "as-written" : undefined }, inline(words, marked)), at];
}

const WORDS = new RegExp([
  "(?<ticks>`+)(?!`)(?<code>[^]{0,5000}?[^`])\\k<ticks>(?!`)",
  String.raw`(?<picture>!?)\[(?<name>(?:[^\[\]\\]|\\.|\[[^\[\]]*\]){0,1000})\]\(\s*<?(?<target>(?:[^\s()<>]|\([^\s()<>]*\)){1,4000})>?(?:\s+"[^"\n]{0,300}")?\s*\)`,
  String.raw`<(?<auto>https?:\/\/[^\s<>]+)>`,
  "(?<bare>\\bhttps?:\\/\\/[^\\s<>\"'`|\\\\^{}]+[^\\s<>\"'`|\\\\^{}.,:;!?*_~)\\]])",
  String.raw`(?<![A-Za-z0-9_*\\])\*\*(?=\S)(?<heavy>[^]{0,3000}?\S)\*\*(?!\*)`,
  String.raw`(?<![A-Za-z0-9_*\\])__(?=\S)(?<under>(?:(?!__)[^]){0,3000})(?<=\S)__(?![A-Za-z0-9_])`, // inside a word, underscores are part of the word
  String.raw`(?<![A-Za-z0-9_*\\])(?<emphasis>[*_])(?=[^\s*_])(?<slanted>[^*\n]{0,1000}?[^\s*_\\])\k<emphasis>(?![A-Za-z0-9_*])`,
  String.raw`~~(?=\S)(?<struck>[^~]{0,3000}?\S)~~`,
  "\\\\(?<mark>[*_`#~|])",
  String.raw`(?<end>\n)`,
].join("|"), "g");

/** Return the words of a block: code, emphasis, links with their targets, and line ends. */
function inline(words, marked, depth = 0) {
  const made = [], plain = (part) => { if (part) made.push(...marked(part)); };
  let from = 0;
  for (const found of words.matchAll(WORDS)) {
    const is = found.groups;
    plain(words.slice(from, found.index));
    from = found.index + found[0].length;
    const deeper = (part) => (depth < DEEP ? inline(part, marked, depth + 1) : marked(part));
    if (is.code !== undefined) made.push(el("code", {}, is.code.replace(/^ (.*\S.*) $/, "$1")));
    else if (is.target) made.push(...(link(is.target, is.picture ? [pictured("", is.name)] : [is.name.replace(/!\[([^\]]*)\]\([^)]*\)/g, pictured)], is.name, is.picture) ?? marked(found[0])));
    else if (is.auto ?? is.bare) made.push(...(link(is.auto ?? is.bare, null) ?? marked(found[0])));
    else if (is.heavy ?? is.under) made.push(el("strong", {}, deeper(is.heavy ?? is.under)));
    else if (is.slanted) made.push(el("em", {}, deeper(is.slanted)));
    else if (is.struck) made.push(el("s", {}, deeper(is.struck)));
    else if (is.mark) plain(is.mark);
    else made.push(el("br"));
  }
  plain(words.slice(from));
  return made;
}

const pictured = (_, name) => `image${name ? ` “${name}”` : ""}`;

/** Return a link that shows its target, or `null` for a wrong target. Only http and https are links. An image becomes a link and is never loaded. */
function link(target, inside, words = "", picture = "") {
  const told = (address) => el("span", { class: "quiet small address" }, ` (${address.length > ADDRESS ? `${address.slice(0, ADDRESS - 20)}…${address.slice(-18)}` : address})`);
  let address;
  try { address = new URL(target); } catch { return inside && /^[/#.]/.test(target) ? [...inside, told(target)] : null; }
  if (address.protocol !== "https:" && address.protocol !== "http:") return null;
  const { href } = address, made = (...parts) => el("a", { href, rel: "noopener noreferrer", target: "_blank", title: href }, parts);
  return !inside || (!picture && same(words, href)) ? [made(href.length > ADDRESS ? `${href.slice(0, ADDRESS - 20)}…${href.slice(-18)}` : href)] : [made(inside), told(href)];
}

const same = (words, href) => [href, href.replace(/\/$/, ""), href.replace(/^https?:\/\//, ""), href.replace(/^https?:\/\//, "").replace(/\/$/, "")].includes(words.trim());
