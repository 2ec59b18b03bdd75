// Reads the data of a folder that `gesta view --export` wrote: scripts, loaded when they are needed, without a server.
// The address of a page is the query of index.html: `index.html?/r/0/run/ID&all=1#34`.

import { parse } from "./json.js";

export class Failed extends Error {}

const loading = new Map(), arrived = new Map(), PLAIN = /^[a-z0-9.-]+$/, script = document.currentScript;
globalThis.gestaData = (name, text) => arrived.set(name, text); // each data file calls this

/** Return the data of a file. It is loaded again each time, so that a long run does not fill the memory. */
function load(name) {
  if (!loading.has(name)) {
    loading.set(name, new Promise((done, failed) => {
      const element = document.createElement("script");
      const end = () => {
        const text = arrived.get(name);
        element.remove(); loading.delete(name); arrived.delete(name);
        if (text === undefined) failed(new Failed(MISSING)); else done(text);
      };
      element.addEventListener("load", end);
      element.addEventListener("error", end);
      element.src = new URL(`data/${name}.js`, script.src).href;
      document.head.append(element);
    }));
  }
  return loading.get(name).then(parse);
}

/** Facts about the copy: its time, its record, and its runs. */
export const copy = JSON.parse(script.dataset.copy);
const MISSING = "This copy does not hold that. Open the record with `gesta view`.";

const HELD = new Set(["entry", "all", "after", "limit"]); // other requests need a server

/** Return the name of the data file for a request about a run; `undefined` if copies have no such file. */
function named(address) {
  const [where, facts] = address.split("?"), asked = new URLSearchParams(facts), parts = where.split("/").slice(3).map(decodeURIComponent);
  const place = copy.runs.indexOf(parts[1]), rest = parts.slice(2), given = [...asked].filter(([, value]) => value !== "");
  if (parts[0] !== "runs" || place < 0 || given.some(([key]) => !HELD.has(key))) return undefined;
  if (rest[0] === "requests" && rest[2] === "messages") return rest.length > 3 ? undefined : `${place}-requests-${rest[1]}-messages-${Math.floor((Number(asked.get("after")) || 0) / copy.messages)}`;
  if (rest[0] === "forms" && asked.get("entry")) return undefined;
  given.sort(([one], [other]) => (one < other ? -1 : 1));
  const name = [place, ...(rest.length ? rest : ["run"]), ...given.flat()].join("-");
  return PLAIN.test(name) ? name : undefined;
}

export async function get(address, word) {
  if (word !== undefined) throw new Failed("This is a copy: nothing can be changed here.");
  if (address === "/api/records") return [copy.about];
  if (address === "/api/0/waiting") return load("waiting");
  if (address === "/api/0/ways") return { dialects: [], forms: [] };
  const [where, facts] = address.split("?"), asked = new URLSearchParams(facts), parts = where.split("/");
  if (parts[5] === "lines" && copy.runs.includes(decodeURIComponent(parts[4]))) return lines(copy.runs.indexOf(decodeURIComponent(parts[4])), Number(asked.get("after")), Number(asked.get("limit")));
  if (parts[5] === "requests" && parts.length === 7) address = `${parts.slice(0, 6).join("/")}/${await request(copy.runs.indexOf(decodeURIComponent(parts[4])), Number(parts[6]))}?${facts ?? ""}`;
  const name = named(address), found = name === undefined ? null : await load(name);
  if (found === null) throw new Failed(MISSING); // the file states that the answer was left out
  return parts[7] === "messages" ? found.slice(0, Number(asked.get("limit"))) : found;
}

/** Return the seq of the last request up to an entry. */
async function request(place, seq) {
  const { requests, total } = place < 0 ? { requests: [] } : await load(`${place}-requests`) ?? { requests: [] };
  return requests.length === total ? requests.findLast((each) => each.seq <= seq)?.seq ?? seq : seq;
}

/** Return the lines after an entry, from their data files. */
async function lines(place, after, limit) {
  const found = [], first = Math.floor(after / copy.page);
  for (let page = first; found.length < limit && page * copy.page < copy.heads[place]; page += 1) {
    const read = await load(`${place}-lines-${page}`);
    found.push(...read.filter((line) => line.seq > after));
  }
  return found.slice(0, limit);
}

/** Do nothing: a copy gets no new entries. */
export function follow() { return () => {}; }

const parts = () => location.search.slice(1).split("&");
/** Return the path of the page. In place of a list of sessions, it is the path of the first run. */
export const path = () => (/^\/r\/0\/\w/.test(parts()[0]) ? parts()[0] : `/r/0/run/${encodeURIComponent(copy.runs[0])}`);
export const query = () => new URLSearchParams(parts().slice(1).join("&"));
export function href(address) {
  if (address.startsWith("/api/")) return `data/${named(address)}.bin`;
  return address.startsWith("/r/") ? `?${address.replace("?", "&")}` : address;
}
