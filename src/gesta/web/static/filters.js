// The filters and the order of the list of sessions. What a person chose is stored in the address.
import { el } from "./dom.js";

const STANDS = [["", "any state"], ["running", "running"], ["open", "running or left"], ["waiting", "waiting for somebody"], ["answered", "answered"], ["failed", "failed"], ["limit", "reached a limit"], ["budget", "reached its budget"], ["cancelled", "cancelled"], ["recorded", "recorded only"]];
const SORTS = [["", "newest first"], ["cost", "most expensive first"], ["tokens", "most tokens first"], ["duration", "longest time first"], ["entries", "most entries first"]];

/** Return the element with the filters. `narrow(wanted)` is called when a person has chosen. */
export function filters(wanted, narrow) {
  let now = { ...wanted };
  const set = (name, value) => { now = { ...now, [name]: value, page: "" }; narrow(now); };
  const options = (name, pairs) => pairs.map(([value, text]) => el("option", { value, selected: (now[name] ?? "") === value }, text));
  const choose = (name, pairs, label) => el("select", { "aria-label": label, onchange: (event) => set(name, event.target.value) }, options(name, pairs));
  const named = (name, any, names) => [["", any], ...(now[name] && !names.includes(now[name]) ? [[now[name], now[name]]] : []), ...names.map((each) => [each, each])];
  const day = (name, label) => el("label", { class: "small quiet" }, `${label} `, el("input", { type: "date", name, value: now[name], onchange: (event) => set(name, event.target.value) }));
  const agent = choose("agent", named("agent", "any agent", []), "Agent"), tool = choose("tool", named("tool", "any tool", []), "Tool");
  const errors = el("input", { type: "checkbox", name: "errors", checked: Boolean(now.errors), onchange: (event) => set("errors", event.target.checked ? "1" : "") });
  const cost = el("input", { type: "number", name: "cost", min: "0", step: "any", placeholder: "0.00", value: now.cost, onchange: (event) => set("cost", event.target.value) });
  const clear = el("button", { class: "small", hidden: true, onclick: () => location.assign(location.pathname) }, "Show all");
  const more = el("details", { class: "further", open: Boolean(now.cost || now.since || now.until) }, el("summary", { class: "small" }, "Date and cost"),
    el("div", {}, day("since", "active since"), day("until", "begun before"), el("label", { class: "small quiet" }, "cost at least $ ", cost)));
  const words = now.words ? el("span", { class: "chip words" }, `“${now.words}”`, el("button", { "aria-label": "Without the words", onclick: () => { words.remove(); set("words", ""); } }, "×")) : "";
  const element = el("div", { class: "filters", role: "group", "aria-label": "Which sessions" },
    words, choose("stands", STANDS, "State"), agent, tool, el("label", { class: "small check" }, errors, " with errors"), more,
    choose("sort", SORTS, "Order"), clear);
  return {
    element,
    /** Set the names from which a person can choose. */
    choices(agents, tools) {
      for (const [select, name, any, names] of [[agent, "agent", "any agent", agents], [tool, "tool", "any tool", tools]]) select.replaceChildren(...options(name, named(name, any, names)));
    },
    narrowed(narrow_) { clear.hidden = !narrow_; },
  };
}
