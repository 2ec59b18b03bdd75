// The page about a check of the whole record: when `verify` ran, with which heads, and possible causes of each flaw.
// A head is the digest of a run's last entry, kept outside the record.
import * as api from "./api.js";
import { announce, count, el, when } from "./dom.js";
import { flaw } from "./proof.js";

const PAGE_OF_VERIFY = "docs/verify.md";

export async function evidence(place, record) {
  const page = new Page(record);
  place.replaceChildren(page.made);
  await page.load();
  return () => clearTimeout(page.timer);
}

class Page {
  constructor(record) {
    this.record = record; this.said = el("div"); this.problem = el("p", { class: "warn", role: "alert" });
    this.start = el("button", { class: "main", type: "button", onclick: () => this.ask("start") }, "Check the record");
    this.stop = el("button", { type: "button", hidden: true, onclick: () => this.ask("stop") }, "Stop");
    this.heads = el("textarea", { rows: 4, placeholder: "RUN.SEQ:DIGEST, one in a line", spellcheck: "false", "aria-label": "Heads that were kept elsewhere" });
    const file = el("input", { type: "file", "aria-label": "A file of heads", onchange: async () => { if (file.files[0]) this.heads.value = await file.files[0].text(); } });
    this.known = el("summary");
    this.made = el("div", { class: "list evidence" }, el("h1", {}, "Evidence"),
      el("p", { class: "quiet" }, "Every entry is chained to the one before it by digests. A check reads the whole record and says where it is not as it was written. It changes nothing."),
      el("div", { class: "buttons" }, this.start, this.stop), this.problem, this.said,
      el("details", { class: "answers" }, this.known, el("p", { class: "quiet small" }, "Whoever can write the file can also work out a new chain, or cut off its end. Only heads that were kept where that person cannot write show this."), this.heads, el("p", {}, file)),
      el("p", {}, el("a", { href: api.headsFile(record), download: "heads.txt" }, "Save the heads of now"), el("span", { class: "quiet small" }, " and keep them elsewhere; they are what ", el("code", {}, "gesta verify --keep"), " writes.")));
  }

  async load() { this.show(await api.evidenceOf(this.record)); }

  async ask(what) {
    this.problem.textContent = "";
    const given = this.heads.value.trim();
    try { this.show(await api.check(this.record, { do: what, ...(what === "start" && given ? { heads: given } : {}) })); } catch (error) { this.problem.textContent = error.message; }
  }

  show({ check, heads }) {
    clearTimeout(this.timer);
    const runs = check?.state === "running";
    this.start.disabled = runs; this.stop.hidden = !runs;
    this.known.textContent = heads ? `Compared with ${count(heads, "head")} that ${heads === 1 ? "was" : "were"} kept elsewhere` : "Compare with heads that were kept elsewhere";
    this.said.replaceChildren(...(check ? this.result(check) : [el("p", {}, "Nobody checked this record since the viewer started.")]));
    if (!runs && this.ran) announce(this.said.firstChild.textContent);
    this.ran = runs;
    if (runs) this.timer = setTimeout(() => this.load().catch((error) => { this.problem.textContent = error.message; this.timer = setTimeout(() => this.load().catch(() => {}), 2000); }), 250);
  }

  result(check) {
    const part = `${check.checked.toLocaleString("en")} of ${count(check.entries, "entry", "entries")}`;
    const against = check.heads ? `, against ${count(check.heads, "head")} that ${check.heads === 1 ? "was" : "were"} kept elsewhere` : ", against no head that was kept elsewhere";
    const time = el("p", { class: "quiet small" }, "Begun ", when(check.at), check.ended_at ? [", ended ", when(check.ended_at)] : "", against, ".");
    if (check.state === "running") return [el("progress", { max: Math.max(1, check.entries), value: check.checked, "aria-label": "Entries that are checked" }), el("p", {}, `Checking: ${part}${check.stopping ? "; it stops" : ""}`), time];
    if (check.state === "failed") return [el("p", { class: "warn" }, `The check failed: ${check.error}`), time];
    if (check.state === "stopped") return [el("p", {}, `Stopped after ${part}: nothing is known of the others.`), time];
    const found = check.found ? el("p", { class: "flaw" }, `✕ ${count(check.found, "place")} of the record ${check.found === 1 ? "is" : "are"} not as written${check.found > check.flaws.length ? `; the first ${check.flaws.length} follow` : ""}. Of each run the first one is named.`) : el("p", { class: "whole-chain" }, `✓ ${count(check.checked, "entry", "entries")} checked: nothing was changed.`);
    const rows = check.flaws.map((each) => el("li", {}, el("p", { class: "flaw" }, flaw(each), each.run ? [" · ", this.link(each)] : ""),
      el("details", { class: "fold small" }, el("summary", {}, `What may have been done, as rows of ${PAGE_OF_VERIFY}`), el("ul", {}, each.rows.map((row) => el("li", {}, row))))));
    const notes = check.notes.length ? [el("h2", {}, "Notes"), el("p", { class: "quiet small" }, "What no digest covers, and what is odd but may be no change."), el("ul", {}, check.notes.map((note) => el("li", {}, note)))] : [];
    return [found, time, rows.length ? el("ol", { class: "flaws" }, rows) : "", ...notes].filter(Boolean);
  }

  link(each) { return el("a", { href: `/r/${this.record}/run/${encodeURIComponent(each.run)}${each.seq ? `#${each.seq}` : ""}` }, `run ${each.run.slice(0, 8)}${each.seq ? `, entry ${each.seq}` : ""}`); }
}
