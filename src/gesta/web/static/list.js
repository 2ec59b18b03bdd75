// The list of the sessions of one record or of all records. It can be filtered and sorted, and it shows sums.
// It is updated live, with running sessions at the top. Filters, order and page are stored in the address.
import * as api from "./api.js";
import { filters } from "./filters.js";
import { plain } from "./why.js";
import { announce, connection, count, el, inWords, STATES, took, when } from "./dom.js";

const PAGE = 50, READS = 80, LIVE = 400; // ms before an incomplete list is loaded again, and between live updates
const money = (usd) => usd >= 0.01 || usd === 0 ? `$${usd.toFixed(2)}` : `$${usd.toPrecision(2)}`;
const short = (number) => number.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
const percent = (share) => `${Math.floor(share * 100)} %`;

export async function list(place, record, records, wanted) {
  const page = new List(record, records, wanted);
  place.replaceChildren(page.all);
  await page.load(true);
  const leave = (record === "all" ? records.map((_, number) => number) : [record]).map((number) => api.follow(number, {}, "runs", () => page.changed(), connection));
  return () => { page.over = true; clearTimeout(page.timer); for (const each of leave) each(); };
}

class List {
  constructor(record, records, wanted) {
    this.record = record; this.records = records; this.wanted = wanted; this.known = new Map(); this.latest = 0; this.timer = 0; this.over = false;
    this.filters = filters(wanted, (next) => this.narrow(next));
    this.rows = el("ul", { class: "sessions" });
    this.sums = el("p", { class: "sums" });
    this.reading = el("p", { class: "reading", role: "status", hidden: true });
    this.pager = el("nav", { class: "pager", "aria-label": "Pages of the list" });
    this.all = el("div", { class: "list" }, el("h1", { class: "unseen" }, "Sessions"), this.filters.element, this.reading, this.sums, this.rows, this.pager);
  }

  get from() { return Math.max(0, (Number(this.wanted.page) || 1) - 1) * PAGE; }

  /** Show other sessions, and put their address into the browser. */
  narrow(next) {
    this.wanted = Object.fromEntries(Object.entries(next).filter(([, value]) => value));
    const address = new URLSearchParams(this.wanted);
    history.replaceState(null, "", `${location.pathname}${address.size ? `?${address}` : ""}`);
    this.load();
  }

  /** Load the list again soon, because something was written. */
  changed() {
    if (this.timer || this.over) return;
    this.timer = setTimeout(() => this.again(), LIVE);
  }

  again() {
    this.timer = 0;
    this.load().catch(() => {}); // the connection reports the error and reconnects
  }

  async load(first = false) {
    const turn = ++this.latest, { page, ...asked } = this.wanted;
    const found = await api.sessions(this.record, { ...asked, after: this.from, limit: PAGE, choices: first || this.choose ? 1 : "" });
    if (turn !== this.latest || this.over) return;
    this.choose = !found.agents; // the names are known once everything was read
    if (found.agents) this.filters.choices(found.agents, found.tools);
    const whole = found.read >= 1;
    this.reading.hidden = whole;
    if (!whole) this.reading.textContent = `${asked.words ? "The words of the record are" : "The record is"} read for the first time: ${percent(found.read)}. ${found.sessions.length ? asked.words ? "What was found so far is shown." : "The newest sessions are shown." : ""}`;
    if (found.problems?.length) { this.reading.hidden = false; this.reading.textContent = found.problems.join(" "); }
    this.show(found, whole);
    if (!whole) { clearTimeout(this.timer); this.timer = setTimeout(() => this.again(), READS); }
    else announce(`${count(found.totals.sessions, "session")}, ${count(found.sessions.length, "session")} on this page`);
  }

  show(found, whole) {
    const known = new Map(), here = document.activeElement?.closest?.(".sessions > li");
    const rows = found.sessions.map((session) => {
      const key = `${session.record ?? ""}/${session.name}`, facts = JSON.stringify(session), old = this.known.get(key);
      const item = old?.facts === facts ? old.item : this.row(session, old?.item);
      known.set(key, { facts, item });
      return item;
    });
    const focused = here && rows.includes(here) ? document.activeElement : null;
    this.known = known;
    const asked = Object.keys(this.wanted).length, empty = asked ? ["No session fits. ", el("a", { href: `/r/${this.record}` }, "Show all of them")] : "There is nothing on this record yet. Run an agent, and it appears here.";
    this.rows.replaceChildren(...(rows.length || !whole ? rows : [el("li", { class: "empty" }, empty)]));
    this.filters.element.hidden = whole && !rows.length && !asked;
    focused?.focus({ preventScroll: true });
    this.sum(found.totals, whole);
    this.paged(found.totals.sessions, rows.length);
    if (!whole) this.pager.hidden = true;
  }

  sum(totals, whole) {
    const tokens = totals.tokens_in + totals.tokens_out;
    const cost = totals.usd !== null ? `${money(totals.usd)}${totals.unpriced ? `, and ${count(totals.unpriced, "answer")} without a price` : ""}` : totals.unpriced ? "no price on record" : "";
    const parts = [count(totals.sessions, "session"), count(totals.runs, "run"), count(totals.entries, "entry", "entries"), tokens ? `${short(tokens)} tokens` : "", cost].filter(Boolean);
    this.sums.replaceChildren(...(whole || totals.sessions ? parts.map((part) => el("span", {}, part)) : []));
    this.sums.hidden = !whole || !totals.sessions;
    this.filters.narrowed(Object.keys(this.wanted).some((name) => !["page", "sort"].includes(name)));
  }

  paged(all, shown) {
    const page = Math.floor(this.from / PAGE) + 1, last = Math.max(1, Math.ceil(all / PAGE));
    const to = (number, text) => el("button", { onclick: () => { this.narrow({ ...this.wanted, page: number > 1 ? String(number) : "" }); scrollTo(0, 0); } }, text);
    this.pager.hidden = last === 1 && page === 1;
    this.pager.replaceChildren(page > 1 ? to(page - 1, "‹ Newer") : "", el("span", { class: "quiet" }, shown ? `${(this.from + 1).toLocaleString("en")} to ${(this.from + shown).toLocaleString("en")} of ${all.toLocaleString("en")}` : "Nothing on this page"), page < last ? to(page + 1, "More ›") : "");
  }

  row(session, old) {
    const record = session.record ?? this.record, hit = session.hit, at = (run, seq) => `/r/${record}/run/${encodeURIComponent(run)}${seq ? `#${seq}` : ""}`;
    const tokens = session.tokens_in + session.tokens_out, ms = Date.parse(session.last_at) - Date.parse(session.first_at);
    const facts = [
      this.record === "all" && this.records.length > 1 ? this.records[record]?.name : "", session.agents.join(", "), el("span", { class: "name", title: session.name }, session.name),
      count(session.messages, "message"), session.calls ? count(session.calls, "tool call") : "",
      session.errors ? el("span", { class: "warn" }, count(session.errors, "error")) : "",
      tokens ? `${short(tokens)} tokens` : "", session.usd !== null ? money(session.usd) : "", ms >= 1000 ? took(ms) : "",
    ];
    const item = el("li", {}, el("a", { class: "row", href: at(hit?.run ?? session.runs[0], hit?.seq) },
      el("span", { class: "title" }, session.title || el("span", { class: "quiet" }, "no message")),
      el("span", { class: "side" }, chip(session, inWords(session.waiting)), when(session.last_at)),
      el("span", { class: "facts" }, facts.filter(Boolean).map((fact) => (typeof fact === "string" ? el("span", {}, fact) : fact))),
      hit ? el("span", { class: "found" }, readable(hit.parts).map((part, place) => place % 2 ? el("mark", {}, part) : part)) : ""));
    if (session.tree.length > 1) item.append(this.tree(session, at, old));
    return item;
  }

  /** Return the runs of a session, each below the one that started it. */
  tree(session, at, old) {
    const below = (parent) => session.tree.filter((run) => run.parent === parent).map((run) => el("li", {},
      el("a", { href: at(run.run) }, run.agent), el("span", { class: "quiet small" }, ` ${count(run.entries, "entry", "entries")} `), chip(run, ""),
      session.tree.some((each) => each.parent === run.run) ? el("ul", {}, below(run.run)) : ""));
    const left = session.runs.length + session.below - session.tree.length;
    const words = session.below ? count(session.below, "run below", "runs below") : count(session.runs.length, "run");
    return el("details", { class: "tree", open: old?.querySelector("details.tree")?.open }, el("summary", {}, words), el("ul", {}, below(null)), left > 0 ? el("p", { class: "quiet small" }, `and ${count(left, "run")} more`) : "");
  }
}

/** Return the parts of a text with the escapes of JSON removed, if it has any. */
function readable(parts) {
  const whole = parts.join("");
  if (plain(whole, whole) !== whole) return parts.map((part) => plain(part, whole));
  if (!/\\u[0-9a-f]{4}|\\n(?:\\n|[-A-Z ])|\\"/.test(whole)) return parts;
  return parts.map((part) => part.replace(/\\u([0-9a-f]{4})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16))).replace(/\\n/g, " ").replace(/\\"/g, "\""));
}

function chip(facts, waits) {
  const state = facts.stands === "ended" ? facts.reason : facts.stands;
  const tone = { waiting: "waiting", open: "open", failed: "fault", limit: "fault", budget: "fault" }[state] ?? state;
  const words = waits || (facts.running ? "running" : state === "waiting" ? "waits" : STATES[state] ?? state);
  return el("span", { class: `chip ${tone}${facts.running ? " running" : ""}` }, words);
}
