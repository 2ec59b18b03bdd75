// Shows the page that an address names, and the line at the top that all pages share.
import * as api from "./api.js";
import { el, inWords, problem, STATES, when } from "./dom.js";
import { evidence } from "./evidence.js";
import { form } from "./forms.js";
import { keys } from "./keys.js";
import { lineage } from "./lineage.js";
import { list } from "./list.js";
import { run } from "./run.js";
import { sent } from "./sent.js";
import { copy, path, query } from "./source.js";
import { waits } from "./waits.js";
import { lanes } from "./lanes.js";

const main = document.getElementById("main"), top_ = document.getElementById("top");
const help = keys();
const PLACES = /^r?\/(?:\/|waiting\/|evidence\/|run\/id\/(?:why|time|sent)?)\/?$/; // the part after it names the entry
const address = () => `${path()}?${query()}`;
const BACK = 2000; // ms between looks for a record that could not be read
let leave = () => {}, shown = "", looks = 0;

async function show() {
  leave(); leave = () => {}; clearInterval(looks);
  shown = address();
  const [, root = "", number = "0", kind = "", id = "", part = "", seq = ""] = path().split("/").map(decoded);
  const record = number === "all" && !kind ? "all" : Number(number) || 0, wanted = Object.fromEntries(query());
  try {
    const records = await api.records(), about = record === "all" ? { name: "all records" } : records[record];
    head(records, about ? record : 0, about ?? records[0], []);
    if (!about) throw new api.Failed(`There is no record ${record}.`);
    if (about.problem) { back(); throw new api.Failed(about.problem); }
    if (!PLACES.test(`${root}/${kind}/${kind === "run" && id ? "id" : id}/${part}`)) throw new api.Failed("There is no page at this address.");
    if (kind === "run" && part === "why") leave = await lineage(main, record, id, Number(seq) || 0, (facts) => head(records, record, about, facts));
    else if (kind === "run" && part === "time") leave = await lanes(main, record, id, (facts) => head(records, record, about, facts));
    else if (kind === "run" && part === "sent") leave = await sent(main, record, id, Number(seq) || 0, (facts) => head(records, record, about, facts));
    else if (kind === "run" && wanted.form) leave = await form(main, record, id, wanted, (facts) => head(records, record, about, facts));
    else if (kind === "run") leave = await run(main, record, id, (facts) => head(records, record, about, facts));
    else if (kind === "evidence") leave = await evidence(main, record);
    else if (kind === "waiting") leave = await waits(main, record);
    else leave = await list(main, record, records, wanted);
  } catch (error) {
    main.replaceChildren(el("div", { class: "empty" }, el("p", {}, ...error.message.split("`").map((part, at) => at % 2 ? el("code", {}, part) : part)), el("p", {}, el("a", { href: document.querySelector("#top .name")?.getAttribute("href") ?? "/r/0" }, "All sessions"))));
    if (!(error instanceof api.Failed)) throw error;
  } finally {
    if (!main.querySelector("h1")) main.prepend(el("h1", { class: "unseen" }, document.title));
  }
}

/** Show the page again once its record can be read. */
function back() {
  const number = path().split("/")[2] || "0";
  clearInterval(looks);
  looks = setInterval(async () => {
    const records = await api.records().catch(() => []);
    if (records.length && !records[number]?.problem) show();
  }, BACK);
}

/** Return a part of a path with its percent-encoding decoded; unchanged if the encoding is wrong. */
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function head(records, record, about, facts) {
  const run_ = facts.session ? facts : null;
  document.title = run_ ? `${run_.agent} · ${run_.session} · Gesta` : `${about.name} · Gesta`;
  const last = run_?.turns.at(-1), state = inWords(run_?.waiting ?? []) || (last ? last.reason ?? "running" : "");
  const tone = run_?.waiting.length ? "waiting" : { failed: "fault", limit: "fault", budget: "fault", running: "open" }[state] ?? state;
  const words = el("input", { type: "search", name: "words", placeholder: "Find words, tools  /", "aria-label": "Find", value: new URLSearchParams(location.search).get("words") ?? "" });
  const form = el("form", { role: "search", onsubmit: (event) => { event.preventDefault(); location.assign(`/r/${record}?${new URLSearchParams({ words: words.value })}`); } }, words);
  top_.replaceChildren(
    el("a", { class: "name", href: `/r/${record}` }, "Gesta"),
    el("nav", { "aria-label": "Place" }, records.length > 1 ? el("select", { "aria-label": "Record", onchange: (event) => location.assign(`/r/${event.target.value}`) }, records.map((each, place) => el("option", { value: place, selected: place === record }, each.name)), el("option", { value: "all", selected: record === "all" }, "all records")) : el("a", { href: `/r/${record}` }, about.name),
      run_ ? [el("span", {}, "›"), el("span", { class: "session", title: run_.session }, run_.session), el("span", {}, "›"), el("span", { class: "agent" }, run_.agent)] : ""),
    copy ? el("span", { class: "small quiet" }, "a copy made ", when(copy.at)) : record === "all" ? "" : el("a", { class: "small quiet", href: `/r/${record}/waiting`, "aria-current": location.pathname.endsWith("/waiting") ? "page" : undefined }, "Waiting for you"),
    copy || record === "all" ? "" : el("a", { class: "small quiet", href: `/r/${record}/evidence`, "aria-current": location.pathname.endsWith("/evidence") ? "page" : undefined }, "Evidence"),
    state ? el("span", { class: `chip ${tone}` }, STATES[state] ?? state) : "", copy ? "" : form, help());
}

// what a person asked for by a button or a link could not be loaded, and no part of the page has a place for the error
addEventListener("unhandledrejection", (event) => { if (event.reason instanceof api.Failed) { event.preventDefault(); problem(event.reason.message); } });
addEventListener("closed", back); // a stream of new entries has ended for good, for example because the record was moved
addEventListener("popstate", () => { if (!location.hash || address() !== shown) show(); }); // the view itself handles a move within the page
show();
