// The links between the forms of one run, such as conversation and activity. Each form has its own address.
import { el } from "./dom.js";

export const FORMS = [["", "Conversation"], ["activity", "Activity"], ["steps", "Steps"], ["task", "Task"], ["react", "ReAct"], ["codeact", "CodeAct"], ["why", "Why"]];

/** Return links to the forms of a run, and to what was sent. `here`: the name of the form that is shown. */
export function forms(record, run, here) {
  const at = `/r/${record}/run/${encodeURIComponent(run)}`;
  const link = (name, words, address) => el("a", { href: address, "aria-current": name === here ? "page" : undefined }, words);
  const made = el("nav", { class: "tabs forms", "aria-label": "Forms of this run" }, FORMS.map(([name, words]) => link(name, words, name ? `${at}?form=${name}` : at)), link("time", "Timeline", `${at}/time`), link("sent", "What was sent", `${at}/sent`));
  requestAnimationFrame(() => { // if the row is longer than the screen, the shown form is scrolled to its middle
    const current = made.querySelector("[aria-current]");
    if (current) made.scrollLeft = current.offsetLeft - made.offsetLeft - (made.clientWidth - current.clientWidth) / 2;
  });
  return made;
}

/** Return a link to the request that the completion `seq` answered; nothing if it is not known. */
export function asked(record, run, seq, words = "what was sent?") {
  return !seq ? "" : el("a", { class: "asked-for", href: `/r/${record}/run/${encodeURIComponent(run)}/sent/${seq - 1}` }, words);
}
