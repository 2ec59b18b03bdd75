// Makes elements from texts, never from markup, so that the words of an agent or a tool can never become HTML.
import { href } from "./source.js";

/** Return an element. `facts`: attributes, `on…` listeners, `class`; `undefined` and `false` are left out. */
export function el(name, facts = {}, ...inside) {
  const made = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : key === "href" ? href(String(value)) : String(value));
  }
  made.append(...inside.flat(Infinity).filter((each) => each !== undefined && each !== null && each !== false && each !== ""));
  return made;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** Return a name that breaks between its words where there is little room. */
export const broken = (name) => name.split(/(?<=[_/@-]|\.(?=\D))/).flatMap((part, place) => (place ? [el("wbr"), part] : [part]));

/** Return a duration in milliseconds as text. */
export function took(ms) {
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  if (ms < 172_800_000) return `${(ms / 3_600_000).toFixed(1)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

/** Words for the end of a turn, where the name of the reason alone is not clear. */
export const STATES = { limit: "reached a limit", budget: "reached its budget", recorded: "recorded only" };

/** Return what a run waits for in a few words, as `gesta sessions` does; empty if it waits for nothing. */
export function inWords(waits) {
  const left = waits.filter((each) => !each.answer_sent_at).map((each) => (each.tool ? `${each.what} of ${each.tool}` : each.what));
  return left.length ? `waits: ${left.join(", ")}` : waits.length ? "answer sent, waits for a program to go on" : "";
}

export const time = (at) => new Date(at).toLocaleTimeString("en-GB");

/** Return a time in everyday words, with the exact time as its title. */
export function when(at) {
  const then = new Date(at);
  const today = new Date().toDateString() === then.toDateString();
  const text = today ? then.toLocaleTimeString("en-GB") : then.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return el("time", { datetime: at, title: at }, text);
}

/** Return the time at which a person said what a line tells, which is earlier than the time of its entry. */
export const saidAt = (line) => (line.said_at ? el("span", { class: "quiet small" }, " said at ", when(line.said_at)) : "");

const CONNECTION = { lost: "The viewer does not answer; the page tries again.", closed: "The viewer was started anew: open the address that it printed." };

/** Show a problem in the line above the page; an empty text hides the line. */
export function problem(text) {
  const shown = document.getElementById("connection");
  shown.textContent = text;
  shown.hidden = !text;
}

/** Show whether the page is still connected and gets new entries. */
export function connection(state) {
  problem(CONNECTION[state] ?? "");
  if (state === "closed") dispatchEvent(new Event("closed"));
}

const PAUSE = 1500;
let said = "", spoken = 0, saying = 0;

/** Announce a text to screen readers: never the same one twice in a row, and at most one in a short time. */
export function announce(text) {
  if (text === said) return;
  said = text;
  clearTimeout(saying);
  const say = () => { spoken = Date.now(); document.getElementById("spoken").textContent = text; };
  if (Date.now() - spoken > PAUSE) say(); else saying = setTimeout(say, PAUSE);
}
