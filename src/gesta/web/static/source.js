// Loads the data of the pages from the server of `gesta view`, and makes the addresses of pages.
// In a folder that `gesta view --export` wrote, folder.js takes the place of this file and exports the same names.

import { parse } from "./json.js";

export class Failed extends Error {}

/** Facts about a copy; `null` if the pages show the record itself. */
export const copy = null;

/** Return the viewer's answer to a request. If there is a `word`, it is sent as the body. */
export async function get(path, word) {
  const sent = word === undefined ? {} : { method: "POST", body: JSON.stringify(word) };
  let answer;
  try { answer = await fetch(path, { headers: { accept: "application/json", ...(word === undefined ? {} : { "content-type": "application/json" }) }, ...sent }); }
  catch { throw new Failed("The viewer does not answer. Is `gesta view` still running?"); }
  const type = answer.headers.get("content-type") ?? "";
  if (!type.includes("json")) throw new Failed((await answer.text()).slice(0, 400));
  const body = parse(await answer.text());
  if (!answer.ok) throw new Failed(body.error?.message ?? answer.statusText);
  return body;
}

/** Follow what is new. The browser comes back by itself, where it was.
 * `connected(state)` is told "open", "lost" while the browser tries again, and "closed" once the viewer refused it. */
export function follow(path, name, hear, connected) {
  const source = new EventSource(path);
  source.addEventListener(name, (event) => hear(parse(event.data)));
  source.addEventListener("open", () => connected("open"));
  source.addEventListener("error", () => connected(source.readyState === EventSource.CLOSED ? "closed" : "lost"));
  return () => source.close();
}

/** Return the path of the page, as `/r/0/run/ID`. */
export const path = () => location.pathname;
export const query = () => new URLSearchParams(location.search);
/** Return the `href` for a link to an address of the viewer. */
export const href = (address) => address;
