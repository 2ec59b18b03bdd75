// The sessions of a record, the last active one first; running ones change as one looks.
import * as api from "./api.js";
import { announce, connection, count, el, when } from "./dom.js";

const STANDS = [["", "any state"], ["waiting", "waiting for somebody"], ["open", "running or left"], ["answered", "answered"], ["failed", "failed"], ["limit", "reached a limit"], ["budget", "reached its budget"], ["cancelled", "cancelled"], ["recorded", "recorded only"]];
const PAGE = 50;

export async function list(place, record, about, wanted) {
  let shown = PAGE, timer = 0, latest = 0;
  const rows = el("ul", { class: "sessions" });
  const more = el("button", { class: "more", onclick: () => { shown += PAGE; load(); } }, "Show more");
  const total = el("span", { class: "quiet small" });
  const choose = (name, options, label) => el("select", {
    "aria-label": label,
    onchange: (event) => {
      const next = new URLSearchParams(location.search);
      if (event.target.value) next.set(name, event.target.value); else next.delete(name);
      history.replaceState(null, "", `${location.pathname}${next.size ? `?${next}` : ""}`);
      wanted[name] = event.target.value; load();
    },
  }, options.map(([value, text]) => el("option", { value, selected: (wanted[name] ?? "") === value }, text)));
  const filters = el("div", { class: "filters" },
    choose("stands", STANDS, "State"),
    choose("agent", [["", "any agent"], ...about.agents.map((name) => [name, name])], "Agent"),
    total);
  place.replaceChildren(el("div", { class: "list" }, el("h1", { class: "unseen" }, "Sessions"), filters, rows, more));

  async function load() {
    const turn = ++latest;
    const found = await api.sessions(record, { ...wanted, limit: shown });
    if (turn !== latest) return;
    rows.replaceChildren(...found.sessions.map((session) => row(record, session, found.found?.[session.name])));
    if (!found.sessions.length) rows.replaceChildren(el("li", { class: "empty" }, wanted.words || wanted.stands || wanted.agent ? "No session fits." : "There is nothing on this record yet. Run an agent, and it appears here."));
    more.hidden = found.fit <= shown;
    const narrow = wanted.words || wanted.stands || wanted.agent;
    total.textContent = narrow ? `${count(found.fit, "session")} of the last ${found.searched.toLocaleString("en")}` : `${count(about.runs, "run")}, ${count(about.entries, "entry", "entries")}`;
    announce(`${count(found.sessions.length, "session")} shown`);
  }
  await load();
  return api.follow(record, {}, "runs", () => { clearTimeout(timer); timer = setTimeout(() => load().catch(() => {}), 150); }, connection);
}

function row(record, session, hit) {
  const state = session.stands === "ended" ? session.reason : session.stands;
  const tone = { waiting: "waiting", open: "open", failed: "fault", limit: "fault", budget: "fault" }[state] ?? state;
  const waits = session.waiting.map((wait) => wait.tool ? `${wait.what} of ${wait.tool}` : wait.what).join(", ");
  return el("li", {}, el("a", { class: "row", href: `/r/${record}/run/${hit?.run ?? session.runs[0]}${hit ? `#${hit.seq}` : ""}` },
    el("span", { class: "title" }, session.title || el("span", { class: "quiet" }, "no message")),
    el("span", { class: "side" }, el("span", { class: `chip ${tone}` }, waits ? `waits: ${waits}` : state), when(session.last_at)),
    el("span", { class: "facts" },
      el("span", {}, session.agents.join(", ")), el("span", {}, session.name),
      el("span", {}, count(session.messages, "message")),
      session.calls ? el("span", {}, count(session.calls, "tool call")) : "",
      session.below ? el("span", {}, count(session.below, "run below", "runs below")) : "",
      hit ? el("span", {}, hit.parts.map((part, place) => place % 2 ? el("mark", {}, part) : part)) : "")));
}
