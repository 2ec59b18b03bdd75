// The keyboard shortcuts of all pages: the key for the search, and the dialog that lists all keys.
import { el } from "./dom.js";

const KEYS = {
  "On every page": [["/", "go to the search"], ["?", "show the keys"], ["Tab", "go on to the next link or button; the first one skips to the content"]],
  "In a conversation": [["j", "next item"], ["k", "item before"], ["f", "open or fold all calls"]],
  "In a drawn lineage": [["← ↑ ↓ →", "walk along the lines"], ["Enter", "go to the entry in the conversation"], ["f", "fold or open a turn"], ["+ and -", "larger, smaller"]],
  "In what was sent": [["j", "next request"], ["k", "request before"], ["1 2 3", "what changed, all of it, as the provider gets it"]],
};

/** Return whether a key belongs to a field in which a person writes, or to a shortcut of the browser. */
export const writes = (event) => event.target.matches("input, textarea, select") || event.metaKey || event.ctrlKey || event.altKey;

/** Handle the keys of every page. Return a button that shows all keys. */
export function keys() {
  const dialog = el("dialog", { class: "keys", "aria-labelledby": "keys" }, el("h2", { id: "keys" }, "Keys"),
    Object.entries(KEYS).map(([where, all]) => [el("h3", {}, where), el("dl", { class: "value" }, all.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)]))]),
    el("form", { method: "dialog" }, el("button", { class: "main" }, "Close")));
  document.body.append(dialog);
  const show = () => { if (!dialog.open) dialog.showModal(); };
  document.addEventListener("keydown", (event) => {
    if (writes(event) || dialog.open) return;
    if (event.key === "/") document.querySelector("input[type=search]")?.focus();
    else if (event.key === "?") show();
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("keydown", (event) => event.stopPropagation()); // the keys of the page are off while it is open
  return () => el("button", { class: "small help", type: "button", title: "Keys", "aria-label": "Keys", onclick: show }, "?");
}
