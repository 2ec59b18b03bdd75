// The page about what waits for a person: each wait with its arguments, invisible characters marked, and its answers.
import * as api from "./api.js";
import { announce, connection, count, el, when } from "./dom.js";
import { shown, text } from "./value.js";

const NAME = "gesta-name";
/** What a person is filling in, or has opened for that, so that it is not drawn again meanwhile. */
export const FILLED_IN = ".wait.busy, .wait details[open]";

/** Show all waits of a record. Return a function that stops the updates. */
export async function waits(place, record) {
  const body = el("div", { class: "list" });
  place.replaceChildren(body);
  const load = async () => {
    const found = await api.waiting(record);
    if (body.querySelector(FILLED_IN)) return;
    const yours = found.waiting.filter((each) => each.answerable), others = found.waiting.filter((each) => !each.answerable);
    body.replaceChildren(el("h1", {}, "Waiting for you"), yours.length ? "" : el("p", { class: "quiet" }, others.length ? "Nothing waits for a person." : "Nothing waits for anybody. Approvals, questions and effects in doubt appear here."), ...yours.map((each) => card(record, each, found.by, load, true)),
      ...(others.length ? [el("h2", { class: "others" }, "Waiting for something else"), ...others.map((each) => card(record, each, found.by, load, true))] : []));
    announce(`${count(found.waiting.length, "wait")}`);
  };
  await load();
  let timer = 0;
  return api.follow(record, {}, "runs", () => { clearTimeout(timer); timer = setTimeout(() => load().catch(() => {}), 200); }, connection);
}

/** Return one wait, with the buttons that answer it. `done` is called after the answer. */
export function card(record, each, by, done, linked = false) {
  const { wait, visible, why, said } = each, id = `w${wait.run}-${wait.of}`;
  const title = { approval: `May ${wait.tool} run?`, doubt: `Did ${wait.tool} happen?`, budget: "May it spend more?", question: "A question" }[wait.what] ?? `It waits: ${wait.what}${wait.tool ? ` of ${wait.tool}` : ""}`;
  const made = el("section", { class: each.answerable ? "wait asks" : "wait asks idle", id, "aria-label": title }, el("h2", {}, title));
  if (linked) made.append(el("p", { class: "small quiet" }, el("a", { href: `/r/${record}/run/${wait.run}#${wait.call ?? wait.of ?? ""}` }, wait.session), wait.effect ? ` · effect ${wait.effect}` : "", wait.expires ? [" · until ", when(wait.expires)] : ""));
  if (linked && said) made.append(el("p", { class: "small" }, `“${said.slice(0, 300)}”`));
  const unknown = why ? `Nobody knows whether it happened: ${why.replace(/[.]$/, "")}.` : "The process ended while this was under way, and nobody knows whether it happened.";
  if (wait.what === "doubt") made.append(el("p", {}, unknown, " It is not run again until somebody says so.", wait.declared ? "" : " Its author said nothing about its effect."));
  else if (why) made.append(el("p", {}, why));
  if (visible) made.append(el("div", { class: "asked" }, typeof visible === "string" ? text(visible) : shown(visible)));
  for (const remark of wait.remarks) made.append(el("p", { class: "warn" }, remark));
  if (wait.refused) made.append(el("p", { class: "warn" }, wait.refused));
  if (each.answerable) made.append(answers(record, wait, by, made, done));
  else made.append(el("p", { class: "quiet small" }, each.until));
  return made;
}

function answers(record, wait, by, made, done) {
  const problem = el("p", { class: "warn", role: "alert" }), name = field("Your name", localStorage.getItem(NAME) ?? by);
  const reason = field("Reason (the model reads it)", ""), value = wait.what === "approval" ? area("Other arguments, as JSON", JSON.stringify(wait.args, null, 1)) : wait.what === "doubt" ? area("Its result, as JSON (for “it happened”)", "") : answerField(wait);
  const give = async (verdict, more) => {
    problem.textContent = "";
    const buttons = [...made.querySelectorAll("button")];
    let word;
    try { word = { run: wait.run, of: wait.of, verdict, by: name.input.value, waiting: wait, ...more() }; } catch (error) { problem.textContent = error.message; return; }
    if (word.by.trim()) localStorage.setItem(NAME, word.by);
    for (const each of buttons) each.disabled = true;
    try {
      await api.answer(record, word);
      made.classList.remove("busy");
      made.replaceChildren(el("p", {}, `Written down: ${verdict}, by ${word.by}. Whoever drives the run goes on with it.`));
      announce("Written down");
      setTimeout(done, 400);
    } catch (error) {
      problem.textContent = error.message;
      for (const each of buttons) each.disabled = false;
      if (!word.by.trim()) { name.row.closest("details").open = true; name.input.focus(); }
    }
  };
  made.addEventListener("input", () => made.classList.add("busy"));
  const why = () => (reason.input.value ? { reason: reason.input.value } : {});
  const button = (text, verdict, more, main) => el("button", { class: main ? "main" : "", type: "button", onclick: () => give(verdict, more) }, text);
  if (wait.what === "approval") {
    const changed = () => (value.input.value.trim() === JSON.stringify(wait.args, null, 1) ? {} : { args: json(value.input.value, "The arguments are") });
    return el("div", { class: "answers" }, el("div", { class: "buttons" }, button("Approve", "approved", () => ({ ...changed(), ...why() }), true), button("Deny", "denied", why)),
      el("details", {}, el("summary", {}, "Name, reason, other arguments"), name.row, reason.row, value.row), problem);
  }
  if (wait.what === "doubt") {
    const result = () => (value.input.value.trim() ? { value: json(value.input.value, "The result is") } : {});
    return el("div", { class: "answers" }, el("div", { class: "buttons" }, button("It happened", "done", result, true), button("It did not happen", "failed", () => ({})), button("Try it again", "retry", () => ({}))),
      el("details", {}, el("summary", {}, "Name, result"), name.row, value.row), problem);
  }
  return el("div", { class: "answers" }, value.row, el("div", { class: "buttons" }, button("Answer", "answered", () => ({ value: value.read() }), true)), el("details", {}, el("summary", {}, "Your name"), name.row), problem);
}

function answerField(wait) {
  const type = wait.schema?.type;
  if (wait.schema?.enum) {
    const input = el("select", {}, CHOOSE(), wait.schema.enum.map((each, place) => el("option", { value: place }, String(each))));
    return { input, row: labelled("Answer", input), read: () => wait.schema.enum[Number(chosen(input))] };
  }
  if (type === "boolean") {
    const input = el("select", {}, CHOOSE(), el("option", { value: "true" }, "yes"), el("option", { value: "false" }, "no"));
    return { input, row: labelled("Answer", input), read: () => chosen(input) === "true" };
  }
  if (type === "number" || type === "integer") {
    const input = el("input", { type: "number", min: wait.schema.minimum, max: wait.schema.maximum, step: type === "integer" ? 1 : "any" });
    return { input, row: labelled("Answer, as a number", input), read: () => json(input.value, "The answer is") };
  }
  const made = wait.schema && type !== "string" ? area("Answer, as JSON", "") : field("Answer", "");
  return { ...made, read: () => (wait.schema && type !== "string" ? json(made.input.value, "The answer is") : made.input.value) };
}

const CHOOSE = () => el("option", { value: "", selected: true }, "choose…");

/** Return the value that a person chose. Nothing is chosen in advance, so that nobody answers by accident. */
function chosen(input) {
  if (!input.value) throw new api.Failed("Choose an answer first.");
  return input.value;
}

const labelled = (name, input) => el("label", {}, el("span", {}, name), input);
const field = (name, value) => { const input = el("input", { type: "text", value }); return { input, row: labelled(name, input) }; };
const area = (name, value) => { const input = el("textarea", { rows: 4 }, value); return { input, row: labelled(name, input) }; };

function json(text, what) {
  try { return JSON.parse(text); } catch { throw new api.Failed(`${what} no JSON.`); }
}
