// A run in the form of another system: a table whose rows are loaded in pages. The address names the form.
import * as api from "./api.js";
import { announce, connection, count, el } from "./dom.js";
import { FORMS, forms } from "./switch.js";

const PAGE = 200, MOST = 1000;
const ABOUT = {
  activity: "Every entry as a line of agent-catalog’s activity log. Annotations stand where they change.",
  steps: "LangChain’s actions, steps and finishes, turn by turn.",
  task: "A Langroid task: who responded, with which tool. Sub-tasks are indented; * marks the result of a step.",
  react: "KodeAgent’s ReAct history: thought, action, observation, answer.",
  codeact: "KodeAgent’s CodeAct history: each call as code.",
  why: "What an answer was made from, back to its question, as TrustGraph explains it.",
};

/** Show a run in a form. `wanted.entry`: the entry that is explained, in the form `why`. */
export async function form(place, record, id, wanted, title) {
  const facts = await api.glance(record, id), name = wanted.form;
  title(facts);
  const page = new Page(place, record, facts, name, Number(wanted.entry) || 0);
  await page.load();
  let timer = 0;
  const leave = api.follow(record, { run: facts.run }, "lines", () => { clearTimeout(timer); timer = setTimeout(() => page.again().catch(() => {}), 250); }, connection);
  const keys = (event) => page.key(event);
  document.addEventListener("keydown", keys);
  return () => { leave(); clearTimeout(timer); page.watch.disconnect(); document.removeEventListener("keydown", keys); };
}

class Page {
  constructor(place, record, run, name, entry) {
    this.record = record; this.run = run.run; this.name = name; this.entry = entry; this.count = 0; this.total = 0;
    const words = FORMS.find(([each]) => each === name)?.[1] ?? name, at = `/r/${record}/run/${encodeURIComponent(run.run)}`;
    this.headings = el("tr"); this.body = el("tbody"); this.end = el("p", { class: "quiet small" });
    this.table = el("table", { class: `form ${name}`, role: "table" }, el("caption", { class: "unseen" }, words), el("thead", {}, this.headings), this.body);
    const command = name === "why" ? `gesta why ${run.run}${entry ? ` ${entry}` : ""}` : `gesta log ${run.run} --as ${name}`;
    this.drawn = el("span");
    place.replaceChildren(el("div", { class: "as-form" }, forms(record, run.run, name), el("h1", { class: "unseen" }, words),
      el("p", { class: "about" }, ABOUT[name] ?? "", " ", this.drawn), el("p", { class: "quiet small" }, el("code", {}, command), " shows the same. ", el("a", { href: api.formLines(record, run.run, name, entry), download: "" }, "Save it as lines of JSON")),
      this.table, this.end));
    this.at = at;
    this.watch = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) this.more().catch(() => {}); }, { rootMargin: "800px" });
  }

  async load() {
    await this.read(0, PAGE);
    this.watch.observe(this.end);
  }

  async more() {
    if (this.busy || this.count >= this.total) return;
    this.busy = true;
    try { await this.read(this.count, PAGE); } finally { this.busy = false; }
    this.watch.unobserve(this.end);
    this.watch.observe(this.end); // it reports again if it is still in sight
  }

  /** Load the shown rows again, because there are new entries; the last rows may have changed. */
  async again() {
    const had = this.total, from = Math.max(0, this.count - MOST);
    await this.read(from, Math.max(PAGE, this.count - from));
    if (this.total !== had) announce(count(this.total, "row"));
  }

  async read(from, limit) {
    const found = await api.formRows(this.record, this.run, this.name, { entry: this.entry, after: from, limit });
    this.total = found.total; this.count = from + found.rows.length;
    this.own = found.headings.indexOf("entry");
    this.headings.replaceChildren(...[...found.headings, ...(this.own < 0 ? ["entry"] : [])].map((each, place) => el("th", { scope: "col", class: place === found.headings.length ? "at" : undefined }, each || el("span", { class: "unseen" }, "what"))));
    const opened = new Set([...this.body.querySelectorAll("tr.opened")].map((each) => each.dataset.place)); // rows that a person opened stay open
    while (this.body.rows.length > from) this.body.rows[this.body.rows.length - 1].remove();
    this.body.append(...found.rows.map((row, place) => this.row(row, from + place, opened)));
    this.end.textContent = !this.total ? "There is nothing in this form yet." : this.count < this.total ? `${this.count.toLocaleString("en")} of ${count(this.total, "row")}` : count(this.total, "row");
    if (this.name === "why" && found.rows.length) this.drawn.replaceChildren(el("a", { href: `${this.at}/why/${this.entry || found.rows.at(-1).seq}` }, "See it drawn"), ".");
  }

  row(row, place, opened) {
    const last = row.cells.length - 1, kind = this.kind(row.cells);
    const here = (text) => row.seq ? el("a", { href: `/r/${this.record}/run/${encodeURIComponent(row.run)}#${row.seq}`, "aria-label": `Entry ${row.seq} in the conversation` }, text) : text;
    const cell = (text, column) => column === last ? el("td", { class: "told", role: "cell", dir: "auto" }, this.told(row, place, text)) : el("td", { role: "cell" }, el("div", {}, column === this.own ? here(text) : text));
    const made = el("tr", { class: kind, role: "row", "data-place": place }, row.cells.map(cell), this.own < 0 ? el("td", { class: "at", role: "cell" }, row.seq ? here(String(row.seq)) : "") : "");
    if (opened.has(String(place))) this.open(made.querySelector("button"), place);
    return made;
  }

  /** Return the name of the colour of a row. The row's words say the same, for people who see no colours. */
  kind(cells) {
    const word = { activity: cells[1], steps: cells[2], task: cells.find((each) => ["LLM", "USER", "AGENT", "SYSTEM"].includes(each)), why: String(cells[1]).split(",")[0] }[this.name] ?? cells[0];
    return { user: "asks", USER: "asks", Question: "asks", assistant: "answers", AgentFinish: "answers", answer: "answers", Conclusion: "answers", "tool-call": "acts", AgentAction: "acts", AgentActionMessageLog: "acts", action: "acts", args: "acts", code: "acts", ToolUse: "acts", "tool-result": "sees", AgentStep: "sees", AGENT: "sees", observation: "sees", Observation: "sees" }[word] ?? "";
  }

  told(row, place, text) {
    const box = el("div", { class: "as-is" }, text, row.characters ? "…" : "");
    const notes = row.notes ? el("div", { class: "quiet small" }, row.notes) : "";
    const button = row.characters ? el("button", { class: "small", onclick: (event) => this.open(event.currentTarget, place) }, `show all ${count(row.characters, "character")}`) : "";
    return [box, button, notes];
  }

  async open(button, place) {
    if (!button) return;
    button.disabled = true;
    try {
      const { cells } = await api.formRow(this.record, this.run, this.name, place, { entry: this.entry });
      button.parentElement.firstChild.textContent = cells.at(-1);
      button.closest("tr").classList.add("opened");
      button.remove();
    } catch (error) { button.disabled = false; button.textContent = error.message; }
  }

  /** Keys: j and k go to the next and the previous row. */
  key(event) {
    if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
    const rows = [...this.body.rows], here = rows.findIndex((each) => each.classList.contains("here"));
    const next = { j: rows[here + 1], k: rows[Math.max(0, here - 1)] }[event.key];
    if (!next) return;
    rows[here]?.classList.remove("here");
    next.classList.add("here");
    next.scrollIntoView({ block: "center" });
    announce(next.innerText);
    event.preventDefault();
  }
}
