// The page about what was sent to the model: a request compared with the one before, as messages and as a provider gets it.
import * as api from "./api.js";
import { announce, connection, count, el, took } from "./dom.js";
import { Parts } from "./sent-parts.js";
import { href, query } from "./source.js";
import { forms } from "./switch.js";

const VIEWS = [["", "What changed"], ["all", "All of it"], ["wire", "As the provider gets it"]];
const NEXT = "The request that would come next";

/** Show a request of a run. `seq` names the request, or an entry after it; 0 stands for the last request. */
export async function sent(place, record, id, seq, title) {
  const facts = await api.glance(record, id), ways = await api.ways(record);
  const page = new Page(place, record, facts, ways);
  title(facts);
  await page.list();
  await page.load(seq || page.every.at(-1)?.seq || facts.head);
  let timer = 0;
  const leave = api.follow(record, { run: facts.run }, "lines", () => { clearTimeout(timer); timer = setTimeout(() => page.more().catch(() => {}), 200); }, connection);
  const keys = (event) => page.key(event);
  document.addEventListener("keydown", keys);
  return () => { leave(); clearTimeout(timer); document.removeEventListener("keydown", keys); };
}

class Page {
  constructor(place, record, run, ways) {
    const asked = query();
    this.record = record; this.run = run; this.ways = ways; this.every = [];
    this.way = { as: asked.get("as") ?? "", form: asked.get("form") ?? "", whole: asked.get("whole") ? "1" : "" };
    this.view = VIEWS.some(([name]) => name === asked.get("show")) ? asked.get("show") : "";
    this.head = el("div"); this.choice = el("div", { class: "filters" }); this.told = el("div"); this.body = el("div", { class: "sent" }); this.beside = el("div", { class: "requests" });
    place.replaceChildren(el("div", { class: "run asked" },
      el("div", { class: "talk" }, forms(record, run.run, "sent"), this.head, this.choice, this.told, this.body),
      el("aside", { class: "side-panel", "aria-label": "Requests of this run" }, el("h2", {}, "Requests"), this.beside)));
  }

  address(seq, change = {}) {
    const asked = new URLSearchParams(Object.entries({ show: this.view, ...this.way, ...change }).filter(([, value]) => value));
    return `/r/${this.record}/run/${encodeURIComponent(this.run.run)}/sent/${seq}${asked.size ? `?${asked}` : ""}`;
  }

  /** Load the requests that are not in the list yet, and those that may have got their reply meanwhile. */
  async list() {
    const after = Math.max(0, this.every.length - 1), found = await api.requests(this.record, this.run.run, after);
    this.every.splice(after, this.every.length, ...found.requests);
    this.total = found.total;
    if (this.every.length < found.total && found.requests.length) await this.list();
    this.lists();
  }

  async more() {
    const had = this.every.length;
    await this.list();
    if (this.every.length > had) { announce(count(this.every.length - had, "new request")); this.moves(); }
  }

  async load(seq) {
    const asked = this.asked = {};
    this.seq = seq;
    this.choose();
    let facts;
    try { facts = await api.request(this.record, this.run.run, seq, this.way); } catch (error) {
      this.head.replaceChildren(el("h1", {}, "What was sent"));
      this.told.replaceChildren(el("p", { class: "warn", role: "alert" }, error.message)); this.body.replaceChildren();
      return;
    }
    if (asked !== this.asked) return; // another request was chosen meanwhile
    this.facts = facts; this.seq = facts.exchange?.seq ?? seq;
    this.parts = new Parts(this.body, this.record, this.run.run, this.seq, this.way, facts);
    this.moves(); this.choose(); this.tell(); this.lists(); this.draw();
    document.title = `${facts.place === null ? NEXT : `Request ${facts.place + 1}`} · ${document.title.split(" · ").slice(-3).join(" · ")}`;
  }

  async go(seq) {
    history.pushState(null, "", href(this.address(seq)));
    await this.load(seq);
    scrollTo({ top: 0 });
    announce(this.head.textContent);
  }

  link(seq, name, label) {
    return seq === undefined ? el("span", { class: "quiet" }, name) : el("a", { href: this.address(seq), "aria-label": label, onclick: (event) => this.follow(event, seq) }, name);
  }

  follow(event, seq) {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    this.go(seq).catch(() => {});
  }

  /** Show which request it is, with links to the ones before and after it. */
  moves() {
    const { facts } = this;
    if (!facts) return;
    const { exchange } = facts, place = facts.place, here = this.every.findIndex((each) => each.seq === this.seq);
    const name = place === null ? NEXT : `Request ${(place + 1).toLocaleString("en")} of ${this.total.toLocaleString("en")}`;
    const reply = !exchange ? "" : exchange.reply ? ["reply in ", this.entry(exchange.reply), exchange.latency_ms >= 1 ? ` after ${took(exchange.latency_ms)}` : ""] : exchange.fault ? `no reply: ${exchange.fault}` : "no reply yet";
    this.head.replaceChildren(el("div", { class: "moves" }, el("h1", {}, name),
      el("span", { class: "turns" }, this.link(this.every[here - 1]?.seq, "‹ earlier", "The request before"), this.link(this.every[here + 1]?.seq, "later ›", "The request after"))),
    el("p", { class: "quiet small" }, [facts.model ? `to ${facts.model}` : "to a model that is not named", exchange?.number > 1 ? ` · try ${exchange.number}` : "", exchange && exchange.on_record !== false ? [" · ", this.entry(facts.request)] : "", reply ? [" · ", reply] : ""]));
  }

  entry(seq) { return el("a", { href: `/r/${this.record}/run/${encodeURIComponent(this.run.run)}#${seq}` }, `entry ${seq}`); }

  /** Show the links to the three views, and the formatters and models with which the request can be built. */
  choose() {
    const views = el("nav", { class: "tabs", "aria-label": "How it is shown" }, VIEWS.map(([name, words]) => el("a", { href: this.address(this.seq, { show: name }), "aria-current": this.view === name ? "true" : undefined, onclick: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault(); this.view = name; history.replaceState(null, "", href(this.address(this.seq))); this.choose(); this.draw();
      this.choice.querySelector("[aria-current]")?.focus();
    } }, words)));
    const [host, ...name] = this.way.as.split(":");
    const groups = this.ways.dialects.map((each) => el("optgroup", { label: each.name }, each.providers.map((provider) => el("option", { value: provider, selected: provider === host }, provider))));
    const model = el("input", { "aria-label": "Name of the model", value: name.join(":"), placeholder: "model", size: 14, onchange: (event) => this.change({ as: `${host}:${event.target.value || "model"}` }, "input") });
    const whole = this.run.turns && this.every.some((each) => each.compacted) ? el("label", {}, el("input", { type: "checkbox", checked: Boolean(this.way.whole), onchange: (event) => this.change({ whole: event.target.checked ? "1" : "" }, "[type=checkbox]") }), " with what was left out") : "";
    this.choice.replaceChildren(views, el("span", { class: "ways" },
      el("select", { "aria-label": "As another provider gets it", onchange: (event) => this.change({ as: event.target.value ? `${event.target.value}:${name.join(":") || this.own() || "model"}` : "" }, "select") }, el("option", { value: "" }, "as it was sent"), groups),
      host ? model : "",
      el("select", { "aria-label": "Form of the history", onchange: (event) => this.change({ form: event.target.value }, "select + select, input + select") }, el("option", { value: "" }, "in the form on record"), this.ways.forms.map((each) => el("option", { value: each, selected: each === this.way.form }, each))),
      whole));
  }

  /** Return the name of the recorded model without its provider. */
  own() { return String(this.facts?.model ?? "").split(":").slice(1).join(":"); }

  async change(way, focus) {
    Object.assign(this.way, way);
    history.replaceState(null, "", href(this.address(this.seq)));
    await this.load(this.seq);
    this.choice.querySelector(focus)?.focus();
  }

  /** Show the parts of the request, how much of it stayed the same, and what is lost in this form. */
  tell() {
    const { facts, way } = this, tokens = way.as || way.form || way.whole ? null : facts.tokens; // the tokens were counted for the request as sent
    const sums = [[facts.messages, facts.messages === 1 ? "message" : "messages"], [facts.bytes, "bytes"], [tokens?.input, "tokens read"], [tokens?.cache_read, "of them from the cache"], [tokens?.cache_write, "written to the cache"]].filter(([number]) => number !== undefined && number !== null);
    const unsaid = facts.exchange?.on_record === false || !facts.exchange;
    const said = facts.as_sent ? el("p", { class: "quiet small" }, "These are the bytes whose digest is on record.", !facts.exchange?.reply ? "" : !tokens ? " The reply has no count of tokens." : tokens.cache_read === null || tokens.cache_read === undefined ? " The provider does not say what it had in its cache." : "")
      : unsaid ? el("p", { class: "note" }, "This request is not on record: another program sent it, and only the reply was kept. Gesta would send this.")
      : facts.unknown_form ? el("p", { class: "note" }, `A formatter of the program’s own made this request, “${facts.unknown_form}”. These are the same entries in the form ${facts.form}.`)
      : facts.anew ? el("p", { class: "note" }, "Made anew; it was not sent in this form.")
      : el("p", { class: "warn" }, "These are not the bytes that were sent: settings of the model in the program are not on record.");
    this.told.replaceChildren(
      el("div", { class: "cards sums" }, sums.map(([number, name]) => el("div", {}, el("b", {}, number.toLocaleString("en")), el("span", {}, name)))),
      this.bars(tokens), said,
      facts.lost.length ? el("section", { class: "lost", "aria-label": "What cannot be said" }, el("h2", {}, facts.anew && this.way.as ? "What cannot be said there" : "What is not shown in its own form"),
        el("ul", {}, facts.lost.map((each) => el("li", {}, el("b", {}, `${each.number.toLocaleString("en")} × ${each.name}`), ` ${each.text}`)))) : "");
  }

  /** Return a picture of how much of the body equals the beginning of the earlier one, and how much the provider had cached. */
  bars(tokens) {
    const { facts } = this, rows = [], read = tokens?.cache_read;
    if (facts.before !== null) rows.push(["bytes as before", facts.same_bytes, facts.bytes, `The first ${facts.same_bytes.toLocaleString("en")} of ${facts.bytes.toLocaleString("en")} bytes are those of the request before${facts.changed.length ? "; what changed stands before the first message" : ""}.`]);
    if (read !== null && read !== undefined) rows.push(["tokens cached", read, tokens.input, `The provider had ${read.toLocaleString("en")} of ${tokens.input.toLocaleString("en")} tokens in its cache.`]);
    if (!rows.length) return "";
    return el("div", { class: "prefix" }, rows.map(([name, part, of, words]) => el("div", {}, el("span", { class: "quiet small" }, name),
      el("svg:svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": words }, el("svg:title", {}, words), el("svg:rect", { class: "whole", width: 100, height: 6 }), el("svg:rect", { class: "part", width: of ? 100 * part / of : 0, height: 6 })),
      el("span", { class: "small" }, of ? `${Math.floor(100 * part / of)} %` : "–"))));
  }

  draw() { (this.view === "all" ? this.parts.all() : this.view === "wire" ? this.parts.wire() : this.parts.changes()).catch((error) => { if (!(error instanceof api.Failed)) throw error; this.body.replaceChildren(el("p", { class: "warn", role: "alert" }, error.message)); }); }

  /** Show the list of all requests beside this one. */
  lists() {
    let turn = -1;
    const most = Math.max(1, ...this.every.map((each) => each.tokens?.input ?? 0));
    const rows = this.every.map((each, place) => {
      const head = each.turn !== turn ? el("li", { class: "quiet small" }, (turn = each.turn) ? `Turn ${turn}` : "Before any turn") : "";
      const { tokens } = each, words = tokens ? `${count(tokens.input, "token")}${tokens.cache_read ? `, ${tokens.cache_read.toLocaleString("en")} cached` : ""}` : each.fault || (each.reply ? "tokens unknown" : "no reply");
      return [head, el("li", {}, el("a", { href: this.address(each.seq), "aria-current": each.seq === this.seq ? "true" : undefined, class: each.fault ? "fault" : "", onclick: (event) => this.follow(event, each.seq) },
        el("span", { class: "code" }, String(place + 1)), el("span", {}, each.on_record === false ? "not on record" : each.compacted ? "after a compaction" : each.repeats || !place ? `+ ${count(each.added ?? 0, "message")}` : "made anew"), el("span", { class: "quiet" }, words),
        tokens ? el("svg:svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, el("svg:rect", { class: "whole", width: 100 * tokens.input / most, height: 4 }), el("svg:rect", { class: "part", width: 100 * (tokens.cache_read ?? 0) / most, height: 4 })) : ""))];
    });
    this.beside.replaceChildren(rows.length ? el("ol", {}, rows) : el("p", { class: "quiet small" }, "No request is on record."));
    const here = this.beside.querySelector("[aria-current]"), panel = this.beside.parentElement;
    if (here && panel.scrollHeight > panel.clientHeight) panel.scrollTop = here.offsetTop - panel.clientHeight / 2;
  }

  /** Keys: j and k go to the next and the previous request, 1 to 3 to a view. */
  key(event) {
    if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
    const here = this.every.findIndex((each) => each.seq === this.seq), next = { j: this.every[here + 1], k: this.every[here - 1] }[event.key];
    if (next) this.go(next.seq).catch(() => {});
    else if (VIEWS[Number(event.key) - 1]) this.choice.querySelectorAll(".tabs a")[Number(event.key) - 1].click();
    else return;
    event.preventDefault();
  }
}
