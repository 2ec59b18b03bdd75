// The data of a folder that `gesta view --export` wrote: files of script, loaded as they are asked for, and no server.
// The address of a page is the query of index.html: `index.html?/r/0/run/ID&all=1#34`.

import { parse } from "./json.js";

export class Failed extends Error {}

const loading = new Map(), arrived = new Map(), PLAIN = /^[a-z0-9.-]+$/, script = document.currentScript;
globalThis.gestaData = (name, text) => arrived.set(name, text); // what each file of data calls

/** Return the data of a file. It is loaded each time that it is asked for, so that a long run does not fill the memory. */
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

/** Facts about the copy: when it was made, of what, and which runs it holds. */
export const copy = JSON.parse(script.dataset.copy);
const MISSING = "This copy does not hold that. Open the record with `gesta view`.";

export async function get(address, word) {
  const [where, facts] = address.split("?"), asked = new URLSearchParams(facts), parts = where.split("/").slice(3).map(decodeURIComponent);
  if (word !== undefined) throw new Failed("This is a copy: nothing can be changed here.");
  if (where === "/api/records") return [copy.about];
  if (parts[0] === "waiting") return load("waiting");
  const place = copy.runs.indexOf(parts[1]);
  if (parts[0] !== "runs" || place < 0) throw new Failed(MISSING);
  const rest = parts.slice(2);
  if (rest[0] === "lines") return lines(place, Number(asked.get("after")), Number(asked.get("limit")));
  asked.sort();
  const name = [place, ...(rest.length ? rest : ["run"]), ...[...asked].filter(([, value]) => value !== "").flat()].join("-");
  if (asked.get("turned") || !PLAIN.test(name)) throw new Failed(MISSING);
  const found = await load(name);
  if (found === null) throw new Failed(MISSING); // the file says that it was left out
  return found;
}

/** Return the lines after an entry, from the files that hold them. */
async function lines(place, after, limit) {
  const found = [], first = Math.floor(after / copy.page);
  for (let page = first; found.length < limit && page * copy.page < copy.heads[place]; page += 1) {
    const read = await load(`${place}-lines-${page}`);
    found.push(...read.filter((line) => line.seq > after));
  }
  return found.slice(0, limit);
}

/** Nothing comes: a copy stays as it is. */
export function follow() { return () => {}; }

const parts = () => location.search.slice(1).split("&");
/** Return the path of the page; that of a list of sessions is that of the first run. */
export const path = () => (/^\/r\/0\/\w/.test(parts()[0]) ? parts()[0] : `/r/0/run/${encodeURIComponent(copy.runs[0])}`);
export const query = () => new URLSearchParams(parts().slice(1).join("&"));
export function href(address) {
  const file = /^\/api\/0\/runs\/([^/]+)\/entries\/(\d+)\/files\/(\d+)$/.exec(address);
  if (file) return `data/${copy.runs.indexOf(decodeURIComponent(file[1]))}-entries-${file[2]}-files-${file[3]}.bin`;
  return address.startsWith("/r/") ? `?${address.replace("?", "&")}` : address;
}
